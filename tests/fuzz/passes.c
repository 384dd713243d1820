/* Differential fuzzing of the passes: random graphs are differentiated, and the forward and the backward graph are
 * compared, after each pass, after transformations in random order and as programs, with the interpreter on what they
 * were before the first.
 *
 *   fuzz_passes [-graphs N] [-seed S] [-jobs J] [-compile K] [-folder F] [TEXT...]
 *
 * Every K-th graph is also compiled.  What fails is reduced to a text, which is printed and left in the folder: as
 * "agree: PASS" and a graph it is a test (tests/ir/agree), and what a TEXT names is tried again.  A seed gives the
 * same graph everywhere. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/reduce.h"
#include "dcml.h"
#include "fuzz/generate.h"

enum { SETS = 2, MAX_JOBS = 64, SECONDS = 60 };

/* What a worker has done; shared with the process that waits for it. */
typedef struct {
  uint64_t seed, graphs, refused, compared, failures, programs, compiled, native, transformed, gradients;
  char doing[64];
} progress;

typedef struct {
  dc_session session;
  uint64_t compile_every;
  const char *folder;
  progress *p;
} fuzzer;

typedef struct {
  const fuzzer *f;
  uint64_t seed;
  uint32_t sets[SETS];
  bool usable[SETS];
  dc_values forward[SETS], backward[SETS]; /* of the graphs before the first pass */
  dc_graph *first[2];
} trial;

static void must(dc_status status) {
  if (!status) return;
  fprintf(stderr, "fuzz: %s\n", dc_status_text(status));
  exit(1);
}

static dc_target target_of(const fuzzer *f, dc_backend_kind backend) {
  return (dc_target){f->session.ops, f->session.natives, f->session.jit, backend, f->session.workspace, NULL, NULL, NULL};
}

/* Of the processor, so that a busy machine fails nothing. */
static void limit_time(int seconds) { setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = seconds}}, NULL); }

/* ---- reports ---- */

static void write_file(const char *path, const char *text) {
  FILE *out = fopen(path, "w");
  if (!out) return;
  fputs(text, out);
  fclose(out);
}

static void report(const fuzzer *f, const dc_graph *before, const char *what, const char *side, const char *why) {
  dc_target target = target_of(f, DC_BACKEND_INTERP);
  dc_text text = {0}, path = {0};
  limit_time(0);
  mkdir(f->folder, 0777);
  dc_text_printf(&path, "%s/%llu-%s-%s.txt", f->folder, (unsigned long long)f->p->seed, side, what);
  for (char *c = path.s; *c; c++)
    if (*c == ' ') *c = '-';
  dc_text_printf(&text, "agree: %s\n", what);
  fflush(stdout);
  pid_t child = fork(); /* which may come upon a crash */
  if (!child) {
    limit_time(4 * SECONDS);
    dc_text reduced = {0};
    if (!dc_reduce_try(&(dc_check){.target = &target}, before, what, &reduced)) dc_text_puts(&text, "# does not fail by itself on random data\n");
    dc_text_puts(&text, reduced.s);
    write_file(path.s, text.s);
    _exit(0);
  }
  int state = 1;
  bool reduced = child > 0 && waitpid(child, &state, 0) == child && state == 0;
  if (!reduced) dc_graph_print(before, &text), write_file(path.s, text.s);
  printf("fuzz: seed %llu: %s graph, %s: %s; %s in %s\n", (unsigned long long)f->p->seed, side, what, why, reduced ? "reduced" : "not reduced", path.s);
  fflush(stdout);
  f->p->failures++;
  dc_text_free(&text), dc_text_free(&path);
  limit_time(SECONDS);
}

/* ---- one graph ---- */

static dc_status keep_first(void *context, dc_graph *forward, dc_graph *backward) {
  trial *t = context;
  t->first[0] = dc_graph_clone(forward), t->first[1] = backward ? dc_graph_clone(backward) : NULL;
  for (int side = 0; side < 2 && t->seed % 2; side++) /* to small arrays, too, happens what is for large ones */
    if (t->first[side]) t->first[side]->machine.l2_bytes = 0;
  return DC_OK;
}

