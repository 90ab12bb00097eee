"""Bytes and seconds in the unit in which they are short."""

from __future__ import annotations


def size_text(nbytes: float) -> str:
    """Return a number of bytes, such as "64 KiB" or "1.75 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:.3g} {unit}" if nbytes < 1000 else f"{nbytes:.0f} {unit}"


def time_text(seconds: float) -> str:
    """Return a time, such as "38.4 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0"
