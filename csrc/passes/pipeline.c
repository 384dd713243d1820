/* The table of contents of the compiler: what becomes of a graph of operators. */
#include "passes/pipeline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dump.h"

/* Every output gets a buffer of its own: an input, a constant or a repeated output is copied.  What is written in place
 * the caller has already. */
static void own_outputs(dc_graph *graph) {
  bool *seen = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  dc_writers *writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  uint32_t n = graph->outputs.n;
  graph->outputs.n = 0;
  dc_graph_writers(graph, writers);
  for (uint32_t k = 0; k < n; k++) {
    dc_cid c = graph->outputs.v[k];
    bool in_place = dc_cont(graph, c)->role == DC_ROLE_INPUT && writers[c].n;
    if (in_place) dc_cont(graph, c)->is_output = false;
    else graph->outputs.v[graph->outputs.n++] = c;
  }
  for (uint32_t k = 0; k < graph->outputs.n; k++) {
    dc_cid c = graph->outputs.v[k];
    bool repeated = seen[c];
    seen[c] = true;
    if (!repeated && dc_cont(graph, c)->role == DC_ROLE_TEMP && !dc_cont(graph, c)->alias_of) continue;
    dc_container source = *dc_cont(graph, c);
    dc_cid copy = dc_container_add(graph, dc_cont_name(graph, c), (dc_dtype)source.dtype, source.rank, source.shape, DC_ROLE_TEMP);
    if (!repeated) dc_cont(graph, c)->is_output = false;
    dc_cont(graph, copy)->is_output = true;
    graph->outputs.v[k] = copy;
    dc_nid identity = dc_node_library(graph, "Identity", "", 1, &c, 1, &copy, 1, NULL, 0);
    dc_scope_push(graph, dc_graph_scope(graph), identity);
  }
}

/* Strides say how a caller's array lies, which callers bring into rows; memory that is planned here lies in rows. */
static void lay_in_rows(dc_graph *graph) {
  for (dc_cid c = 1; c < graph->containers.n; c++) dc_cont(graph, c)->strides = NULL;
}

static dc_status find_wrt(const dc_pipeline *p, const dc_graph *graph, dc_cid *out) {
  for (uint32_t k = 0; k < p->passes.n_wrt; k++) {
    out[k] = dc_container_find(graph, dc_name_text(&graph->names, p->passes.wrt[k]));
    if (!out[k]) return dc_error(DC_ERR_VALUE, "there is no '%s' to differentiate with respect to", dc_name_text(&graph->names, p->passes.wrt[k]));
  }
  return DC_OK;
}

/* Groups of operators that a library runs as one, and operators that it runs in parts; then what stands twice. */
static dc_status recognise(const dc_pipeline *p, dc_graph *graph) {
  DC_TRY(dc_pass_apart(&p->passes, graph));
  if (!p->passes.training) DC_TRY(dc_pass_integers(&p->passes, graph));
  DC_TRY(dc_pass_unbind(&p->passes, graph));
  DC_TRY(dc_pass_pairs(&p->passes, graph));
  DC_TRY(dc_pass_contractions(&p->passes, graph));
  DC_TRY(dc_pass_attention(&p->passes, graph));
  if (!p->passes.training) DC_TRY(dc_pass_fold(&p->passes, graph));
  if (!p->passes.training) DC_TRY(dc_pass_subnormals(p->passes.ops, graph));
  DC_TRY(dc_pass_convolutions(&p->passes, graph));
  DC_TRY(dc_pass_widen(&p->passes, graph));
  DC_TRY(dc_pass_products(&p->passes, graph));
  return dc_pass_share(p->passes.ops, graph);
}

static dc_status differentiate(const dc_pipeline *p, dc_graph *graph, dc_scheduled *out) {
  dc_cid *wrt = DC_NEW_ARRAY(&graph->arena, dc_cid, p->passes.n_wrt), *outputs = DC_NEW_ARRAY(&graph->arena, dc_cid, graph->outputs.n);
  DC_TRY(find_wrt(p, graph, wrt));
  dc_pass_natives(&p->passes, graph); /* what a library runs, it may differentiate */
  dc_backward made = {0};
  uint32_t n_outputs = dc_autodiff_floats(graph, graph->outputs.v, graph->outputs.n, outputs);
  if (!n_outputs && dc_graph_writes_inputs(graph))
    return dc_error(
        DC_ERR_UNSUPPORTED,
        "it returns nothing to differentiate, for its results are arrays of the caller's: add_backward_pass differentiates those");
  DC_TRY(dc_autodiff(p->passes.ops, graph, outputs, n_outputs, wrt, p->passes.n_wrt, p->keep, p->results_stay, &made));
  out->backward = made.backward, out->wrt = made.wrt;
  graph->trained = out->backward->trained = true;
  return DC_OK;
}

/* ---- scheduling, with one hook around each pass ---- */

typedef struct {
  bool verify;
  uint32_t stop_after;
} settings;

static dc_status read_settings(settings *out) {
  const char *stop = getenv("DCML_STOP_AFTER");
  *out = (settings){dc_verify_wanted(), DC_PIPELINE_LENGTH};
  if (!stop || !*stop) return DC_OK;
  char *end;
  long n = strtol(stop, &end, 10);
  if (*end || n < 0 || n > DC_PIPELINE_LENGTH)
    return dc_error(DC_ERR_VALUE, "DCML_STOP_AFTER is '%s', expected a number of passes from 0 to %d", stop, DC_PIPELINE_LENGTH);
  return out->stop_after = (uint32_t)n, DC_OK;
}

static void print_graph(const void *graph, dc_text *out) { dc_graph_print(graph, out); }

