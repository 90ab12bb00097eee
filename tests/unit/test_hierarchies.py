"""Hierarchies with inner algorithms that a caller chooses: one grammar, costs and proofs, segments."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpicoll
from mpicoll import ScheduleError, UnsupportedError
from mpicoll.__main__ import main
from mpicoll.algorithms import catalogue, known, naming, registry
from mpicoll.algorithms.registry import get
from mpicoll.analysis.host_traffic import host_traffic
from mpicoll.analysis.proof import demand, doubt
from mpicoll.analysis.registration import verify_algorithm
from mpicoll.analysis.verify import verify
from mpicoll.bench.request.options import parse
from mpicoll.bench.request.reading import words
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.limits import limited
from mpicoll.dispatch.paths import HOST_LINK, PATHS
from mpicoll.dispatch.predict import predicted
from mpicoll.dispatch.rules import Choice, known_choice, parse_choice, parse_rules
from mpicoll.dispatch.select import select
from mpicoll.dispatch.table import parse_table
from mpicoll.dispatch.tuning import Tuning
from mpicoll.pictures.film import film
from mpicoll.schedule import COLLECTIVES
from mpicoll.schedule.ir import Copy, Recv, Schedule, Send, inp, out, step
from mpicoll.schedule.topology import Topology, forced
from unit.left_out import without

CARDS = [card for row in COLLECTIVES for card in known(row) if card.by_hosts and card.inner_collectives]
LONG = "hierarchical(reduce_scatter=pairwise,allreduce=ring,allgather=ring)/4"
BLOCK = forced("0-3,4-7", 8)
CHEAP = "linear", "ring"  # of a broadcast of four hosts: the root's sends to all, or to one


def flat(collective):
    """Return the names of the algorithms of a collective that may be inner ones."""
    return [card.name for card in known(collective) if not card.by_hosts]


def test_a_choice_names_inner_algorithms_segments_and_path():
    assert parse_choice(LONG) == Choice("hierarchical(reduce_scatter=pairwise,allreduce=ring,allgather=ring)", 4)
    assert parse_choice("leader(bcast=ring, reduce=ring)/2@host") == Choice("leader(bcast=ring,reduce=ring)", 2, "host")
    assert str(parse_choice(LONG)) == LONG


@pytest.mark.parametrize("text", ["striped()", "striped(ring)", "striped(a=b", "striped(a=b)(c=d)", "striped(a=b/2)"])
def test_what_is_no_choice_is_refused(text):
    with pytest.raises(ValueError, match="is not of the form"):
        parse_choice(text)


def test_lists_and_tables_keep_what_is_between_parentheses():
    assert words("ring,striped(allgather=ring,reduce_scatter=ring)/4,all")[1].endswith("reduce_scatter=ring)/4")
    assert naming.listed("a, b") == ["a", "b"]
    table = "measured:allreduce:64K:p=8:mem=host:striped(allgather=ring)/4=12.5\nallreduce:striped(allgather=ring)/4"
    found = parse_table(f"machine:mpi=MPICH\n{table}", "own")
    assert {str(choice): seconds for choice, seconds in found.timings[0].times.items()} == {
        "striped(allgather=ring)/4": pytest.approx(12.5e-6)
    }
    assert parse_table(found.text(), "again").timings[0].times.keys() == found.timings[0].times.keys()


@pytest.mark.parametrize(
    ("collective", "name", "found"),
    [
        ("allreduce", "hierarchical", "striped"),
        ("allreduce", "hierarchical(allgather=ring,reduce_scatter=pat)", "striped(reduce_scatter=pat,allgather=ring)"),
        ("allreduce", "hierarchical(reduce=ring)", "leader(reduce=ring)"),
        ("gather", "hierarchical", "leader"),
    ],
)
def test_hierarchical_is_the_one_that_has_the_named_collectives(collective, name, found):
    assert get(collective, name).name == found
    assert known_choice(collective, Choice(name, 3)) == Choice(found, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hierarchical(gather=ring)", "no inner gather to choose; striped has reduce_scatter, allreduce, allgather; l"),
        ("leader(gather=ring)", "'leader' has no inner gather to choose; leader has reduce, allreduce, bcast"),
        ("ring(gather=ring)", "'ring' has no inner gather to choose; ring has none"),
        ("rings(gather=ring)", "no algorithm 'rings'; known: binomial"),
        ("striped(allgather=rings)", "allgather: no algorithm 'rings'; known: binomial"),
        ("striped(allgather=striped)", "inner allgather 'striped' is one for several hosts, and that runs inside each"),
        ("striped(allgather=ring,allgather=ring)", "names its inner allgather twice"),
    ],
)
def test_a_name_that_there_is_not_is_refused_with_what_there_is(name, said):
    with pytest.raises(ValueError, match=said):
        get("allreduce", name)
    with pytest.raises(ValueError, match=said):
        parse_rules(f"allreduce:{name}")
    with pytest.raises(ValueError, match=said):
        select(Facts("allreduce", 8, 8), name, "", "", Tuning())


def test_the_same_text_is_the_same_card_until_the_registry_changes():
    card = get("allreduce", "striped(allgather=ring)")
    assert get("allreduce", "striped(allgather=ring)") is card
    assert "striped(allgather=ring)" not in catalogue()["allreduce"]


@pytest.mark.parametrize("name", ["hierarchical", "native"])
def test_a_name_that_stands_for_others_is_no_algorithms(name):
    with pytest.raises(ValueError, match="stands for"):
        mpicoll.algorithm("bcast", name=name)(lambda rank, size, root: Schedule.of([], 1))


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_they_are_right_with_any_inner_algorithms_on_any_hosts(data):
    base = data.draw(st.sampled_from(CARDS))
    hosts = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=9))
    topology, size = Topology.of(hosts), len(hosts)
    root = data.draw(st.integers(0, size - 1)) if base.row.rooted else 0
    inner = {one: data.draw(st.sampled_from(flat(one))) for one in base.inner_collectives}
    card = get(base.collective, naming.written(base.name, inner))
    if card.refuses(size, topology=topology):
        return
    schedules = card.schedules(size, root, topology)
    assert verify(card.collective, schedules, root=root, pipelines=((3, 2),)).ordered or not card.ordered
    assert {one.blocks for one in schedules} == {card.vector_blocks(size)}


@pytest.mark.parametrize("base", CARDS, ids=[f"{card.collective}.{card.name}" for card in CARDS])
def test_each_inner_algorithm_is_the_one_that_is_named(base):
    """On 9 ranks of 3 hosts another name makes other schedules, unless an algorithm is the same there."""
    topology = forced("hosts=3", 9)
    for one in base.inner:
        texts = [f"{base.name}({one.collective}={name})" for name in flat(one.collective)]
        cards = [get(base.collective, text) for text in texts]
        able = [card for card in cards if not card.refuses(9, topology=topology)]
        made = {tuple(card.schedules(9, 0, topology)) for card in able}
        assert len(made) >= 2
        named = get(base.collective, f"{base.name}({one.collective}={one.on(3)})")
        both = {other.on(3) for other in base.inner if other.collective == one.collective}
        assert (named.schedules(9, 0, topology) == base.schedules(9, 0, topology)) is (len(both) == 1)


def test_named_as_it_is_nothing_changes_but_the_name():
    card, base = get("allreduce", "striped(allgather=linear)"), get("allreduce", "striped")
    assert card.cost == base.cost
    assert card.schedules(8, 0, BLOCK) == base.schedules(8, 0, BLOCK)


def test_cost_traffic_and_scratch_are_those_of_the_combination():
    card, base = get("allreduce", "striped(reduce_scatter=ring,allgather=bruck)"), get("allreduce", "striped")
    facts, model = Facts("allreduce", 8, 1 << 20, topology=BLOCK), PATHS["host"].model
    seconds = [model.seconds(one.cost, 4, 1 << 20, 2) for one in (card, base)]
    inner = [("reduce_scatter", "ring", "all_pairs"), ("allgather", "bruck", "linear")]
    for row, *names in inner:
        new, old = (model.seconds(get(row, name).cost, 4, 1 << 20, 2) for name in names)
        seconds[1] += new - old
    assert seconds[0] == pytest.approx(seconds[1])
    link = HOST_LINK.seconds(host_traffic(card, BLOCK), 1 << 20)
    assert predicted(card, facts, "host", 2) == pytest.approx(seconds[0] + link + model.alpha)
    counted = max(len(one.scratch) for one in card.schedules(8, 0, BLOCK))
    assert card.scratch_blocks(8, False, BLOCK) >= counted > 0
    assert limited(Choice(card.name, 1, "host"), facts, 1 << 16)[0].segments > 1


def test_a_leaders_vector_is_cut_where_an_inner_algorithm_cuts_it():
    """The root of a broadcast by scatter and allgather sends the other host one half of the vector after the other."""
    whole, cut = (get("bcast", f"leader(bcast={name})") for name in ("binomial", "scatter_allgather"))
    assert (whole.vector_blocks(8), cut.vector_blocks(8)) == (1, 8)
    sent = [len(m.source) for one in cut.schedule(0, 8, 0, BLOCK).steps for m in one.messages if isinstance(m, Send)]
    assert sent[:2] == [4, 4]


def test_traffic_follows_the_algorithm_between_hosts():
    vectors = [host_traffic(get("bcast", f"leader(bcast={name})"), forced("hosts=4", 8)).vectors for name in CHEAP]
    assert vectors == [3, 1]


def test_a_plan_and_its_key_see_the_inner_algorithms():
    with mpicoll.override(topology="hosts=2", algorithms=f"allreduce:hosts=2:{LONG}"):
        plans = [mpicoll.plan("allreduce", size=8, nbytes=1 << 20, algorithm=name) for name in (None, "striped")]
    card = get("allreduce", plans[0].algorithm)
    assert str(plans[0].choice) == "striped(reduce_scatter=pairwise,allreduce=ring,allgather=ring)/4@host"
    assert plans[0].schedule == card.schedule(0, 8, 0, BLOCK) != plans[1].schedule
    assert plans[0].key != plans[1].key
    assert f"  * {plans[0].choice}" in str(plans[0])


def test_an_inner_algorithm_that_cannot_serve_there_is_refused():
    name = "striped(allgather=recursive_doubling)"
    said = "is made of allgather 'recursive_doubling' on 3 ranks, which needs a power-of-two number of ranks, got 3"
    with mpicoll.override(topology="hosts=2"):
        with pytest.raises(UnsupportedError, match=said):
            mpicoll.plan("allreduce", size=6, nbytes=8, algorithm=name)
        assert mpicoll.plan("allreduce", size=8, nbytes=8, algorithm=name).algorithm == name
    assert get("allreduce", name).restrictions()[0] == "a power-of-two number of ranks for its allgather"


@pytest.fixture(scope="module")
def own():
    """Register an allgather of the user's: everybody sends to everybody, at most so many ranks."""

    @mpicoll.algorithm("allgather", name="own")
    def own(rank: int, size: int) -> Schedule:
        sends = [Send(inp(rank), peer) for peer in range(size) if peer != rank]
        recvs = [Recv(out(peer), peer) for peer in range(size) if peer != rank]
        return Schedule.of([step(sends, recvs, Copy(out(rank), inp(rank)))], size)

    yield get("allgather", "own")
    registry.unregister("allgather", "own")


