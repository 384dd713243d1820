/* A library node replaced by the contents of another graph. */
#ifndef DCML_IR_REPLACE_H
#define DCML_IR_REPLACE_H

#include "ir/flow.h"

/* Inlines `inner` (dc_graph_inline) in the place of a library node of `graph`.  map[c] is the container of `graph` that stands
 * for container c of `inner`, 0: a new one.  Maps and tasklets without an origin get the operator's.
 * Errors: DC_ERR_DTYPE, DC_ERR_SHAPE where a container and what stands for it differ, and those of dc_graph_inline; the graph
 * is then as before, but for containers that nobody uses. */
DC_MUST_USE dc_status dc_node_replace(dc_graph *graph, dc_nid node, const dc_graph *inner, const dc_cid *map);

#endif
