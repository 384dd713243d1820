/* Functions: a graph made callable.
 *
 * A plan is compiled for what shapes depend on besides symbols: the values of '#' inputs and the
 * shapes of inputs that the graph leaves open.  Everything else is a symbol, so that another
 * batch size binds the same plan.  Shape inference may take two symbolic extents to be equal;
 * for a call where they are not, an exact plan is compiled, for all shapes as they are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/device.h"
#include "function.h"

enum { MAX_PLANS = 32 };

/* ---- creation ---- */

/* Which arguments are written. */
static void find_writes(dc_function *f) {
  dc_writers *writers = DC_NEW_ARRAY(&f->arena, dc_writers, f->graph->containers.n);
  dc_graph_writers(f->graph, writers);
  f->writes = DC_NEW_ARRAY(&f->arena, bool, f->n_args);
  for (uint32_t k = 0; k < f->n_args; k++) f->n_writes += f->writes[k] = writers[f->args[k]].n > 0;
}

static void note_symbol(void *context, const dc_pool *pool, dc_ex e) {
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_SYM) ((bool *)context)[node->ref] = true;
}

static void note_symbols(const dc_graph *graph, dc_ex e, bool *seen) {
  if (e) dc_ex_walk(&graph->pool, e, note_symbol, seen);
}

/* The symbols in maps and tasklets.  Those of operators follow from the shapes of what they read. */
static void find_symbols(const dc_graph *graph, const dc_scope *scope, bool *seen) {
  for (uint32_t k = 0; k < scope->n; k++) {
    const dc_node *node = dc_node_at(graph, scope->v[k]);
    if (node->kind == DC_NODE_TASKLET) {
      const dc_container *out = dc_cont(graph, node->tasklet.out);
      note_symbols(graph, node->tasklet.value, seen), note_symbols(graph, node->tasklet.guard, seen);
      for (uint32_t d = 0; d < node->tasklet.rank; d++) note_symbols(graph, node->tasklet.index[d], seen);
      for (uint32_t d = 0; out->shape && d < out->rank; d++) note_symbols(graph, out->shape[d], seen);
    } else if (node->kind == DC_NODE_MAP) {
      for (uint32_t d = 0; d < node->map.n_params; d++) {
        dc_parameter p = graph->pool.params.v[node->map.params[d]];
        note_symbols(graph, p.begin, seen), note_symbols(graph, p.end, seen);
      }
      find_symbols(graph, &node->map.body, seen);
    }
  }
}

dc_status dc_function_create(const dc_session *session, dc_graph *graph, const dc_function_options *options, dc_function **out) {
  dc_function *f = calloc(1, sizeof *f);
  if (!f) return dc_error(DC_ERR_MEMORY, "out of memory");
  f->session = *session, f->graph = graph, f->options = *options;
  const char **wrt = DC_NEW_ARRAY(&f->arena, const char *, options->n_wrt);
  for (uint32_t k = 0; k < options->n_wrt; k++) wrt[k] = dc_arena_strdup(&f->arena, options->wrt[k]);
  f->options.wrt = wrt;
  f->options.given = dc_arena_copy(&f->arena, options->given, options->n_given * sizeof *options->given);
  f->options.natives = options->natives ? dc_arena_strdup(&f->arena, options->natives) : NULL;
  f->args = DC_NEW_ARRAY(&f->arena, dc_cid, graph->containers.n);
  for (uint32_t k = 0; k < graph->inputs.n; k++) f->args[f->n_args++] = graph->inputs.v[k];
  f->n_inputs = f->n_args;
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (dc_cont(graph, c)->role == DC_ROLE_PARAM) f->args[f->n_args++] = c;
  f->by_value = DC_NEW_ARRAY(&f->arena, bool, f->n_args);
  f->varies = DC_NEW_ARRAY(&f->arena, bool, f->n_args);
  f->seen = dc_arena_alloc(&f->arena, (f->n_args + 1) * sizeof *f->seen);
  f->by_shape = DC_NEW_ARRAY(&f->arena, bool, f->n_args);
  for (uint32_t k = 0; k < f->n_args; k++) f->by_shape[k] = !dc_cont(graph, f->args[k])->shape;
  f->like = DC_NEW_ARRAY(&f->arena, dc_array, f->n_args);
  f->computes = DC_NEW_ARRAY(&f->arena, bool, graph->pool.symbols.n);
  find_writes(f);
  for (uint32_t s = 0; s < graph->states.n; s++) find_symbols(graph, &graph->states.v[s].scope, f->computes);
  *out = f;
  return DC_OK;
}

static void destroy_plan(dc_plan_handle *plan) {
  dc_program_destroy(plan->forward);
  dc_program_destroy(plan->backward);
  free(plan->buffers);
  dc_arena_free(&plan->arena);
  free(plan);
}