def test_an_inner_algorithm_may_be_the_users_own(own):
    name = "striped(allgather=own)"
    card = get("allreduce", name)
    verify("allreduce", card.schedules(8, 0, BLOCK))
    assert not card.cost  # it declares none
    with mpicoll.override(topology="hosts=2"):
        assert mpicoll.plan("allreduce", size=8, nbytes=1, algorithm=f"{name}/2").choice == Choice(name, 2, "host")
    assert doubt(card, 128, 0, forced("hosts=8", 128)) is None  # 16 ranks of a host, which were proven
    assert "at most 64 ranks for its allgather" in card.restrictions()
    said = "is proven for at most 64 ranks, got 100"
    with mpicoll.override(topology="hosts=2"), pytest.raises(UnsupportedError, match=said):
        mpicoll.plan("allreduce", size=200, nbytes=8, algorithm=name)


def test_on_many_ranks_a_users_own_is_proven_on_as_many_as_it_has(own, monkeypatch):
    """Of 100 ranks on 5 hosts 20 ranks each: more than the 17 that are proven when it is registered."""
    card = get("allreduce", "striped(allgather=own)")
    monkeypatch.setitem(vars(own), "function", lambda rank, size: Schedule.of([], size))
    with pytest.raises(ScheduleError, match=r"allgather\.own, size 20"):
        demand(card, 100, 0, forced("hosts=5", 100))


