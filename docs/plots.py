"""The plots of the tutorial, with matplotlib (extra `plots`); their numbers are in tables beside them."""

from __future__ import annotations

from pictures import FOLDER
from tables import RANKS, predicted, sweep


def broadcasts() -> None:
    """Draw predicted and measured times of broadcasts into docs/pictures/model.svg."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "mpicoll"
    from matplotlib import pyplot

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
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / "model.svg", metadata={"Date": None})
