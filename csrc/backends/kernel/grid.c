/* Which iterations the threads of a device share.
 *
 * The loops from the outermost one on, as far as their extents are known before the kernel starts, are flattened: a grid
 * takes their iterations in turn.  Where an iteration has long loops of its own, a team of threads runs it: all its threads
 * do what stands outside of those loops, and each takes a part of their iterations.  What a reduction combines is combined
 * among the threads, in an order of its own, when it ends.
 *
 * Iterations of a scatter that may meet in an element, to which they add floats, are one thread's, one after the other: the same
 * data give the same bits.  So that more threads have work, each owns a slice of the elements, and skips what belongs to others. */
#include "backends/kernel/kernel.h"

enum { BLOCK = 256, MOST = 1024, FEW = 8, UNKNOWN = 4096, BATCH = 32, MANY = 1 << 18, ROWS = 512 };
enum { WIDE = 128, TEAMS = 256, LONG = 1 << 14, BUSY = 1 << 16 };
enum { LEAST_SUMS = 1024, MOST_SUMS = 8192, EACH = 8 }; /* of a row, that a team keeps in registers; for each of its threads */

/* ---- what a team may share ---- */

static bool is_alone(const dc_kernel *k, const dc_loop *entry, const dc_write *w) {
  bool memory = !dc_kernel_is_register(k, w->out);
  if (w->accumulator) return dc_loop_is_inside(k->accumulators.v[w->accumulator - 1].home, entry);
  if (!memory && k->homes.v[w->out] && k->homes.v[w->out] != entry->parent && dc_loop_is_inside(k->homes.v[w->out], entry)) return true;
  if (w->wcr && (!memory || dc_write_reduction(w) == entry)) return false;
  for (const dc_loop *l = w->parent; l != entry->parent; l = l->parent)
    if (dc_ex_uses_param(k->pool, dc_read_address(k, w->element), l->param)) return true;
  return false;
}

bool dc_loop_is_dealt(const dc_kernel *k, const dc_loop *entry) {
  if (!entry->is_entry || entry->collides || (entry->schedule != DC_MAP_PARALLEL && entry->schedule != DC_MAP_REDUCE)) return false;
  for (uint32_t j = 0; j < k->writes.n; j++)
    if (dc_loop_is_inside(k->writes.v[j]->parent, entry) && !is_alone(k, entry, k->writes.v[j])) return false;
  return true;
}

/* ---- a team's loops ---- */

typedef struct {
  dc_kernel *k;
  int64_t longest; /* iterations of one */
  uint32_t loops;
  bool fails;
} team_plan;

static dc_loop *next_in_map(const dc_loop *l) { return dc_loop_only(l) && !dc_loop_only(l)->is_entry ? dc_loop_only(l) : NULL; }

static bool is_boxed(dc_kernel *k, const dc_loop *l, const dc_loop *entry) {
  dc_dependence begin = dc_kernel_dependence(k, l->begin), end = dc_kernel_dependence(k, l->end);
  return begin.level < entry->depth && end.level < entry->depth && begin.safe && end.safe && !((begin.reads | end.reads) & entry->writes) &&
         !l->collides;
}

static int64_t deal(dc_kernel *k, dc_loop *entry) {
  int64_t all = 1;
  for (dc_loop *l = entry; l && is_boxed(k, l, entry); l = next_in_map(l)) {
    int64_t extent = dc_loop_extent(k, l);
    l->on_team = true, l->sum_levels = 0, l->spread = 0;
    all *= extent < 0 ? UNKNOWN : extent;
    if (all > INT32_MAX) all = INT32_MAX;
  }
  return all;
}

static bool is_worth_it(dc_kernel *k, const dc_loop *entry) {
  int64_t all = 1;
  for (const dc_loop *l = entry; l && is_boxed(k, l, entry) && all < FEW; l = next_in_map(l))
    all *= dc_loop_extent(k, l) < 0 ? UNKNOWN : dc_loop_extent(k, l);
  return all >= FEW && is_boxed(k, entry, entry);
}

static void plan_body(team_plan *t, dc_loop *at) {
  for (uint32_t j = 0; j < at->body.n && !t->fails; j++) {
    dc_loop *l = at->body.v[j].loop;
    const dc_write *w = at->body.v[j].write;
    if (w && w->wcr && !w->accumulator && !dc_kernel_is_register(t->k, w->out) && dc_write_reduction(w))
      t->fails = true; /* its identity is set in memory */
    if (!l) continue;
    if (dc_loop_is_dealt(t->k, l) && is_worth_it(t->k, l)) {
      int64_t n = deal(t->k, l);
      if (n > t->longest) t->longest = n;
      t->loops++;
    } else {
      plan_body(t, l);
    }
  }
}

