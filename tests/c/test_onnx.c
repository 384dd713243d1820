/* Import and export of ONNX files that are written here byte by byte, so that they can lie.
 *
 * A message is built by appending fields: number(m, field, value), text(m, field, s), sub(m, field, message). */
#include "check.h"
#include "onnx/onnx.h"

typedef struct {
  size_t n;
  uint8_t bytes[6000];
} msg;

static msg byte(msg m, uint64_t value) {
  if (m.n == sizeof m.bytes) abort();
  return m.bytes[m.n++] = (uint8_t)value, m;
}

static msg varint(msg m, uint64_t value) {
  for (; value > 127; value >>= 7) m = byte(m, value | 128);
  return byte(m, value);
}

static msg number(msg m, int field, int64_t value) { return varint(varint(m, (uint64_t)field << 3), (uint64_t)value); }

static msg bytes(msg m, int field, const void *data, size_t n) {
  m = varint(varint(m, (uint64_t)field << 3 | 2), n);
  for (size_t k = 0; k < n; k++) m = byte(m, ((const uint8_t *)data)[k]);
  return m;
}

static msg text(msg m, int field, const char *s) { return bytes(m, field, s, strlen(s)); }
static msg sub(msg m, int field, msg inner) { return bytes(m, field, inner.bytes, inner.n); }
static const msg nothing;

/* ---- messages of onnx.proto ---- */

static msg opset(const char *domain, int version) { return number(text(nothing, 1, domain), 2, version); }

/* dims: a number, or a name; NULL ends the list. */
static msg value(const char *name, int type, const char *const *dims) {
  msg shape = nothing;
  for (; *dims; dims++) {
    bool constant = **dims && !(*dims)[strspn(*dims, "0123456789")];
    shape = sub(shape, 1, constant ? number(nothing, 1, atoi(*dims)) : **dims ? text(nothing, 2, *dims) : nothing);
  }
  return sub(text(nothing, 1, name), 2, sub(nothing, 1, sub(number(nothing, 1, type), 2, shape)));
}
#define VALUE(name, type, ...) value(name, type, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static msg words(msg m, int field, const char *list) { /* separated by blanks; "-" is the empty name */
  char copy[256], *rest = copy;
  snprintf(copy, sizeof copy, "%s", list);
  for (char *word; (word = strsep(&rest, " "));) m = text(m, field, *word == '-' ? "" : word);
  return m;
}

static msg node(const char *op, const char *in, const char *out) { return text(words(words(nothing, 1, in), 2, out), 4, op); }
static msg call(const char *op, const char *in, const char *out) { return text(node(op, in, out), 7, "f"); }
static msg attr_int(const char *name, int64_t i) { return number(number(text(nothing, 1, name), 3, i), 20, 2); }
static msg attr_ref(const char *name, const char *of) { return text(number(text(nothing, 1, name), 20, 2), 21, of); }

static msg function(const char *name, const char *in, const char *out, msg body) {
  msg f = text(words(words(text(nothing, 1, name), 4, in), 5, out), 10, "f");
  f = sub(sub(f, 9, opset("", 18)), 9, opset("f", 1));
  for (size_t k = 0; k < body.n; k++) f = byte(f, body.bytes[k]);
  return f;
}

static msg tensor(const char *name, int type, int64_t dim) { return text(number(number(nothing, 1, dim), 2, type), 8, name); }

/* The graph comes last, so that no proper prefix of a model is a model. */
static msg model(msg graph) { return sub(sub(number(nothing, 1, 8), 8, opset("", 18)), 7, graph); }
static msg unary(msg graph) { return sub(sub(text(graph, 2, "g"), 11, VALUE("x", DC_F32, "2", "3")), 12, VALUE("y", DC_F32, "2", "3")); }

static dc_status import(msg m, dc_graph **out) {
  *out = NULL;
  return dc_onnx_import(NULL, m.bytes, m.n, NULL, false, out);
}

