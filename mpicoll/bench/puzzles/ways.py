"""`allreduce-ways`: an all-reduce directly, as reduce + bcast, and as reduce_scatter + allgather. The second puzzle.

All ways of one size are timed in turn, on the same arrays, and validated before and after.  The predicted times are
those of the algorithms that were chosen; what decides is the term of their costs that differs the most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from mpi4py import MPI

from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import in_memory
from mpicoll.bench.measure.budget import Budget
from mpicoll.bench.measure.budget import measure as timed
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Column, Columns
from mpicoll.bench.output.rows import quantity
from mpicoll.bench.puzzles.compare import ALONE, DIRECT, Outcome, against_direct, of_reduce_scatter
from mpicoll.bench.puzzles.factors import predict
from mpicoll.bench.puzzles.finding import Finding, plus_minus
from mpicoll.bench.puzzles.options import PuzzleOptions
from mpicoll.bench.request.cases import CALLS, Case, make_case
from mpicoll.bench.request.jobs import LARGEST
from mpicoll.bench.tables.bench import Bench
from mpicoll.bench.tables.times import validate
from mpicoll.communicator import Communicator
from mpicoll.ranges import FACTOR, growing
from mpicoll.runtime.mpi.waiter import cores

Call = Callable[[], object]

#: (method, its arguments) of each call of a way
Made = list[tuple[str, tuple[object, ...]]]

COLUMNS = Columns(
    Column("# ranks", "#", 7, "left"),
    Column("size", "(B)", 9),
    Column("  way", "", 28, "left"),
    Column("time", "(us)", 20),
    Column("predicted", "(us)", 9),
    Column("to direct", "", 9),
    Column("  most of the prediction", "", 26, "left"),
    Column("algorithms", "", 10, "left"),
)


def measure(bench: Bench, asked: PuzzleOptions) -> None:
    """Measure, print and write all of the puzzle; collective."""
    world, report = bench.world, bench.report
    numbers = asked.ranks or (world.size,)
    nbytes = asked.sizes or tuple(growing(8, LARGEST[bench.backend.kind], FACTOR))
    report.total = len(numbers) * len(nbytes) * 4
    report.head(COLUMNS, "#")
    said = []
    for number in numbers:
        mine = bench.on_first(number)
        if mine:
            mine.budget = Budget(mine.world, asked.how.budget / len(numbers), len(nbytes))
            found = [_measured(mine, size) for size in nbytes]
            said += [_headed(number, mine.world), *against_direct(found), *of_reduce_scatter(found)]
        bench.leave(mine)
    report.wrong = max(world.allgather(report.wrong))
    report.say("#", *(f"# {line}" for line in said))


def _headed(number: int, part: MPI.Intracomm) -> str:
    """Return the line above the sentences on a number of ranks; collective."""
    most = max(Counter(part.allgather(MPI.Get_processor_name())).values())
    crowded = ", more than there are cores, which the predictions do not know of" if most > cores() else ""
    return f"On {number} ranks{crowded}:"


def _measured(bench: Bench, nbytes: int) -> Outcome:
    """Measure all ways at one size, print and write them.

    Args:
        bench: the run on the ranks that take part.
        nbytes: bytes of the vector, about.
    """
    size, rank = bench.world.size, bench.world.rank
    count = make_case(CALLS["reduce_scatter_block"], nbytes, "float32", size, "SUM", 0).count
    case = Case(CALLS["allreduce"], count, "float32", size, "SUM")
    arrays = in_memory(bench.world, partial(Arrays, case, False, rank, bench.backend))
    block = in_memory(bench.world, lambda: bench.backend.xp.empty(count // size, "f4"))
    made = ways(arrays, block, rank)
    calls = {name: _call(bench.contestant.comm, way) for name, way in made.items()}
    plans = {n: [bench.contestant.comm.Get_plan(method, *args) for method, args in way] for n, way in made.items()}
    bench.budget.begin()
    bench.report.wrong += _wrong(bench, arrays, calls, 0)
    options, made_calls = bench.options, list(calls.values())
    times = timed(made_calls, bench.clock, bench.budget, iterations=options.iterations, warmup=options.warmup)
    bench.report.wrong += _wrong(bench, arrays, calls, 1)
    measured = dict(zip(calls, map(Statistics.of, times), strict=True))
    outcome = Outcome(case.nbytes, measured, {name: predict(found) for name, found in plans.items()})
    for name, found in plans.items():
        _print(bench, case, outcome, name, [f"{plan.algorithm}/{plan.segments}@{plan.path}" for plan in found])
    return outcome


def ways(arrays: Arrays, block: object, rank: int) -> dict[str, Made]:
    """Return the calls of each way to sum up one array in another one, and those of a reduce_scatter alone.

    Args:
        arrays: of the all-reduce.
        block: an array for this rank's block.
        rank: this rank; the root is rank 0.
    """
    assert arrays.send and arrays.recv
    x, y = arrays.send.array, arrays.recv.array
    scattered: Made = [("Reduce_scatter_block", (x, block))]
    return {
        DIRECT: [("Allreduce", (x, y))],
        "reduce + bcast": [("Reduce", (x, None if rank else y)), ("Bcast", (y,))],
        "reduce_scatter + allgather": [*scattered, ("Allgather", (block, y))],
        ALONE: scattered,
    }


def _call(comm: Communicator, way: Made) -> Call:
    """Return a function that makes the calls of a way."""
    steps = [partial(getattr(comm, method), *arguments) for method, arguments in way]
    if len(steps) == 1:
        return steps[0]

    def both() -> None:
        for step in steps:
            step()

    return both


def _wrong(bench: Bench, arrays: Arrays, calls: dict[str, Call], iteration: int) -> int:
    """Return the wrong elements of all ways that end with the sum on every rank.

    Args:
        bench: the run.
        arrays: of the all-reduce.
        calls: the ways.
        iteration: number of the call, from which its numbers are made.
    """
    return sum(validate(bench, arrays, call, name, iteration) for name, call in calls.items() if name != ALONE)


def _print(bench: Bench, case: Case, outcome: Outcome, name: str, algorithms: list[str]) -> None:
    """Print a line, and write it down.

    Args:
        bench: the run.
        case: the all-reduce.
        outcome: of all ways at this size.
        name: of the way.
        algorithms: of its calls.
    """
    time, predicted, size = outcome.times[name], outcome.predicted[name], case.size
    factor, part = predicted.largest
    bench.report.line(
        *(str(size), str(case.nbytes), f"  {name}", plus_minus(time, 1e6), f"{predicted.total * 1e6:.2f}"),
        *(f"{outcome.ratio(name):.2f}", f"  {factor}, {100 * part:.0f} %", ", ".join(algorithms)),
    )
    about = {"ranks": size, "bytes": case.nbytes, "algorithms": algorithms}
    terms = {predicted.name(key): value for key, value in predicted.seconds.items()}
    figures = {"to direct": quantity(outcome.ratio(name), ""), "predicted": quantity(predicted.total * 1e6, "us")}
    figures |= {f"predicted: {key}": quantity(value * 1e6, "us") for key, value in terms.items()}
    bench.report.keep(Finding(name, about, {"mpicoll": time}, figures))
