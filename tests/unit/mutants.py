"""Small mistakes, made in schedules that are right: (kind, schedules with the mistake)."""

from dataclasses import replace

from mpicoll.schedule import Reduce, Ref, Send

#: mistakes that are never harmless, for no algorithm
FATAL = {
    "message dropped",
    "message doubled",
    "message redirected",
    "message shortened",
    "cells reversed",
    "cell sent shifted",
    "cell received shifted",
    "source shifted",
    "target shifted",
    "work dropped",
    "step dropped",
}


def mutants(schedules):
    """Return every mutant of the schedules of all ranks."""
    found = []
    for rank, schedule in enumerate(schedules):
        for kind, steps in _of_steps(schedule, len(schedules)):
            changed = replace(schedule, steps=steps)
            if changed != schedule:
                found.append((kind, [*schedules[:rank], changed, *schedules[rank + 1 :]]))
    return found


def swapped_operands(schedules):
    """Return every mutant that has two neighbouring operands of a reduction swapped, and its rank."""
    found = []
    for rank, schedule in enumerate(schedules):
        for i, one in enumerate(schedule.steps):
            for j, work in enumerate(one.local):
                for k in range(len(work.sources) - 1 if isinstance(work, Reduce) else 0):
                    changed = replace(work, sources=_swap(work.sources, k))
                    steps = _put(schedule.steps, i, replace(one, local=_put(one.local, j, changed)))
                    changed = replace(schedule, steps=steps)
                    found.append((rank, [*schedules[:rank], changed, *schedules[rank + 1 :]]))
    return found


def _of_steps(schedule, size):
    steps = schedule.steps
    for i, one in enumerate(steps):
        yield "step dropped", _put(steps, i)
        yield "step doubled", _put(steps, i, one, one)
        if i + 1 < len(steps):
            yield "steps swapped", _swap(steps, i)
        for kind, messages in _of_messages(one.messages, schedule, size):
            yield kind, _put(steps, i, replace(one, messages=messages))
        for kind, local in _of_work(one.local, schedule):
            yield kind, _put(steps, i, replace(one, local=local))


def _of_messages(messages, schedule, size):
    for j, message in enumerate(messages):
        yield "message dropped", _put(messages, j)
        yield "message doubled", _put(messages, j, message, message)
        if j + 1 < len(messages):
            yield "messages swapped", _swap(messages, j)
        for peer in range(-1, size + 1):
            if peer != message.peer:
                yield "message redirected", _put(messages, j, replace(message, peer=peer))
        field = "source" if isinstance(message, Send) else "target"
        ref = getattr(message, field)
        for kind, changed in _of_cells(ref, schedule):
            kind = kind.format("sent" if field == "source" else "received")
            yield kind, _put(messages, j, replace(message, **{field: changed}))


def _of_cells(ref, schedule):
    for changed in _shifted(ref, schedule):
        yield "cell {} shifted", changed
    if len(ref) > 1:
        yield "message shortened", ref[1:]
        yield "cells reversed", ref[::-1]
    for buffer in ("input", "output", "scratch"):
        declared = buffer != "scratch" or max(ref.cells, default=0) < len(schedule.scratch)
        if declared and buffer != ref.buffer:
            yield "buffer exchanged", Ref(buffer, ref.cells)


def _of_work(local, schedule):
    for j, work in enumerate(local):
        yield "work dropped", _put(local, j)
        yield "work doubled", _put(local, j, work, work)
        for changed in _shifted(work.target, schedule):
            yield "target shifted", _put(local, j, replace(work, target=changed))
        if isinstance(work, Reduce):
            for k, source in enumerate(work.sources):
                if len(work.sources) > 1:
                    yield "operand dropped", _put(local, j, replace(work, sources=_put(work.sources, k)))
                doubled = _put(work.sources, k, source, source)
                yield "operand doubled", _put(local, j, replace(work, sources=doubled))
        else:
            for changed in _shifted(work.source, schedule):
                yield "source shifted", _put(local, j, replace(work, source=changed))


def _shifted(ref, schedule):
    """One cell becomes the next one of its buffer."""
    cells = len(schedule.scratch) if ref.buffer == "scratch" else schedule.blocks
    for k, cell in enumerate(ref.cells):
        if cells > 1:
            yield Ref(ref.buffer, _put(ref.cells, k, (cell + 1) % cells))


def _put(items, index, *new):
    return (*items[:index], *new, *items[index + 1 :])


def _swap(items, index):
    return items[:index] + items[index : index + 2][::-1] + items[index + 2 :]
