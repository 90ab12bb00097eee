"""Plots of time and bandwidth over the message size, for one contest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mpicoll.pictures.units import size_text, time_text
from mpicoll.report.contest import Contest, Curve
from mpicoll.report.drawn import drawn
from mpicoll.report.winners import takeovers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: inches
SIZE = (10.5, 3.7)
#: sizes that are written on an axis
MOST_TICKS = 9
MARKERS = "osD^vP*X"
#: lines of baselines
DASHES = ("--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
BASELINE = {"color": "0.35", "linewidth": 1.2}
#: mpicoll's choice
CHOSEN = {"marker": "o", "markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.2, "zorder": 5}
#: a takeover, and its number above the plot
UPRIGHT = {"color": "0.5", "linewidth": 0.8, "linestyle": (0, (2, 2))}
NUMBER = {"fontsize": 8, "color": "0.3", "va": "bottom", "ha": "center"}


def curves(contest: Contest, colour: Mapping[str, Any]) -> str:
    """Return time and bandwidth over size: mpicoll's choices are circles, takeovers upright lines with numbers."""
    return drawn(*SIZE, partial(_draw, contest, colour))


def _draw(contest: Contest, colour: Mapping[str, Any], figure: Figure) -> None:
    time, bandwidth = figure.subplots(1, 2)
    _panel(time, contest, colour, "median")
    _panel(bandwidth, contest, colour, "busbw")
    for number, one in enumerate(takeovers(contest), 1):
        time.axvline(one.nbytes, **UPRIGHT)
        time.annotate(str(number), xy=(one.nbytes, 1.01), xycoords=("data", "axes fraction"), **NUMBER)
    time.yaxis.set_major_formatter(lambda micro, _: time_text(micro * 1e-6))
    bandwidth.yaxis.set_major_formatter(lambda speed, _: f"{speed:g}")
    time.set_title("time (median; its interval is shaded)", fontsize=9, pad=16)
    bandwidth.set_title("bus bandwidth (GB/s)", fontsize=9, pad=16)
    handles, labels = time.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)


def _panel(axes: Axes, contest: Contest, colour: Mapping[str, Any], value: str) -> None:
    """Draw all curves of a contest.

    Args:
        axes: where.
        contest: the curves.
        colour: of each algorithm.
        value: the attribute of a timing that is drawn.
    """
    for number, (name, curve) in enumerate(contest.curves.items()):
        marker = MARKERS[number % len(MARKERS)]
        _line(axes, curve, value, label=name, color=colour[name], marker=marker, markersize=3.5, linewidth=1.2)
    for number, (name, curve) in enumerate(contest.baselines.items()):
        _line(axes, curve, value, label=name, linestyle=DASHES[number % len(DASHES)], **BASELINE)
    line = "" if contest.curves else "-"
    _line(axes, contest.auto, value, label="chosen (auto)", color="black", linestyle=line, **CHOSEN)
    _ticks(axes, [size for size in contest.sizes if size])


def _line(axes: Axes, curve: Curve, value: str, **how: Any) -> None:
    """Draw a curve over the sizes above 0, times with their intervals.

    Args:
        axes: where.
        curve: by size.
        value: the attribute of a timing that is drawn.
        how: as matplotlib takes it.
    """
    points = [(nbytes, one) for nbytes, one in sorted(curve.items()) if nbytes and getattr(one, value)]
    sizes = [nbytes for nbytes, _ in points]
    axes.plot(sizes, [getattr(one, value) for _, one in points], **how)
    if value == "median" and how["color"] not in (BASELINE["color"], "black"):
        low, high = [one.low for _, one in points], [one.high for _, one in points]
        axes.fill_between(sizes, low, high, color=how["color"], alpha=0.1, linewidth=0)


def _ticks(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="message size")
    shown = sizes[:: -(-len(sizes) // MOST_TICKS)]
    axes.set_xticks(shown, [size_text(size) for size in shown], rotation=30, ha="right")
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.grid(alpha=0.3)
