/* The order in which accumulators take their terms.
 *
 * It is in the text and never the compiler's choice, so that a kernel gives the same bits whatever the alignment, the
 * width of vectors or the compiler.  A vectorised reduction keeps an accumulator for each lane and folds them in
 * halves.  As errors grow with the number of terms, a long sum is one of the sums of blocks. */
#include "backends/cpu/print.h"

enum {
  BLOCK = 64,         /* terms that follow one another in a sum */
  MAX_LEVELS = 2,     /* of blocks in blocks */
  LIKELY = 1 << 20,   /* what extents that are symbols are up to */
  MAX_LANES = 64,     /* several vectors, as each addition waits for the last one */
  FEW_LANES = 8,      /* one vector, for what is too short, or left */
  FOLDED = 4,         /* down to so many lanes, vectors fold them: compares of scalars would branch */
  LANE_BYTES = 1024,  /* of all accumulators of a loop: about what registers hold */
};

/* ---- which ---- */

bool dc_cpu_is_laned(const emitter *e, const accumulator *a) { return e->lane && dc_cpu_is_inside(a->home, e->lane); }

bool dc_cpu_accumulates(const loop *l, uint32_t a, bool deep) {
  for (uint32_t k = 0; k < l->body.n; k++) {
    const item *i = &l->body.v[k];
    if (i->write ? i->write->accumulator == a + 1 : deep && dc_cpu_accumulates(i->loop, a, true)) return true;
  }
  return false;
}

/* Does accumulator k take terms of a sum, whose order shows, in the iterations of l? */
static bool is_sum_through(emitter *e, const loop *l, uint32_t k) {
  const accumulator *a = &e->accumulators.v[k];
  bool sums = a->first->wcr == DC_WCR_SUM && dc_dtype_is_float(a->type);
  return sums && dc_cpu_is_inside(l, a->home) && dc_cpu_accumulates(l, k, true);
}

uint32_t dc_cpu_lanes(emitter *e, const loop *l) {
  int64_t extent = dc_cpu_extent(e, l);
  uint32_t bytes = 0, lanes = MAX_LANES;
  bool floats = false;
  for (uint32_t a = 0; a < e->accumulators.n; a++) {
    if (!dc_cpu_accumulates(l, a, false)) continue;
    bytes += (uint32_t)dc_dtype_bytes(e->accumulators.v[a].type);
    floats |= dc_dtype_is_float(e->accumulators.v[a].type);
  }
  if (!floats || (extent >= 0 && extent < FEW_LANES)) return 0;
  while (lanes > FEW_LANES && (lanes * bytes > LANE_BYTES || (extent >= 0 && extent < 2 * (int64_t)lanes))) lanes /= 2;
  return lanes;
}

/* Levels of blocks for the sums that l, which is inside their loops, goes through in steps of so many lanes. */
static uint32_t levels_of(emitter *e, const loop *l, uint32_t lanes) {
  int64_t extent = dc_cpu_extent(e, l), most = extent < 0 ? LIKELY : extent;
  bool sums = false;
  for (uint32_t a = 0; a < e->accumulators.n && !sums; a++) sums = is_sum_through(e, l, a);
  if (!sums) return 0;
  uint32_t levels = 0;
  for (int64_t reach = 2 * BLOCK * (lanes ? lanes : 1); levels < MAX_LEVELS && most > reach; reach *= BLOCK) levels++;
  return levels;
}

/* ---- accumulators ---- */

/* Over how many lanes an accumulator is an array inside a strip or a block; 0: it is alone. */
typedef struct {
  uint32_t n;
  const char *used; /* in C: of the last strip, some */
} width;

static width width_of(emitter *e, uint32_t a, uint32_t lanes) {
  bool laned = dc_cpu_is_laned(e, &e->accumulators.v[a]);
  return laned ? (width){e->lane->lanes, "lanes"} : (width){lanes, dc_arena_printf(e->arena, "%u", lanes)};
}

static void put_for_each(emitter *e, width lanes, const char *statement) {
  if (lanes.n) dc_text_puts(e->out, "#pragma omp simd\n");
  if (lanes.n) dc_cpu_line(e, "for (i64 l = 0; l < %s; l++) %s", lanes.used, statement);
  else dc_cpu_line(e, "%s", statement);
}

