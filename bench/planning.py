"""Campaign: the time and the memory of a plan with its schedule, from 2 to 65,536 ranks; without MPI.

    python bench/planning.py --json planning.json
    python bench/planning.py --per-host 8 --json planning-on-hosts.json

Each plan is made from cold caches, but for the tuning tables, in a process of its own, for one rank and its own
schedule.  Milliseconds of processor time, for the clock also measures what else runs: the least of --runs; the peak of
Python's memory for it in MiB, as tracemalloc counts, in one more process.  A plan that takes longer than --limit
seconds is left out, and so are those for more ranks.  With --per-host so many ranks that follow each other are on one
host.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.bench.output.results import Results
from mpicoll.settings import parse_bytes

SIZES = [2, 16, 128, 512, 4096, 65536]
#: algorithms of each collective; "" is the choice
CASES = {
    "barrier": ["", "recursive_doubling"],
    "bcast": ["", "double_binary_tree", "scatter_allgather"],
    "allreduce": ["", "recursive_doubling", "reduce_scatter_allgather", "ring"],
    "allgather": ["", "recursive_doubling", "bruck"],
    "reduce_scatter": ["", "recursive_halving"],
    "gather": ["", "binomial"],
    "alltoall": ["", "linear"],
    "scan": ["", "recursive_doubling"],
}
#: the same on hosts
ON_HOSTS = {name: ["", "striped"] for name in ("allreduce", "reduce_scatter", "allgather", "bcast", "reduce")}
CHILD = """
import json, time, tracemalloc
import mpicoll
from mpicoll.schedule.topology import forced
mpicoll.plan("barrier", size=2, nbytes=0)  # the tuning tables have been read, as by any call before
mpicoll.settings.topology = {topology!r}
forced({topology!r}, {size}).groups  # known since the communicator's first call
if {traced}:
    tracemalloc.start()
start = time.process_time()
plan = mpicoll.plan({collective!r}, size={size}, nbytes={nbytes}, rank={size} // 3, algorithm={algorithm!r} or None)
steps = len(plan.schedule.steps)
ms = (time.process_time() - start) * 1e3
mib = tracemalloc.get_traced_memory()[1] / (1 << 20) if {traced} else 0
print(json.dumps(dict(ms=ms, mib=mib, chosen=plan.algorithm, segments=plan.segments, steps=steps)))
"""


def machine():
    """The machine, in words."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text(encoding="utf-8")) if info.exists() else []
    return f"{len(os.sched_getaffinity(0))} cores, {names[0] if names else platform.machine()}"


def planned(options, traced, **case):
    """What one process says of its plan."""
    command = [sys.executable, "-c", CHILD.format(traced=traced, **case)]
    done = subprocess.run(command, capture_output=True, timeout=options.limit, check=True)
    return json.loads(done.stdout)


def measured(options, **case):
    """The least time of several runs, and the memory of another; None if one takes too long."""
    try:
        mib = planned(options, True, **case)["mib"]
        runs = [planned(options, False, **case) for _ in range(options.runs)]
    except subprocess.TimeoutExpired:
        return None
    return min(runs, key=lambda run: run["ms"]) | {"mib": mib}


def rows(options, collective, algorithm):
    """Yield the rows of an algorithm, or of what is chosen, for ever more ranks."""
    for size in options.sizes:
        if algorithm and registry.get(collective, algorithm).refuses(size):
            continue
        if size < 2 * options.per_host:  # one host
            continue
        case = {"collective": collective, "algorithm": algorithm, "nbytes": options.bytes, "size": size}
        case["topology"] = f"hosts={size // options.per_host}" if options.per_host else "flat"
        found = measured(options, **case)
        if found is None:
            return
        yield case | found


def cell(row):
    return f"{row['ms']:.1f} ms {row['mib']:.1f} MiB" if row else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bytes", type=parse_bytes, default="1M", help="of the full vector")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=SIZES)
    parser.add_argument("--per-host", type=int, default=0, help="ranks of a host; all on one if not given")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60)
    options = parser.parse_args()
    results = Results(options.json, Path(sys.argv[0]).name)
    facts = {"machine": machine(), "python": platform.python_version(), "mpicoll": mpicoll.__version__}
    results.begin(command=shlex.join(sys.argv), date=datetime.date.today().isoformat(), **facts)
    table = Table("collective", "algorithm", *(f"{size:,} ranks" for size in options.sizes), title=facts["machine"])
    cases = ON_HOSTS if options.per_host else CASES
    for collective, algorithm in [(name, one) for name, algorithms in cases.items() for one in algorithms]:
        found = {}
        for row in rows(options, collective, algorithm):
            results.add("row", **row)
            found[row["size"]] = row
        table.add_row(collective, algorithm or "(chosen)", *(cell(found.get(size)) for size in options.sizes))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    results.end(verdict="measured")


if __name__ == "__main__":
    main()
