/* Operators in the bodies of maps: where they are, and what becomes of the maps around one that is taken apart. */
#ifndef DCML_IR_INSIDE_H
#define DCML_IR_INSIDE_H

#include "ir/graph.h"

/* The way to a node: maps around it, outermost first, and its position in the scope of the innermost, or of the state. */
typedef struct {
  uint32_t state, at, n_maps;
  dc_nid maps[DC_MAX_LOOPS];
} dc_place;

bool dc_node_place(const dc_graph *graph, dc_nid node, dc_place *out); /* false: it is in no state */
dc_scope *dc_place_scope(dc_graph *graph, const dc_place *place);      /* until nodes are added */

/* The map's iterations run one after the other from now on, so that they may share arrays; a loop of its own for each
 * parameter.  Error: DC_ERR_UNSUPPORTED for a reduction. */
DC_MUST_USE dc_status dc_map_run_in_order(dc_graph *graph, dc_nid map);

#endif
