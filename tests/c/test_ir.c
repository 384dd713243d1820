/* Expressions, containers and the text form. */
#include <math.h>

#include "check.h"

static char *text_of(const dc_graph *g) {
  dc_text t = {0};
  dc_graph_print(g, &t);
  return t.s;
}

static void round_trip(const char *text) {
  dc_graph *g = NULL;
  CHECK_OK(dc_graph_parse(text, &g));
  if (!g) return;
  char *once = text_of(g);
  CHECK_TEXT(once, text);
  dc_graph *clone = dc_graph_clone(g);
  dc_graph_destroy(g);
  char *cloned = text_of(clone);
  CHECK_TEXT(cloned, text);
  dc_graph_destroy(clone);
  free(once);
  free(cloned);
}

/* Names stand for what is long and used twice, in values and guards, and meet no parameter, symbol or container. */
static void common_parts_have_names(void) {
  round_trip(
      "graph parts opset 7 {\n"
      "  symbol t_3 >= 0\n"
      "  input X: f32[t_3]\n"
      "  input t: f32[t_3]\n"
      "  temp Y: f32[t_3]\n"
      "  temp \"let\": f32[t_3]\n"
      "  outputs Y\n"
      "  state main {\n"
      "    map t in 0:t_3 {\n"
      "      let t_2 = exp(min(X[t], 20.0f))\n"
      "      let t_4 = t_2 * (t_2 + t[t])\n"
      "      Y[t] = t_4 / (t_4 + 2.0f) if t_4 > X[t]\n"
      "      let t_2 = X[t] - t[t]\n"
      "      \"let\"[t] = t_2 <= 0.0f ? 0.0f : t_2 * exp(X[t]) + exp(X[t])\n"
      "      let t_2 = f32(t % 4) + 1.0f\n"
      "      Y[t] sum= t_2 * t_2\n"
      "    }\n"
      "  }\n"
      "}\n");
}

/* As a tree this expression has 2^100 leaves. */
static void texts_grow_with_distinct_parts(void) {
  dc_graph *g = dc_graph_create("deep");
  dc_cid x = dc_container_add(g, "X", DC_F32, 0, NULL, DC_ROLE_INPUT), y = dc_container_add(g, "Y", DC_F32, 0, NULL, DC_ROLE_TEMP);
  dc_ex e = dc_ex_prim1(&g->pool, DC_EXP, dc_ex_read(&g->pool, DC_F32, x, NULL, 0));
  for (int k = 0; k < 100; k++) e = dc_ex_prim2(&g->pool, DC_ADD, dc_ex_prim1(&g->pool, DC_TANH, e), e);
  dc_scope_push(g, dc_graph_scope(g), dc_node_tasklet(g, y, DC_WCR_NONE, NULL, 0, 0, e));
  dc_graph_mark_output(g, y);
  char *text = text_of(g);
  CHECK(strlen(text) < 5000);
  round_trip(text);
  free(text);
  dc_graph_destroy(g);
}

