/* Passes: files of tests/ir, a folder per pass.  A file is
 *     pass: NAME NAME ...        (passes in small letters, transformations with a capital; teams=N or cached=N before them: see below)
 *     graph text
 *     ---
 *     text of the graph after the passes
 * What a graph without library nodes computes must not change by a pass: the interpreter runs it
 * before and after.  A file of tests/ir/agree says just that, at more sizes, of one pass or of programs:
 *     agree: NAME
 *     graph text
 * DCML_ACCEPT=1 writes what was got into the file instead of comparing. */
#include <dirent.h>

#include "check/reduce.h"
#include "graph_run.h"
#include "passes/passes.h"

static dc_ops *ops;

static bool scope_of_maps(const dc_graph *g, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n; k++) {
    const dc_node *node = dc_node_at(g, scope->v[k]);
    if (node->kind == DC_NODE_LIBRARY || (node->kind == DC_NODE_MAP && !scope_of_maps(g, &node->map.body))) return false;
  }
  return true;
}

static bool only_maps(const dc_graph *g) {
  bool all = true; /* and no complex numbers, which are interpreted as their parts */
  for (dc_cid c = 1; c < g->containers.n; c++) all &= !dc_dtype_is_complex((dc_dtype)dc_cont(g, c)->dtype);
  for (uint32_t s = 0; s < g->states.n; s++) all &= scope_of_maps(g, &g->states.v[s].scope);
  return all;
}

/* A word teams=N among the names: what comes after it is for a device of so many small teams; wide=N: of which one takes so many
 * columns; row=N: whose registers hold so many elements of a row; cached=N: for caches of N bytes. */
static bool reads_machine(dc_graph *g, const char *name) {
  unsigned teams;
  if (sscanf(name, "cached=%u", &g->machine.l2_bytes) == 1) return true;
  if (sscanf(name, "wide=%u", &g->machine.wide_columns) == 1) return true;
  if (sscanf(name, "row=%u", &g->machine.row_elements) == 1) return true;
  if (sscanf(name, "teams=%u", &teams) != 1) return false;
  g->machine.teams = teams, g->machine.team_threads = 4, g->machine.team_columns = 2, g->machine.thread_terms = 4;
  g->machine.few_tasks = teams * g->machine.team_threads, g->machine.serial_work = 1;
  return true;
}

static void run_passes(dc_graph *g, char *names, const char *path) {
  dc_transform_tools tools = {.ops = ops, .interpret = dc_interp_node};
  for (char *save = NULL, *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
    if (reads_machine(g, name)) continue;
    dc_graph *before = dc_graph_clone(g);
    uint32_t count = 0;
    if (name[0] >= 'A' && name[0] <= 'Z') {
      CHECK_OK(dc_transform_apply(&tools, g, name, NULL, &count));
      CHECK(count > 0);
    } else {
      CHECK_OK(dc_pass_run(ops, g, name));
    }
    if (only_maps(before)) check_same_results(before, g, path);
    dc_graph_destroy(before);
  }
}

static void accept(const char *path, const char *head, const char *body, const char *got) {
  FILE *file = fopen(path, "wb");
  if (!file) return;
  fprintf(file, "pass: %s\n%s---\n%s", head, body, got);
  fclose(file);
}

static void check_file(const char *path) {
  char *text = check_read(path), *body = text ? strchr(text, '\n') : NULL, *wanted = text ? strstr(text, "\n---\n") : NULL;
  bool good = text && strncmp(text, "pass: ", 6) == 0 && body && wanted;
  CHECK(good);
  if (!good) return;
  *body++ = 0;
  wanted[1] = 0;
  wanted += 5;
  char *names = strdup(text + 6);
  dc_graph *g = NULL;
  int failed = check_failed;
  CHECK_OK(dc_graph_parse(body, &g));
  if (g) {
    run_passes(g, names, path);
    dc_text out = {0};
    dc_graph_print(g, &out);
    if (getenv("DCML_ACCEPT")) accept(path, text + 6, body, out.s);
    else CHECK_TEXT(out.s, wanted);
    dc_text_free(&out);
  }
  if (check_failed > failed) printf("in %s\n", path);
  dc_graph_destroy(g);
  free(names);
  free(text);
}

