/* Flat views: files of tests/flow.  A file is
 *     derive                          build                            refuse
 *     graph text                      graph text, its state empty      graph text, its state empty
 *     ---                             ---                              ---
 *     text of its flat view           text of a flat view              text of a flat view
 *                                     ---                              ---
 *                                     graph text                       what the error says
 * DCML_ACCEPT=1 writes what was got into the file instead of comparing.  Each graph text of tests/ir, as it is and with its
 * operators expanded, computes the same when each state is built anew from its flat view. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "check/agree.h"
#include "each_file.h"
#include "flow_parse.h"
#include "passes/passes.h"

static char *flow_text(const dc_flow *flow, const dc_graph *g) {
  dc_text out = {0};
  dc_flow_print(flow, g, &out);
  return out.s;
}

static char *graph_text(const dc_graph *g) {
  dc_text out = {0};
  dc_graph_print(g, &out);
  return out.s;
}

/* ---- files ---- */

static char *cut(char *text) {
  char *end = text ? strstr(text, "\n---\n") : NULL;
  if (end) end[1] = 0;
  return end ? end + 5 : NULL;
}

/* The text reads back as a flat view that prints alike, but for the numbers of nodes. */
static char *derived(dc_graph *g) {
  dc_flow flow = {0};
  CHECK_OK(dc_flow_derive(&flow, g, 0, dc_flow_numbered));
  char *text = flow_text(&flow, g);
  dc_flow again;
  CHECK_OK(flow_parse(text, g, &again));
  dc_flow_free(&again);
  dc_flow_free(&flow);
  return text;
}

static char *built(dc_graph *g, const char *text, bool refused) {
  dc_flow flow;
  char *got = NULL;
  CHECK_OK(flow_parse(text, g, &flow));
  char *before = graph_text(g);
  dc_status status = dc_flow_build(&flow, g, 0, dc_flow_numbered);
  if (refused) {
    CHECK(status != NULL);
    got = status ? strdup(dc_status_text(status)) : strdup("success");
    got = realloc(got, strlen(got) + 2), strcat(got, "\n");
    CHECK(g->states.v[0].scope.n == 0);
    dc_status_free(status);
  } else {
    CHECK_OK(status);
    CHECK_OK(dc_graph_verify(g));
    got = graph_text(g);
  }
  dc_flow_free(&flow);
  free(before);
  return got;
}

static void check_file(const char *path) {
  char *text = check_read(path), *body = text ? strchr(text, '\n') : NULL;
  int failed = check_failed;
  dc_graph *g = NULL;
  CHECK(body != NULL);
  if (!body) return;
  *body++ = 0;
  bool derive = strcmp(text, "derive") == 0, refuse = strcmp(text, "refuse") == 0;
  char *second = cut(body), *third = derive ? second : cut(second), *got = NULL;
  CHECK(third != NULL);
  CHECK_OK(dc_graph_parse(body, &g));
  if (g && third) got = derive ? derived(g) : built(g, second, refuse);
  if (got) {
    FILE *file = getenv("DCML_ACCEPT") ? fopen(path, "wb") : NULL;
    if (file) fprintf(file, "%s\n%s---\n%s%s%s", text, body, derive ? "" : second, derive ? "" : "---\n", got), fclose(file);
    else CHECK_TEXT(got, third);
  }
  if (check_failed > failed) printf("in %s\n", path);
  free(got);
  dc_graph_destroy(g);
  free(text);
}

/* ---- graphs of other tests ---- */

static dc_ops *ops;
static uint32_t n_compared;

static void check_rebuilt(const dc_graph *g, const char *path, const char *as) {
  dc_target target = {.ops = ops};
  dc_check check = {.target = &target, .n_sets = g->pool.symbols.n > 1 ? 0 : 3}; /* where no size differs, contents alone */
  dc_text why = {0};
  dc_verdict verdict = dc_check_try(&check, g, DC_FLAT_VIEW, &why);
  bool good = verdict == DC_AGREES || verdict == DC_USELESS;
  n_compared += verdict == DC_AGREES;
  CHECK(good);
  if (!good) printf("in %s, %s: %s\n", path, as, why.s ? why.s : "");
  dc_text_free(&why);
}

static void check_part(char *text, const char *path) {
  dc_graph *g = NULL;
  dc_cid blocked = 0;
  dc_status_free(dc_graph_parse(text, &g));
  if (!g) return;
  dc_graph *clone = dc_graph_clone(g);
  int failed = check_failed;
  CHECK_OK(dc_check_rebuild(clone)); /* before types and shapes are known */
  if (check_failed > failed) printf("in %s\n", path);
  dc_graph_destroy(clone);
  dc_status status = dc_pass_infer(ops, g, &blocked);
  char *before = graph_text(g);
  if (!status && !blocked) {
    check_rebuilt(g, path, "with operators");
    status = dc_pass_run(ops, g, "expand");
  }
  char *expanded = graph_text(g);
  if (!status && !blocked && strcmp(expanded, before)) check_rebuilt(g, path, "expanded");
  free(expanded), free(before);
  dc_status_free(status);
  dc_graph_destroy(g);
}

static void check_graphs(const char *path) {
  char *text = check_read(path), *body = text ? strchr(text, '\n') : NULL;
  for (char *next; body; body = next) {
    next = cut(body);
    check_part(body, path);
  }
  free(text);
}

static void graphs_compute_the_same_from_their_flat_views(void) {
  each_file("tests/ir", check_graphs);
  CHECK(n_compared > 150);
}

/* ---- size ---- */

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dc_graph *chain(uint32_t n) {
  dc_graph *g = dc_graph_create("chain");
  dc_ex extent = dc_ex_int(&g->pool, 8);
  dc_cid last = dc_container_add(g, "X", DC_F32, 1, &extent, DC_ROLE_INPUT);
  for (uint32_t k = 0; k < n; k++) {
    dc_cid next = dc_container_add(g, dc_arena_printf(&g->arena, "t%u", k), DC_F32, 1, &extent, DC_ROLE_TEMP);
    dc_param i = dc_param_new(&g->pool, "i", dc_ex_int(&g->pool, 0), extent, 0);
    dc_ex at = dc_ex_par(&g->pool, i), value = dc_ex_prim1(&g->pool, DC_EXP, dc_ex_read(&g->pool, DC_F32, last, &at, 1));
    dc_nid tasklet = dc_node_tasklet(g, next, DC_WCR_NONE, &at, 1, 0, value);
    dc_scope_push(g, dc_graph_scope(g), dc_node_wrap(g, DC_MAP_PARALLEL, &i, 1, tasklet));
    last = next;
  }
  dc_graph_mark_output(g, last);
  return g;
}

static double rebuild_seconds(uint32_t n) {
  dc_graph *g = chain(n);
  double start = seconds();
  CHECK_OK(dc_check_rebuild(g));
  double taken = seconds() - start;
  dc_graph_destroy(g);
  return taken;
}

static void time_grows_with_the_number_of_nodes(void) {
  double small = rebuild_seconds(4000), large = rebuild_seconds(16000);
  CHECK(large < 10 * small && large < 5);
  if (getenv("DCML_TIMES")) printf("rebuilt 4000 maps in %.0f ms, 16000 in %.0f ms\n", 1e3 * small, 1e3 * large);
}

int main(void) {
  CHECK_OK(dc_ops_create(&ops));
  each_file("tests/flow", check_file);
  graphs_compute_the_same_from_their_flat_views();
  time_grows_with_the_number_of_nodes();
  dc_ops_destroy(ops);
  return check_report();
}
