/* Looking at kernels, and what follows from the shape of their trees. */
#include "backends/kernel/kernel.h"

/* ---- expressions ---- */

bool dc_kernel_is_register(const dc_kernel *k, dc_cid c) { return dc_cont(k->graph, c)->storage == DC_STORE_REGISTER; }

bool dc_kernel_is_shared(const dc_kernel *k, dc_cid c) {
  if (dc_kernel_is_own(k, c)) return false;
  for (uint32_t j = 0; j < k->writes.n && dc_kernel_is_register(k, c); j++) {
    const dc_write *w = k->writes.v[j];
    for (const dc_loop *l = w->parent; w->out == c && !w->accumulator && l && l != k->homes.v[c]; l = l->parent)
      if (l->on_team) return true;
  }
  return false;
}

bool dc_kernel_is_number(const dc_kernel *k, dc_ex x, int64_t number) {
  int64_t value;
  return dc_ex_is_int(k->pool, x, &value) && value == number;
}

bool dc_kernel_is_true(const dc_kernel *k, dc_ex x) { return dc_kernel_is_number(k, x, 1); }

bool dc_kernel_first(dc_kernel *k, dc_ex x) {
  while (k->marks.n <= x) DC_PUSH(k->arena, &k->marks, 0);
  bool first = k->marks.v[x] != k->stamp;
  k->marks.v[x] = k->stamp;
  return first;
}

dc_ex dc_read_check(const dc_kernel *k, dc_ex read) {
  if (dc_ex_node(k->pool, read)->nargs < 2) return 0;
  dc_ex check = dc_ex_arg(k->pool, read, 1);
  return dc_kernel_is_true(k, check) ? 0 : check;
}

typedef struct {
  dc_visit_fn visit;
  void *context;
} read_search;

static void visit_read(void *context, const dc_pool *pool, dc_ex x) {
  const read_search *s = context;
  if (dc_ex_node(pool, x)->op == DC_EX_READ) s->visit(s->context, pool, x);
}

void dc_kernel_each_read(const dc_kernel *k, dc_ex x, dc_visit_fn visit, void *context) {
  read_search s = {visit, context};
  if (x) dc_ex_walk(k->pool, x, visit_read, &s);
}

dc_dependence dc_kernel_dependence(dc_kernel *k, dc_ex x) {
  while (k->dependences.n <= x) DC_PUSH(k->arena, &k->dependences, (dc_dependence){0});
  if (k->dependences.v[x].known) return k->dependences.v[x];
  const dc_exnode node = *dc_ex_node(k->pool, x);
  dc_dependence all = {.known = true, .safe = true};
  if (node.op == DC_EX_PARAM) all.level = k->loop_of.v[node.ref] ? k->loop_of.v[node.ref]->level : 0;
  for (uint32_t j = 0; j < node.nargs; j++) {
    dc_dependence part = dc_kernel_dependence(k, dc_ex_arg(k->pool, x, j));
    if (part.level > all.level) all.level = part.level;
    all.reads |= part.reads;
    all.safe = all.safe && part.safe;
  }
  if (node.op == DC_EX_READ) {
    all.reads |= k->bits[node.ref];
    all.safe = all.safe && node.nargs == 1;
    if (dc_loop_strip(k->homes.v[node.ref])) all.level = DC_LANE_LEVEL; /* each lane has its own */
  }
  return k->dependences.v[x] = all;
}

/* ---- loops ---- */

bool dc_loop_is_sum(const dc_loop *l) {
  for (const dc_loop *at = l; at; at = at->parent)
    if (at->parent && at->parent->parent && at->parent->parent->product && at->parent->parent->product->n == at->parent) return true;
  return false;
}

bool dc_loop_has_loops(const dc_loop *l) {
  bool is_columns = l->parent && l->parent->product && l->parent->product->n == l;
  for (uint32_t k = 0; k < l->body.n && !is_columns; k++)
    if (l->body.v[k].loop) return true;
  return false;
}

dc_write *dc_loop_single_write(const dc_loop *l) {
  dc_write *single = NULL;
  uint32_t n = 0;
  if (dc_loop_has_loops(l)) return NULL;
  for (uint32_t k = 0; k < l->body.n; k++)
    if (l->body.v[k].write) single = l->body.v[k].write, n++;
  return n == 1 ? single : NULL;
}

