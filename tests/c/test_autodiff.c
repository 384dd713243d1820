/* Reverse mode against central differences, in float64, by the interpreter.
 *
 * A case is a forward graph as text: operators by name, or maps for what no operator expands to.
 * Each runs with every strategy of what to keep; each gradient element is compared. */
#include "autodiff/autodiff.h"
#include "graph_run.h"
#include "passes/passes.h"

static dc_ops *ops;

typedef struct {
  const dc_graph *graph;
  void **buffers;
  int64_t symbols[64];
} machine;

static void **find(const machine *m, const char *name) {
  dc_cid c = dc_container_find(m->graph, name);
  return c ? &m->buffers[c] : NULL;
}

static machine start(const dc_graph *g) {
  machine m = {.graph = g, .buffers = calloc(g->containers.n, sizeof(void *))};
  run_symbols(g, m.symbols);
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    if (k->alias_of) continue;
    size_t bytes = (size_t)(run_elements(g, c, m.symbols) + 1) * 8;
    m.buffers[c] = memset(malloc(bytes), 0xFF, bytes); /* NaN: nobody reads what nobody wrote */
    if (k->role == DC_ROLE_CONST) memcpy(m.buffers[c], k->data, k->data_bytes);
    if (k->role == DC_ROLE_INPUT) run_fill(g, c, m.buffers[c], run_elements(g, c, m.symbols));
  }
  for (dc_cid c = 1; c < g->containers.n; c++) {
    dc_cid root = c;
    while (dc_cont(g, root)->alias_of) root = dc_cont(g, root)->alias_of;
    m.buffers[c] = m.buffers[root];
  }
  return m;
}

static void run(const machine *m) {
  for (uint32_t s = 0; s < m->graph->states.n; s++)
    for (uint32_t k = 0; k < m->graph->states.v[s].scope.n; k++)
      CHECK_OK(dc_interp_node(m->graph, m->graph->states.v[s].scope.v[k], m->buffers, m->symbols));
}

static void stop(machine *m) {
  for (dc_cid c = 1; c < m->graph->containers.n; c++)
    if (!dc_cont(m->graph, c)->alias_of) free(m->buffers[c]);
  free(m->buffers);
}

/* sum over the floating outputs of weight * output; weights are the backward's gradient inputs. */
static double weighted(const machine *forward, const machine *backward) {
  double total = 0;
  for (uint32_t k = 0; k < forward->graph->outputs.n; k++) {
    dc_cid c = forward->graph->outputs.v[k];
    char name[128];
    snprintf(name, sizeof name, "gradient_%s", dc_cont_name(forward->graph, c));
    void **weights = find(backward, name);
    if (!weights) continue;
    for (int64_t e = 0; e < run_elements(forward->graph, c, forward->symbols); e++)
      total += ((double *)*weights)[e] * ((double *)forward->buffers[c])[e];
  }
  return total;
}

/* What the forward holds goes to the backward by name. */
static void hand_over(const machine *forward, const machine *backward) {
  for (dc_cid c = 1; c < backward->graph->containers.n; c++) {
    const dc_container *k = dc_cont(backward->graph, c);
    if (k->role != DC_ROLE_SAVED) continue;
    void **source = find(forward, dc_cont_name(backward->graph, c));
    CHECK(source != NULL);
    if (source) memcpy(backward->buffers[c], *source, (size_t)run_elements(backward->graph, c, backward->symbols) * 8);
  }
}

static double slope(const machine *plain, const machine *backward, double *element) {
  const double h = 1e-4, at = *element;
  double ends[4];
  for (int k = 0; k < 4; k++) {
    *element = at + h * (double[]){-2, -1, 1, 2}[k];
    run(plain);
    ends[k] = weighted(plain, backward);
  }
  *element = at;
  return (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h);
}

