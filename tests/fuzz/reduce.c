/* Reduction: edits that make a graph smaller are kept while the same thing still goes wrong.  An edit is named by a
 * number, so that all of them can be tried in turn on clones. */
#include "fuzz/reduce.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c/graph_run.h"
#include "passes/passes.h"

/* ---- trying ---- */

static bool has_nan(const fuzz_values *v) {
  for (uint32_t k = 0; k < v->graph->outputs.n; k++) {
    dc_cid c = v->graph->outputs.v[k];
    int64_t n = run_elements(v->graph, c, v->symbols);
    for (int64_t e = 0; e < n; e++)
      if (isnan(run_load((dc_dtype)dc_cont(v->graph, c)->dtype, v->buffers[c], e))) return true;
  }
  return false;
}

static fuzz_verdict try_sizes(const dc_target *target, const dc_graph *before, const dc_graph *after, const char *what, uint32_t set, dc_text *why) {
  fuzz_values wanted = {0}, got = {0};
  int64_t symbols[FUZZ_SYMBOLS] = {0};
  if (!fuzz_sizes(before, set, symbols)) return FUZZ_USELESS;
  dc_status status = fuzz_interpret(target->ops, before, symbols, set, NULL, &wanted);
  fuzz_verdict verdict = status || has_nan(&wanted) ? FUZZ_USELESS : FUZZ_AGREES;
  dc_target chosen = *target;
  chosen.backend = strcmp(what, FUZZ_COMPILED) == 0 ? DC_BACKEND_CPU : DC_BACKEND_INTERP;
  bool is_program = strchr(what, ' ');
  if (!verdict) {
    status = is_program ? fuzz_execute(&chosen, after, symbols, set, NULL, &got) : fuzz_interpret(target->ops, after, symbols, set, NULL, &got);
    if (status) dc_text_puts(why, dc_status_text(status));
    verdict = status ? FUZZ_REFUSES : fuzz_same(&wanted, &got, why) ? FUZZ_AGREES : FUZZ_DIFFERS;
  }
  dc_status_free(status);
  fuzz_values_free(&wanted), fuzz_values_free(&got);
  if (verdict == FUZZ_DIFFERS || verdict == FUZZ_REFUSES) {
    dc_text_puts(why, " (");
    for (dc_sym s = 1; s < before->pool.symbols.n; s++)
      dc_text_printf(why, "%s%s = %lld", s > 1 ? ", " : "", dc_name_text(&before->names, before->pool.symbols.v[s].name), (long long)symbols[s]);
    dc_text_puts(why, ")");
  }
  return verdict;
}

fuzz_verdict fuzz_try(const dc_target *target, const dc_graph *graph, const char *what, dc_text *why) {
  dc_graph *after = dc_graph_clone(graph);
  fuzz_verdict verdict = FUZZ_USELESS;
  dc_status status = dc_graph_verify(graph);
  if (!status && !strchr(what, ' ')) {
    status = dc_pass_run(target->ops, after, what);
    if (status) dc_text_puts(why, dc_status_text(status)), verdict = FUZZ_REFUSES;
  }
  for (uint32_t set = 0; set < FUZZ_SIZE_SETS && !status && verdict != FUZZ_DIFFERS && verdict != FUZZ_REFUSES; set++) {
    fuzz_verdict now = try_sizes(target, graph, after, what, set, why);
    if (now != FUZZ_USELESS) verdict = now;
  }
  dc_status_free(status);
  dc_graph_destroy(after);
  return verdict;
}

fuzz_verdict fuzz_try_apart(const dc_target *target, const dc_graph *graph, const char *what) {
  int state;
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    dc_text why = {0};
    for (int k = 1; k < 32; k++) signal(k, SIG_DFL);
    if (!freopen("/dev/null", "w", stderr)) _exit(FUZZ_USELESS);
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = 10}}, NULL);
    _exit(fuzz_try(target, graph, what, &why));
  }
  if (child < 0 || waitpid(child, &state, 0) != child) return FUZZ_USELESS;
  return WIFEXITED(state) && WEXITSTATUS(state) <= FUZZ_USELESS ? (fuzz_verdict)WEXITSTATUS(state) : FUZZ_CRASHES;
}

/* ---- edits ---- */

typedef struct {
  dc_graph *g;
  uint32_t left; /* edits to pass over before the one that is made */
  bool made;
} edit;

static bool is_next(edit *e) {
  if (e->made) return false;
  if (e->left) return e->left--, false;
  return e->made = true;
}

static void drop_output(edit *e) {
  for (uint32_t k = 0; k < e->g->outputs.n && e->g->outputs.n > 1; k++) {
    if (!is_next(e)) continue;
    dc_cont(e->g, e->g->outputs.v[k])->is_output = false;
    for (uint32_t j = k; j + 1 < e->g->outputs.n; j++) e->g->outputs.v[j] = e->g->outputs.v[j + 1];
    e->g->outputs.n--;
    return;
  }
}

