"""`python -m mpicoll simulate`: the time of algorithms on a machine that need not be there.

    simulate allreduce ring --ranks 8 --bytes 1M --machine dgx_h100         one run: its time, and where it goes
    simulate allreduce ring,two_shot --ranks 2-8 --bytes 8,64K,1M           a table: the fastest one is marked
    simulate messages '0>3,0>1,0>5' --bytes 400M --machine hybrid_cube_mesh   messages that start at once

`--machine` is a name of `simulate machines`, or a JSON file such as `mpicoll/simulate/machines.json` has many of.
`here` is this machine: with the tuning tables in force, and hosts as the setting `topology` says.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.algorithms.naming import listed
from mpicoll.analysis.bounds import bound
from mpicoll.cli.machines import NAMES, machine_named
from mpicoll.dispatch.rules import parse_choice
from mpicoll.pictures.gantt import gantt
from mpicoll.pictures.units import size_text, time_text
from mpicoll.ranges import message_sizes, whole_numbers
from mpicoll.simulate.calls import simulate_call, simulate_messages
from mpicoll.simulate.machine import Machine, machines
from mpicoll.simulate.path import between_hosts, busiest, shares
from mpicoll.simulate.result import LocalWork, Run

NAME, HELP = "simulate", "the time of algorithms on a machine that need not be there"
#: rows of a timeline, and parts of a critical path, that are printed
MOST_ROWS = 32


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("collective", help="or messages, or machines")
    parser.add_argument("algorithm", nargs="?", default="all", help="such as ring,two_shot/4; all that can serve (all)")
    parser.add_argument("--ranks", default="8", help="such as 8 or 2-8,16 (8)")
    parser.add_argument("--bytes", default="1M", help="message sizes, such as 8,64K,1M or 8-4M or 8-4M:2 (1M)")
    parser.add_argument("--machine", default="dgx_h100", help=f"{NAMES} (dgx_h100)")
    parser.add_argument("--root", type=int, default=0, help="of collectives that have one (0)")
    parser.add_argument("--path", action="store_true", help="the critical path, part by part")
    parser.add_argument("--timeline", nargs="?", const="-", help="what each rank does when; into an SVG file if named")
    parser.add_argument("--curves", help="an SVG file: time over sizes, or over ranks (needs matplotlib)")


def run(chosen: argparse.Namespace) -> None:
    """Print one simulation, or a table of many."""
    if chosen.collective == "machines":
        _print_machines()
        return
    where = machine_named(chosen.machine, max(whole_numbers(chosen.ranks)))
    sizes = message_sizes(chosen.bytes)
    if chosen.collective == "messages":
        if len(sizes) > 1 or chosen.path or chosen.timeline or chosen.curves:
            raise ValueError("messages have one size, and neither --path, --timeline nor --curves")
        _print_messages(chosen.algorithm, where, sizes[0])
        return
    runs = _runs(chosen, where, whole_numbers(chosen.ranks), sizes)
    if len(runs) == 1:
        ((name, p, nbytes), one), *_ = runs.items()
        _print_run(chosen, where, name, p, nbytes, one)
    elif chosen.path or chosen.timeline:
        raise ValueError("--path and --timeline are for one algorithm, number of ranks and size")
    else:
        _print_table(chosen, where, runs)
    if chosen.curves:
        _draw_curves(chosen, where, runs)


Runs = dict[tuple[str, int, int], Run]


def _runs(chosen: argparse.Namespace, where: Machine, ranks: tuple[int, ...], sizes: tuple[int, ...]) -> Runs:
    """Return all runs that are asked for, by algorithm, ranks and bytes; those that can serve."""
    names = listed(chosen.algorithm)
    if chosen.algorithm == "all":
        names = [card.name for card in registry.known(chosen.collective)]
    if not all(0 <= chosen.root < p for p in ranks):
        raise ValueError(f"--root {chosen.root}: the ranks are 0 to {min(ranks) - 1}")
    found: Runs = {}
    for name in names:
        algorithm, segments = _choice(name)
        for p in ranks:
            card = _card(chosen, algorithm, p, where)
            if card:
                for nbytes in sizes:
                    root = chosen.root if card.row.rooted else 0
                    found[name, p, nbytes] = simulate_call(card, where, p, nbytes, root=root, segments=segments)
    if not found:
        raise ValueError(f"no algorithm of {chosen.collective} serves {chosen.ranks} ranks")
    return found


def _choice(text: str) -> tuple[str, int]:
    """Return (algorithm, segments) of a text such as "ring/4"."""
    given = parse_choice(text)
    return given.algorithm, given.segments or 1


def _card(chosen: argparse.Namespace, algorithm: str, ranks: int, where: Machine) -> Algorithm | None:
    if chosen.algorithm != "all":
        return registry.require(chosen.collective, algorithm, ranks, topology=where.of_ranks(ranks).topology)
    card = registry.get(chosen.collective, algorithm)
    return None if card.refuses(ranks) else card


def _print_machines() -> None:
    for name, one in machines().items():
        print(f"{name:<18}{one.kind:<10}{one.source}")


def _print_messages(text: str, where: Machine, nbytes: int) -> None:
    """Print when each of some messages ends that start at once, and how fast it was."""
    if not re.fullmatch(r"\d+>\d+(,\d+>\d+)*", text):
        raise ValueError(f"{text!r} are no messages such as '0>1,0>2', in quotes: > means a file to a shell")
    pairs = [(int(a), int(b)) for a, b in (pair.split(">") for pair in text.split(","))]
    if any(source == target for source, target in pairs):
        raise ValueError(f"{text!r}: a message goes to another rank")
    done = simulate_messages(pairs, where, max(map(max, pairs)) + 1, nbytes)
    print(f"{len(pairs)} messages of {size_text(nbytes)} on {where.name} ({where.source})\n")
    rows = [("message", "by", "start", "end", "GB/s")]
    for one in sorted(done.messages(), key=lambda m: pairs.index((m.source, m.target))):
        links = [done.network.links[link].name for link in done.network.route(one.source, one.target)[1][1:-1]]
        speed = f"{one.nbytes / (one.end - one.start) / 1e9:.3g}" if one.end > one.start else "-"
        pair, by = f"{one.source}>{one.target}", ", ".join(links) or "the ports"
        rows.append((pair, by, time_text(one.start), time_text(one.end), speed))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(c.rjust(w) if k > 1 else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))))


def _print_run(chosen: argparse.Namespace, where: Machine, name: str, p: int, nbytes: int, one: Run) -> None:
    """Print one run: its time, and where it goes.

    Args:
        chosen: the arguments.
        where: the machine.
        name: the algorithm, and segments.
        p: number of ranks.
        nbytes: message size.
        one: the run.
    """
    algorithm, segments = _choice(name)
    card = registry.get(chosen.collective, algorithm)
    parts, (link, carried, used) = shares(one), busiest(one)
    whole = one.seconds or 1.0
    size = "" if card.row.idempotent else f", {size_text(nbytes)}"
    print(f"{card.collective} {name} on {p} ranks{size}, on {where.name} ({where.source})\n")
    print(f"time           {time_text(one.seconds)}")
    if p > 1:
        formula = where.model.seconds(card.cost, p, 0 if card.row.idempotent else nbytes, segments)
        least = bound(card.collective, where.fastest(p), p, nbytes).seconds
        print(f"cost formula   {time_text(formula)}" + ("" if where.uniform else ", which knows no topology"))
        print(f"lower bound    {time_text(least)}: efficiency {least / whole:.0%}")
    print(f"messages       {len(one)}, {size_text(sum(one.nbytes))}; between hosts {size_text(between_hosts(one))}")
    print(f"busiest link   {link!r}: {size_text(carried)}, in use {used:.0%} of the time")
    print(
        f"critical path  {parts.messages} messages, {parts.works} of local work: bytes {parts.moving / whole:.0%}, "
        f"latency {parts.latency / whole:.0%}, local work {parts.working / whole:.0%}"
        + (f", the call {parts.call / whole:.0%}" if parts.call else "")
    )
    if chosen.path:
        _print_path(one)
    if chosen.timeline == "-":
        print("\n> sends   < receives   x both   w works   . waits\n")
        print("\n".join(gantt(one, range(min(p, MOST_ROWS)), 72)))
        print(f"      0{time_text(one.seconds):>71}")
    elif chosen.timeline:
        from mpicoll.pictures.timeline import timeline_svg

        title = f"{card.collective} {name}, {p} ranks, {size_text(nbytes)}, {where.name}"
        Path(chosen.timeline).write_text(timeline_svg(one, title), encoding="utf-8")


def _print_path(one: Run) -> None:
    path = one.critical_path()
    print()
    for part in path[:MOST_ROWS]:
        what = "local work" if isinstance(part, LocalWork) else size_text(part.nbytes)
        who = f"rank {part.rank}" if isinstance(part, LocalWork) else f"{part.source}>{part.target}"
        late = "" if isinstance(part, LocalWork) or part.start <= part.ready else "  waited for a link"
        print(f"  {time_text(part.start):>9} to {time_text(part.end):>9}  {who:<10}{what}{late}")
    if len(path) > MOST_ROWS:
        print(f"  and {len(path) - MOST_ROWS} more")


def _print_table(chosen: argparse.Namespace, where: Machine, runs: Runs) -> None:
    from rich.console import Console
    from rich.table import Table

    cases = list(dict.fromkeys((p, nbytes) for _, p, nbytes in runs))
    fastest = {case: min(one.seconds for (_, *of), one in runs.items() if tuple(of) == case) for case in cases}
    table = Table("algorithm", *(f"{p} ranks\n{size_text(n)}" for p, n in cases), box=None, pad_edge=False)
    for name in dict.fromkeys(name for name, _, _ in runs):
        times = {(p, n): runs[name, p, n].seconds for p, n in cases if (name, p, n) in runs}
        cells = [time_text(times[c]) + (" *" if times[c] == fastest[c] else "") if c in times else "-" for c in cases]
        table.add_row(name, *cells)
    least = [bound(chosen.collective, where.fastest(p), p, nbytes).seconds for p, nbytes in cases]
    table.add_row("lower bound", *map(time_text, least))
    print(f"{chosen.collective} on {where.name}: {where.source}; * the fastest\n")
    Console().print(table)


def _draw_curves(chosen: argparse.Namespace, where: Machine, runs: Runs) -> None:
    """Draw time over bytes, or over ranks where there is one size."""
    from mpicoll.cli.curves import curves

    over_ranks = len({nbytes for _, _, nbytes in runs}) == 1
    series: dict[str, list[tuple[float, float]]] = {}
    for (name, p, nbytes), one in runs.items():
        many = not over_ranks and len({p for _, p, _ in runs}) > 1
        series.setdefault(f"{name}, {p} ranks" if many else name, []).append((p if over_ranks else nbytes, one.seconds))
    curves(series, Path(chosen.curves), f"{chosen.collective} on {where.name}", "ranks" if over_ranks else "bytes")
