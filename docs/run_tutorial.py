"""Runs the Python of the tutorial and compares what it prints with the page.

    mpirun -n 4 python docs/run_tutorial.py

The snippets of a section share their names, and begin with those of the section "Start".  What all ranks print, in
the order of ranks, must be the text block that follows a snippet; nothing, if there is none.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "tutorial.md"
#: the section whose snippets come before those of every other
START = "Start"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
#: (line in the page, code, what all ranks print)
Snippet = tuple[int, str, str]


def sections(page: str) -> dict[str, list[Snippet]]:
    """Return the snippets of each section of a page that has any."""
    found: dict[str, list[Snippet]] = defaultdict(list)
    headings = [(match.start(), match[1]) for match in re.finditer(r"^## (.*)$", page, re.MULTILINE)]
    for match in BLOCK.finditer(page):
        section = [name for start, name in headings if start < match.start()][-1]
        found[section].append((page.count("\n", 0, match.start(1)), match[1], match[2] or ""))
    return dict(found)


def run(snippets: list[Snippet], comm: Any) -> None:
    """Run snippets on the ranks of a communicator; raises AssertionError where they print something else."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    for line, code, wanted in snippets:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
        found = "".join(comm.allgather(printed.getvalue()))
        assert found == wanted, f"{PAGE.name}:{line}: printed\n{found}instead of\n{wanted}"


def main() -> None:
    """Run all sections."""
    from mpi4py import MPI

    found = sections(PAGE.read_text(encoding="utf-8"))
    for name, snippets in found.items():
        run([*(found[START] if name != START else []), *snippets], MPI.COMM_WORLD)
        if MPI.COMM_WORLD.rank == 0:
            print(f"{name}: {len(snippets)} snippets", flush=True)


if __name__ == "__main__":
    main()
