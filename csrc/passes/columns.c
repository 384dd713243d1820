/* Products read their right operand along the columns of the result: where it lies the other way round,
 * a transposed copy is made once, before the node that holds the product.
 *
 *     map n, v { reduce k { r sum= X[n, k] * W[v, k] } ... }   becomes
 *     map v, k { Wt[k, v] = W[v, k] }   map n, v { reduce k { r sum= X[n, k] * Wt[k, v] } ... }
 *
 * So is an operand whose terms lie across the order of a sum of two loops, which then become one.  Where the columns of
 * the result are a batch, which both operands follow, the product is made with its batch outermost and then turned:
 *
 *     map i, j, b { reduce k { Y[i, j, b] sum= X[b, k, i] * Z[b, k, j] } }   becomes
 *     map b, i, j { reduce k { Yt[b, i, j] sum= X[b, k, i] * Z[b, k, j] } }  map i, j, b { Y[i, j, b] = Yt[b, i, j] }
 *
 * Runs after fusion, which would undo the copies. */
#include "passes/passes.h"
#include "passes/product.h"

enum { MAX_COPIES = 16 };

/* A copy made for the node at hand. */
typedef struct {
  dc_cid from, to;
  uint32_t dim, other; /* swapped */
} copy;

typedef struct {
  dc_graph *graph;
  dc_nid top;
  dc_scope *out; /* where copies go */
  copy copies[MAX_COPIES];
  uint32_t n;
  dc_nid behind; /* follows the node; 0: nothing */
} search;

/* ---- which operands ---- */

static bool uses_any(const dc_pool *pool, dc_ex e, const dc_param *params, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    if (dc_ex_uses_param(pool, e, params[k])) return true;
  return false;
}

/* The column moves dimension *dim alone, and something else the last one, but no data: what is gathered of a row lies close together.
 * Symbols: the copy has every element, read or not, so that no extent matters; an unknown number of rows counts as many. */
static bool runs_across(const search *s, const dc_product_place *p, dc_ex read, uint32_t *dim) {
  dc_pool *pool = &s->graph->pool;
  uint32_t rank = dc_ex_node(pool, read)->nargs, found = 0;
  if (rank < 2) return false;
  dc_ex last = dc_ex_arg(pool, read, rank - 1);
  if (dc_ex_uses_op(pool, last, DC_EX_READ)) return false;
  if (dc_ex_uses_param(pool, last, p->column) || !dc_ex_uses_op(pool, last, DC_EX_PARAM)) return false;
  for (uint32_t d = 0; d + 1 < rank; d++) {
    dc_ex index = dc_ex_arg(pool, read, d);
    if (!dc_ex_uses_param(pool, index, p->column)) continue;
    if (!dc_product_moves_by_one(pool, index, p->column) || uses_any(pool, index, p->reduce->params, p->reduce->n_params)) return false;
    *dim = d, found++;
  }
  return found == 1;
}

/* ---- terms ---- */

static uint32_t last_of(const dc_pool *pool, dc_ex read) { return dc_ex_node(pool, read)->nargs - 1; }

/* The two loops of a sum are neighbouring dimensions of the operand: d and d + 1; first: the outer one comes first. */
static bool follows_terms(const search *s, const dc_product_place *p, dc_ex read, bool first, uint32_t *dim) {
  dc_pool *pool = &s->graph->pool;
  dc_ex outer = dc_ex_par(pool, p->reduce->params[0]), inner = dc_ex_par(pool, p->reduce->params[1]);
  for (*dim = 0; *dim + 2 < dc_ex_node(pool, read)->nargs; ++*dim)
    if (dc_ex_arg(pool, read, *dim) == (first ? outer : inner) && dc_ex_arg(pool, read, *dim + 1) == (first ? inner : outer)) return true;
  return false;
}

/* One operand's terms lie in the order of the loops and the other's across it: turned round they are one long sum. */
static bool is_turned(search *s, const dc_product_place *p, dc_ex read, dc_ex other, uint32_t *dim) {
  const dc_pool *pool = &s->graph->pool;
  uint32_t at;
  if (p->reduce->n_params != 2 || dc_ex_node(pool, read)->op != DC_EX_READ || dc_ex_node(pool, other)->op != DC_EX_READ) return false;
  if (dc_ex_uses_param(pool, other, p->column) == dc_ex_uses_param(pool, read, p->column)) return false;
  const dc_container *c = dc_cont(s->graph, dc_ex_node(pool, read)->ref);
  bool dense = (c->dtype == DC_F32 || c->dtype == DC_F64) && c->storage == DC_STORE_HEAP && !c->strides;
  return dense && follows_terms(s, p, other, true, &at) && follows_terms(s, p, read, false, dim) &&
         dc_product_reads_of_each(s->graph, p, read) >= s->graph->machine.few_rows &&
         !dc_product_writes(s->graph, p, dc_ex_node(pool, read)->ref);
}

/* ---- copies ---- */

static void swap(uint32_t *list, uint32_t dim, uint32_t other) {
  uint32_t kept = list[dim];
  list[dim] = list[other], list[other] = kept;
}

