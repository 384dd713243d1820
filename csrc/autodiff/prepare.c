/* What a program needs before it is differentiated, if it was not made of operators: the adjoint of a statement reads
 * values after the forward pass has ended, so that whatever is overwritten after a statement read it is kept here.
 *
 *   registers          become arrays with an element for each iteration (unfuse.c)
 *   parallel maps      whose statements read and write one array become a map for each statement
 *   a value            that later nodes overwrite, or the node itself, is copied before the node that reads it
 *   in a sequential    loop each read that later steps may overwrite is kept by step: L[t, i] = x[i]
 *   results            that the adjoint reads (of operators, of maxima and minima) are written to arrays of their own
 *
 * The program computes what it did.  What cannot be kept is refused. */
#include "autodiff/prepare.h"
#include "autodiff/reverse.h"

#include <string.h>

typedef struct {
  dc_graph *graph;
  dc_arena arena;
  uint32_t state;
  dc_writers *writers; /* by buffer, of the state as it was when places were counted */
  uint32_t n;          /* containers then */
  dc_scope *out;       /* what the state becomes */
  dc_cid *copies;      /* by container: its value as it is now, 0: none was taken since it was written last */
} preparation;

static bool is_map(const dc_graph *graph, dc_nid id) { return dc_node_at(graph, id)->kind == DC_NODE_MAP; }
static dc_map map_at(const dc_graph *graph, dc_nid id) { return dc_node_at(graph, id)->map; }

static dc_status refuse(const dc_graph *graph, dc_cid c, const char *why) {
  return dc_error(DC_ERR_UNSUPPORTED, "'%s' is changed in place, which cannot be differentiated here: %s", dc_cont_name(graph, c), why);
}

/* ---- steps of loops ---- */

/* Loops walk by one from now on. */
static void walk_by_one(dc_graph *graph, dc_nid id) {
  dc_pool *pool = &graph->pool;
  if (!is_map(graph, id)) return;
  dc_map map = map_at(graph, id);
  for (uint32_t k = 0; k < map.n_params; k++) {
    dc_parameter p = pool->params.v[map.params[k]];
    int64_t one;
    if (dc_ex_is_int(pool, p.step, &one) && one == 1) continue;
    dc_ex extent = dc_ix_extent(pool, p.begin, p.end, p.step);
    dc_param fresh = dc_param_new(pool, dc_name_text(&graph->names, p.name), dc_ex_int(pool, 0), extent, 0);
    dc_node_substitute(graph, id, map.params[k], dc_ix_add(pool, p.begin, dc_ix_mul(pool, p.step, dc_ex_par(pool, fresh))));
    dc_node_at(graph, id)->map.params[k] = fresh;
  }
  for (uint32_t k = 0; k < map.body.n; k++) walk_by_one(graph, map.body.v[k]);
}

/* ---- dimensions for loops ---- */

/* The loops around a place as indices and extents, from 0 on. */
typedef struct {
  dc_ex index[DC_MAX_LOOPS], extent[DC_MAX_LOOPS];
  uint32_t n;
} loop_dims;

static dc_status add_dims(dc_graph *graph, const dc_param *params, uint32_t n, dc_cid about, loop_dims *out) {
  dc_pool *pool = &graph->pool;
  for (uint32_t k = 0; k < n; k++) {
    dc_parameter p = pool->params.v[params[k]];
    dc_ex extent = dc_ix_sub(pool, p.end, p.begin);
    if (dc_ex_uses_op(pool, extent, DC_EX_PARAM) || dc_ex_uses_op(pool, extent, DC_EX_READ))
      return refuse(graph, about, "the length of a loop around it changes");
    if (out->n == DC_MAX_RANK) return refuse(graph, about, "too many loops are around it");
    out->index[out->n] = dc_ix_sub(pool, dc_ex_par(pool, params[k]), p.begin);
    out->extent[out->n++] = dc_ix_max(pool, extent, dc_ex_int(pool, 0));
  }
  return DC_OK;
}

/* ---- registers ---- */

