/* The interpreter: maps and tasklets evaluated directly from the IR.
 *
 * A node is prepared once: its expressions are copied into one flat array in which every entry
 * knows at which loop depth it changes.  Evaluation is by demand and remembered until a
 * parameter of that depth moves, so that a SELECT's other side is never computed and index
 * arithmetic leaves the inner loop. */
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "backends/interp/value.h"
#include "ir/work.h"

enum { VOLATILE = DC_MAX_LOOPS + 1 }; /* the level of what holds a READ: deeper than any loop */

typedef struct {
  uint8_t op, dtype, arg_dtype;
  uint16_t level; /* 0 never changes; VOLATILE: holds a READ */
  uint16_t nargs;
  uint32_t args, ref;
  dc_scalar value; /* constants */
} entry;

typedef struct {
  dc_scalar value;
  uint64_t version;
} slot;

typedef struct {
  const dc_graph *graph;
  const int64_t *symbols;
  void *const *buffers;
  void **registers; /* by container: storage of REGISTER containers, or NULL */
  double **sums;    /* by container: before rounding, what memory holds of a sum; NULL until there is one */
  dc_arena arena;
  entry *entries;
  slot *slots;
  uint32_t n_entries;
  uint32_t *args;
  uint32_t *of_ex;    /* expression id -> entry + 1 */
  uint16_t *level_of; /* parameter -> depth */
  uint32_t deepest;   /* of them */
  int64_t *params;    /* current values by parameter */
  int64_t **dims, **strides; /* by container, filled on first use */
  DC_VEC(dc_nid) idle; /* maps that run nothing */
  uint64_t versions[VOLATILE + 1]; /* bumped when a parameter of that depth moves */
  dc_cid complex; /* a container of complex numbers; 0: there is none */
} interp;

/* ---- preparation ---- */

typedef DC_VEC(entry) entry_list;
typedef DC_VEC(uint32_t) index_list;
typedef struct {
  interp *in;
  entry_list entries;
  index_list args;
} builder;

static void add_entry(void *context, const dc_pool *pool, dc_ex e) {
  builder *b = context;
  if (b->in->of_ex[e]) return;
  const dc_exnode *node = dc_ex_node(pool, e);
  entry made = {.op = node->op, .dtype = node->dtype, .nargs = node->nargs, .args = b->args.n, .ref = node->ref};
  if (node->op == DC_EX_PARAM) made.level = b->in->level_of[node->ref];
  if (node->op == DC_EX_READ) made.level = VOLATILE;
  if (node->op == DC_EX_FLOAT) made.value.f = node->f;
  if (node->op == DC_EX_INT || node->op == DC_EX_LINEAR) made.value.i = node->i;
  for (uint32_t k = 0; k < node->nargs; k++) {
    uint32_t child = b->in->of_ex[dc_ex_arg(pool, e, k)] - 1;
    DC_PUSH(&b->in->arena, &b->args, child);
    if (b->entries.v[child].level > made.level) made.level = b->entries.v[child].level;
    if (k == 0) made.arg_dtype = b->entries.v[child].dtype;
  }
  if (node->op == DC_EX_SELECT) made.arg_dtype = made.dtype;
  DC_PUSH(&b->in->arena, &b->entries, made);
  b->in->of_ex[e] = b->entries.n;
}

static void add_ex(builder *b, dc_ex e) {
  if (e) dc_ex_walk(&b->in->graph->pool, e, add_entry, b);
}

