/* Passes by name, for tests and for hooks. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "passes/passes.h"

static dc_status run_infer(dc_ops *ops, dc_graph *graph) {
  dc_cid blocked;
  DC_TRY(dc_pass_infer(ops, graph, &blocked));
  if (!blocked) return DC_OK;
  const char *name = dc_cont_name(graph, blocked);
  return dc_error_about(dc_error(DC_ERR_MODEL, "the value of '%s' must be known to compute shapes", name), name);
}

static dc_status run_expand(dc_ops *ops, dc_graph *graph) { return dc_pass_expand(ops, graph, NULL, NULL); }

/* The first state's floating outputs with respect to its floating inputs, in the same graph. */
static dc_status run_differentiate(dc_ops *ops, dc_graph *graph) {
  dc_cid *outputs = DC_NEW_ARRAY(&graph->arena, dc_cid, graph->outputs.n), *inputs = DC_NEW_ARRAY(&graph->arena, dc_cid, graph->inputs.n);
  uint32_t n_outputs = dc_autodiff_floats(graph, graph->outputs.v, graph->outputs.n, outputs);
  uint32_t n_inputs = dc_autodiff_floats(graph, graph->inputs.v, graph->inputs.n, inputs);
  return dc_autodiff_join(ops, graph, 0, outputs, n_outputs, inputs, n_inputs);
}

static const struct {
  const char *name;
  dc_status (*run)(dc_ops *, dc_graph *);
  dc_status (*transform)(dc_graph *); /* of a pass that asks no operator */
} passes[] = {{"infer", run_infer, NULL}, {"gradient", dc_pass_gradient, NULL}, {"tidy", dc_pass_tidy, NULL},
              {"simplify", dc_pass_simplify, NULL}, {"differentiate", run_differentiate, NULL}, {"expand", run_expand, NULL},
              {"fission", NULL, dc_pass_fission}, {"gather", NULL, dc_pass_gather}, {"sink", NULL, dc_pass_sink}, {"loops", NULL, dc_pass_loops},
              {"fuse", NULL, dc_pass_fuse}, {"columns", NULL, dc_pass_columns}, {"batches", NULL, dc_pass_batches},
              {"unroll", NULL, dc_pass_unroll}};

dc_status dc_pass_run(dc_ops *ops, dc_graph *graph, const char *name) {
  dc_text names = {0};
  for (size_t k = 0; k < sizeof passes / sizeof *passes; k++) {
    if (strcmp(passes[k].name, name) == 0) {
      dc_text_free(&names);
      dc_status status = passes[k].run ? passes[k].run(ops, graph) : passes[k].transform(graph);
      DC_TRY(dc_error_at(status, "pass '%s'", name));
      return dc_error_at(dc_graph_verify(graph), "after pass '%s'", name);
    }
    dc_text_printf(&names, "%s%s", k ? ", " : "", passes[k].name);
  }
  dc_status status = dc_error(DC_ERR_VALUE, "there is no pass '%s'; there are %s", name, names.s);
  dc_text_free(&names);
  return status;
}
