/* From a node to a tree of loops.
 *
 * Every access gets one flat address, in which strides are already multiplied, so that loops
 * over dimensions that lie one after the other in all accesses merge into one.  Then each loop
 * learns what its body writes, REDUCE loops learn which elements they can keep in registers,
 * and parallel loops whose neighbours lie next to one another in memory, unlike those of the
 * loops inside, are marked to run as lanes within them. */
#include <string.h>

#include "backends/cpu/emit.h"

/* ---- facts ---- */

fact *dc_cpu_fact(emitter *e, dc_ex x) {
  while (e->facts.n <= x) DC_PUSH(e->arena, &e->facts, (fact){0});
  fact *f = &e->facts.v[x];
  if (f->known) return f;
  const dc_exnode node = *dc_ex_node(e->pool, x);
  fact sum = *f;
  sum.safe = true;
  if (node.op == DC_EX_PARAM) sum.level = e->loop_of.v[node.ref] ? e->loop_of.v[node.ref]->level : 0;
  uint32_t n = node.op == DC_EX_READ ? 2 : node.nargs;
  for (uint32_t k = 0; k < n; k++) { /* a READ depends on its address, not on its indices */
    dc_ex arg = node.op != DC_EX_READ ? dc_ex_arg(e->pool, x, k) : k == 0 ? sum.address : sum.check;
    if (!arg) continue;
    fact inner = *dc_cpu_fact(e, arg);
    if (inner.level > sum.level) sum.level = inner.level;
    sum.reads |= inner.reads;
    sum.safe = sum.safe && inner.safe;
  }
  if (node.op == DC_EX_READ) {
    sum.reads |= dc_cpu_container_bits(e, node.ref);
    for (const loop *l = node.ref < e->homes.n ? e->homes.v[node.ref] : NULL; l; l = l->parent)
      if (l->lanes) sum.level = LANE_LEVEL; /* each lane has its own */
    sum.safe = sum.safe && !sum.check;
    for (uint32_t d = 0; d < node.nargs && sum.safe; d++) {
      dc_ex within = dc_ex_in_range(e->pool, dc_ex_arg(e->pool, x, d), dc_cont(e->graph, node.ref)->shape[d]);
      int64_t truth;
      sum.safe = dc_ex_is_int(e->pool, within, &truth) && truth;
    }
  }
  sum.known = true;
  f = &e->facts.v[x];
  return *f = sum, f;
}

uint64_t dc_cpu_container_bits(emitter *e, dc_cid c) {
  uint64_t bits = 0;
  dc_cid memory = dc_cont(e->graph, c)->alias_of ? dc_cont(e->graph, c)->alias_of : c;
  for (dc_cid k = 1; k < e->graph->containers.n; k++)
    if (k == memory || dc_cont(e->graph, k)->alias_of == memory) bits |= (uint64_t)1 << (k < 63 ? k : 63);
  return bits;
}

/* ---- addresses ---- */

static dc_ex *flat(emitter *e, dc_cid id, const dc_ex *index, dc_ex *check) {
  dc_container c = *dc_cont(e->graph, id);
  dc_ex *out = DC_NEW(e->arena, dc_ex), stride = dc_ex_int(e->pool, 1), sum = dc_ex_int(e->pool, 0);
  *check = 0;
  for (uint32_t d = c.rank; d-- > 0;) {
    dc_ex i = index[d];
    if (dc_ex_uses_op(e->pool, i, DC_EX_READ)) { /* never outside, whatever the data says */
      dc_ex inside = dc_ex_in_range(e->pool, i, c.shape[d]);
      int64_t truth;
      if (!dc_ex_is_int(e->pool, inside, &truth) || !truth) {
        *check = dc_ex_and(e->pool, *check, inside);
        i = dc_ex_select(e->pool, inside, i, dc_ex_int(e->pool, 0));
      }
    }
    sum = dc_ix_add(e->pool, sum, dc_ix_mul(e->pool, i, c.strides ? c.strides[d] : stride));
    stride = dc_ix_mul(e->pool, stride, c.shape[d]);
  }
  return *out = sum, out;
}

