/* The pipeline: from a graph of operators to scheduled forward and backward graphs. */
#ifndef DCML_PASSES_PIPELINE_H
#define DCML_PASSES_PIPELINE_H

#include "autodiff/autodiff.h"
#include "passes/passes.h"

typedef dc_status (*dc_graph_hook)(void *context, dc_graph *forward, dc_graph *backward); /* backward may be NULL */

typedef struct {
  dc_ops *ops;
  dc_keep_fn native; /* would a library serve this node? NULL: never */
  void *native_context;
  dc_keep keep;
  bool training; /* differentiate with respect to wrt */
  const dc_name *wrt; /* names of containers, in the graph's name table */
  uint32_t n_wrt;
  dc_graph_hook post_onnx, post_autodiff; /* NULL: none */
  void *hook_context;
  bool plain; /* leave maps as operators expand to them: no fusion, no exchange of loops */
} dc_pipeline;

typedef struct {
  dc_graph *forward;
  dc_graph *backward; /* NULL without training */
  dc_grad_pair *wrt;  /* n_wrt pairs in backward's arena */
} dc_scheduled;

/* Takes the graph: on success it is out->forward, on failure it is destroyed.  All '#' inputs
 * must be known (dc_pass_infer has left nothing blocked). */
DC_MUST_USE dc_status dc_pipeline_run(const dc_pipeline *pipeline, dc_graph *graph, dc_scheduled *out);
/* Name of the k-th pass that schedules a graph, forward or backward; NULL at the end. */
const char *dc_pipeline_pass(uint32_t k);

#endif
