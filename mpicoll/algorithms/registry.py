"""The registry: every algorithm's card by collective and name, and how one gets there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mpicoll.algorithms.card import MOST_PROVEN, Algorithm
from mpicoll.errors import UnsupportedError
from mpicoll.schedule.collectives import COLLECTIVES, collective
from mpicoll.schedule.ir import Schedule

#: sizes for which a user's algorithm is verified when it is registered
SIZES_AT_REGISTRATION = range(1, 18)
#: where it accepts none of them, so many of the smallest that it accepts
SIZES_INSTEAD = 3

Function = Callable[..., Schedule]

#: (size, root, whether the planner's orders are proven, too)
Case = tuple[int, int, bool]

changes = [0]
_ALGORITHMS: dict[str, dict[str, Algorithm]] = {name: {} for name in COLLECTIVES}


def algorithm(
    collective_name: str,
    *,
    name: str = "",
    cost: str = "",
    reference: str = "",
    forwards: bool = True,
    power_of_two: bool = False,
    even: bool = False,
    min_size: int = 1,
    ordered: bool = False,
    left_fold: bool = False,
    uniform: str = "",
    blocks: str = "",
    scratch: str = "",
    packed: str = "",
    verified: bool = True,
) -> Callable[[Function], Function]:
    """Register a function (rank, size[, root]) -> Schedule as an algorithm.

    It is verified for 1 to 17 ranks and every root before it becomes reachable.  A larger size
    is verified when it is first used; above 64 ranks the algorithm is refused, unless it is `uniform`.

    Args:
        collective_name: the collective that it performs.
        name: the algorithm's name; the function's own if not given.
        cost: time as an expression in p, n, α, β, γ (see `mpicoll.analysis.cost`); without
            one the cost model never chooses the algorithm by itself.
        reference: where it comes from.
        forwards: ranks pass on other ranks' blocks.
        power_of_two: needs a power-of-two number of ranks.
        even: needs an even number of ranks (or one).
        min_size: needs at least so many ranks.
        ordered: claims to combine operands in rank order; proven.
        left_fold: claims to combine them one after the other from rank 0 on; proven.
        uniform: a sentence that says why the schedules of all sizes are right if those of 1 to 17
            ranks are; such an algorithm is not verified when it is used.
        blocks: number of blocks that the vector is cut into, as an expression in p, q, lg and r (see
            `mpicoll.algorithms.expression`); proven.  Without one, rank 0's schedule is made to know.
        scratch: blocks of scratch that a rank needs at most, as an expression, such as "p-1" or "q", with the
            cells of messages that do not follow each other; proven, also to be no more than twice what is
            needed.  Without one, the schedules of all ranks are made to know: for long vectors on many ranks
            that takes seconds.
        packed: the same where the blocks of a gather, scatter, allgather, reduce_scatter or alltoall are cut into
            segments: a message of several blocks is packed then; as many as `scratch` if not given.
        verified: if false, nothing is proven, now or later; its card says "not verified".

    Raises:
        ScheduleError: it is wrong, does not do what it claims, or needs other blocks or more scratch than it declares.
        ValueError: the name is taken or not of the form [a-z][a-z0-9_]*; the cost, `blocks`, `scratch` or
            `packed` has no value for some call; `min_size` or `uniform` make no sense.
    """

    def register(function: Function) -> Function:
        card = Algorithm(
            name or function.__name__,
            collective(collective_name).name,
            function,
            cost,
            reference,
            forwards=forwards,
            power_of_two=power_of_two,
            even=even,
            min_size=min_size,
            ordered=ordered or left_fold,
            left_fold=left_fold,
            uniform=uniform,
            blocks=blocks,
            scratch=scratch,
            packed=packed,
            verified=verified,
        )
        _check_name(card)
        _prove(card, _cases_at_registration(card) if verified else ())
        _add(card)
        return function

    return register


def packaged(
    collective_name: str, *, uniform: str, scratch: str, name: str = "", **declared: Any
) -> Callable[[Function], Function]:
    """Register one of the project's own algorithms, which CI proves: importing it costs nothing."""

    def register(function: Function) -> Function:
        declared["ordered"] = declared.get("ordered", False) or declared.get("left_fold", False)
        named = name or function.__name__
        _add(Algorithm(named, collective_name, function, uniform=uniform, scratch=scratch, **declared))
        return function

    return register


