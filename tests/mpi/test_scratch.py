"""Scratch of large calls in bytes, for every algorithm: it is only laid out, not allocated."""

import numpy as np
import pytest

from mpicoll.algorithms import registry
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.plan import make_plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.reader import dense
from mpicoll.runtime.paths.messages import program_of
from mpicoll.runtime.program.layout import Layout, Shape
from mpicoll.settings import settings
from serving import served

# One rank lays out all of them.
pytestmark = [pytest.mark.ranks(1), pytest.mark.case("MEM-SCRATCH")]

GIB = 1 << 30
ALGORITHMS = [(c, a.name) for c in registry.COLLECTIVES if c != "barrier" for a in registry.known(c)]
#: block of the input, blocks of the output: one, or one for each rank
BLOCKS = {
    "gather": (False, True),
    "allgather": (False, True),
    "scatter": (True, False),
    "reduce_scatter": (True, False),
    "alltoall": (True, True),
}


def operands(collective, size, nbytes):
    """A call of float32 with equal blocks, as if on a rank that has all buffers."""
    row, count = registry.COLLECTIVES[collective], nbytes // 4
    call = Operands(row, collective, np.dtype("f4"), count=count, nbytes=nbytes)
    if collective in BLOCKS:
        one, many = ((count // size,), (0,)), dense((count // size,) * size)
        sent, received = BLOCKS[collective]
        call.in_blocks, call.out_blocks = many if sent else one, many if received else one
    return call


def layouts(collective, name, size, nbytes, limit):
    """Where the scratch of each rank is, for two roots."""
    call = operands(collective, size, nbytes)
    facts = Facts(collective, size, nbytes, "device", paths=("direct", "staged"))
    for root in (0, size - 1) if call.row.rooted else (0,):
        for rank in range(size):
            plan = make_plan(PlanKey(facts, rank, root, name, scratch_limit=limit))
            shape = Shape.of(call, rank, size)
            program = program_of(plan.schedule, shape, False, plan.segments, plan.lanes)
            yield plan, Layout(shape, program.schedule, program.segments, program.lanes, 4)


@pytest.mark.parametrize("limit", [settings.scratch_limit, 1 << 24], ids=["as set", "16M"])
@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
def test_scratch_is_bounded(collective, name, limit):
    """A gigabyte, on 2 to 8 ranks; lengths are rounded up to what kernels move at once."""
    sizes = range(2, 9) if limit == settings.scratch_limit else (3, 8)
    for size in served(registry.get(collective, name), sizes):
        for plan, layout in layouts(collective, name, size, GIB, limit):
            rounding = layout.lanes * (256 + 16 * len(layout.schedule.scratch))
            assert layout.scratch_bytes <= limit + rounding, (size, plan.segments, plan.lanes)


@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
def test_a_small_call_is_not_cut(collective, name):
    for size in served(registry.get(collective, name), (2, 5, 8)):
        assert {p.segments for p, _ in layouts(collective, name, size, 1 << 14, settings.scratch_limit)} == {1}
