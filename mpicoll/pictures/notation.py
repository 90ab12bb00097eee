"""How pieces, sets of ranks and messages are written.

    0-3     blocks 0 to 3; ranks 0 to 3        6-1   ranks 6, 7, 0 and 1 of 8
    b1:01   block 1, made of ranks 0 and 1     s2    segment 2 of the only block
    b1.2    segment 2 of block 1               2>3 b1:01   rank 2 sends it to rank 3
    b13     of an alltoall: from rank 1 to 3   b(01)3    from ranks 0 and 1 to 3

Ranks are written in one character each up to 35 (a is 10), so that sets of them stay short.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpicoll.analysis.values import rank_list
from mpicoll.pictures.film import Arrow, Film, Piece, Ranks
from mpicoll.schedule.ir import ranges, runs

#: ranks written as one character each
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
#: the value that the collective demands, in its place
COMPLETE = "✓"
#: parts of a message's text before the rest is counted
PARTS = 6


def digit(rank: int) -> str:
    """Return a rank's number, in one character up to 35."""
    return DIGITS[rank] if rank < len(DIGITS) else f"{rank},"


def ranks_text(ranks: Ranks, size: int) -> str:
    """Return a set of ranks, such as "01", "0-5", "6-1", "0246"."""
    numbers = rank_list(ranks)
    found = runs(numbers)
    if len(found) > 1 and found[0][0] == 0 and found[-1][1] == size - 1:
        found = [*found[1:-1], (found[-1][0], found[0][1])]  # round the end
    return "".join(_run_text(first, last, size) for first, last in found).rstrip(",")


def _run_text(first: int, last: int, size: int) -> str:
    many = (last - first) % size + 1
    if many <= 2:
        return "".join(digit((first + k) % size) for k in range(many))
    return f"{digit(first).rstrip(',')}-{digit(last)}"


def numbers_text(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order, such as "0-3,5"."""
    return ranges(sorted(numbers))


def piece_name(film: Film, piece: Piece) -> str:
    """Return the name of a piece: of its block, its segment or both."""
    block, segment = piece
    if film.blocks == 1 and film.segments > 1:
        return f"s{segment}"
    return f"b{block_name(film, block)}" + (f".{segment}" if film.segments > 1 else "")


def block_name(film: Film, block: int) -> str:
    """Return a block's number; of an alltoall, source and target."""
    if film.row.name != "alltoall":
        return str(block)
    return "".join(map(digit, ends_of(film, block)))


def ends_of(film: Film, block: int) -> tuple[int, int]:
    """Return (source, target) of a block of an alltoall."""
    return divmod(block, film.size)


def made_of_ranks(film: Film) -> bool:
    """Tell whether blocks are combined, so that it matters which ranks are in them."""
    return film.row.reducing or film.row.idempotent


def arrow_text(film: Film, arrow: Arrow) -> str:
    """Return a message: its ranks, and what it carries."""
    groups: dict[tuple[Ranks, int], list[int]] = {}
    for (block, segment), ranks in arrow.pieces:
        groups.setdefault((ranks if made_of_ranks(film) else 0, segment), []).append(block)
    parts = [_group_text(film, blocks, segment, ranks) for (ranks, segment), blocks in groups.items()]
    if len(parts) > PARTS:
        parts = [*parts[: PARTS - 1], f"and {len(parts) - PARTS + 1} more"]
    return f"{arrow.source}>{arrow.target} {' '.join(parts)}"


def _group_text(film: Film, blocks: list[int], segment: int, ranks: Ranks) -> str:
    if film.row.name == "alltoall":
        sources: dict[int, list[int]] = {}
        for source, target in (ends_of(film, block) for block in blocks):
            sources.setdefault(source, []).append(target)
        alike: dict[str, list[int]] = {}
        for source, targets in sources.items():
            alike.setdefault(_some(targets, film.size), []).append(source)
        name = ",".join(f"{_some(found, film.size)}{targets}" for targets, found in alike.items())
    elif film.blocks == 1:
        name = ""
    else:
        name = numbers_text(blocks)
    text = f"b{name}" if name else ""
    if film.segments > 1:
        text += f".{segment}" if text else f"s{segment}"
    if not ranks:
        return text or "b0"
    return f"{text or 'b0'}:{ranks_text(ranks, film.size)}"


def _some(ranks: list[int], size: int) -> str:
    """Return sources or targets of blocks: one as it is, several in brackets."""
    text = ranks_text(sum(1 << rank for rank in ranks), size)
    return text if len(ranks) == 1 else f"({text})"
