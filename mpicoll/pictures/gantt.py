"""A simulation as a timeline in text: a row a rank, a column a slice of the time.

       0  >>>>>>>>xxxxxxxx>>>>>>>>wwxxxxxxxx
       1  <<<<<<<<xxxxxxxx

> sends, < receives, x both, w reduces or copies, a dot waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll.simulate.result import Run

#: what a rank does in a slice: sends, receives, works
SENDS, RECEIVES, WORKS = 1, 2, 4
MARKS = {0: ".", SENDS: ">", RECEIVES: "<", SENDS | RECEIVES: "x"}


def gantt(run: Run, ranks: Sequence[int], columns: int) -> list[str]:
    """Return a line for each rank.

    Args:
        run: the simulation.
        ranks: the rows.
        columns: slices of the time.
    """
    rows = {rank: [0] * columns for rank in ranks}

    def mark(rank: int, start: float, end: float, what: int) -> None:
        if rank in rows and run.seconds:
            first, last = (int(time / run.seconds * columns) for time in (start, end))
            for column in range(first, max(min(last, columns), first + 1)):
                if column < columns:
                    rows[rank][column] |= what

    for message in run.messages():
        mark(message.source, message.start, message.freed, SENDS)
        mark(message.target, message.end - (message.freed - message.start), message.end, RECEIVES)
    for work in run.works:
        mark(work.rank, work.start, work.end, WORKS)
    return [f"{rank:>4}  " + "".join("w" if m & WORKS else MARKS[m] for m in row) for rank, row in rows.items()]
