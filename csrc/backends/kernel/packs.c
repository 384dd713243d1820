/* Packs: a thread of a device takes several iterations at once, and moves the elements that lie side by side in them by
 * wide loads and stores.  Pointers are looked at when the kernel runs; where they are not aligned, elements move alone. */
#include "backends/kernel/kernel.h"

enum { PACK_BYTES = 16, MOST_LANES = 8, LIKELY = 1 << 20, ENOUGH = 1 << 16, BUSY = 1 << 17, MOST_ROWS = 4, MOST_WORDS = 64 };

/* ---- accesses ---- */

bool dc_kernel_divides(const dc_pool *pool, dc_ex x, int64_t n) {
  const dc_exnode *node = dc_ex_node(pool, x);
  if (node->op == DC_EX_INT) return node->i % n == 0;
  if (node->op != DC_EX_LINEAR || node->i % n) return false;
  for (uint32_t j = 1; j < node->nargs; j += 2)
    if (dc_ex_node(pool, dc_ex_arg(pool, x, j))->i % n) return false;
  return true;
}

bool dc_read_is_packed(const dc_kernel *k, const dc_loop *l, dc_ex read, uint32_t n) {
  dc_ex factor, rest, address = dc_read_address(k, read);
  if (dc_ex_node(k->pool, read)->nargs > 1 || dc_kernel_is_register(k, dc_ex_node(k->pool, read)->ref)) return false;
  if (!dc_ix_split(k->pool, address, l->param, &factor, &rest)) return false;
  return dc_kernel_is_number(k, factor, 1) && dc_kernel_divides(k->pool, rest, n);
}

/* ---- loops ---- */

typedef struct {
  const dc_kernel *k;
  const dc_loop *l;
  uint32_t n;
  uint64_t writes;
  dc_ex written[DC_MAX_SUMS]; /* addresses, by write */
  dc_cid out[DC_MAX_SUMS];
  uint32_t n_written;
  int least; /* bytes of an element that is packed */
  bool fails, any;
} pack_search;

static void note_size(pack_search *s, dc_cid c) {
  int bytes = dc_dtype_bytes((dc_dtype)dc_cont(s->k->graph, c)->dtype);
  s->any = true;
  if (bytes < s->least) s->least = bytes;
}

static void look_at_read(void *context, const dc_pool *pool, dc_ex read) {
  pack_search *s = context;
  dc_cid c = dc_ex_node(pool, read)->ref;
  if (dc_kernel_is_register(s->k, c)) return;
  bool packed = dc_read_is_packed(s->k, s->l, read, s->n);
  if (packed) note_size(s, c);
  for (uint32_t j = 0; j < s->n_written; j++) {
    bool meets = s->k->bits[c] & s->k->bits[s->out[j]];
    bool same = packed && c == s->out[j] && dc_read_address(s->k, read) == s->written[j];
    if (meets && !same) s->fails = true;
  }
}

static void look_at_writes(pack_search *s) {
  for (uint32_t j = 0; j < s->l->body.n && !s->fails; j++) {
    const dc_write *w = s->l->body.v[j].write;
    if (w->accumulator || dc_kernel_is_register(s->k, w->out)) continue;
    bool met = s->writes & s->k->bits[w->out], contended = false;
    for (const dc_loop *l = s->l; l->parent; l = l->parent) contended = contended || (w->wcr && dc_write_meets(w, l));
    if (met || contended || s->n_written == DC_MAX_SUMS || !dc_read_is_packed(s->k, s->l, w->element, s->n)) s->fails = true;
    if (s->fails) return;
    s->writes |= s->k->bits[w->out];
    s->out[s->n_written] = w->out, s->written[s->n_written++] = dc_read_address(s->k, w->element);
    note_size(s, w->out);
  }
  for (uint32_t j = 0; j < s->l->body.n && !s->fails; j++) {
    const dc_write *w = s->l->body.v[j].write;
    dc_kernel_each_read(s->k, w->value, look_at_read, s);
    dc_kernel_each_read(s->k, w->guard, look_at_read, s);
    if (!w->accumulator) dc_kernel_each_read(s->k, w->element, look_at_read, s);
  }
}

/* Whole packs, or a single loop over all of memory, whose last pack may be short. */
static bool fits(dc_kernel *k, const dc_loop *l, uint32_t n) {
  int64_t extent = dc_loop_extent(k, l);
  if (l->step != 1 || !dc_kernel_is_number(k, l->begin, 0)) return false;
  return extent < 0 || extent % n ? l->on_grid && l->parent == k->root && (extent < 0 || extent >= n) : extent > 0;
}

