/* The interpreter: maps and tasklets evaluated directly from the IR.
 *
 * A node is prepared once: its expressions are copied into one flat array in which every entry
 * knows at which loop depth it changes.  Evaluation is by demand and remembered until a
 * parameter of that depth moves, so that a SELECT's other side is never computed and index
 * arithmetic leaves the inner loop.  Where the innermost iterations are independent, or are the terms of a
 * reduction, and read nothing under a condition only, an operation is done for some of them at a time: its lanes. */
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "backends/interp/value.h"
#include "ir/work.h"

enum { LANES = 32 };
enum { KEPT_ENTRIES = 1 << 8, KEPT_CONTAINERS = 1 << 8 }; /* of a node whose room for a run is kept: some 80 KB at most */
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

typedef DC_VEC(uint32_t) index_list;

/* A map over one tasklet whose innermost loop is run in lanes, or, where that is short, its two innermost ones. */
typedef struct {
  dc_nid map;
  const dc_tasklet *tasklet;
  index_list one, two; /* entries that change with the loop, or with either, operands first; two is empty where only one is run so */
} lane_plan;

typedef struct interp interp;

/* What holds for every run of a node. */
struct dc_interp {
  const dc_graph *graph;
  dc_nid node;
  entry *entries;
  uint32_t n_entries;
  uint32_t *args;
  uint32_t *of_ex;    /* expression id -> entry + 1 */
  uint16_t *level_of; /* parameter -> depth */
  uint32_t deepest;   /* of them */
  DC_VEC(dc_nid) maps; /* all inside, itself included */
  DC_VEC(dc_cid) used; /* containers, each once */
  DC_VEC(lane_plan) lanes;
  uint32_t *lanes_of; /* by node: 1 + its place in lanes, or 0 */
  interp *kept;       /* room for a run, with what the last one in it found of its sizes; NULL: a run is in it, or it is not worth it */
};

/* A run of it. */
struct interp {
  dc_interp p;
  const int64_t *symbols;
  void *const *buffers;
  int64_t *sizes;   /* the values of symbols that dims, strides and slots are of */
  bool sized;
  void **registers; /* by container: storage of REGISTER containers, or NULL */
  double **sums;    /* by container: before rounding, what memory holds of a sum; NULL until there is one */
  dc_arena arena;   /* of registers */
  slot *slots;
  dc_scalar (*lanes)[LANES]; /* by entry; NULL where no loop is run in lanes */
  int64_t *params;    /* current values by parameter */
  int64_t **dims, **strides; /* by container, of those that are used */
  dc_nid *idle; /* maps that run nothing */
  uint32_t n_idle;
  uint64_t *versions;  /* by level, up to deepest, bumped when a parameter of that depth moves ... */
  uint64_t moment;     /* ... and of VOLATILE */
};

/* ---- preparation ---- */

typedef DC_VEC(entry) entry_list;
typedef struct {
  dc_interp *p;
  dc_arena *arena;
  entry_list entries;
  index_list args;
  bool *seen;       /* by container */
  uint32_t *noted;  /* by expression: the last loop that was found to have it, 1 is the first ... */
  uint32_t *always; /* ... and by entry: to evaluate it whatever conditions hold */
  uint32_t n_loops;
} builder;

static void add_entry(void *context, const dc_pool *pool, dc_ex e) {
  builder *b = context;
  if (b->p->of_ex[e]) return;
  const dc_exnode *node = dc_ex_node(pool, e);
  entry made = {.op = node->op, .dtype = node->dtype, .nargs = node->nargs, .args = b->args.n, .ref = node->ref};
  if (node->op == DC_EX_PARAM) made.level = b->p->level_of[node->ref];
  if (node->op == DC_EX_READ) made.level = VOLATILE;
  if (node->op == DC_EX_FLOAT) made.value.f = node->f;
  if (node->op == DC_EX_INT || node->op == DC_EX_LINEAR) made.value.i = node->i;
  for (uint32_t k = 0; k < node->nargs; k++) {
    uint32_t child = b->p->of_ex[dc_ex_arg(pool, e, k)] - 1;
    DC_PUSH(b->arena, &b->args, child);
    if (b->entries.v[child].level > made.level) made.level = b->entries.v[child].level;
    if (k == 0) made.arg_dtype = b->entries.v[child].dtype;
  }
  if (node->op == DC_EX_SELECT) made.arg_dtype = made.dtype;
  DC_PUSH(b->arena, &b->entries, made);
  b->p->of_ex[e] = b->entries.n;
}

static void add_ex(builder *b, dc_ex e) {
  if (e) dc_ex_walk(&b->p->graph->pool, e, add_entry, b);
}

typedef struct {
  builder *b;
  index_list *found;
  uint32_t level, number;
} lane_search;

