/* The buffers of a kernel: what its node touches, in order of first use. */
#include "backends/backend.h"

typedef struct {
  const dc_graph *graph;
  dc_arena *arena;
  DC_VEC(dc_cid) found;
} collector;

static void collect(void *context, dc_cid container, dc_use use, dc_nid by) {
  collector *c = context;
  (void)use, (void)by;
  if (dc_cont(c->graph, container)->storage == DC_STORE_REGISTER) return;
  for (uint32_t k = 0; k < c->found.n; k++)
    if (c->found.v[k] == container) return;
  DC_PUSH(c->arena, &c->found, container);
}

const dc_cid *dc_kernel_buffers(const dc_graph *graph, dc_nid node, dc_arena *arena, uint32_t *n) {
  collector c = {.graph = graph, .arena = arena};
  dc_node_uses(graph, node, collect, &c);
  *n = c.found.n;
  return c.found.v;
}
