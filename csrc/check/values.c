/* See values.h. */
#include "check/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/interp/value.h"
#include "passes/pipeline.h"

static const uint64_t MAX_BYTES = (uint64_t)4 << 30; /* of the contents of a graph: the interpreter is slow long before */

/* ---- sizes ---- */

static int64_t size_of(const char *name, uint32_t set, const dc_size *given, uint32_t n_given) {
  static const int64_t sizes[DC_SIZE_SETS][3] = {{3, 5, 2}, {4, 2, 7}, {2, 3, 5}, {7, 4, 3}, {3, 3, 3}, {2, 2, 5},
                                                 {1, 4, 1}, {5, 1, 1}, {1, 1, 1}, {0, 3, 2}, {4, 0, 1}, {0, 0, 0}};
  for (uint32_t k = 0; k < n_given; k++)
    if (strcmp(given[k].name, name) == 0) return given[k].value;
  bool is_letter = !name[1] && name[0] >= 'A' && name[0] <= 'C';
  return sizes[set][is_letter ? (uint64_t)(name[0] - 'A') : dc_hash_bytes(1, name, strlen(name)) % 3];
}

static bool refuse(dc_text *why, const char *what) {
  if (why) dc_text_puts(why, what);
  return false;
}

static bool suits(const dc_graph *g, const int64_t *symbols, dc_text *why) {
  for (uint32_t k = 0; k < g->equalities.n; k++) {
    dc_equality e = g->equalities.v[k];
    if (dc_ix_eval(&g->pool, e.a, symbols, NULL) == dc_ix_eval(&g->pool, e.b, symbols, NULL)) continue;
    if (why) dc_ex_print(g, e.a, why), dc_text_puts(why, " and "), dc_ex_print(g, e.b, why);
    return refuse(why, " must be equal");
  }
  for (dc_cid c = 1; c < g->containers.n; c++)
    for (uint32_t d = 0; d < dc_cont(g, c)->rank && dc_cont(g, c)->shape; d++) {
      if (dc_ix_eval(&g->pool, dc_cont(g, c)->shape[d], symbols, NULL) >= 0) continue;
      if (why) dc_text_printf(why, "'%s' would have a negative extent, ", dc_cont_name(g, c)), dc_ex_print(g, dc_cont(g, c)->shape[d], why);
      return false;
    }
  return true;
}

bool dc_sizes_choose(const dc_graph *g, uint32_t set, const dc_size *given, uint32_t n_given, int64_t *symbols, dc_text *why) {
  if (g->pool.symbols.n > DC_MAX_SIZES) return refuse(why, "the graph has too many symbols");
  for (dc_sym s = 1; s < g->pool.symbols.n; s++) {
    const char *name = dc_name_text(&g->names, g->pool.symbols.v[s].name);
    symbols[s] = size_of(name, set, given, n_given);
    if (symbols[s] >= g->pool.symbols.v[s].min) continue;
    if (why) dc_text_printf(why, "%s is at least %lld, not %lld", name, (long long)g->pool.symbols.v[s].min, (long long)symbols[s]);
    return false;
  }
  return suits(g, symbols, why);
}