/* Gives the READs under x their addresses, and notes parameters used other than through them. */
static void survey(emitter *e, dc_ex x);

static void survey_read(emitter *e, dc_ex x) {
  while (e->facts.n <= x) DC_PUSH(e->arena, &e->facts, (fact){0});
  if (e->facts.v[x].address) return;
  dc_exnode node = *dc_ex_node(e->pool, x);
  dc_ex index[DC_MAX_RANK];
  for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(e->pool, x, d);
  dc_ex check, address = *flat(e, node.ref, index, &check);
  while (e->facts.n <= x) DC_PUSH(e->arena, &e->facts, (fact){0});
  e->facts.v[x].address = address, e->facts.v[x].check = check;
  DC_PUSH(e->arena, &e->reads, x);
  for (uint32_t d = 0; d < node.nargs; d++)
    if (dc_ex_uses_op(e->pool, index[d], DC_EX_READ)) survey(e, index[d]);
  if (check) survey(e, check);
}

static void survey_leaf(void *context, const dc_pool *pool, dc_ex x) {
  emitter *e = context;
  dc_exnode node = *dc_ex_node(pool, x);
  if (node.op == DC_EX_PARAM) e->exposed.v[node.ref] = true;
}

/* Like dc_ex_walk, but does not go below a READ. */
static void survey(emitter *e, dc_ex x) {
  dc_exnode node = *dc_ex_node(e->pool, x);
  while (e->facts.n <= x) DC_PUSH(e->arena, &e->facts, (fact){0});
  if (e->facts.v[x].local) return; /* seen: `local` is free for marking until emission */
  e->facts.v[x].local = 1;
  if (node.op == DC_EX_READ) {
    survey_read(e, x);
    return;
  }
  for (uint32_t k = 0; k < node.nargs; k++) survey(e, dc_ex_arg(e->pool, x, k));
  survey_leaf(e, e->pool, x);
}

/* ---- the tree ---- */

dc_ex dc_cpu_in_bounds(emitter *e, const write_item *w) {
  dc_ex all = dc_ex_bool(e->pool, true);
  dc_exnode element = *dc_ex_node(e->pool, w->element);
  for (uint32_t d = 0; d < element.nargs; d++) {
    dc_ex inside = dc_ex_in_range(e->pool, dc_ex_arg(e->pool, w->element, d), dc_cont(e->graph, w->out)->shape[d]);
    all = dc_ex_and(e->pool, all, inside);
  }
  return all;
}

static bool is_in_reduction(const loop *l) {
  while (l && l->schedule != DC_MAP_REDUCE) l = l->parent;
  return l != NULL;
}

static void add_write(emitter *e, dc_nid node, loop *parent) {
  dc_tasklet t = dc_node_at(e->graph, node)->tasklet;
  write_item *w = DC_NEW(e->arena, write_item);
  *w = (write_item){.out = t.out, .wcr = t.wcr, .ordinal = e->writes.n, .guard = t.guard, .value = t.value};
  w->element = dc_ex_read(e->pool, (dc_dtype)dc_cont(e->graph, t.out)->dtype, t.out, t.index, t.rank);
  if (w->guard) survey(e, w->guard);
  survey(e, w->value);
  survey_read(e, w->element);
  if (w->wcr && is_in_reduction(parent)) survey(e, dc_cpu_in_bounds(e, w)); /* before an identity is stored there */
  DC_PUSH(e->arena, &e->writes, w);
  DC_PUSH(e->arena, &parent->body, ((item){.write = w}));
}

