// The mapped path: a lowered schedule as one kernel over peer-mapped inboxes.
// runtime/paths/mapped/source.py puts the numbers before this text, and the schedule into `run`.
//
// A warp works on one tile of every block at a time: PARTS times 32 lanes of 16 bytes.  Tile t is
// worked on in wave t / slots, by warp t % slots, whose number is also the slot in which the tile
// travels.  In an inbox a tile travels in one of two protocols:
//
//   lines    every 128 bytes hold 112 of data, and a flag in the last lane's 16.  A line that 8 lanes
//            of a warp store at once is never torn on NVLink; NCCL's protocol LL128 builds on the same.
//            A tile has 1 part: 448 bytes of a block, in 512 bytes of an inbox.
//   slices   data only; after all of it a flag is stored in a word of its own, which is read with acquire.
//            A tile has 8 parts: 4096 bytes of a block, in 4096 bytes of an inbox.
//
// A flag names the call and the wave, so what is left of earlier ones is never taken for it.
//
// Example: a block of 20,000 bytes in lines, with 16 slots.  It has 45 tiles in 3 waves:
//
//   bytes  0      448         6720  7168               14336             19712 20000
//   tile   |   0   |  1  | ... |  15  |  16  | ... |  31  |  32  | ... |   44   |
//   wave   |           0              |         1         |          2          |
//   slot   |   0   |  1  | ... |  15  |   0  | ... |  15  |   0  | ... |   12   |
//
// The kernel has 16 blocks of 2 warps.  Warp 4 works on tiles 4, 20 and 36; the second warp of a block
// has no tile, and that of block 0 is the herald.  Each rank has an inbox for every other rank:
//
//   [parity of the call][parity of the wave][rank that writes][place][slot]
//
//   call 7, waves 0 and 2   | slot 0: tile 0, then 32 | ... | slot 12: tile 12, then 44 | slot 13: tile 13 | ...
//   call 7, wave 1          | slot 0: tile 16         | ... | slot 12: tile 28          | slot 13: tile 29 | ...
//
// A place is a cell: the first cell that this rank sends to that peer has place 0, the next one place 1.
//
// Wave 2 writes where wave 0 wrote, so the peer must have read wave 0.  Where a message from the peer
// does not say so, the peer gives credit, slot by slot, here for slot 4 of call 7:
//
//   this rank's warp 4                   in the peer's memory               the peer's warp 4
//
//   put tile 4 (wave 0)      -------->   slot 4 of even waves   -------->   get tile 4
//   put tile 20 (wave 1)     -------->   slot 4 of odd waves                give_credit: mark(7, 0)
//   await_credit: mark(7, 0)                 <------------------------------ (into this rank's memory)
//   put tile 36 (wave 2)     -------->   slot 4 of even waves   -------->   get tile 36, after tile 20
//
// Slots 13 to 15 get no credit: tile 13 + 2 * 16 = 45 does not exist, so nobody waits for it.
// Call 8 has inboxes of the other parity.  Call 9 has those of call 7 again: a rank ends call 8 only when
// it has the tokens of all ranks for call 8, and a rank that has started call 8 has ended call 7.

// All of the kernel's argument; runtime/paths/mapped/kernel.py packs it in this order, or items.py.
struct Args {
#ifdef ITEMS
  u64 memory, bytes, owners;  // where the columns of a table start, see below
#else
  u64 memory[MEMORY];    // where each cell of the input and output starts
  long long bytes[CELLS];  // length of each cell
#endif
  u64 outbox[RANKS], inbox[RANKS], flag_out[RANKS], flag_in[RANKS];
  u64 token_out[RANKS], token_in[RANKS], credit_out[RANKS], credit_in[RANKS];
  u64 control, host, tiles, slots, parity_bytes, wave_bytes, limit;
};