static void graphs_print_and_parse_back(void) {
  round_trip( /* a multiple of a quotient is not the quotient of a multiple */
      "graph quotients opset 0 {\n"
      "  symbol A >= 0\n"
      "  input X: f32[2*(A // 2), -((-A) // 3), A - A // 2, 3*(A % 4) + 1]\n"
      "}\n");
  round_trip("graph empty opset 0 {\n}\n");
  round_trip(
      "graph matmul opset 21 {\n"
      "  symbol N >= 1\n"
      "  input A: f32[N, 16]\n"
      "  param B: f32[16, 4]\n"
      "  const shape: i64[2] = {-1, 4}\n"
      "  const scale: f32[] = {0.5}\n"
      "  temp acc: f32[] register\n"
      "  temp C: f32[N, 4]\n"
      "  temp flat: f32[4*N] view C\n"
      "  temp \"odd/name\": i64[2] known {N, 4}\n"
      "  outputs C\n"
      "  state main {\n"
      "    map i in 0:N, j in 0:4 #MatMul {\n"
      "      reduce k in 0:16 {\n"
      "        acc[] sum= A[i, k] * B[k, j]\n"
      "      }\n"
      "      C[i, j] = exp(acc[]) * scale[] + 1.5f if j < N && i + 2*j >= 3\n"
      "    }\n"
      "    C, _ = Foo@13(A, _, B) {axis = -1, eps = 1e-05, mode = \"a\\x22b\", pads = ints [1, -2], w = tensor scale} @\"node 1\"\n"
      "    C = grad(1, 2, 1) custom::MatMul@1(A, B, _, C)\n"
      "  }\n"
      "}\n");
  round_trip(
      "graph forms opset 7 {\n"
      "  input X: f64[8]\n"
      "  input I: i64[8]\n"
      "  temp Y: f64[8]\n"
      "  outputs Y\n"
      "  state main {\n"
      "    scatter i in 0:8:2 #Gather'1 {\n"
      "      Y[I[i] < 0 ? I[i] + 8 : I[i]] sum= i + 1 < 8 ? X[min(7, i + 1)] : -2.0\n"
      "    }\n"
      "    sequential i in 1:8 {\n"
      "      Y[i] = (-1.0) * (Y[i - 1] - X[i]) / (X[i] + f64(i)) - (Y[0] - X[0])\n"
      "    }\n"
      "  }\n"
      "}\n");
}

static void bad_texts_name_line_and_problem(void) {
  dc_graph *g;
  CHECK_ERROR(dc_graph_parse("graph g {\n temp X: f99[2]\n}", &g), DC_ERR_MODEL, "line 2");
  CHECK_ERROR(dc_graph_parse("graph g { state s { X[0] = 1 } }", &g), DC_ERR_MODEL, "declared container");
  CHECK_ERROR(dc_graph_parse("graph g { temp X: f32[2] state s { X[0] = 1.0f + 1.0 } }", &g), DC_ERR_MODEL, "one type");
  CHECK_ERROR(dc_graph_parse("graph g { temp X: f32[2] state s { X[i] = 1.0f } }", &g), DC_ERR_MODEL, "parameter");
  CHECK_ERROR(dc_graph_parse("graph g { param W: f32[2] state s { W[0] = 1.0f } }", &g), DC_ERR_MODEL, "writes a weight");
  CHECK_ERROR(dc_graph_parse("graph g { const X: f32[3] = {1, 2} }", &g), DC_ERR_MODEL, "another size");
  CHECK_ERROR(dc_graph_parse("graph g { temp X: f32[2] view X }", &g), DC_ERR_MODEL, "view of itself");
  CHECK_ERROR(dc_graph_parse("graph g { temp X: f32[2] state s { let t = 1.0f let t = 2.0f X[0] = t } }", &g), DC_ERR_MODEL, "'t' is named twice");
  CHECK_ERROR(dc_graph_parse("graph g { temp X: f32[2] state s { let t = 1.0f X[0] = t X[1] = t } }", &g), DC_ERR_MODEL, "parameter");
  CHECK_ERROR(dc_graph_parse("graph g { temp X: f32[2] state s { let t = 1.0f map { X[0] = 1.0f } } }", &g), DC_ERR_MODEL, "a statement after `let`");
  CHECK_ERROR(dc_graph_parse("graph g { state s { let t = 1.0f } }", &g), DC_ERR_MODEL, "name");
  CHECK_ERROR(dc_graph_parse("graph g { ", &g), DC_ERR_MODEL, "expected");
}

/* The body of a graph with an input X, outputs Y[4] and Z[], and registers r and s. */
static dc_status verify_body(const char *body) {
  char text[1000];
  dc_graph *g = NULL;
  snprintf(text, sizeof text, "graph g { input X: f32[4, 4] temp r: f32[] register temp s: f32[] register temp Y: f32[4] temp Z: f32[] outputs Y, Z state s { %s } }", body);
  dc_status status = dc_graph_parse(text, &g);
  if (!status) dc_graph_destroy(g);
  return status;
}

