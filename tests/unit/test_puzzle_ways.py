"""The second puzzle's pure parts: terms of costs, what decides, and what the times say."""

import pytest

from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.puzzles.compare import ALONE, DIRECT, Outcome, against_direct, of_reduce_scatter, twice
from mpicoll.bench.puzzles.factors import Prediction, carries, predict
from mpicoll.bench.puzzles.options import parse
from mpicoll.bench.puzzles.run import refusal, unwritable
from mpicoll.dispatch.plan import plan

WAY = "reduce + bcast"


def test_a_prediction_is_the_sum_of_the_costs_by_factor():
    """A ring of 1 MiB: 6 messages one after the other, 3 reductions to launch, 1.5 MiB on a link, 0.75 to reduce."""
    found = predict(plans(("allreduce", "ring/1")))
    micro = {factor: round(seconds * 1e6) for factor, seconds in found.seconds.items()}
    assert micro == {"latency": 30, "launching": 6, "bandwidth": 393, "reduction": 131, "the call itself": 0}
    twice_that = predict(plans(("allreduce", "ring/1"), ("allreduce", "ring/1")))
    assert twice_that.total == pytest.approx(2 * found.total)


def test_what_each_rank_carries():
    assert carries("reduce", "linear", 4) == (3, 1, 1, 1)
    assert carries("bcast", "linear", 4) == (3, 1, 1, 1)
    assert carries("allreduce", "ring", 4) == (1.5,) * 4


def plans(*calls, p=4, n=1 << 20):
    return [plan(name, size=p, nbytes=n, algorithm=algorithm) for name, algorithm in calls]


def test_the_root_s_link_decides_where_the_root_carries_the_most():
    rooted = predict(plans(("reduce", "linear"), ("bcast", "linear")))
    ring = predict(plans(("allreduce", "ring")))
    assert (rooted.rooted, ring.rooted) == (True, False)
    assert rooted.largest[0] == rooted.beyond(ring) == "the root's link"
    assert ring.largest[0] == "bandwidth"
    assert ring.beyond(rooted) == ""


def test_latency_decides_short_calls():
    short = {"n": 8}
    way, direct = (
        predict(plans(("reduce_scatter", "ring"), ("allgather", "ring"), **short)),
        predict(plans(("allreduce", "one_shot"), **short)),
    )
    assert way.beyond(direct) == "latency"
    assert way.largest[0] == "latency"


def test_pipelined_rooted_calls_are_not_held_up_by_the_root():
    assert not predict(plans(("reduce", "ring/8"), ("bcast", "ring/8"))).rooted


def times(median, spread=0.1, number=9):
    return Statistics(median, spread, median, median, median, median, median, 0, number)


def prediction(latency, bandwidth, rooted=False):
    return Prediction({"latency": latency, "bandwidth": bandwidth}, rooted)


def outcome(nbytes, measured, expected):
    """Direct, reduce + bcast, and reduce_scatter alone: seconds measured and predicted."""
    names = DIRECT, WAY, ALONE
    return Outcome(nbytes, dict(zip(names, map(times, measured), strict=True)), dict(zip(names, expected, strict=True)))


SHORT = prediction(1.0, 0.0), prediction(2.0, 0.0, rooted=True), prediction(1.0, 0.0)
LONG = prediction(1.0, 10.0), prediction(2.0, 30.0, rooted=True), prediction(1.0, 5.0)


def test_sizes_with_the_same_reason_are_one_part_of_a_sentence():
    found = [outcome(n, (10, 20, 10), SHORT) for n in (8, 64)] + [outcome(1 << 20, (100, 250, 50), LONG)]
    assert against_direct(found) == [
        "reduce + bcast, beside direct: takes 2.0 x its time from 8 to 64 B (predicted 2.0 x; latency decides); "
        "takes 2.5 x its time at 1M B (predicted 2.9 x; the root's link decides)."
    ]


def test_times_within_their_spread_are_not_told_apart():
    (line,) = against_direct([outcome(8, (10, 10.4, 5), SHORT)])
    assert line == "reduce + bcast, beside direct: cannot be told apart from it at 8 B (predicted 2.0 x)."
    single = Outcome(8, {DIRECT: times(10, 0, 1), WAY: times(20, 0, 1)}, dict(zip((DIRECT, WAY), SHORT, strict=False)))
    assert single.equal(WAY)


def test_what_the_costs_do_not_predict_is_said():
    (line,) = against_direct([outcome(1 << 20, (250, 100, 50), LONG)])
    assert line.endswith("takes 0.4 x its time at 1M B (predicted 2.9 x; the costs do not say why).")


