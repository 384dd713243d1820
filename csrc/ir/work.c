/* See work.h. */
#include "ir/work.h"

/* Loading an element of a stream; arithmetic on indices, choices and conversions cost as much as an addition. */
static const double READ_COST = 0.15, SIMPLE_COST = 0.03;
/* Vectors hold half as many f64, and functions of them are not approximated in vectors. */
static const double WIDE_FACTOR = 2, WIDE_FUNCTION_FACTOR = 20;

double dc_ex_cost(const dc_pool *pool, dc_ex e) {
  const dc_exnode *node = dc_ex_node(pool, e);
  switch (node->op) {
    case DC_EX_INT: case DC_EX_FLOAT: case DC_EX_SYM: case DC_EX_PARAM: return 0;
    default: break;
  }
  double cost = node->op == DC_EX_READ ? READ_COST : node->op < DC_PRIM_COUNT ? dc_prims[node->op].cost : SIMPLE_COST;
  if (node->dtype != DC_F64) return cost;
  return cost * (node->op >= DC_EXP && node->op <= DC_SOFTPLUS ? WIDE_FUNCTION_FACTOR : WIDE_FACTOR);
}