static void choose_sets(trial *t, uint64_t seed) {
  t->sets[0] = (uint32_t)(seed % 4), t->sets[1] = 4 + (uint32_t)(seed / 4 % (DC_SIZE_SETS - 4));
}

/* A backward graph is given what the forward one computed. */
static const void *of_forward(void *context, const char *name, uint64_t *n_bytes) {
  const dc_values *forward = context;
  dc_cid c = dc_container_find(forward->graph, name);
  int64_t n;
  dc_status status = c ? dc_values_elements(forward->graph, c, forward->symbols, &n) : DC_OK;
  bool found = c && !status && forward->buffers[c];
  if (found) *n_bytes = (uint64_t)n * (uint64_t)dc_dtype_bytes((dc_dtype)dc_cont(forward->graph, c)->dtype);
  dc_status_free(status);
  return found ? forward->buffers[c] : NULL;
}

static dc_contents contents_of(trial *t, int side, int k) { return (dc_contents){side ? of_forward : NULL, &t->forward[k], t->sets[k]}; }

/* The results that all others must agree with. */
static void interpret_first(trial *t) {
  for (int k = 0; k < SETS; k++) {
    int64_t symbols[DC_MAX_SIZES] = {0}, others[DC_MAX_SIZES] = {0};
    const dc_graph *back = t->first[1];
    dc_target target = target_of(t->f, DC_BACKEND_INTERP);
    if (!dc_sizes_choose(t->first[0], t->sets[k], NULL, 0, symbols, NULL)) continue;
    if (back && !dc_sizes_choose(back, t->sets[k], NULL, 0, others, NULL)) continue;
    dc_status status = dc_values_run(&target, t->first[0], DC_RUN_INTERPRETED, symbols, contents_of(t, 0, k), &t->forward[k]);
    if (!status && back) status = dc_values_run(&target, back, DC_RUN_INTERPRETED, others, contents_of(t, 1, k), &t->backward[k]);
    t->usable[k] = !status;
    dc_status_free(status);
  }
}

/* Runs a graph in one of the ways, at both sets of sizes; false, with the reason, if results differ. */
static bool agrees(trial *t, int side, const dc_graph *now, const char *what, dc_text *why) {
  bool good = true;
  dc_target target = target_of(t->f, dc_check_backend(what));
  for (int k = 0; k < SETS && good; k++) {
    if (!t->usable[k]) continue;
    dc_values got = {0};
    dc_difference difference;
    int64_t symbols[DC_MAX_SIZES] = {0};
    good = dc_sizes_choose(now, t->sets[k], NULL, 0, symbols, why);
    dc_status status = good ? dc_values_run(&target, now, dc_check_kind(what), symbols, contents_of(t, side, k), &got) : DC_OK;
    if (status) dc_text_puts(why, dc_status_text(status));
    if (good && !status && !dc_values_same(side ? &t->backward[k] : &t->forward[k], &got, 0, &difference)) {
      dc_difference_print(&difference, why);
      good = false;
    }
    good = good && !status;
    dc_status_free(status);
    dc_values_free(&got);
    t->f->p->compared++;
  }
  return good;
}

static uint64_t text_hash(const dc_graph *g) {
  dc_text text = {0};
  dc_graph_print(g, &text);
  uint64_t hash = dc_hash_bytes(1, text.s, text.n);
  dc_text_free(&text);
  return hash;
}

static const char *const sides[] = {"forward", "backward"};

/* A pass that may hide another's fault is left out now and then. */
static bool runs(const trial *t, uint32_t k) {
  return dc_pipeline_pass(k)->kind == DC_PASS_NEEDED || t->seed % 3 || (t->seed * 0x9e3779b97f4a7c15u >> 20 >> k) & 3;
}

/* The passes up to the k-th again, for what it failed on. */
static dc_graph *before_pass(const trial *t, int side, uint32_t k) {
  dc_graph *g = dc_graph_clone(t->first[side]);
  for (uint32_t j = 0; j < k; j++)
    if (runs(t, j)) must(dc_pass_run(t->f->session.ops, g, dc_pipeline_pass(j)->name));
  return g;
}

