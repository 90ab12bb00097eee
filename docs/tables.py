"""Tables of the tutorial that are made from the code, and from runs in bench/results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

from mpicoll.algorithms import registry
from mpicoll.bench.output.results import read
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.predict import waves
from mpicoll.pictures.units import size_text
from mpicoll.schedule.collectives import COLLECTIVES, Collective

RESULTS = Path(__file__).parent.parent / "bench" / "results"
#: every algorithm timed on 4 H200; and the packaged choices beside NCCL, the same machine
SWEEP, CHOICES = "2026-11-28-algorithms-4xH200.json", "2026-11-28-baselines-4xH200.json"
RANKS = 4
MODEL = PATHS["mapped"].model
#: sizes of messages in tables
SIZES = [64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30]


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of Markdown."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def before_after(name: str) -> str:
    """Return the blocks of a collective's ranks before and after, from the row that the verifier reads.

    A letter is a rank's input, a number a block of it: `b2` is block 2 of rank 1, `Σ2` block 2 of all ranks' sum.
    """
    row = COLLECTIVES[name]
    rows = ([f"rank {r}", _before(row, r), _after(row, r)] for r in range(RANKS))
    return markdown(["", "before", "after"], rows)


def _before(row: Collective, rank: int) -> str:
    ids = list(row.before(rank, RANKS, 0, RANKS))
    return " ".join(_block(row, b, [rank]) for b in ids) or "·"


def _after(row: Collective, rank: int) -> str:
    return " ".join(_block(row, b, list(ranks)) for b, ranks in row.after(rank, RANKS, 0, RANKS).items()) or "·"


def _block(row: Collective, block: int, ranks: list[int]) -> str:
    """Return a block's name: whose input it is made of, and its place in it."""
    if row.name in ("gather", "allgather"):
        return "abcd"[block]
    place = block % RANKS
    whole = row.reducing and len(ranks) == RANKS
    return f"Σ{place}" if whole else "+".join(f"{'abcd'[r]}{place}" for r in ranks)


@cache
def sweep() -> dict[tuple[str, int], dict[str, float]]:
    """Return the microseconds of each algorithm and path, by collective and bytes; each call synchronised."""
    rows = read(RESULTS / SWEEP)["rows"]
    return {(r["collective"], r["nbytes"]): {name: t[0] for name, t in r["ours"].items()} for r in rows}


@cache
def choices() -> dict[tuple[str, int], dict[str, float]]:
    """Return the microseconds of mpicoll's packaged choices and of NCCL ("ours", "nccl"), by collective and bytes."""
    rows = read(RESULTS / CHOICES)["rows"]
    both = ((r, r["times"]["mpicoll"], r["times"]["nccl"]) for r in rows)
    return {(r["collective"], r["bytes"]): {"ours": ours["median"], "nccl": nccl["median"]} for r, ours, nccl in both}


def predicted(collective: str, algorithm: str, nbytes: int) -> float:
    """Return the cost model's microseconds on the path mapped."""
    card = registry.get(collective, algorithm)
    pieces = waves(card, Facts(collective, RANKS, nbytes, "device"), "mapped")
    return 1e6 * MODEL.seconds(card.cost, RANKS, nbytes, pieces)


def model(collective: str, algorithms: Iterable[str]) -> str:
    """Return predicted and measured microseconds of some algorithms on the path mapped."""
    rows = []
    for name in algorithms:
        cells = []
        for nbytes in SIZES:
            took = sweep()[collective, nbytes][f"{name}@mapped"]
            cells.append(f"{predicted(collective, name, nbytes):,.0f} / {took:,.0f}")
        rows.append([f"`{name}`", f"`{registry.get(collective, name).cost}`", *cells])
    return markdown(["algorithm", "cost", *map(size_text, SIZES)], rows)


def three_ways() -> str:
    """Return the measured times of an allreduce, and of the two pairs of calls that come to the same."""
    rows, found = [], choices()
    for nbytes in (1 << 10, *SIZES):
        one, bcast, reduce, gather, scatter = (
            found[name, nbytes]["ours"] for name in ("allreduce", "bcast", "reduce", "allgather", "reduce_scatter")
        )
        pairs = ((reduce, bcast), (scatter, gather))
        cells = (f"{a:,.0f} + {b:,.0f} = {a + b:,.0f} ({(a + b) / one:.1f})" for a, b in pairs)
        rows.append([size_text(nbytes), f"{one:,.0f}", *cells])
    return markdown(["vector", "allreduce", "reduce + bcast", "reduce_scatter + allgather"], rows)


def bandwidths() -> str:
    """Return how bus bandwidth comes from time, for vectors of 256 MiB."""
    nbytes, rows = 256 << 20, []
    for name, row in COLLECTIVES.items():
        if (name, nbytes) in choices():
            took, factor = choices()[name, nbytes], row.bus(RANKS)
            rates = {who: nbytes / us / 1e3 for who, us in took.items()}
            cells = (f"{took['ours']:,.0f}", f"{rates['ours']:.0f}", f"{factor:g}")
            rows.append([name, *cells, f"{rates['ours'] * factor:.0f}", f"{rates['nccl'] * factor:.0f}"])
    return markdown(["collective", "us", "algorithm bandwidth", "factor", "bus bandwidth", "NCCL's"], rows)


TABLES: dict[str, Callable[[], str]] = {
    **{f"before and after {name}": partial(before_after, name) for name in COLLECTIVES},
    "broadcasts": partial(model, "bcast", ("linear", "binomial", "ring", "double_binary_tree")),
    "allreduces": partial(model, "allreduce", ("one_shot", "recursive_doubling", "ring", "two_shot")),
    "three ways": three_ways,
    "bandwidths": bandwidths,
}
