"""The sub-commands that draw, cost and simulate, as a user calls them."""

import json
import subprocess
import sys

import pytest

import mpicoll
from mpicoll.__main__ import main
from mpicoll.cli.colours import styles
from mpicoll.pictures.units import size_text, time_text


@pytest.fixture
def said(capsys):
    """The output of a command, whose status must be 0."""

    def call(line):
        assert main(line.split()) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def refused(capsys):
    """The complaint of a command, whose status must be 2."""

    def call(line):
        assert main(line.split()) == 2
        return capsys.readouterr().err

    return call


def test_a_collective_is_shown_before_and_after(said):
    text = said("show gather --ranks 3 --root 1")
    assert "gather (Gather, Gatherv) on 3 ranks, root 1" in text
    assert "  1*    . 1 .     0 1 2" in text
    assert "algorithms: linear, binomial, ring" in text


def test_an_algorithm_is_shown_with_its_cost_in_numbers(said):
    text = said("show allreduce ring --ranks 8 --bytes 1M --machine host")
    assert "= 14 α + 1.75 n β" in text
    assert "β rules: bandwidth" in text
    assert "no algorithm takes less than" in text
    assert "allreduce ring on 8 ranks: 14 rounds, 112 messages" in text


def test_segments_and_the_chart_are_shown(said):
    assert "in 8 segments: 14 rounds, 56 messages" in said("show bcast ring/8 --ranks 8 --chart")


def test_a_chart_is_printed_beside_a_page(said, tmp_path):
    text = said(f"show bcast ring/8 --ranks 8 --chart --html {tmp_path / 'ring.html'}")
    assert "written:" in text
    assert "56 of 98 places used" in text


def test_only_the_steps_that_are_asked_for_are_printed(said):
    text = said("show allgather ring --rank 2 --round 1 --steps")
    assert "rank 2:\nstep 0" in text
    assert "rank 0:" not in text
    assert "steps" not in said("show allgather ring --brief")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("show nothing", "no collective 'nothing'"),
        ("show bcast ring --ranks 4 --root 4", "the ranks are 0 to 3"),
        ("show bcast ring/0", "the number of segments is at least 1"),
        ("show bcast ring --round 9", "no round 9"),
        ("show bcast ring --hosts 0-1,3", "each of the ranks 0 to 3 is on one host"),
        ("show allgather recursive_doubling --ranks 6", "power-of-two"),
        ("simulate bcast ring --machine moon", "no machine 'moon'"),
        ("simulate messages 0-1", "are no messages such as '0>1,0>2', in quotes"),
        ("simulate allgather recursive_doubling --ranks 6", "power-of-two"),
        ("simulate bcast ring --machine torus_4x4 --ranks 8", "has 16 ranks, not 8"),
        ("ways --ranks 1", "needs no way"),
        ("ways --ranks 16 --machine hybrid_cube_mesh", "this machine has 8 ranks, not 16"),
        ("show bcast ring/99999", "the number of segments is at least 1"),
        ("show bcast ring/9999 --ranks 2", "at most 4096 segments can be drawn"),
        ("show bcast --svg /nowhere/x.svg", "No such file"),
        ("show bcast --html x.html", "--html needs an algorithm"),
        ("show bcast ring --html x.html --rank 1", "leave out --rank and --round"),
        ("show bcast ring --ranks 2 --round 7 --svg x.svg", "no round 7; they are 0 to 0"),
        ("show bcast ring --ranks 0", "from 1 to"),
        ("show bcast ring --rank 3-1", "numbers go up"),
        ("simulate bcast ring --ranks 99999999999", "numbers go up, to 1048576 at most"),
        ("simulate bcast ring --root 9", "--root 9: the ranks are 0 to 7"),
        ("simulate bcast ring --ranks 0", "the ranks are 0 to -1"),
        ("simulate messages 0>0", "a message goes to another rank"),
        ("simulate messages 0>1 --bytes 8,16", "messages have one size"),
        ("simulate bcast ring,linear --path", "--path and --timeline are for one algorithm"),
        ("simulate bcast ring --timeline /nowhere/x.svg", "No such file"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_line(refused, line, complaint):
    text = refused(line)
    assert complaint in text
    assert text.count("\n") == 1


def test_a_rank_alone_has_no_cost(said):
    assert "a rank alone sends no message" in said("show exscan linear --ranks 1")
    text = said("simulate bcast linear --ranks 1")
    assert "cost formula" not in text
    assert "time           0" in text


def test_formulas_say_that_they_know_no_topology(said):
    note = "knows no topology"
    assert note in said("show allreduce two_shot --ranks 16 --machine h100_infiniband --brief")
    assert note not in said("show allreduce two_shot --machine dgx_h100 --brief")
    assert "The formulas know no topology" in said("ways --ranks 16 --machine h100_infiniband --bytes 1M")


def test_a_barrier_has_no_bytes_and_no_local_work(said):
    text = said("simulate barrier dissemination --ranks 5 --machine dgx_h100")
    assert text.startswith("barrier dissemination on 5 ranks, on dgx_h100")
    assert "time           15 us" in text
    assert "0 of local work" in text or "local work 0%" in text


def test_what_every_call_costs_is_a_part_of_the_path(said):
    assert "the call 98%" in said("simulate allreduce one_shot --ranks 4 --bytes 8 --machine h200_kernels")


def test_a_source_may_have_brackets(said, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"alpha": 1e-6, "bandwidth": 1e9, "source": "[red]x[/red] [/]"}))
    assert "[red]x[/red] [/]" in said(f"ways --ranks 4 --bytes 8,1M --machine {file}")
    assert "[red]x[/red] [/]" in said(f"simulate bcast linear,ring --machine {file}")


