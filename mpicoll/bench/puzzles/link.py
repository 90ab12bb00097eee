"""A link between two ranks, in words, with its theoretical bandwidth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A kind of link: pairs with equal ones are of one class.

    `Link("NVLink 2, 2 links", 50.0)` joins two GPUs directly.

    Attributes:
        words: what it is.
        theoretical: GB/s in one direction; None where the machine does not report it.
    """

    words: str
    theoretical: float | None = None

    @property
    def limit(self) -> str:
        """The theoretical bandwidth in words."""
        return "not reported" if self.theoretical is None else f"{self.theoretical:.4g}"

    def share(self, bandwidth: float) -> str:
        """Return the part of the theoretical bandwidth that was achieved, in percent; "" where that is unknown."""
        return "" if self.theoretical is None else f"{100 * bandwidth / self.theoretical:.0f} %"
