/* The public transformations by name, with what each is told. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "passes/transforms/transforms.h"

typedef struct {
  const char *name;
  dc_transform_fn apply;
  const char *options[DC_MAX_OPTIONS + 1];
} row;

static const row rows[] = {
    {"ConstantFolding", dc_transform_constant_folding, {NULL}},
    {"InputToConstant", dc_transform_input_to_constant, {NULL}},
    {"MapCollapse", dc_transform_map_collapse, {NULL}},
    {"MapExpansion", dc_transform_map_expansion, {NULL}},
    {"MapFusion", dc_transform_map_fusion, {NULL}},
    {"MapTiling", dc_transform_map_tiling, {"tile_sizes", "divides_evenly", NULL}},
    {"RedundantArray", dc_transform_redundant_array, {NULL}},
    {"StateFusion", dc_transform_state_fusion, {NULL}},
    {"SubgraphFusion", dc_transform_subgraph_fusion, {NULL}},
    {"TaskletFission", dc_transform_tasklet_fission, {NULL}},
    {"TaskletFusion", dc_transform_tasklet_fusion, {NULL}},
    {"TrivialMapRangeElimination", dc_transform_trivial_ranges, {NULL}},
    {"Vectorization", dc_transform_vectorization, {NULL}},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

const char *dc_transform_at(uint32_t k) { return k < N_ROWS ? rows[k].name : NULL; }

/* ---- what a call says ---- */

static dc_status no_row(const char *name, int length) {
  dc_text names = {0};
  for (uint32_t k = 0; k < N_ROWS; k++) dc_text_printf(&names, "%s%s", k ? ", " : "", rows[k].name);
  dc_status status = dc_error(DC_ERR_VALUE, "there is no transformation '%.*s'; there are %s", length, name, names.s);
  dc_text_free(&names);
  return status;
}

static dc_status no_option(const row *r, const char *name, int length) {
  dc_text names = {0};
  if (!r->options[0]) return dc_error(DC_ERR_VALUE, "%s has no option '%.*s': it has none", r->name, length, name);
  for (uint32_t k = 0; r->options[k]; k++) dc_text_printf(&names, "%s%s", k ? ", " : "", r->options[k]);
  dc_status status = dc_error(DC_ERR_VALUE, "%s has no option '%.*s'; there are %s", r->name, length, name, names.s);
  dc_text_free(&names);
  return status;
}

/* NAME=INTEGER,INTEGER,... up to ';' or ')'. */
static dc_status read_option(const row *r, const char **at, dc_transform *t) {
  const char *name = *at;
  int length = (int)strcspn(name, "=;)");
  uint32_t k = 0;
  while (r->options[k] && (strncmp(r->options[k], name, (size_t)length) || r->options[k][length])) k++;
  if (!r->options[k]) return no_option(r, name, length);
  dc_transform_option *out = &t->options[k];
  out->n = 0;
  for (*at = name + length; **at == '=' || **at == ',';) {
    char *end;
    if (out->n == DC_MAX_RANK)
      return dc_error(DC_ERR_VALUE, "%s: option '%s' has more than %d values", r->name, r->options[k], DC_MAX_RANK);
    out->values[out->n++] = strtoll(*at + 1, &end, 10);
    if (end == *at + 1) return dc_error(DC_ERR_VALUE, "%s: option '%s' takes integers", r->name, r->options[k]);
    *at = end;
  }
  return out->n ? DC_OK : dc_error(DC_ERR_VALUE, "%s: option '%s' needs a value", r->name, r->options[k]);
}

static dc_status read_call(const char *call, const row **out, dc_transform *t) {
  size_t length = strcspn(call, "(");
  for (uint32_t k = 0; k < N_ROWS && !*out; k++)
    if (strncmp(rows[k].name, call, length) == 0 && !rows[k].name[length]) *out = &rows[k];
  if (!*out) return no_row(call, (int)length);
  const char *at = call + length;
  while (*at == '(' || *at == ';') {
    at++;
    DC_TRY(read_option(*out, &at, t));
  }
  return strcmp(at, call[length] ? ")" : "") ? dc_error(DC_ERR_VALUE, "%s: expected ')' instead of '%s'", (*out)->name, at) : DC_OK;
}

/* ---- what is meant ---- */

static void release(const dc_graph *graph, dc_nid node, bool *fixed) {
  const dc_node *n = dc_node_at(graph, node);
  fixed[node] = false;
  for (uint32_t k = 0; n->kind == DC_NODE_MAP && k < n->map.body.n; k++) release(graph, n->map.body.v[k], fixed);
}

static dc_status choose(const dc_transform_target *on, dc_graph *graph, dc_arena *arena, dc_transform *t) {
  bool *chosen = DC_NEW_ARRAY(arena, bool, graph->containers.n);
  t->all = !on || (!on->nodes && !on->containers);
  if (t->all) return DC_OK;
  t->n_fixed = graph->nodes.n, t->fixed = DC_NEW_ARRAY(arena, bool, graph->nodes.n), t->chosen = chosen;
  memset(t->fixed, true, graph->nodes.n * sizeof *t->fixed);
  for (uint32_t k = 0; k < on->n_nodes; k++) {
    if (!on->nodes[k] || on->nodes[k] >= graph->nodes.n) return dc_error(DC_ERR_VALUE, "there is no node %u", on->nodes[k]);
    release(graph, on->nodes[k], t->fixed);
  }
  for (uint32_t k = 0; k < on->n_containers; k++) {
    if (!on->containers[k] || on->containers[k] >= graph->containers.n)
      return dc_error(DC_ERR_VALUE, "there is no container %u", on->containers[k]);
    chosen[on->containers[k]] = true;
  }
  return DC_OK;
}

/* ---- scopes ---- */

static void walk(const dc_transform *t, dc_scope_fn each, dc_scope *scope, uint32_t *count) {
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_nid id = scope->v[k];
    if (dc_node_at(t->graph, id)->kind != DC_NODE_MAP) continue;
    dc_scope body = dc_node_at(t->graph, id)->map.body;
    walk(t, each, &body, count);
    dc_node_at(t->graph, id)->map.body = body;
  }
  each(t, scope, count);
}

void dc_transform_each_scope(const dc_transform *t, dc_scope_fn each, uint32_t *count) {
  for (uint32_t s = 0; s < t->graph->states.n; s++) {
    dc_scope scope = t->graph->states.v[s].scope;
    walk(t, each, &scope, count);
    t->graph->states.v[s].scope = scope;
  }
}

/* ---- all of it ---- */

dc_status dc_transform_apply(const dc_transform_tools *tools, dc_graph *graph, const char *call, const dc_transform_target *on,
                             uint32_t *count) {
  dc_arena arena = {0};
  dc_transform t = {.tools = tools, .graph = graph};
  const row *r = NULL;
  *count = 0;
  DC_TRY(read_call(call, &r, &t));
  dc_status status = choose(on, graph, &arena, &t);
  if (!status) status = r->apply(&t, count);
  dc_arena_free(&arena);
  DC_TRY(dc_error_at(status, "transformation '%s'", r->name));
  return dc_error_at(dc_graph_verify(graph), "after transformation '%s'", r->name);
}

dc_status dc_step_run(const dc_transform_tools *tools, dc_graph *graph, const char *what) {
  uint32_t count;
  return isupper((unsigned char)*what) ? dc_transform_apply(tools, graph, what, NULL, &count) : dc_pass_run(tools->ops, graph, what);
}
