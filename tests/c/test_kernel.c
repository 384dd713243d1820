/* Kernels: files of tests/kernel, a folder per pass.  A file is
 *     pass: NAME NAME ...        (`build` first: of the first node of a graph text; else of a kernel text)
 *     text
 *     ---
 *     text of the kernel after the passes
 * DCML_ACCEPT=1 writes what was got into the file instead of comparing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernel/kernel.h"
#include "each_file.h"

static char *printed(const dc_kernel *k) {
  dc_text out = {0};
  dc_kernel_print(k, &out);
  return out.s;
}

/* The text reads back as a kernel that prints alike. */
static void check_round_trip(const dc_kernel *k, const char *where) {
  char *text = printed(k);
  dc_kernel again;
  int failed = check_failed;
  dc_status status = dc_kernel_parse(text, &again);
  CHECK_OK(status);
  if (again.graph) {
    char *back = printed(&again);
    CHECK_TEXT(back, text);
    free(back);
  }
  if (check_failed > failed) printf("in %s:\n%s", where, text);
  dc_kernel_free(&again);
  free(text);
}

/* ---- files ---- */

static dc_status first_kernel(const char *text, dc_kernel *out) {
  dc_graph *g = NULL;
  *out = (dc_kernel){0};
  DC_TRY(dc_graph_parse(text, &g));
  dc_status status = dc_kernel_build(g, dc_graph_scope(g)->v[0], out);
  dc_graph_destroy(g);
  return status;
}

static void check_file(const char *path) {
  char *text = check_read(path), *body = text ? strchr(text, '\n') : NULL, *wanted = text ? strstr(text, "\n---\n") : NULL;
  bool good = text && strncmp(text, "pass: ", 6) == 0 && body && wanted;
  CHECK(good);
  if (!good) return;
  *body++ = 0, wanted[1] = 0, wanted += 5;
  char *names = strdup(text + 6), *save = NULL, *name = strtok_r(names, " ", &save);
  int failed = check_failed;
  dc_kernel k;
  bool builds = name && strcmp(name, "build") == 0;
  if (builds) {
    CHECK_OK(first_kernel(body, &k));
    name = strtok_r(NULL, " ", &save);
  } else {
    CHECK_OK(dc_kernel_parse(body, &k));
  }
  for (; k.graph && name; name = strtok_r(NULL, " ", &save)) CHECK_OK(dc_kernel_pass_run(&k, name));
  if (k.graph) {
    char *got = printed(&k);
    FILE *file = getenv("DCML_ACCEPT") ? fopen(path, "wb") : NULL;
    if (file) fprintf(file, "%s\n%s---\n%s", text, body, got), fclose(file);
    else CHECK_TEXT(got, wanted);
    check_round_trip(&k, path);
    free(got);
  }
  if (check_failed > failed) printf("in %s\n", path);
  dc_kernel_free(&k);
  free(names);
  free(text);
}

/* ---- kernels of scheduled graphs ---- */

static void check_stages(const dc_graph *g, dc_nid node, const dc_kernel_pass *passes, const char *path) {
  dc_kernel k;
  dc_status status = dc_kernel_build(g, node, &k);
  if (status && dc_status_code(status) == DC_ERR_UNSUPPORTED) { /* a library node inside */
    dc_status_free(status);
    return;
  }
  CHECK_OK(status);
  if (!k.graph) return;
  CHECK_OK(dc_kernel_verify(&k));
  check_round_trip(&k, path);
  for (const dc_kernel_pass *pass = passes; pass->name; pass++) {
    CHECK_OK(dc_kernel_pass_run(&k, pass->name));
    check_round_trip(&k, path);
  }
  dc_kernel_free(&k);
}

/* The graphs that passes of graphs are tested with become kernels, which verify and read back at each stage. */
static void check_graph(const char *path) {
  char *text = check_read(path), *body = text ? strchr(text, '\n') : NULL, *end = text ? strstr(text, "\n---\n") : NULL;
  dc_graph *g = NULL;
  if (end) end[1] = 0;
  if (body) dc_status_free(dc_graph_parse(body + 1, &g));
  for (uint32_t s = 0; g && s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++)
      if (dc_node_at(g, g->states.v[s].scope.v[k])->kind != DC_NODE_LIBRARY) {
        check_stages(g, g->states.v[s].scope.v[k], dc_kernel_passes, path);
        check_stages(g, g->states.v[s].scope.v[k], dc_kernel_passes_grid, path);
      }
  dc_graph_destroy(g);
  free(text);
}

/* ---- texts that break a rule ---- */

