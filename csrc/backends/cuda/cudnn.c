/* cuDNN: convolutions and their gradients.
 *
 * Images and filters may lie in rows or channels-last.  Where the library has no engine for what lies so, and for a mixture,
 * copies in rows lie in scratch memory.  Whatever stands around a convolution, an added bias and padding that is not the same
 * on both sides, is refused: the pass `convolutions` takes it off. */
#include "backends/cuda/cudnn.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/cuda/shared.h"

enum { WORKSPACE_ALIGN = 256, VECTOR_ALIGN = 16 };
static const uint64_t MOST_WORKSPACE = (uint64_t)1 << 30; /* where an engine does with less */

dc_status dc_cudnn_failed(int code, const char *what) { return dc_error(DC_ERR_DEVICE, "cuDNN: %s failed with code %d", what, code); }

/* ---- opening ---- */

static void close_cudnn(void *opaque) {
  dn_library *lib = opaque;
  if (lib->handle) lib->cudnnDestroy(lib->handle);
  if (lib->library) dlclose(lib->library);
  pthread_mutex_destroy(&lib->lock);
  free(lib);
}

static const char *start(dn_library *lib, const char *folder) {
  static const char *const packages[] = {"nvidia/cudnn/lib", NULL};
  static const dc_cuda_symbol symbols[] = {
#define X(result, name, parameters) {#name, offsetof(dn_library, name)},
      DN_FUNCTIONS(X)
#undef X
  };
  lib->library = dc_cuda_shared_open("DCML_CUDNN", folder, packages, "libcudnn.so.9");
  if (!lib->library) return "libcudnn.so.9 is not found";
  if (dc_cuda_shared_symbols(lib->library, symbols, sizeof symbols / sizeof *symbols, lib)) return "it lacks functions of version 9";
  if (lib->cudnnGetVersion() / 10000 != 9) return "expected version 9";
  return lib->cudnnCreate(&lib->handle) ? "it does not start on this device" : NULL;
}

static const char *open_cudnn(const char *folder, const void *place, void **out) {
  dn_library *lib = place ? calloc(1, sizeof *lib) : NULL;
  if (!lib) return place ? "out of memory" : "there is no device";
  pthread_mutex_init(&lib->lock, NULL);
  lib->place = *(const dc_cuda_place *)place;
  const char *why = start(lib, folder);
  if (why) close_cudnn(lib);
  else *out = lib;
  return why;
}

/* ---- acceptance ---- */

static int64_t int_at(const dc_graph *graph, dc_nid node, const char *name, int at, int64_t fallback) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  return a && a->kind == DC_ATTR_INTS && (int)a->n > at ? a->ints[at] : fallback;
}

/* As many windows as the same padding on both sides leaves?  What lies right of the last window does not matter. */
static bool suffices(int64_t in, int64_t left, int64_t extent, int64_t stride, int64_t out) {
  int64_t room = in + 2 * left - extent;
  return left >= 0 && room >= 0 && room / stride + 1 == out;
}

/* Along dimension d, where its extents are not known. */
static bool is_even_for_certain(const dc_graph *graph, dc_nid node, int d, int n) {
  const dc_container *w = dc_cont(graph, dc_node_at(graph, node)->lib.in[1]);
  const dc_attr *mode = dc_node_attr(graph, node, "auto_pad");
  int64_t left = int_at(graph, node, "pads", d, 0), right = int_at(graph, node, "pads", n + d, 0),
          stride = int_at(graph, node, "strides", d, 1), window;
  if (mode && mode->kind == DC_ATTR_STRING && *mode->s && strcmp(mode->s, "NOTSET") != 0)
    return strcmp(mode->s, "VALID") == 0 || (stride == 1 && dc_ex_is_int(&graph->pool, w->shape[2 + d], &window) &&
                                             (window - 1) * int_at(graph, node, "dilations", d, 1) % 2 == 0);
  if (dc_problem_op_is(graph, node, "Conv")) return left == right && left >= 0;
  int64_t spare = left - right + int_at(graph, node, "output_padding", d, 0);
  return left >= 0 && spare >= 0 && spare < stride;
}

