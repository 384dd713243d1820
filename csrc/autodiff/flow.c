/* Shortest augmenting paths (Edmonds and Karp): networks here have a few thousand vertices, and
 * most paths are a handful of arcs long. */
#include "autodiff/flow.h"

#include <string.h>

void dc_flow_init(dc_flow *flow, dc_arena *arena, uint32_t vertices) {
  *flow = (dc_flow){.arena = arena, .n = vertices};
  flow->first = DC_NEW_ARRAY(arena, uint32_t, vertices);
  flow->by = DC_NEW_ARRAY(arena, uint32_t, vertices);
  flow->queue = DC_NEW_ARRAY(arena, uint32_t, vertices);
  for (int k = 0; k < 2; k++) DC_PUSH(arena, &flow->arcs, (dc_arc){0});
}

static void add_arc(dc_flow *flow, uint32_t from, uint32_t to, int64_t room) {
  DC_PUSH(flow->arena, &flow->arcs, ((dc_arc){to, flow->first[from], room}));
  flow->first[from] = flow->arcs.n - 1;
}

void dc_flow_edge(dc_flow *flow, uint32_t from, uint32_t to, int64_t capacity) {
  add_arc(flow, from, to, capacity);
  add_arc(flow, to, from, 0);
}

/* Breadth first through arcs with room; true when the sink was reached. */
static bool search(dc_flow *flow, uint32_t source, uint32_t sink) {
  uint32_t head = 0, tail = 0;
  memset(flow->by, 0, flow->n * sizeof *flow->by);
  flow->queue[tail++] = source;
  while (head < tail) {
    uint32_t v = flow->queue[head++];
    for (uint32_t a = flow->first[v]; a; a = flow->arcs.v[a].next) {
      uint32_t to = flow->arcs.v[a].to;
      if (!flow->arcs.v[a].room || flow->by[to] || to == source) continue;
      flow->by[to] = a;
      if (to == sink) return true;
      flow->queue[tail++] = to;
    }
  }
  return false;
}

void dc_flow_solve(dc_flow *flow, uint32_t source, uint32_t sink) {
  flow->source = source;
  while (search(flow, source, sink)) {
    int64_t room = INT64_MAX;
    for (uint32_t v = sink; v != source; v = flow->arcs.v[flow->by[v] ^ 1].to)
      if (flow->arcs.v[flow->by[v]].room < room) room = flow->arcs.v[flow->by[v]].room;
    for (uint32_t v = sink; v != source; v = flow->arcs.v[flow->by[v] ^ 1].to) {
      flow->arcs.v[flow->by[v]].room -= room;
      flow->arcs.v[flow->by[v] ^ 1].room += room;
    }
  }
}

bool dc_flow_reaches(const dc_flow *flow, uint32_t vertex) { return vertex == flow->source || flow->by[vertex]; }
