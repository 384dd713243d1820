/* Complex numbers as pairs of real ones, before anything else looks at a graph.
 *
 * An array of them has one more dimension, of length 2, as it lies in memory anyway; what a caller gives or gets keeps its
 * type, and a view of it has that dimension.  An expression becomes COMPLEX of two real ones by the rows of complex.def,
 * and a tasklet that writes it two tasklets.  Products of complex numbers are no products of parts: where they combine,
 * iterations run in order.  Nothing behind this pass knows complex numbers. */
#include "ir/inside.h"
#include "passes/passes.h"

typedef struct {
  dc_ops *ops;
  dc_graph *graph;
  dc_cid *parts; /* by container: where its parts are; 0: it is not complex */
  dc_status status; /* the first thing that went wrong inside an expression */
} lowering;

/* ---- arrays ---- */

static bool is_complex(const dc_graph *graph, dc_cid c) { return c && dc_dtype_is_complex((dc_dtype)dc_cont(graph, c)->dtype); }

static dc_status make_parts(lowering *l, dc_cid c) {
  dc_graph *graph = l->graph;
  dc_container k = *dc_cont(graph, c);
  if (!k.shape && k.rank) return dc_error(DC_ERR_SHAPE, "the shape of '%s', which is complex, is not known", dc_cont_name(graph, c));
  if (k.rank == DC_MAX_RANK)
    return dc_error(DC_ERR_SHAPE, "'%s' is complex: expected fewer than %d dimensions", dc_cont_name(graph, c), DC_MAX_RANK);
  dc_ex *shape = DC_NEW_ARRAY(&graph->arena, dc_ex, k.rank + 1);
  for (uint32_t d = 0; d < k.rank; d++) shape[d] = k.shape[d];
  shape[k.rank] = dc_ex_int(&graph->pool, 2);
  dc_dtype type = dc_dtype_part((dc_dtype)k.dtype);
  if ((k.role == DC_ROLE_TEMP && !k.is_output) || k.role == DC_ROLE_CONST) {
    dc_container *own = dc_cont(graph, c);
    own->dtype = type, own->rank = k.rank + 1, own->shape = shape, own->strides = NULL;
    if (k.alias_offset) own->alias_offset = dc_ix_mul(&graph->pool, k.alias_offset, dc_ex_int(&graph->pool, 2));
    l->parts[c] = c;
    return DC_OK;
  }
  const char *name = dc_arena_printf(&graph->arena, "%s_parts", dc_cont_name(graph, c));
  dc_cid view = dc_container_add(graph, name, type, k.rank + 1, shape, DC_ROLE_TEMP);
  dc_cont(graph, view)->alias_of = c, dc_cont(graph, view)->device = k.device;
  l->parts[c] = view;
  return DC_OK;
}

/* ---- expressions ---- */

static dc_ex pair(dc_pool *pool, dc_ex re, dc_ex im) { return dc_ex_prim2(pool, DC_COMPLEX, re, im); }
static dc_ex part(dc_pool *pool, dc_ex e, uint32_t k) { return dc_ex_prim1(pool, k ? DC_IMAG : DC_REAL, e); }

static dc_ex read_parts(lowering *l, dc_ex e) {
  dc_pool *pool = &l->graph->pool;
  dc_exnode node = *dc_ex_node(pool, e);
  dc_ex at[DC_MAX_RANK], side[2];
  for (uint32_t d = 0; d < node.nargs; d++) at[d] = dc_ex_arg(pool, e, d);
  for (uint32_t k = 0; k < 2; k++) {
    at[node.nargs] = dc_ex_int(pool, k);
    side[k] = dc_ex_read(pool, dc_dtype_part((dc_dtype)node.dtype), l->parts[node.ref], at, node.nargs + 1u);
  }
  return pair(pool, side[0], side[1]);
}

