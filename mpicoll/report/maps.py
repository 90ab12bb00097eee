"""Heat maps of the report: the best algorithm and ratios over size and ranks, and a number for each pair of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mpicoll.pictures.units import size_text, time_text
from mpicoll.report.board import Board
from mpicoll.report.contest import Contest
from mpicoll.report.drawn import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: inches of a cell, and around the cells
CELL, AROUND = (1.3, 0.36), (1.0, 0.85)
#: the ratio that has the full colour, and its inverse
FULL = 3.0
#: row and column of a cell
Place = tuple[int, int]


def colours(contests: Iterable[Contest]) -> dict[str, str]:
    """Return a colour of matplotlib's for each algorithm, the same in all figures of a call."""
    names = dict.fromkeys(name for one in contests for nbytes in one.sizes for name in one.candidates(nbytes))
    return {name: f"C{number % 10}" for number, name in enumerate(names)}


def winners_map(board: Board, colour: Mapping[str, Any]) -> str:
    """Return the best algorithm over size and ranks: a cell has its colour, name and time."""
    found = board.cells.items()
    texts = {place: f"{one.name}\n{time_text(one.timing.median * 1e-6)}" for place, one in found}
    shades = {place: (colour[one.name], 0.4) for place, one in found}
    return _map(board, "the fastest algorithm", texts, shades)


def ratios_map(board: Board, baseline: str, ratios: Mapping[Place, float]) -> str:
    """Return a baseline's time over ours, over size and ranks: blue where mpicoll is faster, red where it is slower.

    Args:
        board: the cells.
        baseline: its name.
        ratios: by row and column.
    """
    texts = {place: f"{ratio:.2f}" for place, ratio in ratios.items()}
    return _map(board, f"t({baseline}) / t(mpicoll)", texts, {place: _shade(ratio) for place, ratio in ratios.items()})


def _shade(ratio: float) -> tuple[str, float]:
    """Return (colour, how much of it) of a ratio."""
    part = min(abs(math.log(ratio)) / math.log(FULL), 1.0) if ratio > 0 else 1.0
    return ("C0" if ratio > 1 else "C3"), 0.05 + 0.55 * part


def _map(board: Board, title: str, texts: Mapping[Place, str], shades: Mapping[Place, tuple[Any, float]]) -> str:
    """Return a map.

    Args:
        board: its rows and columns.
        title: above it.
        texts: of the cells.
        shades: (colour, how much of it) of the cells.
    """
    rows, columns = len(board.sizes), len(board.ranks)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, text in texts.items():
            _cell(axes, place, text, *shades[place])
        axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), xlabel="ranks", ylabel="message size")
        axes.set_xticks(range(columns), [str(number) for number in board.ranks])
        axes.set_yticks(range(rows), [size_text(size) for size in board.sizes])
        axes.tick_params(length=0)
        axes.set_title(title, fontsize=9)
        axes.spines[:].set_visible(False)

    return drawn(AROUND[0] + CELL[0] * columns, AROUND[1] + CELL[1] * rows, draw)


def _cell(axes: Axes, place: Place, text: str, shade: Any, much: float) -> None:
    """Draw a cell of a map.

    Args:
        axes: where.
        place: its row and column.
        text: in it.
        shade: its colour.
        much: how much of the colour there is.
    """
    from matplotlib.patches import Rectangle

    row, column = place
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=shade, alpha=much, edgecolor="none"))
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="white"))
    axes.text(column, row, text, ha="center", va="center", fontsize=6.5)


def matrix(title: str, unit: str, values: Mapping[tuple[int, int], float]) -> str:
    """Return a number for each pair of ranks.

    Args:
        title: above it.
        unit: of the numbers.
        values: by (from, to).
    """
    size = max(map(max, values)) + 1
    return drawn(1.5 + 0.6 * size, 1.2 + 0.45 * size, partial(_draw_matrix, f"{title} ({unit})", values, size))


def _draw_matrix(title: str, values: Mapping[tuple[int, int], float], size: int, figure: Figure) -> None:
    """Draw a number for each pair of ranks.

    Args:
        title: above it.
        values: by (from, to).
        size: number of ranks.
        figure: where.
    """
    axes = figure.subplots()
    rows = [[values.get((a, b), math.nan) for b in range(size)] for a in range(size)]
    axes.pcolormesh(rows, vmin=0, cmap="viridis", edgecolor="white", linewidth=1)
    for (a, b), value in values.items():
        shade = "black" if value > 0.6 * max(values.values()) else "white"  # viridis ends in yellow
        axes.text(b + 0.5, a + 0.5, f"{value:.3g}", ha="center", va="center", color=shade, fontsize=8)
    places, names = [rank + 0.5 for rank in range(size)], [str(rank) for rank in range(size)]
    axes.set(xlabel="to rank", ylabel="from rank", ylim=(size, 0))
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=9)
