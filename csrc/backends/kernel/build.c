/* From a node to a kernel.
 *
 * The node is copied into a graph of the kernel's own (extract.c).  Then every access gets one flat address; of the
 * index of each dimension only what the address cannot say is kept: whether it is sure to be in range, what must be
 * checked, and which loops never write one element twice. */
#include <stdlib.h>

#include "backends/kernel/kernel.h"
#include "backends/kernel/extract.h"

enum { MAX_CONDITIONS = 16, MAX_TRUTHS = 2 };

/* ---- addresses ---- */

/* Of an image whose neighbouring channels lie next to one another, a read that the program would not make, such as one of
 * padding, may be of another pixel: without a branch, vectors run along the channels. */
static bool may_be_moved(const dc_kernel *k, const dc_container *c, uint32_t d, dc_ex index) {
  int64_t stride, extent;
  return c->strides && !(dc_ex_is_int(k->pool, c->strides[d], &stride) && stride == 1) && dc_ex_is_int(k->pool, c->shape[d], &extent) &&
         extent > 0 && !dc_ex_uses_op(k->pool, index, DC_EX_READ);
}

static dc_ex moved_inside(dc_pool *pool, dc_ex index, dc_ex extent) {
  return dc_ix_min(pool, dc_ix_max(pool, index, dc_ex_int(pool, 0)), dc_ix_sub(pool, extent, dc_ex_int(pool, 1)));
}

/* A multi-dimensional READ, whose indices hold flat ones already, as a flat one. */
static dc_ex flatten_read(void *context, dc_pool *pool, dc_ex x) {
  const dc_kernel *k = context;
  const dc_exnode node = *dc_ex_node(pool, x);
  if (node.op != DC_EX_READ) return x;
  dc_container c = *dc_cont(k->graph, node.ref);
  dc_ex stride = dc_ex_int(pool, 1), address = dc_ex_int(pool, 0), check = 0;
  bool sure = true;
  for (uint32_t d = c.rank; d-- > 0;) {
    dc_ex i = dc_ex_arg(pool, x, d), inside = dc_ex_in_range(pool, i, c.shape[d]);
    bool certain = dc_kernel_is_true(k, inside);
    if (!certain && may_be_moved(k, &c, d, i)) i = moved_inside(pool, i, c.shape[d]), certain = true;
    sure = sure && certain;
    if (!certain && dc_ex_uses_op(pool, i, DC_EX_READ)) { /* never outside, whatever the data says */
      check = dc_ex_and(pool, check, inside);
      i = dc_ex_select(pool, inside, i, dc_ex_int(pool, 0));
    }
    address = dc_ix_add(pool, address, dc_ix_mul(pool, i, c.strides ? c.strides[d] : stride));
    stride = dc_ix_mul(pool, stride, c.shape[d]);
  }
  dc_ex args[] = {address, check ? check : dc_ex_bool(pool, true)};
  return dc_ex_read(pool, (dc_dtype)node.dtype, node.ref, args, sure ? 1 : 2);
}

/* A condition, and others that hold where it does. */
typedef struct {
  dc_ex v[MAX_CONDITIONS];
  uint32_t n;
} conditions;

static void add_conditions(const dc_pool *pool, dc_ex e, conditions *out) {
  if (dc_ex_node(pool, e)->op == DC_AND) {
    add_conditions(pool, dc_ex_arg(pool, e, 0), out);
    add_conditions(pool, dc_ex_arg(pool, e, 1), out);
  } else if (out->n < MAX_CONDITIONS) {
    out->v[out->n++] = e;
  }
}

static dc_ex is_known(void *context, dc_pool *pool, dc_ex x) {
  const conditions *known = context;
  for (uint32_t j = 0; j < known->n; j++)
    if (known->v[j] == x) return dc_ex_bool(pool, true);
  return x;
}

/* x, which is only evaluated where the condition holds. */
static dc_ex under(dc_pool *pool, dc_ex condition, dc_ex x) {
  int64_t constant;
  conditions known = {.n = 0};
  if (!condition || !x || dc_ex_is_int(pool, condition, &constant)) return x;
  add_conditions(pool, condition, &known);
  return dc_ex_transform(pool, x, is_known, &known);
}

/* What a choice has asked, its first side does not ask again: an index that was found in range is checked once. */
static dc_ex ask_once(void *context, dc_pool *pool, dc_ex x) {
  (void)context;
  const dc_exnode node = *dc_ex_node(pool, x);
  if (node.op != DC_EX_SELECT) return x;
  dc_ex condition = dc_ex_arg(pool, x, 0), a = dc_ex_arg(pool, x, 1), b = dc_ex_arg(pool, x, 2);
  return dc_ex_uses_op(pool, a, DC_EX_READ) ? dc_ex_select(pool, condition, under(pool, condition, a), b) : x;
}

/* ---- indices made of truth values ---- */

static bool is_whole(const dc_pool *pool, dc_ex e) { return dc_ex_node(pool, e)->op == DC_EX_INT; }

static void find_truth(void *context, const dc_pool *pool, dc_ex e) {
  dc_ex *found = context;
  const dc_exnode node = *dc_ex_node(pool, e);
  const dc_ex first = node.nargs ? dc_ex_arg(pool, e, 0) : 0;
  if (node.op == DC_EX_CAST && node.dtype == DC_I64 && dc_ex_dtype(pool, first) == DC_BOOL) *found = first;
  if (node.op == DC_EX_SELECT && is_whole(pool, dc_ex_arg(pool, e, 1)) && is_whole(pool, dc_ex_arg(pool, e, 2))) *found = first;
}

