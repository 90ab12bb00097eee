"""Rules: the one syntax of overrides, tuning tables and packaged defaults.

    rules     = rule (";" or newline) rule ...             # starts a comment
    rule      = collective ":" condition ":" ... ":" choice
    condition = bytes      0-64K, 64K-inf: lower bound included, upper bound excluded
              | p=RANKS    p=4, p=2-8 (both included), p=pow2
              | mem=KIND   mem=host or mem=device
              | gpus=N     gpus=1: so many GPUs of all ranks together
              | hosts=N    hosts=2, hosts=2-8: numbers of hosts
              | perhost=N  perhost=8, perhost=4-8: numbers of ranks of each host
    choice    = algorithm [/segments] [@path]              ring, ring/8, one_shot@staged
              | native                                     MPI's own collective
    algorithm = name                                       ring
              | name(inner, ...)                           striped(allgather=ring), hierarchical(reduce_scatter=ring)

The first rule of a text that matches a call decides.  docs/rules.md explains them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mpicoll.algorithms import registry
from mpicoll.algorithms.naming import FORM
from mpicoll.dispatch.paths import PATHS
from mpicoll.schedule.collectives import collective
from mpicoll.schedule.patterns import power_of_two
from mpicoll.schedule.topology import FLAT, Topology
from mpicoll.settings import format_bytes, parse_bytes

#: most segments that a block is cut into: each costs planning time and memory on every rank
MOST_SEGMENTS = 1 << 16
#: numbers of ranks or hosts of which nothing is said
ANY = 1, 1 << 30
#: MPI's own collective: it is chosen like an algorithm, but has no schedule
NATIVE = registry.RESERVED


@dataclass(frozen=True)
class Choice:
    """An algorithm that a rule or a caller asks for, with segments and path.

    Attributes:
        algorithm: its name.
        segments: number of segments, 0 to leave it open.
        path: how device arrays travel, "" to leave it open.
    """

    algorithm: str
    segments: int = 0
    path: str = ""

    def __str__(self) -> str:
        return self.algorithm + (f"/{self.segments}" if self.segments else "") + (f"@{self.path}" if self.path else "")


@dataclass(frozen=True)
class Rule:
    """One rule: for which calls it speaks, and its choice."""

    collective: str
    choice: Choice
    low: int = 0
    high: int = 1 << 62
    ranks: tuple[int, int] = ANY
    only_powers: bool = False
    memory: str = ""
    gpus: int = 0
    hosts: tuple[int, int] = ANY
    perhost: tuple[int, int] = ANY

    def matches(
        self, name: str, nbytes: int | None, size: int, memory: str, gpus: int = 0, topology: Topology = FLAT
    ) -> bool:
        """Tell whether the rule speaks for a call.

        Args:
            name: of the collective.
            nbytes: message size in bytes, None where not all ranks know it.
            size: number of ranks.
            memory: "host" or "device".
            gpus: number of GPUs of all ranks, 0 where arrays are on the host.
            topology: which ranks are on one host.
        """
        return self.serves(name, size, memory, gpus, topology) and self.reaches(nbytes)

    def serves(self, name: str, size: int, memory: str, gpus: int = 0, topology: Topology = FLAT) -> bool:
        """Tell whether the rule speaks for calls on some number of ranks; arguments as in `matches`."""
        if not self._on_hosts(topology, size):
            return False
        if name != self.collective or (self.memory and memory != self.memory) or (self.gpus and gpus != self.gpus):
            return False
        return self.ranks[0] <= size <= self.ranks[1] and (not self.only_powers or power_of_two(size))

    def _on_hosts(self, topology: Topology, size: int) -> bool:
        """Tell whether the rule speaks for ranks that are on hosts so."""
        if (self.hosts, self.perhost) == (ANY, ANY):
            return True
        counts = [len(group) for group in topology.groups] or [size]
        least, most = self.perhost
        return self.hosts[0] <= len(counts) <= self.hosts[1] and all(least <= count <= most for count in counts)

    def reaches(self, nbytes: int | None) -> bool:
        """Tell whether the rule speaks for a message size; None where not all ranks know it."""
        if nbytes is None:
            return self.low == 0 and self.high == 1 << 62
        return self.low <= nbytes < self.high

    def __str__(self) -> str:
        parts = [self.collective]
        if (self.low, self.high) != (0, 1 << 62):
            parts.append(f"{format_bytes(self.low)}-{format_bytes(self.high)}")
        parts += [f"p={_range_text(self.ranks)}"] if self.ranks != ANY else []
        if self.only_powers:
            parts.append("p=pow2")
        if self.memory:
            parts.append(f"mem={self.memory}")
        if self.gpus:
            parts.append(f"gpus={self.gpus}")
        parts += [f"hosts={_range_text(self.hosts)}"] if self.hosts != ANY else []
        parts += [f"perhost={_range_text(self.perhost)}"] if self.perhost != ANY else []
        return ":".join([*parts, str(self.choice)])


def _range_text(bounds: tuple[int, int]) -> str:
    """Write a range of numbers, both bounds included."""
    return f"{bounds[0]}" if bounds[0] == bounds[1] else f"{bounds[0]}-{bounds[1]}"


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the line, statement) of a text of rules or of a table."""
    for number, line in enumerate(text.splitlines(), 1):
        for one in line.partition("#")[0].split(";"):
            if one.strip():
                yield number, one.strip()


