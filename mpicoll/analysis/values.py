"""Symbolic values: who was combined with whom, in which order.

A value is an integer, interned, so that equal expressions are equal numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expression:
    """The parts of a value: which ranks are in it, and in which order.

    Ranks 0 and 1 combined, then 2: ranks 0b111, span (0, 2), left_fold True, text "(0 1) 2".

    Attributes:
        block: id of the block.
        ranks: bit mask of the ranks whose input takes part.
        span: (first, last) rank if the operands are in rank order without gaps, else None.
        left_fold: ranks are combined one after the other, from the left: ((0 1) 2) 3, or 0 1 2 3 at once.
        text: the expression written out, such as (0 1) 2.
    """

    block: int
    ranks: int
    span: tuple[int, int] | None
    left_fold: bool
    text: str


class Values:
    """Makes and looks up values."""

    def __init__(self, idempotent: bool = False) -> None:
        """Start empty; `idempotent` allows a rank to be combined twice."""
        self.idempotent = idempotent
        self.known: list[Expression] = []
        self.numbers: dict[tuple[int, ...], int] = {}

    def leaf(self, rank: int, block: int) -> int:
        """Return the value of a block of a rank's input."""
        return self._intern((-1, rank, block), lambda: Expression(block, 1 << rank, (rank, rank), True, str(rank)))

    def combine(self, operands: list[int]) -> int:
        """Return the value of a reduction; raises ValueError where it makes no sense."""
        if len(operands) == 1:
            return operands[0]
        return self._intern(tuple(operands), lambda: self._node([self.known[o] for o in operands]))

    def __getitem__(self, value: int) -> Expression:
        return self.known[value]

    def _intern(self, key: tuple[int, ...], make) -> int:  # type: ignore[no-untyped-def]
        number = self.numbers.get(key)
        if number is None:
            self.known.append(make())
            number = self.numbers[key] = len(self.known) - 1
        return number

    def _node(self, parts: list[Expression]) -> Expression:
        ranks = 0
        for part in parts:
            if part.block != parts[0].block:
                raise ValueError(f"combines block {parts[0].block} with block {part.block}")
            if ranks & part.ranks and not self.idempotent:
                raise ValueError(f"combines rank {first_rank(ranks & part.ranks)} twice")
            ranks |= part.ranks
        span = parts[0].span
        for part in parts[1:]:
            span = (span[0], part.span[1]) if span and part.span and part.span[0] == span[1] + 1 else None
        single = all(part.span is not None and part.span[0] == part.span[1] for part in parts[1:])
        left_fold = parts[0].left_fold and single and span is not None
        text = " ".join(f"({p.text})" if " " in p.text else p.text for p in parts)
        return Expression(parts[0].block, ranks, span, left_fold, text if len(text) < 400 else "...")


def first_rank(ranks: int) -> int:
    """Return the lowest rank in a bit mask."""
    return (ranks & -ranks).bit_length() - 1


def rank_list(ranks: int) -> list[int]:
    """Return the ranks in a bit mask."""
    return [r for r in range(ranks.bit_length()) if ranks >> r & 1]
