"""Jobs: the measurements that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mpicoll.algorithms import registry
from mpicoll.bench.errors import RequestError
from mpicoll.bench.request.cases import CALLS, Case, Method, in_equal_blocks, make_case
from mpicoll.bench.request.numbers import REDUCTIONS, dtype_named, kind
from mpicoll.bench.request.options import Options
from mpicoll.dispatch.rules import NATIVE, known_choice, parse_choice
from mpicoll.errors import UnsupportedError
from mpicoll.ranges import growing

#: what is told why something is left out: a call, a name and the reason
Refuse = Callable[[str, str, str], None]

#: largest message size where none is given
LARGEST = {"numpy": 4 << 20, "cupy": 256 << 20}
#: message sizes of --overhead: the library's own cost is what is left where nothing moves
SMALL = (0, 8)
#: message sizes of --regret: those between what a tuner measures
BETWEEN = (24, 1_500, 12_000, 100_000, 700_000, 3_000_000)
#: message sizes of the modes that have their own
OWN_SIZES = {"overhead": SMALL, "regret": BETWEEN}
#: modes that measure one form of a call
ONE_FORM = ("overlap", "overhead", "guidelines", "regret")


@dataclass(frozen=True)
class Job:
    """One line of the table.

    Attributes:
        case: what is called.
        algorithm: `algorithm=` of its calls.
        forms: which are measured: False (out of place), True (in place).
    """

    case: Case
    algorithm: str | None
    forms: tuple[bool, ...] = (False,)


def jobs(options: Options, size: int, arrays: str, refuse: Refuse) -> list[Job]:
    """Return the jobs, each once, those of a case together; raise RequestError for one that cannot work.

    Args:
        options: what is asked for.
        size: number of ranks.
        arrays: "numpy" or "cupy".
        refuse: is told what is left out.
    """
    if options.roots and max(options.roots) >= size:
        raise RequestError(f"root {max(options.roots)} is out of range for {size} ranks")
    _known(options)
    found: dict[Job, None] = {}  # in order, each once: small sizes may come to the same count
    for call in (CALLS[name] for name in options.calls):
        algorithms = list(_algorithms(call, options.algorithms, size, refuse))
        for dtype, redop in _types(call, options, refuse):
            for root in _roots(call, options, size):
                cases = [make_case(call, n, dtype, size, redop, root) for n in message_sizes(options, arrays)]
                cases = list(map(in_equal_blocks, cases)) if options.mode == "guidelines" else cases
                made = (Job(case, algorithm, forms(call, options)) for case in cases for algorithm in algorithms)
                found |= dict.fromkeys(made)
    return list(found)


def _known(options: Options) -> None:
    """Raise RequestError for a name of an algorithm that no call has: what is misspelt is not just left out."""
    for name in options.algorithms:
        why = [] if name in ("auto", "all") else [_unknown(CALLS[call], name) for call in options.calls]
        if why and all(why):
            raise RequestError(f"--algorithm {name}: {why[0]}")


def _unknown(call: Method, name: str) -> str:
    try:
        known_choice(call.row.name, parse_choice(name))
    except ValueError as error:
        return str(error)
    return ""


def forms(call: Method, options: Options) -> tuple[bool, ...]:
    """Return the forms to measure, of a call with one form that one; the first where only one is measured."""
    found = tuple(form for form in call.forms if form in options.forms) or call.forms
    return found[:1] if options.mode in ONE_FORM else found


def message_sizes(options: Options, arrays: str) -> tuple[int, ...]:
    """Return the message sizes in bytes, those of the kind of arrays where none are given."""
    if options.sizes:
        return options.sizes
    if options.mode in OWN_SIZES:
        return OWN_SIZES[options.mode]
    largest = max(LARGEST[arrays], options.smallest) if options.largest is None else options.largest
    return tuple(growing(options.smallest, largest, options.factor))


def _algorithms(call: Method, names: tuple[str, ...], size: int, refuse: Refuse) -> Iterator[str | None]:
    """Yield the values of `algorithm=`, one after the other.

    Args:
        call: what is called.
        names: as they were given, "auto" and "all" too.
        size: number of ranks.
        refuse: is told what is left out.
    """
    for name in names:
        if name == "auto":
            yield None
        elif name == "all":
            cards = registry.known(call.row.name)
            yield from (card.name for card in cards if not _refused(call, card.name, size, refuse))
        elif not _refused(call, name, size, refuse):
            yield name


def _refused(call: Method, name: str, size: int, refuse: Refuse) -> bool:
    """Tell whether an algorithm cannot serve; `refuse` is told why.

    Args:
        call: what is called.
        name: the algorithm's name, with segments and path if they are given.
        size: number of ranks.
        refuse: is told why.
    """
    try:
        algorithm = known_choice(call.row.name, parse_choice(name)).algorithm
        if algorithm != NATIVE:  # of which only the call itself can tell
            registry.require(call.row.name, algorithm, size, counts_known=not call.local)
    except (ValueError, UnsupportedError) as error:
        refuse(call.name, f"{name}:", str(error).removeprefix(f"{call.row.name}: "))
        return True
    return False


def _types(call: Method, options: Options, refuse: Refuse) -> list[tuple[str, str]]:
    """Return the dtypes with the operators that are defined for them."""
    if not call.row.reducing:
        return [(dtype, "") for dtype in options.dtypes]
    found = []
    for dtype in options.dtypes:
        for redop in options.redops:
            if kind(dtype_named(dtype)) in REDUCTIONS[redop][1]:
                found.append((dtype, redop))
            else:
                refuse("every reduction", redop, f"is not defined for {dtype}")
    if not found:
        redops, dtypes = ", ".join(options.redops), ", ".join(options.dtypes)
        raise RequestError(f"{call.name}: {redops} is not defined for {dtypes}")
    return found


def _roots(call: Method, options: Options, size: int) -> tuple[int, ...]:
    if not call.row.rooted:
        return (0,)
    return tuple(range(size)) if options.roots is None else options.roots
