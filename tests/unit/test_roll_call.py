"""The roll call: questions and answers by UDP, on this machine, with real sockets and threads."""

import gc
import json
import math
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mpicoll.recorder.history import CallRecord
from mpicoll.runtime.mpi import roll_call
from mpicoll.runtime.mpi.roll_call import Answer, Desk, ask

#: rows of calls, as the recorder of a context gives them
ROWS = [
    CallRecord("", number, "blocking", "Allreduce", 40, 320, "float64", state="complete").row(5.0) for number in (6, 7)
]
CALLS = {"calls": 7, "moved": 1203, "busy": True, "waiting": True, "outside": math.inf, "last": ROWS}
SAID = CALLS | {"last": tuple(ROWS)}


class Context:
    """What a desk sees of a communicator's context."""

    def __init__(self, calls=7, moved=1203, busy=True, waiting=True, ended=-math.inf):
        self.calls, self.moved, self.busy, self.waiting, self.ended = calls, moved, busy, waiting, ended
        self.rows = list(ROWS)
        self.recorder = SimpleNamespace(told=lambda now: self.rows)


@pytest.fixture
def desk():
    """A desk of its own, as another process would have it."""
    made = Desk()
    made.start()
    return made


@pytest.fixture
def soon(monkeypatch):
    """Wait for less time where no answer comes."""
    monkeypatch.setattr(roll_call, "GRACE", 0.15)
    monkeypatch.setattr(roll_call, "AGAIN", 0.04)


