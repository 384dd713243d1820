/* Threads of the processor that steps may use. */
#ifndef DCML_BACKENDS_THREADS_H
#define DCML_BACKENDS_THREADS_H

#include <stdint.h>

/* Those of the calling thread's next parallel region, as torch.set_num_threads() says too. */
uint32_t dc_thread_count(void);
/* From now on what forks goes on with one thread in its child, which has none of the team that libgomp would wait for. */
void dc_threads_guard_forks(void);

#endif
