/* Do two graphs compute the same?  The data of an input depends on its name alone, so that a graph and what a pass made
 * of it see the same. */
#include "fuzz/agree.h"

#include <stdlib.h>
#include <string.h>

#include "c/graph_run.h"
#include "passes/passes.h"

/* ---- sizes ---- */

bool fuzz_sizes(const dc_graph *g, uint32_t set, int64_t *symbols) {
  static const int64_t sizes[FUZZ_SIZE_SETS][3] = {{3, 5, 2}, {4, 2, 7}, {2, 3, 5}, {7, 4, 3}, {3, 3, 3}, {2, 2, 5},
                                                   {1, 4, 1}, {5, 1, 1}, {1, 1, 1}, {0, 3, 2}, {4, 0, 1}, {0, 0, 0}};
  if (g->pool.symbols.n > FUZZ_SYMBOLS) return false;
  for (dc_sym s = 1; s < g->pool.symbols.n; s++) {
    const char *name = dc_name_text(&g->names, g->pool.symbols.v[s].name);
    uint32_t k = !name[1] && name[0] >= 'A' && name[0] <= 'C' ? (uint32_t)(name[0] - 'A') : (s - 1) % 3;
    symbols[s] = sizes[set][k];
    if (symbols[s] < g->pool.symbols.v[s].min) return false;
  }
  for (uint32_t k = 0; k < g->equalities.n; k++) {
    dc_equality e = g->equalities.v[k];
    if (dc_ix_eval(&g->pool, e.a, symbols, NULL) != dc_ix_eval(&g->pool, e.b, symbols, NULL)) return false;
  }
  for (dc_cid c = 1; c < g->containers.n; c++)
    for (uint32_t d = 0; d < dc_cont(g, c)->rank && dc_cont(g, c)->shape; d++)
      if (dc_ix_eval(&g->pool, dc_cont(g, c)->shape[d], symbols, NULL) < 0) return false;
  return true;
}

/* ---- data ---- */

/* N of a name "below_N" or "distinct_N", perhaps with a suffix; 3 for others. */
static int64_t bound_of(const dc_graph *g, const char *name, const int64_t *symbols) {
  const char *at = strncmp(name, "below_", 6) == 0 ? name + 6 : strncmp(name, "distinct_", 9) == 0 ? name + 9 : NULL;
  if (!at) return 3;
  if (*at >= '0' && *at <= '9') return strtoll(at, NULL, 10);
  for (dc_sym s = 1; s < g->pool.symbols.n; s++) {
    const char *symbol = dc_name_text(&g->names, g->pool.symbols.v[s].name);
    size_t n = strlen(symbol);
    if (strncmp(at, symbol, n) == 0 && (at[n] == 0 || at[n] == '_')) return symbols[s];
  }
  return 1;
}

static void fill_ints(const dc_graph *g, dc_cid c, const int64_t *symbols, uint64_t state, void *data, int64_t n) {
  const char *name = dc_cont_name(g, c);
  int64_t bound = bound_of(g, name, symbols), first = (int64_t)(state >> 40);
  for (int64_t k = 0; k < n; k++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int64_t value = bound <= 0 ? 0 : strncmp(name, "distinct", 8) == 0 ? (first + k) % bound : (int64_t)(state >> 33) % bound;
    if (dc_cont(g, c)->dtype == DC_I64) ((int64_t *)data)[k] = value;
    else if (dc_cont(g, c)->dtype == DC_I32) ((int32_t *)data)[k] = (int32_t)value;
    else ((uint8_t *)data)[k] = (uint8_t)(value & 1);
  }
}

static void fill(const dc_graph *g, dc_cid c, const int64_t *symbols, uint64_t seed, void *data, int64_t n) {
  uint64_t state = dc_hash_bytes(seed, dc_cont_name(g, c), strlen(dc_cont_name(g, c)));
  dc_dtype type = (dc_dtype)dc_cont(g, c)->dtype;
  if (type != DC_F32 && type != DC_F64) {
    fill_ints(g, c, symbols, state, data, n);
    return;
  }
  for (int64_t k = 0; k < n; k++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double value = 3 * ((double)(state >> 33) / 2147483648.0) - 1.5;
    if (type == DC_F32) ((float *)data)[k] = (float)value;
    else ((double *)data)[k] = value;
  }
}

static bool is_given(const dc_graph *g, dc_cid c, bool saved) {
  const dc_container *k = dc_cont(g, c);
  return k->role == DC_ROLE_INPUT || k->role == DC_ROLE_PARAM || (saved && k->role == DC_ROLE_SAVED);
}

