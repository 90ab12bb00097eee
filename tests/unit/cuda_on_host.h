// Enough of CUDA C++ to run mapped.cu on the host: a thread is a thread, and a warp meets at barriers.
#include <pthread.h>
#include <sched.h>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint4 { unsigned x, y, z, w; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
static inline double __longlong_as_double(long long x) { double y; std::memcpy(&y, &x, sizeof y); return y; }
template <typename T> static inline T __ldg(const T* at) { return *at; }
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;

// A barrier of threads that give their core away while they wait, for there are few cores.
struct Barrier {
  unsigned members = 0;
  std::atomic<unsigned> waiting{0}, turn{0};
  void wait() {
    const unsigned now = turn.load();
    if (waiting.fetch_add(1) + 1 == members) {
      waiting = 0;
      turn.fetch_add(1);
    } else {
      while (turn.load() == now) sched_yield();
    }
  }
};
struct Warp { Barrier barrier; std::atomic<int> said[32]; };
static thread_local Warp* my_warp;
static thread_local Barrier* my_block;

static inline void __syncwarp() { my_warp->barrier.wait(); }
static inline void __syncthreads() { my_block->wait(); }
static inline int vote(bool mine, bool all) {
  my_warp->said[threadIdx.x & 31] = mine;
  my_warp->barrier.wait();
  int count = 0;
  for (auto& one : my_warp->said) count += one;
  my_warp->barrier.wait();
  return all ? count == 32 : count > 0;
}
static inline int __all_sync(unsigned, bool mine) { return vote(mine, true); }
static inline int __any_sync(unsigned, bool mine) { return vote(mine, false); }
static inline unsigned atomicAdd(unsigned* at, unsigned n) { return __atomic_fetch_add(at, n, __ATOMIC_SEQ_CST); }

// A line of 8 lanes is never torn: its flag is written last, and read first.
static inline void host_put16(uint64_t to, uint4 x, bool lines) {
  const bool flag = lines && (threadIdx.x & 7) == 7;
  volatile unsigned* at = reinterpret_cast<volatile unsigned*>(to);
  const auto store = [&] { at[0] = x.x; at[1] = x.y; at[2] = x.z; at[3] = x.w; };
  if (!flag) store();
  if (lines) __syncwarp();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (flag) store();
}
static inline uint4 host_get16(uint64_t from, bool lines) {
  const bool flag = lines && (threadIdx.x & 7) == 7;
  const volatile unsigned* at = reinterpret_cast<const volatile unsigned*>(from);
  uint4 x;
  const auto look = [&] { x = uint4{at[0], at[1], at[2], at[3]}; };
  if (flag) look();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (lines) __syncwarp();
  if (!flag) look();
  sched_yield();
  return x;
}