void dc_function_destroy(dc_function *f) {
  if (!f) return;
  for (dc_plan_handle *p = f->plans, *next; p; p = next) {
    next = p->next;
    destroy_plan(p);
  }
  dc_graph_destroy(f->graph);
  dc_arena_free(&f->arena);
  free(f);
}

const dc_function_options *dc_function_get_options(const dc_function *f) { return &f->options; }
const dc_graph *dc_function_graph(const dc_function *f) { return f->graph; }
bool dc_function_writes(const dc_function *f, uint32_t arg) { return arg < f->n_args && f->writes[arg]; }
dc_program *dc_function_program(const dc_function *f, bool backward) {
  return !f->last ? NULL : backward ? f->last->backward : f->last->forward;
}
const dc_pass_times *dc_function_pass_times(const dc_function *f, bool backward) { return f->last ? &f->last->times[backward] : NULL; }

static void observe_plan(const dc_function *f, dc_plan_handle *plan) {
  dc_program_observe(plan->forward, f->observer, f->observer_context);
  if (plan->backward) dc_program_observe(plan->backward, f->observer, f->observer_context);
}

void dc_function_observe(dc_function *f, dc_step_observer observer, void *context) {
  f->observer = observer, f->observer_context = context;
  for (dc_plan_handle *p = f->plans; p; p = p->next) observe_plan(f, p);
}

uint32_t dc_function_plans(const dc_function *f) {
  uint32_t n = 0;
  for (const dc_plan_handle *p = f->plans; p; p = p->next) n++;
  return n;
}

const dc_graph *dc_function_forward(const dc_function *f) { return f->last ? dc_program_graph(f->last->forward) : NULL; }
const dc_graph *dc_function_backward(const dc_function *f) {
  return f->last && f->last->backward ? dc_program_graph(f->last->backward) : NULL;
}

/* ---- arguments ---- */

uint64_t dc_array_bytes(const dc_array *a) {
  uint64_t n = (uint64_t)dc_dtype_bytes(a->dtype);
  for (uint32_t d = 0; d < a->rank; d++) n *= (uint64_t)a->dims[d];
  return n;
}

static dc_status check_args(const dc_function *f, const dc_array *arrays, uint32_t n) {
  if (n != f->n_args) return dc_error(DC_ERR_VALUE, "expected %u inputs and parameters, got %u", f->n_args, n);
  for (uint32_t k = 0; k < n; k++) {
    const dc_container *c = dc_cont(f->graph, f->args[k]);
    const char *name = dc_cont_name(f->graph, f->args[k]);
    if (c->dtype != arrays[k].dtype)
      return dc_error(DC_ERR_DTYPE, "input '%s' has type %s, expected %s", name, dc_dtype_name(arrays[k].dtype),
                      dc_dtype_name((dc_dtype)c->dtype));
    if (c->shape && c->rank != arrays[k].rank)
      return dc_error(DC_ERR_SHAPE, "input '%s' has %u dimensions, expected %u", name, arrays[k].rank, c->rank);
  }
  return DC_OK;
}

typedef struct {
  const char *begin, *end;
  uint32_t arg;
} extent;

static int by_begin(const void *a, const void *b) {
  const char *p = ((const extent *)a)->begin, *q = ((const extent *)b)->begin;
  return (p > q) - (p < q);
}

/* What is written is nobody else's: in the order of addresses, nothing begins before the last one that it must not meet ends. */
static dc_status check_overlaps(const dc_function *f, const dc_array *arrays) {
  enum { FEW = 64 };
  extent few[FEW], *v = few, read = {0}, written = {0}; /* those that reach furthest so far */
  dc_status status = DC_OK;
  uint32_t n = 0;
  if (!f->n_writes) return DC_OK;
  if (f->n_args > FEW && !(v = calloc(f->n_args, sizeof *v))) return dc_error(DC_ERR_MEMORY, "out of memory");
  for (uint32_t k = 0; k < f->n_args; k++)
    if (dc_array_bytes(&arrays[k])) v[n++] = (extent){arrays[k].data, (const char *)arrays[k].data + dc_array_bytes(&arrays[k]), k};
  qsort(v, n, sizeof *v, by_begin);
  for (uint32_t k = 0; !status && k < n; k++) {
    bool writes = f->writes[v[k].arg];
    const extent *other = v[k].begin < written.end ? &written : writes && v[k].begin < read.end ? &read : NULL;
    if (other)
      status = dc_error(DC_ERR_VALUE, "'%s' is written in place, but its memory overlaps that of '%s'",
                        dc_cont_name(f->graph, f->args[(writes ? v[k] : *other).arg]),
                        dc_cont_name(f->graph, f->args[(writes ? *other : v[k]).arg]));
    extent *last = writes ? &written : &read;
    if (v[k].end > last->end) *last = v[k];
  }
  if (v != few) free(v);
  return status;
}