static dc_cid make_copy(search *s, dc_cid from, uint32_t dim, uint32_t other) {
  dc_graph *graph = s->graph;
  dc_container c = *dc_cont(graph, from);
  dc_param params[DC_MAX_RANK];
  dc_ex shape[DC_MAX_RANK], index[DC_MAX_RANK];
  for (uint32_t d = 0; d < c.rank; d++) {
    shape[d] = c.shape[d];
    params[d] = dc_param_new(&graph->pool, "x", dc_ex_int(&graph->pool, 0), c.shape[d], 0);
    index[d] = dc_ex_par(&graph->pool, params[d]);
  }
  dc_ex value = dc_ex_read(&graph->pool, (dc_dtype)c.dtype, from, index, c.rank);
  swap(shape, dim, other), swap(index, dim, other), swap(params, dim, other); /* written in order */
  dc_cid to = dc_container_after(graph, from, "t", (dc_dtype)c.dtype, c.rank, shape);
  dc_nid tasklet = dc_node_tasklet(graph, to, DC_WCR_NONE, index, c.rank, 0, value);
  dc_nid map = dc_node_wrap(graph, DC_MAP_PARALLEL, params, c.rank, tasklet);
  dc_node top = *dc_node_at(graph, s->top), *made = dc_node_at(graph, map);
  made->name = top.name, made->tag_op = top.tag_op, made->tag_wrt = top.tag_wrt;
  dc_scope_push(graph, s->out, map);
  return to;
}

static dc_cid copy_of(search *s, dc_cid from, uint32_t dim, uint32_t other) {
  for (uint32_t k = 0; k < s->n; k++)
    if (s->copies[k].from == from && s->copies[k].dim == dim && s->copies[k].other == other) return s->copies[k].to;
  if (s->n == MAX_COPIES) return 0;
  dc_cid to = make_copy(s, from, dim, other);
  s->copies[s->n++] = (copy){from, to, dim, other};
  return to;
}

static dc_ex read_of_copy(search *s, dc_ex read, uint32_t dim, uint32_t other) {
  dc_pool *pool = &s->graph->pool;
  dc_exnode node = *dc_ex_node(pool, read);
  dc_ex index[DC_MAX_RANK];
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(pool, read, d);
  swap(index, dim, other);
  dc_cid to = copy_of(s, node.ref, dim, other);
  return to ? dc_ex_read(pool, (dc_dtype)node.dtype, to, index, node.nargs) : read;
}

/* ---- batches in the columns ---- */

static bool is_both(const dc_pool *pool, dc_ex a, dc_ex b, dc_param p) {
  return dc_ex_uses_param(pool, a, p) && dc_ex_uses_param(pool, b, p);
}

/* The parameter that could be the column instead: one of one operand alone, best where it moves that by one element. */
static uint32_t better_column(const search *s, const dc_product_place *p, const dc_map *map, dc_ex a, dc_ex b) {
  dc_pool *pool = &s->graph->pool;
  uint32_t found = map->n_params, of_a = 0, of_b = 0;
  bool by_one = false;
  for (uint32_t k = 0; k + 1 < map->n_params; k++) {
    bool in_a = dc_ex_uses_param(pool, a, map->params[k]), in_b = dc_ex_uses_param(pool, b, map->params[k]);
    if (in_a == in_b) continue;
    of_a += in_a, of_b += in_b;
    dc_product_place at = *p;
    at.column = map->params[k];
    dc_ex read = in_a ? a : b, other = in_a ? b : a;
    uint32_t dim;
    bool last = dc_product_moves_by_one(pool, dc_ex_arg(pool, read, last_of(pool, read)), map->params[k]);
    if (!dc_product_copy_pays(s->graph, &at, read, other) || !(last || runs_across(s, &at, read, &dim))) continue;
    if (found == map->n_params || (last && !by_one)) found = k, by_one = last;
  }
  return of_a && of_b ? found : map->n_params;
}

/* Each dimension of what the tasklet writes is a parameter of the map, over its whole extent: dimensions[k] is that of the k-th. */
static bool fills_result(const search *s, const dc_map *map, const dc_tasklet *t, uint32_t *dimensions) {
  const dc_pool *pool = &s->graph->pool;
  const dc_container *c = dc_cont(s->graph, t->out);
  int64_t zero;
  if (c->rank != map->n_params || c->storage != DC_STORE_HEAP || c->strides || c->alias_of || t->rank != c->rank) return false;
  for (uint32_t k = 0; k < map->n_params; k++) {
    dc_parameter range = pool->params.v[map->params[k]];
    uint32_t found = 0;
    for (uint32_t d = 0; d < c->rank; d++)
      if (dc_ex_node(pool, t->index[d])->op == DC_EX_PARAM && dc_ex_node(pool, t->index[d])->ref == map->params[k])
        dimensions[k] = d, found++;
    if (found != 1 || range.end != c->shape[dimensions[k]] || !dc_ex_is_int(pool, range.begin, &zero) || zero != 0) return false;
  }
  return true;
}

