"""Ranks on two hosts: they know it, results are right, and few bytes go from host to host."""

import re
from pathlib import Path

import pytest

from jobs.hosts import ENVIRONMENT, two_hosts
from jobs.runner import Job, python, script

TESTS = Path(__file__).parents[1]
#: every algorithm for hosts compared with NumPy
ALGORITHMS = f"""
sys.path.insert(0, {str(TESTS)!r})
from itertools import product
from mpi.calling import check
from mpi.cases import ROOTED, VECTOR, Case
from mpicoll.algorithms import registry
from mpicoll.info import show

def check_method(method, names):
    roots = (0, size - 1) if method in ROOTED else (0,)
    for name, count, root in product(names, (1, 3000), roots):
        check(comm, Case(method, name, count, "uneven" if method in VECTOR else "", root=root))

def check_barrier(name):
    time.sleep(0.05 * rank)
    came = time.time()
    comm.Barrier(algorithm=name)
    left = time.time()  # of one clock: the hosts are imitated
    assert max(world.allgather(came)) <= min(world.allgather(left)), name

checked = 0
for row in registry.COLLECTIVES.values():
    names = [card.name for card in registry.known(row.name) if card.by_hosts]
    checked += len(names)
    for method in row.methods:
        if method == "Barrier":
            list(map(check_barrier, names))
        else:
            check_method(method, [*names, None])
plan = comm.Get_plan("Allreduce", x, y)
if rank == 0:
    sys.stdout.write(f"{{checked}} algorithms, {{str(plan).splitlines()[0]}}\\n")
show()
last_words()
"""
#: the bytes that go out of and into the first host in a call, as parts of a vector
BYTES = """
from pathlib import Path

statistics = Path("/sys/class/net/wire/statistics")
nbytes = 1 << 19
x, y = np.ones(nbytes // 4, "f4"), np.zeros(nbytes // 4, "f4")
part = nbytes // 4 // size

def counted():
    return np.array([int((statistics / f"{way}_bytes").read_text()) for way in ("tx", "rx")])

def vectors(call):
    call()
    found = []
    for _ in range(4):  # TCP may send again what is only late: that is no traffic of the algorithm's
        world.Barrier()
        before = counted()
        world.Barrier()  # nobody begins before that is read
        call()
        call()
        world.Barrier()
        found.append(max(counted() - before) / 2 / nbytes)
    return min(found)

calls = {
    "striped": (lambda: comm.Allreduce(x, y, algorithm="striped"), y, size),
    "two_shot": (lambda: comm.Allreduce(x, y, algorithm="two_shot"), y, size),
    "allreduce": (lambda: comm.Allreduce(x, y), y, size),
    "bcast": (lambda: comm.Bcast(y), y, size),
    "allgather": (lambda: comm.Allgather(x[:part], y), y, 1),
    "reduce_scatter": (lambda: comm.Reduce_scatter_block(x, y[:part]), y[:part], size),
}
for name, (call, array, value) in calls.items():
    found = vectors(call)
    assert (array == value).all(), name
    if rank == 0:
        sys.stdout.write(f"{name}: {found:.3f} vectors\\n")  # at once, for all ranks write
last_words()
"""
#: the least that goes out of, or into, one of two hosts of two ranks, in vectors: of an allreduce all of the sum; of a
#: broadcast all of the root's; of the other two the other host's half
LEAST = {"striped": 1, "two_shot": 2, "allreduce": 1, "bcast": 1, "allgather": 0.5, "reduce_scatter": 0.5}
#: counted are also 66 bytes or less of headers for a segment of up to 64 KB, acknowledgements, the MPI's own control
#: messages and the barriers: nothing is subtracted
SLACK = 1.1


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with two_hosts(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture
def on_hosts(hosts, tmp_path):
    """Run a program on so many ranks of each host."""

    def run(ranks, program):
        command = python(sum(ranks), program, options=hosts.options(ranks))
        return Job(tmp_path, hosts.on_first(command), **ENVIRONMENT).end()

    return run


@pytest.mark.parametrize(("ranks", "hosts_text"), [((2, 2), "2 hosts: 0-1, 2-3"), ((3, 1), "2 hosts: 0-2, 3")])
def test_every_algorithm_for_hosts_gives_what_numpy_does(on_hosts, tmp_path, ranks, hosts_text):
    """A plan and `info` say the hosts."""
    ended = on_hosts(ranks, script(tmp_path, ALGORITHMS))
    ended.is_clean(4)
    (said,) = [line for line in ended.output.splitlines() if " algorithms, " in line]
    assert int(said.split()[0]) >= 12
    assert said.endswith(f"{hosts_text})")
    assert re.search(rf"topology\W+{hosts_text}\s", ended.output), ended.output


def test_bytes_between_hosts_are_the_least(on_hosts, tmp_path):
    """The device of the first host counts them: by `striped` half of those by `two_shot`, and by what is chosen."""
    ended = on_hosts((2, 2), script(tmp_path, BYTES))
    ended.is_clean(4)
    found = dict(line.split(": ") for line in ended.output.splitlines() if line.endswith(" vectors"))
    print(found)
    assert set(found) == set(LEAST)
    for name, least in LEAST.items():
        assert least <= float(found[name].split()[0]) < SLACK * least, found
