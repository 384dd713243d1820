/* The right operand of a product lies in strips, of as many columns as a tile of sums has: what a tile reads of it is then one run
 * of memory, where rows of a matrix would push each other out of the first cache.
 *
 *     sequential t { map n, v in 0:64 { reduce k { r sum= X[t, n, k] * W[k, v] } Y[t, n, v] = r } }   becomes
 *     map s, k, v { Ws[s, k, v] = W[k, v + 16 * s] }
 *     sequential t { map s in 0:4, n, v in 0:16 { reduce k { r sum= X[t, n, k] * Ws[s, k, v] } Y[t, n, v + 16 * s] = r } }
 *
 * A copy is worth its time where a sequential loop reads it again and again, and where the operand lies across the columns, so that it
 * would be copied anyway.  The last strip may be short: nobody reads what is missing.  Runs after fusion, which would undo the copies. */
#include "ir/work.h"
#include "passes/passes.h"
#include "passes/product.h"

enum { FEW_TERMS = 16, FEW_COLUMNS = 16 };

typedef struct {
  dc_graph *graph;
  dc_nid top;
  dc_scope *out; /* where copies go */
  dc_nid split;  /* the map whose columns are divided already ... */
  dc_param strip; /* ... into strips by this parameter: */
  int64_t columns, width; /* so many, each of so many but for the last one */
} search;

/* What a product reads of an operand: a column for each of `dim`, a term for each of `term`. */
typedef struct {
  dc_ex read;
  uint32_t dim, term;
  int64_t first, columns, width; /* the first column, how many there are, and in a strip */
} operand;

/* Columns of whole tiles, as many as a product needs to be one; 0: nothing holds tiles. */
static int64_t width_of(const dc_graph *graph, dc_dtype type) {
  const int64_t tile = graph->machine.tile_bytes / (type == DC_F64 ? 8 : 4);
  return tile ? (FEW_COLUMNS + tile - 1) / tile * tile : 0;
}

static bool begins_at_zero(const dc_pool *pool, dc_param p) {
  const dc_parameter *range = &pool->params.v[p];
  int64_t begin, step;
  return dc_ex_is_int(pool, range->begin, &begin) && begin == 0 && dc_ex_is_int(pool, range->step, &step) && step == 1;
}

/* The columns of the map, divided or not. */
static bool read_columns(const search *s, const dc_product_place *p, operand *x) {
  const dc_pool *pool = &s->graph->pool;
  const dc_parameter *column = &pool->params.v[p->column];
  x->columns = s->columns;
  if (p->maps[p->n_maps - 1] == s->split) return x->width == s->width;
  return begins_at_zero(pool, p->column) && dc_ex_is_int(pool, column->end, &x->columns) && x->columns >= 2 * x->width;
}

/* index: the column, and whole numbers. */
static bool counts_columns(const search *s, const dc_product_place *p, dc_ex index, operand *x) {
  dc_pool *pool = &s->graph->pool;
  dc_ex by, rest, strips;
  int64_t step;
  if (!dc_product_moves_by_one(pool, index, p->column) || !dc_ix_split(pool, index, p->column, &by, &rest)) return false;
  if (p->maps[p->n_maps - 1] == s->split) {
    if (!dc_ix_split(pool, rest, s->strip, &strips, &rest) || !dc_ex_is_int(pool, strips, &step) || step != s->width) return false;
  }
  return dc_ex_is_int(pool, rest, &x->first) && x->first >= 0;
}

/* The operand follows the column in one dimension, the terms in another, and nothing else; all that the copy reads is there. */
static bool read_operand(const search *s, const dc_product_place *p, operand *x) {
  dc_pool *pool = &s->graph->pool;
  const dc_exnode *read = dc_ex_node(pool, x->read);
  const dc_container *c = dc_cont(s->graph, read->ref);
  dc_ex term = dc_ex_par(pool, p->reduce->params[0]), terms = pool->params.v[p->reduce->params[0]].end;
  uint32_t columns = 0, of_terms = 0;
  int64_t extent, number, few;
  for (uint32_t d = 0; d < read->nargs; d++) {
    dc_ex index = dc_ex_arg(pool, x->read, d);
    if (index == term) {
      x->term = d, of_terms++;
      if (terms != c->shape[d]) return false;
    } else if (dc_ex_uses_param(pool, index, p->column)) {
      x->dim = d, columns++;
      if (!counts_columns(s, p, index, x) || !dc_ex_is_int(pool, c->shape[d], &extent) || x->first + x->columns > extent) return false;
    } else if (!dc_ex_is_int(pool, index, &number)) {
      return false;
    }
  }
  return columns == 1 && of_terms == 1 && !(dc_ex_is_int(pool, terms, &few) && few < FEW_TERMS);
}

