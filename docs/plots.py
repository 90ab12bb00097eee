"""The plots of the tutorial, with matplotlib (extra `plots`); their numbers are in tables beside them."""

from __future__ import annotations

from typing import Any

from mpicoll.pictures.units import size_text
from performance.runs import newest
from performance.scale import TWO_LEVELS, curves
from pictures import FOLDER
from tables import RANKS, predicted, sweep


def _pyplot() -> Any:
    """Return matplotlib's module, which draws without a screen, and the same bytes each time."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "mpicoll"
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, name: str) -> None:
    """Write a figure into docs/pictures."""
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / name, metadata={"Date": None})


def broadcasts() -> None:
    """Draw predicted and measured times of broadcasts into docs/pictures/model.svg."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    sizes = sorted(nbytes for name, nbytes in sweep() if name == "bcast")
    for k, name in enumerate(("linear", "binomial", "ring")):
        colour = f"C{k}"
        axes.loglog(sizes, [predicted("bcast", name, n) for n in sizes], color=colour, label=f"{name}, model")
        took = [sweep()["bcast", n][f"{name}@mapped"] for n in sizes]
        axes.loglog(sizes, took, "o", color=colour, label=f"{name}, measured")
    axes.set_xlabel("bytes")
    axes.set_ylabel("microseconds")
    axes.set_title(f"bcast on {RANKS} H200, path mapped", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, "model.svg")


def at_scale() -> None:
    """Draw the predicted times of an allreduce on very many hosts into docs/pictures/at-scale.svg."""
    pyplot = _pyplot()
    (run,) = (run for run in newest() if run.kind == "at-scale")
    found = curves(run)
    kinds = sorted({one[:2] for one in found})
    figure, panels = pyplot.subplots(1, len(kinds), figsize=(15, 4.5), layout="constrained", sharey=True)
    for kind, axes in zip(kinds, panels, strict=True):
        for k, name in enumerate(name for *of, name in found if tuple(of) == kind):
            rows = found[(*kind, name)]
            ranks = sorted(rows)
            style = "-" if name in TWO_LEVELS else "--"
            axes.plot(ranks, [rows[p]["us"] for p in ranks], f"o{style}", color=f"C{k}", label=name, markersize=3)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=10)
        axes.set_title(f"{size_text(kind[0])}, hosts in {kind[1]}", fontsize=10)
        axes.set_xlabel("ranks")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("microseconds of an allreduce, predicted")
    panels[0].legend(fontsize=8)
    _save(figure, "at-scale.svg")
