/* Accuracy of the functions that kernels call, against the C library in long double.
 *
 * f32: every 4099th bit pattern of all floats, so each binade is hit about 2000 times, plus a dense
 * sweep of [-16, 16]; f64: a logarithmic sweep.  Errors are in units in the last place of the
 * exact result; special values must come out exactly, signs of zeros included. */
#include <math.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/cpu/c.h"
#include "check.h"

typedef struct {
  const char *name;
  long double (*exact)(long double);
  double ulp_f32, ulp_f64;
} function_row;

static long double exact_rsqrt(long double x) { return 1 / sqrtl(x); }
static long double exact_sigmoid(long double x) { return 1 / (1 + expl(-x)); }
static long double exact_softplus(long double x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }
static long double exact_fall(long double x) { return expl(-fabsl(x)); }
static long double exact_narrow(long double x) { return expl(x > 88 ? 88 : x < -87 ? -87 : x); }

static const function_row functions[] = {
    {"exp", expl, 1.0, 1.0},           {"expm1", expm1l, 1.5, 1.0},     {"log", logl, 1.0, 1.0},
    {"log1p", log1pl, 1.5, 1.0},       {"sqrt", sqrtl, 0.51, 0.51},     {"rsqrt", exact_rsqrt, 1.5, 1.5},
    {"sin", sinl, 1.6, 1.0},           {"cos", cosl, 1.6, 1.0},         {"tan", tanl, 1.7, 1.0},
    {"asin", asinl, 1.4, 1.0},         {"acos", acosl, 1.4, 1.0},      {"atan", atanl, 1.7, 1.0},
    {"sinh", sinhl, 0.55, 2.0},        {"cosh", coshl, 0.55, 2.0},      {"tanh", tanhl, 1.5, 2.2},
    {"asinh", asinhl, 0.55, 2.0},      {"acosh", acoshl, 0.55, 2.0},    {"atanh", atanhl, 0.55, 2.0},
    {"exp2", exp2l, 1.0, 1.0},           {"log2", log2l, 2.0, 1.0},         {"log10", log10l, 1.0, 1.5},
    {"erf", erfl, 1.5, 1.1},           {"sigmoid", exact_sigmoid, 2.2, 2.0}, {"softplus", exact_softplus, 2.0, 2.0},
};
/* Of arguments whose range is known. */
static const function_row ranged[] = {{"exp(neg(abs", exact_fall, 1.0, 0}, {"exp(max(-87.0f, min(88.0f, ", exact_narrow, 1.0, 0}};
enum { FUNCTIONS = sizeof functions / sizeof *functions, RANGED = sizeof ranged / sizeof *ranged, CHUNK = 1 << 16 };

/* name(X[i]) with all parentheses closed; of a name with a space, X[i] is a later argument. */
static const char *call_of(const char *name, char expression[80]) {
  int open = 0, n = snprintf(expression, 80, strchr(name, ' ') ? "%sX[i]" : "%s(X[i]", name);
  for (int k = 0; k < n; k++) open += expression[k] == '(';
  for (int k = 0; k < open; k++) expression[n++] = ')';
  expression[n] = 0;
  return expression;
}

static dc_kernel_fn compile(dc_jit *jit, const char *type, const char *expression) {
  char text[400];
  snprintf(text, sizeof text, "graph g { input X: %s[%d] input Z: %s[%d] temp Y: %s[%d] outputs Y state s { map i in 0:%d { Y[i] = %s } } }", type, CHUNK, type,
           CHUNK, type, CHUNK, CHUNK, expression);
  dc_graph *g = NULL;
  dc_compiled kernel = {0};
  CHECK_OK(dc_graph_parse(text, &g));
  if (!g) return NULL;
  check_ok(dc_jit_compile(jit, g, dc_graph_scope(g)->v, 1, &kernel), __FILE__, __LINE__, expression);
  dc_graph_destroy(g);
  return dc_compiled_fn(kernel);
}

static void call(dc_kernel_fn kernel, const void *x, const void *z, void *y) {
  int64_t error = 0, symbols[1] = {0};
  void *buffers[] = {&error, (void *)x, z ? (void *)z : y, y};
  kernel(buffers + 1, symbols, NULL);
}

