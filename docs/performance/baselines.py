"""Ratios and times beside baselines: mpicoll.bench --baseline, bench/back_to_back.py, bench/sweep_algorithms.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.select import select
from mpicoll.dispatch.tuning import Tuning, packaged
from mpicoll.pictures.units import size_text
from performance.runs import Record, Run
from tables import markdown

#: by (collective, bytes): a row, or what was measured of it
Cells = dict[tuple[str, int], Any]
#: baselines in words
LABELS = {
    "nccl": "NCCL",
    "native": "the MPI",
    "limit": "bare messages",
    "torch": "NCCL through PyTorch",
    "nccl-symmetric": "NCCL through PyTorch, symmetric memory",
    "torch-symmetric": "PyTorch's symmetric kernels",
}
#: baselines of runs of the kind "baselines"
BASELINES = ("nccl", "native")
PATHS = ("mapped", "direct", "staged")
MANNERS = ("synchronised after each call", "back to back on the stream", "both in CUDA graphs of many calls")
RATIO = "t({}) / t(mpicoll); italics where mpicoll is slower."


def ratio_text(value: float | None) -> str:
    """Return a ratio, in italics if it is below 1 as it is written, "-" for None."""
    if value is None:
        return "-"
    text = f"{value:.2f}"
    return f"*{text}*" if float(text) < 1 else text


def micro_text(value: float | None) -> str:
    """Return microseconds with three digits or more, "-" for None."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def grid(found: Cells, text: Callable[[Any], str]) -> str:
    """Return a table with a row for each collective and a column for each size; `text` of None where there is none."""
    names, sizes = list(dict.fromkeys(name for name, _ in found)), sorted({nbytes for _, nbytes in found})
    rows = ([name, *(text(found.get((name, n))) for n in sizes)] for name in names)
    return markdown(["", *map(size_text, sizes)], rows)


def cells(run: Run, baseline: str, ranks: int) -> Cells:
    """Return the fastest row of each collective and size asked for that has a baseline, out of place if there is one.

    A row may have more bytes than were asked for: an alltoall of 4 ranks has an element for each.

    Args:
        run: of the benchmark.
        baseline: its name.
        ranks: number of ranks.
    """
    found: dict[tuple[str, int], Record] = {}
    able = (row for row in run.rows if row["ranks"] == ranks and baseline in row["times"])
    rows = [row for row in able if not CALLS[row["op"]].uneven]
    asked = run.content["options"].get("sizes") or sorted({row["bytes"] for row in rows})
    for row in rows:
        facts = row["dtype"], ranks, row["redop"] or "", row["root"] or 0
        for nbytes in (int(n) for n in asked):
            key = row["collective"], nbytes
            if make_case(CALLS[row["op"]], nbytes, *facts).nbytes == row["bytes"]:
                found[key] = min((row, found.get(key, row)), key=lambda row: (row["in_place"], took(row)))
    return found


def took(row: Record, name: str = "mpicoll") -> float:
    """Return the median in microseconds of a row."""
    return row["times"][name]["median"]


def ratio(row: Record, baseline: str = "nccl") -> float:
    """Return t(baseline) / t(mpicoll) of a row."""
    return took(row, baseline) / took(row)


def against_one(run: Run) -> str:
    """Return ratios against NCCL or the MPI's own calls, and both times, for each number of ranks."""
    parts = []
    for baseline, ranks in product(BASELINES, run.ranks):
        found, label = cells(run, baseline, ranks), LABELS[baseline]
        ratios = {key: ratio(row, baseline) for key, row in found.items()}
        times = {key: f"{micro_text(took(row))} / {micro_text(took(row, baseline))}" for key, row in found.items()}
        several = f"{ranks} ranks. " if len(run.ranks) > 1 else ""
        if found:
            parts += [several + RATIO.format(label), grid(ratios, ratio_text)]
            parts += [f"Microseconds, mpicoll / {label}:", grid(times, lambda text: text or "-")]
    return "\n\n".join(parts)