static dc_status apply_row(lowering *l, dc_op prim, const dc_ex *args, uint32_t n, dc_ex *out) {
  static const char *const names[] = {"a", "b", "c", "d"};
  dc_pool *pool = &l->graph->pool;
  const char *const *row = dc_prim_parts[prim];
  dc_ex values[4], side[2];
  if (!row[0]) return dc_error(DC_ERR_UNSUPPORTED, "'%s' of complex numbers", dc_prims[prim].name);
  for (uint32_t k = 0; k < 2 * n; k++) values[k] = part(pool, args[k / 2], k % 2);
  dc_dtype type = dc_ex_dtype(pool, values[0]);
  if (dc_prims[prim].kind == DC_PRIM_TEST) type = DC_BOOL;
  for (uint32_t k = 0; k < 2 && *row[k]; k++) {
    DC_TRY(dc_lang_scalar(l->ops, l->graph, row[k], names, values, 2 * n, &side[k]));
    side[k] = dc_ex_cast(pool, type, side[k]);
  }
  *out = *row[1] ? pair(pool, side[0], side[1]) : side[0];
  return DC_OK;
}

enum { MOST_PRODUCTS = 100 }; /* the greatest whole exponent whose power is made of products, as in NumPy */

static bool is_whole(const dc_pool *pool, dc_ex e, int *n) {
  double re, im;
  if (!dc_ex_is_const(pool, dc_ex_arg(pool, e, 0), &re) || !dc_ex_is_const(pool, dc_ex_arg(pool, e, 1), &im)) return false;
  if (im != 0 || !(re >= -MOST_PRODUCTS && re <= MOST_PRODUCTS) || re != (int)re) return false;
  return *n = (int)re, true;
}

static dc_status power(lowering *l, dc_ex base, int n, dc_ex *out) {
  dc_ex one = dc_ex_const(&l->graph->pool, dc_ex_dtype(&l->graph->pool, base), 1), all = 0;
  for (uint32_t rest = (uint32_t)(n < 0 ? -n : n); rest; rest >>= 1) {
    if (rest & 1 && all) DC_TRY(apply_row(l, DC_MUL, (dc_ex[]){all, base}, 2, &all));
    else if (rest & 1) all = base;
    if (rest > 1) DC_TRY(apply_row(l, DC_MUL, (dc_ex[]){base, base}, 2, &base));
  }
  *out = all ? all : one;
  return n < 0 ? apply_row(l, DC_DIV, (dc_ex[]){one, all}, 2, out) : DC_OK;
}

/* An operation whose arguments are pairs already. */
static dc_status lower_one(lowering *l, dc_ex e, dc_ex *out) {
  dc_pool *pool = &l->graph->pool;
  dc_exnode node = *dc_ex_node(pool, e);
  dc_ex args[3] = {0};
  int n;
  if (node.op == DC_EX_READ) return *out = dc_dtype_is_complex((dc_dtype)node.dtype) ? read_parts(l, e) : e, DC_OK;
  if (node.nargs == 0 || node.nargs > 3 || node.op == DC_COMPLEX) return DC_OK;
  for (uint32_t k = 0; k < node.nargs; k++) args[k] = dc_ex_arg(pool, e, k);
  dc_dtype type = dc_ex_dtype(pool, args[node.op == DC_EX_SELECT]), result = (dc_dtype)node.dtype;
  if (!dc_dtype_is_complex(type) && !dc_dtype_is_complex(result)) return DC_OK;
  if (node.op == DC_EX_CAST) { /* of a real number: one of a pair is done */
    *out = pair(pool, dc_ex_cast(pool, dc_dtype_part(result), args[0]), dc_ex_const(pool, dc_dtype_part(result), 0));
    return DC_OK;
  }
  if (node.op == DC_EX_SELECT) {
    dc_ex side[2];
    for (uint32_t k = 0; k < 2; k++) side[k] = dc_ex_select(pool, args[0], part(pool, args[1], k), part(pool, args[2], k));
    return *out = pair(pool, side[0], side[1]), DC_OK;
  }
  if (node.op >= DC_PRIM_COUNT) return dc_error(DC_ERR_UNSUPPORTED, "the bits of complex numbers");
  if (node.op == DC_POW && is_whole(pool, args[1], &n)) return power(l, args[0], n, out);
  return apply_row(l, (dc_op)node.op, args, node.nargs, out);
}

