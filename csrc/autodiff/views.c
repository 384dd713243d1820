/* Views: containers that are another's elements under another shape.
 *
 * Gradients of a view are collected under its own shape, and join those of its base before what writes the base is
 * reversed.  Nothing writes through a view of a graph that is differentiated. */
#include "autodiff/reverse.h"

void dc_views_find(dc_reverse *r) {
  for (dc_cid c = 1; c < r->n; c++)
    if (dc_cont(r->graph, c)->alias_of) DC_PUSH(&r->arena, &r->views, c);
}

void dc_views_fold(dc_reverse *r, dc_nid node) {
  for (uint32_t k = 0; k < r->views.n; k++) {
    dc_cid view = r->views.v[k], base = dc_container_root(r->graph, view), given = r->grad[view];
    if (!given || (node && !dc_node_touches_one(r->graph, node, DC_USE_WRITE, base))) continue;
    dc_cid part = dc_gradient_part(r, base);
    dc_cont(r->graph, part)->alias_of = given;
    r->grad[view] = 0;
    dc_gradient_add(r, base, part);
  }
}
