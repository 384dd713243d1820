/* A library node replaced by the contents of another graph. */
#ifndef DCML_IR_REPLACE_H
#define DCML_IR_REPLACE_H

#include "ir/graph.h"

/* Puts copies of all nodes of `inner`, state after state, in the place of a library node of `graph`.  map[c] is the
 * container of `graph` that stands for container c of `inner`, 0: a copy of it, under a fresh name.  Symbols are the same
 * by name.  Nodes without an origin get the replaced operator's.
 * Errors: DC_ERR_DTYPE, DC_ERR_SHAPE where a container and what stands for it differ, DC_ERR_MODEL for an argument of
 * `inner` that nothing stands for, DC_ERR_UNSUPPORTED for what cannot be copied; the graph is then as before, but for
 * containers that nobody uses. */
DC_MUST_USE dc_status dc_node_replace(dc_graph *graph, dc_nid node, const dc_graph *inner, const dc_cid *map);

#endif
