"""A lesson: one pattern, carried out on all ranks, with what each of them had, got and did."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpicoll.communicator import Communicator
from mpicoll.dispatch.plan import Plan
from mpicoll.errors import UnsupportedError
from mpicoll.learn.numbers import MISSING, Row
from mpicoll.learn.patterns import Pattern
from mpicoll.learn.steps import Notebook, Scribe
from mpicoll.runtime.program.bound import observed
from mpicoll.runtime.program.layout import ALIGNED
from mpicoll.schedule.collectives import collective
from mpicoll.schedule.planner import stepwise_program
from mpicoll.settings import override

#: numbers that are never cut apart into blocks or segments
GRAIN = ALIGNED // np.dtype(np.int64).itemsize


@dataclass(frozen=True)
class Outline:
    """The outline of a call: how long its vector is, and how it is made.

    Attributes:
        n: numbers in the vector, or in each block.
        plan: how the call is made, None for messages.
        algorithm: what the call asks for, None to leave the choice to mpicoll.
        refusal: why the wanted algorithm is not taken, "" if it is.
    """

    n: int
    plan: Plan | None = None
    algorithm: str | None = None
    refusal: str = ""

    @property
    def pieces(self) -> int:
        """Number of pieces into which the n numbers are cut."""
        if self.plan is None:
            return 1
        free = collective(self.plan.key.facts.collective).free
        return self.plan.segments * (self.plan.schedule.blocks if free else 1)

    @property
    def piece(self) -> int:
        """Numbers of a piece."""
        return self.n // self.pieces

    def with_filled_blocks(self) -> Outline:
        """Return the outline with so many numbers that every block of every segment has some."""
        if self.plan is None or self.pieces == 1:
            return self
        segments = f"/{self.plan.segments}" if self.plan.segments > 1 else ""
        return replace(self, n=GRAIN * self.pieces, algorithm=self.plan.algorithm + segments)


@dataclass
class Page:
    """One rank's part of a lesson.

    Attributes:
        takes_part: it is in the group that makes the call.
        had: its input, None where it has none.
        room: its output before the call, None where it has none.
        got: its output, None where it has none.
        must: the output that NumPy finds.
        did: what it did besides a schedule's steps.
        book: the steps, where they are asked for.
    """

    takes_part: bool
    had: Row | None = None
    room: Row | None = None
    got: Row | None = None
    must: Row | None = None
    did: list[str] = field(default_factory=list)
    book: Notebook | None = None

    @property
    def right(self) -> bool:
        """The output is what NumPy finds."""
        if self.got is None or self.must is None:
            return self.got is self.must
        return bool(np.array_equal(self.got, self.must))


@dataclass(frozen=True)
class Lesson:
    """A pattern that was carried out, with the outline of its call and the pages of all ranks, in rank order."""

    pattern: Pattern
    outline: Outline
    pages: list[Page]

    @property
    def wrong(self) -> list[int]:
        """The ranks whose output is not what NumPy finds."""
        return [rank for rank, page in enumerate(self.pages) if not page.right]


@dataclass(frozen=True)
class Classroom:
    """Where lessons are given.

    Attributes:
        comm: all ranks.
        xp: the library of the arrays, NumPy or CuPy.
        algorithm: what is wanted of every collective, None to leave the choice to mpicoll.
        explain: the steps are written down.
    """

    comm: Communicator
    xp: Any = np
    algorithm: str | None = None
    explain: bool = False

    def teach(self, pattern: Pattern) -> Lesson:
        """Carry out a pattern; collective over all ranks, and all return the same lesson."""
        team = pattern.team(self.comm)
        members = [rank for rank, inside in enumerate(self.comm.allgather(team is not None)) if inside]
        page, outline = Page(False), Outline(pattern.n)
        if team is not None:
            with override(timeout=0) if self.explain else nullcontext():  # calls with a time limit are not observed
                outline = self._outline(pattern, team, members)
                page = self._carry_out(pattern, team, members, outline)
            if team is not self.comm:
                team.Free()
        outline = self.comm.bcast(outline, root=members[0])
        if not page.takes_part:
            page.had = pattern.has(self.comm.rank, self.comm.size, outline.n)
        return Lesson(pattern, outline, self.comm.allgather(page))

    def _outline(self, pattern: Pattern, team: Communicator, members: list[int]) -> Outline:
        """Return the outline of a call to come.

        Args:
            pattern: to be carried out.
            team: who makes the call.
            members: their ranks among all.
        """
        if pattern.row is None:
            return Outline(pattern.n)
        arguments = pattern.arguments(*self._arrays(pattern, members, pattern.n)[:2])
        algorithm, refusal = self.algorithm, ""
        try:
            plan = team.Get_plan(pattern.method, *arguments, algorithm=algorithm)
        except (ValueError, UnsupportedError) as error:
            if algorithm is None:
                raise
            algorithm, refusal = None, str(error)
            plan = team.Get_plan(pattern.method, *arguments)
        outline = Outline(pattern.n, plan, algorithm, refusal)
        return outline.with_filled_blocks() if self.explain and not pattern.row.idempotent else outline

    def _carry_out(self, pattern: Pattern, team: Communicator, members: list[int], outline: Outline) -> Page:
        """Make the call, and return this rank's page.

        Args:
            pattern: what is carried out.
            team: who makes the call.
            members: their ranks among all.
            outline: of the call.
        """
        x, y, must = self._arrays(pattern, members, outline.n)
        page = Page(True, on_host(x), on_host(y), must=must)
        plan, row = outline.plan, pattern.row
        watching: AbstractContextManager[None] = nullcontext()
        if self.explain and plan is not None and row is not None:
            program = stepwise_program(plan.schedule, row.shared)
            page.book = Notebook(row.name, members, team.rank, outline.piece, program)
            seen = y if plan.path == "host" else None  # elsewhere a program may work on copies
            watching = observed(Scribe(page.book, lambda: on_host(seen)))
        with watching:
            page.did = pattern.make(team, x, y, outline.algorithm)
        page.got = on_host(y)
        return page

    def _arrays(self, pattern: Pattern, members: list[int], n: int) -> tuple[Any, Any, Row | None]:
        """Return (input, output, what the output must be) of this rank; arguments as above."""
        me = members.index(self.comm.rank)
        inputs = [pattern.has(rank, self.comm.size, n) for rank in members]
        must = pattern.must(inputs)[me]
        x = None if inputs[me] is None else self.xp.asarray(inputs[me])
        if pattern.row is not None and pattern.row.shared:
            return x, self.xp.copy(x), must
        return x, None if must is None else self.xp.full(must.shape, MISSING, must.dtype), must


def on_host(array: Any) -> Row | None:
    """Return a copy of an array in host memory, None for none."""
    if array is None:
        return None
    copy: Row = array.copy() if isinstance(array, np.ndarray) else array.get()
    return copy
