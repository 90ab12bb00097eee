"""Makes docs/api.md from signatures and docstrings, read from the source: so it needs neither MPI nor CuPy."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent / "mpicoll"
#: characters of a signature on one line
WIDTH = 110
#: class whose methods are shown as the communicator's, which is how they are called
MIXIN = "Blocking"
#: classes whose objects mpicoll makes
MADE = ("Request", "PersistentRequest")

Function = ast.FunctionDef
#: one asterisk outside of code, which Markdown would take for emphasis
ASTERISK = re.compile(r"(`[^`]*`)|(?<!\*)\*(?!\*)")


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        title: its heading.
        text: what comes first; what a docstring says if it is the name of a file.
        entries: (file, name of a class or function); of a class its methods, too.
    """

    title: str
    text: str
    entries: tuple[tuple[str, str], ...] = ()


def _functions() -> tuple[tuple[str, str], ...]:
    """Return the entries of the functional layer, by name."""
    files = ("joins", "moves", "reductions", "scatters")
    found = [(f"functional/{file}.py", node.name) for file in files for node in _public(_tree(f"functional/{file}.py"))]
    return tuple(sorted(set(found), key=lambda entry: entry[1]))


def _errors() -> tuple[tuple[str, str], ...]:
    """Return the entries of the errors, in the order of their file."""
    return tuple(("errors.py", node.name) for node in _tree("errors.py").body if isinstance(node, ast.ClassDef))


def sections() -> list[Section]:
    """Return the sections, in their order."""
    return [
        Section("The communicator", "", (("communicator.py", "Communicator"),)),
        Section("Blocking collectives", "blocking.py", (("blocking.py", "Blocking"),)),
        Section("Other forms", _forms()),
        Section("Requests", "", (("request.py", "Request"), ("request.py", "PersistentRequest"))),
        Section("Functions", "functional/__init__.py", _functions()),
        Section("Groups", "", (("grouping.py", "group"),)),
        Section("Gradients in buckets", "", (("training/gradient_buckets.py", "GradientBuckets"),)),
        Section(
            "Operators",
            "MPI's operators, `mpicoll.AVG` (the mean over the ranks that are combined), and your own:\n",
            (("runtime/arguments/operators.py", "Op"),),
        ),
        Section(
            "Algorithms and plans",
            "",
            (
                ("__init__.py", "algorithms"),
                ("analysis/registration.py", "algorithm"),
                ("analysis/verify.py", "verify"),
                ("dispatch/plan.py", "plan"),
                ("dispatch/plan.py", "Plan"),
            ),
        ),
        Section(
            "Settings",
            "`mpicoll.settings` has an attribute for each row of [settings.md](settings.md).\n"
            "`mpicoll.override(**values)` changes them for the calls of this thread (or task) within a `with` block.\n",
        ),
        Section("Errors", "", _errors()),
        Section("Types", _types()),
    ]


def api_page(head: str) -> str:
    """Return docs/api.md; `head` is its first line."""
    parts = [
        head,
        "# API\n",
        "All public names, from their docstrings. Signatures are as written in the source: `MPI` is `mpi4py.MPI`.\n"
        "[sharp-bits.md](sharp-bits.md) has the rules that hold for all of them.\n",
    ]
    for section in sections():
        parts.append(f"## {section.title}\n")
        if section.text:
            parts.append(_documentation(_tree(section.text)) if section.text.endswith(".py") else section.text)
        for file, name in section.entries:
            parts += _entry(_named(_tree(file), name))
    return "\n".join(parts)


def _documentation(node: Function | ast.ClassDef | ast.Module) -> str:
    """Return the Markdown of a docstring."""
    return markdown(ast.get_docstring(node) or "")


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Yield the public functions of a module or class; of an overloaded one that which has a body."""
    for node in tree.body:
        overloaded = isinstance(node, Function) and "overload" in map(ast.unparse, node.decorator_list)
        if isinstance(node, Function) and not node.name.startswith("_") and not overloaded:
            yield node


def _named(tree: ast.Module, name: str) -> Function | ast.ClassDef:
    """Return a class or function of a module; the last one of that name, which has a body."""
    kinds = Function | ast.ClassDef
    return [node for node in tree.body if isinstance(node, kinds) and node.name == name][-1]


def _entry(node: Function | ast.ClassDef) -> Iterator[str]:
    """Yield the Markdown of a function, or of a class and its public methods."""
    if node.name == MIXIN:
        yield from _methods(node, "Communicator")
        return
    yield f"### {node.name}\n"
    makes = node if isinstance(node, Function) else _maker(node)
    if makes is not None:
        yield _signature(node.name, makes, result=makes is node)
    yield _documentation(node)
    if isinstance(node, ast.ClassDef):
        yield from _methods(node, node.name)


def _methods(node: ast.ClassDef, owner: str) -> Iterator[str]:
    """Yield the Markdown of a class's public methods, as those of `owner`."""
    for method in _public(node):
        yield f"#### {owner}.{method.name}\n"
        if "property" not in map(ast.unparse, method.decorator_list):
            yield _signature(method.name, method)
        yield _documentation(method).replace("see the module", "see above")