/* What the fuzzer of passes found. */
static void check_agreement(const char *path) {
  char *text = check_read(path), *body = text ? strchr(text, '\n') : NULL;
  bool good = text && strncmp(text, "agree: ", 7) == 0 && body;
  CHECK(good);
  if (!good) return;
  *body++ = 0;
  dc_graph *g = NULL;
  dc_text why = {0};
  dc_target target = {.ops = ops};
  CHECK_OK(dc_graph_parse(body, &g));
  char *names = text + 7;
  if (g && reads_machine(g, names)) names = strchr(names, ' ') + 1;
  dc_verdict verdict = g ? dc_check_try(&(dc_check){.target = &target}, g, names, &why) : DC_USELESS;
  CHECK(verdict == DC_AGREES);
  if (verdict != DC_AGREES) printf("in %s: %s\n", path, why.s ? why.s : "the graph itself does not run");
  dc_graph_destroy(g);
  dc_text_free(&why);
  free(text);
}

/* ---- reduction ---- */

static bool holds_tanh(void *context, const dc_graph *g) {
  dc_text text = {0};
  dc_graph_print(g, &text);
  ++*(int *)context;
  bool found = strstr(text.s, "tanh(") && !dc_graph_verify(g);
  dc_text_free(&text);
  return found;
}

static void a_graph_that_fails_is_made_small(void) {
  static const char text[] = "graph g {\n  symbol N >= 1\n  input X: f32[N, 64]\n  const W: f32[64] = {REST}\n"
                             "  temp A: f32[N, 64]\n  temp B: f32[N, 64]\n  temp Y: f32[N]\n  outputs Y, X\n  state main {\n"
                             "    map i in 0:N, j in 0:64 {\n      A[i, j] = exp(X[i, j]) * W[j]\n    }\n"
                             "    map i in 0:N, j in 0:64 {\n      B[i, j] = tanh(A[i, j] + 1.0f)\n    }\n"
                             "    map i in 0:N {\n      reduce j in 0:64 {\n        Y[i] sum= B[i, j]\n      }\n    }\n  }\n}\n";
  dc_graph *g = NULL;
  dc_text whole = {0}, small = {0};
  const char *rest = strstr(text, "REST");
  dc_text_printf(&whole, "%.*s", (int)(rest - text), text);
  for (int k = 0; k < 64; k++) dc_text_printf(&whole, "%s%d.0", k ? ", " : "", k);
  dc_text_puts(&whole, rest + 4);
  int tried = 0;
  CHECK_OK(dc_graph_parse(whole.s, &g));
  CHECK(g && dc_reduce(ops, g, holds_tanh, &tried, &small));
  CHECK_TEXT(small.s, "graph g opset 0 {\n  input A: f32[1, 1]\n  temp B: f32[1, 1]\n  outputs B\n  state main {\n    map i in 0:1, j in 0:1 {\n"
                      "      B[i, j] = tanh(A[i, j] + 1.0f)\n    }\n  }\n}\n");
  CHECK(tried < 200);
  dc_graph_destroy(g);
  dc_text_free(&whole);
  dc_text_free(&small);
}

/* ---- random graphs ---- */

typedef struct {
  uint32_t state;
  dc_text text, body;
  int rank[32], n; /* containers c0 .. c(n-1); the first three are inputs */
} random_graph;

static int pick(random_graph *r, int n) {
  r->state = r->state * 1664525u + 1013904223u;
  return (int)((r->state >> 16) % (uint32_t)n);
}

/* An element of a container: its dimensions take parameters in any order, some mirrored or fixed. */
static void put_element(random_graph *r, int c, const char *const *params, int n_params, bool plain) {
  dc_text_printf(&r->body, "c%d[", c);
  for (int d = 0; d < r->rank[c]; d++) {
    const char *p = n_params ? params[plain ? d : pick(r, 3) ? d % n_params : pick(r, n_params)] : NULL;
    int form = plain ? 0 : pick(r, 12);
    dc_text_puts(&r->body, d ? ", " : "");
    if (!p || form == 1) dc_text_printf(&r->body, "%d", pick(r, 4));
    else if (form == 2) dc_text_printf(&r->body, "3 - %s", p);
    else dc_text_puts(&r->body, p);
  }
  dc_text_puts(&r->body, "]");
}

