"""`python -m mpicoll run`: a program, unchanged, with mpicoll's communicators as MPI.COMM_WORLD and COMM_SELF.

    mpirun -n 4 python -m mpicoll run script.py arguments
    mpirun -n 4 python -m mpicoll run --report -m module arguments
    mpirun -n 4 python -m mpicoll run --native script.py

Python programs that this one starts get them, too. As with `python -m mpi4py`, an error that is not caught on a rank
ends the job. The report on rank 0 says at the end which calls were served, with bytes, time and algorithms, and what
was passed to mpi4py, and why. With --native, blocking calls of arrays on the host are MPI's own collectives where
those do the same, and a tuning table knows of nothing faster. docs/drop-in.md has the rest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mpicoll.settings import settings

NAME, HELP = "run", "run a program, unchanged, on mpicoll's communicators"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("--report", action="store_true", help="say at the end what was served, and what was not")
    parser.add_argument("--json", type=Path, metavar="FILE.json", help="write the report into a file, too")
    parser.add_argument("--native", action="store_true", help="on the host, use MPI's own collectives where they win")
    parser.add_argument("--path", action="store_true", help="print the folder for PYTHONPATH, and run nothing")
    rest = argparse.REMAINDER
    parser.add_argument("-m", dest="module", nargs=rest, help="run a module, with the arguments after it")
    parser.add_argument("program", nargs=rest, help="the script, with the arguments after it")


def run(chosen: argparse.Namespace) -> None:
    """Run the program."""
    from mpicoll.standin.program import run_program
    from mpicoll.standin.start import SITE, start

    if chosen.path:
        print(SITE)
        return
    arguments = program(chosen)
    start(wanted(chosen), native=chosen.native)
    run_program(arguments)


def program(chosen: argparse.Namespace) -> list[str]:
    """Return the program and its arguments, as Python takes them."""
    if chosen.module:
        return ["-m", *chosen.module, *chosen.program]  # argparse begins anew at the first `--`
    if not chosen.program:
        raise ValueError("run: name a script, or -m and a module")
    if not Path(chosen.program[0]).exists():
        raise ValueError(f"run: there is no script {chosen.program[0]}")
    script: list[str] = chosen.program
    return script


def wanted(chosen: argparse.Namespace) -> str:
    """Return the value of the setting that the options ask for; a report that a variable asks for stays."""
    if chosen.json:
        if chosen.json.suffix != ".json":
            raise ValueError(f"run: --json {chosen.json}: the name must end in .json")
        return str(chosen.json.absolute())
    if isinstance(settings.standin, str):
        return settings.standin
    return "report" if chosen.report else "yes"