/* Declares an accumulator at its identity and lets terms go to it. */
static void declare(emitter *e, uint32_t a, const char *name, width lanes) {
  accumulator *acc = &e->accumulators.v[a];
  const char *type = dc_cpu_accumulator_type(acc->type);
  const char *identity = dc_cpu_constant(e, acc->type, dc_wcr_identity((dc_wcr)acc->first->wcr, acc->type));
  acc->name = lanes.n ? dc_arena_printf(e->arena, "%s[l]", name) : name;
  if (lanes.n) dc_cpu_line(e, "%s %s[%u];", type, name, lanes.n);
  else dc_cpu_line(e, "%s %s;", type, name);
  put_for_each(e, lanes, dc_arena_printf(e->arena, "%s = %s;", acc->name, identity));
}

void dc_cpu_open_accumulators(emitter *e, const loop *home) {
  for (uint32_t a = 0; a < e->accumulators.n; a++)
    if (e->accumulators.v[a].home == home) declare(e, a, dc_arena_printf(e->arena, "a%u", a), width_of(e, a, 0));
}

static const char *combined(emitter *e, const accumulator *a, const char *x, const char *y) {
  return dc_arena_printf(e->arena, "(%s)", dc_cpu_combine(e, (dc_wcr)a->first->wcr, a->type, x, y));
}

static const char *addition(emitter *e, const accumulator *a, const char *to, const char *from) {
  return dc_arena_printf(e->arena, "%s = %s;", to, combined(e, a, to, from));
}

/* ---- lanes ---- */

typedef struct {
  const char **outer; /* by accumulator: the one that it stands for, NULL: none */
  const char **array;
} lane_set;

/* Gives each lane accumulators of its own. */
static lane_set open_lanes(emitter *e, const loop *l, uint32_t lanes) {
  uint32_t n = e->accumulators.n;
  lane_set set = {DC_NEW_ARRAY(e->arena, const char *, n), DC_NEW_ARRAY(e->arena, const char *, n)};
  for (uint32_t a = 0; a < n; a++) {
    if (!dc_cpu_accumulates(l, a, false)) continue;
    set.outer[a] = e->accumulators.v[a].name;
    set.array[a] = dc_arena_printf(e->arena, "w%u_a%u", l->param, a);
    declare(e, a, set.array[a], width_of(e, a, lanes));
  }
  return set;
}

/* Folds lanes in halves, and then into the accumulators that they stand for. */
static void fold(emitter *e, uint32_t a, const char *array, uint32_t lanes, const char *to) {
  const accumulator *acc = &e->accumulators.v[a];
  for (uint32_t half = lanes / 2; half >= FOLDED; half /= 2) {
    const char *low = dc_arena_printf(e->arena, "%s[l]", array);
    const char *high = dc_arena_printf(e->arena, "%s[l + %u]", array, half);
    put_for_each(e, width_of(e, a, half), addition(e, acc, low, high));
  }
  const char *lane[FOLDED];
  for (int k = 0; k < FOLDED; k++) lane[k] = dc_arena_printf(e->arena, "%s[%d]", array, k);
  const char *even = combined(e, acc, lane[0], lane[2]), *odd = combined(e, acc, lane[1], lane[3]);
  dc_cpu_line(e, "%s", addition(e, acc, to, combined(e, acc, even, odd)));
}

/* Back to the accumulators that the lanes stand for. */
static void close_lanes(emitter *e, lane_set set, uint32_t lanes) {
  for (uint32_t a = 0; a < e->accumulators.n; a++) {
    if (!set.outer[a]) continue;
    fold(e, a, set.array[a], lanes, set.outer[a]);
    e->accumulators.v[a].name = set.outer[a];
  }
}

/* Whole strips of lanes, from the C variable `at` on. */
static void emit_strips(emitter *e, loop *l, uint32_t lanes, const char *at, const char *end) {
  const long long step = l->step;
  saved_text text;
  dc_cpu_open_text(e, &text);
  e->indent++;
  uint32_t mark = dc_cpu_scope_open(e);
  dc_cpu_line(e, step == 1 ? "const i64 j%u = %s + l;" : "const i64 j%u = %s + l * %lld;", l->param, at, step);
  dc_cpu_emit_body(e, l);
  dc_cpu_scope_close(e, mark);
  e->indent--;
  dc_text_indent(text.outer, e->indent);
  const long long reach = step * (lanes - 1) + 1;
  dc_text_printf(text.outer, "for (; %s + %lld <= %s; %s += %lld)\n", at, reach, end, at, step * lanes);
  dc_text_puts(text.outer, e->flagged ? "#pragma omp simd reduction(max : bad)\n" : "#pragma omp simd\n");
  dc_text_indent(text.outer, e->indent);
  dc_text_printf(text.outer, "for (i64 l = 0; l < %u; l++) {\n", lanes);
  dc_cpu_close_text(e, &text);
  dc_cpu_line(e, "}");
}