static void note_lane(void *context, const dc_pool *pool, dc_ex e) {
  lane_search *s = context;
  uint32_t at = s->b->p->of_ex[e] - 1;
  const entry *n = &s->b->entries.v[at];
  (void)pool;
  if (s->b->noted[e] == s->number || n->level < s->level) return;
  s->b->noted[e] = s->number;
  DC_PUSH(s->b->arena, s->found, at);
}

static void note_lanes(builder *b, lane_plan *plan, index_list *found, uint32_t level) {
  const dc_tasklet *t = plan->tasklet;
  const dc_pool *pool = &b->p->graph->pool;
  lane_search search = {b, found, level, ++b->n_loops};
  dc_ex_walk(pool, t->value, note_lane, &search);
  for (uint32_t d = 0; d < t->rank; d++) dc_ex_walk(pool, t->index[d], note_lane, &search);
}

static void note_always(builder *b, dc_ex e, uint32_t number) { b->always[b->p->of_ex[e] - 1] = number; }

static dc_cid home_of(const dc_graph *g, dc_cid c) {
  while (dc_cont(g, c)->alias_of) c = dc_cont(g, c)->alias_of;
  return c;
}

/* Can all iterations read what one does?  Not where a condition keeps some from it, and not what they add to. */
static bool may_read(builder *b, const lane_plan *plan) {
  const dc_graph *g = b->p->graph;
  const dc_tasklet *t = plan->tasklet;
  bool may = true;
  note_always(b, t->value, b->n_loops);
  for (uint32_t d = 0; d < t->rank; d++) note_always(b, t->index[d], b->n_loops);
  for (uint32_t k = plan->one.n; k-- > 0;) { /* operands come first */
    const entry *n = &b->entries.v[plan->one.v[k]];
    bool always = b->always[plan->one.v[k]] == b->n_loops, conditional = n->op == DC_EX_SELECT || n->op == DC_AND || n->op == DC_OR;
    if (n->op == DC_EX_READ) may &= always && !(t->wcr && home_of(g, n->ref) == home_of(g, t->out));
    for (uint32_t j = 0; always && j < (conditional ? 1u : n->nargs); j++) b->always[b->args.v[n->args + j]] = b->n_loops;
  }
  return may;
}

static uint32_t level_of_ex(const builder *b, dc_ex e) { return e ? b->entries.v[b->p->of_ex[e] - 1].level : 0; }

/* A loop of one tasklet that is never skipped, over iterations that are independent but for what they combine. */
static void add_lanes(builder *b, dc_nid id, uint32_t depth) {
  const dc_graph *g = b->p->graph;
  const dc_map *m = &dc_node_at(g, id)->map;
  if (m->schedule == DC_MAP_SEQUENTIAL || !m->n_params || m->body.n != 1 || dc_node_at(g, m->body.v[0])->kind != DC_NODE_TASKLET) return;
  const dc_tasklet *t = &dc_node_at(g, m->body.v[0])->tasklet;
  if (t->guard || (m->schedule != DC_MAP_PARALLEL && !t->wcr)) return;
  lane_plan plan = {.map = id, .tasklet = t};
  note_lanes(b, &plan, &plan.one, depth);
  if (!may_read(b, &plan)) return;
  dc_parameter inner = g->pool.params.v[m->params[m->n_params - 1]];
  if (m->n_params > 1 && level_of_ex(b, inner.begin) < depth - 1 && level_of_ex(b, inner.end) < depth - 1)
    note_lanes(b, &plan, &plan.two, depth - 1);
  DC_PUSH(b->arena, &b->p->lanes, plan);
  b->p->lanes_of[id] = b->p->lanes.n;
}

static dc_status add_node(builder *b, dc_nid id, uint32_t depth) {
  const dc_graph *g = b->p->graph;
  dc_node node = *dc_node_at(g, id);
  if (node.kind == DC_NODE_LIBRARY) return dc_error(DC_ERR_UNSUPPORTED, "a library node inside a map cannot be interpreted");
  if (node.kind == DC_NODE_TASKLET) {
    for (uint32_t d = 0; d < node.tasklet.rank; d++) add_ex(b, node.tasklet.index[d]);
    add_ex(b, node.tasklet.guard);
    add_ex(b, node.tasklet.value);
    return DC_OK;
  }
  DC_PUSH(b->arena, &b->p->maps, id);
  for (uint32_t k = 0; k < node.map.n_params; k++, depth++) {
    if (depth == DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "maps are nested too deeply: more than %d loops", DC_MAX_LOOPS);
    dc_parameter p = g->pool.params.v[node.map.params[k]];
    add_ex(b, p.begin);
    add_ex(b, p.end);
    b->p->level_of[node.map.params[k]] = (uint16_t)(depth + 1);
  }
  if (depth > b->p->deepest) b->p->deepest = depth;
  for (uint32_t k = 0; k < node.map.body.n; k++) DC_TRY(add_node(b, node.map.body.v[k], depth));
  add_lanes(b, id, depth);
  return DC_OK;
}

