"""Plans: a call's facts, the choice made for them, and the schedule, cached and self-explaining.

**Message size**, one definition for rules, models, benchmark and reports: the bytes of the
full vector.  That is the vector itself for bcast, reduce, allreduce, scan and exscan; all
ranks' blocks together for gather, scatter, allgather and reduce_scatter; and all that one
rank sends, its own block included, for alltoall.  For Gatherv, Scatterv and Alltoallv it is
unknown, because not all ranks know it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.dispatch.explain import Explanation, Verdict, changes, explain, plural, who
from mpicoll.dispatch.explain_text import call_text, head, lines
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.limits import limited
from mpicoll.dispatch.paths import PATHS, PathRow, serving, wanted
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.rules import NATIVE, Choice
from mpicoll.dispatch.select import Candidate, candidates
from mpicoll.dispatch.tuning import here
from mpicoll.schedule.collectives import collective
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.topology import FLAT, Topology, forced
from mpicoll.settings import settings

#: methods of which not all ranks know all counts, and so none the message size
COUNTS_UNKNOWN = ("gatherv", "scatterv", "alltoallv")
#: why MPI's own collective does not serve there
ON_A_DEVICE = "the arrays are on a device"
#: why what runs beside a native plan is not chosen
NOT_BLOCKING = "for calls that do not block"


@dataclass(frozen=True, eq=False)
class Plan:
    """A call's choice with its schedule, and the reasons; print it.

    An allreduce of 4 KiB on 4 ranks, on the host: "one_shot, 1 segment, path host, 1 step".

    Attributes:
        key: what was asked.
        algorithm: the chosen algorithm's name.
        segments: number of segments of every block.
        lanes: segments in flight at the same time.
        path: how the arrays travel, a name of `dispatch/paths.py`.
        reason: who chose.
        schedule: this rank's schedule.
        unoffered: each path that the call could not take, and why.
    """

    key: PlanKey
    algorithm: str
    segments: int
    lanes: int
    path: str
    reason: str
    schedule: Schedule = field(repr=False)
    unoffered: tuple[tuple[str, str], ...] = ()

    @property
    def choice(self) -> Choice:
        """The choice that runs, such as ring/8@host."""
        return Choice(self.algorithm, self.segments, self.path)

    @property
    def line(self) -> str:
        """The plan in a line: the call, the choice, who chose."""
        return f"{call_text(self.key.facts)}: {self.choice}, {self.reason}"

    def of(self, form: str) -> Plan:
        """Return what runs in a form of the call: "blocking", "nonblocking" or "persistent"."""
        return self

    def candidates(self) -> list[Candidate]:
        """Return every candidate with its predicted time, or why it cannot serve."""
        return candidates(self.key.asked, self.key.tuning)

    def explanation(self) -> Explanation:
        """Return what else could run, why it does not, and what decides at other message sizes."""
        return explain(self.key, self.unoffered)

    def words(self) -> str:
        """Return what runs, in words."""
        steps = plural(len(self.schedule.steps), "step")
        card = registry.get(self.key.facts.collective, self.algorithm)
        doubtful = "" if card.verified else ", which is not verified"
        return f"{self.algorithm}, {plural(self.segments, 'segment')}, path {self.path}, {steps}{doubtful}"

    def __str__(self) -> str:
        return "\n".join([head(self.key), f"  {self.words()}", *lines(self.explanation(), self.key.facts.size)])


@dataclass(frozen=True, eq=False)
class NativePlan(Plan):
    """A plan by which blocking calls are MPI's own collective.

    Calls that do not block are made by mpicoll's algorithms all the same: they advance together, in any order.

    Attributes:
        beside: the plan of those; the schedule and the path are its.
    """

    beside: Plan | None = None

    @property
    def choice(self) -> Choice:
        """The choice that runs."""
        return Choice(NATIVE)

    def of(self, form: str) -> Plan:
        """Return this plan for a blocking call, else the one beside it."""
        assert self.beside is not None
        return self if form == "blocking" else self.beside

    def explanation(self) -> Explanation:
        """Return what runs where the call does not block, and what decides at other message sizes."""
        assert self.beside is not None
        other = self.beside.explanation()
        rest = (replace(one, chosen=False, why=_beside(one, self.reason)) for one in other.verdicts)
        verdicts = (Verdict(self.choice, chosen=True, why="chosen"), *rest)
        return replace(other, reason=self.reason, verdicts=verdicts, changes=changes(self.key))

    def words(self) -> str:
        """Return what runs, in words."""
        return "native: MPI's own collective; calls that do not block: " + (self.beside.words() if self.beside else "")


def _beside(one: Verdict, reason: str) -> str:
    """Return why a candidate does not run in blocking calls, where MPI's own collective does."""
    if one.predicted is None:
        return one.why
    return NOT_BLOCKING if one.chosen else f"ruled out by {who(reason)}"


