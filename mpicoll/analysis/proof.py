"""Proofs of algorithms: when one is registered, and when a user's is first used at a size.

The project's own algorithms are proven in CI, for 1 to 17, 32 and 64 ranks; each says on its card why
its schedules for all other sizes follow (`uniform`).  A user's algorithm is proven for 1 to 17
ranks when it is registered.  At a larger size it is proven when it is first used, in about a second at most:
the steps as written, apart and in place, for the root in use.  The planner's orders need no proof there: it keeps
the order of all that touches one cell, and cannot deadlock where the steps do not (see `schedule.planner`).

The limit of what is affordable is counted in cells, not in seconds: all ranks must come to the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from mpicoll.algorithms import space
from mpicoll.algorithms.card import LOCAL_COUNTS, MOST_PROVEN, REMEDY, SIZES_AT_REGISTRATION, Algorithm
from mpicoll.algorithms.space import Space
from mpicoll.analysis import cost
from mpicoll.analysis.form import check_counts, check_kinds
from mpicoll.analysis.verify import PIPELINES, Proof, verify
from mpicoll.errors import ScheduleError, UnsupportedError
from mpicoll.schedule.ir import Reduce, Schedule, Send
from mpicoll.schedule.topology import FLAT, Topology

#: cells that the operations of all ranks name together: what is proven in about a second on one core of 2026
MOST_CELLS = 30_000
#: blocks of scratch by which a declaration may exceed twice what is needed: what a simple expression gives few ranks
SPARE = 3


def check_card(card: Algorithm) -> None:
    """Raise ValueError if a card declares something that makes no sense."""
    name = f"{card.collective}.{card.name}"
    if isinstance(card.min_size, bool) or not isinstance(card.min_size, int) or not 1 <= card.min_size <= MOST_PROVEN:
        raise ValueError(f"{name}: min_size {card.min_size!r} is not a number from 1 to {MOST_PROVEN}")
    if not isinstance(card.uniform, str):
        raise ValueError(f"{name}: uniform {card.uniform!r} is not a sentence that says why all sizes are right")
    sizes = [size for size in range(2, MOST_PROVEN + 1) if not card.refuses(size)]
    try:
        if card.cost:
            cost.check(card.cost, sizes)
        for what, text in (("blocks", card.blocks), ("scratch", card.scratch), ("packed", card.packed)):
            _check_expression(what, text, sizes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if card.packed and not card.scratch:
        raise ValueError(f"{name}: packed={card.packed!r} without scratch=...")


def _check_expression(what: str, text: str, sizes: list[int]) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{what} {text!r} is no expression such as 'p-1'")
    for size in sizes if text else ():
        value = space.exact(what, text, size)
        if what == "blocks" and (value < 1 or value % 1):
            raise ValueError(f"blocks {text!r} with p={size} is {value:g}, no whole number from 1 on")


def prove(card: Algorithm, size: int, root: int = 0, *, planned: bool = True, topology: Topology = FLAT) -> Space:
    """Prove an algorithm for one size and root, and what its card claims and declares.

    Args:
        card: the algorithm.
        size: number of ranks.
        root: the root, where there is one.
        planned: the planner's orders, too.
        topology: which ranks are on one host.

    Returns:
        The space that the schedules need.

    Raises:
        ScheduleError: naming collective, algorithm, size and root.
    """
    return _prove(card, _schedules(card, size, root, topology), root, PIPELINES if planned else ())


def check_waste(card: Algorithm, size: int, spaces: Sequence[Space]) -> None:
    """Raise ScheduleError if a card declares far more scratch than any rank needs, whatever the root.

    Args:
        card: the algorithm, whose declarations bound what is needed.
        size: number of ranks; many, for a constant may be more than a few ranks need.
        spaces: what is needed, for each root that was proven.
    """
    most = (False, max(one.scratch for one in spaces)), (True, max(one.packed for one in spaces))
    for segmented, blocks in most if card.scratch else ():
        if card.scratch_blocks(size, segmented) > 2 * blocks + SPARE:
            why = f"far more than the {blocks} that are needed"
            raise ScheduleError(f"{card.collective}.{card.name}, size {size}: {_promise(card, size, segmented)}, {why}")


def _promise(card: Algorithm, size: int, segmented: bool) -> str:
    """Return a card's declaration of scratch, in words."""
    what, text = card.scratch_declaration(segmented)
    return f"declares {what}={text!r}, {card.scratch_blocks(size, segmented)} blocks"


