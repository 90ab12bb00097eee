"""A progress bar, where there is a terminal to draw it on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO

#: programs that start ranks and pass their output on
LAUNCHERS = ("hydra_pmi_proxy", "mpiexec", "mpiexec.gforker", "mpiexec.hydra", "mpirun", "prted", "prterun")


def terminal(stream: TextIO) -> Path | None:
    """Return the terminal at which an output stream ends, or None if it ends elsewhere.

    A rank's own streams do not tell: MPICH's launcher gives it pipes where it has a terminal itself, and
    Open MPI's a terminal where it has none.  So a launcher on this node is asked, if there is one.
    """
    try:
        descriptor = stream.fileno()
        launcher = _launcher()
        if launcher is None:
            return Path(os.ttyname(descriptor)) if os.isatty(descriptor) else None
        found = (launcher / "fd" / str(descriptor)).readlink()
    except (OSError, ValueError):  # not a file, no /proc, not ours to look at
        return None
    return found if str(found).startswith(("/dev/pts/", "/dev/tty")) else None


def _launcher() -> Path | None:
    """Return the process that the user started, as a folder of /proc."""
    found, process = None, Path(f"/proc/{os.getppid()}")
    while (process / "comm").read_text().strip() in LAUNCHERS:
        found = process
        parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
        process = process.parent / parent
    return found


class Progress:
    """A bar below the table, or on the standard error output if the table goes elsewhere than a terminal.

    It is drawn only when told so, never by a thread of its own, which would disturb the times.

    Args:
        total: steps that there will be.
        shown: draw it, if there is a terminal.
    """

    def __init__(self, total: int, shown: bool) -> None:
        self.bar: Any = None
        stream = next((s for s in (sys.stdout, sys.stderr) if shown and terminal(s)), None)
        if stream:
            from rich.console import Console
            from rich.progress import Progress as Bar

            console = Console(file=stream, force_terminal=True)
            self.bar = Bar(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
            self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        return self

    def step(self, what: str) -> None:
        """Draw it: this comes now, after all steps before."""
        if self.bar:
            self.bar.update(self.task, description=what)
            self.bar.start()
            self.bar.refresh()
            self.bar.advance(self.task)

    def clear(self) -> None:
        """Take it away, for a line of the table."""
        if self.bar:
            self.bar.stop()

    def __exit__(self, *exception: object) -> None:
        self.clear()
