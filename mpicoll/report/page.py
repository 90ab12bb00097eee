"""The page of a report: one file of HTML with all figures in it; it needs no network and no script, and prints well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from mpicoll.pictures.units import size_text, time_text
from mpicoll.report.board import Board, board
from mpicoll.report.contest import Contest, contests
from mpicoll.report.maps import colours, matrix, ratios_map, winners_map
from mpicoll.report.pairs import matrices
from mpicoll.report.plots import curves
from mpicoll.report.style import CSS
from mpicoll.report.winners import Takeover, Winner, takeovers

Record = dict[str, Any]
#: part by which a choice is slower from which on it is marked
MARKED = 0.05
#: names of equal algorithms that a cell has
MOST_NAMES = 3
#: facts that no reader of a page asks for
HIDDEN = ("aware", "aware_reason", "mpi_standard", "places")


def page(files: dict[str, Record]) -> str:
    """Return the page of some files of results.

    Args:
        files: by name, what `mpicoll.bench.output.results.read` returns.

    Raises:
        ValueError: no file has times or pairs of ranks.
    """
    rows = [row for file in files.values() for row in file["rows"]]
    found, pairs = contests(rows), matrices(rows)
    if not found and not pairs:
        raise ValueError(f"{', '.join(files)}: no rows of times, and none of pairs of ranks")
    calls = [(call, list(ofcall)) for call, ofcall in groupby(found, key=lambda one: one.call)]
    body = [
        f"<h1>{escape(title(files))}</h1>",
        facts(files),
        *(["<h2>The fastest algorithm</h2>", EXPLAINED] if calls else []),
        *(winners_table(call, board(ofcall)) for call, ofcall in calls),
        *(part for call, ofcall in calls for part in call_section(call, ofcall)),
        *pairs_section(pairs),
    ]
    head = f"<meta charset='utf-8'><title>{escape(title(files))}</title><style>{CSS}</style>"
    return f"<!doctype html>\n<html lang='en'><head>{head}</head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"


EXPLAINED = (
    "<p>A cell has the algorithm with the least median, and its time. <em>≈</em> are algorithms whose intervals "
    "overlap with the winner's. <b class='slow'>auto</b> is by how much mpicoll's choice is slower, where that is 5 % "
    "or more and the intervals do not overlap. Where no algorithms were asked for, the choice is the only one.</p>"
)


def title(files: dict[str, Record]) -> str:
    """Return the title: where and when."""
    facts = [file.get("facts", {}) for file in files.values()]
    ranks = sorted({one["ranks"] for one in facts if "ranks" in one})
    machine = dict.fromkeys(gpu_name(one) or one.get("cpu", "") for one in facts)
    dates = sorted({str(one.get("date", ""))[:10] for one in facts})
    where = f"{', '.join(map(str, ranks))} ranks on {', '.join(machine)}"
    return f"mpicoll: {where}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"


def gpu_name(facts: Record) -> str:
    """Return the name of the GPUs without their number and place; "" for arrays on the host."""
    return ", ".join(dict.fromkeys(" ".join(gpu.split(" at ")[0].split()[2:]) for gpu in facts.get("gpus", [])))


def facts(files: dict[str, Record]) -> str:
    """Return the table of facts: one cell where all files agree, or a cell for each."""
    names = {name: None for file in files.values() for name in file.get("facts", {}) if name not in HIDDEN}
    columns = len(files)
    lines = [f"<tr><th>file</th>{''.join(f'<td>{escape(name)}</td>' for name in files)}</tr>"]
    for name in names:
        values = [fact_text(file.get("facts", {}).get(name)) for file in files.values()]
        if len(set(values)) > 1:
            cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        else:
            cells = f"<td colspan='{columns}'>{escape(values[0])}</td>"
        lines += [f"<tr><th>{escape(name.replace('_', ' '))}</th>{cells}</tr>"] if any(values) else []
    return f"<table class='facts'>{''.join(lines)}</table>"


def fact_text(value: Any) -> str:
    """Return a fact in words; "" for one that says nothing."""
    if isinstance(value, dict):
        return "\n".join(f"{name}: {one}".rstrip(": ") for name, one in value.items())
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str("" if value is None else value)


def winners_table(call: str, cells: Board) -> str:
    """Return the table of the winners of a call."""
    head = "".join(f"<th>{ranks} ranks</th>" for ranks in cells.ranks)
    lines = []
    for row, size in enumerate(cells.sizes):
        texts = [winner_cell(cells, (row, column)) for column in range(len(cells.ranks))]
        lines.append(f"<tr><th>{size_text(size)}</th>{''.join(texts)}</tr>")
    return (
        f"<table class='winners'><caption>{escape(call)}</caption>"
        f"<thead><tr><th>message size</th>{head}</tr></thead>{''.join(lines)}</table>"
    )


def winner_cell(cells: Board, place: tuple[int, int]) -> str:
    """Return a cell of the table of winners."""
    one = cells.cells.get(place)
    if one is None:
        return "<td></td>"
    size = size_text(cells.nbytes[place])
    other = f" ({size})" if size != size_text(cells.sizes[place[0]]) else ""
    text = f"<b>{escape(one.name)}</b> {time_text(one.timing.median * 1e-6)}{other}"
    equal = ", ".join(one.equal) if len(one.equal) <= MOST_NAMES else f"{len(one.equal)} others"
    text += f"<br><em>≈ {escape(equal)}</em>" if equal else ""
    return f"<td>{text}{slower(one)}</td>"


def slower(one: Winner) -> str:
    """Return by how much mpicoll's choice is slower, "" where it is not."""
    if one.auto is None or not one.regret or one.regret < MARKED or not one.shown:
        return ""
    return f"<br><b class='slow'>auto {escape(one.auto.way)} +{100 * one.regret:.0f} %</b>"


