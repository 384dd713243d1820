/* Library nodes: each is given to a native library, or replaced by the maps and tasklets of its row. */
#include "autodiff/autodiff.h"
#include "passes/operators.h"

static dc_status expand_node(dc_ops *ops, dc_graph *graph, dc_nid node, dc_adjoint_room *room, dc_scope *out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  return lib->wrt ? dc_autodiff_expand(ops, graph, node, room, out) : dc_ops_expand(ops, graph, node, out);
}

/* Nodes that an expansion has pushed from `first` on may be operators again: those of a gradient. */
static dc_status expand_pushed(dc_ops *ops, dc_graph *graph, dc_adjoint_room *room, uint32_t first, dc_scope *scope) {
  bool any = false;
  for (uint32_t k = first; k < scope->n; k++) any |= dc_node_at(graph, scope->v[k])->kind == DC_NODE_LIBRARY;
  if (!any) return DC_OK;
  const uint32_t n = scope->n - first;
  const dc_nid *made = dc_arena_copy(&graph->arena, scope->v + first, n * sizeof *made);
  scope->n = first;
  for (uint32_t k = 0; k < n; k++) {
    if (dc_node_at(graph, made[k])->kind == DC_NODE_LIBRARY) DC_TRY(expand_node(ops, graph, made[k], room, scope));
    else dc_scope_push(graph, scope, made[k]);
  }
  return DC_OK;
}

dc_status dc_pass_expand_node(dc_ops *ops, dc_graph *graph, dc_nid node, dc_scope *out) {
  dc_adjoint_room room = {0};
  const uint32_t first = out->n;
  dc_status status = expand_node(ops, graph, node, &room, out);
  if (!status) status = expand_pushed(ops, graph, &room, first, out);
  dc_arena_free(&room.arena);
  return status;
}

/* ---- loops without iterations ---- */

static bool never_runs(dc_graph *graph, const dc_map *map) {
  bool empty = map->body.n == 0;
  for (uint32_t k = 0; k < map->n_params && map->schedule != DC_MAP_REDUCE && !empty; k++) {
    dc_parameter p = graph->pool.params.v[map->params[k]];
    empty = dc_ix_proves_ge(&graph->pool, dc_ix_sub(&graph->pool, p.begin, p.end), 0);
  }
  return empty;
}

/* They go, for of an index in no range everything can be proven.  A reduction over nothing stays: it sets its result. */
static void drop_idle(dc_graph *graph, dc_scope *scope) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_node *node = dc_node_at(graph, scope->v[k]);
    if (node->kind == DC_NODE_MAP) drop_idle(graph, &node->map.body);
    if (node->kind != DC_NODE_MAP || !never_runs(graph, &node->map)) scope->v[n++] = scope->v[k];
  }
  scope->n = n;
}

/* What wrote to a register may be gone, and who reads it never run; the verifier sees the one and not the other. */
static void release_registers(dc_graph *graph) {
  bool *written = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) dc_node_mark(graph, graph->states.v[s].scope.v[k], DC_USE_WRITE, written);
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (!written[c]) dc_cont(graph, c)->storage = DC_STORE_HEAP;
}

void dc_pass_natives(const dc_pass_context *context, dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid id = graph->states.v[s].scope.v[k];
      const dc_node *node = dc_node_at(graph, id);
      if (node->kind == DC_NODE_LIBRARY && !node->lib.by && !node->lib.why) dc_operator_choose(context, graph, id);
    }
}

static dc_status expand_all(dc_ops *ops, dc_graph *graph, dc_adjoint_room *room) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope_separate(graph, &graph->states.v[s].scope);
    dc_scope before = graph->states.v[s].scope, after = {0};
    for (uint32_t k = 0; k < before.n; k++) {
      const dc_node *node = dc_node_at(graph, before.v[k]);
      bool stays = node->kind != DC_NODE_LIBRARY || node->lib.by;
      if (node->kind == DC_NODE_MAP) DC_TRY(dc_ops_expand_inside(ops, graph, before.v[k]));
      const uint32_t first = after.n;
      if (stays) dc_scope_push(graph, &after, before.v[k]);
      else DC_TRY(expand_node(ops, graph, before.v[k], room, &after));
      if (!stays) DC_TRY(expand_pushed(ops, graph, room, first, &after));
    }
    drop_idle(graph, &after);
    graph->states.v[s].scope = after;
  }
  return DC_OK;
}

dc_status dc_pass_expand(dc_ops *ops, dc_graph *graph) {
  dc_adjoint_room room = {0};
  dc_status status = expand_all(ops, graph, &room);
  if (!status) release_registers(graph);
  dc_arena_free(&room.arena);
  return status;
}
