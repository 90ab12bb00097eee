"""The choice: who speaks first, what the cost model says, and why others were not taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.analysis.proof import demand, doubt
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.predict import UNTUNED, best_segments
from mpicoll.dispatch.rules import NATIVE, Choice, Rule, known_choice, parse_choice, parse_rules
from mpicoll.dispatch.tuning import Tuning
from mpicoll.errors import UnsupportedError
from mpicoll.settings import format_bytes

#: how the reason begins where a tuning table decides, and where no rule speaks
TUNING_TABLE, COST_MODEL = "tuning table", "cost model"
#: times whose ratio is no more are equal: sums of floats differ by as much
ERROR = 1 + 1e-9
#: binary digits of a message size that the cost model looks at
SIZE_DIGITS = 5


@dataclass(frozen=True)
class Candidate:
    """One candidate of a choice: its predicted seconds, or why it cannot serve."""

    choice: Choice
    seconds: float | None
    why_not: str = ""


def select(
    facts: Facts, call: str, communicator: str, setting: str, tuning: Tuning, native: bool = False
) -> tuple[Choice, str]:
    """Return (choice, who made it): call, communicator, setting, tuning table or cost model.

    A rule for MPI's own collective is passed over where that would not do the same.

    Args:
        facts: the call.
        call: its `algorithm=`, "" if none was given.
        communicator: the communicator's rules.
        setting: rules of the setting `algorithms`.
        tuning: the tables in force.
        native: the setting: MPI's own collective, unless a table has measured it, and so chooses.

    Raises:
        UnsupportedError: what is forced cannot serve.
    """
    if call:
        return _forced(known_choice(facts.collective, parse_choice(call)), facts, tuning), "algorithm= in the call"
    for text, who in ((communicator, "the communicator's rules"), (setting, "the setting `algorithms`")):
        rule = _first(_read(text, who), facts)
        if rule is not None:
            return _forced(rule.choice, facts, tuning), f"{who}: {rule}"
    if facts.reproducible:  # pinned: what a tuner measured, or a number of segments, must not change bits
        return _pinned(facts), f"the setting reproducible={facts.reproducible!r}"
    if native and not facts.not_native and not _has_native(facts, tuning):
        return Choice(NATIVE), "the setting native"
    for table, rule in tuning.rules(facts.collective, facts.size, facts.memory, facts.gpus, facts.topology):
        if rule.reaches(facts.nbytes) and refusal(rule.choice, facts) is None:
            return _complete(rule.choice, facts, tuning), f"{TUNING_TABLE} {table.name}{tuning.note(table)}: {rule}"
    best = _cheapest(replace(facts, nbytes=size_class(facts.nbytes)), tuning, registry.revision())
    return best, f"{COST_MODEL} for {best.path}: {tuning.model(best.path).source}"


@lru_cache(maxsize=4096)
def _cheapest(facts: Facts, tuning: Tuning, revision: int) -> Choice:
    """Return the choice that takes the least time, the same until the registry changes; the first of equal ones."""
    able = [(one.choice, one.seconds) for one in candidates(facts, tuning) if one.seconds is not None]
    if not able:
        raise _unservable(facts)
    least = min(seconds for _, seconds in able)
    return next(choice for choice, seconds in able if seconds <= least * ERROR)


def _unservable(facts: Facts) -> UnsupportedError:
    """Return the error for a call that no algorithm can serve on the paths that it can take."""
    return UnsupportedError(f"{facts.collective}: no algorithm can serve the call on path {', '.join(facts.paths)}")


def size_class(nbytes: int | None) -> int | None:
    """Return a size with its first five binary digits, such as 992 for 1000: what is between takes equally long.

    So a program whose sizes all differ has few to decide on.
    """
    if nbytes is None:
        return None
    dropped = max(nbytes.bit_length() - SIZE_DIGITS, 0)
    return nbytes >> dropped << dropped


def _pinned(facts: Facts) -> Choice:
    """Return the cheapest choice for a middle size, uncut, on the best path: the same for every size and table."""
    one_path = replace(facts, nbytes=1 << 16, segment_bytes=0, paths=_serving_all(facts.paths)[:1])
    middle = [c for c in candidates(one_path, UNTUNED) if c.seconds is not None]
    if not middle:
        raise _unservable(facts)
    return replace(min(middle, key=lambda c: c.seconds or 0.0).choice, segments=1)


def candidates(facts: Facts, tuning: Tuning = UNTUNED) -> list[Candidate]:
    """Return all algorithms on all paths with their best segments, or why they cannot serve.

    Those for several hosts are none on one.
    """
    found = []
    needs = facts.needs
    for card in registry.known(facts.collective):
        if card.by_hosts and not facts.topology.host_of:
            continue
        if not (paths := usable(card, facts)):
            continue
        why = _refusal(card, facts, needs) if card.cost else card.refuses(facts.size, **needs) or "declares no cost"
        if why:
            found.append(Candidate(Choice(card.name), None, why))
            continue
        for path in paths:
            segments, seconds = best_segments(card, facts, path, tuning)
            found.append(Candidate(Choice(card.name, segments, path), seconds))
    return found


def usable(card: Algorithm, facts: Facts) -> tuple[str, ...]:
    """Return the paths on which an algorithm can run, best first: some serve those for several hosts only."""
    return facts.paths if card.by_hosts else _serving_all(facts.paths)


def _serving_all(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if not PATHS[path].hosts_only)


def _refusal(card: Algorithm, facts: Facts, needs: dict[str, Any]) -> str | None:
    """Return the reason why an algorithm cannot serve or must not, None if it may; it is proven if it has to be."""
    found = None if (why := card.refuses(facts.size, **needs)) else doubt(card, facts.size, facts.root, facts.topology)
    return found[1] if found else why


def refusal(choice: Choice, facts: Facts) -> str | None:
    """Return the reason why a rule's choice cannot serve a call, None if it can."""
    if choice.algorithm == NATIVE:
        return facts.not_native or None
    card = registry.get(facts.collective, choice.algorithm)
    paths = usable(card, facts)
    if not paths or (choice.path and choice.path not in paths):
        return f"path {choice.path or facts.paths[0]} is not offered"
    return _refusal(card, facts, facts.needs)