static void add_node(emitter *e, dc_nid node, loop *parent) {
  if (dc_node_at(e->graph, node)->kind == DC_NODE_TASKLET) {
    add_write(e, node, parent);
    return;
  }
  dc_map map = dc_node_at(e->graph, node)->map;
  for (uint32_t k = 0; k < map.n_params; k++) {
    dc_parameter p = e->pool->params.v[map.params[k]];
    loop *l = DC_NEW(e->arena, loop);
    *l = (loop){.parent = parent, .param = map.params[k], .begin = p.begin, .end = p.end};
    l->schedule = map.schedule, l->is_entry = k == 0;
    (void)dc_ex_is_int(e->pool, p.step, &l->step);
    survey(e, p.begin);
    survey(e, p.end);
    e->loop_of.v[l->param] = l;
    DC_PUSH(e->arena, &parent->body, ((item){.loop = l}));
    parent = l;
  }
  for (uint32_t k = 0; k < map.body.n; k++) add_node(e, map.body.v[k], parent);
}

/* ---- merging ---- */

static bool is_zero(emitter *e, dc_ex x) {
  int64_t value;
  return dc_ex_is_int(e->pool, x, &value) && value == 0;
}

/* Does every access that moves with either loop move as one loop over both would? */
static bool accesses_merge(emitter *e, const loop *outer, const loop *inner) {
  for (uint32_t k = 0; k < e->reads.n; k++) {
    dc_ex address = e->facts.v[e->reads.v[k]].address, by_outer, by_inner, rest;
    if (!dc_ex_uses_param(e->pool, address, outer->param) && !dc_ex_uses_param(e->pool, address, inner->param)) continue;
    if (!dc_ix_split(e->pool, address, outer->param, &by_outer, &rest)) return false;
    if (!dc_ix_split(e->pool, address, inner->param, &by_inner, &rest)) return false;
    if (by_outer != dc_ix_mul(e->pool, by_inner, inner->end) || dc_ex_uses_param(e->pool, by_outer, inner->param)) return false;
  }
  return true;
}

static bool merges(emitter *e, const loop *outer, const loop *inner) {
  bool whole = outer->step == 1 && inner->step == 1 && is_zero(e, outer->begin) && is_zero(e, inner->begin);
  return whole && !inner->is_entry && outer->schedule != DC_MAP_SCATTER && !e->exposed.v[outer->param] &&
         !e->exposed.v[inner->param] && accesses_merge(e, outer, inner);
}

/* Lets the inner loop do the outer's work and gives the outer its place in the tree. */
static void merge(emitter *e, loop *outer, loop *inner) {
  dc_ex zero = dc_ex_int(e->pool, 0);
  for (uint32_t k = 0; k < e->reads.n; k++) {
    dc_ex moved = dc_ex_subst(e->pool, e->facts.v[e->reads.v[k]].address, &outer->param, &zero, 1);
    e->facts.v[e->reads.v[k]].address = moved;
  }
  outer->end = dc_ix_mul(e->pool, outer->end, inner->end);
  outer->param = inner->param;
  e->loop_of.v[outer->param] = outer;
  outer->body.v = inner->body.v, outer->body.n = inner->body.n, outer->body.cap = inner->body.cap;
  for (uint32_t k = 0; k < outer->body.n; k++)
    if (outer->body.v[k].loop) outer->body.v[k].loop->parent = outer;
}

static void merge_all(emitter *e, loop *l) {
  for (uint32_t k = 0; k < l->body.n; k++)
    if (l->body.v[k].loop) merge_all(e, l->body.v[k].loop);
  while (l != &e->root && l->body.n == 1 && l->body.v[0].loop && merges(e, l, l->body.v[0].loop)) merge(e, l, l->body.v[0].loop);
}

/* ---- what the body does ---- */

bool dc_cpu_has_loops(const loop *l) {
  for (uint32_t k = 0; k < l->body.n; k++)
    if (l->body.v[k].loop) return true;
  return false;
}

int64_t dc_cpu_extent(emitter *e, const loop *l) {
  int64_t length;
  if (!dc_ex_is_int(e->pool, dc_ix_sub(e->pool, l->end, l->begin), &length)) return -1;
  return length > 0 ? (length + l->step - 1) / l->step : 0;
}

