"""CUDA source of the mapped path: a lowered schedule put into `path.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np

from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.paths.mapped.lowering import (
    Await,
    Cell,
    Combine,
    Credit,
    Get,
    Instruction,
    Load,
    Lowered,
    Put,
    Store,
    Total,
)

#: bytes that a lane moves at once, and bytes of a part of a tile in an inbox
UNIT, PART = 16, 512
#: blocks of a grid at most; two fit onto a multiprocessor, so that the kernels of two communicators
#: always fit beside each other
BLOCKS, BLOCKS_PER_SM = 128, 2


@dataclass(frozen=True)
class Protocol:
    """The way of a tile in an inbox, see `path.cu`.

    Attributes:
        name: "lines" or "slices".
        parts: how often a lane takes part in a tile.
        threads: of a block at most.
    """

    name: str
    parts: int
    threads: int

    @property
    def tile(self) -> int:
        """Bytes of a block that a tile holds."""
        return self.parts * UNIT * (28 if self.name == "lines" else 32)

    @property
    def place(self) -> int:
        """Bytes of a tile in an inbox."""
        return self.parts * PART

    @property
    def slots(self) -> int:
        """Warps that work on a call at the same time, and so the slots of a wave, at most."""
        return self.threads // 32 * BLOCKS

    def block(self, warps: int) -> int:
        """Return the threads of a block in which so many warps have a slot.

        One more warp has none, if it fits.  With 1 warp a block has 64 threads, with 16 warps of lines 512.
        """
        return min((warps + 1) * 32, self.threads)


LINES, SLICES = Protocol("lines", 1, 512), Protocol("slices", 8, 384)
#: slots of a wave at most, whatever the protocol
SLOTS = max(LINES.slots, SLICES.slots)


def kernel_source(
    lowered: Lowered,
    protocol: Protocol,
    slots: int,
    rank: int,
    ranks: int,
    op: Operator | None,
    dtype: np.dtype,
    items: bool = False,
) -> str:
    """Return the source of one rank's kernel `collective`.

    Args:
        lowered: the rank's program.
        protocol: how tiles travel.
        slots: slots of a wave; the fewer there are, the more registers a thread has.
        rank: this rank.
        ranks: number of ranks.
        op: the operator, None where nothing is combined.
        dtype: of the elements.
        items: of many calls, whose cells are in a table.
    """
    memory = memory_cells(lowered)
    numbers = {
        "LINES": int(protocol.name == "lines"),
        "PARTS": protocol.parts,
        "RANK": rank,
        "RANKS": ranks,
        "MEMORY": max(len(memory), 1),
        "CELLS": max(len(lowered.cells), 1),
        "SLOTS": SLOTS,
        "THREADS": protocol.block(-(-slots // BLOCKS)),
        "BLOCKS_PER_SM": BLOCKS_PER_SM,
    }
    head = [f"#define {name} {value}" for name, value in numbers.items()]
    if items:
        head.append("#define ITEMS")
    if op is not None:
        head += [f"#define EXPRESSION {kernels.expression(op, dtype)}", kernels.prelude(dtype)]
    return "\n".join(head) + _template().replace("BODY", "\n  ".join(_Body(lowered).lines()))


def memory_cells(lowered: Lowered) -> list[Cell]:
    """Return the cells in memory that a program touches."""
    touched = [one.cell for one in lowered.instructions if isinstance(one, Load | Store)]
    return list(dict.fromkeys(touched))


@lru_cache(maxsize=1)
def _template() -> str:
    return cuda_text("common") + "\n" + cuda_text("path")


def cuda_text(name: str) -> str:
    """Return the text of a file of CUDA code beside this one."""
    return (files("mpicoll.runtime.paths.mapped") / f"{name}.cu").read_text(encoding="utf-8")


class _Body:
    """Writes a program's instructions as statements."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.cells = {cell: number for number, cell in enumerate(lowered.cells)}
        self.memory = {cell: number for number, cell in enumerate(memory_cells(lowered))}
        self.put: list[Put] = []
        self.begun: set[int] = set()

    def lines(self) -> list[str]:
        """Return the statements."""
        written = _declared("Unit", "v", self.lowered.values) + _declared("Sum", "s", self.lowered.sums)
        for one in self.lowered.instructions:
            if not isinstance(one, Put | Await | Load):
                written += self._sealed()
            written += self._statement(one)
        return written + self._sealed()

    def _sealed(self) -> list[str]:
        """Seal what was put since the last time, all of it at once."""
        if not self.put:
            return []
        flags = [f"flag(a.flag_out[{m.peer}], {m.place}, {self._bytes(m.cell)}, a, p);" for m in self.put]
        self.put = []
        return ["seal(p);", *flags]

    def _statement(self, one: Instruction) -> list[str]:
        match one:
            case Load(value, cell):
                return [f"fetch(c.memory[{self.memory[cell]}], v{value}, {self._bytes(cell)}, p);"]
            case Store(cell, value):
                return [f"keep(c.memory[{self.memory[cell]}], v{value}, {self._bytes(cell)}, p);"]
            case Put(value, peer, place, cell):
                self.put.append(one)
                return [f"put(a.outbox[{peer}], {place}, v{value}, {self._bytes(cell)}, a, p);"]
            case Combine(total, value):
                first = "false" if total in self.begun else "true"
                self.begun.add(total)
                return [f"add<{first}>(s{total}, v{value});"]
            case Total(value, total):
                return [f"finish(v{value}, s{total});"]
            case _:
                return self._waiting(one)

    def _waiting(self, one: Instruction) -> list[str]:
        match one:
            case Get(value, peer, place, cell):
                boxes = f"a.inbox[{peer}], a.flag_in[{peer}], {place}"
                return [f"if (!get({boxes}, v{value}, {self._bytes(cell)}, a, p, {peer})) return false;"]
            case Await(peer, cells):
                goes_on = " || ".join(f"reaches(p, 0, {self._bytes(cell)})" for cell in cells)
                return [f"if (({goes_on}) && !await_credit(a.credit_in[{peer}], a, p, {peer})) return false;"]
            case Credit(peer):
                return [f"give_credit(a.credit_out[{peer}], a, p);"]
        raise AssertionError(one)

    def _bytes(self, cell: Cell) -> str:
        return f"c.bytes[{self.cells[cell]}]"


def _declared(kind: str, letter: str, number: int) -> list[str]:
    return [f"{kind} {', '.join(f'{letter}{k}' for k in range(number))};"] if number else []
