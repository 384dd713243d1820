/* Values that shapes are made of: integer tensors small enough to be followed symbolically. */
#ifndef DCML_OPS_KNOWN_H
#define DCML_OPS_KNOWN_H

#include "ops/ops.h"

/* If all inputs of an inferred node are known (constants or `known`), evaluates its expansion
 * element by element and sets `known` of its small integer and bool outputs. */
DC_MUST_USE dc_status dc_known_propagate(dc_ops *ops, dc_graph *graph, dc_nid node);

/* The index, without its reads of memory where what they read is known and lies inside the extent; else as it is. */
dc_ex dc_known_index(dc_graph *graph, dc_ex index, dc_ex extent);

#endif