/* Y = Yt, in the order of Y. */
static dc_nid turn_back(search *s, dc_cid turned, dc_cid to, const uint32_t *dimensions) {
  dc_graph *graph = s->graph;
  dc_container c = *dc_cont(graph, to);
  dc_param params[DC_MAX_RANK];
  dc_ex index[DC_MAX_RANK], from[DC_MAX_RANK];
  for (uint32_t d = 0; d < c.rank; d++) {
    params[d] = dc_param_new(&graph->pool, "x", dc_ex_int(&graph->pool, 0), c.shape[d], 0);
    index[d] = dc_ex_par(&graph->pool, params[d]);
  }
  for (uint32_t k = 0; k < c.rank; k++) from[k] = index[dimensions[k]];
  dc_ex value = dc_ex_read(&graph->pool, (dc_dtype)c.dtype, turned, from, c.rank);
  dc_nid map = dc_node_wrap(graph, DC_MAP_PARALLEL, params, c.rank, dc_node_tasklet(graph, to, DC_WCR_NONE, index, c.rank, 0, value));
  dc_node top = *dc_node_at(graph, s->top), *made = dc_node_at(graph, map);
  made->name = top.name, made->tag_op = top.tag_op, made->tag_wrt = top.tag_wrt;
  return map;
}

/* The map becomes one of the batch outermost, into an array of its own, which s->behind turns back. */
static void turn_result(search *s, dc_product_place *p, dc_nid id, dc_ex a, dc_ex b) {
  dc_graph *graph = s->graph;
  dc_map map = dc_node_at(graph, s->top)->map;
  dc_tasklet t = dc_node_at(graph, id)->tasklet;
  uint32_t dimensions[DC_MAX_RANK], n = map.n_params, chosen;
  dc_ex shape[DC_MAX_RANK];
  if (p->n_maps != 1 || map.body.n != 1 || p->reduce->body.n != 1 || n > DC_MAX_RANK || !is_both(&graph->pool, a, b, p->column)) return;
  if (!fills_result(s, &map, &t, dimensions) || (chosen = better_column(s, p, &map, a, b)) == n) return;
  uint32_t order[DC_MAX_RANK], to = 0; /* the batch, the rest, the chosen column */
  for (uint32_t k = 0; k < n; k++)
    if (is_both(&graph->pool, a, b, map.params[k])) order[to++] = k;
  for (uint32_t k = 0; k < n; k++)
    if (k != chosen && !is_both(&graph->pool, a, b, map.params[k])) order[to++] = k;
  order[n - 1] = chosen;
  dc_param *params = DC_NEW_ARRAY(&graph->arena, dc_param, n);
  dc_ex *index = DC_NEW_ARRAY(&graph->arena, dc_ex, n);
  uint32_t turned_dims[DC_MAX_RANK];
  dc_container c = *dc_cont(graph, t.out);
  for (uint32_t k = 0; k < n; k++) {
    params[k] = map.params[order[k]], index[k] = dc_ex_par(&graph->pool, params[k]);
    turned_dims[k] = dimensions[order[k]], shape[k] = c.shape[turned_dims[k]];
  }
  dc_cid turned = dc_container_after(graph, t.out, "t", (dc_dtype)c.dtype, n, shape);
  dc_node_at(graph, s->top)->map.params = params;
  dc_node_at(graph, id)->tasklet.out = turned, dc_node_at(graph, id)->tasklet.index = index;
  s->behind = turn_back(s, turned, t.out, turned_dims);
  p->column = params[n - 1];
}

static dc_status visit(void *context, dc_nid id, const dc_nid *maps, uint32_t n_maps) {
  search *s = context;
  dc_pool *pool = &s->graph->pool;
  dc_map reduce;
  dc_product_place p;
  if (!dc_product_find(s->graph, s->top, id, maps, n_maps, &reduce, &p)) return DC_OK;
  dc_ex a = p.factors[0], b = p.factors[1];
  uint32_t dim;
  turn_result(s, &p, id, a, b);
  if (dc_product_copy_pays(s->graph, &p, a, b) && runs_across(s, &p, a, &dim)) a = read_of_copy(s, a, dim, last_of(pool, a));
  else if (dc_product_copy_pays(s->graph, &p, b, a) && runs_across(s, &p, b, &dim)) b = read_of_copy(s, b, dim, last_of(pool, b));
  else if (is_turned(s, &p, a, b, &dim)) a = read_of_copy(s, a, dim, dim + 1);
  else if (is_turned(s, &p, b, a, &dim)) b = read_of_copy(s, b, dim, dim + 1);
  else return DC_OK;
  dc_ex value = dc_ex_of_term(pool, p.term, a, b);
  dc_node_at(s->graph, id)->tasklet.value = value;
  return DC_OK;
}

static dc_status copy_around(void *context, dc_graph *graph, dc_nid map, dc_scope *out) {
  (void)context;
  search s = {.graph = graph, .top = map, .out = out};
  DC_TRY(dc_node_tasklets(graph, map, visit, &s));
  dc_scope_push(graph, out, map);
  if (s.behind) dc_scope_push(graph, out, s.behind);
  return DC_OK;
}

dc_status dc_pass_columns(dc_graph *graph) { return dc_graph_each_map(graph, copy_around, NULL); }
