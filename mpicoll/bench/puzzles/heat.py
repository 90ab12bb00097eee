"""Heat maps of pairs: a number for each pair of ranks, shaded, in a terminal or a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mpicoll.bench.errors import RequestError
from mpicoll.bench.puzzles.chains import Pair

#: from a number near none to one near the most
SHADES = "░▒▓█"
#: what the shades mean
LEGEND = "█ above 75 % of the most, ▓ above 50, ▒ above 25, ░ below"


def heat(values: Mapping[Pair, float], size: int, width: int) -> list[str]:
    """Return the lines of a table: a row for each source, a column for each target.

    Where the numbers do not fit, the shades stand alone; where these do not fit, the first targets are shown.

    Args:
        values: of pairs; those that have none are empty.
        size: number of ranks.
        width: characters of a line at most.
    """
    most = max(values.values())
    texts = {pair: f"{value:.3g}" for pair, value in values.items()}
    label, cell = len(f"from {size - 1}"), max(map(len, texts.values())) + 3
    numbers = label + size * (cell + 1) <= width
    shown = size if numbers else min(size, width - label - 1)
    if not numbers:
        lines = [f"{'from/to':<{label}} 0 to {shown - 1}"]
        return lines + [
            f"{f'from {a}':<{label}} " + "".join(shade(values.get((a, b)), most) for b in range(shown))
            for a in range(size)
        ]
    lines = [" " * label + "".join(f" {f'to {b}':>{cell}}" for b in range(size))]
    for a in range(size):
        cells = (f" {texts.get((a, b), ''):>{cell - 3}} {shade(values.get((a, b)), most) * 2}" for b in range(size))
        lines.append((f"{f'from {a}':<{label}}" + "".join(cells)).rstrip())
    return lines


def shade(value: float | None, most: float) -> str:
    """Return the shade of a value, a space for none."""
    if value is None:
        return " "
    return SHADES[min(int(len(SHADES) * value / most), len(SHADES) - 1)]


def plot(file: Path, maps: Mapping[str, Mapping[Pair, float]], size: int) -> None:
    """Draw heat maps side by side.

    Args:
        file: the picture; its ending says of which kind.
        maps: by title, what is drawn.
        size: number of ranks.

    Raises:
        RequestError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(maps), 4), layout="constrained")
    for axes, (title, values) in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps.items(), strict=True):
        rows = [[values.get((a, b), float("nan")) for b in range(size)] for a in range(size)]
        image = axes.imshow(rows, vmin=0, cmap="viridis")
        axes.set(title=title, xlabel="to rank", ylabel="from rank", xticks=range(size), yticks=range(size))
        for (a, b), value in values.items():
            color = "black" if value > 0.6 * max(values.values()) else "white"  # viridis ends in yellow
            axes.text(b, a, f"{value:.3g}", ha="center", va="center", color=color, fontsize=8)
        figure.colorbar(image, ax=axes, shrink=0.7)
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise RequestError(f"--plot {file}: {error}") from None