/* No two nodes of the state use one register: it is to become an array of a node's iterations. */
static void part_registers(dc_graph *graph, const dc_scope *scope) {
  for (dc_cid c = 1, n = graph->containers.n; c < n; c++) {
    bool found = false;
    for (uint32_t k = 0; dc_cont(graph, c)->storage == DC_STORE_REGISTER && k < scope->n; k++) {
      if (!dc_node_touches_one(graph, scope->v[k], DC_USE_READ | DC_USE_WRITE, c)) continue;
      dc_container old = *dc_cont(graph, c);
      dc_cid own = found ? dc_container_add(graph, dc_cont_name(graph, c), (dc_dtype)old.dtype, old.rank, old.shape, DC_ROLE_TEMP) : c;
      dc_cont(graph, own)->storage = DC_STORE_REGISTER;
      if (found) dc_node_rename(graph, scope->v[k], c, own);
      found = true;
    }
  }
}

/* ---- a map for each statement ---- */

/* What a node does to a buffer, statement by statement.  Adding to an element is no look at it. */
typedef struct {
  const dc_graph *graph;
  dc_cid root;
  uint32_t reads, writes;
  bool early, twice; /* read before it is written; written twice */
} buffer_use;

static void note_value(void *context, const dc_pool *pool, dc_ex e) {
  buffer_use *u = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_READ || dc_container_root(u->graph, node->ref) != u->root) return;
  u->reads++;
  u->early |= !u->writes;
}

static void look_at(buffer_use *u, dc_ex e) {
  if (e) dc_ex_walk(&u->graph->pool, e, note_value, u);
}

static void look_at_node(buffer_use *u, dc_nid id) {
  const dc_node *node = dc_node_at(u->graph, id);
  const dc_graph *graph = u->graph;
  if (node->kind == DC_NODE_LIBRARY) {
    for (uint32_t k = 0; k < node->lib.n_in; k++) u->reads += node->lib.in[k] && dc_container_root(graph, node->lib.in[k]) == u->root;
    for (uint32_t k = 0; k < node->lib.n_out; k++) u->writes += node->lib.out[k] && dc_container_root(graph, node->lib.out[k]) == u->root;
  } else if (node->kind == DC_NODE_TASKLET) {
    look_at(u, node->tasklet.guard), look_at(u, node->tasklet.value);
    for (uint32_t d = 0; d < node->tasklet.rank; d++) look_at(u, node->tasklet.index[d]);
    bool writes = dc_container_root(graph, node->tasklet.out) == u->root;
    u->twice |= writes && u->writes;
    u->writes += writes;
  } else {
    for (uint32_t k = 0; k < node->map.n_params; k++) {
      look_at(u, graph->pool.params.v[node->map.params[k]].begin);
      look_at(u, graph->pool.params.v[node->map.params[k]].end);
    }
    for (uint32_t k = 0; k < node->map.body.n; k++) look_at_node(u, node->map.body.v[k]);
  }
}

static buffer_use use_of(const dc_graph *graph, dc_nid id, dc_cid root) {
  buffer_use u = {.graph = graph, .root = root};
  look_at_node(&u, id);
  return u;
}

/* Does a node that writes and reads the buffer read what it had before, or write it twice?  later: what it reads of its own
 * counts as well. */
static bool changes(const dc_graph *graph, dc_nid id, dc_cid root, bool later) {
  buffer_use u = use_of(graph, id, root);
  return u.reads && u.writes && (later || u.early || u.twice);
}

/* The parallel maps around each child of the innermost body, in their place. */
static void distribute(dc_graph *graph, dc_nid id, dc_scope *out) {
  dc_map map = map_at(graph, id);
  dc_scope inner = {0};
  for (uint32_t k = 0; k < map.body.n; k++) {
    dc_nid child = map.body.v[k];
    if (is_map(graph, child) && map_at(graph, child).schedule == DC_MAP_PARALLEL) distribute(graph, child, &inner);
    else dc_scope_push(graph, &inner, child);
  }
  for (uint32_t k = 0; k < inner.n; k++) {
    dc_nid alone = k ? dc_node_map(graph, DC_MAP_PARALLEL, map.params, map.n_params) : id;
    dc_scope body = {0};
    dc_scope_push(graph, &body, inner.v[k]);
    dc_node old = *dc_node_at(graph, id), *made = dc_node_at(graph, alone);
    made->name = old.name, made->tag_op = old.tag_op, made->tag_wrt = old.tag_wrt, made->map.body = body;
    if (k) alone = dc_node_clone(graph, alone); /* with loops of its own */
    dc_scope_push(graph, out, alone);
  }
}