static double ulp_error(double got, long double exact, bool single) {
  double rounded = single ? (double)(float)exact : (double)exact;
  if (isnan(got) || isnan(rounded)) return isnan(got) && isnan(rounded) ? 0 : INFINITY;
  if (got == rounded) return signbit(got) == signbit(rounded) ? 0 : INFINITY;
  if (isinf(got)) return fabsl(exact) >= (single ? 3.40282356e38L : 1.797693134862315e308L) ? 1 : INFINITY; /* one step beyond the last */
  if (isinf(rounded)) return fabs(got) >= (single ? 3.4028233e38 : 1.7976931348623155e308) ? 1 : INFINITY;
  int exponent = 0;
  (void)frexpl(exact == 0 ? got : exact, &exponent);
  exponent -= single ? 24 : 53;
  int least = single ? -149 : -1074;
  return (double)(fabsl((long double)got - exact) / ldexpl(1, exponent < least ? least : exponent));
}

typedef struct {
  double error, at;
} worst;

static void note(worst *w, double error, double at) {
  if (error > w->error) *w = (worst){error, at};
}

static void check_worst(const char *name, worst w, double bound) {
  char detail[160];
  snprintf(detail, sizeof detail, "%s is off by %.3f ulp at %.9g (%a), more than %.2f", name, w.error, w.at, w.at, bound);
  check_result(w.error <= bound, __FILE__, __LINE__, name, detail);
  if (getenv("DCML_TEST_TEXT")) printf("%-10s %.3f ulp at %.9g\n", name, w.error, w.at);
}

static float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* Fills a chunk; returns how many values it holds, 0 at the end. */
static int f32_inputs(uint32_t chunk, float *x) {
  enum { SPARSE = 16, DENSE = 8 };
  for (int k = 0; k < CHUNK; k++) {
    uint32_t at = chunk * CHUNK + (uint32_t)k;
    x[k] = chunk < SPARSE ? float_of(at * 4099u) : -16.0f + 32.0f * (float)(at - SPARSE * CHUNK) / (float)(DENSE * CHUNK);
  }
  return chunk < SPARSE + DENSE ? CHUNK : 0;
}

static void single_functions_are_accurate(dc_jit *jit, const function_row *rows, int n) {
  float *x = malloc(CHUNK * sizeof *x), *y = malloc(CHUNK * sizeof *y);
  for (int f = 0; f < n; f++) {
    char expression[80];
    dc_kernel_fn kernel = compile(jit, "f32", call_of(rows[f].name, expression));
    worst w = {0, 0};
    for (uint32_t chunk = 0; kernel && f32_inputs(chunk, x); chunk++) {
      call(kernel, x, NULL, y);
      for (int k = 0; k < CHUNK; k++) note(&w, ulp_error(y[k], rows[f].exact(x[k]), true), x[k]);
    }
    check_worst(rows[f].name, w, rows[f].ulp_f32);
  }
  free(x);
  free(y);
}

static void double_functions_are_accurate(dc_jit *jit) {
  double *x = malloc(CHUNK * sizeof *x), *y = malloc(CHUNK * sizeof *y);
  for (int f = 0; f < FUNCTIONS; f++) {
    char expression[80];
    dc_kernel_fn kernel = compile(jit, "f64", call_of(functions[f].name, expression));
    for (int k = 0; k < CHUNK; k++) x[k] = (k & 1 ? -1 : 1) * exp2(-40 + 50.0 * k / CHUNK);
    worst w = {0, 0};
    if (kernel) call(kernel, x, NULL, y);
    for (int k = 0; kernel && k < CHUNK; k++) note(&w, ulp_error(y[k], functions[f].exact(x[k]), false), x[k]);
    check_worst(functions[f].name, w, functions[f].ulp_f64);
  }
  free(x);
  free(y);
}

static const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-149f, 0x1p-126f, -0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, 88.8f, -104.5f, 0.5f, -0.5f, 2.0f, -2.0f, 3.0f, -3.0f};
enum { SPECIALS = sizeof special / sizeof *special };

static void special_values_are_exact(dc_jit *jit, const function_row *rows, int n) {
  static float x[CHUNK], y[CHUNK];
  for (int k = 0; k < CHUNK; k++) x[k] = special[k % SPECIALS];
  for (int f = 0; f < n; f++) {
    char expression[80];
    dc_kernel_fn kernel = compile(jit, "f32", call_of(rows[f].name, expression));
    worst w = {0, 0};
    if (kernel) call(kernel, x, NULL, y);
    for (int k = 0; kernel && k < SPECIALS; k++) note(&w, ulp_error(y[k], rows[f].exact(x[k]), true), x[k]);
    check_worst(rows[f].name, w, rows[f].ulp_f32);
  }
}