def test_a_simulation_says_where_the_time_goes(said):
    text = said("simulate allreduce ring --ranks 4 --bytes 1M --machine host --path")
    assert "critical path  6 messages, 3 of local work" in text
    assert text.count("256 KiB") >= 6


def test_many_simulations_are_a_table_with_the_fastest_marked(said):
    text = said("simulate bcast linear,binomial --ranks 4,8 --bytes 8 --machine ethernet")
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert rows["linear"].count("*") == 2  # 2 us a further message, 25 us a round
    assert rows["lower"].count("us") == 2


def test_all_algorithms_that_can_serve_are_simulated(said):
    text = said("simulate allgather --ranks 6 --bytes 8 --machine host")
    assert "neighbor_exchange" in text
    assert "recursive_doubling" not in text


def test_messages_of_the_puzzle_have_three_speeds(said):
    text = said("simulate messages 0>3,0>1,0>5 --bytes 400M --machine hybrid_cube_mesh")
    speeds = [line.split()[-1] for line in text.splitlines() if line.startswith("0>")]
    assert speeds == ["50", "25", "16"]


def test_a_timeline_is_printed(said):
    text = said("simulate bcast linear --ranks 3 --machine host --timeline")
    assert "   2  ." in text


def test_machines_are_listed_with_their_sources(said):
    text = said("simulate machines")
    assert "dgx_h100" in text
    assert "data sheet" in text


def test_a_machine_of_ones_own_is_simulated(said, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"alpha": 1e-3, "bandwidth": 1e9}))
    assert "time           2 ms" in said(f"simulate bcast binomial --ranks 4 --bytes 0 --machine {file}")


def test_three_ways_are_compared_with_their_crossovers(said):
    text = said("ways --ranks 4 --bytes 8,1K,1M --machine ethernet")
    assert "reduce_scatter + allgather" in text
    assert "what rules" in text
    assert "α: latency" in text