static void compare(const machine *plain, const machine *backward, dc_cid x, dc_cid gradient, const char *name) {
  const double *found = gradient ? backward->buffers[gradient] : NULL;
  double *elements = *find(plain, dc_cont_name(plain->graph, x));
  int64_t n = run_elements(plain->graph, x, plain->symbols), wrong = 0;
  for (int64_t e = 0; e < n; e++) {
    double want = slope(plain, backward, &elements[e]), got = found ? found[e] : 0;
    if (fabs(want - got) <= 1e-6 * (1 + fabs(want))) continue;
    if (wrong++ < 3) printf("%s: gradient of %s[%lld] is %g, the slope %g\n", name, dc_cont_name(plain->graph, x), (long long)e, got, want);
  }
  CHECK(wrong == 0);
}

static dc_graph *inferred(const char *text, const char *name) {
  dc_graph *g = NULL;
  dc_cid blocked = 0;
  CHECK_OK(dc_error_at(dc_graph_parse(text, &g), "%s", name));
  if (g) CHECK_OK(dc_error_at(dc_pass_infer(ops, g, &blocked), "%s", name));
  CHECK(!blocked);
  return g;
}

static uint32_t floats(const dc_graph *g, const dc_cid *from, uint32_t n, dc_cid *out) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < n; k++)
    if (dc_cont(g, from[k])->dtype == DC_F64 || dc_cont(g, from[k])->dtype == DC_F32) out[count++] = from[k];
  return count;
}

static void give_to_a_library(void *context, dc_graph *graph, dc_nid node) {
  (void)context;
  dc_node_at(graph, node)->lib.by = dc_name_intern(&graph->names, "some");
}

/* As if no library had been chosen. */
static void take_back(dc_graph *graph) {
  for (dc_nid n = 1; n < graph->nodes.n; n++)
    if (dc_node_at(graph, n)->kind == DC_NODE_LIBRARY) dc_node_at(graph, n)->lib.by = 0;
}

static bool differentiate(dc_graph *forward, dc_keep keep, bool libraries, const char *name, dc_backward *made, uint32_t *n_wrt) {
  dc_cid outputs[16], wrt[16];
  uint32_t n_outputs = floats(forward, forward->outputs.v, forward->outputs.n, outputs);
  *n_wrt = floats(forward, forward->inputs.v, forward->inputs.n, wrt);
  if (libraries) dc_pass_natives(&(dc_pass_context){.stamp = give_to_a_library}, forward);
  dc_status status = dc_autodiff(ops, forward, outputs, n_outputs, wrt, *n_wrt, keep, false, made);
  take_back(forward);
  if (!status) take_back(made->backward);
  if (!status) status = dc_pass_expand(ops, forward);
  if (!status) status = dc_pass_expand(ops, made->backward);
  if (!status) status = dc_graph_verify(forward);
  if (!status) status = dc_graph_verify(made->backward);
  bool good = !status;
  CHECK_OK(dc_error_at(status, "%s", name));
  return good;
}

static void check_case(const char *name, const char *text, dc_keep keep, bool libraries) {
  dc_graph *plain = inferred(text, name), *forward = inferred(text, name);
  dc_backward made = {0};
  uint32_t n_wrt = 0;
  int failed = check_failed;
  if (!plain || !forward || check_failed > failed) return;
  CHECK_OK(dc_pass_expand(ops, plain));
  if (differentiate(forward, keep, libraries, name, &made, &n_wrt)) {
    machine p = start(plain), f = start(forward), b = start(made.backward);
    run(&f);
    hand_over(&f, &b);
    run(&b);
    for (uint32_t k = 0; k < n_wrt; k++) compare(&p, &b, made.wrt[k].forward, made.wrt[k].gradient, name);
    stop(&p), stop(&f), stop(&b);
  }
  if (check_failed > failed) {
    dc_text out = {0};
    if (made.backward) dc_graph_print(made.backward, &out);
    printf("--- %s, strategy %d, libraries %d\n%s\n", name, keep, libraries, out.s ? out.s : "");
    dc_text_free(&out);
  }
  dc_graph_destroy(plain);
  dc_graph_destroy(forward);
  dc_graph_destroy(made.backward);
}

