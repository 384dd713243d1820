/* Bands: sums down the columns of what a map works on row by row, taken in bands of rows by that map.
 *
 *     map a in 0:N { reduce r { s[] sum= X[a, r] } map r { Y[a, r] = X[a, r] * s[] } }
 *     map x in 0:C { reduce a in 0:N { D[x] sum= X[a, x] } }   becomes
 *
 *     map p in 0:(N + 63) // 64 {
 *       reduce a in 64*p:min(64*p + 64, N) {
 *         reduce r { s[] sum= X[a, r] } map r { Y[a, r] = X[a, r] * s[] }
 *         map x in 0:C { T[p, x] sum= X[a, x] }
 *       }
 *     }
 *     map x in 0:C { reduce p in 0:(N + 63) // 64 { D[x] sum= T[p, x] } }
 *
 * Memory is read once, and the sums of a band stay in a cache.  Where rows are long beside the sums, a band has fewer, down to one.
 * The order of the terms depends on no number of threads.  What the map of sums computes for each element besides goes along; sums
 * that write elements besides, and meet no map of rows, get one of their own, for otherwise they would walk memory across its rows.
 * Runs between two rounds of fusion: the first makes the maps of rows, the second joins the loops of a row.
 *
 * On a device a band is what one team takes, which keeps its sums in registers (kernel/parts.c).  There are as many bands as run at
 * once, of rows that lie so far apart: reduce a in p:N:264.  Only long rows have bands; other sums are split (split.c). */
#include "passes/bands.h"

#include "ir/work.h"
#include "passes/access.h"
#include "passes/passes.h"

enum { BAND = 64, FEW_ROWS = 128, MIN_BAND = 8, LONG_ROWS = 512 /* operations for each column's sum */ };
/* Of a device: columns of rows that keep a team busy; registers of a multiprocessor, in bytes, for sums and for what is read of rows;
 * threads of a team; bytes that one loads at once. */
enum { LEAST_COLUMNS = 2048, KEPT_BYTES = 128 << 10, TEAM_THREADS = 256, WIDEST_PACK = 16 };
enum { REACH = 64 }; /* nodes between rows and sums: bounds the time that a long scope takes */

/* A map of rows, and a map of sums over the same rows. */
typedef struct {
  dc_graph *graph;
  dc_scope *scope;
  uint32_t at_rows, at_sums; /* in the scope */
  dc_map rows, sums, terms;  /* terms: the reduction, which is the first node of sums */
  dc_accesses of_rows, of_sums;
  dc_param_pair pairs[DC_MAX_RANK]; /* by parameter of rows: p, and q of terms */
  int64_t of_column; /* bytes of the sums of a column that a band has already */
} search;

/* Where the loops of rows are cut, the loops inside that one whole. */
typedef struct {
  uint32_t at;
  int64_t size; /* rows of a band, 0: bands take rows in turn ... */
  int64_t turn; /* ... this many bands, or one for each row */
} cutting;

/* ---- the shape of the two ---- */

static bool are_plain(const dc_graph *graph, const dc_map *map) {
  for (uint32_t k = 0; k < map->n_params; k++)
    if (!dc_param_counts(&graph->pool, map->params[k])) return false;
  return map->n_params && map->n_params <= DC_MAX_MAP_PARAMS;
}

/* Elements that the outer loops choose, of which each is a sum over all terms; and perhaps plain writes. */
static bool has_sums(const search *s) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < s->terms.body.n; k++) {
    const dc_node *node = dc_node_at(s->graph, s->terms.body.v[k]);
    if (node->kind != DC_NODE_TASKLET || node->tasklet.guard) return false;
    n += node->tasklet.wcr != DC_WCR_NONE;
    for (uint32_t d = 0; d < node->tasklet.rank && node->tasklet.wcr; d++)
      if (dc_map_moves(&s->graph->pool, node->tasklet.index[d], &s->terms)) return false;
  }
  return n;
}

