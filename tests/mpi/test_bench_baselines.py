"""What the benchmark measures beside mpicoll: NCCL (pretended, over MPI), the MPI's own collectives, the limit."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.bench.contestants import baselines, nccl
from mpicoll.bench.contestants.nccl import DTYPES, NVLS, Nccl
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.output.results import read
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.run import run
from mpicoll.runtime.host.work import view
from mpicoll.runtime.mpi.cuda_aware import Awareness

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
NAMES = {number: name for name, number in DTYPES.items()}
STREAM = 4711
REFUSED_IN_PLACE = {"alltoall", "alltoallv", "reduce_scatter_block"}
REFUSED = {"barrier", "scan", "exscan", "allgatherv", "reduce_scatter"}


class Pretended(HostBackend):
    """NumPy's arrays that say that they are CuPy's."""

    kind = "cupy"
    stream_pointer = STREAM


class Comm:
    """NcclCommunicator, over MPI: what CuPy takes, in the order in which CuPy takes it."""

    def __init__(self, library):
        self.library = library

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        at(recvbuf, count, datatype)[:] = combined(sendbuf, count, datatype, op, stream)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        result = combined(sendbuf, count, datatype, op, stream)
        if root == RANK:
            at(recvbuf, count, datatype)[:] = result

    def bcast(self, buff, count, datatype, root, stream):
        assert stream == STREAM
        WORLD.Bcast(at(buff, count, datatype).view("u1"), root)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        whole = combined(sendbuf, recvcount * SIZE, datatype, op, stream)
        at(recvbuf, recvcount, datatype)[:] = whole[RANK * recvcount :][:recvcount]

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        assert stream == STREAM
        mine = at(sendbuf, count, datatype).view("u1").copy()
        WORLD.Allgather(mine, at(recvbuf, count * SIZE, datatype).view("u1"))

    def send(self, sendbuf, count, datatype, peer, stream):
        assert stream == STREAM
        self.library.add(WORLD.Isend, at(sendbuf, count, datatype), peer)

    def recv(self, recvbuf, count, datatype, peer, stream):
        assert stream == STREAM
        self.library.add(WORLD.Irecv, at(recvbuf, count, datatype), peer)


class Library:
    """cupy.cuda.nccl, over MPI."""

    def __init__(self):
        self.open, self.queue = False, []

    def NcclCommunicator(self, ndev, uid, rank):
        assert (ndev, uid, rank) == (SIZE, (1, 2, 3), RANK)
        return Comm(self)

    def add(self, start, array, peer):
        assert self.open
        self.queue.append(start(array.view("u1"), peer))

    def get_version(self):
        return 22803

    def get_unique_id(self):
        return (1, 2, 3)

    def groupStart(self):
        self.open = True

    def groupEnd(self):
        MPI.Request.Waitall(self.queue)
        self.open, self.queue = False, []


def at(pointer, count, datatype):
    assert pointer or not count
    if not count:
        return np.empty(0, NAMES[datatype])
    dtype = np.dtype(NAMES[datatype])
    return view((pointer, count * dtype.itemsize), dtype)


def combined(pointer, count, datatype, op, stream):
    assert stream == STREAM
    everyone = WORLD.allgather(at(pointer, count, datatype).copy())
    ufunc = (np.add, np.multiply, np.maximum, np.minimum, np.add)[op]
    total = everyone[0]
    for other in everyone[1:]:
        total = ufunc(total, other)
    return total / SIZE if op == 4 else total


@pytest.fixture
def pretended():
    return Nccl(WORLD, Pretended(), Library())


def wrong(contestant, case, in_place, backend):
    """Return the wrong elements of all ranks."""
    arrays = Arrays(case, in_place, RANK, backend)
    contestant.way(arrays, None)
    arrays.load(0)
    contestant.bind(arrays, None)()
    return WORLD.allreduce(arrays.wrong()[0])


def everything(dtype):
    for call in CALLS.values():
        for in_place, root in itertools.product(call.forms, range(SIZE if call.row.rooted else 1)):
            yield make_case(call, 400, dtype, SIZE, "SUM", root), in_place


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
def test_what_is_asked_of_nccl_is_the_call_or_refused(pretended, dtype):
    for case, in_place in everything(dtype):
        name = case.call.name
        reduced = dtype == "complex64" and case.call.row.reducing
        if name in REFUSED or (in_place and name in REFUSED_IN_PLACE) or reduced:
            with pytest.raises(mpicoll.UnsupportedError):
                pretended.way(Arrays(case, in_place, RANK, Pretended()), None)
        else:
            assert wrong(pretended, case, in_place, Pretended()) == 0, (case, in_place)


@pytest.mark.parametrize("redop", ["SUM", "PROD", "MAX", "MIN", "AVG"])
def test_operators_of_nccl(pretended, redop):
    if redop == "AVG" and SIZE & (SIZE - 1):
        pytest.skip("a mean is not whole where it is rounded otherwise")
    assert wrong(pretended, make_case(CALLS["allreduce"], 400, "float64", SIZE, redop, 0), False, Pretended()) == 0


def test_what_nccl_does_not_have_is_refused(pretended):
    for redop, dtype in (("BAND", "int32"), ("SUM", "int16"), ("LAND", "float32")):
        arrays = Arrays(make_case(CALLS["allreduce"], 400, dtype, SIZE, redop, 0), False, RANK, Pretended())
        with pytest.raises(mpicoll.UnsupportedError, match=f"NCCL has no {redop} of {dtype}"):
            pretended.way(arrays, None)
    assert pretended.version == "2.28.3"


def test_nvls_is_off_unless_the_user_decides(monkeypatch):
    monkeypatch.delenv(NVLS, raising=False)
    assert nccl.without_nvls()
    assert not nccl.without_nvls()  # now it is set
    monkeypatch.setenv(NVLS, "1")
    assert not nccl.without_nvls()


def test_baselines_that_cannot_serve_say_why():
    aware = Awareness(False, "nobody knows")
    made, refused = baselines.make(("nccl", "native", "staged", "limit"), WORLD, HostBackend(), aware)
    alone = {"limit": "one rank sends no message"} if SIZE == 1 else {}
    copies = {"staged": "buffers are NumPy's: there is nothing to copy"}
    assert refused == {"nccl": "buffers are NumPy's, and NCCL needs CuPy's"} | copies | alone
    assert list(made) == ["native", "limit"][: 2 - len(alone)]
    made, refused = baselines.make(("native", "limit"), WORLD, Pretended(), aware)
    assert not made
    assert refused["limit"] == "device arrays cannot be given to MPI (nobody knows)"
    assert "does not say that it knows CUDA" in refused["native"]


def test_a_rank_that_cannot_serve_is_everyone_s(monkeypatch):
    right = baselines.cuda_aware.library_answer
    monkeypatch.setattr(
        baselines.cuda_aware, "library_answer", lambda: Awareness(True, "yes") if RANK else right(), raising=True
    )
    made, refused = baselines.make(("native",), WORLD, Pretended(), Awareness(True, "yes"))
    assert (list(made), list(refused)) == ([], ["native"])


def test_the_mpi_s_own_collectives_are_right():
    native = baselines.Native(WORLD, HostBackend())
    for case, in_place in everything("float32"):
        if in_place and case.call.name == "reduce_scatter":
            with pytest.raises(mpicoll.UnsupportedError, match="uneven blocks in place"):
                native.way(Arrays(case, in_place, RANK, HostBackend()), None)
        else:
            assert wrong(native, case, in_place, HostBackend()) == 0, (case, in_place)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_staged_collectives_are_right(dtype):
    staged, ran = baselines.Staged(WORLD, Pretended()), 0
    for case, in_place in everything(dtype):
        try:
            assert wrong(staged, case, in_place, Pretended()) == 0, (case, in_place)
            ran += 1
        except mpicoll.UnsupportedError:
            assert dtype == "bfloat16" or (in_place and case.call.name == "reduce_scatter")
    assert ran or dtype == "bfloat16"


def test_mean_is_no_operator_of_mpi():
    arrays = Arrays(make_case(CALLS["allreduce"], 400, "float32", SIZE, "AVG", 0), False, RANK, HostBackend())
    with pytest.raises(mpicoll.UnsupportedError, match="MPI has no operator AVG"):
        baselines.Native(WORLD, HostBackend()).way(arrays, None)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("nbytes", [0, 8, 1 << 20])
def test_the_limit_moves_what_the_busiest_rank_sends(nbytes, monkeypatch):
    monkeypatch.setattr(baselines, "LARGEST_MESSAGE", 1 << 19)
    limit = baselines.Limit(WORLD, HostBackend(), Awareness(False, ""))
    case = make_case(CALLS["allreduce"], nbytes, "float32", SIZE, "SUM", 0)
    ring = limit.bind(Arrays(case, False, RANK, HostBackend()), None)
    away, here = ring.arrays
    assert away.size == max(round(case.nbytes * 2 * (SIZE - 1) / SIZE), 1)
    away[:] = RANK + 1
    ring()
    ring()
    if nbytes:
        assert (here == (RANK - 1) % SIZE + 1).all()


@pytest.mark.mpi(min_size=2)
def test_times_and_ratios_are_in_the_file_and_the_table(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv(NVLS, "0")
    file = WORLD.bcast(str(tmp_path / "results.json"))
    words = "--op allreduce,scan --sizes 8,4K --iters 7 --buffers numpy --baseline nccl,native,limit --outofplace"
    assert run([*words.split(), "--json", file]) == 0
    if RANK:
        return
    found = read(Path(file))
    assert [row["bytes"] for row in found["rows"]] == [8, 4096] * 2
    for row in found["rows"]:
        ours, *others = row["times"]
        assert (ours, others) == ("mpicoll", ["native", "limit"])
        for name in others:
            assert len(row["times"][name]["samples"]) == 7
            ratio = row["times"][name]["median"] / row["times"]["mpicoll"]["median"]
            assert row["figures"][f"ratio {name}"]["value"] == pytest.approx(ratio, rel=0.01)
    assert found["facts"]["baselines"] == {"native": "", "limit": ""}
    out = capfd.readouterr().out
    assert "# left out: every call: baseline nccl: buffers are NumPy's" in out
    assert re.search(r"#wrong +native native +limit limit", out), out
    assert re.search(r"\(us\) +ratio +\(us\) +eff\.", out), out


def test_a_wrong_baseline_is_not_timed(capfd, monkeypatch):
    monkeypatch.setattr(baselines.Native, "bind", lambda self, arrays, algorithm: lambda: None)
    words = "--op allreduce --sizes 64 --iters 1 --buffers numpy --baseline native"
    assert run(words.split()) == 0
    if RANK == 0:
        out = capfd.readouterr().out
        assert "# left out: allreduce: baseline native: wrong results, out of place, 64 B of float32" in out
        assert "wrong elements: 0 OK" in out