static dc_status add_node(builder *b, dc_nid id, uint32_t depth) {
  const dc_graph *g = b->in->graph;
  dc_node node = *dc_node_at(g, id);
  if (node.kind == DC_NODE_LIBRARY) return dc_error(DC_ERR_UNSUPPORTED, "a library node inside a map cannot be interpreted");
  if (node.kind == DC_NODE_TASKLET) {
    for (uint32_t d = 0; d < node.tasklet.rank; d++) add_ex(b, node.tasklet.index[d]);
    add_ex(b, node.tasklet.guard);
    add_ex(b, node.tasklet.value);
    return DC_OK;
  }
  if (dc_map_is_idle(g, id, b->in->symbols)) DC_PUSH(&b->in->arena, &b->in->idle, id);
  for (uint32_t k = 0; k < node.map.n_params; k++, depth++) {
    if (depth == DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "maps are nested too deeply: more than %d loops", DC_MAX_LOOPS);
    dc_parameter p = g->pool.params.v[node.map.params[k]];
    add_ex(b, p.begin);
    add_ex(b, p.end);
    b->in->level_of[node.map.params[k]] = (uint16_t)(depth + 1);
  }
  if (depth > b->in->deepest) b->in->deepest = depth;
  for (uint32_t k = 0; k < node.map.body.n; k++) DC_TRY(add_node(b, node.map.body.v[k], depth));
  return DC_OK;
}

static void describe_container(interp *in, dc_cid c) {
  const dc_container *k = dc_cont(in->graph, c);
  int64_t *dims = DC_NEW_ARRAY(&in->arena, int64_t, k->rank), *strides = DC_NEW_ARRAY(&in->arena, int64_t, k->rank), stride = 1;
  for (uint32_t d = k->rank; d-- > 0;) {
    dims[d] = dc_ix_eval(&in->graph->pool, k->shape[d], in->symbols, NULL);
    strides[d] = k->strides ? dc_ix_eval(&in->graph->pool, k->strides[d], in->symbols, NULL) : stride;
    stride *= dims[d];
  }
  in->dims[c] = dims, in->strides[c] = strides;
  if (k->storage == DC_STORE_REGISTER) in->registers[c] = dc_arena_alloc(&in->arena, (size_t)stride * (size_t)dc_dtype_bytes((dc_dtype)k->dtype));
}

static void visit_container(void *context, dc_cid c, dc_use use, dc_nid by) {
  interp *in = context;
  (void)use, (void)by;
  if (!in->dims[c]) describe_container(in, c);
  if (dc_dtype_is_complex((dc_dtype)dc_cont(in->graph, c)->dtype)) in->complex = c;
}

static dc_status prepare(interp *in, dc_nid node) {
  const dc_graph *g = in->graph;
  in->of_ex = DC_NEW_ARRAY(&in->arena, uint32_t, g->pool.nodes.n);
  in->level_of = DC_NEW_ARRAY(&in->arena, uint16_t, g->pool.params.n);
  in->params = DC_NEW_ARRAY(&in->arena, int64_t, g->pool.params.n);
  in->registers = DC_NEW_ARRAY(&in->arena, void *, g->containers.n);
  in->sums = DC_NEW_ARRAY(&in->arena, double *, g->containers.n);
  in->dims = DC_NEW_ARRAY(&in->arena, int64_t *, g->containers.n);
  in->strides = DC_NEW_ARRAY(&in->arena, int64_t *, g->containers.n);
  builder b = {.in = in};
  DC_TRY(add_node(&b, node, 0));
  in->entries = b.entries.v, in->n_entries = b.entries.n, in->args = b.args.v;
  in->slots = DC_NEW_ARRAY(&in->arena, slot, in->n_entries);
  for (uint32_t k = 0; k <= VOLATILE; k++) in->versions[k] = 1;
  dc_node_uses(g, node, visit_container, in);
  if (!in->complex) return DC_OK;
  return dc_error(DC_ERR_UNSUPPORTED, "'%s' is complex: the pass complexes goes before", dc_cont_name(g, in->complex));
}

/* ---- evaluation ---- */

static dc_status evaluate(interp *in, uint32_t e, dc_scalar *out);

static dc_status locate(interp *in, dc_cid c, const uint32_t *index, int64_t *out) {
  int64_t at = 0;
  for (uint32_t d = 0; d < dc_cont(in->graph, c)->rank; d++) {
    dc_scalar i;
    DC_TRY(evaluate(in, index[d], &i));
    if (i.i < 0 || i.i >= in->dims[c][d])
      return dc_error(DC_ERR_VALUE, "index %lld is out of range for dimension %u of '%s', which has %lld elements", (long long)i.i, d,
                      dc_cont_name(in->graph, c), (long long)in->dims[c][d]);
    at += i.i * in->strides[c][d];
  }
  return *out = at, DC_OK;
}

