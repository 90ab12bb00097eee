// What the kernels of the path mapped share: words and 16 bytes in peers' memory, waiting, and the user's memory.
// `path.cu` and `channels.cu` come after this text, and say what a tile is.

typedef unsigned int u32;
typedef unsigned long long u64;

#define EACH_PART(k) _Pragma("unroll") for (int k = 0; k < PARTS; k++)

struct Unit { uint4 part[PARTS]; };

// Where a warp is: its tile and lane, the call and wave, and the slot's address within an inbox.
struct Place { u64 tile; u32 lane, wave, slot; u64 call, at; };

// Words of the control block: number of the last call (64 bits), blocks that are done, this kernel was given up.
enum { CALLS = 0, DONE = 8, LEFT = 12 };
// Words in host memory: leave at once; the rank that did not come, plus one.
enum { ABORT = 0, LATE = 4 };

// Neither touches memory that the user's arrays are in, so loads of those may move across.
__device__ __forceinline__ void put16(u64 to, uint4 x) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};"
               :: "l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w));
}
__device__ __forceinline__ uint4 get16(u64 from) {
  uint4 x;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from));
  return x;
}
__device__ __forceinline__ void put4(u64 to, u32 x) { *reinterpret_cast<volatile u32*>(to) = x; }
__device__ __forceinline__ u32 get4(u64 from) { return *reinterpret_cast<volatile u32*>(from); }
__device__ __forceinline__ void put8(u64 to, u64 x) { *reinterpret_cast<volatile u64*>(to) = x; }
__device__ __forceinline__ u64 get8(u64 from) { return *reinterpret_cast<volatile u64*>(from); }
__device__ __forceinline__ void release(u64 to, u64 x) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" :: "l"(to), "l"(x) : "memory");
}
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ __forceinline__ u64 acquire(u64 from) {
  u64 x;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
  return x;
}

// Waiting.  A warp that waits too long, or is told to, leaves, and all others with it.

// Returns when the waiting began, 0 to leave: by value, for what is passed by address lives in memory.
template <typename Args> __device__ __noinline__ u64 give_up(const Args& a, u64 since, u32 peer) {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (!since) since = now;
  const bool late = a.limit && now - since > a.limit;
  const bool stop = __any_sync(~0u, late || get4(a.control + LEFT) || get4(a.host + ABORT));
  if (stop) {
    put4(a.control + LEFT, 1);
    if (late) put4(a.host + LATE, peer + 1);
  }
  return stop ? 0 : since;
}
struct Spin {
  u32 turns; u64 since;
  __device__ __forceinline__ Spin() : turns(0), since(0) {}
  template <typename Args> __device__ __forceinline__ bool over(const Args& a, u32 peer) {
    return (++turns & 1023) == 0 && !(since = give_up(a, since, peer));
  }
};

// The user's memory: any alignment, any length.

__device__ __noinline__ uint4 fetch_slowly(u64 from, int n) {
  u32 w[4] = {0, 0, 0, 0};
  if (n == 16 && (from & 3) == 0) {
    for (int k = 0; k < 4; k++) w[k] = reinterpret_cast<const u32*>(from)[k];
  } else {
    #pragma unroll
    for (int k = 0; k < 16; k++)
      if (k < n) w[k >> 2] |= u32(reinterpret_cast<const unsigned char*>(from)[k]) << 8 * (k & 3);
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}
__device__ __noinline__ void keep_slowly(u64 to, uint4 x, int n) {
  const u32 w[4] = {x.x, x.y, x.z, x.w};
  if (n == 16 && (to & 3) == 0) {
    for (int k = 0; k < 4; k++) reinterpret_cast<u32*>(to)[k] = w[k];
  } else {
    #pragma unroll
    for (int k = 0; k < 16; k++)
      if (k < n) reinterpret_cast<unsigned char*>(to)[k] = w[k >> 2] >> 8 * (k & 3);
  }
}

// Which bytes of a block a lane moves; whether it moves data at all; whether a part holds any.

#if LINES
const int CARRYING = 28;
__device__ __forceinline__ u32 carrier(const Place& p) { return (p.lane >> 3) * 7 + (p.lane & 7); }
__device__ __forceinline__ bool carries(const Place& p) { return (p.lane & 7) != 7; }
#else
const int CARRYING = 32;
__device__ __forceinline__ u32 carrier(const Place& p) { return p.lane; }
__device__ __forceinline__ bool carries(const Place& p) { return true; }
#endif
__device__ __forceinline__ u64 offset(const Place& p, int part) {
  return ((p.tile * PARTS + part) * CARRYING + carrier(p)) * 16;
}
__device__ __forceinline__ bool reaches(const Place& p, int part, long long bytes) {
  return (long long)((p.tile * PARTS + part) * CARRYING * 16) < bytes;
}
// How many of a lane's 16 bytes are within the block; what is left may be negative by more than an int holds.
__device__ __forceinline__ int within(long long left) { return left <= 0 ? 0 : left < 16 ? int(left) : 16; }

// A tile that lies within the block, and aligned, is moved without a question asked for each part.
const int STRIDE = CARRYING * 16, REACH = (PARTS - 1) * STRIDE + 16;

__device__ __forceinline__ void fetch(u64 from, Unit& v, long long bytes, const Place& p) {
  const long long left = carries(p) ? bytes - (long long)offset(p, 0) : 0;
  from += offset(p, 0);
  if (left >= REACH && (from & 15) == 0) {
    EACH_PART(k) v.part[k] = *reinterpret_cast<const uint4*>(from + k * STRIDE);
  } else {
    EACH_PART(k) {
      const int n = within(left - k * STRIDE);
      v.part[k] = n ? fetch_slowly(from + k * STRIDE, n) : make_uint4(0, 0, 0, 0);
    }
  }
}
__device__ __forceinline__ void keep(u64 to, const Unit& v, long long bytes, const Place& p) {
  const long long left = carries(p) ? bytes - (long long)offset(p, 0) : 0;
  to += offset(p, 0);
  if (left >= REACH && (to & 15) == 0) {
    EACH_PART(k) *reinterpret_cast<uint4*>(to + k * STRIDE) = v.part[k];
  } else {
    EACH_PART(k) {
      const int n = within(left - k * STRIDE);
      if (n) keep_slowly(to + k * STRIDE, v.part[k], n);
    }
  }
}
