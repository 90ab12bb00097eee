"""Three forms of a call with a buffer on both sides: each a function of a communicator and these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Form = Callable[[Any, Any, Any], None]


def forms_of(method: str) -> tuple[Form, Form, Form]:
    """Return the blocking, the nonblocking and the persistent form of a method, such as "Alltoallw"."""

    def blocking(comm: Any, x: Any, y: Any) -> None:
        getattr(comm, method)(x, y)

    def nonblocking(comm: Any, x: Any, y: Any) -> None:
        getattr(comm, f"I{method.lower()}")(x, y).Wait()

    def persistent(comm: Any, x: Any, y: Any) -> None:
        request = getattr(comm, f"{method}_init")(x, y)
        for _ in range(2):
            request.Start()
            request.Wait()
        request.Free()

    return blocking, nonblocking, persistent