static void note_writes(emitter *e, loop *l, uint32_t depth) {
  l->depth = depth, l->level = l->lanes ? LANE_LEVEL : depth;
  for (uint32_t k = 0; k < l->body.n; k++) {
    if (l->body.v[k].loop) note_writes(e, l->body.v[k].loop, depth + 1);
    else l->body.v[k].write->parent = l;
    l->writes |= l->body.v[k].loop ? l->body.v[k].loop->writes : dc_cpu_container_bits(e, l->body.v[k].write->out);
  }
}

/* Is the element read, or written otherwise, anywhere inside the loop? */
static bool is_private(emitter *e, const loop *home, const write_item *w) {
  uint64_t bits = dc_cpu_container_bits(e, w->out);
  for (uint32_t k = 0; k < home->body.n; k++) {
    const write_item *other = home->body.v[k].write;
    if (!other) {
      if (!is_private(e, home->body.v[k].loop, w)) return false;
      continue;
    }
    bool same = other->element == w->element && other->wcr == w->wcr;
    if (!same && (dc_cpu_container_bits(e, other->out) & bits)) return false;
    if ((dc_cpu_fact(e, other->value)->reads | (other->guard ? dc_cpu_fact(e, other->guard)->reads : 0)) & bits) return false;
  }
  return true;
}

/* The innermost REDUCE map around a write: its outermost loop. */
static loop *reduce_of(const write_item *w) {
  loop *l = w->parent;
  while (l && l->schedule != DC_MAP_REDUCE) l = l->parent;
  while (l && !l->is_entry) l = l->parent;
  return l;
}

static bool is_invariant(emitter *e, const loop *home, const write_item *w) {
  dc_ex address = dc_cpu_fact(e, w->element)->address;
  for (const loop *l = w->parent; l != home->parent; l = l->parent)
    if (dc_ex_uses_param(e->pool, address, l->param)) return false;
  return true;
}

static void find_accumulators(emitter *e) {
  for (uint32_t k = 0; k < e->writes.n; k++) {
    write_item *w = e->writes.v[k];
    loop *home = w->wcr && !w->in_product ? reduce_of(w) : NULL;
    if (!home || dc_cpu_fact(e, w->element)->check || !is_invariant(e, home, w) || !is_private(e, home, w)) continue;
    for (uint32_t a = 0; a < e->accumulators.n && !w->accumulator; a++)
      if (e->accumulators.v[a].home == home && e->accumulators.v[a].first->element == w->element) w->accumulator = a + 1;
    if (w->accumulator) continue;
    dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(e->graph, w->out)->dtype);
    DC_PUSH(e->arena, &e->accumulators, ((accumulator){.first = w, .home = home, .type = type}));
    w->accumulator = e->accumulators.n;
  }
}

/* Do different values of p write different elements, whatever the other parameters are? */
static bool separates(emitter *e, dc_param p, const write_item *w) {
  uint32_t alone = 0;
  dc_exnode element = *dc_ex_node(e->pool, w->element);
  for (uint32_t d = 0; d < element.nargs; d++) {
    dc_ex index = dc_ex_arg(e->pool, w->element, d), factor, rest;
    if (!dc_ex_uses_param(e->pool, index, p)) continue;
    int64_t constant;
    if (!dc_ix_split(e->pool, index, p, &factor, &rest) || !dc_ex_is_int(e->pool, factor, &constant) || !constant) return false;
    if (!dc_ex_is_int(e->pool, rest, &constant)) return false;
    alone++;
  }
  return alone > 0;
}

static void find_conflicts(emitter *e) {
  for (uint32_t k = 0; k < e->writes.n; k++) {
    write_item *w = e->writes.v[k];
    if (w->accumulator || w->in_product || dc_cont(e->graph, w->out)->storage == DC_STORE_REGISTER) continue;
    for (loop *l = w->parent; l; l = l->parent) {
      bool may = l->schedule == DC_MAP_SCATTER || (l->schedule == DC_MAP_REDUCE && w->wcr);
      if (may && !separates(e, l->param, w)) l->conflicts = true;
    }
  }
}

/* ---- registers ---- */

