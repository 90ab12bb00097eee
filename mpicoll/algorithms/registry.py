"""The registry: every algorithm's card by collective and name, and how one gets there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from mpicoll.algorithms.card import Algorithm
from mpicoll.algorithms.naming import HIERARCHICAL, HIERARCHIES, WORD, parsed
from mpicoll.errors import UnsupportedError
from mpicoll.schedule.collectives import COLLECTIVES, collective
from mpicoll.schedule.ir import Schedule

Function = Callable[..., Schedule]

#: a name that no algorithm has
RESERVED = "native"

changes = [0]
_ALGORITHMS: dict[str, dict[str, Algorithm]] = {name: {} for name in COLLECTIVES}


def packaged(
    collective_name: str,
    *,
    uniform: str,
    scratch: str,
    name: str = "",
    kind: type[Algorithm] = Algorithm,
    **declared: Any,
) -> Callable[[Function], Function]:
    """Register one of the project's own algorithms, which CI proves: importing it costs nothing.

    Args:
        collective_name: the collective that it performs.
        uniform: why the schedules of all sizes are right if those proven are.
        scratch: blocks of scratch that a rank needs at most, as an expression.
        name: the algorithm's name; the function's own if not given.
        kind: the card's class.
        declared: the rest of the card.
    """

    def register(function: Function) -> Function:
        declared["ordered"] = declared.get("ordered", False) or declared.get("left_fold", False)
        named = name or function.__name__
        add(kind(named, collective_name, function, uniform=uniform, scratch=scratch, **declared))
        return function

    return register


def add(card: Algorithm) -> None:
    """Enter a card; it is chosen from now on."""
    _ALGORITHMS[card.collective][card.name] = card
    changes[0] += 1


def check_name(card: Algorithm) -> None:
    """Raise ValueError for a name that is taken, or is none."""
    if not re.fullmatch(WORD, card.name):
        raise ValueError(f"{card.collective}: algorithm name {card.name!r} is not of the form [a-z][a-z0-9_]*")
    if card.name == RESERVED:
        raise ValueError(f"{card.collective}: {RESERVED!r} stands for MPI's own collective")
    if card.name == HIERARCHICAL:
        raise ValueError(f"{card.collective}: {HIERARCHICAL!r} stands for one of {', '.join(HIERARCHIES)}")
    if card.name in _ALGORITHMS[card.collective]:
        raise ValueError(f"{card.collective}: algorithm {card.name!r} is already registered")


def get(collective_name: str, name: str) -> Algorithm:
    """Return an algorithm, of a hierarchy also one with chosen inner algorithms (see `mpicoll.algorithms.naming`).

    The error for an unknown name lists the known ones.
    """
    row = collective(collective_name)
    known = _ALGORITHMS[row.name]
    return known[name] if name in known else _composed(row.name, name, revision())


@lru_cache(maxsize=1024)
def _composed(collective_name: str, text: str, revision: int) -> Algorithm:
    """Return a hierarchy with chosen inner algorithms, the same card until the registry changes."""
    known, (name, inner) = _ALGORITHMS[collective_name], parsed(text)
    names = [one for one in (HIERARCHIES if name == HIERARCHICAL else (name,)) if one in known]
    if not names:
        raise ValueError(f"{collective_name}: no algorithm {name!r}; known: {', '.join(sorted(known))}")
    found = next((known[one] for one in names if inner.keys() <= set(known[one].inner_collectives)), None)
    if found is None:
        has = "; ".join(f"{one} has {', '.join(known[one].inner_collectives) or 'none'}" for one in names)
        raise ValueError(f"{collective_name}: {name!r} has no inner {' and '.join(inner)} to choose; {has}")
    return found.composed(inner)


def known(collective_name: str) -> tuple[Algorithm, ...]:
    """Return all algorithms of a collective, in order of registration."""
    return tuple(_ALGORITHMS[collective(collective_name).name].values())


def usable(collective_name: str, size: int, **needs: Any) -> tuple[Algorithm, ...]:
    """Return the algorithms that can serve; needs as in `Algorithm.refuses`."""
    return tuple(a for a in known(collective_name) if not a.refuses(size, **needs))


def require(collective_name: str, name: str, size: int, **needs: Any) -> Algorithm:
    """Return the algorithm of that name, or raise UnsupportedError naming the restriction and what would do."""
    card = get(collective_name, name)
    why = card.refuses(size, **needs)
    if why:
        names = ", ".join(sorted(a.name for a in usable(card.collective, size, **needs)))
        raise UnsupportedError(f"{card.collective}: {card.name!r} {why}; usable: {names}")
    return card


def unregister(collective_name: str, name: str) -> None:
    """Remove an algorithm (for tests and interactive work)."""
    del _ALGORITHMS[collective(collective_name).name][name]
    changes[0] += 1


def revision() -> int:
    """Return a number that changes whenever the registry does."""
    return changes[0]


def catalogue() -> dict[str, list[str]]:
    """Return the names of all algorithms by collective."""
    return {name: list(cards) for name, cards in _ALGORITHMS.items()}
