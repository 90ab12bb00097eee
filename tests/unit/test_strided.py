"""Derived datatypes by strides: what strided copies pack and put back is what MPI packs and unpacks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from mpicoll.runtime.arguments.arrays import Flat, pointer_of
from mpicoll.runtime.arguments.strided import MOST, lattices_of
from mpicoll.runtime.arguments.typemap import Piece, Typemap, _packed_there

BASES = [MPI.BYTE, MPI.SHORT, MPI.INT, MPI.DOUBLE, MPI.C_DOUBLE_COMPLEX, MPI.CHAR]
small = st.integers(0, 3)
counts = st.lists(small, min_size=1, max_size=3)


@st.composite
def kinds(draw, depth=2):
    """Draw a datatype whose elements are not far from each other, and do not overlap."""
    if not depth or draw(st.booleans()):
        return draw(st.sampled_from(BASES))
    base, how = draw(kinds(depth - 1)), draw(st.sampled_from(HOW))
    return how(draw, base)


def _places(draw, lengths):
    """Return places of blocks, one behind the other and in any order, with gaps."""
    places, end = [], 0
    for length in lengths:
        places.append(end + draw(small))
        end = places[-1] + length
    return places


def vector(draw, base):
    length = draw(small)
    return base.Create_vector(draw(small), length, length + draw(small))


def backwards(draw, base):
    length, extent = draw(small), base.extent
    kind = base.Create_hvector(3, length, -(length + 1) * extent)
    return MPI.Datatype.Create_hindexed(kind, [1], [2 * (length + 1) * extent])


def hvector(draw, base):
    length = draw(small)
    return base.Create_hvector(draw(small), length, length * base.extent + draw(st.integers(0, 9)))


def indexed(draw, base):
    lengths = draw(counts)
    return base.Create_indexed(lengths, _places(draw, lengths))


def indexed_block(draw, base):
    lengths = [draw(small)] * draw(st.integers(1, 3))
    return base.Create_indexed_block(lengths[0], _places(draw, lengths))


def hindexed_block(draw, base):
    lengths = [draw(small) * base.extent] * draw(st.integers(1, 3))
    return base.Create_hindexed_block(lengths[0] // max(base.extent, 1), _places(draw, lengths))


def struct(draw, base):
    bases = [base, draw(st.sampled_from(BASES))]
    lengths = [draw(small), draw(small)]
    nbytes = [number * one.extent for number, one in zip(lengths, bases, strict=True)]
    return MPI.Datatype.Create_struct(lengths, _places(draw, nbytes), bases)


def subarray(draw, base):
    sizes = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 3)))]
    parts = [draw(st.integers(1, size)) for size in sizes]
    starts = [draw(st.integers(0, size - part)) for size, part in zip(sizes, parts, strict=True)]
    return base.Create_subarray(sizes, parts, starts, draw(st.sampled_from([MPI.ORDER_C, MPI.ORDER_FORTRAN])))


def resized(draw, base):
    return base.Create_resized(0, base.extent + draw(st.integers(0, 5)))


HOW = [vector, backwards, hvector, indexed, indexed_block, hindexed_block, struct, subarray, resized]
HOW += [lambda draw, base: base.Dup(), lambda draw, base: base.Create_contiguous(draw(small))]


def packed_there(memory, pieces, nbytes) -> Flat:
    """Return what a device's copies pack, with NumPy in CuPy's place."""
    return _packed_there("allreduce: sendbuf", memory, pieces, np.zeros(nbytes, "u1"), writes=True)


@given(kinds(), st.integers(1, 3))
def test_elements_are_packed_and_put_back_as_by_mpi(kind, items):
    own = kind.Dup().Commit()
    if not own.extent:
        return
    typemap = Typemap.of("allreduce", "sendbuf", own)
    memory = np.random.default_rng(1).integers(0, 256, max(typemap.span[1], 0) + items * own.extent + 16, "u1")
    expected, there = np.zeros(items * typemap.nbytes, "u1"), memory.copy()
    whole = MPI.buffer.fromaddress(pointer_of(memory), items * own.extent)  # in which MPI counts items
    own.Pack(whole, expected, 0, MPI.COMM_SELF)
    flat = packed_there(there, [Piece(typemap, items, 0)], items * typemap.nbytes)
    for act in flat.before:
        act()
    assert flat.array.tolist() == expected.tolist()
    expected[:] = flat.array[:] = flat.array[::-1].copy()
    own.Unpack(expected, 0, whole, MPI.COMM_SELF)
    for act in flat.after:
        act()
    assert there.tolist() == memory.tolist()


def test_pieces_follow_each_other():
    column = Typemap.of("bcast", "buf", MPI.DOUBLE.Create_vector(3, 1, 4).Create_resized(0, 8).Commit())
    memory = np.arange(12.0).view("u1")
    flat = packed_there(memory, [Piece(column, 1, 8), Piece(column, 0, 0), Piece(column, 2, 16)], 72)
    for act in flat.before:
        act()
    assert flat.array.view("f8").tolist() == [1, 5, 9, 2, 6, 10, 3, 7, 11]


def test_equal_distances_are_one_part():
    (part,) = lattices_of(MPI.DOUBLE.Create_indexed([2, 2, 2], [1, 5, 9]))
    assert (part.memory, part.dims) == (8, ((3, 32, 16), (2, 8, 8)))


def test_what_has_no_strides_has_no_parts():
    places = np.cumsum(np.arange(MOST + 1)).tolist()
    assert lattices_of(MPI.DOUBLE.Create_indexed([1] * len(places), places)) is None
    assert lattices_of(MPI.SHORT_INT) is None  # there is a gap inside
    grid = MPI.DOUBLE.Create_darray(1, 0, [4], [MPI.DISTRIBUTE_BLOCK], [MPI.DISTRIBUTE_DFLT_DARG], [1])
    assert lattices_of(grid) is None


def test_a_gpu_has_no_unaligned_elements():
    """They are copied byte by byte."""
    (part,) = lattices_of(MPI.DOUBLE.Create_hvector(2, 1, 12))
    here, there = part.views(np.zeros(32, "u1"), 0, np.zeros(16, "u1"), 0)
    assert (here.dtype, here.shape, here.strides) == (np.dtype("u1"), (2, 8), (12, 1))
    assert there.strides == (8, 1)


@pytest.mark.parametrize("kind", [MPI.DOUBLE, MPI.INT])
def test_aligned_elements_are_copied_whole(kind):
    (part,) = lattices_of(kind.Create_vector(2, 1, 3))
    here, _ = part.views(np.zeros(64, "u1"), 0, np.zeros(16, "u1"), 0)
    assert here.dtype.itemsize == kind.size
