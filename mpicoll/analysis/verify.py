"""The verifier: proves that all ranks' schedules together are the collective, or raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpicoll.analysis.form import check_form, check_kinds
from mpicoll.analysis.machine import Rank, run
from mpicoll.analysis.values import Values, rank_list
from mpicoll.errors import ScheduleError
from mpicoll.schedule.collectives import Collective, collective
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.pack import pack
from mpicoll.schedule.planner import compile_program, stepwise_program
from mpicoll.schedule.program import CellKey, Program

#: (segments, lanes) of the planner's orders that every schedule must survive: uncut, all in flight, one
#: after the other, and three lanes of which two are used again
PIPELINES = ((1, 1), (2, 2), (3, 1), (5, 3))


@dataclass(frozen=True)
class Proof:
    """Properties of schedules that were proven besides correctness.

    The ring's allreduce on 4 ranks has ordered False, same_bits True, left_fold False, scratch 3.

    Attributes:
        ordered: operands are combined in rank order, so a non-commutative operator is served.
        same_bits: all ranks that get a reduced block get it by the same expression.
        left_fold: operands are combined one after the other in rank order, so that bits depend on nothing else.
        scratch: the most scratch cells that a rank uses, in blocks.
    """

    ordered: bool
    same_bits: bool
    left_fold: bool
    scratch: int


def verify(
    name: str,
    schedules: Sequence[Schedule],
    *,
    root: int = 0,
    in_place: bool = True,
    pipelines: Sequence[tuple[int, int]] = PIPELINES,
) -> Proof:
    """Prove that schedules[r] for every rank r together perform a collective.

    Checks these, for the steps as written and for the planner's pipelined orders:

      - every cell exists, and sends and receives match;
      - there is no deadlock, even when every send waits for its receive;
      - nothing is read or written while a message or reduction still uses it, and the input is left alone;
      - every output block is made of exactly the ranks that it must be made of.

    Args:
        name: the collective.
        schedules: one for each rank.
        root: the root, where the collective has one.
        in_place: also prove it with input and output in the same memory.
        pipelines: (segments, lanes) of the planner's orders to prove.

    Raises:
        ScheduleError: the first thing that is wrong, with rank, step and block.
    """
    row, size = collective(name), len(schedules)
    for rank, schedule in enumerate(schedules):
        check_kinds(rank, schedule, size)
    if len({s.blocks for s in schedules}) != 1:
        raise ScheduleError(f"ranks cut the vector into different numbers of blocks: {[s.blocks for s in schedules]}")
    if not row.free and schedules[0].blocks != row.blocks(size):
        raise ScheduleError(f"{row.name} has {row.blocks(size)} blocks for {size} ranks, not {schedules[0].blocks}")
    forms = [row.shared] if row.shared or not in_place else [False, True]
    proof = _prove_steps(row, schedules, root, forms)
    packed = [pack(s, lambda ref: len(ref) == 1) for s in schedules]
    for aliased in forms:
        for segments, lanes in pipelines:
            chosen = schedules if segments == 1 else packed
            _prove(row, [compile_program(s, segments, lanes, aliased) for s in chosen], root)
    return proof


def _prove_steps(row: Collective, schedules: Sequence[Schedule], root: int, forms: list[bool]) -> Proof:
    """Prove the steps as written, with input and output apart or in the same memory, as `forms` says.

    Args:
        row: the collective.
        schedules: of all ranks.
        root: the root, 0 where there is none.
        forms: true for input and output in the same memory.
    """
    programs = [stepwise_program(s) for s in schedules]
    proofs = []
    for aliased in forms:
        for rank, schedule in enumerate(schedules):
            check_form(rank, schedule, schedule.blocks, aliased)
        proofs.append(_prove(row, [replace(p, aliased=aliased) for p in programs], root))
    return proofs[0]


def initial_memory(
    row: Collective, program: Program, rank: int, size: int, root: int, values: Values
) -> dict[CellKey, int]:
    """Return a rank's memory before the collective: the value of each cell of its input.

    Args:
        row: the collective.
        program: the rank's.
        rank: whose memory it is.
        size: number of ranks.
        root: the root, 0 where there is none.
        values: makes the values.
    """
    buffer = "output" if program.aliased else "input"
    ids = row.before(rank, size, root, program.schedule.blocks)
    return {(buffer, s, b): values.leaf(rank, b) for s in range(program.segments) for b in ids}


def _prove(row: Collective, programs: list[Program], root: int) -> Proof:
    size = len(programs)
    values = Values(row.idempotent)
    memories = [initial_memory(row, p, r, size, root, values) for r, p in enumerate(programs)]
    before = [dict(m) for m in memories]
    ranks = run(programs, memories, values)
    ordered, same, left_fold = True, True, True
    results: dict[tuple[int, int], int] = {}
    for rank, had in zip(ranks, before, strict=True):
        expected = row.after(rank.number, size, root, programs[0].schedule.blocks)
        _check_untouched(rank, had, expected)
        for segment in range(programs[0].segments):
            for block, made_of in expected.items():
                value = _check_block(rank, values, segment, block, sum(1 << r for r in made_of))
                ordered &= values[value].span is not None
                left_fold &= values[value].left_fold
                if row.reducing:
                    same &= results.setdefault((segment, block), value) == value
    return Proof(ordered, same, left_fold, max(len(p.schedule.scratch) for p in programs))


def _check_block(rank: Rank, values: Values, segment: int, block: int, made_of: int) -> int:
    value = rank.memory.get(("output", segment, block))
    if value is None:
        raise ScheduleError(f"rank {rank.number}, end: output[{block}] was never written")
    got = values[value]
    if got.block != block or got.ranks != made_of:
        raise ScheduleError(
            f"rank {rank.number}, end: output[{block}] is block {got.block} of ranks {rank_list(got.ranks)}, "
            f"not of ranks {rank_list(made_of)}"
        )
    return value


def _check_untouched(rank: Rank, before: dict[CellKey, int], expected: dict) -> None:  # type: ignore[type-arg]
    for key, value in rank.memory.items():
        if key[0] == "output" and key[2] not in expected and before.get(key) != value:
            raise ScheduleError(f"rank {rank.number}, end: writes output[{key[2]}], which is not this rank's to write")