static bool has_numbers(const dc_graph *graph, dc_cid c) {
  int64_t number;
  const dc_container *k = dc_cont(graph, c);
  for (uint32_t d = 0; d < k->rank; d++)
    if (!dc_ex_is_int(&graph->pool, k->shape[d], &number)) return false;
  return true;
}

static bool is_even(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  int n = (int)dc_cont(graph, lib->in[0])->rank - 2;
  dc_cid output = lib->wrt ? lib->in[lib->n_fwd_in + lib->n_fwd_out] : lib->out[0];
  bool known = has_numbers(graph, lib->in[0]) && has_numbers(graph, lib->in[1]) && has_numbers(graph, output), even = true;
  if (!known) {
    for (int d = 0; d < n; d++) even &= is_even_for_certain(graph, node, d, n);
    return even;
  }
  dc_problem_conv c = dc_problem_read_conv(graph, node, NULL);
  bool empty = !dc_problem_elements(&c.x) || !dc_problem_elements(&c.w) || !dc_problem_elements(&c.y);
  for (int d = 0; d < n && !empty; d++)
    even &= suffices(c.x.dims[2 + d], c.left[d], (c.w.dims[2 + d] - 1) * c.dilations[d] + 1, c.strides[d], c.y.dims[2 + d]);
  return even;
}

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  dc_dtype type = dc_problem_type(graph, node);
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  (void)handle;
  if (!dc_problem_is_conv(graph, node)) return "no convolution";
  if (type != DC_F32 && type != DC_F64 && type != DC_F16 && type != DC_BF16) return "a type other than f32, f64, f16 and bf16";
  const char *why = dc_problem_refuses(graph, node);
  if (why) return why;
  if (!lib->wrt && lib->n_in > 2 && lib->in[2]) return "an added bias";
  return is_even(graph, node) ? NULL : "padding that is not the same on both sides";
}

/* ---- binding ---- */

static void row_major(dc_problem_shape *s) {
  int64_t stride = 1;
  for (int d = s->rank - 1; d >= 0; d--) s->strides[d] = stride, stride *= s->dims[d];
}

/* The library knows no convolution of one dimension: that is one of two, the first of extent 1. */
static dc_problem_shape with_two(dc_problem_shape s) {
  if (s.rank > 3) return s;
  s.dims[3] = s.dims[2], s.strides[3] = s.strides[2];
  s.dims[2] = 1, s.rank = 4;
  return s;
}

static void widen(dc_problem_conv *c) {
  if (c->n > 1) return;
  c->strides[1] = c->strides[0], c->dilations[1] = c->dilations[0], c->left[1] = c->left[0];
  c->strides[0] = c->dilations[0] = 1, c->left[0] = 0;
  c->n = 2;
}

/* Strides along extents of 1 say which layout is meant: that of the others. */
static void settle_layouts(dn_call *call) {
  bool last = true, in_rows = true;
  for (int k = 0; k < DN_OPERANDS; k++)
    last &= dc_problem_is_last(&call->operands[k].given), in_rows &= dc_problem_is_row_major(&call->operands[k].given);
  for (int k = 0; k < DN_OPERANDS; k++) {
    dc_problem_shape *s = &call->operands[k].given;
    if (last && !in_rows) dc_problem_last(s, s->strides);
    else if (dc_problem_is_row_major(s)) row_major(s);
    else dc_problem_last(s, s->strides);
    call->operands[k].used = *s;
  }
}

static uint64_t aligned(uint64_t bytes) { return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN; }

static dc_status describe_layout(const dn_call *call, const dc_problem_shape *s, void **out) {
  int dims[DC_PROBLEM_DIMS], strides[DC_PROBLEM_DIMS];
  for (int d = 0; d < s->rank; d++) {
    if (s->dims[d] > INT32_MAX || s->strides[d] > INT32_MAX)
      return dc_error(DC_ERR_UNSUPPORTED, "cuDNN: an image of 2^31 or more elements");
    dims[d] = (int)s->dims[d], strides[d] = (int)s->strides[d];
  }
  DN_TRY(call->lib->cudnnCreateTensorDescriptor(out), "describing a layout");
  DN_TRY(call->lib->cudnnSetTensorNdDescriptor(*out, dc_cudnn_type(call->type), s->rank, dims, strides), "describing a layout");
  return DC_OK;
}

