"""Derived datatypes of some kinds."""

from mpi4py import MPI


def column(width):
    """Return the type of a column of 3 rows, whose next item is the next column."""
    return MPI.DOUBLE.Create_vector(3, 1, width).Create_resized(0, 8).Commit()


def mixed():
    """Return the type of records of an integer and a double, 24 bytes apart."""
    return MPI.Datatype.Create_struct([1, 1], [4, 16], [MPI.INT, MPI.DOUBLE]).Create_resized(0, 24).Commit()


TYPES = {
    "column": lambda: column(8),
    "contiguous": lambda: MPI.DOUBLE.Create_contiguous(3).Commit(),
    "indexed": lambda: MPI.DOUBLE.Create_indexed([1, 2], [4, 0]).Commit(),
    "subarray": lambda: MPI.DOUBLE.Create_subarray([3, 4], [3, 1], [0, 2]).Commit(),
    "nested": lambda: MPI.DOUBLE.Create_contiguous(1).Create_hvector(3, 1, 16).Commit(),
    "mixed": mixed,
}