def against_all(run: Run) -> str:
    """Return ratios against all baselines of a run, a line for each collective and size."""
    names = list(dict.fromkeys(name for row in run.rows for name in row["times"] if name != "mpicoll"))
    found = {name: cells(run, name, max(run.ranks)) for name in names}
    lines = []
    for collective, nbytes in dict.fromkeys(key for one in found.values() for key in one):
        rows = ((name, found[name].get((collective, nbytes))) for name in names)
        lines.append([collective, size_text(nbytes), *(ratio_text(row and ratio(row, name)) for name, row in rows)])
    head = [LABELS.get(name, name) for name in names]
    return f"{RATIO.format('the other')}\n\n{markdown(['collective', 'size', *head], lines)}"


def back_to_back(run: Run) -> str:
    """Return ratios against NCCL in three manners, and allreduce's times."""
    parts = [RATIO.format("NCCL")]
    for manner, title in enumerate(MANNERS):
        parts += [f"{title.capitalize().replace('cuda', 'CUDA')}:", grid(manner_ratios(run, manner), ratio_text)]
    rows = {row["nbytes"]: row for row in run.rows if row["collective"] == "allreduce"}
    lines = [
        [f"{title}, {label}", *(micro_text(row[who][manner]) for row in rows.values())]
        for manner, title in enumerate(("synchronised", "back to back", "graphs"))
        for who, label in (("ours", "mpicoll"), ("nccl", "NCCL"))
    ]
    return "\n\n".join([*parts, "Allreduce in microseconds:", markdown(["", *map(size_text, rows)], lines)])


def manner_ratios(run: Run, manner: int) -> Cells:
    """Return the ratios of a run of bench/back_to_back.py in one manner, an index of MANNERS."""
    return {(row["collective"], row["nbytes"]): row["nccl"][manner] / row["ours"][manner] for row in run.rows}


def packaged_choices(run: Run) -> Cells:
    """Return (choice, its microseconds, NCCL's) of each cell of a run of all algorithms.

    The choice is what the packaged table of the machine says today.  Cells whose choice was not measured are left
    out; there is none at all where no table is packaged.
    """
    (number, name), known = run.gpus, packaged()
    if name.lower() not in known:
        return {}
    tuning, found = Tuning((known[name.lower()],)), dict[tuple[str, int], Any]()
    for row in run.rows:
        facts = Facts(row["collective"], max(run.ranks), row["nbytes"], "device", paths=PATHS, gpus=number)
        choice, _ = select(facts, "", "", "", tuning)
        chosen = f"{choice.algorithm}{'' if choice.segments == 1 else f'/{choice.segments}'}@{choice.path}"
        times = {key: took[0] for key, took in row["ours"].items()}  # synchronised after each call
        if chosen in times:
            found[row["collective"], row["nbytes"]] = chosen, times[chosen], row["nccl"][0]
    return found


def choices(run: Run) -> str:
    """Return ratios of the packaged choices against NCCL, with the choice."""
    found = {
        key: f"{ratio_text(nccl / ours)} {chosen.removesuffix('@mapped')}"
        for key, (chosen, ours, nccl) in packaged_choices(run).items()
    }
    note = "Each call synchronised; what is chosen today, on the path mapped where none is named."
    return f"{RATIO.format('NCCL')} {note}\n\n{grid(found, lambda text: text or '-')}"


def fastest_by_messages(run: Run) -> Cells:
    """Return NCCL's time over that of the fastest algorithm of a sweep."""
    return {(row["collective"], row["nbytes"]): row["nccl"] / min(row["ours"].values()) for row in run.rows}


def sweep(run: Run) -> str:
    """Return the ratios of a sweep, each cell with its fastest algorithm and path."""
    note = "By messages, the fastest algorithm of each cell forced."
    return f"{RATIO.format('NCCL')} {note}\n\n{grid(fastest_by_messages(run), ratio_text)}"


def spread_of(values: Iterable[float]) -> Sequence[float]:
    """Return (least, median, most)."""
    found = sorted(values)
    middle = len(found) // 2
    return found[0], (found[middle] + found[~middle]) / 2, found[-1]