/* ---- arguments whose values decide shapes ---- */

static uint64_t count_of(const dc_array *a) { return dc_array_bytes(a) / (uint64_t)dc_dtype_bytes(a->dtype); }

/* A few numbers, on the host. */
static bool may_vary(const dc_function *f, const dc_place_of_call *place, uint32_t k) {
  const dc_array *a = &place->arrays[k];
  const bool numbers = a->dtype == DC_I64 || a->dtype == DC_I32 || a->dtype == DC_F32 || a->dtype == DC_F64;
  return f->by_value[k] && !place->gpu && numbers && count_of(a) <= DC_FEW_VALUES;
}

static double number_at(const dc_array *a, uint64_t at) {
  const void *data = a->data;
  switch (a->dtype) {
    case DC_I32: return ((const int32_t *)data)[at];
    case DC_F32: return ((const float *)data)[at];
    case DC_F64: return ((const double *)data)[at];
    default: return (double)((const int64_t *)data)[at];
  }
}

static bool is_whole(double number) { return fabs(number) < 0x1p53 && number == floor(number); }

/* 0, 1 and negative numbers mean something else than others where operators read them. */
enum { LEAST_SYMBOL = 2 };
static bool is_symbol(const dc_array *a, uint64_t at) { return is_whole(number_at(a, at)) && number_at(a, at) >= LEAST_SYMBOL; }

/* Expressions of extents hold whole numbers.  On a GPU what decides shapes is a constant. */
static bool holds_symbols(const dc_function *f, const dc_place_of_call *place, uint32_t k, bool exact) {
  const dc_array *a = &place->arrays[k];
  bool whole = f->varies[k] && !exact && !place->gpu;
  for (uint64_t j = 0; whole && j < count_of(a); j++) whole = is_whole(number_at(a, j));
  return whole;
}

static dc_sym value_symbol(dc_graph *graph, uint32_t arg, uint64_t at) {
  const char *name = dc_arena_printf(&graph->arena, "value_%u_%u", arg, (unsigned)at);
  return dc_symbol_get(&graph->pool, name, LEAST_SYMBOL);
}

static void know_values(dc_graph *graph, dc_cid cid, uint32_t arg, const dc_array *a) {
  const uint64_t n = count_of(a);
  dc_ex *known = DC_NEW_ARRAY(&graph->arena, dc_ex, n + 1);
  for (uint64_t j = 0; j < n; j++)
    known[j] = is_symbol(a, j) ? dc_ex_sym(&graph->pool, value_symbol(graph, arg, j)) : dc_ex_int(&graph->pool, (int64_t)number_at(a, j));
  dc_cont(graph, cid)->known = known, dc_cont(graph, cid)->known_count = (uint32_t)n;
}

/* Those that have another value than in the plan before vary from now on.  Are there new ones? */
static bool find_varying(dc_function *f, const dc_place_of_call *place) {
  bool any = false;
  for (uint32_t k = 0; k < f->n_args && !f->literal; k++) {
    if (f->varies[k] || !may_vary(f, place, k)) continue;
    f->varies[k] = memcmp(f->seen[k], place->arrays[k].data, dc_array_bytes(&place->arrays[k])) != 0;
    any |= f->varies[k];
  }
  return any;
}

static void note_values(dc_function *f, const dc_place_of_call *place) {
  for (uint32_t k = 0; k < f->n_args; k++)
    if (may_vary(f, place, k)) memcpy(f->seen[k], place->arrays[k].data, dc_array_bytes(&place->arrays[k]));
}

static void list_values(const dc_function *f, const dc_place_of_call *place, dc_graph *graph, dc_plan_handle *plan) {
  plan->values = DC_NEW_ARRAY(&plan->arena, dc_value_symbol, f->n_args * DC_FEW_VALUES);
  for (uint32_t k = 0; k < f->n_args; k++)
    for (uint64_t j = 0; holds_symbols(f, place, k, false) && j < count_of(&place->arrays[k]); j++)
      if (is_symbol(&place->arrays[k], j)) plan->values[plan->n_values++] = (dc_value_symbol){value_symbol(graph, k, j), k, (uint32_t)j};
}

static uint64_t hash_values(uint64_t key, const dc_array *a) {
  for (uint64_t j = 0; j < count_of(a); j++) {
    const double number = is_symbol(a, j) ? LEAST_SYMBOL : number_at(a, j);
    key = dc_hash_bytes(key + j, &number, sizeof number);
  }
  return key;
}

static uint64_t plan_key(const dc_function *f, const dc_place_of_call *place, bool exact) {
  const dc_array *arrays = place->arrays;
  uint64_t key = place->gpu ? 1 + (uint64_t)place->gpu->ordinal : 0;
  for (uint32_t k = 0; k < f->n_args; k++) {
    if (exact || f->by_shape[k] || f->by_value[k]) key = dc_hash_bytes(key + k + 1, arrays[k].dims, arrays[k].rank * sizeof(int64_t));
    if (holds_symbols(f, place, k, exact)) key = hash_values(key, &arrays[k]);
    else if (f->by_value[k]) key = dc_hash_bytes(key, arrays[k].data, dc_array_bytes(&arrays[k]));
  }
  return key;
}

