/* What is known before a call becomes part of the program: results of nodes that read constants only, and weights. */
#include <stdlib.h>

#include "ir/work.h"
#include "passes/fuse.h"
#include "passes/transforms/transforms.h"

/* Elements of one result, results of one node, and iterations: more is left to run time. */
enum { MAX_ELEMENTS = 1 << 22, MAX_OUTPUTS = 64, MAX_VISITS = 1 << 24 };

/* ---- ConstantFolding: which nodes ---- */

typedef struct {
  const dc_graph *graph;
  const dc_use_count *users;
  dc_cid out[MAX_OUTPUTS];
  uint32_t n;
  bool good;
} results;

/* Reads are of constants, or of what the node wrote before; writes are to temporaries that nobody else writes. */
static void look_at_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  results *r = context;
  const dc_container *k = dc_cont(r->graph, c);
  (void)by;
  if (use == DC_USE_READ && k->role == DC_ROLE_CONST && k->data) return;
  for (uint32_t j = 0; j < r->n; j++)
    if (r->out[j] == c) return;
  bool fresh = use == DC_USE_WRITE && k->storage == DC_STORE_HEAP && !(r->users[c].nodes & DC_SHARED_BUFFER) && r->users[c].writers == 1;
  r->good = r->good && fresh && r->n < MAX_OUTPUTS;
  if (r->good) r->out[r->n++] = c;
}

/* ---- ConstantFolding: their results ---- */

typedef struct {
  const dc_graph *graph;
  dc_arena *arena;
  void **buffers; /* by container */
  bool good;
} memory;

static void give_buffer(void *context, dc_cid c, dc_use use, dc_nid by) {
  memory *m = context;
  const dc_container *k = dc_cont(m->graph, c);
  int64_t dims[DC_MAX_RANK], elements = 1;
  (void)use, (void)by;
  if (!m->good || m->buffers[c]) return;
  if (k->role == DC_ROLE_CONST) m->buffers[c] = (void *)(uintptr_t)k->data; /* nobody writes there */
  bool plain = k->dtype && k->dtype != DC_STRING && !k->is_host && !k->alias_of && !k->strides && k->shape;
  m->good = k->data || (plain && dc_container_dims(m->graph, c, dims));
  for (uint32_t d = 0; m->good && !k->data && d < k->rank; d++)
    m->good = !__builtin_mul_overflow(elements, dims[d], &elements) && elements >= 0 && elements <= MAX_ELEMENTS;
  if (m->good && !m->buffers[c]) m->buffers[c] = dc_arena_alloc(m->arena, (size_t)elements * (size_t)dc_dtype_bytes((dc_dtype)k->dtype));
}

/* Computes one node on a copy of the graph that holds nothing else; false where it cannot be computed. */
static bool compute(const dc_transform_tools *tools, dc_graph *g, dc_nid node, dc_arena *arena, void ***out) {
  dc_cid blocked = 0;
  dc_scope *scope = &g->states.v[0].scope;
  g->states.n = 1, *scope = (dc_scope){0};
  dc_scope_push(g, scope, node);
  dc_status status = dc_pass_infer(tools->ops, g, &blocked);
  if (!status && !blocked) status = dc_pass_expand(tools->ops, g);
  bool good = !status && !blocked;
  dc_work work = {0};
  memory m = {g, arena, DC_NEW_ARRAY(arena, void *, g->containers.n), good};
  for (uint32_t k = 0; m.good && k < scope->n; k++) {
    m.good = dc_node_is_fixed(g, scope->v[k]);
    if (m.good) dc_work_count(g, &scope->v[k], 1, NULL, false, &work);
    m.good = m.good && work.walked <= MAX_VISITS;
    if (m.good) dc_node_uses(g, scope->v[k], give_buffer, &m);
  }
  int64_t *symbols = DC_NEW_ARRAY(arena, int64_t, g->pool.symbols.n + 1);
  for (uint32_t k = 0; m.good && !status && k < scope->n; k++) status = tools->interpret(g, scope->v[k], m.buffers, symbols);
  good = m.good && !status;
  dc_status_free(status);
  return *out = m.buffers, good;
}

static void make_constant(dc_graph *graph, dc_cid c, const dc_graph *computed, const void *data) {
  dc_container from = *dc_cont(computed, c);
  int64_t dims[DC_MAX_RANK] = {0}, elements = 1;
  (void)dc_container_dims(computed, c, dims);
  dc_ex *shape = DC_NEW_ARRAY(&graph->arena, dc_ex, from.rank);
  for (uint32_t d = 0; d < from.rank; d++) shape[d] = dc_ex_int(&graph->pool, dims[d]), elements *= dims[d];
  dc_container *to = dc_cont(graph, c);
  to->dtype = from.dtype, to->rank = from.rank, to->shape = shape, to->role = DC_ROLE_CONST, to->known = NULL, to->known_count = 0;
  to->data_bytes = (uint64_t)elements * (uint64_t)dc_dtype_bytes((dc_dtype)from.dtype);
  to->data = dc_arena_copy(&graph->arena, data, to->data_bytes);
}

static bool fold(const dc_transform *t, dc_nid node) {
  dc_arena arena = {0};
  results r = {.graph = t->graph, .users = dc_fuse_count_users(t->graph, &arena), .good = true};
  dc_node_uses(t->graph, node, look_at_use, &r);
  bool good = r.good && r.n;
  if (good) {
    void **buffers = NULL;
    dc_graph *g = dc_graph_clone(t->graph);
    good = compute(t->tools, g, node, &arena, &buffers);
    for (uint32_t k = 0; good && k < r.n; k++) good = buffers[r.out[k]] != NULL;
    for (uint32_t k = 0; good && k < r.n; k++) make_constant(t->graph, r.out[k], g, buffers[r.out[k]]);
    dc_graph_destroy(g);
  }
  dc_arena_free(&arena);
  return good;
}

dc_status dc_transform_constant_folding(const dc_transform *t, uint32_t *count) {
  if (!t->tools->interpret) return dc_error(DC_ERR_UNSUPPORTED, "nothing is at hand that computes constants");
  for (uint32_t s = 0; s < t->graph->states.n && !t->graph->subgraphs.n; s++) {
    dc_scope *scope = &t->graph->states.v[s].scope;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < scope->n; k++) {
      bool folds = dc_transform_means(t, scope->v[k]) && fold(t, scope->v[k]);
      if (!folds) scope->v[kept++] = scope->v[k];
      *count += folds;
    }
    scope->n = kept;
  }
  return DC_OK;
}

/* ---- InputToConstant ---- */

/* Weights whose contents are given, as they are now; what is learned later does not reach the program. */
dc_status dc_transform_input_to_constant(const dc_transform *t, uint32_t *count) {
  for (dc_cid c = 1; c < t->graph->containers.n; c++) {
    dc_container *k = dc_cont(t->graph, c);
    if (k->role != DC_ROLE_PARAM || !k->data || (!t->all && !t->chosen[c])) continue;
    k->data = dc_arena_copy(&t->graph->arena, k->data, k->data_bytes);
    k->role = DC_ROLE_CONST;
    ++*count;
  }
  return DC_OK;
}
