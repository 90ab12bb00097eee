"""`make docs` writes the generated pages beside this file; a test compares them with what is committed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the files beside this one

import plots
from blocks import filled
from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.algorithms.families import FAMILIES, cells
from mpicoll.pictures.film import film
from mpicoll.pictures.text import View, draw
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.settings import TABLE
from performance.page import performance_page
from pictures import FOLDER, PICTURES, PLOTS, picture
from reference import api_page

GENERATED = "<!-- written by `make docs`; edit the sources instead -->\n"


def algorithms_page() -> str:
    """Return docs/algorithms.md: every algorithm's card with its picture for 4 ranks."""
    parts = [
        GENERATED,
        "# Algorithms\n",
        "One section for each collective, one card for each algorithm.  Costs are in the symbols of\n"
        "`mpicoll/analysis/cost.py`: p ranks, n bytes of the full vector, q = ceil(log2 p), lg = floor(log2 p),\n"
        "r = 0 for powers of two and 1 otherwise, s segments, α a message, o one more message at the same time,\n"
        "β a byte on a link, γ a byte of one reduced operand, λ starting a reduction.\n"
        "The vector is cut into so many blocks, and so many more of them a rank needs as scratch at most, messages\n"
        "that are packed included.\n"
        "Each is proven for 1 to 17, 32 and 64 ranks (`python -m mpicoll verify`); its card says why this holds for\n"
        "all sizes.\n"
        "A picture shows what each of 4 ranks has at the start and after every round, a column a block.  A round is\n"
        "the time of one message through a port.  A cell is ✓ for a block that is complete, a dot for none, o for\n"
        "one on its way, the ranks that are in a value that is not complete (01|23: two values, not combined), or, of\n"
        "an alltoall, source and target of a block (1✓: that of rank 1 has arrived).  Below stand the messages:\n"
        "2>3 b1:01 is block 1, made of ranks 0 and 1, on its way from rank 2 to rank 3.\n"
        "`python -m mpicoll show` draws any number of ranks.\n",
    ]
    parts += [
        "## The families\n",
        "Every collective has an algorithm of each of the four families. Some need a power of two of ranks, p = 2^k.\n",
        f"| collective | {' | '.join(FAMILIES)} | others |",
        "| --- |" + " --- |" * (len(FAMILIES) + 1),
        *(f"| {' | '.join([name, *cells(name)])} |" for name in COLLECTIVES),
        "",
    ]
    for name, row in COLLECTIVES.items():
        parts.append(f"## {name}\n\nServes {', '.join(f'`{m}`' for m in row.methods)}.\n")
        parts += [_card(card) for card in registry.known(name)]
    return "\n".join(parts)


def _card(card: Algorithm) -> str:
    needs = "; ".join(card.restrictions()) or "nothing"
    picture = draw(film(card.row, card.schedules(4)), View(100))
    return (
        f"### {card.collective}: {card.name}\n\n{card.idea}\n\n"
        + (f"- inner algorithms: {card.made_of}\n" if card.made_of else "")
        + f"- cost: `{card.cost}`\n- blocks: {card.declared_space('`')}\n- needs: {needs}\n"
        f"- source: {card.reference}\n- all sizes: {card.uniform}\n\n"
        f"```text\n{picture}\n```\n"
    )


def settings_page() -> str:
    """Return docs/settings.md: every setting with its variable, default and meaning."""
    rows = [
        f"| `{r.name}` | `{r.variable}` | {r.kind.allowed} | `{r.default!r}` | {r.meaning} |" for r in TABLE.values()
    ]
    return "\n".join(
        [
            GENERATED,
            "# Settings\n",
            "`mpicoll.settings.NAME = value` changes one for the process, `with mpicoll.override(NAME=value):`\n"
            "for the calls of this thread within the block, the variable for a whole run.  Unknown\n"
            "`MPICOLL_*` variables warn.\n",
            "A value is given as a text, as in the variable, or as what it is in Python: a number, True or False,\n"
            "None for `auto`.  An empty text, or a variable that is empty, is the default.  Any other value is a\n"
            "ValueError with the name, the value and what is allowed.\n",
            "| setting | variable | values | default | meaning |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def by_hand(name: str) -> str:
    """Return a page that is written by hand, with its generated blocks."""
    return filled((Path(__file__).parent / name).read_text(encoding="utf-8"))


PAGES: dict[str, Callable[[], str]] = {
    "algorithms.md": algorithms_page,
    "api.md": partial(api_page, GENERATED),
    "settings.md": settings_page,
    "tutorial.md": partial(by_hand, "tutorial.md"),
    "performance.md": performance_page,
    "../README.md": partial(by_hand, "../README.md"),
}


def main(names: list[str]) -> None:
    """Write the pages of these names; without names all pages and pictures, plots where matplotlib is installed."""
    for name in names or PAGES:
        (Path(__file__).parent / name).write_text(PAGES[name](), encoding="utf-8")
    if names:
        return
    FOLDER.mkdir(exist_ok=True)
    drawable = importlib.util.find_spec("matplotlib")
    for name, command in (PICTURES | (PLOTS if drawable else {})).items():
        (FOLDER / name).write_bytes(picture(command))
    if drawable:
        plots.broadcasts()
        plots.at_scale()


if __name__ == "__main__":
    main(sys.argv[1:])
