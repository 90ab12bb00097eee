"""Plots of time over message sizes, or over numbers of ranks, with both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mpicoll.pictures.units import size_text, time_text

#: name of a curve -> its points
Series = Mapping[str, Sequence[tuple[float, float]]]
#: inches
SIZE = (8.0, 5.0)
MARKERS = "osD^vP*X"
#: places on the x axis that are all written there
MOST_TICKS = 14


def curves(
    series: Series,
    path: Path,
    title: str,
    xlabel: str,
    marks: Mapping[str, float] | None = None,
) -> None:
    """Draw curves into an SVG file; equal curves make equal files.

    Args:
        series: the curves, in seconds.
        path: of the file.
        title: above them.
        xlabel: what is on the x axis: "bytes", "ranks".
        marks: x of dashed lines upright by what they mean, such as crossovers.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError('plots need matplotlib: pip install "mpicoll[plots]"') from None
    with matplotlib.rc_context({"svg.hashsalt": "mpicoll", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        for number, (name, points) in enumerate(series.items()):
            xs, ys = zip(*sorted(points), strict=True)
            axes.plot(xs, ys, marker=MARKERS[number % len(MARKERS)], markersize=4, label=name)
        for name, x in (marks or {}).items():
            axes.axvline(x, color="0.5", linestyle="--", linewidth=1)
            axes.annotate(name, (x, 0.98), xycoords=("data", "axes fraction"), rotation=90, va="top", ha="right")
        places = sorted({x for points in series.values() for x, _ in points})
        axes.set(xscale="log", yscale="log", title=title, xlabel=xlabel, ylabel="time")
        if len(places) <= MOST_TICKS:
            texts = [size_text(x) if xlabel == "bytes" else f"{x:g}" for x in places]
            axes.set_xticks(places, texts, rotation=30 if xlabel == "bytes" else 0)
            axes.tick_params(axis="x", which="minor", bottom=False)
        axes.yaxis.set_major_formatter(lambda seconds, _: time_text(seconds))
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(path, format="svg", metadata={"Date": None})
