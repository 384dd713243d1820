/* Symbolic evaluation of a node's expansion, element by element.
 *
 * Shape arithmetic (Shape, Gather, Concat, Mul, ...) thus needs no code of its own: the row
 * says what it computes, and here it is computed on expressions over symbols. */
#include "ops/known.h"

#include <string.h>

enum { MAX_ELEMENTS = 1024, MAX_STEPS = 1 << 16 };

typedef struct {
  dc_graph *graph;
  dc_arena *arena;
  dc_ex **values; /* by container: elements, or NULL */
  uint32_t *counts;
  uint32_t n_containers, steps;
  uint32_t sequences; /* loops around here whose iterations read what earlier ones wrote */
  DC_VEC(dc_param) params;
  DC_VEC(dc_ex) at;
  bool failed; /* met something that is not known: give up, which is no error */
} evaluator;

static uint64_t element_count(const dc_graph *graph, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  uint64_t n = 1;
  int64_t extent;
  for (uint32_t d = 0; d < k->rank; d++) {
    if (!dc_ex_is_int(&graph->pool, k->shape[d], &extent) || extent < 0 || extent > MAX_ELEMENTS) return UINT64_MAX;
    n *= (uint64_t)extent;
    if (n > MAX_ELEMENTS) return UINT64_MAX;
  }
  return n;
}

static dc_ex const_element(dc_graph *graph, dc_dtype type, const void *data, uint32_t k) {
  dc_pool *pool = &graph->pool;
  switch (type) {
    case DC_I64: return dc_ex_int(pool, ((const int64_t *)data)[k]);
    case DC_I32: return dc_ex_cast(pool, type, dc_ex_int(pool, ((const int32_t *)data)[k]));
    case DC_BOOL: return dc_ex_bool(pool, ((const uint8_t *)data)[k]);
    case DC_F32: return dc_ex_const(pool, type, ((const float *)data)[k]);
    case DC_F64: return dc_ex_const(pool, type, ((const double *)data)[k]);
    default: return 0;
  }
}

/* Element k of a constant, or of what is known, as an expression of the container's type; 0 if unknown. */
static dc_ex element(dc_graph *graph, dc_cid c, uint64_t k) {
  const dc_container *from = dc_cont(graph, c);
  const dc_dtype type = (dc_dtype)from->dtype;
  if (from->known) return k < from->known_count ? dc_ex_cast(&graph->pool, type, from->known[k]) : 0;
  const bool stored = from->role == DC_ROLE_CONST && from->data && (k + 1) * (uint64_t)dc_dtype_bytes(type) <= from->data_bytes;
  return stored ? const_element(graph, type, from->data, (uint32_t)k) : 0;
}

/* The elements of an input; false if unknown. */
static bool load_input(evaluator *ev, dc_cid c) {
  const dc_container *k = dc_cont(ev->graph, c);
  uint64_t n = k->dtype && (k->shape || !k->rank) ? element_count(ev->graph, c) : UINT64_MAX;
  if (n > MAX_ELEMENTS || (!k->known && !(k->role == DC_ROLE_CONST && k->data)) || (k->known && k->known_count != n)) return false;
  dc_ex *values = DC_NEW_ARRAY(ev->arena, dc_ex, n);
  for (uint32_t i = 0; i < n; i++) {
    values[i] = element(ev->graph, c, i);
    if (!values[i]) return false;
  }
  ev->values[c] = values, ev->counts[c] = (uint32_t)n;
  return true;
}

static bool position(const dc_graph *graph, dc_cid c, const dc_ex *index, uint32_t rank, uint64_t *out) {
  int64_t i, extent;
  *out = 0;
  for (uint32_t d = 0; d < rank; d++) {
    if (!dc_ex_is_int(&graph->pool, index[d], &i) || !dc_ex_is_int(&graph->pool, dc_cont(graph, c)->shape[d], &extent)) return false;
    if (i < 0 || i >= extent) return false;
    *out = *out * (uint64_t)extent + (uint64_t)i;
  }
  return true;
}