static dc_ex lower_each(void *context, dc_pool *pool, dc_ex e) {
  lowering *l = context;
  dc_ex out = e;
  (void)pool;
  if (!l->status) l->status = lower_one(l, e, &out);
  return out;
}

static dc_ex lower(lowering *l, dc_ex e) { return e ? dc_ex_transform(&l->graph->pool, e, lower_each, l) : 0; }

/* ---- tasklets ---- */

typedef struct {
  dc_scope *scope;
  bool is_nested; /* inside a map, where scalars are registers */
} place;

static void emit(lowering *l, const place *at, dc_nid from, dc_cid out, dc_wcr wcr, const dc_ex *index, uint32_t rank, dc_ex guard,
                 dc_ex value) {
  dc_nid made = dc_node_tasklet(l->graph, out, wcr, index, rank, guard, value);
  dc_node_take_origin(l->graph, made, from);
  dc_scope_push(l->graph, at->scope, made);
}

typedef struct {
  const dc_graph *graph;
  dc_cid root;
  bool found;
} search;

static void note_read(void *context, const dc_pool *pool, dc_ex e) {
  search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ && dc_container_root(s->graph, node->ref) == s->root) s->found = true;
}

/* An expression that reads what is about to be written, kept before. */
static dc_ex kept(lowering *l, const place *at, dc_nid from, dc_cid out, dc_ex e, dc_ex guard) {
  dc_graph *graph = l->graph;
  search s = {graph, dc_container_root(graph, out), false};
  if (e) dc_ex_walk(&graph->pool, e, note_read, &s);
  if (!s.found) return e;
  dc_dtype type = dc_ex_dtype(&graph->pool, e);
  dc_cid room = dc_container_add(graph, "kept", type, 0, NULL, DC_ROLE_TEMP);
  if (at->is_nested) dc_cont(graph, room)->storage = DC_STORE_REGISTER;
  dc_ex value = guard ? dc_ex_select(&graph->pool, guard, e, dc_ex_const(&graph->pool, type, 0)) : e;
  emit(l, at, from, room, DC_WCR_NONE, NULL, 0, 0, value);
  return dc_ex_read(&graph->pool, type, room, NULL, 0);
}

/* Both parts, the second as if the first were not written yet. */
static void write_parts(lowering *l, const place *at, dc_nid from, dc_tasklet t, dc_ex value) {
  dc_pool *pool = &l->graph->pool;
  dc_cid out = l->parts[t.out];
  dc_ex index[DC_MAX_RANK];
  dc_ex im = kept(l, at, from, out, part(pool, value, 1), t.guard), re = part(pool, value, 0);
  dc_ex guard = kept(l, at, from, out, t.guard, 0);
  for (uint32_t d = 0; d < t.rank; d++) index[d] = kept(l, at, from, out, t.index[d], 0);
  for (uint32_t k = 0; k < 2; k++) {
    index[t.rank] = dc_ex_int(pool, k);
    emit(l, at, from, out, (dc_wcr)t.wcr, index, t.rank + 1, guard, k ? im : re);
  }
}