static dc_ex choice_of_reads(dc_pool *pool, dc_ex read, uint32_t depth);

static dc_ex where(dc_pool *pool, dc_ex truth, bool holds, dc_ex read, uint32_t depth) {
  dc_exchange exchange = {truth, dc_ex_bool(pool, holds)};
  return choice_of_reads(pool, dc_ex_transform(pool, read, dc_ex_exchange, &exchange), depth + 1);
}

/* 0: what else the indices are made of is not known either. */
static dc_ex choice_of_reads(dc_pool *pool, dc_ex read, uint32_t depth) {
  dc_ex truth = 0;
  bool reads = false;
  for (uint32_t d = 0; d < dc_ex_node(pool, read)->nargs; d++) {
    dc_ex_walk(pool, dc_ex_arg(pool, read, d), find_truth, &truth);
    reads |= dc_ex_uses_op(pool, dc_ex_arg(pool, read, d), DC_EX_READ);
  }
  if (!truth || depth == MAX_TRUTHS) return reads ? 0 : read;
  const dc_ex yes = where(pool, truth, true, read, depth), no = yes ? where(pool, truth, false, read, depth) : 0;
  return yes && no ? dc_ex_select(pool, truth, yes, no) : 0;
}

/* A read at an index that truth values choose is a choice between reads, which vectors make without gathering. */
static dc_ex choose_read(void *context, dc_pool *pool, dc_ex x) {
  (void)context;
  const dc_ex choice = dc_ex_node(pool, x)->op == DC_EX_READ ? choice_of_reads(pool, x, 0) : 0;
  return choice ? choice : x;
}

static dc_ex flat(dc_kernel *k, dc_ex x) {
  return x ? dc_ex_transform(k->pool, dc_ex_rewrite(k->pool, x, flatten_read, k), ask_once, NULL) : 0;
}

/* ---- writes ---- */

static bool is_in_reduction(const dc_loop *l) {
  while (l && l->schedule != DC_MAP_REDUCE) l = l->parent;
  return l != NULL;
}

static dc_ex in_bounds(dc_kernel *k, const dc_tasklet *t) {
  dc_ex all = dc_ex_bool(k->pool, true);
  for (uint32_t d = 0; d < t->rank; d++)
    all = dc_ex_and(k->pool, all, dc_ex_in_range(k->pool, t->index[d], dc_cont(k->graph, t->out)->shape[d]));
  return all;
}

static dc_ex flat_value(dc_kernel *k, dc_ex x) { return x ? flat(k, dc_ex_rewrite(k->pool, x, choose_read, NULL)) : 0; }

static void add_write(dc_kernel *k, dc_nid node, dc_loop *parent) {
  dc_tasklet t = dc_node_at(k->graph, node)->tasklet;
  dc_write *w = DC_NEW(k->arena, dc_write);
  *w = (dc_write){.out = t.out, .wcr = t.wcr, .ordinal = k->writes.n, .parent = parent};
  w->guard = flat_value(k, t.guard), w->value = flat_value(k, t.value);
  w->element = flat(k, dc_ex_read(k->pool, (dc_dtype)dc_cont(k->graph, t.out)->dtype, t.out, t.index, t.rank));
  w->value = under(k->pool, w->guard, w->value);
  if (!is_in_reduction(parent)) w->element = under(k->pool, w->guard, w->element); /* a sum is stored though no iteration was */
  if (w->wcr && is_in_reduction(parent)) w->inside = flat(k, in_bounds(k, &t));
  for (const dc_loop *l = parent; l->parent; l = l->parent) {
    bool may = l->schedule == DC_MAP_SCATTER || (l->schedule == DC_MAP_REDUCE && w->wcr);
    if (may && !dc_ix_separates(k->pool, t.index, t.rank, l->param)) DC_PUSH(k->arena, &w->meets, l->param);
  }
  DC_PUSH(k->arena, &k->writes, w);
  DC_PUSH(k->arena, &parent->body, ((dc_item){.write = w}));
}

/* ---- the tree ---- */

static void add_node(dc_kernel *k, dc_nid node, dc_loop *parent) {
  if (dc_node_at(k->graph, node)->kind == DC_NODE_TASKLET) {
    add_write(k, node, parent);
    return;
  }
  dc_map map = dc_node_at(k->graph, node)->map;
  for (uint32_t j = 0; j < map.n_params; j++) {
    dc_parameter p = k->pool->params.v[map.params[j]];
    dc_loop *l = DC_NEW(k->arena, dc_loop);
    *l = (dc_loop){.parent = parent, .param = map.params[j], .begin = flat(k, p.begin), .end = flat(k, p.end), .step = 1};
    l->schedule = map.schedule, l->is_entry = j == 0;
    (void)dc_ex_is_int(k->pool, p.step, &l->step);
    k->loop_of.v[l->param] = l;
    DC_PUSH(k->arena, &parent->body, ((dc_item){.loop = l}));
    parent = l;
  }
  for (uint32_t j = 0; j < map.body.n; j++) add_node(k, map.body.v[j], parent);
}

dc_status dc_kernel_build(const dc_graph *graph, dc_nid node, dc_kernel *out) {
  dc_nid copy = 0;
  *out = (dc_kernel){0};
  dc_status status = dc_kernel_extract(graph, node, &out->graph, &copy, &out->n_buffers);
  if (status) {
    dc_graph_destroy(out->graph);
    return *out = (dc_kernel){0}, status;
  }
  dc_kernel_open(out);
  add_node(out, copy, out->root);
  if (dc_loop_only(out->root)) out->outermost = dc_loop_only(out->root)->param;
  dc_kernel_settle(out);
  return DC_OK;
}