bool dc_cpu_is_inside(const loop *inner, const loop *outer) {
  while (inner && inner != outer) inner = inner->parent;
  return inner != NULL;
}

typedef struct {
  emitter *e;
  loop *at;
} register_walk;

static void widen_home(emitter *e, dc_cid c, loop *at) {
  loop *home = e->homes.v[c];
  while (home && !dc_cpu_is_inside(at, home)) home = home->parent;
  e->homes.v[c] = home ? home : at;
}

static void note_register(void *context, const dc_pool *pool, dc_ex x) {
  register_walk *r = context;
  const dc_exnode *node = dc_ex_node(pool, x);
  if (node->op == DC_EX_READ) widen_home(r->e, node->ref, r->at);
}

static void find_homes(emitter *e) {
  for (dc_cid c = 0; c < e->graph->containers.n; c++) DC_PUSH(e->arena, &e->homes, NULL);
  for (uint32_t k = 0; k < e->writes.n; k++) {
    register_walk r = {e, e->writes.v[k]->parent};
    dc_ex_walk(e->pool, e->writes.v[k]->element, note_register, &r);
    dc_ex_walk(e->pool, e->writes.v[k]->value, note_register, &r);
    if (e->writes.v[k]->guard) dc_ex_walk(e->pool, e->writes.v[k]->guard, note_register, &r);
    for (loop *l = r.at; l && l->parent; l = l->parent) { /* ranges are evaluated outside their loop */
      register_walk outside = {e, l->parent};
      dc_ex_walk(e->pool, l->begin, note_register, &outside);
      dc_ex_walk(e->pool, l->end, note_register, &outside);
    }
  }
}

/* ---- lanes ---- */

typedef struct {
  emitter *e;
  dc_param near, far; /* of the innermost loop, and of the loop that might run as lanes in it */
  uint32_t bad_near, bad_far;
} strides;

/* What a vector of accesses along p costs beyond a plain load: shuffles for a short step, a line of cache for each
 * element otherwise. */
static uint32_t badness(emitter *e, dc_ex address, dc_param p) {
  dc_ex factor, rest;
  int64_t step;
  if (!dc_ix_split(e->pool, address, p, &factor, &rest) || !dc_ex_is_int(e->pool, factor, &step)) return 4;
  return step == 0 || step == 1 ? 0 : step > 1 && step <= 4 ? 1 : 4;
}

static void judge_access(void *context, const dc_pool *pool, dc_ex x) {
  strides *s = context;
  if (dc_ex_node(pool, x)->op != DC_EX_READ) return;
  dc_ex address = s->e->facts.v[x].address;
  s->bad_near += badness(s->e, address, s->near);
  s->bad_far += badness(s->e, address, s->far);
}

static void judge_loop(strides *s, const loop *l) {
  int64_t extent = dc_cpu_extent(s->e, l);
  s->near = l->param;
  for (uint32_t k = 0; k < l->body.n; k++) {
    if (l->body.v[k].loop) {
      judge_loop(s, l->body.v[k].loop);
      continue;
    }
    const write_item *w = l->body.v[k].write;
    judge_access(s, s->e->pool, w->element);
    dc_ex_walk(s->e->pool, w->value, judge_access, s);
  }
  if (extent >= 0 && extent < 16 && !dc_cpu_has_loops(l)) s->bad_near += 2; /* too short for vectors */
}

/* Loops inside must not depend on the lane, and nothing inside may collide. */
static bool lanes_are_legal(emitter *e, const loop *lane, const loop *l) {
  for (uint32_t k = 0; k < l->body.n; k++) {
    const loop *inner = l->body.v[k].loop;
    if (!inner) continue;
    bool data = dc_ex_uses_op(e->pool, inner->begin, DC_EX_READ) || dc_ex_uses_op(e->pool, inner->end, DC_EX_READ); /* of each lane */
    if (inner->lanes || inner->schedule == DC_MAP_SCATTER || data || dc_ex_uses_param(e->pool, inner->begin, lane->param) ||
        dc_ex_uses_param(e->pool, inner->end, lane->param) || !lanes_are_legal(e, lane, inner)) return false;
  }
  return true;
}