def call_section(call: str, found: Sequence[Contest]) -> Iterator[str]:
    """Yield the parts of a call's section: maps, then curves for each number of ranks."""
    colour, cells = colours(found), board(found)
    yield f"<h2>{escape(call)}</h2>"
    baselines = dict.fromkeys(name for one in found for name in one.baselines)
    maps = [winners_map(cells, colour), *(ratios_map(cells, name, ratios(found, cells, name)) for name in baselines)]
    yield f"<div class='maps'>{''.join(maps)}</div>"
    for one in found:
        if sum(1 for size in one.sizes if size) > 1:
            changes = "; ".join(f"{n}: {c.before} → {c.after} at {size_text(c.nbytes)}" for n, c in numbered(one))
            note = f"<p>Crossovers: {escape(changes)}.</p>" if changes else ""
            head = f"<h3>{escape(call)} on {one.ranks} ranks</h3>"
            yield f"<section>{head}{curves(one, colour)}{note}</section>"


def numbered(contest: Contest) -> Iterator[tuple[int, Takeover]]:
    """Yield the takeovers with their numbers in the plot."""
    yield from enumerate(takeovers(contest), 1)


def ratios(found: Sequence[Contest], cells: Board, baseline: str) -> dict[tuple[int, int], float]:
    """Return a baseline's time over ours, mpicoll's choice or else the fastest, by row and column.

    Args:
        found: the contests of one call.
        cells: their board.
        baseline: its name.
    """
    times = {place: found[place[1]].baselines.get(baseline, {}).get(size) for place, size in cells.nbytes.items()}
    ours = {place: (one.auto or one.timing).median for place, one in cells.cells.items()}
    return {place: theirs.median / ours[place] for place, theirs in times.items() if theirs and place in ours}


def pairs_section(pairs: Iterable[tuple[str, str, dict[tuple[int, int], float]]]) -> Iterator[str]:
    """Yield the section on pairs of ranks, nothing where there are none."""
    drawn = [matrix(*one) for one in pairs]
    if drawn:
        yield "<h2>Pairs of ranks</h2>"
        yield f"<div class='maps'>{''.join(drawn)}</div>"
