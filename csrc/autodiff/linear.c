/* The adjoint of a gradient that a library computes.
 *
 * Where Y = f(X, W) is linear in X, the gradient dX does not depend on X.  A cotangent V of dX then gives f(V, W) to dY, and
 * to W the gradient of f at X = V: the operator itself and its gradients, so that derivatives of any order stay with the
 * library. */
#include <string.h>

#include "autodiff/reverse.h"

bool dc_linear_is(dc_ops *ops, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_row *row = lib->wrt ? dc_ops_row_of(ops, graph, lib) : NULL;
  return row && lib->n_fwd_out == 1 && dc_row_is_linear(row, lib->wrt - 1);
}

/* What is only added has a gradient; whole numbers say what is to be done. */
static bool is_added(const dc_graph *graph, dc_cid c) { return !c || dc_dtype_is_float((dc_dtype)dc_cont(graph, c)->dtype); }

/* The operator's inputs with V in the place of the one that was differentiated; what is only added is left out. */
static dc_cid *operands(dc_reverse *r, const dc_library *lib, dc_cid v) {
  dc_cid *in = DC_NEW_ARRAY(&r->graph->arena, dc_cid, lib->n_fwd_in + 2);
  const dc_row *row = dc_ops_row_of(r->ops, r->graph, lib);
  for (uint32_t k = 0; k < lib->n_fwd_in; k++) {
    bool stays = dc_row_is_linear(row, k) || !is_added(r->graph, lib->in[k]);
    in[k] = k == lib->wrt - 1 ? v : stays ? lib->in[k] : 0;
  }
  return in;
}

/* wrt: 0 for the operator itself, else one more than the input whose gradient is computed. */
static dc_cid emit(dc_reverse *r, const dc_library *lib, const dc_cid *in, uint32_t n_in, dc_cid like, uint32_t wrt) {
  dc_graph *g = r->graph;
  dc_cid out = dc_gradient_part(r, like);
  dc_nid node = dc_node_library(g, dc_name_text(&g->names, lib->op), dc_name_text(&g->names, lib->domain), lib->since, in, n_in, &out, 1,
                                lib->attr, lib->n_attr);
  dc_node *made = dc_node_at(g, node);
  made->lib.wrt = wrt;
  if (wrt) made->lib.n_fwd_in = lib->n_fwd_in, made->lib.n_fwd_out = lib->n_fwd_out;
  dc_scope_push(g, r->out, node);
  return out;
}

void dc_linear_reverse(dc_reverse *r, dc_nid id) {
  dc_library lib = dc_node_at(r->graph, id)->lib;
  const dc_row *row = dc_ops_row_of(r->ops, r->graph, &lib);
  dc_cid v = r->grad[lib.out[0]], seed = lib.in[lib.n_fwd_in + 1];
  if (!v || !r->active[lib.out[0]]) return;
  dc_cid *in = operands(r, &lib, v);
  if (r->active[seed]) dc_gradient_add(r, seed, emit(r, &lib, in, lib.n_fwd_in, seed, 0));
  in[lib.n_fwd_in + 1] = seed;
  for (uint32_t k = 0; k < lib.n_fwd_in; k++) {
    if (k == lib.wrt - 1 || !lib.in[k] || !r->active[lib.in[k]] || !dc_row_is_linear(row, k)) continue;
    dc_gradient_add(r, lib.in[k], emit(r, &lib, in, lib.n_fwd_in + 2, lib.in[k], k + 1));
  }
}