/* Rows of the other operand lie as they are read. */
static bool lies_along_terms(const search *s, const dc_product_place *p, dc_ex other) {
  dc_pool *pool = &s->graph->pool;
  const uint32_t last = dc_ex_node(pool, other)->nargs;
  if (!last || !dc_product_moves_by_one(pool, dc_ex_arg(pool, other, last - 1), p->reduce->params[0])) return false;
  for (uint32_t d = 0; d + 1 < last; d++)
    if (dc_ex_uses_param(pool, dc_ex_arg(pool, other, d), p->reduce->params[0])) return false;
  return true;
}

static bool is_repeated(const search *s, const dc_product_place *p) {
  double trips = 1;
  for (uint32_t k = 0; k < p->n_maps; k++) {
    const dc_map *map = &dc_node_at(s->graph, p->maps[k])->map;
    for (uint32_t j = 0; j < map->n_params && map->schedule == DC_MAP_SEQUENTIAL; j++)
      trips *= dc_param_trips(&s->graph->pool, map->params[j]);
  }
  return trips >= s->graph->machine.few_rows;
}

static bool is_wanted(const search *s, const dc_product_place *p, dc_ex other, operand *x) {
  dc_pool *pool = &s->graph->pool;
  if (p->reduce->n_params != 1 || !begins_at_zero(pool, p->reduce->params[0])) return false;
  if (!dc_product_copy_pays(s->graph, p, x->read, other)) return false;
  x->width = width_of(s->graph, (dc_dtype)dc_ex_node(pool, x->read)->dtype);
  if (!x->width || !read_columns(s, p, x) || !read_operand(s, p, x) || !lies_along_terms(s, p, other)) return false;
  return x->dim + 1 < dc_ex_node(pool, x->read)->nargs || is_repeated(s, p);
}

/* ---- the copy ---- */

static dc_ex number(search *s, int64_t n) { return dc_ex_int(&s->graph->pool, n); }

/* Of a column by its strip and its place there. */
static dc_ex column_at(search *s, dc_ex strip, dc_ex lane, int64_t width) {
  dc_pool *pool = &s->graph->pool;
  return dc_ix_add(pool, lane, dc_ix_mul(pool, strip, number(s, width)));
}

/* Parameters of a strip, and of a column there. */
static void new_columns(search *s, const operand *x, const char *name, dc_param *strip, dc_param *lane) {
  dc_pool *pool = &s->graph->pool;
  const dc_ex zero = number(s, 0), width = number(s, x->width);
  *strip = dc_param_new(pool, "s", zero, number(s, (x->columns + x->width - 1) / x->width), 0);
  dc_ex begin = dc_ix_mul(pool, dc_ex_par(pool, *strip), width);
  dc_ex end = x->columns % x->width ? dc_ix_min(pool, width, dc_ix_sub(pool, number(s, x->columns), begin)) : width;
  *lane = dc_param_new(pool, name, zero, end, 0);
}

