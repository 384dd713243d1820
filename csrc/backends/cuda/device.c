/* See device.h. */
#include "backends/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/natives.h"
#include "backends/cuda/toolchain.h"
#include "backends/target.h"

enum { MAX_DEVICES = 64, LEAST_CAPABILITY = 7 };

struct dc_cuda {
  pthread_mutex_t lock;
  dc_arena arena;
  const char *folder;
  dc_gpu *gpus[MAX_DEVICES]; /* by ordinal */
  uint32_t modes;
};

/* ---- the current context ---- */

dc_status dc_gpu_enter(const dc_gpu *gpu, bool *entered) {
  CUcontext current = NULL;
  *entered = false;
  if (gpu->driver.cuCtxGetCurrent(&current) == 0 && current == gpu->context) return DC_OK;
  DC_TRY(dc_driver_status(&gpu->driver, gpu->driver.cuCtxPushCurrent_v2(gpu->context), "cuda:%d cannot be used", gpu->ordinal));
  return *entered = true, DC_OK;
}

void dc_gpu_leave(const dc_gpu *gpu, bool entered) {
  CUcontext was;
  if (entered) (void)gpu->driver.cuCtxPopCurrent_v2(&was);
}

/* ---- memory ---- */

static void *take(void *self, uint64_t bytes, void *stream) {
  const dc_gpu *gpu = self;
  CUdeviceptr memory = 0;
  if (!bytes || gpu->driver.cuMemAllocAsync(&memory, bytes, stream)) return NULL;
  return (void *)(uintptr_t)memory;
}

static void give(void *self, void *memory, uint64_t bytes, void *stream) {
  const dc_gpu *gpu = self;
  (void)bytes;
  if (memory) (void)gpu->driver.cuMemFreeAsync((CUdeviceptr)(uintptr_t)memory, stream);
}

static dc_status fill(void *self, void *to, const void *from, uint64_t bytes, void *stream) {
  const dc_gpu *gpu = self;
  CUresult failed = gpu->driver.cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, from, bytes, stream);
  if (!failed) failed = gpu->driver.cuStreamSynchronize(stream);
  return dc_driver_status(&gpu->driver, failed, "%llu bytes cannot be copied to cuda:%d", (unsigned long long)bytes, gpu->ordinal);
}

static bool reads(const void *data) { return (void)data, false; }

/* ---- what kernels complain of ---- */

dc_status dc_gpu_errors_create(dc_gpu *gpu, const char *const *names, uint32_t n, dc_gpu_errors **out) {
  dc_gpu_errors *e = calloc(1, sizeof *e);
  if (!e) return dc_error(DC_ERR_MEMORY, "out of memory");
  void *words = NULL;
  CUresult failed = gpu->driver.cuMemHostAlloc(&words, n * sizeof *e->words, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (!failed) failed = gpu->driver.cuMemHostGetDevicePointer_v2(&e->device, words, 0);
  if (failed) {
    if (words) (void)gpu->driver.cuMemFreeHost(words);
    free(e);
    return dc_driver_status(&gpu->driver, failed, "memory that the host and cuda:%d share cannot be had", gpu->ordinal);
  }
  memset(words, 0, n * sizeof *e->words);
  e->words = words, e->names = names, e->n = n;
  pthread_mutex_lock(&gpu->lock);
  e->next = gpu->errors, e->link = &gpu->errors;
  if (e->next) e->next->link = &e->next;
  gpu->errors = e;
  pthread_mutex_unlock(&gpu->lock);
  return *out = e, DC_OK;
}

void dc_gpu_errors_destroy(dc_gpu *gpu, dc_gpu_errors *e) {
  if (!e) return;
  pthread_mutex_lock(&gpu->lock);
  *e->link = e->next;
  if (e->next) e->next->link = e->link;
  pthread_mutex_unlock(&gpu->lock);
  (void)gpu->driver.cuMemFreeHost(e->words);
  free(e);
}

dc_status dc_gpu_errors_take(dc_gpu_errors *e) {
  dc_status status = DC_OK;
  for (uint32_t k = 0; k < e->n; k++) {
    if (!__atomic_load_n(&e->words[k], __ATOMIC_RELAXED)) continue;
    __atomic_store_n(&e->words[k], 0, __ATOMIC_RELAXED);
    if (!status) status = dc_error(DC_ERR_VALUE, "node '%s': an index is out of range", e->names[k]);
  }
  return status;
}

/* Those of all programs; what has been waited for has complained. */
static dc_status first_complaint(dc_gpu *gpu) {
  dc_status status = DC_OK;
  pthread_mutex_lock(&gpu->lock);
  for (dc_gpu_errors *e = gpu->errors; e && !status; e = e->next) status = dc_gpu_errors_take(e);
  pthread_mutex_unlock(&gpu->lock);
  return status;
}

dc_status dc_gpu_synchronize(dc_gpu *gpu, void *stream) {
  bool entered;
  DC_TRY(dc_gpu_enter(gpu, &entered));
  CUresult failed = gpu->driver.cuStreamSynchronize(stream);
  dc_gpu_leave(gpu, entered);
  DC_TRY(dc_driver_status(&gpu->driver, failed, "what ran on cuda:%d has failed", gpu->ordinal));
  return first_complaint(gpu);
}

dc_status dc_gpu_read(dc_gpu *gpu, void *to, const void *from, uint64_t bytes, void *stream) {
  bool entered;
  DC_TRY(dc_gpu_enter(gpu, &entered));
  CUresult failed = bytes ? gpu->driver.cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)(uintptr_t)from, bytes, stream) : 0;
  if (!failed) failed = gpu->driver.cuStreamSynchronize(stream);
  dc_gpu_leave(gpu, entered);
  DC_TRY(dc_driver_status(&gpu->driver, failed, "%llu bytes cannot be copied from cuda:%d", (unsigned long long)bytes, gpu->ordinal));
  return first_complaint(gpu);
}