static void check_graph(msg m, const char *const *parts) {
  dc_graph *g;
  CHECK_OK(import(m, &g));
  if (!g) return;
  CHECK_OK(dc_graph_verify(g));
  dc_text out = {0};
  dc_graph_print(g, &out);
  for (; *parts; parts++) check_result(strstr(out.s, *parts), __FILE__, __LINE__, *parts, out.s);
  dc_text_free(&out);
  dc_graph_destroy(g);
}
#define CHECK_GRAPH(m, ...) check_graph(m, (const char *const[]){__VA_ARGS__, NULL})

static void check_bad(msg m, dc_code code, const char *part, int line) {
  dc_graph *g;
  check_error(import(m, &g), code, part, __FILE__, line, part);
  dc_graph_destroy(g);
}
#define CHECK_BAD(m, code, part) check_bad(m, code, part, __LINE__)

/* ---- tests ---- */

static void a_model_becomes_library_nodes(void) {
  msg g = sub(nothing, 1, sub(node("Softmax", "x", "s"), 5, attr_int("axis", 1)));
  g = sub(g, 1, node("Clip", "s - m", "y"));
  g = sub(g, 5, bytes(number(number(nothing, 2, DC_F32), 8 - 8 + 1, 1), 9, "\0\0\200?", 4)); /* without a name */
  CHECK_BAD(model(unary(g)), DC_ERR_MODEL, "has no name");
  g = sub(nothing, 1, sub(node("Softmax", "x", "s"), 5, attr_int("axis", 1)));
  g = sub(sub(g, 1, node("Clip", "s - m", "y")), 5, bytes(text(number(nothing, 2, DC_F32), 8, "m"), 9, "\0\0\200?", 4));
  CHECK_GRAPH(model(unary(g)), "input x: f32[2, 3]", "s = Softmax@18(x) {axis = 1}", "const m: f32[]", "temp y: f32[2, 3]", "outputs y");
}

static void every_prefix_is_an_error(void) {
  msg g = sub(unary(sub(nothing, 1, sub(node("Softmax", "x", "y"), 5, attr_int("axis", 1)))), 13, VALUE("y", DC_F32, "2", "n"));
  msg whole = model(sub(g, 5, bytes(tensor("w", DC_F32, 1), 9, "1234", 4)));
  CHECK_GRAPH(whole, "Softmax");
  for (size_t n = 0; n < whole.n; n++) {
    dc_graph *out = NULL;
    uint8_t *exact = malloc(n + 1); /* on the heap, where the sanitizer sees a read beyond it */
    memcpy(exact, whole.bytes, n);
    dc_status status = dc_onnx_import(NULL, exact, n, NULL, false, &out);
    CHECK(status != NULL);
    dc_status_free(status);
    free(exact);
  }
}

static void deep_nesting_is_an_error(void) {
  msg type = nothing;
  for (int k = 0; k < 500; k++) type = sub(nothing, 4, sub(nothing, 1, type)); /* sequence of sequence of ... */
  msg g = sub(nothing, 11, sub(text(nothing, 1, "x"), 2, type));
  CHECK_BAD(model(g), DC_ERR_MODEL, "nested deeper");
}

static void a_part_that_comes_twice_is_an_error(void) {
  msg g = unary(sub(nothing, 1, node("Relu", "x", "y")));
  CHECK_GRAPH(model(g), "y = Relu@18(x)");
  CHECK_BAD(sub(model(g), 7, g), DC_ERR_MODEL, "'graph' comes twice");
  CHECK_BAD(model(sub(g, 12, VALUE("y", DC_F32, "2", "3"))), DC_ERR_MODEL, "output 'y' is given twice");
  CHECK_BAD(model(sub(g, 1, node("Abs", "x", "y"))), DC_ERR_MODEL, "'y' is computed twice");
  msg f = function("F", "a", "b", sub(nothing, 7, node("Relu", "a", "b")));
  CHECK_BAD(sub(sub(model(g), 25, f), 25, f), DC_ERR_MODEL, "function 'F' is given twice");
}

