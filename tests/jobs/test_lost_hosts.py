"""A rank, a host or a link that is lost or frozen: the others name ranks with their hosts, and the job ends."""

import re
import time

import pytest

from jobs.hosts import ENVIRONMENT, two_hosts
from jobs.runner import LIMIT, Job, is_mpich, python, script

#: seconds of a call without progress after which it has stalled
TIMEOUT = 0.5
#: most seconds from a call to its error, on a busy machine
LATE = 20
#: how a program of two ranks on the first host and one on the second begins; what a rank meets it tells in a file,
#: for a launcher may lose what is printed on a lost host
ACTS = f"""
from pathlib import Path

mpicoll.settings.timeout = {TIMEOUT}

def tell(name, text=""):
    Path(f"{{name}}.part").write_text(text)
    Path(f"{{name}}.part").rename(name)

def heed(name):
    end = time.monotonic() + {LIMIT}
    while not Path(name).exists() and time.monotonic() < end:
        time.sleep(0.01)

def tell_error(*witnesses):
    error, seconds = raised(used)
    tell(f"error-{{rank}}", f"{{seconds:.1f}} s {{error!r}}")
    for other in witnesses:  # who leaves first ends them, or is another that does not answer
        heed(f"error-{{other}}")
    if error is not None:
        raise error

tell(f"ready-{{rank}}")
heed("go")
"""


@pytest.fixture
def hosts(tmp_path):
    with two_hosts(tmp_path) as made:
        yield made


@pytest.fixture
def start(hosts, tmp_path):
    """Start a program, and return its job as soon as all ranks have made a call."""

    def run(body, outlive=False):
        program = script(tmp_path, ACTS, body)
        command = python(3, program, options=hosts.options((2, 1), outlive=outlive))
        job = Job(tmp_path, hosts.on_first(command), MPICOLL_TIMEOUT="30", **ENVIRONMENT)
        for rank in range(3):
            job.told(f"ready-{rank}")
        return job

    return run


def go(job):
    """Let the ranks make their next call."""
    job.called = time.monotonic()
    (job.folder / "go").touch()


def check(job, hosts, witness, *lost):
    """Check the error that a rank has told: it came in time, and names ranks with their hosts."""
    seconds, error = re.fullmatch(r"(\S+) s (.*)", job.told(f"error-{witness}"), re.DOTALL).groups()
    print(f"rank {witness}: {seconds} s, {error}")
    assert error.startswith("StalledError"), error
    names = ", ".join(f"{rank} on {hosts.names[rank // 2]}" for rank in lost)
    assert f"no answer from rank{'s'[: len(lost) > 1]} {names}" in error, error
    assert float(seconds) < LATE, error


def ends(job):
    """Check that a job ends, and that no rank crashes."""
    job.end()
    print(f"the job ended {time.monotonic() - job.called:.1f} s after the call")
    assert job.code != 0, job.output
    assert "egmentation" not in job.output, job.output


@pytest.mark.case("HANG-WHO")
def test_a_killed_rank(start, hosts):
    """The launcher leaves the others alive."""
    if not is_mpich():
        pytest.skip("Open MPI ends a process itself whose peer's socket closes")
    body = """
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        tell_error(0, 1)
    """
    job = start(body, outlive=True)
    go(job)
    for witness in (0, 1):
        check(job, hosts, witness, 2)
    ends(job)


@pytest.mark.case("HANG-WHO")
def test_a_frozen_rank(start, hosts):
    """It is there, but does nothing; the launcher ends it when the others leave."""
    body = """
        if rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        tell_error(0, 1)
    """
    job = start(body)
    go(job)
    for witness in (0, 1):
        check(job, hosts, witness, 2)
    ends(job)


@pytest.mark.case("HANG-WHO")
def test_a_lost_host(start, hosts):
    """Its link goes down, then all that runs there is killed: nobody hears of that."""
    job = start("tell_error(0, 1)", outlive=True)
    hosts.cut(1)
    hosts.kill(1)
    go(job)
    if not is_mpich():
        job.end()  # its launcher ends all ranks, with status 0, when its daemon on a host has gone
        return
    for witness in (0, 1):
        check(job, hosts, witness, 2)
    ends(job)


@pytest.mark.case("HANG-WHO")
def test_a_frozen_link(start, hosts):
    """Ranks of both hosts have an error; then the link comes back, and the job ends."""
    job = start("tell_error(0, 1, 2)", outlive=True)
    hosts.cut(1)
    go(job)
    for witness in (0, 1):
        check(job, hosts, witness, 2)
    check(job, hosts, 2, 0, 1)
    hosts.join(1)
    ends(job)


def test_a_slow_link_is_no_stall(start, hosts):
    """Each message takes longer than the limit; who does not need it waits in the next call for those who do."""
    body = """
        begin = time.monotonic()
        for algorithm in ("binomial", "linear"):
            big = np.full(150_000, float(rank == 0))
            comm.Bcast(big, algorithm=algorithm)
            assert (big == 1).all()
        assert rank < 2 or time.monotonic() > begin + 3 * mpicoll.settings.timeout
        last_words()
    """
    trouble = hosts.slow("8mbit")
    if trouble:
        pytest.skip(trouble)
    job = start(body)
    go(job)
    job.end().is_clean()
