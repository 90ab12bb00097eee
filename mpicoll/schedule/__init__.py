"""Schedules: blocks, verbs, steps, the table of collectives, and the compiled program.

Pure: the standard library only.
"""

from mpicoll.schedule.collectives import COLLECTIVES, Collective, collective
from mpicoll.schedule.ir import Copy, Recv, Reduce, Ref, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.partition import offsets, split
from mpicoll.schedule.planner import compile_program, stepwise_program
from mpicoll.schedule.program import Program

__all__ = [
    "COLLECTIVES",
    "Collective",
    "Copy",
    "Program",
    "Recv",
    "Reduce",
    "Ref",
    "Schedule",
    "Scratch",
    "Send",
    "Step",
    "collective",
    "compile_program",
    "inp",
    "offsets",
    "out",
    "split",
    "step",
    "stepwise_program",
]