/* ---- numbers ---- */

static int number_of(const dc_gpu *gpu, int attribute, int otherwise) {
  int value = 0;
  return gpu->driver.cuDeviceGetAttribute(&value, attribute, gpu->device) == 0 && value > 0 ? value : otherwise;
}

/* What passes over graphs ask of a processor, for one whose thousands of threads each take an element or a row. */
static void read_machine(dc_gpu *gpu) {
  gpu->multiprocessors = (uint32_t)number_of(gpu, CU_MULTIPROCESSORS, 1);
  dc_machine *m = &gpu->machine;
  *m = dc_machine_cuda_typical;
  m->l1_bytes = (uint32_t)number_of(gpu, CU_SHARED_BYTES_PER_BLOCK_OPTIN, 48 << 10);
  m->l2_bytes = (uint32_t)number_of(gpu, CU_L2_BYTES, 4 << 20);
  m->multiprocessors = gpu->multiprocessors;
  m->few_tasks = gpu->multiprocessors;
  m->teams = 4 * gpu->multiprocessors; /* two rounds of two each: the last one leaves less idle */
}

/* ---- opening ---- */

static dc_status find_device(dc_gpu *gpu) {
  const dc_driver *d = &gpu->driver;
  int n = 0;
  DC_TRY(dc_driver_status(d, d->cuDeviceGetCount(&n), "the CUDA driver does not count its devices"));
  if (!n) return dc_error(DC_ERR_DEVICE, "there is no GPU: the driver finds no device; `nvidia-smi` lists those that it knows");
  if (gpu->ordinal >= n) return dc_error(DC_ERR_DEVICE, "there is no device cuda:%d: this machine has %d", gpu->ordinal, n);
  DC_TRY(dc_driver_status(d, d->cuDeviceGet(&gpu->device, gpu->ordinal), "cuda:%d cannot be used", gpu->ordinal));
  gpu->major = number_of(gpu, CU_CAPABILITY_MAJOR, 0), gpu->minor = number_of(gpu, CU_CAPABILITY_MINOR, 0);
  if (gpu->major < LEAST_CAPABILITY)
    return dc_error(DC_ERR_DEVICE, "cuda:%d has compute capability %d.%d, expected at least %d.0", gpu->ordinal, gpu->major, gpu->minor,
                    LEAST_CAPABILITY);
  if (!number_of(gpu, CU_MEMORY_POOLS, 0))
    return dc_error(DC_ERR_DEVICE, "cuda:%d has no memory pools, which dcml takes its memory from", gpu->ordinal);
  return DC_OK;
}

/* Freed memory stays with the process, or each synchronisation would hand it back to the system. */
static dc_status keep_memory(dc_gpu *gpu) {
  CUmemoryPool pool;
  uint64_t all = UINT64_MAX;
  CUresult failed = gpu->driver.cuDeviceGetDefaultMemPool(&pool, gpu->device);
  if (!failed) failed = gpu->driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_RELEASE_THRESHOLD, &all);
  return dc_driver_status(&gpu->driver, failed, "the memory pool of cuda:%d cannot be used", gpu->ordinal);
}

