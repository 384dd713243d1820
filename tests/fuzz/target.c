/* The fuzz target: one model file through everything that reads it.
 *
 * An input ends in an error or in a graph that the verifier accepts, that prints and parses back,
 * that schedules, exports, and, where it is small, runs; one in three is differentiated first.
 * libFuzzer calls this function; main.c calls it where there is no libFuzzer. */
#include <stdlib.h>
#include <string.h>

#include "dcml.h"
#include "fuzz/target.h"

/* What is run: a model may well ask for years of work. */
static const uint64_t SMALL_BYTES = 1 << 16, MAX_ARG_BYTES = 1 << 26;
static const double SMALL_WORK = 1e6;
enum { MAX_ARGS = 64, SYMBOL_EXTENT = 2 };

static void must(bool truth, const char *what, dc_status status) {
  if (truth) return;
  fprintf(stderr, "fuzz: %s: %s\n", what, status ? dc_status_text(status) : "");
  abort();
}

/* One session for all inputs: the operator table is parsed once. */
static dc_session *session(void) {
  static dc_session made;
  if (made.ops) return &made;
  setenv("DCML_NATIVE", "none", 1);
  dc_status status = dc_session_create(NULL, NULL, &made);
  must(!status, "no session", status);
  return &made;
}

static void round_trip(const dc_graph *graph) {
  dc_text text = {0}, again = {0};
  dc_graph *parsed = NULL;
  dc_graph_print(graph, &text);
  dc_status status = dc_graph_parse(text.s, &parsed);
  if (status) fputs(text.s, stderr);
  must(!status, "its text does not parse", status);
  dc_graph_print(parsed, &again);
  if (strcmp(text.s, again.s)) fprintf(stderr, "%s\n---- again\n%s\n", text.s, again.s);
  must(strcmp(text.s, again.s) == 0, "its text changes in a round trip", NULL);
  dc_text_free(&text), dc_text_free(&again);
  dc_graph_destroy(parsed);
}

static void export_graph(const dc_graph *graph) {
  dc_cid blocked;
  uint8_t *bytes = NULL;
  uint64_t n;
  dc_graph *typed = dc_graph_clone(graph);
  dc_status status = dc_pass_infer(session()->ops, typed, &blocked);
  if (!status) status = dc_onnx_export(typed, &bytes, &n);
  dc_status_free(status);
  free(bytes);
  dc_graph_destroy(typed);
}

/* ---- running on zeros ---- */

static uint64_t bytes_of(const dc_array *a) {
  uint64_t n = (uint64_t)dc_dtype_bytes(a->dtype);
  for (uint32_t d = 0; d < a->rank; d++)
    if (__builtin_mul_overflow(n, (uint64_t)a->dims[d], &n)) return UINT64_MAX;
  return n;
}

/* The arrays that the graph asks for; false if there are too many or they are huge. */
static bool make_arrays(const dc_graph *graph, dc_array *arrays, uint32_t *n) {
  *n = 0;
  for (int role = DC_ROLE_INPUT; role <= DC_ROLE_PARAM; role++)
    for (dc_cid c = 1; c < graph->containers.n; c++) {
      const dc_container *k = dc_cont(graph, c);
      if (k->role != role) continue;
      if (*n == MAX_ARGS || !k->shape) return false;
      dc_array *a = &arrays[(*n)++];
      *a = (dc_array){.dtype = (dc_dtype)k->dtype, .rank = k->rank};
      for (uint32_t d = 0; d < k->rank; d++)
        if (!dc_ex_is_int(&graph->pool, k->shape[d], &a->dims[d])) a->dims[d] = SYMBOL_EXTENT;
      if (bytes_of(a) > MAX_ARG_BYTES) return false;
      a->data = calloc(1, bytes_of(a) + 1);
    }
  return true;
}

static bool is_modest(const dc_binding *binding) {
  return dc_binding_arena_bytes(binding) <= SMALL_BYTES && dc_binding_work(binding) <= SMALL_WORK;
}