static void registers_are_written_before_they_are_read(void) {
  CHECK_OK(verify_body("map i in 0:4 { r[] = X[i, 0] Y[i] = r[] }"));
  CHECK_OK(verify_body("map i in 0:4 { reduce j in 0:4 { r[] sum= X[i, j] } Y[i] = r[] }"));
  CHECK_OK(verify_body("map i in 0:4 { r[] = 0.0f sequential j in 0:4 { r[] sum= X[i, j] } Y[i] = r[] }"));
  CHECK_ERROR(verify_body("map i in 0:4 { Y[i] = r[] r[] = X[i, 0] }"), DC_ERR_MODEL, "reads a register that nothing wrote before");
  CHECK_ERROR(verify_body("map i in 0:4 { Y[i] = X[i, 0] if r[] > 0.0f r[] = 1.0f }"), DC_ERR_MODEL, "reads a register");
  CHECK_ERROR(verify_body("map i in 0:4 { r[] = s[] + 1.0f s[] = 1.0f Y[i] = r[] }"), DC_ERR_MODEL, "reads a register");
  CHECK_ERROR(verify_body("map i in 0:4 { sequential j in 0:4 { r[] sum= X[i, j] } Y[i] = r[] }"), DC_ERR_MODEL, "accumulates into a register");
}

static void reductions_are_whole(void) {
  CHECK_OK(verify_body("map i in 0:4 { reduce j in 0:4 { Y[i] sum= X[i, j] } }"));
  CHECK_OK(verify_body("reduce j in 0:4 { map i in 0:4 { Y[i] sum= X[i, j] } }"));
  CHECK_OK(verify_body("reduce i in 0:4 { reduce j in 0:4 { r[] max= X[i, j] } Z[] sum= r[] }"));
  CHECK_OK(verify_body("reduce i in 0:4 { reduce j in 0:4 { Y[i] max= X[i, j] } }"));
  CHECK_OK(verify_body("scatter i in 0:4 { Y[i / 2] sum= X[i, 0] }"));
  CHECK_ERROR(verify_body("reduce i in 0:4 { Y[i / 2] sum= X[i, 0] }"), DC_ERR_MODEL, "an element that moves with its REDUCE map");
  CHECK_ERROR(verify_body("reduce i in 0:4 { map j in 0:i { Y[j] sum= X[i, j] } }"), DC_ERR_MODEL, "an element that moves");
  CHECK_ERROR(verify_body("reduce i in 0:4 { Z[] sum= X[i, 0] Y[i] = Z[] }"), DC_ERR_MODEL, "reads an accumulator inside its REDUCE map");
  CHECK_ERROR(verify_body("reduce i in 0:4 { Z[] sum= X[i, 0] Z[] = 1.0f }"), DC_ERR_MODEL, "overwrites an accumulator");
  CHECK_ERROR(verify_body("reduce i in 0:4 { Z[] sum= X[i, 0] Z[] max= X[i, 1] }"), DC_ERR_MODEL, "in two ways");
  CHECK_ERROR(verify_body("reduce i in 0:4 { Z[] sum= X[i, 0] reduce j in 0:4 { Z[] sum= X[i, j] } }"), DC_ERR_MODEL, "two nested REDUCE maps");
  CHECK_ERROR(verify_body("reduce i in 0:4 { reduce j in 0:4 { Z[] sum= X[i, j] } }"), DC_ERR_MODEL, "reduces anew in each iteration");
}

