"""The settings that every call asks for, kept between their changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mpicoll.settings import settings


class Modes(NamedTuple):
    """The settings that every call asks for.

    Attributes:
        limit: the time limit in seconds, 0.0 for none.
        shares_errors: ranks share their errors.
        threaded: a thread makes progress.
        trace: the file of the trace, "" for none.
        are_plain: ranks do not share their errors, and there is no trace.
    """

    limit: float = 0.0
    shares_errors: bool = False
    threaded: bool = False
    trace: str = ""
    are_plain: bool = True


def modes(setting: dict[str, Any] = settings.__dict__, scope_of_now: Callable[[], Any] = settings.scope) -> Modes:
    """Return the modes of now, kept between changes.

    The arguments are at hand, which takes less time than to look them up.
    """
    found: Modes
    assigned, scope, found = _known_modes
    if scope is not scope_of_now() or assigned != setting["assigned"]:
        limit, errors, file = settings.timeout, bool(settings.errors), settings.trace
        found = Modes(limit, errors, settings.progress == "thread", file, not (errors or file))
        _known_modes[:] = setting["assigned"], scope_of_now(), found
    return found


_known_modes: list[Any] = [None, None, Modes()]
