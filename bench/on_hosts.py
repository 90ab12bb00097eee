"""Campaign: what is chosen on several hosts, beside all flat algorithms and the MPI's own collective.

    mpirun -n 8 --host a:4,b:4 python bench/on_hosts.py --rate 20 --delay 20 --json hosts.json

Float32 sums in host memory.  The calls of a cell take turns in random order; a time is the median of the slowest
rank's, from one instant on the machine's clock, which imitated hosts share.  A flat algorithm that takes more than LEFT
times as long as the best leaves the cell, and with it all longer messages.  Bytes are those that a host's network
device counts, of the busiest host and direction.  The bound is the least bytes at the rate, and one delay.

The choice knows the link where `mpirun ... python -m mpicoll tune --op barrier --budget 10` has measured it before.
"""

import argparse
import random
import shlex
import statistics
import sys
import time
from pathlib import Path

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

# isort: split
import numpy as np
from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.algorithms.naming import listed
from mpicoll.analysis.host_bounds import least_host_bytes
from mpicoll.bench.output.results import Results
from mpicoll.dispatch.rules import parse_choice
from mpicoll.schedule.topology import Topology
from mpicoll.settings import format_bytes

WORLD = MPI.COMM_WORLD
OPS = ("allreduce", "reduce_scatter", "allgather", "bcast")
#: how many times the best one's time a flat algorithm takes that leaves
LEFT = 1.8
#: seconds until a call that was announced begins
SOON = 0.06
AUTO, OWN = "auto", "MPI's own"
SOFTWARE = f"mpicoll {mpicoll.__version__}, {MPI.Get_library_version().splitlines()[0].strip()}"


