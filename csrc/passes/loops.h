/* What loops.c does to one node, for the pass and for the transformations of that name. */
#ifndef DCML_PASSES_LOOPS_H
#define DCML_PASSES_LOOPS_H

#include "ir/graph.h"

/* Drops parameters that take one value, everywhere under the nodes of a state's scope, or under some; a map without any
 * left gives its place to its body, and what was a register in it becomes memory.  Returns the number of parameters dropped. */
uint32_t dc_loops_drop_trivial(dc_graph *graph, dc_scope *scope);
/* Makes the loop that walks memory with unit stride the last one of its map, under one node.
 * Returns the number of maps that changed, or are innermost and have unit stride. */
uint32_t dc_loops_order(dc_graph *graph, dc_nid node);

#endif
