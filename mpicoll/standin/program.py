"""The program that `python -m mpicoll run` runs, as Python would."""

from __future__ import annotations

import builtins
import io
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

#: files of the frames between Python's start and the program's first line
BEFORE = ("<frozen runpy>", "runpy.py", "mpi4py/run.py", "mpicoll/standin/program.py")
#: seconds for which a report waits for ranks that also leave with an exit status
LEAVING = 2.0

#: seconds for which a report may wait for the other ranks, None where the program has ended as it should
patience: float | None = None


def run_program(arguments: list[str]) -> None:
    """Run a program; an error that it does not catch ends the job, as with `python -m mpi4py`.

    Args:
        arguments: as Python takes them: a script or `-m` and a module, and then the program's own.

    Raises:
        SystemExit: as the program has raised it, or 1 for an error, whose traceback is printed.
    """
    global patience
    from mpi4py.run import run_command_line, set_abort_status

    try:
        if Path(arguments[0]).is_file():
            _run_script(arguments)
        else:  # a module, or a folder with a program
            run_command_line(arguments)
    except (SystemExit, KeyboardInterrupt) as leaving:
        patience = LEAVING if getattr(leaving, "code", 1) else None
        set_abort_status(leaving)
        raise
    except BaseException as error:
        patience = 0.0
        set_abort_status(1)
        traceback = of_program(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        raise SystemExit(1) from None


def _run_script(arguments: list[str]) -> None:
    """Run a script as the module `__main__`, which it stays, for what runs when Python ends."""
    file = str(Path(arguments[0]).absolute())
    sys.argv[:] = arguments
    sys.path[0] = str(Path(file).resolve().parent)
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    main = ModuleType("__main__")
    main.__loader__ = SourceFileLoader("__main__", file)
    main.__dict__.update(__file__=file, __builtins__=builtins, __cached__=None, __annotations__={})
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def of_program(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that Python would show if it had run the program itself."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.endswith(BEFORE):
        traceback = traceback.tb_next
    return traceback