static void *storage(const interp *in, dc_cid c) { return in->registers[c] ? in->registers[c] : in->buffers[c]; }

static dc_status evaluate_linear(interp *in, const entry *n, dc_scalar *out) {
  uint64_t total = (uint64_t)n->value.i;
  for (uint32_t k = 0; k < n->nargs; k += 2) {
    dc_scalar term;
    DC_TRY(evaluate(in, in->args[n->args + k], &term));
    total += (uint64_t)term.i * (uint64_t)in->entries[in->args[n->args + k + 1]].value.i;
  }
  return out->i = (int64_t)total, DC_OK;
}

static dc_status evaluate_compound(interp *in, const entry *n, dc_scalar *out) {
  dc_scalar a, b = {0};
  int64_t at;
  switch (n->op) {
    case DC_EX_READ:
      DC_TRY(locate(in, n->ref, in->args + n->args, &at));
      return *out = dc_scalar_load((dc_dtype)n->dtype, storage(in, n->ref), at), DC_OK;
    case DC_EX_LINEAR: return evaluate_linear(in, n, out);
    case DC_EX_PRODUCT:
      out->i = 1;
      for (uint32_t k = 0; k < n->nargs; k++) {
        DC_TRY(evaluate(in, in->args[n->args + k], &a));
        out->i = (int64_t)((uint64_t)out->i * (uint64_t)a.i);
      }
      return DC_OK;
    case DC_EX_SELECT:
      DC_TRY(evaluate(in, in->args[n->args], &a));
      return evaluate(in, in->args[n->args + (a.i ? 1 : 2)], out);
    default: break;
  }
  DC_TRY(evaluate(in, in->args[n->args], &a));
  if (n->op == DC_AND && !a.i) return out->i = 0, DC_OK;
  if (n->op == DC_OR && a.i) return out->i = 1, DC_OK;
  if (n->nargs > 1) DC_TRY(evaluate(in, in->args[n->args + 1], &b));
  switch (n->op) {
    case DC_EX_CAST: return *out = dc_scalar_convert((dc_dtype)n->arg_dtype, (dc_dtype)n->dtype, a), DC_OK;
    case DC_EX_BITS: return *out = dc_scalar_bits((dc_dtype)n->arg_dtype, (dc_dtype)n->dtype, a), DC_OK;
    case DC_EX_IDIV: return *out = dc_scalar_prim(DC_FLOORDIV, DC_I64, a, b), DC_OK;
    case DC_EX_IMOD: return *out = dc_scalar_prim(DC_MOD, DC_I64, a, b), DC_OK;
    case DC_EX_IMIN: return *out = dc_scalar_prim(DC_MIN, DC_I64, a, b), DC_OK;
    case DC_EX_IMAX: return *out = dc_scalar_prim(DC_MAX, DC_I64, a, b), DC_OK;
    default: return *out = dc_scalar_prim((dc_op)n->op, (dc_dtype)n->arg_dtype, a, b), DC_OK;
  }
}

static dc_status evaluate(interp *in, uint32_t e, dc_scalar *out) {
  const entry *n = &in->entries[e];
  slot *s = &in->slots[e];
  if (n->op == DC_EX_INT || n->op == DC_EX_FLOAT) return *out = n->value, DC_OK;
  if (n->op == DC_EX_PARAM) return out->i = in->params[n->ref], DC_OK;
  if (n->op == DC_EX_SYM) return out->i = in->symbols[n->ref], DC_OK;
  if (s->version == in->versions[n->level]) return *out = s->value, DC_OK;
  DC_TRY(evaluate_compound(in, n, out));
  s->value = *out, s->version = in->versions[n->level];
  return DC_OK;
}

static dc_status evaluate_ex(interp *in, dc_ex e, dc_scalar *out) { return evaluate(in, in->of_ex[e] - 1, out); }

/* ---- execution ---- */

