"""An explanation in lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from mpicoll.dispatch.explain import Explanation, Verdict
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.select import describe_size
from mpicoll.schedule.collectives import collective
from mpicoll.settings import format_bytes

#: columns of a candidate, at least
WIDTH = 34


def call_text(facts: Facts) -> str:
    """Return a call in a few words, the same for all ranks."""
    return f"{facts.collective} of {describe_size(facts.nbytes)} on {facts.size} ranks"


def head(key: PlanKey) -> str:
    """Return a rank's call in words."""
    facts = key.facts
    root = f", root {key.root}" if collective(facts.collective).rooted else ""
    where = f", {facts.topology}" if facts.topology.host_of else ""
    return f"{call_text(facts)} ({facts.memory} arrays, rank {key.rank}{root}{where})"


def remarks(found: Explanation, ranks: int) -> list[str]:
    """Return what is said before the candidates.

    Args:
        found: the explanation.
        ranks: number of ranks.
    """
    return [f"because of {found.reason}", *found.notes, *tables_text(found), *sizes_text(found, ranks)]


def tables_text(found: Explanation) -> list[str]:
    """Return the tuning tables, in force or not, and the link between hosts."""
    link = [f"link between hosts: {found.link}"] if found.link else []
    return [*(f"tuning tables {text}" for text in found.tables), *link]


def sizes_text(found: Explanation, ranks: int) -> list[str]:
    """Return a line on what is chosen for which message sizes, such as "linear@host, from 64K on ring@host".

    Args:
        found: the explanation.
        ranks: number of ranks.
    """
    if not found.changes:
        return []
    (_, first), *others = found.changes
    parts = [first, *(f"from {format_bytes(nbytes)} on {label}" for nbytes, label in others)]
    return [f"by message size on {ranks} ranks: {', '.join(parts)}" + ("" if others else " for all")]


def cells(one: Verdict) -> tuple[str, str, str, str, str]:
    """Return the cells of a candidate's row: mark, choice, predicted and measured time in microseconds, why."""
    return "*" if one.chosen else "", str(one.choice), _time(one.predicted), _time(one.measured), one.why


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"


def unoffered(found: Explanation) -> list[str]:
    """Return what is said after the candidates."""
    return [f"path {name} is not offered: {why}" for name, why in found.unoffered]


def lines(found: Explanation, ranks: int) -> Iterator[str]:
    """Yield all of it as indented lines; arguments as in `remarks`."""
    for text in remarks(found, ranks):
        yield f"  {text}"
    rows = list(map(cells, found.verdicts))
    width = max(WIDTH, *(len(choice) for _, choice, *_ in rows))
    yield f"    {'candidates:':<{width}} {'predicted':>10} {'measured':>10}  (us)"
    for mark, choice, seconds, measured, why in rows:
        yield f"  {mark:1} {choice:<{width}} {seconds:>10} {measured:>10}  {why}"
    for text in unoffered(found):
        yield f"  {text}"
