/* What a node means: small graphs and the numbers that the interpreter computes for them. */
#include <math.h>

#include "graph_run.h"

enum { MAX_SYMBOLS = 4 };

typedef struct {
  const char *what;
  const char *declarations; /* inputs are constants */
  const char *body;
  const char *results; /* of the outputs in order, a container a line */
  int64_t symbols[MAX_SYMBOLS];
} example;

/* Memory for each container: constants are copied, everything else starts as garbage. */
static void **make_buffers(const dc_graph *g, const int64_t *symbols) {
  void **buffers = calloc(g->containers.n, sizeof *buffers);
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    size_t bytes = (size_t)run_elements(g, c, symbols) * (size_t)dc_dtype_bytes((dc_dtype)k->dtype);
    if (k->alias_of) continue;
    buffers[c] = malloc(bytes + 1);
    memset(buffers[c], 0x77, bytes);
    if (k->data) memcpy(buffers[c], k->data, k->data_bytes);
  }
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    if (!k->alias_of) continue;
    int64_t offset = k->alias_offset ? dc_ix_eval(&g->pool, k->alias_offset, symbols, NULL) : 0;
    buffers[c] = (char *)buffers[k->alias_of] + offset * dc_dtype_bytes((dc_dtype)k->dtype);
  }
  return buffers;
}

static void free_buffers(const dc_graph *g, void **buffers) {
  for (dc_cid c = 1; c < g->containers.n; c++)
    if (!dc_cont(g, c)->alias_of) free(buffers[c]);
  free(buffers);
}

static void print_outputs(const dc_graph *g, void *const *buffers, const int64_t *symbols, dc_text *out) {
  for (uint32_t k = 0; k < g->outputs.n; k++) {
    dc_cid c = g->outputs.v[k];
    for (int64_t e = 0; e < run_elements(g, c, symbols); e++)
      dc_text_printf(out, e ? " %.6g" : "%.6g", run_load((dc_dtype)dc_cont(g, c)->dtype, buffers[c], e));
    dc_text_puts(out, k + 1 < g->outputs.n ? "\n" : "");
  }
}

static dc_status run(const example *x, dc_text *out) {
  dc_text text = {0};
  dc_graph *g = NULL;
  int64_t symbols[MAX_SYMBOLS + 1] = {0};
  memcpy(symbols + 1, x->symbols, sizeof x->symbols);
  dc_text_printf(&text, "graph g { %s state s { %s } }", x->declarations, x->body);
  dc_status status = dc_graph_parse(text.s, &g);
  dc_text_free(&text);
  if (status) return status;
  void **buffers = make_buffers(g, symbols);
  const dc_scope *scope = dc_graph_scope(g);
  for (uint32_t k = 0; k < scope->n && !status; k++) status = dc_interp_node(g, scope->v[k], buffers, symbols);
  if (!status) print_outputs(g, buffers, symbols, out);
  free_buffers(g, buffers);
  dc_graph_destroy(g);
  return status;
}

#define F3 "const X: f32[3] = {1, -2, 3.5} temp Y: f32[3] outputs Y"
#define F23 "const X: f32[2, 3] = {1, 2, 3, 4, 5, 6} temp Y: f32[2] outputs Y"