/* name, declarations, statements */
#define X "input X: f64"
#define Y " temp Y: none outputs Y state main {"
static const struct {
  const char *name, *text;
} cases[] = {
    {"broadcast", X "[3, 1, 4] input B: f64[5, 1]" Y "Y = Mul@14(X, B) }"},
    {"an input used twice", X "[3]" Y "Y = Mul@14(X, X) }"},
    {"a symbolic extent", "symbol N >= 1 " X "[N, 3]" Y "Y = Tanh@13(X) }"},
    {"mish", X "[6] temp A: none temp B: none" Y "A = Softplus@1(X) B = Tanh@13(A) Y = Mul@14(X, B) }"},
    {"matmul", X "[2, 3, 4] input B: f64[4, 2]" Y "Y = MatMul@13(X, B) }"},
    {"gemm", X "[4, 3] input B: f64[5, 4] input C: f64[5]" Y "Y = Gemm@13(X, B, C) {transA = 1, transB = 1, alpha = 0.5, beta = 2.0} }"},
    {"strided convolution", X "[1, 2, 7] input W: f64[3, 2, 3]" Y "Y = Conv@11(X, W) {strides = ints [2], pads = ints [1, 1]} }"},
    {"stride over kernel", X "[1, 1, 8] input W: f64[2, 1, 2]" Y "Y = Conv@11(X, W) {strides = ints [3]} }"},
    {"dilated convolution", X "[1, 1, 6, 7] input W: f64[2, 1, 2, 3]" Y "Y = Conv@11(X, W) {strides = ints [2, 3], dilations = ints [2, 1], pads = ints [1, 1, 1, 1]} }"},
    {"stride and dilation share a factor", X "[1, 1, 11] input W: f64[1, 1, 3]" Y "Y = Conv@11(X, W) {strides = ints [2], dilations = ints [2]} }"},
    {"grouped convolution", X "[1, 4, 5] input W: f64[4, 2, 3] input B: f64[4]" Y "Y = Conv@11(X, W, B) {group = 2, pads = ints [1, 1]} }"},
    {"transposed convolution", X "[1, 2, 4] input W: f64[2, 2, 3]" Y "Y = ConvTranspose@11(X, W) {strides = ints [2]} }"},
    {"pooling, windows apart", X "[1, 2, 6, 4]" Y "Y = MaxPool@12(X) {kernel_shape = ints [2, 2], strides = ints [2, 2]} }"},
    {"pooling, windows overlap", X "[1, 1, 5, 5]" Y "Y = MaxPool@12(X) {kernel_shape = ints [3, 3], strides = ints [2, 2], pads = ints [1, 1, 1, 1]} }"},
    {"average pooling", X "[1, 1, 5, 5]" Y "Y = AveragePool@11(X) {kernel_shape = ints [3, 3], strides = ints [2, 2], pads = ints [1, 1, 1, 1]} }"},
    {"gather", X "[4, 3] const I: i64[2, 2] = {0, 3, 3, -1}" Y "Y = Gather@13(X, I) }"},
    {"scatter", X "[5] const I: i64[3] = {4, 0, 2} input V: f64[3]" Y "Y = ScatterElements@13(X, I, V) }"},
    {"scatter that adds", X "[5] const I: i64[3] = {4, 0, 4} input V: f64[3]" Y "Y = ScatterElements@16(X, I, V) {reduction = \"add\"} }"},
    {"softmax", X "[3, 4]" Y "Y = Softmax@13(X) }"},
    {"softmax of parts", X "[3, 4] const a: i64[1] = {1} temp M: none temp D: none temp E: none temp Z: none" Y
     "M = ReduceMax@18(X, a) D = Sub@14(X, M) E = Exp@13(D) Z = ReduceSum@13(E, a) Y = Div@14(E, Z) }"},
    {"layer normalisation", X "[3, 4] input G: f64[4] input B: f64[4]" Y "Y = LayerNormalization@17(X, G, B) }"},
    {"cumulative sum", X "[2, 5] const a: i64[] = {1}" Y "Y = CumSum@14(X, a) {reverse = 1} }"},
    {"concatenation", X "[2, 3] input B: f64[2, 1]" Y "Y = Concat@13(X, B, X) {axis = 1} }"},
    {"split", X "[2, 5] const s: i64[2] = {2, 3} temp Z: none" " temp Y: none outputs Y, Z state main { Y, Z = Split@13(X, s) {axis = 1} }"},
    {"slice with a step", X "[9] const b: i64[1] = {1} const e: i64[1] = {9} const a: i64[1] = {0} const s: i64[1] = {3}" Y "Y = Slice@13(X, b, e, a, s) }"},
    {"slice backwards", X "[9] const b: i64[1] = {-1} const e: i64[1] = {0} const a: i64[1] = {0} const s: i64[1] = {-2}" Y "Y = Slice@13(X, b, e, a, s) }"},
    {"padding by edges", X "[4] const p: i64[2] = {2, 1}" Y "Y = Pad@13(X, p) {mode = \"edge\"} }"},
    {"padding by a constant", X "[3, 2] const p: i64[4] = {1, 0, 0, 2}" Y "Y = Pad@13(X, p) }"},
    {"maximum", X "[3, 4] const a: i64[1] = {1}" Y "Y = ReduceMax@18(X, a) {keepdims = 0} }"},
    {"minimum of all", X "[3, 2]" Y "Y = ReduceMin@18(X) }"},
    {"product", X "[3, 4] const a: i64[1] = {0}" Y "Y = ReduceProd@18(X, a) }"},
    {"where", X "[4] const K: bool[4] = {1, 0, 1, 0} input B: f64[4]" Y "Y = Where@16(K, X, B) }"},
    {"reshape and transpose", X "[2, 6] const s: i64[3] = {3, 2, 2} temp A: none temp B: none" Y
     "A = Tanh@13(X) B = Reshape@14(A, s) Y = Transpose@13(B) {perm = ints [2, 0, 1]} }"},
    {"depth to space", X "[1, 8, 2, 1]" Y "Y = DepthToSpace@13(X) {blocksize = 2} }"},
    {"tile", X "[2, 3] const r: i64[2] = {2, 1}" Y "Y = Tile@13(X, r) }"},
    {"a diagonal", X "[3, 3]" Y "Y = Einsum@12(X) {equation = \"ii->i\"} }"},
    {"einsum", X "[2, 3, 4] input B: f64[4, 3]" Y "Y = Einsum@12(X, B) {equation = \"bij,ji->bi\"} }"},
    {"a result that is read again", X "[4] temp Z: none temp Y: none outputs Y, Z state main { Y = Exp@13(X) Z = Sin@7(Y) }"},
    {"expressions with a branch", X "[4] temp Y: f64[4] outputs Y state main { map i in 0:4 { Y[i] = X[i] > 0.0 ? sqrt(X[i]) : X[i] * X[i] } }"},
    {"a loop that feeds itself", X "[5] temp Y: f64[6] outputs Y state main { Y[0] = 1.0 sequential i in 0:5 { Y[i + 1] = tanh(Y[i] * X[i]) } }"},
    {"a loop inside a map", X "[2, 5] temp Y: f64[2, 6] outputs Y state main { map j in 0:2 { Y[j, 0] = X[j, 0] sequential i in 0:5 { Y[j, i + 1] = tanh(Y[j, i] * X[j, i]) } } }"},
    {"overlapping windows of a sum", X "[6] temp Y: f64[4] outputs Y state main { map i in 0:4 { reduce k in 0:3 { Y[i] sum= X[i + k] * X[i] } } }"},
    {"strides by four", X "[10] temp Y: f64[2] outputs Y state main { map i in 0:2 { reduce k in 0:3 { Y[i] sum= X[4*i + k] } } }"},
    {"a triangle", X "[4, 4] temp Y: f64[4] outputs Y state main { map i in 0:4 { reduce k in 0:4 { Y[i] sum= X[i, k] * X[k, i] if k <= i } } }"},
    {"an index from data", X "[4] const I: i64[3] = {1, 1, 3} temp Y: f64[3] outputs Y state main { map i in 0:3 { Y[i] = X[I[i]] * X[i] } }"},
    {"a gradient of its own", X "[3] temp A: none temp B: none temp C: none temp D: none temp E: none temp Z: none temp U: none temp Y: none outputs Y state main {"
     " U = Exp@13(X) A = Mul@14(U, U) C = dcml::Cotangent@1(A) B = Add@14(U, U) D = Mul@14(C, B) E = dcml::GiveGradient@1(A, U, D) Z = dcml::TakeGradient@1(E, C)"
     " Y = Mul@14(Z, X) }"},
    {"two results with gradients of their own", X "[3] input V: f64[3] temp A: none temp B: none temp C: none temp D: none temp E: none temp F: none temp G: none temp H: none"
     " temp I: none temp J: none temp K: none temp L: none temp M: none temp P: none temp Y: none temp Z: none outputs Y, Z state main {"
     " A = Mul@14(X, V) B = Add@14(X, V) C = dcml::Cotangent@1(A) D = dcml::Cotangent@1(B) E = Mul@14(C, V) F = Add@14(E, D) G = Mul@14(C, X) H = Add@14(G, D)"
     " I = dcml::GiveGradient@1(A, X, F) J = dcml::GiveGradient@1(I, V, H) K = dcml::GiveGradient@1(B, X, F) L = dcml::GiveGradient@1(K, V, H)"
     " M = dcml::TakeGradient@1(J, C) P = dcml::TakeGradient@1(L, D) Y = Tanh@13(M) Z = Mul@14(P, X) }"},
    {"a written part that is written again", X "[4] input V: f64[2] temp Y: f64[4] outputs Y state main { map i in 0:4 { Y[i] = X[i] } map i in 0:2 { Y[i + 1] = V[i] } }"},
};

