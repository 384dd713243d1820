/* See threads.h. */
#include "backends/threads.h"

#include <omp.h>
#include <pthread.h>

uint32_t dc_thread_count(void) { return (uint32_t)omp_get_max_threads(); }

static void go_on_alone(void) { omp_set_num_threads(1); }

void dc_threads_guard_forks(void) { pthread_atfork(NULL, NULL, go_on_alone); }
