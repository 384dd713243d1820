/* A convolution as a graph of one operation of cuDNN, and the plan that runs it.
 *
 * The library's heuristics say which of its engines are best.  The first is taken that can be finalised, sums in an order that
 * does not change, does not narrow its operands, and, where TF32 is not allowed, has no tensor cores for f32. */
#include "backends/cuda/cudnn.h"

enum { MOST_CONFIGS = 32 };

int dc_cudnn_type(dc_dtype type) { return type == DC_F32 ? DN_FLOAT : type == DC_F64 ? DN_DOUBLE : type == DC_F16 ? DN_HALF : DN_BFLOAT16; }

/* The call keeps what is made. */
static dc_status make(dn_call *call, int kind, void **out) {
  DN_TRY(call->lib->cudnnBackendCreateDescriptor(kind, out), "creating a descriptor");
  DC_PUSH(&call->arena, &call->kept, *out);
  return DC_OK;
}

static dc_status set(const dn_call *call, void *descriptor, int name, int type, int64_t n, const void *values) {
  DN_TRY(call->lib->cudnnBackendSetAttribute(descriptor, name, type, n, values), "describing a convolution");
  return DC_OK;
}

static dc_status finish(const dn_call *call, void *descriptor, const char *what) {
  DN_TRY(call->lib->cudnnBackendFinalize(descriptor), what);
  return DC_OK;
}

static dc_status describe_tensor(dn_call *call, int which, int64_t alignment, void **out) {
  const dc_problem_shape *s = &call->operands[which].used;
  int type = dc_cudnn_type(call->type);
  int64_t id = DN_FIRST_ID + which;
  DC_TRY(make(call, DN_TENSOR, out));
  DC_TRY(set(call, *out, DN_A_TENSOR_TYPE, DN_T_DATA_TYPE, 1, &type));
  DC_TRY(set(call, *out, DN_A_TENSOR_DIMS, DN_T_INT64, s->rank, s->dims));
  DC_TRY(set(call, *out, DN_A_TENSOR_STRIDES, DN_T_INT64, s->rank, s->strides));
  DC_TRY(set(call, *out, DN_A_TENSOR_ID, DN_T_INT64, 1, &id));
  DC_TRY(set(call, *out, DN_A_TENSOR_ALIGNMENT, DN_T_INT64, 1, &alignment));
  return finish(call, *out, "describing a tensor");
}

static dc_status describe_window(dn_call *call, void **out) {
  const dc_problem_conv *c = &call->conv;
  int type = call->type == DC_F64 ? DN_DOUBLE : DN_FLOAT, mode = DN_CROSS_CORRELATION;
  int64_t n = c->n;
  DC_TRY(make(call, DN_CONVOLUTION, out));
  DC_TRY(set(call, *out, DN_A_CONV_DIMS, DN_T_INT64, 1, &n));
  DC_TRY(set(call, *out, DN_A_CONV_TYPE, DN_T_DATA_TYPE, 1, &type));
  DC_TRY(set(call, *out, DN_A_CONV_MODE, DN_T_CONV_MODE, 1, &mode));
  DC_TRY(set(call, *out, DN_A_CONV_PRE, DN_T_INT64, n, c->left));
  DC_TRY(set(call, *out, DN_A_CONV_POST, DN_T_INT64, n, c->left));
  DC_TRY(set(call, *out, DN_A_CONV_STRIDES, DN_T_INT64, n, c->strides));
  DC_TRY(set(call, *out, DN_A_CONV_DILATIONS, DN_T_INT64, n, c->dilations));
  return finish(call, *out, "describing a window");
}

static dc_status describe_operation(dn_call *call, int64_t alignment, void **out) {
  static const struct {
    int kind, alpha, beta, conv, x, w, y;
  } operations[] = {
      [DC_CONV_Y] = {DN_FORWARD, DN_A_FWD_ALPHA, DN_A_FWD_BETA, DN_A_FWD_CONV, DN_A_FWD_X, DN_A_FWD_W, DN_A_FWD_Y},
      [DC_CONV_X] = {DN_BACKWARD_DATA, DN_A_BWD_X_ALPHA, DN_A_BWD_X_BETA, DN_A_BWD_X_CONV, DN_A_BWD_X_X, DN_A_BWD_X_W, DN_A_BWD_X_Y},
      [DC_CONV_W] = {DN_BACKWARD_FILTER, DN_A_BWD_W_ALPHA, DN_A_BWD_W_BETA, DN_A_BWD_W_CONV, DN_A_BWD_W_X, DN_A_BWD_W_W, DN_A_BWD_W_Y},
  };
  static const double wide[] = {1, 0};
  static const float narrow[] = {1, 0};
  bool is_wide = call->type == DC_F64;
  int o = call->conv.wanted, scale = is_wide ? DN_T_DOUBLE : DN_T_FLOAT;
  void *x, *w, *y, *window;
  DC_TRY(describe_tensor(call, DN_X, alignment, &x));
  DC_TRY(describe_tensor(call, DN_W, alignment, &w));
  DC_TRY(describe_tensor(call, DN_Y, alignment, &y));
  DC_TRY(describe_window(call, &window));
  DC_TRY(make(call, operations[o].kind, out));
  DC_TRY(set(call, *out, operations[o].conv, DN_T_DESCRIPTOR, 1, &window));
  DC_TRY(set(call, *out, operations[o].x, DN_T_DESCRIPTOR, 1, &x));
  DC_TRY(set(call, *out, operations[o].w, DN_T_DESCRIPTOR, 1, &w));
  DC_TRY(set(call, *out, operations[o].y, DN_T_DESCRIPTOR, 1, &y));
  DC_TRY(set(call, *out, operations[o].alpha, scale, 1, is_wide ? (const void *)&wide[0] : &narrow[0]));
  DC_TRY(set(call, *out, operations[o].beta, scale, 1, is_wide ? (const void *)&wide[1] : &narrow[1]));
  return finish(call, *out, "describing a convolution");
}