static void index_expressions_normalise(void) {
  dc_graph *g = dc_graph_create("t");
  dc_pool *p = &g->pool;
  dc_ex n = dc_ex_sym(p, dc_symbol_get(p, "N", 1)), m = dc_ex_sym(p, dc_symbol_get(p, "M", 1));
  dc_ex zero = dc_ex_int(p, 0), two = dc_ex_int(p, 2), four = dc_ex_int(p, 4);
  dc_ex i = dc_ex_par(p, dc_param_new(p, "i", zero, n, 0)), j = dc_ex_par(p, dc_param_new(p, "j", zero, four, 0));
  dc_ex flat = dc_ix_add(p, dc_ix_mul(p, i, four), j);
  CHECK(dc_ix_sub(p, dc_ix_add(p, i, j), j) == i);
  CHECK(dc_ix_div(p, flat, four) == i);
  CHECK(dc_ix_mod(p, flat, four) == j);
  CHECK(dc_ix_div(p, dc_ix_mul(p, n, m), m) == n);
  CHECK(dc_ix_mod(p, dc_ix_mul(p, n, m), n) == zero);
  CHECK(dc_ix_mul(p, dc_ix_add(p, n, two), m) == dc_ix_add(p, dc_ix_mul(p, m, n), dc_ix_mul(p, two, m)));
  CHECK(dc_ix_min(p, n, dc_ix_add(p, n, two)) == n);
  CHECK(dc_ix_max(p, zero, j) == j);
  CHECK(dc_ex_in_range(p, i, n) == dc_ex_bool(p, true));
  CHECK(dc_ex_in_range(p, j, n) != dc_ex_bool(p, true));
  CHECK(dc_ex_in_range(p, dc_ix_sub(p, dc_ix_sub(p, n, dc_ex_int(p, 1)), i), n) == dc_ex_bool(p, true));
  CHECK(dc_ex_in_range(p, flat, dc_ix_mul(p, n, four)) == dc_ex_bool(p, true));
  CHECK(dc_ix_div(p, dc_ex_int(p, -7), two) == dc_ex_int(p, -4));
  CHECK(dc_ix_mod(p, dc_ex_int(p, -7), four) == dc_ex_int(p, 1));
  CHECK(dc_ix_div(p, two, zero) == zero);
  dc_ex minus = dc_ex_int(p, -1), from_end = dc_ix_sub(p, n, i);
  CHECK(dc_ix_div(p, from_end, minus) == dc_ix_sub(p, i, n) && dc_ix_mod(p, from_end, minus) == zero);
  CHECK(dc_ix_div(p, dc_ex_int(p, -7), dc_ex_int(p, -4)) == dc_ex_int(p, 1));
  CHECK(dc_ix_div(p, flat, dc_ex_int(p, -4)) == dc_ix_div(p, dc_ix_mul(p, flat, minus), four));
  CHECK(dc_ix_mod(p, flat, dc_ex_int(p, -4)) == dc_ix_mul(p, dc_ix_mod(p, dc_ix_mul(p, flat, minus), four), minus));
  dc_ex coefficient, rest;
  dc_param jp = dc_ex_node(p, j)->ref;
  CHECK(dc_ix_split(p, dc_ix_add(p, dc_ix_mul(p, j, n), i), jp, &coefficient, &rest) && coefficient == n && rest == i);
  dc_text text = {0};
  dc_ex_print(g, dc_ix_sub(p, dc_ix_mul(p, flat, n), two), &text);
  CHECK_TEXT(text.s, "4*N*i + N*j - 2");
  dc_text_free(&text);
  int64_t symbols[] = {0, 5, 7}, params[] = {0, 3, 2};
  CHECK(dc_ix_eval(p, dc_ix_mul(p, flat, n), symbols, params) == 70);
  dc_graph_destroy(g);
}

static void scalar_constants_fold_safely(void) {
  dc_graph *g = dc_graph_create("t");
  dc_pool *p = &g->pool;
  dc_cid x = dc_container_add(g, "x", DC_F32, 0, NULL, DC_ROLE_INPUT);
  dc_ex r = dc_ex_read(p, DC_F32, x, NULL, 0), zero = dc_ex_const(p, DC_F32, 0), one = dc_ex_const(p, DC_F32, 1);
  CHECK(dc_ex_prim2(p, DC_MUL, r, one) == r);
  CHECK(dc_ex_prim2(p, DC_ADD, zero, r) == r);
  CHECK(dc_ex_prim2(p, DC_MUL, r, zero) != zero);
  CHECK(dc_ex_prim2(p, DC_ADD, one, one) == dc_ex_const(p, DC_F32, 2));
  CHECK(dc_ex_cast(p, DC_F32, dc_ex_cast(p, DC_F64, r)) == r);
  CHECK(dc_ex_cast(p, DC_I8, dc_ex_int(p, 200)) == dc_ex_const(p, DC_I8, -56));
  CHECK(dc_ex_select(p, dc_ex_bool(p, false), zero, r) == r);
  dc_ex rises = dc_ex_prim2(p, DC_GT, r, zero), side = dc_ex_select(p, rises, dc_ex_int(p, 1), dc_ex_int(p, 0));
  CHECK(dc_ex_cast(p, DC_F32, side) == dc_ex_select(p, rises, one, zero)); /* no conversion of what is a choice of constants */
  CHECK(dc_f32_to_f16(65520.0f) == 0x7C00 && dc_f32_to_f16(1e-8f) == 0 && dc_f32_to_f16(0.333251953125f) == 0x3555);
  int wrong = 0;
  for (uint32_t bits = 0; bits < 65536; bits++) {
    float f = dc_f16_to_f32((uint16_t)bits);
    wrong += f == f && dc_f32_to_f16(f) != bits;
  }
  CHECK(wrong == 0);
  dc_graph_destroy(g);
}

