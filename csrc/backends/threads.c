/* See threads.h. */
#include "backends/threads.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

enum { FEW_BYTES = 1 << 18, PAGE = 4096 };

uint32_t dc_thread_count(void) {
  int n = omp_get_max_threads();
  return n < DC_MAX_THREADS ? (uint32_t)n : DC_MAX_THREADS;
}

static void go_on_alone(void) { omp_set_num_threads(1); }

void dc_threads_guard_forks(void) { pthread_atfork(NULL, NULL, go_on_alone); }

void dc_threads_clear(void *memory, uint64_t bytes) {
  const uint64_t threads = bytes < FEW_BYTES ? 1 : dc_thread_count(), share = (bytes / threads + PAGE) / PAGE * PAGE;
#pragma omp parallel for num_threads((int)threads) schedule(static, 1) if (threads > 1)
  for (uint64_t k = 0; k < threads; k++) {
    const uint64_t begin = k * share, rest = begin < bytes ? bytes - begin : 0;
    memset((char *)memory + begin, 0, rest < share ? rest : share);
  }
}

void dc_share_out(dc_shares *shares, int64_t tasks, int threads) {
  shares->tasks = tasks, shares->threads = threads;
  for (int k = 0; k < threads; k++) atomic_init(&shares->taken[k], 0);
}

bool dc_share_next(dc_shares *shares, int64_t *task) {
  for (int64_t k = 0, threads = shares->threads; k < threads; k++) {
    const int64_t part = (omp_get_thread_num() + k) % threads;
    const int64_t begin = shares->tasks * part / threads, n = shares->tasks * (part + 1) / threads - begin;
    _Atomic int64_t *taken = &shares->taken[part];
    const int64_t at = atomic_load(taken) < n ? atomic_fetch_add(taken, 1) : n;
    if (at < n) return *task = begin + at, true;
  }
  return false;
}
