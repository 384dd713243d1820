/* Operators in the bodies of maps: where they are, and what becomes of the maps around one that is taken apart. */
#ifndef DCML_IR_INSIDE_H
#define DCML_IR_INSIDE_H

#include "ir/graph.h"

/* The way to a node: maps around it, outermost first, and its position in the scope of the innermost, or of the state. */
typedef struct {
  uint32_t state, at, n_maps;
  dc_nid maps[DC_MAX_LOOPS];
} dc_way;

bool dc_node_way(const dc_graph *graph, dc_nid node, dc_way *out); /* false: it is in no state */
dc_scope *dc_way_scope(dc_graph *graph, const dc_way *way);      /* until nodes are added */

/* The map's iterations run one after the other from now on, so that they may share arrays; a loop of its own for each
 * parameter.  Error: DC_ERR_UNSUPPORTED for a reduction. */
DC_MUST_USE dc_status dc_map_run_in_order(dc_graph *graph, dc_nid map);

bool dc_graph_uses_symbol(dc_graph *graph, dc_sym symbol); /* in nodes, shapes or equal extents */
/* All nodes of these states, in this order, become the body of a map that is the last node of the first of them, and has no
 * body yet; `symbol` (0: none) is its parameter there.  Error: DC_ERR_UNSUPPORTED names an array whose shape uses the symbol. */
DC_MUST_USE dc_status dc_states_enclose(dc_graph *graph, const uint32_t *states, uint32_t n, dc_sym symbol);

#endif