bool dc_loop_is_inside(const dc_loop *inner, const dc_loop *outer) {
  while (inner && inner != outer) inner = inner->parent;
  return inner != NULL;
}

const dc_loop *dc_loop_strip(const dc_loop *l) {
  while (l && !l->lanes) l = l->parent;
  return l;
}

dc_loop *dc_write_reduction(const dc_write *w) {
  dc_loop *l = w->parent;
  while (l && l->schedule != DC_MAP_REDUCE) l = l->parent;
  while (l && !l->is_entry) l = l->parent;
  return l;
}

bool dc_write_meets(const dc_write *w, const dc_loop *l) {
  for (uint32_t j = 0; j < w->meets.n; j++)
    if (w->meets.v[j] == l->param) return true;
  return false;
}

int64_t dc_loop_extent(dc_kernel *k, const dc_loop *l) {
  int64_t length;
  if (!dc_ex_is_int(k->pool, dc_ix_sub(k->pool, l->end, l->begin), &length)) return -1;
  return length > 0 ? (length + l->step - 1) / l->step : 0;
}

bool dc_loop_accumulates(const dc_loop *l, uint32_t accumulator, bool deep) {
  for (uint32_t k = 0; k < l->body.n; k++) {
    const dc_item *i = &l->body.v[k];
    if (i->write ? dc_write_adds_to(i->write, accumulator) : deep && dc_loop_accumulates(i->loop, accumulator, true)) return true;
  }
  return false;
}

bool dc_kernel_is_laned(const dc_kernel *k, uint32_t accumulator) { return dc_loop_strip(k->accumulators.v[accumulator].home) != NULL; }

void dc_kernel_each_loop(dc_kernel *k, dc_loop *l, dc_loop_fn visit) {
  for (uint32_t j = 0; j < l->body.n; j++)
    if (l->body.v[j].loop) dc_kernel_each_loop(k, l->body.v[j].loop, visit);
  if (l != k->root) visit(k, l);
}

dc_loop *dc_loop_new(dc_kernel *k, const char *name, dc_ex begin, dc_ex end, int64_t step) {
  dc_loop *l = DC_NEW(k->arena, dc_loop);
  *l = (dc_loop){.begin = begin, .end = end, .step = step};
  l->param = dc_param_new(k->pool, name, begin, end, dc_ex_int(k->pool, step));
  while (k->loop_of.n <= l->param) DC_PUSH(k->arena, &k->loop_of, NULL);
  k->loop_of.v[l->param] = l;
  return l;
}

dc_loop *dc_loop_like(dc_kernel *k, const dc_loop *like, dc_ex begin, dc_ex end) {
  dc_loop *made = dc_loop_new(k, dc_name_text(&k->graph->names, k->pool->params.v[like->param].name), begin, end, 1);
  made->schedule = like->schedule;
  return made;
}

/* ---- growing a kernel ---- */

dc_cid dc_kernel_add_register(dc_kernel *k, const char *name, dc_dtype type, uint32_t rank, const dc_ex *shape) {
  dc_graph *g = k->graph;
  dc_cid made = dc_container_add(g, name, type, rank, shape, DC_ROLE_TEMP);
  dc_cont(g, made)->storage = DC_STORE_REGISTER;
  uint64_t *bits = DC_NEW_ARRAY(k->arena, uint64_t, g->containers.n);
  for (dc_cid c = 1; c < made; c++) bits[c] = k->bits[c];
  bits[made] = (uint64_t)1 << (made < 63 ? made : 63);
  k->bits = bits;
  while (k->own.n <= made) DC_PUSH(k->arena, &k->own, false);
  return made;
}

static void insert(dc_kernel *k, dc_loop *body, uint32_t at, dc_item item) {
  DC_PUSH(k->arena, &body->body, item);
  for (uint32_t j = body->body.n - 1; j > at; j--) body->body.v[j] = body->body.v[j - 1];
  body->body.v[at] = item;
}

