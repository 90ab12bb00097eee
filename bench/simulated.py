"""Compares simulations with a run of the benchmark, or of `bench/sweep_algorithms.py --once`.

    python bench/simulated.py bench/results/2026-11-28-algorithms-4xH200.json --ranks 4

Prints by how much a simulated time is off: half of them at most, and 95 of 100; and the worst.
"""

import argparse
from pathlib import Path

from mpicoll.algorithms import registry
from mpicoll.bench.output.results import read
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.predict import waves
from mpicoll.simulate.calls import simulate_call
from mpicoll.simulate.machine import machine


def timed(row, path):
    """Yield (algorithm, seconds) of a row's times on a path: of a sweep over algorithms, or of the benchmark."""
    if "ours" in row:
        names = (name.partition("@") for name in row["ours"])
        times = {name: row["ours"][f"{name}@{where}"][0] for name, _, where in names if where == path}
    else:
        times = {row["algorithm"]: row["times"]["mpicoll"]["median"]} if row["path"] == path else {}
    yield from ((name, microseconds * 1e-6) for name, microseconds in times.items() if name and "/" not in name)


def compared(run, ranks, path, where, most=1 << 62):
    """Yield (name, bytes, simulated seconds, measured seconds) of algorithms that were timed on a path.

    Args:
        run: the file of results.
        ranks: number of ranks.
        path: whose times they are.
        where: the machine.
        most: bytes of the longest vector.
    """
    for row in read(run)["rows"]:
        nbytes = row["nbytes"] if "nbytes" in row else row["bytes"]
        for algorithm, seconds in timed(row, path) if nbytes <= most else ():
            card = registry.get(row["collective"], algorithm)
            facts = Facts(row["collective"], ranks, nbytes, "device")
            one = simulate_call(card, where, ranks, nbytes, segments=waves(card, facts, path))
            yield f"{row['collective']} {algorithm}", nbytes, one.seconds, seconds


def quantile(values, part):
    """Return the value that so large a part of the values does not exceed."""
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]


def errors_of(lines):
    """Return the relative error of each simulated time."""
    return [abs(simulated - measured) / measured for _, _, simulated, measured in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--path", default="mapped")
    parser.add_argument("--machine", default="h200_kernels")
    parser.add_argument("--max", type=int, default=1 << 62, help="bytes of the longest vector")
    options = parser.parse_args()
    lines = list(compared(options.run, options.ranks, options.path, machine(options.machine), options.max))
    errors = errors_of(lines)
    print(f"{len(lines)} times; off by {quantile(errors, 0.5):.0%} (half), {quantile(errors, 0.95):.0%} (95 of 100)")
    for error, (name, nbytes, simulated, measured) in sorted(zip(errors, lines, strict=True), reverse=True)[:5]:
        times = f"{simulated * 1e6:.1f} us simulated, {measured * 1e6:.1f} us measured"
        print(f"  {name} of {nbytes} B: {times} ({error:.0%})")


if __name__ == "__main__":
    main()