static void gradients_are_slopes(const char *only) {
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    char text[2048];
    if (only && strcmp(only, cases[k].name)) continue;
    snprintf(text, sizeof text, "graph g opset 21 { %s }", cases[k].text);
    for (int keep = DC_KEEP_AUTO; keep <= DC_KEEP_LEAST; keep++)
      for (int libraries = 0; libraries < 2; libraries++) check_case(cases[k].name, text, (dc_keep)keep, libraries);
  }
}

/* ---- conventions ---- */

static void expect_gradient(const char *body, const double *x, const double *want, int n) {
  char text[1024];
  snprintf(text, sizeof text, "graph g opset 21 { %s }", body);
  dc_graph *forward = inferred(text, body);
  dc_backward made = {0};
  uint32_t n_wrt;
  if (!forward || !differentiate(forward, DC_KEEP_AUTO, false, body, &made, &n_wrt)) return;
  machine f = start(forward), b = start(made.backward);
  memcpy(*find(&f, "X"), x, (size_t)n * 8);
  memcpy(*find(&b, "X"), x, (size_t)n * 8);
  run(&f);
  hand_over(&f, &b);
  double *weights = *find(&b, "gradient_Y");
  for (int64_t k = 0; k < run_elements(forward, forward->outputs.v[0], f.symbols); k++) weights[k] = 1;
  run(&b);
  const double *found = b.buffers[made.wrt[0].gradient];
  for (int k = 0; k < n; k++) {
    if (found[k] != want[k]) printf("%s: gradient of X[%d] is %g, expected %g\n", body, k, found[k], want[k]);
    CHECK(found[k] == want[k]);
  }
  stop(&f), stop(&b);
  dc_graph_destroy(forward);
  dc_graph_destroy(made.backward);
}

