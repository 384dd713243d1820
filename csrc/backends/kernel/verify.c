/* The rules of a well-formed kernel.  What an annotation promises is checked against the tree: the printer believes it. */
#include "backends/kernel/kernel.h"

typedef struct {
  dc_kernel *k;
  const dc_loop *loop; /* under test, or NULL */
  const dc_write *write;
  bool *open; /* by parameter: its loop is around */
  const dc_loop **dealt; /* by container: a loop that takes turns and uses it */
  bool threads_outside;
  const char *broken;
} checker;

static void fail(checker *c, const char *rule) {
  if (!c->broken) c->broken = rule;
}

static void require(checker *c, bool holds, const char *rule) {
  if (!holds) fail(c, rule);
}

/* ---- expressions ---- */

/* Elements of a register that is a thread's own are those of the iterations that it takes, of whatever loop. */
static void check_own(checker *c, dc_cid of, dc_ex address) {
  const dc_exnode *node = dc_ex_node(c->k->pool, address);
  const dc_loop *l = node->op == DC_EX_PARAM ? c->k->loop_of.v[node->ref] : NULL, *first = c->dealt[of];
  require(c, l && l->turns, "a thread's own elements are those of a loop that takes turns");
  require(c,
          !first || c->broken ||
              (l->turns == first->turns && l->pack == first->pack && dc_loop_extent(c->k, l) == dc_loop_extent(c->k, first)),
          "loops that share a thread's own elements deal them alike");
  if (!c->broken) c->dealt[of] = l;
}

static void check_node(void *context, const dc_pool *pool, dc_ex x) {
  checker *c = context;
  const dc_exnode *node = dc_ex_node(pool, x);
  if (node->op == DC_EX_PARAM) require(c, c->open[node->ref], "an expression uses the parameters of the loops around it");
  if (node->op != DC_EX_READ) return;
  require(c, node->ref && node->ref < c->k->graph->containers.n, "an access names a buffer or a register of the kernel");
  bool good = (node->nargs == 1 || node->nargs == 2) && dc_ex_dtype(pool, dc_ex_arg(pool, x, 0)) == DC_I64;
  require(c, good && (node->nargs == 1 || dc_ex_dtype(pool, dc_ex_arg(pool, x, 1)) == DC_BOOL),
          "an access has an i64 address and perhaps a check");
  if (!c->broken && dc_kernel_is_own(c->k, node->ref)) check_own(c, node->ref, dc_read_address(c->k, x));
}

static void check_ex(checker *c, dc_ex x, dc_dtype type, const char *rule) {
  if (!x) return;
  dc_ex_walk(c->k->pool, x, check_node, c);
  require(c, dc_ex_dtype(c->k->pool, x) == type, rule);
}

/* ---- writes ---- */

static void check_accumulator(checker *c, const dc_write *w) {
  dc_kernel *k = c->k;
  bool known = w->accumulator <= k->accumulators.n;
  const dc_accumulator *a = known ? &k->accumulators.v[w->accumulator - 1] : NULL;
  require(c, a && a->first && a->home, "an accumulator is kept by a loop and has a write");
  if (c->broken) return;
  require(c, w->wcr && w->wcr == a->first->wcr && w->element == a->first->element,
          "the writes to an accumulator combine into one element alike");
  require(c, w->inside, "an accumulator says where its element is inside its buffer");
  require(c, dc_loop_is_inside(w->parent, a->home), "an accumulator's writes stand in the loop that keeps it");
  for (const dc_loop *l = w->parent; !c->broken && l != a->home->parent; l = l->parent)
    require(c, !dc_ex_uses_param(k->pool, dc_read_address(k, w->element), l->param), "an accumulator's element stays in place");
}

static void check_write(checker *c, const dc_write *w) {
  c->write = w;
  check_ex(c, w->element, (dc_dtype)dc_cont(c->k->graph, w->out)->dtype, "an element is written");
  if (c->broken) return;
  check_ex(c, w->value, dc_ex_dtype(c->k->pool, w->value), "");
  check_ex(c, w->guard, DC_BOOL, "a guard is a bool");
  check_ex(c, w->inside, DC_BOOL, "`inside` is a bool");
  for (uint32_t j = 0; j < w->meets.n; j++) require(c, c->open[w->meets.v[j]], "iterations of loops around a write may meet there");
  if (w->accumulator && !c->broken) check_accumulator(c, w);
  c->write = NULL;
}

