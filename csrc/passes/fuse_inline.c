/* Producers computed where they are read.
 *
 * A temporary with one writer T[p, q] = v(p, q) is a function of its indices; each read T[f, g]
 * may be replaced by v(f, g).  That is free for copies, casts, constants and index functions, and
 * makes transposes, slices, broadcasts, padding and gathers vanish into their readers. */
#include "ir/work.h"
#include "passes/fuse.h"

/* Nanoseconds of an f32, without what is read: of a copy, and of a little arithmetic on top. */
static const double COPY_COST = 0.025, NEARLY_COPY_COST = 0.12;

/* The function that a temporary is. */
typedef struct {
  dc_cid container;
  dc_nid writer;
  dc_ex element, value;
  dc_param params[DC_MAX_RANK]; /* params[k] is the index of dimension dims[k] ... */
  uint32_t dims[DC_MAX_RANK], n;
  bool fixed[DC_MAX_RANK];      /* ... the other dimensions must be read as they were written */
  bool divides;                 /* an index: where an element lies is a quotient of where it is read, or a remainder */
} function;

typedef struct {
  const function *f;
  bool misfit;
} replacement;

static void find_quotient(void *context, const dc_pool *pool, dc_ex e) {
  const uint8_t op = dc_ex_node(pool, e)->op;
  if (op == DC_EX_IDIV || op == DC_EX_IMOD) *(bool *)context = true;
}

static void find_param(void *context, const dc_pool *pool, dc_ex e) {
  if (dc_ex_node(pool, e)->op == DC_EX_PARAM) *(dc_param *)context = dc_ex_node(pool, e)->ref;
}

/* Does one loop decide each index?  It runs in pieces, in which quotients of its iterations are numbers; others are computed. */
static bool loops_decide(const dc_pool *pool, const function *f, dc_ex read) {
  for (uint32_t k = 0; k < f->n; k++) {
    dc_param p = 0;
    dc_ex_walk(pool, dc_ex_arg(pool, read, f->dims[k]), find_param, &p);
    if (dc_access_uses_other_param(pool, dc_ex_arg(pool, read, f->dims[k]), &p, 1)) return false;
  }
  return true;
}

static bool fits(const dc_pool *pool, const function *f, dc_ex read) {
  if (f->divides && !loops_decide(pool, f, read)) return false;
  for (uint32_t d = 0; d < dc_ex_node(pool, read)->nargs; d++)
    if (f->fixed[d] && dc_ex_arg(pool, read, d) != dc_ex_arg(pool, f->element, d)) return false;
  return true;
}

static dc_ex replace(void *context, dc_pool *pool, dc_ex leaf) {
  replacement *r = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  if (node.op != DC_EX_READ || node.ref != r->f->container) return leaf;
  dc_ex to[DC_MAX_RANK];
  for (uint32_t k = 0; k < r->f->n; k++) to[k] = dc_ex_arg(pool, leaf, r->f->dims[k]);
  return dc_ex_cast(pool, (dc_dtype)node.dtype, dc_ex_subst(pool, r->f->value, r->f->params, to, r->f->n));
}

/* The map that binds p, among those around a node; 0 if none does. */
static dc_nid binder_of(const dc_site_table *t, dc_nid node, dc_param p) {
  for (dc_nid at = t->parent[node]; at; at = t->parent[at]) {
    dc_map map = dc_node_at(t->graph, at)->map;
    if (dc_access_in_set(map.params, map.n_params, p)) return at;
  }
  return 0;
}

/* The tasklet's. */
static const dc_access *only_writer(const dc_site_table *t, dc_cid c) {
  const dc_access *writer = NULL;
  DC_EACH_SITE(t, c, k) {
    const dc_access *a = &t->accesses.v[k];
    if (a->container != c || !a->element) return NULL;
    if (!a->writes) continue;
    if (writer || a->reads || a->initialised) return NULL;
    writer = a;
  }
  return writer && dc_node_at(t->graph, writer->node)->kind == DC_NODE_TASKLET ? writer : NULL;
}

/* Parameters bound inside `common` that v uses must be indices by themselves.  Symbols: no extent matters, for whoever
 * reads an element that no iteration wrote has no right to a value. */
