#ifndef KERNEL
#define KERNEL collective
#endif
// Starts the threads of a grid on the host and waits for them.
struct Thread { const Args* args; unsigned block, thread; Warp* warp; Barrier* barrier; };
static void* start(void* given) {
  const Thread* t = static_cast<Thread*>(given);
  blockIdx.x = t->block; threadIdx.x = t->thread; my_warp = t->warp; my_block = t->barrier;
  KERNEL(*t->args);
  return nullptr;
}
extern "C" int run_grid(const Args* args, unsigned blocks, unsigned threads) {
  gridDim.x = blocks; blockDim.x = threads;
  Warp* warps = new Warp[blocks * threads / 32];
  Barrier* barriers = new Barrier[blocks];
  Thread* all = new Thread[blocks * threads];
  pthread_t* ids = new pthread_t[blocks * threads];
  for (unsigned w = 0; w < blocks * threads / 32; w++) warps[w].barrier.members = 32;
  for (unsigned b = 0; b < blocks; b++) barriers[b].members = threads;
  int failed = 0;
  for (unsigned k = 0; k < blocks * threads; k++) {
    all[k] = Thread{args, k / threads, k % threads, warps + k / 32, barriers + k / threads};
    failed |= pthread_create(ids + k, nullptr, start, all + k);
  }
  for (unsigned k = 0; k < blocks * threads; k++) pthread_join(ids[k], nullptr);
  delete[] warps; delete[] barriers; delete[] all; delete[] ids;
  return failed;
}
