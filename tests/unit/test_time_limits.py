"""Time limits: when a call has waited for too long, and whether anybody is to blame."""

from contextlib import suppress
from types import SimpleNamespace

import pytest

import mpicoll
from mpicoll.runtime.mpi import roll_call
from mpicoll.runtime.mpi.roll_call import Address, Answer
from mpicoll.runtime.progress import faults, watch
from mpicoll.runtime.progress.faults import Patience
from mpicoll.runtime.progress.operations import Operation
from mpicoll.runtime.progress.watch import Watch

LIMIT = 6.0


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on when a test says so."""
    now = SimpleNamespace(time=100.0)
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: now.time))
    return now


def looks(clock, patience, seconds, step, moved=7):
    """Return what each look says, one every so many seconds."""
    said = []
    for _ in range(round(seconds / step)):
        clock.time += step
        said.append(patience.is_over(moved))
    return said


def test_patience_ends_after_the_limit(clock):
    patience = Patience(LIMIT)
    assert not patience.is_over(7)
    assert not any(looks(clock, patience, LIMIT, 0.5))
    assert looks(clock, patience, 0.5, 0.5) == [True]


def test_a_move_starts_it_anew(clock):
    patience = Patience(LIMIT)
    for moved in range(5):
        assert not any(looks(clock, patience, LIMIT, 1.0, moved))
    assert patience.is_over(4) is False
    assert any(looks(clock, patience, 2.0, 1.0, 4))


def test_the_first_look_may_come_late(clock):
    """A program may compute for an hour between the call and its wait."""
    patience = Patience(LIMIT)
    clock.time += 3600
    assert not patience.is_over(7)
    assert not any(looks(clock, patience, LIMIT - 1, 1.0))


def test_time_in_which_nobody_looked_is_the_programs_own(clock):
    """It takes several looks until the limit is over, however long the program was elsewhere."""
    patience = Patience(LIMIT)
    patience.is_over(7)
    said = looks(clock, patience, 5 * 3600, 3600)
    assert said == [False] * faults.LOOKS + [True] * (5 - faults.LOOKS)


def test_an_extension_is_half_the_limit(clock):
    patience = Patience(LIMIT)
    patience.is_over(7)
    assert looks(clock, patience, LIMIT + 1, 1.0)[-1]
    patience.extend()
    assert not any(looks(clock, patience, LIMIT / 2, 1.0))
    assert all(looks(clock, patience, 3.0, 1.0))


def test_a_move_takes_an_extension_back(clock):
    patience = Patience(LIMIT)
    patience.is_over(7)
    looks(clock, patience, LIMIT + 1, 1.0)
    patience.extend()
    patience.moves = 55
    patience.is_over(8)
    assert patience.moves is None
    assert looks(clock, patience, LIMIT + 1, 1.0, 8)[-1]


def test_who_looked_a_moment_ago_still_waits(clock):
    """Asking the others takes some time, in which the limit is kept."""
    patience = Patience(LIMIT)
    patience.is_over(7)
    clock.time += faults.WATCHED - 0.01
    assert patience.watched
    clock.time += 0.02
    assert not patience.watched
    patience.is_over(7)
    assert patience.watched


class Scene:
    """Rank 1 of four, whose call #5 waits; what the others answer is made up."""

    size, rank, number = 4, 1, 5

    def __init__(self, monkeypatch):
        self.traffic = SimpleNamespace(size=self.size, rank=self.rank, stalled=self.stalled, watch=None)
        self.answers = {rank: Answer(self.number, moved=10) for rank in (0, 2, 3)}
        self.known = {rank: Address(f"host{rank // 2}", "127.0.0.1", 9, "token") for rank in range(self.size)}
        self.asked, self.nbytes, self.broken = [], 0, None
        monkeypatch.setattr(roll_call, "ask", self.ask)
        self.watch = watch = Watch.__new__(Watch)
        watch.desk = SimpleNamespace(directory=self.known, left=set())
        watch.silent = {}
        watch.size, watch.rank, watch.id, watch.birth = self.size, self.rank, "id", (1, 2)
        watch.world_ranks = tuple(range(self.size))
        self.operation = SimpleNamespace(
            traffic=self.traffic,
            number=self.number,
            condition=None,
            title=lambda: "allreduce #5 'ring'",
            pending=lambda: "step 1 of 2: waiting for block 0 from rank 0",
            pending_bytes=lambda: self.nbytes,
        )
        self.patience = Patience(LIMIT)
        self.patience.idle = LIMIT + 0.1

    def ask(self, desks, context_id, birth):
        self.asked.append((sorted(desks), context_id, birth))
        return {rank: answer for rank, answer in self.answers.items() if rank in desks}

    def stalled(self, what, why, said):
        self.broken = what
        return mpicoll.StalledError(f"{what}; {why}", history=said)

    def answer(self, rank, **changed):
        self.answers[rank] = Answer(**({"calls": self.number, "moved": 10} | changed))

    def verdict(self):
        return self.watch.verdict(self.number, self.nbytes, self.patience)

    def verdicts(self, most=20):
        """Return the first verdict, asked as often as patience is extended, and how often nobody was to blame."""
        for turn in range(most):
            found = self.verdict()
            if found is not None:
                return found, turn
        return None, most