static void versions_must_be_known(void) {
  msg g = unary(sub(nothing, 1, node("Relu", "x", "y")));
  CHECK_BAD(sub(number(nothing, 1, 8), 7, g), DC_ERR_MODEL, "no valid version of domain 'ai.onnx'");
  CHECK_BAD(sub(sub(nothing, 8, opset("", 18)), 7, g), DC_ERR_MODEL, "IR version is 0");
  CHECK_BAD(sub(sub(number(nothing, 1, 999), 8, opset("", 18)), 7, g), DC_ERR_MODEL, "IR version is 999");
  CHECK_BAD(sub(sub(number(nothing, 1, 8), 8, opset("", -1)), 7, g), DC_ERR_MODEL, "no valid version");
  CHECK_BAD(model(unary(sub(nothing, 1, call("Relu", "x", "y")))), DC_ERR_MODEL, "no valid version of domain 'f'");
  CHECK_GRAPH(sub(sub(number(nothing, 1, 8), 8, opset("ai.onnx", 13)), 7, g), "y = Relu@13(x)");
}

static void different_names_of_dimensions_stay_different(void) {
  msg g = sub(nothing, 11, VALUE("x", DC_F32, "a-b", "a_b", "a-b", "", "", "dim_2", "7up"));
  g = sub(sub(g, 1, node("Relu", "x", "y")), 12, text(nothing, 1, "y"));
  CHECK_GRAPH(model(g), "input x: f32[a_b, a_b_1, a_b, dim_2, dim_3, dim_2_4, dim_5]");
}

static void an_input_needs_a_type(void) {
  msg g = sub(sub(nothing, 1, node("Relu", "x", "y")), 12, text(nothing, 1, "y"));
  CHECK_BAD(model(sub(g, 11, text(nothing, 1, "x"))), DC_ERR_MODEL, "input 'x' has no type");
  msg shapeless = sub(text(nothing, 1, "x"), 2, sub(nothing, 1, number(nothing, 1, DC_F32)));
  CHECK_GRAPH(model(sub(g, 11, shapeless)), "input x: f32\n");
  CHECK_GRAPH(model(sub(g, 11, VALUE("x", DC_C64, "2"))), "input x: c64[2]");
  CHECK_GRAPH(model(sub(g, 11, VALUE("x", DC_STRING, "2"))), "input x: string[2]");
}

static msg attr_graph(const char *name, msg graph) { return number(sub(text(nothing, 1, name), 6, graph), 20, 5); }

static void a_subgraph_gets_an_input_for_each_outer_value(void) {
  msg body = sub(sub(nothing, 1, node("Add", "x r", "s")), 12, text(nothing, 1, "s"));
  msg outer = sub(sub(nothing, 1, sub(node("If", "c", "t"), 5, attr_graph("then_branch", body))), 12, text(nothing, 1, "t"));
  msg g = sub(nothing, 1, node("Relu", "x", "r"));
  g = unary(sub(g, 1, sub(node("If", "x", "y"), 5, attr_graph("then_branch", body))));
  CHECK_GRAPH(model(g), "y = If@18(x) {then_branch = graph 0}", "input x: f32\n    input r: none\n", "s = Add@18(x, r)");
  CHECK_BAD(model(unary(sub(nothing, 1, sub(node("If", "x", "y"), 5, attr_graph("then_branch", body))))), DC_ERR_MODEL, "input 'r' is computed later");
  CHECK_BAD(model(unary(sub(nothing, 1, sub(node("If", "x", "y"), 5, attr_graph("then_branch", outer))))), DC_ERR_MODEL, "input 'c' is computed later");
}

static void subgraphs_nested_deeply_are_an_error(void) {
  msg g = sub(sub(nothing, 1, node("Relu", "x", "y")), 12, text(nothing, 1, "y"));
  for (int k = 0; k < 40; k++) g = sub(sub(nothing, 1, sub(node("If", "x", "y"), 5, attr_graph("then_branch", g))), 12, text(nothing, 1, "y"));
  CHECK_BAD(model(unary(g)), DC_ERR_MODEL, "nested deeper");
}

