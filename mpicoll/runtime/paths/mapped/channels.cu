// The messages of a group on the path mapped, one kernel for all that a rank sends and receives.
// `common.cu` comes before this text; runtime/paths/mapped/channels.py puts the numbers before both.
//
// Between two ranks and one way there is a channel: a ring of SLOTS slots in the receiver's memory.  Messages are cut
// into tiles, and the tiles of all messages of a channel are numbered on and on, so that both ends agree on them
// without a word.  Tile n travels in slot n % SLOTS, and its flag is n + 1.  Two messages of 5 and 3 tiles, 4 slots:
//
//   message  |         a         |     b     |
//   tile     | 0   1   2   3   4 | 5   6   7 |
//   slot     | 0   1   2   3   0 | 1   2   3 |      tile 4 waits until tile 0 was read: credit 0 + 1
//
// Warp w works for transfer w % transfers, and takes every so many'th of its tiles.  Tiles of a channel are taken in
// order, and all warps are on the device at the same time, so that the first tile that is not done can always go on.
// How many tiles each channel has had is kept in the control block, so that a captured kernel can be replayed.
//
// A tile has the same two protocols as in `path.cu`, without parities: in lines a flag in each 128 bytes, in slices
// a flag in a word of its own.

// One way of a channel: the ring and its flags, the word for the credit of slot 0, and where its tiles are counted.
struct Way { u64 ring, flags, credits, count; };
// A message: the array's address and bytes, tiles before it in this kernel, the peer, and whether this rank sends.
struct Transfer { u64 memory; long long bytes; u64 before; u32 peer, sends; };

// All of the kernel's argument; runtime/paths/mapped/channels.py packs it in this order.
struct Args {
  u64 control, host, limit, transfers;
  Way out[RANKS], in[RANKS];
  Transfer transfer[TRANSFERS];
};

__device__ __forceinline__ u64 tiles_of(const Transfer& t) {
  return (u64(t.bytes) + PARTS * STRIDE - 1) / (PARTS * STRIDE);
}

__device__ __forceinline__ bool await_slot(const Args& a, const Way& way, u64 n, u32 peer) {
  if (n < SLOTS) return true;
  Spin spin;
  while (!__all_sync(~0u, get8(way.credits + n % SLOTS * 8) >= n + 1 - SLOTS))
    if (spin.over(a, peer)) return false;
  return true;
}
__device__ __forceinline__ void put(const Way& way, u64 n, const Unit& v, const Place& p) {
  const u64 to = way.ring + n % SLOTS * (PARTS * 512) + p.lane * 16;
#if LINES
  __syncwarp();
  EACH_PART(k) put16(to + k * 512, carries(p) ? v.part[k] : make_uint4(u32(n + 1), u32((n + 1) >> 32), 0, 0));
#else
  EACH_PART(k) put16(to + k * 512, v.part[k]);
  __syncwarp();
  if (p.lane == 0) {
    fence();
    put8(way.flags + n % SLOTS * 8, n + 1);
  }
#endif
}
__device__ __forceinline__ bool get(const Args& a, const Way& way, u64 n, Unit& v, const Place& p, u32 peer) {
  const u64 from = way.ring + n % SLOTS * (PARTS * 512) + p.lane * 16;
  Spin spin;
#if LINES
  for (;;) {
    bool here = true;
    EACH_PART(k) {
      v.part[k] = get16(from + k * 512);
      here &= carries(p) || (v.part[k].x == u32(n + 1) && v.part[k].y == u32((n + 1) >> 32));
    }
    if (__all_sync(~0u, here)) return true;
    if (spin.over(a, peer)) return false;
  }
#else
  while (!__all_sync(~0u, acquire(way.flags + n % SLOTS * 8) == n + 1))
    if (spin.over(a, peer)) return false;
  EACH_PART(k) v.part[k] = get16(from + k * 512);
  return true;
#endif
}

// One tile of a message: tile p.tile of the message, tile n of its channel.
__device__ __forceinline__ bool moved(const Args& a, const Transfer& t, u64 n, const Place& p) {
  Unit v;
  if (t.sends) {
    if (!await_slot(a, a.out[t.peer], n, t.peer)) return false;
    fetch(t.memory, v, t.bytes, p);
    put(a.out[t.peer], n, v, p);
    return true;
  }
  if (!get(a, a.in[t.peer], n, v, p, t.peer)) return false;
  keep(t.memory, v, t.bytes, p);
  __syncwarp();
  if (p.lane == 0) release(a.in[t.peer].credits + n % SLOTS * 8, n + 1);  // after what all lanes have read
  return true;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) channels(const __grid_constant__ Args a) {
  const u32 warps = gridDim.x * (blockDim.x >> 5), warp = (threadIdx.x >> 5) * gridDim.x + blockIdx.x;
  if (get4(a.control + LEFT)) return;  // one before was given up: what it has sent must stay as it is
  const Transfer t = a.transfer[warp % a.transfers];
  const u64 start = get8((t.sends ? a.out : a.in)[t.peer].count) + t.before, tiles = tiles_of(t);
  Place p;
  p.lane = threadIdx.x & 31;
  // From here on all warps of a transfer, and those alone, have the same remainder.
  for (p.tile = warp / a.transfers; p.tile < tiles; p.tile += (warps - warp % a.transfers - 1) / a.transfers + 1)
    if (!moved(a, t, start + p.tile, p)) return;
  __syncthreads();
  if (threadIdx.x == 0) {  // the last block counts the tiles: by then all have read the numbers
    if (gridDim.x == 1 || atomicAdd(reinterpret_cast<u32*>(a.control + DONE), 1) == gridDim.x - 1) {
      put4(a.control + DONE, 0);
      for (u32 k = 0; k < a.transfers; k++) {
        const u64 count = (a.transfer[k].sends ? a.out : a.in)[a.transfer[k].peer].count;
        put8(count, get8(count) + tiles_of(a.transfer[k]));
      }
    }
  }
}