def sent_and_received():
    """Return bytes that this host's network devices have sent and received."""
    rows = [line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    counts = [values.split() for name, values in rows if name.strip() != "lo"]
    return np.array([sum(int(c[8]) for c in counts), sum(int(c[0]) for c in counts)])


def calls_of(op, nbytes, comm, plain, also):
    """Return a call by name: the choice, MPI's own, flat algorithms, and those that are asked for."""
    p = comm.size
    x, y = (np.ones(nbytes // 4, "f4") for _ in range(2))
    own, counts = np.ones(x.size // p, "f4"), [x.size // p] * p

    def call(comm, **kinds):
        if op == "allreduce":
            return lambda: comm.Allreduce(x, y, **kinds)
        if op == "reduce_scatter":
            return lambda: comm.Reduce_scatter(x, own, counts, **kinds)
        if op == "allgather":
            return lambda: comm.Allgather(own, y, **kinds)
        return lambda: comm.Bcast(x, **kinds)

    flat = [card.name for card in registry.known(op) if card.cost and not card.by_hosts and not card.refuses(p)]
    return {AUTO: call(comm), OWN: call(plain)} | {name: call(comm, algorithm=name) for name in (*flat, *also)}


def seconds(call):
    """Return the time of a call on the slowest rank, from an instant that all ranks await."""
    start = WORLD.bcast(time.monotonic() + SOON)
    while time.monotonic() < start:
        pass
    call()
    return WORLD.allreduce(time.monotonic() - start, MPI.MAX)


def busiest(call):
    """Return bytes that a call sends or receives on the busiest host."""
    before = sent_and_received()
    call()
    WORLD.Barrier()
    time.sleep(0.1)
    return int(max(WORLD.allgather(max(sent_and_received() - before))))


def cell(op, nbytes, comms, gone, repeats, also):
    """Return (medians in seconds by name, bytes of the choice)."""
    calls = {name: call for name, call in calls_of(op, nbytes, *comms, also).items() if name not in gone}
    for call in calls.values():
        call()
    times = {name: [seconds(call)] for name, call in calls.items()}
    flat = sorted((name for name in calls if name not in (AUTO, OWN, *also)), key=lambda name: times[name][0])
    best = min(times[name][0] for name in calls)
    slow = {name for name in flat[1:] if times[name][0] > LEFT * best}
    order, chance = [name for name in calls if name not in slow], random.Random(nbytes)
    for _ in range(repeats - 1):
        chance.shuffle(order)  # alike on all ranks: a time depends on what the network did before
        for name in order:
            times[name].append(seconds(calls[name]))
    if nbytes >= 1 << 17:
        gone |= slow
    return {name: statistics.median(one) for name, one in times.items()}, busiest(calls[AUTO])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--bytes", default="8,32768,131072,524288,1048576,4194304")
    parser.add_argument("--also", default="", help="algorithms for several hosts to time, too: striped/4,chained/8")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rate", type=float, required=True, help="of a host's link each way, in Mbit/s")
    parser.add_argument("--delay", type=float, required=True, help="from host to host, in ms")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    comm = mpicoll.Communicator(WORLD)
    comms = comm, MPI.Intracomm(WORLD).Dup()
    hosts = WORLD.allgather(MPI.Get_processor_name())
    topology = Topology.of(hosts)
    results = Results(options.json if WORLD.rank == 0 else None, Path(sys.argv[0]).name)
    comm.Barrier()
    tables = [Path(table.name).name for table in comm._get_context().tuning().tables]
    results.begin(command=shlex.join(sys.argv), ranks=WORLD.size, hosts=hosts, software=SOFTWARE, tables=tables)
    for op in options.ops.split(","):
        gone = set()
        for nbytes in map(int, options.bytes.split(",")):
            nbytes = max(nbytes, 4 * WORLD.size if op != "allreduce" and op != "bcast" else 8)
            also = [name for name in listed(options.also) if serves(op, name)]
            medians, sent = cell(op, nbytes, comms, gone, options.repeats, also)
            flat = min((name for name in medians if name not in (AUTO, OWN, *also)), key=medians.get)
            floor = least_host_bytes(op, topology, 0, [nbytes / WORLD.size] * WORLD.size)
            bound = floor * 8 / options.rate / 1e6 + options.delay / 1e3
            chosen = str(comm.Get_plan(*plan_of(op, nbytes, comm.size)).choice)
            row = {
                "op": op,
                "nbytes": nbytes,
                "chosen": chosen,
                "ms": {name: 1e3 * value for name, value in medians.items()},
                "best_flat": flat,
                "auto_over_flat": medians[AUTO] / medians[flat],
                "own_over_auto": medians[OWN] / medians[AUTO],
                "auto_over_bound": medians[AUTO] / bound,
                "bytes_over_least": sent / floor,
            }
            if WORLD.rank == 0:
                results.add("row", **row)
                print(
                    f"{op:<15}{format_bytes(nbytes):>8} auto {1e3 * medians[AUTO]:8.1f} ms, {flat} "
                    f"{1e3 * medians[flat]:8.1f}, own {1e3 * medians[OWN]:8.1f}, bound {1e3 * bound:7.1f}; auto/flat "
                    f"{row['auto_over_flat']:5.2f}, own/auto {row['own_over_auto']:5.2f}, auto/bound "
                    f"{row['auto_over_bound']:5.2f}, bytes/least {row['bytes_over_least']:5.2f} | {chosen[:60]}",
                    *(f"\n{'':24}{name} {1e3 * medians[name]:.1f}" for name in also),
                    flush=True,
                )
    results.end(verdict="measured")


def serves(op, name):
    """Tell whether there is an algorithm of that name for a collective."""
    try:
        return bool(registry.get(op, parse_choice(name).algorithm))
    except ValueError:
        return False


def plan_of(op, nbytes, p):
    """Return the arguments that ask for the plan of a cell."""
    x, y = (np.ones(nbytes // 4, "f4") for _ in range(2))
    own = np.ones(x.size // p, "f4")
    return {
        "allreduce": ("Allreduce", x, y),
        "reduce_scatter": ("Reduce_scatter", x, own, [own.size] * p),
        "allgather": ("Allgather", own, y),
        "bcast": ("Bcast", x),
    }[op]


if __name__ == "__main__":
    main()
