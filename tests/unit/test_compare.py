"""The comparison of two benchmark runs: what noise does, and what a planted slowdown does."""

from pathlib import Path

import numpy as np
import pytest

import mpicoll
from mpicoll.__main__ import main
from mpicoll.bench.output.results import Results, read
from mpicoll.cli.compare import part
from mpicoll.compare.cells import Pair, differing, pairs
from mpicoll.compare.ranksum import adjusted, rank_sum
from mpicoll.compare.verdicts import blocks, change, common_factor, noise, normalized, too_noisy, verdicts

KEPT = Path(mpicoll.__file__).parent.parent / "bench" / "results" / "2026-11-28-baselines-2xH200.json"
CELLS = 60


def launch(random, spread, base=100.0, number=100):
    """Samples of one launch: a factor of its own, times that are longer by other work, and some outliers."""
    times = base * np.exp(random.normal(0, spread)) * np.exp(abs(random.normal(0, 0.1, number)))
    times[random.random(number) < 0.03] *= 5
    return times


def sides(seed, launches, spread, slower=lambda cell: 1.0):
    """Pairs of cells of one program on a noisy machine, the new side slower by a factor for each cell."""
    random = np.random.default_rng(seed)

    def side():
        return [launch(random, spread) for _ in range(launches)]

    return [Pair((cell,), side(), [slower(cell) * one for one in side()]) for cell in range(CELLS)]


def words(found):
    return [one.word for one in found]


@pytest.mark.parametrize("sizes", [(5, 5), (16, 16), (10, 48)])
@pytest.mark.parametrize("step", [1, 3, 100])
def test_the_rank_sum_test_is_that_of_scipy(sizes, step):
    """With ties, of which rounding makes many."""
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(step)
    one, other = (np.floor(random.exponential(300, size) / step) + k for k, size in enumerate(sizes))
    wanted = stats.mannwhitneyu(one, other, method="asymptotic", use_continuity=True).pvalue
    assert rank_sum(one, other) == pytest.approx(wanted, rel=1e-9)


def test_sets_without_a_difference_have_every_chance():
    assert rank_sum(np.ones(9), np.ones(7)) == 1.0
    assert rank_sum(np.arange(3.0), np.arange(3.0)) == 1.0


def test_chances_are_adjusted_as_scipy_does():
    stats = pytest.importorskip("scipy.stats")
    chances = [0.03, 0.001, 0.8, 0.02, 0.02]
    assert adjusted(chances) == pytest.approx(stats.false_discovery_control(chances))


def test_samples_are_put_into_blocks_in_their_order():
    found = blocks([np.arange(160.0), np.arange(3.0)])
    assert list(found) == [4.5 + 10 * k for k in range(16)] + [0.0, 1.0, 2.0]


def test_a_change_is_the_smaller_one_of_the_medians_and_of_the_fastest_tenth():
    """A burst of other work makes most samples longer, not the fastest ones."""
    calm = np.full(100, 10.0)
    burst = np.where(np.arange(100) < 80, 40.0, 11.0)
    assert np.exp(change(Pair((), [calm], [burst]))) == pytest.approx(1.1)
    assert np.exp(change(Pair((), [burst], [calm]))) == pytest.approx(1 / 1.1)
    assert change(Pair((), [calm], [np.where(np.arange(100) < 80, 40.0, 9.0)])) == 0.0


@pytest.mark.parametrize(("launches", "spread"), [(1, 0.01), (1, 0.05), (3, 0.02), (3, 0.05)])
def test_two_runs_of_one_program_are_the_same(launches, spread):
    for seed in range(5):
        assert set(words(verdicts(sides(seed, launches, spread), 0.05))) == {"same"}


@pytest.mark.parametrize(("launches", "spread"), [(1, 0.01), (3, 0.02)])
@pytest.mark.parametrize(("factor", "word"), [(1.2, "slower"), (1 / 1.2, "faster")])
def test_a_planted_change_is_found_and_nothing_else(launches, spread, factor, word):
    planted = {3, 17, 41}
    for seed in range(5):
        found = words(verdicts(sides(seed, launches, spread, lambda cell: factor if cell in planted else 1.0), 0.05))
        assert {cell for cell, one in enumerate(found) if one == word} == planted
        assert found.count("same") == CELLS - len(planted)


