/* Operands that the backward pass reads only for what results tell as well.
 *
 * The derivative of Y = tanh(X) is one of Y; and where Y = c(X) ? a : X, and the numbers that a may be meet c too, c(Y) is
 * c(X): so it is with ReLU.  If Y is kept in any case, because what follows reads it, X need not be.  Elsewhere all stays
 * as it is: to compute X again from what is kept costs less than to read one more array. */
#include "autodiff/reverse.h"

/* ---- what a statement tells ---- */

/* Without what has no value of its own: stop(), and casts that lose nothing of a number of this type. */
static dc_ex bare(const dc_pool *pool, dc_ex e, dc_dtype type) {
  for (;;) {
    dc_dtype wider = dc_ex_dtype(pool, e);
    bool same = wider == type || (dc_dtype_is_float(wider) && dc_dtype_bytes(wider) > dc_dtype_bytes(type));
    dc_op op = (dc_op)dc_ex_node(pool, e)->op;
    if (op != DC_STOP && (op != DC_EX_CAST || !same)) return e;
    e = dc_ex_arg(pool, e, 0);
  }
}

/* What becomes of an expression when b stands in it in the place of a. */
static dc_ex exchanged(dc_pool *pool, dc_ex e, dc_ex a, dc_ex b) { return dc_ex_transform(pool, e, dc_ex_exchange, &(dc_exchange){a, b}); }

typedef struct {
  dc_ex element;
  bool others;
} reads;

static void note_read(void *context, const dc_pool *pool, dc_ex e) {
  reads *r = context;
  dc_op op = (dc_op)dc_ex_node(pool, e)->op;
  if (op != DC_EX_READ || e == r->element) return;
  r->others |= r->element != 0;
  r->element = e;
}

/* The one element that an expression reads; 0: there is none, or several. */
static dc_ex only_element(const dc_pool *pool, dc_ex e) {
  reads r = {0};
  dc_ex_walk(pool, e, note_read, &r);
  return r.others ? 0 : r.element;
}

/* Is each value of a branch the element itself, or a number of which the condition says the same? */
static bool says(dc_pool *pool, dc_ex condition, dc_ex element, dc_ex e, bool wanted) {
  double number;
  int64_t answer;
  e = bare(pool, e, dc_ex_dtype(pool, element));
  if (e == element) return true;
  if (dc_ex_node(pool, e)->op == DC_EX_SELECT)
    return says(pool, condition, element, dc_ex_arg(pool, e, 1), wanted) && says(pool, condition, element, dc_ex_arg(pool, e, 2), wanted);
  if (!dc_ex_is_const(pool, e, &number)) return false;
  dc_ex value = dc_ex_cast(pool, dc_ex_dtype(pool, element), e);
  return dc_ex_is_int(pool, exchanged(pool, condition, element, value), &answer) && (answer != 0) == wanted;
}

/* Does it write all elements of its array, each at the place that the loops say? */
static bool writes_all(const dc_reverse *r, const dc_nest *nest, const dc_tasklet *t) {
  const dc_pool *pool = &r->graph->pool;
  const dc_container *c = dc_cont(r->graph, t->out);
  int64_t begin, step;
  if (nest->n_loops != t->rank) return false;
  for (uint32_t d = 0; d < t->rank; d++) {
    const dc_exnode *n = dc_ex_node(pool, t->index[d]);
    dc_parameter p = pool->params.v[nest->loops[d]];
    if (n->op != DC_EX_PARAM || n->ref != nest->loops[d] || p.end != c->shape[d]) return false;
    if (!dc_ex_is_int(pool, p.begin, &begin) || begin || !dc_ex_is_int(pool, p.step, &step) || step != 1) return false;
  }
  return true;
}

void dc_told_note(dc_reverse *r, const dc_nest *nest, const dc_tasklet *t) {
  dc_pool *pool = &r->graph->pool;
  dc_dtype type = (dc_dtype)dc_cont(r->graph, t->out)->dtype;
  dc_ex element = only_element(pool, t->value), value = bare(pool, t->value, type);
  dc_cid operand = element ? dc_ex_node(pool, element)->ref : 0;
  if (t->wcr || t->guard || r->rewritten[t->out] || !operand || operand >= r->n || !writes_all(r, nest, t)) return;
  if (dc_ex_read(pool, type, operand, t->index, t->rank) != element) return;
  if (dc_ex_node(pool, value)->op != DC_EX_SELECT) {
    if (dc_ex_dtype(pool, t->value) == type && t->value != element)
      DC_PUSH(&r->arena, &r->told, ((dc_told){operand, t->out, element, t->value, true}));
    return;
  }
  dc_ex condition = dc_ex_arg(pool, value, 0);
  if (says(pool, condition, element, dc_ex_arg(pool, value, 1), true) && says(pool, condition, element, dc_ex_arg(pool, value, 2), false))
    DC_PUSH(&r->arena, &r->told, ((dc_told){operand, t->out, element, condition, false}));
}

/* ---- where the result is as good ---- */

typedef struct {
  dc_reverse *r;
  dc_told **by; /* by operand: what tells of it; NULL: nothing does, or more is asked of it */
  DC_VEC(dc_ex) elements; /* of such operands, in one expression */
} search;

