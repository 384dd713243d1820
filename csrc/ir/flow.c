/* Nodes and edges of a flat view, their order and the scopes they lie in. */
#include "ir/flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool numbered(void *context, const dc_graph *graph, dc_nid library, bool is_input, uint32_t k, char *out, size_t size) {
  const dc_library *lib = &dc_node_at(graph, library)->lib;
  (void)context;
  snprintf(out, size, is_input ? "in_%u" : "out_%u", k);
  return k < (is_input ? lib->n_in : lib->n_out) || (!lib->n_in && !lib->n_out && k < 1000);
}

const dc_flow_params dc_flow_numbered = {numbered, NULL};

static const char *const schedules[DC_FLOW_SCHEDULES] = {"default", "map", "sequential", "reduce", "scatter"};

const char *dc_flow_schedule_name(uint32_t schedule) { return schedules[schedule < DC_FLOW_SCHEDULES ? schedule : 0]; }

void dc_flow_free(dc_flow *flow) {
  for (dc_fid n = 1; n < flow->nodes.n; n++) dc_graph_destroy(flow->nodes.v[n].inner);
  dc_arena_free(&flow->arena);
  *flow = (dc_flow){0};
}

uint32_t dc_flow_add_unit(dc_flow *flow, const dc_nid *nodes, uint32_t n) {
  dc_scope unit = {dc_arena_copy(&flow->arena, nodes, n * sizeof *nodes), n, n};
  if (!flow->units.n) DC_PUSH(&flow->arena, &flow->units, (dc_scope){0});
  DC_PUSH(&flow->arena, &flow->units, unit);
  return flow->units.n - 1;
}

/* ---- messages ---- */

const char *dc_flow_describe(const dc_flow *flow, dc_fid n, dc_arena *scratch) {
  static const char *const kinds[] = {"", "access node", "entry of map", "exit of map", "tasklet", "library node", "nested graph"};
  if (!dc_flow_has(flow, n)) return dc_arena_printf(scratch, "node %u", n);
  return dc_arena_printf(scratch, "%s '%s'", kinds[dc_flow_at(flow, n)->kind], dc_flow_at(flow, n)->label);
}

static const char *describe_end(const dc_flow *flow, dc_fid n, const char *conn, dc_arena *scratch) {
  const char *node = dc_flow_describe(flow, n, scratch);
  return conn ? dc_arena_printf(scratch, "%s, connector %s", node, conn) : node;
}

const char *dc_flow_describe_edge(const dc_flow *flow, dc_eid e, dc_arena *scratch) {
  const dc_flow_edge *edge = dc_flow_edge_at(flow, e);
  return dc_arena_printf(scratch, "edge from %s to %s", describe_end(flow, edge->src, edge->src_conn, scratch),
                         describe_end(flow, edge->dst, edge->dst_conn, scratch));
}

/* ---- editing ---- */

static const char *keep(dc_flow *flow, const char *text) { return text ? dc_arena_strdup(&flow->arena, text) : NULL; }

void dc_flow_touch(dc_flow *flow, dc_fid n) {
  uint32_t unit = n ? dc_flow_at(flow, n)->unit : 0;
  flow->is_draft = true;
  if (n && !unit) return;
  for (dc_fid k = 1; k < flow->nodes.n; k++)
    if (!n || dc_flow_at(flow, k)->unit == unit) dc_flow_at(flow, k)->unit = 0;
}

dc_fid dc_flow_add(dc_flow *flow, dc_flow_kind kind, const char *label) {
  if (!flow->nodes.n) DC_PUSH(&flow->arena, &flow->nodes, (dc_flow_node){0});
  dc_flow_node node = {.kind = (uint8_t)kind, .is_drafted = true, .label = keep(flow, label), .position = flow->nodes.n};
  DC_PUSH(&flow->arena, &flow->nodes, node);
  flow->is_draft = true;
  return flow->nodes.n - 1;
}

dc_fid dc_flow_add_tasklet(dc_flow *flow, const char *label, const char *code) {
  dc_fid n = dc_flow_add(flow, DC_FLOW_TASKLET, label);
  dc_flow_at(flow, n)->code = keep(flow, code);
  return n;
}