@pytest.fixture
def scene(monkeypatch):
    return Scene(monkeypatch)


def test_a_rank_that_has_not_made_the_call_is_named_at_once(scene):
    scene.answer(3, calls=4)
    assert scene.verdict() == "rank 3 on host1 has not made the call"
    assert scene.asked == [([0, 2, 3], "id", None)]


def test_all_ranks_that_have_not_made_the_call_are_named(scene):
    """Also where one moves meanwhile, or much data may be on their way."""
    scene.nbytes = 10**12
    scene.answer(3, calls=0)
    scene.answer(0, calls=4, moved=99)
    assert scene.verdict() == "ranks 0 on host0, 3 on host1 have not made the call"


@pytest.mark.parametrize("earlier", ["busy", "waiting"])
def test_a_rank_that_is_in_an_earlier_call_is_not_missing(scene, earlier):
    """That call has a limit of its own, or its operator takes its time; another rank may be missing all the same."""
    scene.answer(3, calls=4, **{earlier: True})
    assert scene.verdicts() == (None, 20)
    scene.answer(0, calls=4)
    assert scene.verdict() == "rank 0 on host0 has not made the call"


def test_a_rank_that_has_just_left_an_earlier_call_has_the_limit_before_it(scene):
    """A rank that waits for it may have waited for as long as that call took; then it is named like others."""
    scene.answer(3, calls=4, outside=LIMIT - 1)
    assert scene.verdicts() == (None, 20)
    scene.answer(3, calls=4, outside=LIMIT)
    assert scene.verdict() == "rank 3 on host1 has not made the call"


def test_a_rank_that_waits_in_this_call_is_no_reason_to_wait(scene):
    for rank in (0, 2, 3):
        scene.answer(rank, waiting=True)
    found, turns = scene.verdicts()
    assert found.startswith("every rank has made the call, and none goes on")
    assert turns == 1


def test_a_rank_that_is_ahead_has_made_the_call(scene):
    scene.answer(3, calls=9)
    found, _ = scene.verdicts()
    assert "not made" not in found


def test_a_rank_that_does_not_answer_is_told_apart_from_one_that_has_not_called(scene):
    del scene.answers[2]
    assert scene.verdict() == "no answer from rank 2 on host1"
    scene.answer(3, calls=4)
    assert scene.verdict() == "rank 3 on host1 has not made the call; no answer from rank 2 on host1"


def test_nobody_answers(scene):
    scene.answers.clear()
    assert scene.verdict() == "no answer from ranks 0 on host0, 2 on host1, 3 on host1"


def test_silence_is_no_stall_while_data_may_be_on_their_way(scene):
    """A rank that is dead is named once the slowest link would have brought them."""
    del scene.answers[2]
    scene.nbytes = int(watch.SLOWEST) * 10
    assert scene.verdict() is None
    scene.patience.idle = LIMIT + 10 * scene.size + 1
    assert scene.verdict() == "no answer from rank 2 on host1"


def test_a_rank_that_works_is_waited_for(scene):
    """A user's operator may take its time."""
    scene.answer(0, busy=True)
    assert scene.verdicts() == (None, 20)
    scene.answer(0)
    assert scene.verdict().startswith("every rank has made the call, and none goes on")


def test_ranks_that_move_are_waited_for(scene):
    for moved in range(11, 20):
        scene.answer(3, moved=moved)
        assert scene.verdict() is None
    found, turns = scene.verdicts()
    assert turns == 0, "they have not moved since they were asked the last time"
    assert found == (
        "every rank has made the call, and none goes on: do all make the same one? MPICOLL_DEBUG=1 compares them"
    )


def test_whether_ranks_move_is_known_from_the_second_time_on(scene):
    assert scene.verdict() is None
    assert scene.verdict() is not None


def test_bytes_on_a_slow_link_extend_the_limit(scene):
    """By as much as all ranks' messages take that share it."""
    scene.nbytes = int(watch.SLOWEST) * 3
    scene.verdict()
    for idle, slow in ((LIMIT + 3, True), (LIMIT + 11.9, True), (LIMIT + 12.1, False)):
        scene.patience.idle = idle
        assert (scene.verdict() is None) is slow


def test_ranks_that_give_no_answer_are_excused_by_bytes_for_a_while_only(scene):
    """Each answer begins that anew."""
    scene.nbytes = int(watch.SLOWEST) * 1000
    heard = scene.answers.pop(3)
    begin = scene.patience.idle
    for idle, slow in ((0, True), (watch.UNHEARD - 0.1, True), (watch.UNHEARD + 0.1, False)):
        scene.patience.idle = begin + idle
        assert (scene.verdict() is None) is slow
    scene.answers[3] = heard
    assert scene.verdict() is None
    del scene.answers[3]
    assert scene.verdict() is None
    scene.patience.idle += watch.UNHEARD + 0.1
    assert scene.verdict() == "no answer from rank 3 on host1"


