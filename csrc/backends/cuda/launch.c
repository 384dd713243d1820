/* See launch.h. */
#include "backends/cuda/launch.h"

#include <limits.h>
#include <string.h>

#include "backends/cuda/device.h"
#include "backends/jit/emit.h"

enum { USUAL_SHARED_BYTES = 48 << 10, PARAMETER_BYTES = 4096 };

/* A node's functions. */
typedef struct {
  dc_gpu *gpu;
  const char *name; /* of the node, for errors */
  const dc_launches *launches;
  CUdeviceptr error; /* its word, if they check indices */
} prepared_step;

typedef struct {
  CUfunction function;
  unsigned blocks, threads, shared_bytes;
} sized_launch;

/* The same under sizes. */
typedef struct {
  const prepared_step *step;
  const dc_driver *driver;
  uint32_t n_buffers, n_others, n_launches;
  void **others; /* what parameters behind the buffers point to */
  sized_launch *launches;
} bound_step;

/* ---- preparation ---- */

static const char *name_of(const dc_graph *graph, dc_nid node, dc_arena *arena) {
  const dc_node *n = dc_node_at(graph, node);
  const char *name = dc_name_text(&graph->names, n->name);
  return dc_arena_strdup(arena, *name ? name : dc_name_text(&graph->names, n->tag_op));
}

/* Why the language has no function for a node: it is asked again. */
static dc_status unsupported(const dc_graph *graph, dc_nid node, const char *name) {
  dc_text text = {0};
  dc_launches *launches = NULL;
  dc_status status = dc_emit_node(dc_target_cuda.language, graph, node, "kernel", &text, &launches, NULL);
  dc_launches_destroy(launches);
  dc_text_free(&text);
  if (!status) status = dc_error(DC_ERR_COMPILE, "a kernel was not compiled");
  return dc_error_at(status, "node '%s' on cuda", name);
}

static dc_status allow_shared(const dc_gpu *gpu, const char *name, const dc_launches *launches) {
  for (uint32_t k = 0; k < launches->launches.n; k++) {
    const dc_launch *l = &launches->launches.v[k];
    if (l->shared_bytes <= USUAL_SHARED_BYTES) continue;
    CUresult failed = gpu->driver.cuFuncSetAttribute(l->function, CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, (int)l->shared_bytes);
    DC_TRY(dc_driver_status(&gpu->driver, failed, "node '%s' wants %u bytes of shared memory", name, l->shared_bytes));
  }
  return DC_OK;
}

/* A word for each node that checks indices. */
static dc_status take_words(dc_gpu *gpu, prepared_step **steps, uint32_t n, dc_arena *arena, void **state) {
  uint32_t n_words = 0;
  const char **names = DC_NEW_ARRAY(arena, const char *, n);
  for (uint32_t k = 0; k < n; k++)
    if (steps[k]->launches->checks) names[n_words++] = steps[k]->name;
  if (!n_words) return DC_OK;
  dc_gpu_errors *errors;
  DC_TRY(dc_gpu_errors_create(gpu, names, n_words, &errors));
  *state = errors, n_words = 0;
  for (uint32_t k = 0; k < n; k++)
    if (steps[k]->launches->checks) steps[k]->error = errors->device + n_words++ * sizeof *errors->words;
  return DC_OK;
}

static dc_status run_launches(const dc_step_frame *f, const void *context);

static dc_status prepare(dc_gpu *gpu, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_arena *arena, dc_step_call *calls,
                         void **state) {
  dc_compiled *kernels = DC_NEW_ARRAY(arena, dc_compiled, n);
  prepared_step **steps = DC_NEW_ARRAY(arena, prepared_step *, n);
  DC_TRY(dc_jit_compile(gpu->jit, graph, nodes, n, kernels));
  for (uint32_t k = 0; k < n; k++) {
    const char *name = name_of(graph, nodes[k], arena);
    if (!kernels[k].launches) return unsupported(graph, nodes[k], name);
    DC_TRY(allow_shared(gpu, name, kernels[k].launches));
    steps[k] = dc_arena_copy(arena, &(prepared_step){gpu, name, kernels[k].launches, 0}, sizeof **steps);
    calls[k] = (dc_step_call){run_launches, steps[k], "compiled", false};
  }
  return take_words(gpu, steps, n, arena, state);
}