dc_fid dc_flow_add_map(dc_flow *flow, const char *label, const dc_flow_range *ranges, uint32_t n, uint32_t schedule) {
  dc_fid entry = dc_flow_add(flow, DC_FLOW_ENTRY, label), exit = dc_flow_add(flow, DC_FLOW_EXIT, label);
  dc_flow_range *copy = DC_NEW_ARRAY(&flow->arena, dc_flow_range, n);
  for (uint32_t k = 0; k < n; k++)
    copy[k] = (dc_flow_range){keep(flow, ranges[k].param), keep(flow, ranges[k].begin), keep(flow, ranges[k].end),
                              keep(flow, ranges[k].step)};
  dc_flow_node *node = dc_flow_at(flow, entry);
  node->range = copy, node->n_ranges = n, node->schedule = (uint8_t)schedule, node->other = exit;
  dc_flow_at(flow, exit)->other = entry;
  return entry;
}

dc_fid dc_flow_add_library(dc_flow *flow, const char *label, dc_nid node) {
  dc_fid n = dc_flow_add(flow, DC_FLOW_LIBRARY, label);
  dc_flow_at(flow, n)->node = node;
  return n;
}

dc_fid dc_flow_add_nested(dc_flow *flow, const char *label, dc_graph *inner) {
  dc_fid n = dc_flow_add(flow, DC_FLOW_NESTED, label);
  dc_flow_at(flow, n)->inner = inner;
  return n;
}

void dc_flow_add_symbol(dc_flow *flow, dc_fid nested, const char *symbol, const char *value) {
  dc_flow_node *node = dc_flow_at(flow, nested);
  DC_PUSH(&flow->arena, &node->symbol, keep(flow, symbol));
  DC_PUSH(&flow->arena, &node->value, keep(flow, value));
}

bool dc_flow_has_connector(const dc_flow *flow, dc_fid n, const char *name, bool is_input) {
  const dc_flow_names *names = is_input ? &dc_flow_at(flow, n)->in : &dc_flow_at(flow, n)->out;
  for (uint32_t k = names->n; k-- > 0;)
    if (strcmp(names->v[k], name) == 0) return true;
  return false;
}

const char *dc_flow_connect(dc_flow *flow, dc_fid n, const char *name, bool is_input) {
  dc_flow_names *names = is_input ? &dc_flow_at(flow, n)->in : &dc_flow_at(flow, n)->out;
  for (uint32_t k = names->n; k-- > 0;)
    if (strcmp(names->v[k], name) == 0) return names->v[k];
  dc_flow_touch(flow, n);
  DC_PUSH(&flow->arena, names, keep(flow, name));
  return names->v[names->n - 1];
}

static bool same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

bool dc_flow_disconnect(dc_flow *flow, dc_fid n, const char *name, bool is_input) {
  dc_flow_names *names = is_input ? &dc_flow_at(flow, n)->in : &dc_flow_at(flow, n)->out;
  uint32_t at = 0;
  while (at < names->n && strcmp(names->v[at], name)) at++;
  if (at == names->n) return false;
  dc_flow_touch(flow, n);
  for (names->n--; at < names->n; at++) names->v[at] = names->v[at + 1];
  dc_flow_node *node = dc_flow_at(flow, n);
  for (uint32_t k = is_input ? node->into.n : node->from.n; k-- > 0;) {
    dc_eid e = is_input ? node->into.v[k] : node->from.v[k];
    if (same(is_input ? dc_flow_edge_at(flow, e)->dst_conn : dc_flow_edge_at(flow, e)->src_conn, name)) dc_flow_remove_edge(flow, e);
  }
  return true;
}

void dc_flow_set_memlet(dc_flow *flow, dc_eid e, const dc_memlet *memlet) {
  dc_flow_edge *edge = dc_flow_edge_at(flow, e);
  edge->has_memlet = memlet != NULL;
  edge->memlet = (dc_memlet){0};
  if (memlet) edge->memlet = (dc_memlet){keep(flow, memlet->data), keep(flow, memlet->subset), keep(flow, memlet->other), memlet->wcr};
  dc_flow_touch(flow, edge->src);
  dc_flow_touch(flow, edge->dst);
}