def test_where_a_reduce_scatter_is_twice_as_efficient():
    found = [
        outcome(8, (10, 20, 10), SHORT),
        outcome(1 << 20, (100, 250, 50), LONG),
        outcome(1 << 23, (900, 1, 500), LONG),
    ]
    assert of_reduce_scatter(found) == [
        '"reduce-scatter is 2x more efficient than all-reduce" holds at some sizes:',
        "  it does not hold at 8 B: 1.0x, predicted 1.0x; latency takes most of the reduce_scatter",
        "  it holds from 1M to 8M B: 1.8 to 2.0x, predicted 1.8x; bandwidth takes most of the reduce_scatter",
    ]
    assert of_reduce_scatter(found[:1])[0].endswith("is shown at no size:")
    assert of_reduce_scatter(found[1:])[0].endswith("holds at every size:")


def test_a_claim_without_any_verdict_is_not_called_wrong():
    measured = {DIRECT: times(200, 60), ALONE: times(100, 30)}
    open_ = Outcome(12, measured, dict(zip(measured, (SHORT[0], SHORT[2]), strict=True)))
    first, second = of_reduce_scatter([open_])
    assert first == '"reduce-scatter is 2x more efficient than all-reduce" cannot be told:'
    assert second.startswith("  the spread is too large to say at 12 B")
    assert of_reduce_scatter([open_, outcome(64, (10, 20, 10), SHORT)])[0].endswith("is shown at no size:")
    assert of_reduce_scatter([open_, outcome(64, (10, 20, 5), SHORT)])[0].endswith("holds at some sizes:")


def test_a_ratio_within_its_spread_of_a_bound_is_not_judged():
    def judged(direct, alone, spread):
        measured = {DIRECT: times(direct, spread * direct), ALONE: times(alone, spread * alone)}
        return twice(Outcome(8, measured, {}))

    assert [judged(200, alone, 0.01) for alone in (100, 140, 60)] == ["it holds"] + ["it does not hold"] * 2
    assert judged(200, 100, 0.3) == judged(200, 140, 0.2) == judged(200, 60, 0.3) == "the spread is too large to say"


def test_costs_that_hardly_differ_say_nothing():
    assert prediction(1.0, 10.0).beyond(prediction(1.0, 9.6)) == ""
    assert prediction(1.0, 10.0).beyond(prediction(1.0, 9.0)) == "bandwidth"


# The command lines.


def test_defaults_of_the_first_puzzle_are_the_document_s():
    found = parse(["topology"])
    assert (found.sizes, found.repeat, found.how.mode, found.how.iterations) == ((40_000_000,), 10, "topology", 5)


def test_sizes_and_ranks_of_the_second_one():
    found = parse(["allreduce-ways", "--bytes", "8-4K,1M", "--ranks", "4,2", "--ranks", "3", "--budget", "5"])
    assert found.sizes == (8, 64, 512, 4096, 1 << 20)
    assert (found.ranks, found.how.budget, found.how.iterations) == ((2, 3, 4), 5.0, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topology --bytes 8,16", "'8,16' is more than one size"),
        ("topology --bytes 0", "'0' is not a size or a range from 1 to 1G"),
        ("bandwidth --bytes 1M-1K", "'1M-1K': sizes go up, as 8-4M"),
        ("bandwidth --bytes 8-x", "'x' is not a number of bytes"),
        ("allreduce-ways --ranks 1", "'1': one rank has no other"),
        ("allreduce-ways --repeat 3", "unrecognized arguments: --repeat 3"),
        ("topology --repeat 0", "'0' is not a whole number from 1"),
    ],
)
def test_mistakes_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        parse(arguments.split())
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_what_cannot_be_served_is_said():
    assert "one rank has no other" in refusal(parse(["bandwidth"]), 1)
    assert refusal(parse(["allreduce-ways", "--ranks", "2,4"]), 3) == "--ranks 4: there are 3 ranks"
    assert refusal(parse(["allreduce-ways", "--ranks", "2,3"]), 3) == ""


def test_asking_whether_a_file_can_be_written_leaves_everything_as_it_was(tmp_path):
    kept, new = tmp_path / "kept.json", tmp_path / "new.png"
    kept.write_text("[]", encoding="utf-8")
    assert unwritable(parse(["topology", "--trace", str(kept), "--plot", str(new)])) == ""
    assert ([*tmp_path.iterdir()], kept.read_text(encoding="utf-8")) == ([kept], "[]")
    below = kept / "new.png"
    assert unwritable(parse(["topology", "--plot", str(below)])) == f"--plot {below}: Not a directory"
