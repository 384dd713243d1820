/* The cpu backend against the interpreter, on graphs in text form, and its cache. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/cpu/c.h"
#include "graph_run.h"

enum { MAX_SYMBOLS = 8 };

/* A graph whose first state's nodes all run; symbols get the given values in order. */
typedef struct {
  const char *name;
  const char *text;
  int64_t symbols[MAX_SYMBOLS];
  double tolerance; /* relative to 1 + |value| */
} example;

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static void fill_random(dc_dtype type, void *data, int64_t n, uint32_t seed) {
  for (int64_t k = 0; k < n; k++) {
    uint32_t r = next_random(&seed) >> 8;
    double x = (double)(r % 2000) / 250 - 4;
    switch (type) {
      case DC_F32: ((float *)data)[k] = (float)x; break;
      case DC_F64: ((double *)data)[k] = x; break;
      case DC_F16: ((uint16_t *)data)[k] = dc_f32_to_f16((float)x); break;
      case DC_BF16: ((uint16_t *)data)[k] = dc_f32_to_bf16((float)x); break;
      case DC_BOOL: ((uint8_t *)data)[k] = r & 1; break;
      case DC_I64: ((int64_t *)data)[k] = r % 7; break;
      case DC_I32: ((int32_t *)data)[k] = (int32_t)(r % 2001) - 1000; break;
      default: memset((char *)data + k * dc_dtype_bytes(type), (int)(r & 127), (size_t)dc_dtype_bytes(type));
    }
  }
}

/* Memory for each container: views share that of what they view. */
static void **make_buffers(const dc_graph *g, const int64_t *symbols) {
  void **buffers = calloc(g->containers.n, sizeof *buffers);
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    int64_t offset = k->alias_of && k->alias_offset ? dc_ix_eval(&g->pool, k->alias_offset, symbols, NULL) : 0;
    if (k->alias_of) {
      buffers[c] = (char *)buffers[k->alias_of] + offset * dc_dtype_bytes((dc_dtype)k->dtype);
      continue;
    }
    int64_t n = run_elements(g, c, symbols);
    buffers[c] = calloc((size_t)(n + 16), (size_t)dc_dtype_bytes((dc_dtype)k->dtype));
    if (k->data) memcpy(buffers[c], k->data, k->data_bytes);
    else fill_random((dc_dtype)k->dtype, buffers[c], n, c * 977);
  }
  return buffers;
}

static void free_buffers(const dc_graph *g, void **buffers) {
  for (dc_cid c = 1; c < g->containers.n; c++)
    if (!dc_cont(g, c)->alias_of) free(buffers[c]);
  free(buffers);
}

static int64_t run_kernel(const dc_graph *g, dc_nid node, dc_kernel_fn kernel, void **buffers, const int64_t *symbols) {
  dc_arena arena = {0};
  uint32_t n;
  const dc_cid *list = dc_kernel_buffers(g, node, &arena, &n);
  int64_t error = 0;
  void **pointers = DC_NEW_ARRAY(&arena, void *, n + 1);
  pointers[0] = &error;
  for (uint32_t k = 0; k < n; k++) pointers[k + 1] = buffers[list[k]];
  kernel(pointers + 1, symbols, NULL);
  dc_arena_free(&arena);
  return error;
}

static void compare(const dc_graph *g, const example *x, const int64_t *symbols, void **got, void **wanted) {
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    if (k->storage == DC_STORE_REGISTER || k->alias_of) continue;
    int64_t n = run_elements(g, c, symbols), bad = -1;
    for (int64_t i = 0; i < n + 16 && bad < 0; i++) { /* beyond the end nothing may change */
      double a = run_load((dc_dtype)k->dtype, got[c], i), b = run_load((dc_dtype)k->dtype, wanted[c], i);
      if (!(fabs(a - b) <= x->tolerance * (1 + fabs(b))) && !(isnan(a) && isnan(b)) && a != b) bad = i;
    }
    char detail[200];
    if (bad >= 0) snprintf(detail, sizeof detail, "%s[%lld] = %.9g, not %.9g", dc_cont_name(g, c), (long long)bad, run_load((dc_dtype)k->dtype, got[c], bad), run_load((dc_dtype)k->dtype, wanted[c], bad));
    check_result(bad < 0, __FILE__, __LINE__, x->name, bad < 0 ? NULL : detail);
  }
}

static void matches_interpreter(dc_jit *jit, const example *x) {
  dc_graph *g = NULL;
  CHECK_OK(dc_graph_parse(x->text, &g));
  if (!g) return;
  int64_t symbols[MAX_SYMBOLS + 1] = {0};
  memcpy(symbols + 1, x->symbols, sizeof x->symbols);
  const dc_scope *scope = dc_graph_scope(g);
  dc_compiled kernels[16] = {{0}};
  dc_status status = dc_jit_compile(jit, g, scope->v, scope->n, kernels);
  bool compiled = !status;
  check_ok(status, __FILE__, __LINE__, x->name);
  if (!compiled || getenv("DCML_TEST_TEXT")) {
    dc_text text = {0};
    dc_launches *launches;
    for (uint32_t k = 0; k < scope->n; k++) dc_status_free(dc_emit_node(&dc_c_language, g, scope->v[k], "kernel", &text, &launches, NULL));
    printf("--- %s\n%s\n", x->name, text.s ? text.s : "");
    dc_text_free(&text);
  }
  void **got = make_buffers(g, symbols), **wanted = make_buffers(g, symbols);
  for (uint32_t k = 0; k < scope->n && compiled; k++) {
    int64_t error = run_kernel(g, scope->v[k], dc_compiled_fn(kernels[k]), got, symbols);
    dc_status failed = dc_interp_node(g, scope->v[k], wanted, symbols);
    CHECK((error != 0) == (failed != NULL));
    if (!error) check_ok(failed, __FILE__, __LINE__, x->name);
    else dc_status_free(failed);
  }
  if (compiled) compare(g, x, symbols, got, wanted);
  free_buffers(g, got);
  free_buffers(g, wanted);
  dc_graph_destroy(g);
}

