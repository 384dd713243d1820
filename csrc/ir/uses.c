/* Dataflow queries and rewriting over a node tree. */
#include <stdlib.h>

#include "ir/graph.h"

typedef struct {
  const dc_graph *graph;
  dc_use_fn visit;
  void *context;
  dc_nid by;
} use_walk;

static void visit_read(void *context, const dc_pool *pool, dc_ex e) {
  const use_walk *w = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ) w->visit(w->context, node->ref, DC_USE_READ, w->by);
}

static void visit_reads(use_walk *w, dc_ex e) {
  if (e) dc_ex_walk(&w->graph->pool, e, visit_read, w);
}

static void uses(use_walk *w, dc_nid id, bool in_reduce) {
  const dc_node *node = dc_node_at(w->graph, id);
  w->by = id;
  if (node->kind == DC_NODE_LIBRARY) {
    for (uint32_t k = 0; k < node->lib.n_in; k++)
      if (node->lib.in[k]) w->visit(w->context, node->lib.in[k], DC_USE_READ, id);
    for (uint32_t k = 0; k < node->lib.n_out; k++)
      if (node->lib.out[k]) w->visit(w->context, node->lib.out[k], DC_USE_WRITE, id);
  } else if (node->kind == DC_NODE_TASKLET) {
    dc_tasklet t = node->tasklet;
    visit_reads(w, t.guard);
    visit_reads(w, t.value);
    for (uint32_t d = 0; d < t.rank; d++) visit_reads(w, t.index[d]);
    if (t.wcr && !in_reduce) w->visit(w->context, t.out, DC_USE_READ, id);
    w->visit(w->context, t.out, DC_USE_WRITE, id);
  } else {
    for (uint32_t k = 0; k < node->map.n_params; k++) {
      dc_parameter p = w->graph->pool.params.v[node->map.params[k]];
      visit_reads(w, p.begin);
      visit_reads(w, p.end);
    }
    for (uint32_t k = 0; k < node->map.body.n; k++) uses(w, node->map.body.v[k], in_reduce || node->map.schedule == DC_MAP_REDUCE);
  }
}

void dc_node_uses(const dc_graph *graph, dc_nid node, dc_use_fn visit, void *context) {
  use_walk w = {graph, visit, context, node};
  uses(&w, node, false);
}

typedef struct {
  const dc_graph *graph;
  unsigned uses;
  const bool *set; /* by buffer, or NULL */
  bool *add;       /* by buffer, or NULL */
  dc_cid one;      /* 0: none */
  bool found;
} touch_search;

static void note_touch(void *context, dc_cid c, dc_use use, dc_nid by) {
  touch_search *t = context;
  dc_cid root = dc_container_root(t->graph, c);
  (void)by;
  if (!(use & t->uses)) return;
  t->found |= root == t->one || (t->set && t->set[root]);
  if (t->add) t->add[root] = true;
}

bool dc_node_touches(const dc_graph *graph, dc_nid node, unsigned uses, const bool *buffers) {
  touch_search t = {graph, uses, .set = buffers};
  dc_node_uses(graph, node, note_touch, &t);
  return t.found;
}

void dc_node_mark(const dc_graph *graph, dc_nid node, unsigned uses, bool *buffers) {
  touch_search t = {graph, uses, .add = buffers};
  dc_node_uses(graph, node, note_touch, &t);
}

bool dc_node_touches_one(const dc_graph *graph, dc_nid node, unsigned uses, dc_cid buffer) {
  touch_search t = {graph, uses, .one = buffer};
  dc_node_uses(graph, node, note_touch, &t);
  return t.found;
}

typedef struct {
  const dc_graph *graph;
  dc_writers *out;
  uint32_t place;
} writer_count;

static void note_writer(void *context, dc_cid c, dc_use use, dc_nid by) {
  writer_count *w = context;
  dc_writers *entry = &w->out[dc_container_root(w->graph, c)];
  (void)by;
  if (use != DC_USE_WRITE) return;
  entry->n += entry->last != w->place;
  entry->last = w->place;
}

void dc_graph_writers(const dc_graph *graph, dc_writers *out) {
  writer_count w = {graph, out, 0};
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      w.place++;
      dc_node_uses(graph, graph->states.v[s].scope.v[k], note_writer, &w);
    }
}

bool dc_graph_writes_inputs(dc_graph *g) {
  dc_writers *writers = DC_NEW_ARRAY(&g->arena, dc_writers, g->containers.n);
  bool any = false;
  dc_graph_writers(g, writers);
  for (uint32_t k = 0; k < g->inputs.n; k++) any |= writers[g->inputs.v[k]].n > 0;
  return any;
}

static void mark_used(void *context, dc_cid c, dc_use use, dc_nid by) {
  (void)use, (void)by;
  ((bool *)context)[c] = true;
}

void dc_graph_drop_unused_views(dc_graph *graph) {
  bool *used = calloc(graph->containers.n, sizeof *used), *seen = calloc(graph->containers.n, sizeof *seen); /* itself; through views too */
  if (!used || !seen) abort();
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) dc_node_uses(graph, graph->states.v[s].scope.v[k], mark_used, used);
  for (dc_cid c = 1; c < graph->containers.n; c++)
    for (dc_cid at = used[c] || dc_cont(graph, c)->is_output ? c : 0; at && !seen[at]; at = dc_cont(graph, at)->alias_of) seen[at] = true;
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (!seen[c]) dc_cont(graph, c)->alias_of = 0, dc_cont(graph, c)->alias_offset = 0;
  free(used);
  free(seen);
}