static dc_status move_into_rows(dn_call *call) {
  for (int k = 0; k < DN_OPERANDS; k++) {
    dn_operand *o = &call->operands[k];
    row_major(&o->used);
    if (dc_problem_is_row_major(&o->given)) continue; /* of one channel, say */
    o->moved = true, o->offset = call->moved_bytes;
    call->moved_bytes += aligned((uint64_t)dc_problem_elements(&o->used) * (uint64_t)dc_dtype_bytes(call->type));
    DC_TRY(describe_layout(call, &o->given, &o->given_layout));
    DC_TRY(describe_layout(call, &o->used, &o->used_layout));
  }
  return DC_OK;
}

static dc_status choose_plan(dn_call *call) {
  DC_TRY(dc_cudnn_plan(call, VECTOR_ALIGN, MOST_WORKSPACE, &call->fast));
  if (call->fast.plan) return DC_OK;
  DC_TRY(move_into_rows(call));
  DC_TRY(dc_cudnn_plan(call, VECTOR_ALIGN, MOST_WORKSPACE, &call->fast));
  if (!call->fast.plan) DC_TRY(dc_cudnn_plan(call, VECTOR_ALIGN, UINT64_MAX, &call->fast));
  return call->fast.plan ? DC_OK : dc_error(DC_ERR_DEVICE, "cuDNN has no deterministic engine for this convolution");
}

static dc_status build(dn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  static const int results[] = {[DC_CONV_Y] = DN_Y, [DC_CONV_X] = DN_X, [DC_CONV_W] = DN_W};
  dc_problem_conv *c = &call->conv;
  *c = dc_problem_read_conv(graph, node, symbols);
  call->type = dc_problem_type(graph, node), call->result = results[c->wanted];
  call->operands[DN_X] = (dn_operand){.buffer = c->at_x, .given = with_two(c->x)};
  call->operands[DN_W] = (dn_operand){.buffer = c->at_w, .given = with_two(c->w)};
  call->operands[DN_Y] = (dn_operand){.buffer = c->at_y, .given = with_two(c->y)};
  call->empty = !dc_problem_elements(&c->x) || !dc_problem_elements(&c->w) || !dc_problem_elements(&c->y);
  if (call->empty) return DC_OK;
  for (int d = 0; d < c->n; d++)
    if (!suffices(c->x.dims[2 + d], c->left[d], (c->w.dims[2 + d] - 1) * c->dilations[d] + 1, c->strides[d], c->y.dims[2 + d]))
      return dc_error(DC_ERR_DEVICE, "cuDNN: padding that is not the same on both sides, or extents that do not fit");
  widen(c);
  settle_layouts(call);
  pthread_mutex_lock(&call->lib->lock);
  dc_status status = choose_plan(call);
  pthread_mutex_unlock(&call->lib->lock);
  return status;
}

static void destroy_call(void *opaque) {
  dn_call *call = opaque;
  for (uint32_t k = call->kept.n; k-- > 0;) call->lib->cudnnBackendDestroyDescriptor(call->kept.v[k]);
  for (int k = 0; k < DN_OPERANDS; k++) {
    if (call->operands[k].given_layout) call->lib->cudnnDestroyTensorDescriptor(call->operands[k].given_layout);
    if (call->operands[k].used_layout) call->lib->cudnnDestroyTensorDescriptor(call->operands[k].used_layout);
  }
  dc_arena_free(&call->arena);
  free(call);
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  dn_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->lib = handle, call->tf32 = dc_cuda_modes(&call->lib->place) & DC_MODE_TF32_CONVOLUTIONS;
  dc_status status = build(call, graph, node, symbols);
  if (status) destroy_call(call);
  else *out = call;
  return status;
}

/* ---- running ---- */

/* Copies, and behind them the workspace. */
static uint64_t scratch_of(const void *opaque) {
  const dn_call *call = opaque;
  uint64_t bytes = call->moved_bytes + call->fast.workspace;
  return bytes ? bytes + WORKSPACE_ALIGN - DC_MEMORY_ALIGN : 0;
}