static void clear_team(dc_kernel *k, dc_loop *l) {
  (void)k;
  l->on_team = false;
}

/* ---- how many threads ---- */

typedef struct {
  const dc_kernel *k;
  const dc_loop *column;
  uint32_t along, across;
} stride_search;

/* The stride of the innermost loop around that moves an access, and that of the innermost loop of the grid. */
static void count_strides(void *context, const dc_pool *pool, dc_ex read) {
  stride_search *s = context;
  const dc_loop *inner = NULL;
  dc_ex address = dc_ex_arg(pool, read, 0), factor, rest;
  int64_t of_column = 0, of_inner = 0;
  if (dc_kernel_is_register(s->k, dc_ex_node(pool, read)->ref)) return;
  for (dc_param p = 1; p < s->k->loop_of.n; p++) {
    const dc_loop *l = s->k->loop_of.v[p];
    if (!l || l->param != p || !l->on_team || !dc_ex_uses_param(pool, address, p)) continue;
    if (!inner || l->depth > inner->depth) inner = l;
  }
  if (!inner) return;
  if (!dc_ix_split((dc_pool *)pool, address, s->column->param, &factor, &rest) || !dc_ex_is_int(pool, factor, &of_column)) of_column = 0;
  if (!dc_ix_split((dc_pool *)pool, address, inner->param, &factor, &rest) || !dc_ex_is_int(pool, factor, &of_inner)) of_inner = 2;
  if (of_column == 1 && of_inner != 1) s->across++;
  else if (of_inner == 1 && dc_ex_uses_param(pool, address, s->column->param)) s->along++; /* what all columns read alike is short */
}

static bool runs_across(dc_kernel *k, const dc_loop *column) {
  stride_search s = {.k = k, .column = column};
  for (uint32_t j = 0; column && j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    dc_kernel_each_read(k, w->value, count_strides, &s);
    dc_kernel_each_read(k, w->element, count_strides, &s);
  }
  return s.across > s.along;
}

static bool has_shared(const dc_kernel *k) {
  for (dc_cid c = k->n_buffers + 1; c < k->graph->containers.n; c++)
    if (dc_kernel_is_shared(k, c)) return true;
  return false;
}

static uint32_t power_in(int64_t wanted, uint32_t least, uint32_t most) {
  uint32_t n = least;
  while (n < most && n < wanted) n *= 2;
  return n;
}

/* Neighbouring columns that a block takes: the more, the longer are the pieces of memory that it reads, as long as there are blocks
 * for the whole device. */
static uint32_t columns_of(dc_kernel *k, const dc_loop *column, int64_t iterations) {
  uint32_t n = DC_WARP;
  while (n < WIDE && 2 * n <= dc_loop_extent(k, column) && iterations / (2 * n) >= TEAMS) n *= 2;
  return n;
}

/* Does a sequential loop of an iteration of the grid write elements again and again that may stay in registers (parts.c)? */
static bool adds_up(dc_kernel *k, const dc_loop *column) {
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    const dc_loop *l = w->parent;
    bool moves = dc_kernel_is_register(k, w->out) || !l->on_team || dc_loop_has_loops(l) || l->parent->schedule != DC_MAP_SEQUENTIAL;
    if (!(dc_kernel_dependence(k, w->value).reads & k->bits[w->out])) continue;
    for (l = l->parent; l && l != column && !moves; l = l->parent)
      moves = l->schedule != DC_MAP_SEQUENTIAL || dc_ex_uses_param(k->pool, dc_read_address(k, w->element), l->param);
    if (!moves && l) return true;
  }
  return false;
}

/* Teams that a multiprocessor runs at once load as much as it has on its way.  A thread has 64 registers if what it takes of a row is
 * known to the last element, else 128: where some threads take less than others, conditions want some. */
static dc_grid shape_for_sums(int64_t longest) {
  const uint32_t whole = longest == 2048 || longest == 4096 ? (uint32_t)longest / EACH : 0, n = whole ? whole : BLOCK;
  return (dc_grid){.block = n, .team = n, .at_once = (whole ? 4 : 2) * BLOCK / n};
}

