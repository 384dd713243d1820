/* Reciprocals: what all iterations of a loop divide by is inverted once, before the loop.
 *
 *     parallel j { Y[j] = X[j] / S[0] }   becomes   parallel j { Y[j] = X[j] * (1 / S[0]) }
 *
 * An f32 quotient may be two units off in its last place; one that is rounded to a whole number, or compared, stays. */
#include "backends/kernel/kernel.h"

typedef struct {
  dc_kernel *k;
  const dc_loop *loop; /* innermost */
} search;

static dc_ex invert(void *context, dc_pool *pool, dc_ex x) {
  const search *s = context;
  const dc_exnode node = *dc_ex_node(pool, x);
  if (node.op != DC_DIV || node.dtype != DC_F32) return x;
  dc_ex a = dc_ex_arg(pool, x, 0), b = dc_ex_arg(pool, x, 1);
  dc_dependence above = dc_kernel_dependence(s->k, a), below = dc_kernel_dependence(s->k, b);
  bool outside = below.level < s->loop->depth && below.safe && !(below.reads & s->loop->writes) && dc_ex_node(pool, b)->op != DC_EX_FLOAT;
  bool changes = above.level >= s->loop->depth || (above.reads & s->loop->writes);
  if (!outside || !changes) return x;
  return dc_ex_prim2(pool, DC_MUL, a, dc_ex_prim2(pool, DC_DIV, dc_ex_const(pool, DC_F32, 1), b));
}

/* Of what has a quotient in it, the last place may show in a comparison, and where it becomes a whole number. */
static void note_exact(void *context, const dc_pool *pool, dc_ex x) {
  const dc_exnode *node = dc_ex_node(pool, x);
  bool shows = node->op >= DC_LT && node->op <= DC_NE;
  shows |= node->op == DC_FLOOR || node->op == DC_CEIL || node->op == DC_ROUND || node->op == DC_TRUNC || node->op == DC_FLOORDIV;
  shows |= node->op == DC_EX_CAST && !dc_dtype_is_float((dc_dtype)node->dtype);
  for (uint32_t k = 0; shows && k < node->nargs; k++) *(bool *)context |= dc_ex_uses_op(pool, dc_ex_arg(pool, x, k), DC_DIV);
}

static void visit(dc_kernel *k, dc_loop *l) {
  if (dc_loop_has_loops(l) || !(l->on_team || (l->on_grid && l->pack))) return;
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_write *w = l->body.v[j].write;
    bool exact = false;
    dc_ex_walk(k->pool, w->value, note_exact, &exact);
    if (!exact) w->value = dc_ex_transform(k->pool, w->value, invert, &(search){k, l});
  }
}

void dc_kernel_reciprocals(dc_kernel *k) { dc_kernel_each_loop(k, k->root, visit); }