static bool find_terms(search *s) {
  if (s->sums.schedule != DC_MAP_PARALLEL || !s->sums.body.n) return false;
  const dc_node *first = dc_node_at(s->graph, s->sums.body.v[0]);
  if (first->kind != DC_NODE_MAP || first->map.schedule != DC_MAP_REDUCE) return false;
  s->terms = first->map;
  return s->terms.n_params == s->rows.n_params && are_plain(s->graph, &s->sums) && are_plain(s->graph, &s->terms) && has_sums(s) &&
         s->sums.n_params + s->rows.n_params <= DC_MAX_RANK;
}

/* ---- the rows of one are those of the other ---- */

/* Both have an element of one container that moves with all loops of the rows, and with one across them: the dimensions say
 * which loop is which. */
static bool pairs_by(search *s, dc_ex of_rows, dc_ex of_sums) {
  const dc_pool *pool = &s->graph->pool;
  if (!dc_map_moves(pool, of_sums, &s->sums) || !dc_access_uses_other_param(pool, of_rows, s->rows.params, s->rows.n_params)) return false;
  for (uint32_t k = 0; k < s->rows.n_params; k++) {
    const dc_param p = s->rows.params[k];
    bool found = false;
    for (uint32_t d = 0; d < dc_ex_node(pool, of_rows)->nargs && !found; d++) {
      const dc_exnode *x = dc_ex_node(pool, dc_ex_arg(pool, of_rows, d)), *y = dc_ex_node(pool, dc_ex_arg(pool, of_sums, d));
      if (x->op != DC_EX_PARAM || x->ref != p || y->op != DC_EX_PARAM) continue;
      found = dc_access_in_set(s->terms.params, s->terms.n_params, y->ref) && pool->params.v[p].end == pool->params.v[y->ref].end;
      for (uint32_t j = 0; j < k && found; j++) found = s->pairs[j].q != y->ref;
      s->pairs[k] = (dc_param_pair){p, y->ref};
    }
    if (!found) return false;
  }
  return true;
}

static bool find_pairs(search *s) {
  for (uint32_t x = 0; x < s->of_rows.n; x++)
    for (uint32_t y = 0; y < s->of_sums.n; y++) {
      const dc_access *a = &s->of_rows.v[x], *b = &s->of_sums.v[y];
      if (a->container == b->container && a->element && b->element && pairs_by(s, a->element, b->element)) return true;
    }
  return false;
}

/* ---- legality ---- */

static bool meet_in_one_row(const search *s, const dc_access *a, const dc_access *b) {
  if (dc_access_disjoint(s->graph, a, b)) return true;
  dc_param_pair proven[DC_MAX_RANK];
  uint32_t n = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t k = 0; k < s->rows.n_params; k++) {
      bool known = false;
      for (uint32_t j = 0; j < n; j++) known |= proven[j].p == s->pairs[k].p;
      if (known || !dc_access_forces_equal(s->graph, a, b, &s->pairs[k], proven, n)) continue;
      proven[n++] = s->pairs[k];
      progress = true;
    }
  }
  return n == s->rows.n_params;
}

static bool reads(const dc_accesses *accesses, dc_cid root) {
  for (uint32_t k = 0; k < accesses->n; k++)
    if (accesses->v[k].reads && accesses->v[k].root == root) return true;
  return false;
}

/* What a reduction inside another comes to is read there. */
static bool fits_in_reduction(const search *s) {
  for (uint32_t k = 0; k < s->of_rows.n; k++)
    if (s->of_rows.v[k].initialised && !reads(&s->of_rows, s->of_rows.v[k].root)) return false;
  return true;
}

/* No scattered sums: threads would meet in them. */
static bool may_add_plainly(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_MAP || node->map.schedule == DC_MAP_REDUCE) return true;
  bool may = node->map.schedule != DC_MAP_SCATTER;
  for (uint32_t k = 0; k < node->map.body.n && may; k++) may = may_add_plainly(graph, node->map.body.v[k]);
  return may;
}

