"""A board of winners: a row for each message size, a column for each number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.report.contest import Contest
from mpicoll.report.winners import Winner, winner

#: sizes of a row differ by this factor at most: blocks are equal, so 8 bytes are 12 on 3 ranks
ALIKE = 1.5


@dataclass(frozen=True)
class Board:
    """The winners of a call.

    Attributes:
        sizes: of the rows, in bytes.
        ranks: of the columns.
        cells: by row and column.
        nbytes: by row and column, the size that was measured.
    """

    sizes: list[int]
    ranks: list[int]
    cells: dict[tuple[int, int], Winner]
    nbytes: dict[tuple[int, int], int]


def board(contests: Sequence[Contest]) -> Board:
    """Return the board of the contests of one call."""
    rows = alike({one.ranks: one.sizes for one in contests})
    cells, measured = {}, {}
    for column, one in enumerate(contests):
        for row, sizes in enumerate(rows):
            if one.ranks in sizes:
                measured[row, column] = sizes[one.ranks]
                found = winner(one, sizes[one.ranks])
                if found:
                    cells[row, column] = found
    return Board([common(row) for row in rows], [one.ranks for one in contests], cells, measured)


def alike(sizes: dict[int, list[int]]) -> list[dict[int, int]]:
    """Return rows of sizes that are nearly alike: by number of ranks, the size; each number once in a row."""
    rows: list[dict[int, int]] = []
    for nbytes, ranks in sorted((nbytes, ranks) for ranks, found in sizes.items() for nbytes in found):
        last = rows[-1] if rows else {}
        if last and ranks not in last and nbytes <= ALIKE * min(last.values()):
            last[ranks] = nbytes
        else:
            rows.append({ranks: nbytes})
    return rows


def common(row: dict[int, int]) -> int:
    """Return the size that most numbers of ranks have, the largest of several."""
    counted = Counter(row.values())
    return max(counted, key=lambda nbytes: (counted[nbytes], nbytes))