/* A run of nodes of one scope, from all of them to single ones. */
static void drop_nodes(edit *e, dc_scope *scope, uint32_t level) {
  for (uint32_t size = scope->n; size && !e->made; size = size > 1 ? (size + 1) / 2 : 0) {
    for (uint32_t k = 0; k < scope->n && !e->made; k += size) {
      if (!is_next(e)) continue;
      uint32_t end = k + size < scope->n ? k + size : scope->n;
      for (uint32_t j = end; j < scope->n; j++) scope->v[k + j - end] = scope->v[j];
      scope->n -= end - k;
    }
  }
  for (uint32_t k = 0; k < scope->n && !e->made; k++) {
    dc_node *node = dc_node_at(e->g, scope->v[k]);
    if (node->kind == DC_NODE_MAP) drop_nodes(e, &node->map.body, level + 1);
  }
}

static void simplify_tasklet(edit *e, dc_tasklet *t) {
  const dc_pool *pool = &e->g->pool;
  if (t->guard && is_next(e)) t->guard = 0;
  const dc_exnode *value = dc_ex_node(pool, t->value);
  for (uint32_t k = 0; k < value->nargs && value->op != DC_EX_READ && value->op != DC_EX_LINEAR; k++) {
    dc_ex arg = dc_ex_arg(pool, t->value, k);
    if (dc_ex_dtype(pool, arg) == dc_ex_dtype(pool, t->value) && is_next(e)) {
      t->value = arg;
      return;
    }
  }
  dc_dtype type = dc_ex_dtype(pool, t->value);
  if (value->nargs && (type == DC_F32 || type == DC_F64) && is_next(e)) t->value = dc_ex_const(&e->g->pool, type, 0.5);
}

static void simplify_values(edit *e, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n && !e->made; k++) {
    dc_node *node = dc_node_at(e->g, scope->v[k]);
    if (node->kind == DC_NODE_MAP) simplify_values(e, &node->map.body);
    if (node->kind == DC_NODE_TASKLET) simplify_tasklet(e, &node->tasklet);
  }
}

typedef struct {
  dc_sym symbol;
  dc_ex value;
} replacement;

static dc_ex replace_symbol(void *context, dc_pool *pool, dc_ex leaf) {
  const replacement *r = context;
  const dc_exnode *node = dc_ex_node(pool, leaf);
  return node->op == DC_EX_SYM && node->ref == r->symbol ? r->value : leaf;
}

static void fix_symbol(dc_graph *g, replacement r) {
  for (dc_cid c = 1; c < g->containers.n; c++) {
    dc_container *k = dc_cont(g, c);
    for (uint32_t d = 0; d < k->rank && k->shape; d++) k->shape[d] = dc_ex_rewrite(&g->pool, k->shape[d], replace_symbol, &r);
    for (uint32_t d = 0; d < k->rank && k->strides; d++) k->strides[d] = dc_ex_rewrite(&g->pool, k->strides[d], replace_symbol, &r);
    if (k->alias_offset) k->alias_offset = dc_ex_rewrite(&g->pool, k->alias_offset, replace_symbol, &r);
  }
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) dc_node_rewrite(g, g->states.v[s].scope.v[k], replace_symbol, &r);
}

static void fix_symbols(edit *e) {
  dc_pool *pool = &e->g->pool;
  for (dc_sym s = 1; s < pool->symbols.n && !e->made; s++) {
    for (int64_t value = 1; value <= 3 && !e->made; value++)
      if (is_next(e)) fix_symbol(e->g, (replacement){s, dc_ex_int(pool, value)});
    for (dc_sym other = 1; other < s && !e->made; other++)
      if (is_next(e)) fix_symbol(e->g, (replacement){s, dc_ex_sym(pool, other)});
  }
}

/* ---- repair ---- */

typedef struct {
  const dc_graph *g;
  bool *read, *written;
} use_sets;

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  use_sets *u = context;
  (void)by;
  if (use == DC_USE_READ) u->read[dc_container_root(u->g, c)] = true;
  else u->written[dc_container_root(u->g, c)] = true;
}

static void find_uses(const dc_graph *g, use_sets *u) {
  *u = (use_sets){g, calloc(g->containers.n, 1), calloc(g->containers.n, 1)};
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) dc_node_uses(g, g->states.v[s].scope.v[k], note_use, u);
}

