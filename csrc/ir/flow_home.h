/* Where containers are used: the innermost map that holds all uses of a buffer. */
#ifndef DCML_IR_FLOW_HOME_H
#define DCML_IR_FLOW_HOME_H

#include "ir/graph.h"

typedef struct {
  const dc_graph *graph;
  dc_nid *home;    /* by buffer: 1 + that map, 1: it is used in a state, 0: no use yet */
  dc_nid *parent;  /* by map: the map around, or 0 */
  uint32_t *level; /* by map */
} dc_homes;

void dc_homes_start(dc_homes *homes, const dc_graph *graph, dc_arena *arena);
/* Adds what a state's scope uses. */
void dc_homes_add(dc_homes *homes, const dc_scope *scope);
/* Is the container's buffer temporary and nowhere used but in the map? */
bool dc_homes_is_local(const dc_homes *homes, dc_cid c, dc_nid map);

#endif
