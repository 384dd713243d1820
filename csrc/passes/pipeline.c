/* The table of contents of the compiler. */
#include "passes/pipeline.h"

#include <stdlib.h>
#include <string.h>

/* Every output gets a buffer of its own: an input, a constant or a repeated output is copied. */
static void own_outputs(dc_graph *graph) {
  bool *seen = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  for (uint32_t k = 0; k < graph->outputs.n; k++) {
    dc_cid c = graph->outputs.v[k];
    bool repeated = seen[c];
    seen[c] = true;
    if (!repeated && dc_cont(graph, c)->role == DC_ROLE_TEMP) continue;
    dc_container source = *dc_cont(graph, c);
    dc_cid copy = dc_container_add(graph, dc_cont_name(graph, c), (dc_dtype)source.dtype, source.rank, source.shape, DC_ROLE_TEMP);
    if (!repeated) dc_cont(graph, c)->is_output = false;
    dc_cont(graph, copy)->is_output = true;
    graph->outputs.v[k] = copy;
    dc_nid identity = dc_node_library(graph, "Identity", "", 1, &c, 1, &copy, 1, NULL, 0);
    dc_scope_push(graph, dc_graph_scope(graph), identity);
  }
}

static dc_status find_wrt(const dc_pipeline *p, const dc_graph *graph, dc_cid *out) {
  for (uint32_t k = 0; k < p->n_wrt; k++) {
    out[k] = dc_container_find(graph, dc_name_text(&graph->names, p->wrt[k]));
    if (!out[k]) return dc_error(DC_ERR_VALUE, "there is no '%s' to differentiate with respect to", dc_name_text(&graph->names, p->wrt[k]));
  }
  return DC_OK;
}

static dc_status differentiate(const dc_pipeline *p, dc_graph *graph, dc_scheduled *out) {
  dc_cid *wrt = DC_NEW_ARRAY(&graph->arena, dc_cid, p->n_wrt), *outputs = DC_NEW_ARRAY(&graph->arena, dc_cid, graph->outputs.n);
  DC_TRY(find_wrt(p, graph, wrt));
  dc_backward made = {0};
  DC_TRY(dc_autodiff(p->ops, graph, outputs, dc_autodiff_floats(graph, graph->outputs.v, graph->outputs.n, outputs), wrt, p->n_wrt, p->keep, p->native, p->native_context, &made));
  out->backward = made.backward, out->wrt = made.wrt;
  return DC_OK;
}

static dc_status simplify(const dc_pipeline *p, dc_graph *graph) { return dc_pass_simplify(p->ops, graph); }
static dc_status expand(const dc_pipeline *p, dc_graph *graph) { return dc_pass_expand(p->ops, graph, p->native, p->native_context); }

/* What becomes of a graph of operators; `restructures` marks what a plain pipeline leaves out. */
static const struct {
  const char *name;
  dc_status (*with_operators)(const dc_pipeline *, dc_graph *);
  dc_status (*run)(dc_graph *);
  bool restructures;
} stages[] = {{"simplify", simplify, NULL, false},        {"expand", expand, NULL, false},         {"fission", NULL, dc_pass_fission, true},
              {"gather", NULL, dc_pass_gather, true},     {"sink", NULL, dc_pass_sink, true},      {"loops", NULL, dc_pass_loops, true},
              {"fuse", NULL, dc_pass_fuse, true},         {"columns", NULL, dc_pass_columns, true}, {"batches", NULL, dc_pass_batches, true},
              {"unroll", NULL, dc_pass_unroll, false},    {"simplify", simplify, NULL, false}};
enum { N_STAGES = sizeof stages / sizeof *stages };

const char *dc_pipeline_pass(uint32_t k) { return k < N_STAGES ? stages[k].name : NULL; }

static dc_status schedule(const dc_pipeline *p, dc_graph *graph) {
  for (size_t k = 0; k < N_STAGES; k++) {
    if (p->plain && stages[k].restructures) continue;
    DC_TRY(stages[k].run ? stages[k].run(graph) : stages[k].with_operators(p, graph));
  }
  return dc_graph_verify(graph);
}

static dc_status run(const dc_pipeline *p, dc_scheduled *out) {
  dc_cid blocked;
  DC_TRY(dc_pass_infer(p->ops, out->forward, &blocked));
  if (blocked)
    return dc_error(DC_ERR_UNSUPPORTED, "the value of '%s' is needed to compute shapes but only known at run time", dc_cont_name(out->forward, blocked));
  DC_TRY(dc_pass_gradient(p->ops, out->forward));
  own_outputs(out->forward);
  if (p->post_onnx) DC_TRY(p->post_onnx(p->hook_context, out->forward, NULL));
  if (p->training) DC_TRY(differentiate(p, out->forward, out));
  if (p->post_autodiff) DC_TRY(p->post_autodiff(p->hook_context, out->forward, out->backward));
  DC_TRY(schedule(p, out->forward));
  return out->backward ? schedule(p, out->backward) : DC_OK;
}

dc_status dc_pipeline_run(const dc_pipeline *p, dc_graph *graph, dc_scheduled *out) {
  *out = (dc_scheduled){.forward = graph};
  dc_status status = run(p, out);
  if (!status) return DC_OK;
  dc_status located = dc_error_at(status, "graph '%s'", dc_name_text(&graph->names, graph->name));
  dc_graph_destroy(out->forward);
  dc_graph_destroy(out->backward);
  *out = (dc_scheduled){0};
  return located;
}
