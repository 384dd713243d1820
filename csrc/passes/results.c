/* Results: what a result is a reshape of lies where the result does, so that nothing is copied at the end.
 *
 *     temp T: f32[8, 4]    Y = Reshape(T, S)                        becomes   temp T: f32[8, 4] view Y
 *     temp V view T        map i { Y[i] = V[i] }                    becomes   the same
 *     U = Transpose(T)     Y = Transpose(U), which undoes it        becomes   the same, with Y's shape
 *
 * Does nothing where a state may run twice: the result would change before its time. */
#include "passes/access.h"
#include "passes/operators.h"

/* What two transpositions, of which this one undoes the other, leave as it was; 0: the node is none such. */
static dc_cid undone_by(const dc_operators *o, dc_nid id) {
  int64_t perm[DC_MAX_RANK], before[DC_MAX_RANK];
  const dc_library *lib = &dc_node_at(o->graph, id)->lib;
  const dc_nid first = dc_operator_making(o, lib->out[0], "Transpose") == id ? dc_operator_making(o, lib->in[0], "Transpose") : 0;
  if (!first || !dc_operator_permutation(o, id, perm) || !dc_operator_permutation(o, first, before)) return 0;
  for (uint32_t d = 0; d < dc_cont(o->graph, lib->out[0])->rank; d++)
    if (before[perm[d]] != d) return 0;
  return dc_operator_input(o, first, 0);
}

/* The container that a node copies to another, element by element in the order of memory; 0 if it does anything else. */
static dc_cid copied_by(dc_ops *ops, const dc_operators *o, dc_nid id, dc_cid *to) {
  const dc_graph *graph = o->graph;
  const dc_node *node = dc_node_at(graph, id);
  const dc_cid undone = node->kind == DC_NODE_LIBRARY && node->lib.n_out == 1 && node->lib.n_in ? undone_by(o, id) : 0;
  if (undone) return *to = node->lib.out[0], undone;
  if (node->kind == DC_NODE_LIBRARY) {
    const dc_row *row = node->lib.wrt || node->lib.n_out != 1 || !node->lib.n_in ? NULL : dc_ops_row_of(ops, graph, &node->lib);
    return row && dc_row_is_alias(row) ? *to = node->lib.out[0], node->lib.in[0] : 0;
  }
  const dc_tasklet *t = dc_access_copy(graph, id);
  if (!t) return 0;
  const dc_cid from = dc_ex_node(&graph->pool, t->value)->ref;
  const dc_container *in = dc_cont(graph, from), *out = dc_cont(graph, t->out);
  for (uint32_t d = 0; d < in->rank; d++)
    if (dc_ex_arg(&graph->pool, t->value, d) != t->index[d] || in->shape[d] != out->shape[d]) return 0;
  return *to = t->out, from;
}

static dc_ex elements(dc_graph *graph, dc_cid c) {
  dc_ex n = dc_ex_int(&graph->pool, 1);
  for (uint32_t d = 0; d < dc_cont(graph, c)->rank; d++) n = dc_ix_mul(&graph->pool, n, dc_cont(graph, c)->shape[d]);
  return n;
}

/* Is all of the buffer the same elements as the view, in the same order? */
static bool is_all_of(dc_graph *graph, dc_cid view, dc_cid root) {
  for (dc_cid at = view; at != root; at = dc_cont(graph, at)->alias_of)
    if (dc_cont(graph, at)->alias_offset || !dc_cont(graph, at)->shape || dc_cont(graph, at)->dtype != dc_cont(graph, root)->dtype)
      return false;
  return dc_cont(graph, root)->shape && elements(graph, view) == elements(graph, root);
}

static bool is_plain(const dc_container *k) {
  return k->role == DC_ROLE_TEMP && k->storage == DC_STORE_HEAP && !k->alias_of && !k->is_host && !k->known && !k->strides && k->shape;
}

/* Copies between arrays of one shape are left to fusion, which computes what is copied in the copy's place. */
static bool takes_place(dc_graph *graph, const dc_writers *writers, uint32_t place, dc_cid from, dc_cid to, bool is_map) {
  const dc_cid root = dc_container_root(graph, from);
  const dc_container *result = dc_cont(graph, to), *source = dc_cont(graph, root);
  if (!result->is_output || source->is_output || !is_plain(result) || !is_plain(source) || (is_map && root == from)) return false;
  if (result->dtype != source->dtype || result->device != source->device || writers[to].n != 1 || writers[root].last >= place) return false;
  return is_all_of(graph, from, root) && elements(graph, to) == elements(graph, root);
}

dc_status dc_pass_results(dc_ops *ops, dc_graph *graph) {
  if (graph->states.n != 1 || graph->subgraphs.n) return DC_OK;
  dc_arena arena = {0};
  dc_operators o;
  dc_writers *writers = DC_NEW_ARRAY(&arena, dc_writers, graph->containers.n);
  dc_scope *scope = &graph->states.v[0].scope;
  uint32_t kept = 0;
  dc_graph_writers(graph, writers);
  dc_operators_look(&o, graph);
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_cid to = 0, from = copied_by(ops, &o, scope->v[k], &to);
    bool is_map = dc_node_at(graph, scope->v[k])->kind == DC_NODE_MAP;
    if (from && to && takes_place(graph, writers, k + 1, from, to, is_map)) dc_cont(graph, dc_container_root(graph, from))->alias_of = to;
    else scope->v[kept++] = scope->v[k];
  }
  scope->n = kept;
  dc_arena_free(&arena);
  return DC_OK;
}
