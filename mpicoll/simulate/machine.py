"""Machines: a network, and how fast ranks compute; those that ship, and one's own from a JSON file.

    {"kind": "hosts", "per_host": 8, "alpha": 3e-6, "bandwidth": 450e9, "net_alpha": 5e-6, "net_bandwidth": 50e9,
     "nics": 8, "extra": 1e-6, "gamma": 0, "launch": 2e-6, "source": "..."}

Names are those of the arguments of the network's function, and of `Machine`; seconds, and bytes per second.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from mpicoll.analysis.cost import CostModel
from mpicoll.simulate.network import KINDS, Network


@dataclass(frozen=True)
class Machine:
    """A machine, as simulations need to know it.

    Attributes:
        name: for people.
        kind: of its network, one of `KINDS`.
        network: arguments of the network's function besides the number of ranks.
        extra: seconds of a rank's ports that a message takes besides its bytes.
        gamma: seconds of reducing one byte of one operand.
        launch: seconds of starting a reduction or copy.
        call: seconds of every call besides all that.
        source: where the figures come from.
    """

    name: str
    kind: str = "switch"
    network: Mapping[str, Any] = field(default_factory=dict)
    extra: float = 0.0
    gamma: float = 0.0
    launch: float = 0.0
    call: float = 0.0
    source: str = ""

    def of_ranks(self, ranks: int) -> Network:
        """Return its network with so many ranks; raises ValueError where it cannot have them."""
        return KINDS[self.kind](ranks, **self.network)

    @property
    def model(self) -> CostModel:
        """The parameters of the cost formulas, which know no topology: those inside a host."""
        alpha, bandwidth = self.network.get("alpha", 0.0), self.network.get("bandwidth", math.inf)
        return CostModel(alpha, self.extra, 1 / bandwidth, self.gamma, self.launch, self.call, source=self.source)

    @property
    def uniform(self) -> bool:
        """Tell whether all pairs of ranks are alike and a port carries one message: what the cost formulas hold for."""
        return self.kind == "switch" and self.network.get("ports", 1) == 1

    def fastest(self, ranks: int) -> CostModel:
        """Return parameters that nothing on this machine beats, for lower bounds on so many ranks.

        Messages by a part of a port overlap with others, so that further ones cost nothing where not all are alike.
        """
        ports = self.of_ranks(ranks).links[: 2 * ranks]
        alpha = min(value for name, value in self.network.items() if name.endswith("alpha"))
        beta = 1 / max(link.bandwidth for link in ports)
        extra = self.extra if self.uniform else 0.0
        return CostModel(alpha, extra, beta, self.gamma, self.launch, self.call, source=self.source)


#: one round is one message through a rank's port, whatever its bytes; local work takes no time
UNIT = Machine("unit", network={"alpha": 1.0, "bandwidth": math.inf}, extra=1.0, source="rounds")


def machine(name: str) -> Machine:
    """Return a machine by its name, or from a JSON file.

    Raises:
        ValueError: there is none of this name, or the file is no description of a machine.
    """
    known = machines()
    if name in known:
        return known[name]
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"no machine {name!r}; known: {', '.join(known)}, or a JSON file")
    try:
        return _read(path.stem, json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from None


def machines() -> dict[str, Machine]:
    """Return the machines that ship, by name."""
    text = resources.files("mpicoll.simulate").joinpath("machines.json").read_text(encoding="utf-8")
    return {name: _read(name, description) for name, description in json.loads(text).items()}


RATES = tuple(f"{what}bandwidth" for what in ("", "net_", "rank_", "rack_", "other_"))
#: parameters that are above 0, and those that are whole numbers, too
ABOVE_0 = (*RATES, "per_host", "per_leaf", "ports", "nics")
WHOLE = ("per_host", "per_leaf", "ports", "nics", "uplinks")


def _read(name: str, description: Any) -> Machine:
    """Return a machine from its description; raises ValueError where it is none."""
    if not isinstance(description, dict):
        raise ValueError("a machine is a JSON object")
    given = dict(description)
    kind = given.pop("kind", "switch")
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    source = str(given.pop("source", ""))
    _check(kind, given)
    speeds = {key: given.pop(key) for key in ("extra", "gamma", "launch", "call") if key in given}
    return Machine(name, kind, source=source, network=given, **speeds)


def _check(kind: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError, with the name of the parameter, for one that is unknown, missing or makes no sense."""
    takes = inspect.signature(KINDS[kind]).parameters
    known = [key for key in takes if key != "ranks"] + ["extra", "gamma", "launch", "call"]
    unknown = next((key for key in given if key not in known), None)
    if unknown:
        raise ValueError(f"{kind} has no parameter {unknown!r}; it has {', '.join(known)}")
    for key, parameter in takes.items():
        if parameter.default is parameter.empty and key not in ("ranks", *given):
            raise ValueError(f"{kind} needs {key!r}")
    for key, value in given.items():
        wrong = _wrong(key, value)
        if wrong:
            raise ValueError(f"{key!r} is {value!r:.60}; {wrong}")


def _wrong(key: str, value: Any) -> str:
    """Return what is wrong with a parameter's value, "" if nothing is."""
    if key == "shape":
        listed = isinstance(value, list) and bool(value) and all(_whole(number, 1) for number in value)
        return "" if listed else "it is a list of whole numbers above 0"
    if key == "pairs":
        named = isinstance(value, dict) and bool(value) and all(_pair(p) and _whole(n, 1) for p, n in value.items())
        return "" if named else 'it has numbers of links by pairs such as "0-1", the lower rank first'
    if key == "layout":
        return "" if isinstance(value, str) else 'it is a text such as "2" or "0-3,4-7"'
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return "it is a number, not below 0"
    if key in ABOVE_0 and not value:
        return "it is above 0"
    return "it is a whole number" if key in WHOLE and not _whole(value, 0) else ""


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _pair(text: str) -> bool:
    one, _, other = text.partition("-")
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