@lru_cache(maxsize=64)
def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules; a mistake is an error with the line, the rule, and the part that is wrong."""
    rules = []
    for number, one in statements(text):
        try:
            rules.append(parse_rule(one))
        except ValueError as error:
            where = f"line {number}, " if "\n" in text.strip() else ""
            raise ValueError(f"{where}rule {one!r}: {error}") from None
    return tuple(rules)


@lru_cache(maxsize=4096)
def parse_choice(text: str) -> Choice:
    """Read a choice such as ring, ring/8, one_shot@staged or striped(allgather=ring)/4."""
    match = re.fullmatch(rf"({FORM})(?:/(\d+))?(?:@([a-z]+))?", re.sub(r",\s+", ",", text))
    if not match:
        raise ValueError(f"{text!r} is not of the form algorithm[(collective=algorithm,...)][/segments][@path]")
    name, segments, path = match.groups(default="")
    if name == NATIVE:
        if segments or path not in ("", "host"):
            raise ValueError(f"{NATIVE} takes no segments, and no path but host")
        return Choice(NATIVE)
    if path and path not in PATHS:
        raise ValueError(f"unknown path {path!r}; known: {', '.join(PATHS)}")
    if segments and (len(segments) > 20 or not 1 <= int(segments) <= MOST_SEGMENTS):
        raise ValueError(f"the number of segments is at least 1 and at most {MOST_SEGMENTS}")
    return Choice(name, int(segments or 0), path)


def known_choice(name: str, choice: Choice) -> Choice:
    """Return a choice for a collective, which must have such an algorithm, by the name on its card."""
    if choice.algorithm == NATIVE:
        return choice
    return replace(choice, algorithm=registry.get(name, choice.algorithm).name)


def parse_rule(text: str) -> Rule:
    """Read one rule."""
    first, *conditions = (part.strip() for part in text.split(":"))
    if not conditions:
        raise ValueError("needs a collective, a colon and an algorithm")
    name = collective(first).name
    choice = known_choice(name, parse_choice(conditions.pop()))
    return Rule(name, choice, **parse_conditions(conditions))


def parse_conditions(conditions: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a rule that conditions fix."""
    found: dict[str, Any] = {}
    for condition in conditions:
        new = _parse_condition(condition)
        if new.keys() & found.keys():
            raise ValueError(f"condition {condition!r} is given twice")
        found |= new
    return found


def _parse_condition(text: str) -> dict[str, object]:
    key, equals, value = text.partition("=")
    if not equals:
        low, _, high = text.partition("-")
        bounds = parse_bytes(low), parse_bytes(high or "inf")
        if bounds[0] >= bounds[1]:
            raise ValueError(f"empty range {text!r}")
        return {"low": bounds[0], "high": bounds[1]}
    readers: dict[str, Callable[[str], dict[str, object]]] = {
        "p": _parse_ranks,
        "mem": _parse_memory,
        "gpus": _parse_gpus,
        "hosts": lambda value: {"hosts": _parse_range(value, "hosts")},
        "perhost": lambda value: {"perhost": _parse_range(value, "ranks of a host")},
    }
    if key not in readers:
        raise ValueError(f"unknown condition {key!r}; known: {', '.join(readers)}, and a range of bytes")
    return readers[key](value)


def _parse_ranks(value: str) -> dict[str, object]:
    if value == "pow2":
        return {"only_powers": True}
    return {"ranks": _parse_range(value, "ranks", "4, 2-8 or pow2")}


def _parse_range(value: str, what: str, such_as: str = "4 or 2-8") -> tuple[int, int]:
    """Read a number or a range of numbers, both bounds included."""
    low, dash, high = value.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise ValueError(f"{value!r} is not a number of {what} such as {such_as}")
    if not 0 < int(low) <= int(high or low):
        raise ValueError(f"empty range of {what} {value!r}")
    return int(low), int(high or low)


def _parse_memory(value: str) -> dict[str, object]:
    if value not in ("host", "device"):
        raise ValueError(f"{value!r} is neither host nor device")
    return {"memory": value}


def _parse_gpus(value: str) -> dict[str, object]:
    if not value.isdecimal() or not int(value):
        raise ValueError(f"{value!r} is not a number of GPUs, 1 or more")
    return {"gpus": int(value)}