// The calls of a group are one with ITEMS: the tiles of its first item (input and output of a call), then those of
// the second, and so on, are in slots and waves as those of one call.  A table in device memory has the cells'
// addresses and lengths of each item, and the owner of each tile: its item, and the first tile of that.
//
//   item     |  0: 1000 bytes  | 1: none | 2: 448 bytes |            in lines
//   tile     |  0  |  1  |  2  |         |      3       |
//   owner    | 0,0 | 0,0 | 0,0 |         |     2,3      |
//
// `Place::tile` is then the number within the item, and that among all tiles follows from slot and wave.
#ifdef ITEMS
template <typename T> struct Row {
  const T* at;
  __device__ __forceinline__ T operator[](int k) const { return __ldg(at + k); }
};
struct Cells { Row<u64> memory; Row<long long> bytes; };
__device__ __forceinline__ u64 number(const Args& a, const Place& p) { return p.wave * a.slots + p.slot; }
__device__ __forceinline__ Cells cells_of(const Args& a, Place& p) {
  const u64 owner = __ldg(reinterpret_cast<const u64*>(a.owners) + p.tile);
  p.tile -= owner >> 32;
  return {{reinterpret_cast<const u64*>(a.memory) + u32(owner) * MEMORY},
          {reinterpret_cast<const long long*>(a.bytes) + u32(owner) * CELLS}};
}
#else
__device__ __forceinline__ u64 number(const Args& a, const Place& p) { return p.tile; }
#endif

// Names a wave of a call, later ones by larger numbers: 2^40 calls of up to 2^24 waves.
__device__ __forceinline__ u64 mark(u64 call, u32 wave) { return (call << 24) | (wave + 1); }

// Messages: put any number of them, seal them, and flag each.

__device__ __forceinline__ void put(u64 box, int place, const Unit& v, long long bytes, const Args& a, const Place& p) {
  const u64 to = box + p.at + place * a.slots * (PARTS * 512);
#if LINES
  __syncwarp();
#endif
  EACH_PART(k) {
    if (!reaches(p, k, bytes)) continue;
#if LINES
    put16(to + k * 512, carries(p) ? v.part[k] : make_uint4(u32(mark(p.call, p.wave)), u32(mark(p.call, p.wave) >> 32), 0, 0));
#else
    put16(to + k * 512, v.part[k]);
#endif
  }
}
__device__ __forceinline__ void seal(const Place& p) {
#if !LINES
  __syncwarp();
  if (p.lane == 0) fence();
#endif
}
__device__ __forceinline__ void flag(u64 flags, int place, long long bytes, const Args& a, const Place& p) {
#if !LINES
  if (p.lane == 0 && reaches(p, 0, bytes)) put8(flags + (place * SLOTS + p.slot) * 8, mark(p.call, p.wave));
#endif
}
__device__ __forceinline__ bool get(
    u64 box, u64 flags, int place, Unit& v, long long bytes, const Args& a, const Place& p, u32 peer) {
  // All of a value is written, so that nothing of the tile before is kept in registers for it.
  EACH_PART(k) v.part[k] = make_uint4(0, 0, 0, 0);
  if (!reaches(p, 0, bytes)) return true;
  const u64 from = box + p.at + place * a.slots * (PARTS * 512);
  Spin spin;
#if LINES
  for (;;) {
    bool here = true;
    EACH_PART(k) {
      if (!reaches(p, k, bytes)) continue;
      v.part[k] = get16(from + k * 512);
      here &= carries(p) || (v.part[k].x == u32(mark(p.call, p.wave)) && v.part[k].y == u32(mark(p.call, p.wave) >> 32));
    }
    if (__all_sync(~0u, here)) return true;
    if (spin.over(a, peer)) return false;
  }
#else
  while (!__all_sync(~0u, acquire(flags + (place * SLOTS + p.slot) * 8) >= mark(p.call, p.wave)))
    if (spin.over(a, peer)) return false;
  EACH_PART(k)
    if (reaches(p, k, bytes)) v.part[k] = get16(from + k * 512);
  return true;
#endif
}

// Credit: the slots of a wave are free again, where no message of the peer says so.  The wave after the next
// waits for it; without such a wave none is given, for a release takes about a microsecond.

__device__ __forceinline__ void give_credit(u64 to, const Args& a, const Place& p) {
  if (number(a, p) + 2 * a.slots >= a.tiles) return;
  __syncwarp();
  if (p.lane == 0) release(to + p.slot * 8, mark(p.call, p.wave));  // after what all lanes have read
}
__device__ __forceinline__ bool await_credit(u64 from, const Args& a, const Place& p, u32 peer) {
  if (p.wave < 2) return true;
  Spin spin;
  while (!__all_sync(~0u, get8(from + p.slot * 8) >= mark(p.call, p.wave - 2)))
    if (spin.over(a, peer)) return false;
  return true;
}