/* Both directions of a model go under its own name, that of its forward graph. */
static dc_status dump(const dc_graph *graph, dc_dump_name name, uint32_t number, const char *stage) {
  return dc_dump_printed(name, number, stage, "sdfg", print_graph, graph);
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_left_out(const dc_pipeline *p, const settings *s, const dc_pass *pass, uint32_t k) {
  return pass->kind != DC_PASS_NEEDED && (k >= s->stop_after || (p->as_expanded && pass->kind == DC_PASS_RESTRUCTURES));
}

static dc_status schedule(const dc_pipeline *p, dc_graph *graph, dc_dump_name name, dc_pass_times *times) {
  settings s;
  DC_TRY(read_settings(&s));
  DC_TRY(dump(graph, name, 0, "operators"));
  for (uint32_t k = 0; k < DC_PIPELINE_LENGTH; k++) {
    const dc_pass *pass = dc_pipeline_pass(k);
    times->seconds[k] = -1;
    if (is_left_out(p, &s, pass, k)) continue;
    double start = seconds_now();
    DC_TRY(dc_pass_apply(pass, &p->passes, graph));
    times->seconds[k] = seconds_now() - start;
    if (s.verify) DC_TRY(dc_error_at(dc_graph_verify(graph), "after pass '%s'", pass->name));
    DC_TRY(dump(graph, name, k + 1, pass->name));
  }
  return s.verify ? DC_OK : dc_graph_verify(graph);
}

/* ---- all of it ---- */

static const char *name_of(const dc_graph *graph) { return dc_name_text(&graph->names, graph->name); }

/* Types and shapes, and what both directions begin with. */
static dc_status prepare(const dc_pipeline *p, dc_graph *forward) {
  dc_cid blocked;
  DC_TRY(dc_pass_infer(p->passes.ops, forward, &blocked));
  if (blocked)
    return dc_error(DC_ERR_UNSUPPORTED, "the value of '%s' is needed to compute shapes but only known at run time",
                    dc_cont_name(forward, blocked));
  DC_TRY(dc_pass_gradient(&p->passes, forward));
  own_outputs(forward);
  DC_TRY(dc_pass_complexes(p->passes.ops, forward));
  return p->post_onnx ? p->post_onnx(p->hook_context, forward, NULL) : DC_OK;
}

static dc_status run(const dc_pipeline *p, dc_scheduled *out) {
  lay_in_rows(out->forward);
  DC_TRY(prepare(p, out->forward));
  if (!p->as_expanded) DC_TRY(recognise(p, out->forward));
  if (p->passes.training) DC_TRY(differentiate(p, out->forward, out));
  dc_autodiff_forget_borders(out->forward);
  if (p->n_given) dc_pipeline_take_given(out->forward, out->backward, p->given, p->n_given);
  if (p->post_autodiff) DC_TRY(p->post_autodiff(p->hook_context, out->forward, out->backward));
  return schedule(p, out->forward, (dc_dump_name){name_of(out->forward), "forward"}, &out->times[0]);
}

static dc_status run_backward(const dc_pipeline *p, const dc_graph *forward, dc_scheduled *out) {
  dc_layout_carry(forward, out->backward);
  return schedule(p, out->backward, (dc_dump_name){name_of(forward), "backward"}, &out->times[1]);
}

/* Saved values, weights and gradients become arrays that the caller gives. */
static void give_arrays(dc_graph *graph, bool backward) {
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    dc_container *k = dc_cont(graph, c);
    bool result = backward && k->is_output, given = k->role == DC_ROLE_SAVED || k->role == DC_ROLE_PARAM;
    if (!result && !given) continue;
    k->role = DC_ROLE_INPUT, k->is_output = false, k->data = NULL, k->data_bytes = 0;
    DC_PUSH(&graph->arena, &graph->inputs, c);
  }
  if (backward) graph->outputs.n = 0;
}

/* What a backward graph does not use of the forward's inputs, which come behind the gradients, is none of its arguments. */
static void drop_unused_inputs(dc_graph *graph, uint32_t n_gradients) {
  bool *used = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  uint32_t n = 0;
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++)
      dc_node_mark(graph, graph->states.v[s].scope.v[k], DC_USE_READ | DC_USE_WRITE, used);
  for (uint32_t k = 0; k < graph->inputs.n; k++) {
    dc_cid c = graph->inputs.v[k];
    if (k < n_gradients || used[c]) graph->inputs.v[n++] = c;
    else dc_cont(graph, c)->role = DC_ROLE_TEMP;
  }
  graph->inputs.n = n;
}

dc_status dc_pipeline_differentiate(const dc_pipeline *p, dc_graph *forward, dc_graph **backward) {
  dc_scheduled made = {.forward = forward};
  DC_TRY(prepare(p, forward));
  DC_TRY(differentiate(p, forward, &made));
  dc_cid *floats = DC_NEW_ARRAY(&forward->arena, dc_cid, forward->outputs.n);
  drop_unused_inputs(made.backward, dc_autodiff_floats(forward, forward->outputs.v, forward->outputs.n, floats));
  give_arrays(forward, false);
  give_arrays(made.backward, true);
  *backward = made.backward;
  return DC_OK;
}

dc_status dc_pipeline_run(const dc_pipeline *p, dc_graph *graph, dc_scheduled *out) {
  *out = (dc_scheduled){.forward = graph};
  dc_status status = run(p, out);
  if (!status) return DC_OK;
  dc_status located = dc_error_at(status, "graph '%s'", name_of(graph));
  dc_graph_destroy(out->forward);
  dc_graph_destroy(out->backward);
  *out = (dc_scheduled){0};
  return located;
}

dc_status dc_pipeline_run_backward(const dc_pipeline *p, const dc_graph *forward, dc_scheduled *out) {
  return dc_error_at(run_backward(p, forward, out), "graph '%s'", name_of(forward));
}
