/* The buffers of a kernel: what its node touches, in order of first use. */
#include "backends/backend.h"

typedef struct {
  const dc_graph *graph;
  dc_cid *out;
  uint32_t n, capacity;
} collector;

static void collect(void *context, dc_cid container, dc_use use, dc_nid by) {
  collector *c = context;
  (void)use, (void)by;
  if (dc_cont(c->graph, container)->storage == DC_STORE_REGISTER) return;
  for (uint32_t k = 0; k < c->n && k < c->capacity; k++)
    if (c->out[k] == container) return;
  if (c->n < c->capacity) c->out[c->n] = container;
  c->n++;
}

uint32_t dc_kernel_buffers(const dc_graph *graph, dc_nid node, dc_cid *out, uint32_t capacity) {
  collector c = {graph, out, 0, capacity};
  dc_node_uses(graph, node, collect, &c);
  return c.n; /* with too small a capacity: an upper bound */
}
