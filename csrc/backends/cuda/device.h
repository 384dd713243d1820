/* What a session knows of the GPUs of this machine, each opened when it is first used.
 *
 * The driver's functions work on the context that is current in the calling thread: whoever calls them enters a GPU
 * before and leaves it after. */
#ifndef DCML_BACKENDS_CUDA_DEVICE_H
#define DCML_BACKENDS_CUDA_DEVICE_H

#include <pthread.h>

#include "backends/allocator.h"
#include "backends/backend.h"
#include "backends/cuda/driver.h"

/* Words in the host's memory that kernels write when an index is out of range: 1 + the ordinal of the tasklet. */
typedef struct dc_gpu_errors {
  struct dc_gpu_errors *next, **link; /* among all of the GPU */
  int64_t *words;
  CUdeviceptr device; /* where kernels see them */
  const char *const *names; /* of nodes, by word */
  uint32_t n;
} dc_gpu_errors;

struct dc_gpu {
  dc_driver driver;
  dc_nvrtc nvrtc;
  dc_arena arena;
  int32_t ordinal;
  CUdevice device;
  CUcontext context; /* the primary one, which torch uses too; NULL: not open yet */
  int major, minor;  /* compute capability */
  uint32_t multiprocessors;
  dc_machine machine;
  dc_allocator memory; /* in the order of streams */
  dc_natives *natives;
  const uint32_t *modes; /* bits of dc_mode that libraries are allowed, on all GPUs */
  dc_jit *jit;
  pthread_mutex_t lock; /* around the list */
  dc_gpu_errors *errors;
  bool records;              /* runs as graphs, unless DCML_CUDA_GRAPHS=0 */
  pthread_mutex_t recording; /* held by who records */
  CUstream recorder;         /* what that is put on; NULL until then */
};

/* No driver is looked for before the first device is asked for.  library_folder: as for dc_session_create. */
dc_cuda *dc_cuda_create(const char *library_folder); /* NULL when memory cannot be had */
void dc_cuda_destroy(dc_cuda *cuda);
DC_MUST_USE dc_status dc_cuda_device(dc_cuda *cuda, int32_t ordinal, dc_gpu **out);

/* Bits of dc_mode that are allowed from now on; nothing is, at first.  Returns those before. */
uint32_t dc_cuda_allow(dc_cuda *cuda, uint32_t modes);

/* Makes its context the thread's; *entered: it was not, and leave takes it away. */
DC_MUST_USE dc_status dc_gpu_enter(const dc_gpu *gpu, bool *entered);
void dc_gpu_leave(const dc_gpu *gpu, bool entered);
/* Waits for the stream, then tells what kernels have complained of. */
DC_MUST_USE dc_status dc_gpu_synchronize(dc_gpu *gpu, void *stream);
/* Copies to the host what the stream has computed, and does the same. */
DC_MUST_USE dc_status dc_gpu_read(dc_gpu *gpu, void *to, const void *from, uint64_t bytes, void *stream);

/* n words, all 0, for as many nodes, whose names live as long; the GPU is entered.  Nothing that writes them runs any
 * more when they are given back. */
DC_MUST_USE dc_status dc_gpu_errors_create(dc_gpu *gpu, const char *const *names, uint32_t n, dc_gpu_errors **out);
void dc_gpu_errors_destroy(dc_gpu *gpu, dc_gpu_errors *errors); /* NULL is allowed */
DC_MUST_USE dc_status dc_gpu_errors_take(dc_gpu_errors *errors); /* the first complaint since the last one was taken */

#endif
