/* An operator that stands twice, with the same operands and attributes, is computed once.
 *
 * Rows are functions of what they read, random numbers included, so that equal nodes have equal results.  Constants count
 * by their contents.  The second node's readers read the first one's results; tidy drops it. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "passes/passes.h"

enum { MAX_BYTES = 256 /* of a constant that is compared */ };

typedef struct {
  dc_graph *graph;
  dc_cid *source;       /* by container: the one that stands for it, itself if there is none */
  bool *pinned;         /* by container: used by other than operators, or viewed */
  dc_writers *writers;  /* by buffer */
  uint32_t *slots, cap; /* one more than an entry, 0: none; a power of two */
} sharing;

/* ---- equality ---- */

static bool same_list(const void *a, const void *b, uint64_t n, size_t size) { return n == 0 || memcmp(a, b, n * size) == 0; }

static bool same_strings(const dc_attr *a, const dc_attr *b) {
  for (uint32_t k = 0; k < a->n; k++)
    if (strcmp(a->strings[k], b->strings[k]) != 0) return false;
  return true;
}

static bool same_attribute(const dc_attr *a, const dc_attr *b) {
  if (a->name != b->name || a->kind != b->kind) return false;
  switch (a->kind) {
    case DC_ATTR_INT:
    case DC_ATTR_TENSOR:
    case DC_ATTR_GRAPH: return a->i == b->i;
    case DC_ATTR_FLOAT: return same_list(&a->f, &b->f, 1, sizeof a->f);
    case DC_ATTR_STRING: return a->n == b->n && same_list(a->s, b->s, a->n, 1);
    case DC_ATTR_INTS: return a->n == b->n && same_list(a->ints, b->ints, a->n, sizeof *a->ints);
    case DC_ATTR_FLOATS: return a->n == b->n && same_list(a->floats, b->floats, a->n, sizeof *a->floats);
    default: return a->n == b->n && same_strings(a, b);
  }
}

static bool same_node(const sharing *s, dc_nid x, dc_nid y) {
  const dc_library *a = &dc_node_at(s->graph, x)->lib, *b = &dc_node_at(s->graph, y)->lib;
  if (a->op != b->op || a->domain != b->domain || a->since != b->since || a->wrt != b->wrt || a->by != b->by) return false;
  if (a->n_in != b->n_in || a->n_out != b->n_out || a->n_attr != b->n_attr) return false;
  for (uint32_t k = 0; k < a->n_in; k++)
    if (s->source[a->in[k]] != s->source[b->in[k]]) return false;
  for (uint32_t k = 0; k < a->n_out; k++) { /* what the second does not make may be missing */
    const dc_container *c = dc_cont(s->graph, a->out[k]), *d = dc_cont(s->graph, b->out[k]);
    if (b->out[k] && (!a->out[k] || c->dtype != d->dtype || c->rank != d->rank)) return false;
  }
  for (uint32_t k = 0; k < a->n_attr; k++)
    if (!same_attribute(&a->attr[k], &b->attr[k])) return false;
  return true;
}

static uint64_t node_hash(const sharing *s, dc_nid id) {
  const dc_library *lib = &dc_node_at(s->graph, id)->lib;
  uint64_t h = dc_hash_bytes(lib->op, &lib->domain, sizeof lib->domain);
  for (uint32_t k = 0; k < lib->n_in; k++) h = dc_hash_bytes(h, &s->source[lib->in[k]], sizeof *s->source);
  for (uint32_t k = 0; k < lib->n_attr; k++) {
    const dc_attr *a = &lib->attr[k];
    h = dc_hash_bytes(h, &a->name, sizeof a->name);
    if (a->kind == DC_ATTR_INT || a->kind == DC_ATTR_TENSOR || a->kind == DC_ATTR_GRAPH) h = dc_hash_bytes(h, &a->i, sizeof a->i);
    if (a->kind == DC_ATTR_FLOAT) h = dc_hash_bytes(h, &a->f, sizeof a->f);
    if (a->kind == DC_ATTR_INTS) h = dc_hash_bytes(h, a->ints, a->n * sizeof *a->ints);
    if (a->kind == DC_ATTR_FLOATS) h = dc_hash_bytes(h, a->floats, a->n * sizeof *a->floats);
    if (a->kind == DC_ATTR_STRING) h = dc_hash_bytes(h, a->s, a->n);
  }
  return h;
}

static bool same_constant(const sharing *s, dc_cid x, dc_cid y) {
  const dc_container *a = dc_cont(s->graph, x), *b = dc_cont(s->graph, y);
  if (a->dtype != b->dtype || a->rank != b->rank || a->data_bytes != b->data_bytes) return false;
  return same_list(a->shape, b->shape, a->rank, sizeof *a->shape) && same_list(a->data, b->data, a->data_bytes, 1);
}

/* ---- what may be shared ---- */

static bool is_small_constant(const dc_container *c) {
  return c->role == DC_ROLE_CONST && c->data && c->data_bytes <= MAX_BYTES && !c->is_output && !c->alias_of && !c->strides;
}

/* A container that one node writes, and whose buffer is its own. */
static bool is_plain(const sharing *s, dc_cid c) {
  const dc_container *k = dc_cont(s->graph, c);
  return !k->alias_of && !k->is_host && s->writers[c].n == 1;
}