static dc_status lower_tasklet(lowering *l, const place *at, dc_nid id) {
  dc_pool *pool = &l->graph->pool;
  dc_tasklet t = dc_node_at(l->graph, id)->tasklet;
  bool complex_out = l->parts[t.out] != 0;
  dc_ex index[DC_MAX_RANK], value = lower(l, t.value);
  for (uint32_t d = 0; d < t.rank; d++) index[d] = lower(l, t.index[d]);
  t.guard = lower(l, t.guard), t.index = index;
  DC_TRY(l->status);
  if (!complex_out && dc_dtype_is_complex(dc_ex_dtype(pool, value)))
    return dc_error(DC_ERR_DTYPE, "a complex value is written into '%s', which holds %s; expected its real part, abs or a complex array",
                    dc_cont_name(l->graph, t.out), dc_dtype_name((dc_dtype)dc_cont(l->graph, t.out)->dtype));
  if (!complex_out) {
    emit(l, at, id, t.out, (dc_wcr)t.wcr, index, t.rank, t.guard, value);
    return DC_OK;
  }
  if (t.wcr == DC_WCR_MIN || t.wcr == DC_WCR_MAX)
    return dc_error(DC_ERR_UNSUPPORTED, "'%s' is combined by %s, and complex numbers have no order", dc_cont_name(l->graph, t.out),
                    dc_wcr_name((dc_wcr)t.wcr));
  dc_dtype part = (dc_dtype)dc_cont(l->graph, l->parts[t.out])->dtype;
  value = lower(l, dc_ex_cast(pool, dc_dtype_of_parts(part), value));
  if (t.wcr == DC_WCR_PROD) {
    dc_ex old = read_parts(l, dc_ex_read(pool, dc_dtype_of_parts(part), t.out, t.index, t.rank));
    DC_TRY(apply_row(l, DC_MUL, (dc_ex[]){old, value}, 2, &value));
    t.wcr = DC_WCR_NONE;
  }
  write_parts(l, at, id, t, value);
  return l->status;
}

/* ---- maps ---- */

/* Does a map combine complex numbers by products, in its own iterations? */
static bool multiplies(const lowering *l, const dc_scope *body) {
  for (uint32_t k = 0; k < body->n; k++) {
    const dc_node *node = dc_node_at(l->graph, body->v[k]);
    if (node->kind == DC_NODE_TASKLET && node->tasklet.wcr == DC_WCR_PROD && l->parts[node->tasklet.out]) return true;
    if (node->kind == DC_NODE_MAP && node->map.schedule != DC_MAP_REDUCE && multiplies(l, &node->map.body)) return true;
  }
  return false;
}

static bool uses_any(const dc_pool *pool, const dc_tasklet *t, const dc_param *params, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t d = 0; d < t->rank; d++)
      if (dc_ex_uses_param(pool, t->index[d], params[k])) return true;
  return false;
}

static dc_status lower_scope(lowering *l, dc_scope before, bool is_nested, uint32_t depth, dc_scope *after);

/* What a REDUCE map does when it is entered: its results are the identity. */
static dc_status enter_reduction(lowering *l, const place *at, dc_nid map) {
  dc_map m = dc_node_at(l->graph, map)->map;
  for (uint32_t k = 0; k < m.body.n; k++) {
    const dc_node *node = dc_node_at(l->graph, m.body.v[k]);
    if (node->kind == DC_NODE_MAP && node->map.schedule != DC_MAP_REDUCE)
      return dc_error(DC_ERR_UNSUPPORTED, "a map inside a reduction of complex numbers by products");
    if (node->kind != DC_NODE_TASKLET || !node->tasklet.wcr || uses_any(&l->graph->pool, &node->tasklet, m.params, m.n_params)) continue;
    dc_tasklet t = node->tasklet;
    dc_dtype type = (dc_dtype)dc_cont(l->graph, t.out)->dtype;
    if (l->parts[t.out]) type = dc_dtype_of_parts((dc_dtype)dc_cont(l->graph, l->parts[t.out])->dtype);
    dc_ex identity = dc_ex_const(&l->graph->pool, type, dc_wcr_identity((dc_wcr)t.wcr, type));
    dc_nid fill = dc_node_tasklet(l->graph, t.out, DC_WCR_NONE, t.index, t.rank, 0, identity);
    DC_TRY(lower_tasklet(l, at, fill));
  }
  return DC_OK;
}