/* May the terms stand beside the rows?  Nothing between the two meets what they use. */
static bool may_move(const search *s) {
  const bool first = s->at_sums < s->at_rows;
  for (uint32_t x = 0; x < s->of_rows.n; x++)
    for (uint32_t y = 0; y < s->of_sums.n; y++)
      if (dc_access_conflicts(&s->of_rows.v[x], &s->of_sums.v[y]) && !meet_in_one_row(s, &s->of_rows.v[x], &s->of_sums.v[y])) return false;
  for (uint32_t k = (first ? s->at_sums : s->at_rows) + 1; k < (first ? s->at_rows : s->at_sums); k++)
    for (uint32_t y = 0; y < s->of_sums.n; y++) {
      unsigned how = DC_USE_WRITE | (s->of_sums.v[y].writes ? DC_USE_READ : 0);
      if (dc_node_touches_one(s->graph, s->scope->v[k], how, s->of_sums.v[y].root)) return false;
    }
  return true;
}

/* ---- profit ---- */

static int64_t bytes_of_term(const search *s, uint32_t k) {
  return dc_dtype_bytes(dc_dtype_compute((dc_dtype)dc_cont(s->graph, dc_node_at(s->graph, s->terms.body.v[k])->tasklet.out)->dtype));
}

/* Bytes of the sums of a column. */
static int64_t bytes_of_column(const search *s) {
  int64_t bytes = 0;
  for (uint32_t k = 0; k < s->terms.body.n; k++)
    if (dc_node_at(s->graph, s->terms.body.v[k])->tasklet.wcr) bytes += bytes_of_term(s, k);
  return bytes;
}

/* Bytes of the sums of a band, for sizes that are guessed where they are not known. */
static double bytes_of_sums(const search *s) {
  double bytes = (double)bytes_of_column(s);
  for (uint32_t k = 0; k < s->sums.n_params; k++) bytes *= dc_param_likely_trips(&s->graph->pool, s->sums.params[k]);
  return bytes;
}

/* Does each sum read elements that no other one reads?  Sums of products do not: kernels keep tiles of them in registers. */
static bool reads_its_own(const search *s) {
  for (uint32_t k = 0; k < s->of_sums.n; k++) {
    const dc_ex element = s->of_sums.v[k].reads ? s->of_sums.v[k].element : 0;
    bool own = element && dc_map_moves(&s->graph->pool, element, &s->terms);
    for (uint32_t j = 0; j < s->sums.n_params && own; j++) own = dc_ex_uses_param(&s->graph->pool, element, s->sums.params[j]);
    if (own) return true;
  }
  return false;
}

/* Element operations of a row, for sizes that are guessed. */
static double work_of_row(const search *s) {
  dc_arena arena = {0};
  dc_work work;
  int64_t *symbols = DC_NEW_ARRAY(&arena, int64_t, s->graph->pool.symbols.n);
  dc_work_guess(&s->graph->pool, symbols);
  dc_work_count(s->graph, &s->scope->v[s->at_rows], 1, symbols, false, &work);
  dc_arena_free(&arena);
  for (uint32_t k = 0; k < s->rows.n_params; k++) work.work /= dc_param_likely_trips(&s->graph->pool, s->rows.params[k]);
  return work.work;
}

/* Long rows of few columns, such as images, need no such bands for sums to be few beside them, and there may be few rows. */
static int64_t rows_of_band(const search *s) {
  const double least = LONG_ROWS * bytes_of_sums(s) / (double)bytes_of_column(s), row = work_of_row(s);
  int64_t band = BAND;
  while (band > 1 && (double)(band / 2) * row >= least) band /= 2;
  return band;
}

/* The loop that is cut into bands, the loops inside it whole; and how many of its iterations are one.  Symbols: a loop over
 * one is long, which is a guess about time only.  False: there are too few rows. */
