"""The benchmark on every rank: what it refuses or leaves out, and how a run that cannot go on ends."""

import pytest
from mpi4py import MPI

import mpicoll
from mpi.benching import bench, results
from mpicoll.bench.measure.budget import Budget
from mpicoll.bench.output.results import read
from mpicoll.bench.run import run

WORLD = MPI.COMM_WORLD
LAST = WORLD.size - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--op exscan --algorithm rings", "exscan: no algorithm 'rings'; known: "),
        ("--op gatherv --algorithm binomial", "usable: linear"),
        ("--op bcast --algorithm linear@direct", "path 'direct' cannot serve host arrays here"),
        ("--op allreduce --redop AVG --dtype int8", "allreduce: AVG is not defined for int8"),
        ("--op bcast --root 1000", "root 1000 is out of range"),
        ("--op bcast --json /no/such/folder/file", "--json /no/such/folder/file: No such file or directory"),
        ("--op bcast --json .", "--json .: Is a directory"),
        ("--op bcast --json /dev/full", "--json /dev/full: No space left on device"),
        ("--op bcast --sizes 8,8T", "messages of 8T do not fit: no rank has more than "),
        ("--op bcast --max 8T", "messages of 8T do not fit"),
        ("--op bcast,exscan --algorithm linear,rings", "bcast: no algorithm 'rings'; known: "),
        ("--op bcast --algorithm linear/0", "--algorithm linear/0: the number of segments is at least 1"),
    ],
)
def test_what_cannot_be_served_is_said_once(capfd, arguments, message):
    assert bench(arguments) == 2
    err = capfd.readouterr().err
    assert (err.count("mpicoll.bench: "), message in err) == ((1, True) if WORLD.rank == 0 else (0, False))


def test_a_refusal_of_the_library_on_one_rank_is_everyone_s(monkeypatch, capfd):
    right = mpicoll.Communicator.Get_plan

    def refuse(self, *arguments, **named):
        if self.rank == LAST:
            raise mpicoll.UnsupportedError("not today")
        return right(self, *arguments, **named)

    monkeypatch.setattr(mpicoll.Communicator, "Get_plan", refuse)
    assert bench("--op allreduce") == 2
    if WORLD.rank == 0:
        what = "auto: not today" if WORLD.size == 1 else f"auto: rank {LAST}: not today"
        assert f"mpicoll.bench: nothing can be measured: allreduce: {what}" in capfd.readouterr().err


def test_a_refused_algorithm_is_left_out_and_the_others_are_measured(folder, capfd):
    """By the call, since there is no such algorithm for it or it passes blocks on, and by the path of its arrays."""
    status, found = results(folder, "--op gather,gatherv,scan --algorithm linear,binomial,linear@direct --max 8")
    assert status == 0
    measured = {(row["op"], row["algorithm"], row["path"]) for row in found["rows"]}
    assert measured >= {("gather", "linear", "host"), ("gather", "binomial", "host"), ("gatherv", "linear", "host")}
    assert {(op, path) for op, _, path in measured} <= {("gather", "host"), ("gatherv", "host"), ("scan", "host")}
    assert ("gatherv", "binomial", "host") not in measured
    refused = {(one["what"], one["name"]): one["reason"] for one in found["refused"]}
    assert "whose counts not all ranks know" in refused["gatherv", "binomial:"]
    assert refused["gather", "linear@direct:"].startswith("path 'direct' cannot serve host arrays here")
    if WORLD.rank == 0:
        out = capfd.readouterr().out
        assert out.count("# left out: gather: linear@direct: path 'direct' cannot serve") == 1


def test_every_mode_leaves_out_what_is_refused(folder):
    for mode in ("--overhead", "--breakdown", "--async"):
        words = f"{mode} --op bcast --algorithm linear@direct,linear --sizes 8 --buffers numpy --iters 3"
        status = run([*words.split(), "--warmup", "0", "--json", str(folder / "mode.json")])
        found = WORLD.bcast(read(folder / "mode.json") if WORLD.rank == 0 else None, root=0)
        assert (status, [row["algorithm"] for row in found["rows"]]) == (0, ["linear"])
        assert [one["name"] for one in found["refused"]] == ["linear@direct:"]


def test_an_algorithm_that_is_not_proven_is_left_out(monkeypatch, folder):
    """A user's, whose proof fails where it is first asked for at this number of ranks."""
    right = mpicoll.Communicator.Get_plan

    def prove(self, *arguments, algorithm=None, **named):
        if algorithm == "binomial":
            raise mpicoll.ScheduleError("bcast.binomial, size 18, root 0, rank 1: receives block 0 twice")
        return right(self, *arguments, algorithm=algorithm, **named)

    monkeypatch.setattr(mpicoll.Communicator, "Get_plan", prove)
    status, found = results(folder, "--op bcast --algorithm binomial,linear --max 64")
    assert (status, {row["algorithm"] for row in found["rows"]}) == (0, {"linear"})
    (refused,) = found["refused"]
    assert refused["reason"] == "bcast.binomial, size 18, root 0, rank 1: receives block 0 twice"


def test_a_run_that_measures_nothing_is_no_success(folder, monkeypatch, capfd):
    def refuse(self, *arguments, **named):
        raise mpicoll.UnsupportedError("bcast: not today")

    monkeypatch.setattr(mpicoll.Communicator, "Get_plan", refuse)
    status, found = results(folder, "--op bcast --max 8")
    assert (status, found["rows"], found["end"]["measured"]) == (2, [], 0)
    assert found["end"]["verdict"] == "nothing"
    if WORLD.rank == 0:
        assert "mpicoll.bench: nothing can be measured: bcast: auto: not today" in capfd.readouterr().err


def test_a_refused_request_leaves_the_results_of_before(folder):
    file = folder / "kept.json"
    if WORLD.rank == 0:
        file.write_text("kept")
    WORLD.Barrier()
    for arguments in ("--op bcast --root 1000", "--op bcast --algorithm rings", "--op bcast --sizes 8T"):
        assert bench(f"{arguments} --json {file}") == 2
        assert file.read_text() == "kept"
        assert bench(f"{arguments} --json {folder / 'new.json'}") == 2
        assert not (folder / "new.json").exists()


def test_a_run_ends_when_its_budget_is_spent_and_says_so(folder, monkeypatch, capfd):
    """After the first case; what it measured is in the file."""
    calls = []

    def spent(self):
        calls.append(1)
        return len(calls) > 1

    monkeypatch.setattr(Budget, "spent", spent)
    status, found = results(folder, "--op allreduce --min 8 --max 64 --budget 5")
    assert (status, found["end"]["verdict"], len(found["rows"])) == (3, "interrupted", 2)
    assert (found["end"]["measured"], found["end"]["of"]) == (2, 4)
    if WORLD.rank == 0:
        said = "# interrupted after 2 of 4 measurements (the budget of 5 s is spent, 2 are left out), wrong elements: 0"
        assert said in capfd.readouterr().out