static void functions_are_inlined(void) {
  msg inner = function("Inner", "a lo hi", "b", sub(nothing, 7, sub(node("Softmax", "a", "s"), 5, attr_ref("axis", "k"))));
  inner = sub(inner, 7, node("Clip", "s lo hi", "b"));
  msg middle = function("Middle", "a", "b", sub(nothing, 7, sub(call("Inner", "a", "b"), 5, attr_ref("k", "j"))));
  msg outer = function("Outer", "a", "b", sub(nothing, 7, sub(call("Middle", "a", "b"), 5, attr_ref("j", "i"))));
  msg given = unary(sub(nothing, 1, sub(call("Outer", "x", "y"), 5, attr_int("i", 7))));
  msg left_out = unary(sub(nothing, 1, call("Outer", "x", "y")));
  msg with_default = sub(function("Outer", "a", "b", sub(nothing, 7, sub(call("Middle", "a", "b"), 5, attr_ref("j", "i")))), 11, attr_int("i", 5));
  CHECK_GRAPH(sub(sub(sub(model(given), 25, inner), 25, middle), 25, outer), "= Softmax@18(x) {axis = 7}", "= Clip@18(s)");
  CHECK_GRAPH(sub(sub(sub(model(left_out), 25, inner), 25, middle), 25, outer), "= Softmax@18(x)\n");
  CHECK_GRAPH(sub(sub(sub(model(left_out), 25, inner), 25, middle), 25, with_default), "= Softmax@18(x) {axis = 5}");
  CHECK_BAD(model(unary(sub(nothing, 1, sub(node("Softmax", "x", "y"), 5, attr_ref("axis", "k"))))), DC_ERR_MODEL, "outside a function");
}

static void small_files_do_not_unfold_into_huge_graphs(void) {
  msg g = unary(sub(nothing, 1, call("F0", "x", "y"))), m = model(g);
  char name[8], next[8];
  for (int k = 0; k < 30; k++) {
    snprintf(name, sizeof name, "F%d", k), snprintf(next, sizeof next, "F%d", k + 1);
    msg body = k < 29 ? sub(sub(nothing, 7, call(next, "a", "c")), 7, call(next, "c", "b")) : sub(nothing, 7, node("Relu", "a", "b"));
    m = sub(m, 25, function(name, "a", "b", body));
  }
  CHECK_BAD(m, DC_ERR_MODEL, "functions unfold to more than");
  msg to_itself = function("F0", "a", "b", sub(nothing, 7, call("F0", "a", "b")));
  CHECK_BAD(sub(model(g), 25, to_itself), DC_ERR_MODEL, "calls itself");
}

static const dc_container *container(dc_graph *g, const char *name) {
  static const dc_container none;
  return g ? dc_cont(g, dc_container_find(g, name)) : &none;
}

static void check_bytes(dc_graph *g, const char *name, const void *wanted, size_t n) {
  const dc_container *c = container(g, name);
  CHECK(c->data_bytes == n);
  CHECK(c->data_bytes == n && memcmp(c->data, wanted, n) == 0);
}

static msg with_tensors(msg graph) { return model(unary(sub(graph, 1, node("Relu", "x", "y")))); }

static void small_integers_have_a_byte_each_in_memory_only(void) {
  static const int8_t wanted[] = {-8, 7, -1};
  msg g = sub(nothing, 5, bytes(tensor("raw", DC_I4, 3), 9, "\x78\x0f", 2));
  g = sub(g, 5, bytes(tensor("field", DC_I4, 3), 5, "\x78\x0f", 2)); /* packed varints */
  g = sub(g, 5, bytes(tensor("two", DC_U2, 5), 9, "\xe4\x02", 2));
  dc_graph *first, *second = NULL;
  CHECK_OK(import(with_tensors(g), &first));
  uint8_t *file = NULL;
  uint64_t n = 0;
  if (first) CHECK_OK(dc_onnx_export(first, &file, &n));
  if (file) CHECK_OK(dc_onnx_import(NULL, file, n, NULL, false, &second));
  dc_graph *graphs[] = {first, second};
  for (int k = 0; k < 2; k++) {
    check_bytes(graphs[k], "raw", wanted, 3);
    check_bytes(graphs[k], "field", wanted, 3);
    check_bytes(graphs[k], "two", "\0\1\2\3\2", 5);
  }
  free(file);
  dc_graph_destroy(first), dc_graph_destroy(second);
  CHECK_BAD(with_tensors(sub(nothing, 5, bytes(tensor("w", DC_I4, 3), 9, "\x78\x0f\0", 3))), DC_ERR_MODEL, "'w': it holds another number");
}