static bool cut_for_caches(const search *s, cutting *c) {
  const dc_pool *pool = &s->graph->pool;
  int64_t rows = 1, inside = 1, extent = 1;
  for (uint32_t k = 0; k < s->rows.n_params && rows < FEW_ROWS; k++)
    rows *= dc_ex_is_int(pool, pool->params.v[s->rows.params[k]].end, &extent) ? extent : FEW_ROWS;
  const uint32_t room = reads_its_own(s) ? s->graph->machine.l2_bytes : s->graph->machine.l1_bytes;
  if (rows < FEW_ROWS || bytes_of_sums(s) > (double)room / 2) return false;
  int64_t band = rows_of_band(s);
  for (uint32_t k = s->rows.n_params; k-- > 0; inside *= extent) {
    bool known = dc_ex_is_int(pool, pool->params.v[s->rows.params[k]].end, &extent);
    while (!k && known && band > MIN_BAND && extent * inside / band < s->graph->machine.few_tasks) band /= 2;
    c->at = k, c->size = band > inside ? band / inside : 1;
    if (!k || !known || extent > c->size) return true;
  }
  return false;
}

static void note_width(void *context, const dc_pool *pool, dc_ex e) {
  int64_t *least = context, bytes = dc_dtype_bytes((dc_dtype)dc_ex_node(pool, e)->dtype);
  if (dc_ex_node(pool, e)->op == DC_EX_READ && bytes < *least) *least = bytes;
}

/* Registers of a multiprocessor, in bytes, for n teams, each with a row of two arrays of so many columns and these sums.  Threads take
 * elements in packs, of which they all have as many. */
static int64_t kept_bytes(const search *s, int64_t n, int64_t columns) {
  int64_t least = WIDEST_PACK / 2, most = 0;
  for (uint32_t k = 0; k < s->terms.body.n; k++) {
    dc_ex_walk(&s->graph->pool, dc_node_at(s->graph, s->terms.body.v[k])->tasklet.value, note_width, &least);
    if (bytes_of_term(s, k) > most) most = bytes_of_term(s, k);
  }
  const int64_t together = TEAM_THREADS * WIDEST_PACK / (least > 2 ? least : 2);
  return n * (s->of_column + bytes_of_column(s) + 2 * most) * ((columns + together - 1) / together * together);
}

/* Teams that a multiprocessor runs at once (kernel/grid.c); 0: rows are too short, or too long. */
static int64_t teams_at_once(const search *s) {
  int64_t columns;
  if (s->sums.n_params != 1 || !dc_ex_is_int(&s->graph->pool, s->graph->pool.params.v[s->sums.params[0]].end, &columns)) return 0;
  if (columns < LEAST_COLUMNS || columns > KEPT_BYTES) return 0;
  const int64_t n = columns == LEAST_COLUMNS ? 4 : 2;
  return kept_bytes(s, n, columns) <= KEPT_BYTES ? n : 0;
}

/* Of several loops the last one is cut, and all bands take about as many of its iterations.  Symbols as above. */
static bool cut_for_teams(const search *s, cutting *c) {
  const dc_pool *pool = &s->graph->pool;
  int64_t rows = 1, extent;
  c->at = s->rows.n_params - 1, c->turn = s->graph->machine.teams / 4 * teams_at_once(s);
  if (!c->turn) return false;
  for (uint32_t k = 0; k < s->rows.n_params && rows < MIN_BAND * c->turn; k++)
    rows *= dc_ex_is_int(pool, pool->params.v[s->rows.params[k]].end, &extent) ? extent : MIN_BAND * c->turn;
  if (rows < MIN_BAND * c->turn || !c->at) return rows >= MIN_BAND * c->turn;
  if (!dc_ex_is_int(pool, pool->params.v[s->rows.params[c->at]].end, &extent)) return false;
  return 4 * extent >= 3 * c->turn * ((extent + c->turn - 1) / c->turn);
}

/* May the rows be cut, and is that worth it? */
static bool find_cut(const search *s, cutting *c) { return s->graph->machine.teams ? cut_for_teams(s, c) : cut_for_caches(s, c); }

/* ---- the change ---- */

typedef struct {
  dc_param loops[DC_MAX_RANK]; /* of the map over bands */
  dc_ex extents[DC_MAX_RANK];
  uint32_t n;
  dc_nid reduce; /* the rows of a band: */
  dc_param row;  /* a part of the loop over rows at this place */
  uint32_t at;
} bands;

static const char *name_of(const search *s, dc_param p) { return dc_name_text(&s->graph->names, s->graph->pool.params.v[p].name); }