/* surely: iterations where a loop over a symbol is no longer than a batch. */
static dc_grid shape_of(dc_kernel *k, const dc_loop *column, int64_t iterations, int64_t surely, int64_t longest) {
  const dc_grid alone = {.block = column ? BLOCK : 1, .team = 1};
  bool many = surely >= MANY;
  if (has_shared(k) || !column) {
    uint32_t n = power_in(longest, DC_WARP, MOST);
    return (dc_grid){.block = n, .team = n};
  }
  if (runs_across(k, column)) {
    uint32_t columns = columns_of(k, column, surely), rows = power_in(longest / 16, 1, MOST / columns);
    return many || rows < 4 ? alone : (dc_grid){.block = rows * columns, .team = rows, .across = true};
  }
  if (longest < DC_WARP) return alone;
  if (longest <= 1024 && iterations >= MANY / 128) return (dc_grid){.block = BLOCK, .team = DC_WARP};
  if (longest >= LEAST_SUMS && longest <= MOST_SUMS && adds_up(k, column)) return shape_for_sums(longest);
  uint32_t n = power_in(longest / 16, longest < 128 ? DC_WARP : 128,
                        iterations < ROWS || longest >= LONG ? MOST : MOST / 2); /* of long rows, few at a time stay in the L2 */
  return (dc_grid){.block = n == DC_WARP ? BLOCK : n, .team = n};
}

/* ---- sums in the order of iterations ---- */

bool dc_write_is_ordered(const dc_kernel *k, const dc_write *w) {
  bool shows = (w->wcr == DC_WCR_SUM || w->wcr == DC_WCR_PROD) && dc_dtype_is_float((dc_dtype)dc_cont(k->graph, w->out)->dtype);
  return shows && w->meets.n && !w->accumulator && !dc_kernel_is_register(k, w->out);
}

/* Threads of one iteration of the grid share its elements out by the part of the address that the iteration does not say: then
 * neighbouring threads, which run neighbouring iterations, own alike. */
dc_ex dc_write_owned_by(const dc_kernel *k, const dc_write *w) {
  dc_ex place = dc_read_address(k, w->element), factor, rest;
  int64_t step;
  for (const dc_loop *l = w->parent; l->parent; l = l->parent)
    if (l->on_grid && dc_ix_split(k->pool, place, l->param, &factor, &rest) && dc_ex_is_int(k->pool, factor, &step)) place = rest;
  return place;
}

static bool is_ordered(const dc_kernel *k, const dc_loop *l) {
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    if (l->schedule == DC_MAP_SCATTER && dc_loop_is_inside(w->parent, l) && dc_write_is_ordered(k, w) && dc_write_meets(w, l)) return true;
  }
  return false;
}

static bool is_known(dc_kernel *k, const dc_loop *l) {
  dc_dependence begin = dc_kernel_dependence(k, l->begin), end = dc_kernel_dependence(k, l->end);
  return !begin.level && !end.level && !begin.reads && !end.reads;
}

/* Loops trade places by what they run over; their bodies stay. */
static void exchange(dc_kernel *k, dc_loop *a, dc_loop *b) {
  dc_loop was = *a;
  a->param = b->param, a->begin = b->begin, a->end = b->end, a->step = b->step, a->collides = b->collides;
  b->param = was.param, b->begin = was.begin, b->end = was.end, b->step = was.step, b->collides = was.collides;
  k->loop_of.v[a->param] = a, k->loop_of.v[b->param] = b;
}

/* Of a scatter whose loops stand in one another, those in which iterations meet go inside, in the order that they have. */
static void move_ordered_inside(dc_kernel *k) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (dc_loop *l = dc_loop_only(k->root), *inner; l && is_known(k, l) && (inner = dc_loop_only(l)); l = inner) {
      bool one_map = l->schedule == DC_MAP_SCATTER && !inner->is_entry && is_known(k, inner);
      if (!one_map || !is_ordered(k, l) || is_ordered(k, inner)) continue;
      exchange(k, l, inner), moved = true;
    }
  }
  dc_kernel_settle(k);
}

