"""Many copies in device memory, done by one kernel."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.launch import launcher
from mpicoll.runtime.cuda.table import DeviceTable
from mpicoll.runtime.program.local_work import Action, Copy

#: bytes that a block of threads moves at a time: four times 16 for each thread
CHUNK = 4 * 16 * kernels.THREADS

#: A block of threads takes chunk after chunk, so that long copies are shared among blocks and short ones do not wait.
SOURCE = """
typedef unsigned long long u64;
struct Chunk { unsigned copy, number; };
struct Args { u64 table, copies, chunks; };
struct __align__(16) Pack { u64 half[2]; };

// The target and the source are equally far from a multiple of W's size.
template <typename W> __device__ __forceinline__ void move(u64 to, u64 from, u64 bytes) {
  const u64 gap = (0 - to) % sizeof(W), head = gap < bytes ? gap : bytes;
  const u64 words = (bytes - head) / sizeof(W), tail = head + words * sizeof(W);
  W* into = reinterpret_cast<W*>(to + head);
  const W* origin = reinterpret_cast<const W*>(from + head);
  for (u64 i = threadIdx.x; i < words; i += 4 * blockDim.x) {
    W part[4];
    #pragma unroll
    for (int k = 0; k < 4; k++) if (i + k * blockDim.x < words) part[k] = origin[i + k * blockDim.x];
    #pragma unroll
    for (int k = 0; k < 4; k++) if (i + k * blockDim.x < words) into[i + k * blockDim.x] = part[k];
  }
  char* single = reinterpret_cast<char*>(to);
  const char* from_single = reinterpret_cast<const char*>(from);
  for (u64 i = threadIdx.x; i < head; i += blockDim.x) single[i] = from_single[i];
  for (u64 i = tail + threadIdx.x; i < bytes; i += blockDim.x) single[i] = from_single[i];
}

// The table: (target, source) of each copy, then the bytes of each, then the chunks.
extern "C" __global__ void __launch_bounds__(THREADS) copies(const Args args) {
  const u64* places = reinterpret_cast<const u64*>(args.table);
  const u64* lengths = places + 2 * args.copies;
  const Chunk* chunks = reinterpret_cast<const Chunk*>(lengths + args.copies);
  for (u64 c = blockIdx.x; c < args.chunks; c += gridDim.x) {
    const Chunk chunk = chunks[c];
    const u64 start = (u64)chunk.number * CHUNK, left = lengths[chunk.copy] - start;
    const u64 to = places[2 * chunk.copy] + start, from = places[2 * chunk.copy + 1] + start;
    const u64 bytes = left < CHUNK ? left : CHUNK, apart = to - from;
    if (apart % 16 == 0) move<Pack>(to, from, bytes);
    else if (apart % 4 == 0) move<unsigned>(to, from, bytes);
    else move<char>(to, from, bytes);
  }
}
"""


class Batch:
    """Copies that do not overlap, each of any length and alignment, in a table in device memory.

    Uploads and actions must follow each other in stream order.  The batch must live until the last one is complete;
    its actions keep it.

    Example: 40,000 and 100 bytes are 3 chunks and 1, which 4 blocks of threads move at the same time.
    """

    def __init__(self, device: int, copies: Sequence[Copy], stream: int) -> None:
        """Upload the table on a stream.

        Args:
            device: number of the device.
            copies: (address of the target, address of the source, bytes) of each; what has no bytes is left out.
            stream: address of the stream.
        """
        self.device = device
        self._copies, self._aimed = [copy for copy in copies if copy[2]], copies
        lengths = [nbytes for _, _, nbytes in self._copies]
        chunks = [(copy, number) for copy, nbytes in enumerate(lengths) for number in range(-(-nbytes // CHUNK))]
        self._chunks = len(chunks)
        places, rest = self._places(), struct.pack(f"={len(lengths)}Q", *lengths)
        rest += b"".join(struct.pack("=2I", *chunk) for chunk in chunks)
        self._table = DeviceTable(device, places + rest, stream)

    def aim(self, copies: Sequence[Copy], stream: int) -> None:
        """Take other addresses for the same numbers of bytes, on a stream that is not captured.

        The sequence that was given last is not looked at.
        """
        if copies is self._aimed:
            return
        self._aimed = copies
        copies = [copy for copy in copies if copy[2]]
        if copies == self._copies:
            return
        if [copy[2] for copy in copies] != [copy[2] for copy in self._copies]:
            raise ValueError("a batch is aimed at copies of other lengths")
        self._copies = copies
        self._table.write(self._places(), stream)

    def action(self, stream: int) -> Action:
        """Return an action that launches the kernel on a stream."""
        if not self._copies:
            return lambda: None
        source = f"#define CHUNK {CHUNK}\n#define THREADS {kernels.THREADS}\n{SOURCE}"
        function, module = kernels.compiled(source, "copies", self.device)
        packed = (ctypes.c_uint64 * 3)(self._table.address, len(self._copies), self._chunks)
        grid = min(self._chunks, kernels.MOST_BLOCKS), kernels.THREADS
        return launcher(function, packed, grid, stream, self.device, (self, module))

    def _places(self) -> bytes:
        """Return the table's first part: the addresses of each copy's target and source."""
        return b"".join(struct.pack("=2Q", target, source) for target, source, _ in self._copies)