typedef struct {
  const int64_t *symbols;
  dc_sym one; /* without a value, 0: none */
  bool more;
} unknown_search;

static void note_unknown(void *context, const dc_pool *pool, dc_ex e) {
  unknown_search *u = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_SYM || u->symbols[node->ref] != DC_UNKNOWN) return;
  u->more |= u->one && u->one != node->ref;
  u->one = node->ref;
}

/* The value of the only unknown symbol of an extent that is linear in it. */
static void solve_linear(const dc_graph *graph, dc_ex extent, int64_t have, int64_t *symbols) {
  unknown_search u = {symbols, 0, false};
  dc_ex_walk(&graph->pool, extent, note_unknown, &u);
  if (!u.one || u.more) return;
  int64_t *value = &symbols[u.one];
  *value = 1;
  int64_t at_one = dc_ix_eval(&graph->pool, extent, symbols, NULL);
  *value = 2;
  int64_t step = dc_ix_eval(&graph->pool, extent, symbols, NULL) - at_one;
  *value = step ? (have - at_one) / step + 1 : DC_UNKNOWN;
  if (step && (*value < graph->pool.symbols.v[u.one].min || dc_ix_eval(&graph->pool, extent, symbols, NULL) != have)) *value = DC_UNKNOWN;
}

static dc_status fail_symbol(const dc_graph *graph, dc_sym s) {
  const char *name = dc_name_text(&graph->names, graph->pool.symbols.v[s].name);
  return dc_error(DC_ERR_VALUE, "symbol '%s' has no value: the extents of the arguments do not say it; give it by its name", name);
}

static bool is_compound(const dc_graph *graph, dc_ex extent) {
  uint8_t op = dc_ex_node(&graph->pool, extent)->op;
  return op != DC_EX_INT && op != DC_EX_SYM;
}

/* Symbols that no extent is alone, of which the caller has said nothing either. */
static dc_status solve_others(const dc_function *f, const dc_graph *graph, const dc_array *arrays, int64_t *symbols) {
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t k = 0; k < f->n_args; k++) {
      const dc_container *c = dc_cont(graph, f->args[k]);
      for (uint32_t d = 0; d < c->rank; d++) {
        unknown_search u = {symbols, 0, false};
        if (!is_compound(graph, c->shape[d])) continue;
        if (!pass) solve_linear(graph, c->shape[d], arrays[k].dims[d], symbols);
        else dc_ex_walk(&graph->pool, c->shape[d], note_unknown, &u);
        if (u.one) return fail_symbol(graph, u.one);
      }
    }
  for (dc_sym s = 1; s < f->graph->pool.symbols.n; s++)
    if (symbols[s] == DC_UNKNOWN && f->computes[s]) return fail_symbol(graph, s);
  return DC_OK;
}

static dc_status check_given(const dc_graph *graph, dc_sym s, int64_t value) {
  int64_t least = graph->pool.symbols.v[s].min;
  if (value == DC_UNKNOWN || value >= least) return DC_OK;
  return dc_error(DC_ERR_VALUE, "symbol '%s' is %lld, expected at least %lld", dc_name_text(&graph->names, graph->pool.symbols.v[s].name),
                  (long long)value, (long long)least);
}

/* The value of each symbol: given, or from the dimensions that are that symbol alone, or a number of an argument; the rest are checked. */
static dc_status solve_symbols(const dc_function *f, const dc_plan_handle *plan, const dc_array *arrays, const int64_t *given,
                               int64_t *symbols) {
  const dc_graph *graph = dc_program_graph(plan->forward);
  uint32_t n = graph->pool.symbols.n, n_given = f->graph->pool.symbols.n;
  for (uint32_t s = 0; s < n; s++) symbols[s] = given && s && s < n_given ? given[s] : DC_UNKNOWN;
  for (uint32_t s = 1; given && s < n_given; s++) DC_TRY(check_given(graph, s, given[s]));
  for (uint32_t k = 0; k < plan->n_values; k++)
    symbols[plan->values[k].symbol] = (int64_t)number_at(&arrays[plan->values[k].arg], plan->values[k].at);
  for (int pass = 0; pass < 2; pass++) {
    bool open = false;
    for (uint32_t s = 1; s < n && pass; s++) open |= symbols[s] == DC_UNKNOWN;
    if (open) DC_TRY(solve_others(f, graph, arrays, symbols));
    for (uint32_t k = 0; k < f->n_args; k++) {
      const dc_container *c = dc_cont(graph, f->args[k]);
      for (uint32_t d = 0; d < c->rank; d++) {
        const dc_exnode *e = dc_ex_node(&graph->pool, c->shape[d]);
        int64_t have = arrays[k].dims[d];
        if (pass == 0) {
          if (e->op == DC_EX_SYM && symbols[e->ref] == INT64_MIN) symbols[e->ref] = have;
          continue;
        }
        int64_t want = dc_ix_eval(&graph->pool, c->shape[d], symbols, NULL);
        if (want != have)
          return dc_error(DC_ERR_SHAPE, "input '%s': dimension %u is %lld, expected %lld", dc_cont_name(graph, f->args[k]), d,
                          (long long)have, (long long)want);
        if (e->op == DC_EX_SYM && have < graph->pool.symbols.v[e->ref].min)
          return dc_error(DC_ERR_SHAPE, "input '%s': dimension %u is %lld, expected at least %lld", dc_cont_name(graph, f->args[k]), d,
                          (long long)have, (long long)graph->pool.symbols.v[e->ref].min);
      }
    }
  }
  for (uint32_t s = 0; s < n; s++)
    if (symbols[s] == INT64_MIN) symbols[s] = 0; /* appears in no input: unused */
  return DC_OK;
}