#define OWN X "[3] temp Y: none temp A: none temp C: none temp D: none temp E: none outputs Y state main { A = Floor@13(X) C = dcml::Cotangent@1(A) "
static void a_gradient_of_its_own_is_taken_as_it_is(void) {
  const double x[] = {0.5, -1.5, 3};
  expect_gradient(OWN "D = dcml::GiveGradient@1(A, X, C) Y = dcml::TakeGradient@1(D, C) }", x, (double[]){1, 1, 1}, 3);
  expect_gradient(OWN "E = Mul@14(C, X) D = dcml::GiveGradient@1(A, X, E) Y = dcml::TakeGradient@1(D, C) }", x, x, 3);
  expect_gradient(OWN "D = dcml::GiveGradient@1(A, X, X) Y = dcml::TakeGradient@1(D, C) }", x, x, 3);
  expect_gradient(X "[3] temp Y: f64[3] temp A: none temp C: f64[3] temp D: f64[3] temp E: none temp Z: f64[3] outputs Y state main { A = Floor@13(X) C = dcml::Cotangent@1(A) "
                  "map i in 0:3 { D[i] = 0.0 } map i in 0:3 { D[2 - i] sum= C[i] * X[i] } E = dcml::GiveGradient@1(A, X, D) Z = dcml::TakeGradient@1(E, C) map i in 0:3 { Y[i] = Z[i] } }",
                  x, (double[]){3, -1.5, 0.5}, 3); /* a buffer that is prepared before */
}