static const example examples[] = {
    {"element-wise over a merged domain", "graph g { symbol N >= 1 input X: f32[N, 7, 5] temp Y: f32[N, 7, 5] outputs Y state s {"
     " map i in 0:N, j in 0:7, k in 0:5 { Y[i, j, k] = X[i, j, k] * tanh(softplus(X[i, j, k])) } } }", {300}, 1e-6},
    {"rows are read before other iterations' zeros", "graph g { symbol N >= 0 symbol M >= 0 input X: f32[N, 4, M] temp T: f32[N, 4, M] temp A: f32[N, M] temp B: f32[N, M] temp C: f32[N, M]"
     " temp D: f32[N, M] outputs A, B, C, D state s { map a in 0:N, r in 0:4, b in 0:M { T[a, r, b] = X[a, r, b] } map a in 0:N, b in 0:M { A[a, b] = T[a, 3, b] T[a, 3, b] = 0.0f B[a, b] = T[a, 2, b] T[a, 2, b] = 0.0f"
     " C[a, b] = T[a, 1, b] T[a, 1, b] = 0.0f D[a, b] = T[a, 0, b] } } }", {3, 40}, 0},
    {"runs of memory are copied and cleared", "graph g { symbol N >= 0 symbol M >= 0 input X: f16[N, M] temp Y: f16[N, M] temp Z: f16[M] temp U: i64[N, 40] outputs Y, Z, U state s {"
     " map i in 0:N, j in 0:M { Y[i, j] = X[i, j] } map j in 2:M - 1 { Z[j] = f16(0.0f) } map i in 1:N, j in 3:39 { U[i, j] = 0 } } }", {5, 100}, 0},
    {"short sums in order, of what is inside", "graph g { input X: f32[5, 5] temp Y: f32[5, 5] temp s: f32[] register temp n: i64[] register outputs Y state s {"
     " map i in 0:5, j in 0:5 { reduce a in 0:5, b in 0:5 { s[] sum= a + i - 2 >= 0 && a + i - 2 < 5 && (b + j - 2 >= 0 && b + j - 2 < 5)"
     " ? X[a + i - 2, b + j - 2] : 0.0f } reduce a in 0:5, b in 0:5 { n[] sum= 1 if a + i - 2 >= 0 && a + i - 2 < 5 && (b + j - 2 >= 0"
     " && b + j - 2 < 5) } Y[i, j] = s[] / f32(n[]) } } }", {0}, 1e-6},
    {"broadcast along the middle", "graph g { symbol N >= 1 input X: f32[N, 3, 40] input B: f32[3] temp Y: f32[N, 3, 40] outputs Y state s {"
     " map i in 0:N, j in 0:3, k in 0:40 { Y[i, j, k] = max(X[i, j, k] + B[j], 0.0f) } } }", {5}, 1e-6},
    {"broadcast of a short inner dimension", "graph g { input X: f32[37, 5] input B: f32[5] temp Y: f32[37, 5] outputs Y state s {"
     " map i in 0:37, j in 0:5 { Y[i, j] = X[i, j] - B[j] } } }", {0}, 1e-6},
    {"sum of rows", "graph g { symbol N >= 1 input X: f32[9, N] temp Y: f32[9] outputs Y state s {"
     " map i in 0:9 { reduce k in 0:N { Y[i] sum= X[i, k] } } } }", {1000}, 1e-4},
    {"sum of columns runs lanes", "graph g { symbol N >= 1 input X: f32[N, 90] temp Y: f32[90] outputs Y state s {"
     " map i in 0:90 { reduce k in 0:N { Y[i] sum= X[k, i] } } } }", {50}, 1e-4},
    {"matrix product", "graph g { symbol M >= 1 symbol N >= 1 symbol K >= 1 input A: f32[M, K] input B: f32[K, N] temp C: f32[M, N] outputs C state s {"
     " map i in 0:M, j in 0:N { reduce k in 0:K { C[i, j] sum= A[i, k] * B[k, j] } } } }", {7, 130, 33}, 1e-4},
    {"matrix product, second operand transposed", "graph g { input A: f32[6, 31] input B: f32[70, 31] temp C: f32[6, 70] outputs C state s {"
     " map i in 0:6, j in 0:70 { reduce k in 0:31 { C[i, j] sum= A[i, k] * B[j, k] } } } }", {0}, 1e-4},
    {"product of many rows and terms, first operand transposed", "graph g { symbol K >= 1 input A: f32[K, 141] input B: f32[K, 67] temp C: f32[141, 67] outputs C state s {"
     " map i in 0:141, j in 0:67 { reduce k in 0:K { C[i, j] sum= A[k, i] * B[k, j] } } } }", {523}, 1e-3},
    {"product of lines that push each other out of a cache, in strips", "graph g { symbol K >= 1 input A: f32[K, 141] input B: f32[K, 256] temp C: f32[141, 256] outputs C state s {"
     " map i in 0:141, j in 0:256 { reduce k in 0:K { C[i, j] sum= A[k, i] * B[k, j] } } } }", {523}, 1e-3},
    {"products in double with what follows them", "graph g { symbol M >= 1 input A: f64[M, 9] input B: f64[9, 213] input V: f64[213, 2] temp r: f64[] register temp C: f64[M, 213] temp D: f64[M, 213]"
     " outputs C, D state s { map i in 0:M, j in 0:213 { reduce k in 0:9 { r[] sum= A[i, k] * B[k, j] } C[i, j] = tanh(r[]) * V[j, 1] D[i, j] = C[i, j] + r[] if j % 3 == 0 } } }", {135}, 1e-12},
    {"two products that share their loops", "graph g { input A: f32[2, 70, 20] input B: f32[20, 100] temp r: f32[] register temp S: f32[2, 70, 50] temp C: f32[2, 70, 50] outputs C, S state s {"
     " map b in 0:2, i in 0:70, j in 0:50 { reduce k in 0:20 { r[] sum= A[b, i, k] * B[k, j] S[b, i, j] sum= B[k, j + 50] * A[b, i, k] } C[b, i, j] = r[] * S[b, i, j] } } }", {0}, 1e-3},
    {"products of a recurrence, in blocks of a batch", "graph g { symbol N >= 1 input W: f32[24, 24] input X: f32[5, N, 24] temp H: f32[5, N, 24] temp r: f32[] register outputs H state s {"
     " map n in 0:N, j in 0:24 { H[0, n, j] = X[0, n, j] } map b in 0:N:8 { sequential t in 1:5 { map n in b:min(N, b + 8), j in 0:24 {"
     " reduce k in 0:24 { r[] sum= H[t - 1, n, k] * W[k, j] } H[t, n, j] = tanh(r[] + X[t, n, j]) } } } } }", {19}, 1e-4},
    {"product over two loops that walk against each other", "graph g { symbol T >= 1 input A: f32[T, 6, 40] input B: f32[T, 6, 50] temp r: f32[] register temp C: f32[40, 50] temp D: f32[40, 50]"
     " outputs C, D state s { map i in 0:40, j in 0:50 { reduce t in 0:T, n in 0:6 { r[] sum= A[-t + T - 1, n, i] * B[t, n, j] } C[i, j] = r[] * 2.0f }"
     " map i in 0:40, j in 0:50 { reduce t in 0:T, n in 0:6 { D[i, j] sum= A[t, n, i] * B[-t + T - 1, n, j] } } } }", {7}, 1e-4},
    {"product of nothing", "graph g { symbol K >= 0 input A: f32[40, K] input B: f32[K, 40] temp C: f32[40, 40] outputs C state s {"
     " map i in 0:40, j in 0:40 { reduce k in 0:K { C[i, j] sum= A[i, k] * B[k, j] } } } }", {0}, 0},
    {"maximum of everything, NaN-free", "graph g { symbol N >= 1 input X: f32[N] temp Y: f32[] temp Z: f32[] outputs Y, Z state s {"
     " reduce i in 0:N { Y[] max= X[i] } reduce i in 0:N { Z[] min= X[i] * X[i] } } }", {100003}, 1e-6},
    {"sum of everything in parts", "graph g { symbol N >= 1 input X: f32[N, 64] temp Y: f32[] outputs Y state s {"
     " reduce i in 0:N, j in 0:64 { Y[] sum= X[i, j] } } }", {5000}, 1e-3},
    {"log-softmax of rows", "graph g { symbol N >= 1 input X: f32[N, 50] temp m: f32[] register temp z: f32[] register temp Y: f32[N, 50] outputs Y state s {"
     " map i in 0:N { reduce j in 0:50 { m[] max= X[i, j] } reduce j in 0:50 { z[] sum= exp(X[i, j] - m[]) }"
     " map j in 0:50 { Y[i, j] = X[i, j] - m[] - log(z[]) } } } }", {400}, 1e-5},
    {"softmax over the middle axis runs lanes", "graph g { input X: f32[3, 10, 70] temp m: f32[] register temp z: f32[] register temp Y: f32[3, 10, 70] outputs Y state s {"
     " map n in 0:3, p in 0:70 { reduce j in 0:10 { m[] max= X[n, j, p] } reduce j in 0:10 { z[] sum= exp(X[n, j, p] - m[]) }"
     " map j in 0:10 { Y[n, j, p] = exp(X[n, j, p] - m[]) / z[] } } } }", {0}, 1e-5},
    {"convolution with guards", "graph g { input X: f32[2, 3, 20] input W: f32[4, 3, 3] temp Y: f32[2, 4, 20] outputs Y state s {"
     " map n in 0:2, o in 0:4, x in 0:20 { reduce c in 0:3, k in 0:3 { Y[n, o, x] sum= (x + k - 1 >= 0 && x + k - 1 < 20 ? X[n, c, x + k - 1] : 0.0f) * W[o, c, k] } } } }", {0}, 1e-5},
    {"average pooling with a guard on the tasklet", "graph g { input X: f32[6, 30] temp Y: f32[6, 15] outputs Y state s {"
     " map n in 0:6, x in 0:15 { reduce k in 0:3 { Y[n, x] sum= X[n, 2*x + k - 1] if 2*x + k - 1 >= 0 && 2*x + k - 1 < 30 } } } }", {0}, 1e-5},
    {"transposition", "graph g { input X: f32[33, 47] temp Y: f32[47, 33] outputs Y state s { map i in 0:47, j in 0:33 { Y[i, j] = X[j, i] } } }", {0}, 0},
    {"transposition in tiles", "graph g { symbol N >= 1 input X: f32[3, N, 5, 37] temp Y: f32[3, 37, N, 5] outputs Y state s { map n in 0:3, c in 0:37, i in 0:N, j in 0:5 { Y[n, c, i, j] = X[n, i, j, c] * 2.0f } } }", {70}, 0},
    {"a long transposition", "graph g { symbol N >= 1 input X: f32[N, 300] temp Y: f32[300, N] outputs Y state s { map i in 0:300, j in 0:N { Y[i, j] = X[j, i] } } }", {517}, 0},
    {"a large scatter", "graph g { symbol N >= 1 input D: f32[N, 200] input I: i64[N] temp Y: f32[7, 200] outputs Y state s {"
     " map i in 0:7, k in 0:200 { Y[i, k] = 1.0f } scatter i in 0:N, k in 0:200 { Y[I[i], k] sum= D[i, k] } } }", {3000}, 1e-3},
    {"rows looked up", "graph g { input W: f32[7, 24] input I: i64[40] temp Y: f32[40, 24] outputs Y state s {"
     " map i in 0:40, k in 0:24 { Y[i, k] = W[I[i], k] } } }", {0}, 0},
    {"an index out of range is reported", "graph g { input W: f32[3, 24] input I: i64[40] temp Y: f32[0] state s {"
     " scatter i in 0:40 { Y[I[i]] sum= 1.0f } } }", {0}, 0},
    {"scatter that adds", "graph g { symbol N >= 1 input D: f32[N, 24] input I: i64[N] temp Y: f32[7, 24] outputs Y state s {"
     " map i in 0:7, k in 0:24 { Y[i, k] = 0.0f } scatter i in 0:N, k in 0:24 { Y[I[i], k] sum= D[i, k] } } }", {60}, 1e-4},
    {"histogram in a reduction", "graph g { symbol N >= 1 input I: i64[N] temp Y: i32[7] outputs Y state s {"
     " map i in 0:7 { Y[i] = i32(0) } scatter i in 0:N { Y[I[i]] sum= i32(1) } } }", {500}, 0},
    {"recurrence", "graph g { symbol T >= 1 input X: f32[T, 9] input W: f32[9, 9] temp H: f32[T + 1, 9] outputs H state s {"
     " map j in 0:9 { H[0, j] = 0.0f } sequential t in 0:T { map j in 0:9 { reduce k in 0:9 { H[t + 1, j] sum= H[t, k] * W[k, j] * 0.1f }"
     " H[t + 1, j] = tanh(H[t + 1, j] + X[t, j]) } } } }", {12}, 1e-5},
    {"prefix sums", "graph g { input X: i64[50] temp Y: i64[51] outputs Y state s { Y[0] = 0 sequential i in 0:50 { Y[i + 1] = Y[i] + X[i] } } }", {0}, 0},
    {"a view and its memory", "graph g { input X: f32[6, 8] temp A: f32[6, 8] temp V: f32[48] view A temp Y: f32[48] outputs Y state s {"
     " map i in 0:6 { map j in 0:8 { A[i, j] = X[i, j] * 2.0f } map j in 0:8 { Y[8*i + j] = V[8*i + j] + 1.0f } } } }", {0}, 1e-6},
    {"half precision", "graph g { symbol N >= 1 input X: f16[N] input B: bf16[N] temp Y: f16[N] temp Z: bf16[N] temp s: f32[] outputs Y, Z, s state s {"
     " map i in 0:N { Y[i] = X[i] * X[i] Z[i] = B[i] + bf16(X[i]) } reduce i in 0:N { s[] sum= f32(X[i]) } } }", {1000}, 2e-2},
    {"integers of all widths", "graph g { input A: i8[50] input B: u8[50] input C: i32[50] temp D: i8[50] temp E: u8[50] temp F: i32[50] temp G: i64[50] temp H: bool[50] outputs D state s {"
     " map i in 0:50 { D[i] = A[i] + i8(100) E[i] = u8(C[i]) F[i] = C[i] / i32(7) G[i] = i64(C[i]) % 5 H[i] = C[i] > i32(0) && B[i] > u8(3) } } }", {0}, 0},
    {"small integers of nine dimensions", "graph g { input X: i8[2, 2, 2, 2, 2, 2, 2, 2, 2] temp Y: i8[2, 2, 2, 2, 2, 2, 2, 2, 2] outputs Y state s {"
     " map a in 0:2, b in 0:2, c in 0:2, d in 0:2, e in 0:2, f in 0:2, g in 0:2, h in 0:2, i in 0:2 { Y[a, b, c, d, e, f, g, h, i] = X[i, h, g, f, e, d, c, b, a] + i8(f32(X[a, b, c, d, e, f, g, h, i])) } } }", {0}, 0},
    {"sums into places that may lie outside", "graph g { symbol M >= 1 symbol N >= 1 input X: f32[3] temp A: f32[M] outputs A state s {"
     " reduce k in 0:3 { map i in 0:N, j in 0:4 { A[4*i + j] sum= X[k] } } } }", {8, 2}, 1e-6},
    {"division by zero gives zero", "graph g { input C: i32[50] temp F: i32[50] temp G: i32[50] outputs F state s { map i in 0:50 { F[i] = C[i] / (C[i] - C[i]) G[i] = C[i] % i32(0) } } }", {0}, 0},
    {"shifts and bits", "graph g { input C: u32[50] temp F: u32[50] temp G: u32[50] outputs F state s { map i in 0:50 { F[i] = shl(C[i], u32(3)) G[i] = bxor(shr(C[i], u32(40)), band(C[i], u32(255))) } } }", {0}, 0},
    {"signed shifts and small integers", "graph g { input C: i32[50] input Q: i4[50] input P: u2[50] temp F: i32[50] temp G: i32[50] temp H: i4[50] temp I: f32[50] outputs F state s {"
     " map i in 0:50 { F[i] = shr(C[i], i32(3)) G[i] = shr(C[i], i32(33)) H[i] = Q[i] + i4(P[i]) I[i] = f32(Q[i]) } } }", {0}, 0},
    {"random numbers", "graph g { input S: i64[] temp Y: f32[300] outputs Y state s { map i in 0:300 { Y[i] = rand(S[], i) } } }", {0}, 0},
    {"index arithmetic in values", "graph g { symbol N >= 0 temp Y: i64[N] temp Z: f32[N] outputs Y state s { map i in 0:N { Y[i] = (i - 5) // 3 + (i - 5) % 4 + min(i, 7) * max(i, N - 2) Z[i] = f32(i) * 0.5f } } }", {40}, 1e-6},
    {"empty domains", "graph g { symbol N >= 0 input X: f32[N, 3] temp Y: f32[N, 3] temp s: f32[] temp m: f32[3] outputs Y, s, m state s {"
     " map i in 0:N, j in 0:3 { Y[i, j] = X[i, j] } reduce i in 0:N, j in 0:3 { s[] sum= X[i, j] } map j in 0:3 { reduce i in 0:N { m[j] max= X[i, j] } } } }", {0}, 0},
    {"steps and triangles", "graph g { input X: f32[40, 40] temp Y: f32[40] outputs Y state s { map i in 0:40:3 { reduce j in i:40:2 { Y[i] sum= X[i, j] } } } }", {0}, 1e-5},
    {"registers that are arrays", "graph g { input X: f32[20, 4] temp r: f32[4] register temp Y: f32[20, 4] outputs Y state s {"
     " map i in 0:20 { map j in 0:4 { r[j] = X[i, j] * 2.0f } map j in 0:4 { Y[i, j] = r[3 - j] } } } }", {0}, 1e-6},
    {"lanes with register arrays", "graph g { input X: f32[4, 100] temp r: f32[4] register temp Y: f32[4, 100] outputs Y state s {"
     " map i in 0:100 { map j in 0:4 { r[j] = X[j, i] * 2.0f } map j in 0:4 { Y[j, i] = r[3 - j] } } } }", {0}, 1e-6},
    {"moments of channels", "graph g { input X: f32[4, 5, 30] temp a: f32[] register temp b: f32[] register temp M: f32[5] temp V: f32[5] outputs M, V state s {"
     " map c in 0:5 { reduce n in 0:4, p in 0:30 { a[] sum= X[n, c, p] b[] sum= X[n, c, p] * X[n, c, p] } M[c] = a[] / 120.0f V[c] = b[] / 120.0f - M[c] * M[c] } } }", {0}, 1e-5},
    {"the first greatest", "graph g { input X: f32[12, 33] temp m: f32[] register temp Y: i64[12] outputs Y state s {"
     " map i in 0:12 { reduce j in 0:33 { m[] max= X[i, j] } reduce j in 0:33 { Y[i] min= X[i, j] == m[] ? j : 33 } } } }", {0}, 0},
    {"space to depth", "graph g { input X: f32[2, 2, 6, 6] temp Y: f32[2, 8, 3, 3] outputs Y state s {"
     " map n in 0:2, c in 0:2, p in 0:2, q in 0:2, h in 0:3, w in 0:3 { Y[n, c + 4*p + 2*q, h, w] = X[n, c, 2*h + p, q + 2*w] } } }", {0}, 0},
    {"a reduction over nothing", "graph g { input X: f32[3, 4] temp Y: f32[4, 3] outputs Y state s { map i in 0:4, j in 0:3 { reduce { Y[i, j] sum= X[j, i] } } } }", {0}, 0},
    {"a comparison for an index", "graph g { symbol N >= 0 input X: f32[N, 4] temp Y: f32[N, 4] temp Z: f32[N, 4] temp W: f32[N, 4] temp k: i64[] register outputs Y, Z, W"
     " state s { map i in 0:N, j in 0:4 { Y[i, j] = X[i, i64(X[i, j] > 0.0f)] } map i in 0:N, j in 0:4 { Z[i, j] = X[i, X[i, j] > 0.5f ? 1 : 0] }"
     " map i in 0:N, j in 0:4 { k[] = i64(X[i, j] < 0.0f) W[i, j] = X[i, k[]] + f32(k[]) } } }", {50}, 0},
    {"a tasklet alone", "graph g { input X: f32[3] temp Y: f32[] outputs Y state s { Y[] = X[0] + X[1] * X[2] } }", {0}, 1e-6},
    {"booleans reduce", "graph g { input B: bool[99] temp A: bool[] temp O: bool[] outputs A, O state s { reduce i in 0:99 { A[] min= B[i] O[] max= B[i] } } }", {0}, 0},
    {"double functions", "graph g { input X: f64[64] temp Y: f64[64] outputs Y state s { map i in 0:64 { Y[i] = exp(X[i]) + erf(X[i]) * sigmoid(X[i]) - softplus(X[i]) + pow(abs(X[i]), X[i]) } } }", {0}, 1e-13},
    {"single functions", "graph g { input X: f32[64] temp Y: f32[64] temp Z: f32[64] outputs Y state s { map i in 0:64 { Y[i] = sin(X[i]) + cos(X[i]) + erf(X[i]) + sigmoid(X[i]) + atan(X[i]) + asinh(X[i]) + round(X[i])"
     " Z[i] = pow(abs(X[i]), X[i]) + X[i] % 1.5f + fmod(X[i], 1.5f) + X[i] // 0.75f } } }", {0}, 3e-6},
    {"reduction of products of sums over two axes", "graph g { input X: f32[6, 5, 8] input G: f32[6, 5, 8] temp d: f32[5] outputs d state s {"
     " map c in 0:5 { reduce n in 0:6, p in 0:8 { d[c] sum= (X[n, c, p] - 0.5f) * G[n, c, p] } } } }", {0}, 1e-5},
};