/* ---- compiling a plan ---- */

static bool equalities_hold(const dc_graph *graph, const int64_t *symbols) {
  for (uint32_t k = 0; k < graph->equalities.n; k++) {
    dc_equality e = graph->equalities.v[k];
    if (dc_ix_eval(&graph->pool, e.a, symbols, NULL) != dc_ix_eval(&graph->pool, e.b, symbols, NULL)) return false;
  }
  return true;
}

static bool is_of_operators(const dc_graph *graph) {
  bool all = true;
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++)
      all &= dc_node_at(graph, graph->states.v[s].scope.v[k])->kind == DC_NODE_LIBRARY;
  return all;
}

/* Of operators alone inference finds shapes again, and what they ask of extents: less, where extents are known. */
static void forget_shapes(dc_graph *graph) {
  graph->equalities.n = 0;
  for (dc_cid c = 1; c < graph->containers.n; c++)
    if (dc_cont(graph, c)->role == DC_ROLE_TEMP) dc_cont(graph, c)->is_claimed = true;
}

/* Fixes in a clone what this plan is compiled for. */
static void specialise(const dc_function *f, dc_graph *graph, const dc_place_of_call *place, bool exact) {
  const dc_array *arrays = place->arrays;
  if (exact && is_of_operators(graph)) forget_shapes(graph);
  for (uint32_t k = 0; k < f->n_args; k++) {
    dc_cid cid = f->args[k];
    if (exact || f->by_shape[k] || f->by_value[k]) {
      dc_ex *shape = DC_NEW_ARRAY(&graph->arena, dc_ex, arrays[k].rank);
      for (uint32_t d = 0; d < arrays[k].rank; d++) shape[d] = dc_ex_int(&graph->pool, arrays[k].dims[d]);
      dc_cont(graph, cid)->shape = shape, dc_cont(graph, cid)->rank = arrays[k].rank;
    }
    const bool symbols = holds_symbols(f, place, k, exact);
    if (symbols) know_values(graph, cid, k, &arrays[k]);
    if (!f->by_value[k] || symbols) continue;
    dc_container *c = dc_cont(graph, cid);
    c->role = DC_ROLE_CONST;
    c->data_bytes = dc_array_bytes(&arrays[k]);
    c->data = dc_arena_copy(&graph->arena, arrays[k].data, c->data_bytes);
  }
}

/* Clones and infers until nothing is blocked; each round learns one more '#' argument. */
static dc_status resolve(dc_function *f, dc_place_of_call *place, bool exact, dc_graph **out) {
  for (;;) {
    dc_graph *graph = dc_graph_clone(f->graph);
    specialise(f, graph, place, exact);
    dc_cid blocked;
    dc_status status = dc_pass_infer(f->session.ops, graph, &blocked);
    if (!status && !blocked) return *out = graph, DC_OK;
    uint32_t k = 0;
    while (k < f->n_args && f->args[k] != blocked) k++;
    if (!status && k == f->n_args)
      status = dc_error_about(dc_error(DC_ERR_UNSUPPORTED, "the value of '%s' is needed to compute shapes but only known at run time",
                                       dc_cont_name(graph, blocked)), dc_cont_name(graph, blocked));
    if (!status && f->writes[k])
      status = dc_error(DC_ERR_UNSUPPORTED, "the value of '%s' is needed to compute shapes, but it is written in place",
                        dc_cont_name(graph, blocked));
    dc_graph_destroy(graph);
    if (status) return dc_error_at(status, "graph '%s'", dc_name_text(&f->graph->names, f->graph->name));
    f->by_value[k] = true;
    DC_TRY(dc_place_fetch(place, k));
  }
}