/* ---- loops ---- */

static void check_threads(checker *c, const dc_loop *l) {
  const dc_loop *at = l;
  require(c, l->is_entry && !c->threads_outside && !dc_loop_strip(l->parent) && l->schedule != DC_MAP_SEQUENTIAL,
          "threads share a map once, from its first loop on");
  check_ex(c, l->threads->cost, DC_F64, "a cost is an f64");
  if (l->threads->sliced) {
    const dc_loop *s = l->threads->slice;
    require(c, l->schedule == DC_MAP_SCATTER && l->threads->n == 1 && s && s != l && !s->collides && s->step == 1,
            "the slice is a loop inside that does not collide");
    return;
  }
  for (uint32_t k = 0; k < l->threads->n && !c->broken; k++) {
    require(c, at && !at->collides && (at == l || !at->is_entry), "threads share loops of one map that do not collide");
    if (at) at = at->body.n == 1 ? at->body.v[0].loop : NULL;
  }
}

static bool in_team(const dc_loop *l) {
  while (l && !l->on_team) l = l->parent;
  return l != NULL;
}

static void check_grid(checker *c, const dc_loop *l) {
  dc_kernel *k = c->k;
  require(c, k->grid.block, "loops on a grid are of a kernel that runs on one");
  require(c, l->schedule != DC_MAP_SEQUENTIAL, "threads of a grid run iterations in any order");
  if (l->on_grid) {
    require(c, !l->on_team && (l->schedule == DC_MAP_PARALLEL || l->schedule == DC_MAP_SCATTER), "a grid is of parallel loops");
    require(c, l->parent == k->root || (l->parent->on_grid && dc_loop_only(l->parent) == l),
            "the loops of a grid are all loops around them");
    dc_dependence begin = dc_kernel_dependence(k, l->begin), end = dc_kernel_dependence(k, l->end);
    require(c, !begin.level && !end.level && !begin.reads && !end.reads, "a grid has extents of symbols");
    return;
  }
  const dc_loop *entry = l;
  while (!entry->is_entry) entry = entry->parent;
  require(c, k->grid.team > 1 && entry->on_team && (l == entry || l->parent->on_team),
          "a team shares loops of a map from its first one on");
  require(c, l != entry || !in_team(l->parent), "a team shares a loop once");
  if (l == entry) require(c, dc_loop_is_dealt(k, entry), "the threads of a team meet in accumulators of the loop that they share only");
}

/* The iterations of l and of loops around it, from 0 on, are as many as it says, and its accumulators live outside. */
static bool spread_fits(dc_kernel *k, const dc_loop *l) {
  int64_t lanes = 1;
  if (!l->is_ordered) return false;
  for (const dc_loop *at = l; at->parent && lanes < l->spread; at = at->parent) {
    if (at->step != 1 || !dc_kernel_is_number(k, at->begin, 0) || dc_loop_extent(k, at) < 1) return false;
    for (uint32_t a = 0; a < k->accumulators.n; a++)
      if (k->accumulators.v[a].home == at && dc_loop_accumulates(l, a, false)) return false;
    lanes *= dc_loop_extent(k, at);
  }
  return lanes == l->spread;
}

static void check_pack(checker *c, const dc_loop *l) {
  require(c, (l->on_grid || l->on_team) && !dc_loop_has_loops(l) && l->step == 1 && (l->pack & (l->pack - 1)) == 0,
          "packs are of innermost loops that threads share");
  for (uint32_t j = 0; j < l->body.n && !c->broken; j++) {
    const dc_write *w = l->body.v[j].write;
    bool place = w->accumulator || dc_kernel_is_register(c->k, w->out);
    require(c, place || dc_read_is_packed(c->k, l, w->element, l->pack), "what a pack writes lies side by side");
  }
}

