"""`python -m mpicoll plan`: which algorithm a call would run, why, and what else could.

    plan allreduce --ranks 8 --bytes 1M                  every candidate with predicted and measured times
    plan allreduce --ranks 8 --bytes 8,64K,1M,16M        a line for each message size
    plan bcast --ranks 4 --bytes 1M --memory device --tuning h200

It asks as a call on this host would, with the settings of the environment and the tuning tables in force.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from mpicoll.dispatch.explain import who
from mpicoll.dispatch.explain_text import cells, head, remarks, sizes_text, tables_text, unoffered
from mpicoll.dispatch.plan import COUNTS_UNKNOWN, Plan, plan
from mpicoll.dispatch.select import describe_size
from mpicoll.ranges import MOST, message_sizes, whole_numbers
from mpicoll.schedule.collectives import collective
from mpicoll.settings import override

NAME, HELP = "plan", "which algorithm a call would run, why, and what else could"
#: columns of what is no terminal
WIDTH = 100
#: titles of columns of times
TIMES = ("predicted (us)", "measured (us)")


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("collective", help="or a method, such as allgatherv")
    parser.add_argument("--ranks", default="4", help="numbers of ranks, such as 8 or 2-4,8 (4)")
    parser.add_argument(
        "--bytes", default="1M", help="message sizes: bytes of the full vector, as 8,64K or 8-4M:2 (1M)"
    )
    parser.add_argument("--memory", choices=("host", "device"), default="host", help="where the arrays are (host)")
    parser.add_argument("--gpus", type=int, help="number of GPUs of all ranks (one each)")
    parser.add_argument("--tuning", default="", help="tuning table: a file, a packaged name, or `model` for none")
    parser.add_argument("--algorithm", help="what `algorithm=` of the call would be, such as ring/8")
    parser.add_argument("--root", type=int, default=0, help="of collectives that have one (0)")
    parser.add_argument("--rank", type=int, default=0, help="whose plan it is (0)")


def run(chosen: argparse.Namespace) -> None:
    """Print one plan with its reasons, or a line for each of several."""
    load_mpi()
    with override(**{"tuning": chosen.tuning} if chosen.tuning else {}):
        plans = list(_plans(chosen))
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    if len(plans) == 1:
        _print_plan(plans[0], console)
    else:
        _print_lines(plans, console)


def load_mpi() -> None:
    """Load the MPI library without starting it: tuning tables depend on which one it is."""
    if "mpi4py.MPI" in sys.modules:
        return
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError):  # there is none: tables that name one are not in force
        return


def _plans(chosen: argparse.Namespace) -> Iterator[Plan]:
    """Yield a plan for each number of ranks and message size."""
    name = collective(chosen.collective).name
    sizes: list[int | None] = list(message_sizes(chosen.bytes))
    if chosen.collective.lower() in COUNTS_UNKNOWN:
        sizes = [None]
    elif name == "barrier":
        sizes = [0]
    for ranks in whole_numbers(chosen.ranks):
        if not ranks:
            raise ValueError(f"--ranks {chosen.ranks}: from 1 to {MOST}")
        for nbytes in sizes:
            yield plan(
                chosen.collective,
                size=ranks,
                nbytes=nbytes,
                rank=chosen.rank,
                root=chosen.root,
                device="cuda" if chosen.memory == "device" else "cpu",
                algorithm=chosen.algorithm,
                gpus=chosen.gpus,
            )


def _print_plan(one: Plan, console: Console) -> None:
    found = one.explanation()
    rows = [cells(verdict) for verdict in found.verdicts]
    table = _table(("", "candidate", *TIMES), "why", rows)
    console.print(head(one.key), one.words(), *remarks(found, one.key.facts.size), "", sep="\n")
    console.print(table)
    console.print(*unoffered(found), sep="\n", end="\n" if found.unoffered else "")


def _print_lines(plans: list[Plan], console: Console) -> None:
    """Print a line for each plan."""
    rows, sizes, tables = [], dict[str, None](), dict[str, None]()
    for one in plans:
        facts, found = one.key.facts, one.explanation()
        _, *choice_and_times, _ = cells(found.chosen)
        rows.append((str(facts.size), describe_size(facts.nbytes), *choice_and_times, who(one.reason)))
        sizes |= dict.fromkeys(sizes_text(found, facts.size))
        tables |= dict.fromkeys(tables_text(found))
    first = plans[0].key.facts
    console.print(f"{first.collective}, {first.memory} arrays", *tables, *sizes, "", sep="\n")
    console.print(_table(("ranks", "size", "choice", *TIMES), "because of", rows))


def _table(titles: Sequence[str], last: str, rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of which only the last column gives way where it is too wide.

    Args:
        titles: of the other columns.
        last: title of the last column.
        rows: cells, those of the last column included.
    """
    table = Table(box=None, pad_edge=False)
    for place, title in enumerate(titles):
        widest = max(len(title), *(len(row[place]) for row in rows))
        table.add_column(title, min_width=widest, no_wrap=True, justify="right" if title in TIMES else "left")
    table.add_column(last)
    for row in rows:
        table.add_row(*row)
    return table