static const example examples[] = {
    {"an element at a time", F3, "map i in 0:3 { Y[i] = X[i] * 2.0f + 1.0f }", "3 -3 8", {0}},
    {"a tasklet alone", "temp Y: f64[] outputs Y", "Y[] = 1.5", "1.5", {0}},
    {"a guard leaves the rest alone", F3, "map i in 0:3 { Y[i] = 0.0f } map i in 0:3 { Y[i] = X[i] if X[i] > 0.0f }", "1 0 3.5", {0}},
    {"the other side of a choice is not looked at", F3, "map i in 0:3 { Y[i] = i + 1 < 3 ? X[i + 1] : 9.0f }", "-2 3.5 9", {0}},
    {"and stops at the first false", F3, "map i in 0:3 { Y[i] = i > 0 && X[i - 1] > 0.0f ? 1.0f : 0.0f }", "0 1 0", {0}},
    {"or stops at the first true", F3, "map i in 0:3 { Y[i] = i == 0 || X[i - 1] > 0.0f ? 1.0f : 0.0f }", "1 1 0", {0}},
    {"a step", "temp Y: i64[6] outputs Y", "map i in 0:6 { Y[i] = 0 } map i in 1:6:2 { Y[i] = i }", "0 1 0 3 0 5", {0}},
    {"a triangle", "temp Y: i64[3, 3] outputs Y", "map i in 0:3, j in 0:3 { Y[i, j] = 0 } map i in 0:3, j in 0:i + 1 { Y[i, j] = 1 }",
     "1 0 0 1 1 0 1 1 1", {0}},
    {"an empty range", F3, "map i in 0:3 { Y[i] = 7.0f } map i in 3:0 { Y[i] = 8.0f }", "7 7 7", {0}},
    {"a range that reads", "const N: i64[] = {2} temp Y: i64[3] outputs Y", "map i in 0:3 { Y[i] = 0 } map i in 0:N[] { Y[i] = 1 }", "1 1 0", {0}},
    {"sums", F23, "map i in 0:2 { reduce j in 0:3 { Y[i] sum= X[i, j] } }", "6 15", {0}},
    {"products", F23, "map i in 0:2 { reduce j in 0:3 { Y[i] prod= X[i, j] } }", "6 120", {0}},
    {"least and greatest", "const X: f32[3] = {1, -2, 3.5} temp Y: f32[] temp Z: f32[] outputs Y, Z",
     "reduce i in 0:3 { Y[] min= X[i] Z[] max= X[i] }", "-2\n3.5", {0}},
    {"a reduction with the map inside", F23, "reduce j in 0:3 { map i in 0:2 { Y[i] sum= X[i, j] } }", "6 15", {0}},
    {"nothing gives the identity", "temp A: f32[] temp B: f32[] temp C: f32[] temp D: i64[] outputs A, B, C, D",
     "reduce i in 0:0 { A[] sum= 1.0f B[] prod= 2.0f C[] max= 3.0f } reduce i in 0:0 { D[] min= 4 }", "0\n1\n-inf\n9.22337e+18", {0}},
    {"a reduction starts anew in each iteration", F23, "map i in 0:2 { Y[i] = 5.0f } map i in 0:2 { reduce j in 0:1 { Y[i] sum= X[i, j] } }", "1 4", {0}},
    {"accumulation outside a reduction keeps what is there", F3, "map i in 0:3 { Y[i] = 10.0f } map i in 0:3 { Y[i] sum= X[i] }", "11 8 13.5", {0}},
    {"nested reductions", "const X: f32[2, 3] = {1, 2, 3, 4, 5, 6} temp r: f32[] register temp Y: f32[] outputs Y",
     "reduce i in 0:2 { reduce j in 0:3 { r[] max= X[i, j] } Y[] sum= r[] }", "9", {0}},
    {"scattered writes", "const I: i64[4] = {2, 0, 2, 1} temp Y: i64[3] outputs Y", "map i in 0:3 { Y[i] = 0 } scatter i in 0:4 { Y[I[i]] sum= i + 1 }", "2 4 4", {0}},
    {"a recurrence", "temp Y: i64[6] outputs Y", "Y[0] = 1 Y[1] = 1 sequential i in 2:6 { Y[i] = Y[i - 1] + Y[i - 2] }", "1 1 2 3 5 8", {0}},
    {"a register is an iteration's own", "const X: f32[3] = {1, -2, 3.5} temp r: f32[] register temp Y: f32[3] outputs Y",
     "map i in 0:3 { r[] = X[i] Y[i] = r[] * r[] }", "1 4 12.25", {0}},
    {"a register array", "const X: f32[3] = {1, 2, 3} temp r: f32[3] register temp Y: f32[3] outputs Y",
     "map i in 0:3 { map j in 0:3 { r[j] = X[j] + f32(i) } reduce j in 0:3 { Y[i] sum= r[j] } }", "6 9 12", {0}},
    {"a view shares memory", "temp A: f32[4] temp V: f32[2] view A at 2 outputs A", "map i in 0:4 { A[i] = 1.0f } map i in 0:2 { V[i] = 5.0f }", "1 1 5 5", {0}},
    {"symbols", "symbol N >= 0 temp Y: i64[N] outputs Y", "map i in 0:N { Y[i] = N - i }", "3 2 1", {3}},
    {"no elements", "symbol N >= 0 temp Y: i64[N] outputs Y", "map i in 0:N { Y[i] = N - i }", "", {0}},
    {"division and remainder round down", "const X: i64[4] = {7, -7, 7, -7} const Z: i64[4] = {2, 2, -2, -2} temp Q: i64[4] temp R: i64[4] outputs Q, R",
     "map i in 0:4 { Q[i] = X[i] // Z[i] R[i] = X[i] % Z[i] }", "3 -4 -4 3\n1 1 -1 -1", {0}},
    {"small floats round when stored", "const X: f32[2] = {2049, 0.1} temp H: f16[2] temp B: bf16[2] outputs H, B",
     "map i in 0:2 { H[i] = f16(X[i]) B[i] = bf16(X[i]) }", "2048 0.0999756\n2048 0.100098", {0}},
    {"integers wrap", "const X: i64[2] = {200, -129} temp Y: i8[2] outputs Y", "map i in 0:2 { Y[i] = i8(X[i]) }", "-56 127", {0}},
    {"a side that the condition reads too", F3, "map i in 0:3 { Y[i] = X[i] < 0.0f ? 0.0f : X[i] }", "1 0 3.5", {0}},
    {"terms that are not looked at", F3, "map i in 0:3 { Y[i] = 0.0f } reduce i in 0:3 { Y[0] sum= i + 1 < 3 ? X[i + 1] : 9.0f }", "10.5 0 0", {0}},
    {"terms for one element after the other", F23, "map i in 0:2 { Y[i] = 1.0f } scatter i in 0:2, j in 0:3 { Y[i] sum= X[i, j] }", "7 16", {0}},
    {"terms that return to an element", F23, "map i in 0:2 { Y[i] = 3.0f } scatter j in 0:3, i in 0:2 { Y[i] prod= X[i, j] }", "18 360", {0}},
    {"more terms than lanes", "temp Y: f64[] temp Z: i8[] outputs Y, Z", "reduce i in 0:100 { Y[] sum= f64(i) } reduce i in 0:100 { Z[] sum= i8(i) }",
     "4950\n86", {0}},
    {"a term that reads the sum so far", "const X: f32[3] = {1, 2, 3} temp Y: f32[1] outputs Y",
     "Y[0] = 1.0f scatter i in 0:3 { Y[0] sum= X[i] * Y[0] }", "24", {0}},
    {"sums of small floats round at each step", "temp Y: f16[] outputs Y", "reduce i in 0:2049 { Y[] sum= f16(1) }", "2048", {0}},
};