/* Do writes to one buffer move alike in the loops of the grid, so that one element has one owner? */
static bool move_alike(const dc_kernel *k) {
  for (uint32_t j = 0; j < k->writes.n; j++)
    for (uint32_t i = 0; i < j; i++) {
      const dc_write *v = k->writes.v[i], *w = k->writes.v[j];
      if (!dc_write_is_ordered(k, v) || !dc_write_is_ordered(k, w) || !(k->bits[v->out] & k->bits[w->out])) continue;
      dc_ex a = dc_read_address(k, v->element), b = dc_read_address(k, w->element);
      dc_ex moved_a = dc_ix_sub(k->pool, a, dc_write_owned_by(k, v)), moved_b = dc_ix_sub(k->pool, b, dc_write_owned_by(k, w));
      if (moved_a != moved_b || v->parent != w->parent) return false;
    }
  return true;
}

/* Threads for each iteration of the grid, of which there are so many: 0 where one does. */
static uint32_t slices_of(dc_kernel *k, const dc_loop *column, int64_t iterations) {
  int64_t met = 1;
  for (const dc_loop *l = dc_loop_only(column ? column : k->root); l && is_known(k, l) && is_ordered(k, l); l = dc_loop_only(l)) {
    int64_t extent = dc_loop_extent(k, l);
    met *= extent < 0 ? UNKNOWN : extent < INT32_MAX ? extent : INT32_MAX;
    if (met > INT32_MAX) met = INT32_MAX;
  }
  for (uint32_t j = 0; j < k->writes.n; j++) {
    const dc_write *w = k->writes.v[j];
    const dc_ex all[] = {w->value, w->guard, dc_read_address(k, w->element), dc_read_check(k, w->element)};
    for (int i = 0; i < 4; i++)
      for (dc_cid c = 1; all[i] && c <= k->n_buffers; c++)
        if (k->bits[c] & k->root->writes & dc_kernel_dependence(k, all[i]).reads) return 0;
  }
  if (!move_alike(k)) return 0;
  int64_t wanted = BUSY / (iterations ? iterations : 1) < met / FEW ? BUSY / (iterations ? iterations : 1) : met / FEW;
  uint32_t n = 1;
  while (2 * n <= wanted && n < DC_MOST_SLICES) n *= 2;
  return n > 1 ? n : 0;
}

/* ---- the pass ---- */

static bool is_shared(dc_kernel *k, const dc_loop *l) {
  return is_known(k, l) && (l->schedule == DC_MAP_PARALLEL || l->schedule == DC_MAP_SCATTER) && !is_ordered(k, l);
}

static bool has_array(const dc_kernel *k, int64_t most) {
  int64_t all = 0;
  for (dc_cid c = k->n_buffers + 1; c < k->graph->containers.n; c++) {
    int64_t size = dc_dtype_bytes((dc_dtype)dc_cont(k->graph, c)->dtype), extent;
    for (uint32_t d = 0; d < dc_cont(k->graph, c)->rank; d++)
      size *= dc_ex_is_int(k->pool, dc_cont(k->graph, c)->shape[d], &extent) ? extent : INT32_MAX;
    if (dc_kernel_is_shared(k, c)) all += 2 * size; /* a float8 is computed with as f32, but those are rare */
  }
  return all > most;
}

void dc_kernel_grid(dc_kernel *k) {
  dc_loop *column = NULL;
  int64_t iterations = 1, surely = 1;
  move_ordered_inside(k);
  for (dc_loop *l = dc_loop_only(k->root); l && is_shared(k, l); l = dc_loop_only(l)) {
    int64_t extent = dc_loop_extent(k, l);
    if (extent > INT32_MAX) extent = INT32_MAX; /* which is enough for all that is decided here */
    l->on_grid = true, column = l;
    iterations *= extent < 0 ? UNKNOWN : extent, surely *= extent < 0 ? BATCH : extent;
    if (iterations > INT32_MAX) iterations = INT32_MAX;
    if (surely > INT32_MAX) surely = INT32_MAX;
  }
  team_plan t = {.k = k, .longest = 1};
  plan_body(&t, column ? column : k->root);
  k->grid = (dc_grid){.block = column ? BLOCK : 1, .team = 1};
  if (!t.fails && t.loops && !has_array(k, 32 << 10)) k->grid = shape_of(k, column, iterations, surely, t.longest);
  if (k->grid.team == 1) {
    dc_kernel_each_loop(k, k->root, clear_team);
    dc_kernel_sums(k);
    k->grid.slices = slices_of(k, column, iterations);
    if (k->grid.slices) k->grid.block = BLOCK;
  }
}