static dc_cid make_copy(search *s, const dc_product_place *p, const operand *x) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  const dc_exnode read = *dc_ex_node(pool, x->read);
  const dc_ex terms = pool->params.v[p->reduce->params[0]].end, zero = number(s, 0);
  dc_param params[3];
  dc_ex from[DC_MAX_RANK], index[3], shape[3] = {number(s, (x->columns + x->width - 1) / x->width), terms, number(s, x->width)};
  new_columns(s, x, "v", &params[0], &params[2]);
  params[1] = dc_param_new(pool, "k", zero, terms, 0);
  for (int d = 0; d < 3; d++) index[d] = dc_ex_par(pool, params[d]);
  for (uint32_t d = 0; d < read.nargs; d++) from[d] = dc_ex_arg(pool, x->read, d);
  from[x->term] = index[1];
  from[x->dim] = dc_ix_add(pool, column_at(s, index[0], index[2], x->width), number(s, x->first));
  dc_ex value = dc_ex_read(pool, (dc_dtype)read.dtype, read.ref, from, read.nargs);
  dc_cid to = dc_container_after(graph, read.ref, "s", (dc_dtype)read.dtype, 3, shape);
  dc_nid map = dc_node_wrap(graph, DC_MAP_PARALLEL, params, 3, dc_node_tasklet(graph, to, DC_WCR_NONE, index, 3, 0, value));
  dc_node top = *dc_node_at(graph, s->top), *made = dc_node_at(graph, map);
  made->name = top.name, made->tag_op = top.tag_op, made->tag_wrt = top.tag_wrt;
  dc_scope_push(graph, s->out, map);
  return to;
}

/* The map runs over strips, outermost, and the columns of each. */
static void split_columns(search *s, dc_product_place *p, const operand *x) {
  dc_graph *graph = s->graph;
  const dc_nid id = p->maps[p->n_maps - 1];
  const dc_map map = dc_node_at(graph, id)->map;
  dc_param *params = DC_NEW_ARRAY(&graph->arena, dc_param, map.n_params + 1), old = p->column;
  s->split = id, s->columns = x->columns, s->width = x->width;
  new_columns(s, x, dc_name_text(&graph->names, graph->pool.params.v[old].name), &s->strip, &p->column);
  dc_ex strip = dc_ex_par(&graph->pool, s->strip), lane = dc_ex_par(&graph->pool, p->column);
  dc_node_substitute(graph, id, old, column_at(s, strip, lane, x->width));
  params[0] = s->strip, params[map.n_params] = p->column;
  for (uint32_t k = 0; k + 1 < map.n_params; k++) params[k + 1] = map.params[k];
  dc_node_at(graph, id)->map.params = params, dc_node_at(graph, id)->map.n_params = map.n_params + 1;
}

/* What stands for the factor in place k; 0: it stays. */
static dc_ex packed(search *s, dc_product_place *p, int k) {
  dc_pool *pool = &s->graph->pool;
  operand x = {.read = p->factors[k]};
  if (!is_wanted(s, p, p->factors[!k], &x)) return 0;
  const dc_dtype type = (dc_dtype)dc_ex_node(pool, x.read)->dtype;
  dc_cid copy = make_copy(s, p, &x);
  if (p->maps[p->n_maps - 1] != s->split) split_columns(s, p, &x);
  const dc_ex index[] = {dc_ex_par(pool, s->strip), dc_ex_par(pool, p->reduce->params[0]), dc_ex_par(pool, p->column)};
  return dc_ex_read(pool, type, copy, index, 3);
}

static dc_status visit(void *context, dc_nid id, const dc_nid *maps, uint32_t n_maps) {
  search *s = context;
  dc_pool *pool = &s->graph->pool;
  dc_map reduce;
  dc_product_place p;
  if (!dc_product_find(s->graph, s->top, id, maps, n_maps, &reduce, &p)) return DC_OK;
  if (dc_node_at(s->graph, maps[n_maps - 2])->map.n_params == DC_MAX_RANK) return DC_OK;
  for (int k = 0; k < 2; k++) {
    dc_ex fresh = packed(s, &p, k), factors[2];
    if (!fresh) continue;
    dc_term term = dc_ex_term(pool, dc_node_at(s->graph, id)->tasklet.value, &factors[0], &factors[1]); /* columns may have been divided */
    factors[k] = fresh;
    dc_ex value = dc_ex_of_term(pool, term, factors[0], factors[1]);
    dc_node_at(s->graph, id)->tasklet.value = value;
    return DC_OK;
  }
  return DC_OK;
}

static dc_status copy_before(void *context, dc_graph *graph, dc_nid map, dc_scope *out) {
  (void)context;
  search s = {.graph = graph, .top = map, .out = out};
  DC_TRY(dc_node_tasklets(graph, map, visit, &s));
  return dc_scope_push(graph, out, map), DC_OK;
}

dc_status dc_pass_strips(dc_graph *graph) { return dc_graph_each_map(graph, copy_before, NULL); }