def test_ranks_that_gave_no_answer_are_missing_until_they_do_or_have_left(scene):
    scene.watch.world_ranks = (4, 5, 6, 7)
    scene.known = scene.watch.desk.directory = {rank + 4: address for rank, address in scene.known.items()}
    assert scene.watch.missing() == ""
    heard = {rank: scene.answers.pop(rank) for rank in (0, 2, 3)}
    assert scene.verdict() == "no answer from ranks 0 on host0, 2 on host1, 3 on host1"
    assert scene.watch.missing() == "ranks 0 on host0, 2 on host1, 3 on host1"
    scene.answers[2] = heard[2]
    assert scene.watch.missing() == "ranks 0 on host0, 3 on host1"
    del scene.answers[2]
    assert scene.watch.missing() == "ranks 0 on host0, 3 on host1"
    scene.watch.desk.left.add(7)
    assert scene.watch.missing() == "rank 0 on host0"
    scene.watch.desk.left.add(4)
    assert scene.watch.missing() == ""
    assert scene.verdict() == "no answer from rank 2 on host1; ranks 0 on host0, 3 on host1 at the end of the program"
    assert scene.watch.missing() == "rank 2 on host1"


@pytest.mark.parametrize("answers", [1, 3, 99])
def test_the_job_is_aborted_if_a_rank_is_missing_for_too_long(monkeypatch, clock, capfd, answers):
    """Else MPI ends."""
    done, asked = [], []

    def missing():
        clock.time += 1
        asked.append(1)
        return "rank 2 on b" if len(asked) < answers else ""

    def abort(code):
        done.append(f"abort {code}")
        raise SystemExit

    world = SimpleNamespace(Abort=abort, rank=0)
    monkeypatch.setattr(faults, "MPI", SimpleNamespace(COMM_WORLD=world))
    monkeypatch.setattr(faults, "last_acts", [lambda: done.append("act")])
    monkeypatch.setattr(faults, "_finalize_within", lambda seconds, why: done.append(f"finalize {seconds} {why}"))
    with suppress(SystemExit):
        faults.end_within(5, "bcast #2", missing)
    assert done == (["act", "abort 1"] if answers == 99 else ["finalize 5 bcast #2"])
    said = "mpicoll: this job is aborted if there is no answer from rank 2 on b within 5 s after: bcast #2\n"
    assert capfd.readouterr().err == (said if answers > 1 else "")
    assert len(asked) == min(answers, 5)


def test_before_ranks_have_exchanged_addresses_they_cannot_be_asked(scene):
    """Ranks that are known from another communicator can, by the communicator's birth."""
    scene.watch.id = ""
    del scene.known[3]
    scene.answer(2, calls=-1)
    assert scene.verdict() == "rank 2 on host1 has not made the call"
    assert scene.asked == [([0, 2], "", (1, 2))]
    scene.answer(2, calls=5)
    assert scene.verdict() == "rank 3 cannot be asked before the first call has been made"
    del scene.answers[0]
    scene.known.clear()
    assert scene.verdict() == "ranks 0, 2, 3 cannot be asked before the first call has been made"


def test_ranks_of_a_communicator_are_looked_up_by_their_rank_in_the_world(scene):
    scene.watch.world_ranks = (9, 8, 7, 6)
    scene.known.clear()
    scene.known[6] = Address("far", "127.0.0.1", 9, "token")
    scene.answers = {3: Answer(1)}
    assert scene.verdict() == "rank 3 on far has not made the call"


def test_a_stall_says_what_waits_and_why_in_vain(scene):
    scene.traffic.watch = scene.watch
    scene.answer(3, calls=4)
    error = Operation._stall(scene.operation, scene.patience)
    assert isinstance(error, mpicoll.StalledError)
    assert str(error) == (
        "allreduce #5 'ring': rank 1, step 1 of 2: waiting for block 0 from rank 0 for 6 s; "
        "rank 3 on host1 has not made the call"
    )
    assert scene.broken == "allreduce #5 'ring': rank 1, step 1 of 2: waiting for block 0 from rank 0 for 6 s"
    assert error.history == {0: [], 2: [], 3: []}
    assert len(scene.asked) == 1


def test_no_stall_where_there_is_reason_to_wait(scene):
    scene.traffic.watch = scene.watch
    scene.answer(3, busy=True)
    assert Operation._stall(scene.operation, scene.patience) is None
    assert scene.broken is None
    assert scene.patience.most == scene.patience.idle + LIMIT / 2


def test_no_stall_where_the_message_came_while_others_were_asked(scene):
    scene.traffic.watch, came = scene.watch, []
    scene.answer(3, calls=4)
    scene.operation.condition = lambda: bool(came)
    came.append(1)
    assert Operation._stall(scene.operation, scene.patience) is None
    came.clear()
    assert isinstance(Operation._stall(scene.operation, scene.patience), mpicoll.StalledError)


def test_a_limit_that_was_set_after_the_first_call(scene):
    """There is no desk to ask, and the message says how to have one."""
    error = Operation._stall(scene.operation, scene.patience)
    assert str(error).endswith(f"; {watch.UNWATCHED}")
