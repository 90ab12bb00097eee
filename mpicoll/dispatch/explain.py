"""The explanation of a choice: what else could run and why it does not, other message sizes, and what limits changed.

An allreduce of 1 MiB on 8 ranks of the path host has a verdict on each algorithm, such as (two_shot/8@host, 1.9 ms
predicted, 17 % slower), and changes such as [(0, "recursive_doubling@host"), (49152, "ring@host")].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from mpicoll.algorithms import registry
from mpicoll.dispatch.limits import LANES, LARGEST_MESSAGE, limited
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.paths import PATHS, serving
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.predict import predicted
from mpicoll.dispatch.rules import Choice, parse_rules
from mpicoll.dispatch.select import COST_MODEL, TUNING_TABLE, Candidate, candidates, describe_size, refusal, size_class
from mpicoll.errors import ScheduleError, UnsupportedError
from mpicoll.settings import format_bytes

#: message sizes in bytes between which changes of the choice are looked for, beside the bounds of rules
SIZES = (0, *(1 << power for power in range(3, 31)))
#: times as near as this, by their ratio, count as equal
TIE = 1.0005
#: what stands for a choice where what is forced cannot serve
REFUSED = "an error"


@dataclass(frozen=True)
class Verdict:
    """A candidate with the segments with which it would run, and why it does or does not.

    Attributes:
        choice: the candidate, without segments where it cannot serve.
        predicted: seconds, None where it cannot serve or its card declares no cost.
        measured: seconds of just this call in a tuning table, None where there are none.
        chosen: it runs.
        why: it does or does not.
    """

    choice: Choice
    predicted: float | None = None
    measured: float | None = None
    chosen: bool = False
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """All that is to be said of a choice.

    Attributes:
        reason: who chose.
        verdicts: on every candidate, the least predicted time first, those that cannot serve last.
        changes: (first message size in bytes, algorithm and path from there on), ascending.
        notes: what settings and limits changed, and rules that were passed over.
        tables: tuning tables in force, and those that are not.
        unoffered: each path that the call could not take, and why.
        link: the link between hosts that predictions count with; "" on one host.
    """

    reason: str
    verdicts: tuple[Verdict, ...]
    changes: tuple[tuple[int, str], ...]
    notes: tuple[str, ...]
    tables: tuple[str, ...]
    unoffered: tuple[tuple[str, str], ...] = ()
    link: str = ""

    @property
    def chosen(self) -> Verdict:
        """The verdict on what runs."""
        return next(one for one in self.verdicts if one.chosen)


def explain(key: PlanKey, unoffered: tuple[tuple[str, str], ...] = ()) -> Explanation:
    """Return why a call's choice is what it is.

    Args:
        key: what was asked.
        unoffered: each path that the call could not take, and why.
    """
    asked, reason = key.selected()
    runs, lanes = limited(asked, key.facts, key.scratch_limit)
    notes = (*_limits(key, asked, runs, lanes), *_settings(key, [name for name, _ in unoffered]), *_passed_over(key))
    tables = (f"in force: {key.tuning.described()}", *(f"not in force: {n} ({why})" for n, why in key.tuning.unused))
    link = str(key.tuning.link) if key.facts.topology.host_of else ""
    return Explanation(reason, verdicts(key, runs, reason), changes(key), notes, tables, unoffered, link)


def verdicts(key: PlanKey, runs: Choice, reason: str) -> tuple[Verdict, ...]:
    """Return a verdict on every candidate, that which runs among them.

    Args:
        key: what was asked.
        runs: the choice, with the segments with which it runs.
        reason: who made it.
    """
    facts = key.facts
    known = None
    if facts.nbytes is not None:
        known = key.tuning.timing(facts.collective, facts.size, facts.memory, facts.gpus, facts.nbytes)
    chosen = _verdict(key, runs, known)
    others = (_other(key, one, known) for one in candidates(key.asked, key.tuning))
    found = [
        one if one.why else replace(one, why=_comparison(one, chosen, key, reason))
        for one in others
        if one.choice != runs and not (one.predicted is None and one.choice.algorithm == runs.algorithm)
    ]
    found.append(replace(chosen, chosen=True, why="chosen"))
    return tuple(sorted(found, key=lambda one: (not one.chosen and one.predicted is None, one.predicted or 0.0)))


def _other(key: PlanKey, one: Candidate, known: Timing | None) -> Verdict:
    """Return a verdict, without a reason where the candidate could run."""
    if one.seconds is None:
        return Verdict(one.choice, why=one.why_not)
    try:
        return _verdict(key, limited(one.choice, key.facts, key.scratch_limit)[0], known)
    except UnsupportedError as error:
        return Verdict(replace(one.choice, segments=0), why=str(error))


def _verdict(key: PlanKey, choice: Choice, known: Timing | None) -> Verdict:
    """Return the times of a choice, without a reason."""
    card = registry.get(key.facts.collective, choice.algorithm)
    seconds = predicted(card, key.asked, choice.path, choice.segments, key.tuning) if card.cost else None
    return Verdict(choice, seconds, known.whole.get(choice) if known else None)


def _comparison(one: Verdict, chosen: Verdict, key: PlanKey, reason: str) -> str:
    """Return why a candidate that could run does not: it takes longer, or else who decided."""
    why, by_model = _ruled_out(key, reason), reason.startswith(COST_MODEL)
    own, best, how = one.predicted, chosen.predicted, ""
    if one.measured is not None and chosen.measured is not None:
        own, best, how = one.measured, chosen.measured, ", measured"
    if not own or not best:
        return why
    ratio = own / best
    if 1 / TIE < ratio < TIE:
        return f"as fast{how}" if by_model else f"as fast{how}; {why}"
    if ratio > 1:
        return f"{_times(ratio, 'slow')}{how}"
    return f"{_times(1 / ratio, 'fast')}{how}; {why}"


def _times(ratio: float, word: str) -> str:
    """Return a ratio above 1 in words, such as "5.0 % slower" or "2.5 times as slow"."""
    return f"{100 * ratio - 100:.1f} % {word}er" if ratio < 2 else f"{ratio:.1f} times as {word}"


def who(reason: str) -> str:
    """Return who chose in a few words, without the rule or where the table is."""
    kinds = (f"the {kind}" for kind in (TUNING_TABLE, COST_MODEL) if reason.startswith(kind))
    return next(kinds, reason.partition(": ")[0])


def _ruled_out(key: PlanKey, reason: str) -> str:
    """Return why a candidate that is faster than the choice does not run."""
    if not reason.startswith(COST_MODEL):
        return f"ruled out by {who(reason)}"
    nbytes = size_class(key.facts.nbytes)
    same = nbytes == key.facts.nbytes
    return "the choice was made without limits" if same else f"the choice is that of {describe_size(nbytes)}"


def _limits(key: PlanKey, asked: Choice, runs: Choice, lanes: int) -> Iterator[str]:
    """Yield what limits changed of a choice; arguments as they are named in `explain`."""
    at_least, limit = -(-(key.facts.nbytes or 0) // LARGEST_MESSAGE), f"scratch_limit={format_bytes(key.scratch_limit)}"
    if not PATHS[runs.path].takes_segments:
        if asked.segments > 1:
            yield f"path {runs.path} takes whole blocks: {plural(asked.segments, 'segment')} are not made"
        return
    if runs.segments > asked.segments:
        why = limit if runs.segments > at_least else f"no message is longer than {format_bytes(LARGEST_MESSAGE)}"
        yield f"{why}: {plural(asked.segments, 'segment')} raised to {runs.segments}"
    if lanes < min(runs.segments, LANES):
        yield f"{limit}: {plural(lanes, 'segment')} in flight instead of {min(runs.segments, LANES)}"


def _settings(key: PlanKey, unoffered: list[str]) -> Iterator[str]:
    """Yield what settings leave out or fix."""
    facts = key.facts
    if facts.segment_bytes:
        yield f"segment_bytes={format_bytes(facts.segment_bytes)}: blocks are cut into such segments where that can pay"
    if facts.reproducible:
        yield f"reproducible={facts.reproducible!r}: one choice for all message sizes, uncut, without tuning tables"
    left = [name for name in serving(facts.memory) if name not in (*facts.paths, *unoffered)]
    if left:
        yield f"path {', '.join(left)}: left out by the setting `path`, or by a capture"


def _passed_over(key: PlanKey) -> Iterator[str]:
    """Yield the rules of tuning tables that speak for the call before one decides, but cannot serve."""
    facts = key.asked
    if not key.selected()[1].startswith((COST_MODEL, TUNING_TABLE)):
        return
    for table, rule in key.tuning.rules(facts.collective, facts.size, facts.memory, facts.gpus, facts.topology):
        if not rule.reaches(facts.nbytes):
            continue
        why = refusal(rule.choice, facts)
        if why is None:
            return
        yield f"rule {rule} of {table.name} is passed over: {why}"


def changes(key: PlanKey) -> tuple[tuple[int, str], ...]:
    """Return (first message size in bytes, algorithm and path from there on) at this number of ranks.

    Sizes are looked at by powers of two and at the bounds of rules; between two that differ the change is found by
    bisection.
    """
    return () if key.facts.nbytes is None else _changes(replace(key.of_size(0), rank=0), registry.revision())


@lru_cache(maxsize=256)
def _changes(key: PlanKey, revision: int) -> tuple[tuple[int, str], ...]:
    facts = key.facts
    rules = [*parse_rules(key.communicator), *parse_rules(key.setting)]
    known = key.tuning.rules(facts.collective, facts.size, facts.memory, facts.gpus, facts.topology)
    rules += [rule for _, rule in known]
    bounds = {bound for rule in rules if rule.collective == facts.collective for bound in (rule.low, rule.high)}
    sizes = sorted({*SIZES, *(bound for bound in bounds if bound < 1 << 62)})
    labels = [_label(key, nbytes) for nbytes in sizes]
    found = [(0, labels[0])]
    for (low, first), (high, last) in pairwise(zip(sizes, labels, strict=True)):
        found += _between(key, (low, first), (high, last))
    return tuple(found)


def _between(key: PlanKey, low: tuple[int, str], high: tuple[int, str]) -> list[tuple[int, str]]:
    """Return the changes above one message size up to another, each with its label."""
    if low[1] == high[1]:
        return []
    if high[0] - low[0] == 1:
        return [high]
    middle = (low[0] + high[0]) // 2
    here = middle, _label(key, middle)
    return _between(key, low, here) + _between(key, here, high)


def _label(key: PlanKey, nbytes: int) -> str:
    """Return the algorithm and path of a message size."""
    try:
        return str(replace(key.of_size(nbytes).selected()[0], segments=0))
    except (UnsupportedError, ScheduleError):
        return REFUSED


def plural(number: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{number} {word}" + ("" if number == 1 else "s")