/* In a reduction what a map adds to would begin anew: it reads and writes it instead. */
static void add_plainly(dc_graph *graph, dc_nid id) {
  dc_pool *pool = &graph->pool;
  const dc_node node = *dc_node_at(graph, id);
  if (node.kind == DC_NODE_MAP && node.map.schedule != DC_MAP_REDUCE)
    for (uint32_t k = 0; k < node.map.body.n; k++) add_plainly(graph, node.map.body.v[k]);
  if (node.kind != DC_NODE_TASKLET || !node.tasklet.wcr) return;
  const dc_tasklet t = node.tasklet;
  const dc_dtype type = (dc_dtype)dc_cont(graph, t.out)->dtype, compute = dc_dtype_compute(type);
  dc_ex before = dc_ex_cast(pool, compute, dc_ex_read(pool, type, t.out, t.index, t.rank));
  dc_ex value = dc_ex_prim2(pool, dc_wcr_prim((dc_wcr)t.wcr), before, dc_ex_cast(pool, compute, t.value));
  dc_node_at(graph, id)->tasklet.value = value;
  dc_node_at(graph, id)->tasklet.wcr = DC_WCR_NONE;
}

/* The last loop of the map over bands, and the loop over the rows of a band, which that chooses. */
static void divide(search *s, const cutting *c, bands *b) {
  dc_pool *pool = &s->graph->pool;
  const dc_param old = s->rows.params[c->at];
  const dc_ex end = pool->params.v[old].end, size = dc_ex_int(pool, c->size), turn = dc_ex_int(pool, c->turn);
  b->extents[b->n] = c->turn ? dc_ix_min(pool, end, turn) : dc_ix_div(pool, dc_ix_add(pool, end, dc_ex_int(pool, c->size - 1)), size);
  b->loops[b->n] = dc_param_new(pool, "p", dc_ex_int(pool, 0), b->extents[b->n], 0);
  const dc_ex p = dc_ex_par(pool, b->loops[b->n++]);
  dc_ex begin = c->turn ? p : dc_ix_mul(pool, p, size), limit = c->turn ? end : dc_ix_add(pool, begin, size);
  int64_t rows;
  if (!c->turn && (!dc_ex_is_int(pool, end, &rows) || rows % c->size)) limit = dc_ix_min(pool, limit, end);
  b->at = c->at, b->row = dc_param_new(pool, name_of(s, old), begin, limit, c->turn ? turn : 0);
}

/* Makes the map of rows one over bands: loops around the one that is cut are around the bands, or, where bands take turns, theirs. */
static bands cut(search *s, const cutting *c) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  const dc_nid id = s->scope->v[s->at_rows];
  bands b = {0};
  for (; b.n < c->at && !c->turn; b.n++) b.loops[b.n] = s->rows.params[b.n], b.extents[b.n] = pool->params.v[b.loops[b.n]].end;
  const uint32_t first = b.n;
  divide(s, c, &b);
  add_plainly(graph, id);
  dc_node_substitute(graph, id, s->rows.params[c->at], dc_ex_par(pool, b.row));
  dc_param inside[DC_MAX_RANK];
  for (uint32_t k = first; k < s->rows.n_params; k++) inside[k - first] = k == c->at ? b.row : s->rows.params[k];
  b.reduce = dc_node_map(graph, DC_MAP_REDUCE, inside, s->rows.n_params - first);
  dc_node_take_origin(graph, b.reduce, id);
  dc_node_at(graph, b.reduce)->map.body = dc_node_at(graph, id)->map.body;
  dc_nid outer = dc_node_map(graph, DC_MAP_PARALLEL, b.loops, b.n);
  dc_node_take_origin(graph, outer, id);
  dc_scope body = {0};
  dc_scope_push(graph, &body, b.reduce);
  dc_node_at(graph, outer)->map.body = body;
  s->scope->v[s->at_rows] = outer;
  s->pairs[c->at].p = b.row;
  return b;
}

/* Parameters of the sums become those of the rows, or columns of their own. */
typedef struct {
  dc_param from[2 * DC_MAX_RANK], columns[DC_MAX_RANK], parts[DC_MAX_RANK];
  dc_ex to[2 * DC_MAX_RANK];
  dc_ex shape[DC_MAX_RANK], written[DC_MAX_RANK], read[DC_MAX_RANK]; /* of parts of sums: by bands, then columns */
  uint32_t n, rank;
} places;