static dc_ex replace_leaf(void *context, dc_pool *pool, dc_ex leaf) {
  evaluator *ev = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  if (node.op == DC_EX_PARAM)
    for (uint32_t k = 0; k < ev->params.n; k++)
      if (ev->params.v[k] == node.ref) return ev->at.v[k];
  if (node.op != DC_EX_READ) return leaf;
  dc_ex index[DC_MAX_RANK];
  uint64_t at;
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(pool, leaf, d);
  bool known = node.ref < ev->n_containers && ev->values[node.ref] && position(ev->graph, node.ref, index, node.nargs, &at);
  return known && ev->values[node.ref][at] ? ev->values[node.ref][at] : leaf;
}

static dc_ex settle(evaluator *ev, dc_ex e) { return dc_ex_rewrite(&ev->graph->pool, e, replace_leaf, ev); }

static dc_ex combine(dc_pool *pool, dc_wcr wcr, dc_ex a, dc_ex b) {
  static const uint8_t prims[] = {0, DC_ADD, DC_MUL, DC_MIN, DC_MAX};
  if (dc_ex_dtype(pool, a) == DC_BOOL) return dc_ex_prim2(pool, wcr == DC_WCR_MIN ? DC_AND : DC_OR, a, b);
  return dc_ex_prim2(pool, (dc_op)prims[wcr], a, b);
}

static void run_tasklet(evaluator *ev, dc_tasklet t, bool in_reduce) {
  dc_pool *pool = &ev->graph->pool;
  int64_t truth;
  uint64_t at;
  dc_ex index[DC_MAX_RANK];
  if (t.guard) {
    dc_ex guard = settle(ev, t.guard);
    if (!dc_ex_is_int(pool, guard, &truth)) ev->failed = true;
    else if (!truth) return;
  }
  for (uint32_t d = 0; d < t.rank; d++) index[d] = settle(ev, t.index[d]);
  dc_ex value = dc_ex_cast(pool, (dc_dtype)dc_cont(ev->graph, t.out)->dtype, settle(ev, t.value));
  double constant; /* symbols would grow with each iteration */
  if (ev->sequences && !dc_ex_is_const(pool, value, &constant)) ev->failed = true;
  if (ev->failed || t.out >= ev->n_containers || !ev->values[t.out] || !position(ev->graph, t.out, index, t.rank, &at) ||
      dc_ex_uses_op(pool, value, DC_EX_READ)) {
    ev->failed = true;
    return;
  }
  dc_ex old = ev->values[t.out][at];
  if (t.wcr && !old && !in_reduce) ev->failed = true;
  ev->values[t.out][at] = t.wcr && old ? combine(pool, (dc_wcr)t.wcr, old, value) : value;
}

static void run_scope(evaluator *ev, const dc_scope *scope, bool in_reduce);

/* A REDUCE map's accumulators start absent; what no iteration touched is the identity. */
static void finish_reduce(evaluator *ev, dc_nid node) {
  dc_node *n = dc_node_at(ev->graph, node);
  dc_tasklet t = n->map.body.n == 1 ? dc_node_at(ev->graph, n->map.body.v[0])->tasklet : (dc_tasklet){0};
  uint64_t at;
  dc_ex index[DC_MAX_RANK];
  if (!t.out || t.out >= ev->n_containers ) {
    ev->failed = true;
    return;
  }
  for (uint32_t d = 0; d < t.rank; d++) index[d] = settle(ev, t.index[d]);
  if (!ev->values[t.out] || !position(ev->graph, t.out, index, t.rank, &at)) return;
  dc_dtype type = (dc_dtype)dc_cont(ev->graph, t.out)->dtype;
  if (!ev->values[t.out][at]) ev->values[t.out][at] = dc_ex_const(&ev->graph->pool, type, dc_wcr_identity((dc_wcr)t.wcr, type));
}