/* The k-th pass; false where it fails, which is reported. */
static bool step(trial *t, int side, dc_graph *g, uint32_t k, uint64_t *hash) {
  dc_text why = {0};
  const char *pass = dc_pipeline_pass(k)->name;
  snprintf(t->f->p->doing, sizeof t->f->p->doing, "%s graph, pass %s", sides[side], pass);
  dc_status status = dc_pass_run(t->f->session.ops, g, pass);
  if (status) dc_text_puts(&why, dc_status_text(status));
  uint64_t before = *hash;
  *hash = status ? 0 : text_hash(g);
  bool good = !status && (*hash == before || agrees(t, side, g, pass, &why));
  if (!good) {
    dc_graph *again = before_pass(t, side, k);
    report(t->f, again, pass, sides[side], why.s ? why.s : "");
    dc_graph_destroy(again);
  }
  dc_status_free(status);
  dc_text_free(&why);
  return good;
}

static void run_program(trial *t, int side, const dc_graph *g, const char *what) {
  dc_text why = {0};
  snprintf(t->f->p->doing, sizeof t->f->p->doing, "%s graph, %s", sides[side], what);
  if (!agrees(t, side, g, what, &why)) report(t->f, g, what, sides[side], why.s ? why.s : "");
  dc_text_free(&why);
}

static void check_kernels(const trial *t, int side, const dc_graph *g) {
  snprintf(t->f->p->doing, sizeof t->f->p->doing, "%s graph, %s", sides[side], DC_KERNEL_TEXTS);
  dc_status status = dc_check_kernels(g);
  if (status) report(t->f, g, DC_KERNEL_TEXTS, sides[side], dc_status_text(status));
  dc_status_free(status);
}

/* Every state of the graph built anew from its flat view. */
static void check_flat_view(trial *t, int side, const dc_graph *g) {
  dc_text why = {0};
  dc_graph *rebuilt = dc_graph_clone(g);
  snprintf(t->f->p->doing, sizeof t->f->p->doing, "%s graph, %s", sides[side], DC_FLAT_VIEW);
  dc_status status = dc_check_rebuild(rebuilt);
  if (status) dc_text_puts(&why, dc_status_text(status));
  if (status || !agrees(t, side, rebuilt, DC_FLAT_VIEW, &why)) report(t->f, g, DC_FLAT_VIEW, sides[side], why.s ? why.s : "");
  dc_status_free(status);
  dc_text_free(&why);
  dc_graph_destroy(rebuilt);
}

static void choose_native(void *context, dc_graph *g, dc_nid node) {
  const fuzzer *f = context;
  dc_natives_stamp(f->session.natives, f->session.ops, g, node, NULL);
}

static bool has_operators(const dc_graph *g) {
  bool found = false;
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) found |= dc_node_at(g, g->states.v[s].scope.v[k])->kind == DC_NODE_LIBRARY;
  return found;
}

/* The same passes around operators that libraries serve. */
static void run_natives(trial *t, int side) {
  dc_graph *g = dc_graph_clone(t->first[side]);
  fuzzer f = *t->f;
  snprintf(f.p->doing, sizeof f.p->doing, "%s graph, passes around natives", sides[side]);
  for (uint32_t k = 0; dc_pipeline_pass(k); k++) {
    if (!runs(t, k)) continue;
    must(dc_pass_apply(dc_pipeline_pass(k), &(dc_pass_context){.ops = f.session.ops, .stamp = choose_native, .stamp_context = &f}, g));
    must(dc_graph_verify(g));
  }
  if (has_operators(g)) run_program(t, side, g, DC_PROGRAM_NATIVE), f.p->native++;
  dc_graph_destroy(g);
}

static void check_side(trial *t, int side) {
  dc_graph *g = dc_graph_clone(t->first[side]);
  uint64_t hash = text_hash(g), every = t->f->compile_every;
  bool good = true;
  for (uint32_t k = 0; good && dc_pipeline_pass(k); k++) {
    if (runs(t, k)) good = step(t, side, g, k, &hash);
    if (good && strcmp(dc_pipeline_pass(k)->name, "expand") == 0) check_flat_view(t, side, g);
  }
  if (good) run_program(t, side, g, DC_PROGRAM_INTERPRETED), t->f->p->programs++;
  if (good && every && t->seed % every == 0) run_program(t, side, g, DC_PROGRAM_COMPILED), t->f->p->compiled++;
  if (good) check_kernels(t, side, g);
  if (good) check_flat_view(t, side, g);
  if (good) run_natives(t, side);
  dc_graph_destroy(g);
}

