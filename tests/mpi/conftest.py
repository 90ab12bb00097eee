"""What the tests of collectives share: communicators, and where arrays are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import Memory


@pytest.fixture(scope="session")
def comms() -> Iterator[dict[str, Any]]:
    """All COMMUNICATORS."""
    world = mpicoll.Communicator(MPI.COMM_WORLD)
    rank, size = world.rank, world.size
    made = {"reversed": world.Split(0, -rank), "halves": world.Split(rank * 2 // size, rank)}
    yield {"world": world, **made, "self": mpicoll.Communicator(MPI.COMM_SELF)}
    for comm in made.values():
        comm.Free()


@pytest.fixture
def world(comms: dict[str, Any]) -> Any:
    return comms["world"]


@pytest.fixture(
    params=[
        "numpy",
        pytest.param("cupy-direct", marks=pytest.mark.gpu),
        pytest.param("cupy-staged", marks=pytest.mark.gpu),
    ]
)
def memory(request: pytest.FixtureRequest, world: Any) -> Memory:
    """Arrays of NumPy; of CuPy, handed to MPI as they are; of CuPy, through the host."""
    module, _, path = request.param.partition("-")
    if module == "numpy":
        return Memory(np)
    import cupy

    awareness = world._get_channel().awareness
    if path == "direct" and not awareness.aware:
        pytest.skip(f"MPI is not given device pointers: {awareness.reason}")
    return Memory(cupy, path)