typedef struct {
  emitter *e;
  const loop *lane;
  bool repeats;
} reuse_search;

static void find_reuse(void *context, const dc_pool *pool, dc_ex x) {
  reuse_search *r = context;
  if (dc_ex_node(pool, x)->op != DC_EX_READ) return;
  for (const loop *l = r->lane->parent; l && l->parent; l = l->parent)
    r->repeats |= !dc_ex_uses_param(pool, r->e->facts.v[x].address, l->param);
}

/* Does each iteration of the loops around read other elements? */
static bool reads_once(emitter *e, const loop *lane, const loop *l) {
  reuse_search r = {.e = e, .lane = lane};
  for (uint32_t k = 0; k < l->body.n && !r.repeats; k++) {
    if (l->body.v[k].write) dc_ex_walk(e->pool, l->body.v[k].write->value, find_reuse, &r);
    else r.repeats = !reads_once(e, lane, l->body.v[k].loop);
  }
  return !r.repeats;
}

/* ---- tiles ---- */

typedef struct {
  emitter *e;
  loop *inner;
  loop *found; /* the nearest loop around in which an access that jumps in `inner` is contiguous */
} tile_search;

static void find_crossing(void *context, const dc_pool *pool, dc_ex x) {
  tile_search *t = context;
  dc_ex address = t->e->facts.v[x].address, factor, rest;
  int64_t step;
  if (dc_ex_node(pool, x)->op != DC_EX_READ || t->found || badness(t->e, address, t->inner->param) < 4) return;
  for (loop *l = t->inner; !l->is_entry && !t->found;) {
    l = l->parent;
    bool unit = dc_ix_split(t->e->pool, address, l->param, &factor, &rest) && dc_ex_is_int(t->e->pool, factor, &step) && step == 1;
    if (unit && l->step == 1) t->found = l;
  }
}

static bool is_longer(emitter *e, const loop *l, int64_t n) {
  int64_t extent = dc_cpu_extent(e, l);
  return extent < 0 || extent > n;
}

/* A loop over tiles of l; l itself then runs inside one. */
static loop *tile_loop(emitter *e, loop *l, int64_t size) {
  loop *outer = DC_NEW(e->arena, loop);
  dc_ex extent = dc_ex_int(e->pool, size);
  *outer = (loop){.begin = l->begin, .end = l->end, .step = size, .schedule = l->schedule, .is_entry = l->is_entry};
  outer->param = dc_param_new(e->pool, "i", l->begin, l->end, extent);
  DC_PUSH(e->arena, &e->loop_of, outer);
  DC_PUSH(e->arena, &e->exposed, true);
  l->begin = dc_ex_par(e->pool, outer->param);
  int64_t whole;
  bool fits = dc_ex_is_int(e->pool, dc_ix_sub(e->pool, l->end, outer->begin), &whole) && whole % size == 0;
  dc_ex end = dc_ix_add(e->pool, l->begin, extent);
  l->end = fits ? end : dc_ix_min(e->pool, end, l->end);
  l->is_entry = false, l->usual = size;
  return outer;
}

static void adopt(emitter *e, loop *parent, loop *child) {
  parent->body.n = 0;
  DC_PUSH(e->arena, &parent->body, ((item){.loop = child}));
  child->parent = parent;
}

/* Where an element-wise map reads along one dimension and writes along another, a cache line
 * serves all its elements only if both loops run inside a tile: outer .. inner becomes
 * tiles of outer .. tiles of inner, outer, inner. */