static void note_container(void *context, dc_cid c, dc_use use, dc_nid by) {
  builder *b = context;
  (void)use, (void)by;
  if (!b->seen[c]) DC_PUSH(b->arena, &b->p->used, c);
  b->seen[c] = true;
}

/* The name of the operator or node, for messages from the middle of a run. */
static const char *origin(const dc_graph *graph, dc_nid id) {
  const dc_node *n = dc_node_at(graph, id);
  const char *name = dc_name_text(&graph->names, n->name);
  return *name ? name : n->tag_op ? dc_name_text(&graph->names, n->tag_op) : n->kind == DC_NODE_MAP ? "map" : "tasklet";
}

/* Room for a run, of whatever sizes. */
static interp *make_room(const dc_interp *p, dc_arena *arena) {
  const dc_graph *g = p->graph;
  interp *in = DC_NEW(arena, interp);
  uint32_t n = g->containers.n, n_dims = 0;
  for (uint32_t k = 0; k < p->used.n; k++) n_dims += dc_cont(g, p->used.v[k])->rank;
  void **by_container = DC_NEW_ARRAY(arena, void *, 4 * (size_t)n);
  int64_t *dims = DC_NEW_ARRAY(arena, int64_t, 2 * (size_t)n_dims);
  in->p = *p;
  in->registers = by_container, in->sums = (double **)by_container + n;
  in->dims = (int64_t **)by_container + 2 * (size_t)n, in->strides = (int64_t **)by_container + 3 * (size_t)n;
  for (uint32_t k = 0; k < p->used.n; k++) {
    dc_cid c = p->used.v[k];
    in->dims[c] = dims, in->strides[c] = dims + n_dims;
    dims += dc_cont(g, c)->rank;
  }
  in->sizes = DC_NEW_ARRAY(arena, int64_t, g->pool.symbols.n);
  in->params = DC_NEW_ARRAY(arena, int64_t, g->pool.params.n);
  in->slots = DC_NEW_ARRAY(arena, slot, p->n_entries);
  if (p->lanes.n) in->lanes = dc_arena_raw(arena, p->n_entries * sizeof *in->lanes);
  in->versions = DC_NEW_ARRAY(arena, uint64_t, p->deepest + 1);
  in->idle = DC_NEW_ARRAY(arena, dc_nid, p->maps.n);
  return in;
}

dc_status dc_interp_prepare(const dc_graph *graph, dc_nid node, dc_arena *arena, dc_interp **out) {
  dc_interp *p = DC_NEW(arena, dc_interp);
  builder b = {.p = p,
               .arena = arena,
               .seen = DC_NEW_ARRAY(arena, bool, graph->containers.n),
               .noted = DC_NEW_ARRAY(arena, uint32_t, graph->pool.nodes.n),
               .always = DC_NEW_ARRAY(arena, uint32_t, graph->pool.nodes.n)};
  p->graph = graph, p->node = node;
  p->of_ex = DC_NEW_ARRAY(arena, uint32_t, graph->pool.nodes.n);
  p->level_of = DC_NEW_ARRAY(arena, uint16_t, graph->pool.params.n);
  p->lanes_of = DC_NEW_ARRAY(arena, uint32_t, graph->nodes.n);
  dc_status status = add_node(&b, node, 0);
  if (status) return dc_error_at(status, "node '%s'", origin(graph, node));
  p->entries = b.entries.v, p->n_entries = b.entries.n, p->args = b.args.v;
  dc_node_uses(graph, node, note_container, &b);
  for (uint32_t k = 0; k < p->used.n; k++)
    if (dc_dtype_is_complex((dc_dtype)dc_cont(graph, p->used.v[k])->dtype))
      return dc_error(DC_ERR_UNSUPPORTED, "'%s' is complex: the pass complexes goes before", dc_cont_name(graph, p->used.v[k]));
  if (p->n_entries <= KEPT_ENTRIES && graph->containers.n <= KEPT_CONTAINERS) p->kept = make_room(p, arena);
  return *out = p, DC_OK;
}

/* ---- sizes ---- */

/* What depends on the values of symbols, and on nothing else. */
static void take_sizes(interp *in) {
  const dc_graph *g = in->p.graph;
  in->n_idle = 0;
  for (uint32_t k = 0; k < in->p.maps.n; k++)
    if (dc_map_is_idle(g, in->p.maps.v[k], in->symbols)) in->idle[in->n_idle++] = in->p.maps.v[k];
  for (uint32_t k = 0; k < in->p.used.n; k++) {
    dc_cid c = in->p.used.v[k];
    const dc_container *used = dc_cont(g, c);
    int64_t stride = 1;
    for (uint32_t d = used->rank; d-- > 0;) {
      in->dims[c][d] = dc_ix_eval(&g->pool, used->shape[d], in->symbols, NULL);
      in->strides[c][d] = used->strides ? dc_ix_eval(&g->pool, used->strides[d], in->symbols, NULL) : stride;
      stride *= in->dims[c][d];
    }
  }
  if (in->symbols) memcpy(in->sizes, in->symbols, g->pool.symbols.n * sizeof *in->sizes);
  for (uint32_t k = 0; k <= in->p.deepest; k++) in->versions[k]++;
  in->sized = true;
}

