"""Who chooses: the call, the communicator, the setting, the table, the cost model, in this order."""

import re

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import bound_plans, check
from mpi.cases import Case
from mpicoll.algorithms import registry

X, Y = np.zeros(16, "f4"), np.zeros(16, "f4")
SIZE = MPI.COMM_WORLD.Get_size()


@pytest.fixture
def made():
    """Makes communicators with rules of their own, and frees them."""
    comms = []

    def make(rules=None):
        comms.append(mpicoll.Communicator(MPI.COMM_WORLD.Dup(), algorithms=rules))
        return comms[-1]

    yield make
    for comm in comms:
        comm.Free()


def chosen(comm, **named):
    plan = comm.Get_plan("Allreduce", X, Y, **named)
    return plan.algorithm, plan.reason


def test_the_first_that_speaks(made):
    ruled, free = made("allreduce:binomial"), made()
    with mpicoll.override(algorithms="allreduce:linear"):
        assert chosen(ruled, algorithm="one_shot") == ("one_shot", "algorithm= in the call")
        assert chosen(ruled) == ("binomial", "the communicator's rules: allreduce:binomial")
        assert chosen(free) == ("linear", "the setting `algorithms`: allreduce:linear")
    _, reason = chosen(free)
    assert reason.startswith(("tuning table", "cost model"))


@pytest.mark.parametrize("who", ["call", "communicator", "setting"])
def test_what_is_chosen_runs(made, who):
    comm = made("allreduce:two_shot/2" if who == "communicator" else None)
    with mpicoll.override(algorithms="allreduce:two_shot/2" if who == "setting" else ""):
        check(comm, Case("Allreduce", "two_shot/2" if who == "call" else None, 20))
    plans = [key[0] for key in bound_plans(comm)]
    assert [(p.algorithm, p.segments) for p in plans] == [("two_shot", 2)]


def test_a_tuning_file(made, tmp_path_factory):
    """Rules of a file come after all that was asked for, and before the cost model."""
    folder = MPI.COMM_WORLD.bcast(str(tmp_path_factory.mktemp("tuning")) if MPI.COMM_WORLD.rank == 0 else None)
    file = f"{folder}/table"
    if MPI.COMM_WORLD.rank == 0:
        with open(file, "w") as out:  # noqa: PTH123
            out.write("allreduce:0-64:binomial  # 16 floats are 64 bytes\nallreduce:64-inf:linear\n")
    MPI.COMM_WORLD.Barrier()
    with mpicoll.override(tuning=file):
        comm = made()
        assert chosen(comm) == ("linear", f"tuning table {file}: allreduce:64-inf:linear")
        assert comm.Get_plan("Allreduce", X[:15], Y[:15]).algorithm == "binomial"
        assert chosen(comm, algorithm="ring")[0] == "ring"


@pytest.mark.case("TUNE-SIZE")
@pytest.mark.parametrize(("count", "algorithm"), [(15, "linear"), (16, "binomial"), (31, "binomial"), (32, "one_shot")])
def test_boundaries_are_exact(made, count, algorithm):
    """In bytes of the vector; the lower bound is included, the upper one is not."""
    comm = made("allreduce:0-64:linear;allreduce:64-128:binomial;allreduce:128-inf:one_shot")
    x, y = np.zeros(count, "f4"), np.zeros(count, "f4")
    assert comm.Get_plan("Allreduce", x, y).algorithm == algorithm


def test_rules_for_numbers_of_ranks(made):
    other = f"allreduce:p={SIZE + 1}:linear;"
    assert chosen(made(other + f"allreduce:p={SIZE}:binomial"))[0] == "binomial"
    assert chosen(made(other + "allreduce:p=1-64:one_shot"))[0] == "one_shot"
    assert chosen(made(other + "allreduce:mem=device:ring;allreduce:mem=host:two_shot"))[0] == "two_shot"


def test_rules_name_what_they_serve(made):
    """One rule serves a collective and its v-variant, where the algorithm can."""
    comm = made("gather:linear;allgatherv:ring;reduce_scatter_block:pairwise")
    one, many = np.zeros(1), np.zeros(SIZE)
    assert comm.Get_plan("Gatherv", one, [many, [1] * SIZE]).algorithm == "linear"
    assert comm.Get_plan("Allgather", one, many).algorithm == "ring"
    assert comm.Get_plan("Reduce_scatter", many, one, [1] * SIZE).algorithm == "pairwise"