static dc_status lower_map(lowering *l, const place *at, dc_nid id, uint32_t depth) {
  dc_graph *graph = l->graph;
  dc_map map = dc_node_at(graph, id)->map;
  dc_scope body = {0};
  bool shared = map.schedule == DC_MAP_REDUCE || map.schedule == DC_MAP_SCATTER, in_order = shared && multiplies(l, &map.body);
  for (uint32_t k = 0; k < map.n_params; k++) {
    dc_parameter range = graph->pool.params.v[map.params[k]];
    range.begin = lower(l, range.begin), range.end = lower(l, range.end);
    graph->pool.params.v[map.params[k]] = range;
  }
  if (in_order && map.schedule == DC_MAP_REDUCE) {
    DC_TRY(enter_reduction(l, at, id));
    dc_node_at(graph, id)->map.schedule = DC_MAP_SCATTER;
  }
  DC_TRY(lower_scope(l, map.body, true, depth + 1, &body));
  dc_node_at(graph, id)->map.body = body;
  if (in_order) DC_TRY(dc_map_run_in_order(graph, id));
  dc_scope_push(graph, at->scope, id);
  return DC_OK;
}

static dc_status lower_scope(lowering *l, dc_scope before, bool is_nested, uint32_t depth, dc_scope *after) {
  place at = {after, is_nested};
  if (depth > DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "more than %d nested maps", DC_MAX_LOOPS);
  for (uint32_t k = 0; k < before.n; k++) {
    dc_node_kind kind = (dc_node_kind)dc_node_at(l->graph, before.v[k])->kind;
    if (kind == DC_NODE_LIBRARY) dc_scope_push(l->graph, after, before.v[k]);
    else if (kind == DC_NODE_MAP) DC_TRY(lower_map(l, &at, before.v[k], depth));
    else DC_TRY(lower_tasklet(l, &at, before.v[k]));
  }
  return l->status;
}

/* ---- operators ---- */

static dc_status expand_complex(lowering *l, dc_scope *scope) {
  dc_graph *graph = l->graph;
  dc_scope before = *scope, after = {0};
  for (uint32_t k = 0; k < before.n; k++) {
    const dc_node *node = dc_node_at(graph, before.v[k]);
    bool any = false;
    for (uint32_t j = 0; node->kind == DC_NODE_LIBRARY && j < node->lib.n_in; j++) any |= is_complex(graph, node->lib.in[j]);
    for (uint32_t j = 0; node->kind == DC_NODE_LIBRARY && j < node->lib.n_out; j++) any |= is_complex(graph, node->lib.out[j]);
    if (node->kind == DC_NODE_MAP) DC_TRY(dc_ops_expand_inside(l->ops, graph, before.v[k]));
    if (!any) dc_scope_push(graph, &after, before.v[k]);
    else DC_TRY(dc_pass_expand_node(l->ops, graph, before.v[k], &after));
  }
  *scope = after;
  return DC_OK;
}

static bool has_complex(const dc_graph *graph) {
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (is_complex(graph, c)) return true;
  for (dc_ex e = 1; e < graph->pool.nodes.n; e++)
    if (dc_dtype_is_complex((dc_dtype)graph->pool.nodes.v[e].dtype)) return true;
  return false;
}

dc_status dc_pass_complexes(dc_ops *ops, dc_graph *graph) {
  if (!has_complex(graph)) return DC_OK;
  for (uint32_t s = 0; s < graph->states.n; s++) DC_TRY(expand_complex(&(lowering){.ops = ops, .graph = graph}, &graph->states.v[s].scope));
  uint32_t n = graph->containers.n;
  lowering l = {.ops = ops, .graph = graph, .parts = DC_NEW_ARRAY(&graph->arena, dc_cid, n)};
  for (dc_cid c = 1; c < n; c++)
    if (is_complex(graph, c) && dc_cont(graph, c)->name) DC_TRY(make_parts(&l, c));
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope after = {0};
    DC_TRY(lower_scope(&l, graph->states.v[s].scope, false, 0, &after));
    graph->states.v[s].scope = after;
  }
  return DC_OK;
}
