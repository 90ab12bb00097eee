"""The kinds of values that settings take, each with a reader of texts; numbers of bytes among them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from operator import index
from typing import Any


def parse_bytes(text: str | int) -> int:
    """Read a number of bytes such as 65536, 64K, 1.5M, 2GiB or inf (K, M, G are powers of 1024)."""
    if isinstance(text, int):
        return text
    if text.strip().lower() == "inf":
        return 1 << 62
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a number of bytes such as 65536, 64K or 2M")
    return int(Decimal(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def format_bytes(number: int) -> str:
    """Write a number of bytes as parse_bytes reads it, such as 64K."""
    if number >= 1 << 62:
        return "inf"
    for power, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if number >= 1 << power and number % (1 << power) == 0:
            return f"{number >> power}{unit}"
    return str(number)


#: value of the setting `debug` for which each new choice is told once
PLAN = "plan"


@dataclass(frozen=True)
class Kind:
    """Values that a setting takes.

    Attributes:
        allowed: what they are, for messages and the page of settings.
        read: returns the value that a text or a value stands for; raises for what is not allowed.
    """

    allowed: str
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _name(value: Any) -> str | None:
    name = _text(value).lower()
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError
    return None if name == "auto" else name


def _topology(value: Any) -> str:
    text = _text(value).replace(" ", "").lower()
    group = r"\d+(-\d+)?(\+\d+(-\d+)?)*"
    listed = rf"{group}(,{group})*"
    if not re.fullmatch(rf"auto|flat|(hosts=[1-9]\d*|{listed})(/([1-9]\d*|{listed}))*", text):
        raise ValueError
    return text


def _file(value: Any) -> str:
    return os.fspath(_text(value) if not isinstance(value, os.PathLike) else value)


def _at_least(low: int, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader of numbers that refuses lower ones, and True and False."""

    def bounded(value: Any) -> Any:
        number = read(value)
        if isinstance(value, bool) or not low <= number < inf:  # nor is NaN between them
            raise ValueError
        return number

    return bounded


def _integer(value: Any) -> int:
    return int(value) if isinstance(value, str) else index(value)


def _bytes(value: Any) -> int:
    return parse_bytes(value) if isinstance(value, str) else index(value)


def _word(**meanings: Any) -> Callable[[Any], Any]:
    """Return a reader of words that stand for values, which may be given themselves."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return meanings[value.lower()]
        if not any(value is meaning for meaning in meanings.values()):
            raise ValueError
        return value

    return read


SWITCH = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}
_REPORT = _word(**SWITCH, report="report")
YES_NO = Kind("`yes` or `no`", _word(**SWITCH))
YES_NO_AUTO = Kind("`yes`, `no` or `auto`", _word(**SWITCH, auto=None))
RULES = Kind("a text", _text)
FILE = Kind("a file's name", _file)
COUNT = Kind("a whole number, 0 or more", _at_least(0, _integer))
SECONDS = Kind("a finite number of seconds, 0 or more", _at_least(0, float))
DEBUG = Kind(f"{COUNT.allowed}, or `{PLAN}`", lambda value: PLAN if value == PLAN else COUNT.read(value))
BYTES = Kind("a number of bytes such as 65536, 64K or 2M", _at_least(0, _bytes))
SOME_BYTES = Kind("a number of bytes such as 65536, 64K or 2M, 1 or more", _at_least(1, _bytes))
BYTES_AUTO = Kind(f"{BYTES.allowed}, or `auto`", lambda value: 0 if value == "auto" else BYTES.read(value))
AGREE = Kind("`agree` or nothing", _word(agree="agree"))
PINNED = Kind("`runs`, `ranks` or nothing", _word(runs="runs", ranks="ranks"))
ADVANCES = Kind("`thread` or nothing", _word(thread="thread"))
STANDIN = Kind(
    "`yes`, `no`, `report`, or a file's name that ends in `.json`",
    lambda value: value if isinstance(value, str) and value.endswith(".json") else _REPORT(value),
)
TOPOLOGY = Kind(
    "`auto`, `flat`, `hosts=` and a number, or ranks of each host such as 0-3,4-7 or 0+2,1+3; behind a / racks",
    _topology,
)
PATH = Kind("the name of a path, or `auto`", lambda value: None if value is None else _name(value))