/* ---- transformations ---- */

enum { TRANSFORMED_EVERY = 4 }; /* graphs: transformations and the passes after them take longer than all the rest */

/* All but InputToConstant, which takes weights as they are and not as they are given. */
static const char *const calls[] = {"MapFusion", "SubgraphFusion", "TaskletFusion", "TaskletFission", "MapExpansion", "MapCollapse", "MapTiling(tile_sizes=2)",
                                    "MapTiling(tile_sizes=3,1)", "MapTiling", "RedundantArray", "StateFusion", "ConstantFolding",
                                    "TrivialMapRangeElimination", "Vectorization"};
enum { N_CALLS = sizeof calls / sizeof *calls, STEPS = 8 };

/* One of them on the graph; false where it fails, which is reported. */
static bool transform(trial *t, int side, dc_graph *g, const char *call, uint32_t *count) {
  dc_text why = {0};
  dc_graph *before = dc_graph_clone(g);
  snprintf(t->f->p->doing, sizeof t->f->p->doing, "%s graph, %s", sides[side], call);
  dc_status status = dc_transform_apply(&(dc_transform_tools){t->f->session.ops, dc_interp_node}, g, call, NULL, count);
  if (status) dc_text_puts(&why, dc_status_text(status));
  bool changed = !status && text_hash(g) != text_hash(before);
  if (changed && !*count) dc_text_puts(&why, "changed the graph and counted nothing");
  bool good = !status && !(changed && !*count) && (!changed || agrees(t, side, g, call, &why));
  if (!good) report(t->f, before, call, sides[side], why.s ? why.s : "");
  dc_status_free(status);
  dc_text_free(&why);
  dc_graph_destroy(before);
  return good;
}

/* The gradient graph of one of both with all its results, or the reason why there is none. */
static dc_status run_gradient(trial *t, dc_graph *g, int k, dc_values *out) {
  int64_t symbols[DC_MAX_SIZES] = {0};
  dc_target target = target_of(t->f, DC_BACKEND_INTERP);
  DC_TRY(dc_pass_run(t->f->session.ops, g, "differentiate"));
  if (!dc_sizes_choose(g, t->sets[k], NULL, 0, symbols, NULL)) return dc_error(DC_ERR_VALUE, "no sizes");
  return dc_values_run(&target, g, DC_RUN_INTERPRETED, symbols, (dc_contents){NULL, t, t->sets[k]}, out);
}

/* Two graphs fail together, which is not reduced. */
static void report_gradient(const fuzzer *f, const dc_graph *graph, const char *why) {
  dc_text text = {0}, path = {0};
  mkdir(f->folder, 0777);
  dc_text_printf(&path, "%s/%llu-gradient.txt", f->folder, (unsigned long long)f->p->seed);
  dc_graph_print(graph, &text);
  write_file(path.s, text.s);
  printf("fuzz: seed %llu: differentiated after transformations: %s; the graph is in %s\n", (unsigned long long)f->p->seed, why, path.s);
  fflush(stdout);
  f->p->failures++;
  dc_text_free(&text), dc_text_free(&path);
}

/* A forward graph, transformed and then differentiated, has the gradients that it had.  Takes both. */
static void check_gradient(trial *t, dc_graph *plain, dc_graph *transformed) {
  dc_values wanted = {0}, got = {0};
  dc_difference difference;
  dc_text why = {0};
  dc_graph *before = dc_graph_clone(transformed);
  strcpy(t->f->p->doing, "gradient after transformations");
  dc_status status = run_gradient(t, plain, 0, &wanted);
  bool useful = !status;
  if (useful) status = run_gradient(t, transformed, 0, &got);
  if (useful && status && dc_status_code(status) != DC_ERR_UNSUPPORTED) dc_text_puts(&why, dc_status_text(status));
  if (useful && !status && !dc_values_same(&wanted, &got, 0, &difference)) dc_difference_print(&difference, &why);
  t->f->p->gradients += useful && !status;
  if (why.s) report_gradient(t->f, before, why.s);
  dc_status_free(status);
  dc_values_free(&wanted), dc_values_free(&got);
  dc_graph_destroy(plain), dc_graph_destroy(transformed), dc_graph_destroy(before);
  dc_text_free(&why);
}