static dc_status move(const dn_call *call, void *from_layout, const void *from, void *to_layout, void *to) {
  static const float one = 1, zero = 0;
  static const double wide_one = 1, wide_zero = 0;
  bool wide = call->type == DC_F64;
  DN_TRY(call->lib->cudnnTransformTensor(call->lib->handle, wide ? (const void *)&wide_one : &one, from_layout, from,
                                         wide ? (const void *)&wide_zero : &zero, to_layout, to),
         "a copy to another layout");
  return DC_OK;
}

static dc_status execute(dn_call *call, const dn_plan *plan, void *const *pointers, void *workspace) {
  static const int64_t ids[DN_OPERANDS] = {DN_FIRST_ID + DN_X, DN_FIRST_ID + DN_W, DN_FIRST_ID + DN_Y};
  const dn_library *lib = call->lib;
  void *pack = NULL;
  DN_TRY(lib->cudnnBackendCreateDescriptor(DN_PACK, &pack), "placing operands");
  int code = lib->cudnnBackendSetAttribute(pack, DN_A_PACK_IDS, DN_T_INT64, DN_OPERANDS, ids);
  if (!code) code = lib->cudnnBackendSetAttribute(pack, DN_A_PACK_POINTERS, DN_T_POINTER, DN_OPERANDS, pointers);
  if (!code) code = lib->cudnnBackendSetAttribute(pack, DN_A_PACK_WORKSPACE, DN_T_POINTER, 1, &workspace);
  if (!code) code = lib->cudnnBackendFinalize(pack);
  if (!code) code = lib->cudnnBackendExecute(lib->handle, plan->plan, pack);
  lib->cudnnBackendDestroyDescriptor(pack);
  return code ? dc_cudnn_failed(code, "a convolution") : DC_OK;
}

/* The plan for operands that lie so. */
static dc_status find_plan(dn_call *call, void *const *pointers, const dn_plan **out) {
  uintptr_t addresses = 0;
  for (int k = 0; k < DN_OPERANDS; k++) addresses |= (uintptr_t)pointers[k];
  *out = addresses % VECTOR_ALIGN == 0 ? &call->fast : &call->any;
  if ((*out)->plan) return DC_OK;
  DC_TRY(dc_cudnn_plan(call, (int64_t)dc_dtype_bytes(call->type), call->fast.workspace, &call->any));
  return call->any.plan ? DC_OK
                        : dc_error(DC_ERR_DEVICE, "cuDNN has no engine for operands that are not aligned to %d bytes", VECTOR_ALIGN);
}

static dc_status convolve(dn_call *call, void *const *buffers, char *scratch, void *stream) {
  void *pointers[DN_OPERANDS];
  const dn_plan *plan;
  DN_TRY(call->lib->cudnnSetStream(call->lib->handle, stream), "choosing a stream");
  for (int k = 0; k < DN_OPERANDS; k++) {
    const dn_operand *o = &call->operands[k];
    pointers[k] = o->moved ? scratch + o->offset : buffers[o->buffer];
    if (o->moved && k != call->result) DC_TRY(move(call, o->given_layout, buffers[o->buffer], o->used_layout, pointers[k]));
  }
  DC_TRY(find_plan(call, pointers, &plan));
  DC_TRY(execute(call, plan, pointers, scratch + call->moved_bytes));
  const dn_operand *result = &call->operands[call->result];
  return result->moved ? move(call, result->used_layout, pointers[call->result], result->given_layout, buffers[result->buffer]) : DC_OK;
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  dn_call *call = opaque;
  if (call->empty) {
    const dn_operand *result = &call->operands[call->result];
    uint64_t bytes = (uint64_t)dc_problem_elements(&result->given) * (uint64_t)dc_dtype_bytes(call->type);
    return dc_cuda_clear(call->lib->place.driver, buffers[result->buffer], bytes, stream);
  }
  pthread_mutex_lock(&call->lib->lock);
  dc_status status = convolve(call, buffers, (char *)(uintptr_t)aligned((uint64_t)(uintptr_t)scratch), stream);
  pthread_mutex_unlock(&call->lib->lock);
  return status;
}

const dc_native_library dc_native_cudnn = {
    .name = "cudnn",
    .open = open_cudnn,
    .close = close_cudnn,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = destroy_call,
};
