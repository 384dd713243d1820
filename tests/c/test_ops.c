/* Rows: all parse; shapes and expansions of a few are shown exactly. */
#include "check.h"
#include "ops/ops.h"

static dc_ops *ops;

static void every_row_parses(void) {
  const dc_row *row;
  uint32_t n = 0;
  do CHECK_OK(dc_ops_row_at(ops, n++, &row));
  while (row || n < 20);
  CHECK(n > 200);
}

/* Infers and expands every node of a graph text; the result's states as text. */
static char *expanded(const char *text) {
  dc_graph *g = NULL;
  dc_text out = {0};
  CHECK_OK(dc_graph_parse(text, &g));
  if (!g) return strdup("");
  dc_scope nodes = *dc_graph_scope(g), scope = {0};
  for (uint32_t k = 0; k < nodes.n; k++) {
    dc_cid blocked = 0;
    CHECK_OK(dc_ops_infer(ops, g, nodes.v[k], &blocked));
    CHECK(blocked == 0);
    CHECK_OK(dc_ops_expand(ops, g, nodes.v[k], &scope));
  }
  *dc_graph_scope(g) = scope;
  CHECK_OK(dc_graph_verify(g));
  dc_graph_print(g, &out);
  dc_graph_destroy(g);
  return out.s;
}

static void rows_expand_to_maps(void) {
  char *text = expanded(
      "graph g opset 13 { symbol N >= 1 input A: f32[N, 16] input B: f32[16, 4] input b: f32[4] temp C: none temp D: none temp E: none outputs E state main {"
      " C = MatMul@13(A, B) D = Add@14(C, b) E = Relu@14(D) } }");
  CHECK(strstr(text, "map r in 0:N, u in 0:4 #MatMul {\n      reduce k in 0:16 #MatMul {\n        C[r, u] sum= A[r, k] * B[k, u] #MatMul"));
  CHECK(strstr(text, "D[o, o_2] = C[o, o_2] + b[o_2]"));
  if (check_failed) puts(text);
  free(text);
}

static void convolutions_guard_their_padding(void) {
  char *text = expanded(
      "graph g opset 13 { symbol N >= 1 input X: f32[N, 3, 8, 8] input W: f32[4, 3, 3, 3] input B: f32[4] temp Y: none outputs Y state main {"
      " Y = Conv@11(X, W, B) {pads = ints [1, 1, 1, 1], strides = ints [2, 2]} } }");
  CHECK(strstr(text, "temp Y: f32[N, 4, 4, 4]"));
  if (check_failed) puts(text);
  free(text);
}

static void shapes_are_followed_symbolically(void) {
  char *text = expanded(
      "graph g opset 13 { symbol N >= 1 input X: f32[N, 3, 8] const i: i64[] = {0} const m: i64[1] = {-1} const a: i64[1] = {0} "
      "temp S: none temp n: none temp u: none temp s: none temp Y: none outputs Y state main {"
      " S = Shape@13(X) n = Gather@13(S, i) u = Unsqueeze@13(n, a) s = Concat@13(u, m) {axis = 0} Y = Reshape@13(X, s) } }");
  CHECK(strstr(text, "temp Y: f32[N, 24]"));
  if (check_failed) puts(text);
  free(text);
}

static void random_numbers_depend_on_a_seed_input(void) {
  char *text = expanded(
      "graph g opset 13 { symbol N >= 1 input X: f32[N, 3] input seed: i64[] temp S: none temp U: none temp Z: none outputs U, Z state main {"
      " S = Shape@13(X) U = dcml::Rng@1(seed, S) {stream = 2} Z = dcml::StopGradient@1(X) } }");
  CHECK(strstr(text, "temp U: f32[N, 3]"));
  CHECK(strstr(text, "U[o, o_2] = rand(seed[], 3*o + o_2 + 2199023255552)"));
  CHECK(strstr(text, "stop(X["));
  if (check_failed) puts(text);
  free(text);
}

static void statements_stand_where_they_are_called(void) {
  static const char rows[] =
      "def doubled(from,to,extent) { to[k] over k:extent = from[k]+from[k] }\ndef endless(from) { endless(from) }\n"
      "called.Four.1 (X:T[N]) -> (Y:T[N]) with T in float : doubled(X,Z,N); if N>1 { doubled(Z,Y,N) } else { Y[n] = 4*X[n] }\n"
      "called.Short.1 (X:T[N]) -> (Y:T[N]) : doubled(X)\ncalled.None.1 (X:T[N]) -> (Y:T[N]) : tripled(X,Y)\n"
      "called.Endless.1 (X:T[N]) -> (Y:T[N]) : endless(X)\n";
  const dc_row *row;
  CHECK_OK(dc_ops_add(ops, rows));
  char *text = expanded("graph g { input X: f32[3] temp Y: none outputs Y state main { Y = called::Four@1(X) } }");
  CHECK(strstr(text, "Z[k] = X[k] + X[k]"));
  CHECK(strstr(text, "Y[k] = Z[k] + Z[k]"));
  if (check_failed) puts(text);
  free(text);
  CHECK_ERROR(dc_ops_lookup(ops, "called", "Short", 1, &row), DC_ERR_VALUE, "'doubled' takes 3 arguments");
  CHECK_ERROR(dc_ops_lookup(ops, "called", "None", 1, &row), DC_ERR_VALUE, "no statements 'tripled'");
  CHECK_ERROR(dc_ops_lookup(ops, "called", "Endless", 1, &row), DC_ERR_VALUE, "nested too deeply");
}

static void wrong_inputs_are_named(void) {
  static const struct {
    const char *node, *part;
    dc_code code;
  } cases[] = {
      {"Y = MatMul@13(X, X)", "extent of 2, got 3", DC_ERR_SHAPE},
      {"Y = Foo@13(X)", "Foo", DC_ERR_UNSUPPORTED},
      {"Y = Not@13(X)", "expected bool", DC_ERR_DTYPE},
      {"Y = Transpose@13(X) {perm = ints [0, 0]}", "permutation", DC_ERR_SHAPE},
      {"Y = Relu@13(X) {alpha = 1}", "no attribute 'alpha'", DC_ERR_MODEL},
      {"Y = Softmax@13(X) {axis = 5}", "axis 5", DC_ERR_SHAPE},
      {"Y = Conv@11(X, X) {group = 2}", "extent of 6, got 3", DC_ERR_SHAPE},
      {"Y = Concat@11(X)", "attribute 'axis'", DC_ERR_MODEL},
      {"Y = Add@11(X)", "input 'B'", DC_ERR_MODEL},
  };
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    dc_graph *g = NULL;
    dc_cid blocked;
    dc_text text = {0};
    dc_text_printf(&text, "graph g { input X: f32[2, 3] temp Y: none state s { %s @node } }", cases[k].node);
    CHECK_OK(dc_graph_parse(text.s, &g));
    if (g) CHECK_ERROR(dc_ops_infer(ops, g, dc_graph_scope(g)->v[0], &blocked), cases[k].code, cases[k].part);
    dc_graph_destroy(g);
    dc_text_free(&text);
  }
}

int main(void) {
  CHECK_OK(dc_ops_create(&ops));
  if (!ops) return 1;
  every_row_parses();
  rows_expand_to_maps();
  convolutions_guard_their_padding();
  shapes_are_followed_symbolically();
  random_numbers_depend_on_a_seed_input();
  statements_stand_where_they_are_called();
  wrong_inputs_are_named();
  dc_ops_destroy(ops);
  return check_report();
}
