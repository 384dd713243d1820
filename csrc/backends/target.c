/* See target.h. */
#include "backends/target.h"

#include "backends/cpu/c.h"
#include "backends/threads.h"

enum { MOST_PREPARED = 1 << 20 }; /* steps times all that a graph has, where they are prepared once */

/* ---- steps ---- */

static dc_status run_native(const dc_step_frame *f, const void *call) {
  if (f->part) return dc_native_run_part(call, f->buffers, f->scratch, f->part), DC_OK;
  return dc_native_run((dc_native_call *)call, f->buffers, f->scratch, f->stream);
}

static dc_status run_interpreted(const dc_step_frame *f, const void *context) {
  (void)context;
  return dc_interp_node(f->graph, f->node, f->by_container, f->symbols);
}

static dc_status run_prepared(const dc_step_frame *f, const void *prepared) {
  return dc_interp_run((dc_interp *)prepared, f->by_container, f->symbols);
}

static dc_status run_nothing(const dc_step_frame *f, const void *context) {
  (void)f, (void)context;
  return DC_OK;
}

dc_step_call dc_step_native(const dc_native_call *call, const char *by) { return (dc_step_call){run_native, call, by, false}; }
const dc_step_call dc_step_interpreted = {run_interpreted, NULL, "interpreted", false};
const dc_step_call dc_step_empty = {run_nothing, NULL, "nothing", false};

/* Nodes of a large graph are prepared for each run: room for all expressions at each node would be quadratic. */
static dc_status prepare_interpreted(const dc_target *target, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_arena *arena,
                                     dc_step_call *calls, void **state) {
  (void)target, (void)state;
  bool small = (uint64_t)n * (graph->pool.nodes.n + graph->containers.n + graph->nodes.n) <= MOST_PREPARED;
  for (uint32_t k = 0; k < n; k++) {
    dc_interp *prepared;
    calls[k] = dc_step_interpreted;
    if (!small) continue;
    DC_TRY(dc_interp_prepare(graph, nodes[k], arena, &prepared));
    calls[k] = (dc_step_call){run_prepared, prepared, dc_step_interpreted.by, false};
  }
  return DC_OK;
}

/* ---- the processor ---- */

static dc_status index_error(const dc_step_frame *f) {
  const dc_node *n = dc_node_at(f->graph, f->node);
  const char *name = dc_name_text(&f->graph->names, n->name);
  return dc_error(DC_ERR_VALUE, "node '%s': an index is out of range", *name ? name : dc_name_text(&f->graph->names, n->tag_op));
}

static dc_status run_kernel(const dc_step_frame *f, const void *kernel) {
  int64_t error = 0;
  f->buffers[-1] = &error;
  ((dc_kernel_fn)(uintptr_t)kernel)(f->buffers, f->symbols, f->part);
  return error ? index_error(f) : DC_OK;
}

static dc_status begin_compiling(const dc_target *target, const dc_graph *graph, const dc_nid *nodes, uint32_t n, void **state) {
  dc_batch *begun;
  DC_TRY(dc_jit_begin(target->jit, graph, nodes, n, &begun));
  return *state = begun, DC_OK;
}

static void drop_compiling(void *state) { dc_jit_drop(state); }

static dc_status prepare_compiled(const dc_target *target, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_arena *arena,
                                  dc_step_call *calls, void **state) {
  dc_compiled *kernels = DC_NEW_ARRAY(arena, dc_compiled, n);
  dc_batch *begun = *state;
  *state = NULL;
  dc_status status = begun ? dc_jit_end(begun, kernels) : dc_jit_compile(target->jit, graph, nodes, n, kernels);
  for (uint32_t k = 0; k < n && !status; k++)
    calls[k] = kernels[k].function ? (dc_step_call){run_kernel, kernels[k].function, "compiled", kernels[k].divides} : dc_step_interpreted;
  return status;
}

/* ---- rows ---- */

static const dc_native_library *const processor_libraries[] = {
    &dc_native_onednn, &dc_native_openblas, &dc_native_winograd, &dc_native_pointwise, &dc_native_depthwise, &dc_native_ours,
    &dc_native_select, &dc_native_fourier,  &dc_native_matrices, &dc_native_search,
    &dc_native_products, &dc_native_depthwise_last, &dc_native_unfolded, &dc_native_bytes, NULL};

static uint32_t threads(const dc_target *target) { return (void)target, dc_thread_count(); }

const dc_target_row dc_target_interpreter = {
    .name = "interpreter",
    .machine = dc_machine_read,
    .memory = &dc_host_memory,
    .natives = processor_libraries,
    .modes = threads,
    .prepare = prepare_interpreted,
};

const dc_target_row dc_target_cpu = {
    .name = "cpu",
    .machine = dc_machine_read,
    .memory = &dc_host_memory,
    .natives = processor_libraries,
    .modes = threads,
    .language = &dc_c_language,
    .toolchain = &dc_c_toolchain,
    .is_ready = dc_jit_ready,
    .begin = begin_compiling,
    .drop = drop_compiling,
    .prepare = prepare_compiled,
};

const dc_target_row *dc_target_choose(const dc_target *t, bool worth_it) {
  if (t->backend == DC_BACKEND_CUDA) return &dc_target_cuda;
  bool compiles = t->jit && (t->backend == DC_BACKEND_CPU || (t->backend == DC_BACKEND_AUTO && worth_it));
  return compiles && dc_target_cpu.is_ready(t->jit) ? &dc_target_cpu : &dc_target_interpreter;
}
