"""Names of algorithms as they are written: a name alone, or a hierarchy with the inner algorithms that are chosen.

    ring                                             an algorithm
    striped(allgather=ring)                          a hierarchy whose inner allgather is a ring
    hierarchical(reduce=binomial,allreduce=linear)   the hierarchy that has inner collectives of these names
    striped(allreduce=striped(allreduce=ring))       a hierarchy of ranks, hosts and racks of hosts

Rules, calls and commands read segments and a path behind it (`mpicoll.dispatch.rules`).
"""

from __future__ import annotations

import re
from collections import Counter

#: stands for the first hierarchy of a collective that has all inner collectives that are named
HIERARCHICAL = "hierarchical"
#: hierarchies, in the order in which that looks at them
HIERARCHIES = ("striped", "leader", "chained")

WORD = r"[a-z][a-z0-9_]*"
#: hierarchies in hierarchies at most
DEEPEST = 3


def _form(depth: int) -> str:
    """Return the form of a name with hierarchies in hierarchies up to a depth."""
    if not depth:
        return WORD
    chosen = rf"{WORD}={_form(depth - 1)}"
    return rf"{WORD}(?:\({chosen}(?:,{chosen})*\))?"


#: form of a name, without spaces
FORM = _form(DEEPEST)


def written(name: str, inner: dict[str, str]) -> str:
    """Return the name of an algorithm whose inner algorithms are chosen, {} for none."""
    return f"{name}({','.join(f'{what}={one}' for what, one in inner.items())})" if inner else name


def parsed(text: str) -> tuple[str, dict[str, str]]:
    """Return (name, inner collective -> name of its algorithm) of a text.

    Raises:
        ValueError: it is no name, or names an inner collective twice.
    """
    if not re.fullmatch(FORM, text):
        form = f"algorithm or algorithm(collective=algorithm,...), with such in such up to {DEEPEST} deep"
        raise ValueError(f"{text!r} is not of the form {form}")
    name, _, rest = text.partition("(")
    fields = [part.split("=", 1) for part in listed(rest.removesuffix(")"))] if rest else []
    twice = [what for what, count in Counter(what for what, _ in fields).items() if count > 1]
    if twice:
        raise ValueError(f"{text!r} names its inner {twice[0]} twice")
    return name, {what: one for what, one in fields}


def listed(text: str) -> list[str]:
    """Return the items of a list with commas between them; those inside parentheses belong to an item."""
    depth, items = 0, [""]
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += character
    return [item.strip() for item in items]
