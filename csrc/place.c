/* Where a call computes: on the host, or on the GPU that holds its arguments.
 *
 * What decides shapes is read on the host wherever it lies. */
#include <stdlib.h>

#include "backends/cuda/device.h"
#include "function.h"

static const char *name_of(const dc_function *f, uint32_t arg) { return dc_cont_name(f->graph, f->args[arg]); }

static const char *device_of(dc_arena *arena, const dc_array *a) {
  const char *name = dc_device_name(a->device);
  return a->device == DC_CUDA ? dc_arena_printf(arena, "%s:%d", name, a->ordinal) : name;
}

/* The first argument that says where: on a GPU, if any is there. */
static uint32_t decisive(const dc_function *f, const dc_array *arrays) {
  for (uint32_t k = 0; k < f->n_args; k++)
    if (arrays[k].device != DC_HOST) return k;
  return 0;
}

/* Small integers may decide shapes, which only compiling tells; function.c checks again when it has compiled. */
static bool may_decide_shapes(const dc_function *f, const dc_array *a, uint32_t arg) {
  return f->by_value[arg] || (!dc_dtype_is_float(a->dtype) && !f->writes[arg]);
}

static dc_status disagree(const dc_function *f, const dc_array *arrays, uint32_t a, uint32_t b) {
  dc_arena arena = {0};
  dc_status status = dc_error(DC_ERR_DEVICE, "input '%s' is in the memory of %s, but '%s' in that of %s", name_of(f, b),
                              device_of(&arena, &arrays[b]), name_of(f, a), device_of(&arena, &arrays[a]));
  dc_arena_free(&arena);
  return status;
}

static dc_status misplaced(const dc_function *f, const dc_array *arrays, uint32_t arg, dc_device wanted) {
  dc_arena arena = {0};
  dc_status status = dc_error(DC_ERR_DEVICE, "input '%s' is in the memory of %s, expected %s", name_of(f, arg),
                              device_of(&arena, &arrays[arg]), dc_device_name(wanted));
  dc_arena_free(&arena);
  return status;
}

static bool computes_on(dc_backend_kind backend, dc_device device) {
  return backend == DC_BACKEND_CUDA ? device == DC_CUDA : device == DC_HOST || (backend == DC_BACKEND_AUTO && device == DC_CUDA);
}

/* Arguments without any memory leave it to the options. */
static dc_status find_device(const dc_function *f, const dc_array *arrays, dc_array *out) {
  dc_backend_kind backend = f->options.backend;
  *out = (dc_array){.device = backend == DC_BACKEND_CUDA ? DC_CUDA : DC_HOST};
  uint32_t first = decisive(f, arrays);
  if (f->n_args) out->device = arrays[first].device, out->ordinal = arrays[first].ordinal;
  if (backend == DC_BACKEND_CUDA && f->n_args && out->device == DC_HOST) {
    bool none = true; /* that only a GPU could read */
    for (uint32_t k = 0; k < f->n_args; k++) none &= may_decide_shapes(f, &arrays[k], k);
    if (none) *out = (dc_array){.device = DC_CUDA};
  }
  for (uint32_t k = 0; k < f->n_args; k++) {
    bool same = arrays[k].device == out->device && arrays[k].ordinal == out->ordinal;
    bool by_host = out->device == DC_CUDA && arrays[k].device == DC_HOST && may_decide_shapes(f, &arrays[k], k);
    if (same || by_host) continue;
    return computes_on(backend, arrays[first].device) ? disagree(f, arrays, first, k) : misplaced(f, arrays, k, DC_HOST);
  }
  if (computes_on(backend, out->device)) return DC_OK;
  return misplaced(f, arrays, first, backend == DC_BACKEND_CUDA ? DC_CUDA : DC_HOST);
}

dc_status dc_place_find(const dc_function *f, const dc_array *arrays, void *stream, dc_place_of_call *out) {
  dc_array where;
  *out = (dc_place_of_call){.given = arrays, .arrays = (dc_array *)arrays, .stream = stream};
  DC_TRY(find_device(f, arrays, &where));
  if (where.device != DC_CUDA) return DC_OK;
  DC_TRY(dc_cuda_device(f->session.cuda, where.ordinal, &out->gpu));
  out->arrays = dc_arena_copy(&out->arena, arrays, f->n_args * sizeof *arrays);
  for (uint32_t k = 0; k < f->n_args; k++)
    if (f->by_value[k]) DC_TRY(dc_place_fetch(out, k));
  return DC_OK;
}

void dc_place_free(dc_place_of_call *place) { dc_arena_free(&place->arena); }

dc_status dc_place_fetch(dc_place_of_call *place, uint32_t arg) {
  dc_array *a = &place->arrays[arg];
  if (a->device == DC_HOST) return DC_OK;
  if (a->host) return a->data = (void *)(uintptr_t)a->host, a->device = DC_HOST, a->ordinal = 0, DC_OK;
  uint64_t bytes = dc_array_bytes(a);
  void *data = dc_arena_alloc(&place->arena, bytes);
  DC_TRY(dc_gpu_read(place->gpu, data, a->data, bytes, place->stream));
  return a->data = data, a->device = DC_HOST, a->ordinal = 0, DC_OK;
}

dc_status dc_place_check(const dc_function *f, const dc_place_of_call *place) {
  for (uint32_t k = 0; place->gpu && k < f->n_args; k++)
    if (place->given[k].device == DC_HOST && !f->by_value[k]) return misplaced(f, place->given, k, DC_CUDA);
  return DC_OK;
}

void dc_place_graph(dc_graph *graph, const dc_gpu *gpu) {
  for (dc_cid c = 1; gpu && c < graph->containers.n; c++) dc_cont(graph, c)->device = DC_CUDA;
}