dc_eid dc_flow_join(dc_flow *flow, dc_fid src, const char *src_conn, dc_fid dst, const char *dst_conn, const dc_memlet *memlet) {
  if (!flow->edges.n) DC_PUSH(&flow->arena, &flow->edges, (dc_flow_edge){0});
  dc_flow_edge edge = {.src = src, .dst = dst, .src_conn = keep(flow, src_conn), .dst_conn = keep(flow, dst_conn)};
  DC_PUSH(&flow->arena, &flow->edges, edge);
  dc_eid e = flow->edges.n - 1;
  DC_PUSH(&flow->arena, &dc_flow_at(flow, src)->from, e);
  DC_PUSH(&flow->arena, &dc_flow_at(flow, dst)->into, e);
  dc_flow_set_memlet(flow, e, memlet);
  return e;
}

void dc_flow_remove_edge(dc_flow *flow, dc_eid e) {
  dc_flow_edge *edge = dc_flow_edge_at(flow, e);
  for (int side = 0; side < 2; side++) {
    dc_flow_node *node = dc_flow_at(flow, side ? edge->dst : edge->src);
    dc_eid *list = side ? node->into.v : node->from.v;
    uint32_t *n = side ? &node->into.n : &node->from.n, at = 0;
    while (at < *n && list[at] != e) at++;
    for (--*n; at < *n; at++) list[at] = list[at + 1];
    dc_flow_touch(flow, side ? edge->dst : edge->src);
  }
  *edge = (dc_flow_edge){0};
}

void dc_flow_remove(dc_flow *flow, dc_fid n) {
  dc_flow_node *node = dc_flow_at(flow, n);
  dc_flow_touch(flow, n);
  while (node->into.n) dc_flow_remove_edge(flow, node->into.v[node->into.n - 1]);
  while (node->from.n) dc_flow_remove_edge(flow, node->from.v[node->from.n - 1]);
  if (node->other) dc_flow_at(flow, node->other)->other = 0;
  dc_graph_destroy(node->inner);
  *node = (dc_flow_node){.position = node->position};
}

/* ---- scopes ----
 *
 * An edge says that what leaves its source and what enters its target lie in one scope: of an exit that is the scope around
 * the map, of an entry the map's own, of others their own.  Classes of nodes with one scope are joined (union-find). */

typedef struct {
  dc_flow *flow;
  dc_arena *scratch;
  dc_fid *leader; /* by node: another of its class, or itself; nodes of entries stand for the scope around them */
  dc_fid *scope;  /* by leader: the entry around, 0: none yet, and none in the end */
  uint32_t *degree;
} ordering;

static dc_fid leader_of(ordering *o, dc_fid n) {
  while (o->leader[n] != n) n = o->leader[n] = o->leader[o->leader[n]];
  return n;
}

/* The class at an end of an edge, or the entry whose inside it is: exactly one is not 0. */
static void end_of(ordering *o, dc_fid n, bool leaves, dc_fid *class, dc_fid *inside) {
  const dc_flow_node *node = dc_flow_at(o->flow, n);
  bool is_inside = (node->kind == DC_FLOW_ENTRY && leaves) || (node->kind == DC_FLOW_EXIT && !leaves);
  *inside = !is_inside ? 0 : node->kind == DC_FLOW_ENTRY ? n : node->other;
  *class = is_inside ? 0 : leader_of(o, node->kind == DC_FLOW_EXIT ? node->other : n);
}

static dc_status cross(ordering *o, dc_eid e) {
  return dc_error(DC_ERR_MODEL, "%s crosses the border of a map; what goes in or out passes its entry or exit",
                  dc_flow_describe_edge(o->flow, e, o->scratch));
}

static dc_status join_ends(ordering *o, dc_eid e) {
  const dc_flow_edge *edge = dc_flow_edge_at(o->flow, e);
  dc_fid a, b, inside_a, inside_b;
  end_of(o, edge->src, true, &a, &inside_a);
  end_of(o, edge->dst, false, &b, &inside_b);
  if (inside_a && inside_b) return inside_a == inside_b ? DC_OK : cross(o, e);
  dc_fid inside = inside_a ? inside_a : inside_b, class = a ? a : b;
  if (!inside && a != b) {
    if (o->scope[a] && o->scope[b] && o->scope[a] != o->scope[b]) return cross(o, e);
    dc_fid scope = o->scope[a] ? o->scope[a] : o->scope[b];
    o->leader[b] = a, o->scope[a] = scope;
  }
  if (!inside) return DC_OK;
  if (o->scope[class] && o->scope[class] != inside) return cross(o, e);
  o->scope[class] = inside;
  return DC_OK;
}