static void ties_kinks_and_zeros_follow_pytorch(void) {
  expect_gradient(X "[4]" Y "Y = ReduceMax@18(X) {keepdims = 0} }", (double[]){1, 3, 3, 2}, (double[]){0, 0.5, 0.5, 0}, 4);
  expect_gradient(X "[1, 1, 4]" Y "Y = MaxPool@12(X) {kernel_shape = ints [2]} }", (double[]){2, 2, 2, 1}, (double[]){1, 1, 1, 0}, 4);
  expect_gradient(X "[2]" Y "Y = ReduceL2@18(X) {keepdims = 0} }", (double[]){0, 0}, (double[]){0, 0}, 2);
  expect_gradient(X "[2]" Y "Y = ReduceL2@18(X) {keepdims = 0} }", (double[]){3, 4}, (double[]){0.6, 0.8}, 2);
  expect_gradient(X "[3]" Y "Y = Relu@14(X) }", (double[]){-1, 0, 2}, (double[]){0, 0, 1}, 3);
  expect_gradient(X "[3]" Y "Y = ReduceProd@18(X) {keepdims = 0} }", (double[]){0, 3, 2}, (double[]){6, 0, 0}, 3);
  expect_gradient(X "[3]" Y "Y = ReduceProd@18(X) {keepdims = 0} }", (double[]){0, 0, 2}, (double[]){0, 0, 0}, 3);
  expect_gradient(X "[2] temp Y: f64[2] outputs Y state main { map i in 0:2 { Y[i] = X[i] > 0.0 ? sqrt(X[i]) : 0.0 } }", (double[]){0, 4},
                  (double[]){0, 0.25}, 2); /* never 0 times the infinity of the branch not taken */
}

static void small_floats_add_up_in_wide_ones(void) {
  dc_graph *forward = inferred("graph g opset 21 { input X: f16[2] input I: i64[4096] temp Y: none outputs Y state main { Y = Gather@13(X, I) } }", "f16");
  dc_backward made = {0};
  dc_cid x = dc_container_find(forward, "X"), y = dc_container_find(forward, "Y");
  CHECK_OK(dc_autodiff(ops, forward, &y, 1, &x, 1, DC_KEEP_AUTO, false, &made));
  machine b = start(made.backward);
  memset(*find(&b, "I"), 0, 4096 * 8);
  uint16_t *weights = *find(&b, "gradient_Y");
  for (int k = 0; k < 4096; k++) weights[k] = dc_f32_to_f16(1);
  run(&b);
  CHECK(dc_f16_to_f32(((uint16_t *)b.buffers[made.wrt[0].gradient])[0]) == 4096); /* f16 alone stops at 2048 */
  stop(&b);
  dc_graph_destroy(forward);
  dc_graph_destroy(made.backward);
}

static void errors_name_the_culprit(void) {
  dc_graph *g = inferred("graph g opset 21 { input K: i64[3] " X "[3] temp Y: none temp Z: none outputs Y, Z state main { Y = Exp@13(X) Z = Abs@13(K) } }", "types");
  dc_backward made;
  dc_cid y = dc_container_find(g, "Y"), z = dc_container_find(g, "Z"), k = dc_container_find(g, "K"), x = dc_container_find(g, "X");
  CHECK_ERROR(dc_autodiff(ops, g, &z, 1, &x, 1, DC_KEEP_AUTO, false, &made), DC_ERR_DTYPE, "'Z'");
  CHECK_ERROR(dc_autodiff(ops, g, &y, 1, &k, 1, DC_KEEP_AUTO, false, &made), DC_ERR_DTYPE, "'K'");
  dc_graph_destroy(g);
  g = inferred("graph g opset 21 { " X "[3] temp Y: f64[1] outputs Y state main { Y[0] = 1.0 scatter i in 0:3 { Y[0] prod= X[i] #Odd } } }", "prod");
  y = dc_container_find(g, "Y"), x = dc_container_find(g, "X");
  CHECK_ERROR(dc_autodiff(ops, g, &y, 1, &x, 1, DC_KEEP_AUTO, false, &made), DC_ERR_UNSUPPORTED, "Odd");
  dc_graph_destroy(g);
}