def test_same_choice_on_all_ranks(world):
    one, many = np.zeros(100), np.zeros(100 * SIZE)
    calls = {
        "Bcast": (one, 0),
        "Reduce": (one, np.zeros(100)),
        "Gather": (one, many),
        "Scatter": (many, one),
        "Gatherv": (one, [many, [100] * SIZE]),
        "Alltoall": (many, np.zeros(100 * SIZE)),
        "Alltoallv": ([many, [100] * SIZE], [np.zeros(100 * SIZE), [100] * SIZE]),
        "Scan": (one, np.zeros(100)),
        "Barrier": (),
    }
    plans = [world.Get_plan(method, *arguments) for method, arguments in calls.items()]
    choices = [(p.algorithm, p.segments, p.lanes, p.path, p.reason) for p in plans]
    assert len(set(map(tuple, MPI.COMM_WORLD.allgather(choices)))) == 1


def test_get_plan_sends_nothing(world):
    """One rank asks, the others do not know of it."""
    world.Barrier()
    if world.rank == SIZE - 1:
        for _ in range(3):
            plan = world.Get_plan("Allreduce", X, Y, op=MPI.MAX)
            assert plan.algorithm in str(plan)
    check(world, Case("Allreduce"))


def test_get_plan_says_why_others_were_not_taken(world):
    text = str(world.Get_plan("Allgather", X, np.zeros(16 * SIZE, "f4")))
    assert f"allgather of {64 * SIZE if SIZE < 16 else '1K'}" in text.replace("K bytes", "K")
    for card in (card for card in registry.known("allgather") if not card.by_hosts):
        assert card.name in text
        assert (why := card.refuses(SIZE)) is None or why in text


def test_get_plan_takes_the_arguments_of_the_call(world):
    plan = world.Get_plan("Reduce", X, Y if world.rank == SIZE - 1 else None, MPI.SUM, root=SIZE - 1)
    assert plan.key.root == SIZE - 1
    with pytest.raises(ValueError, match=f"^reduce: root {SIZE} is out of range for {SIZE} ranks$"):
        world.Get_plan("Reduce", X, Y, root=SIZE)
    with pytest.raises(ValueError, match=r"^no collective method 'Allreduces'; known: Barrier, Bcast, "):
        world.Get_plan("Allreduces", X, Y)


def test_rules_that_cannot_be_read(world):
    with pytest.raises(ValueError, match=r"^rule 'allreduce:rings': allreduce: no algorithm 'rings'; known: "):
        mpicoll.Communicator(MPI.COMM_WORLD, algorithms="allreduce:rings")
    with (
        mpicoll.override(algorithms="allreduces:ring"),
        pytest.raises(
            ValueError, match=r"^the setting `algorithms`: rule 'allreduces:ring': no collective 'allreduces'; known: "
        ),
    ):
        world.Allreduce(X, Y)
    check(world, Case("Allreduce"))


@pytest.mark.parametrize("who", ["call", "communicator", "setting"])
def test_forced_but_impossible_is_an_error(made, who):
    """There is no silent fallback, at any level."""
    rule, text = "gather:binomial", "gather: 'binomial' passes on other ranks' blocks"
    comm = made(rule if who == "communicator" else None)
    arguments = np.zeros(1), [np.zeros(SIZE), [1] * SIZE]
    with (
        mpicoll.override(algorithms=rule if who == "setting" else ""),
        pytest.raises(mpicoll.UnsupportedError, match=f"^{text}.*; usable: linear$"),
    ):
        comm.Gatherv(*arguments, algorithm="binomial" if who == "call" else None)
    check(comm, Case("Gather"))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name, value", [("algorithms", "allreduce:ring"), ("scratch_limit", 1 << 20), ("tuning", "x")])
def test_settings_that_differ_are_found(made, name, value):
    """Compared once, when a communicator is first used; all ranks raise."""
    comm = made()
    usual = getattr(mpicoll.settings, name)
    differing = {name: value} if comm.rank == SIZE - 1 else {}
    text = f"setting {name!r} is {usual!r} on rank 0, {value!r} on rank {SIZE - 1}"
    with mpicoll.override(**differing), pytest.raises(mpicoll.MismatchError, match=f"^{re.escape(text)}$"):
        comm.Barrier()
    check(comm, Case("Allreduce"))


