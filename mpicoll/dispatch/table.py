"""Tuning tables: rules, and what was measured on some machine.

    machine:mpi=MPICH:cores=2:hosts=1                                  where it was measured, see machine_facts.py
    model:host:alpha=5.1e-06:extra=1.4e-06:beta=2.5e-10:gamma=1.7e-10  parameters of a path's cost, in seconds
    model:between_hosts:alpha=2e-05:beta=8.3e-11                       those of the link between hosts
    measured:allreduce:64K:p=8:mem=host:ring/4=1234.5:linear/1=980.1   times of one message size, in microseconds
    allreduce:64K-inf:p=8:mem=host:linear/1                            a rule, see rules.py

A line, or what stands between two semicolons, is one statement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property

from mpicoll.analysis.cost import CostModel
from mpicoll.analysis.host_traffic import HostLink
from mpicoll.dispatch.machine_facts import FACTS, MachineFacts
from mpicoll.dispatch.measured import Measured, Timing
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import Choice, Rule, known_choice, parse_choice, parse_conditions, parse_rule, statements
from mpicoll.schedule.collectives import collective
from mpicoll.settings import format_bytes, parse_bytes

#: parameters of a model, 0 where they are not given
PARAMETERS = tuple(field.name for field in fields(CostModel) if field.name != "source")
#: the same of the link between hosts, and what stands in the place of a path for it
LINK_PARAMETERS = tuple(field.name for field in fields(HostLink) if field.name != "source")
BETWEEN_HOSTS = "between_hosts"


@dataclass(frozen=True, eq=False)
class Table:
    """A tuning table.

    Attributes:
        name: where it comes from.
        machine: pattern of the machines that it is for; of an empty one, of all.
        rules: the first one that matches decides.
        models: by path.
        timings: what was measured.
        link: between hosts; None where it was not measured.
    """

    name: str
    machine: MachineFacts
    rules: tuple[Rule, ...]
    models: dict[str, CostModel]
    timings: tuple[Timing, ...]
    link: HostLink | None = None

    @cached_property
    def measured(self) -> Measured:
        """The measured times, by what they are of."""
        return Measured(self.timings)

    def text(self) -> str:
        """Return it as `parse_table` reads it."""
        lines = [f"machine:{self.machine}"] if str(self.machine) else []
        lines += [_model_text(path, model, PARAMETERS) for path, model in self.models.items()]
        lines += [_model_text(BETWEEN_HOSTS, self.link, LINK_PARAMETERS)] if self.link else []
        return "\n".join([*lines, *map(str, self.rules), *map(_timing_text, self.timings), ""])


def parse_table(text: str, name: str) -> Table:
    """Return a table; a mistake is an error that names the table, the line, the statement, and what is wrong.

    Args:
        text: the statements.
        name: where they come from.
    """
    machine, known = MachineFacts(), set[tuple[object, ...]]()
    rules, models, links, timings = list[Rule](), dict[str, CostModel](), list[HostLink](), list[Timing]()

    def once(*what: object) -> None:
        if what in known:
            raise ValueError("stands there for the second time")
        known.add(what)

    for line, statement in statements(text):
        first, *parts = (part.strip() for part in statement.split(":"))
        try:
            if first == "machine":
                once(first)
                machine = _machine(parts)
            elif first == "model":
                once(first, *parts[:1])
                links += _link(parts, name)
                models |= _model(parts, name)
            elif first == "measured":
                timing = _timing(parts)
                once(*timing.calls, timing.nbytes)
                timings.append(timing)
            else:
                rules.append(parse_rule(statement))
        except ValueError as error:
            raise ValueError(f"{name}, line {line}: {statement!r}: {error}") from None
    return Table(name, machine, tuple(rules), models, tuple(timings), *links)


def _assignments(parts: list[str], known: tuple[str, ...]) -> dict[str, str]:
    """Return the values of `name=value`, each name once and a known one."""
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or name not in known:
            raise ValueError(f"{part!r} is none of {', '.join(f'{one}=' for one in known)}")
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = value.strip()
    return found


def _machine(parts: list[str]) -> MachineFacts:
    return MachineFacts(**_assignments(parts, FACTS))


def _link(parts: list[str], source: str) -> list[HostLink]:
    """Return the link between hosts, if a model is of that."""
    if parts[:1] != [BETWEEN_HOSTS]:
        return []
    return [HostLink(**_values(parts[1:], LINK_PARAMETERS), source=f"measured, {source}")]


def _model(parts: list[str], source: str) -> dict[str, CostModel]:
    """Return the model of a path, if it is one."""
    path, *rest = parts or [""]
    if path == BETWEEN_HOSTS:
        return {}
    if path not in PATHS:
        raise ValueError(f"unknown path {path!r}; known: {', '.join(PATHS)}, and {BETWEEN_HOSTS}")
    return {path: CostModel(**_values(rest, PARAMETERS), source=f"measured, {source}")}


def _values(parts: list[str], known: tuple[str, ...]) -> dict[str, float]:
    """Return the values of all parameters, 0 for those that are not given."""
    values = {name: _number(value) for name, value in _assignments(parts, known).items()}
    if not any(values.values()):
        raise ValueError("all parameters are 0")
    return dict.fromkeys(known, 0.0) | values


def _model_text(whose: str, model: CostModel | HostLink, names: tuple[str, ...]) -> str:
    """Return a statement with the parameters that are not 0."""
    values = ":".join(f"{name}={getattr(model, name):.4g}" for name in names if getattr(model, name))
    return f"model:{whose}:{values}"


def _timing(parts: list[str]) -> Timing:
    conditions, times = list[str](), dict[Choice, float]()
    for part in parts:
        choice, equals, value = part.rpartition("=")
        if equals and choice not in ("p", "mem", "gpus"):
            found = parse_choice(choice)
            if found in times:
                raise ValueError(f"{choice} is given twice")
            times[found] = _number(value) * 1e-6
        else:
            conditions.append(part)
    if len(conditions) < 2 or not times:
        raise ValueError("needs a collective, a size in bytes, p=, mem=, and algorithm=microseconds")
    name, size, *rest = conditions
    times = {known_choice(name, one): seconds for one, seconds in times.items()}
    nbytes, fixed = parse_bytes(size), parse_conditions(rest)
    lowest, highest = fixed.get("ranks", (0, 1))
    if lowest != highest or not fixed.get("memory") or "low" in fixed:
        raise ValueError("needs one number of ranks, and a memory")
    return Timing(collective(name).name, nbytes, lowest, fixed["memory"], fixed.get("gpus", 0), times)


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise ValueError(f"{text!r} is not a time, 0 or more")
    return found


def _timing_text(timing: Timing) -> str:
    """Return a statement with the times, the shortest first."""
    gpus = f":gpus={timing.gpus}" if timing.gpus else ""
    times = sorted(timing.times.items(), key=lambda one: one[1])
    listed = ":".join(f"{choice}={seconds * 1e6:.4g}" for choice, seconds in times)
    where = f"{format_bytes(timing.nbytes)}:p={timing.size}:mem={timing.memory}{gpus}"
    return f"measured:{timing.collective}:{where}:{listed}"


def merged(old: Table, new: Table) -> Table:
    """Return a new table, with what an old one knows of collectives and numbers of ranks that are not in it."""
    fresh = {timing.calls for timing in new.timings}
    timings = [timing for timing in old.timings if timing.calls not in fresh]
    rules = [r for r in old.rules if (r.collective, r.ranks[0], r.memory, r.gpus) not in fresh]
    models, link = old.models | new.models, new.link or old.link
    return Table(new.name, new.machine, (*new.rules, *rules), models, (*new.timings, *timings), link)