static void take_registers(interp *in) {
  for (uint32_t k = 0; k < in->p.used.n; k++) {
    dc_cid c = in->p.used.v[k];
    const dc_container *used = dc_cont(in->p.graph, c);
    size_t elements = 1;
    if (used->storage != DC_STORE_REGISTER) continue;
    for (uint32_t d = 0; d < used->rank; d++) elements *= (size_t)in->dims[c][d];
    in->registers[c] = dc_arena_alloc(&in->arena, elements * (size_t)dc_dtype_bytes((dc_dtype)used->dtype));
  }
}

/* A run under the values of symbols that the last one had begins with what that one found. */
static void begin_run(interp *in, void *const *buffers, const int64_t *symbols) {
  in->symbols = symbols, in->buffers = buffers;
  bool same = in->sized && symbols && !memcmp(in->sizes, symbols, in->p.graph->pool.symbols.n * sizeof *symbols);
  if (!same) take_sizes(in);
  take_registers(in);
  in->moment++;
}

static void end_run(interp *in) {
  for (uint32_t k = 0; k < in->p.used.n; k++) {
    dc_cid c = in->p.used.v[k];
    free(in->sums[c]);
    in->sums[c] = NULL;
  }
  dc_arena_free(&in->arena);
}

/* ---- evaluation ---- */

static dc_status evaluate_compound(interp *in, const entry *n, dc_scalar *out);

static inline dc_status evaluate(interp *in, uint32_t e, dc_scalar *out) {
  const entry *n = &in->p.entries[e];
  slot *s = &in->slots[e];
  if (n->op == DC_EX_PARAM) return out->i = in->params[n->ref], DC_OK;
  if (n->op == DC_EX_INT || n->op == DC_EX_FLOAT) return *out = n->value, DC_OK;
  if (n->op == DC_EX_SYM) return out->i = in->symbols[n->ref], DC_OK;
  uint64_t version = n->level == VOLATILE ? in->moment : in->versions[n->level];
  if (s->version == version) return *out = s->value, DC_OK;
  DC_TRY(evaluate_compound(in, n, out));
  s->value = *out, s->version = version;
  return DC_OK;
}

static dc_status fail_index(const interp *in, dc_cid c, uint32_t d, int64_t index) {
  return dc_error(DC_ERR_VALUE, "index %lld is out of range for dimension %u of '%s', which has %lld elements", (long long)index, d,
                  dc_cont_name(in->p.graph, c), (long long)in->dims[c][d]);
}

static dc_status locate(interp *in, dc_cid c, const uint32_t *index, int64_t *out) {
  const int64_t *dims = in->dims[c], *strides = in->strides[c];
  uint32_t rank = dc_cont(in->p.graph, c)->rank;
  int64_t at = 0;
  for (uint32_t d = 0; d < rank; d++) {
    dc_scalar i;
    DC_TRY(evaluate(in, index[d], &i));
    if (i.i < 0 || i.i >= dims[d]) return fail_index(in, c, d, i.i);
    at += i.i * strides[d];
  }
  return *out = at, DC_OK;
}

static void *storage(const interp *in, dc_cid c) { return in->registers[c] ? in->registers[c] : in->buffers[c]; }

static dc_status evaluate_linear(interp *in, const entry *n, dc_scalar *out) {
  uint64_t total = (uint64_t)n->value.i;
  for (uint32_t k = 0; k < n->nargs; k += 2) {
    dc_scalar term;
    DC_TRY(evaluate(in, in->p.args[n->args + k], &term));
    total += (uint64_t)term.i * (uint64_t)in->p.entries[in->p.args[n->args + k + 1]].value.i;
  }
  return out->i = (int64_t)total, DC_OK;
}