static void check_turns(checker *c, const dc_loop *l) {
  dc_kernel *k = c->k;
  if (l->on_grid) {
    const dc_loop *last = dc_loop_only(l);
    bool rows = last && last->on_grid && last->pack && !dc_loop_has_loops(last) && !k->grid.slices && l->step == 1;
    bool divided = dc_kernel_is_number(k, l->begin, 0) && dc_kernel_divides(k->pool, l->end, l->turns);
    require(c, rows && divided, "turns of a grid are of the loop around packs");
    return;
  }
  int64_t extent = dc_loop_extent(k, l), taken = (int64_t)k->grid.team * (l->pack ? l->pack : 1);
  bool plain = l->on_team && l->is_entry && !dc_loop_has_loops(l) && l->step == 1 && dc_kernel_is_number(k, l->begin, 0) && !k->grid.across;
  require(c, plain && extent > 0 && (extent + taken - 1) / taken == l->turns, "turns are of a team's innermost loop of known length");
}

static void check_tile(checker *c, const dc_loop *l) {
  const dc_loop *last = dc_loop_last_on_grid(l);
  bool one = true;
  for (const dc_loop *at = l->parent; at; at = at->parent) one = one && !at->tile;
  bool fits = l->tile == DC_TILE && c->k->grid.block == DC_TILE_THREADS;
  require(c, fits && one && dc_kernel_may_tile(c->k, l, last), "tiles are of two loops of a grid whose writes lie along the inner one");
}

static void check_annotations(checker *c, const dc_loop *l) {
  bool innermost = !dc_loop_has_loops(l);
  require(c, !l->product || (l->product->m == l && l->product->rows > 0 && l->product->columns > 0),
          "a product is two parallel loops around its sums");
  require(c, !l->lanes || (l->schedule == DC_MAP_PARALLEL && l->step == 1 && !dc_loop_strip(l->parent)),
          "strips are of parallel loops, and not nested");
  const bool apart = !l->collides || dc_loop_is_apart(c->k, l);
  require(c, !l->is_vector || (innermost && apart && !dc_loop_strip(l) && l->schedule != DC_MAP_SEQUENTIAL),
          "vectors run innermost loops of which no two iterations write one element");
  bool parallel = l->schedule == DC_MAP_PARALLEL, sums = l->schedule == DC_MAP_REDUCE && l->sum_lanes && l->overlaps == DC_FEW_LANES;
  require(c, !l->overlaps || (l->is_vector && (parallel || sums) && l->step == 1 && dc_loop_extent(c->k, l) >= l->overlaps),
          "vectors that overlap run a parallel loop, or sums in lanes, of known length, which is no shorter than one");
  require(c, !l->is_ordered || l->is_vector, "only vectors could change an order");
  bool power = l->sum_lanes == 0 || (l->sum_lanes >= DC_FEW_LANES && (l->sum_lanes & (l->sum_lanes - 1)) == 0);
  require(c, power && l->sum_levels <= 4 && (!l->sum_lanes || l->is_vector),
          "a sum has 0, 8, 16, ... lanes in vectors, and 4 levels of blocks at most");
  require(c, !l->spread || (spread_fits(c->k, l) && !l->sum_lanes),
          "accumulators are spread over iterations of known number inside their homes");
  require(c, !l->terms || (dc_loop_takes_terms(c->k, l) && l->step == 1 && !l->spread && !l->sum_lanes),
          "several terms are taken at once where there is nothing but terms of a strip's lanes");
  const dc_write *w = dc_loop_single_write(l);
  require(c, !l->memory_run || (w && !w->guard && !w->wcr && l->step == 1 && !dc_loop_strip(l)), "a run of memory is one plain write");
  check_ex(c, l->joined, DC_I64, "the end of joined blocks is an i64");
  require(c, !l->joined || (l->schedule == DC_MAP_PARALLEL && l->step > 1 && !l->product && !l->lanes),
          "joined blocks are of a parallel loop");
  if (l->threads && !c->broken) check_threads(c, l);
  if ((l->on_grid || l->on_team) && !c->broken) check_grid(c, l);
  if (l->pack && !c->broken) check_pack(c, l);
  if (l->turns && !c->broken) check_turns(c, l);
  if (l->tile && !c->broken) check_tile(c, l);
}

