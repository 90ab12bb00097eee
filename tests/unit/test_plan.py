"""Plans: one object for one key, bounded scratch and messages, and a text that explains the choice."""

from fractions import Fraction

import pytest

import mpicoll
from mpicoll import UnsupportedError
from mpicoll.algorithms import get, known
from mpicoll.analysis.cost import pipelined
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.limits import LARGEST_MESSAGE, bounded
from mpicoll.dispatch.plan import make_plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.schedule import COLLECTIVES
from mpicoll.schedule.pack import pack
from serving import served

MIB = 1 << 20


def key(**changes):
    fields = {"facts": Facts("allreduce", 4, 1000), "rank": 1} | changes
    return PlanKey(**fields)


def test_the_same_key_is_the_same_plan():
    assert make_plan(key()) is make_plan(key())
    assert mpicoll.plan("allreduce", size=4, nbytes=999) is mpicoll.plan("Allreduce", size=4, nbytes=999)


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 2},
        {"facts": Facts("allreduce", 4, 1001)},
        {"facts": Facts("allreduce", 4, 1000, commutative=False)},
        {"call": "linear"},
        {"communicator": "allreduce:linear"},
        {"setting": "allreduce:linear"},
        {"scratch_limit": 1000},
    ],
)
def test_another_key_is_another_plan(change):
    assert make_plan(key(**change)) is not make_plan(key())


def test_a_plan_holds_what_was_asked_and_the_ranks_schedule():
    plan = mpicoll.plan("reduce", size=5, nbytes=4000, rank=2, root=3, algorithm="binomial")
    assert (plan.algorithm, plan.path, plan.key.rank, plan.key.root) == ("binomial", "host", 2, 3)
    assert plan.schedule == get("reduce", "binomial").schedule(2, 5, 3)


def test_settings_in_force_decide_and_are_part_of_the_key():
    before = mpicoll.plan("bcast", size=4, nbytes=100)
    with mpicoll.override(algorithms="bcast:scatter_allgather"):
        inside = mpicoll.plan("bcast", size=4, nbytes=100)
        assert "the setting `algorithms`: bcast:scatter_allgather" in str(inside)
        assert mpicoll.plan("bcast", size=4, nbytes=100, algorithm="linear").algorithm == "linear"
    assert inside.algorithm == "scatter_allgather"
    assert mpicoll.plan("bcast", size=4, nbytes=100) is before


def test_forced_and_impossible_raises_from_a_setting_too():
    with (
        mpicoll.override(algorithms="allgather:recursive_doubling"),
        pytest.raises(UnsupportedError, match="needs a power-of-two number of ranks, got 6; usable: "),
    ):
        mpicoll.plan("allgather", size=6, nbytes=100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 4}, "allreduce: rank 4 is out of range for 4 ranks"),
        ({"rank": -1}, "allreduce: rank -1 is out of range for 4 ranks"),
        ({"root": 4}, "allreduce: root 4 is out of range for 4 ranks"),
        ({"size": 0}, "out of range for 0 ranks"),
        ({"device": "gpu"}, "device 'gpu' is neither cpu nor cuda"),
        ({"algorithm": "rings"}, "allreduce: no algorithm 'rings'; known: "),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        mpicoll.plan(**{"name": "allreduce", "size": 4, "nbytes": 8} | arguments)


def test_the_path_that_is_set_is_the_plan_s_as_it_is_the_call_s():
    with mpicoll.override(path="staged"):
        assert mpicoll.plan("allreduce", size=4, nbytes=MIB, device="cuda").path == "staged"
        assert mpicoll.plan("allreduce", size=4, nbytes=MIB).path == "host"


@pytest.mark.parametrize(("gpus", "algorithm"), [(None, "ring"), (4, "ring"), (2, "linear")])
def test_a_plan_has_a_gpu_for_each_rank_unless_it_is_said(gpus, algorithm, tmp_path):
    (tmp_path / "table").write_text("allreduce:gpus=4:ring\nallreduce:linear\n", encoding="utf-8")
    with mpicoll.override(tuning=tmp_path / "table"):
        assert mpicoll.plan("allreduce", size=4, nbytes=MIB, device="cuda", gpus=gpus).algorithm == algorithm


# The text.


