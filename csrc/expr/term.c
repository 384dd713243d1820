/* Terms of two operands, of which sums can be made in tiles. */
#include "expr/expr.h"

dc_term dc_ex_term(const dc_pool *pool, dc_ex e, dc_ex *a, dc_ex *b) {
  const dc_op op = (dc_op)dc_ex_node(pool, e)->op;
  if (op != DC_MUL && op != DC_ABS) return DC_TERM_NONE;
  const dc_ex first = dc_ex_arg(pool, e, 0), second = op == DC_MUL ? dc_ex_arg(pool, e, 1) : first;
  const bool is_gap = first == second && dc_ex_node(pool, first)->op == DC_SUB;
  if (op == DC_ABS && !is_gap) return DC_TERM_NONE;
  *a = is_gap ? dc_ex_arg(pool, first, 0) : first, *b = is_gap ? dc_ex_arg(pool, first, 1) : second;
  return !is_gap ? DC_TERM_PRODUCT : op == DC_MUL ? DC_TERM_SQUARE : DC_TERM_GAP;
}

dc_ex dc_ex_of_term(dc_pool *pool, dc_term term, dc_ex a, dc_ex b) {
  if (term == DC_TERM_PRODUCT) return dc_ex_prim2(pool, DC_MUL, a, b);
  const dc_ex gap = dc_ex_prim2(pool, DC_SUB, a, b);
  return term == DC_TERM_SQUARE ? dc_ex_prim2(pool, DC_MUL, gap, gap) : dc_ex_prim1(pool, DC_ABS, gap);
}
