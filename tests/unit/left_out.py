"""Schedules in which a message is left out: a fault that a proof must find."""

import dataclasses


def without(schedules, rank, number):
    """Return schedules in which a rank leaves out one of its messages."""
    steps = list(schedules[rank].steps)
    at, gone = [(k, message) for k, one in enumerate(steps) for message in one.messages][number]
    steps[at] = dataclasses.replace(steps[at], messages=tuple(m for m in steps[at].messages if m is not gone))
    changed = dataclasses.replace(schedules[rank], steps=tuple(steps))
    return [*schedules[:rank], changed, *schedules[rank + 1 :]]
