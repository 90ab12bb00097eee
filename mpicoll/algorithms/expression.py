"""Arithmetic on cards: what an algorithm declares, as an expression in the number of ranks.

    p  ranks       q  ceil(log2 p)       lg  floor(log2 p)       r  1 if p is no power of two, else 0

It has numbers, these names, parentheses, and the operators + - * / // % **, and nothing else.  With p = 6,
"(1+r)*2**lg-1" is 7.  A cost has more names (see `mpicoll.analysis.cost`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache, lru_cache
from types import CodeType
from typing import Any

NAMES = frozenset({"p", "q", "lg", "r"})

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub)
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, *_OPERATORS)


@lru_cache(maxsize=256)
def of_ranks(p: int) -> Mapping[str, float]:
    """Return the values of the names that follow from the number of ranks."""
    lg = p.bit_length() - 1
    return {"p": float(p), "q": float((p - 1).bit_length()), "lg": float(lg), "r": 0.0 if p == 1 << lg else 1.0}


def evaluate(code: CodeType, values: Mapping[str, float]) -> Any:
    """Return the value of a compiled expression; raises ArithmeticError where there is none."""
    return eval(code, {"__builtins__": {}}, values)


@cache
def compiled(what: str, text: str, names: frozenset[str] = NAMES) -> CodeType:
    """Return an expression, compiled.

    Args:
        what: what it declares, for messages.
        text: the expression.
        names: the names that it may use.

    Raises:
        ValueError: it is no arithmetic on numbers and these names.
    """
    try:
        tree = ast.parse(text.strip(), f"<{what}>", "eval")
        _check_arithmetic(tree, names)
        return compile(_Floats().visit(tree), f"<{what}>", "eval")
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"{what} {text!r:.200}: {error}") from None


class _Floats(ast.NodeTransformer):
    """Makes every number a float: a power of whole numbers could take for ever."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        assert isinstance(node.value, int | float)
        return ast.copy_location(ast.Constant(float(node.value)), node)


def _check_arithmetic(tree: ast.Expression, names: frozenset[str]) -> None:
    for node in ast.walk(tree):
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
        if not number and not isinstance(node, _ARITHMETIC):
            text = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ValueError(f"{text!r} is not arithmetic on numbers and names")
        if isinstance(node, ast.Name) and node.id not in names:
            raise ValueError(f"uses the unknown name {node.id}; known: {', '.join(sorted(names))}")
