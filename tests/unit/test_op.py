"""A user's operator as a CUDA expression."""

import numpy as np
import pytest

import mpicoll
from mpicoll.runtime.cuda import kernels


def test_an_expression_becomes_part_of_kernels():
    op = mpicoll.Op(np.hypot, cuda="hypot(a, b)").operator
    source = kernels.fold_source(op, np.dtype("f8"), 3)
    assert kernels.serves(op, np.dtype("f8"))
    assert "return (hypot(a, b));" in source


def test_a_function_alone_does_not():
    assert not kernels.serves(mpicoll.Op(np.hypot).operator, np.dtype("f8"))


def test_nor_an_expression_on_what_kernels_do_not_know():
    record = np.dtype([("a", "i4"), ("b", "f4")])
    assert not kernels.serves(mpicoll.Op(np.hypot, cuda="a").operator, record)


def test_an_expression_sees_single_elements():
    with pytest.raises(ValueError, match="op: width is 4, but a CUDA expression combines single elements"):
        mpicoll.Op(np.matmul, width=4, cuda="a * b")
