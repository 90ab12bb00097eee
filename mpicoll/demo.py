"""`mpirun -n 4 python -m mpicoll.demo`: each pattern of communication, with all ranks' data before and after."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.bench.errors import RequestError
from mpicoll.bench.measure.backends import choose
from mpicoll.bench.request.reading import Parser
from mpicoll.communicator import Communicator
from mpicoll.dispatch.rules import parse_choice
from mpicoll.learn.lesson import Classroom
from mpicoll.learn.patterns import PATTERNS, Pattern, named
from mpicoll.learn.protocol import contents, lines, wrapped

_EPILOG = """\
A dot in an output is a number that is not there yet, a dash no input or no output at all.  Every output is compared
with what NumPy finds.

Exit status: 0 if all outputs are right, 1 if any is wrong, 2 if the request cannot be served.
"""

_LEGEND = (
    "In the steps a rank's input is x, its output is y, and scratch is memory besides. block[3] is the fourth block "
    "of the vector, block[1>2] is what rank 1 has for rank 2. Bars are between blocks."
)


def main(arguments: list[str] | None = None) -> int:
    """Carry out what the command line asks for, and return the exit status; collective over all ranks.

    Args:
        arguments: the command line without the program's name; rank 0's counts.

    Raises:
        SystemExit: with status 2 on all ranks, where the command line cannot be read.
    """
    world = MPI.COMM_WORLD
    options = _parsed(world.bcast(sys.argv[1:] if arguments is None else arguments, root=0), world.rank == 0)
    say: Callable[[str], None] = _say if world.rank == 0 else lambda line: None
    if options.list:
        for line in contents((pattern.name, pattern.idea) for pattern in PATTERNS.values()):
            say(line)
        return 0
    try:
        backend = choose(options.buffers, world)
    except RequestError as error:
        if world.rank == 0:
            print(f"mpicoll.demo: {error}", file=sys.stderr, flush=True)
        return 2
    comm = Communicator(world.Dup())
    room = Classroom(comm, backend.xp, options.algorithm, options.explain)
    wrong = _taught(room, options.pattern, say)
    comm.Free()
    return 1 if wrong else 0


def _taught(room: Classroom, patterns: list[Pattern], say: Callable[[str], None]) -> list[str]:
    """Carry out patterns, say what happens, and return the names of those with a wrong output.

    Args:
        room: where they are carried out.
        patterns: in order.
        say: prints a line.
    """
    say(f"Patterns: {len(patterns)}.  Ranks: {room.comm.size}.  Arrays: {room.xp.__name__}.")
    if room.explain:
        for line in wrapped(_LEGEND):
            say(line)
    say("")
    wrong = []
    for pattern in patterns:
        lesson = room.teach(pattern)
        for line in lines(lesson):
            say(line)
        if lesson.wrong:
            wrong.append(pattern.name)
    say(f"Wrong: {', '.join(wrong)}." if wrong else "All outputs are right.")
    return wrong


def _say(line: str) -> None:
    print(line, flush=True)


def _parsed(arguments: list[str], loud: bool) -> argparse.Namespace:
    """Return the command line, read; mistakes end the program with status 2.

    Args:
        arguments: without the program's name.
        loud: print help and mistakes; one of the ranks should.
    """
    with contextlib.ExitStack() as stack:
        if not loud:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        parser = _parser()
        options = parser.parse_args(arguments)
        mistake = _mistake(options.algorithm, options.pattern)
        if mistake:
            parser.error(mistake)
    return options


def _parser() -> Parser:
    parser = Parser(
        "mpicoll.demo",
        description="Show every pattern of communication on example data; start it with mpirun.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--pattern", type=_patterns, default=[*PATTERNS.values()], metavar="NAME,...", help="only these (all)")
    add("--algorithm", metavar="NAME", help="for all patterns that have it, such as ring or ring/2 (mpicoll's choice)")
    add("--explain", action="store_true", help="print each message and each reduction of each rank, as it was made")
    add("--buffers", choices=("numpy", "cupy"), default="numpy", help="where the arrays live (numpy)")
    add("--list", action="store_true", help="print the names of the patterns")
    return parser


def _patterns(text: str) -> list[Pattern]:
    """Return the patterns of a list of names."""
    try:
        return [named(word.strip()) for word in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _mistake(algorithm: str | None, patterns: list[Pattern]) -> str:
    """Return why an algorithm cannot be asked for, "" if a pattern has it."""
    if algorithm is None:
        return ""
    try:
        choice = parse_choice(algorithm)
    except ValueError as error:
        return str(error)
    methods = [pattern.method for pattern in patterns if pattern.method]
    if any(_has(method, choice.algorithm) for method in methods):
        return ""
    known = dict.fromkeys(card.name for method in methods for card in registry.known(method))
    return f"no pattern here has an algorithm {choice.algorithm!r}; known: {', '.join(known) or 'none'}"


def _has(method: str, algorithm: str) -> bool:
    """Tell whether a method has an algorithm of that name."""
    try:
        registry.get(method, algorithm)
    except ValueError:
        return False
    return True


def _run() -> NoReturn:
    """Leave with the exit status; an exception on one rank ends the job, so that none waits for ever."""
    try:
        status = main()
    except SystemExit:  # the parser's, on every rank alike
        raise
    except BaseException:
        print(f"rank {MPI.COMM_WORLD.rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
    MPI.COMM_WORLD.Barrier()  # some launchers end the job when the first rank has left with an error
    sys.exit(status)


if __name__ == "__main__":
    _run()