def _maker(node: ast.ClassDef) -> Function | None:
    """Return the method whose parameters are those of the class, if users make its objects."""
    found = [one for one in node.body if isinstance(one, Function) and one.name in ("__new__", "__init__")]
    return found[0] if found and node.name not in MADE else None


def _signature(name: str, function: Function, result: bool = True) -> str:
    """Return a block of Python with the signature, on one line or one for each parameter."""
    parameters = list(_parameters(function.args))
    tail = f" -> {ast.unparse(function.returns)}" if result and function.returns else ""
    line = f"{name}({', '.join(parameters)}){tail}"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {one}," for one in parameters), f"){tail}"])
    return f"```python\n{line}\n```\n"


def _parameters(given: ast.arguments) -> Iterator[str]:
    """Yield parameters as they are written, without `self` and `cls`."""
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    for parameter, default in zip(positional, defaults, strict=True):
        if parameter.arg not in ("self", "cls"):
            yield _parameter(parameter, default)
    if given.vararg or given.kwonlyargs:
        yield f"*{_parameter(given.vararg, None)}" if given.vararg else "*"
    for parameter, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(parameter, default)
    if given.kwarg:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    text = f"{parameter.arg}: {ast.unparse(parameter.annotation)}" if parameter.annotation else parameter.arg
    return text if default is None else f"{text} = {ast.unparse(default)}"


def markdown(docstring: str) -> str:
    """Return a docstring as Markdown: its sections become lists, examples stay code."""
    lines, section = [], ""
    for line in docstring.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Raises|Attributes):", line)
        if heading:
            section = heading[1]
            lines += [f"{section}:", ""]
        elif not section:
            lines.append(line if line.startswith("    ") else _escaped(line))
        else:
            lines.append(_item(line[4:], section))
    return "\n".join([*lines, ""])


def _item(line: str, section: str) -> str:
    """Return a line of a section: the first one of an item, or one that goes on with it."""
    found = re.match(r"([\w.]+): (.*)", line)
    if found and section != "Returns":
        return f"- `{found[1]}`: {_escaped(found[2])}"
    return _escaped(line)


def _escaped(line: str) -> str:
    return ASTERISK.sub(lambda found: found[1] or r"\*", line)


def _forms() -> str:
    """Return what is said of nonblocking and persistent methods, messages, and what makes communicators."""
    forms = [_derived("nonblocking.py", "Nonblocking"), _derived("persistent.py", "Persistent")]
    rows = [f"| `{name}` | `{forms[0][name]}` | `{forms[1][name]}` |" for name in forms[0]]
    made = ", ".join(f"`{name}`" for name in _assigned("derived.py", "Derived"))
    sent = ", ".join(f"`{name}`" for name in sorted(_assigned("point_to_point.py", "PointToPoint"), key=str.lower))
    return "\n".join(
        [
            "A nonblocking method takes the arguments of the blocking one and returns a `Request`.",
            "A persistent one takes `info`, too, after the positional ones, and returns a `PersistentRequest`.",
            "",
            "| blocking | nonblocking | persistent |",
            "| --- | --- | --- |",
            *rows,
            "",
            f"As mpi4py's, but of the communicator's own type: {made}.",
            "",
            f"As mpi4py's, but for device arrays, too, and so that calls in flight go on: {sent}.",
            "",
        ]
    )


def _derived(file: str, owner: str) -> dict[str, str]:
    """Return the derived methods by the blocking ones, from lines such as `Ibcast = started(Blocking.Bcast)`."""
    body = _named(_tree(file), owner).body
    pairs = [(node.targets[0], node.value) for node in body if isinstance(node, ast.Assign)]
    return {ast.unparse(made.args[0]).removeprefix("Blocking."): ast.unparse(name) for name, made in pairs}


def _assigned(file: str, owner: str) -> list[str]:
    """Return the public names in a class's body."""
    names = []
    for node in _named(_tree(file), owner).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        found = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        names += [node.name] if isinstance(node, Function) else found
    return [name for name in names if not name.startswith("_")]


def _types() -> str:
    """Return a table of the types in buffers.py, whose meanings are comments of the form `#: ...`."""
    source = (ROOT / "buffers.py").read_text(encoding="utf-8")
    rows = re.findall(r"^#: (.*)\n(\w\w+) = (.*)$", source, re.MULTILINE)
    lines = ["| type in `mpicoll.buffers` | is | meaning |", "| --- | --- | --- |"]
    cells = [[cell.replace("|", r"\|") for cell in (name, value, meaning)] for meaning, name, value in rows]
    return "\n".join([*lines, *(f"| `{name}` | `{value}` | {meaning} |" for name, value, meaning in cells), ""])