/* What is read but no longer written becomes an input, what is saved an input or an output, and what nobody writes is no output. */
static void repair(dc_graph *g) {
  use_sets u;
  find_uses(g, &u);
  for (dc_cid c = 1; c < g->containers.n; c++) {
    dc_container *k = dc_cont(g, c);
    if (k->role == DC_ROLE_SAVED && u.written[c]) {
      k->role = DC_ROLE_TEMP;
      if (!k->is_output) dc_graph_mark_output(g, c);
    }
    bool is_open = k->role == DC_ROLE_TEMP && !k->alias_of && k->storage == DC_STORE_HEAP && u.read[c] && !u.written[c];
    if (!is_open && k->role != DC_ROLE_PARAM && k->role != DC_ROLE_SAVED) continue;
    k->role = DC_ROLE_INPUT;
    DC_PUSH(&g->arena, &g->inputs, c);
  }
  uint32_t n = 0;
  for (uint32_t k = 0; k < g->outputs.n; k++) {
    dc_cid c = g->outputs.v[k];
    if (u.written[dc_container_root(g, c)]) g->outputs.v[n++] = c;
    else dc_cont(g, c)->is_output = false;
  }
  g->outputs.n = n;
  free(u.read), free(u.written);
}

/* The k-th edit on a clone; NULL when there are no more. */
static dc_graph *edited(const dc_graph *g, uint32_t k) {
  edit e = {dc_graph_clone(g), k, false};
  drop_output(&e);
  for (uint32_t s = 0; s < e.g->states.n && !e.made; s++) drop_nodes(&e, &e.g->states.v[s].scope, 0);
  if (!e.made) fix_symbols(&e);
  for (uint32_t s = 0; s < e.g->states.n && !e.made; s++) simplify_values(&e, &e.g->states.v[s].scope);
  if (e.made) return repair(e.g), e.g;
  dc_graph_destroy(e.g);
  return NULL;
}

/* ---- text ---- */

static bool is_word(int c) { return isalnum(c) || c == '_'; }

static uint32_t count_word(const char *text, const char *word, size_t n) {
  uint32_t count = 0;
  for (const char *at = text; (at = strstr(at, word)); at += n)
    count += (at == text || !is_word(at[-1])) && !is_word(at[n]);
  return count;
}

/* The text without declarations of what is not used. */
static void prune(const char *text, dc_text *out) {
  for (const char *line = text, *end; *line; line = end) {
    end = strchr(line, '\n') ? strchr(line, '\n') + 1 : line + strlen(line);
    static const char *const kinds[] = {"  symbol ", "  input ", "  temp ", "  param ", "  const "};
    bool keep = true;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      size_t n = strlen(kinds[k]), m = 0;
      if (strncmp(line, kinds[k], n)) continue;
      while (is_word(line[n + m])) m++;
      char *name = strndup(line + n, m);
      keep = count_word(text, name, m) > 1;
      free(name);
    }
    if (keep) dc_text_printf(out, "%.*s", (int)(end - line), line);
  }
}

/* Only what crashes needs a process for each try. */
static fuzz_verdict try_again(const dc_target *target, const dc_graph *graph, const char *what, fuzz_verdict wanted) {
  dc_text why = {0};
  fuzz_verdict verdict = wanted == FUZZ_CRASHES ? fuzz_try_apart(target, graph, what) : fuzz_try(target, graph, what, &why);
  dc_text_free(&why);
  return verdict;
}

static void write_text(const dc_target *target, const dc_graph *g, const char *what, fuzz_verdict verdict, dc_text *out) {
  dc_text full = {0}, pruned = {0}, again = {0};
  dc_graph *parsed = NULL;
  dc_graph_print(g, &full);
  prune(full.s, &again);
  prune(again.s, &pruned);
  dc_status status = dc_graph_parse(pruned.s, &parsed);
  bool good = !status && try_again(target, parsed, what, verdict) == verdict;
  dc_text_puts(out, good ? pruned.s : full.s);
  dc_status_free(status);
  dc_graph_destroy(parsed);
  dc_text_free(&full), dc_text_free(&pruned), dc_text_free(&again);
}

/* Tries every edit once, from the k-th on; after a good one again from `back_to_first` or from the same place. */
static dc_graph *reduce_once(const dc_target *target, dc_graph *best, const char *what, fuzz_verdict verdict, bool back_to_first) {
  for (uint32_t k = 0, tries = 0; tries < 5000; tries++) {
    dc_graph *next = edited(best, k);
    if (!next) break;
    bool better = next->outputs.n && try_again(target, next, what, verdict) == verdict;
    dc_graph_destroy(better ? best : next);
    if (better) best = next;
    if (!better) k++;
    else if (back_to_first) k = 0;
  }
  return best;
}

void fuzz_reduce(const dc_target *target, const dc_graph *graph, const char *what, dc_text *out) {
  dc_graph *best = dc_graph_clone(graph);
  repair(best);
  fuzz_verdict verdict = fuzz_try_apart(target, best, what);
  bool fails = verdict != FUZZ_AGREES && verdict != FUZZ_USELESS;
  if (fails) best = reduce_once(target, best, what, verdict, false);
  if (fails) best = reduce_once(target, best, what, verdict, true); /* what an edit made possible may lie before it */
  if (!fails) dc_text_puts(out, "# does not fail by itself on random data\n");
  write_text(target, best, what, verdict, out);
  dc_graph_destroy(best);
}