/* In a backward graph nobody writes what is saved. */
static bool reads_saved(const dc_graph *g) {
  bool any = false;
  for (dc_cid c = 1; c < g->containers.n; c++) any |= dc_cont(g, c)->role == DC_ROLE_SAVED;
  if (!any) return false;
  bool *written = calloc(g->containers.n, 1), found = false;
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) dc_node_mark(g, g->states.v[s].scope.v[k], DC_USE_WRITE, written);
  for (dc_cid c = 1; c < g->containers.n; c++) found |= dc_cont(g, c)->role == DC_ROLE_SAVED && !written[dc_container_root(g, c)];
  free(written);
  return found;
}

/* Room for every container that views no other, full of NaN, with the contents of inputs and constants. */
static void make_buffers(fuzz_values *v, uint64_t seed, const fuzz_values *given) {
  const dc_graph *g = v->graph;
  bool saved = reads_saved(g);
  v->buffers = calloc(g->containers.n, sizeof *v->buffers);
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    if (k->alias_of || (k->rank && !k->shape)) continue;
    int64_t n = run_elements(g, c, v->symbols);
    size_t bytes = (size_t)n * (size_t)dc_dtype_bytes((dc_dtype)k->dtype);
    v->buffers[c] = malloc(bytes + 8);
    memset(v->buffers[c], 0xFF, bytes + 8);
    dc_cid from = given ? dc_container_find(given->graph, dc_cont_name(g, c)) : 0;
    if (k->role == DC_ROLE_CONST) memcpy(v->buffers[c], k->data, k->data_bytes);
    else if (is_given(g, c, saved) && from && given->buffers[from]) memcpy(v->buffers[c], given->buffers[from], bytes);
    else if (is_given(g, c, saved)) fill(g, c, v->symbols, seed, v->buffers[c], n);
  }
}

static void make_views(fuzz_values *v) {
  const dc_graph *g = v->graph;
  for (dc_cid c = 1; c < g->containers.n; c++) {
    if (!dc_cont(g, c)->alias_of) continue;
    int64_t offset = 0;
    dc_cid root = c;
    for (; dc_cont(g, root)->alias_of; root = dc_cont(g, root)->alias_of)
      if (dc_cont(g, root)->alias_offset) offset += dc_ix_eval(&g->pool, dc_cont(g, root)->alias_offset, v->symbols, NULL);
    v->buffers[c] = (char *)v->buffers[root] + offset * dc_dtype_bytes((dc_dtype)dc_cont(g, c)->dtype);
  }
}

void fuzz_values_free(fuzz_values *v) {
  for (dc_cid c = 1; v->graph && v->buffers && c < v->graph->containers.n; c++)
    if (!dc_cont(v->graph, c)->alias_of) free(v->buffers[c]);
  free(v->buffers);
  dc_graph_destroy(v->graph);
  *v = (fuzz_values){0};
}

/* ---- registers ---- */

/* The innermost map that holds all uses of a register; reductions set what they combine into, so that none is entered. */
static dc_nid home_of(const dc_graph *g, const dc_scope *scope, dc_nid around, dc_cid c) {
  dc_nid only = 0;
  for (uint32_t k = 0; k < scope->n; k++) {
    if (!dc_node_touches_one(g, scope->v[k], DC_USE_READ | DC_USE_WRITE, c)) continue;
    if (only) return around;
    only = scope->v[k];
  }
  const dc_node *node = only ? dc_node_at(g, only) : NULL;
  return node && node->kind == DC_NODE_MAP && node->map.schedule != DC_MAP_REDUCE ? home_of(g, &node->map.body, only, c) : around;
}

static dc_nid spoil(dc_graph *g, dc_cid c) {
  dc_container k = *dc_cont(g, c);
  dc_param params[8];
  dc_ex index[8], zero = dc_ex_int(&g->pool, 0);
  for (uint32_t d = 0; d < k.rank; d++) {
    params[d] = dc_param_new(&g->pool, "x", zero, k.shape[d], 0);
    index[d] = dc_ex_par(&g->pool, params[d]);
  }
  bool real = k.dtype == DC_F32 || k.dtype == DC_F64;
  dc_nid tasklet = dc_node_tasklet(g, c, DC_WCR_NONE, index, k.rank, 0, dc_ex_const(&g->pool, (dc_dtype)k.dtype, real ? (double)NAN : 77));
  return dc_node_wrap(g, DC_MAP_PARALLEL, params, k.rank, tasklet);
}

/* A register lives for one iteration; the interpreter keeps it in memory, so each iteration begins by spoiling it. */
static void spoil_registers(dc_graph *g) {
  for (dc_cid c = 1; c < g->containers.n; c++) {
    if (dc_cont(g, c)->storage != DC_STORE_REGISTER || dc_cont(g, c)->rank > 8) continue;
    for (uint32_t s = 0; s < g->states.n; s++) {
      dc_nid home = home_of(g, &g->states.v[s].scope, 0, c);
      if (!home) continue;
      dc_scope body = {0}, rest = dc_node_at(g, home)->map.body;
      dc_scope_push(g, &body, spoil(g, c));
      for (uint32_t k = 0; k < rest.n; k++) dc_scope_push(g, &body, rest.v[k]);
      dc_node_at(g, home)->map.body = body;
    }
  }
}