static bool make_function(const dc_site_table *t, const dc_access *w, dc_ex value, dc_nid common, function *f) {
  const dc_pool *pool = &t->graph->pool;
  dc_tasklet tasklet = dc_node_at(t->graph, w->node)->tasklet;
  if (tasklet.guard || dc_ex_uses_op(pool, value, DC_RAND)) return false;
  *f = (function){.container = w->container, .writer = w->node, .element = w->element, .value = value};
  dc_ex_walk(pool, value, find_quotient, &f->divides);
  for (uint32_t d = 0; d < tasklet.rank; d++) {
    const dc_exnode *index = dc_ex_node(pool, tasklet.index[d]);
    bool moves = index->op == DC_EX_PARAM && !dc_access_in_set(f->params, f->n, index->ref);
    dc_nid binder = moves ? binder_of(t, w->node, index->ref) : 0;
    moves = moves && binder != common && dc_site_is_under(t, binder, common);
    f->fixed[d] = !moves;
    if (!moves && dc_ex_uses_op(pool, tasklet.index[d], DC_EX_READ)) return false;
    if (moves) f->params[f->n] = index->ref, f->dims[f->n++] = d;
  }
  for (dc_nid at = t->parent[w->node]; at && at != common; at = t->parent[at]) {
    dc_map map = dc_node_at(t->graph, at)->map;
    if (map.schedule != DC_MAP_PARALLEL && map.schedule != DC_MAP_REDUCE) return false;
    for (uint32_t k = 0; k < map.n_params; k++)
      if (!dc_access_in_set(f->params, f->n, map.params[k]) && dc_ex_uses_param(pool, f->value, map.params[k])) return false;
  }
  return true;
}

typedef struct {
  const dc_site_table *t;
  dc_nid common;
  bool escapes;
} register_search;

static void look_at_register(void *context, const dc_pool *pool, dc_ex e) {
  register_search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op != DC_EX_READ || dc_cont(s->t->graph, node->ref)->storage != DC_STORE_REGISTER) return;
  dc_nid home = dc_sites_home(s->t, node->ref);
  s->escapes |= !s->common || !dc_site_is_under(s->t, s->common, home);
}

/* Does the value read a register of a loop that does not hold all readers? */
static bool leaves_register(const dc_site_table *t, dc_ex value, dc_nid common) {
  register_search s = {t, common, false};
  dc_ex_walk(&t->graph->pool, value, look_at_register, &s);
  return s.escapes;
}

bool dc_fuse_reads_once(const dc_site_table *t, const dc_access *read, dc_nid common) {
  const dc_pool *pool = &t->graph->pool;
  for (dc_nid at = t->parent[read->node]; at && at != common; at = t->parent[at]) {
    dc_map map = dc_node_at(t->graph, at)->map;
    for (uint32_t k = 0; k < map.n_params; k++) {
      bool found = false;
      for (uint32_t d = 0; d < dc_ex_node(pool, read->element)->nargs && !found; d++) {
        dc_ex index = dc_ex_arg(pool, read->element, d);
        found = dc_ex_uses_param(pool, index, map.params[k]) && !dc_access_uses_other_param(pool, index, &map.params[k], 1);
      }
      if (!found) return false;
    }
  }
  return true;
}

typedef enum { NEVER, IF_READ_ONCE, ALWAYS } policy;

static policy policy_of_copy(dc_value_work w) {
  if (w.cost < COPY_COST && w.reads <= 1) return ALWAYS;
  return w.cost <= NEARLY_COPY_COST && w.reads <= 2 && (w.by_data || w.reads <= 1) ? IF_READ_ONCE : NEVER;
}

static policy policy_of_recomputation(const dc_machine *machine, dc_value_work w) {
  return w.cost <= machine->cached_ns && w.reads <= 3 && !w.by_data ? IF_READ_ONCE : NEVER;
}

typedef struct {
  const function *f;
  uint32_t n;
} read_count;

