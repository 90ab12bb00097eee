"""The fingerprint of a machine: what a tuning table was measured on, and whether that is this machine.

    machine:mpi=MPICH:cpu=Intel Xeon Processor:cores=2:hosts=1:gpu=none

Each fact is a pattern as of file names (`gpu=*H200*`); one that a table leaves out may be anything.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

#: where the NVIDIA driver tells the names of its GPUs
_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class MachineFacts:
    """Facts of a machine on which times depend, or patterns of them; "" for anything.

    Attributes:
        mpi: name of the MPI library, without its version.
        cpu: model of the processor.
        cores: of a host, those that no rank may use included.
        hosts: number of hosts of a communicator.
        gpu: model of a host's GPUs, "none" for none.
    """

    mpi: str = ""
    cpu: str = ""
    cores: str = ""
    hosts: str = ""
    gpu: str = ""

    def differs(self, here: MachineFacts) -> str:
        """Return in what a machine is another one than this pattern, "" if in nothing.

        Args:
            here: the machine.
        """
        for name, pattern in asdict(self).items():
            found = getattr(here, name)
            if pattern and not fnmatchcase(found.lower(), pattern.lower()):
                return f"{name} {pattern}, here {found or 'unknown'}"
        return ""

    def __str__(self) -> str:
        return ":".join(f"{name}={value}" for name, value in asdict(self).items() if value)


#: names of the facts
FACTS = tuple(field.name for field in fields(MachineFacts))


def of_ranks(all_ranks: Iterable[tuple[str, MachineFacts]]) -> MachineFacts:
    """Return the fingerprint of a communicator's machine; a fact on which hosts differ is "mixed".

    Args:
        all_ranks: each rank's host, and what it found there.
    """
    told = list(all_ranks)
    hosts = len({host for host, _ in told})
    return replace(common([one for _, one in told], "mixed"), hosts=str(hosts))


def common(machines: Sequence[MachineFacts], other: str = "") -> MachineFacts:
    """Return the facts that machines share.

    Args:
        machines: one or more.
        other: in the place of those that they do not share; "" makes a pattern of all of them.
    """
    values = {name: {getattr(one, name) for one in machines} for name in FACTS}
    return MachineFacts(**{name: found.pop() if len(found) == 1 else other for name, found in values.items()})


@cache
def local(mpi: str = "") -> MachineFacts:
    """Return the fingerprint of this host alone.

    Args:
        mpi: name of the MPI library, "" while it is not known.
    """
    return MachineFacts(mpi, cpu(), str(os.cpu_count() or 1), "1", _gpu())


def cpu() -> str:
    """Return the processor's model, as a table has it."""
    return _plain(cpu_name())


def cpu_name() -> str:
    """Return the processor's model."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpu() -> str:
    """Return the model of the GPUs, as the driver tells it without being started."""
    names = set()
    for file in sorted(_GPUS.glob("*/information")):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        names |= {_plain(line.partition(":")[2]) for line in lines if line.startswith("Model:")}
    return names.pop() if len(names) == 1 else "mixed" if names else "none"


def _plain(name: str) -> str:
    """Return a name without the signs that part facts in a table or mean something in a pattern, each space single."""
    return " ".join("".join(" " if sign in ":;#*?[]=" else sign for sign in name).split())