static dc_target target_of(const dc_function *f, dc_gpu *gpu) {
  const dc_session *s = &f->session;
  if (!gpu)
    return (dc_target){.ops = s->ops, .natives = s->natives, .only = f->options.natives, .jit = s->jit, .backend = f->options.backend,
                       .workspace = s->workspace};
  return (dc_target){.ops = s->ops, .natives = gpu->natives, .only = f->options.natives, .jit = gpu->jit, .backend = DC_BACKEND_CUDA,
                     .memory = f->options.memory ? f->options.memory : &gpu->memory, .gpu = gpu};
}

typedef struct {
  const dc_function *function;
  dc_target target;
} stamper;

static void stamp(void *context, dc_graph *graph, dc_nid node) {
  const stamper *s = context;
  dc_natives_stamp(s->target.natives, s->target.ops, graph, node, s->function->options.natives);
}

/* Takes a scheduled graph. */
static dc_status make_program(const dc_target *target, dc_graph **graph, dc_program **out) {
  DC_TRY(dc_program_create(target, *graph, out));
  return *graph = NULL, DC_OK;
}

/* The forward graph's kernels are compiled while the backward graph is scheduled, unless a hook is to see them first.  Those of
 * the backward graph wait for its first run, which may never come. */
static dc_status make_programs(dc_function *f, const dc_pipeline *pipeline, dc_scheduled *graphs, dc_plan_handle *plan) {
  dc_target target = target_of(f, plan->gpu);
  dc_graph *forward = graphs->forward, *backward = graphs->backward;
  plan->outputs = dc_arena_copy(&plan->arena, forward->outputs.v, forward->outputs.n * sizeof(dc_cid));
  plan->wrt = graphs->wrt;
  dc_place_graph(forward, plan->gpu);
  DC_TRY(make_program(&target, &graphs->forward, &plan->forward));
  if (!f->options.post_compile) DC_TRY(dc_program_begin(plan->forward));
  if (backward) {
    DC_TRY(dc_pipeline_run_backward(pipeline, forward, graphs));
    dc_plan_connect(f, plan, forward, backward);
    dc_place_graph(backward, plan->gpu);
    DC_TRY(make_program(&target, &graphs->backward, &plan->backward));
  }
  memcpy(plan->times, graphs->times, sizeof plan->times);
  return f->options.post_compile ? f->options.post_compile(f->options.hook_context, forward, backward) : DC_OK;
}

static dc_status compile(dc_function *f, dc_place_of_call *place, bool exact, dc_plan_handle **out) {
  dc_graph *graph;
  stamper stamper = {f, target_of(f, place->gpu)};
  DC_TRY(resolve(f, place, exact, &graph));
  graph->machine = place->gpu ? place->gpu->machine : f->session.machine;
  dc_name *wrt = DC_NEW_ARRAY(&graph->arena, dc_name, f->options.n_wrt);
  for (uint32_t k = 0; k < f->options.n_wrt; k++) wrt[k] = dc_name_intern(&graph->names, f->options.wrt[k]);
  dc_pipeline pipeline = {{f->session.ops, stamp, &stamper, f->options.training, wrt, f->options.n_wrt},
                          f->options.keep,
                          f->options.post_onnx,
                          f->options.post_autodiff,
                          f->options.hook_context,
                          f->options.results_stay,
                          f->options.as_expanded,
                          f->options.given,
                          f->options.n_given};
  dc_scheduled graphs;
  DC_TRY(dc_pipeline_run(&pipeline, graph, &graphs));
  dc_plan_handle *plan = calloc(1, sizeof *plan);
  if (plan) plan->gpu = place->gpu;
  if (plan && !exact) list_values(f, place, graphs.forward, plan);
  dc_status status = plan ? make_programs(f, &pipeline, &graphs, plan) : dc_error(DC_ERR_MEMORY, "out of memory");
  dc_graph_destroy(graphs.forward);
  dc_graph_destroy(graphs.backward);
  if (!status) *out = plan;
  else if (plan) destroy_plan(plan);
  return status;
}

static void evict(dc_function *f) {
  uint32_t n = 0;
  dc_plan_handle **victim = NULL;
  for (dc_plan_handle **at = &f->plans; *at; at = &(*at)->next) {
    n++;
    if (!(*at)->users && *at != f->last) victim = at;
  }
  if (n <= MAX_PLANS || !victim) return;
  dc_plan_handle *gone = *victim;
  *victim = gone->next;
  destroy_plan(gone);
}

static dc_plan_handle *plan_for(const dc_function *f, const dc_place_of_call *place, bool exact) {
  uint64_t key = plan_key(f, place, exact);
  dc_plan_handle *p = f->plans;
  while (p && !(p->key == key && p->exact == exact && p->gpu == place->gpu)) p = p->next;
  return p;
}

