"""The protocol of a lesson in text: before and after, a row a rank, and the steps.

rank 0: [1, 2]  ->  rank 0: [10, 20]
rank 1: [3, 4]  ->  rank 1: [10, 20]
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from mpicoll.learn.lesson import Lesson, Page
from mpicoll.learn.numbers import MISSING, Row
from mpicoll.learn.steps import Note, by_round

#: columns of a line at most
WIDTH = 80


def lines(lesson: Lesson) -> Iterator[str]:
    """Yield the lines of a lesson."""
    pattern = lesson.pattern
    yield f"=== {pattern.title} ({pattern.name}) ".ljust(WIDTH, "=")
    yield from wrapped(pattern.idea)
    yield ""
    yield from textwrap.indent(pattern.code, "    ").splitlines()
    yield ""
    yield from _table(lesson)
    for rank, page in enumerate(lesson.pages):
        for text in page.did:
            yield from wrapped(f"rank {rank} {text}", later=" " * 9)
    yield from wrapped(_way(lesson))
    if any(page.book for page in lesson.pages):
        yield from _steps(lesson)
    yield from _verdict(lesson)
    yield from wrapped(pattern.use)
    yield ""


def wrapped(text: str, first: str = "", later: str = "") -> list[str]:
    """Return a text in lines that are not too long.

    Args:
        text: to be cut at spaces.
        first: in front of the first line.
        later: in front of the others.
    """
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def row_text(row: Row | None, piece: int = 0) -> str:
    """Return numbers in brackets; in pieces of so many, if it is not 0, with bars between them."""
    if row is None:
        return "-"
    words = ["." if number == MISSING else str(number) for number in row]
    if piece in (0, 1, len(words)):
        return f"[{', '.join(words)}]"
    return f"[{'|'.join(' '.join(words[at : at + piece]) for at in range(0, len(words), piece))}]"


def _piece(lesson: Lesson) -> int:
    """Return the numbers of a block's segment, 0 where they are not shown apart."""
    row = lesson.pattern.row
    return lesson.outline.piece if row is not None and lesson.outline.n % lesson.outline.pieces == 0 else 0


def _after(page: Page, piece: int) -> str:
    if not page.takes_part:
        return "takes no part"
    return row_text(page.got, piece) + ("" if page.right else f"  WRONG, not {row_text(page.must, piece)}")


def _table(lesson: Lesson) -> Iterator[str]:
    """Yield all ranks' inputs and outputs: side by side, or below each other where a line would be too long."""
    piece = _piece(lesson)
    before = [f"rank {rank}: {row_text(page.had, piece)}" for rank, page in enumerate(lesson.pages)]
    after = [f"rank {rank}: {_after(page, piece)}" for rank, page in enumerate(lesson.pages)]
    width = max(map(len, before))
    if width + len("  ->  ") + max(map(len, after)) <= WIDTH:
        yield f"{'Before:'.ljust(width)}      After:"
        yield from (f"{left.ljust(width)}  ->  {right}" for left, right in zip(before, after, strict=True))
    else:
        for title, texts in (("Before:", before), ("After:", after)):
            yield title
            yield from (line for text in texts for line in wrapped(text, later=" " * 9))
    yield ""


def _way(lesson: Lesson) -> str:
    """Return in words how the call was made."""
    plan, refusal = lesson.outline.plan, lesson.outline.refusal
    if plan is None:
        return "Messages are MPI's own: they have no algorithm."
    segments = f" in {plan.segments} segments" if plan.segments > 1 else ""
    reason = plan.reason.partition(": ")[0]
    text = f"By the algorithm {plan.algorithm}{segments}, on the path {plan.path} ({reason})."
    return f"Not by the algorithm that was asked for: {refusal}. {text}" if refusal else text


def _steps(lesson: Lesson) -> Iterator[str]:
    """Yield the steps of all ranks, round by round."""
    pages = [page for page in lesson.pages if page.book is not None]
    books = [page.book for page in pages if page.book is not None]
    outputs = [None if page.room is None else page.room.copy() for page in pages]
    numbered = by_round(books)
    if lesson.outline.n != lesson.pattern.n:
        row = lesson.pattern.row
        where = "" if row and row.free else " in a block"
        yield from wrapped(f"Here are {lesson.outline.n} numbers{where}, not {lesson.pattern.n}: each piece has some.")
    yield ""
    if not all(book.watched for book in books):
        yield from wrapped("One kernel did all steps; they are those of its schedule, and were not seen one by one.")
    if not numbered:
        yield "No messages, no local work."
    for number, notes in numbered.items():
        yield f"round {number}:" if number >= 0 else "before the first message:"
        for rank, (book, mine, output) in enumerate(zip(books, notes, outputs, strict=True)):
            yield from _of_rank(book.members[rank], mine, output, book.piece)
    yield ""


def _of_rank(rank: int, notes: Iterable[Note], output: Row | None, piece: int) -> Iterator[str]:
    """Yield what a rank did in a round, and its output afterwards.

    Args:
        rank: the rank.
        notes: of what it did.
        output: before the round; what was written in it is put there.
        piece: as in `row_text`.
    """
    front, written = f"  rank {rank} ".ljust(9), False
    for note in notes:
        yield from wrapped(note.text, front, " " * len(front) + "  ")
        front = " " * len(front)
        for place, numbers in note.wrote.items():
            assert output is not None
            output[place * piece : (place + 1) * piece], written = numbers, True
    if written:
        yield from wrapped(f"y = {row_text(output, piece)}", front, front + "     ")


def _verdict(lesson: Lesson) -> list[str]:
    if not lesson.wrong:
        return ["All ranks have what NumPy finds."]
    return wrapped(f"WRONG on the ranks {', '.join(map(str, lesson.wrong))}: not what NumPy finds.")


def contents(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and what they stand for, a line each or more."""
    return [line for name, text in rows for line in wrapped(text, name.ljust(16), " " * 16)]
