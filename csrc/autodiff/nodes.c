/* The adjoint of a node: tasklet statements, reductions, sequential loops, library nodes. */
#include <string.h>

#include "autodiff/reverse.h"

/* ---- statements ---- */

/* The gradient of the written element, in the compute type. */
static dc_ex seed_of(dc_reverse *r, const dc_tasklet *t) {
  dc_pool *pool = &r->graph->pool;
  dc_cid g = r->grad[t->out];
  dc_dtype type = (dc_dtype)dc_cont(r->graph, g)->dtype;
  return dc_ex_cast(pool, dc_dtype_compute(type), dc_ex_read(pool, type, g, t->index, t->rank));
}

/* Earlier writers of an overwritten element get no gradient from later readers. */
void dc_clear_overwritten(dc_reverse *r, const dc_nest *nest, const dc_tasklet *t) {
  dc_pool *pool = &r->graph->pool;
  dc_param fresh[DC_MAX_LOOPS];
  dc_ex to[DC_MAX_LOOPS], *index = DC_NEW_ARRAY(&r->arena, dc_ex, t->rank);
  for (uint32_t k = 0; k < nest->n_loops; k++) {
    dc_parameter p = pool->params.v[nest->loops[k]];
    dc_ex begin = dc_ex_subst(pool, p.begin, nest->loops, to, k), end = dc_ex_subst(pool, p.end, nest->loops, to, k);
    fresh[k] = dc_param_new(pool, dc_name_text(&r->graph->names, p.name), begin, end, p.step);
    to[k] = dc_ex_par(pool, fresh[k]);
  }
  for (uint32_t d = 0; d < t->rank; d++) index[d] = dc_ex_subst(pool, t->index[d], nest->loops, to, nest->n_loops);
  dc_ex guard = t->guard ? dc_ex_subst(pool, t->guard, nest->loops, to, nest->n_loops) : 0;
  dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(r->graph, r->grad[t->out])->dtype);
  dc_nid tasklet = dc_node_tasklet(r->graph, r->grad[t->out], DC_WCR_NONE, index, t->rank, guard, dc_ex_const(pool, type, 0));
  dc_reverse_tag(r, tasklet);
  if (nest->n_loops) {
    bool apart = dc_ix_apart(pool, index, t->rank, fresh, nest->n_loops);
    dc_nid map = dc_node_map(r->graph, apart ? DC_MAP_PARALLEL : DC_MAP_SCATTER, fresh, nest->n_loops);
    dc_scope body = {0};
    dc_scope_push(r->graph, &body, tasklet);
    dc_node_at(r->graph, map)->map.body = body;
    dc_reverse_tag(r, map);
    tasklet = map;
  }
  dc_scope_push(r->graph, r->out, tasklet);
}

/* The value of a statement as its container holds it.  Inside a sequential loop what the backward reads is kept, never
 * computed again, so that the result is as good as its operands; elsewhere fusion likes the operands better. */
static dc_ex result_of(dc_reverse *r, const dc_nest *nest, const dc_tasklet *t) {
  dc_dtype type = (dc_dtype)dc_cont(r->graph, t->out)->dtype;
  bool holds = nest->in_sequence && !t->wcr && !t->guard && !r->rewritten[t->out] && type == dc_ex_dtype(&r->graph->pool, t->value);
  return holds ? dc_ex_read(&r->graph->pool, type, t->out, t->index, t->rank) : 0;
}

static dc_status reverse_tasklet(dc_reverse *r, const dc_nest *nest, dc_nid id) {
  dc_tasklet t = dc_node_at(r->graph, id)->tasklet;
  dc_pool *pool = &r->graph->pool;
  if (t.out >= r->n || !r->grad[t.out] || !r->active[t.out]) return DC_OK;
  if (t.wcr > DC_WCR_SUM)
    return dc_error(DC_ERR_UNSUPPORTED, "operator %s has no gradient: it combines by %s into what is there",
                    dc_name_text(&r->graph->names, dc_node_at(r->graph, id)->tag_op), dc_wcr_name((dc_wcr)t.wcr));
  dc_partials partials = {0};
  if (!nest->in_sequence) dc_told_note(r, nest, &t);
  bool clears = !t.wcr && (r->rewritten[t.out] || nest->in_sequence);
  if (clears) dc_gradient_owned(r, t.out);
  DC_TRY(dc_scalar_partials(r, t.value, result_of(r, nest, &t), seed_of(r, &t), &partials));
  for (uint32_t k = 0; k < partials.n; k++) {
    partials.v[k].guard = dc_ex_and(pool, t.guard, partials.v[k].guard);
    DC_TRY(dc_emit_contribution(r, nest, &partials.v[k]));
  }
  if (clears && r->rewritten[t.out]) dc_clear_overwritten(r, nest, &t);
  return DC_OK;
}