dc_status dc_launch_prepare(const dc_target *target, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_arena *arena,
                            dc_step_call *calls, void **state) {
  return n ? prepare(target->gpu, graph, nodes, n, arena, calls, state) : DC_OK;
}

dc_status dc_launch_complaint(void *state) { return state ? dc_gpu_errors_take(state) : DC_OK; }
void dc_launch_forget(const dc_target *target, void *state) { dc_gpu_errors_destroy(target->gpu, state); }

/* ---- binding ---- */

static dc_status size_launches(const prepared_step *s, const int64_t *symbols, bound_step *b) {
  const dc_launches *from = s->launches;
  for (uint32_t k = 0; k < from->launches.n; k++) {
    const dc_launch *l = &from->launches.v[k];
    int64_t blocks = dc_ix_eval(&from->pool, l->blocks, symbols, NULL);
    if (blocks > INT_MAX)
      return dc_error(DC_ERR_UNSUPPORTED, "node '%s' wants %lld blocks of threads, expected at most %d", s->name, (long long)blocks,
                      INT_MAX);
    if (blocks > 0) b->launches[b->n_launches++] = (sized_launch){l->function, (unsigned)blocks, l->threads, l->shared_bytes};
  }
  return DC_OK;
}

dc_status dc_launch_bind(const dc_step_call *prepared, const int64_t *symbols, uint32_t n_buffers, dc_arena *arena, dc_step_call *out) {
  const prepared_step *s = prepared->context;
  const dc_launches *from = s->launches;
  bound_step *b = DC_NEW(arena, bound_step);
  *b = (bound_step){.step = s, .driver = &s->gpu->driver, .n_buffers = n_buffers, .n_others = from->symbols.n + from->checks};
  if ((n_buffers + b->n_others) * sizeof(void *) > PARAMETER_BYTES)
    return dc_error(DC_ERR_UNSUPPORTED, "node '%s' takes %u arrays and sizes, more than a kernel can be given", s->name,
                    n_buffers + b->n_others);
  int64_t *values = DC_NEW_ARRAY(arena, int64_t, b->n_others);
  b->others = DC_NEW_ARRAY(arena, void *, b->n_others);
  for (uint32_t k = 0; k < from->symbols.n; k++) values[k] = symbols[from->symbols.v[k]];
  if (from->checks) values[from->symbols.n] = (int64_t)s->error;
  for (uint32_t k = 0; k < b->n_others; k++) b->others[k] = &values[k];
  b->launches = DC_NEW_ARRAY(arena, sized_launch, from->launches.n);
  DC_TRY(size_launches(s, symbols, b));
  return *out = (dc_step_call){run_launches, b, prepared->by, false}, DC_OK;
}

/* ---- running ---- */

static dc_status run_launches(const dc_step_frame *f, const void *context) {
  const bound_step *b = context;
  void *parameters[PARAMETER_BYTES / sizeof(void *)];
  for (uint32_t k = 0; k < b->n_buffers; k++) parameters[k] = &f->buffers[k];
  for (uint32_t k = 0; k < b->n_others; k++) parameters[b->n_buffers + k] = b->others[k];
  for (uint32_t k = 0; k < b->n_launches; k++) {
    const sized_launch *l = &b->launches[k];
    CUresult failed =
        b->driver->cuLaunchKernel(l->function, l->blocks, 1, 1, l->threads, 1, 1, l->shared_bytes, f->stream, parameters, NULL);
    if (failed) return dc_driver_status(b->driver, failed, "node '%s' cannot be launched on cuda:%d", b->step->name, b->step->gpu->ordinal);
  }
  return DC_OK;
}