def _prove(card: Algorithm, schedules: list[Schedule], root: int, pipelines: tuple[tuple[int, int], ...]) -> Space:
    where = _where(card, len(schedules), root)
    try:
        proof = verify(card.collective, schedules, root=root, pipelines=pipelines)
        if not card.forwards and card.collective in LOCAL_COUNTS:
            check_counts(card.row, schedules, root)
    except ScheduleError as error:
        raise ScheduleError(f"{where}, {error}") from None
    needed = space.counted(card.row, schedules)
    false = _false_claim(card, proof) or _false_space(card, needed, len(schedules))
    if false:
        raise ScheduleError(f"{where}: {false}")
    return needed


def _schedules(card: Algorithm, size: int, root: int, topology: Topology) -> list[Schedule]:
    """Return all ranks' schedules; whatever a user's function raises or returns instead is a ScheduleError."""
    where = _where(card, size, root)
    try:
        found = card.schedules(size, root, topology)
    except Exception as error:
        raise ScheduleError(f"{where}: its function raises {type(error).__name__}: {error}") from error
    for rank, schedule in enumerate(found):
        try:
            check_kinds(rank, schedule, size)
        except ScheduleError as error:
            raise ScheduleError(f"{where}, {error}") from None
    return found


def _where(card: Algorithm, size: int, root: int) -> str:
    return f"{card.collective}.{card.name}, size {size}" + (f", root {root}" if card.row.rooted else "")


def _false_claim(card: Algorithm, proof: Proof) -> str:
    if card.ordered and not proof.ordered:
        return "claims to be ordered, but does not combine in rank order"
    if card.left_fold and not proof.left_fold:
        return "claims to combine from left to right, but does not"
    if card.collective == "allreduce" and not proof.same_bits:
        return "ranks get the result by different expressions, so by different bits"
    return ""


def _false_space(card: Algorithm, needed: Space, size: int) -> str:
    """Return a card's false declaration of blocks and scratch, in words; "" if there is none."""
    if card.blocks and space.declared("blocks", card.blocks, size) != needed.blocks:
        return f"declares blocks={card.blocks!r}, but the vector is cut into {needed.blocks}"
    for segmented, blocks in ((False, needed.scratch), (True, needed.packed)):
        if card.scratch and card.scratch_blocks(size, segmented) < blocks:
            return f"{_promise(card, size, segmented)}, but a rank needs {blocks}"
    return ""


def demand(card: Algorithm, size: int, root: int, topology: Topology = FLAT) -> None:
    """Raise the reason for which an algorithm must not serve a size and root, if there is one."""
    found = doubt(card, size, root, topology)
    if found:
        kind, why = found
        raise kind(why)


@lru_cache(maxsize=4096)
def doubt(card: Algorithm, size: int, root: int, topology: Topology = FLAT) -> tuple[type[Exception], str] | None:
    """Return (error's type, its text) if an algorithm must not serve a size and root, else None.

    A user's algorithm at a size that is new costs something, and one for several hosts: it is proven here, once.
    On more ranks than that its inner algorithms are, each on as many as it has, those of users with each root.
    """
    if not card.verified:
        return None
    if size > MOST_PROVEN if card.by_hosts else not card.provable or size in SIZES_AT_REGISTRATION:
        inner = (
            doubt(one, ranks, own, hosts)
            for one, ranks, hosts in card.levels(size, topology)
            for own in (range(ranks) if one.row.rooted and (one.provable or _has_users(one, ranks, hosts)) else (0,))
        )
        return next(filter(None, inner), None)
    if card.by_hosts and size > max(SIZES_AT_REGISTRATION) and not _has_users(card, size, topology):
        root = 0  # that of many takes time for each
    try:
        schedules = _schedules(card, size, root, topology)
        cells = _cells(schedules)
        if cells > MOST_CELLS and not card.by_hosts:
            why = f"names {cells} cells on {size} ranks, more than are proven in a second ({MOST_CELLS}); {REMEDY}"
            return UnsupportedError, f"{card.collective}: {card.name!r} {why}"
        _prove(card, schedules, root, ())
    except ScheduleError as error:
        return ScheduleError, str(error)
    return None


def _has_users(card: Algorithm, size: int, topology: Topology) -> bool:
    """Tell whether an algorithm is made of one that is proven at each size by itself, at any level."""
    return any(one.provable or _has_users(one, ranks, hosts) for one, ranks, hosts in card.levels(size, topology))


def _cells(schedules: list[Schedule]) -> int:
    """Return the number of cells that the operations of all ranks name."""
    count = 0
    for one in (one for schedule in schedules for one in schedule.steps):
        for message in one.messages:
            count += len(message.source if isinstance(message, Send) else message.target)
        for work in one.local:
            sources = work.sources if isinstance(work, Reduce) else (work.source,)
            count += len(work.target) + sum(map(len, sources))
    return count
