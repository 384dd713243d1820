/* Removes what computes nothing: reshapes become views, identities and dead nodes go. */
#include <stdlib.h>

#include "passes/passes.h"

/* ---- views ---- */

/* One container may stand for another that the node at this place copies it to: neither changes behind it. */
static bool stands_for(const dc_graph *graph, const dc_writers *writers, uint32_t place, dc_cid from, dc_cid to) {
  return writers[dc_container_root(graph, from)].last < place && writers[dc_container_root(graph, to)].n == 1;
}

/* The node's output can be a view of its input: same elements, same order, nobody's buffer. */
static bool becomes_view(dc_ops *ops, const dc_graph *graph, const dc_writers *writers, uint32_t place, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_LIBRARY || node->lib.wrt || node->lib.n_out != 1 || !node->lib.n_in) return false;
  const dc_row *row = dc_ops_row_of(ops, graph, &node->lib);
  if (!row || !dc_row_is_alias(row) || !node->lib.in[0] || !node->lib.out[0]) return false;
  const dc_container *in = dc_cont(graph, node->lib.in[0]), *out = dc_cont(graph, node->lib.out[0]);
  bool is_plain = !out->is_output && out->role == DC_ROLE_TEMP && !out->alias_of && !in->strides && in->dtype == out->dtype && in->dtype;
  return is_plain && stands_for(graph, writers, place, node->lib.in[0], node->lib.out[0]);
}

static void make_views(dc_ops *ops, dc_graph *graph, const dc_writers *writers, uint32_t place, dc_scope *scope) {
  uint32_t kept = 0;
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_nid id = scope->v[k];
    if (!becomes_view(ops, graph, writers, place + k + 1, id)) {
      scope->v[kept++] = id;
      continue;
    }
    const dc_library *lib = &dc_node_at(graph, id)->lib;
    dc_cont(graph, lib->out[0])->alias_of = lib->in[0];
  }
  scope->n = kept;
}

/* ---- dead nodes ---- */

void dc_simplify_drop_dead(dc_graph *graph) {
  bool *live = calloc(graph->containers.n, 1); /* by buffer */
  if (!live) abort();
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (dc_cont(graph, c)->is_output || dc_cont(graph, c)->role == DC_ROLE_SAVED || dc_cont(graph, c)->role == DC_ROLE_INPUT)
      live[dc_container_root(graph, c)] = true;
  for (uint32_t s = graph->states.n; s-- > 0;) {
    dc_scope *scope = &graph->states.v[s].scope;
    uint32_t at = scope->n;
    for (uint32_t k = scope->n; k-- > 0;) {
      if (!dc_node_touches(graph, scope->v[k], DC_USE_WRITE, live)) continue;
      dc_node_mark(graph, scope->v[k], DC_USE_READ, live);
      scope->v[--at] = scope->v[k];
    }
    scope->v += at, scope->n -= at, scope->cap -= at;
  }
  free(live);
}

/* ---- identities ---- */

static void pin(void *context, dc_cid c, dc_use use, dc_nid by) {
  (void)use, (void)by;
  ((bool *)context)[c] = true;
}

/* Operators read an identity's input instead of its output; what maps read stays. */
static void forward_identities(dc_graph *graph) {
  bool *pinned = calloc(graph->containers.n, sizeof *pinned);
  dc_cid *source = calloc(graph->containers.n, sizeof *source);
  dc_writers *writers = calloc(graph->containers.n, sizeof *writers);
  uint32_t place = 0;
  if (!pinned || !source || !writers) abort();
  dc_graph_writers(graph, writers);
  dc_name identity = dc_name_intern(&graph->names, "Identity");
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid id = graph->states.v[s].scope.v[k];
      if (dc_node_at(graph, id)->kind != DC_NODE_LIBRARY) dc_node_uses(graph, id, pin, pinned);
    }
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_node *node = dc_node_at(graph, graph->states.v[s].scope.v[k]);
      place++;
      if (node->kind != DC_NODE_LIBRARY) continue;
      for (uint32_t j = 0; j < node->lib.n_in; j++)
        if (source[node->lib.in[j]]) node->lib.in[j] = source[node->lib.in[j]];
      if (node->lib.op != identity || node->lib.domain || node->lib.wrt || !node->lib.in[0]) continue;
      dc_cid out = node->lib.out[0];
      bool is_plain = dc_cont(graph, out)->role == DC_ROLE_TEMP && !dc_cont(graph, out)->is_output && !pinned[out];
      if (is_plain && stands_for(graph, writers, place, node->lib.in[0], out)) source[out] = node->lib.in[0];
    }
  free(pinned);
  free(source);
  free(writers);
}

dc_status dc_pass_tidy(dc_ops *ops, dc_graph *graph) {
  (void)ops;
  if (!graph->subgraphs.n) forward_identities(graph); /* their captures name containers too */
  dc_simplify_drop_dead(graph);
  return DC_OK;
}

dc_status dc_pass_simplify(dc_ops *ops, dc_graph *graph) {
  dc_writers *writers = calloc(graph->containers.n, sizeof *writers);
  uint32_t place = 0;
  if (!writers) abort();
  dc_graph_writers(graph, writers);
  for (uint32_t s = 0, n; s < graph->states.n; s++, place += n) {
    n = graph->states.v[s].scope.n;
    make_views(ops, graph, writers, place, &graph->states.v[s].scope);
  }
  free(writers);
  dc_simplify_drop_dead(graph);
  dc_graph_drop_unused_views(graph);
  return DC_OK;
}