/* A random sequence of transformations, on operators or on maps, then the passes. */
static void check_transformed(trial *t, int side) {
  trial changed = *t;
  dc_graph *g = dc_graph_clone(t->first[side]), *plain;
  uint64_t random = t->seed * 0x9e3779b97f4a7c15u + (uint64_t)side;
  bool good = true, any = false;
  if (t->seed % 4) must(dc_pass_run(t->f->session.ops, g, "expand"));
  plain = dc_graph_clone(g);
  for (int k = 0; k < STEPS && good; k++) {
    uint32_t count = 0;
    random = random * 6364136223846793005u + 1442695040888963407u;
    good = transform(t, side, g, calls[(random >> 33) % N_CALLS], &count);
    any |= count > 0, t->f->p->transformed += count;
  }
  changed.first[side] = g;
  if (good && any && !side && t->usable[0]) check_gradient(t, dc_graph_clone(plain), dc_graph_clone(g));
  if (good && any) check_side(&changed, side);
  dc_graph_destroy(g), dc_graph_destroy(plain);
}

/* Takes the graph. */
static dc_status make_graphs(trial *t, dc_graph *g) {
  dc_name wrt[256];
  uint64_t seed = t->seed;
  uint32_t n = 0;
  for (dc_cid c = 1; c < g->containers.n && n < 256; c++) {
    const dc_container *k = dc_cont(g, c);
    bool real = k->dtype == DC_F32 || k->dtype == DC_F64;
    if (real && (k->role == DC_ROLE_INPUT || k->role == DC_ROLE_PARAM)) wrt[n++] = k->name;
  }
  dc_scheduled made;
  dc_pipeline pipeline = {.passes = {.ops = t->f->session.ops, .training = seed % 16 != 15 && !dc_graph_writes_inputs(g), .wrt = wrt, .n_wrt = n},
                          .keep = (dc_keep)(seed / 7 % 3),
                          .post_autodiff = keep_first, .hook_context = t, .as_expanded = true};
  DC_TRY(dc_pipeline_run(&pipeline, g, &made));
  dc_graph_destroy(made.forward);
  dc_graph_destroy(made.backward);
  return DC_OK;
}

/* Takes the graph. */
static void try_graph(const fuzzer *f, uint64_t seed, dc_graph *g) {
  trial t = {.f = f, .seed = seed};
  f->p->seed = seed, f->p->graphs++;
  strcpy(f->p->doing, "differentiating the graph");
  choose_sets(&t, seed);
  dc_status status = make_graphs(&t, g);
  if (status) f->p->refused++;
  strcpy(f->p->doing, "interpreting the graph");
  if (!status) interpret_first(&t);
  for (int side = 0; side < 2 && !status; side++) {
    if (!t.first[side]) continue;
    check_side(&t, side);
    if (seed % TRANSFORMED_EVERY == 0) check_transformed(&t, side);
  }
  for (int k = 0; k < SETS; k++) dc_values_free(&t.forward[k]), dc_values_free(&t.backward[k]);
  dc_graph_destroy(t.first[0]);
  dc_graph_destroy(t.first[1]);
  dc_status_free(status);
}

/* ---- workers ---- */

static void work(fuzzer *f, uint64_t from, uint64_t end, uint64_t step) {
  for (uint64_t seed = from; seed < end; seed += step) {
    limit_time(SECONDS);
    f->p->seed = seed;
    try_graph(f, seed, fuzz_generate(f->session.ops, seed));
    limit_time(0);
    if (from % step == 0 && f->p->graphs % 2000 == 0) printf("fuzz: about %llu graphs\n", (unsigned long long)(f->p->graphs * step)), fflush(stdout);
  }
  dc_session_destroy(&f->session);
  exit(0);
}

static pid_t start(fuzzer *f, uint64_t from, uint64_t end, uint64_t step) {
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) exit(1);
  if (!child) work(f, from, end, step);
  return child;
}

