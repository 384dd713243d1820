/* The price list: what computing costs, in nanoseconds of a vectorised loop.
 *
 * Prices are compared with one another - computing again with storing, a loop with the start of threads - never with a
 * clock, so it is their ratios that matter. */
#ifndef DCML_IR_WORK_H
#define DCML_IR_WORK_H

#include "ir/graph.h"

/* Of an expression by itself, without what it is computed from. */
double dc_ex_cost(const dc_pool *pool, dc_ex e);

#endif