def test_sizes_and_times_are_short():
    assert [size_text(n) for n in (8, 1024, 65536, 1835008, 1 << 30)] == ["8 B", "1 KiB", "64 KiB", "1.75 MiB", "1 GiB"]
    assert [time_text(s) for s in (2.0, 0.0384, 12e-6, 3e-9)] == ["2 s", "38.4 ms", "12 us", "3 ns"]


def test_complete_blocks_are_green_and_missing_ones_dim():
    found = {style for _, _, style in styles("  1     ✓ . 01")}
    assert found == {"bold green", "dim", "cyan"}
    assert styles("round 0: 0>1 b0") == [(0, 7, "bold")]


def test_a_plan_is_printed_with_its_candidates(said):
    text = said("plan allreduce --ranks 8 --bytes 1M --memory device --tuning model")
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith("allreduce of 1M on 8 ranks (device arrays, rank 0)\ntwo_shot, 1 segment, path mapped")
    (chosen,) = [line for line in text.splitlines() if line.startswith("*")]
    assert chosen.split() == ["*", "two_shot/1@mapped", "21.8", "chosen"]
    assert "by message size on 8 ranks: one_shot@mapped, from 28K on two_shot@mapped\n" in text
    assert "one_shot/1@mapped" in text


def test_many_plans_are_a_line_each(said):
    text = said("plan Reduce --ranks 2,8 --bytes 8,5G --root 1 --tuning model")
    lines = [line.split() for line in text.splitlines() if line.endswith("the cost model")]
    assert [(ranks, size) for ranks, size, *_ in lines] == [("2", "8"), ("2", "5G"), ("8", "8"), ("8", "5G")]
    assert lines[-1][2] == "double_binary_tree/32@host"
    assert text.count("by message size on ") == 2
    assert max(map(len, text.splitlines())) <= 100


def test_a_call_without_a_choice_of_sizes_has_one_plan(said):
    assert said("plan Gatherv").startswith("gather of unknown size on 4 ranks (host arrays, rank 0, root 0)\n")
    assert said("plan barrier --bytes 8,64").startswith("barrier of 0 bytes on 4 ranks (host arrays, rank 0)\n")


def test_a_plan_says_what_a_table_measured(said, tmp_path):
    file = tmp_path / "mine"
    file.write_text("measured:bcast:1M:p=4:mem=host:ring/2=300:linear/1=250.5\nbcast:linear\n", encoding="utf-8")
    rows = [line.split() for line in said(f"plan bcast --tuning {file}").splitlines()]
    assert next(row[3] for row in rows if row[:2] == ["*", "linear/1@host"]) == "250.5"
    assert next(row[2:] for row in rows if row[:1] == ["ring/2@host"]) == ["300.0", "19.8", "%", "slower,", "measured"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("plan nothing", "no collective 'nothing'"),
        ("plan bcast --ranks 0", "--ranks 0: from 1 to"),
        ("plan bcast --root 4", "bcast: root 4 is out of range for 4 ranks"),
        ("plan bcast --bytes 1Q", "is not a number of bytes"),
        ("plan bcast --algorithm rings", "no algorithm 'rings'"),
        ("plan allgather --ranks 6 --algorithm recursive_doubling", "needs a power-of-two number of ranks, got 6"),
        ("plan bcast --tuning nowhere", "the setting `tuning`, nowhere: No such file"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_a_line(refused, line, complaint):
    text = refused(line)
    assert complaint in text
    assert text.count("\n") == 1


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"{mpicoll.__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--help"], ["--operation", "bcast"], ["bandwidth", "--help"]])
def test_the_benchmark_is_a_sub_command_too(options):
    """Its own parser hears the rest; the second command line is a mistake."""
    said = []
    for start in (["mpicoll", "bench"], ["mpicoll.bench"]):
        command = [sys.executable, "-m", *start, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        said.append((done.returncode, done.stdout, done.stderr.splitlines()[-1:]))
    assert said[0] == said[1]
    assert said[0][0] == (0 if "--help" in options else 2)


def test_the_benchmark_is_listed(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "bench" in capsys.readouterr().out