static void kernels_match_the_interpreter(dc_jit *jit) {
  const char *only = getenv("DCML_TEST_ONLY");
  for (size_t k = 0; k < sizeof examples / sizeof *examples; k++)
    if (!only || strstr(examples[k].name, only)) matches_interpreter(jit, &examples[k]);
}

/* ---- the cache ---- */

static const char *const small_text = "graph g { input X: f32[8] temp Y: f32[8] outputs Y state s { map i in 0:8 { Y[i] = X[i] * 3.0f } } }";

/* Compiles the small graph with a fresh jit on the folder and runs it. */
static bool small_kernel_works(const char *folder) {
  dc_graph *g = NULL;
  dc_jit *jit = NULL;
  dc_compiled kernel = {0};
  dc_status status = dc_graph_parse(small_text, &g);
  if (!status) status = dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit);
  if (!status) status = dc_jit_compile(jit, g, dc_graph_scope(g)->v, 1, &kernel);
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {0};
  int64_t error = 0, symbols[1] = {0};
  void *buffers[] = {&error, x, y};
  if (!status) dc_compiled_fn(kernel)(buffers + 1, symbols, NULL);
  bool good = !status && y[7] == 24;
  if (status) printf("%s\n", dc_status_text(status));
  dc_status_free(status);
  dc_jit_destroy(jit);
  dc_graph_destroy(g);
  return good;
}

