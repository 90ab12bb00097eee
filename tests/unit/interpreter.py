"""A second, naive reading of what a schedule means, against which the verifier is held.

It shares no code with mpicoll: a value is the (rank, block) tokens that were combined, in operand
order; ranks take their steps one by one, and a step's messages are exchanged when both sides have
come to it.
"""

from typing import NamedTuple


class WrongError(Exception):
    """The schedules do not do what the collective promises."""


class Value(NamedTuple):
    """What was combined, in order, and whether one by one from the left."""

    tokens: tuple
    chained: bool = True

    @property
    def block(self):
        """The id of the block that the value is of."""
        (block,) = {block for _, block in self.tokens}
        return block

    @staticmethod
    def of(parts):
        """Combine values."""
        single = all(len(part.tokens) == 1 for part in parts[1:])
        return Value(tuple(token for part in parts for token in part.tokens), parts[0].chained and single)


class Found(NamedTuple):
    """What holds of all results."""

    ordered: bool
    left_fold: bool


def definition(name, size, root, blocks, rank):
    """What a rank has to get: block id -> tokens in rank order."""
    everyone, all_blocks = range(size), range(blocks)
    by_root = {
        "gather": {b: [(b, b)] for b in everyone},
        "reduce": {b: [(r, b) for r in everyone] for b in all_blocks},
    }
    if name in by_root:
        return by_root[name] if rank == root else {}
    return {
        "barrier": lambda: {b: [(r, b) for r in everyone] for b in all_blocks},
        "bcast": lambda: {b: [(root, b)] for b in all_blocks},
        "allreduce": lambda: {b: [(r, b) for r in everyone] for b in all_blocks},
        "scatter": lambda: {rank: [(root, rank)]},
        "allgather": lambda: {b: [(b, b)] for b in everyone},
        "reduce_scatter": lambda: {rank: [(r, rank) for r in everyone]},
        "alltoall": lambda: {r * size + rank: [(r, r * size + rank)] for r in everyone},
        "scan": lambda: {b: [(r, b) for r in range(rank + 1)] for b in all_blocks},
        "exscan": lambda: {b: [(r, b) for r in range(rank)] for b in all_blocks if rank},
    }[name]()


def inputs(name, size, root, blocks, rank):
    """The ids of the blocks that a rank has at first."""
    if name in ("bcast", "scatter"):
        return range(blocks) if rank == root else ()
    if name in ("gather", "allgather"):
        return (rank,)
    if name == "alltoall":
        return range(rank * size, rank * size + size)
    return range(blocks)


def interpret(name, schedules, root=0):
    """Run schedules and tell in which order results were combined; raises WrongError."""
    size, blocks = len(schedules), schedules[0].blocks
    ranks = [_Rank(r, s, name, inputs(name, size, root, blocks, r)) for r, s in enumerate(schedules)]
    posts = {}
    while not all(rank.finished for rank in ranks):
        if not any([rank.advance(posts) for rank in ranks]):
            raise WrongError("deadlock")
    if any(queue for queue in posts.values()):
        raise WrongError("a message was never matched")
    results = [value for rank in ranks for value in _results(rank, name, size, root, blocks)]
    ordered = all(list(value.tokens) == sorted(value.tokens) for value in results)
    return Found(ordered, ordered and all(value.chained for value in results))


def _results(rank, name, size, root, blocks):
    wanted = definition(name, size, root, blocks, rank.number)
    got = {cell: value for (buffer, cell), value in rank.memory.items() if buffer == "output"}
    if name == "bcast" and rank.number == root:
        wanted = {b: wanted[b] for b in got}  # the root has it already
    if set(got) != set(wanted):
        raise WrongError(f"rank {rank.number} has output blocks {sorted(got)}, not {sorted(wanted)}")
    for block, tokens in wanted.items():
        found = got[block].tokens
        if name == "barrier":  # no elements: being combined twice does no harm
            found = set(found)
        if sorted(found) != tokens:
            raise WrongError(f"rank {rank.number}: block {block} is {found}")
        yield got[block]


