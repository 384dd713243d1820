/* Blocking flows (Dinic): all shortest paths are filled before the next search, so the number of searches is that of
 * different path lengths, and not of paths.  Networks here have many paths, and most are a handful of arcs long. */
#include "autodiff/flow.h"

#include <string.h>

void dc_flow_init(dc_flow *flow, dc_arena *arena, uint32_t vertices) {
  *flow = (dc_flow){.arena = arena, .n = vertices};
  flow->first = DC_NEW_ARRAY(arena, uint32_t, vertices);
  flow->level = DC_NEW_ARRAY(arena, uint32_t, vertices);
  flow->queue = DC_NEW_ARRAY(arena, uint32_t, vertices);
  flow->left = DC_NEW_ARRAY(arena, uint32_t, vertices);
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
  memset(flow->level, 0, flow->n * sizeof *flow->level);
  flow->level[source] = 1;
  flow->queue[tail++] = source;
  while (head < tail) {
    uint32_t v = flow->queue[head++];
    for (uint32_t a = flow->first[v]; a; a = flow->arcs.v[a].next) {
      uint32_t to = flow->arcs.v[a].to;
      if (!flow->arcs.v[a].room || flow->level[to]) continue;
      flow->level[to] = flow->level[v] + 1;
      if (to == sink) return true;
      flow->queue[tail++] = to;
    }
  }
  return false;
}

/* Fills a path, given by its arcs, and returns how many of them lie before the first that is full now. */
static uint32_t fill(dc_flow *flow, const uint32_t *path, uint32_t n) {
  int64_t room = INT64_MAX;
  uint32_t kept = 0;
  for (uint32_t k = 0; k < n; k++)
    if (flow->arcs.v[path[k]].room < room) room = flow->arcs.v[path[k]].room, kept = k;
  for (uint32_t k = 0; k < n; k++) {
    flow->arcs.v[path[k]].room -= room;
    flow->arcs.v[path[k] ^ 1].room += room;
  }
  return kept;
}

/* Does the arc, out of v, lead one level on? */
static bool leads_on(const dc_flow *flow, uint32_t v, uint32_t a) {
  return flow->arcs.v[a].room && flow->level[flow->arcs.v[a].to] == flow->level[v] + 1;
}

/* Depth first along arcs that lead one level on; `left` is where each vertex goes on looking.  The queue is free by now
 * and holds the path. */
static void fill_shortest(dc_flow *flow, uint32_t source, uint32_t sink) {
  uint32_t *path = flow->queue, n = 0, v = source;
  memcpy(flow->left, flow->first, flow->n * sizeof *flow->left);
  for (;;) {
    if (v == sink) {
      n = fill(flow, path, n);
      v = flow->arcs.v[path[n] ^ 1].to;
      continue;
    }
    uint32_t a = flow->left[v];
    while (a && !leads_on(flow, v, a)) a = flow->arcs.v[a].next;
    flow->left[v] = a;
    if (a) {
      path[n++] = a;
      v = flow->arcs.v[a].to;
    } else if (n) {
      v = flow->arcs.v[path[--n] ^ 1].to;
      flow->left[v] = flow->arcs.v[path[n]].next;
    } else {
      return;
    }
  }
}

void dc_flow_solve(dc_flow *flow, uint32_t source, uint32_t sink) {
  while (search(flow, source, sink)) fill_shortest(flow, source, sink);
}

bool dc_flow_reaches(const dc_flow *flow, uint32_t vertex) { return flow->level[vertex]; }
