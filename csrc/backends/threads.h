/* Threads of the processor that steps may use. */
#ifndef DCML_BACKENDS_THREADS_H
#define DCML_BACKENDS_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { DC_MAX_THREADS = 1024 };
/* Those of the calling thread's next parallel region, as torch.set_num_threads() says too; at most DC_MAX_THREADS. */
uint32_t dc_thread_count(void);
/* From now on what forks goes on with one thread in its child, which has none of the team that libgomp would wait for. */
void dc_threads_guard_forks(void);

/* Sets memory to zeros; threads share what is large. */
void dc_threads_clear(void *memory, uint64_t bytes);

/* Tasks that a team shares.  A thread takes those of its own part in order, then what is left of others' parts: neighbours
 * stay together, as loops divide them, in the cache of the core that wrote what they read; and nobody waits for a slow one. */
typedef struct {
  int64_t tasks, threads;
  _Atomic int64_t taken[DC_MAX_THREADS]; /* of each part */
} dc_shares;
void dc_share_out(dc_shares *shares, int64_t tasks, int threads); /* by at most DC_MAX_THREADS */
/* The calling thread's next task; false after the last. */
bool dc_share_next(dc_shares *shares, int64_t *task);

#endif
