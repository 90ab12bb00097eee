"""`python -m mpicoll.bench`: an exception on one rank ends the job, so that none waits for ever."""

from __future__ import annotations

import sys
import time
import traceback
from typing import NoReturn


def main() -> NoReturn:
    """Run the benchmark and leave with its exit status."""
    from mpi4py import MPI

    from mpicoll.bench.interruption import FORWARDED
    from mpicoll.bench.run import run

    try:
        status = run(sys.argv[1:])
    except SystemExit:  # the parser's, on every rank alike
        raise
    except BaseException:
        print(f"rank {MPI.COMM_WORLD.rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        time.sleep(FORWARDED)
        MPI.COMM_WORLD.Abort(1)
    MPI.COMM_WORLD.Barrier()  # some launchers end the job when the first rank has left with an error
    sys.exit(status)


if __name__ == "__main__":
    main()
