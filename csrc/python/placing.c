/* See placing.h. */
#include "python/placing.h"

#include <string.h>

#include "backends/cuda/device.h"
#include "backends/threads.h"
#include "python/dlpack.h"

enum { ALIGN = 256, SMALL = 4096, MOST_EMBEDDED = 1 << 16 }; /* arrays up to SMALL bytes are copied together */

/* ---- which GPU ---- */

dc_gpu *gpu_of(module_state *state, int32_t ordinal) {
  dc_gpu *gpu = NULL;
  dc_session *session = session_of(state);
  if (!session) return NULL;
  dc_status status = dc_cuda_device(session->cuda, ordinal, &gpu);
  if (status) return raise_status(state, status), NULL;
  return gpu;
}

const dc_allocator *gpu_memory(dc_gpu *gpu) { return &gpu->memory; }

/* what: it is for, as in "results". */
static dc_status take(const call_place *place, uint64_t bytes, const char *what, void **block) {
  bool entered;
  size_t left = 0, all = 0;
  DC_TRY(dc_gpu_enter(place->gpu, &entered));
  *block = place->memory->take(place->memory->self, bytes, place->stream);
  if (!*block) (void)place->gpu->driver.cuMemGetInfo_v2(&left, &all);
  dc_gpu_leave(place->gpu, entered);
  return *block ? DC_OK
                : dc_error(DC_ERR_MEMORY, "cannot get %llu bytes for %s: the memory of cuda:%d has %zu free of %zu",
                           (unsigned long long)bytes, what, (int)place->gpu->ordinal, left, all);
}

static void give(const call_place *place, void *block, uint64_t bytes) {
  bool entered;
  dc_status status = block ? dc_gpu_enter(place->gpu, &entered) : DC_OK;
  if (block && !status) {
    place->memory->give(place->memory->self, block, bytes, place->stream);
    dc_gpu_leave(place->gpu, entered);
  }
  dc_status_free(status);
}

/* The host's memory is free after it.  What is small waits for nothing: the driver takes it along with the command. */
static dc_status copy_there(const call_place *place, void *to, const void *from, uint64_t bytes) {
  const dc_driver *driver = &place->gpu->driver;
  CUresult failed = driver->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, from, bytes, place->stream);
  if (!failed && bytes > MOST_EMBEDDED) failed = driver->cuStreamSynchronize(place->stream);
  return dc_driver_status(driver, failed, "%llu bytes cannot be copied to cuda:%d", (unsigned long long)bytes, (int)place->gpu->ordinal);
}

static const char *name_of(const FunctionObject *f, uint32_t k) { return argument_name((FunctionObject *)f, k); }

static int fail_apart(FunctionObject *f, const tensor_view *views, uint32_t a, uint32_t b) {
  const dc_array *x = &views[a].array, *y = &views[b].array;
  char where[2][32];
  for (int k = 0; k < 2; k++) {
    const dc_array *one = k ? y : x;
    if (one->device == DC_HOST) PyOS_snprintf(where[k], sizeof where[k], "the CPU");
    else PyOS_snprintf(where[k], sizeof where[k], "%s:%d", dc_device_name(one->device), (int)one->ordinal);
  }
  PyErr_Format(state_of((PyObject *)f)->errors[DC_ERR_DEVICE], "'%s' is on %s, but '%s' is on %s: expected all on one device",
               name_of(f, a), where[0], name_of(f, b), where[1]);
  return -1;
}

/* The position of the first argument on a GPU, n if there is none, -1 with an exception where others are elsewhere. */
static int64_t first_on_device(FunctionObject *f, const tensor_view *views, uint32_t n) {
  uint32_t first = 0;
  while (first < n && views[first].array.device != DC_CUDA) first++;
  for (uint32_t k = 0; first < n && k < n; k++) {
    const dc_array *a = &views[k].array;
    bool value = a->device == DC_HOST && (a->rank == 0 || !views[k].is_torch); /* as torch takes numbers */
    bool same = a->device == DC_CUDA && a->ordinal == views[first].array.ordinal;
    if (!value && !same) return fail_apart(f, views, k < first ? k : first, k < first ? first : k);
    if (value && dc_function_writes(f->function, k)) return fail_apart(f, views, k, first);
  }
  return first;
}

int find_stream(module_state *state, call_place *place) {
  const DLExchange *api = state->exchange;
  place->stream = NULL;
  if (!place->gpu || place->to_host || !api) return 0;
  if (!api->current_stream(DL_CUDA, place->gpu->ordinal, &place->stream)) return 0;
  if (!PyErr_Occurred()) PyErr_SetString(state->errors[DC_ERR_DEVICE], "torch does not tell its current stream");
  return -1;
}

/* ---- what comes from the host ---- */

