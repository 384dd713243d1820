/* Replaces library nodes by the maps and tasklets of their rows. */
#include "autodiff/autodiff.h"
#include "passes/passes.h"

static dc_status expand_node(dc_ops *ops, dc_graph *graph, dc_nid node, dc_adjoint_room *room, dc_scope *out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  if (!lib->wrt) return dc_ops_expand(ops, graph, node, out);
  const dc_row *row = dc_ops_find(ops, dc_name_text(&graph->names, lib->domain), dc_name_text(&graph->names, lib->op), lib->since);
  if (!row || !dc_row_has_grad(row)) return dc_autodiff_expand(ops, graph, node, room, out);
  return dc_ops_expand_grad(ops, graph, node, lib->wrt - 1, lib->in + lib->n_fwd_in + lib->n_fwd_out, lib->out[0], out);
}

dc_status dc_pass_expand_node(dc_ops *ops, dc_graph *graph, dc_nid node, dc_scope *out) {
  dc_adjoint_room room = {0};
  dc_status status = expand_node(ops, graph, node, &room, out);
  dc_arena_free(&room.arena);
  return status;
}

static dc_status expand_all(dc_ops *ops, dc_graph *graph, dc_keep_fn keep, void *context, dc_adjoint_room *room) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope before = graph->states.v[s].scope, after = {0};
    for (uint32_t k = 0; k < before.n; k++) {
      bool stays = dc_node_at(graph, before.v[k])->kind != DC_NODE_LIBRARY || (keep && keep(context, graph, before.v[k]));
      if (stays) dc_scope_push(graph, &after, before.v[k]);
      else DC_TRY(expand_node(ops, graph, before.v[k], room, &after));
    }
    graph->states.v[s].scope = after;
  }
  return DC_OK;
}

dc_status dc_pass_expand(dc_ops *ops, dc_graph *graph, dc_keep_fn keep, void *context) {
  dc_adjoint_room room = {0};
  dc_status status = expand_all(ops, graph, keep, context, &room);
  dc_arena_free(&room.arena);
  return status;
}
