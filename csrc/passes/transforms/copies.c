/* RedundantArray: a temporary that is nothing but a copy, made from another container or made into one, is that other.
 *
 * The copy is an operator Identity, or a map of one tasklet  B[i, j] = A[i, j]  over all of both.  Either B goes, if
 * nobody writes to A while B is read; or A goes, if nobody uses B before, and whoever wrote to A writes to B. */
#include <string.h>

#include "passes/access.h"
#include "passes/transforms/transforms.h"

typedef struct {
  uint32_t first, first_write, last, last_write; /* places, counted from 1 through all states; 0: none */
} span;

typedef struct {
  const dc_transform *t;
  span *spans; /* by container */
  bool *views; /* by container: is a view, or has some, or is captured */
  uint32_t place;
} copies;

/* ---- who uses what, when ---- */

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  copies *x = context;
  span *s = &x->spans[c];
  (void)by;
  if (!s->first) s->first = x->place;
  s->last = x->place;
  if (use != DC_USE_WRITE) return;
  if (!s->first_write) s->first_write = x->place;
  s->last_write = x->place;
}

static void note_uses(copies *x) {
  const dc_graph *graph = x->t->graph;
  memset(x->spans, 0, graph->containers.n * sizeof *x->spans);
  x->place = 0;
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      x->place++;
      dc_node_uses(graph, graph->states.v[s].scope.v[k], note_use, x);
    }
}

static void note_views(copies *x) {
  const dc_graph *graph = x->t->graph;
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (dc_cont(graph, c)->alias_of) x->views[c] = x->views[dc_cont(graph, c)->alias_of] = true;
}

/* ---- what is a copy ---- */

typedef struct {
  dc_cid from, to;
} copy;

/* Symbols: equal extents are the same expression. */
static bool same_shape(const dc_container *a, const dc_container *b) {
  if (a->dtype != b->dtype || a->rank != b->rank || a->strides || b->strides || !a->shape != !b->shape) return false;
  for (uint32_t d = 0; a->shape && d < a->rank; d++)
    if (a->shape[d] != b->shape[d]) return false;
  return true;
}

/* Each parameter of the map walks one dimension, from end to end. */
static bool walks_all(const dc_graph *graph, const dc_map *map, const dc_tasklet *t) {
  bool used[DC_MAX_RANK] = {false};
  if (map->n_params != t->rank) return false;
  for (uint32_t d = 0; d < t->rank; d++) {
    uint32_t k = 0;
    while (k < map->n_params && t->index[d] != dc_ex_par((dc_pool *)&graph->pool, map->params[k])) k++;
    if (k == map->n_params || used[k] || !dc_access_covers(&graph->pool, map->params[k], dc_cont(graph, t->out)->shape[d])) return false;
    used[k] = true;
  }
  return true;
}

static bool map_copies(const dc_graph *graph, const dc_node *node, copy *out) {
  const dc_map whole = {0}, *map = node->kind == DC_NODE_MAP ? &node->map : &whole;
  if (node->kind == DC_NODE_MAP && (map->schedule != DC_MAP_PARALLEL || map->body.n != 1)) return false;
  const dc_node *inner = node->kind == DC_NODE_MAP ? dc_node_at(graph, map->body.v[0]) : node;
  if (inner->kind != DC_NODE_TASKLET || inner->tasklet.guard || inner->tasklet.wcr) return false;
  const dc_tasklet *t = &inner->tasklet;
  const dc_exnode *value = dc_ex_node(&graph->pool, t->value);
  if (value->op != DC_EX_READ || value->nargs != t->rank || !same_shape(dc_cont(graph, t->out), dc_cont(graph, value->ref))) return false;
  for (uint32_t d = 0; d < t->rank; d++)
    if (dc_ex_arg(&graph->pool, t->value, d) != t->index[d]) return false;
  return *out = (copy){value->ref, t->out}, walks_all(graph, map, t);
}

static bool is_copy(const dc_graph *graph, dc_nid id, copy *out) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_LIBRARY) return map_copies(graph, node, out);
  const dc_library *lib = &node->lib;
  if (strcmp(dc_name_text(&graph->names, lib->op), "Identity") || lib->domain || lib->wrt || lib->n_in != 1 || lib->n_out != 1)
    return false;
  *out = (copy){lib->in[0], lib->out[0]};
  bool unknown = out->from && out->to && !dc_cont(graph, out->to)->dtype; /* not inferred yet: it will be the same */
  return out->from && out->to && (unknown || same_shape(dc_cont(graph, out->from), dc_cont(graph, out->to)));
}

static void rename_all(dc_graph *graph, copy r) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) dc_node_rename(graph, graph->states.v[s].scope.v[k], r.from, r.to);
}

/* ---- the transformation ---- */

static bool is_spare(const copies *x, dc_cid c) {
  const dc_container *k = dc_cont(x->t->graph, c);
  return k->role == DC_ROLE_TEMP && !k->is_output && !k->is_host && !k->known && k->storage == DC_STORE_HEAP && !x->views[c];
}

/* B, written by nobody else, is read while A stays as it is. */
static bool may_drop_copy(const copies *x, copy c, uint32_t place) {
  const span *a = &x->spans[c.from], *b = &x->spans[c.to];
  if (!is_spare(x, c.to) || x->views[c.from] || b->first != place || b->last_write != place) return false;
  return a->last_write < place || b->last <= place;
}

/* A, used by nobody later, takes the place of B, used by nobody earlier.  What is written to B later would overwrite what
 * A was read for, which differentiation would miss. */
static bool may_write_directly(const copies *x, copy c, uint32_t place) {
  const dc_container *to = dc_cont(x->t->graph, c.to);
  const span *a = &x->spans[c.from], *b = &x->spans[c.to];
  bool writable = to->role == DC_ROLE_TEMP && to->storage == DC_STORE_HEAP && !to->known && to->dtype;
  return is_spare(x, c.from) && writable && !x->views[c.to] && a->last == place && a->first_write && b->first == place &&
         b->last_write == place;
}

static bool is_meant(const copies *x, dc_nid node, copy c) {
  return x->t->all || dc_transform_means(x->t, node) || x->t->chosen[c.from] || x->t->chosen[c.to];
}

static bool drop_one(copies *x) {
  dc_graph *graph = x->t->graph;
  uint32_t place = 0;
  note_uses(x);
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope *scope = &graph->states.v[s].scope;
    for (uint32_t k = 0; k < scope->n; k++) {
      dc_nid id = scope->v[k];
      copy c;
      place++;
      if (!is_copy(graph, id, &c) || c.from == c.to || !is_meant(x, id, c)) continue;
      bool drop = may_drop_copy(x, c, place);
      if (!drop && !may_write_directly(x, c, place)) continue;
      memmove(scope->v + k, scope->v + k + 1, (scope->n - k - 1) * sizeof *scope->v), scope->n--;
      rename_all(graph, drop ? (copy){c.to, c.from} : c);
      return true;
    }
  }
  return false;
}

dc_status dc_transform_redundant_array(const dc_transform *t, uint32_t *count) {
  dc_arena arena = {0};
  uint32_t n = t->graph->containers.n;
  copies x = {.t = t, .spans = DC_NEW_ARRAY(&arena, span, n), .views = DC_NEW_ARRAY(&arena, bool, n)};
  note_views(&x);
  while (!t->graph->subgraphs.n && drop_one(&x)) ++*count; /* the captures of subgraphs name containers too */
  dc_arena_free(&arena);
  return DC_OK;
}