static dc_scope distribute_all(dc_graph *graph, dc_arena *arena, const dc_scope *scope, uint32_t place) {
  dc_scope out = {0};
  dc_writers *writers = DC_NEW_ARRAY(arena, dc_writers, graph->containers.n);
  dc_graph_writers(graph, writers);
  for (uint32_t k = 0; k < scope->n; k++) {
    dc_nid id = scope->v[k];
    bool mixed = false;
    for (dc_cid c = 1; c < graph->containers.n && is_map(graph, id) && !mixed; c++) 
      mixed = !dc_cont(graph, c)->alias_of && changes(graph, id, c, writers[c].last > place + k + 1);
    if (mixed && map_at(graph, id).schedule == DC_MAP_PARALLEL) distribute(graph, id, &out);
    else dc_scope_push(graph, &out, id);
  }
  return out;
}

/* ---- copies of whole arrays ---- */

static dc_cid temp_like(dc_graph *graph, dc_cid c, const char *prefix) {
  dc_container k = *dc_cont(graph, c);
  char *name = dc_arena_printf(&graph->arena, "%s_%s", prefix, dc_cont_name(graph, c));
  return dc_container_add(graph, name, (dc_dtype)k.dtype, k.rank, k.shape, DC_ROLE_TEMP);
}

static dc_cid copy_of(preparation *p, dc_cid c) {
  if (c < p->n && p->copies[c]) return p->copies[c];
  dc_cid made = temp_like(p->graph, c, "kept");
  dc_scope_push(p->graph, p->out, dc_node_copy(p->graph, c, made));
  if (c < p->n) p->copies[c] = made;
  return made;
}

typedef struct {
  preparation *p;
  dc_cid root;
} redirection;

static dc_ex redirect_read(void *context, dc_pool *pool, dc_ex leaf) {
  const redirection *r = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  dc_ex index[DC_MAX_RANK];
  if (node.op != DC_EX_READ || dc_container_root(r->p->graph, node.ref) != r->root) return leaf;
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(pool, leaf, d);
  return dc_ex_read(pool, (dc_dtype)node.dtype, copy_of(r->p, node.ref), index, node.nargs);
}

/* The node reads copies that are taken before it. */
static void read_copies(preparation *p, dc_nid id, dc_cid root) {
  dc_node *node = dc_node_at(p->graph, id);
  redirection r = {p, root};
  if (node->kind != DC_NODE_LIBRARY) {
    dc_node_rewrite(p->graph, id, redirect_read, &r);
    return;
  }
  dc_library lib = node->lib;
  for (uint32_t k = 0; k < lib.n_in; k++)
    if (lib.in[k] && dc_container_root(p->graph, lib.in[k]) == root) lib.in[k] = copy_of(p, lib.in[k]);
}

/* ---- sequential loops ---- */

typedef struct {
  dc_nid tasklet, maps[DC_MAX_LOOPS]; /* outermost first */
  uint32_t n_maps, order;
} statement;
typedef DC_VEC(statement) statements;

typedef struct {
  preparation *p;
  statements list;
} statement_walk;

static dc_status list_statement(void *context, dc_nid tasklet, const dc_nid *maps, uint32_t n) {
  statement_walk *w = context;
  statement s = {.tasklet = tasklet, .n_maps = n, .order = w->list.n};
  memcpy(s.maps, maps, n * sizeof *maps);
  DC_PUSH(&w->p->arena, &w->list, s);
  return DC_OK;
}

/* The only loop that runs in order around a statement, as its position among the maps; -1: there is none, or several. */
static int only_loop(const dc_graph *graph, const statement *s) {
  int found = -1;
  for (uint32_t k = 0; k < s->n_maps; k++) {
    if (map_at(graph, s->maps[k]).schedule != DC_MAP_SEQUENTIAL) continue;
    if (found >= 0 || map_at(graph, s->maps[k]).n_params != 1) return -1;
    found = (int)k;
  }
  return found;
}

static uint32_t place_in(const dc_scope *scope, dc_nid id) {
  uint32_t k = 0;
  while (k < scope->n && scope->v[k] != id) k++;
  return k;
}

static dc_nid child_of(const statement *s, uint32_t map) { return map + 1 < s->n_maps ? s->maps[map + 1] : s->tasklet; }

