"""`mpicoll.scatter`: the root alone says what is scattered, and what does not fit is an error on every rank."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
LAST = SIZE - 1
WHOLE = np.arange(4.0 * SIZE).reshape(2 * SIZE, 2)
PART = WHOLE[2 * RANK : 2 * RANK + 2].tolist()


def at_root(whole, elsewhere, root=LAST):
    return whole if root == RANK else elsewhere


def refused(text, *arguments, **named):
    """All ranks raise the same ValueError, and the communicator can be used again."""
    with pytest.raises(ValueError, match=r"^scatter: ") as caught:
        mpicoll.scatter(*arguments, **named)
    assert str(caught.value) == f"scatter: {text}"
    assert mpicoll.allreduce(1) == SIZE


@pytest.mark.parametrize(
    "elsewhere",
    [np.zeros((2, 2)), np.zeros((2 * SIZE, 2)), np.zeros(0), np.float64(0), np.zeros((5, 5, 5))],
    ids=["a part", "the whole", "empty", "scalar", "another"],
)
def test_off_the_root_any_shape_shows_the_kind(elsewhere):
    """A part's shape there, as other libraries have it, gives no other result."""
    for root in {0, LAST}:
        assert mpicoll.scatter(at_root(WHOLE, elsewhere, root), root).tolist() == PART


def test_off_the_root_nothing_need_be_given():
    found = mpicoll.scatter(at_root(WHOLE.astype("f4"), None), LAST)
    assert (found.dtype, found.tolist()) == (np.float32, PART)


def test_out_has_as_many_elements_in_any_shape():
    out = np.zeros((4, 1)).T
    assert mpicoll.scatter(at_root(WHOLE, None), LAST, out=out) is out
    assert out.ravel().tolist() == np.ravel(PART).tolist()


@pytest.mark.mpi(min_size=2)
def test_one_rank_alone_may_have_an_out():
    out = np.zeros((2, 2)) if RANK == 0 else None
    assert mpicoll.scatter(at_root(WHOLE, WHOLE), LAST, out=out).tolist() == PART


@pytest.mark.mpi(min_size=2)
def test_what_does_not_fit_on_one_rank_is_an_error_on_all():
    odd = RANK == 0  # the root is the last rank
    refused(
        "x is float32 on the host on rank 0, the root's array is float64 on the host",
        at_root(WHOLE, np.zeros((2, 2), "f4" if odd else "f8")),
        LAST,
    )
    refused(
        "out has shape (3, 2) on rank 0, the parts have (2, 2)",
        at_root(WHOLE, None),
        LAST,
        out=np.zeros((3 if odd else 2, 2)),
    )
    refused(
        "out is int64 on the host on rank 0, the root's array is float64 on the host",
        at_root(WHOLE, None),
        LAST,
        out=np.zeros((2, 2), "i8" if odd else "f8"),
    )
    rest = np.zeros(SIZE + 1)
    refused(
        f"the first axis of x, of shape ({SIZE + 1},), is not a multiple of {SIZE} ranks", at_root(rest, WHOLE), LAST
    )


@pytest.mark.parametrize("root", [SIZE, -1])
def test_a_root_out_of_range_is_refused(root):
    refused(f"root {root} is out of range for {SIZE} ranks", WHOLE, root)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["allgatherv", "gatherv"])
def test_records_of_other_fields_are_not_joined(name):
    """Two records of 16 bytes are no more alike than two numbers of 8."""
    x = np.zeros(2, "f8,i8" if RANK == 0 else "i8,f8")
    with pytest.raises(ValueError, match=f"^{name}: x is of shape .* on rank 0, .* on rank 1$"):
        getattr(mpicoll, name)(x)


@pytest.mark.gpu
@pytest.mark.mpi(min_size=2)
def test_host_and_device_do_not_mix(world):
    import cupy

    refused("x is None on rank 0, but the root's array is on a device", at_root(cupy.asarray(WHOLE), None), LAST)
    found = mpicoll.scatter(at_root(cupy.asarray(WHOLE), cupy.zeros(1)), LAST)
    assert cupy.asnumpy(found).tolist() == PART