def rows_of(text):
    """The rows of candidates in a plan's text, without the mark: (whether it is chosen, the row)."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.strip().startswith("candidates:"))
    return [(line.strip().startswith("*"), line[4:]) for line in lines[start + 1 :]]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_text_shows_the_choice_the_reason_and_all_candidates(collective, device):
    plan = mpicoll.plan(collective, size=6, nbytes=6 * MIB, device=device)
    first, chosen, reason, *_ = str(plan).splitlines()
    assert first.startswith(f"{collective} of 6M on 6 ranks")
    assert ("root 0" in first) == COLLECTIVES[collective].rooted
    assert chosen.split(",")[0].strip() == plan.algorithm
    assert f"path {plan.path}" in chosen
    assert plan.reason in reason
    rows = rows_of(str(plan))
    names = [row.replace("/", " ").split()[0] for _, row in rows]
    assert set(names) == {card.name for card in known(collective) if not card.by_hosts}
    for name, (_, row) in zip(names, rows, strict=True):
        why = get(collective, name).refuses(6)
        assert row.endswith(why or ("chosen", "slow", "slower", "fast"))
    (marked,) = [row for is_chosen, row in rows if is_chosen]
    assert marked.split()[0] == f"{plan.algorithm}/{plan.segments}@{plan.path}"


def test_candidates_are_shown_best_first_and_those_that_cannot_serve_last():
    rows = [row.split() for _, row in rows_of(str(mpicoll.plan("allgather", size=6, nbytes=6 * MIB, device="cuda")))]
    times = [float(row[1]) for row in rows if "@" in row[0]]
    assert times == sorted(times)
    assert len(times) == 3 * 8  # eight algorithms on three paths
    assert " ".join(rows[-1]) == "recursive_doubling needs a power-of-two number of ranks, got 6"


@pytest.mark.parametrize(
    ("nbytes", "text"), [(None, "unknown size"), (0, "of 0 bytes"), (1000, "1000 bytes"), (4096, "of 4K on")]
)
def test_sizes_in_the_text(nbytes, text):
    assert text in str(mpicoll.plan("gather", size=4, nbytes=nbytes))


# What is bounded.


def in_flight(schedule, card, size, nbytes, segments, lanes):
    """Bytes of scratch of one rank: its cells, each a segment of a block, once for each lane."""
    block = Fraction(nbytes, card.vector_blocks(size))
    return len(schedule.scratch) * block / segments * lanes


@pytest.mark.case("MEM-SCRATCH")
@pytest.mark.parametrize("nbytes", [10 * MIB, 3000 * MIB + 1])
@pytest.mark.parametrize("limit", [4 * MIB, 256 * MIB])
def test_scratch_stays_within_its_limit(card, nbytes, limit):
    """On every rank, for every root; rounding of blocks and segments aside."""
    for size in served(card, (1, 2, 5, 8)):
        facts = Facts(card.collective, size, nbytes)
        segments, lanes = bounded(card, facts, 1, limit)
        assert 1 <= lanes <= segments
        for root in range(size) if card.row.rooted else (0,):
            for schedule in card.schedules(size, root):
                assert in_flight(schedule, card, size, nbytes, segments, lanes) <= limit


@pytest.mark.parametrize("wanted", [1, 8])
def test_scratch_that_packing_adds_is_within_the_limit_too(card, wanted):
    """Segments of blocks do not lie next to each other, so messages of many blocks travel packed."""
    size, nbytes, limit = 8, 256 * MIB, 16 * MIB
    segments, lanes = bounded(card, Facts(card.collective, size, nbytes), wanted, limit)
    if card.row.free or segments == 1:
        return
    for schedule in card.schedules(size):
        packed = pack(schedule, lambda ref: ref.buffer == "scratch" or len(ref) == 1)
        assert in_flight(packed, card, size, nbytes, segments, lanes) <= limit


def test_a_limit_that_is_not_reached_changes_nothing(card):
    facts = Facts(card.collective, 4, 1000)
    assert bounded(card, facts, 3, 1 << 28) == (3, 3)
    assert bounded(card, facts, 1, 1 << 28) == (1, 1)


def test_the_limit_is_met_with_fewer_lanes_or_smaller_segments():
    card, facts = get("reduce", "linear"), Facts("reduce", 8, 64 * MIB)
    assert bounded(card, facts, 16, 1 << 40) == (16, 4)
    for limit in (512 * MIB, 100 * MIB, 10 * MIB, 1 * MIB):
        segments, lanes = bounded(card, facts, 16, limit)
        worst = max(in_flight(s, card, 8, 64 * MIB, segments, lanes) for s in card.schedules(8))
        assert worst <= limit
        assert worst * 2.1 > limit or lanes == 4  # without waste


@pytest.mark.parametrize("limit", [0, -1, "0"])
def test_a_limit_of_nothing_is_refused_by_name(limit):
    with pytest.raises(ValueError, match="scratch_limit"), mpicoll.override(scratch_limit=limit):
        mpicoll.plan("reduce", size=4, nbytes=MIB, algorithm="linear")


@pytest.mark.case("BIGCOUNT")
def test_no_message_is_longer_than_mpi_counts(card):
    """Bytes of the vector bound those of every message."""
    nbytes = 5 * LARGEST_MESSAGE + 1
    segments, _ = bounded(card, Facts(card.collective, 4, nbytes), 1, 1 << 60)
    assert Fraction(nbytes, segments) <= LARGEST_MESSAGE
    assert LARGEST_MESSAGE < 1 << 31


def test_segments_are_as_small_as_asked_for(card):
    """Where an algorithm gains from being cut at all."""
    size, nbytes, wanted = 4, 64 * MIB, MIB
    if not pipelined(card.cost):
        return
    with mpicoll.override(segment_bytes=wanted):
        plan = mpicoll.plan(card.collective, size=size, nbytes=nbytes, algorithm=card.name)
    block = Fraction(nbytes, card.vector_blocks(size))
    assert wanted / 2 < block / plan.segments <= wanted


def test_short_vectors_are_not_cut():
    for collective in COLLECTIVES:
        assert mpicoll.plan(collective, size=4, nbytes=1000).segments == 1