static const dc_told *told_of(const search *s, const dc_pool *pool, dc_ex e) {
  const dc_exnode *n = dc_ex_node(pool, e);
  return n->op == DC_EX_READ && n->ref < s->r->n ? s->by[n->ref] : NULL;
}

static void list_element(void *context, const dc_pool *pool, dc_ex e) {
  search *s = context;
  if (told_of(s, pool, e)) DC_PUSH(&s->r->arena, &s->elements, e);
}

enum { MOST_ELEMENTS = 16 }; /* each is looked for in the whole expression */

static dc_ex by_results(search *s, dc_ex e) {
  dc_pool *pool = &s->r->graph->pool;
  s->elements.n = 0;
  dc_ex_walk(pool, e, list_element, s);
  for (uint32_t k = 0; k < s->elements.n && s->elements.n <= MOST_ELEMENTS; k++) {
    dc_ex element = s->elements.v[k], index[DC_MAX_RANK];
    const dc_told *t = told_of(s, pool, element);
    dc_exnode n = *dc_ex_node(pool, element);
    for (uint32_t d = 0; d < n.nargs; d++) index[d] = dc_ex_arg(pool, element, d);
    dc_ex result = dc_ex_read(pool, (dc_dtype)n.dtype, t->result, index, n.nargs);
    dc_ex asked = exchanged(pool, t->asked, t->element, element);
    e = exchanged(pool, e, asked, t->is_result ? result : exchanged(pool, asked, element, result));
  }
  return e;
}

static void lose_operand(void *context, const dc_pool *pool, dc_ex e) {
  const search *s = context;
  if (told_of(s, pool, e)) s->by[dc_ex_node(pool, e)->ref] = NULL;
}

static void look_at(search *s, dc_ex e) {
  if (e) dc_ex_walk(&s->r->graph->pool, by_results(s, e), lose_operand, s);
}

/* A tasklet writes once; what else uses an array may want all of it. */
static void look_at_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  search *s = context;
  const dc_node *n = dc_node_at(s->r->graph, by);
  dc_cid root = dc_container_root(s->r->graph, c);
  if (n->kind != DC_NODE_TASKLET) {
    if (root < s->r->n) s->by[root] = NULL;
  } else if (use == DC_USE_WRITE) {
    dc_tasklet t = n->tasklet;
    look_at(s, t.value), look_at(s, t.guard);
    for (uint32_t d = 0; d < t.rank; d++) look_at(s, t.index[d]);
  }
}

static void use_results(void *context, dc_cid c, dc_use use, dc_nid by) {
  search *s = context;
  (void)c;
  if (use != DC_USE_WRITE || dc_node_at(s->r->graph, by)->kind != DC_NODE_TASKLET) return;
  dc_tasklet t = dc_node_at(s->r->graph, by)->tasklet;
  for (uint32_t d = 0; d < t.rank; d++) t.index[d] = by_results(s, t.index[d]);
  t.value = by_results(s, t.value), t.guard = t.guard ? by_results(s, t.guard) : 0;
  dc_node_at(s->r->graph, by)->tasklet = t;
}

typedef struct {
  const dc_graph *graph;
  dc_use use;
  bool *whole; /* by container: an operator uses it so, not a statement */
} operators;

static void note_operator(void *context, dc_cid c, dc_use use, dc_nid by) {
  const operators *o = context;
  if (use == o->use && dc_node_at(o->graph, by)->kind == DC_NODE_LIBRARY) o->whole[c] = true;
}

static bool *by_operators(dc_reverse *r, const dc_scope *nodes, dc_use use) {
  operators o = {r->graph, use, DC_NEW_ARRAY(&r->arena, bool, r->graph->containers.n)};
  for (uint32_t k = 0; k < nodes->n; k++) dc_node_uses(r->graph, nodes->v[k], note_operator, &o);
  return o.whole;
}

/* Kept, or computed again as a whole array. */
static void choose(search *s, const dc_keep_problem *p, const bool *store) {
  bool least = p->strategy == DC_KEEP_LEAST;
  const bool *made = by_operators(s->r, p->forward, DC_USE_WRITE), *wanted = by_operators(s->r, p->adjoint, DC_USE_READ);
  for (uint32_t k = 0; k < s->r->told.n; k++) {
    dc_told *t = &s->r->told.v[k];
    if (dc_cont(p->graph, t->operand)->alias_of || dc_cont(p->graph, t->result)->alias_of || s->by[t->operand]) continue;
    if ((store[t->operand] || (least && made[t->operand])) && (store[t->result] || (least && wanted[t->result]))) s->by[t->operand] = t;
  }
}

bool dc_told_use(dc_reverse *r, const dc_keep_problem *p, const bool *store) {
  search s = {.r = r, .by = DC_NEW_ARRAY(&r->arena, dc_told *, r->n)};
  bool any = false;
  choose(&s, p, store);
  for (uint32_t k = 0; k < p->adjoint->n; k++) dc_node_uses(r->graph, p->adjoint->v[k], look_at_use, &s);
  for (uint32_t k = 0; k < r->told.n; k++) any |= s.by[r->told.v[k].operand] != NULL;
  for (uint32_t k = 0; k < p->adjoint->n && any; k++) dc_node_uses(r->graph, p->adjoint->v[k], use_results, &s);
  return any;
}
