"""`topology`: all pairs of ranks, their links, and one source of three streams. The first puzzle.

Each pair of ranks is measured alone, with its opposite, and together with all other pairs.  Then the pairs are put
into clusters by their link and their bandwidth, and a sentence says why clusters differ.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from statistics import median

from mpicoll.bench.errors import RequestError, anywhere
from mpicoll.bench.measure.backends import in_memory
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Column, Columns
from mpicoll.bench.output.rows import quantity
from mpicoll.bench.puzzles import case as own
from mpicoll.bench.puzzles.chains import Chains, Pair, check
from mpicoll.bench.puzzles.clusters import clusters, sentences
from mpicoll.bench.puzzles.finding import Finding, measured, plus_minus
from mpicoll.bench.puzzles.heat import LEGEND, heat, plot
from mpicoll.bench.puzzles.link import Link
from mpicoll.bench.puzzles.links import links
from mpicoll.bench.puzzles.options import PuzzleOptions
from mpicoll.bench.puzzles.pairs import Figures, Rounds, bandwidths, kinds, latencies
from mpicoll.bench.tables.bench import Bench
from mpicoll.settings import format_bytes

#: bytes of a message that has latency and nothing else
SMALL = 8

STREAMS = Columns(
    Column("# from", "#", 6, "left"),
    Column("to", "", 4),
    Column("time", "(ms)", 16),
    Column("bandwidth", "(GB/s)"),
    Column("alone", "(GB/s)"),
    Column("  link", "", 20, "left"),
)


def measure(bench: Bench, asked: PuzzleOptions) -> None:
    """Measure, print and write all of the puzzle; collective."""
    world, report = bench.world, bench.report
    check(world, bench.backend)
    (nbytes,) = asked.sizes
    sites, joined = links(world, bench.backend)
    size = world.size
    report.total = len(joined) * (len(kinds(size)) + 1) + min(size - 1, own.TARGETS)
    report.say(*(f"# rank {rank}: {site}" for rank, site in enumerate(sites)))
    rounds = Rounds(world, bench.clock, asked.how.warmup, asked.how.iterations or 1)
    small = in_memory(world, partial(Chains, world, bench.backend, SMALL))
    figures: Figures = {"latency": latencies(rounds, small)}
    _keep(bench, "latency", SMALL, figures["latency"], joined)
    chains = in_memory(world, partial(Chains, world, bench.backend, nbytes))
    speeds, totals = bandwidths(rounds, chains)
    figures |= speeds
    report.wrong += sum(world.allgather(small.wrong() + chains.wrong()))
    for kind, found in speeds.items():
        _keep(bench, kind, nbytes, found, joined)
    report.say(*_maps(figures, nbytes, size))
    del small, chains
    case = _print_case(bench, asked, rounds, figures["alone"], joined)
    report.say("#", *(f"# {line}" for line in conclusions(figures, totals, joined)))
    if asked.trace:
        own.write_trace(bench, case, asked.trace, nbytes)
        report.say(f"# the trace of the case's streams: {asked.trace}")
    if asked.plot:
        _draw(bench, asked, figures)


def _keep(bench: Bench, kind: str, nbytes: int, found: Mapping[Pair, Statistics], joined: Mapping[Pair, Link]) -> None:
    """Write down what was measured of the pairs.

    Args:
        bench: the run.
        kind: what else travels at the same time.
        nbytes: bytes of a message.
        found: microseconds of a latency, GB/s of all else.
        joined: the pairs' links.
    """
    name, unit = ("latency", "us") if kind == "latency" else ("bandwidth", "GB/s")
    for pair, one in sorted(found.items()):
        about = {"pair": pair, "bytes": nbytes, "link": joined[pair].words}
        figures = {name: measured(one, unit), "theoretical": quantity(joined[pair].theoretical, "GB/s")}
        bench.report.keep(Finding(kind, about, figures=figures))


def _maps(figures: Figures, nbytes: int, size: int) -> list[str]:
    """Return the heat maps in lines."""
    width = shutil.get_terminal_size((100, 24)).columns - 2
    lines = ["#", f"# {LEGEND}"]
    for kind, found in figures.items():
        unit = f"latency of {SMALL} B, us" if kind == "latency" else f"{in_words(nbytes)}, {kind}, GB/s"
        table = heat({pair: one.median for pair, one in found.items()}, size, width)
        lines += ["#", f"# {unit}", *(f"# {line}" for line in table)]
    return lines


def _print_case(
    bench: Bench, asked: PuzzleOptions, rounds: Rounds, alone: Mapping[Pair, Statistics], joined: Mapping[Pair, Link]
) -> own.Case:
    """Measure the puzzle's own case, print its table, and return it.

    Args:
        bench: the run.
        asked: the command line.
        rounds: take the times.
        alone: bandwidth of each pair alone.
        joined: the pairs' links.
    """
    report, (nbytes,), repeat = bench.report, asked.sizes, asked.repeat
    case = own.measured(bench, rounds, nbytes, repeat)
    report.wrong += case.wrong
    speeds = {pair: Statistics.of(nbytes * repeat / seconds / 1e9) for pair, seconds in case.seconds.items()}
    targets = ", ".join(str(target) for _, target in speeds)
    what = f"rank 0 sends {repeat} x {in_words(nbytes)} to each of {targets} at the same time"
    report.head(STREAMS, "#", f"# the puzzle's case: {what}; {case.how}", "#")
    for pair, speed in speeds.items():
        time, link = Statistics.of(case.seconds[pair]), joined[pair].words
        cells = plus_minus(time, 1e3), f"{speed.median:.2f}", f"{alone[pair].median:.2f}"
        report.line(*(str(rank) for rank in pair), *cells, f"  {link}")
        about = {"pair": pair, "bytes": nbytes, "repeat": repeat, "link": link}
        report.keep(Finding("one source", about, {"stream": time}, {"bandwidth": measured(speed, "GB/s")}))
    report.say("#", *(f"# {line}" for line in sentences(clusters(speeds, joined))))
    return case


def conclusions(figures: Figures, totals: Mapping[str, float], joined: Mapping[Pair, Link]) -> list[str]:
    """Return sentences: why pairs differ alone, and what is left of that where others send, too.

    Args:
        figures: by kind and pair, the latency and bandwidths.
        totals: by kind, the bandwidth of all pairs together.
        joined: the pairs' links.
    """
    alone = figures["alone"]
    times = [one.median for one in figures["latency"].values()]
    lines = [f"A message of {SMALL} B takes {median(times):.3g} us ({min(times):.3g} to {max(times):.3g}), alone."]
    lines += ["Pairs alone:", *sentences(clusters(alone, joined))]
    return lines + [shared(kind, figures[kind], totals[kind], alone) for kind in totals if kind != "alone"]


def shared(kind: str, found: Mapping[Pair, Statistics], total: float, alone: Mapping[Pair, Statistics]) -> str:
    """Return a sentence: what a pair has left where others send at the same time, and what all have together.

    Args:
        kind: which others.
        found: bandwidth of each pair beside them.
        total: bandwidth of all of them together.
        alone: bandwidth of each pair alone.
    """
    parts = [100 * one.median / alone[pair].median for pair, one in found.items()]
    times = total / median(one.median for one in alone.values())
    left = f"a pair has {median(parts):.0f} % of its bandwidth alone ({min(parts):.0f} to {max(parts):.0f})"
    return (
        f"{kind[0].upper()}{kind[1:]}: {left}; together they carry {total:.3g} GB/s, {times:.1f} times one pair alone."
    )


def in_words(nbytes: int) -> str:
    """Return a size in words: 40 MB, which is no power of two, or 64K B."""
    return f"{nbytes // 10**6} MB" if nbytes % 10**6 == 0 else f"{format_bytes(nbytes)} B"


def _draw(bench: Bench, asked: PuzzleOptions, figures: Figures) -> None:
    """Draw the pairs on rank 0; where that fails, all ranks raise RequestError."""
    why = ""
    if bench.world.rank == 0 and asked.plot:
        maps = {
            ("latency, us" if kind == "latency" else f"{kind}, GB/s"): {pair: one.median for pair, one in found.items()}
            for kind, found in figures.items()
        }
        try:
            plot(asked.plot, maps, bench.world.size)
            bench.report.say(f"# the picture: {asked.plot}")
        except RequestError as error:
            why = str(error)
    why = anywhere(bench.world, why)
    if why:
        raise RequestError(why)
