"""Programs of an algorithm, replayed one instruction after the other."""

from mpicoll.analysis.machine import run
from mpicoll.analysis.values import Values
from mpicoll.analysis.verify import initial_memory
from mpicoll.schedule import (
    Reduce,
    Send,
    compile_program,
)
from mpicoll.schedule.pack import pack


def rooted(card, size):
    return card.schedules(size, size // 2 if card.row.rooted else 0)


def programs_of(card, size, segments, lanes, aliased):
    """Programs of all ranks, as they run: blocks cut into segments do not lie next to each other."""
    schedules = rooted(card, size)
    if segments > 1:
        schedules = [pack(s, lambda ref: len(ref) == 1) for s in schedules]
    return [compile_program(s, segments, lanes, aliased or card.row.shared) for s in schedules]


def simulate(card, programs):
    """Run all ranks' programs on symbols; raises ScheduleError."""
    size, values = len(programs), Values(card.row.idempotent)
    root = size // 2 if card.row.rooted else 0
    memories = [initial_memory(card.row, p, r, size, root, values) for r, p in enumerate(programs)]
    return run(programs, memories, values)


class Replay:
    """Follows one rank's instructions and fails where two things in flight touch the same memory.

    It knows nothing of other ranks or values, and shares no code with planner or verifier.
    """

    def __init__(self, program):
        self.program = program
        self.pending, self.unsynced = {}, {}
        self.started, self.launched = [], 0
        for self.place, instruction in enumerate(program.instructions):
            getattr(self, type(instruction).__name__.lower())(instruction)
        assert not self.pending, "the program ends before its messages"
        assert sorted(self.started) == list(range(len(program.transfers)))
        assert self.launched == len(program.works)

    def start(self, instruction):
        for t in instruction.transfers:
            transfer = self.program.transfers[t]
            cells = self.cells(transfer.ref, transfer.segment)
            access = (cells, set()) if transfer.sends else (set(), cells)
            self.check(access, self.pending)
            self.check(access, self.unsynced)
            self.pending[t] = access
            self.started.append(t)

    def wait(self, instruction):
        for t in instruction.transfers:
            del self.pending[t]  # a KeyError: not started, or waited for twice

    def launch(self, instruction):
        assert instruction.work == self.launched
        self.launched += 1
        work = self.program.works[instruction.work]
        operation = work.operation
        sources = operation.sources if isinstance(operation, Reduce) else (operation.source,)
        reads = set().union(*(self.cells(ref, work.segment) for ref in sources))
        access = reads, self.cells(operation.target, work.segment)
        self.check(access, self.pending)
        self.unsynced[instruction.work] = access

    def sync(self, instruction):
        assert instruction.work in self.unsynced, "waits for nothing"
        self.unsynced = {w: access for w, access in self.unsynced.items() if w > instruction.work}

    def cells(self, ref, segment):
        buffer = "output" if self.program.aliased and ref.buffer == "input" else ref.buffer
        slot = segment % self.program.lanes if buffer == "scratch" else segment
        return {(buffer, slot, cell) for cell in ref.cells}

    def check(self, access, others):
        reads, writes = access
        for number, (read, written) in others.items():
            shared = writes & (read | written) or reads & written
            assert not shared, f"instruction {self.place}: {shared} with {number} of {self.program}"


def cells(message):
    return message.source if isinstance(message, Send) else message.target