/* A worker that crashed is replaced by one that goes on behind the graph at fault. */
static void supervise(fuzzer *f, uint64_t first, uint64_t end, uint32_t jobs) {
  progress *all = mmap(NULL, sizeof(progress) * MAX_JOBS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), sum = {0};
  pid_t workers[MAX_JOBS];
  if (all == MAP_FAILED) exit(1);
  for (uint32_t j = 0; j < jobs; j++) f->p = &all[j], workers[j] = start(f, first + j, end, jobs);
  int state;
  for (pid_t child; (child = wait(&state)) > 0;)
    for (uint32_t j = 0; j < jobs; j++) {
      if (workers[j] != child || (WIFEXITED(state) && WEXITSTATUS(state) == 0)) continue;
      printf("fuzz: seed %llu: %s: %s %d\n", (unsigned long long)all[j].seed, all[j].doing, WIFSIGNALED(state) ? "signal" : "exit", WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
      all[j].failures++;
      f->p = &all[j];
      workers[j] = start(f, all[j].seed + jobs, end, jobs);
    }
  for (uint32_t j = 0; j < jobs; j++) {
    sum.graphs += all[j].graphs, sum.refused += all[j].refused, sum.compared += all[j].compared, sum.failures += all[j].failures;
    sum.programs += all[j].programs, sum.compiled += all[j].compiled, sum.native += all[j].native, sum.transformed += all[j].transformed, sum.gradients += all[j].gradients;
  }
  printf("graphs %llu, of which refused %llu; compared %llu; programs: interpreted %llu, with natives %llu, compiled %llu; places transformed %llu; their gradients %llu; failures %llu\n",
         (unsigned long long)sum.graphs, (unsigned long long)sum.refused, (unsigned long long)sum.compared, (unsigned long long)sum.programs,
         (unsigned long long)sum.native, (unsigned long long)sum.compiled, (unsigned long long)sum.transformed, (unsigned long long)sum.gradients, (unsigned long long)sum.failures);
  dc_session_destroy(&f->session);
  exit(sum.failures != 0);
}

/* Graphs of operators from files, as seeds 0, 1, ... */
static void try_text(fuzzer *f, const char *path, uint64_t seed) {
  char *text = calloc(1, 1 << 22);
  FILE *in = fopen(path, "rb");
  dc_graph *g = NULL;
  if (!in || !fread(text, 1, (1 << 22) - 1, in)) must(dc_error(DC_ERR_VALUE, "cannot read '%s'", path));
  fclose(in);
  must(dc_graph_parse(text, &g));
  free(text);
  f->p = &(progress){.seed = seed};
  try_graph(f, seed, g);
  printf("%s: compared %llu; failures %llu\n", path, (unsigned long long)f->p->compared, (unsigned long long)f->p->failures);
  fflush(stdout);
}

int main(int argc, char **argv) {
  fuzzer f = {.compile_every = 0, .folder = "fuzz-found"};
  uint64_t graphs = 1000, seed = 1, jobs = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
  setenv("DCML_VERIFY", "1", 0);
  omp_set_num_threads(1); /* a process that reduces has no threads of the one that found the failure */
  for (int k = 1; k + 1 < argc; k++) {
    if (argv[k][0] != '-') continue;
    uint64_t value = strtoull(argv[k + 1], NULL, 10);
    if (strcmp(argv[k], "-graphs") == 0) graphs = value;
    else if (strcmp(argv[k], "-seed") == 0) seed = value;
    else if (strcmp(argv[k], "-jobs") == 0) jobs = value;
    else if (strcmp(argv[k], "-compile") == 0) f.compile_every = value;
    else if (strcmp(argv[k], "-folder") == 0) f.folder = argv[k + 1];
  }
  if (jobs < 1 || jobs > MAX_JOBS) jobs = 1;
  must(dc_session_create(getenv("DCML_LIBRARIES"), NULL, &f.session));
  for (int k = 1; k < argc; k++) {
    if (argv[k][0] == '-') k++;
    else for (uint64_t j = 0; j < DC_SIZE_SETS; j++) try_text(&f, argv[k], seed + j), graphs = 0;
  }
  supervise(&f, seed, seed + graphs, (uint32_t)jobs);
}