def sent(desk, data):
    """Send bytes to a desk; return what it answers, None for nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(0.04)
        own.sendto(data, ("127.0.0.1", desk.address.port))
        try:
            return json.loads(own.recv(roll_call.LONGEST))
        except TimeoutError:
            return None


def question(desk, **changed):
    return {"to": desk.address.token, "nonce": 5, "id": "one", "birth": None} | changed


def test_what_a_process_knows_of_its_calls(desk):
    context = desk.contexts["one"] = Context()
    assert ask({3: desk.address}, "one", None) == {3: Answer(**SAID)}
    context.calls, context.busy, context.waiting = 8, False, False
    assert ask({3: desk.address}, "one", None) == {3: Answer(8, 1203, False, last=tuple(ROWS))}
    context.ended = time.monotonic() - 20
    assert 20 <= ask({3: desk.address}, "one", None)[3].outside < 25


def test_several_ranks_answer_for_themselves():
    desks, kept = {}, []
    for rank in (0, 2, 5):
        made = Desk()
        made.start()
        kept.append(Context(rank, rank * 10, False, False))
        made.contexts["one"] = kept[-1]
        desks[rank] = made.address
    assert ask(desks, "one", None) == {rank: Answer(rank, rank * 10, False, last=tuple(ROWS)) for rank in (0, 2, 5)}
    assert ask({}, "one", None) == {}


def test_a_communicator_that_is_unknown_or_was_freed(desk):
    context = desk.contexts["one"] = Context()
    assert ask({0: desk.address}, "other", None) == {0: Answer(-1)}
    del context
    gc.collect()
    assert ask({0: desk.address}, "one", None) == {0: Answer(-1)}


def test_a_communicator_without_a_name_is_known_by_its_birth(desk):
    """Communicators of equal ranks are told apart by their order."""
    first, second = desk.born((0, 1)), desk.born((0, 1))
    other = desk.born((0, 2))
    assert first != second
    assert other[0] != first[0]
    for birth in (first, second, other):
        assert ask({0: desk.address}, "", birth) == {0: Answer(0)}
    third = (first[0], 3)
    assert ask({0: desk.address}, "", third) == {0: Answer(-1)}
    assert ask({0: desk.address}, "", (12345, 1)) == {0: Answer(-1)}
    assert desk.born((0, 1)) == third
    assert ask({0: desk.address}, "", third) == {0: Answer(0)}


def test_births_are_the_same_in_every_process(desk):
    other = Desk()
    for ranks in ((0, 1), (0, 1), (1, 0)):
        assert desk.born(ranks) == other.born(ranks)
    other.socket.close()


def test_desks_hear_who_is_at_the_end_of_its_program(desk, monkeypatch):
    """The one that is not there does no harm."""
    other = Desk()
    other.directory = {0: replace(desk.address, port=9), 1: desk.address}
    monkeypatch.setattr(Desk, "_only", other)
    Desk.leave(7)
    assert ask({0: desk.address}, "", None)  # what came before it was read
    assert desk.left == {7}
    for word in ([], {}, None):  # no rank
        assert sent(desk, json.dumps({"to": desk.address.token, "left": word}).encode()) is None
    assert desk.left <= {7, None}
    other.socket.close()


def test_who_does_not_know_the_token_hears_nothing(desk):
    desk.contexts["one"] = context = Context()
    assert sent(desk, json.dumps(question(desk)).encode()) == {"nonce": 5, **CALLS}
    for token in ("", "0" * 16, None, 7):
        assert sent(desk, json.dumps(question(desk, to=token)).encode()) is None
    assert context.calls == 7


def test_a_wrong_token_counts_as_no_answer(desk, soon):
    desk.contexts["one"] = context = Context()
    assert ask({0: replace(desk.address, token="wrong")}, "one", None) == {}
    assert context


GARBAGE = [
    b"",
    b"\xff\xfe\x00",
    b"{",
    b"null",
    b"7",
    b"[]",
    b'"text"',
    b"{}",
    b"x" * 5000,
    b"[" * 1500,
    b'{"to": []}',
]
#: parts of a question with the right token that are not as they should be
STRANGE = [
    {"id": []},
    {"id": {}},
    {"birth": 3},
    {"birth": []},
    {"birth": [1]},
    {"birth": ["a", "b"]},
    {"birth": [[], 1]},
]


def test_the_last_calls_are_told_with_their_ages(desk):
    """Each host has a clock of its own."""
    context = desk.contexts["one"] = Context()
    context.rows = [changed(begin=2.5, end=0.5)]
    (record,) = ask({0: desk.address}, "one", None)[0].records(100.0)
    assert (record.sequence, record.method, record.begin, record.end) == (6, "Allreduce", 97.5, 99.5)


def test_an_answer_has_as_many_of_the_last_calls_as_there_is_room_for(desk):
    """The latest ones; in 4,096 bytes."""
    context = desk.contexts["one"] = Context()
    context.rows = [changed(sequence=number, error="x" * 60) for number in range(100)]
    assert len(json.dumps(context.rows)) > 2 * roll_call.LONGEST
    told = [record.sequence for record in ask({0: desk.address}, "one", None)[0].records(0.0)]
    assert told == list(range(100))[-len(told) :]
    assert len(told) > 10


def test_garbage_does_not_end_a_desk(desk):
    desk.contexts["one"] = context = Context()
    for data in GARBAGE:
        assert sent(desk, data) is None, data
    for changed in STRANGE:
        sent(desk, json.dumps(question(desk, id="nobody") | changed).encode())
    for missing in ("to", "nonce", "id", "birth"):
        asked = question(desk)
        del asked[missing]
        assert sent(desk, json.dumps(asked).encode()) is None, missing
    assert desk.is_alive()
    assert ask({0: desk.address}, "one", None) == {0: Answer(**SAID)}
    assert context


class Other(threading.Thread):
    """Something else at a port: it sends what it is told to for each question."""

    def __init__(self, *answers):
        super().__init__(daemon=True)
        self.answers, self.questions = answers, []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        host = socket.gethostname()
        self.address = roll_call.Address(host, "127.0.0.1", self.socket.getsockname()[1], "token")
        self.start()

    def run(self):
        while True:
            data, sender = self.socket.recvfrom(2048)
            asked = json.loads(data)
            self.questions.append(asked)
            for make in self.answers:
                answer = make(asked, len(self.questions))
                if answer is not None:
                    self.socket.sendto(answer, sender)


def honest(asked, number):
    said = {"nonce": asked["nonce"], "calls": 3, "moved": number, "busy": False, "waiting": False}
    return json.dumps(CALLS | said).encode()


def test_a_lost_answer_is_asked_for_again():
    """And a question that is lost; the desk that answered is not asked again meanwhile."""
    late = Other(lambda asked, number: honest(asked, number) if number == 3 else None)
    prompt = Other(honest)
    last = tuple(ROWS)
    assert ask({0: late.address, 1: prompt.address}, "one", None) == {
        0: Answer(3, 3, last=last),
        1: Answer(3, 1, last=last),
    }
    assert len(late.questions) == 3
    assert len(prompt.questions) == 1


def test_all_that_is_asked(soon):
    other = Other()
    ask({4: other.address}, "name", (8, 2))
    asked = other.questions[0]
    assert asked == {"to": "token", "nonce": asked["nonce"], "id": "name", "birth": [8, 2]}


def test_answers_that_nobody_asked_for(soon):
    """Garbage, another question's answer, and parts that are missing count as no answer; a right one still does."""
    strange = (
        lambda asked, number: b"",
        lambda asked, number: b"\xff{",
        lambda asked, number: b"7",
        lambda asked, number: b"[1, 2]",
        lambda asked, number: b"{}",
        lambda asked, number: json.dumps({"nonce": asked["nonce"] + 1, "calls": 9}).encode(),
        lambda asked, number: json.dumps({"nonce": [], "calls": 9}).encode(),
    )
    assert ask({0: Other(*strange).address}, "one", None) == {}
    assert ask({0: Other(*strange, honest).address}, "one", None)[0].calls == 3