static void lies_in(dc_pool *p, dc_ex x, double lo, double hi) {
  const dc_range r = dc_ex_range(p, x);
  char got[80];
  snprintf(got, sizeof got, "%a .. %a", r.lo, r.hi);
  check_result(r.lo == lo && r.hi == hi, __FILE__, __LINE__, "the range of an expression", got);
}

static void ranges_come_from_functions(void) {
  dc_graph *g = dc_graph_create("g");
  dc_pool *p = &g->pool;
  dc_ex x = dc_ex_read(p, DC_F32, 1, NULL, 0), tanh = dc_ex_prim1(p, DC_TANH, x), abs = dc_ex_prim1(p, DC_ABS, x);
  dc_ex two = dc_ex_const(p, DC_F32, 2), huge = dc_ex_const(p, DC_F32, 0x1p100);
  const double step = 0x1p-23; /* that a float may be off */
  lies_in(p, x, -INFINITY, INFINITY);
  lies_in(p, dc_ex_prim1(p, DC_NEG, tanh), -1, 1);
  lies_in(p, dc_ex_prim1(p, DC_NEG, abs), -INFINITY, 0);
  lies_in(p, dc_ex_prim2(p, DC_MIN, x, two), -INFINITY, 2);
  lies_in(p, dc_ex_prim2(p, DC_MAX, dc_ex_prim2(p, DC_MIN, x, two), tanh), -1, 2);
  lies_in(p, dc_ex_prim2(p, DC_MUL, x, x), 0, INFINITY);
  lies_in(p, dc_ex_prim2(p, DC_MUL, tanh, x), -INFINITY, INFINITY); /* 0 times an infinity is NaN, which tells nothing of the rest */
  lies_in(p, dc_ex_prim2(p, DC_ADD, tanh, two), 1 - step, 3 + 3 * step);
  dc_ex large = dc_ex_prim2(p, DC_MUL, tanh, huge);
  lies_in(p, dc_ex_prim2(p, DC_MUL, large, large), 0, INFINITY); /* 2^200 is no float */
  lies_in(p, dc_ex_select(p, dc_ex_prim2(p, DC_LT, x, two), two, dc_ex_prim1(p, DC_SIGMOID, x)), 0, 2);
  lies_in(p, dc_ex_cast(p, DC_F32, dc_ex_read(p, DC_BOOL, 2, NULL, 0)), 0, 1 + step);
  dc_ex deep = tanh;
  for (int k = 0; k < 40; k++) deep = dc_ex_prim2(p, DC_MAX, deep, dc_ex_prim1(p, DC_NEG, deep));
  lies_in(p, deep, -INFINITY, INFINITY); /* beyond where anybody looks */
  dc_graph_destroy(g);
}

static void clones_of_nodes_bind_their_own_parameters(void) {
  dc_graph *g = NULL;
  CHECK_OK(dc_graph_parse("graph g { input X: f32[4] temp Y: f32[4] state s { map i in 0:4 { reduce k in 0:i { Y[i] sum= X[k] } } } }", &g));
  dc_nid first = dc_graph_scope(g)->v[0], copy = dc_node_clone(g, first);
  dc_scope_push(g, dc_graph_scope(g), copy);
  CHECK_OK(dc_graph_verify(g));
  CHECK(dc_node_at(g, copy)->map.params[0] != dc_node_at(g, first)->map.params[0]);
  dc_graph_destroy(g);
}