/* Has the element that is read been written before, for good?  Symbols: distances are numbers. */
static bool is_written_before(preparation *p, const statement *reader, dc_ex read, const statement *writer) {
  dc_pool *pool = &p->graph->pool;
  dc_tasklet w = dc_node_at(p->graph, writer->tasklet)->tasklet;
  int at = only_loop(p->graph, reader), other = only_loop(p->graph, writer);
  if (at < 0 || other < 0 || reader->maps[at] != writer->maps[other] || dc_ex_node(pool, read)->ref != w.out) return false;
  dc_map loop = map_at(p->graph, reader->maps[at]);
  bool in_step_before = place_in(&loop.body, child_of(writer, (uint32_t)other)) < place_in(&loop.body, child_of(reader, (uint32_t)at));
  for (uint32_t d = 0; d < w.rank; d++) {
    dc_ex by_read, by_write, from, to;
    int64_t r, s, distance;
    if (!dc_ix_split(pool, dc_ex_arg(pool, read, d), loop.params[0], &by_read, &from)) continue;
    if (!dc_ix_split(pool, w.index[d], loop.params[0], &by_write, &to)) continue;
    if (!dc_ex_is_int(pool, by_read, &r) || !dc_ex_is_int(pool, by_write, &s) || r != s || (r != 1 && r != -1)) continue;
    if (!dc_ex_is_int(pool, dc_ix_sub(pool, to, from), &distance)) continue;
    if (r * distance > 0 || (distance == 0 && in_step_before)) return true;
  }
  return false;
}

static bool is_settled(preparation *p, const statements *all, const statement *reader, dc_ex read) {
  dc_cid root = dc_container_root(p->graph, dc_ex_node(&p->graph->pool, read)->ref);
  const statement *writer = NULL;
  for (uint32_t k = 0; k < all->n; k++) {
    if (dc_container_root(p->graph, dc_node_at(p->graph, all->v[k].tasklet)->tasklet.out) != root) continue;
    if (writer) return false;
    writer = &all->v[k];
  }
  return !writer || is_written_before(p, reader, read, writer);
}

/* The condition that an element exists. */
static dc_ex inside(dc_graph *graph, dc_ex read) {
  dc_pool *pool = &graph->pool;
  dc_exnode node = *dc_ex_node(pool, read);
  const dc_ex *shape = dc_cont(graph, node.ref)->shape;
  dc_ex all = 0;
  int64_t truth;
  for (uint32_t d = 0; d < node.nargs; d++) all = dc_ex_and(pool, all, dc_ex_in_range(pool, dc_ex_arg(pool, read, d), shape[d]));
  return all && dc_ex_is_int(pool, all, &truth) && truth ? 0 : all;
}

static void insert_before(dc_graph *graph, dc_nid map, dc_nid before, dc_nid fresh) {
  dc_scope body = map_at(graph, map).body, after = {0};
  for (uint32_t k = 0; k < body.n; k++) {
    if (body.v[k] == before) dc_scope_push(graph, &after, fresh);
    dc_scope_push(graph, &after, body.v[k]);
  }
  dc_node_at(graph, map)->map.body = after;
}

static dc_ex keep_element(dc_graph *graph, dc_cid c, dc_ex read, const loop_dims *dims, dc_nid *tasklet) {
  dc_pool *pool = &graph->pool;
  dc_exnode node = *dc_ex_node(pool, read);
  char *name = dc_arena_printf(&graph->arena, "kept_%s", dc_cont_name(graph, c));
  dc_cid kept = dc_container_add(graph, name, (dc_dtype)node.dtype, dims->n, dims->extent, DC_ROLE_TEMP);
  *tasklet = dc_node_tasklet(graph, kept, DC_WCR_NONE, dims->index, dims->n, inside(graph, read), read);
  return dc_ex_read(pool, (dc_dtype)node.dtype, kept, dims->index, dims->n);
}

/* Keeps what is read, for each step, right before the statement. */
static dc_status keep_here(preparation *p, const statement *s, dc_ex read, dc_ex *out) {
  dc_graph *graph = p->graph;
  dc_cid c = dc_ex_node(&graph->pool, read)->ref;
  loop_dims dims = {.n = 0};
  dc_nid tasklet;
  for (uint32_t k = 0; k < s->n_maps; k++) {
    dc_map map = map_at(graph, s->maps[k]);
    if (map.schedule == DC_MAP_REDUCE || map.schedule == DC_MAP_SCATTER)
      return refuse(graph, c, "a sum in a loop reads what the same node changes");
    DC_TRY(add_dims(graph, map.params, map.n_params, c, &dims));
  }
  *out = keep_element(graph, c, read, &dims, &tasklet);
  insert_before(graph, s->maps[s->n_maps - 1], s->tasklet, tasklet);
  return DC_OK;
}

