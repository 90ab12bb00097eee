"""Campaign: an allreduce on up to 8,192 hosts of 8 ranks, in two levels and flat, from the ranks' own schedules.

    python bench/at_scale.py --json at-scale.json

Without MPI.  The machine is `h100_infiniband` of the simulator: 8 GPUs at a switch, a network card for each.  Hosts are
blocks of ranks, or take them in turns.  A rank's time is the sum of its steps': the messages that it sends, or those
that it receives, one after the other through its port, after one latency, and the launches of local work.  The time of
a call is that of the busiest rank of the first host.  All hosts are alike, so that nobody waits for long: on up to
--checked ranks in blocks the simulator, which has every rank's schedule and all waiting, says how far that is off.  A
schedule that takes more than --limit seconds is left out.
"""

import argparse
import datetime
import gc
import time
from itertools import product
from pathlib import Path

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.bench.output.results import Results
from mpicoll.schedule.ir import Schedule, Send
from mpicoll.schedule.topology import Topology
from mpicoll.settings import format_bytes, parse_bytes
from mpicoll.simulate.calls import simulate_call
from mpicoll.simulate.machine import Machine, machine

PER_HOST = 8
NAMES = ("striped", "leader", "circulant", "reduce_scatter_allgather", "recursive_doubling", "ring")


def port_seconds(where: Machine, messages: list[tuple[bool, float]]) -> float:
    """Return the time of messages through a port, given whether each goes to another host, and its bytes."""
    net = where.network
    if not messages:
        return 0.0
    busy = sum(where.extra + n / net["net_bandwidth" if far else "bandwidth"] for far, n in messages)
    return busy + max(net["net_alpha" if far else "alpha"] for far, _ in messages)


def placed(place: str, ranks: int) -> list[int]:
    """Return the host of each rank: hosts in blocks of ranks, or in turns."""
    return [rank // PER_HOST if place == "blocks" else rank % (ranks // PER_HOST) for rank in range(ranks)]


def own_seconds(schedule: Schedule, rank: int, hosts: list[int], where: Machine, block: float) -> float:
    """Return the time of a rank's schedule, without waiting; `block` is the bytes of a block."""
    total = 0.0
    for step in schedule.steps:
        sides: tuple[list[tuple[bool, float]], list[tuple[bool, float]]] = ([], [])
        for message in step.messages:
            sends = isinstance(message, Send)
            cells = (message.source if sends else message.target).cells
            sides[sends].append((hosts[message.peer] != hosts[rank], len(cells) * block))
        total += max(port_seconds(where, side) for side in sides) + where.launch * len(step.local)
    return total


def predicted(
    name: str, hosts: list[int], sizes: list[int], where: Machine, limit: float
) -> tuple[dict[int, float], float]:
    """Return (seconds by message size, the longest time in which a schedule was made); no sizes beyond the limit."""
    card, found, made, ranks = registry.get("allreduce", name), dict.fromkeys(sizes, 0.0), 0.0, len(hosts)
    topology = Topology.of(hosts)
    for rank in (rank for rank in range(ranks) if hosts[rank] == 0):
        begin = time.process_time()
        schedule = card.schedule(rank, ranks, 0, topology)
        made = max(made, time.process_time() - begin)
        if made > limit:
            return {}, made
        for n in sizes:
            found[n] = max(found[n], own_seconds(schedule, rank, hosts, where, n / card.vector_blocks(ranks)))
        del schedule
        gc.collect()
    return found, made


def main() -> None:
    """Print a row for each algorithm and number of ranks, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="16,64,512,4096,65536")
    parser.add_argument("--bytes", default="64K,64M")
    parser.add_argument("--checked", type=int, default=64, help="ranks up to which the simulator checks (64)")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of a schedule (20)")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    where, sizes = machine("h100_infiniband"), [parse_bytes(one) for one in asked.bytes.split(",")]
    results = Results(asked.json, "at_scale.py")
    command = f"bench/at_scale.py --ranks {asked.ranks} --bytes {asked.bytes}"
    today, software = datetime.date.today().isoformat(), f"mpicoll {mpicoll.__version__}"
    results.begin(command=command, date=today, software=software, machine=f"the simulated machine {where.name}")
    for ranks, place, name in product(map(int, asked.ranks.split(",")), ("blocks", "turns"), NAMES):
        hosts = placed(place, ranks)
        found, made = predicted(name, hosts, sizes, where, asked.limit)
        for n, seconds in found.items():
            row = {"algorithm": name, "place": place, "size": ranks, "nbytes": n, "us": seconds * 1e6}
            if ranks <= asked.checked and place == "blocks":
                row["simulated_us"] = simulate_call(registry.get("allreduce", name), where, ranks, n).seconds * 1e6
            results.add("row", **row, schedule_ms=made * 1e3)
            said = f", simulated {row['simulated_us']:.1f}" if "simulated_us" in row else ""
            what = f"{name:25} {place} {ranks:6} {format_bytes(n):>4}"
            print(f"{what} {row['us']:12.1f} us{said}; schedule {made * 1e3:.0f} ms", flush=True)
    results.end(verdict="measured")


if __name__ == "__main__":
    main()