/* ---- what is kept ---- */

static void expect_kept(const char *body, dc_keep keep, bool products, const char *want) {
  char text[2048], got[512] = "";
  snprintf(text, sizeof text, "graph g opset 21 { %s }", body);
  dc_graph *forward = inferred(text, body);
  dc_backward made = {0};
  uint32_t n_wrt;
  for (dc_nid n = 1; forward && products && n < forward->nodes.n; n++)
    if (dc_node_at(forward, n)->kind == DC_NODE_LIBRARY && !strcmp(dc_name_text(&forward->names, dc_node_at(forward, n)->lib.op), "MatMul"))
      give_to_a_library(NULL, forward, n);
  if (!forward || !differentiate(forward, keep, false, body, &made, &n_wrt)) return;
  for (dc_cid c = 1; c < made.backward->containers.n; c++)
    if (dc_cont(made.backward, c)->role == DC_ROLE_SAVED) snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", dc_cont_name(made.backward, c));
  CHECK_TEXT(got, want);
  dc_graph_destroy(forward);
  dc_graph_destroy(made.backward);
}

static void expect_saved(const char *body, dc_keep keep, const char *want) { expect_kept(body, keep, false, want); }

static void the_cheaper_of_storing_and_computing_again_is_chosen(void) {
#define MISH(type) "input X: " type "[64] temp A: none temp B: none" Y "A = Softplus@1(X) B = Tanh@13(A) Y = Mul@14(X, B) }"
  const char *mish = MISH("f32");
  expect_saved(mish, DC_KEEP_AUTO, "");
  expect_saved(mish, DC_KEEP_STORE, "B ");
  expect_saved(mish, DC_KEEP_RECOMPUTE, "");
  expect_saved(MISH("f64"), DC_KEEP_AUTO, "B "); /* vectors approximate no functions of doubles */
  /* one sum is smaller than its terms; a long chain is dearer than its result */
  expect_saved("input P: f32[64, 64] input Q: f32[64, 64] temp A: none temp B: none temp C: none" Y
               "A = MatMul@13(P, Q) B = MatMul@13(Q, P) C = Add@14(A, B) Y = Tanh@13(C) }", DC_KEEP_AUTO, "C ");
  expect_saved("input P: f32[64, 64] input Q: f32[64, 64] temp A: none temp B: none" Y
               "A = MatMul@13(P, Q) B = Tanh@13(A) Y = Exp@13(B) }", DC_KEEP_AUTO, "A ");
}

static void operands_whose_results_tell_as_much_are_not_kept(void) {
#define BETWEEN(op) "input P: f32[64, 64] temp A: none temp B: none" Y "A = MatMul@13(P, P) B = " op " Y = MatMul@13(B, P) }"
  expect_kept(BETWEEN("Relu@14(A)"), DC_KEEP_AUTO, true, "B ");
  expect_kept(BETWEEN("Tanh@13(A)"), DC_KEEP_AUTO, true, "B ");
  expect_kept(BETWEEN("Sigmoid@13(A)"), DC_KEEP_AUTO, true, "B ");
  expect_kept(BETWEEN("ThresholdedRelu@10(A) {alpha = 0.5}"), DC_KEEP_AUTO, true, "B ");
  expect_kept(BETWEEN("ThresholdedRelu@10(A) {alpha = -0.5}"), DC_KEEP_AUTO, true, "A B "); /* 0 stands for small numbers, and is greater */
  expect_kept(BETWEEN("LeakyRelu@16(A)"), DC_KEEP_AUTO, true, "A B "); /* a result that underflows is not less than 0 */
  expect_kept("input P: f32[64, 64] temp A: none temp B: none temp C: none temp D: none" Y
               "A = MatMul@13(P, P) B = Relu@14(A) C = MatMul@13(B, P) D = Sin@7(A) Y = Add@14(C, D) }", DC_KEEP_AUTO, true, "A B ");
}