/* The only cached module in the folder. */
static void module_path(const char *folder, char *path, size_t n) {
  char command[200];
  snprintf(command, sizeof command, "ls %s/kernels-v1/*.so", folder);
  FILE *list = popen(command, "r");
  if (!list || !fgets(path, (int)n, list)) *path = 0;
  if (list) pclose(list);
  path[strcspn(path, "\n")] = 0;
}

static int count_files(const char *folder, const char *pattern) {
  char command[200], line[20] = "";
  snprintf(command, sizeof command, "ls %s/kernels-v1 | grep -c '%s'", folder, pattern);
  FILE *list = popen(command, "r");
  if (list && !fgets(line, sizeof line, list)) *line = 0;
  if (list) pclose(list);
  return atoi(line);
}

static void overwrite(const char *path, off_t at, off_t length) {
  int file = open(path, O_RDWR);
  CHECK(file >= 0);
  if (length >= 0) CHECK(ftruncate(file, length) == 0);
  else CHECK(pwrite(file, "damage", 6, at) == 6);
  close(file);
}

static void damaged_files_are_made_again(const char *folder) {
  char path[400];
  struct stat before, after;
  CHECK(small_kernel_works(folder));
  module_path(folder, path, sizeof path);
  CHECK(stat(path, &before) == 0);
  CHECK(small_kernel_works(folder)); /* from the cache: the file is not replaced */
  CHECK(stat(path, &after) == 0 && after.st_ino == before.st_ino && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
  const off_t lengths[] = {0, 10, before.st_size / 2, before.st_size - 1, -1};
  for (int k = 0; k < 5; k++) {
    overwrite(path, before.st_size / 2, lengths[k]);
    CHECK(small_kernel_works(folder));
    CHECK(stat(path, &after) == 0 && after.st_size == before.st_size);
  }
  CHECK(count_files(folder, "tmp-") == 0);
}

static void processes_may_share_the_folder(const char *folder) {
  pid_t children[4];
  for (int k = 0; k < 4; k++) {
    children[k] = fork();
    if (children[k] == 0) _exit(small_kernel_works(folder) ? 0 : 1);
  }
  for (int k = 0; k < 4; k++) {
    int result = 1;
    CHECK(waitpid(children[k], &result, 0) == children[k] && WIFEXITED(result) && WEXITSTATUS(result) == 0);
  }
  CHECK(count_files(folder, "tmp-") == 0 && count_files(folder, "so$") == 1);
}

static void an_unusable_folder_is_replaced(const char *folder) {
  char path[200];
  snprintf(path, sizeof path, "%s/file", folder);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  CHECK(small_kernel_works(path)); /* a file is where the folder should be */
  CHECK(small_kernel_works("/proc/none"));
  snprintf(path, sizeof path, "%s/open", folder);
  char inner[220];
  snprintf(inner, sizeof inner, "%s/kernels-v1", path);
  CHECK(mkdir(path, 0700) == 0 && mkdir(inner, 0700) == 0 && chmod(inner, 0777) == 0); /* others may write there */
  CHECK(small_kernel_works(path));
  CHECK(rmdir(inner) == 0); /* and so nothing was put there */
}

static void a_missing_compiler_is_said(const char *folder) {
  char *old = getenv("CC") ? strdup(getenv("CC")) : NULL;
  dc_jit *jit = NULL;
  const char *why = NULL;
  setenv("CC", "/nonexistent", 1);
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  CHECK(!dc_jit_available(jit, &why) && why && strstr(why, "/nonexistent"));
  dc_graph *g = NULL;
  dc_compiled kernel = {0};
  CHECK_OK(dc_graph_parse(small_text, &g));
  CHECK_ERROR(dc_jit_compile(jit, g, dc_graph_scope(g)->v, 1, &kernel), DC_ERR_COMPILE, "/nonexistent");
  dc_jit_destroy(jit);
  setenv("CC", "/bin/false", 1); /* runs, and fails */
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  CHECK_ERROR(dc_jit_compile(jit, g, dc_graph_scope(g)->v, 1, &kernel), DC_ERR_COMPILE, "compiler failed");
  dc_jit_destroy(jit);
  dc_graph_destroy(g);
  if (old) setenv("CC", old, 1);
  else unsetenv("CC");
  free(old);
}

/* ---- what is begun early ---- */

/* Multiplies by `factor`, of which each has a kernel of its own. */
static dc_batch *begin_scaling(dc_jit *jit, float factor) {
  char text[200];
  dc_graph *g = NULL;
  dc_batch *batch = NULL;
  snprintf(text, sizeof text, "graph g { input X: f32[8] temp Y: f32[8] outputs Y state s { map i in 0:8 { Y[i] = X[i] * %.1ff } } }", factor);
  CHECK_OK(dc_graph_parse(text, &g));
  CHECK_OK(dc_jit_begin(jit, g, dc_graph_scope(g)->v, 1, &batch));
  dc_graph_destroy(g); /* nothing of it is looked at any more */
  return batch;
}

static bool scales(dc_batch *batch, float factor) {
  dc_compiled kernel = {0};
  dc_status status = dc_jit_end(batch, &kernel);
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {0};
  int64_t error = 0, symbols[1] = {0};
  void *buffers[] = {&error, x, y};
  if (!status) dc_compiled_fn(kernel)(buffers + 1, symbols, NULL);
  if (status) printf("%s\n", dc_status_text(status));
  bool good = !status && y[7] == 8 * factor;
  return dc_status_free(status), good;
}

static void batches_may_overlap(dc_jit *jit) {
  enum { N = 6 }; /* more than there are processors, on most machines */
  dc_batch *batches[N];
  for (int k = 0; k < N; k++) batches[k] = begin_scaling(jit, 10.0f + (float)k);
  for (int k = N; k-- > 0;) CHECK(scales(batches[k], 10.0f + (float)k));
}

static void dropped_batches_leave_nothing(const char *folder) {
  dc_jit *jit = NULL;
  dc_compiled kernel = {0};
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  dc_batch *first = begin_scaling(jit, 20.0f), *second = begin_scaling(jit, 21.0f), *kept = begin_scaling(jit, 22.0f);
  dc_jit_drop(second);
  dc_jit_drop(first);
  dc_jit_drop(NULL);
  CHECK(scales(kept, 22.0f));
  CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
  CHECK(count_files(folder, "tmp-") == 0 && count_files(folder, "so$") == 1);
  char *old = getenv("CC") ? strdup(getenv("CC")) : NULL;
  dc_jit_destroy(jit);
  setenv("CC", "/bin/false", 1);
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  CHECK_ERROR(dc_jit_end(begin_scaling(jit, 23.0f), &kernel), DC_ERR_COMPILE, "compiler failed");
  CHECK(count_files(folder, "tmp-") == 0);
  dc_jit_destroy(jit);
  if (old) setenv("CC", old, 1);
  else unsetenv("CC");
  free(old);
}

static void a_forked_process_compiles_itself(const char *folder) {
  dc_jit *jit = NULL;
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  dc_batch *ended = begin_scaling(jit, 30.0f), *dropped = begin_scaling(jit, 31.0f);
  pid_t child = fork();
  if (child == 0) {
    dc_jit_drop(dropped); /* takes nothing from the parent */
    bool good = scales(ended, 30.0f) && scales(begin_scaling(jit, 32.0f), 32.0f);
    _exit(good ? 0 : 1);
  }
  int result = 1;
  CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0);
  CHECK(scales(ended, 30.0f));
  CHECK(scales(dropped, 31.0f));
  CHECK(count_files(folder, "tmp-") == 0);
  dc_jit_destroy(jit);
}