/* ---- maps ---- */

static dc_status reverse_in(dc_reverse *r, dc_nest *nest, dc_nid id);

static dc_status reverse_body(dc_reverse *r, dc_nest *nest, const dc_scope *body) {
  for (uint32_t k = body->n; k-- > 0;) DC_TRY(reverse_in(r, nest, body->v[k]));
  return DC_OK;
}

typedef struct {
  dc_reverse *r;
} zeroing;

static void zero_read(void *context, dc_cid c, dc_use use, dc_nid by) {
  dc_reverse *r = ((zeroing *)context)->r;
  (void)by, (void)use;
  if (c < r->n && r->active[c] && dc_dtype_is_float((dc_dtype)dc_cont(r->graph, c)->dtype)) dc_gradient_zeroed(r, c);
}

/* A loop whose iterations feed each other runs backwards; gradients that it touches exist before. */
static dc_status reverse_sequential(dc_reverse *r, const dc_nest *outer_nest, dc_nid id) {
  dc_map map = dc_node_at(r->graph, id)->map;
  dc_pool *pool = &r->graph->pool;
  if (map.n_params != 1) return dc_error(DC_ERR_UNSUPPORTED, "gradient of a sequential map with several parameters");
  int64_t step;
  if (!dc_ex_is_int(pool, pool->params.v[map.params[0]].step, &step) || step != 1)
    return dc_error(DC_ERR_UNSUPPORTED, "gradient of a sequential loop with a step");
  zeroing z = {r};
  dc_node_uses(r->graph, id, zero_read, &z);
  dc_scope body = {0}, *outer = r->out, *outer_prologue = r->prologue;
  dc_parameter p = pool->params.v[map.params[0]];
  /* parallel loops around it go inside: their iterations do not depend on one another */
  dc_nest nest = {outer_nest->loops, outer_nest->n_loops, .in_sequence = true};
  for (uint32_t k = 0; k < nest.n_loops; k++)
    if (dc_ex_uses_param(pool, p.begin, nest.loops[k]) || dc_ex_uses_param(pool, p.end, nest.loops[k]))
      return dc_error(DC_ERR_UNSUPPORTED, "gradient of a sequential loop whose length depends on a loop around it");
  r->prologue = outer_prologue ? outer_prologue : outer;
  r->out = &body;
  dc_status status = reverse_body(r, &nest, &map.body);
  r->out = outer, r->prologue = outer_prologue;
  if (status) return status;
  dc_param fresh = dc_param_new(pool, dc_name_text(&r->graph->names, p.name), p.begin, p.end, 0);
  dc_ex mirrored = dc_ix_sub(pool, dc_ix_sub(pool, dc_ix_add(pool, p.begin, p.end), dc_ex_int(pool, 1)), dc_ex_par(pool, fresh));
  for (uint32_t k = 0; k < body.n; k++) dc_node_substitute(r->graph, body.v[k], map.params[0], mirrored);
  dc_nid loop = dc_node_map(r->graph, DC_MAP_SEQUENTIAL, &fresh, 1);
  dc_node_at(r->graph, loop)->map.body = body;
  dc_reverse_tag(r, loop);
  dc_scope_push(r->graph, r->out, loop);
  return DC_OK;
}

static dc_status reverse_in(dc_reverse *r, dc_nest *nest, dc_nid id) {
  dc_node node = *dc_node_at(r->graph, id);
  if (node.kind == DC_NODE_TASKLET) return reverse_tasklet(r, nest, id);
  if (node.kind == DC_NODE_LIBRARY) return dc_error(DC_ERR_UNSUPPORTED, "gradient of a library node inside a map");
  if (node.map.schedule == DC_MAP_SEQUENTIAL) return reverse_sequential(r, nest, id);
  if (node.map.schedule == DC_MAP_REDUCE) return dc_reverse_reduction(r, nest->loops, nest->n_loops, id, nest->in_sequence);
  dc_param loops[DC_MAX_LOOPS];
  if (nest->n_loops + node.map.n_params > DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "more than %d nested loops", DC_MAX_LOOPS);
  if (nest->n_loops) memcpy(loops, nest->loops, nest->n_loops * sizeof *loops);
  memcpy(loops + nest->n_loops, node.map.params, node.map.n_params * sizeof *loops);
  dc_nest inner = {loops, nest->n_loops + node.map.n_params, nest->in_sequence};
  return reverse_body(r, &inner, &node.map.body);
}

