/* Borders: an image that lies as its caller has it is the caller's array.
 *
 *     input X: f32[8, 56, 56, 64]    temp I: f32[8, 64, 56, 56] strides [200704, 1, 3584, 64]
 *     map n, c, h, w { I[n, c, h, w] = X[n, h, w, c] }      becomes   temp I: ... view X
 *     map n, h, w, c { Y[n, h, w, c] = J[n, c, h, w] }      becomes   temp J: ... view Y
 *
 * Copies between arrays that both lie row-major are left to fusion, which computes what is copied in the copy's place.  Does
 * nothing where a state may run twice: a result would change before its time. */
#include "passes/access.h"
#include "passes/passes.h"

typedef struct {
  dc_cid from, to;
} copy;

static dc_ex stride_of(dc_graph *graph, dc_cid c, uint32_t d) {
  const dc_container *k = dc_cont(graph, c);
  if (k->strides) return k->strides[d];
  dc_ex stride = dc_ex_int(&graph->pool, 1);
  for (uint32_t j = k->rank; --j > d;) stride = dc_ix_mul(&graph->pool, stride, dc_cont(graph, c)->shape[j]);
  return stride;
}

/* Of all elements, each to where it lies. */
static bool is_copy_in_place(dc_graph *graph, dc_nid id, copy *out) {
  const dc_tasklet *copies = dc_access_copy(graph, id);
  if (!copies) return false;
  const dc_tasklet t = *copies;
  *out = (copy){dc_ex_node(&graph->pool, t.value)->ref, t.out};
  if (!dc_cont(graph, out->from)->shape || !dc_cont(graph, out->from)->strides == !dc_cont(graph, out->to)->strides) return false;
  for (uint32_t d = 0; d < t.rank; d++) {
    uint32_t there = 0;
    while (there < t.rank && dc_ex_arg(&graph->pool, t.value, there) != t.index[d]) there++;
    if (there == t.rank || dc_cont(graph, out->from)->shape[there] != dc_cont(graph, out->to)->shape[d]) return false;
    if (dc_ex_node(&graph->pool, t.index[d])->op == DC_EX_INT) continue;
    if (stride_of(graph, out->from, there) != stride_of(graph, out->to, d)) return false;
  }
  return true;
}

static bool is_plain(const dc_container *k) { return k->storage == DC_STORE_HEAP && !k->alias_of && !k->is_host && !k->known; }
static bool is_own(const dc_container *k) { return k->role == DC_ROLE_TEMP && !k->is_output; }

/* What is given stays as it is while the copy lives; a result is nothing before it is copied, and all writes are over by then. */
static bool takes_place(dc_graph *graph, const dc_writers *writers, uint32_t place, const copy *c) {
  dc_container *from = dc_cont(graph, c->from), *to = dc_cont(graph, c->to);
  if (!is_plain(from) || !is_plain(to) || from->dtype != to->dtype || from->device != to->device || writers[c->to].n != 1) return false;
  if (from->role == DC_ROLE_INPUT && is_own(to) && !writers[c->from].n) return to->alias_of = c->from, true;
  bool result = to->role == DC_ROLE_TEMP && to->is_output;
  if (is_own(from) && result && writers[c->from].last < place) return from->alias_of = c->to, true;
  return false;
}

dc_status dc_pass_borders(dc_graph *graph) {
  if (graph->states.n != 1 || graph->subgraphs.n) return DC_OK;
  dc_writers *writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  dc_scope *scope = &graph->states.v[0].scope;
  uint32_t kept = 0;
  dc_graph_writers(graph, writers);
  for (uint32_t k = 0; k < scope->n; k++) {
    copy c;
    if (!is_copy_in_place(graph, scope->v[k], &c) || !takes_place(graph, writers, k + 1, &c)) scope->v[kept++] = scope->v[k];
  }
  scope->n = kept;
  return DC_OK;
}
