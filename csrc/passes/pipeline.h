/* The pipeline: from a graph of operators to scheduled forward and backward graphs.
 *
 * The environment may ask of each compilation: DCML_DUMP=folder writes the graph as text before the first pass and after
 * each (base/dump.h); DCML_VERIFY=1 verifies it after each; DCML_STOP_AFTER=n leaves out the passes after the n-th, but
 * for what running needs, so that every n gives a graph that runs. */
#ifndef DCML_PASSES_PIPELINE_H
#define DCML_PASSES_PIPELINE_H

#include "autodiff/autodiff.h"
#include "passes/passes.h"

typedef dc_status (*dc_graph_hook)(void *context, dc_graph *forward, dc_graph *backward); /* backward may be NULL */

/* A value of a graph that the caller has from an earlier run: `given`, an input of the same type and shape, holds it. */
typedef struct {
  dc_cid value, given;
} dc_given_value;

typedef struct {
  dc_pass_context passes;
  dc_keep keep;
  dc_graph_hook post_onnx, post_autodiff; /* NULL: none */
  void *hook_context;
  bool results_stay; /* the caller keeps results as they are for the backward pass */
  bool as_expanded; /* leave maps as operators expand to them: no fusion, no exchange of loops */
  const dc_given_value *given; /* what makes these is differentiated, but not run */
  uint32_t n_given;
} dc_pipeline;

/* Seconds by place in the pipeline; negative: left out. */
typedef struct {
  double seconds[DC_PIPELINE_LENGTH];
} dc_pass_times;

typedef struct {
  dc_graph *forward;
  dc_graph *backward; /* NULL without training */
  dc_grad_pair *wrt;  /* n_wrt pairs in backward's arena */
  dc_pass_times times[2]; /* of the forward and the backward graph */
} dc_scheduled;

/* Takes the graph: on success it is out->forward, on failure it is destroyed.  All '#' inputs
 * must be known (dc_pass_infer has left nothing blocked).  The forward graph is scheduled then; out->backward is not yet, so
 * that the forward graph may be compiled meanwhile. */
DC_MUST_USE dc_status dc_pipeline_run(const dc_pipeline *pipeline, dc_graph *graph, dc_scheduled *out);
/* Schedules out->backward.  forward: the graph that out->forward was. */
DC_MUST_USE dc_status dc_pipeline_run_backward(const dc_pipeline *pipeline, const dc_graph *forward, dc_scheduled *out);

/* Both graphs of a differentiated one read the given values where they lie, and what makes them goes (given.c). */
void dc_pipeline_take_given(dc_graph *forward, dc_graph *backward, const dc_given_value *values, uint32_t n);

/* The same up to differentiation, of a graph that stays the caller's: then both are programs whose arrays the caller gives.
 * Saved values and weights are inputs of both; the backward graph has an input gradient_<name> for each floating output,
 * and one that it writes for each of wrt. */
DC_MUST_USE dc_status dc_pipeline_differentiate(const dc_pipeline *pipeline, dc_graph *forward, dc_graph **backward);
#endif