/* The same before the node of the loop's body that reads it, for the loops that decide which element. */
static dc_status keep_in_step(preparation *p, const statement *s, uint32_t loop, dc_ex read, dc_ex *out) {
  dc_graph *graph = p->graph;
  dc_pool *pool = &graph->pool;
  dc_cid c = dc_ex_node(pool, read)->ref;
  loop_dims around = {.n = 0}, dims;
  dc_param old[DC_MAX_LOOPS], fresh[DC_MAX_LOOPS];
  dc_ex to[DC_MAX_LOOPS];
  dc_nid tasklet;
  uint32_t n = 0;
  for (uint32_t k = 0; k <= loop; k++)
    DC_TRY(add_dims(graph, map_at(graph, s->maps[k]).params, map_at(graph, s->maps[k]).n_params, c, &around));
  dims = around;
  for (uint32_t k = loop + 1; k < s->n_maps; k++) {
    dc_map map = map_at(graph, s->maps[k]);
    for (uint32_t j = 0; j < map.n_params; j++) {
      if (!dc_ex_uses_param(pool, read, map.params[j])) continue;
      dc_parameter range = pool->params.v[map.params[j]];
      DC_TRY(add_dims(graph, &map.params[j], 1, c, &dims));
      old[n] = map.params[j], fresh[n] = dc_param_new(pool, dc_name_text(&graph->names, range.name), range.begin, range.end, 0);
      to[n] = dc_ex_par(pool, fresh[n]), n++;
    }
  }
  *out = keep_element(graph, c, read, &dims, &tasklet);
  dc_node_rewrite(graph, tasklet, dc_ex_substitute, &(dc_substitution){old, to, n});
  insert_before(graph, s->maps[loop], child_of(s, loop), dc_node_wrap(graph, DC_MAP_PARALLEL, fresh, n, tasklet));
  return DC_OK;
}

typedef struct {
  preparation *p;
  const statements *all;
  const statement *s;
  const bool *changed; /* by buffer */
  const bool *later;
  dc_status status;
} step_keeping;

static dc_ex keep_read(void *context, dc_pool *pool, dc_ex leaf) {
  step_keeping *k = context;
  dc_graph *graph = k->p->graph;
  dc_ex out = leaf;
  if (dc_ex_node(pool, leaf)->op != DC_EX_READ || k->status) return leaf;
  dc_cid c = dc_ex_node(pool, leaf)->ref, root = dc_container_root(graph, c);
  if (c >= k->p->n || !k->changed[root] || (!k->later[root] && is_settled(k->p, k->all, k->s, leaf))) return leaf;
  uint32_t loop = k->s->n_maps;
  while (loop-- > 0 && map_at(graph, k->s->maps[loop]).schedule != DC_MAP_SEQUENTIAL) {}
  bool elsewhere = loop != UINT32_MAX && !dc_node_touches_one(graph, child_of(k->s, loop), DC_USE_WRITE, root);
  k->status = elsewhere ? keep_in_step(k->p, k->s, loop, leaf, &out) : keep_here(k->p, k->s, leaf, &out);
  return out;
}

static bool holds_loop(const dc_graph *graph, dc_nid id) {
  if (!is_map(graph, id)) return false;
  bool any = map_at(graph, id).schedule == DC_MAP_SEQUENTIAL;
  for (uint32_t k = 0; k < map_at(graph, id).body.n && !any; k++) any = holds_loop(graph, map_at(graph, id).body.v[k]);
  return any;
}

/* Each step of the loop around it writes an element of its own. */
static bool moves_with_loop(preparation *p, const statement *s) {
  dc_tasklet t = dc_node_at(p->graph, s->tasklet)->tasklet;
  int at = only_loop(p->graph, s);
  return at >= 0 && dc_ix_apart(&p->graph->pool, t.index, t.rank, map_at(p->graph, s->maps[at]).params, 1);
}

static dc_status keep_steps(preparation *p, dc_nid id, const bool *changed, const bool *later) {
  statement_walk w = {.p = p};
  DC_TRY(dc_node_tasklets(p->graph, id, list_statement, &w));
  for (uint32_t k = 0; k < w.list.n; k++) {
    statement s = w.list.v[k];
    step_keeping keeping = {p, &w.list, &s, changed, later, DC_OK};
    dc_node_rewrite(p->graph, s.tasklet, keep_read, &keeping);
    DC_TRY(keeping.status);
  }
  return DC_OK;
}