dc_status dc_values_elements(const dc_graph *g, dc_cid c, const int64_t *symbols, int64_t *out) {
  const dc_container *k = dc_cont(g, c);
  uint64_t bytes = (uint64_t)dc_dtype_bytes((dc_dtype)k->dtype);
  if (k->dtype == DC_NOTYPE || (k->rank && !k->shape) || !bytes)
    return dc_error(DC_ERR_SHAPE, "'%s' has no shape, or no type of numbers", dc_cont_name(g, c));
  *out = 1;
  for (uint32_t d = 0; d < k->rank; d++) {
    int64_t extent = dc_ix_eval(&g->pool, k->shape[d], symbols, NULL);
    if (extent < 0 || __builtin_mul_overflow(*out, extent, out) || *out > (int64_t)(MAX_BYTES / bytes))
      return dc_error(DC_ERR_MEMORY, "'%s' would take more than %d GiB", dc_cont_name(g, c), (int)(MAX_BYTES >> 30));
  }
  return DC_OK;
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

void dc_values_sample(const dc_graph *g, dc_cid c, const int64_t *symbols, uint64_t seed, void *data, int64_t n) {
  const char *name = dc_cont_name(g, c);
  uint64_t state = dc_hash_bytes(seed, name, strlen(name));
  dc_dtype type = (dc_dtype)dc_cont(g, c)->dtype;
  bool is_float = dc_dtype_is_float(type), is_distinct = strncmp(name, "distinct", 8) == 0;
  int64_t bound = type == DC_BOOL ? 2 : bound_of(g, name, symbols), first = (int64_t)(state >> 40);
  for (int64_t k = 0; k < n; k++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    dc_scalar value = {.f = 3 * ((double)(state >> 33) / 2147483648.0) - 1.5};
    if (!is_float) value.i = bound <= 0 ? 0 : is_distinct ? (first + k) % bound : (int64_t)(state >> 33) % bound;
    dc_scalar_store(type, data, k, dc_scalar_convert(is_float ? DC_F64 : DC_I64, type, value));
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

static dc_status fill(const dc_values *v, dc_cid c, bool saved, dc_contents contents, int64_t n, size_t bytes) {
  const dc_container *k = dc_cont(v->graph, c);
  const char *name = dc_cont_name(v->graph, c);
  uint64_t found = 0;
  const void *data = NULL;
  if (k->role == DC_ROLE_CONST) data = k->data, found = k->data_bytes;
  else if (!is_given(v->graph, c, saved)) return DC_OK;
  else if (contents.find) data = contents.find(contents.context, name, &found);
  if (data && found != bytes)
    return dc_error(DC_ERR_SHAPE, "'%s' takes %zu bytes, %llu were given", name, bytes, (unsigned long long)found);
  if (data) memcpy(v->buffers[c], data, bytes);
  else dc_values_sample(v->graph, c, v->symbols, contents.seed, v->buffers[c], n);
  return DC_OK;
}

/* Room for every container that views no other, full of NaN, with the contents of inputs and constants. */
static dc_status make_buffers(dc_values *v, dc_contents contents) {
  const dc_graph *g = v->graph;
  bool saved = reads_saved(g);
  uint64_t total = 0;
  v->buffers = calloc(g->containers.n, sizeof *v->buffers);
  if (!v->buffers) return dc_error(DC_ERR_MEMORY, "out of memory");
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    if (k->alias_of || (k->rank && !k->shape) || !k->dtype || !dc_dtype_bytes((dc_dtype)k->dtype)) continue;
    int64_t n;
    DC_TRY(dc_values_elements(g, c, v->symbols, &n));
    size_t bytes = (size_t)n * (size_t)dc_dtype_bytes((dc_dtype)k->dtype);
    total += bytes;
    if (total > MAX_BYTES) return dc_error(DC_ERR_MEMORY, "the graph's values take more than %d GiB", (int)(MAX_BYTES >> 30));
    v->buffers[c] = malloc(bytes + 8);
    if (!v->buffers[c]) return dc_error(DC_ERR_MEMORY, "cannot get %zu bytes for '%s'", bytes, dc_cont_name(g, c));
    memset(v->buffers[c], 0xFF, bytes + 8);
    DC_TRY(fill(v, c, saved, contents, n, bytes));
  }
  return DC_OK;
}

static void make_views(dc_values *v) {
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

void dc_values_free(dc_values *v) {
  for (dc_cid c = 1; v->graph && v->buffers && c < v->graph->containers.n; c++)
    if (!dc_cont(v->graph, c)->alias_of) free(v->buffers[c]);
  free(v->buffers), free(v->symbols);
  dc_graph_destroy(v->graph);
  *v = (dc_values){0};
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

/* Takes the graph. */
static dc_status start(dc_graph *graph, const int64_t *symbols, dc_contents contents, dc_values *out) {
  if (graph->pool.symbols.n > DC_MAX_SIZES) {
    dc_graph_destroy(graph);
    return dc_error(DC_ERR_UNSUPPORTED, "the graph has more than %d symbols", DC_MAX_SIZES);
  }
  *out = (dc_values){.graph = graph, .symbols = calloc(graph->pool.symbols.n + 1, sizeof *symbols)};
  if (!out->symbols) return dc_error(DC_ERR_MEMORY, "out of memory");
  memcpy(out->symbols, symbols, graph->pool.symbols.n * sizeof *symbols);
  DC_TRY(make_buffers(out, contents));
  make_views(out);
  return DC_OK;
}

/* What a library would run is expanded as well. */
static void forget_natives(dc_graph *g) {
  for (dc_nid n = 1; n < g->nodes.n; n++)
    if (dc_node_at(g, n)->kind == DC_NODE_LIBRARY) dc_node_at(g, n)->lib.by = 0;
}

static dc_status interpret(dc_ops *ops, const dc_graph *graph, const int64_t *symbols, dc_contents contents, dc_values *out) {
  dc_graph *g = dc_graph_clone(graph);
  forget_natives(g);
  dc_status status = dc_pass_expand(ops, g);
  if (status) {
    dc_graph_destroy(g);
    return status;
  }
  spoil_registers(g);
  DC_TRY(start(g, symbols, contents, out));
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) DC_TRY(dc_interp_node(g, g->states.v[s].scope.v[k], out->buffers, out->symbols));
  return DC_OK;
}

static dc_status run_program(dc_program *program, dc_values *v) {
  dc_binding *binding;
  DC_TRY(dc_program_bind(program, v->symbols, NULL, &binding));
  uint64_t bytes = dc_binding_saved_bytes(binding);
  char *saved = calloc(1, bytes + 8);
  dc_status status = dc_program_run(program, binding, NULL, v->buffers, saved);
  for (dc_cid c = 1; c < v->graph->containers.n && !status && bytes; c++) {
    const dc_container *k = dc_cont(v->graph, c);
    if (k->role != DC_ROLE_SAVED || k->is_output || k->alias_of) continue;
    memcpy(v->buffers[c], saved + dc_binding_saved_offset(binding, c), dc_binding_bytes(binding, c));
  }
  free(saved);
  dc_binding_release(binding);
  return status;
}

static dc_status execute(const dc_target *target, const dc_graph *graph, const int64_t *symbols, dc_contents contents, dc_values *out) {
  DC_TRY(start(dc_graph_clone(graph), symbols, contents, out));
  dc_program *program;
  DC_TRY(dc_program_create(target, dc_graph_clone(graph), &program));
  dc_status status = run_program(program, out);
  dc_program_destroy(program);
  return status;
}

static void choose_native(void *context, dc_graph *graph, dc_nid node) {
  const dc_target *target = context;
  dc_natives_stamp(target->natives, target->ops, graph, node, NULL);
}

/* As a function does that is called without gradients. */
static dc_status execute_whole(const dc_target *target, const dc_graph *graph, const int64_t *symbols, dc_contents contents,
                               dc_values *out) {
  dc_target copy = *target;
  dc_pipeline pipeline = {.passes = {target->ops, choose_native, &copy}};
  dc_scheduled made;
  DC_TRY(dc_pipeline_run(&pipeline, dc_graph_clone(graph), &made));
  dc_status status = execute(target, made.forward, symbols, contents, out);
  dc_graph_destroy(made.forward);
  return status;
}

dc_status dc_values_run(const dc_target *target, const dc_graph *graph, dc_run_kind kind, const int64_t *symbols, dc_contents contents,
                        dc_values *out) {
  *out = (dc_values){0};
  if (kind == DC_RUN_INTERPRETED) return interpret(target->ops, graph, symbols, contents, out);
  return (kind == DC_RUN_PROGRAM ? execute : execute_whole)(target, graph, symbols, contents, out);
}

/* ---- comparing ---- */

static double tolerance_of(dc_dtype type) {
  if (!dc_dtype_is_float(type)) return 0;
  return type == DC_F64 ? 1e-8 : type == DC_F32 ? 1e-3 : type == DC_F16 ? 1e-2 : type == DC_BF16 ? 5e-2 : 0.5;
}

static double element(const dc_values *v, dc_cid c, int64_t k) {
  dc_dtype type = (dc_dtype)dc_cont(v->graph, c)->dtype;
  return dc_scalar_convert(type, DC_F64, dc_scalar_load(type, v->buffers[c], k)).f;
}

static bool elements_of(const dc_values *v, dc_cid c, int64_t *n) {
  dc_status status = dc_values_elements(v->graph, c, v->symbols, n);
  bool found = !status && v->buffers[c];
  dc_status_free(status);
  return found;
}

/* How far two elements are apart: not at all if both are NaN, and infinitely if one is. */
static double distance(double a, double b) {
  if (a == b || (isnan(a) && isnan(b))) return 0;
  return isnan(a - b) ? INFINITY : fabs(a - b);
}

static bool same_contents(const dc_values *wanted, dc_cid w, const dc_values *got, dc_cid g, double tolerance, dc_difference *out) {
  dc_dtype type = (dc_dtype)dc_cont(wanted->graph, w)->dtype;
  int64_t n, others;
  *out = (dc_difference){.name = dc_cont_name(wanted->graph, w)};
  bool alike = elements_of(wanted, w, &n) && elements_of(got, g, &others) && n == others && dc_cont(got->graph, g)->dtype == type;
  if (!alike) out->problem = "has another shape or type";
  if (!alike) return false;
  out->elements = n;
  double size = 0;
  for (int64_t k = 0; k < n; k++) {
    double value = fabs(element(wanted, w, k));
    if (isfinite(value)) size = fmax(size, value);
  }
  double limit = (dc_dtype_is_float(type) && tolerance > 0 ? tolerance : tolerance_of(type)) * (1 + size);
  for (int64_t k = 0; k < n; k++) {
    double a = element(got, g, k), b = element(wanted, w, k), apart = distance(a, b);
    out->wrong += apart > limit;
    if (apart > out->largest) out->largest = apart, out->at = k, out->got = a, out->wanted = b;
  }
  return !out->wrong;
}

static bool fail(dc_difference *out, const char *name, const char *problem) {
  *out = (dc_difference){.name = name, .problem = problem};
  return false;
}

bool dc_values_same(const dc_values *wanted, const dc_values *got, double tolerance, dc_difference *out) {
  const dc_graph *w = wanted->graph, *g = got->graph;
  dc_difference one;
  *out = (dc_difference){0};
  if (w->outputs.n != g->outputs.n) return fail(out, dc_name_text(&w->names, w->name), "has another number of outputs");
  for (uint32_t k = 0; k < w->outputs.n; k++) {
    bool same = same_contents(wanted, w->outputs.v[k], got, g->outputs.v[k], tolerance, &one);
    if (!same || one.largest >= out->largest) *out = one;
    if (!same) return false;
  }
  for (uint32_t k = 0; k < w->inputs.n; k++) { /* also what has been written in place, or should not have been */
    dc_cid other = dc_container_find(g, dc_cont_name(w, w->inputs.v[k]));
    if (other && !same_contents(wanted, w->inputs.v[k], got, other, tolerance, out)) return false;
  }
  for (dc_cid c = 1; c < w->containers.n; c++) {
    if (dc_cont(w, c)->role != DC_ROLE_SAVED) continue;
    dc_cid other = dc_container_find(g, dc_cont_name(w, c));
    if (!other || dc_cont(g, other)->role != DC_ROLE_SAVED) return fail(out, dc_cont_name(w, c), "is no longer saved");
    if (!same_contents(wanted, c, got, other, tolerance, out)) return false;
  }
  return true;
}

void dc_difference_print(const dc_difference *d, dc_text *out) {
  if (d->problem) dc_text_printf(out, "'%s' %s", d->name, d->problem);
  else
    dc_text_printf(out, "'%s' differs in %lld of %lld elements, most in element %lld, which is %.9g, expected %.9g", d->name,
                   (long long)d->wrong, (long long)d->elements, (long long)d->at, d->got, d->wanted);
}

bool dc_values_have_nan(const dc_values *v) {
  const dc_graph *g = v->graph;
  for (uint32_t k = 0; k < g->outputs.n + g->inputs.n; k++) {
    dc_cid c = k < g->outputs.n ? g->outputs.v[k] : g->inputs.v[k - g->outputs.n];
    int64_t n;
    if (!elements_of(v, c, &n)) continue;
    for (int64_t e = 0; e < n; e++)
      if (isnan(element(v, c, e))) return true;
  }
  return false;
}