static void count_moving(void *context, const dc_pool *pool, dc_ex e) {
  read_count *c = context;
  if (dc_ex_node(pool, e)->op != DC_EX_READ) return;
  for (uint32_t k = 0; k < c->f->n; k++)
    if (dc_ex_uses_param(pool, e, c->f->params[k])) {
      c->n++;
      return;
    }
}

/* Reads that differ between elements; the others stay in registers. */
static uint32_t moving_reads(const dc_pool *pool, const function *f) {
  read_count c = {f, 0};
  dc_ex_walk(pool, f->value, count_moving, &c);
  return c.n;
}

/* Memory takes as much more for wide elements as arithmetic does. */
static dc_value_work work_of(const dc_pool *pool, dc_ex value) {
  dc_value_work w = dc_ex_work(pool, value);
  int bytes = dc_dtype_bytes(dc_ex_dtype(pool, value));
  if (bytes > 4) w.cost /= bytes / 4;
  return w;
}

static bool inline_container(const dc_site_table *t, dc_cid c, bool cached, const bool *dirty) {
  function f;
  dc_nid common = dc_sites_home(t, c);
  const dc_access *w = only_writer(t, c);
  if (!w || !make_function(t, w, dc_node_at(t->graph, w->node)->tasklet.value, common, &f)) return false;
  if (leaves_register(t, f.value, common)) return false;
  dc_value_work work = work_of(&t->graph->pool, f.value);
  if (cached) work.reads = moving_reads(&t->graph->pool, &f);
  policy p = cached ? policy_of_recomputation(&t->graph->machine, work) : policy_of_copy(work);
  uint32_t last = t->order[f.writer], n_reads = 0;
  if (p == NEVER || (dirty && dirty[f.writer])) return false;
  DC_EACH_SITE(t, c, k) {
    const dc_access *a = &t->accesses.v[k];
    if (a->writes) continue;
    bool good = a->node != f.writer && t->order[a->node] > t->order[f.writer] && fits(&t->graph->pool, &f, a->element) &&
                (p == ALWAYS || dc_fuse_reads_once(t, a, common)) && !(dirty && dirty[a->node]);
    if (!good) return false;
    dc_nid top = a->node; /* a loop around the reader may write again before the next read */
    while (t->parent[top] && t->parent[top] != common) top = t->parent[top];
    uint32_t until = top == a->node ? t->order[top] : t->end[top];
    last = until > last ? until : last;
    n_reads++;
  }
  if (!n_reads || dc_sites_overwrite(t, f.value, t->order[f.writer], last)) return false;
  replacement r = {&f, false};
  DC_EACH_SITE(t, c, k) {
    const dc_access *a = &t->accesses.v[k];
    if (!a->writes && dc_node_at(t->graph, a->node)->kind == DC_NODE_TASKLET)
      dc_node_rewrite(t->graph, a->node, replace, &r);
  }
  return true;
}

/* The node that goes from the scope itself, if one does; 0 if not. */
static dc_nid remove_writer(const dc_site_table *t, dc_nid writer) {
  dc_nid at = writer;
  while (t->parent[at]) {
    dc_nid map = t->parent[at];
    dc_scope_remove(&dc_node_at(t->graph, map)->map.body, at);
    if (dc_node_at(t->graph, map)->map.body.n) return 0;
    at = map;
  }
  return at;
}

/* A map whose range reads the container is no tasklet to rewrite. */
static bool read_by_tasklets(const dc_site_table *t, dc_cid c) {
  DC_EACH_SITE(t, c, k)
    if (dc_node_at(t->graph, t->accesses.v[k].node)->kind != DC_NODE_TASKLET) return false;
  return true;
}

bool dc_fuse_recompute(const dc_site_table *t, dc_cid c) {
  if (!read_by_tasklets(t, c)) return false;
  const dc_access *w = only_writer(t, c);
  if (!w || !inline_container(t, c, true, NULL)) return false;
  (void)remove_writer(t, w->node);
  return true;
}

typedef struct {
  const dc_site_table *t;
  dc_nid node;
  uint32_t from; /* order of the first tasklet whose value is taken */
  bool again;
} register_reader;