def make_plan(key: PlanKey) -> Plan:
    """Return the plan for a key; the same object for the same key, until the registry changes."""
    return _planned(key, registry.revision())


@lru_cache(maxsize=4096)
def _planned(key: PlanKey, revision: int) -> Plan:
    asked, reason = key.selected()
    if asked.algorithm == NATIVE:
        beside = _planned(key.beside(), revision)
        return NativePlan(key, NATIVE, 1, 1, beside.path, reason, beside.schedule, beside=beside)
    choice, lanes = limited(asked, key.facts, key.scratch_limit)
    card = registry.get(key.facts.collective, choice.algorithm)
    schedule = schedule_of(card, key.rank, key.facts.size, key.root, card.seen(key.facts.topology))
    return Plan(key, choice.algorithm, choice.segments, lanes, choice.path, reason, schedule)


@lru_cache(maxsize=256)
def schedule_of(card: Algorithm, rank: int, size: int, root: int, topology: Topology = FLAT) -> Schedule:
    """Return a rank's schedule, which calls of all message sizes share.

    Args:
        card: the algorithm.
        rank: whose schedule it is.
        size: number of ranks.
        root: the root, 0 where there is none.
        topology: which ranks are on one host, as the algorithm sees it.
    """
    return card.schedule(rank, size, root, topology)


def plan(
    name: str,
    *,
    size: int,
    nbytes: int | None,
    rank: int = 0,
    root: int = 0,
    commutative: bool = True,
    device: str = "cpu",
    algorithm: str | None = None,
    gpus: int | None = None,
) -> Plan:
    """Return the plan of a call; needs neither MPI nor arrays.

    Args:
        name: the collective, in any spelling of its MPI method.
        size: number of ranks.
        nbytes: message size in bytes (see this module), None where not all ranks know it.
        rank: whose schedule to show.
        root: the root, where there is one.
        commutative: whether the operator is.
        device: "cpu" or "cuda".
        algorithm: what `algorithm=` of the call would be.
        gpus: number of GPUs of all ranks; None for one each.

    Raises:
        ValueError: unknown name, rank or root out of range.
        UnsupportedError: the forced algorithm cannot serve.
    """
    row = collective(name)
    for what, value in (("rank", rank), ("root", root)):
        if not 0 <= value < size:
            raise ValueError(f"{row.name}: {what} {value} is out of range for {size} ranks")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device {device!r} is neither cpu nor cuda")
    counts_known = name.lower() not in COUNTS_UNKNOWN
    memory = "host" if device == "cpu" else "device"
    pinned = settings.reproducible if row.reducing else ""
    topology = forced(settings.topology, size)
    able = tuple(name for name in serving(memory) if _reaches(PATHS[name], topology))
    paths = tuple(name for name in able if wanted() in (None, name)) or able
    call = row.name, size, nbytes, memory, commutative, counts_known, paths, settings.segment_bytes, pinned
    facts = Facts(*call, topology=topology)
    if memory == "device":
        facts = replace(facts, gpus=size if gpus is None else gpus, not_native=ON_A_DEVICE)
    asked = algorithm or "", "", settings.algorithms
    return make_plan(PlanKey(facts, rank, root, *asked, here(topology.hosts), settings.scratch_limit, settings.native))


def _reaches(row: PathRow, topology: Topology) -> bool:
    """Tell whether a path leads to all ranks: mapped memory to those of one host, others to several or to both."""
    return not row.one_host if topology.host_of else not row.hosts_only
