"""`algorithm=` and `stream=`: what is neither is refused with the call's name."""

from types import SimpleNamespace

import numpy as np
import pytest

from mpicoll.runtime.arguments.operands import Operands, check_options
from mpicoll.schedule.collectives import COLLECTIVES


def call(device):
    return Operands(COLLECTIVES["allreduce"], "allreduce", np.dtype("f8"), device)


@pytest.mark.parametrize("algorithm", [5, b"ring", ["ring"], True])
def test_an_algorithm_is_a_text_or_none(algorithm):
    with pytest.raises(TypeError) as caught:
        check_options(call(-1), algorithm, None)
    assert str(caught.value) == f"allreduce: algorithm is {algorithm!r}, not a name or None"


def test_a_stream_is_for_arrays_on_a_device():
    with pytest.raises(ValueError, match=r"^allreduce: stream is given, but the arrays are on the host$"):
        check_options(call(-1), None, SimpleNamespace(ptr=0))


@pytest.mark.parametrize("stream", [0, "stream", object()])
def test_a_stream_has_an_address(stream):
    with pytest.raises(TypeError) as caught:
        check_options(call(0), None, stream)
    assert str(caught.value) == f"allreduce: stream is {stream!r}, not a CUDA stream"


@pytest.mark.parametrize("stream", [None, SimpleNamespace(ptr=0), SimpleNamespace(cuda_stream=7)])
def test_what_is_right_passes(stream):
    for algorithm in (None, "ring/8"):
        check_options(call(0), algorithm, stream)
