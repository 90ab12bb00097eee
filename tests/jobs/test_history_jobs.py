"""What is known of the calls made last when a job ends: in the error of a stall, and in the files of a trace."""

import json

import pytest

from jobs.runner import FRESH

STALL = """
    own, other = comm.Dup(), comm.Dup()
    for _ in range(4):
        own.Allreduce(x, y)
    other.Barrier()
    mpicoll.settings.timeout = 0.5
"""


@pytest.mark.case("HANG-WHO")
def test_a_stall_says_what_each_rank_did_last(job):
    """Rank 1 waits on another communicator, rank 2 has made no call since."""
    body = """
        def calls():
            if rank == 0:
                own.Allreduce(x, y)
            if rank == 1:
                other.Bcast(x, root=2)

        error, _ = raised(calls)
        if rank == 0:
            lines = dict(line.strip().split(": ", 1) for line in str(error).splitlines()[1:])
            assert set(lines) == {"rank 0", "rank 1", "rank 2"}, error
            assert lines["rank 0"].startswith("#5 Allreduce 50 float64 "), error
            assert " running for " in lines["rank 0"].split(";")[0], error
            assert lines["rank 1"].startswith("#2 Bcast on "), error
            assert "; #4 Allreduce 50 float64 " in lines["rank 1"], error
            assert lines["rank 2"].startswith("#1 Barrier on "), error
            assert lines["rank 2"].count("#") == 3, error
            assert [one.sequence for one in error.history[2]] == [1, 2, 3, 4, 1], error.history
            assert [one.sequence for one in error.history[1]] == [1, 2, 3, 4, 2], error.history
        world.Barrier()
        last_words()
    """
    job(STALL, body, MPICOLL_TIMEOUT="30").is_clean()


def events(file):
    """The events of calls in a rank's file."""
    return [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] in ("X", "b")]


def test_each_rank_writes_its_trace_when_the_job_ends(plain, tmp_path):
    """Also after MPI's end; and the command makes one file of them."""
    body = """
        for _ in range(10):
            used()
        comm.Iallreduce(x, y).Wait()
        last_words()
        if rank:
            MPI.Finalize()
    """
    plain(body, MPICOLL_TRACE=str(tmp_path / "run.json")).is_clean()
    for rank in range(3):
        found = events(tmp_path / f"run.{rank}.json")
        assert [event["args"]["sequence"] for event in found] == list(range(1, 13))
        assert {event["pid"] for event in found} == {rank}
        assert [event["name"] for event in found] == ["Allreduce 50 float64"] * 11 + ["Iallreduce 50 float64"]
    assert len({path.name for path in tmp_path.glob("run.*.json")}) == 3


def test_a_trace_is_written_when_a_call_stalls(job, tmp_path):
    """The job may be ended before the process comes to its end."""
    body = """
        used()
        if rank == 0:
            error, _ = raised(used)
            os._exit(0)
        last_words()
        time.sleep(2)
        os._exit(0)
    """
    job(body, start=FRESH, ranks=2, MPICOLL_TIMEOUT="0.5", MPICOLL_TRACE=str(tmp_path / "run.json"))
    found = events(tmp_path / "run.0.json")
    assert [(event["args"]["sequence"], event["args"]["state"]) for event in found] == [(1, "complete"), (2, "running")]