/* ---- library nodes ---- */

/* The gradient of input k goes to a container of its own, then is added to what is there. */
static dc_status contribute_library(dc_reverse *r, dc_nid id, uint32_t k, const dc_cid *grad_out) {
  dc_library lib = dc_node_at(r->graph, id)->lib;
  dc_cid input = lib.in[k];
  bool first = !r->grad[input];
  const dc_row *row = dc_ops_row_of(r->ops, r->graph, &lib);
  bool view = row && dc_row_is_alias(row);
  dc_cid part = view || !first ? dc_gradient_part(r, input) : dc_gradient_new(r, input);
  if (view) { /* the same elements under the input's shape */
    dc_cont(r->graph, part)->alias_of = grad_out[0];
  } else if (row && dc_row_has_grad(row)) {
    DC_TRY(dc_ops_expand_grad(r->ops, r->graph, id, k, grad_out, part, r->out));
  } else {
    dc_cid *in = DC_NEW_ARRAY(&r->graph->arena, dc_cid, lib.n_in + 2 * lib.n_out);
    memcpy(in, lib.in, lib.n_in * sizeof *in);
    memcpy(in + lib.n_in + lib.n_out, grad_out, lib.n_out * sizeof *in);
    dc_nid node = dc_node_library(r->graph, dc_name_text(&r->graph->names, lib.op), dc_name_text(&r->graph->names, lib.domain), lib.since,
                                  in, lib.n_in + 2 * lib.n_out, &part, 1, lib.attr, lib.n_attr);
    dc_node *made = dc_node_at(r->graph, node);
    made->lib.wrt = k + 1, made->lib.n_fwd_in = lib.n_in, made->lib.n_fwd_out = lib.n_out;
    made->name = dc_node_at(r->graph, id)->name;
    dc_scope_push(r->graph, r->out, node);
  }
  dc_gradient_add(r, input, part);
  return DC_OK;
}

static dc_status reverse_library(dc_reverse *r, dc_nid id) {
  dc_library lib = dc_node_at(r->graph, id)->lib;
  dc_cid *grad_out = DC_NEW_ARRAY(&r->arena, dc_cid, lib.n_out);
  bool any = false;
  for (uint32_t k = 0; k < lib.n_out; k++) {
    if (lib.out[k] && lib.out[k] < r->n && r->active[lib.out[k]]) grad_out[k] = r->grad[lib.out[k]];
    any |= grad_out[k] != 0;
  }
  for (uint32_t k = 0; any && k < lib.n_in; k++) {
    if (!lib.in[k] || !r->active[lib.in[k]]) continue;
    dc_status status = contribute_library(r, id, k, grad_out);
    if (status) return dc_error_at(status, "gradient of %s", dc_node_describe(r->graph, id));
  }
  return DC_OK;
}

dc_status dc_reverse_node(dc_reverse *r, dc_nid id) {
  const dc_node *node = dc_node_at(r->graph, id);
  dc_views_fold(r, id);
  if (dc_own_reverse(r, id)) return DC_OK;
  if (node->kind == DC_NODE_LIBRARY && node->lib.wrt) return dc_linear_reverse(r, id), DC_OK;
  if (node->kind == DC_NODE_LIBRARY) return reverse_library(r, id);
  dc_nest nest = {0};
  dc_name op = node->tag_op;
  r->tag_op = op;
  dc_status status = reverse_in(r, &nest, id);
  return op && status ? dc_error_at(status, "gradient of %s", dc_name_text(&r->graph->names, op)) : status;
}

/* ---- activity ---- */

typedef struct {
  dc_cid c;
  dc_nid by, node;
} written_part;

enum { MAX_PARTS = 256 /* of what was written that are looked at for one write more */ };

typedef struct {
  dc_reverse *r;
  bool reads_active, mark, last; /* last: of the two looks at a node */
  dc_nid node;
  DC_VEC(written_part) parts;
} activity;

typedef struct {
  dc_nid tasklet;
  dc_graph *graph;
  bool again;
} loop_search;

