"""Makes Markdown tables from a run of the benchmark with a baseline, and puts them into a page.

    mpirun -n 4 python -m mpicoll.bench --buffers cupy --baseline nccl --json run.json \\
        --sizes 8,1K,4K,16K,64K,256K,1M,4M,16M,64M,256M,1G --op bcast,reduce,allreduce,...
    python bench/table.py run.json --into docs/performance.md

The page has `<!-- begin nccl -->` and `<!-- end nccl -->`, each on a line; what is between is replaced
(`--name` for another word).  Without --into the tables are printed.  A ratio below its target is in italics.
"""

import argparse
from pathlib import Path

from mpicoll.bench.output.results import read
from mpicoll.bench.request.cases import CALLS, make_case

K, M, G = 1 << 10, 1 << 20, 1 << 30
#: ranks for which the targets were set, one GPU each
RANKS = 4
#: up to which size each column of targets goes; between two sizes of the design, that of the larger one
LIMITS = (4 * K, M, 4 * M, 16 * M, 64 * M, G - 1, float("inf"))
#: least t(NCCL) / t(mpicoll)
TARGETS = {
    "allreduce": (0.75, 0.6, 0.7, 0.75, 0.87, 0.95, 1.0),
    "allgather": (0.6, 0.5, 0.75, 0.9, 1.0, 1.0, 1.03),
    "reduce_scatter": (0.6, 0.5, 0.75, 0.9, 1.0, 1.0, 1.03),
    "alltoall": (0.6, 0.5, 0.75, 0.9, 1.0, 1.0, 1.03),
    "gather": (0.6, 0.6, 0.75, 0.95, 1.0, 1.0, 1.0),
    "scatter": (0.6, 0.6, 0.75, 0.95, 1.0, 1.0, 1.0),
    "bcast": (0.6, 0.5, 0.8, 1.0, 1.0, 1.0, 1.03),
    "reduce": (0.6, 0.5, 0.8, 1.0, 1.0, 1.0, 1.03),
}


def target(collective, nbytes, ranks):
    """The least ratio that the design asks for, 0 where it asks for nothing."""
    if ranks != RANKS or collective not in TARGETS:
        return 0.0
    return of_size(TARGETS[collective], LIMITS, nbytes)


def of_size(targets, limits, nbytes):
    """The target of the first column that goes up to a size, 0 where none does."""
    return next((t for t, limit in zip(targets, limits, strict=True) if nbytes <= limit), 0.0)


def marked(value, least):
    """A ratio, in italics if it is below its target as it is written."""
    text = f"{value:.2f}"
    return f"*{text}*" if float(text) < least else text


def cells(run, baseline, in_place):
    """The fastest measurement of each (collective, size asked for) that has the baseline."""
    sizes = asked(run)
    found = {}
    for row in run["rows"]:
        call = CALLS[row["op"]]
        if baseline not in row["times"] or call.uneven or (row["in_place"] != in_place and len(call.forms) > 1):
            continue
        facts = row["dtype"], run["facts"]["ranks"], row["redop"] or "", row["root"] or 0
        for nbytes in (n for n in sizes if make_case(call, n, *facts).nbytes == row["bytes"]):
            best = found.get((row["collective"], nbytes))
            if best is None or ours(row) < ours(best):
                found[row["collective"], nbytes] = row
    return found


def asked(run):
    """The sizes that the run was asked for, or those that it had."""
    sizes = run["options"].get("sizes") or sorted({row["bytes"] for row in run["rows"]})
    return [int(n) for n in sizes]


def ours(row):
    return row["times"]["mpicoll"]["median"]


def theirs(row, baseline):
    return row["times"][baseline]["median"]


def written(nbytes):
    """A size as 8 B, 64 KiB, 1 GiB."""
    for unit, name in ((G, "GiB"), (M, "MiB"), (K, "KiB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def table(sizes, lines):
    head = ["| | " + " | ".join(map(written, sizes)) + " |", "|---" * (len(sizes) + 1) + "|"]
    return "\n".join([*head, *(f"| {name} | " + " | ".join(line) + " |" for name, line in lines)])


def ratio(row, baseline, nbytes, ranks):
    if row is None:
        return "-"
    return marked(theirs(row, baseline) / ours(row), target(row["collective"], nbytes, ranks))


def micro(row, time):
    if row is None:
        return "-"
    value = time(row)
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def tables(run, baseline="nccl", in_place=False):
    """Both tables, with a line about the run."""
    found, ranks = cells(run, baseline, in_place), run["facts"]["ranks"]
    if not found:
        raise SystemExit(f"no measurement here has the baseline {baseline}")
    names = list(dict.fromkeys(name for name, _ in found))
    sizes = sorted({nbytes for _, nbytes in found})
    label = {"nccl": "NCCL", "native": "MPI"}.get(baseline, baseline)
    ratios = [(name, [ratio(found.get((name, n)), baseline, n, ranks) for n in sizes]) for name in names]
    times = []
    for name in names:
        rows = [found.get((name, n)) for n in sizes]
        times.append((name, [micro(row, ours) for row in rows]))
        times.append((label, [micro(row, lambda row: theirs(row, baseline)) for row in rows]))
    note = "; italics: below the target" if any("*" in cell for _, line in ratios for cell in line) else ""
    return "\n\n".join(
        [
            about(run),
            f"t({label}) / t(mpicoll), {'in' if in_place else 'out of'} place where there are both{note}:",
            table(sizes, ratios),
            f"The same in microseconds, ours above {label}'s:",
            table(sizes, times),
        ]
    )


def about(run):
    """With what, where and when it was measured."""
    facts = run["facts"]
    gpus = {" ".join(gpu.split(" at ")[0].split()[2:]) for gpu in facts.get("gpus", [])}
    where = f"{facts['ranks']} ranks, {', '.join(sorted(gpus)) or facts['cpu']}, {facts['buffers']} arrays"
    what = f"mpicoll {facts['mpicoll']} at {facts['commit'][:12]}, {facts['mpi']}, mpi4py {facts['mpi4py']}"
    versions = "".join(f", {name} {version}" for name, version in facts.get("baselines", {}).items() if version)
    variables = " ".join(f"{name}={value}" for name, value in facts["variables"].items())
    command = f"mpirun -n {facts['ranks']} {facts['command']}"
    return f"{where}; {what}{versions}; {facts['date'][:10]}; `{f'{variables} {command}'.strip()}`."


def into(page, name, text):
    """The page with what is between its markers replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise SystemExit(f"the page needs one {begin} and, behind it, one {end}")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"


def put(text, page, name):
    """Print a text, or put it into a page between the markers of that name."""
    if page is None:
        print(text)
    else:
        page.write_text(into(page.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="written by mpicoll.bench with --baseline and --json")
    parser.add_argument("--baseline", default="nccl")
    parser.add_argument("--inplace", action="store_true")
    parser.add_argument("--into", type=Path, metavar="PAGE")
    parser.add_argument("--name", help="of the markers (the baseline's)")
    options = parser.parse_args(arguments)
    text = tables(read(options.run), options.baseline, options.inplace)
    put(text, options.into, options.name or options.baseline)


if __name__ == "__main__":
    main()