static dc_status evaluate_compound(interp *in, const entry *n, dc_scalar *out) {
  dc_scalar a, b = {0};
  int64_t at;
  switch (n->op) {
    case DC_EX_READ:
      DC_TRY(locate(in, n->ref, in->p.args + n->args, &at));
      return *out = dc_scalar_load((dc_dtype)n->dtype, storage(in, n->ref), at), DC_OK;
    case DC_EX_LINEAR: return evaluate_linear(in, n, out);
    case DC_EX_PRODUCT:
      out->i = 1;
      for (uint32_t k = 0; k < n->nargs; k++) {
        DC_TRY(evaluate(in, in->p.args[n->args + k], &a));
        out->i = (int64_t)((uint64_t)out->i * (uint64_t)a.i);
      }
      return DC_OK;
    case DC_EX_SELECT:
      DC_TRY(evaluate(in, in->p.args[n->args], &a));
      return evaluate(in, in->p.args[n->args + (a.i ? 1 : 2)], out);
    default: break;
  }
  DC_TRY(evaluate(in, in->p.args[n->args], &a));
  if (n->op == DC_AND && !a.i) return out->i = 0, DC_OK;
  if (n->op == DC_OR && a.i) return out->i = 1, DC_OK;
  if (n->nargs > 1) DC_TRY(evaluate(in, in->p.args[n->args + 1], &b));
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

static dc_status evaluate_ex(interp *in, dc_ex e, dc_scalar *out) { return evaluate(in, in->p.of_ex[e] - 1, out); }

/* ---- execution ---- */

/* An operand: its lanes, or the one value that all have. */
typedef struct {
  const dc_scalar *v;
  uint32_t step;
  dc_scalar one;
} operand;

static dc_status tasklet_position(interp *in, const dc_tasklet *t, int64_t *out) {
  uint32_t index[DC_MAX_RANK];
  for (uint32_t d = 0; d < t->rank; d++) index[d] = in->p.of_ex[t->index[d]] - 1;
  return locate(in, t->out, index, out);
}

/* Adds to a sum of a type narrower than double without rounding in between: as long as memory holds what the sum so far
 * rounds to, the terms went on from there. */
static dc_status add_terms(interp *in, dc_cid c, int64_t at, operand terms, uint32_t n) {
  dc_dtype type = (dc_dtype)dc_cont(in->p.graph, c)->dtype;
  void *data = storage(in, c);
  if (!in->sums[c]) {
    int64_t size = 1;
    for (uint32_t d = 0; d < dc_cont(in->p.graph, c)->rank; d++) size += (in->dims[c][d] - 1) * in->strides[c][d];
    in->sums[c] = calloc((size_t)size, sizeof **in->sums);
    if (!in->sums[c]) return dc_error(DC_ERR_MEMORY, "out of memory");
  }
  dc_scalar sum = {.f = in->sums[c][at]}, have = dc_scalar_load(type, data, at), rounded = dc_scalar_convert(DC_F64, type, sum);
  if (memcmp(&rounded.f, &have.f, sizeof have.f) != 0) sum.f = have.f;
  for (uint32_t j = 0; j < n; j++) sum.f += terms.v[j * terms.step].f;
  in->sums[c][at] = sum.f;
  dc_scalar_store(type, data, at, dc_scalar_convert(DC_F64, type, sum));
  return DC_OK;
}

/* Combines terms, of the type in which the element's are computed, with an element, one after the other. */
static dc_status combine(interp *in, const dc_tasklet *t, int64_t at, operand terms, uint32_t n) {
  dc_dtype type = (dc_dtype)dc_cont(in->p.graph, t->out)->dtype, wide = dc_dtype_compute(type);
  dc_op prim = dc_wcr_prim((dc_wcr)t->wcr);
  void *data = storage(in, t->out);
  if (t->wcr == DC_WCR_SUM && dc_dtype_is_float(type) && type != DC_F64) return add_terms(in, t->out, at, terms, n);
  dc_scalar have = dc_scalar_load(type, data, at);
  for (uint32_t j = 0; j < n; j++) {
    have = dc_scalar_prim(prim, wide, have, terms.v[j * terms.step]);
    if (wide != type) have = dc_scalar_convert(wide, type, have);
  }
  dc_scalar_store(type, data, at, have);
  return DC_OK;
}

static dc_status run_tasklet(interp *in, dc_nid id) {
  const dc_tasklet *t = &dc_node_at(in->p.graph, id)->tasklet;
  dc_scalar guard = {.i = 1}, value;
  int64_t at;
  in->moment++; /* an earlier tasklet may have written what this one reads */
  if (t->guard) DC_TRY(evaluate_ex(in, t->guard, &guard));
  if (!guard.i) return DC_OK;
  DC_TRY(evaluate_ex(in, t->value, &value));
  DC_TRY(tasklet_position(in, t, &at));
  dc_dtype from = dc_ex_dtype(&in->p.graph->pool, t->value), to = (dc_dtype)dc_cont(in->p.graph, t->out)->dtype,
           wide = dc_dtype_compute(to);
  void *data = storage(in, t->out);
  value = dc_scalar_convert(from, t->wcr ? wide : to, value);
  if (t->wcr) return combine(in, t, at, (operand){.v = &value}, 1);
  dc_scalar_store(to, data, at, value);
  return DC_OK;
}

static dc_status run_node(interp *in, dc_nid id);
static dc_status clear_accumulators(interp *in, dc_nid map, uint32_t k);

/* Few maps are: nothing is to be looked up in a run of full ones. */
static bool is_idle(const interp *in, dc_nid map) {
  for (uint32_t k = 0; k < in->n_idle; k++)
    if (in->idle[k] == map) return true;
  return false;
}

static dc_status clear_body(interp *in, dc_nid map) {
  for (uint32_t k = 0; k < dc_node_at(in->p.graph, map)->map.body.n; k++) {
    dc_nid child = dc_node_at(in->p.graph, map)->map.body.v[k];
    const dc_node *n = dc_node_at(in->p.graph, child);
    if (n->kind == DC_NODE_MAP) {
      if (n->map.schedule != DC_MAP_REDUCE && !is_idle(in, child)) DC_TRY(clear_accumulators(in, child, 0));
      continue;
    }
    if (n->kind != DC_NODE_TASKLET || !n->tasklet.wcr) continue;
    int64_t at;
    in->moment++;
    DC_TRY(tasklet_position(in, &n->tasklet, &at));
    dc_dtype type = (dc_dtype)dc_cont(in->p.graph, n->tasklet.out)->dtype;
    double identity = dc_wcr_identity((dc_wcr)n->tasklet.wcr, type);
    dc_scalar_store(type, storage(in, n->tasklet.out), at, dc_scalar_convert(DC_F64, type, (dc_scalar){.f = identity}));
  }
  return DC_OK;
}

static void set_param(interp *in, dc_param p, int64_t value) {
  in->params[p] = value;
  /* deeper values depend on this one as well */
  for (uint32_t level = in->p.level_of[p]; level <= in->p.deepest; level++) in->versions[level]++;
  in->moment++;
}

static dc_status range(interp *in, dc_param p, int64_t *begin, int64_t *end, int64_t *step) {
  dc_scalar b, e;
  dc_parameter r = in->p.graph->pool.params.v[p];
  in->moment++;
  DC_TRY(evaluate_ex(in, r.begin, &b));
  DC_TRY(evaluate_ex(in, r.end, &e));
  *begin = b.i, *end = e.i, *step = 1;
  dc_ex_is_int(&in->p.graph->pool, r.step, step);
  return DC_OK;
}

/* Sets the elements that a REDUCE map combines into to the identity.  Only the maps inside it
 * move: its own parameters stand at their beginning, for accumulators do not depend on them. */
static dc_status clear_accumulators(interp *in, dc_nid map, uint32_t k) {
  const dc_map *m = &dc_node_at(in->p.graph, map)->map;
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

/* ---- lanes ---- */

static dc_status operand_of(interp *in, uint32_t e, uint32_t level, operand *out) {
  const entry *n = &in->p.entries[e];
  if (n->level >= level) return *out = (operand){.v = in->lanes[e], .step = 1}, DC_OK;
  *out = (operand){.v = &out->one};
  return evaluate(in, e, &out->one);
}

/* Where in a container the lanes lie. */
static dc_status locate_lanes(interp *in, dc_cid c, const uint32_t *index, uint32_t level, uint32_t n, int64_t *at) {
  uint32_t rank = dc_cont(in->p.graph, c)->rank;
  memset(at, 0, n * sizeof *at);
  for (uint32_t d = 0; d < rank; d++) {
    operand i;
    int64_t extent = in->dims[c][d], stride = in->strides[c][d];
    DC_TRY(operand_of(in, index[d], level, &i));
    for (uint32_t j = 0; j < n; j++) {
      int64_t value = i.v[j * i.step].i;
      if (value < 0 || value >= extent) return fail_index(in, c, d, value);
      at[j] += value * stride;
    }
  }
  return DC_OK;
}

static dc_status read_lanes(interp *in, const entry *e, uint32_t level, uint32_t n, dc_scalar *out) {
  int64_t at[LANES];
  const void *data = storage(in, e->ref);
  DC_TRY(locate_lanes(in, e->ref, in->p.args + e->args, level, n, at));
  if (e->dtype == DC_F32)
    for (uint32_t j = 0; j < n; j++) out[j].f = ((const float *)data)[at[j]];
  else
    for (uint32_t j = 0; j < n; j++) out[j] = dc_scalar_load((dc_dtype)e->dtype, data, at[j]);
  return DC_OK;
}

static dc_status linear_lanes(interp *in, const entry *e, uint32_t level, uint32_t n, dc_scalar *out) {
  bool product = e->op == DC_EX_PRODUCT;
  for (uint32_t j = 0; j < n; j++) out[j].i = product ? 1 : e->value.i;
  for (uint32_t k = 0; k < e->nargs; k += product ? 1 : 2) {
    operand a;
    uint64_t factor = product ? 1 : (uint64_t)in->p.entries[in->p.args[e->args + k + 1]].value.i;
    DC_TRY(operand_of(in, in->p.args[e->args + k], level, &a));
    for (uint32_t j = 0; j < n; j++) {
      uint64_t value = (uint64_t)a.v[j * a.step].i, before = (uint64_t)out[j].i;
      out[j].i = (int64_t)(product ? before * value : before + factor * value);
    }
  }
  return DC_OK;
}

static dc_scalar apply(const entry *e, dc_scalar a, dc_scalar b, dc_scalar c) {
  switch (e->op) {
    case DC_EX_SELECT: return a.i ? b : c;
    case DC_EX_CAST: return dc_scalar_convert((dc_dtype)e->arg_dtype, (dc_dtype)e->dtype, a);
    case DC_EX_BITS: return dc_scalar_bits((dc_dtype)e->arg_dtype, (dc_dtype)e->dtype, a);
    case DC_EX_IDIV: return dc_scalar_prim(DC_FLOORDIV, DC_I64, a, b);
    case DC_EX_IMOD: return dc_scalar_prim(DC_MOD, DC_I64, a, b);
    case DC_EX_IMIN: return dc_scalar_prim(DC_MIN, DC_I64, a, b);
    case DC_EX_IMAX: return dc_scalar_prim(DC_MAX, DC_I64, a, b);
    default: return dc_scalar_prim((dc_op)e->op, (dc_dtype)e->arg_dtype, a, b);
  }
}

/* The iterations that lanes go through: those of one loop, or of two, as one row after the other. */
typedef struct {
  dc_param outer, inner;
  int64_t begin[2], step[2], n[2]; /* of the outer one, which has one iteration where there is none, and the inner one */
} turns;

static void param_lanes(const turns *t, dc_param p, int64_t first, uint32_t n, dc_scalar *out) {
  int64_t row = first / t->n[1], column = first % t->n[1];
  for (uint32_t j = 0; j < n; j++) {
    out[j].i = p == t->inner ? t->begin[1] + column * t->step[1] : t->begin[0] + row * t->step[0];
    if (++column == t->n[1]) column = 0, row++;
  }
}

static dc_status evaluate_lanes(interp *in, uint32_t at, uint32_t level, const turns *t, int64_t first, uint32_t n) {
  const entry *e = &in->p.entries[at];
  dc_scalar *out = in->lanes[at];
  operand x[3] = {{.v = &(dc_scalar){.i = 0}}, {.v = &(dc_scalar){.i = 0}}, {.v = &(dc_scalar){.i = 0}}};
  if (e->op == DC_EX_READ) return read_lanes(in, e, level, n, out);
  if (e->op == DC_EX_LINEAR || e->op == DC_EX_PRODUCT) return linear_lanes(in, e, level, n, out);
  if (e->op == DC_EX_PARAM) return param_lanes(t, e->ref, first, n, out), DC_OK;
  for (uint32_t k = 0; k < e->nargs; k++) DC_TRY(operand_of(in, in->p.args[e->args + k], level, &x[k]));
  if (e->op < DC_PRIM_COUNT) dc_scalar_prims((dc_op)e->op, (dc_dtype)e->arg_dtype, x[0].v, x[0].step, x[1].v, x[1].step, n, out);
  else
    for (uint32_t j = 0; j < n; j++) out[j] = apply(e, x[0].v[j * x[0].step], x[1].v[j * x[1].step], x[2].v[j * x[2].step]);
  return DC_OK;
}

/* In the order of the iterations; those that meet in an element one after the other at once. */
static dc_status combine_lanes(interp *in, const dc_tasklet *t, const int64_t *at, operand value, uint32_t n) {
  dc_scalar terms[LANES];
  dc_dtype from = dc_ex_dtype(&in->p.graph->pool, t->value), wide = dc_dtype_compute((dc_dtype)dc_cont(in->p.graph, t->out)->dtype);
  for (uint32_t j = 0; from != wide && j < n; j++) terms[j] = dc_scalar_convert(from, wide, value.v[j * value.step]);
  if (from != wide) value = (operand){.v = terms, .step = 1};
  for (uint32_t j = 0, end; j < n; j = end) {
    for (end = j + 1; end < n && at[end] == at[j];) end++;
    DC_TRY(combine(in, t, at[j], (operand){.v = value.v + j * value.step, .step = value.step}, end - j));
  }
  return DC_OK;
}

static dc_status store_lanes(interp *in, const dc_tasklet *t, uint32_t level, uint32_t n) {
  int64_t at[LANES];
  uint32_t index[DC_MAX_RANK];
  operand value;
  dc_dtype from = dc_ex_dtype(&in->p.graph->pool, t->value), to = (dc_dtype)dc_cont(in->p.graph, t->out)->dtype;
  void *data = storage(in, t->out);
  for (uint32_t d = 0; d < t->rank; d++) index[d] = in->p.of_ex[t->index[d]] - 1;
  DC_TRY(locate_lanes(in, t->out, index, level, n, at));
  DC_TRY(operand_of(in, in->p.of_ex[t->value] - 1, level, &value));
  if (t->wcr) return combine_lanes(in, t, at, value, n);
  if (from == DC_F32 && to == DC_F32)
    for (uint32_t j = 0; j < n; j++) ((float *)data)[at[j]] = (float)value.v[j * value.step].f;
  else
    for (uint32_t j = 0; j < n; j++) dc_scalar_store(to, data, at[j], dc_scalar_convert(from, to, value.v[j * value.step]));
  return DC_OK;
}

static dc_status run_lanes(interp *in, const lane_plan *plan, const index_list *entries, uint32_t level, const turns *t) {
  int64_t total = t->n[0] * t->n[1];
  for (int64_t first = 0; first < total; first += LANES) {
    uint32_t n = total - first < LANES ? (uint32_t)(total - first) : LANES;
    set_param(in, entries == &plan->two ? t->outer : t->inner, 0);
    for (uint32_t k = 0; k < entries->n; k++) DC_TRY(evaluate_lanes(in, entries->v[k], level, t, first, n));
    DC_TRY(store_lanes(in, plan->tasklet, level, n));
  }
  return DC_OK;
}

static int64_t count(int64_t begin, int64_t end, int64_t step) { return begin < end ? (end - begin - 1) / step + 1 : 0; }

/* Runs the loops from the k-th on in lanes, where that is possible and worth while. */
static dc_status try_lanes(interp *in, dc_nid map, uint32_t k, bool *ran) {
  const dc_map *m = &dc_node_at(in->p.graph, map)->map;
  uint32_t at = in->p.lanes_of[map], loops = m->n_params - k;
  const lane_plan *plan = at ? &in->p.lanes.v[at - 1] : NULL;
  *ran = false;
  if (!plan || loops > 2 || (loops == 2 && !plan->two.n)) return DC_OK;
  turns t = {.outer = m->params[k], .inner = m->params[m->n_params - 1], .n = {1, 0}};
  int64_t end;
  DC_TRY(range(in, t.inner, &t.begin[1], &end, &t.step[1]));
  t.n[1] = count(t.begin[1], end, t.step[1]);
  if (loops == 2) {
    if (t.n[1] > LANES / 2) return DC_OK;
    DC_TRY(range(in, t.outer, &t.begin[0], &end, &t.step[0]));
    t.n[0] = count(t.begin[0], end, t.step[0]);
  }
  *ran = true;
  return run_lanes(in, plan, loops == 2 ? &plan->two : &plan->one, in->p.level_of[t.outer], &t);
}

static dc_status run_loop(interp *in, dc_nid map, uint32_t k) {
  const dc_map *m = &dc_node_at(in->p.graph, map)->map;
  if (k == m->n_params) {
    for (uint32_t j = 0; j < m->body.n; j++) DC_TRY(run_node(in, m->body.v[j]));
    return DC_OK;
  }
  bool ran;
  DC_TRY(try_lanes(in, map, k, &ran));
  if (ran) return DC_OK;
  int64_t begin, end, step;
  DC_TRY(range(in, m->params[k], &begin, &end, &step));
  for (int64_t i = begin; i < end; i += step) {
    set_param(in, m->params[k], i);
    DC_TRY(run_loop(in, map, k + 1));
  }
  return DC_OK;
}

static dc_status run_node(interp *in, dc_nid id) {
  const dc_node *n = dc_node_at(in->p.graph, id);
  if (n->kind == DC_NODE_TASKLET) return run_tasklet(in, id);
  if (n->map.schedule == DC_MAP_REDUCE) DC_TRY(clear_accumulators(in, id, 0));
  if (is_idle(in, id)) return DC_OK;
  return run_loop(in, id, 0);
}

dc_status dc_interp_run(dc_interp *prepared, void *const *buffers_by_cid, const int64_t *symbols) {
  dc_arena arena = {0};
  interp *kept = __atomic_exchange_n(&prepared->kept, NULL, __ATOMIC_ACQUIRE), *in = kept ? kept : make_room(prepared, &arena);
  begin_run(in, buffers_by_cid, symbols);
  dc_status status = run_node(in, prepared->node);
  end_run(in);
  if (kept) __atomic_store_n(&prepared->kept, kept, __ATOMIC_RELEASE);
  dc_arena_free(&arena);
  return dc_error_at(status, "node '%s'", origin(prepared->graph, prepared->node));
}

dc_status dc_interp_node(const dc_graph *graph, dc_nid node, void *const *buffers_by_cid, const int64_t *symbols) {
  dc_arena arena = {0};
  dc_interp *prepared;
  dc_status status = dc_interp_prepare(graph, node, &arena, &prepared);
  if (!status) status = dc_interp_run(prepared, buffers_by_cid, symbols);
  dc_arena_free(&arena);
  return status;
}
