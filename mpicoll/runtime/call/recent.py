"""Recent calls: where equal arguments come again, everything was decided the last time.

Planning a repeated call costs a look-up here.  The key (see `call_key.py`) has everything on which a
decision can depend; arrays themselves are not held.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.arrays import Flat
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call.call_key import Key
from mpicoll.runtime.host import work
from mpicoll.runtime.program.bound import Bound

#: calls remembered for each communicator
MOST = 512


class Recent:
    """The remembered calls of one communicator."""

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Key, Any] = {}

    def find(self, key: Key | None) -> Any:
        """Return what is remembered of an equal call: a bound program, or for calls that do not block a decision."""
        try:
            known = self.calls.get(key)  # type: ignore[arg-type]  # nothing is kept under None
        except TypeError:  # something that is refused later, such as a list for an algorithm's name
            return None
        return known if known is not None and known.alive else None

    def remember(self, key: Key | None, found: Bound | Decision) -> None:
        """Remember a call, if it has a key."""
        if key is not None:
            if len(self.calls) >= MOST:
                self.calls.clear()
            self.calls[key] = found


@dataclass(frozen=True)
class Decision:
    """A call's operands, over arrays that do not keep the memory alive, its plan, and its programs by slot."""

    operands: Operands
    plan: Plan
    bounds: dict[int, Bound] = field(default_factory=dict)
    alive = True

    @staticmethod
    def of(operands: Operands, plan: Plan) -> Decision:
        """Return what can be remembered."""
        same = operands.output is operands.input
        source = borrowed(operands.input)
        return Decision(replace(operands, input=source, output=source if same else borrowed(operands.output)), plan)


def borrowed(flat: Flat | None) -> Flat | None:
    """Return the same, over an array that does not keep the memory alive."""
    if flat is None or not flat.array.nbytes:
        return flat
    run, dtype = (flat.pointer, flat.array.nbytes), flat.array.dtype
    if isinstance(flat.array, np.ndarray):
        return Flat(work.view(run, dtype), flat.pointer, flat.device)
    from mpicoll.runtime.cuda import work

    return Flat(work.view(run, dtype, flat.device), flat.pointer, flat.device)