static dc_status tasklet_position(interp *in, const dc_tasklet *t, int64_t *out) {
  uint32_t index[DC_MAX_RANK];
  for (uint32_t d = 0; d < t->rank; d++) index[d] = in->of_ex[t->index[d]] - 1;
  return locate(in, t->out, index, out);
}

/* Adds to a sum of a type narrower than double without rounding in between: as long as memory holds what the sum so far
 * rounds to, the terms went on from there. */
static dc_status add_term(interp *in, dc_cid c, int64_t at, dc_scalar term) {
  dc_dtype type = (dc_dtype)dc_cont(in->graph, c)->dtype;
  void *data = storage(in, c);
  if (!in->sums[c]) {
    int64_t size = 1;
    for (uint32_t d = 0; d < dc_cont(in->graph, c)->rank; d++) size += (in->dims[c][d] - 1) * in->strides[c][d];
    in->sums[c] = calloc((size_t)size, sizeof **in->sums);
    if (!in->sums[c]) return dc_error(DC_ERR_MEMORY, "out of memory");
  }
  dc_scalar sum = {.f = in->sums[c][at]}, have = dc_scalar_load(type, data, at), rounded = dc_scalar_convert(DC_F64, type, sum);
  if (memcmp(&rounded.f, &have.f, sizeof have.f) != 0) sum.f = have.f;
  sum.f += term.f;
  in->sums[c][at] = sum.f;
  dc_scalar_store(type, data, at, dc_scalar_convert(DC_F64, type, sum));
  return DC_OK;
}

static dc_status run_tasklet(interp *in, dc_nid id) {
  const dc_tasklet *t = &dc_node_at(in->graph, id)->tasklet;
  dc_scalar guard = {.i = 1}, value;
  int64_t at;
  in->versions[VOLATILE]++; /* an earlier tasklet may have written what this one reads */
  if (t->guard) DC_TRY(evaluate_ex(in, t->guard, &guard));
  if (!guard.i) return DC_OK;
  DC_TRY(evaluate_ex(in, t->value, &value));
  DC_TRY(tasklet_position(in, t, &at));
  dc_dtype from = dc_ex_dtype(&in->graph->pool, t->value), to = (dc_dtype)dc_cont(in->graph, t->out)->dtype, wide = dc_dtype_compute(to);
  void *data = storage(in, t->out);
  value = dc_scalar_convert(from, t->wcr ? wide : to, value);
  if (t->wcr == DC_WCR_SUM && dc_dtype_is_float(to) && to != DC_F64) return add_term(in, t->out, at, value);
  if (t->wcr) value = dc_scalar_convert(wide, to, dc_scalar_prim(dc_wcr_prim((dc_wcr)t->wcr), wide, dc_scalar_load(to, data, at), value));
  dc_scalar_store(to, data, at, value);
  return DC_OK;
}

static dc_status run_node(interp *in, dc_nid id);
static dc_status clear_accumulators(interp *in, dc_nid map, uint32_t k);

/* Few maps are: nothing is to be looked up in a run of full ones. */
static bool is_idle(const interp *in, dc_nid map) {
  for (uint32_t k = 0; k < in->idle.n; k++)
    if (in->idle.v[k] == map) return true;
  return false;
}

static dc_status clear_body(interp *in, dc_nid map) {
  for (uint32_t k = 0; k < dc_node_at(in->graph, map)->map.body.n; k++) {
    dc_nid child = dc_node_at(in->graph, map)->map.body.v[k];
    const dc_node *n = dc_node_at(in->graph, child);
    if (n->kind == DC_NODE_MAP) {
      if (n->map.schedule != DC_MAP_REDUCE && !is_idle(in, child)) DC_TRY(clear_accumulators(in, child, 0));
      continue;
    }
    if (n->kind != DC_NODE_TASKLET || !n->tasklet.wcr) continue;
    int64_t at;
    in->versions[VOLATILE]++;
    DC_TRY(tasklet_position(in, &n->tasklet, &at));
    dc_dtype type = (dc_dtype)dc_cont(in->graph, n->tasklet.out)->dtype;
    double identity = dc_wcr_identity((dc_wcr)n->tasklet.wcr, type);
    dc_scalar_store(type, storage(in, n->tasklet.out), at, dc_scalar_convert(DC_F64, type, (dc_scalar){.f = identity}));
  }
  return DC_OK;
}

