"""The calls made last: what is kept of each, and what is made of it once somebody asks."""

import gc
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import mpicoll
from mpicoll.recorder import recorder as room
from mpicoll.recorder.entry import Decision, Entry
from mpicoll.recorder.history import MOST_CALLS, MOST_RANKS, CallRecord, History, last_words
from mpicoll.recorder.recent import MASK
from mpicoll.recorder.recorder import LAST, TOLD, Recorder


class Counted:
    """A communicator's context, as far as its recorder asks."""

    calls = caller = 0


def known(method="allreduce", *, path="host", op="SUM", form="blocking", sequence=0, nbytes=16384, segments=1):
    """Return what is kept of a call that is decided."""
    row = SimpleNamespace(rooted=method == "bcast")
    operands = SimpleNamespace(method=method, count=4096, nbytes=nbytes, dtype=np.dtype("f4"), root=2, row=row)
    operands.op = SimpleNamespace(name=op) if op else None
    plan = SimpleNamespace(algorithm="ring", segments=segments, path=path)
    return Decision(operands, plan, form, sequence)


class Calls:
    """A communicator that makes calls of all kinds, and its recorder."""

    def __init__(self, name="one"):
        self.counted = Counted()
        self.recorder = Recorder(self.counted, name, (0, 2, 0))
        self.time = 100.0

    def shortcut(self, what=None):
        """Make a call as `Communicator._run` does."""
        self.counted.calls = number = self.counted.calls + 1
        self.recorder.calls.what[number & MASK] = what or known()
        self.recorder.calls.began[number & MASK] = self.time = self.time + 1
        return number

    def begun(self, recent, number, what):
        """Begin a call that does not block as `Straight` does."""
        recent.what[number & MASK], recent.began[number & MASK] = what, self.time + 1
        self.time += 1

    def nonblocking(self):
        self.counted.calls += 1
        self.begun(self.recorder.calls, self.counted.calls, known(form="nonblocking"))
        return self.counted.calls

    def start(self, sequence):
        starts = self.recorder.starts
        starts.number += 1
        self.begun(starts, starts.number, known(form="start", sequence=sequence))

    def entry(self, form="blocking", what=None):
        self.counted.calls += 1
        return self.recorder.begin(form, "Allreduce", self.counted.calls, what, "", bound=what is not None)

    def told(self):
        return [(one.sequence, one.form, one.state) for one in self.recorder.history()]


@pytest.fixture
def calls(monkeypatch):
    monkeypatch.setattr(room, "_recorders", weakref.WeakSet())
    return Calls()


def test_a_call_of_the_shortcut_has_its_begin_and_all_that_was_decided(calls):
    calls.shortcut(known("bcast", op="", segments=8))
    assert list(calls.recorder.history()) == [
        CallRecord(
            "one", 1, "blocking", "Bcast", 4096, 16384, "float32", "", 2, "ring", 8, "host", "complete", 101.0, None, ""
        )
    ]


def test_only_the_latest_blocking_call_runs(calls):
    calls.shortcut()
    calls.shortcut()
    calls.nonblocking()
    calls.counted.caller = 7
    assert calls.told() == [(1, "blocking", "complete"), (2, "blocking", "running"), (3, "nonblocking", "running")]
    calls.counted.caller = 0
    assert calls.told()[1] == (2, "blocking", "complete")


def test_a_call_before_an_entry_that_runs_is_complete(calls):
    calls.shortcut()
    entry = calls.entry(what=known())
    calls.counted.caller = 7
    assert [state for _, _, state in calls.told()] == ["complete", "running"]
    entry.end()
    assert [state for _, _, state in calls.told()] == ["complete", "complete"]


def test_the_latest_ones_are_kept_and_their_numbers_are_right(calls):
    for _ in range(3 * MASK):
        calls.shortcut()
    history = calls.recorder.history()
    assert [one.sequence for one in history] == list(range(3 * MASK - LAST + 1, 3 * MASK + 1))
    assert [one.begin for one in history] == [100.0 + one.sequence for one in history]
    assert calls.recorder.history(3) == history[-3:]
    assert calls.recorder.history(0) == calls.recorder.history(-1) == []
    calls.start(1)
    assert len(calls.recorder.history(10 * LAST)) == LAST
    assert [one.form for one in calls.recorder.history(2)] == ["blocking", "start"]


