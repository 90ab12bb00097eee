"""The choice: who speaks first, what the cost model says, and why others were not taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.analysis.cost import pipelined
from mpicoll.analysis.proof import demand, doubt
from mpicoll.analysis.segments import block_bytes, pieces
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import MOST_SEGMENTS, Choice, Rule, parse_choice, parse_rules
from mpicoll.errors import UnsupportedError
from mpicoll.settings import format_bytes

#: binary digits of a message size that the cost model looks at
SIZE_DIGITS = 5


@dataclass(frozen=True)
class Candidate:
    """One candidate of a choice: its predicted seconds, or why it cannot serve."""

    choice: Choice
    seconds: float | None
    why_not: str = ""


@dataclass(frozen=True)
class Facts:
    """The facts on which a choice may depend: all of them equal on all ranks.

    `Facts("allreduce", 4, 4096)` is an allreduce of 4 KiB on 4 ranks, on the host.

    Attributes:
        collective: row of the table.
        size: number of ranks.
        nbytes: bytes of the full vector, None where not all ranks know them.
        memory: "host" or "device".
        commutative: the operator is, or there is none.
        counts_known: all ranks know all ranks' counts.
        paths: how the arrays may travel, best first.
        reproducible: "" or "runs" or "ranks", see `docs/sharp-bits.md`.
        segment_bytes: wanted size of a segment of a block, 0 to leave it to the cost model.
        root: the root, for which a user's algorithm is proven when it is first used.
    """

    collective: str
    size: int
    nbytes: int | None
    memory: str = "host"
    commutative: bool = True
    counts_known: bool = True
    paths: tuple[str, ...] = ("host",)
    segment_bytes: int = 0
    reproducible: str = ""
    root: int = 0

    @property
    def needs(self) -> dict[str, bool]:
        """Needs of the call, as `Algorithm.refuses` takes them."""
        return {
            "commutative": self.commutative,
            "counts_known": self.counts_known,
            "left_fold": self.reproducible == "ranks",
        }


def select(facts: Facts, call: str, communicator: str, setting: str, tuning: str) -> tuple[Choice, str]:
    """Return (choice, who made it): call, communicator, setting, tuning table or cost model.

    Args:
        facts: the call.
        call: its `algorithm=`, "" if none was given.
        communicator: the communicator's rules.
        setting: rules of the setting `algorithms`.
        tuning: file with a tuning table, "" for the packaged one.

    Raises:
        UnsupportedError: what is forced cannot serve.
    """
    if call:
        return _forced(parse_choice(call), facts), "algorithm= in the call"
    for text, who in ((communicator, "the communicator's rules"), (setting, "the setting `algorithms`")):
        for rule in _read(text, who):
            if rule.matches(facts.collective, facts.nbytes, facts.size, facts.memory):
                return _forced(rule.choice, facts), f"{who}: {rule}"
    if facts.reproducible:  # pinned: what a tuner measured, or a number of segments, must not change bits
        return _pinned(facts), f"the setting reproducible={facts.reproducible!r}"
    for rule in _rows(tuning, facts.collective, facts.size, facts.memory):
        if rule.reaches(facts.nbytes) and _usable(rule.choice, facts):
            return _complete(rule.choice, facts), f"tuning table {tuning or '(packaged)'}: {rule}"
    best = _cheapest(replace(facts, nbytes=_size_class(facts.nbytes)), registry.revision())
    return best, f"cost model for {best.path}: {PATHS[best.path].model.source}"


@lru_cache(maxsize=4096)
def _cheapest(facts: Facts, revision: int) -> Choice:
    """Return the choice that takes the least time, the same until the registry changes."""
    return min((c for c in candidates(facts) if c.seconds is not None), key=lambda c: c.seconds or 0.0).choice


def _size_class(nbytes: int | None) -> int | None:
    """Return a size with its first five binary digits, such as 992 for 1000: what is between takes equally long.

    So a program whose sizes all differ has few to decide on.
    """
    if nbytes is None:
        return None
    dropped = max(nbytes.bit_length() - SIZE_DIGITS, 0)
    return nbytes >> dropped << dropped


def _pinned(facts: Facts) -> Choice:
    """Return the cheapest choice for a middle size, uncut, on the best path: the same for every size."""
    one_path = replace(facts, nbytes=1 << 16, segment_bytes=0, paths=facts.paths[:1])
    middle = [c for c in candidates(one_path) if c.seconds is not None]
    return replace(min(middle, key=lambda c: c.seconds or 0.0).choice, segments=1)


def candidates(facts: Facts) -> list[Candidate]:
    """Return all algorithms on all paths with their best segments, or why they cannot serve."""
    found = []
    needs = facts.needs
    for card in registry.known(facts.collective):
        why = _refusal(card, facts, needs) if card.cost else card.refuses(facts.size, **needs) or "declares no cost"
        if why:
            found.append(Candidate(Choice(card.name), None, why))
            continue
        for path in facts.paths:
            segments, seconds = best_segments(card, facts, path)
            found.append(Candidate(Choice(card.name, segments, path), seconds))
    return found


def best_segments(card: Algorithm, facts: Facts, path: str) -> tuple[int, float]:
    """Return (segments for which an algorithm takes the least time, that time in seconds)."""
    size, nbytes, row = facts.size, facts.nbytes or 0, PATHS[path]
    if facts.segment_bytes and row.takes_segments and pipelined(card.cost):
        found = min(max(-(-block_bytes(card, size, nbytes) // facts.segment_bytes), 1), MOST_SEGMENTS)
    else:
        found = pieces(card, row.model, size, nbytes, row.smallest_segment, row.wave)
    return found if row.takes_segments else 1, row.model.seconds(card.cost, size, nbytes, found)


def waves(card: Algorithm, facts: Facts, path: str) -> int:
    """Return into how many pieces a path that takes whole blocks cuts one by itself."""
    return max(block_bytes(card, facts.size, facts.nbytes or 0) // PATHS[path].wave, 1)


def _refusal(card: Algorithm, facts: Facts, needs: dict[str, bool]) -> str | None:
    """Return the reason why an algorithm cannot serve or must not, None if it may; it is proven if it has to be."""
    found = None if (why := card.refuses(facts.size, **needs)) else doubt(card, facts.size, facts.root)
    return found[1] if found else why


def _usable(choice: Choice, facts: Facts) -> bool:
    card = registry.get(facts.collective, choice.algorithm)
    return _refusal(card, facts, facts.needs) is None and (not choice.path or choice.path in facts.paths)


def _forced(choice: Choice, facts: Facts) -> Choice:
    card = registry.require(facts.collective, choice.algorithm, facts.size, **facts.needs)
    demand(card, facts.size, facts.root)
    if choice.path and choice.path not in facts.paths:
        usable = ", ".join(facts.paths)
        raise UnsupportedError(
            f"{facts.collective}: path {choice.path!r} cannot serve {facts.memory} arrays here; usable: {usable}"
        )
    return _complete(choice, facts)


def _complete(choice: Choice, facts: Facts) -> Choice:
    """Fill in what a choice left open."""
    card = registry.get(facts.collective, choice.algorithm)
    if not card.cost:
        return Choice(choice.algorithm, choice.segments or 1, choice.path or facts.paths[-1])
    paths = (choice.path,) if choice.path else facts.paths
    found = {path: best_segments(card, facts, path) for path in paths}
    path = min(paths, key=lambda p: found[p][1])
    return Choice(choice.algorithm, choice.segments or found[path][0], path)


@lru_cache(maxsize=256)
def _rows(file: str, collective: str, size: int, memory: str) -> tuple[Rule, ...]:
    """Return the rules of a tuning table that speak for a call of some size."""
    return tuple(rule for rule in _table(file) if rule.serves(collective, size, memory))


@lru_cache(maxsize=8)
def _table(file: str) -> tuple[Rule, ...]:
    if not file:
        return parse_rules((files("mpicoll.dispatch") / "default.rules").read_text(encoding="utf-8"))
    who = f"the setting `tuning`, {file}"
    try:
        return _read(Path(file).read_text(encoding="utf-8"), who)
    except OSError as error:
        raise ValueError(f"{who}: {error.strerror}") from None


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
