"""Registration: how a user's algorithm becomes known, which is proven first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import MOST_PROVEN, SIZES_AT_REGISTRATION, Algorithm
from mpicoll.algorithms.registry import Function
from mpicoll.analysis.proof import check_card, check_waste, prove
from mpicoll.schedule.collectives import collective
from mpicoll.schedule.topology import FLAT, Topology, tried, tried_in_racks

#: where it accepts none of the small sizes, so many of the smallest that it accepts are proven
SIZES_INSTEAD = 3

#: ranks up to which the planner's orders are proven of algorithms for several hosts
PLANNED = 8
#: (size, root, whether the planner's orders are proven, too, which ranks are on one host)
ProvenCase = tuple[int, int, bool, Topology]


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
        registry.check_name(card)
        _prove(card, _cases_at_registration(card) if verified else ())
        registry.add(card)
        return function

    return register


def _cases_at_registration(card: Algorithm) -> Iterator[ProvenCase]:
    """Yield the cases that are proven of a new algorithm: small sizes, or the smallest that it accepts."""
    small = [size for size in SIZES_AT_REGISTRATION if not card.refuses(size)]
    for size in small:
        yield from ((size, root, True, FLAT) for root in (range(size) if card.row.rooted else (0,)))
    large = [] if small else [size for size in range(card.min_size, MOST_PROVEN + 1) if not card.refuses(size)]
    for size in large[:SIZES_INSTEAD]:
        yield from ((size, root, False, FLAT) for root in ((0, size - 1) if card.row.rooted else (0,)))


def verify_algorithm(card: Algorithm, sizes: Iterable[int], roots: Callable[[int], Iterable[int]] = range) -> int:
    """Verify an algorithm for all sizes that it accepts and all roots given for a size.

    One for several hosts is verified on several topologies of each size, one of more levels on such with racks.

    Returns:
        The number of cases proven.

    Raises:
        ScheduleError: naming collective, algorithm, size and root.
        ValueError: the card declares something that makes no sense.
    """
    where = ((n, hosts) for n in sizes for hosts in _topologies(card, n))
    cases = (
        (n, root, not card.by_hosts or n <= PLANNED, hosts)
        for n, hosts in where
        if not card.refuses(n, topology=hosts)
        for root in (roots(n) if card.row.rooted else (0,))
    )
    return _prove(card, cases)


def _topologies(card: Algorithm, size: int) -> Iterator[Topology]:
    """Yield the topologies of some number of ranks on which an algorithm is proven."""
    yield FLAT
    if card.by_hosts:
        yield from tried(size)
    if card.nested:
        yield from tried_in_racks(size)


def _prove(card: Algorithm, cases: Iterable[ProvenCase]) -> int:
    """Check the declarations of a card, then prove the cases; return their number."""
    check_card(card)
    found = [(n, prove(card, n, root, planned=planned, topology=hosts)) for n, root, planned, hosts in cases]
    largest = max((size for size, _ in found), default=0)
    if found and not card.by_hosts:  # whose declarations bound what all topologies need
        check_waste(card, largest, [space for size, space in found if size == largest])
    return len(found)
