/* Keeping or recomputing.
 *
 * A value is computed again when that costs one pass over memory at most: views, and
 * element-wise maps whose results the forward does not have in memory for a library's sake.
 * Results of reductions, libraries and loops are stored. */
#include "autodiff/keep.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const dc_keep_problem *p;
  bool *needed, *store_only;
  bool writes_needed, writes_stored, mark;
} walk;

static bool is_view(const walk *w, const dc_node *n) {
  if (n->kind != DC_NODE_LIBRARY || n->lib.wrt) return false;
  const dc_graph *g = w->p->graph;
  const dc_row *row = dc_ops_find(w->p->ops, dc_name_text(&g->names, n->lib.domain), dc_name_text(&g->names, n->lib.op), n->lib.since);
  return row && dc_row_is_alias(row);
}

static bool is_elementwise(const dc_graph *g, dc_nid id) {
  const dc_node *n = dc_node_at(g, id);
  if (n->kind == DC_NODE_TASKLET) return n->tasklet.wcr == DC_WCR_NONE;
  if (n->kind != DC_NODE_MAP || n->map.schedule != DC_MAP_PARALLEL) return false;
  for (uint32_t k = 0; k < n->map.body.n; k++)
    if (!is_elementwise(g, n->map.body.v[k])) return false;
  return true;
}

static bool can_run_again(const walk *w, dc_nid id) {
  const dc_node *n = dc_node_at(w->p->graph, id);
  if (is_view(w, n) || w->p->strategy == DC_KEEP_RECOMPUTE) return true;
  return w->p->strategy == DC_KEEP_AUTO && is_elementwise(w->p->graph, id);
}

static void mark_stored(void *context, dc_cid c, dc_use use, dc_nid by) {
  walk *w = context;
  (void)by;
  if (use == DC_USE_WRITE && c < w->p->n) w->store_only[c] = true;
}

static void mark_library_input(void *context, dc_cid c, dc_use use, dc_nid by) {
  walk *w = context;
  (void)by;
  if (use == DC_USE_READ && c < w->p->n && w->p->strategy == DC_KEEP_AUTO) w->store_only[c] = true;
}

static void mark_needed(void *context, dc_cid c, dc_use use, dc_nid by) {
  walk *w = context;
  (void)by;
  if (use == DC_USE_READ && c < w->p->n && !w->p->available[c]) w->needed[c] = true;
}

static void look_at_writes(void *context, dc_cid c, dc_use use, dc_nid by) {
  walk *w = context;
  (void)by;
  if (use != DC_USE_WRITE || c >= w->p->n || !w->needed[c]) return;
  w->writes_needed = true;
  w->writes_stored |= w->store_only[c];
}

/* Views need not be written: what is stored is their base. */
static void exempt_views(walk *w) {
  for (uint32_t k = 0; k < w->p->forward->n; k++) {
    const dc_node *n = dc_node_at(w->p->graph, w->p->forward->v[k]);
    if (!is_view(w, n) || !n->lib.out[0] || n->lib.out[0] >= w->p->n) continue;
    w->store_only[n->lib.out[0]] = false;
    if (n->lib.in[0] && n->lib.in[0] < w->p->n && w->p->strategy == DC_KEEP_AUTO) w->store_only[n->lib.in[0]] = true;
  }
}

void dc_keep_decide(const dc_keep_problem *p, bool *store, bool *again) {
  walk w = {.p = p, .needed = calloc(p->n + 1, 1), .store_only = calloc(p->n + 1, 1)};
  if (!w.needed || !w.store_only) abort();
  for (uint32_t k = 0; k < p->forward->n; k++) {
    dc_nid id = p->forward->v[k];
    if (!can_run_again(&w, id)) dc_node_uses(p->graph, id, mark_stored, &w);
    if (dc_node_at(p->graph, id)->kind == DC_NODE_LIBRARY && !is_view(&w, dc_node_at(p->graph, id)))
      dc_node_uses(p->graph, id, mark_library_input, &w);
  }
  exempt_views(&w);
  for (uint32_t k = 0; k < p->adjoint->n; k++) dc_node_uses(p->graph, p->adjoint->v[k], mark_needed, &w);
  for (uint32_t k = p->forward->n; k-- > 0;) {
    w.writes_needed = w.writes_stored = false;
    dc_node_uses(p->graph, p->forward->v[k], look_at_writes, &w);
    again[k] = w.writes_needed && !w.writes_stored;
    if (again[k]) dc_node_uses(p->graph, p->forward->v[k], mark_needed, &w);
  }
  for (dc_cid c = 1; c < p->n; c++) store[c] = w.needed[c] && w.store_only[c];
  free(w.needed);
  free(w.store_only);
}