static dc_status open_tools(dc_gpu *gpu, const char *folder) {
  const char *why;
  DC_TRY(dc_nvrtc_open(&gpu->driver, folder, 10 * gpu->major + gpu->minor, &gpu->arena, &gpu->nvrtc));
  DC_TRY(dc_jit_create(dc_target_cuda.language, dc_target_cuda.toolchain, gpu, NULL, NULL, &gpu->jit));
  if (!dc_jit_available(gpu->jit, &why)) return dc_error(DC_ERR_DEVICE, "%s", why);
  bool entered;
  dc_cuda_place place = {&gpu->driver, gpu->ordinal, gpu->modes};
  DC_TRY(dc_gpu_enter(gpu, &entered));
  dc_status status = dc_natives_create(dc_target_cuda.natives, getenv("DCML_NATIVE"), folder, &place, &gpu->natives);
  dc_gpu_leave(gpu, entered);
  return status;
}

static dc_status open_gpu(dc_gpu *gpu, const char *folder) {
  DC_TRY(dc_driver_open(&gpu->driver));
  DC_TRY(find_device(gpu));
  DC_TRY(dc_driver_status(&gpu->driver, gpu->driver.cuDevicePrimaryCtxRetain(&gpu->context, gpu->device), "cuda:%d cannot be used",
                          gpu->ordinal));
  DC_TRY(keep_memory(gpu));
  read_machine(gpu);
  gpu->memory = (dc_allocator){DC_CUDA, gpu->ordinal, gpu, take, give, fill, reads};
  return open_tools(gpu, folder);
}

static void close_gpu(dc_gpu *gpu) {
  bool entered = gpu->context && gpu->driver.cuCtxPushCurrent_v2(gpu->context) == 0;
  dc_natives_destroy(gpu->natives);
  dc_jit_destroy(gpu->jit);
  if (gpu->recorder) (void)gpu->driver.cuStreamDestroy_v2(gpu->recorder);
  dc_gpu_leave(gpu, entered);
  if (gpu->context) (void)gpu->driver.cuDevicePrimaryCtxRelease_v2(gpu->device);
  pthread_mutex_destroy(&gpu->lock);
  pthread_mutex_destroy(&gpu->recording);
  dc_arena_free(&gpu->arena);
  free(gpu);
}

static dc_status make_gpu(dc_cuda *cuda, int32_t ordinal, dc_gpu **out) {
  dc_gpu *gpu = calloc(1, sizeof *gpu);
  if (!gpu) return dc_error(DC_ERR_MEMORY, "out of memory");
  const char *graphs = getenv("DCML_CUDA_GRAPHS");
  gpu->ordinal = ordinal, gpu->records = !graphs || strcmp(graphs, "0");
  gpu->modes = &cuda->modes;
  pthread_mutex_init(&gpu->lock, NULL);
  pthread_mutex_init(&gpu->recording, NULL);
  dc_status status = open_gpu(gpu, cuda->folder);
  if (status) close_gpu(gpu);
  else *out = gpu;
  return status;
}

dc_status dc_cuda_device(dc_cuda *cuda, int32_t ordinal, dc_gpu **out) {
  if (ordinal < 0 || ordinal >= MAX_DEVICES) return dc_error(DC_ERR_DEVICE, "there is no device cuda:%d", ordinal);
  *out = __atomic_load_n(&cuda->gpus[ordinal], __ATOMIC_ACQUIRE);
  if (*out) return DC_OK;
  pthread_mutex_lock(&cuda->lock);
  dc_status status = DC_OK;
  *out = cuda->gpus[ordinal];
  if (!*out) status = make_gpu(cuda, ordinal, out);
  if (!status) __atomic_store_n(&cuda->gpus[ordinal], *out, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&cuda->lock);
  return status;
}

uint32_t dc_cuda_allow(dc_cuda *cuda, uint32_t modes) { return __atomic_exchange_n(&cuda->modes, modes, __ATOMIC_RELAXED); }

dc_cuda *dc_cuda_create(const char *library_folder) {
  dc_cuda *cuda = calloc(1, sizeof *cuda);
  if (!cuda) return NULL;
  pthread_mutex_init(&cuda->lock, NULL);
  cuda->modes = DC_MODE_TF32_CONVOLUTIONS; /* as torch begins */
  cuda->folder = library_folder ? dc_arena_strdup(&cuda->arena, library_folder) : NULL;
  return cuda;
}

void dc_cuda_destroy(dc_cuda *cuda) {
  if (!cuda) return;
  for (int k = 0; k < MAX_DEVICES; k++)
    if (cuda->gpus[k]) close_gpu(cuda->gpus[k]);
  pthread_mutex_destroy(&cuda->lock);
  dc_arena_free(&cuda->arena);
  free(cuda);
}