def test_a_users_own_is_proven_within_it_when_it_is_first_used(own, monkeypatch):
    card = get("allreduce", "striped(allgather=own)")
    monkeypatch.setitem(vars(own), "function", lambda rank, size: Schedule.of([], size))
    with pytest.raises(ScheduleError, match=r"allreduce.striped\(allgather=own\), size 8"):
        demand(card, 8, 0, forced("0-2,3-7", 8))


@pytest.mark.slow
def test_segments_go_through_all_levels():
    """The planner's orders are proven, and a later part is inside a host while an earlier one is between hosts."""
    card = get("allreduce", "striped(reduce_scatter=ring,allgather=ring)")
    assert verify_algorithm(card, range(1, 7)) > 20
    made = film(card.row, card.schedules(8, 0, BLOCK), segments=4, hosts=BLOCK.host_of)
    host = BLOCK.host_of
    rounds = [{host[one.source] == host[one.target] for one in frame.arrows} for frame in made.frames]
    assert rounds.count({True, False}) >= 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show allreduce hierarchical(bcast=ring)/2 --ranks 4 --hosts 2", "leader(bcast=ring) on 4 ranks in 2 "),
        ("verify allreduce leader(bcast=ring) --ranks 2-4", "allreduce.leader(bcast=ring): 25 cases proven"),
        ("simulate allreduce ring,leader(bcast=ring,reduce=ring)/2 --machine one_card", "leader(bcast=ring,reduce"),
        ("plan allreduce --ranks 8 --bytes 1M --algorithm leader(bcast=ring)/4", "leader(bcast=ring), 4 segments"),
    ],
)
def test_every_command_reads_them(capsys, line, said):
    with mpicoll.override(topology="hosts=2"):
        assert main(line.split()) == 0
    assert said in capsys.readouterr().out


def test_the_benchmark_reads_them():
    options = parse(["--op", "allreduce", "--algorithm", "striped,hierarchical(allgather=ring,reduce_scatter=ring)/4"])
    assert options.algorithms == ("striped", "hierarchical(allgather=ring,reduce_scatter=ring)/4")


def test_a_message_that_is_left_out_of_an_inner_algorithm_is_found():
    card, chance = get("bcast", "striped(scatter=binomial,bcast=ring,allgather=bruck)"), random.Random(1)
    schedules = card.schedules(8, 3, BLOCK)
    for rank, _ in itertools.product(range(8), range(2)):
        number = chance.randrange(sum(len(one.messages) for one in schedules[rank].steps))
        with pytest.raises(ScheduleError):
            verify("bcast", without(schedules, rank, number), root=3, pipelines=())