static void check_loop(checker *c, const dc_loop *l) {
  c->loop = l;
  if (l != c->k->root) {
    check_ex(c, l->begin, DC_I64, "a loop begins at an i64");
    check_ex(c, l->end, DC_I64, "a loop ends at an i64");
    require(c, l->step > 0, "steps are positive");
    require(c, l->is_entry || (l->parent != c->k->root && l->parent->schedule == l->schedule), "the loops of a map have one schedule");
    c->open[l->param] = true;
    if (!c->broken) check_annotations(c, l);
  }
  bool outside = c->threads_outside;
  c->threads_outside = outside || l->threads;
  for (uint32_t j = 0; j < l->body.n && !c->broken; j++) {
    if (l->body.v[j].loop) check_loop(c, l->body.v[j].loop);
    else check_write(c, l->body.v[j].write);
    if (!c->broken) c->loop = l;
  }
  c->threads_outside = outside;
  if (l != c->k->root) c->open[l->param] = false;
}

/* What is run for each slice sees nothing of what another one has done. */
static void check_slices(checker *c) {
  dc_kernel *k = c->k;
  for (uint32_t j = 0; j < k->writes.n && !c->broken; j++) {
    const dc_write *w = k->writes.v[j];
    const dc_ex all[] = {w->value, w->guard, dc_read_address(k, w->element), dc_read_check(k, w->element)};
    uint64_t reads = 0;
    for (int i = 0; i < 4; i++)
      if (all[i]) reads |= dc_kernel_dependence(k, all[i]).reads;
    for (dc_cid b = 1; b <= k->n_buffers; b++)
      if (k->bits[b] & k->root->writes) require(c, !(reads & k->bits[b]), "a kernel in slices reads nothing that it writes");
  }
}

dc_status dc_kernel_verify(dc_kernel *k) {
  checker c = {.k = k,
               .open = DC_NEW_ARRAY(k->arena, bool, k->pool->params.n),
               .dealt = DC_NEW_ARRAY(k->arena, const dc_loop *, k->graph->containers.n)};
  for (uint32_t a = 0; a < k->accumulators.n && !c.broken; a++)
    require(&c, k->accumulators.v[a].first && k->accumulators.v[a].home, "an accumulator is kept by a loop and has a write");
  const dc_grid *g = &k->grid;
  bool power = (g->block & (g->block - 1)) == 0 && g->block <= 1024 && (g->block == 1 || g->block >= DC_WARP);
  bool columns = g->team && g->block % g->team == 0 && g->block / g->team >= DC_WARP;
  bool known = g->across ? columns : g->team == 1 || g->team == DC_WARP || g->team == g->block;
  require(&c, !g->block || (power && known), "a team is a thread, a warp, a block or a column of one");
  bool sliced = g->slices >= 2 && g->slices <= DC_MOST_SLICES && (g->slices & (g->slices - 1)) == 0;
  require(&c, !g->slices || (sliced && g->team == 1 && g->block > 1), "slices are a power of two, each of a thread");
  require(&c, !g->at_once || g->at_once * g->block <= DC_MOST_THREADS, "a multiprocessor runs two thousand threads at once");
  if (!c.broken) check_loop(&c, k->root);
  if (!c.broken && g->slices) check_slices(&c);
  if (!c.broken) return DC_OK;
  const char *at = c.loop && c.loop != k->root ? dc_name_text(&k->graph->names, k->pool->params.v[c.loop->param].name) : "the kernel";
  if (c.write) return dc_error(DC_ERR_MODEL, "in loop '%s', write %u: the rule is that %s", at, c.write->ordinal, c.broken);
  return dc_error(DC_ERR_MODEL, "at loop '%s': the rule is that %s", at, c.broken);
}

/* ---- types ---- */

dc_status dc_kernel_supported(const dc_kernel *k, uint64_t types) {
  uint64_t used = 0;
  for (dc_cid c = 1; c < k->graph->containers.n; c++) used |= (uint64_t)1 << dc_cont(k->graph, c)->dtype;
  for (dc_ex x = 1; x < k->pool->nodes.n; x++) used |= (uint64_t)1 << dc_ex_dtype(k->pool, x);
  for (int t = 0; t < DC_DTYPE_COUNT; t++)
    if ((used & ~types) >> t & 1) return dc_error(DC_ERR_UNSUPPORTED, "the target does not compute with %s", dc_dtype_name((dc_dtype)t));
  return DC_OK;
}