static uint64_t rounded(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* Copies together what is small, and each of the others by itself. */
static dc_status stage(call_place *place, tensor_view *views, uint32_t n, char *block) {
  char packed[SMALL];
  uint64_t at = 0, begin = 0, used = 0;
  for (uint32_t k = 0; k < n; k++) {
    dc_array *a = &views[k].array;
    uint64_t bytes = dc_array_bytes(a);
    if (a->device != DC_HOST) continue;
    if (used + bytes > SMALL || bytes > SMALL) {
      if (used) DC_TRY(copy_there(place, block + begin, packed, used));
      begin = at, used = 0;
    }
    if (bytes > SMALL) DC_TRY(copy_there(place, block + at, a->data, bytes));
    else if (bytes) {
      memcpy(packed + used, a->data, bytes);
      used += rounded(bytes) < SMALL - used ? rounded(bytes) : SMALL - used;
    }
    a->host = a->data, a->data = block + at, a->device = DC_CUDA, a->ordinal = place->gpu->ordinal;
    at += rounded(bytes);
    if (bytes > SMALL) begin = at;
  }
  return used ? copy_there(place, block + begin, packed, used) : DC_OK;
}

static dc_status place_host_arrays(call_place *place, tensor_view *views, uint32_t n) {
  uint64_t bytes = 0;
  bool any = false;
  for (uint32_t k = 0; k < n; k++)
    if (views[k].array.device == DC_HOST) any = true, bytes += rounded(dc_array_bytes(&views[k].array));
  if (!any) return DC_OK;
  if (bytes) DC_TRY(take(place, bytes, "arguments", &place->staged));
  place->staged_bytes = bytes;
  bool entered;
  DC_TRY(dc_gpu_enter(place->gpu, &entered));
  dc_status status = stage(place, views, n, place->staged);
  dc_gpu_leave(place->gpu, entered);
  return status;
}

int place_call(FunctionObject *f, tensor_view *views, uint32_t n, call_place *out) {
  *out = (call_place){0};
  if (f->on_host) return 0; /* where the core refuses other arguments */
  module_state *state = state_of((PyObject *)f);
  int64_t first = first_on_device(f, views, n);
  if (first < 0) return -1;
  if (first == n && !f->on_gpu) return 0;
  out->to_host = first == n;
  int32_t ordinal = out->to_host ? (f->ordinal > 0 ? f->ordinal : 0) : views[first].array.ordinal;
  if (f->ordinal >= 0 && ordinal != f->ordinal) {
    PyErr_Format(state->errors[DC_ERR_DEVICE], "'%s' is on cuda:%d, but the function was made for cuda:%d", name_of(f, (uint32_t)first),
                 (int)ordinal, (int)f->ordinal);
    return -1;
  }
  if (!(out->gpu = gpu_of(state, ordinal))) return -1;
  out->memory = dc_function_get_options(f->function)->memory;
  if (!out->memory) out->memory = gpu_memory(out->gpu);
  if (find_stream(state, out)) return -1;
  dc_status status = place_host_arrays(out, views, n);
  if (!status) return 0;
  raise_status(state, status);
  end_place(out);
  return -1;
}

dc_status return_written(const call_place *place, const FunctionObject *f, const tensor_view *views, uint32_t n) {
  for (uint32_t k = 0; place->gpu && place->to_host && k < n; k++) {
    const dc_array *a = &views[k].array;
    if (dc_function_writes(f->function, k) && dc_array_bytes(a))
      DC_TRY(dc_gpu_read(place->gpu, (void *)(uintptr_t)a->host, a->data, dc_array_bytes(a), place->stream));
  }
  return DC_OK;
}

void end_place(call_place *place) {
  if (place->staged) give(place, place->staged, place->staged_bytes);
  place->staged = NULL;
}

bool is_there(const call_place *place, const dc_array *a) {
  return place->gpu ? a->device == DC_CUDA && a->ordinal == place->gpu->ordinal : a->device == DC_HOST;
}

/* ---- results ---- */

PyObject *new_result(module_state *state, const call_place *place, dc_array *shape, bool torch, void **data, void **host) {
  bool on_device = place->gpu && !place->to_host;
  shape->device = on_device ? DC_CUDA : DC_HOST, shape->ordinal = on_device ? place->gpu->ordinal : 0;
  *host = NULL;
  PyObject *made = new_tensor(state, shape, torch, data);
  if (!made || !place->gpu || on_device) return made;
  uint64_t bytes = dc_array_bytes(shape);
  *host = *data;
  dc_status status = take(place, bytes ? bytes : 1, "a result", data);
  if (!status) return made;
  raise_status(state, status);
  *host = NULL;
  Py_DECREF(made);
  return NULL;
}

dc_status finish_result(const call_place *place, const dc_array *shape, void *data, void *host) {
  uint64_t bytes = dc_array_bytes(shape);
  if (!host) return DC_OK;
  dc_status status = bytes ? dc_gpu_read(place->gpu, host, data, bytes, place->stream) : DC_OK;
  give(place, data, bytes ? bytes : 1);
  return status;
}

dc_status clear(const call_place *place, void *data, uint64_t bytes) {
  bool entered;
  if (!place->gpu) return dc_threads_clear(data, bytes), DC_OK;
  if (!bytes) return DC_OK;
  DC_TRY(dc_gpu_enter(place->gpu, &entered));
  const dc_driver *driver = &place->gpu->driver;
  CUresult failed = driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)data, 0, bytes, place->stream);
  dc_gpu_leave(place->gpu, entered);
  return dc_driver_status(driver, failed, "%llu bytes of cuda:%d cannot be cleared", (unsigned long long)bytes, (int)place->gpu->ordinal);
}

dc_status copy_to(const call_place *place, void *to, const void *from, uint64_t bytes) {
  bool entered;
  if (!bytes) return DC_OK;
  DC_TRY(dc_gpu_enter(place->gpu, &entered));
  dc_status status = copy_there(place, to, from, bytes);
  dc_gpu_leave(place->gpu, entered);
  return status;
}

/* ---- blocks that a call keeps ---- */

dc_status take_block(module_state *state, const call_place *place, uint64_t bytes, const char *what, void **block) {
  *block = NULL;
  if (place->gpu) return take(place, bytes, what, block);
  *block = dc_buffer_take(state->pool, bytes);
  return *block ? DC_OK : dc_error(DC_ERR_MEMORY, "cannot get %llu bytes for %s", (unsigned long long)bytes, what);
}

void give_block(module_state *state, const call_place *place, void *block, uint64_t bytes) {
  if (place->gpu) give(place, block, bytes);
  else dc_buffer_give(state->pool, block);
}