#ifdef EXPRESSION
// A sum is kept in the type that is computed with, and rounded once.  What comes of it is four words to the
// compiler, or it would store every number for itself.
__device__ __forceinline__ uint4 whole(uint4 x) {
  asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w));
  return x;
}
struct __align__(16) Pack { T item[16 / sizeof(T)]; };
struct Sum { A item[PARTS][16 / sizeof(T)]; };
__device__ __forceinline__ A combine(A a, A b) { return (EXPRESSION); }
template <bool FIRST> __device__ __forceinline__ void add(Sum& s, const Unit& v) {
  EACH_PART(k)
    #pragma unroll
    for (int j = 0; j < int(16 / sizeof(T)); j++) {
      const A item = load(reinterpret_cast<const Pack&>(v.part[k]).item[j]);
      s.item[k][j] = FIRST ? item : combine(s.item[k][j], item);
    }
}
__device__ __forceinline__ void finish(Unit& v, const Sum& s) {
  EACH_PART(k) {
    Pack pack;
    #pragma unroll
    for (int j = 0; j < int(16 / sizeof(T)); j++) pack.item[j] = store(s.item[k][j]);
    v.part[k] = whole(reinterpret_cast<const uint4&>(pack));
  }
}
#endif

#ifdef ITEMS
__device__ __forceinline__ bool run(const Args& a, const Place& among_all) {
  Place p = among_all;
  const Cells c = cells_of(a, p);
#else
__device__ __forceinline__ bool run(const Args& a, const Place& p) {
  const Args& c = a;
#endif
  BODY
  return true;
}

// A rank's token says that it has started the call, so that all its earlier ones are over.
__device__ __forceinline__ void tell_all(const Args& a, u32 lane, u32 call) {
  for (u32 q = lane; q < RANKS; q += 32)
    if (q != RANK) put4(a.token_out[q], call);
}
__device__ __forceinline__ bool all_have_come(const Args& a, u32 lane, u32 call) {
  for (u32 first = 0; first < RANKS; first += 32) {
    const u32 q = first + lane;
    Spin spin;
    while (!__all_sync(~0u, q >= RANKS || q == RANK || int(get4(a.token_in[q]) - call) >= 0))
      if (spin.over(a, q < RANKS ? q : RANK)) return false;
  }
  return true;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) collective(const __grid_constant__ Args a) {
  const u32 lane = threadIdx.x & 31, row = threadIdx.x >> 5, warp = row * gridDim.x + blockIdx.x;
  const bool herald = blockIdx.x == 0 && row == (blockDim.x >> 5) - 1;  // has no tile if the call is short
  const u64 call = get8(a.control + CALLS) + 1;
  if (get4(a.control + LEFT)) return;  // one before was given up: what it has sent must stay as it is
  if (herald) tell_all(a, lane, u32(call));
  // Slots never wait for each other, so that fewer warps than slots, of a grid that is kept small, take them in turn.
  for (u32 slot = warp; slot < a.slots && slot < a.tiles; slot += gridDim.x * (blockDim.x >> 5)) {
    Place p;
    p.lane = lane; p.call = call; p.slot = slot; p.wave = 0;
    for (p.tile = slot; p.tile < a.tiles; p.tile += a.slots, p.wave++) {
      p.at = (call & 1) * a.parity_bytes + (p.wave & 1) * a.wave_bytes + u64(slot) * (PARTS * 512) + lane * 16;
      if (!run(a, p)) return;
    }
  }
  if (herald && !all_have_come(a, lane, u32(call))) return;
  __syncthreads();
  if (threadIdx.x == 0) {  // the last block counts the call: by then all have read the number
    if (gridDim.x == 1 || atomicAdd(reinterpret_cast<u32*>(a.control + DONE), 1) == gridDim.x - 1) {
      put4(a.control + DONE, 0);
      put8(a.control + CALLS, call);
    }
  }
}
