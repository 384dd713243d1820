/* oneDNN: opening the library, and running a bound primitive with its reorders. */
#include "backends/native/onednn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/allocator.h"
#include "backends/native/problem.h"

/* ---- opening ---- */

static bool load_symbols(dnn_library *lib) {
  const struct {
    const char *name;
    void **to;
  } symbols[] = {
      {"dnnl_version", (void **)&lib->version},
      {"dnnl_get_effective_cpu_isa", (void **)&lib->isa},
      {"dnnl_engine_create", (void **)&lib->engine_create},
      {"dnnl_engine_destroy", (void **)&lib->engine_destroy},
      {"dnnl_stream_create", (void **)&lib->stream_create},
      {"dnnl_stream_destroy", (void **)&lib->stream_destroy},
      {"dnnl_primitive_attr_create", (void **)&lib->attr_create},
      {"dnnl_primitive_attr_destroy", (void **)&lib->attr_destroy},
      {"dnnl_primitive_attr_set_scratchpad_mode", (void **)&lib->attr_scratchpad},
      {"dnnl_memory_desc_create_with_strides", (void **)&lib->desc_strided},
      {"dnnl_memory_desc_create_with_tag", (void **)&lib->desc_tagged},
      {"dnnl_memory_desc_destroy", (void **)&lib->desc_destroy},
      {"dnnl_memory_desc_equal", (void **)&lib->desc_equal},
      {"dnnl_memory_desc_clone", (void **)&lib->desc_clone},
      {"dnnl_memory_desc_get_size", (void **)&lib->desc_size},
      {"dnnl_memory_create", (void **)&lib->memory_create},
      {"dnnl_memory_destroy", (void **)&lib->memory_destroy},
      {"dnnl_memory_set_data_handle", (void **)&lib->memory_move},
      {"dnnl_convolution_forward_primitive_desc_create", (void **)&lib->conv_forward},
      {"dnnl_convolution_backward_data_primitive_desc_create", (void **)&lib->conv_data},
      {"dnnl_convolution_backward_weights_primitive_desc_create", (void **)&lib->conv_weights},
      {"dnnl_matmul_primitive_desc_create", (void **)&lib->matmul},
      {"dnnl_reorder_primitive_desc_create", (void **)&lib->reorder},
      {"dnnl_primitive_create", (void **)&lib->primitive_create},
      {"dnnl_primitive_destroy", (void **)&lib->primitive_destroy},
      {"dnnl_primitive_desc_destroy", (void **)&lib->primitive_desc_destroy},
      {"dnnl_primitive_desc_next_impl", (void **)&lib->next_implementation},
      {"dnnl_primitive_desc_query", (void **)&lib->query_any},
      {"dnnl_primitive_desc_query_md", (void **)&lib->query},
      {"dnnl_primitive_execute", (void **)&lib->execute},
  };
  for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++)
    if (!(*symbols[k].to = dlsym(lib->handle, symbols[k].name))) return false;
  return true;
}

