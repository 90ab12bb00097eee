"""`python -m mpicoll show`: a collective before and after, or an algorithm step by step.

    show allreduce                      what each rank has before and after
    show allreduce ring --ranks 8       every round: what each rank has, and what moved
    show bcast ring/8 --chart           in 8 segments: which link carries what in which round

A round is the time of one message through a rank's port.  With --hosts a rank has a second one to other hosts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from pathlib import Path

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.analysis.bounds import bound
from mpicoll.analysis.terms import WORDS, formula, ruling, terms
from mpicoll.cli.colours import print_picture
from mpicoll.cli.machines import NAMES, machine_named
from mpicoll.dispatch.rules import parse_choice
from mpicoll.pictures import text
from mpicoll.pictures.chart import chart_svg
from mpicoll.pictures.film import Film, film
from mpicoll.pictures.html import film_html
from mpicoll.pictures.links import link_chart
from mpicoll.pictures.svg import before_after_svg, film_svg
from mpicoll.pictures.units import size_text, time_text
from mpicoll.ranges import MOST, whole_numbers
from mpicoll.schedule.collectives import Collective, collective
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.topology import FLAT, laid_out
from mpicoll.settings import parse_bytes

NAME, HELP = "show", "a collective before and after, or an algorithm step by step"
#: columns of what is no terminal
WIDTH = 80


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("collective")
    parser.add_argument("algorithm", nargs="?", help="and segments, such as ring or ring/4")
    parser.add_argument("--ranks", "--size", type=int, default=4, help="how many (4)")
    parser.add_argument("--root", type=int, default=0, help="of collectives that have one (0)")
    parser.add_argument("--hosts", default="", help="how many, or the ranks of each: 2 or 0-3,4-7; in racks: 4/2")
    parser.add_argument("--rank", default="", help="only these ranks: 2 or 0-3,6")
    parser.add_argument("--round", default="", help="only these rounds: 3 or 0-2")
    parser.add_argument("--brief", action="store_true", help="a line for each round")
    parser.add_argument("--chart", action="store_true", help="which link carries what in which round")
    parser.add_argument("--svg", help="a file for the picture, instead of text; with --chart for the chart")
    parser.add_argument("--html", help="a file for a page with a slider for the steps")
    parser.add_argument("--steps", action="store_true", help="the schedule of each rank below the picture")
    parser.add_argument("--bytes", default="1M", help="message size of the cost in numbers (1M)")
    parser.add_argument("--machine", default="dgx_h100", help=f"its machine: {NAMES} (dgx_h100)")
    parser.add_argument("--width", type=int, default=0, help="columns to draw in (those of the terminal)")


def run(chosen: argparse.Namespace) -> None:
    """Print the picture."""
    row = collective(chosen.collective)
    _check(chosen)
    if chosen.algorithm:
        _show_algorithm(row, chosen)
    else:
        _show_collective(row, chosen)


def _check(chosen: argparse.Namespace) -> None:
    """Raise ValueError for arguments that do not go together."""
    if not 1 <= chosen.ranks <= MOST:
        raise ValueError(f"--ranks {chosen.ranks}: from 1 to {MOST}")
    if not 0 <= chosen.root < chosen.ranks:
        raise ValueError(f"--root {chosen.root}: the ranks are 0 to {chosen.ranks - 1}")
    if chosen.html and not chosen.algorithm:
        raise ValueError("--html needs an algorithm, such as show allreduce ring --html FILE")
    if chosen.html and (chosen.rank or chosen.round):
        raise ValueError("--html shows all ranks and rounds: leave out --rank and --round")


def _show_algorithm(row: Collective, chosen: argparse.Namespace) -> None:
    given = parse_choice(chosen.algorithm)
    segments, topology = given.segments or 1, laid_out(chosen.hosts, chosen.ranks) if chosen.hosts else FLAT
    card = registry.require(row.name, given.algorithm, chosen.ranks, topology=topology)
    schedules = card.schedules(chosen.ranks, chosen.root, topology)
    made = film(row, schedules, root=chosen.root, segments=segments, hosts=topology.host_of)
    width = chosen.width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH)
    print(_wrapped(describe(card), width))
    if card.cost:
        print(f"\n{_costs(card, chosen, segments)}")
    title = _title(made, card.name)
    print(f"\n{title}\n")
    if chosen.svg or chosen.html:
        _write(made, chosen, title, describe(card))
    if not chosen.svg and (chosen.chart or not chosen.html):
        print_picture(_picture(made, chosen, width))
    if chosen.steps:
        _print_steps(schedules, whole_numbers(chosen.rank) if chosen.rank else range(chosen.ranks))


def _write(made: Film, chosen: argparse.Namespace, title: str, card: str) -> None:
    """Write the files that are asked for.

    Args:
        made: the film.
        chosen: the arguments.
        title: of the picture.
        card: the algorithm's card as text.
    """
    if chosen.svg:
        numbers = text.chosen("round", whole_numbers(chosen.round) if chosen.round else (), made.rounds)
        frames = [k + 1 for k in numbers] or None
        drawn = chart_svg(made, title) if chosen.chart else film_svg(made, frames, title)
        Path(chosen.svg).write_text(drawn, encoding="utf-8")
    if chosen.html:
        Path(chosen.html).write_text(film_html(made, title, card), encoding="utf-8")
    print("\n".join(f"written: {file}" for file in (chosen.svg, chosen.html) if file))


def _show_collective(row: Collective, chosen: argparse.Namespace) -> None:
    methods = ", ".join(row.methods)
    root = f", root {chosen.root}" if row.rooted else ""
    print(f"{row.name} ({methods}) on {chosen.ranks} ranks{root}\n")
    if chosen.svg:
        Path(chosen.svg).write_text(before_after_svg(row, chosen.ranks, chosen.root), encoding="utf-8")
        print(f"written: {chosen.svg}")
        return
    print_picture(text.draw_before_and_after(row, chosen.ranks, chosen.root))
    print(f"\n{text.meaning(row)}")
    names = [card.name for card in registry.known(row.name)]
    print(f"\nalgorithms: {', '.join(names)}\npython -m mpicoll show {row.name} {names[0]} draws one")


def _title(made: Film, name: str) -> str:
    root = f", root {made.root} (*)" if made.row.rooted else ""
    cut = f" in {made.segments} segments" if made.segments > 1 else ""
    sent = sum(len(frame.arrows) for frame in made.frames)
    ranks = f"{made.size} ranks" if made.size > 1 else "1 rank"
    return f"{made.row.name} {name} on {ranks}{root}{cut}: {made.rounds} rounds, {sent} messages"


def _costs(card: Algorithm, chosen: argparse.Namespace, segments: int) -> str:
    """Return the cost with numbers put in, beside the lower bound, and which term rules."""
    where, nbytes = machine_named(chosen.machine, chosen.ranks), parse_bytes(chosen.bytes)
    model, p = where.model, chosen.ranks
    if p == 1:
        return "a rank alone sends no message"
    least = bound(card.collective, where.fastest(p), p, nbytes)
    symbol, part = ruling(terms(card.cost, model, p, nbytes, segments))
    seconds = model.seconds(card.cost, p, nbytes, segments)
    rules = f"{symbol} rules: {WORDS.get(symbol, '')}, {part:.0%}" if symbol else "nothing takes time"
    in_turn = f" ({time_text(least.one_port)} one message after the other)" if least.one_port > least.latency else ""
    parts = f"latency {time_text(least.latency)}{in_turn}, bytes {time_text(least.bandwidth)}"
    return (
        f"for {size_text(nbytes)} on {p} ranks of {where.name}:\n"
        f"{formula(card.cost, model, p, nbytes, segments)}\n"
        f"  {rules}\n"
        f"  no algorithm takes less than {time_text(least.seconds)}"
        + (f", this one {seconds / least.seconds:.3g} times that" if least.seconds else "")
        + f":\n  {parts}"
        + ("" if where.uniform else "\n  the formula knows no topology: `simulate` has this machine's links")
    )


def _wrapped(described: str, width: int) -> str:
    """Return a card whose lines fit; what goes on stands below its beginning."""
    lines = []
    for line in described.splitlines():
        label = len("proven: ") if ": " in line[:9] else 0
        lines += textwrap.wrap(line, width, subsequent_indent=" " * label, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def _picture(made: Film, chosen: argparse.Namespace, width: int) -> str:
    numbers = [whole_numbers(given) if given else () for given in (chosen.rank, chosen.round)]
    view = text.View(width, *numbers)
    if chosen.chart:
        return link_chart(made, width)
    if chosen.brief:
        return text.brief(made, view)
    return f"{text.legend(made, view)}\n\n{text.draw(made, view)}"


def _print_steps(schedules: list[Schedule], ranks: tuple[int, ...] | range) -> None:
    for rank in ranks:
        print(f"\nrank {rank}:\n{schedules[rank]}")


def describe(card: Algorithm) -> str:
    """Return an algorithm's card as text."""
    needs = "; ".join(card.restrictions()) or "nothing: any number of ranks, any root, any operator"
    return (
        f"{card.collective}.{card.name}\n\n{card.idea}\n\n"
        + (f"inner:  {card.made_of}\n" if card.made_of else "")
        + f"cost:   {card.cost or 'not declared'}\nblocks: {card.declared_space()}\n"
        f"needs:  {needs}\nsource: {card.reference or 'not given'}\n"
        f"proven: {card.proof}" + (f": {card.uniform}" if card.uniform else "")
    )
