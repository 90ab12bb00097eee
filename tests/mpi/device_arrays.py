"""Memory of devices of each kind, and streams that are busy."""

import functools
from contextlib import contextmanager

from mpi.busy import spin
from mpicoll.runtime.paths import offer


@functools.cache
def allocator(kind):
    """How memory of a kind is allocated."""
    import cupy

    if kind == "plain":
        return lambda nbytes: cupy.cuda.MemoryPointer(cupy.cuda.Memory(nbytes), 0)
    if kind == "pool":
        return cupy.cuda.MemoryPool().malloc
    if kind == "managed":
        return cupy.cuda.malloc_managed
    return cupy.cuda.MemoryAsyncPool().malloc


def usable(comm):
    """Return the paths that device arrays can take on a communicator, best first."""
    import cupy

    return [name for name, why in offer.plainly(comm._get_context(), cupy.cuda.Device().id).items() if not why]


@contextmanager
def allocating(kind):
    """Allocate all arrays in memory of a kind."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.using_allocator(allocator(kind)):
        yield
    cupy.cuda.get_current_stream().synchronize()


def busy(milliseconds=5):
    """Keep the current stream busy."""
    spin(1_800_000 * milliseconds)


def streams():
    import cupy

    return {
        "null": cupy.cuda.Stream.null,
        "blocking": cupy.cuda.Stream(),
        "non-blocking": cupy.cuda.Stream(non_blocking=True),
    }