static void *open_library(const char *folder) {
  const char *given = getenv("DCML_ONEDNN");
  char path[4096];
  if (given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  void *handle = NULL;
  if (folder && snprintf(path, sizeof path, "%s/libdnnl.so.3", folder) < (int)sizeof path) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return handle ? handle : dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
}

static void close_onednn(void *opaque) {
  dnn_library *lib = opaque;
  if (lib->attr) lib->attr_destroy(lib->attr);
  if (lib->stream) lib->stream_destroy(lib->stream);
  if (lib->engine) lib->engine_destroy(lib->engine);
  if (lib->handle) dlclose(lib->handle);
  pthread_mutex_destroy(&lib->holder.lock);
  free(lib);
}

static bool same_layout(void *lib, const void *a, const void *b) { return ((dnn_library *)lib)->desc_equal(a, b); }

static void *clone_layout(void *lib, const void *layout) {
  void *own = NULL;
  return ((dnn_library *)lib)->desc_clone(&own, layout) ? NULL : own;
}

static void drop_layout(void *lib, void *layout) { ((dnn_library *)lib)->desc_destroy(layout); }

static bool start(dnn_library *lib) {
  return !lib->engine_create(&lib->engine, DNN_CPU, 0) && !lib->stream_create(&lib->stream, lib->engine, DNN_STREAM_DEFAULT) &&
         !lib->attr_create(&lib->attr) && !lib->attr_scratchpad(lib->attr, DNN_SCRATCHPAD_USER);
}

static const char *open_onednn(const char *folder, const void *place, void **out) {
  (void)place;
  dnn_library *lib = calloc(1, sizeof *lib);
  if (!lib) return "out of memory";
  lib->holder = (dc_holder){.library = lib, .same = same_layout, .clone = clone_layout, .drop = drop_layout};
  pthread_mutex_init(&lib->holder.lock, NULL);
  lib->handle = open_library(folder);
  const char *why = !lib->handle ? "libdnnl.so.3 is not found" : !load_symbols(lib) ? "it lacks functions of version 3" : NULL;
  if (!why && lib->version()->major != 3) why = "expected version 3";
  if (!why && !start(lib)) why = "it has no CPU engine";
  if (why) {
    close_onednn(lib);
    return why;
  }
  lib->multiplies_bf16 = (lib->isa() & DNN_ISA_BF16) && dc_machine_bf16_way() != DC_BF16_AS_F32;
  *out = lib;
  return NULL;
}

/* ---- binding ---- */

/* Creates the primitive of a described step. */
static dc_status make_step(dnn_call *call, dnn_step *step, const char *what) {
  const dnn_library *lib = call->lib;
  DNN_TRY(lib->primitive_create(&step->primitive, step->desc), what);
  const void *pad = lib->query(step->desc, DNN_Q_SCRATCHPAD, 0);
  size_t bytes = pad ? lib->desc_size(pad) : 0;
  if (bytes) step->pad = pad;
  if (bytes > call->pad_bytes) call->pad_bytes = bytes;
  return DC_OK;
}

static void drop_step(const dnn_library *lib, dnn_step *step) {
  if (step->primitive) lib->primitive_destroy(step->primitive);
  if (step->desc) lib->primitive_desc_destroy(step->desc);
}

static dc_status make_reorder(dnn_call *call, dnn_operand *o) {
  const dnn_library *lib = call->lib;
  if (lib->desc_equal(o->plain, o->wanted)) return DC_OK;
  const void *from = o->output ? o->wanted : o->plain, *to = o->output ? o->plain : o->wanted;
  DNN_TRY(lib->reorder(&o->reorder.desc, from, lib->engine, to, lib->engine, lib->attr), "describing a reorder");
  DC_TRY(make_step(call, &o->reorder, "creating a reorder"));
  if (o->held) {
    o->hold.holder = &call->lib->holder, o->hold.layout = o->wanted;
    o->hold.bytes = lib->desc_size(o->wanted), o->hold.source_bytes = lib->desc_size(o->plain);
    if (!o->hold.moves) return DC_OK;
  }
  o->offset = call->scratch_bytes;
  call->scratch_bytes += dc_memory_aligned(lib->desc_size(o->wanted));
  return DC_OK;
}

static dc_status build(dnn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  DC_TRY(dc_onednn_build(call, graph, node, symbols));
  for (int k = 0; k < call->n_operands; k++) {
    dnn_operand *o = &call->operands[k];
    o->held = !o->output && dc_hold_pays(graph, node, o->buffer, &o->hold);
  }
  if (call->empty) return DC_OK;
  DC_TRY(make_step(call, &call->main, "creating a primitive"));
  for (int k = 0; k < call->n_operands; k++) DC_TRY(make_reorder(call, &call->operands[k]));
  call->parts_at = call->scratch_bytes;
  call->scratch_bytes += dc_memory_aligned((size_t)(call->parts * call->part) * sizeof(float));
  return DC_OK;
}

/* ---- memory objects ---- */

/* Those of a run, which the next one finds again: to make one costs as much as a small product. */
struct dnn_memories {
  void *user[DNN_MAX_OPERANDS], *copy[DNN_MAX_OPERANDS], *pad[DNN_MAX_OPERANDS + 1]; /* the last pad is the primitive's */
};

static int bind(const dnn_library *lib, void **memory, const void *desc, void *data) {
  return *memory ? lib->memory_move(*memory, data) : lib->memory_create(memory, desc, lib->engine, data);
}

/* Those that no other thread uses now. */
static dnn_memories *take_memories(dnn_call *call) {
  dnn_memories *found = atomic_exchange(&call->spare, NULL);
  return found ? found : calloc(1, sizeof *found);
}

static void drop_memories(const dnn_call *call, dnn_memories *m) {
  for (int k = 0; m && k < call->n_operands; k++) {
    if (m->user[k]) call->lib->memory_destroy(m->user[k]);
    if (m->copy[k]) call->lib->memory_destroy(m->copy[k]);
    if (m->pad[k]) call->lib->memory_destroy(m->pad[k]);
  }
  if (m && m->pad[DNN_MAX_OPERANDS]) call->lib->memory_destroy(m->pad[DNN_MAX_OPERANDS]);
  free(m);
}

static void keep_memories(dnn_call *call, dnn_memories *m) { drop_memories(call, atomic_exchange(&call->spare, m)); }

static void destroy_call(void *opaque) {
  dnn_call *call = opaque;
  dnn_library *lib = call->lib;
  drop_memories(call, atomic_load(&call->spare));
  for (int k = 0; k < call->n_operands; k++) drop_step(lib, &call->operands[k].reorder), dc_hold_end(&call->operands[k].hold);
  drop_step(lib, &call->main);
  if (call->hint) lib->primitive_desc_destroy(call->hint);
  for (int k = 0; k < call->n_temp_descs; k++) lib->desc_destroy(call->temp_descs[k]);
  free(call);
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  dnn_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->lib = handle;
  dc_status status = build(call, graph, node, symbols);
  if (status) destroy_call(call);
  else *out = call;
  return status;
}

/* ---- running ---- */

/* args has room for one more: the scratchpad. */
static int perform(const dnn_call *call, const dnn_step *step, char *scratch, void **pad, dnn_arg *args, int n) {
  const dnn_library *lib = call->lib;
  int code = step->pad ? bind(lib, pad, step->pad, scratch + call->scratch_bytes) : 0;
  if (code) return code;
  if (step->pad) args[n++] = (dnn_arg){DNN_SCRATCHPAD, *pad};
  return lib->execute(step->primitive, lib->stream, n, args);
}

/* The k-th operand, into the layout of the primitive or out of it. */
static int move(const dnn_call *call, int k, char *scratch, dnn_memories *m) {
  const dnn_operand *o = &call->operands[k];
  dnn_arg args[3] = {{DNN_SRC, o->output ? m->copy[k] : m->user[k]}, {DNN_DST, o->output ? m->user[k] : m->copy[k]}};
  return perform(call, &o->reorder, scratch, &m->pad[k], args, 2);
}

typedef struct {
  const dnn_call *call;
  int k;
  char *scratch;
  dnn_memories *memories;
} packing;

static dc_status pack(void *self, const void *source, void *to) {
  const packing *p = self;
  (void)source; /* to which the operand is bound */
  DNN_TRY(bind(p->call->lib, &p->memories->copy[p->k], p->call->operands[p->k].wanted, to), "binding memory");
  DNN_TRY(move(p->call, p->k, p->scratch, p->memories), "packing an operand");
  return DC_OK;
}

/* What a run uses of what is held. */
typedef dc_held *taken[DNN_MAX_OPERANDS];

/* The k-th operand in the layout of the primitive, if that is another. */
static dc_status bring(dnn_call *call, int k, void *buffer, char *scratch, dnn_memories *m, taken held) {
  dnn_operand *o = &call->operands[k];
  DNN_TRY(bind(call->lib, &m->user[k], o->plain, buffer), "binding memory");
  if (!o->reorder.primitive) return DC_OK;
  void *at = scratch + o->offset;
  const bool held_now = o->held && dc_hold_serves(&o->hold, buffer);
  if (held_now) DC_TRY(dc_held_take(&o->hold, buffer, pack, &(packing){call, k, scratch, m}, &held[k], &at));
  DNN_TRY(bind(call->lib, &m->copy[k], o->wanted, at), "binding memory");
  if (!held_now && !o->output) DNN_TRY(move(call, k, scratch, m), "a reorder");
  return DC_OK;
}

static dc_status perform_on(dnn_call *call, void *const *buffers, char *scratch, dnn_memories *m, taken held) {
  dnn_arg args[DNN_MAX_OPERANDS + 1];
  for (int k = 0; k < call->n_operands; k++) {
    const dnn_operand *o = &call->operands[k];
    DC_TRY(bring(call, k, o->output && call->parts ? scratch + call->parts_at : buffers[o->buffer], scratch, m, held));
    args[k] = (dnn_arg){o->arg, o->reorder.primitive ? m->copy[k] : m->user[k]};
  }
  DNN_TRY(perform(call, &call->main, scratch, &m->pad[DNN_MAX_OPERANDS], args, call->n_operands), "a primitive");
  for (int k = 0; k < call->n_operands; k++) {
    const dnn_operand *o = &call->operands[k];
    if (o->reorder.primitive && o->output) DNN_TRY(move(call, k, scratch, m), "a reorder");
  }
  return DC_OK;
}

static dc_status execute(dnn_call *call, void *const *buffers, char *scratch, dnn_memories *m) {
  taken held = {NULL};
  dc_status status = perform_on(call, buffers, scratch, m, held);
  for (int k = 0; k < call->n_operands; k++)
    if (held[k]) dc_held_give(&call->operands[k].hold, held[k]);
  return status;
}

static uint64_t scratch_of(const void *opaque) {
  const dnn_call *call = opaque;
  return call->empty ? 0 : call->scratch_bytes + call->pad_bytes;
}

enum { FEW_NUMBERS = 1 << 14 };

static void sum_parts(const dnn_call *call, const float *parts, float *sum) {
  const int64_t n = call->part, all = call->parts;
#pragma omp parallel for simd if (n * all > FEW_NUMBERS)
  for (int64_t k = 0; k < n; k++) {
    float x = parts[k];
    for (int64_t j = 1; j < all; j++) x += parts[j * n + k];
    sum[k] = x;
  }
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  (void)stream;
  dnn_call *call = opaque;
  if (call->empty) {
    size_t bytes = call->type == DNN_F32 ? sizeof(float) : sizeof(uint16_t);
    dc_problem_fill(buffers[call->result], call->bias < 0 ? NULL : buffers[call->bias], bytes, call->outer, call->channels, call->inner);
    return DC_OK;
  }
  dnn_memories *m = take_memories(call);
  if (!m) return dc_error(DC_ERR_MEMORY, "out of memory");
  dc_status status = execute(call, buffers, scratch, m);
  keep_memories(call, m);
  if (!status && call->parts) sum_parts(call, (const float *)((const char *)scratch + call->parts_at), buffers[call->result]);
  if (!status && call->adds_bias) dc_problem_add(buffers[call->result], buffers[call->bias], call->outer, call->channels, call->inner);
  return status;
}

const dc_native_library dc_native_onednn = {
    .name = "onednn",
    .open = open_onednn,
    .close = close_onednn,
    .refuses = dc_onednn_refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = destroy_call,
};