static bool is_small(const dc_call *call, uint32_t n_wrt) {
  bool small = is_modest(call->forward) && (!call->backward || is_modest(call->backward)) && dc_call_saved_bytes(call) <= SMALL_BYTES;
  dc_array array;
  for (uint32_t k = 0; small && k < call->n_outputs; k++) dc_call_output(call, k, &array), small = bytes_of(&array) <= SMALL_BYTES;
  for (uint32_t k = 0; small && call->backward && k < n_wrt; k++) small = !dc_call_gradient(call, k, &array) || bytes_of(&array) <= SMALL_BYTES;
  return small;
}

static void **make_buffers(uint32_t n) {
  void **buffers = calloc(n + 1, sizeof *buffers);
  for (uint32_t k = 0; k < n; k++) buffers[k] = calloc(1, SMALL_BYTES);
  return buffers;
}

static void free_buffers(void **buffers, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) free(buffers[k]);
  free(buffers);
}

static dc_status run_backward(const dc_call *call, const dc_array *arrays, void *saved, uint32_t n_wrt) {
  void **of_outputs = make_buffers(call->n_outputs), **gradients = make_buffers(n_wrt);
  dc_backward_run *run = NULL;
  dc_status status = dc_backward_begin(call, arrays, NULL, of_outputs, saved, true, NULL, &run);
  while (!status && !dc_backward_done(run)) {
    for (uint32_t k = 0; k < n_wrt; k++)
      if (dc_backward_needs(run, k)) dc_backward_give(run, k, gradients[k]);
    status = dc_backward_next(run);
  }
  dc_backward_end(run);
  free_buffers(of_outputs, call->n_outputs);
  free_buffers(gradients, n_wrt);
  return status;
}

static dc_status call_function(dc_function *f, const dc_array *arrays, uint32_t n, uint32_t n_wrt) {
  dc_call call;
  DC_TRY(dc_call_begin(f, arrays, n, NULL, NULL, &call));
  dc_status status = DC_OK;
  if (is_small(&call, n_wrt)) {
    void **outputs = make_buffers(call.n_outputs), *saved = malloc(dc_call_saved_bytes(&call) + 1);
    status = dc_call_run(&call, outputs, saved);
    if (!status && call.backward) status = run_backward(&call, arrays, saved, n_wrt);
    free_buffers(outputs, call.n_outputs);
    free(saved);
  }
  dc_call_end(&call);
  return status;
}

/* All that has a gradient; the names stay the graph's. */
static uint32_t find_wrt(const dc_graph *graph, const char **wrt) {
  uint32_t n = 0;
  for (dc_cid c = 1; c < graph->containers.n && n < MAX_ARGS; c++) {
    const dc_container *k = dc_cont(graph, c);
    bool given = k->role == DC_ROLE_INPUT || k->role == DC_ROLE_PARAM;
    if (given && dc_dtype_is_float((dc_dtype)k->dtype)) wrt[n++] = dc_cont_name(graph, c);
  }
  return n;
}

/* Takes the graph. */
static void run(dc_graph *graph, bool differentiate) {
  dc_array arrays[MAX_ARGS];
  const char *wrt[MAX_ARGS];
  uint32_t n = 0, n_wrt = differentiate ? find_wrt(graph, wrt) : 0;
  dc_function *f = NULL;
  dc_function_options options = {.backend = DC_BACKEND_INTERP, .training = n_wrt > 0, .wrt = wrt, .n_wrt = n_wrt};
  bool usable = make_arrays(graph, arrays, &n);
  dc_status status = dc_function_create(session(), graph, &options, &f);
  must(!status, "no function", status);
  if (usable) status = call_function(f, arrays, n, n_wrt);
  dc_status_free(status);
  dc_function_destroy(f);
  for (uint32_t k = 0; k < n; k++) free(arrays[k].data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  dc_graph *graph = NULL;
  dc_status status = dc_onnx_import(session()->ops, data, n, NULL, n % 2, &graph);
  must((status == NULL) == (graph != NULL), "an error and a graph", status);
  dc_status_free(status);
  if (!graph) return 0;
  status = dc_graph_verify(graph);
  must(!status, "the verifier refuses an imported graph", status);
  round_trip(graph);
  export_graph(graph);
  run(graph, n % 3 == 0);
  return 0;
}