def test_a_number_of_which_nothing_was_kept_has_no_record_of_an_older_call(calls):
    calls.entry(what=known())
    calls.counted.calls += MASK + 1
    assert calls.told() == []


def test_a_call_that_does_not_block_has_its_end(calls):
    number = calls.nonblocking()
    recent = calls.recorder.calls
    recent.ended[number] = 50.0  # of the call that had the place before
    assert calls.told() == [(1, "nonblocking", "running")]
    recent.ended[number] = 103.5
    (record,) = calls.recorder.history()
    assert (record.state, record.seconds, record.name) == ("complete", 2.5, "Iallreduce")


def test_starts_have_the_number_of_their_call_and_the_order_of_their_begins(calls):
    made = calls.entry("persistent", known())
    made.began = 1.0
    made.end()
    calls.start(1)
    calls.shortcut()
    calls.start(1)
    assert [(one.sequence, one.name, one.state) for one in calls.recorder.history()] == [
        (1, "Allreduce_init", "planned"),
        (1, "Allreduce.Start", "running"),
        (2, "Allreduce", "complete"),
        (1, "Allreduce.Start", "running"),
    ]


def test_a_call_that_raises_says_so(calls):
    calls.shortcut()
    calls.recorder.calls.fail(1, 1, ValueError("no\nmore than a line"))
    calls.start(1)
    calls.recorder.starts.fail(1, 1, KeyError("x"))
    entry = calls.entry(what=known())
    entry.began = 200.0
    with pytest.raises(ZeroDivisionError), entry:
        raise ZeroDivisionError("by hand")
    errors = ["ValueError: no", "KeyError: 'x'", "ZeroDivisionError: by hand"]
    assert [(one.state, one.error) for one in calls.recorder.history()] == [("failed", error) for error in errors]


def test_what_is_not_decided_yet_is_planned(calls):
    calls.entry("nonblocking")
    (record,) = calls.recorder.history()
    assert (record.state, record.count, record.algorithm, record.seconds) == ("planning", None, "", None)
    assert record.words(record.begin + 3.21) == "#1 Iallreduce on one planning for 3.2 s"


def test_the_host_has_only_enqueued_what_is_on_the_path_mapped(calls):
    calls.shortcut(known(path="mapped"))
    assert calls.told() == [(1, "blocking", "enqueued")]


def test_bytes_that_not_all_ranks_know_are_those_of_this_rank(calls):
    calls.shortcut(known(nbytes=None))
    calls.shortcut(known(nbytes=0))
    assert [(one.nbytes, one.data) for one in calls.recorder.history()] == [(16384, "4096 float32"), (0, "")]


def test_threads_that_make_calls_meanwhile_are_in_nobodys_way(calls):
    """Each history has calls one after the other, whatever is made meanwhile."""
    stop = threading.Event()

    def make():
        while not stop.is_set():
            calls.shortcut()

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(30):
            numbers = [one.sequence for one in calls.recorder.history(100)]
            assert len(numbers) == len(set(numbers))
    finally:
        stop.set()
        thread.join()


def test_words_of_a_call():
    record = CallRecord("", 17, "blocking", "Allreduce", 4096, 16384, "float32", "SUM", None, "ring", 8, "host")
    for state, end, error, words in [
        ("running", None, "", "running for 3.2 s"),
        ("complete", None, "", "complete 3.2 s ago"),
        ("complete", 4.0, "", "complete 1.2 s ago"),
        ("failed", 4.0, "KeyError: 'x'", "failed 1.2 s ago: KeyError: 'x'"),
    ]:
        one = CallRecord(**{**vars(record), "state": state, "begin": 2.0, "end": end, "error": error})
        assert one.words(5.2) == f"#17 Allreduce 4096 float32 ring/8@host {words}"


def test_last_words_are_those_of_the_ranks_that_are_behind_first():
    def said(*numbers):
        return [CallRecord("", k, "blocking", "Barrier", begin=float(k), state="complete") for k in numbers]

    lines = last_words({0: said(5, 6, 7, 8), 1: said(7), 2: []}, 10.0).splitlines()
    assert lines == [
        "",
        "  rank 2: no call",
        "  rank 1: #7 Barrier complete 3.0 s ago",
        "  rank 0: #8 Barrier complete 2.0 s ago; #7 Barrier complete 3.0 s ago; #6 Barrier complete 4.0 s ago",
    ]
    assert len(lines[-1].split(";")) == MOST_CALLS
    many = last_words({rank: said(rank + 1) for rank in range(100)}, 200.0).splitlines()
    assert len(many) == MOST_RANKS + 2
    assert many[-1] == f"  and {100 - MOST_RANKS} more ranks: see `history` of this error"


