"""Methods that are derived from others, so that each signature and its documentation are written once.

    Allreduce(self, sendbuf, recvbuf, op=MPI.SUM, *, algorithm=None, stream=None) -> None

gives `Iallreduce` with the same parameters, and `Allreduce_init` with `info` after `op`.  Methods around
mpi4py's own take signature and documentation from there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar, cast

from mpi4py import MPI

F = TypeVar("F", bound=Callable[..., Any])

_INFO = inspect.Parameter("info", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=MPI.INFO_NULL, annotation="MPI.Info")


@dataclass(frozen=True)
class Form:
    """The derivation of another form's methods from the blocking ones.

    Attributes:
        module: where the derived methods are.
        owner: name of their class.
        verb: method that they end in, instead of `_run`, with the same parameters.
        result: class of what they return.
    """

    module: str
    owner: str
    verb: str
    result: type

    def derive(self, blocking: Callable[..., Any], name: str, does: str) -> FunctionType:
        """Return a copy of a blocking method's code that ends in this form's verb.

        A copy, and not a function around it: it costs no more than if it were written out, and a TypeError
        of its arguments has its name.

        Args:
            blocking: the method.
            name: of the copy.
            does: first line of its documentation; the blocking method's follows.
        """
        assert isinstance(blocking, FunctionType)
        code = blocking.__code__
        code = code.replace(co_name=name, co_names=tuple(self.verb if n == "_run" else n for n in code.co_names))
        names = {"__name__": self.module, self.result.__name__: self.result}  # the latter for typing.get_type_hints
        copy = FunctionType(code, blocking.__globals__ | names, name, blocking.__defaults__, blocking.__closure__)
        copy.__kwdefaults__ = blocking.__kwdefaults__
        copy.__annotations__ = blocking.__annotations__ | {"return": self.result.__name__}
        copy.__qualname__ = f"{self.owner}.{name}"
        copy.__doc__ = f"{does}\n\n{inspect.getdoc(blocking)}"
        return copy


def with_info(method: FunctionType) -> FunctionType:
    """Return a method that takes `info`, too, after its positional parameters, and does not use it."""
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())
    parameters.insert(method.__code__.co_argcount, _INFO)
    signature = signature.replace(parameters=parameters)

    @wraps(method)
    def around(*arguments: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*arguments, **named)
        except TypeError as error:
            raise TypeError(f"{method.__qualname__}() {error}") from None
        given.arguments.pop("info", None)
        return method(*given.args, **given.kwargs)

    around.__annotations__ = method.__annotations__ | {"info": _INFO.annotation}
    around.__signature__ = signature  # type: ignore[attr-defined]
    return cast(FunctionType, around)


def like(own: Callable[..., Any], how: str) -> Callable[[F], F]:
    """Return a decorator that gives a function the name, signature and documentation of a method of mpi4py's.

    Args:
        own: mpi4py's method.
        how: is added to the first line of its documentation.
    """
    what = (own.__doc__ or "").partition("\n\n")[2]  # after the signature, which is at hand
    first, _, rest = what.partition("\n")

    def decorate(function: F) -> F:
        function.__name__ = function.__qualname__ = own.__name__
        function.__doc__ = f"{first.removesuffix('.')}; {how}.\n{rest}".strip()
        function.__signature__ = inspect.signature(own)  # type: ignore[attr-defined]
        return function

    return decorate