/* ---- blocks ---- */

static void emit_innermost(emitter *e, loop *l, uint32_t lanes, const char *begin, const char *end) {
  if (!lanes) {
    dc_cpu_emit_plain(e, l, begin, end);
    return;
  }
  const char *at = dc_arena_printf(e->arena, "at%u", l->param);
  dc_cpu_line(e, "i64 %s = %s;", at, begin);
  emit_strips(e, l, lanes, at, end);
}

static void emit_blocks(emitter *e, loop *l, uint32_t lanes, uint32_t levels, const char *begin, const char *end) {
  if (levels == 0) {
    emit_innermost(e, l, lanes, begin, end);
    return;
  }
  const char *from = dc_arena_printf(e->arena, "from%u_%u", l->param, levels);
  const char *to = dc_arena_printf(e->arena, "to%u_%u", l->param, levels);
  const char **outer = DC_NEW_ARRAY(e->arena, const char *, e->accumulators.n);
  long long size = l->step * (lanes ? lanes : 1);
  for (uint32_t k = 0; k < levels; k++) size *= BLOCK;
  dc_cpu_line(e, "for (i64 %s = %s; %s < %s; %s += %lld) {", from, begin, from, end, from, size);
  e->indent++;
  dc_cpu_line(e, "const i64 %s = %s - %s < %lld ? %s : %s + %lld;", to, end, from, size, end, from, size);
  for (uint32_t a = 0; a < e->accumulators.n; a++) {
    if (!is_sum_through(e, l, a)) continue;
    outer[a] = e->accumulators.v[a].name;
    declare(e, a, dc_arena_printf(e->arena, "p%u_%u_a%u", l->param, levels, a), width_of(e, a, lanes));
  }
  emit_blocks(e, l, lanes, levels - 1, from, to);
  for (uint32_t a = 0; a < e->accumulators.n; a++) {
    accumulator *acc = &e->accumulators.v[a];
    if (!outer[a]) continue;
    put_for_each(e, width_of(e, a, lanes), addition(e, acc, outer[a], acc->name));
    acc->name = outer[a];
  }
  e->indent--;
  dc_cpu_line(e, "}");
}

/* ---- the loop ---- */

/* What fills whole strips of many lanes; the rest begins at the C variable `at`. */
static void emit_many(emitter *e, loop *l, uint32_t lanes, const char *at, const char *end) {
  const long long strip = l->step * lanes;
  const char *whole = dc_arena_printf(e->arena, "whole%u", l->param);
  if (dc_cpu_extent(e, l) < 0) dc_cpu_line(e, "if (%s - %s >= %lld) {", end, at, 8 * strip);
  else dc_cpu_line(e, "{");
  e->indent++;
  dc_cpu_line(e, "const i64 %s = %s + (%s - %s) / %lld * %lld;", whole, at, end, at, strip, strip);
  lane_set set = open_lanes(e, l, lanes);
  emit_blocks(e, l, lanes, levels_of(e, l, lanes), at, whole);
  close_lanes(e, set, lanes);
  dc_cpu_line(e, "%s = %s;", at, whole);
  e->indent--;
  dc_cpu_line(e, "}");
}

void dc_cpu_emit_sums(emitter *e, loop *l, uint32_t lanes, const char *begin, const char *end) {
  if (!lanes) {
    emit_blocks(e, l, 0, levels_of(e, l, 0), begin, end);
    return;
  }
  const int64_t extent = dc_cpu_extent(e, l);
  const int64_t rest = extent < 0 ? -1 : lanes == FEW_LANES ? extent : extent % lanes; /* tasks end at whole strips */
  const char *at = dc_arena_printf(e->arena, "rest%u", l->param);
  dc_cpu_line(e, "{");
  e->indent++;
  dc_cpu_line(e, "i64 %s = %s;", at, begin);
  if (lanes > FEW_LANES) emit_many(e, l, lanes, at, end);
  if (rest < 0 || rest >= FEW_LANES) {
    lane_set set = open_lanes(e, l, FEW_LANES);
    emit_strips(e, l, FEW_LANES, at, end);
    close_lanes(e, set, FEW_LANES);
  }
  if (rest < 0 || rest % FEW_LANES) dc_cpu_emit_plain(e, l, at, end);
  e->indent--;
  dc_cpu_line(e, "}");
}
