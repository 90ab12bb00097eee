"""`python -m mpicoll.bench`: an exception on one rank ends the job, so that none waits for ever."""

from __future__ import annotations

import sys
import time
import traceback
from typing import NoReturn


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the benchmark and leave with its exit status; the arguments are those of the command line if not given."""
    from mpi4py import MPI

    from mpicoll.bench.interruption import FORWARDED

    try:
        status = _run_named(sys.argv[1:] if arguments is None else arguments)
    except SystemExit:  # the parser's, on every rank alike
        raise
    except BaseException:
        print(f"rank {MPI.COMM_WORLD.rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        time.sleep(FORWARDED)
        MPI.COMM_WORLD.Abort(1)
    MPI.COMM_WORLD.Barrier()  # some launchers end the job when the first rank has left with an error
    sys.exit(status)


def _run_named(arguments: list[str]) -> int:
    """Run the puzzle that the first word names, or else the benchmark; return the exit status."""
    from mpicoll.bench.puzzles.options import PUZZLES

    if arguments and arguments[0] in PUZZLES:
        from mpicoll.bench.puzzles.run import run
    else:
        from mpicoll.bench.run import run
    return run(arguments)


if __name__ == "__main__":
    main()
