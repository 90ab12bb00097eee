"""Recorded runs: the newest file of each kind and machine in bench/results, and what it says of itself.

`2026-11-28-baselines-2xH200.json` is of the kind `baselines`, on 2 H200.  A newer file of the same kind and machine
takes its place.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mpicoll.bench.output.results import read

Record = dict[str, Any]

RESULTS = Path(__file__).parents[2] / "bench" / "results"
NAME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)-(?P<kind>.+?)-(?P<place>(?:\d+-ranks-(?:on-)?)?(?:\d+x[A-Za-z0-9]+|\d+-cores.*))"
)
#: groups of machines, in the order of the page
GPUS, SHARED, HOSTS = "GPUs with NVLink", "One GPU shared by ranks", "Host memory"
#: what files do not say themselves: commands by kind
COMMANDS = {
    "algorithms": "mpirun -n {ranks} python bench/sweep_algorithms.py --once --paths mapped,direct",
    "back-to-back": "NCCL_NVLS_ENABLE=0 mpirun -n {ranks} python bench/back_to_back.py",
    "groups": "mpirun -n {ranks} python bench/groups.py",
}
NOTES = {"algorithms": "made by a program of the day, whose ways are now in this command"}
#: options that say what is measured; the others say how much of it
TELLING = ("algorithm", "async", "baseline", "breakdown", "only", "overhead", "path", "paths", "regret")
#: and versions up to a day, by the name of the GPU, "" for none
UNTIL = "2026-11-29"
VERSIONS = {"H200": "Open MPI 5.0.11, UCX 1.22.0, CuPy 14.2.0, NCCL 2.28.3 (NVLS off)", "": "MPICH, Python 3.11"}


@dataclass(frozen=True)
class Run:
    """One file.

    Attributes:
        path: of the file.
        kind: of the measurement, as in the file's name.
        place: the machine, as in the file's name.
    """

    path: Path
    kind: str
    place: str

    @cached_property
    def content(self) -> Record:
        """The header with `rows`; a file that has no header is one row, a text is `text`."""
        if self.path.suffix != ".json":
            return {"text": self.path.read_text(encoding="utf-8"), "rows": []}
        try:
            return read(self.path)
        except ValueError:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) and "rows" in found else {"rows": [found]}

    @property
    def rows(self) -> list[Record]:
        """Rows, those of the benchmark in schema 2."""
        return self.content["rows"]

    @property
    def facts(self) -> Record:
        """The environment."""
        return self.content.get("facts", {})

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def date(self) -> str:
        """The day of the run."""
        return self.facts.get("date", "")[:10] or self.content.get("date", "") or self.path.name[:10]

    @cached_property
    def ranks(self) -> list[int]:
        """Numbers of ranks that were measured, ascending."""
        found = {row["ranks"] for row in self.rows if isinstance(row.get("ranks"), int)}
        whole = self.content.get("ranks") or re.search(r"(\d+)(?:-ranks|x)", self.place)
        return sorted(found) or ([whole] if isinstance(whole, int) else [int(whole[1])] if whole else [])

    @cached_property
    def gpus(self) -> tuple[int, str]:
        """(number of GPUs, their name); (0, "") where arrays were in host memory."""
        if self.facts.get("gpus"):
            # "GPU 0 NVIDIA H100 80GB HBM3 at 0000:00:06.0"
            names = Counter(re.sub(r"^GPU \d+ (NVIDIA )?| \d+GB.*| at .*", "", one) for one in self.facts["gpus"])
            return len(set(self.facts["gpus"])), " and ".join(names)
        found = re.search(r"(\d+)x(\w+)", self.place)
        return (int(found[1]), found[2]) if found and not self.facts else (0, "")

    @property
    def group(self) -> str:
        """The group of machines."""
        if not self.gpus[0]:
            return HOSTS
        return SHARED if self.ranks and self.gpus[0] < max(self.ranks) else GPUS

    @property
    def machine(self) -> str:
        """The machine in words."""
        number, name = self.gpus
        if number:
            shared = f" shared by {listed(self.ranks)} ranks" if self.group == SHARED else ""
            return f"{number} {name}{shared}"
        if self.facts:
            cores, hosts = sum(self.facts["cores"].values()), len(self.facts["cores"])
            return f"{cores} cores ({self.facts['cpu']})" + (f" of {hosts} hosts" if hosts > 1 else "")
        said = self.content.get("machine", f"{self.place.partition('-')[0]} cores")  # "2 cores, AMD EPYC"
        return re.sub(r", (.*)", r" (\1)", said)

    @property
    def mpi(self) -> str:
        """The MPI, such as "Open MPI 5.0.11"; "" where it is not known."""
        return self.facts.get("mpi", "").replace(" Version: ", " ").replace(" v", " ")

    @property
    def where(self) -> str:
        """The beginning of a sentence about the run."""
        if self.group != HOSTS:
            return f"On {self.machine},"
        ranks = f" with {listed(self.ranks)} ranks" if self.ranks else ""
        return f"{', '.join(filter(None, (f'On {self.machine}{ranks}', self.mpi)))},"

    @property
    def title(self) -> str:
        """The machine in a title, with the MPI where it is the host's."""
        return ", ".join(filter(None, (self.machine, self.mpi if self.group == HOSTS else "")))

    @property
    def command(self) -> str:
        """The command of the run, without its file."""
        known = COMMANDS.get(self.kind, "").format(ranks=max(self.ranks, default=1))
        said = self.content.get("command") or self.facts.get("command") or known
        said = re.sub(r" --(json|csv) \S+", "", said)
        if said.startswith("bench/"):
            said = f"python {said}"
        if said.startswith("python") and self.ranks:
            said = f"mpirun -n {max(self.ranks)} {said}"
        variables = " ".join(f"{name}={value}" for name, value in self.facts.get("variables", {}).items())
        return f"{variables} {said}".strip()

    @property
    def program(self) -> str:
        """The program of the command, with the options that say what is measured."""
        found = re.search(r"(?:python|-m) (mpicoll\.bench|bench/\w+\.py)(.*)", self.command)
        options = re.findall(rf" --(?:{'|'.join(TELLING)})(?: [^-]\S*)?", found[2]) if found else []
        return (found[1] if found else "") + "".join(options)

    @property
    def software(self) -> str:
        """Versions of what was measured, and with what."""
        if not self.facts:
            if "python" in self.content:
                return f"mpicoll {self.content['mpicoll']}, Python {self.content['python']}"
            known = "text" not in self.content and self.content.get("schema", 1) == 1 and self.date <= UNTIL
            return self.content.get("software") or (VERSIONS.get(self.gpus[1], "") if known else "")
        commit = f" at {self.facts['commit'][:12]}" if self.facts["commit"] else ""
        parts = [f"mpicoll {self.facts['mpicoll']}{commit}", self.mpi, f"mpi4py {self.facts['mpi4py']}"]
        parts += [f"{name} {version}" for name, version in self.facts.get("baselines", {}).items() if version]
        return ", ".join(parts)

    @property
    def about(self) -> str:
        """With what, where, when and by which command it was measured."""
        ranks = f"{listed(self.ranks)} ranks" if self.ranks and self.group != SHARED else ""
        parts = (", ".join(filter(None, (self.machine, ranks))), self.software, self.date)
        note = f", {NOTES[self.kind]}" if self.kind in NOTES and not self.content.get("command") else ""
        command = f"`{self.command}`{note}" if self.command else ""
        link = f"[{self.path.name}](../bench/results/{self.path.name})"
        return "; ".join(filter(None, (*parts, command, link))) + "."


def listed(numbers: list[int]) -> str:
    """Return numbers as "2", "2 and 4", "2, 3 and 4"."""
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def run_of(path: Path) -> Run:
    """Return the run of a file."""
    found = NAME.fullmatch(path.stem)
    return Run(path, found["kind"], found["place"]) if found else Run(path, re.sub(r"^[\d-]{11}", "", path.stem), "")


def newest(folder: Path = RESULTS) -> list[Run]:
    """Return the newest run of each kind, machine and ending in a folder, by kind and machine."""
    found = {(run.kind, run.place, run.path.suffix): run for run in map(run_of, sorted(folder.iterdir()))}
    return [found[key] for key in sorted(found)]