static uint32_t lanes_of(dc_kernel *k, const dc_loop *l) {
  int least = PACK_BYTES;
  for (uint32_t n = 2; n <= MOST_LANES; n *= 2) {
    pack_search s = {.k = k, .l = l, .n = n, .least = PACK_BYTES};
    look_at_writes(&s);
    if (s.fails || !s.any || !fits(k, l, n)) return n == 2 ? 0 : n / 2;
    least = s.least;
    if ((int)n * least >= PACK_BYTES) return n;
  }
  return MOST_LANES;
}

/* Of the loop and all around it. */
static int64_t iterations_of(dc_kernel *k, const dc_loop *l) {
  int64_t all = 1;
  for (const dc_loop *at = l; at->parent; at = at->parent) {
    int64_t extent = dc_loop_extent(k, at);
    all *= extent < 0 ? LIKELY : extent;
    if (all > INT32_MAX) all = INT32_MAX;
  }
  return all;
}

/* Are there iterations enough for all threads, when each takes a pack? */
static bool is_long(dc_kernel *k, const dc_loop *l, uint32_t n) {
  if (l->on_grid) return iterations_of(k, l) >= ENOUGH;
  int64_t own = 1;
  for (const dc_loop *at = l; at->on_team; at = at->parent) own *= dc_loop_extent(k, at) < 0 ? LIKELY : dc_loop_extent(k, at);
  return own >= (int64_t)n * k->grid.team;
}

static void pack(dc_kernel *k, dc_loop *l) {
  bool last = (l->on_grid && k->grid.team == 1) || (l->on_team && !k->grid.across);
  for (const dc_loop *at = l; at; at = at->parent) last = last && !at->tile;
  if (!last || dc_loop_has_loops(l) || !l->body.n) return;
  uint32_t n = lanes_of(k, l);
  if (n && is_long(k, l, n)) l->pack = n;
}

/* ---- loops over one row ---- */

static uint64_t used_by(dc_kernel *k, const dc_loop *l) {
  uint64_t all = 0;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    all |= dc_kernel_dependence(k, w->value).reads | k->bits[w->out];
    if (w->guard) all |= dc_kernel_dependence(k, w->guard).reads;
  }
  return all;
}

/* Loops of a team that use one row take packs of one size, so that each thread has the same elements of it in all of them. */
static void agree(dc_kernel *k, dc_loop *body) {
  for (uint32_t j = 0; j < body->body.n; j++)
    for (uint32_t i = 0; i < body->body.n; i++) {
      dc_loop *l = body->body.v[j].loop, *m = body->body.v[i].loop;
      bool packed = l && m && l->pack && m->pack > l->pack && l->on_team && m->on_team;
      if (packed && dc_loop_extent(k, l) == dc_loop_extent(k, m) && (used_by(k, l) & used_by(k, m))) m->pack = l->pack;
    }
}

/* ---- what rows share ---- */

typedef struct {
  const dc_kernel *k;
  const dc_loop *l, *rows;
  uint32_t shared, words; /* packs that all rows read alike; registers for what is read of one row */
} row_search;

static void count_words(void *context, const dc_pool *pool, dc_ex read) {
  row_search *s = context;
  if (!dc_read_is_packed(s->k, s->l, read, s->l->pack)) return;
  uint32_t bytes = (uint32_t)dc_dtype_bytes((dc_dtype)dc_cont(s->k->graph, dc_ex_node(pool, read)->ref)->dtype);
  if (dc_ex_uses_param(pool, dc_read_address(s->k, read), s->rows->param)) s->words += (s->l->pack * bytes + 3) / 4;
  else s->shared++;
}

/* Where the packs of a row are read beside others that are the same for all rows, such as the factors of channels, a thread takes
 * some rows: so many loads are on their way at once, and what they share is loaded once. */
static void take_rows(dc_kernel *k) {
  const dc_loop *l = dc_loop_only(k->root);
  if (!l || !l->on_grid) return;
  l = dc_loop_last_on_grid(l);
  dc_loop *rows = l->parent;
  if (!l->pack || k->grid.slices || !rows->on_grid || rows->step != 1) return;
  if (!dc_kernel_is_number(k, rows->begin, 0)) return;
  row_search s = {k, l, rows, 0, 0};
  int64_t all = iterations_of(k, l) / l->pack;
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_kernel_each_read(k, l->body.v[j].write->value, count_words, &s);
    dc_kernel_each_read(k, l->body.v[j].write->guard, count_words, &s);
  }
  for (uint32_t turns = MOST_ROWS; s.shared && turns > 1 && !rows->turns; turns /= 2)
    if (dc_kernel_divides(k->pool, rows->end, turns) && all / turns >= BUSY && turns * s.words <= MOST_WORDS) rows->turns = turns;
}

void dc_kernel_packs(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, pack);
  dc_kernel_each_loop(k, k->root, agree);
  agree(k, k->root);
  take_rows(k);
}