/* ---- running ---- */

dc_status fuzz_interpret(dc_ops *ops, const dc_graph *graph, const int64_t *symbols, uint64_t seed, const fuzz_values *given, fuzz_values *out) {
  *out = (fuzz_values){.graph = dc_graph_clone(graph)};
  dc_graph *g = out->graph;
  memcpy(out->symbols, symbols, sizeof out->symbols);
  DC_TRY(dc_pass_expand(ops, g));
  spoil_registers(g);
  make_buffers(out, seed, given);
  make_views(out);
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) DC_TRY(dc_interp_node(g, g->states.v[s].scope.v[k], out->buffers, out->symbols));
  return DC_OK;
}

static dc_status run_program(dc_program *program, fuzz_values *v) {
  dc_binding *binding;
  DC_TRY(dc_program_bind(program, v->symbols, &binding));
  uint64_t bytes = dc_binding_saved_bytes(binding);
  char *saved = calloc(1, bytes + 8);
  dc_status status = dc_program_run(program, binding, v->buffers, saved);
  for (dc_cid c = 1; c < v->graph->containers.n && !status && bytes; c++) {
    const dc_container *k = dc_cont(v->graph, c);
    if (k->role == DC_ROLE_SAVED && !k->is_output && !k->alias_of) memcpy(v->buffers[c], saved + dc_binding_saved_offset(binding, c), dc_binding_bytes(binding, c));
  }
  free(saved);
  dc_binding_release(binding);
  return status;
}

dc_status fuzz_execute(const dc_target *target, const dc_graph *graph, const int64_t *symbols, uint64_t seed, const fuzz_values *given, fuzz_values *out) {
  *out = (fuzz_values){.graph = dc_graph_clone(graph)};
  memcpy(out->symbols, symbols, sizeof out->symbols);
  make_buffers(out, seed, given);
  make_views(out);
  dc_program *program;
  DC_TRY(dc_program_create(target, dc_graph_clone(graph), &program));
  dc_status status = run_program(program, out);
  dc_program_destroy(program);
  return status;
}

/* ---- comparing ---- */

static bool is_close(double a, double b, double tolerance, double size) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b || fabs(a - b) <= tolerance * (1 + size);
}

static bool same_contents(const fuzz_values *wanted, dc_cid w, const fuzz_values *got, dc_cid g, dc_text *why) {
  dc_dtype type = (dc_dtype)dc_cont(wanted->graph, w)->dtype;
  int64_t n = run_elements(wanted->graph, w, wanted->symbols), wrong = 0, first = 0;
  if (run_elements(got->graph, g, got->symbols) != n || dc_cont(got->graph, g)->dtype != type) {
    dc_text_printf(why, "'%s' has another shape or type", dc_cont_name(wanted->graph, w));
    return false;
  }
  double size = 0;
  for (int64_t k = 0; k < n; k++) {
    double value = fabs(run_load(type, wanted->buffers[w], k));
    if (isfinite(value)) size = fmax(size, value);
  }
  for (int64_t k = n; k-- > 0;)
    if (!is_close(run_load(type, wanted->buffers[w], k), run_load(type, got->buffers[g], k), type == DC_F32 ? 1e-3 : 1e-8, size)) wrong++, first = k;
  if (wrong)
    dc_text_printf(why, "'%s' differs in %lld of %lld elements; element %lld is %.9g, expected %.9g", dc_cont_name(wanted->graph, w), (long long)wrong,
                   (long long)n, (long long)first, run_load(type, got->buffers[g], first), run_load(type, wanted->buffers[w], first));
  return !wrong;
}

bool fuzz_same(const fuzz_values *wanted, const fuzz_values *got, dc_text *why) {
  const dc_graph *w = wanted->graph, *g = got->graph;
  if (w->outputs.n != g->outputs.n) {
    dc_text_puts(why, "the number of outputs differs");
    return false;
  }
  for (uint32_t k = 0; k < w->outputs.n; k++)
    if (!same_contents(wanted, w->outputs.v[k], got, g->outputs.v[k], why)) return false;
  for (dc_cid c = 1; c < w->containers.n; c++) {
    if (dc_cont(w, c)->role != DC_ROLE_SAVED) continue;
    dc_cid other = dc_container_find(g, dc_cont_name(w, c));
    if (!other || dc_cont(g, other)->role != DC_ROLE_SAVED) {
      dc_text_printf(why, "'%s' is no longer saved", dc_cont_name(w, c));
      return false;
    }
    if (!same_contents(wanted, c, got, other, why)) return false;
  }
  return true;
}