static bool may_go(const sharing *s, dc_cid c) {
  const dc_container *k = dc_cont(s->graph, c);
  return is_plain(s, c) && k->role == DC_ROLE_TEMP && !k->is_output && !k->strides && !s->pinned[c];
}

/* Does the node read now what it would have read at any time before, back to where its operands were made? */
static bool reads_what_stays(const sharing *s, const dc_library *lib) {
  for (uint32_t k = 0; k < lib->n_in; k++) {
    dc_cid root = lib->in[k] ? dc_container_root(s->graph, lib->in[k]) : 0;
    if (root && (s->writers[root].n > 1 || (s->writers[root].n && dc_cont(s->graph, root)->role == DC_ROLE_INPUT))) return false;
  }
  return true;
}

static bool is_candidate(const sharing *s, dc_ops *ops, dc_nid id) {
  const dc_node *n = dc_node_at(s->graph, id);
  if (n->kind != DC_NODE_LIBRARY || dc_own_is(s->graph, id) || !dc_ops_row_of(ops, s->graph, &n->lib)) return false;
  for (uint32_t k = 0; k < n->lib.n_out; k++)
    if (n->lib.out[k] && !is_plain(s, n->lib.out[k])) return false;
  return reads_what_stays(s, &n->lib);
}

/* ---- the pass ---- */

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  (void)use, (void)by;
  ((sharing *)context)->pinned[c] = true;
}

static void look(sharing *s) {
  dc_graph *g = s->graph;
  for (dc_cid c = 0; c < g->containers.n; c++) {
    s->source[c] = c;
    if (c && dc_cont(g, c)->alias_of) s->pinned[dc_cont(g, c)->alias_of] = true;
  }
  for (uint32_t k = 0; k < g->states.n; k++)
    for (uint32_t j = 0; j < g->states.v[k].scope.n; j++) {
      dc_nid id = g->states.v[k].scope.v[j];
      if (dc_node_at(g, id)->kind != DC_NODE_LIBRARY) dc_node_uses(g, id, note_use, s);
    }
}

/* The entry of the table that this one is equal to, or an empty one, which it gets. */
static uint32_t find(sharing *s, uint64_t hash, uint32_t entry, bool (*same)(const sharing *, uint32_t, uint32_t)) {
  uint32_t at = (uint32_t)hash & (s->cap - 1);
  for (; s->slots[at]; at = (at + 1) & (s->cap - 1))
    if (same(s, s->slots[at] - 1, entry)) return s->slots[at] - 1;
  s->slots[at] = entry + 1;
  return entry;
}

static void share_constants(sharing *s) {
  for (dc_cid c = 1; c < s->graph->containers.n; c++) {
    const dc_container *k = dc_cont(s->graph, c);
    if (!is_small_constant(k) || s->writers[c].n) continue;
    s->source[c] = find(s, dc_hash_bytes(k->dtype, k->data, k->data_bytes), c, same_constant);
  }
  memset(s->slots, 0, s->cap * sizeof *s->slots);
}

static void share_node(sharing *s, dc_nid id) {
  dc_nid first = find(s, node_hash(s, id), id, same_node);
  const dc_library *a = &dc_node_at(s->graph, first)->lib, *b = &dc_node_at(s->graph, id)->lib;
  bool all = first != id;
  for (uint32_t k = 0; k < b->n_out && all; k++) all = !b->out[k] || may_go(s, b->out[k]);
  for (uint32_t k = 0; k < b->n_out && all; k++)
    if (b->out[k]) s->source[b->out[k]] = a->out[k];
}

/* Nodes of a state in order; one of another state need not run. */
static void share_nodes(sharing *s, dc_ops *ops, const dc_scope *scope) {
  memset(s->slots, 0, s->cap * sizeof *s->slots);
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_node *node = dc_node_at(s->graph, scope->v[k]);
    if (is_candidate(s, ops, scope->v[k])) share_node(s, scope->v[k]);
    for (uint32_t j = 0; node->kind == DC_NODE_LIBRARY && j < node->lib.n_in; j++)
      if (dc_cont(s->graph, node->lib.in[j])->role != DC_ROLE_CONST) node->lib.in[j] = s->source[node->lib.in[j]];
  }
}

dc_status dc_pass_share(dc_ops *ops, dc_graph *graph) {
  if (graph->subgraphs.n) return DC_OK; /* their captures name containers too */
  const uint32_t n = graph->containers.n, entries = n > graph->nodes.n ? n : graph->nodes.n;
  dc_arena arena = {0};
  sharing s = {.graph = graph, .cap = 16};
  while (s.cap < 2 * entries) s.cap *= 2;
  s.source = DC_NEW_ARRAY(&arena, dc_cid, n), s.pinned = DC_NEW_ARRAY(&arena, bool, n), s.writers = DC_NEW_ARRAY(&arena, dc_writers, n);
  s.slots = DC_NEW_ARRAY(&arena, uint32_t, s.cap);
  dc_graph_writers(graph, s.writers);
  look(&s);
  share_constants(&s);
  for (uint32_t k = 0; k < graph->states.n; k++) share_nodes(&s, ops, &graph->states.v[k].scope);
  dc_arena_free(&arena);
  return dc_pass_tidy(ops, graph);
}
