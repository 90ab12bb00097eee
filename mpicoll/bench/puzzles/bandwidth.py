"""`bandwidth`: achieved against theoretical bandwidth of each kind of link, and the time of a message as a formula.

One pair of ranks of each kind of link sends messages there and back; half of that is the time of one. To the medians
T = latency + size / bandwidth is fitted, by the least squares of relative errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from mpicoll.bench.measure.backends import in_memory
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Column, Columns
from mpicoll.bench.output.rows import Record, quantity
from mpicoll.bench.puzzles.chains import Chains, Pair, check
from mpicoll.bench.puzzles.finding import Finding, plus_minus
from mpicoll.bench.puzzles.fit import Fit, fit, reached_half
from mpicoll.bench.puzzles.link import Link
from mpicoll.bench.puzzles.links import links
from mpicoll.bench.puzzles.options import PuzzleOptions
from mpicoll.bench.puzzles.pairs import Rounds, Times, pinged
from mpicoll.bench.request.jobs import LARGEST
from mpicoll.bench.tables.bench import Bench
from mpicoll.ranges import FACTOR, growing
from mpicoll.settings import format_bytes

#: round trips of one measurement: as many as send so many bytes, between the other two
ENOUGH, LEAST, MOST = 1 << 20, 5, 50

COLUMNS = Columns(
    Column("# size", "# (B)", 11, "left"),
    Column("time", "(us)", 18),
    Column("by the fit", "(us)"),
    Column("bandwidth", "(GB/s)"),
    Column("of the limit", "", 12),
)
SUMMARY = Columns(
    Column("# link", "#", 44, "left"),
    Column("theoretical", "(GB/s)", 12),
    Column("achieved", "(GB/s)", 9),
    Column("part", "", 6),
    Column("latency", "(us)", 8),
    Column("bandwidth", "(GB/s)", 9),
    Column("n_1/2", "(B)", 10),
    Column("error", "", 6),
)


def measure(bench: Bench, asked: PuzzleOptions) -> None:
    """Measure, print and write all of the puzzle; collective."""
    world, report = bench.world, bench.report
    check(world, bench.backend)
    _, joined = links(world, bench.backend)
    chosen = {link: min(pair for pair in joined if joined[pair] == link) for link in dict.fromkeys(joined.values())}
    nbytes = asked.sizes or tuple(growing(8, LARGEST[bench.backend.kind], FACTOR))
    report.total = len(chosen) * (len(nbytes) + 1)
    mine = {rank for pair in chosen.values() for rank in pair if world.rank in pair}
    chains = {size: in_memory(world, partial(Chains, world, bench.backend, size, sources=mine)) for size in nbytes}
    rounds = Rounds(world, bench.clock, asked.how.warmup, asked.how.iterations or 1)
    times = _taken(rounds, chains, list(chosen.values()))
    report.wrong += sum(world.allgather(sum(one.wrong() for one in chains.values())))
    fits = {}
    for link, pair in chosen.items():
        found = {size: Statistics.of(np.array(times[size, pair])) for size in nbytes}
        fits[link] = _print(bench, link, pair, found), found
    report.head(SUMMARY, "#")
    for link, (fitted, found) in fits.items():
        report.line(*summary(link, fitted, medians(found)))
        figures = speeds(link, achieved(medians(found))[1]) | (of_fit(fitted) if isinstance(fitted, Fit) else {})
        report.keep(Finding("fit", {"link": link.words}, figures=figures))
    report.say("#", *(f"# {line}" for link, (f, found) in fits.items() for line in sentences(link, f, medians(found))))


def _taken(rounds: Rounds, chains: Mapping[int, Chains], pairs: list[Pair]) -> Times:
    """Return the seconds of one message by size and pair, all in turn; collective.

    Args:
        rounds: take the times.
        chains: by size, the messages.
        pairs: one of each kind of link.
    """
    parts = {}
    for size, one in chains.items():
        number = min(max(ENOUGH // size, LEAST), MOST)
        for pair in pairs:
            parts[size, pair] = ((pair,), partial(pinged, one, pair, number))
    return {(size, pair): seconds for ((size, _), pair), seconds in rounds.take(parts).items()}


def medians(found: Mapping[int, Statistics]) -> dict[int, float]:
    """Return the median seconds by size."""
    return {size: one.median for size, one in found.items()}


def _print(bench: Bench, link: Link, pair: Pair, found: Mapping[int, Statistics]) -> Fit | str:
    """Print the table of one link, and return the fit, or why there is none.

    Args:
        bench: the run.
        link: that was measured.
        pair: of ranks that have it.
        found: seconds by size.
    """
    fitted = fitted_or_why(medians(found))
    bench.report.head(COLUMNS, "#", f"# {link.words}: ranks {pair[0]} and {pair[1]}", "#")
    for size, one in found.items():
        speed = size / one.median / 1e9
        by_fit = f"{fitted.seconds(size) * 1e6:.2f}" if isinstance(fitted, Fit) else "-"
        bench.report.line(str(size), plus_minus(one, 1e6), by_fit, f"{speed:.3f}", link.share(speed) or "not reported")
        about = {"link": link.words, "pair": pair, "bytes": size}
        bench.report.keep(Finding("message", about, {"message": one}, speeds(link, speed)))
    return fitted


def speeds(link: Link, speed: float) -> dict[str, Record]:
    """Return the figures of a link: the bandwidth that was reached, and the theoretical one."""
    return {"bandwidth": quantity(speed, "GB/s"), "theoretical": quantity(link.theoretical, "GB/s")}


def of_fit(fitted: Fit) -> dict[str, Record]:
    """Return the figures of a fit."""
    return {
        "latency": quantity(fitted.latency * 1e6, "us"),
        "fitted bandwidth": quantity(fitted.bandwidth / 1e9, "GB/s"),
        "n_1/2": quantity(fitted.half, "B"),
        "error": quantity(100 * fitted.error, "%"),
        "worst error": quantity(100 * fitted.worst, "%"),
    }


def fitted_or_why(times: Mapping[int, float]) -> Fit | str:
    """Return the fit to seconds by size, or why they determine none."""
    try:
        return fit(times)
    except ValueError as error:
        return str(error)


def summary(link: Link, fitted: Fit | str, times: Mapping[int, float]) -> tuple[str, ...]:
    """Return the cells of a link's line: theoretical, achieved, and the fit.

    Args:
        link: the link.
        fitted: the time of a message.
        times: seconds by size.
    """
    speed = achieved(times)[1]
    start = link.words, link.limit, f"{speed:.2f}", link.share(speed) or "-"
    if isinstance(fitted, str):
        return (*start, "-", "-", "-", "no fit")
    latency, half = (f"{fitted.latency * 1e6:.2f}", f"{fitted.half:.0f}") if fitted.latency else ("-", "-")
    return (*start, latency, f"{fitted.bandwidth / 1e9:.2f}", half, f"±{100 * fitted.error:.0f} %")


def achieved(times: Mapping[int, float]) -> tuple[int, float]:
    """Return (the size of the largest measured bandwidth, that in GB/s)."""
    size = max(times, key=lambda size: size / times[size])
    return size, size / times[size] / 1e9


def sentences(link: Link, fitted: Fit | str, times: Mapping[int, float]) -> list[str]:
    """Return what the figures of a link say.

    Args:
        link: the link.
        fitted: the time of a message.
        times: seconds by size.
    """
    size, speed = achieved(times)
    part = f"{link.share(speed)} of the theoretical {link.limit}" if link.theoretical else "the limit is not reported"
    lines = [f"{link.words[0].upper()}{link.words[1:]}: {speed:.3g} GB/s at {format_bytes(size)} B; {part}."]
    if isinstance(fitted, str):
        return [*lines, f"No fit: {fitted}; take more and larger sizes with --bytes."]
    bytes_only = f"size / ({fitted.bandwidth / 1e9:.3g} GB/s)"
    off = f"off by {100 * fitted.error:.0f} % (root mean square), {100 * fitted.worst:+.0f} % at {fitted.at} B at worst"
    if not fitted.latency:
        hidden = "These sizes do not show the latency; take smaller ones with --bytes."
        return [*lines, f"T = {bytes_only}, {off}.", hidden]
    half = f"{_rounded(fitted.half)} B by the fit, measured from {format_bytes(reached_half(times) or 0)} B on"
    below = "below it latency takes most of the time, above it the bytes do"
    formula = f"T = {fitted.latency * 1e6:.3g} us + {bytes_only}"
    return [*lines, f"{formula}, {off}.", f"Half of the bandwidth is reached at n_1/2 = {half}: {below}."]


def _rounded(number: float) -> str:
    return f"{float(f'{number:.2g}'):.0f}"
