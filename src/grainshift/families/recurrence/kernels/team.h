// A team of threads that is borrowed for one call, and how its members wait for each other.
//
// The threads are those that PyTorch's operators run on already (its OpenMP runtime is handed in
// as two functions), since two pools of threads in one process take each other's cores. Knows no
// layer.
#pragma once
#include <sched.h>

#include <atomic>
#include <cstdint>

constexpr int MOST_THREADS = 64;

struct Pool {
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
  int (*number)();
  int (*size)();
};

// How far one member has come. Each has a cache line to itself, so that waiting reads one line.
struct alignas(64) Progress {
  std::atomic<int64_t> steps{0};
};

static inline void breathe() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until members `first` to `last` have come as far as `steps`.
static inline void await(const Progress* progress, int first, int last, int64_t steps) {
  constexpr int PATIENCE = 4096;  // then whoever waits leaves its core to others
  for (int member = first; member < last; ++member)
    for (int spins = 0; progress[member].steps.load(std::memory_order_acquire) < steps; ++spins) {
      if (spins < PATIENCE)
        breathe();
      else
        sched_yield();
    }
}
