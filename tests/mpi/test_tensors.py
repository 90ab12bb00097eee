"""Tensors of PyTorch, given to methods and to functions."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpi.functions import EXPECTED, mine, same

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
LAST = SIZE - 1


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def torch_device(request):
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    if request.param == "cpu":
        return torch, "cpu"
    import cupy

    return torch, f"cuda:{cupy.cuda.Device().id}"


@pytest.mark.case("TORCH")
def test_tensors(world, torch_device):
    """The result is seen in the tensor; bool, strided and many calls; grad is refused by name."""
    torch, device = torch_device
    x = torch.ones(4, device=device)
    for _ in range(200):
        x.fill_(1)
        world.Allreduce(MPI.IN_PLACE, x)
    assert x.tolist() == [SIZE] * 4
    y = mpicoll.allreduce(torch.ones((2, 3), dtype=torch.float64, device=device), comm=world)
    assert (type(y), tuple(y.shape), y.dtype, y.device) == (torch.Tensor, (2, 3), torch.float64, x.device)
    truth = torch.tensor([world.rank == 0, True, False], device=device)
    assert mpicoll.allreduce(truth, MPI.LOR, comm=world).tolist() == [True, True, False]
    wide = torch.zeros((4, 6), device=device)
    world.Allreduce(torch.ones((4, 3), device=device), wide[:, ::2])
    assert wide.sum().item() == 12 * SIZE
    with pytest.raises(ValueError, match=r"^allreduce: .* requires grad; pass .*\.detach\(\)$"):
        world.Allreduce(torch.ones(3, device=device, requires_grad=True), torch.zeros(3, device=device))
    check(world, Case("Allreduce"))


@pytest.mark.case("TORCH")
def test_tensor_of_another_library(world):
    """A stand-in for a CPU tensor, since the library itself may be missing: only its names are used."""

    class Tensor:
        __module__ = "torch"
        dtype, requires_grad = "torch.float64", False

        def __init__(self, array):
            self.array, self.shape = array, array.shape
            self.device = type("Device", (), {"type": "cpu"})
            self.is_conj = self.is_neg = lambda: False
            self.numel, self.stride = lambda: array.size, lambda: [1]
            self.data_ptr = lambda: array.ctypes.data

    x, y = Tensor(np.full(3, 2.0)), Tensor(np.zeros(3))
    world.Allreduce(x, y)
    assert y.array.tolist() == [2.0 * SIZE] * 3
    x.requires_grad = True
    with pytest.raises(ValueError, match=r"^allreduce: sendbuf requires grad; pass sendbuf\.detach\(\)$"):
        world.Allreduce(x, y)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.case("TORCH")
@pytest.mark.parametrize("name", EXPECTED)
def test_functions_take_and_return_tensors(torch, name):
    """A tensor gives a tensor of its dtype."""
    x = torch.from_numpy(mine().copy())
    found = getattr(mpicoll, name)(x)
    wanted = EXPECTED[name]()
    if wanted is None:
        assert found is None
        return
    assert type(found) is torch.Tensor
    assert found.dtype == torch.float32
    same(found.numpy(), wanted)


def test_tensors_are_not_copied(torch):
    x, out = torch.ones(4), torch.zeros(4)
    assert mpicoll.allreduce(x, out=out) is out
    assert out.tolist() == [SIZE] * 4
    mpicoll.bcast(x.mul_(RANK + 1), root=LAST)
    assert x.tolist() == [SIZE] * 4


def test_uneven_tensors(torch):
    found, counts = mpicoll.allgatherv(torch.full((RANK + 1, 2), float(RANK)))
    assert type(found) is torch.Tensor
    assert list(counts) == [r + 1 for r in range(SIZE)]
    assert found[:, 0].tolist() == [float(r) for r in range(SIZE) for _ in range(r + 1)]


def test_half_precision_tensors(torch):
    pytest.importorskip("ml_dtypes")
    for dtype in (torch.float16, torch.bfloat16):
        found = mpicoll.allreduce(torch.ones(3, dtype=dtype))
        assert found.dtype == dtype
        assert found.tolist() == [SIZE] * 3


def test_tensors_with_gradients_are_refused(torch):
    with pytest.raises(ValueError, match=r"requires grad; pass x\.detach\(\)"):
        mpicoll.allreduce(torch.ones(3, requires_grad=True))


def test_a_tensor_that_was_used_can_be_resized(torch):
    """Also its memory given up, as FSDP does; the call remembers an address at which there may be something else."""
    x = torch.ones(4)
    for _ in range(4):
        mpicoll.allreduce(x)
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(16)
        x.fill_(1)
    assert mpicoll.allreduce(x).tolist() == [SIZE] * 4


def test_conjugates_and_negatives_are_refused(torch):
    """Their elements are not what is in memory."""
    x = torch.full((3,), 1 + 2j)
    for lazy, error in ((x.conj(), "sendbuf"), (x.conj().imag, "sendbuf")):
        with pytest.raises(ValueError, match=rf"^allreduce: {error} is a conjugate or a negative"):
            mpicoll.Communicator().Allreduce(lazy, torch.zeros_like(lazy))
    assert mpicoll.allreduce(x.conj().resolve_conj()).tolist() == [SIZE * (1 - 2j)] * 3


@pytest.mark.parametrize("part", ["rows", "columns", "transposed", "expanded", "offset", "empty"])
def test_parts_of_tensors(torch, part):
    whole = torch.arange(24.0).reshape(4, 6)
    parts = {
        "rows": whole[1:3],
        "columns": whole[:, 2:5],
        "transposed": whole.T,
        "expanded": whole[0, :1].expand(5),
        "offset": whole.view(-1)[3:],
        "empty": whole[:0],
    }
    x = parts[part]
    wanted = (x * SIZE).tolist()
    for _ in range(4):
        out = torch.zeros(x.shape)
        mpicoll.Communicator().Allreduce(x, out)
        assert out.tolist() == wanted


def test_remembered_tensors_are_told_apart(torch, world):
    """By address, count, dtype, memory order, and whether a gradient is wanted; also where one object is changed."""
    memory = torch.arange(64.0)
    for _ in range(4):
        for x in (memory[:8], memory[8:16], memory[:9], memory.view(torch.int32)[:8], memory[:8].view(2, 4)):
            y = torch.zeros_like(x)
            world.Allreduce(x, y)
            assert (y == x * SIZE).all()
        world.Allreduce(memory[:16:2], y := torch.zeros(8))
        assert (y == memory[:16:2] * SIZE).all()
    x = torch.ones(3)
    for _ in range(4):
        world.Allreduce(MPI.IN_PLACE, x)
    x.requires_grad_()
    with pytest.raises(ValueError, match="requires grad"):
        world.Allreduce(MPI.IN_PLACE, x)


def test_equal_calls_of_tensors_are_remembered(torch, world, monkeypatch):
    x, y = torch.ones(5), torch.zeros(5)
    world.Allreduce(x, y)
    monkeypatch.setattr("mpicoll.runtime.call.decision.read_call", lambda *_: pytest.fail("it was read again"))
    for one, other in ((x, y), (x[:], y[:]), (torch.ones(5), torch.zeros(5))):
        world.Allreduce(one, other)
        assert other.tolist() == [SIZE] * 5