static void nodes_compute_what_they_say(void) {
  for (size_t k = 0; k < sizeof examples / sizeof *examples; k++) {
    dc_text out = {0};
    dc_text_puts(&out, "");
    check_ok(run(&examples[k], &out), __FILE__, __LINE__, examples[k].what);
    check_text(examples[k].what, 0, out.s, examples[k].results);
    dc_text_free(&out);
  }
}

static void bad_indices_name_container_and_index(void) {
  static const example reads = {"", F3, "map i in 0:3 { Y[i] = X[i + 1] }", "", {0}};
  static const example writes = {"", "const I: i64[2] = {0, -1} temp Y: i64[2] outputs Y", "scatter i in 0:2 { Y[I[i]] = 1 }", "", {0}};
  dc_text out = {0};
  CHECK_ERROR(run(&reads, &out), DC_ERR_VALUE, "index 3 is out of range for dimension 0 of 'X', which has 3");
  CHECK_ERROR(run(&writes, &out), DC_ERR_VALUE, "index -1 is out of range for dimension 0 of 'Y'");
  dc_text_free(&out);
}

static void operators_are_not_for_the_interpreter(void) {
  dc_graph *g;
  CHECK_OK(dc_graph_parse("graph g { input X: f32[2] temp Y: f32[2] outputs Y state s { map i in 0:1 { Y = Relu@14(X) } } }", &g));
  if (!g) return;
  void *buffers[4] = {NULL};
  CHECK_ERROR(dc_interp_node(g, dc_graph_scope(g)->v[0], buffers, NULL), DC_ERR_UNSUPPORTED, "library node inside a map");
  dc_graph_destroy(g);
}

int main(void) {
  nodes_compute_what_they_say();
  bad_indices_name_container_and_index();
  operators_are_not_for_the_interpreter();
  return check_report();
}