static void put_value(random_graph *r, const char *const *params, int n_params, int depth) {
  int form = depth ? pick(r, 7) : 6;
  static const char *const infix[] = {" + ", " * ", " - "};
  if (form < 3) {
    dc_text_puts(&r->body, "(");
    put_value(r, params, n_params, depth - 1);
    dc_text_puts(&r->body, infix[form]);
    put_value(r, params, n_params, depth - 1);
    dc_text_puts(&r->body, ")");
  } else if (form == 3) {
    dc_text_puts(&r->body, "tanh(");
    put_value(r, params, n_params, depth - 1);
    dc_text_puts(&r->body, ")");
  } else {
    put_element(r, pick(r, 3) && r->n > 3 ? 3 + pick(r, r->n - 3) : pick(r, r->n), params, n_params, false);
  }
}

static void put_ranges(random_graph *r, const char *head, const char *const *params, int n) {
  dc_text_puts(&r->body, head);
  for (int k = 0; k < n; k++) dc_text_printf(&r->body, "%s%s in 0:4", k ? ", " : " ", params[k]);
  dc_text_puts(&r->body, " {\n");
}

/* One of: a map that writes, a map that accumulates or overwrites, a map around a reduction. */
static void put_statement(random_graph *r) {
  static const char *const names[] = {"i", "j", "k", "l"};
  int kind = pick(r, 4), rank = pick(r, 4), inner = 1 + pick(r, 2), target = r->n;
  if (kind == 3 && r->n > 3) target = 3 + pick(r, r->n - 3), rank = r->rank[target];
  if (kind == 2 && rank + inner > 4) inner = 1;
  if (target == r->n) r->rank[target] = rank;
  if (rank) put_ranges(r, "map", names, rank);
  if (kind == 2) put_ranges(r, "reduce", names + rank, inner);
  put_element(r, target, names, rank, true);
  dc_text_puts(&r->body, kind == 2 ? (pick(r, 2) ? " sum= " : " max= ") : kind == 3 && target != r->n && pick(r, 2) ? " sum= " : " = ");
  put_value(r, names, kind == 2 ? rank + inner : rank, 2);
  dc_text_puts(&r->body, "\n");
  if (kind == 2) dc_text_puts(&r->body, "}\n");
  if (rank) dc_text_puts(&r->body, "}\n");
  if (target == r->n) r->n++;
}

static bool overwrites_what_it_reads(const dc_graph *g);

static void check_random(uint32_t seed) {
  static const char *const dims[] = {"", "4", "4, 4", "4, 4, 4"};
  random_graph r = {.state = seed * 2654435761u, .rank = {1, 2, 3}, .n = 3};
  dc_text_puts(&r.body, "");
  int statements = 3 + pick(&r, 9);
  for (int k = 0; k < statements; k++) put_statement(&r);
  dc_text_puts(&r.text, "graph g {\n");
  for (int c = 0; c < r.n; c++) dc_text_printf(&r.text, "%s c%d: f64[%s]\n", c < 3 ? "input" : "temp", c, dims[r.rank[c]]);
  dc_text_printf(&r.text, "outputs c%d, c%d\nstate main {\n%s}\n}\n", r.n - 1, r.n > 5 ? r.n - 3 : r.n > 4 ? r.n - 2 : 0, r.body.s);
  dc_graph *g = NULL;
  int failed = check_failed;
  CHECK_OK(dc_graph_parse(r.text.s, &g));
  if (g && !overwrites_what_it_reads(g)) {
    char names[] = "cached=0 loops inline merge contract again rewrite order loops unroll fuse unroll";
    run_passes(g, names, "random graph");
  }
  if (check_failed > failed) printf("--- seed %u\n%s", seed, r.text.s);
  dc_graph_destroy(g);
  dc_text_free(&r.text);
  dc_text_free(&r.body);
}

typedef struct {
  bool read[64];
  bool found;
} self_use;

static void note_self_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  self_use *s = context;
  (void)by;
  if (use == DC_USE_WRITE) s->found |= s->read[c];
  else s->read[c] = true;
}

