"""The identity of a plan: what was asked, and all that may have a say in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.predict import UNTUNED
from mpicoll.dispatch.rules import NATIVE, Choice
from mpicoll.dispatch.select import select
from mpicoll.dispatch.tuning import Tuning


@dataclass(frozen=True)
class PlanKey:
    """The identity of a plan on one rank: the facts, this rank, and the rules in force."""

    facts: Facts
    rank: int
    root: int = 0
    call: str = ""
    communicator: str = ""
    setting: str = ""
    tuning: Tuning = UNTUNED
    scratch_limit: int = 1 << 28
    native: bool = False

    @property
    def asked(self) -> Facts:
        """All that a choice may depend on, the root included."""
        return replace(self.facts, root=self.root)

    def selected(self) -> tuple[Choice, str]:
        """Return (choice before any limit, who made it); raises UnsupportedError where what is forced cannot serve."""
        return select(self.asked, self.call, self.communicator, self.setting, self.tuning, self.native)

    def beside(self) -> PlanKey:
        """Return the key of what runs where MPI's own collective does not serve: of calls that do not block."""
        call = "" if self.call == NATIVE else self.call
        facts = replace(self.facts, not_native="the call does not block")
        return replace(self, call=call, native=False, facts=facts)

    def of_size(self, nbytes: int) -> PlanKey:
        """Return the key of the same call with another message size in bytes."""
        return replace(self, facts=replace(self.facts, nbytes=nbytes))