static dc_status describe_graph(dn_call *call, int64_t alignment, void **out) {
  void *operation;
  DC_TRY(describe_operation(call, alignment, &operation));
  DC_TRY(make(call, DN_GRAPH, out));
  DC_TRY(set(call, *out, DN_A_GRAPH_HANDLE, DN_T_HANDLE, 1, &call->lib->handle));
  DC_TRY(set(call, *out, DN_A_GRAPH_OPS, DN_T_DESCRIPTOR, 1, &operation));
  return finish(call, *out, "describing a graph");
}

/* ---- engines ---- */

/* Is the engine of a configuration one that we may use? */
static dc_status is_fit(dn_call *call, const void *config, bool *fit) {
  int notes[DN_NOTES];
  int64_t n = 0;
  void *engine;
  DC_TRY(make(call, DN_ENGINE, &engine));
  DN_TRY(call->lib->cudnnBackendGetAttribute(config, DN_A_CFG_ENGINE, DN_T_DESCRIPTOR, 1, &n, &engine), "asking for an engine");
  DN_TRY(call->lib->cudnnBackendGetAttribute(engine, DN_A_ENGINE_NOTES, DN_T_NOTE, DN_NOTES, &n, notes), "asking what an engine does");
  *fit = true;
  for (int64_t k = 0; k < n && k < DN_NOTES; k++) {
    bool narrows = notes[k] == DN_NOTE_TENSOR_CORE && call->type == DC_F32 && !call->tf32;
    if (narrows || notes[k] == DN_NOTE_NONDETERMINISTIC || notes[k] == DN_NOTE_DOWN_CONVERT) *fit = false;
  }
  return DC_OK;
}

/* An engine that cannot run this says so when its plan is finalised, which is no error. */
static dc_status try_config(dn_call *call, void *config, uint64_t limit, dn_plan *out) {
  bool fit;
  void *plan;
  int64_t bytes = 0, n = 0;
  DC_TRY(is_fit(call, config, &fit));
  if (!fit) return DC_OK;
  DC_TRY(make(call, DN_PLAN, &plan));
  DC_TRY(set(call, plan, DN_A_PLAN_HANDLE, DN_T_HANDLE, 1, &call->lib->handle));
  DC_TRY(set(call, plan, DN_A_PLAN_CFG, DN_T_DESCRIPTOR, 1, &config));
  if (call->lib->cudnnBackendFinalize(plan)) return DC_OK;
  DN_TRY(call->lib->cudnnBackendGetAttribute(plan, DN_A_PLAN_WORKSPACE, DN_T_INT64, 1, &n, &bytes), "asking for a workspace");
  if (bytes >= 0 && (uint64_t)bytes <= limit) *out = (dn_plan){plan, (uint64_t)bytes};
  return DC_OK;
}

static dc_status try_mode(dn_call *call, void *graph, int mode, uint64_t limit, dn_plan *out) {
  void *heuristics, *configs[MOST_CONFIGS];
  int64_t n = 0;
  DC_TRY(make(call, DN_ENGINEHEUR, &heuristics));
  DC_TRY(set(call, heuristics, DN_A_HEUR_GRAPH, DN_T_DESCRIPTOR, 1, &graph));
  DC_TRY(set(call, heuristics, DN_A_HEUR_MODE, DN_T_HEUR_MODE, 1, &mode));
  if (call->lib->cudnnBackendFinalize(heuristics)) return DC_OK; /* it knows nothing of this convolution */
  for (int k = 0; k < MOST_CONFIGS; k++) DC_TRY(make(call, DN_ENGINECFG, &configs[k]));
  DN_TRY(call->lib->cudnnBackendGetAttribute(heuristics, DN_A_HEUR_RESULTS, DN_T_DESCRIPTOR, MOST_CONFIGS, &n, configs),
         "asking for engines");
  for (int64_t k = 0; k < n && k < MOST_CONFIGS && !out->plan; k++) DC_TRY(try_config(call, configs[k], limit, out));
  return DC_OK;
}

dc_status dc_cudnn_plan(dn_call *call, int64_t alignment, uint64_t limit, dn_plan *out) {
  void *graph;
  *out = (dn_plan){NULL, 0};
  DC_TRY(describe_graph(call, alignment, &graph));
  DC_TRY(try_mode(call, graph, DN_HEUR_A, limit, out));
  return out->plan ? DC_OK : try_mode(call, graph, DN_HEUR_FALLBACK, limit, out);
}