class _Rank:
    def __init__(self, number, schedule, name, ids):
        self.number, self.schedule = number, schedule
        self.shared = name == "bcast"
        self.sized = schedule.scratch
        buffer = "output" if self.shared else "input"
        self.memory = {(buffer, b): Value(((number, b),)) for b in ids}
        self.place, self.waits = 0, None

    @property
    def finished(self):
        return self.place == len(self.schedule.steps)

    def advance(self, posts):
        """Do what can be done; False if nothing can."""
        if self.finished:
            return False
        if self.waits is None:
            self.post(posts)
            return True
        if self.waits:
            return False
        for operation in self.schedule.steps[self.place].local:
            self.work(operation)
        self.place, self.waits = self.place + 1, None
        return True

    def post(self, posts):
        """Hand in the messages of the step, and exchange those that have both sides."""
        messages = self.schedule.steps[self.place].messages
        self.waits = list(range(len(messages)))
        sends = [m for m in messages if hasattr(m, "source")]
        written = [cell for m in messages if not hasattr(m, "source") for cell in self.cells(m.target)]
        read = {cell for m in sends for cell in self.cells(m.source)}
        if len(set(written)) < len(written) or read & set(written):
            raise WrongError(f"rank {self.number}: messages of a step share a cell")
        for index, message in enumerate(messages):
            sending = hasattr(message, "source")
            if sending:
                cells, values = message.source, [self.read(cell) for cell in self.cells(message.source)]
            else:
                cells, values = message.target, None
                self.check_writable(message.target)
            pair = (self.number, message.peer) if sending else (message.peer, self.number)
            ids = [self.size_of(cells.buffer, c) for c in cells.cells]
            mine = posts.setdefault((pair, sending), [])
            theirs = posts.setdefault((pair, not sending), [])
            post = (self, index, ids, values, [*self.cells(cells)])
            if theirs:
                _exchange(*((post, theirs.pop(0)) if sending else (theirs.pop(0), post)))
            else:
                mine.append(post)

    def work(self, operation):
        parts = operation.sources if hasattr(operation, "sources") else (operation.source,)
        self.check_writable(operation.target)
        targets = self.cells(operation.target)
        columns = [[self.read(cell) for cell in self.cells(part)] for part in parts]
        if any(len(column) != len(targets) for column in columns):
            raise WrongError(f"rank {self.number}: lengths differ")
        for target, *values in zip(targets, *columns, strict=True):
            if len({value.block for value in values}) > 1:
                raise WrongError(f"rank {self.number}: combines different blocks")
            self.store(target, Value.of(values))

    def store(self, cell, value):
        if value.block != self.size_of(*cell):
            raise WrongError(f"rank {self.number}: block {value.block} put into {cell}")
        self.memory[cell] = value

    def read(self, cell):
        if cell not in self.memory:
            raise WrongError(f"rank {self.number}: {cell} has no value")
        return self.memory[cell]

    def check_writable(self, ref):
        if ref.buffer == "input" and not self.shared:
            raise WrongError(f"rank {self.number}: writes its input")

    def cells(self, ref):
        buffer = "output" if self.shared and ref.buffer == "input" else ref.buffer
        return [(buffer, cell) for cell in ref.cells]

    def size_of(self, buffer, cell):
        if buffer == "scratch" and cell >= len(self.sized):
            raise WrongError(f"rank {self.number}: no scratch cell {cell}")
        return self.sized[cell] if buffer == "scratch" else cell


def _exchange(sent, got):
    (sender, s, ids, values, _), (receiver, r, expected, _, cells) = sent, got
    if ids != expected:
        raise WrongError(f"rank {sender.number} sends {ids}, rank {receiver.number} expects {expected}")
    for cell, value in zip(cells, values, strict=True):
        receiver.store(cell, value)
    sender.waits.remove(s)
    receiver.waits.remove(r)
