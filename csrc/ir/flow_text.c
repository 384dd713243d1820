/* The text of a flat view: a line for each node, sources first, then one for each edge.
 *
 *   flow main {
 *     1 access A
 *     2 map scale i in 0:N to 5
 *     3 tasklet mul {
 *       __out = __in0[] * 2.0f
 *     }
 *     4 library conv = Conv@11 {group = 1}
 *     1 -> 2.IN_A: A[0:N]
 *     2.OUT_A -> 3.__in0: A[i]
 *     3.__out -> 5.IN_B: B[i] sum
 *     1 -> 6: A[0:5] to [5:10]
 *     3 -> 4
 *     3.left in
 *   }
 * The number after `to` is the exit's; a connector on a line of its own has no edge.  tests/c/flow_parse.h reads it. */
#include <string.h>

#include "ir/flow.h"
#include "ir/print.h"

static void put_code(const char *code, dc_text *out) {
  dc_text_puts(out, " {\n");
  for (const char *line = code; line && *line;) {
    const char *end = strchr(line, '\n');
    dc_text_indent(out, 2);
    dc_text_printf(out, "%.*s\n", (int)(end ? end - line : (long)strlen(line)), line);
    line = end ? end + 1 : NULL;
  }
  dc_text_puts(out, "  }");
}

static void put_map(const dc_flow_node *node, dc_text *out) {
  static const char *const words[] = {"default", "map", "sequential", "reduce", "scatter"};
  dc_text_printf(out, "%s ", words[node->schedule < DC_FLOW_SCHEDULES ? node->schedule : 0]);
  dc_name_print(node->label, out);
  for (uint32_t k = 0; k < node->n_ranges; k++) {
    const dc_flow_range *r = &node->range[k];
    dc_text_printf(out, "%s%s in %s:%s", k ? ", " : " ", r->param, r->begin, r->end);
    if (strcmp(r->step, "1")) dc_text_printf(out, ":%s", r->step);
  }
  dc_text_printf(out, " to %u", node->other);
}

static void put_library(const dc_flow_node *node, const dc_graph *graph, dc_text *out) {
  dc_text_puts(out, "library ");
  dc_name_print(node->label, out);
  if (!node->node) return;
  const dc_library *lib = &dc_node_at(graph, node->node)->lib;
  dc_text_puts(out, " = ");
  if (lib->wrt) dc_text_printf(out, "grad(%u, %u, %u) ", lib->wrt - 1, lib->n_fwd_in, lib->n_fwd_out);
  if (lib->domain) {
    dc_name_print(dc_name_text(&graph->names, lib->domain), out);
    dc_text_puts(out, "::");
  }
  dc_name_print(dc_name_text(&graph->names, lib->op), out);
  dc_text_printf(out, "@%d", lib->since);
  dc_attrs_print(graph, node->node, out);
}

static void put_node(const dc_flow *flow, const dc_graph *graph, dc_fid n, dc_text *out) {
  const dc_flow_node *node = dc_flow_at(flow, n);
  if (node->kind == DC_FLOW_EXIT && dc_flow_has(flow, node->other)) return;
  dc_text_printf(out, "  %u ", n);
  if (node->kind == DC_FLOW_ENTRY) put_map(node, out);
  else if (node->kind == DC_FLOW_LIBRARY) put_library(node, graph, out);
  else {
    static const char *const words[] = {[DC_FLOW_ACCESS] = "access", [DC_FLOW_EXIT] = "exit", [DC_FLOW_TASKLET] = "tasklet",
                                        [DC_FLOW_NESTED] = "nested"};
    dc_text_printf(out, "%s ", words[node->kind]);
    dc_name_print(node->label, out);
    if (node->kind == DC_FLOW_TASKLET) put_code(node->code, out);
  }
  dc_text_puts(out, "\n");
}

static void put_end(dc_fid n, const char *conn, dc_text *out) {
  dc_text_printf(out, "%u", n);
  if (!conn) return;
  dc_text_puts(out, ".");
  dc_name_print(conn, out);
}

static void put_memlet(const dc_memlet *m, dc_text *out) {
  dc_text_puts(out, ": ");
  if (m->data) dc_name_print(m->data, out);
  else dc_text_puts(out, "_");
  if (m->subset) dc_text_printf(out, "[%s]", m->subset);
  if (m->other) dc_text_printf(out, " to [%s]", m->other);
  if (m->wcr) dc_text_printf(out, " %s", dc_wcr_name((dc_wcr)m->wcr));
}

static void put_loose_ends(const dc_flow *flow, dc_fid n, bool is_input, dc_text *out) {
  const dc_flow_node *node = dc_flow_at(flow, n);
  const dc_flow_names *names = is_input ? &node->in : &node->out;
  uint32_t n_edges = is_input ? node->into.n : node->from.n;
  for (uint32_t k = 0; k < names->n && n_edges < names->n; k++) {
    bool found = false;
    for (uint32_t j = 0; j < n_edges && !found; j++) {
      const dc_flow_edge *e = dc_flow_edge_at(flow, is_input ? node->into.v[j] : node->from.v[j]);
      const char *conn = is_input ? e->dst_conn : e->src_conn;
      found = conn && strcmp(conn, names->v[k]) == 0;
    }
    if (found) continue;
    dc_text_puts(out, "  ");
    put_end(n, names->v[k], out);
    dc_text_puts(out, is_input ? " in\n" : " out\n");
  }
}

void dc_flow_print(const dc_flow *flow, const dc_graph *graph, dc_text *out) {
  dc_arena scratch = {0};
  dc_fid *order;
  uint32_t n;
  dc_flow shown = *flow; /* the order sets scopes, which are no part of what is said */
  dc_status_free(dc_flow_order(&shown, &scratch, &order, &n));
  dc_text_puts(out, "flow ");
  dc_name_print(flow->name ? flow->name : "", out);
  dc_text_puts(out, " {\n");
  for (uint32_t k = 0; k < n; k++) put_node(flow, graph, order[k], out);
  for (dc_eid e = 1; e < flow->edges.n; e++) {
    const dc_flow_edge *edge = dc_flow_edge_at(flow, e);
    if (!edge->src) continue;
    dc_text_puts(out, "  ");
    put_end(edge->src, edge->src_conn, out);
    dc_text_puts(out, " -> ");
    put_end(edge->dst, edge->dst_conn, out);
    if (edge->has_memlet) put_memlet(&edge->memlet, out);
    dc_text_puts(out, "\n");
  }
  for (uint32_t k = 0; k < n; k++) {
    put_loose_ends(flow, order[k], true, out);
    put_loose_ends(flow, order[k], false, out);
  }
  dc_text_puts(out, "}\n");
  dc_arena_free(&scratch);
}