static dc_status find_scopes(ordering *o) {
  dc_flow *f = o->flow;
  for (dc_fid n = 1; n < f->nodes.n; n++) {
    o->leader[n] = n;
    const dc_flow_node *node = dc_flow_at(f, n);
    bool half = (node->kind == DC_FLOW_ENTRY || node->kind == DC_FLOW_EXIT) && !dc_flow_has(f, node->other);
    if (half)
      return dc_error(DC_ERR_MODEL, "%s has no %s", dc_flow_describe(f, n, o->scratch), node->kind == DC_FLOW_ENTRY ? "exit" : "entry");
  }
  for (dc_eid e = 1; e < f->edges.n; e++)
    if (dc_flow_edge_at(f, e)->src) DC_TRY(join_ends(o, e));
  for (dc_fid n = 1; n < f->nodes.n; n++)
    if (dc_flow_has(f, n))
      dc_flow_at(f, n)->scope = o->scope[leader_of(o, dc_flow_at(f, n)->kind == DC_FLOW_EXIT ? dc_flow_at(f, n)->other : n)];
  for (dc_fid n = 1; n < f->nodes.n; n++) { /* a map is not inside itself */
    uint32_t depth = 0;
    for (dc_fid s = dc_flow_has(f, n) ? dc_flow_at(f, n)->scope : 0; s; s = dc_flow_at(f, s)->scope)
      if (++depth > DC_MAX_LOOPS)
        return dc_error(DC_ERR_MODEL, "%s and what is joined to it lie both in and around a map, or in more than %d; "
                        "what goes in or out passes its entry or exit", dc_flow_describe(f, n, o->scratch), DC_MAX_LOOPS);
  }
  return DC_OK;
}

/* ---- order ---- */

typedef struct {
  dc_fid *v;
  uint32_t n;
  const dc_flow *flow;
} heap;

static bool before(const heap *h, uint32_t a, uint32_t b) {
  return dc_flow_at(h->flow, h->v[a])->position < dc_flow_at(h->flow, h->v[b])->position;
}

static void swap(heap *h, uint32_t a, uint32_t b) {
  dc_fid n = h->v[a];
  h->v[a] = h->v[b], h->v[b] = n;
}

static void heap_push(heap *h, dc_fid n) {
  h->v[h->n] = n;
  for (uint32_t k = h->n++; k && before(h, k, (k - 1) / 2); k = (k - 1) / 2) swap(h, k, (k - 1) / 2);
}

static dc_fid heap_pop(heap *h) {
  dc_fid top = h->v[0];
  h->v[0] = h->v[--h->n];
  for (uint32_t k = 0;;) {
    uint32_t least = k;
    for (uint32_t child = 2 * k + 1; child <= 2 * k + 2 && child < h->n; child++)
      if (before(h, child, least)) least = child;
    if (least == k) return top;
    swap(h, k, least);
    k = least;
  }
}

/* Something in a map waits for its entry, and its exit for it, also where no edge says so; so wait the nodes beyond. */
static void count_edges(ordering *o) {
  for (dc_fid n = 1; n < o->flow->nodes.n; n++) {
    const dc_flow_node *node = dc_flow_at(o->flow, n);
    if (!node->kind) continue;
    o->degree[n] += node->into.n;
    if (node->kind == DC_FLOW_EXIT) o->degree[n]++;
    if (node->scope && node->kind != DC_FLOW_EXIT) o->degree[n]++, o->degree[dc_flow_at(o->flow, node->scope)->other]++;
  }
}

static void release(ordering *o, heap *ready, dc_fid n) {
  if (--o->degree[n] == 0) heap_push(ready, n);
}

static dc_status circle(ordering *o) {
  dc_fid n = 1;
  while (!dc_flow_has(o->flow, n) || !o->degree[n]) n++;
  for (uint32_t k = 0; k < o->flow->nodes.n; k++) { /* back along edges that are left, into the circle */
    const dc_flow_node *node = dc_flow_at(o->flow, n);
    for (uint32_t j = 0; j < node->into.n; j++)
      if (o->degree[dc_flow_edge_at(o->flow, node->into.v[j])->src]) {
        n = dc_flow_edge_at(o->flow, node->into.v[j])->src;
        break;
      }
  }
  return dc_error(DC_ERR_MODEL, "the edges make a circle through %s", dc_flow_describe(o->flow, n, o->scratch));
}