def test_other_ranks_are_told_the_last_calls_and_a_later_one_elsewhere(calls):
    other, earlier = Calls("another"), Calls("an earlier one")
    for _ in range(2 * TOLD):
        calls.shortcut()
    other.time = 500.0
    earlier.shortcut()
    other.shortcut(known("bcast"))
    told = [CallRecord.from_row(row, 1000.0) for row in calls.recorder.told(600.0)]
    assert [one.sequence for one in told] == [*range(TOLD + 1, 2 * TOLD + 1), 1]
    assert [one.communicator for one in told] == [""] * TOLD + ["another"]
    assert told[-1].begin == 901.0
    assert told[-1].words(1000.0) == "#1 Bcast on another 4096 float32 ring@host complete 99.0 s ago"


def test_a_recorder_that_is_gone_is_asked_no_more(calls):
    other = Calls("gone")
    other.time = 500.0
    other.shortcut()
    del other
    gc.collect()
    assert calls.recorder.told(1.0) == []
    assert all(one.track.name != "gone" for one in room._recorders)


def test_a_row_has_times_of_its_own_hosts_clock_and_short_texts():
    record = CallRecord("", 1, "blocking", "Allreduce", begin=10.0, end=12.0, error="x" * 1000)
    again = CallRecord.from_row(record.row(13.0), 103.0)
    assert (again.begin, again.end, again.error) == (100.0, 102.0, "x" * 60)


def test_the_table_has_a_line_for_each_call(calls):
    calls.shortcut()
    number = calls.nonblocking()
    calls.recorder.calls.ended[number] = 102.25
    lines = str(calls.recorder.history()).splitlines()
    assert " ".join(lines[0].split()) == "# call elements op root plan state began (s) took (us) error"
    assert lines[1].split() == ["1", "Allreduce", "4096", "float32", "SUM", "ring@host", "complete", "101.000000"]
    assert lines[2].split()[-3:] == ["complete", "102.000000", "250000.0"]
    assert str(History()).split()[0] == "#"


def test_an_entry_does_not_keep_what_its_error_holds():
    class Held:
        """Something large."""

    def fails():
        held = Held()
        seen.append(weakref.ref(held))
        raise ValueError(f"{len(seen)}")

    seen, entry = [], Entry("blocking", "Allreduce", 1, None)
    with pytest.raises(ValueError, match="1"), entry:
        fails()
    gc.collect()
    assert seen[0]() is None
    assert entry.error == "ValueError: 1"


class Nvtx:
    """CuPy's module of ranges, which notes them."""

    def __init__(self):
        self.log = []

    def RangePush(self, title):
        self.log.append(title)

    def RangePop(self):
        self.log.append("end")


def test_ranges_are_around_calls_while_there_is_a_trace(monkeypatch, calls, tmp_path):
    ranges = Nvtx()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(nvtx=ranges)))
    with calls.entry(what=known()):
        pass
    assert ranges.log == []
    for what in (known(path="mapped"), None):
        with calls.recorder.begin("blocking", "Allreduce", 17, what, str(tmp_path / "trace.json")):
            ranges.log.append("work")
    entry = calls.recorder.begin("blocking", "Bcast", 18, None, str(tmp_path / "trace.json"))
    with pytest.raises(ValueError, match="no"), entry:
        raise ValueError("no")
    assert ranges.log == [
        *("mpicoll.allreduce #17 ring@mapped 16384", "work", "end"),
        *("mpicoll.allreduce #17", "work", "end"),
        *("mpicoll.bcast #18", "end"),
    ]


def test_without_cupy_or_nvtx_there_are_no_ranges(monkeypatch, calls, tmp_path):
    for module in (None, SimpleNamespace(cuda=SimpleNamespace())):
        monkeypatch.setitem(sys.modules, "cupy", module)
        with calls.recorder.begin("blocking", "Allreduce", 1, None, str(tmp_path / "trace.json")) as nothing:
            assert nothing is None


def test_an_error_of_a_stall_has_the_history_and_can_be_copied():
    import pickle

    error = mpicoll.StalledError("what; why", history={1: [CallRecord("", 1, "blocking", "Barrier")]})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.history) == ("what; why", error.history)
    assert mpicoll.StalledError("this one").history == {}