def _add(card: Algorithm) -> None:
    _ALGORITHMS[card.collective][card.name] = card
    changes[0] += 1


def _check_name(card: Algorithm) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", card.name):
        raise ValueError(f"{card.collective}: algorithm name {card.name!r} is not of the form [a-z][a-z0-9_]*")
    if card.name in _ALGORITHMS[card.collective]:
        raise ValueError(f"{card.collective}: algorithm {card.name!r} is already registered")


def _cases_at_registration(card: Algorithm) -> Iterator[Case]:
    """Yield the cases that are proven of a new algorithm: small sizes, or the smallest that it accepts."""
    small = [size for size in SIZES_AT_REGISTRATION if not card.refuses(size)]
    for size in small:
        yield from ((size, root, True) for root in (range(size) if card.row.rooted else (0,)))
    large = [] if small else [size for size in range(card.min_size, MOST_PROVEN + 1) if not card.refuses(size)]
    for size in large[:SIZES_INSTEAD]:
        yield from ((size, root, False) for root in ((0, size - 1) if card.row.rooted else (0,)))


def verify_algorithm(card: Algorithm, sizes: Iterable[int], roots: Callable[[int], Iterable[int]] = range) -> int:
    """Verify an algorithm for all sizes that it accepts and all roots given for a size.

    Returns:
        The number of (size, root) cases proven.

    Raises:
        ScheduleError: naming collective, algorithm, size and root.
        ValueError: the card declares something that makes no sense.
    """
    accepted = (size for size in sizes if not card.refuses(size))
    return _prove(
        card, ((size, root, True) for size in accepted for root in (roots(size) if card.row.rooted else (0,)))
    )


def _prove(card: Algorithm, cases: Iterable[Case]) -> int:
    """Check the declarations of a card, then prove the cases; return their number."""
    from mpicoll.analysis.proof import check_card, check_waste, prove  # the registry itself needs no verifier

    check_card(card)
    found = [(size, prove(card, size, root, planned=planned)) for size, root, planned in cases]
    largest = max((size for size, _ in found), default=0)
    if found:
        check_waste(card, largest, [space for size, space in found if size == largest])
    return len(found)


def get(collective_name: str, name: str) -> Algorithm:
    """Return an algorithm; the error for an unknown name lists the known ones."""
    row = collective(collective_name)
    known = _ALGORITHMS[row.name]
    if name not in known:
        raise ValueError(f"{row.name}: no algorithm {name!r}; known: {', '.join(sorted(known))}")
    return known[name]


def known(collective_name: str) -> tuple[Algorithm, ...]:
    """Return all algorithms of a collective, in order of registration."""
    return tuple(_ALGORITHMS[collective(collective_name).name].values())


def usable(collective_name: str, size: int, **needs: bool) -> tuple[Algorithm, ...]:
    """Return the algorithms that can serve; needs as in `Algorithm.refuses`."""
    return tuple(a for a in known(collective_name) if not a.refuses(size, **needs))


def require(collective_name: str, name: str, size: int, **needs: bool) -> Algorithm:
    """Return the algorithm of that name, or raise UnsupportedError naming the restriction and what would do."""
    card = get(collective_name, name)
    why = card.refuses(size, **needs)
    if why:
        names = ", ".join(sorted(a.name for a in usable(card.collective, size, **needs)))
        raise UnsupportedError(f"{card.collective}: {name!r} {why}; usable: {names}")
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