/* With what varies as symbols; where operators ask for numbers, with numbers, and so from then on. */
static dc_status compile_anew(dc_function *f, dc_place_of_call *place, bool exact, dc_plan_handle **out) {
  dc_status status = compile(f, place, exact, out);
  bool any = false;
  for (uint32_t k = 0; k < f->n_args && !exact; k++) any |= f->varies[k];
  if (!status || !any) return status;
  bool *varied = dc_arena_copy(&f->arena, f->varies, f->n_args * sizeof *f->varies);
  memset(f->varies, 0, f->n_args * sizeof *f->varies);
  dc_status again = compile(f, place, exact, out);
  if (!again) return dc_status_free(status), f->literal = true, DC_OK;
  memcpy(f->varies, varied, f->n_args * sizeof *f->varies);
  return dc_status_free(again), status;
}

static dc_status find_plan(dc_function *f, dc_place_of_call *place, bool exact, dc_plan_handle **out) {
  dc_plan_handle *found = plan_for(f, place, exact);
  if (!found && !exact && find_varying(f, place)) found = plan_for(f, place, exact);
  if (found) return *out = f->last = found, DC_OK;
  DC_TRY(compile_anew(f, place, exact, out));
  (*out)->exact = exact, (*out)->id = ++f->last_id;
  (*out)->key = plan_key(f, place, exact); /* compiling may have learnt of '#' arguments */
  (*out)->next = f->plans, f->plans = *out, f->last = *out;
  if (!exact) note_values(f, place);
  if (f->observer) observe_plan(f, *out);
  evict(f);
  return DC_OK;
}

/* ---- calls ---- */

/* Symbols need a place of their own only where there are very many. */
enum { FEW_SYMBOLS = 64 };
static int64_t *symbol_room(const dc_graph *graph, int64_t *few) {
  return graph->pool.symbols.n <= FEW_SYMBOLS ? few : calloc(graph->pool.symbols.n, sizeof *few);
}

/* Where the backward pass finds what it reads of the saved block.  It may work in a block that is worth it. */
enum { LENT_BYTES = 1 << 20 };

static dc_lent lend_block(const dc_call *call, dc_arena *arena) {
  const dc_graph *forward = dc_program_graph(call->plan->forward), *backward = dc_program_graph(call->plan->backward);
  dc_lent lent = {dc_binding_saved_bytes(call->forward), 0, NULL};
  if (lent.bytes < LENT_BYTES) return (dc_lent){0};
  lent.v = DC_NEW_ARRAY(arena, struct dc_lent_value, backward->containers.n);
  for (dc_cid c = 1; c < backward->containers.n; c++) {
    dc_cid source = call->plan->back_feed[c];
    if (!source || dc_cont(forward, source)->role != DC_ROLE_SAVED) continue;
    lent.v[lent.n].c = c, lent.v[lent.n++].offset = dc_binding_saved_offset(call->forward, source);
  }
  return lent;
}

/* The backward graph has the forward's symbols, perhaps under other numbers. */
static dc_status bind_backward(dc_call *call, const int64_t *symbols) {
  const dc_graph *backward = dc_program_graph(call->plan->backward);
  int64_t few[FEW_SYMBOLS], *own = symbol_room(backward, few);
  if (!own) return dc_error(DC_ERR_MEMORY, "out of memory");
  own[0] = symbols[0];
  for (dc_sym s = 1; s < backward->pool.symbols.n; s++) own[s] = call->plan->back_symbol[s] ? symbols[call->plan->back_symbol[s]] : 0;
  dc_arena arena = {0};
  dc_lent lent = lend_block(call, &arena);
  dc_status status = dc_program_bind(call->plan->backward, own, lent.bytes ? &lent : NULL, &call->backward);
  dc_arena_free(&arena);
  if (own != few) free(own);
  return status;
}

/* Binds a plan to the extents of the arrays; *fits is false where it assumes others. */
static dc_status bind_plan(dc_function *f, const dc_array *arrays, const int64_t *given, dc_call *out, bool *fits) {
  const dc_graph *forward = dc_program_graph(out->plan->forward);
  int64_t few[FEW_SYMBOLS], *symbols = symbol_room(forward, few);
  if (!symbols) return dc_error(DC_ERR_MEMORY, "out of memory");
  dc_status status = solve_symbols(f, out->plan, arrays, given, symbols);
  *fits = !status && equalities_hold(forward, symbols);
  if (*fits) status = dc_program_bind(out->plan->forward, symbols, NULL, &out->forward);
  if (*fits && !status && out->plan->backward) status = bind_backward(out, symbols);
  if (symbols != few) free(symbols);
  return status;
}