static void what_is_only_moved_is_read_from_where_it_was(void) {
  expect_saved("input X: f32[64, 128] temp A: none temp B: none temp C: none" Y
               "A, B = Split@13(X) {axis = 1} C = Sigmoid@13(B) Y = Mul@14(A, C) }", DC_KEEP_AUTO, "");
  expect_kept("input P: f32[64, 64] temp M: none temp A: none temp B: none" Y
              "M = MatMul@13(P, P) A, B = Split@13(M) {axis = 1} Y = Mul@14(A, B) }", DC_KEEP_AUTO, true, "M ");
}

static void what_is_widened_is_kept_in_its_smaller_type(void) {
  expect_kept("input A: bf16[64, 64] input P: f32[64, 64] temp M: none temp W: none" Y
              "M = MatMul@13(A, A) W = Cast@13(M) {to = 1} Y = MatMul@13(W, P) }", DC_KEEP_AUTO, true, "M ");
  expect_kept("input A: bf16[64, 64] input P: f32[64, 64] temp M: none temp W: none" Y
              "M = MatMul@13(A, A) W = Cast@13(M) {to = 1} Y = MatMul@13(W, P) }", DC_KEEP_STORE, true, "W ");
}

/* Neither what they are of nor themselves. */
static void maxima_keep_the_places_of_their_winners(void) {
#define POOL(side) \
  "input X: f32[1, 2, " side ", " side "] temp A: none" Y "A = Exp@13(X) Y = MaxPool@12(A) {kernel_shape = ints [2, 2], strides = ints [2, 2]} }"
  expect_saved(POOL("64"), DC_KEEP_AUTO, "winner "); /* in a byte each */
  expect_saved(POOL("16"), DC_KEEP_AUTO, "j ");
  expect_saved("input X: f32[1, 64, 40, 40] temp A: none" Y "A = Exp@13(X) Y = GlobalMaxPool@1(A) }", DC_KEEP_AUTO, "j ");
}

/* A row of products and hyperbolic tangents, M<k> and T<k>, in which the last product but one reads `beside` too. */
static void expect_least(int n, const char *beside, const char *want) {
  char body[2048] = "input P: f32[64, 64]";
  for (int k = 0; k < n; k++) snprintf(body + strlen(body), sizeof body - strlen(body), " temp M%d: none temp T%d: none", k, k);
  snprintf(body + strlen(body), sizeof body - strlen(body), Y "M0 = MatMul@13(P, P)");
  for (int k = 0; k < n; k++) {
    snprintf(body + strlen(body), sizeof body - strlen(body), " T%d = Tanh@13(M%d)", k, k);
    if (k + 1 < n) snprintf(body + strlen(body), sizeof body - strlen(body), " M%d = MatMul@13(T%d, %s)", k + 1, k, k + 2 == n ? beside : "P");
  }
  snprintf(body + strlen(body), sizeof body - strlen(body), " Y = MatMul@13(T%d, P) }", n - 1);
  expect_saved(body, DC_KEEP_LEAST, want);
}

static void the_least_memory_keeps_what_segments_hand_on(void) {
  expect_least(9, "P", "T2 T5 ");
  expect_least(9, "T0", "T0 T2 T5 "); /* what a later segment reads of the first is handed on as well */
  expect_least(1, "P", "");
}

int main(int argc, char **argv) {
  CHECK_OK(dc_ops_create(&ops));
  gradients_are_slopes(argc > 1 ? argv[1] : NULL);
  if (argc == 1) {
    a_gradient_of_its_own_is_taken_as_it_is();
  ties_kinks_and_zeros_follow_pytorch();
    small_floats_add_up_in_wide_ones();
    errors_name_the_culprit();
    the_cheaper_of_storing_and_computing_again_is_chosen();
    what_is_only_moved_is_read_from_where_it_was();
    what_is_widened_is_kept_in_its_smaller_type();
    maxima_keep_the_places_of_their_winners();
    operands_whose_results_tell_as_much_are_not_kept();
    the_least_memory_keeps_what_segments_hand_on();
  }
  dc_ops_destroy(ops);
  return check_report();
}