/* Does each step of the sequential loops around the tasklet write elements of its own? */
static dc_status look_at_loops(void *context, dc_nid tasklet, const dc_nid *maps, uint32_t n) {
  loop_search *s = context;
  dc_tasklet t = dc_node_at(s->graph, tasklet)->tasklet;
  for (uint32_t k = 0; k < n && tasklet == s->tasklet; k++) {
    dc_map map = dc_node_at(s->graph, maps[k])->map;
    s->again |= map.schedule == DC_MAP_SEQUENTIAL && !dc_ix_apart(&s->graph->pool, t.index, t.rank, map.params, map.n_params);
  }
  return DC_OK;
}

/* A loop writes the same elements in each of its steps. */
static bool again_in_loop(dc_graph *graph, dc_nid node, dc_nid by) {
  loop_search s = {by, graph, false};
  if (dc_node_at(graph, by)->kind != DC_NODE_TASKLET || node == by) return false;
  dc_status none = dc_node_tasklets(graph, node, look_at_loops, &s);
  dc_status_free(none);
  return s.again;
}

/* Do tasklets of two nodes write different elements, since one stays below the other in some dimension?  Their loops run
 * independently of each other, and for all values of symbols. */
static bool writes_apart(dc_graph *graph, const written_part *a, const written_part *b) {
  if (a->node == b->node || dc_node_at(graph, a->by)->kind != DC_NODE_TASKLET || dc_node_at(graph, b->by)->kind != DC_NODE_TASKLET)
    return false;
  const dc_tasklet x = dc_node_at(graph, a->by)->tasklet, y = dc_node_at(graph, b->by)->tasklet;
  bool apart = false;
  for (uint32_t d = 0; d < x.rank && x.rank == y.rank && !apart; d++) {
    dc_ex above = dc_ix_sub(&graph->pool, x.index[d], y.index[d]), below = dc_ix_sub(&graph->pool, y.index[d], x.index[d]);
    apart = dc_ix_proves_ge(&graph->pool, above, 1) || dc_ix_proves_ge(&graph->pool, below, 1);
  }
  return apart;
}

/* May an element that was written be written again?  Of what is written without a node, as arguments are, every one. */
static bool overwrites(activity *a, dc_cid c, dc_nid by) {
  const written_part part = {c, by, a->node};
  bool found = false, apart = a->parts.n <= MAX_PARTS;
  for (uint32_t k = 0; k < a->parts.n && a->r->written[c] && apart; k++) {
    if (a->parts.v[k].c != c) continue;
    found = true, apart = writes_apart(a->r->graph, &a->parts.v[k], &part);
  }
  DC_PUSH(&a->r->arena, &a->parts, part);
  return a->r->written[c] && !(found && apart);
}

/* Through what a tasklet stops no gradient passes. */
static bool stops(const dc_graph *graph, dc_nid by) {
  const dc_node *node = dc_node_at(graph, by);
  return node->kind == DC_NODE_TASKLET && dc_ex_node(&graph->pool, node->tasklet.value)->op == DC_STOP;
}

static void look(void *context, dc_cid c, dc_use use, dc_nid by) {
  activity *a = context;
  if (c >= a->r->n) return;
  if (dc_cont(a->r->graph, c)->alias_of) a->r->active[c] |= a->r->active[dc_container_root(a->r->graph, c)];
  if (!a->mark && use == DC_USE_READ && a->r->active[c] && !stops(a->r->graph, by)) a->reads_active = true;
  if (a->mark && use == DC_USE_WRITE) {
    bool real = dc_dtype_is_float((dc_dtype)dc_cont(a->r->graph, c)->dtype);
    if (a->reads_active && real) a->r->active[c] = true;
    if (a->last && (overwrites(a, c, by) || again_in_loop(a->r->graph, a->node, by))) a->r->rewritten[c] = true;
    a->r->written[c] |= a->last;
  }
}

void dc_reverse_activity(dc_reverse *r, const dc_scope *scope) {
  activity a = {.r = r};
  for (uint32_t k = 0; k < scope->n; k++) {
    a.reads_active = dc_own_gives(r, scope->v[k]), a.mark = false, a.node = scope->v[k];
    for (int pass = 0; pass < 2; pass++) { /* a sequential loop may feed itself */
      a.mark = false, a.last = pass == 1;
      dc_node_uses(r->graph, scope->v[k], look, &a);
      a.mark = true;
      dc_node_uses(r->graph, scope->v[k], look, &a);
    }
  }
}