static dc_status place_arguments(const dc_function *f, const dc_array *arrays, dc_call *out) {
  const dc_graph *forward = dc_program_graph(out->plan->forward);
  out->buffers = out->plan->buffers ? out->plan->buffers : calloc(forward->containers.n, sizeof *out->buffers);
  if (!out->buffers) return dc_error(DC_ERR_MEMORY, "out of memory");
  out->plan->buffers = NULL;
  for (uint32_t k = 0; k < f->n_args; k++) /* what decides shapes is a constant on a GPU */
    out->buffers[f->args[k]] = f->by_value[k] && out->plan->gpu ? NULL : arrays[k].data;
  out->n_outputs = forward->outputs.n;
  return DC_OK;
}

/* ---- calls like the last one ---- */

/* Where contents decide shapes, extents do not tell calls apart. */
static void note_arguments(dc_function *f, const dc_array *arrays) {
  f->repeats = true;
  for (uint32_t k = 0; k < f->n_args; k++) {
    f->repeats &= !f->by_value[k];
    f->like[k] = arrays[k], f->like[k].data = NULL;
  }
}

static bool is_like_last(const dc_function *f, const dc_array *arrays, uint32_t n) {
  bool same = f->repeats && n == f->n_args && dc_program_is_bound(f->last->forward) &&
              (!f->last->backward || dc_program_is_bound(f->last->backward));
  for (uint32_t k = 0; same && k < n; k++) {
    const dc_array *a = &arrays[k], *b = &f->like[k];
    same = a->dtype == b->dtype && a->rank == b->rank && a->device == b->device && a->ordinal == b->ordinal &&
           !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims);
  }
  return same;
}

/* The last plan and its last bindings serve what they served. */
static dc_status begin_again(dc_function *f, const dc_array *arrays, dc_call *out) {
  DC_TRY(check_overlaps(f, arrays));
  out->plan = f->last;
  out->plan->users++;
  if (out->plan->gpu) out->ordinal = out->plan->gpu->ordinal;
  dc_binding_use(out->forward = dc_program_recent(out->plan->forward));
  if (out->plan->backward) dc_binding_use(out->backward = dc_program_recent(out->plan->backward));
  return place_arguments(f, arrays, out);
}

/* ---- other calls ---- */

static dc_status begin(dc_function *f, dc_place_of_call *place, const int64_t *symbols, dc_call *out) {
  bool fits = false;
  const dc_array *arrays = place->given;
  DC_TRY(check_overlaps(f, arrays));
  for (int exact = 0; exact < 2 && !fits; exact++) {
    if (out->plan) out->plan->users--;
    out->plan = NULL;
    DC_TRY(find_plan(f, place, exact, &out->plan));
    out->plan->users++;
    DC_TRY(dc_place_check(f, place));
    DC_TRY(bind_plan(f, arrays, symbols, out, &fits));
  }
  if (!fits) return dc_error(DC_ERR_SHAPE, "the extents of the inputs do not go together");
  return place_arguments(f, arrays, out);
}

static dc_status begin_anew(dc_function *f, const dc_array *arrays, uint32_t n, const int64_t *symbols, dc_call *out) {
  dc_place_of_call place = {0};
  f->repeats = false;
  dc_status status = check_args(f, arrays, n);
  if (!status) status = dc_place_find(f, arrays, out->stream, &place);
  if (!status) status = begin(f, &place, symbols, out);
  if (!status && place.gpu) out->ordinal = place.gpu->ordinal;
  if (!status && !symbols) note_arguments(f, arrays);
  dc_place_free(&place);
  return status;
}

dc_status dc_call_begin(dc_function *f, const dc_array *arrays, uint32_t n, const int64_t *symbols, void *stream, dc_call *out) {
  *out = (dc_call){.function = f, .stream = stream};
  bool repeats = !symbols && is_like_last(f, arrays, n);
  dc_status status = repeats ? begin_again(f, arrays, out) : begin_anew(f, arrays, n, symbols, out);
  if (status) dc_call_end(out);
  return status;
}

void dc_call_end(dc_call *call) {
  if (call->forward) dc_binding_release(call->forward);
  if (call->backward) dc_binding_release(call->backward);
  if (call->plan) call->plan->users--;
  bool keep = call->buffers && !call->plan->buffers;
  if (keep) call->plan->buffers = call->buffers;
  else free(call->buffers);
  *call = (dc_call){0};
}

void dc_call_output(const dc_call *call, uint32_t k, dc_array *out) {
  dc_call_describe(call->plan->forward, call->forward, call->plan->outputs[k], out);
  out->ordinal = call->ordinal;
}

uint64_t dc_call_saved_bytes(const dc_call *call) { return dc_binding_saved_bytes(call->forward); }

dc_status dc_call_run(dc_call *call, void *const *outputs, void *saved) {
  for (uint32_t k = 0; k < call->n_outputs; k++) call->buffers[call->plan->outputs[k]] = outputs[k];
  return dc_program_run(call->plan->forward, call->forward, call->stream, call->buffers, saved);
}