static places places_of(search *s, const bands *b) {
  dc_pool *pool = &s->graph->pool;
  const uint32_t n = s->sums.n_params;
  places p = {.n = n + s->rows.n_params, .rank = b->n + n};
  for (uint32_t k = 0; k < b->n; k++) {
    p.parts[k] = dc_param_new(pool, name_of(s, b->loops[k]), dc_ex_int(pool, 0), b->extents[k], 0);
    p.shape[k] = b->extents[k], p.written[k] = dc_ex_par(pool, b->loops[k]), p.read[k] = dc_ex_par(pool, p.parts[k]);
  }
  for (uint32_t k = 0; k < n; k++) {
    const dc_ex end = pool->params.v[s->sums.params[k]].end;
    p.columns[k] = dc_param_new(pool, name_of(s, s->sums.params[k]), dc_ex_int(pool, 0), end, 0);
    p.from[k] = s->sums.params[k], p.to[k] = dc_ex_par(pool, p.columns[k]);
    p.shape[b->n + k] = end, p.written[b->n + k] = p.to[k], p.read[b->n + k] = dc_ex_par(pool, p.from[k]);
  }
  for (uint32_t k = 0; k < s->rows.n_params; k++) p.from[n + k] = s->pairs[k].q, p.to[n + k] = dc_ex_par(pool, s->pairs[k].p);
  return p;
}

/* A term, or a plain write, as an iteration of the rows computes it.  Of a term the sum takes the parts from now on. */
static dc_nid moved(search *s, const places *p, dc_nid id) {
  dc_graph *graph = s->graph;
  dc_pool *pool = &graph->pool;
  const dc_tasklet t = dc_node_at(graph, id)->tasklet;
  dc_ex value = dc_ex_subst(pool, t.value, p->from, p->to, p->n), index[DC_MAX_RANK];
  dc_nid made;
  if (t.wcr) {
    dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(graph, t.out)->dtype);
    dc_cid part = dc_container_after(graph, t.out, "parts", type, p->rank, p->shape);
    made = dc_node_tasklet(graph, part, (dc_wcr)t.wcr, p->written, p->rank, 0, value);
    dc_node_at(graph, id)->tasklet.value = dc_ex_read(pool, type, part, p->read, p->rank);
  } else {
    for (uint32_t d = 0; d < t.rank; d++) index[d] = dc_ex_subst(pool, t.index[d], p->from, p->to, p->n);
    made = dc_node_tasklet(graph, t.out, DC_WCR_NONE, index, t.rank, 0, value);
  }
  dc_node_take_origin(graph, made, id);
  return made;
}

/* The terms go to the bands, of which the sums are those of parts. */
static void move_terms(search *s, const bands *b) {
  dc_graph *graph = s->graph;
  const places p = places_of(s, b);
  const dc_nid sums = s->scope->v[s->at_sums];
  dc_nid map = dc_node_map(graph, DC_MAP_PARALLEL, p.columns, s->sums.n_params);
  dc_nid second = dc_node_map(graph, DC_MAP_REDUCE, p.parts, b->n);
  dc_scope body = {0}, parts = {0}, rows = {0};
  for (uint32_t k = 0; k < s->terms.body.n; k++) {
    dc_nid id = s->terms.body.v[k];
    dc_scope_push(graph, &body, moved(s, &p, id));
    if (dc_node_at(graph, id)->tasklet.wcr) dc_scope_push(graph, &parts, id);
  }
  dc_node_take_origin(graph, map, sums);
  dc_node_at(graph, map)->map.body = body;
  const dc_scope before = dc_node_at(graph, b->reduce)->map.body;
  if (s->at_sums < s->at_rows) dc_scope_push(graph, &rows, map);
  for (uint32_t k = 0; k < before.n; k++) dc_scope_push(graph, &rows, before.v[k]);
  if (s->at_sums > s->at_rows) dc_scope_push(graph, &rows, map);
  dc_node_at(graph, b->reduce)->map.body = rows;
  dc_node_take_origin(graph, second, s->sums.body.v[0]);
  dc_node_at(graph, second)->map.body = parts;
  dc_node_at(graph, sums)->map.body.v[0] = second;
}