def _first(rules: tuple[Rule, ...], facts: Facts) -> Rule | None:
    """Return the first rule that speaks for a call, None if none does; one for `native` only where that serves."""
    call = facts.collective, facts.nbytes, facts.size, facts.memory, facts.gpus, facts.topology
    speaking = (rule for rule in rules if rule.matches(*call))
    return next((rule for rule in speaking if rule.choice.algorithm != NATIVE or not facts.not_native), None)


def _has_native(facts: Facts, tuning: Tuning) -> bool:
    """Tell whether a table has measured MPI's own collective."""
    return tuning.curve(facts.collective, facts.size, facts.memory, facts.gpus, NATIVE, "host") is not None


def _forced(choice: Choice, facts: Facts, tuning: Tuning) -> Choice:
    if choice.algorithm == NATIVE:
        if facts.not_native:
            raise UnsupportedError(f"{facts.collective}: {NATIVE!r} would not do the same: {facts.not_native}")
        return choice
    card = registry.require(facts.collective, choice.algorithm, facts.size, **facts.needs)
    demand(card, facts.size, facts.root, facts.topology)
    paths = usable(card, facts)
    if not paths or (choice.path and choice.path not in paths):
        path = choice.path or facts.paths[0]
        raise UnsupportedError(
            f"{facts.collective}: path {path!r} cannot serve {facts.memory} arrays here; "
            f"usable: {', '.join(paths) or f'none by {card.name!r}'}"
        )
    return _complete(choice, facts, tuning)


def _complete(choice: Choice, facts: Facts, tuning: Tuning) -> Choice:
    """Fill in what a choice left open."""
    if choice.algorithm == NATIVE:
        return choice
    card = registry.get(facts.collective, choice.algorithm)
    if not card.cost:
        return Choice(choice.algorithm, choice.segments or 1, choice.path or usable(card, facts)[-1])
    paths = (choice.path,) if choice.path else usable(card, facts)
    found = {path: best_segments(card, facts, path, tuning) for path in paths}
    path = min(paths, key=lambda p: found[p][1])
    return Choice(choice.algorithm, choice.segments or found[path][0], path)


def _read(text: str, who: str) -> tuple[Rule, ...]:
    """Return rules; the error for a mistake names who made them."""
    try:
        return parse_rules(text)
    except ValueError as error:
        raise ValueError(f"{who}: {error}") from None


def describe_size(nbytes: int | None) -> str:
    """Write a message size for people."""
    return (
        "unknown size" if nbytes is None else f"{format_bytes(nbytes)} bytes" if nbytes < 1024 else format_bytes(nbytes)
    )