static void run_map(evaluator *ev, dc_nid node, uint32_t k, bool in_reduce) {
  dc_map map = dc_node_at(ev->graph, node)->map;
  dc_pool *pool = &ev->graph->pool;
  if (ev->failed || ++ev->steps > MAX_STEPS) {
    ev->failed = true;
    return;
  }
  if (k == map.n_params) {
    ev->sequences += map.schedule == DC_MAP_SEQUENTIAL;
    run_scope(ev, &map.body, in_reduce || map.schedule == DC_MAP_REDUCE);
    ev->sequences -= map.schedule == DC_MAP_SEQUENTIAL;
    return;
  }
  dc_parameter p = pool->params.v[map.params[k]];
  int64_t begin, end, step;
  if (!dc_ex_is_int(pool, settle(ev, p.begin), &begin) || !dc_ex_is_int(pool, settle(ev, p.end), &end) ||
      !dc_ex_is_int(pool, p.step, &step)) {
    ev->failed = true;
    return;
  }
  DC_PUSH(ev->arena, &ev->params, map.params[k]);
  DC_PUSH(ev->arena, &ev->at, 0);
  for (int64_t i = begin; i < end && !ev->failed; i += step) {
    ev->at.v[ev->at.n - 1] = dc_ex_int(pool, i);
    run_map(ev, node, k + 1, in_reduce);
  }
  ev->params.n--, ev->at.n--;
}

static void allocate(evaluator *ev, dc_cid c) {
  uint64_t n = ev->values[c] ? 0 : element_count(ev->graph, c);
  if (n == UINT64_MAX) ev->failed = true;
  else if (!ev->values[c]) ev->values[c] = DC_NEW_ARRAY(ev->arena, dc_ex, n + 1), ev->counts[c] = (uint32_t)n;
}

static void allocate_written(void *context, dc_cid container, dc_use use, dc_nid by) {
  evaluator *ev = context;
  (void)by;
  if (use == DC_USE_WRITE) allocate(ev, container);
}

static void run_scope(evaluator *ev, const dc_scope *scope, bool in_reduce) {
  for (uint32_t k = 0; k < scope->n && !ev->failed; k++) {
    dc_node node = *dc_node_at(ev->graph, scope->v[k]);
    if (node.kind == DC_NODE_TASKLET) run_tasklet(ev, node.tasklet, in_reduce);
    else if (node.kind == DC_NODE_MAP) {
      run_map(ev, scope->v[k], 0, in_reduce);
      if (node.map.schedule == DC_MAP_REDUCE && !ev->failed) finish_reduce(ev, scope->v[k]);
    } else {
      ev->failed = true;
    }
  }
}

static void store_known(evaluator *ev, dc_cid c) {
  dc_container *k = dc_cont(ev->graph, c);
  if (!ev->values[c] || dc_dtype_is_float((dc_dtype)k->dtype)) return;
  dc_ex *known = DC_NEW_ARRAY(&ev->graph->arena, dc_ex, ev->counts[c]);
  for (uint32_t i = 0; i < ev->counts[c]; i++) {
    if (!ev->values[c][i]) return;
    known[i] = dc_ex_cast(&ev->graph->pool, DC_I64, ev->values[c][i]);
    if (dc_ex_uses_op(&ev->graph->pool, known[i], DC_EX_READ)) return;
  }
  k = dc_cont(ev->graph, c);
  k->known = known, k->known_count = ev->counts[c];
}

static bool worth_trying(evaluator *ev, const dc_library *lib) {
  bool integer_output = false;
  for (uint32_t k = 0; k < lib->n_out; k++) {
    if (!lib->out[k]) continue;
    const dc_container *c = dc_cont(ev->graph, lib->out[k]);
    if (element_count(ev->graph, lib->out[k]) > MAX_ELEMENTS) return false;
    integer_output |= c->dtype == DC_I64 || c->dtype == DC_I32 || c->dtype == DC_BOOL;
  }
  return integer_output;
}