/* map i0, .. i79 { reduce k { map j0, .. j79 { .. } } }: every loop around a sum is run for its identity. */
static void a_sum_under_many_loops_matches(dc_jit *jit) {
  enum { LOOPS = 80 };
  dc_text t = {0}, at = {0};
  dc_text_puts(&t, "graph g { input X: f32[3] temp A: f32[8, 4] outputs A state s { map ");
  for (int k = 0; k < LOOPS; k++) dc_text_printf(&t, "%si%d in 0:%d", k ? ", " : "", k, k == 0 || k == LOOPS - 1 ? 2 : 1);
  dc_text_puts(&t, " { reduce k in 0:3 { map ");
  for (int k = 0; k < LOOPS; k++) dc_text_printf(&t, "%sj%d in 0:%d", k ? ", " : "", k, k == 0 || k == LOOPS - 1 ? 2 : 1);
  for (int k = 1; k + 1 < LOOPS; k++) dc_text_printf(&at, " + j%d", k);
  dc_text_printf(&t, " { A[4*i0 + 2*i%d + j0%s, j0 + 2*j%d] sum= X[k] } } } } }", LOOPS - 1, at.s, LOOPS - 1);
  matches_interpreter(jit, &(example){"a sum under many loops", t.s, {0}, 1e-6});
  dc_text_free(&t), dc_text_free(&at);
}