static void set_param(interp *in, dc_param p, int64_t value) {
  in->params[p] = value;
  /* deeper values depend on this one as well */
  for (uint32_t level = in->level_of[p]; level <= in->deepest; level++) in->versions[level]++;
  in->versions[VOLATILE]++;
}

static dc_status range(interp *in, dc_param p, int64_t *begin, int64_t *end, int64_t *step) {
  dc_scalar b, e;
  dc_parameter r = in->graph->pool.params.v[p];
  in->versions[VOLATILE]++;
  DC_TRY(evaluate_ex(in, r.begin, &b));
  DC_TRY(evaluate_ex(in, r.end, &e));
  *begin = b.i, *end = e.i, *step = 1;
  dc_ex_is_int(&in->graph->pool, r.step, step);
  return DC_OK;
}

/* Sets the elements that a REDUCE map combines into to the identity.  Only the maps inside it
 * move: its own parameters stand at their beginning, for accumulators do not depend on them. */
static dc_status clear_accumulators(interp *in, dc_nid map, uint32_t k) {
  const dc_map *m = &dc_node_at(in->graph, map)->map;
  if (k == m->n_params) return clear_body(in, map);
  int64_t begin, end, step;
  DC_TRY(range(in, m->params[k], &begin, &end, &step));
  if (m->schedule == DC_MAP_REDUCE) {
    set_param(in, m->params[k], begin);
    return clear_accumulators(in, map, k + 1);
  }
  for (int64_t i = begin; i < end; i += step) {
    set_param(in, m->params[k], i);
    DC_TRY(clear_accumulators(in, map, k + 1));
  }
  return DC_OK;
}

static dc_status run_loop(interp *in, dc_nid map, uint32_t k) {
  const dc_map *m = &dc_node_at(in->graph, map)->map;
  if (k == m->n_params) {
    for (uint32_t j = 0; j < m->body.n; j++) DC_TRY(run_node(in, m->body.v[j]));
    return DC_OK;
  }
  int64_t begin, end, step;
  DC_TRY(range(in, m->params[k], &begin, &end, &step));
  for (int64_t i = begin; i < end; i += step) {
    set_param(in, m->params[k], i);
    DC_TRY(run_loop(in, map, k + 1));
  }
  return DC_OK;
}

static dc_status run_node(interp *in, dc_nid id) {
  const dc_node *n = dc_node_at(in->graph, id);
  if (n->kind == DC_NODE_TASKLET) return run_tasklet(in, id);
  if (n->map.schedule == DC_MAP_REDUCE) DC_TRY(clear_accumulators(in, id, 0));
  if (is_idle(in, id)) return DC_OK;
  return run_loop(in, id, 0);
}

/* The name of the operator or node, for messages from the middle of a run. */
static const char *origin(const dc_graph *graph, dc_nid id) {
  const dc_node *n = dc_node_at(graph, id);
  const char *name = dc_name_text(&graph->names, n->name);
  return *name ? name : n->tag_op ? dc_name_text(&graph->names, n->tag_op) : n->kind == DC_NODE_MAP ? "map" : "tasklet";
}

dc_status dc_interp_node(const dc_graph *graph, dc_nid node, void *const *buffers_by_cid, const int64_t *symbols) {
  interp *in = calloc(1, sizeof *in);
  if (!in) return dc_error(DC_ERR_MEMORY, "out of memory");
  in->graph = graph, in->symbols = symbols, in->buffers = buffers_by_cid;
  dc_status status = prepare(in, node);
  if (!status) status = run_node(in, node);
  for (dc_cid c = 1; in->sums && c < graph->containers.n; c++) free(in->sums[c]);
  dc_arena_free(&in->arena);
  free(in);
  return dc_error_at(status, "node '%s'", origin(graph, node));
}