static dc_status propagate(dc_ops *ops, evaluator *ev, dc_nid node) {
  dc_library lib = dc_node_at(ev->graph, node)->lib;
  if (!worth_trying(ev, &lib)) return DC_OK;
  const dc_row *row = dc_ops_row_of(ops, ev->graph, &lib);
  if (!row || dc_row_is_native(row)) return DC_OK;
  ev->values = DC_NEW_ARRAY(ev->arena, dc_ex *, ev->graph->containers.n);
  ev->counts = DC_NEW_ARRAY(ev->arena, uint32_t, ev->graph->containers.n);
  bool all_known = true;
  for (uint32_t k = 0; k < lib.n_in; k++)
    if (lib.in[k] && !load_input(ev, lib.in[k])) all_known = false;
  for (uint32_t k = 0; k < lib.n_attr; k++)
    if (lib.attr[k].kind == DC_ATTR_TENSOR && !load_input(ev, (dc_cid)lib.attr[k].i)) all_known = false;
  if (!all_known && dc_row_reads_data(row)) return DC_OK;
  dc_scope scope = {0};
  uint32_t first_temp = ev->graph->containers.n;
  DC_TRY(dc_ops_expand(ops, ev->graph, node, &scope));
  dc_ex **values = DC_NEW_ARRAY(ev->arena, dc_ex *, ev->graph->containers.n);
  uint32_t *counts = DC_NEW_ARRAY(ev->arena, uint32_t, ev->graph->containers.n);
  memcpy(values, ev->values, first_temp * sizeof *values);
  memcpy(counts, ev->counts, first_temp * sizeof *counts);
  ev->values = values, ev->counts = counts, ev->n_containers = ev->graph->containers.n;
  for (uint32_t k = 0; k < lib.n_out; k++)
    if (lib.out[k]) allocate(ev, lib.out[k]);
  for (uint32_t k = 0; k < scope.n; k++) dc_node_uses(ev->graph, scope.v[k], allocate_written, ev);
  if (!ev->failed) run_scope(ev, &scope, false);
  for (uint32_t k = 0; k < lib.n_out && !ev->failed; k++)
    if (lib.out[k]) store_known(ev, lib.out[k]);
  return DC_OK;
}

dc_status dc_known_propagate(dc_ops *ops, dc_graph *graph, dc_nid node) {
  dc_arena scratch = {0};
  evaluator ev = {.graph = graph, .arena = &scratch, .n_containers = graph->containers.n};
  dc_status status = propagate(ops, &ev, node);
  dc_arena_free(&scratch);
  return status;
}

/* ---- indices ---- */

static dc_ex replace_known_read(void *context, dc_pool *pool, dc_ex leaf) {
  dc_graph *graph = context;
  const dc_exnode node = *dc_ex_node(pool, leaf);
  dc_ex index[DC_MAX_RANK];
  uint64_t at;
  if (node.op != DC_EX_READ || node.nargs > DC_MAX_RANK) return leaf;
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(pool, leaf, d);
  const dc_ex known = position(graph, node.ref, index, node.nargs, &at) ? element(graph, node.ref, at) : 0;
  return known ? known : leaf;
}

dc_ex dc_known_index(dc_graph *graph, dc_ex index, dc_ex extent) {
  dc_pool *pool = &graph->pool;
  if (!dc_ex_uses_op(pool, index, DC_EX_READ)) return index;
  const dc_ex known = dc_ex_rewrite(pool, index, replace_known_read, graph);
  if (dc_ex_uses_op(pool, known, DC_EX_READ)) return index;
  return dc_ix_proves_ge(pool, known, 0) && dc_ix_proves_ge(pool, dc_ix_sub(pool, extent, known), 1) ? known : index;
}