/* ---- results ---- */

static bool is_extreme(const dc_tasklet *t) { return t->wcr == DC_WCR_MAX || t->wcr == DC_WCR_MIN; }

/* The adjoint of a maximum looks at it: that of each step must still be there. */
static dc_status check_extremes(preparation *p, dc_nid id, const bool *later) {
  statement_walk w = {.p = p};
  DC_TRY(dc_node_tasklets(p->graph, id, list_statement, &w));
  for (uint32_t k = 0; k < w.list.n; k++) {
    dc_tasklet t = dc_node_at(p->graph, w.list.v[k].tasklet)->tasklet;
    bool kept = t.out >= p->n || (moves_with_loop(p, &w.list.v[k]) && !later[dc_container_root(p->graph, t.out)]);
    if (is_extreme(&t) && !kept) return refuse(p->graph, t.out, "a maximum or minimum in a loop");
  }
  return DC_OK;
}

/* A reduction sets its elements; elsewhere a maximum is of what was there before as well, which has no gradient. */
static bool is_reduced(const dc_graph *graph, const statement *s) {
  bool any = false;
  for (uint32_t k = 0; k < s->n_maps; k++) any |= map_at(graph, s->maps[k]).schedule == DC_MAP_REDUCE;
  return any;
}

/* Below parallel maps, the maxima and minima of a reduction go to arrays of their own, and behind it to where they went. */
static dc_status keep_extremes(preparation *p, dc_nid id, const bool *later, dc_scope *behind) {
  statement_walk w = {.p = p};
  dc_graph *graph = p->graph;
  DC_TRY(dc_node_tasklets(graph, id, list_statement, &w));
  for (uint32_t k = 0; k < w.list.n; k++) {
    const statement *s = &w.list.v[k];
    dc_tasklet t = dc_node_at(graph, s->tasklet)->tasklet;
    if (!is_extreme(&t) || !is_reduced(graph, s) || t.out >= p->n || !later[dc_container_root(graph, t.out)]) continue;
    dc_cid own = temp_like(graph, t.out, "kept");
    dc_ex value = dc_ex_read(&graph->pool, (dc_dtype)dc_cont(graph, own)->dtype, own, t.index, t.rank);
    dc_nid copy = dc_node_tasklet(graph, t.out, DC_WCR_NONE, t.index, t.rank, 0, value);
    dc_node_at(graph, s->tasklet)->tasklet.out = own;
    for (uint32_t m = s->n_maps; m-- > 0;) {
      dc_map map = map_at(graph, s->maps[m]);
      if (map.schedule == DC_MAP_PARALLEL) copy = dc_node_wrap(graph, DC_MAP_PARALLEL, map.params, map.n_params, copy);
    }
    dc_scope_push(graph, behind, dc_node_clone(graph, copy)); /* with loops of its own */
  }
  return DC_OK;
}

/* The adjoint of an operator may read its results. */
static void keep_results(preparation *p, dc_nid id, const bool *later, dc_scope *behind) {
  dc_graph *graph = p->graph;
  dc_library lib = dc_node_at(graph, id)->lib;
  for (uint32_t k = 0; k < lib.n_out; k++) {
    dc_cid out = lib.out[k];
    if (!out || out >= p->n || !later[dc_container_root(graph, out)]) continue;
    dc_cid own = temp_like(graph, out, "kept");
    lib.out[k] = own;
    dc_scope_push(graph, behind, dc_node_copy(graph, own, out));
  }
}

/* ---- the state ---- */

static bool scatters(const dc_graph *graph, dc_nid id) {
  bool any = is_map(graph, id) && map_at(graph, id).schedule == DC_MAP_SCATTER;
  for (uint32_t k = 0; is_map(graph, id) && k < map_at(graph, id).body.n && !any; k++) any = scatters(graph, map_at(graph, id).body.v[k]);
  return any;
}

static void note_range(void *context, const dc_pool *pool, dc_ex e) {
  redirection *r = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == DC_EX_READ && node->ref < r->p->n && dc_container_root(r->p->graph, node->ref) == r->root) r->root = 0;
}

