"""Machines: a network, and how fast ranks compute; those that ship, and one's own from a JSON file.

    {"kind": "hosts", "per_host": 8, "alpha": 3e-6, "bandwidth": 450e9, "net_alpha": 5e-6, "net_bandwidth": 50e9,
     "nics": 8, "extra": 1e-6, "gamma": 0, "launch": 2e-6, "source": "..."}

Names are those of the arguments of the network's function, and of `Machine`; seconds, and bytes per second.
"""

from __future__ import annotations

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
    """What simulations need to know of a machine.

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


def _read(name: str, description: Any) -> Machine:
    if not isinstance(description, dict):
        raise ValueError("a machine is a JSON object")
    given = dict(description)
    kind = given.pop("kind", "switch")
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    speeds = {key: given.pop(key) for key in ("extra", "gamma", "launch", "call") if key in given}
    found = Machine(name, kind, source=str(given.pop("source", "")), network=given, **speeds)
    numbers = [*speeds.values(), *(v for v in given.values() if not isinstance(v, dict | list))]
    if any(isinstance(v, bool) or not isinstance(v, int | float) or v < 0 for v in numbers):
        raise ValueError("every parameter is a number, not below 0")
    found.of_ranks(_least(found))  # an unknown or missing parameter is said now
    return found


def _least(found: Machine) -> int:
    return math.prod(found.network.get("shape", ())) if found.kind == "torus" else 2
