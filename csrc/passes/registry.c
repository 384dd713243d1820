/* Passes by name (passes.def) and the order in which the pipeline runs them. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "passes/passes.h"

/* ---- passes that ask what operators mean ---- */

static dc_status infer(const dc_pass_context *context, dc_graph *graph) {
  dc_cid blocked;
  DC_TRY(dc_pass_infer(context->ops, graph, &blocked));
  if (!blocked) return DC_OK;
  const char *name = dc_cont_name(graph, blocked);
  return dc_error_about(dc_error(DC_ERR_MODEL, "the value of '%s' must be known to compute shapes", name), name);
}

static dc_status gradient(const dc_pass_context *context, dc_graph *graph) { return dc_pass_gradient(context, graph); }
static dc_status complexes(const dc_pass_context *context, dc_graph *graph) { return dc_pass_complexes(context->ops, graph); }
static dc_status tidy(const dc_pass_context *context, dc_graph *graph) { return dc_pass_tidy(context->ops, graph); }
static dc_status apart(const dc_pass_context *context, dc_graph *graph) { return dc_pass_apart(context, graph); }
static dc_status subnormals(const dc_pass_context *context, dc_graph *graph) { return dc_pass_subnormals(context->ops, graph); }
static dc_status integers(const dc_pass_context *context, dc_graph *graph) { return dc_pass_integers(context, graph); }
static dc_status unbind(const dc_pass_context *context, dc_graph *graph) { return dc_pass_unbind(context, graph); }
static dc_status pairs(const dc_pass_context *context, dc_graph *graph) { return dc_pass_pairs(context, graph); }
static dc_status contractions(const dc_pass_context *context, dc_graph *graph) { return dc_pass_contractions(context, graph); }
static dc_status attention(const dc_pass_context *context, dc_graph *graph) { return dc_pass_attention(context, graph); }
static dc_status products(const dc_pass_context *context, dc_graph *graph) { return dc_pass_products(context, graph); }
static dc_status fold(const dc_pass_context *context, dc_graph *graph) { return dc_pass_fold(context, graph); }
static dc_status convolutions(const dc_pass_context *context, dc_graph *graph) { return dc_pass_convolutions(context, graph); }
static dc_status share(const dc_pass_context *context, dc_graph *graph) { return dc_pass_share(context->ops, graph); }
static dc_status widen(const dc_pass_context *context, dc_graph *graph) { return dc_pass_widen(context, graph); }
static dc_status simplify(const dc_pass_context *context, dc_graph *graph) { return dc_pass_simplify(context->ops, graph); }
static dc_status results(const dc_pass_context *context, dc_graph *graph) { return dc_pass_results(context->ops, graph); }
static dc_status natives(const dc_pass_context *context, dc_graph *graph) { return dc_pass_natives(context, graph), DC_OK; }
static dc_status strided(const dc_pass_context *context, dc_graph *graph) { return dc_pass_strided(context->ops, graph); }
static dc_status expand(const dc_pass_context *context, dc_graph *graph) { return dc_pass_expand(context->ops, graph); }

/* The first state's floating outputs with respect to its floating inputs, in the same graph. */
static dc_status differentiate(const dc_pass_context *context, dc_graph *graph) {
  dc_cid *outputs = DC_NEW_ARRAY(&graph->arena, dc_cid, graph->outputs.n), *inputs = DC_NEW_ARRAY(&graph->arena, dc_cid, graph->inputs.n);
  uint32_t n_outputs = dc_autodiff_floats(graph, graph->outputs.v, graph->outputs.n, outputs);
  uint32_t n_inputs = dc_autodiff_floats(graph, graph->inputs.v, graph->inputs.n, inputs);
  DC_TRY(dc_pass_complexes(context->ops, graph));
  return dc_autodiff_join(context->ops, graph, 0, outputs, n_outputs, inputs, n_inputs);
}

static dc_status fuse(const dc_pass_context *context, dc_graph *graph);

/* ---- the list, and the pipeline ---- */

#define PASS(name, with_operators, run, kind, summary) {#name, summary, with_operators, run, DC_PASS_##kind},
static const dc_pass passes[] = {
#include "passes/passes.def"
};
#undef PASS
#define PASS(name, with_operators, run, kind, summary) P_##name,
enum {
#include "passes/passes.def"
  N_PASSES
};

/* Merging again finds sums that contraction has made one value. */
static const uint8_t order[] = {P_simplify, P_results, P_natives, P_expand, P_strided, P_layout, P_borders, P_exchange, P_fission,
                                P_gather, P_sink, P_exact, P_traffic, P_views, P_loops, P_factor, P_exponents, P_split, P_inline,
                                P_merge, P_contract, P_again, P_blocks, P_bands, P_merge, P_contract, P_rewrite, P_order, P_strips,
                                P_columns, P_batches, P_unroll, P_slices, P_simplify};
_Static_assert(sizeof order == DC_PIPELINE_LENGTH, "passes.h states how many passes the pipeline has");

const dc_pass *dc_pass_at(uint32_t k) { return k < N_PASSES ? &passes[k] : NULL; }
const dc_pass *dc_pipeline_pass(uint32_t k) { return k < DC_PIPELINE_LENGTH ? &passes[order[k]] : NULL; }

/* The pipeline's passes from inline to order. */
static dc_status fuse(const dc_pass_context *context, dc_graph *graph) {
  uint32_t k = 0;
  while (order[k] != P_inline) k++;
  for (; order[k - 1] != P_order; k++) DC_TRY(dc_pass_apply(&passes[order[k]], context, graph));
  return DC_OK;
}

dc_status dc_pass_apply(const dc_pass *pass, const dc_pass_context *context, dc_graph *graph) {
  return pass->run ? pass->run(graph) : pass->with_operators(context, graph);
}

dc_status dc_pass_run(dc_ops *ops, dc_graph *graph, const char *name) {
  dc_text names = {0};
  for (uint32_t k = 0; k < N_PASSES; k++) {
    if (strcmp(passes[k].name, name) == 0) {
      dc_text_free(&names);
      DC_TRY(dc_error_at(dc_pass_apply(&passes[k], &(dc_pass_context){.ops = ops}, graph), "pass '%s'", name));
      return dc_error_at(dc_graph_verify(graph), "after pass '%s'", name);
    }
    dc_text_printf(&names, "%s%s", k ? ", " : "", passes[k].name);
  }
  dc_status status = dc_error(DC_ERR_VALUE, "there is no pass '%s'; there are %s", name, names.s);
  dc_text_free(&names);
  return status;
}