/* In a graph of two nodes: one function serves both, or not. */
static void two_nodes_share_a_function(dc_jit *jit, const char *name, const char *text, bool expected) {
  dc_graph *g = NULL;
  dc_loose loose[2] = {{.numbers = {0}}, {.numbers = {0}}};
  CHECK_OK(dc_graph_parse(text, &g));
  for (int k = 0; g && k < 2; k++) {
    dc_text plain = {0};
    dc_launches *launches;
    CHECK_OK(dc_emit_node(&dc_c_language, g, dc_graph_scope(g)->v[k], "kernel", &plain, &launches, &loose[k]));
    dc_text_free(&plain);
  }
  check_result(g && dc_loose_alike(&loose[0], &loose[1]) == expected, __FILE__, __LINE__, name, NULL);
  dc_loose_free(&loose[0]), dc_loose_free(&loose[1]);
  dc_graph_destroy(g);
  matches_interpreter(jit, &(example){name, text, {3}, 1e-6});
}

static void kernels_that_differ_in_large_numbers_share_a_function(dc_jit *jit) {
  two_nodes_share_a_function(jit, "extents and strides", "graph g { symbol N >= 1 input X: f32[N, 64, 96] input U: f32[N, 128, 192] temp Y: f32[64, N, 96] temp V: f32[128, N, 192]"
    " outputs Y, V state s { map j in 0:64, i in 0:N, k in 0:96 { Y[j, i, k] = X[i, j, k] + 1.0f } map j in 0:128, i in 0:N, k in 0:192 { V[j, i, k] = U[i, j, k] + 1.0f } } }", true);
  two_nodes_share_a_function(jit, "factors of sums", "graph g { symbol N >= 1 input X: f64[N, 512] input U: f64[N, 768] temp Y: f64[N] temp V: f64[N]"
    " outputs Y, V state s { map i in 0:N { reduce k in 0:512 { Y[i] sum= X[i, k] * 0.3 } } map i in 0:N { reduce k in 0:768 { V[i] sum= U[i, k] * 0.7 } } } }", true);
  two_nodes_share_a_function(jit, "float and whole numbers", "graph g { input X: f32[320] input U: f32[640] temp Y: f32[320] temp V: f32[640]"
    " outputs Y, V state s { map i in 0:320 { Y[i] = X[i] * 0.125f + f32(i * 100) } map i in 0:640 { V[i] = U[i] * -0.3f + f32(i * 300) } } }", true);
  two_nodes_share_a_function(jit, "divisors", "graph g { input X: f32[1000] input U: f32[1000] temp Y: f32[1000] temp V: f32[1000]"
    " outputs Y, V state s { map i in 0:1000 { Y[i] = X[i // 40] / 3.0f } map i in 0:1000 { V[i] = U[i // 50] / 5.0f } } }", false);
  two_nodes_share_a_function(jit, "small extents", "graph g { input X: f32[100, 3] input U: f32[100, 5] temp Y: f32[100, 3] temp V: f32[100, 5]"
    " outputs Y, V state s { map i in 0:100, k in 0:3 { Y[i, k] = X[99 - i, k] + 1.0f } map i in 0:100, k in 0:5 { V[i, k] = U[99 - i, k] + 1.0f } } }", false);
}

