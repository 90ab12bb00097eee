"""Which measurements there are, from what is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mpicoll.algorithms import registry
from mpicoll.bench.cases import CALLS, Call, Case, make_case
from mpicoll.bench.data import REDUCTIONS, dtype_named, kind
from mpicoll.bench.options import Options, RequestError, sizes
from mpicoll.bench.report import Report
from mpicoll.dispatch.rules import parse_choice
from mpicoll.errors import UnsupportedError

#: largest message size where none is given
LARGEST = {"numpy": 4 << 20, "cupy": 256 << 20}
#: message sizes of --overhead: the library's own cost is what is left where nothing moves
SMALL = (0, 8)


@dataclass(frozen=True)
class Job:
    """One line of the table: a case and what `algorithm=` of its calls is."""

    case: Case
    algorithm: str | None


def jobs(options: Options, size: int, arrays: str, report: Report) -> list[Job]:
    """Return what to measure, each once; raise RequestError for what can be seen not to work beforehand.

    Args:
        options: what is asked for.
        size: number of ranks.
        arrays: "numpy" or "cupy".
        report: is told what is left out.
    """
    if options.roots and max(options.roots) >= size:
        raise RequestError(f"root {max(options.roots)} is out of range for {size} ranks")
    found: dict[Job, None] = {}  # in order, each once: small sizes may come to the same count
    for call in (CALLS[name] for name in options.calls):
        algorithms = list(_algorithms(call, options.algorithms, size, report))
        for dtype, redop in _types(call, options, report):
            for root in _roots(call, options, size):
                cases = [make_case(call, n, dtype, size, redop, root) for n in _nbytes(options, arrays)]
                found |= dict.fromkeys(Job(case, algorithm) for algorithm in algorithms for case in cases)
    return list(found)


def forms(call: Call, options: Options) -> tuple[bool, ...]:
    """Return the forms to measure; a call with one form is measured whatever is asked for."""
    return tuple(form for form in call.forms if form in options.forms) or call.forms


def _nbytes(options: Options, arrays: str) -> tuple[int, ...]:
    if options.sizes:
        return options.sizes
    if options.mode == "overhead":
        return SMALL
    largest = max(LARGEST[arrays], options.smallest) if options.largest is None else options.largest
    return tuple(sizes(options.smallest, largest, options.factor))


def _algorithms(call: Call, names: tuple[str, ...], size: int, report: Report) -> Iterator[str | None]:
    """Return what `algorithm=` shall be, one after the other."""
    known = not call.local
    for name in names:
        if name == "auto":
            yield None
        elif name == "all":
            for card in registry.known(call.row.name):
                why = card.refuses(size, counts_known=known)
                if why:
                    report.refuse(call.name, card.name, why)
                else:
                    yield card.name
        else:
            try:
                registry.require(call.row.name, parse_choice(name).algorithm, size, counts_known=known)
            except (ValueError, UnsupportedError) as error:
                raise RequestError(str(error)) from None
            yield name


def _types(call: Call, options: Options, report: Report) -> list[tuple[str, str]]:
    """Return the dtypes with the operators that are defined for them."""
    if not call.row.reducing:
        return [(dtype, "") for dtype in options.dtypes]
    found = []
    for dtype in options.dtypes:
        for redop in options.redops:
            if kind(dtype_named(dtype)) in REDUCTIONS[redop][1]:
                found.append((dtype, redop))
            else:
                report.refuse("every reduction", redop, f"is not defined for {dtype}")
    if not found:
        redops, dtypes = ", ".join(options.redops), ", ".join(options.dtypes)
        raise RequestError(f"{call.name}: {redops} is not defined for {dtypes}")
    return found


def _roots(call: Call, options: Options, size: int) -> tuple[int, ...]:
    if not call.row.rooted:
        return (0,)
    return tuple(range(size)) if options.roots is None else options.roots