def changed(**values):
    """A row of a call with other values."""
    return [values.get(name, value) for name, value in zip(CallRecord.__dataclass_fields__, ROWS[0], strict=True)]


STRANGE_ROWS = [7, "text", [[]], [ROWS[0][:-1]], [changed(sequence="7")], [changed(begin="now")], [changed(error=None)]]
WRONG = [{}, {"moved": 3}, {"calls": "many"}, {"calls": None}, {"calls": float("inf")}]


@pytest.mark.parametrize("wrong", [*WRONG, *({"calls": 3, "last": rows} for rows in STRANGE_ROWS)])
def test_an_answer_with_the_right_number_that_makes_no_sense(soon, wrong):
    """As an impostor would give that has seen the question; whoever asks must be able to count with it."""
    said = wrong and {"moved": 1, "busy": False, "waiting": False, "outside": 1.0} | wrong
    other = Other(lambda asked, number: json.dumps({"nonce": asked["nonce"]} | said).encode())
    assert ask({0: other.address}, "one", None) == {}


def test_nobody_there_is_no_error_and_takes_the_grace(soon):
    """A port without a process, a name that is none, a port that cannot be."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        here = roll_call.Address(socket.gethostname(), "127.0.0.1", free.getsockname()[1], "token")
    far = replace(here, host="far")
    addresses = {0: here, 1: replace(far, ip="not a name"), 2: replace(far, port=0)}
    begin = time.monotonic()
    assert ask(addresses, "one", None) == {}
    assert 0.1 <= time.monotonic() - begin < 5


def test_one_that_is_dead_does_not_hide_the_others(desk, soon):
    desk.contexts["one"] = context = Context()
    silent = Other()
    assert ask({0: silent.address, 1: desk.address, 2: silent.address}, "one", None) == {1: Answer(**SAID)}
    assert context


def test_a_process_has_one_desk(monkeypatch):
    monkeypatch.setattr(Desk, "_only", None)
    made = []
    threads = [threading.Thread(target=lambda: made.append(Desk.open())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(desk) for desk in made}) == 1
    assert made[0].is_alive()
    assert made[0].daemon, "it must not keep the program from its end"


def test_a_host_whose_own_name_is_not_known(monkeypatch):
    monkeypatch.setattr(roll_call.socket, "gethostbyname", lambda _: (_ for _ in ()).throw(OSError()))
    made = Desk()
    made.socket.close()
    assert made.address.ip == "127.0.0.1"


def test_a_desk_answers_while_the_program_works(desk):
    """The thread needs no turn of the main thread's."""
    desk.contexts["one"] = context = Context(1, 0, True, False)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask({0: desk.address}, "one", None)))
    asking.start()
    end = time.monotonic() + 5
    while asking.is_alive() and time.monotonic() < end:
        sum(range(1000))
    assert answers == [{0: Answer(1, 0, True, last=tuple(ROWS))}]
    assert context
