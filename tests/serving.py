"""The numbers of ranks with which an algorithm is tested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def served(card: Any, sizes: Iterable[int], **needs: bool) -> list[int]:
    """Return the numbers of ranks that an algorithm serves; a test of none would test nothing."""
    found = [size for size in sizes if not card.refuses(size, **needs)]
    assert found, f"{card.collective} {card.name} serves none of these numbers of ranks"
    return found
