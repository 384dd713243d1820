/* Crossings: where neighbouring threads of a grid write neighbours, but read what lies apart, while another loop of the grid would
 * read it side by side, both loops run in tiles.  A block reads a tile along the one loop into memory that its threads share, and
 * takes it from there along the other:
 *
 *     parallel i in 0:m grid { also j in 0:n grid { Y[n*i + j] = X[m*j + i] } }   becomes
 *     parallel i in 0:m grid tile(32) { also j in 0:n grid { .. } } */
#include "backends/kernel/kernel.h"

enum { SHORT = 16, NEAR = 8 }; /* iterations that do not pay for a tile; elements apart that lines of a cache bear */

static bool steps_by(const dc_kernel *k, dc_ex address, const dc_loop *l, int64_t *step) {
  dc_ex factor, rest;
  if (!dc_ex_uses_param(k->pool, address, l->param)) return false;
  return dc_ix_split(k->pool, address, l->param, &factor, &rest) && dc_ex_is_int(k->pool, factor, step);
}

bool dc_read_is_crossing(const dc_kernel *k, const dc_loop *tile, const dc_loop *last, dc_ex read) {
  const dc_exnode *node = dc_ex_node(k->pool, read);
  int64_t along = 0, across = INT64_MAX;
  if (node->op != DC_EX_READ || node->nargs > 1) return false;
  if (dc_kernel_is_register(k, node->ref) || (k->bits[node->ref] & k->root->writes)) return false;
  dc_ex address = dc_read_address(k, read);
  if (dc_ex_uses_op(k->pool, address, DC_EX_READ) || !dc_ex_uses_param(k->pool, address, last->param)) return false;
  (void)steps_by(k, address, last, &across); /* by a symbol: far */
  return steps_by(k, address, tile, &along) && along == 1 && (across >= NEAR || across <= -NEAR);
}

typedef struct {
  const dc_kernel *k;
  const dc_loop *tile, *last;
  uint32_t n;
} crossing_count;

static void count(void *context, const dc_pool *pool, dc_ex read) {
  crossing_count *c = context;
  (void)pool;
  c->n += dc_read_is_crossing(c->k, c->tile, c->last, read);
}

static uint32_t crossings(const dc_kernel *k, const dc_loop *tile, const dc_loop *last) {
  crossing_count c = {k, tile, last, 0};
  for (uint32_t j = 0; j < k->writes.n; j++) {
    dc_kernel_each_read(k, k->writes.v[j]->value, count, &c);
    if (k->writes.v[j]->guard) dc_kernel_each_read(k, k->writes.v[j]->guard, count, &c);
  }
  return c.n;
}

static bool is_long(dc_kernel *k, const dc_loop *l) {
  int64_t extent = dc_loop_extent(k, l);
  return (extent < 0 || extent >= SHORT) && l->step == 1 && dc_kernel_is_number(k, l->begin, 0);
}

bool dc_kernel_may_tile(dc_kernel *k, const dc_loop *tile, const dc_loop *last) {
  int64_t step;
  if (k->grid.team != 1 || k->grid.slices || tile == last || !tile->on_grid || !last->on_grid) return false;
  if (dc_loop_has_loops(last) || last->pack) return false;
  if (!is_long(k, tile) || !is_long(k, last) || !dc_loop_is_inside(last, tile)) return false;
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    bool plain = !w->wcr && !dc_kernel_is_register(k, w->out) && !dc_read_check(k, w->element) && w->parent == last;
    if (!plain || !steps_by(k, dc_read_address(k, w->element), last, &step) || step != 1) return false;
  }
  return k->writes.n > 0;
}

void dc_kernel_crossings(dc_kernel *k) {
  const dc_loop *last = dc_loop_only(k->root);
  dc_loop *best = NULL;
  if (last) last = dc_loop_last_on_grid(last);
  uint32_t most = 0;
  for (dc_loop *l = last ? last->parent : NULL; l && l != k->root; l = l->parent) {
    uint32_t n = dc_kernel_may_tile(k, l, last) ? crossings(k, l, last) : 0;
    if (n > most) most = n, best = l;
  }
  if (best) best->tile = DC_TILE;
}