/* Does the range of a loop inside read the buffer? */
static bool ranges_read(preparation *p, dc_nid id, dc_cid root) {
  if (!is_map(p->graph, id)) return false;
  dc_map map = map_at(p->graph, id);
  redirection r = {p, root};
  for (uint32_t k = 0; k < map.n_params; k++) {
    dc_parameter range = p->graph->pool.params.v[map.params[k]];
    dc_ex_walk(&p->graph->pool, range.begin, note_range, &r);
    dc_ex_walk(&p->graph->pool, range.end, note_range, &r);
  }
  bool any = r.root == 0;
  for (uint32_t k = 0; k < map.body.n && !any; k++) any = ranges_read(p, map.body.v[k], root);
  return any;
}

/* What a node reads stays as it was. */
static dc_status keep_operands(preparation *p, dc_nid id, const bool *later, bool *changed) {
  dc_graph *graph = p->graph;
  bool loop = holds_loop(graph, id), in_steps = false;
  for (dc_cid c = 1; c < p->n; c++) {
    changed[c] = false;
    if (dc_cont(graph, c)->alias_of || !dc_node_touches_one(graph, id, DC_USE_READ, c)) continue;
    buffer_use u = use_of(graph, id, c);
    bool own = u.writes;
    if (!u.reads) continue;
    if (!own && !later[c]) continue;
    if (own && ranges_read(p, id, c)) return refuse(graph, c, "the length of a loop depends on it");
    if (own && !loop && scatters(graph, id) && changes(graph, id, c, false))
      return refuse(graph, c, "iterations in any order read what others write");
    if (own && loop) in_steps = changed[c] = true;
    else if (!own || changes(graph, id, c, false)) read_copies(p, id, c);
    else if (later[c]) return refuse(graph, c, "what a node computes for itself is overwritten later");
  }
  return in_steps ? keep_steps(p, id, changed, later) : DC_OK;
}

static dc_status prepare_node(preparation *p, dc_nid id, uint32_t place, bool *later, bool *changed) {
  dc_graph *graph = p->graph;
  dc_scope behind = {0};
  for (dc_cid c = 1; c < p->n; c++) later[c] = p->writers[c].last > place;
  DC_TRY(keep_operands(p, id, later, changed));
  if (dc_node_at(graph, id)->kind == DC_NODE_LIBRARY) keep_results(p, id, later, &behind);
  else DC_TRY(holds_loop(graph, id) ? check_extremes(p, id, later) : keep_extremes(p, id, later, &behind));
  dc_scope_push(graph, p->out, id);
  for (uint32_t k = 0; k < behind.n; k++) dc_scope_push(graph, p->out, behind.v[k]);
  for (dc_cid c = 1; c < p->n; c++)
    if (p->copies[c] && (behind.n || dc_node_touches_one(graph, id, DC_USE_WRITE, dc_container_root(graph, c)))) p->copies[c] = 0;
  return DC_OK;
}

static dc_status prepare(preparation *p) {
  dc_graph *graph = p->graph;
  dc_scope *scope = &graph->states.v[p->state].scope, after = {0};
  part_registers(graph, scope);
  DC_TRY(dc_unfuse(graph, p->state));
  for (uint32_t k = 0; k < scope->n; k++) walk_by_one(graph, scope->v[k]);
  uint32_t place = 0;
  for (uint32_t s = 0; s < p->state; s++) place += graph->states.v[s].scope.n;
  graph->states.v[p->state].scope = distribute_all(graph, &p->arena, scope, place);
  dc_scope before = graph->states.v[p->state].scope;
  p->n = graph->containers.n, p->out = &after;
  p->writers = DC_NEW_ARRAY(&p->arena, dc_writers, p->n), p->copies = DC_NEW_ARRAY(&p->arena, dc_cid, p->n);
  bool *later = DC_NEW_ARRAY(&p->arena, bool, p->n), *changed = DC_NEW_ARRAY(&p->arena, bool, p->n);
  dc_graph_writers(graph, p->writers);
  for (uint32_t k = 0; k < before.n; k++) DC_TRY(prepare_node(p, before.v[k], ++place, later, changed));
  graph->states.v[p->state].scope = after;
  return DC_OK;
}

dc_status dc_autodiff_prepare(dc_graph *graph, uint32_t state) {
  preparation p = {.graph = graph, .state = state};
  dc_scope_separate(graph, &graph->states.v[state].scope);
  dc_status status = prepare(&p);
  dc_arena_free(&p.arena);
  return status;
}
