"""The registry: every algorithm with its declared restrictions, cost and source."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from mpicoll.errors import ScheduleError, UnsupportedError
from mpicoll.schedule.collectives import COLLECTIVES, Collective, collective
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.patterns import power_of_two as is_power_of_two

#: sizes for which a user's algorithm is verified when it is registered
SIZES_AT_REGISTRATION = range(1, 18)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm's card.

    Attributes:
        name: the literature's name.
        collective: the row of the table that it performs.
        function: (rank, size) or (rank, size, root) -> Schedule, pure.
        cost: its time as an expression; see `mpicoll.analysis.cost`.
        reference: where it comes from.
        forwards: ranks pass on other ranks' blocks, so that all must know all counts;
            such algorithms cannot serve Gatherv, Scatterv and Alltoallv.
        power_of_two: only for numbers of ranks that are powers of two.
        even: only for even numbers of ranks.
        min_size: smallest number of ranks.
        ordered: operands are combined in rank order for every root.
        left_fold: they are combined one after the other, so that the bits depend on nothing but their order.
    """

    name: str
    collective: str
    function: Callable[..., Schedule]
    cost: str
    reference: str
    forwards: bool = True
    power_of_two: bool = False
    even: bool = False
    min_size: int = 1
    ordered: bool = False
    left_fold: bool = False

    @property
    def row(self) -> Collective:
        """The collective's row of the table."""
        return COLLECTIVES[self.collective]

    @cached_property
    def idea(self) -> str:
        """The docstring: what it does and when it wins."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def schedule(self, rank: int, size: int, root: int = 0) -> Schedule:
        """Return one rank's schedule."""
        return self.function(rank, size, root) if self.row.rooted else self.function(rank, size)

    def schedules(self, size: int, root: int = 0) -> list[Schedule]:
        """Return all ranks' schedules."""
        return [self.schedule(rank, size, root) for rank in range(size)]

    def vector_blocks(self, schedule: Schedule, size: int) -> int:
        """Return how many of a schedule's blocks make up a message size (see dispatch.plan)."""
        return size if self.collective == "alltoall" else schedule.blocks

    def restrictions(self) -> list[str]:
        """Return what it needs, in words."""
        needs = []
        if self.power_of_two:
            needs.append("a power-of-two number of ranks")
        if self.even:
            needs.append("an even number of ranks")
        if self.min_size > 1:
            needs.append(f"at least {self.min_size} ranks")
        if self.row.reducing and not self.ordered:
            needs.append("a commutative operator")
        if self.forwards and self.collective in ("gather", "scatter", "alltoall"):
            needs.append("counts that all ranks know")
        return needs

    def refuses(
        self, size: int, *, commutative: bool = True, counts_known: bool = True, left_fold: bool = False
    ) -> str | None:
        """Return why it cannot serve, or None if it can."""
        if self.power_of_two and not is_power_of_two(size):
            return f"needs a power-of-two number of ranks, got {size}"
        if self.even and size % 2 and size > 1:
            return f"needs an even number of ranks, got {size}"
        if size < self.min_size:
            return f"needs at least {self.min_size} ranks, got {size}"
        if self.row.reducing and not commutative and not self.ordered:
            return "needs a commutative operator"
        if self.row.reducing and left_fold and not self.left_fold:
            return "does not combine ranks from left to right, as reproducible='ranks' demands"
        if self.forwards and not counts_known:
            return "passes on other ranks' blocks, whose counts not all ranks know in this call"
        return None


_revision = [0]
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
    verified: bool = True,
) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Register a function (rank, size[, root]) -> Schedule as an algorithm.

    It is verified for 1 to 17 ranks and every root before it becomes reachable.

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
        verified: verify now; the packaged algorithms are verified in CI instead.

    Raises:
        ScheduleError: it is wrong, or not ordered though it claims to be.
        ValueError: the name is taken or not of the form [a-z][a-z0-9_]*.
    """

    def register(function: Callable[..., Schedule]) -> Callable[..., Schedule]:
        row = collective(collective_name)
        card = Algorithm(
            name or function.__name__,
            row.name,
            function,
            cost,
            reference,
            forwards=forwards,
            power_of_two=power_of_two,
            even=even,
            min_size=min_size,
            ordered=ordered or left_fold,
            left_fold=left_fold,
        )
        if not re.fullmatch(r"[a-z][a-z0-9_]*", card.name):
            raise ValueError(f"{row.name}: algorithm name {card.name!r} is not of the form [a-z][a-z0-9_]*")
        if card.name in _ALGORITHMS[row.name]:
            raise ValueError(f"{row.name}: algorithm {card.name!r} is already registered")
        _check_cost(card)
        if verified:
            verify_algorithm(card, SIZES_AT_REGISTRATION)
        _ALGORITHMS[row.name][card.name] = card
        _revision[0] += 1
        return function

    return register


def _check_cost(card: Algorithm) -> None:
    """Raise ValueError unless the declared cost can be evaluated."""
    if card.cost:
        from mpicoll.analysis.cost import MODELS  # the registry itself needs no model

        try:
            MODELS["host"].seconds(card.cost, 4, 1 << 20)
        except Exception as error:
            raise ValueError(f"{card.collective}.{card.name}: cost {card.cost!r}: {error}") from None


def verify_algorithm(card: Algorithm, sizes: Iterable[int], roots: Callable[[int], Iterable[int]] = range) -> int:
    """Verify an algorithm for all sizes that it accepts and all roots given for a size.

    Returns:
        The number of (size, root) cases proven.

    Raises:
        ScheduleError: naming collective, algorithm, size and root.
    """
    from mpicoll.analysis.verify import verify  # the registry itself needs no verifier

    cases = 0
    for size in sizes:
        if card.refuses(size):
            continue
        for root in roots(size) if card.row.rooted else (0,):
            where = f"{card.collective}.{card.name}, size {size}" + (f", root {root}" if card.row.rooted else "")
            try:
                proof = verify(card.collective, card.schedules(size, root), root=root)
            except ScheduleError as error:
                raise ScheduleError(f"{where}, {error}") from None
            if card.ordered and not proof.ordered:
                raise ScheduleError(f"{where}: claims to be ordered, but does not combine in rank order")
            if card.left_fold and not proof.left_fold:
                raise ScheduleError(f"{where}: claims to combine from left to right, but does not")
            if card.collective == "allreduce" and not proof.same_bits:
                raise ScheduleError(f"{where}: ranks get the result by different expressions, so by different bits")
            cases += 1
    return cases


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
    _revision[0] += 1


def revision() -> int:
    """Return a number that changes whenever the registry does."""
    return _revision[0]


def catalogue() -> dict[str, list[str]]:
    """Return the names of all algorithms by collective."""
    return {name: list(cards) for name, cards in _ALGORITHMS.items()}