void dc_kernel_add_write(dc_kernel *k, dc_loop *body, uint32_t at, dc_ex element, dc_ex value) {
  dc_write *w = DC_NEW(k->arena, dc_write);
  *w = (dc_write){.out = dc_ex_node(k->pool, element)->ref, .ordinal = k->writes.n, .parent = body, .element = element, .value = value};
  DC_PUSH(k->arena, &k->writes, w);
  insert(k, body, at, (dc_item){.write = w});
}

void dc_kernel_add_beside(dc_kernel *k, const dc_loop *l, bool behind, dc_loop *made) {
  uint32_t at = 0;
  while (l->parent->body.v[at].loop != l) at++;
  insert(k, l->parent, at + behind, (dc_item){.loop = made});
}

/* ---- what follows from the tree ---- */

static uint64_t bits_of(const dc_graph *g, dc_cid c) {
  uint64_t bits = 0;
  dc_cid memory = dc_cont(g, c)->alias_of ? dc_cont(g, c)->alias_of : c;
  for (dc_cid k = 1; k < g->containers.n; k++)
    if (k == memory || dc_cont(g, k)->alias_of == memory) bits |= (uint64_t)1 << (k < 63 ? k : 63);
  return bits;
}

void dc_kernel_open(dc_kernel *k) {
  dc_graph *g = k->graph;
  k->pool = &g->pool, k->arena = &g->arena;
  k->root = DC_NEW(k->arena, dc_loop);
  k->root->is_entry = true, k->root->schedule = DC_MAP_SEQUENTIAL;
  k->bits = DC_NEW_ARRAY(k->arena, uint64_t, g->containers.n);
  for (dc_cid c = 1; c < g->containers.n; c++) k->bits[c] = bits_of(g, c);
  for (dc_param p = 0; p < g->pool.params.n; p++) DC_PUSH(k->arena, &k->loop_of, NULL);
}

void dc_kernel_free(dc_kernel *kernel) {
  dc_graph_destroy(kernel->graph);
  *kernel = (dc_kernel){0};
}

static void settle_loop(dc_kernel *k, dc_loop *l, uint32_t depth) {
  l->depth = depth, l->level = l->lanes ? DC_LANE_LEVEL : depth, l->writes = 0;
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_item *i = &l->body.v[j];
    if (i->loop) {
      i->loop->parent = l;
      settle_loop(k, i->loop, depth + 1);
    } else {
      i->write->parent = l;
    }
    l->writes |= i->loop ? i->loop->writes : k->bits[i->write->out];
  }
}

typedef struct {
  dc_kernel *k;
  dc_loop *at;
} home_search;

static void widen_home(void *context, const dc_pool *pool, dc_ex read) {
  const home_search *s = context;
  dc_loop **home = &s->k->homes.v[dc_ex_node(pool, read)->ref], *common = *home;
  while (common && !dc_loop_is_inside(s->at, common)) common = common->parent;
  *home = common ? common : s->at;
}

/* A reduction sets what it combines into outside of it. */
static dc_loop *outside_reduction(const dc_write *w) {
  dc_loop *l = w->parent;
  while (w->wcr && l && l->schedule != DC_MAP_REDUCE) l = l->parent;
  while (w->wcr && l && !l->is_entry) l = l->parent;
  return w->wcr && l ? l->parent : w->parent;
}

static void find_homes(dc_kernel *k) {
  k->homes.n = 0;
  for (dc_cid c = 0; c < k->graph->containers.n; c++) DC_PUSH(k->arena, &k->homes, NULL);
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    home_search s = {k, w->parent}, element = {k, outside_reduction(w)};
    dc_kernel_each_read(k, w->element, widen_home, &element);
    dc_kernel_each_read(k, w->value, widen_home, &s);
    dc_kernel_each_read(k, w->guard, widen_home, &s);
    for (dc_loop *l = w->parent; l->parent; l = l->parent) { /* ranges are evaluated outside their loop */
      home_search outside = {k, l->parent};
      dc_kernel_each_read(k, l->begin, widen_home, &outside);
      dc_kernel_each_read(k, l->end, widen_home, &outside);
    }
  }
}

void dc_kernel_settle(dc_kernel *k) {
  k->dependences.n = 0;
  settle_loop(k, k->root, 0);
  find_homes(k);
}
