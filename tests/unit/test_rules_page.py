"""docs/rules.md: what it shows can be read, and mistakes are said as it says."""

import re
from pathlib import Path

import pytest

import mpicoll
from mpicoll.algorithms import known
from mpicoll.analysis.host_traffic import HostLink
from mpicoll.dispatch.machine_facts import FACTS
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import parse_rules
from mpicoll.dispatch.table import LINK_PARAMETERS, PARAMETERS, parse_table
from mpicoll.dispatch.tuning import packaged
from mpicoll.schedule import COLLECTIVES

PAGE = (Path(mpicoll.__file__).parent.parent / "docs" / "rules.md").read_text(encoding="utf-8")
RULES, INNER, TABLE = re.findall(r"^```rules\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MISTAKES = re.findall(r"^\| `(.+)` \| `(.+?)`(?: \.\.\.)? \|$", PAGE.split("## Mistakes")[1], re.MULTILINE)


def test_the_rules_of_the_page_are_read_and_written_again():
    rules = parse_rules(RULES)
    assert [rule.collective for rule in rules] == ["allreduce", "allreduce", "bcast", "reduce", "allgather", "gather"]
    written = "\n".join(map(str, rules))
    assert parse_rules(written) == rules
    shown = [part.strip() for line in RULES.splitlines() for part in line.partition("#")[0].split(";")]
    assert written.splitlines() == [text.replace("Gatherv", "gather") for text in shown]


def test_inner_algorithms_of_the_page_are_read_and_written_again():
    rules = parse_rules(INNER)
    assert [str(rule.choice) for rule in rules] == [
        "striped(reduce_scatter=pairwise,allreduce=ring,allgather=ring)/4",
        "striped(bcast=binomial)",
        "leader(bcast=knomial_4)",
    ]
    assert parse_rules("\n".join(map(str, rules))) == rules


def test_the_page_has_the_inner_collectives_of_every_hierarchy():
    cards = {(card.collective, card.name): cell(card) for row in COLLECTIVES for card in known(row) if card.by_hosts}
    for row in (row for row in COLLECTIVES if row != "alltoall"):
        assert f"| {row} | {cards.get((row, 'striped'), '-')} | {cards.get((row, 'leader'), '-')} |" in PAGE


def cell(card):
    """Return a hierarchy's inner collectives, those between hosts in bold."""
    levels = {name: {one.between for one in card.inner if one.collective == name} for name in card.inner_collectives}
    forms = {(False,): "{}", (True,): "**{}**", (False, True): "{} at both levels"}
    return ", ".join(forms[tuple(sorted(between))].format(name) for name, between in levels.items())


def test_the_table_of_the_page_has_each_statement_and_is_written_again():
    table = parse_table(TABLE, "the page")
    assert (table.machine.mpi, table.machine.gpu) == ("MPICH", "none")
    assert table.models["host"].alpha == 5.1e-6
    assert [(timing.nbytes, timing.size, timing.gpus) for timing in table.timings] == [
        (64 << 10, 8, 0),
        (1 << 20, 2, 2),
    ]
    assert {str(choice): seconds for choice, seconds in table.timings[0].times.items()} == {
        "ring/4": pytest.approx(1234.5e-6),
        "linear/1": pytest.approx(980.1e-6),
    }
    assert [str(rule) for rule in table.rules] == ["allreduce:64K-inf:p=8:mem=host:hosts=2:perhost=4:linear/1"]
    assert table.link == HostLink(2e-5, 8.3e-11, 1.7e-10, "measured, the page")
    again = parse_table(table.text(), "again")
    assert (again.machine, again.rules, again.link.beta) == (table.machine, table.rules, 8.3e-11)
    assert again.timings[0].times.keys() == table.timings[0].times.keys()


@pytest.mark.parametrize(("statement", "message"), MISTAKES)
def test_a_mistake_is_said_as_on_the_page(statement, message):
    with pytest.raises(ValueError, match=r"^the page, line 3: ") as caught:
        parse_table(f"# first\n\n{statement}\nbcast:ring", "the page")
    assert str(caught.value).startswith(f"the page, line 3: {statement!r}: {message}")


def test_the_page_names_all_facts_parameters_paths_and_a_packaged_table():
    assert len(MISTAKES) == 10
    assert all(f"{name}=" in TABLE for name in FACTS)
    assert all(f"`{name}`" in PAGE for name in (*PARAMETERS, *LINK_PARAMETERS))
    assert all(name in PAGE for name in PATHS)
    assert any(f"`{name}`" in PAGE for name in packaged())