/* Sums that stood before the rows stand behind them. */
static void move_sums(search *s) {
  const dc_nid sums = s->scope->v[s->at_sums];
  for (uint32_t k = s->at_sums; k < s->at_rows; k++) s->scope->v[k] = s->scope->v[k + 1];
  s->scope->v[s->at_rows--] = sums;
}

/* ---- the pass ---- */

/* What an iteration of the rows does from now on. */
static void take_accesses(search *s, dc_arena *arena) {
  dc_ex to[DC_MAX_RANK];
  dc_param from[DC_MAX_RANK];
  for (uint32_t k = 0; k < s->rows.n_params; k++) from[k] = s->pairs[k].q, to[k] = dc_ex_par(&s->graph->pool, s->pairs[k].p);
  for (uint32_t k = 0; k < s->of_sums.n; k++) {
    dc_access a = s->of_sums.v[k];
    if (a.element) a.element = dc_ex_subst(&s->graph->pool, a.element, from, to, s->rows.n_params);
    DC_PUSH(arena, &s->of_rows, a);
  }
}

/* Takes the sums at a place along, if that can be and pays. */
static bool take(search *s, dc_arena *arena, uint32_t at, bands *b) {
  cutting c = {0};
  const dc_node *other = dc_node_at(s->graph, s->scope->v[at]);
  if (other->kind != DC_NODE_MAP) return false;
  s->at_sums = at, s->sums = other->map, s->of_sums.n = 0;
  if (!find_terms(s)) return false;
  dc_access_collect(s->graph, arena, s->scope->v[at], false, &s->of_sums);
  if (!find_pairs(s) || !may_move(s)) return false;
  if (!find_cut(s, &c)) return false;
  s->of_column += bytes_of_column(s);
  take_accesses(s, arena);
  if (!b->n) *b = cut(s, &c);
  else s->pairs[b->at].p = b->row;
  move_terms(s, b);
  return true;
}

/* ---- sums that meet no rows ---- */

/* What is written besides lies along the columns, and nothing reads a sum before it is complete. */
static bool writes_along_columns(const search *s) {
  const dc_param column = s->sums.params[s->sums.n_params - 1];
  bool along = false;
  for (uint32_t k = 0; k < s->terms.body.n; k++) {
    const dc_tasklet *t = &dc_node_at(s->graph, s->terms.body.v[k])->tasklet;
    if (t->wcr) continue;
    uint32_t d = dc_contiguous_dimension(s->graph, t->out);
    if (d >= t->rank || t->index[d] != dc_ex_par(&s->graph->pool, column)) return false;
    along = true;
  }
  return along;
}

/* May bands of rows take turns?  Rows of one column meet in no element but the sums, which nothing else touches. */
static bool are_rows_apart(const search *s) {
  for (uint32_t x = 0; x < s->of_rows.n; x++)
    for (uint32_t y = 0; y < s->of_sums.n; y++) {
      const dc_access *a = &s->of_rows.v[x], *b = &s->of_sums.v[y];
      if (!dc_access_conflicts(a, b) || (a->initialised && b->initialised)) continue;
      if (a->initialised || b->initialised || !meet_in_one_row(s, a, b)) return false;
    }
  return true;
}

