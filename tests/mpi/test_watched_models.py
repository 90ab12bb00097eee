"""Models of PyTorch on several ranks: gradients as those of the whole batch on one."""

import pytest
from mpi4py import MPI

import mpicoll

SIZE, RANK = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()
BATCH = 24

pytestmark = pytest.mark.many_ranks


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def torch(request):
    """The library, whose new tensors are on the device."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("PyTorch has no CUDA")
        import cupy

        request.param = f"cuda:{cupy.cuda.Device().id}"
    with torch.device(request.param):
        yield torch


def model(torch):
    torch.manual_seed(1)
    nn = torch.nn
    layers = nn.Conv1d(1, 3, 5), nn.Tanh(), nn.Flatten(), nn.Linear(48, 30), nn.ReLU(), nn.Linear(30, 2)
    made = nn.Sequential(*layers).to(torch.float64)
    made[0].weight.requires_grad_(False)
    return made


@pytest.mark.parametrize("nbytes", [1000, 25 << 20])
def test_gradients_are_those_of_the_whole_batch(world, torch, nbytes):
    """New gradients in some steps, the old ones filled again in others, and accumulation."""
    mine, whole = model(torch), model(torch)
    buckets = mpicoll.GradientBuckets(world, bucket_bytes=nbytes)
    buckets.watch(mine)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (mine, whole)]
    share = BATCH // SIZE * SIZE
    x, y = torch.randn(share, 1, 20, dtype=torch.float64), torch.randn(share, 2, dtype=torch.float64)

    def backward(net, part):
        ((net(x[part]) - y[part]) ** 2).mean().backward()

    part = slice(RANK * share // SIZE, (RANK + 1) * share // SIZE)
    for turn in range(5):
        for one in optimizers:
            one.zero_grad(set_to_none=turn % 2 == 0)
        with buckets:
            if turn == 3:
                with buckets.no_sync():
                    backward(mine, part)
            backward(mine, part)
        for _ in range(1 + (turn == 3)):
            backward(whole, slice(None))
        for a, b in zip(mine.parameters(), whole.parameters(), strict=True):
            assert a.grad is b.grad is None or torch.allclose(a.grad, b.grad, rtol=1e-9, atol=1e-12)
        for one in optimizers:
            one.step()


def test_tensors_of_a_loop(world, torch):
    buckets = mpicoll.GradientBuckets(world)
    some = [torch.full((4, 3), RANK + 1.0), torch.full((6, 4), RANK + 1.0).t(), torch.full((5,), RANK + 1.0).half()]
    with buckets:
        for tensor in some:
            buckets.add(tensor)
    assert all((tensor == (SIZE + 1) / 2).all().item() for tensor in some)
