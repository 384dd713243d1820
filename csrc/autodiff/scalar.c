/* Derivatives of one scalar expression with respect to the elements that it reads.
 *
 * Reverse accumulation over the DAG.  A SELECT puts its condition on the path and never
 * multiplies by it, so that a branch not taken cannot bring in 0*inf. */
#include <string.h>

#include "autodiff/reverse.h"

typedef struct {
  dc_ex coefficient, guard;
} path;
typedef DC_VEC(path) paths;

typedef struct {
  dc_reverse *r;
  DC_VEC(dc_ex) order; /* children first */
  paths *adjoint;      /* by position in order */
  uint32_t *slots, n_slots; /* a table of 1 + position, by expression; 0: empty */
  dc_ex value, result; /* the whole expression, and where its value can be read; 0: nowhere */
} sweep;

static void list_node(void *context, const dc_pool *pool, dc_ex e) {
  sweep *s = context;
  (void)pool;
  DC_PUSH(&s->r->arena, &s->order, e);
}

/* The slot of an expression, or the empty one where it belongs. */
static uint32_t *slot_of(const sweep *s, dc_ex e) {
  uint32_t at = (e * 2654435769u) >> 4 & (s->n_slots - 1);
  while (s->slots[at] && s->order.v[s->slots[at] - 1] != e) at = (at + 1) & (s->n_slots - 1);
  return &s->slots[at];
}

/* Gradients of small floats are of the compute type until a container rounds them: they are sums of many terms. */
static void add_path(sweep *s, dc_ex e, dc_ex coefficient, dc_ex guard) {
  dc_pool *pool = &s->r->graph->pool;
  dc_dtype type = dc_ex_dtype(pool, e);
  if (!dc_dtype_is_float(type)) return;
  paths *list = &s->adjoint[*slot_of(s, e) - 1];
  coefficient = dc_ex_cast(pool, dc_dtype_compute(type), coefficient);
  for (uint32_t k = 0; k < list->n; k++)
    if (list->v[k].guard == guard) {
      list->v[k].coefficient = dc_ex_prim2(pool, DC_ADD, list->v[k].coefficient, coefficient);
      return;
    }
  DC_PUSH(&s->r->arena, list, ((path){coefficient, guard}));
}

/* coefficient * derivative, without multiplying by one. */
static dc_ex scaled(dc_pool *pool, dc_ex coefficient, dc_ex derivative) {
  double value;
  if (dc_ex_is_const(pool, derivative, &value) && value == -1) return dc_ex_prim1(pool, DC_NEG, coefficient);
  return dc_ex_prim2(pool, DC_MUL, coefficient, derivative);
}

static dc_status through_prim(sweep *s, dc_ex e, path p) {
  dc_pool *pool = &s->r->graph->pool;
  dc_exnode node = *dc_ex_node(pool, e);
  static const char *const names[] = {"a", "b", "y"};
  dc_ex a = dc_ex_arg(pool, e, 0), b = node.nargs > 1 ? dc_ex_arg(pool, e, 1) : a,
        values[3] = {a, b, s->result && e == s->value ? s->result : e};
  for (uint32_t k = 0; k < node.nargs; k++) {
    const char *text = dc_prims[node.op].derivative[k];
    dc_ex argument = k ? b : a, derivative;
    if (!*text || !dc_dtype_is_float(dc_ex_dtype(pool, argument))) continue;
    DC_TRY(dc_lang_scalar(s->r->ops, s->r->graph, text, names, values, 3, &derivative));
    add_path(s, argument, scaled(pool, p.coefficient, dc_ex_cast(pool, dc_ex_dtype(pool, p.coefficient), derivative)), p.guard);
  }
  return DC_OK;
}

static dc_status through(sweep *s, dc_ex e, path p) {
  dc_pool *pool = &s->r->graph->pool;
  dc_exnode node = *dc_ex_node(pool, e);
  if (node.op == DC_EX_CAST) return add_path(s, dc_ex_arg(pool, e, 0), p.coefficient, p.guard), DC_OK;
  if (node.op == DC_EX_SELECT) {
    dc_ex condition = dc_ex_arg(pool, e, 0);
    add_path(s, dc_ex_arg(pool, e, 1), p.coefficient, dc_ex_and(pool, p.guard, condition));
    add_path(s, dc_ex_arg(pool, e, 2), p.coefficient, dc_ex_and(pool, p.guard, dc_ex_prim1(pool, DC_NOT, condition)));
    return DC_OK;
  }
  return node.op < DC_PRIM_COUNT && node.op != DC_STOP ? through_prim(s, e, p) : DC_OK;
}

/* Several paths to one read become a sum of guarded terms: one statement. */
static dc_partial merged(dc_pool *pool, dc_ex read, const paths *list) {
  dc_partial out = {read, list->v[0].coefficient, list->v[0].guard};
  if (list->n == 1) return out;
  dc_ex zero = dc_ex_const(pool, dc_ex_dtype(pool, out.coefficient), 0), total = 0, any = dc_ex_bool(pool, false);
  for (uint32_t k = 0; k < list->n; k++) {
    dc_ex term = list->v[k].guard ? dc_ex_select(pool, list->v[k].guard, list->v[k].coefficient, zero) : list->v[k].coefficient;
    total = total ? dc_ex_prim2(pool, DC_ADD, total, term) : term;
    any = dc_ex_prim2(pool, DC_OR, any, list->v[k].guard ? list->v[k].guard : dc_ex_bool(pool, true));
  }
  int64_t always; /* where no path leads, the element may not even exist */
  return (dc_partial){read, total, dc_ex_is_int(pool, any, &always) && always ? 0 : any};
}

dc_status dc_scalar_partials(dc_reverse *r, dc_ex value, dc_ex result, dc_ex seed, dc_partials *out) {
  dc_pool *pool = &r->graph->pool;
  sweep s = {.r = r, .value = value, .result = result};
  if (!dc_dtype_is_float(dc_ex_dtype(pool, value))) return DC_OK;
  dc_ex_walk(pool, value, list_node, &s);
  s.adjoint = DC_NEW_ARRAY(&r->arena, paths, s.order.n);
  for (s.n_slots = 8; s.n_slots < 2 * s.order.n;) s.n_slots *= 2;
  s.slots = DC_NEW_ARRAY(&r->arena, uint32_t, s.n_slots);
  for (uint32_t k = 0; k < s.order.n; k++) *slot_of(&s, s.order.v[k]) = k + 1;
  add_path(&s, value, seed, 0);
  for (uint32_t k = s.order.n; k-- > 0;) {
    dc_ex e = s.order.v[k];
    bool read = dc_ex_node(pool, e)->op == DC_EX_READ;
    dc_cid c = read ? dc_ex_node(pool, e)->ref : 0;
    if (read && c < r->n && r->active[c] && s.adjoint[k].n) DC_PUSH(&r->arena, out, merged(pool, e, &s.adjoint[k]));
    for (uint32_t j = 0; j < s.adjoint[k].n && !read; j++) DC_TRY(through(&s, e, s.adjoint[k].v[j]));
  }
  return DC_OK;
}