static dc_status sort(ordering *o, const dc_fid *children, const uint32_t *first, dc_fid *order, uint32_t *n) {
  dc_flow *f = o->flow;
  heap ready = {DC_NEW_ARRAY(o->scratch, dc_fid, f->nodes.n + 1), 0, f};
  uint32_t live = 0;
  count_edges(o);
  for (dc_fid k = 1; k < f->nodes.n; k++) {
    live += dc_flow_has(f, k);
    if (dc_flow_has(f, k) && !o->degree[k]) heap_push(&ready, k);
  }
  while (ready.n) {
    dc_fid k = heap_pop(&ready);
    const dc_flow_node *node = dc_flow_at(f, k);
    order[(*n)++] = k;
    for (uint32_t j = 0; j < node->from.n; j++) release(o, &ready, dc_flow_edge_at(f, node->from.v[j])->dst);
    for (uint32_t j = first[k]; node->kind == DC_FLOW_ENTRY && j < first[k + 1]; j++) release(o, &ready, children[j]);
    if (node->kind == DC_FLOW_ENTRY) release(o, &ready, node->other);
    if (node->scope && node->kind != DC_FLOW_ENTRY) release(o, &ready, dc_flow_at(f, node->scope)->other);
  }
  return *n == live ? DC_OK : circle(o);
}

static bool is_child(const dc_flow *f, dc_fid n) {
  return dc_flow_has(f, n) && dc_flow_at(f, n)->scope && dc_flow_at(f, n)->kind != DC_FLOW_EXIT;
}

static dc_status order_nodes(ordering *o, dc_fid *order, uint32_t *n) {
  dc_flow *f = o->flow;
  DC_TRY(find_scopes(o));
  uint32_t *first = DC_NEW_ARRAY(o->scratch, uint32_t, f->nodes.n + 2); /* by entry: its first child in `children` */
  dc_fid *children = DC_NEW_ARRAY(o->scratch, dc_fid, f->nodes.n + 1);
  for (dc_fid k = 1; k < f->nodes.n; k++)
    if (is_child(f, k)) first[dc_flow_at(f, k)->scope + 1]++;
  for (uint32_t k = 1; k <= f->nodes.n; k++) first[k] += first[k - 1];
  uint32_t *at = dc_arena_copy(o->scratch, first, (f->nodes.n + 1) * sizeof *first);
  for (dc_fid k = 1; k < f->nodes.n; k++)
    if (is_child(f, k)) children[at[dc_flow_at(f, k)->scope]++] = k;
  return sort(o, children, first, order, n);
}

static int by_position(const void *a, const void *b) {
  const dc_flow_node *const *x = a, *const *y = b;
  return (*x)->position < (*y)->position ? -1 : (*x)->position > (*y)->position;
}

dc_status dc_flow_order(dc_flow *flow, dc_arena *scratch, dc_fid **order, uint32_t *n) {
  ordering o = {flow, scratch, DC_NEW_ARRAY(scratch, dc_fid, flow->nodes.n + 1), DC_NEW_ARRAY(scratch, dc_fid, flow->nodes.n + 1),
                DC_NEW_ARRAY(scratch, uint32_t, flow->nodes.n + 1)};
  *order = DC_NEW_ARRAY(scratch, dc_fid, flow->nodes.n + 1), *n = 0;
  dc_status status = order_nodes(&o, *order, n);
  if (!status) return DC_OK;
  const dc_flow_node **live = DC_NEW_ARRAY(scratch, const dc_flow_node *, flow->nodes.n + 1);
  *n = 0;
  for (dc_fid k = 1; k < flow->nodes.n; k++)
    if (dc_flow_has(flow, k)) live[(*n)++] = dc_flow_at(flow, k);
  qsort(live, *n, sizeof *live, by_position);
  for (uint32_t k = 0; k < *n; k++) (*order)[k] = (dc_fid)(live[k] - flow->nodes.v);
  return status;
}