#define HEAD "kernel { symbol N >= 1 buffer X: f32[N, 8] buffer Y: f32[N] buffer Z: f32[N, 8] "

static void broken_kernels_are_refused(void) {
  static const struct {
    const char *text, *message;
  } cases[] = {
      {HEAD "parallel i in 0:N { Y[i] = X[8*j] } }", "a parameter, symbol or constant"},
      {HEAD "parallel i in 0:N { Y[i] = X[i, i] } }", "a bool check"},
      {HEAD "parallel i in 0:N { Y[i, true, true] = 1.0f } }", "an address and perhaps a check"},
      {HEAD "parallel i in 0:N { Y[i] = 1.0 } }", NULL}, /* stored as f32 */
      {HEAD "parallel i in 0:N vector { parallel j in 0:8 { Z[8*i + j] = 1.0f } } }", "vectors run innermost loops"},
      {HEAD "scatter i in 0:N collides vector { Y[0] sum= 1.0f meets(i) } }", "vectors run innermost loops"},
      {HEAD "parallel i in 0:N lanes(64) { parallel j in 0:8 lanes(64) { Z[8*i + j] = 1.0f } } }", "not nested"},
      {HEAD "parallel i in 0:N { reduce j in 0:8 { Y[i] sum= X[8*i + j] inside true as 0 } } }", "an accumulator is kept by a loop"},
      {HEAD "parallel i in 0:N { reduce j in 0:8 keeps(0) { Z[8*i + j] sum= X[8*i + j] inside true as 0 } } }", "stays in place"},
      {HEAD "parallel i in 0:N { reduce j in 0:8 keeps(0) { Y[i] sum= X[8*i + j] as 0 } } }", "where its element is inside"},
      {HEAD "parallel i in 0:N { reduce j in 0:8 vector sums(12, 0) { Y[i] sum= X[8*i + j] } } }", "0, 8, 16"},
      {HEAD "parallel i in 0:N product(64, 64) { also j in 0:8 { Z[8*i + j] = X[8*i + j] } } }", "around its sums"},
      {HEAD "parallel i in 0:N threads(3, 1, 2.0) { Y[i] = 1.0f } }", "loops of one map"},
      {HEAD "sequential i in 0:N threads(1, 1, 2.0) { Y[i] = 1.0f } }", "threads share a map once"},
      {HEAD "parallel i in 0:N threads(1, 1, 2) { Y[i] = 1.0f } }", "a cost is an f64"},
      {HEAD "parallel i in 0:N copy { Y[i] sum= X[8*i] } }", "one plain write"},
      {HEAD "parallel i in 0:N spread(4) { Y[i] = 1.0f } }", "spread over iterations"},
      {HEAD "also i in 0:N { Y[i] = 1.0f } }", "a loop of a map"},
      {HEAD "parallel i in 0:N:0 { Y[i] = 1.0f } }", "0 is not in 1"},
      {HEAD "parallel i in 0:N joined(i + 4) { Y[i] = 1.0f } }", "of a parallel loop"},
      {"kernel grid(512, 512) at_once(8) { buffer X: f32[2] X[0] = 1.0f }", "two thousand threads"},
      {"kernel { register r: f32[] buffer X: f32[2] }", "buffers before registers"},
      {"kernel { buffer X: f32[2] buffer X: f32[2] }", "declared twice"},
      {"kernel { buffer X: f33[2] }", "a type"},
      {"kernel { buffer X: f32[2] view X }", "a buffer that views none"},
      {"kernel { buffer X: f32[2] X[0] = 1.0f } }", "the end"},
      {"kernel { buffer X: f32[2] 1.0 = 1.0f }", "an element that is written"},
  };
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    dc_kernel kernel;
    int failed = check_failed;
    if (cases[k].message) CHECK_ERROR(dc_kernel_parse(cases[k].text, &kernel), DC_ERR_MODEL, cases[k].message);
    else CHECK_OK(dc_kernel_parse(cases[k].text, &kernel));
    if (check_failed > failed) printf("in %s\n", cases[k].text);
    dc_kernel_free(&kernel);
  }
}

static void passes_are_found_by_name(void) {
  dc_kernel k;
  CHECK_OK(dc_kernel_parse("kernel { buffer X: f32[2] X[0] = 1.0f }", &k));
  CHECK_ERROR(dc_kernel_pass_run(&k, "mergers"), DC_ERR_VALUE, "there is no kernel pass 'mergers'; there are merge, pieces");
  dc_kernel_free(&k);
}

int main(void) {
  each_file("tests/kernel", check_file);
  each_file("tests/ir", check_graph);
  broken_kernels_are_refused();
  passes_are_found_by_name();
  return check_report();
}
