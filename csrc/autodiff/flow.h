/* Maximum flow and minimum cut of a network whose augmenting paths are short. */
#ifndef DCML_AUTODIFF_FLOW_H
#define DCML_AUTODIFF_FLOW_H

#include <stdbool.h>

#include "base/arena.h"

typedef struct {
  uint32_t to, next; /* next: the following arc of the same vertex, 0 at the end */
  int64_t room;
} dc_arc;

typedef struct {
  dc_arena *arena;
  DC_VEC(dc_arc) arcs; /* arcs come in pairs k, k^1: there and back; the first pair is unused */
  uint32_t *first;     /* by vertex */
  uint32_t *level;     /* by vertex: 1 + distance from the source in the last search, 0 if that did not reach it */
  uint32_t *left;      /* by vertex: the first arc that may still lead to the sink */
  uint32_t *queue;
  uint32_t n;
} dc_flow;

void dc_flow_init(dc_flow *flow, dc_arena *arena, uint32_t vertices);
void dc_flow_edge(dc_flow *flow, uint32_t from, uint32_t to, int64_t capacity);
/* Every path from source to sink must hold a capacity that is not meant to be infinite. */
void dc_flow_solve(dc_flow *flow, uint32_t source, uint32_t sink);
/* After solving: is the vertex on the source's side of the minimum cut? */
bool dc_flow_reaches(const dc_flow *flow, uint32_t vertex);

#endif