@pytest.mark.mpi(min_size=2)
def test_rules_that_differ_are_found():
    mine = "bcast:linear" if MPI.COMM_WORLD.rank == 0 else ""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup(), algorithms=mine)
    text = "setting 'algorithms of the communicator' is 'bcast:linear' on rank 0, '' on rank 1"
    with pytest.raises(mpicoll.MismatchError, match=f"^{text}$"):
        comm.Barrier()
    comm.Free()


@pytest.mark.ranks(2)  # slow with more
def test_a_mismatch_leaves_no_communicator_behind(made):
    """MPICH has 2048 communicators: one that stays behind each time would fail."""
    comm = made()
    with mpicoll.override(**({"algorithms": "bcast:ring"} if comm.rank == 0 else {})):
        for _ in range(2100):
            with pytest.raises(mpicoll.MismatchError):
                comm.Barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce", "Allreduce_init"])
@pytest.mark.parametrize("wrong", [(0,), (1,), range(SIZE)], ids=["rank 0", "rank 1", "all"])
def test_a_path_that_nobody_knows_is_told_to_all(form, wrong):
    """It is found where the call is planned; all ranks hear of it, and the next call is made."""
    with mpicoll.override(errors="agree"):
        comm, x, y = mpicoll.Communicator(MPI.COMM_WORLD.Dup()), np.ones(3), np.zeros(3)
        comm.Allreduce(x, y)
        mine = comm.rank in wrong
        with mpicoll.override(**({"path": "unheard_of"} if mine else {})):
            refused = pytest.raises(ValueError if mine else mpicoll.MismatchError, match="unknown path 'unheard_of'")
            with refused:
                getattr(comm, form)(x, y).Wait() if form != "Allreduce" else comm.Allreduce(x, y)
        request = comm.Allreduce_init(x, y)
        request.Start()
        request.Wait()
        request.Free()
        assert y.tolist() == [SIZE] * 3
        comm.Free()


# Told once, with debug=plan.


def test_a_new_choice_is_told_once_by_rank_0(made, capfd):
    """One line for each choice, however often the call is made and wherever its arrays are."""
    comm, long = made(), np.zeros(1 << 20, "f4")
    with mpicoll.override(debug="plan"):
        plan = comm.Get_plan("Allreduce", X, Y, algorithm="linear")
        for _ in range(3):
            comm.Allreduce(X, Y, algorithm="linear")
            comm.Allreduce(np.zeros(16, "f4"), np.zeros(16, "f4"), algorithm="linear")
            comm.Allreduce(np.zeros((4, 8), "f4")[:, ::2], Y, algorithm="linear")  # packed: not remembered
            comm.Iallreduce(long, np.empty_like(long), algorithm="ring/2").Wait()
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("[mpicoll]")]
    wanted = [
        f"[mpicoll] allreduce of 64 bytes on {SIZE} ranks: {plan.choice}, algorithm= in the call",
        f"[mpicoll] allreduce of 4M on {SIZE} ranks: ring/2@host, algorithm= in the call",
    ]
    assert lines == (wanted if comm.rank == 0 else [])
    comm.Allreduce(X, Y, algorithm="binomial")
    assert "[mpicoll]" not in capfd.readouterr().err


def test_remembered_calls_ask_nothing_of_the_setting(made, monkeypatch):
    comm, asked = made(), []
    monkeypatch.setattr("mpicoll.runtime.call.decision.tell_choice", lambda plan, context: asked.append(plan))
    with mpicoll.override(debug="plan"):
        for _ in range(5):
            comm.Allreduce(X, Y)
    assert len(asked) == 1


def test_get_plan_explains_all_candidates_as_they_would_run(made):
    with mpicoll.override(scratch_limit="1M", tuning="model"):
        comm = made()
        plan = comm.Get_plan("Allreduce", np.zeros(4 << 20, "f4"), np.zeros(4 << 20, "f4"), algorithm="ring/2")
    found = plan.explanation()
    assert found.chosen.choice == plan.choice
    known = {card.name for card in registry.known("allreduce") if not card.by_hosts}
    assert {one.choice.algorithm for one in found.verdicts} == known
    assert all(one.predicted is not None or one.why for one in found.verdicts)
    assert (plan.segments > 2) == (SIZE > 1)  # a rank alone needs no scratch
    assert (f"scratch_limit=1M: 2 segments raised to {plan.segments}" in str(plan)) == (SIZE > 1)
    assert "tuning tables in force: none, the cost model alone" in str(plan)