static void tile(emitter *e, loop *inner) {
  tile_search t = {.e = e, .inner = inner};
  for (uint32_t k = 0; k < inner->body.n; k++) {
    dc_ex_walk(e->pool, inner->body.v[k].write->value, find_crossing, &t);
    find_crossing(&t, e->pool, inner->body.v[k].write->element);
  }
  loop *outer = t.found;
  if (!outer || !is_longer(e, outer, 4) || !is_longer(e, inner, 2 * LANES)) return;
  for (const loop *l = outer; l != inner; l = l->body.v[0].loop)
    if (l->body.n != 1 || !l->body.v[0].loop || l->body.v[0].loop->is_entry) return;
  loop *above = outer->parent, *below = outer->body.v[0].loop;
  loop *outer_tiles = tile_loop(e, outer, 16), *inner_tiles = tile_loop(e, inner, LANES);
  for (uint32_t k = 0; k < above->body.n; k++)
    if (above->body.v[k].loop == outer) above->body.v[k].loop = outer_tiles;
  outer_tiles->parent = above;
  loop *last = below == inner ? outer_tiles : inner->parent;
  if (below != inner) adopt(e, outer_tiles, below);
  adopt(e, last, inner_tiles);
  adopt(e, inner_tiles, outer);
  adopt(e, outer, inner);
}

static void find_tiles(emitter *e, loop *l) {
  for (uint32_t k = 0; k < l->body.n; k++)
    if (l->body.v[k].loop) find_tiles(e, l->body.v[k].loop);
  bool innermost = l != &e->root && l->body.n && !dc_cpu_has_loops(l);
  if (innermost && l->schedule == DC_MAP_PARALLEL && l->step == 1 && !l->is_entry) tile(e, l);
}

/* ---- strips ---- */

static void find_lanes(emitter *e, loop *l) {
  bool chained = false;
  if (l->product) return;
  for (uint32_t k = 0; k < l->body.n; k++) {
    if (!l->body.v[k].loop) continue;
    find_lanes(e, l->body.v[k].loop);
    chained |= !l->body.v[k].loop->is_entry;
  }
  int64_t extent = l == &e->root ? 0 : dc_cpu_extent(e, l);
  if (l == &e->root || l->schedule != DC_MAP_PARALLEL || l->step != 1 || chained || !dc_cpu_has_loops(l) || dc_cpu_has_product(l)) return;
  if (extent >= 0 && extent < 16) return;
  strides s = {.e = e, .far = l->param};
  for (uint32_t k = 0; k < l->body.n; k++)
    if (l->body.v[k].loop) judge_loop(&s, l->body.v[k].loop);
  if (s.bad_far >= s.bad_near || !lanes_are_legal(e, l, l)) return;
  bool is_short = extent >= 0 && extent < 2 * LONG_LANES;
  l->lanes = is_short || !reads_once(e, l, l) ? LANES : LONG_LANES;
}

/* ---- the whole ---- */

static dc_status check_type(dc_dtype type) {
  if (dc_cpu_type(type)) return DC_OK;
  return dc_error(DC_ERR_UNSUPPORTED, "the cpu backend does not compute with %s", dc_dtype_name(type));
}

static dc_status check_types(emitter *e) {
  for (dc_cid c = 1; c < e->graph->containers.n; c++) DC_TRY(check_type((dc_dtype)dc_cont(e->graph, c)->dtype));
  for (dc_ex x = 1; x < e->pool->nodes.n; x++) DC_TRY(check_type(dc_ex_dtype(e->pool, x)));
  return DC_OK;
}

dc_status dc_cpu_plan(emitter *e, dc_nid node) {
  DC_TRY(check_types(e));
  for (dc_param p = 0; p < e->pool->params.n; p++) {
    DC_PUSH(e->arena, &e->loop_of, NULL);
    DC_PUSH(e->arena, &e->exposed, false);
  }
  e->root.is_entry = true;
  e->root.schedule = DC_MAP_SEQUENTIAL;
  add_node(e, node, &e->root);
  for (dc_ex x = 0; x < e->facts.n; x++) e->facts.v[x].local = 0;
  merge_all(e, &e->root);
  dc_cpu_find_products(e, &e->root);
  find_lanes(e, &e->root);
  find_tiles(e, &e->root);
  note_writes(e, &e->root, 0);
  find_homes(e);
  find_accumulators(e);
  find_conflicts(e);
  return DC_OK;
}
