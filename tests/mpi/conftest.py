"""What the tests of collectives share: communicators, and where arrays are.

Nothing here imports MPI at once: pytest reads this file before the harness has prepared MPI for GPUs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def comms() -> Iterator[dict[str, Any]]:
    """All COMMUNICATORS."""
    from mpi4py import MPI

    import mpicoll

    world, alone = mpicoll.Communicator(MPI.COMM_WORLD), mpicoll.Communicator(MPI.COMM_SELF)
    rank, size = world.rank, world.size
    made = {"reversed": world.Split(0, -rank), "halves": world.Split(rank * 2 // size, rank)}
    yield {"world": world, **made, "self": alone}
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
        pytest.param("cupy-mapped", marks=pytest.mark.gpu),
    ]
)
def memory(request: pytest.FixtureRequest, world: Any) -> Any:
    """Arrays of NumPy; of CuPy, handed to MPI as they are, through the host, or by one kernel."""
    from mpi.cases import HOST, Memory
    from mpicoll.runtime.paths import offer

    module, _, path = request.param.partition("-")
    if module == "numpy":
        return HOST
    import cupy

    awareness = world._get_context().cuda_aware
    if path == "direct" and not awareness.aware:
        pytest.skip(f"MPI is not given device pointers: {awareness.reason}")
    if path == "mapped":
        context = world._get_context()
        device = cupy.cuda.Device().id
        offer.connect(context, device)
        why = offer.plainly(context, device)["mapped"]
        if why:
            pytest.skip(f"path mapped is not offered: {why}")
    return Memory(cupy, path)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of rank 0's, on all ranks: each rank's `tmp_path` is another."""
    from mpi4py import MPI

    with tempfile.TemporaryDirectory() as mine:
        yield Path(MPI.COMM_WORLD.bcast(mine, root=0))
        MPI.COMM_WORLD.Barrier()


@pytest.fixture
def on_path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use the path of the memory, in tests that have one."""
    import mpicoll

    memory = request.getfixturevalue("memory") if "memory" in request.fixturenames else None
    with mpicoll.override(path=memory.path if memory else None):
        yield


@pytest.fixture
def comm() -> Iterator[Any]:
    """A communicator that has done nothing yet, and that a failed call may spoil."""
    from mpi4py import MPI

    import mpicoll

    made = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    yield made
    made.Free()


@pytest.fixture
def pair() -> Iterator[Any]:
    """Two communicators of all ranks."""
    from mpi4py import MPI

    import mpicoll

    made = [mpicoll.Communicator(MPI.COMM_WORLD.Dup()) for _ in range(2)]
    for comm in made:
        comm.Barrier()
    yield made
    for comm in made:
        comm.Free()


@pytest.fixture
def direct(world: Any) -> Iterator[Any]:
    """Arrays of CuPy on the direct path, where MPI takes device pointers."""
    import cupy

    import mpicoll
    from mpi.cases import Memory

    awareness = world._get_context().cuda_aware
    if not awareness.aware:
        pytest.skip(f"MPI is not given device pointers: {awareness.reason}")
    with mpicoll.override(path="direct"):
        yield Memory(cupy, "direct")


@pytest.fixture(scope="module")
def kinds() -> Iterator[Any]:
    """Communicators of the path mapped, of each kind."""
    from mpi.mapped_comms import Kinds

    made = Kinds()
    yield made
    made.free()
