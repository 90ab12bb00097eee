"""The trace: a file of each rank with all of its calls, and one file of all ranks."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from mpicoll.__main__ import main
from mpicoll.recorder import trace
from mpicoll.recorder.entry import Decision, Entry
from mpicoll.recorder.merge import merged
from mpicoll.recorder.trace import Trace, Track

ROW = SimpleNamespace(rooted=False)
OPERANDS = SimpleNamespace(method="allreduce", count=2500, nbytes=10000, dtype=np.dtype("f4"), row=ROW)
OPERANDS.op, OPERANDS.root = SimpleNamespace(name="SUM"), 0


def call(sequence, began, ended, form="blocking", *, path="host", error="", known=True):
    """Return the entry of a call."""
    plan = SimpleNamespace(algorithm="ring", segments=4, path=path)
    entry = Entry(form, "Allreduce", sequence, Decision(OPERANDS, plan) if known else None, bound=known)
    entry.began, entry.ended, entry.error = began, ended, error
    return entry


def track(rank=1, number=1, name="world"):
    return Track(name, number, rank, 4, rank)


@pytest.fixture
def made(monkeypatch, tmp_path):
    """A trace that no process writes at its end."""
    monkeypatch.setattr(trace.atexit, "register", lambda _: None)
    return Trace(str(tmp_path / "run.json"))


def written(made, rank=1):
    """Write a trace; return what is in the file, and its events of calls."""
    made.write()
    found = json.loads(made.file.with_name(f"run.{rank}.json").read_text())
    return found, [event for event in found["traceEvents"] if event["ph"] != "M"]


def test_a_blocking_call_is_a_slice_with_all_that_is_known_of_it(made):
    made.keep(track(), call(17, 5.0, 5.001))
    _, (event,) = written(made)
    assert event == {
        "name": "Allreduce 2500 float32",
        "cat": "mpicoll",
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "ts": 5e6,
        "dur": 1000.0,
        "args": {
            "sequence": 17,
            "form": "blocking",
            "bytes": 10000,
            "bandwidth (GB/s)": 0.01,
            "plan": "ring/4@host",
            "op": "SUM",
            "state": "complete",
        },
    }


@pytest.mark.parametrize(("form", "name"), [("nonblocking", "Iallreduce"), ("start", "Allreduce.Start")])
def test_calls_that_do_not_block_are_pairs_of_events_that_may_overlap(made, form, name):
    made.keep(track(), call(1, 5.0, 9.0, form))
    made.keep(track(), call(2, 6.0, 7.0, form))
    _, events = written(made)
    assert [(e["ph"], e["id"], e["ts"]) for e in events] == [
        ("b", "1.0", 5e6),
        ("e", "1.0", 9e6),
        ("b", "1.1", 6e6),
        ("e", "1.1", 7e6),
    ]
    assert {e["name"] for e in events} == {f"{name} 2500 float32"}


def test_ranks_are_processes_and_communicators_are_threads(made):
    made.keep(track(number=7, name="halves"), call(1, 5.0, 6.0))
    made.keep(track(number=2), call(1, 6.0, 7.0))
    found, events = written(made)
    names = {(e["name"], e["tid"]): e["args"]["name"] for e in found["traceEvents"] if e["name"].endswith("_name")}
    assert names["thread_name", 7] == "halves, rank 1 of 4"
    assert names["thread_name", 2] == "world, rank 1 of 4"
    assert names["process_name", 0].startswith("rank 1 on ")
    assert [(e["pid"], e["tid"]) for e in events] == [(1, 7), (1, 2)]


def test_what_has_not_ended_lasts_until_now(made, monkeypatch):
    monkeypatch.setattr(trace.time, "monotonic", lambda: 8.0)
    made.keep(track(), call(1, 5.0, 0.0))
    made.keep(track(), call(2, 6.0, 0.0, known=False))
    _, (running, planning) = written(made)
    assert (running["dur"], running["args"]["state"]) == (3e6, "running")
    assert (planning["dur"], planning["args"]) == (2e6, {"sequence": 2, "form": "blocking", "state": "planning"})


def test_only_complete_calls_have_a_bandwidth(made):
    """Where the host has only enqueued a call, its time is not that of the data; nor where a call has failed."""
    made.keep(track(), call(1, 5.0, 6.0, path="mapped"))
    made.keep(track(), call(2, 6.0, 7.0, error="ValueError: no"))
    made.keep(track(), call(3, 7.0, 8.0, "persistent"))
    _, events = written(made)
    assert [e["args"]["state"] for e in events] == ["enqueued", "failed", "planned"]
    assert not any("bandwidth (GB/s)" in e["args"] for e in events)
    assert events[1]["args"]["error"] == "ValueError: no"


def test_the_latest_calls_are_kept_and_the_others_counted(made, monkeypatch):
    monkeypatch.setattr(trace, "MOST", 3)
    small = Trace(str(made.file))
    for number in range(5):
        small.keep(track(), call(number, 1.0 + number, 1.5 + number))
    found, events = written(small)
    assert [e["args"]["sequence"] for e in events] == [2, 3, 4]
    assert found["otherData"]["dropped"] == 2


def test_a_forked_child_writes_nothing(made, monkeypatch):
    made.keep(track(), call(1, 5.0, 6.0))
    monkeypatch.setattr(os, "getpid", lambda: made.process + 1)
    made.write()
    assert not list(made.file.parent.iterdir())


def test_a_file_that_cannot_be_written_is_told(made, capsys):
    made.file = made.file.parent / "nowhere" / "run.json"
    made.keep(track(), call(1, 5.0, 6.0))
    made.write()
    assert "mpicoll: the trace of rank 1 is not written: " in capsys.readouterr().err


def files(tmp_path, *hosts):
    """Write a file for each rank, whose host has a clock that began 100 s after that of the one before."""
    for rank, host in enumerate(hosts):
        order = sorted(set(hosts)).index(host)
        event = {"name": "Allreduce", "ph": "X", "pid": rank, "ts": 5e6, "dur": 1.0}
        named = {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}
        head = {"host": host, "wall_clock": 1000.0 + 100 * order + 1e-3 * rank}
        (tmp_path / f"run.{rank}.json").write_text(json.dumps({"otherData": head, "traceEvents": [named, event]}))
    return [str(tmp_path / f"run.{rank}.json") for rank in range(len(hosts))]


def test_a_merged_trace_has_all_events_on_one_clock(tmp_path):
    """Ranks of one host have one already, whatever their wall clocks said a moment later."""
    found = merged(files(tmp_path, "one", "one", "two", "two"))
    assert found["otherData"] == {"hosts": ["one", "two"]}
    times = [(e["pid"], e["ts"]) for e in found["traceEvents"] if e["ph"] == "X"]
    assert [(rank, round(time)) for rank, time in times] == [(0, 5e6), (1, 5e6), (2, 105.002e6), (3, 105.002e6)]
    assert sum(e["ph"] == "M" for e in found["traceEvents"]) == 4


def test_the_command_writes_one_file(tmp_path, capsys):
    target = tmp_path / "all.json"
    assert main(["trace", *files(tmp_path, "one", "one"), "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: 2 calls of 2 ranks; open it at https://ui.perfetto.dev\n"
    assert len(json.loads(target.read_text())["traceEvents"]) == 4


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"traceEvents": []}', '{"otherData": {}, "traceEvents": []}'])
def test_what_is_no_trace_is_named(tmp_path, capsys, text):
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    assert main(["trace", str(file), "-o", str(tmp_path / "all.json")]) == 2
    assert f"mpicoll: {file} is no trace of one rank: " in capsys.readouterr().err


def test_a_target_that_cannot_be_written_is_named(tmp_path, capsys):
    assert main(["trace", *files(tmp_path, "one"), "-o", str(tmp_path)]) == 2
    assert f"mpicoll: {tmp_path} cannot be written: " in capsys.readouterr().err