/* The value of a register, which other nodes do not see. */
static dc_ex open_register(void *context, dc_pool *pool, dc_ex leaf) {
  register_reader *r = context;
  dc_exnode node = *dc_ex_node(pool, leaf);
  if (node.op != DC_EX_READ || node.nargs || dc_cont(r->t->graph, node.ref)->storage != DC_STORE_REGISTER) return leaf;
  const dc_access *w = only_writer(r->t, node.ref);
  if (!w || dc_node_at(r->t->graph, w->node)->tasklet.guard || !dc_site_is_under(r->t, r->node, r->t->parent[w->node])) return leaf;
  if (r->t->order[w->node] < r->from) r->from = r->t->order[w->node];
  return r->again = true, dc_ex_cast(pool, (dc_dtype)node.dtype, dc_node_at(r->t->graph, w->node)->tasklet.value);
}

enum { MAX_OPENED = 8 }; /* registers of registers */

bool dc_fuse_value_at(const dc_site_table *t, const dc_access *w, dc_ex at, uint32_t until, dc_fuse_value *out) {
  dc_pool *pool = &t->graph->pool;
  dc_nid common = dc_sites_home(t, w->root);
  dc_ex value = dc_node_at(t->graph, w->node)->tasklet.value;
  register_reader r = {t, w->node, t->order[w->node], !common};
  for (int k = 0; k < MAX_OPENED && r.again; k++) r.again = false, value = dc_ex_rewrite(pool, value, open_register, &r);
  function f;
  if (!make_function(t, w, value, common, &f) || leaves_register(t, f.value, common) || !fits(pool, &f, at)) return false;
  dc_value_work work = work_of(pool, f.value);
  if (work.by_data || dc_sites_overwrite(t, f.value, r.from, until)) return false;
  dc_ex to[DC_MAX_RANK];
  for (uint32_t k = 0; k < f.n; k++) to[k] = dc_ex_arg(pool, at, f.dims[k]);
  *out = (dc_fuse_value){dc_ex_subst(pool, f.value, f.params, to, f.n), work.cost, moving_reads(pool, &f)};
  return true;
}

static uint32_t count_tops(const dc_site_table *t, dc_cid root) {
  uint32_t n = 0, last = 0;
  DC_EACH_SITE(t, root, k) {
    dc_nid top = t->accesses.v[k].node;
    while (t->parent[top]) top = t->parent[top];
    n += t->order[top] != last, last = t->order[top];
  }
  return n;
}

/* One round over all containers; nodes that changed wait for the next round, which sees them anew.  Of copies of
 * copies each round takes every other one. */
static bool inline_round(dc_graph *graph, dc_arena *arena, dc_scope *scope) {
  const dc_use_count *users = dc_fuse_count_users(graph, arena);
  dc_site_table t = {0};
  dc_sites_build(graph, arena, scope->v, scope->n, &t);
  bool *dirty = DC_NEW_ARRAY(arena, bool, graph->nodes.n), *gone = DC_NEW_ARRAY(arena, bool, graph->nodes.n);
  bool *seen = DC_NEW_ARRAY(arena, bool, graph->containers.n), changed = false;
  for (uint32_t k = 0; k < t.accesses.n; k++) {
    dc_access w = t.accesses.v[k];
    if (!w.writes || seen[w.container]) continue;
    seen[w.container] = true;
    if (!w.element || users[w.root].nodes != count_tops(&t, w.root)) continue;
    if (!read_by_tasklets(&t, w.container) || !inline_container(&t, w.container, false, dirty)) continue;
    DC_EACH_SITE(&t, w.root, j) dirty[t.accesses.v[j].node] = true;
    gone[remove_writer(&t, w.node)] = changed = true;
  }
  uint32_t kept = 0;
  for (uint32_t k = 0; k < scope->n; k++)
    if (!gone[scope->v[k]]) scope->v[kept++] = scope->v[k];
  scope->n = kept;
  return changed;
}

enum { MAX_ROUNDS = 64 };

dc_status dc_pass_inline(dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    bool changed = true;
    for (int round = 0; round < MAX_ROUNDS && changed; round++) {
      dc_arena arena = {0};
      changed = inline_round(graph, &arena, &graph->states.v[s].scope);
      dc_arena_free(&arena);
    }
  }
  return DC_OK;
}