def test_a_change_below_the_threshold_does_not_count():
    found = sides(1, 3, 0.01, lambda cell: 1.12 if cell == 5 else 1.0)
    assert words(verdicts(found, 0.05))[5] == "slower"
    assert words(verdicts(found, 0.15))[5] == "same"


def test_many_cells_that_changed_do_not_hide_each_other_where_launches_tell_the_noise():
    found = words(verdicts(sides(2, 3, 0.02, lambda cell: 1.0 + 0.5 * (cell % 2)), 0.05))
    assert found == ["same", "slower"] * (CELLS // 2)


def test_a_cell_whose_launches_differ_needs_more():
    found = sides(3, 3, 0.02, lambda cell: 1.2 if cell in (5, 6) else 1.0)
    wild = Pair((5,), [one * k for one, k in zip(found[5].old, (0.8, 0.6, 1.0), strict=True)], found[5].new)
    assert words(verdicts([*found[:5], wild, *found[6:]], 0.05))[5:7] == ["same", "slower"]


def test_a_few_samples_tell_nothing():
    found = sides(7, 1, 0.01)
    three, many = (Pair((k,), [np.arange(n) + 100.0], [np.arange(n) + 200.0]) for k, n in enumerate((3, 12)))
    assert words(verdicts([three, many, *found[2:]], 0.05))[:2] == ["same", "slower"]


def test_a_factor_of_all_cells_is_found_and_can_be_taken_out():
    found = sides(4, 3, 0.02, lambda cell: 1.5 if cell == 9 else 1.25)
    factor = common_factor(found)
    assert factor == pytest.approx(1.25, rel=0.02)
    assert set(words(verdicts(found, 0.05))) == {"slower"}
    left = words(verdicts(normalized(found), 0.05))
    assert [cell for cell, one in enumerate(left) if one != "same"] == [9]


def test_what_all_cells_of_a_launch_have_in_common_can_be_taken_out():
    """A processor that is faster for a while: a change that its launches hide is found without it."""
    found = [
        Pair(one.key, [t * k for t, k in zip(one.old, (1.0, 0.6, 1.1), strict=True)], one.new)
        for one in sides(9, 3, 0.02, lambda cell: 1.25 if cell == 9 else 1.0)
    ]
    assert set(words(verdicts(found, 0.05))) == {"same"}
    left = words(verdicts(normalized(found), 0.05))
    assert [cell for cell, one in enumerate(left) if one == "slower"] == [9]


def test_noise_that_doubles_times_hides_everything_and_is_said():
    found = verdicts(sides(5, 2, 1.0, lambda cell: 20.0 if cell == 7 else 1.0), 0.05)
    assert (set(words(found)), too_noisy(found)) == ({"same"}, True)
    assert not too_noisy(verdicts(sides(5, 2, 0.02), 0.05))


def test_noise_of_one_launch_a_side_is_that_of_most_cells():
    few = noise(sides(6, 1, 0.02, lambda cell: 5.0 if cell < 5 else 1.0))
    assert few == pytest.approx(noise(sides(6, 1, 0.02)), rel=0.4)
    assert few < noise(sides(6, 1, 0.1))
    assert noise(sides(6, 1, 0.02, lambda cell: 1.25)) == pytest.approx(noise(sides(6, 1, 0.02)), rel=0.2)


def halves(factor=lambda number: 1.0):
    """Two runs of a kept file: the first half of the samples of each row, and the second half."""
    found = []
    for half in range(2):
        file = read(KEPT)
        for number, row in enumerate(file["rows"]):
            mine = np.array_split(row["times"]["mpicoll"]["samples"], 2)[half]
            row["times"]["mpicoll"]["samples"] = list(mine * (factor(number) if half else 1.0))
        found.append(file)
    return found


def test_the_two_halves_of_a_recorded_run_are_the_same():
    first, second = halves()
    found, alone = pairs([first], [second])
    assert (len(found), alone) == (96, 0)
    assert set(words(verdicts(found, 0.05))) == {"same"}


def test_a_slowdown_that_is_planted_into_a_recorded_run_is_found():
    """Rows that are noisy by themselves may hide 20 %, none of those that are not planted is found."""
    first, second = halves(lambda number: 1.2 if number % 9 == 3 else 1.0)
    found = words(verdicts(pairs([first], [second])[0], 0.05))
    slower = {number for number, word in enumerate(found) if word == "slower"}
    assert slower <= {number for number in range(96) if number % 9 == 3}
    assert len(slower) >= 9
    assert "faster" not in found


def test_cells_that_not_all_files_have_are_counted_and_launches_kept_apart():
    def file(*cells):
        return {"rows": [{"op": op, "times": {"mpicoll": {"samples": times}}} for op, times in cells]}

    old = [file(("a", [1.0]), ("b", [2.0])), file(("a", [3.0]), ("a", [4.0]))]
    (one,), alone = pairs(old, [file(("a", [5.0]), ("b", [6.0]), ("c", [6.0]), ("d", []))])
    assert ([list(found) for found in one.old], [list(found) for found in one.new]) == ([[1.0], [3.0, 4.0]], [[5.0]])
    assert alone == 2


def test_facts_in_which_the_sides_differ_are_named():
    old, new = [{"facts": {"cpu": "A", "ranks": 4}}] * 2, [{"facts": {"cpu": "B", "ranks": 4}}]
    assert list(differing(old, new, ("cpu", "ranks"))) == [("cpu", "A", "B")]


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.2", 0.2), ("0%", 0.0)])
def test_a_threshold_is_a_part(text, value):
    assert part(text) == pytest.approx(value)


@pytest.fixture
def files(tmp_path):
    """Write launches of both sides, the new ones slower by a factor in one cell; return the two arguments."""

    def write(factor, spread=0.01, launches=2):
        found = sides(8, launches, spread, lambda cell: factor if cell == 2 else 1.0)
        names = []
        for side, one_side in (("old", [one.old for one in found]), ("new", [one.new for one in found])):
            for number in range(launches):
                results = Results(tmp_path / f"{side}{number}.json")
                results.begin(mode="times", facts={"cpu": side if factor == 3 else "same"})
                for cell, of_launches in enumerate(one_side):
                    times = {"mpicoll": {"samples": list(of_launches[number])}}
                    results.add("row", mode="times", op="bcast", bytes=cell, asked="ring", times=times)
                results.end(verdict="OK")
            names.append(",".join(str(tmp_path / f"{side}{number}.json") for number in range(launches)))
        return names

    return write


def test_the_gate_fails_where_a_cell_is_slower(files, capsys):
    slower, same = files(1.3), ["compare", "--gate"]
    assert main([*same, *slower]) == 1
    out = capsys.readouterr().out
    assert "# 1 slower, 0 faster, 59 the same" in out
    (line,) = [line for line in out.splitlines() if line.startswith("bcast")]
    assert line.split()[1] == "2"
    assert line.split()[-1] == "slower"
    assert main([*same, *reversed(slower)]) == 0
    assert "# 0 slower, 1 faster, 59 the same" in capsys.readouterr().out
    assert main(["compare", *slower]) == 0


def test_nothing_is_listed_where_nothing_changed_unless_all_is_asked_for(files, capsys):
    same = files(1.0)
    assert main(["compare", "--gate", *same]) == 0
    assert "bcast" not in capsys.readouterr().out
    main(["compare", "--all", *same])
    assert capsys.readouterr().out.count("bcast") == CELLS


def test_a_gate_that_noise_hides_does_not_pass(files, capsys):
    assert main(["compare", "--gate", *files(1.0, spread=1.0)]) == 3
    assert "# too noisy to tell anything" in capsys.readouterr().out


def test_other_machines_and_single_launches_are_said(files, capsys):
    main(["compare", *files(3, launches=1)])
    out = capsys.readouterr().out
    assert "# cpu: old, now new" in out
    assert "# one launch tells little about noise" in out


def test_what_cannot_be_compared_is_refused_in_a_line(files, tmp_path, capsys):
    old, new = files(1.0)
    assert main(["compare", old, new, "--threshold", "much"]) == 2
    assert "--threshold much: a part such as 5% or 0.05" in capsys.readouterr().err
    results = Results(tmp_path / "none.json")
    results.begin(mode="overlap", facts={})
    results.end(verdict="measured")
    assert main(["compare", old, str(tmp_path / "none.json")]) == 2
    assert "no cell has samples in all files" in capsys.readouterr().err