static dc_status tasklets(const dc_graph *graph, dc_nid id, dc_tasklet_fn visit, void *context, dc_nid *maps, uint32_t depth) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind == DC_NODE_TASKLET) return visit(context, id, maps, depth);
  if (node->kind != DC_NODE_MAP) return DC_OK;
  if (depth == DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "maps are nested deeper than %d", DC_MAX_LOOPS);
  maps[depth] = id;
  for (uint32_t k = 0; k < dc_node_at(graph, id)->map.body.n; k++)
    DC_TRY(tasklets(graph, dc_node_at(graph, id)->map.body.v[k], visit, context, maps, depth + 1));
  return DC_OK;
}

dc_status dc_node_tasklets(const dc_graph *graph, dc_nid node, dc_tasklet_fn visit, void *context) {
  dc_nid maps[DC_MAX_LOOPS];
  return tasklets(graph, node, visit, context, maps, 0);
}

void dc_node_rewrite(dc_graph *graph, dc_nid id, dc_leaf_fn leaf, void *context) {
  dc_node node = *dc_node_at(graph, id); /* lists are shared with the original, so edits through it stay */
  if (node.kind == DC_NODE_TASKLET) {
    for (uint32_t d = 0; d < node.tasklet.rank; d++)
      node.tasklet.index[d] = dc_ex_rewrite(&graph->pool, node.tasklet.index[d], leaf, context);
    dc_ex guard = node.tasklet.guard ? dc_ex_rewrite(&graph->pool, node.tasklet.guard, leaf, context) : 0;
    dc_ex value = dc_ex_rewrite(&graph->pool, node.tasklet.value, leaf, context);
    int64_t truth;
    if (guard && dc_ex_is_int(&graph->pool, guard, &truth) && truth) guard = 0;
    dc_node_at(graph, id)->tasklet.guard = guard;
    dc_node_at(graph, id)->tasklet.value = value;
  } else if (node.kind == DC_NODE_MAP) {
    for (uint32_t k = 0; k < node.map.n_params; k++) {
      dc_param p = node.map.params[k];
      dc_ex begin = dc_ex_rewrite(&graph->pool, graph->pool.params.v[p].begin, leaf, context);
      dc_ex end = dc_ex_rewrite(&graph->pool, graph->pool.params.v[p].end, leaf, context);
      graph->pool.params.v[p].begin = begin, graph->pool.params.v[p].end = end;
    }
    for (uint32_t k = 0; k < node.map.body.n; k++) dc_node_rewrite(graph, node.map.body.v[k], leaf, context);
  }
}

void dc_node_substitute(dc_graph *graph, dc_nid node, dc_param param, dc_ex value) {
  dc_node_rewrite(graph, node, dc_ex_substitute, &(dc_substitution){&param, &value, 1});
}

void dc_node_forward(dc_graph *graph, dc_nid node, dc_ex element, dc_ex value) {
  dc_node_rewrite(graph, node, dc_ex_exchange, &(dc_exchange){element, value});
}

typedef struct {
  dc_cid from, to;
} renaming;

static dc_ex rename_read(void *context, dc_pool *pool, dc_ex leaf) {
  const renaming *r = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  dc_ex index[DC_MAX_RANK];
  if (node.op != DC_EX_READ || node.ref != r->from) return leaf;
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(pool, leaf, d);
  return dc_ex_read(pool, (dc_dtype)node.dtype, r->to, index, node.nargs);
}

static void rename_operands(dc_graph *graph, dc_nid id, const renaming *r) {
  dc_node *node = dc_node_at(graph, id);
  if (node->kind == DC_NODE_TASKLET && node->tasklet.out == r->from) node->tasklet.out = r->to;
  for (uint32_t k = 0; node->kind == DC_NODE_LIBRARY && k < node->lib.n_in; k++)
    if (node->lib.in[k] == r->from) node->lib.in[k] = r->to;
  for (uint32_t k = 0; node->kind == DC_NODE_LIBRARY && k < node->lib.n_out; k++)
    if (node->lib.out[k] == r->from) node->lib.out[k] = r->to;
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && k < node->map.body.n; k++) rename_operands(graph, node->map.body.v[k], r);
}

void dc_node_rename(dc_graph *graph, dc_nid node, dc_cid from, dc_cid to) {
  renaming r = {from, to};
  dc_node_rewrite(graph, node, rename_read, &r);
  rename_operands(graph, node, &r);
}

static void look_at_leaf(void *context, const dc_pool *pool, dc_ex e) {
  dc_op op = (dc_op)dc_ex_node(pool, e)->op;
  if (op == DC_RAND || op == DC_EX_SYM) *(bool *)context = false;
}

bool dc_node_is_fixed(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  const dc_pool *pool = &graph->pool;
  bool good = node->kind != DC_NODE_LIBRARY;
  if (node->kind == DC_NODE_TASKLET) {
    for (uint32_t d = 0; d < node->tasklet.rank; d++) dc_ex_walk(pool, node->tasklet.index[d], look_at_leaf, &good);
    if (node->tasklet.guard) dc_ex_walk(pool, node->tasklet.guard, look_at_leaf, &good);
    dc_ex_walk(pool, node->tasklet.value, look_at_leaf, &good);
  }
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && k < node->map.n_params; k++) {
    dc_ex_walk(pool, pool->params.v[node->map.params[k]].begin, look_at_leaf, &good);
    dc_ex_walk(pool, pool->params.v[node->map.params[k]].end, look_at_leaf, &good);
  }
  for (uint32_t k = 0; node->kind == DC_NODE_MAP && good && k < node->map.body.n; k++) good = dc_node_is_fixed(graph, node->map.body.v[k]);
  return good;
}