static void nodes_with_types_that_c_lacks_have_no_kernel(dc_jit *jit) {
  dc_graph *g = NULL;
  dc_compiled kernel = {0};
  CHECK_OK(dc_graph_parse("graph g { input X: f8e5m2[8] temp Y: f32[8] outputs Y state s { map i in 0:8 { Y[i] = f32(X[i]) } } }", &g));
  dc_text text = {0};
  dc_launches *launches;
  if (g) CHECK_ERROR(dc_emit_node(&dc_c_language, g, dc_graph_scope(g)->v[0], "kernel", &text, &launches, NULL), DC_ERR_UNSUPPORTED, "f8e5m2");
  if (g) CHECK_OK(dc_jit_compile(jit, g, dc_graph_scope(g)->v, 1, &kernel));
  CHECK(kernel.function == NULL);
  dc_text_free(&text);
  dc_graph_destroy(g);
}

int main(void) {
  char folder[] = "/tmp/dcml-test-XXXXXX", other[64], command[80];
  if (!mkdtemp(folder)) return 1;
  dc_jit *jit = NULL;
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  const char *why = NULL;
  if (!dc_jit_available(jit, &why)) {
    printf("skipped: %s\n", why);
    return 0;
  }
  kernels_match_the_interpreter(jit);
  a_sum_under_many_loops_matches(jit);
  kernels_that_differ_in_large_numbers_share_a_function(jit);
  nodes_with_types_that_c_lacks_have_no_kernel(jit);
  batches_may_overlap(jit);
  dc_jit_destroy(jit);
  snprintf(other, sizeof other, "%s/three", folder);
  dropped_batches_leave_nothing(other);
  snprintf(other, sizeof other, "%s/four", folder);
  a_forked_process_compiles_itself(other);
  snprintf(other, sizeof other, "%s/one", folder);
  damaged_files_are_made_again(other);
  snprintf(other, sizeof other, "%s/two", folder);
  processes_may_share_the_folder(other);
  an_unusable_folder_is_replaced(folder);
  a_missing_compiler_is_said(folder);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return check_report();
}