static msg sparse(int64_t dim, const char *index, size_t n_index) {
  msg values = bytes(tensor("w", DC_U8, 2), 9, "\5\6", 2), indices = bytes(tensor("i", DC_I64, 2), 7, index, n_index);
  return sub(nothing, 15, number(sub(sub(nothing, 1, values), 2, indices), 3, dim));
}

static void sparse_tensors_become_dense(void) {
  dc_graph *g;
  CHECK_OK(import(with_tensors(sparse(4, "\1\3", 2)), &g));
  check_bytes(g, "w", "\0\5\0\6", 4);
  dc_graph_destroy(g);
  CHECK_BAD(with_tensors(sparse(4, "\1\4", 2)), DC_ERR_MODEL, "a sparse index is out of range");
  CHECK_BAD(with_tensors(sparse(4, "\1", 1)), DC_ERR_MODEL, "holds another number");
  CHECK_BAD(with_tensors(sparse((int64_t)1 << 40, "\1\3", 2)), DC_ERR_SHAPE, "its dimensions are too large");
}

static void exports(const char *graph_text, dc_code code, const char *part) {
  dc_graph *g = NULL, *again = NULL;
  uint8_t *file = NULL;
  uint64_t n = 0;
  CHECK_OK(dc_graph_parse(graph_text, &g));
  if (!g) return;
  dc_status status = dc_onnx_export(g, &file, &n);
  if (code) CHECK_ERROR(status, code, part);
  else CHECK_OK(status);
  if (file && !code) CHECK_OK(dc_onnx_import(NULL, file, n, NULL, false, &again));
  dc_text out = {0};
  if (again) dc_graph_print(again, &out);
  if (again) check_result(strstr(out.s, part), __FILE__, __LINE__, part, out.s);
  dc_text_free(&out), free(file);
  dc_graph_destroy(g), dc_graph_destroy(again);
}

static void a_file_imports_each_domain_that_its_nodes_need(void) {
  exports("graph g opset 18 { input x: f32[2] temp a: f32[2] temp y: f32[2] outputs y state main {"
          " a = \"com.example\"::Foo@3(x) y = Relu@18(a) } }", 0, "a = \"com.example\"::Foo@3(x)");
  exports("graph g opset 18 { input x: f32[2] temp y: f32[2] outputs y state main { y = Relu@21(x) } }", DC_ERR_UNSUPPORTED, "is of version 21");
  exports("graph g opset 18 { input x: f32[2] temp y: f32[2] outputs y state main { y = dcml::StopGradient@1(x) } }", DC_ERR_UNSUPPORTED,
          "StopGradient (output 'y')");
}

int main(void) {
  a_model_becomes_library_nodes();
  every_prefix_is_an_error();
  deep_nesting_is_an_error();
  a_part_that_comes_twice_is_an_error();
  versions_must_be_known();
  different_names_of_dimensions_stay_different();
  an_input_needs_a_type();
  a_subgraph_gets_an_input_for_each_outer_value();
  subgraphs_nested_deeply_are_an_error();
  functions_are_inlined();
  small_files_do_not_unfold_into_huge_graphs();
  small_integers_have_a_byte_each_in_memory_only();
  sparse_tensors_become_dense();
  a_file_imports_each_domain_that_its_nodes_need();
  return check_report();
}