/* A map whose iterations read what others write has no meaning; accumulation reads its own element. */
static bool overwrites_what_it_reads(const dc_graph *g) {
  for (uint32_t k = 0; k < g->states.v[0].scope.n; k++) {
    self_use s = {{false}, false};
    dc_nid node = g->states.v[0].scope.v[k], at = node;
    while (dc_node_at(g, at)->kind == DC_NODE_MAP) at = dc_node_at(g, at)->map.body.v[0];
    dc_node_uses(g, node, note_self_use, &s);
    if (s.found && !dc_node_at(g, at)->tasklet.wcr) return true;
    if (s.found) { /* is it read by the value too? */
      dc_text value = {0};
      dc_ex_print(g, dc_node_at(g, at)->tasklet.value, &value);
      char name[16];
      snprintf(name, sizeof name, "%s[", dc_cont_name(g, dc_node_at(g, at)->tasklet.out));
      bool reads = strstr(value.s, name) != NULL;
      dc_text_free(&value);
      if (reads) return true;
    }
  }
  return false;
}

static void random_graphs_compute_the_same(uint32_t first, uint32_t n) {
  for (uint32_t seed = first; seed < first + n; seed++) check_random(seed);
}

static void unknown_names_are_listed(void) {
  dc_graph *g = dc_graph_create("g");
  uint32_t count;
  CHECK_ERROR(dc_pass_run(ops, g, "fly"), DC_ERR_VALUE, "loops");
  dc_transform_tools tools = {.ops = ops};
  CHECK_ERROR(dc_transform_apply(&tools, g, "Fly", NULL, &count), DC_ERR_VALUE, "TaskletFusion");
  CHECK_ERROR(dc_transform_apply(&tools, g, "MapTiling(size=3)", NULL, &count), DC_ERR_VALUE, "there are tile_sizes, divides_evenly");
  CHECK_ERROR(dc_transform_apply(&tools, g, "MapTiling(tile_sizes=3", NULL, &count), DC_ERR_VALUE, "expected ')'");
  CHECK_ERROR(dc_transform_apply(&tools, g, "MapTiling(tile_sizes=x)", NULL, &count), DC_ERR_VALUE, "takes integers");
  CHECK_ERROR(dc_transform_apply(&tools, g, "MapTiling(tile_sizes=0)", NULL, &count), DC_ERR_VALUE, "expected 1 to");
  CHECK_ERROR(dc_transform_apply(&tools, g, "MapFusion(strict=1)", NULL, &count), DC_ERR_VALUE, "it has none");
  CHECK_ERROR(dc_transform_apply(&tools, g, "MapFusion", &(dc_transform_target){.nodes = &(dc_nid){7}, .n_nodes = 1}, &count), DC_ERR_VALUE, "no node 7");
  dc_graph_destroy(g);
}

static void check_folder(const char *name, void (*check)(const char *)) {
  char folder[256], path[1024];
  snprintf(folder, sizeof folder, "tests/ir/%s", name);
  struct dirent **entries = NULL;
  int n = scandir(folder, &entries, NULL, alphasort), files = 0;
  for (int i = 0; i < n; i++) {
    size_t length = strlen(entries[i]->d_name);
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    if (length > 4 && strcmp(entries[i]->d_name + length - 4, ".txt") == 0) check(path), files++;
    free(entries[i]);
  }
  free(entries);
  CHECK(files > 0);
  if (!files) printf("in %s\n", folder);
}

/* Every pass has some. */
static void files_of_each_pass_match(void) {
  for (uint32_t k = 0; dc_pass_at(k); k++) check_folder(dc_pass_at(k)->name, check_file);
  check_folder("transforms", check_file);
}

static void passes_and_programs_agree_with_the_interpreter(void) { check_folder("agree", check_agreement); }

int main(int argc, char **argv) {
  CHECK_OK(dc_ops_create(&ops));
  if (!ops) return 1;
  for (int k = 1; k < argc; k++) check_file(argv[k]);
  if (argc == 1) {
    unknown_names_are_listed();
    a_graph_that_fails_is_made_small();
    files_of_each_pass_match();
    passes_and_programs_agree_with_the_interpreter();
    random_graphs_compute_the_same(1, 400);
  }
  dc_ops_destroy(ops);
  return check_report();
}