static void powers_are_accurate(dc_jit *jit) {
  static float x[CHUNK], z[CHUNK], y[CHUNK];
  dc_kernel_fn kernel = compile(jit, "f32", "pow(X[i], Z[i])");
  worst w = {0, 0};
  for (uint32_t chunk = 0; kernel && chunk < 17; chunk++) {
    for (int k = 0; k < CHUNK; k++) {
      uint32_t at = chunk * CHUNK + (uint32_t)k;
      x[k] = chunk == 16 ? special[k % SPECIALS] : chunk < 8 ? float_of(at * 8191u) : -4.0f + (float)k / 8192;
      z[k] = chunk == 16 ? special[k / SPECIALS % SPECIALS] : chunk & 1 ? (float)(int)(at % 41) - 20 : -8.0f + (float)(at * 2654435761u % 65536u) / 4096;
    }
    call(kernel, x, z, y);
    for (int k = 0; k < CHUNK; k++) note(&w, ulp_error(y[k], powl(x[k], z[k]), true), x[k]);
  }
  check_worst("pow", w, 0.6);
}

static void half_floats_convert_as_the_core_does(dc_jit *jit) {
  static uint16_t half[CHUNK], back[CHUNK];
  dc_kernel_fn f16 = compile(jit, "f16", "f16(f32(X[i]) * 1.37f)"), bf16 = compile(jit, "bf16", "bf16(f32(X[i]) * 1.37f)");
  if (!f16 || !bf16) return;
  for (int k = 0; k < CHUNK; k++) half[k] = (uint16_t)k;
  int wrong = 0;
  call(f16, half, NULL, back);
  for (int k = 0; k < CHUNK; k++) wrong += back[k] != dc_f32_to_f16(dc_f16_to_f32(half[k]) * 1.37f);
  CHECK(wrong == 0);
  call(bf16, half, NULL, back);
  for (int k = 0; k < CHUNK; k++) {
    float f = dc_bf16_to_f32(half[k]) * 1.37f;
    wrong += isnan(f) ? !isnan(dc_bf16_to_f32(back[k])) : back[k] != dc_f32_to_bf16(f);
  }
  CHECK(wrong == 0);
}

static void floats_round_to_half_floats_as_the_core_does(dc_jit *jit) {
  static float x[CHUNK], f16[CHUNK], bf16[CHUNK];
  dc_kernel_fn to_f16 = compile(jit, "f32", "f32(f16(X[i]))"), to_bf16 = compile(jit, "f32", "f32(bf16(X[i]))");
  if (!to_f16 || !to_bf16) return;
  for (int k = 0; k < CHUNK; k++) x[k] = float_of((uint32_t)k * 65521u + (uint32_t)k % 9); /* of all exponents, NaNs too */
  call(to_f16, x, NULL, f16), call(to_bf16, x, NULL, bf16);
  int wrong = 0;
  for (int k = 0; k < CHUNK; k++) {
    float halves[2] = {dc_f16_to_f32(dc_f32_to_f16(x[k])), dc_bf16_to_f32(dc_f32_to_bf16(x[k]))};
    wrong += memcmp(&f16[k], &halves[0], 4) || memcmp(&bf16[k], &halves[1], 4);
  }
  CHECK(wrong == 0);
}

int main(void) {
  char folder[] = "/tmp/dcml-test-XXXXXX";
  dc_jit *jit = NULL;
  if (!mkdtemp(folder)) return 1;
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  if (jit && dc_jit_available(jit, NULL)) {
    single_functions_are_accurate(jit, functions, FUNCTIONS);
    single_functions_are_accurate(jit, ranged, RANGED);
    special_values_are_exact(jit, functions, FUNCTIONS);
    special_values_are_exact(jit, ranged, RANGED);
    powers_are_accurate(jit);
    double_functions_are_accurate(jit);
    half_floats_convert_as_the_core_does(jit);
  floats_round_to_half_floats_as_the_core_does(jit);
  }
  dc_jit_destroy(jit);
  char command[80];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) != 0 || check_report();
}