/* Gives the sums at a place rows of their own, which take all that is done for each element. */
static bool take_alone(dc_graph *graph, dc_arena *arena, dc_scope *scope, uint32_t at) {
  search s = {.graph = graph, .scope = scope, .at_rows = at, .at_sums = at + 1};
  const dc_node *node = dc_node_at(graph, scope->v[at]);
  cutting c = {0};
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL || !node->map.body.n) return false;
  const dc_node *first = dc_node_at(graph, node->map.body.v[0]);
  if (first->kind != DC_NODE_MAP || first->map.n_params > DC_MAX_MAP_PARAMS) return false;
  const dc_nid terms = node->map.body.v[0];
  s.sums = node->map, s.rows = first->map;
  if (!find_terms(&s) || !writes_along_columns(&s)) return false;
  if (!find_cut(&s, &c)) return false;
  dc_param rows[DC_MAX_RANK];
  for (uint32_t k = 0; k < s.rows.n_params; k++) {
    const dc_param old = s.rows.params[k];
    rows[k] = dc_param_new(&graph->pool, name_of(&s, old), dc_ex_int(&graph->pool, 0), graph->pool.params.v[old].end, 0);
    s.pairs[k] = (dc_param_pair){rows[k], old};
  }
  dc_access_collect(graph, arena, terms, false, &s.of_sums);
  take_accesses(&s, arena);
  if (!are_rows_apart(&s)) return false;
  const dc_nid map = dc_node_map(graph, DC_MAP_PARALLEL, rows, s.rows.n_params);
  dc_node_take_origin(graph, map, scope->v[at]);
  s.rows = dc_node_at(graph, map)->map;
  dc_scope_push(graph, scope, 0);
  for (uint32_t k = scope->n - 1; k > at; k--) scope->v[k] = scope->v[k - 1];
  scope->v[at] = map;
  bands b = cut(&s, &c);
  move_terms(&s, &b);
  return true;
}

static void visit(dc_graph *graph, dc_arena *arena, dc_scope *scope, uint32_t at) {
  search s = {.graph = graph, .scope = scope, .at_rows = at};
  bands b = {0};
  const dc_node *node = dc_node_at(graph, scope->v[at]);
  if (node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL) return;
  s.rows = node->map; /* one without loops inside is merged with sums by fusion */
  if (!are_plain(graph, &s.rows) || !dc_map_holds_maps(graph, &s.rows) || !may_add_plainly(graph, scope->v[at])) return;
  dc_access_collect(graph, arena, scope->v[at], false, &s.of_rows);
  if (!fits_in_reduction(&s)) return;
  for (uint32_t k = at, last = at > REACH ? at - REACH : 0; k-- > last;)
    if (take(&s, arena, k, &b)) move_sums(&s);
  for (uint32_t k = s.at_rows + 1; k < scope->n && k <= s.at_rows + REACH; k++) take(&s, arena, k, &b);
}

bool dc_bands_expect(dc_graph *graph, dc_arena *arena, dc_scope *scope, uint32_t at) {
  search s = {.graph = graph, .scope = scope, .at_sums = at};
  if (dc_node_at(graph, scope->v[at])->kind != DC_NODE_MAP) return false;
  s.sums = dc_node_at(graph, scope->v[at])->map;
  for (uint32_t k = at > REACH ? at - REACH : 0; k < scope->n && k <= at + REACH; k++) {
    const dc_node *node = dc_node_at(graph, scope->v[k]);
    if (k == at || node->kind != DC_NODE_MAP || node->map.schedule != DC_MAP_PARALLEL) continue;
    s.rows = node->map, s.of_rows.n = 0;
    if (!are_plain(graph, &s.rows) || !dc_map_holds_maps(graph, &s.rows) || !find_terms(&s) || !find_cut(&s, &(cutting){0})) continue;
    if (!s.of_sums.n) dc_access_collect(graph, arena, scope->v[at], false, &s.of_sums);
    dc_access_collect(graph, arena, scope->v[k], false, &s.of_rows);
    if (find_pairs(&s)) return true;
  }
  return false;
}

dc_status dc_pass_bands(dc_graph *graph) {
  dc_arena arena = {0};
  for (uint32_t state = 0; state < graph->states.n; state++)
    for (uint32_t k = 0; k < graph->states.v[state].scope.n; k++) visit(graph, &arena, &graph->states.v[state].scope, k);
  for (uint32_t state = 0; state < graph->states.n && !graph->machine.teams; state++)
    for (uint32_t k = 0; k < graph->states.v[state].scope.n; k++)
      if (take_alone(graph, &arena, &graph->states.v[state].scope, k)) k++;
  dc_arena_free(&arena);
  return DC_OK;
}