typedef enum { ONE_MAP, MAPS, MAPS_WITHOUT_PARAMETERS, NESTS } nest;

static dc_status parse_nest(nest kind, int loops, dc_graph **out) {
  dc_text t = {0};
  dc_text_puts(&t, "graph g { temp Y: f64[] state s { map ");
  for (int k = 0; k < loops; k++) {
    if (k) dc_text_puts(&t, kind == ONE_MAP ? ", " : " { map ");
    if (kind != MAPS_WITHOUT_PARAMETERS) dc_text_printf(&t, "i%d in 0:1", k);
  }
  dc_text_puts(&t, " { Y[] = 1.0 }");
  for (int k = 1; k < loops && kind != ONE_MAP; k++) dc_text_puts(&t, " }");
  dc_text_puts(&t, " } }");
  dc_status status = dc_graph_parse(t.s, out);
  dc_text_free(&t);
  return status;
}

static void nests_have_a_limit(void) {
  for (nest kind = ONE_MAP; kind < NESTS; kind++) {
    dc_graph *g = NULL;
    CHECK_OK(parse_nest(kind, DC_MAX_LOOPS, &g));
    char *text = text_of(g);
    round_trip(text);
    free(text);
    dc_graph_destroy(g);
    g = NULL;
    CHECK_ERROR(parse_nest(kind, DC_MAX_LOOPS + 1, &g), DC_ERR_MODEL, "more than 256 loops");
  }
}

static void the_verifier_counts_loops(void) {
  dc_graph *g = dc_graph_create("g");
  dc_ex one = dc_ex_int(&g->pool, 1), value = dc_ex_const(&g->pool, DC_F64, 1);
  dc_nid inner = dc_node_tasklet(g, dc_container_add(g, "Y", DC_F64, 0, NULL, DC_ROLE_TEMP), DC_WCR_NONE, NULL, 0, 0, value);
  for (int k = 0; k <= DC_MAX_LOOPS; k++) {
    if (k == DC_MAX_LOOPS) CHECK_OK(dc_graph_verify(g));
    dc_param p = dc_param_new(&g->pool, "i", dc_ex_int(&g->pool, 0), one, 0);
    inner = dc_node_wrap(g, DC_MAP_PARALLEL, &p, 1, inner);
    dc_graph_scope(g)->n = 0;
    dc_scope_push(g, dc_graph_scope(g), inner);
  }
  CHECK_ERROR(dc_graph_verify(g), DC_ERR_MODEL, "more than 256 loops");
  dc_graph_destroy(g);
}

static void arrays_have_a_limit_of_dimensions(void) {
  dc_text t = {0};
  dc_ex shape[DC_MAX_RANK + 1];
  for (int rank = DC_MAX_RANK; rank <= DC_MAX_RANK + 1; rank++) {
    dc_graph *g = dc_graph_create("g"), *parsed = NULL;
    for (int d = 0; d < rank; d++) shape[d] = dc_ex_int(&g->pool, 1);
    dc_container_add(g, "A", DC_F32, (uint32_t)rank, shape, DC_ROLE_TEMP);
    t.n = 0;
    dc_graph_print(g, &t);
    if (rank == DC_MAX_RANK) {
      CHECK_OK(dc_graph_verify(g));
      round_trip(t.s);
    } else {
      CHECK_ERROR(dc_graph_verify(g), DC_ERR_MODEL, "container 'A' has 65 dimensions, more than 64");
      CHECK_ERROR(dc_graph_parse(t.s, &parsed), DC_ERR_MODEL, "'A' has 65, more than 64");
    }
    dc_graph_destroy(g);
  }
  dc_text_free(&t);
}

int main(void) {
  nests_have_a_limit();
  the_verifier_counts_loops();
  arrays_have_a_limit_of_dimensions();
  graphs_print_and_parse_back();
  common_parts_have_names();
  texts_grow_with_distinct_parts();
  bad_texts_name_line_and_problem();
  registers_are_written_before_they_are_read();
  reductions_are_whole();
  index_expressions_normalise();
  scalar_constants_fold_safely();
  ranges_come_from_functions();
  clones_of_nodes_bind_their_own_parameters();
  return check_report();
}
