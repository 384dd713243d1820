/* The order in which accumulators take their terms.
 *
 * It is in the text and never the compiler's choice, so that a kernel gives the same bits whatever the alignment, the
 * width of vectors or the compiler.  A vectorised reduction keeps an accumulator for each lane and folds them in
 * halves.  As errors grow with the number of terms, a long sum is one of the sums of blocks. */
#include "backends/cpu/print.h"

enum {
  BLOCK = 64,         /* terms that follow one another in a sum */
  MAX_LEVELS = 2,     /* of blocks in blocks */
  LIKELY = 1 << 19,   /* what extents that are symbols are up to */
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
  return a->first->wcr == DC_WCR_SUM && dc_dtype_is_float(a->type) && dc_cpu_is_inside(l, a->home) && dc_cpu_accumulates(l, k, true);
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

/* Declares an accumulator at its identity and lets terms go to it; n: how many lanes each have one, 0: it is alone. */
static void declare(emitter *e, uint32_t a, const char *name, uint32_t n, const char *lanes) {
  accumulator *acc = &e->accumulators.v[a];
  const char *type = dc_cpu_accumulator_type(acc->type);
  const char *identity = dc_cpu_constant(e, acc->type, dc_wcr_identity((dc_wcr)acc->first->wcr, acc->type));
  acc->name = n ? dc_arena_printf(e->arena, "%s[l]", name) : name;
  if (!n) {
    dc_cpu_line(e, "%s %s = %s;", type, name, identity);
    return;
  }
  dc_cpu_line(e, "%s %s[%u];", type, name, n);
  dc_text_puts(e->out, "#pragma omp simd\n");
  dc_cpu_line(e, "for (i64 l = 0; l < %s; l++) %s = %s;", lanes, acc->name, identity);
}

void dc_cpu_open_accumulators(emitter *e, const loop *home) {
  for (uint32_t a = 0; a < e->accumulators.n; a++)
    if (e->accumulators.v[a].home == home)
      declare(e, a, dc_arena_printf(e->arena, "a%u", a), dc_cpu_is_laned(e, &e->accumulators.v[a]) ? e->lane->lanes : 0, "lanes");
}

static const char *combined(emitter *e, const accumulator *a, const char *to, const char *from) {
  return dc_arena_printf(e->arena, "%s = %s;", to, dc_cpu_combine(e, (dc_wcr)a->first->wcr, a->type, to, from));
}

/* ---- lanes ---- */

typedef struct {
  const char **outer; /* by accumulator: the one that it stands for, NULL: none */
  const char **array;
} lane_set;

static const char *number(emitter *e, uint32_t n) { return dc_arena_printf(e->arena, "%u", n); }

/* Gives each lane accumulators of its own. */
static lane_set open_lanes(emitter *e, const loop *l, uint32_t lanes) {
  uint32_t n = e->accumulators.n;
  lane_set set = {DC_NEW_ARRAY(e->arena, const char *, n), DC_NEW_ARRAY(e->arena, const char *, n)};
  for (uint32_t a = 0; a < n; a++) {
    if (!dc_cpu_accumulates(l, a, false)) continue;
    set.outer[a] = e->accumulators.v[a].name;
    set.array[a] = dc_arena_printf(e->arena, "w%u_a%u", l->param, a);
    declare(e, a, set.array[a], lanes, number(e, lanes));
  }
  return set;
}

/* Folds lanes in halves, and then into the accumulators that they stand for. */
static void fold(emitter *e, uint32_t a, const char *array, uint32_t lanes, const char *to) {
  const accumulator *acc = &e->accumulators.v[a];
  for (uint32_t half = lanes / 2; half >= FOLDED; half /= 2) {
    const char *low = dc_arena_printf(e->arena, "%s[l]", array), *high = dc_arena_printf(e->arena, "%s[l + %u]", array, half);
    dc_text_puts(e->out, "#pragma omp simd\n");
    dc_cpu_line(e, "for (i64 l = 0; l < %u; l++) %s", half, combined(e, acc, low, high));
  }
  const char *pair[FOLDED / 2];
  for (int k = 0; k < FOLDED / 2; k++) {
    const char *x = dc_arena_printf(e->arena, "%s[%d]", array, k), *y = dc_arena_printf(e->arena, "%s[%d]", array, k + FOLDED / 2);
    pair[k] = dc_arena_printf(e->arena, "(%s)", dc_cpu_combine(e, (dc_wcr)acc->first->wcr, acc->type, x, y));
  }
  const char *all = dc_arena_printf(e->arena, "(%s)", dc_cpu_combine(e, (dc_wcr)acc->first->wcr, acc->type, pair[0], pair[1]));
  dc_cpu_line(e, "%s", combined(e, acc, to, all));
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
  dc_cpu_line(e, step == 1 ? "const i64 i%u = %s + l;" : "const i64 i%u = %s + l * %lld;", l->param, at, step);
  dc_cpu_emit_body(e, l);
  dc_cpu_scope_close(e, mark);
  e->indent--;
  dc_text_indent(text.outer, e->indent);
  dc_text_printf(text.outer, "for (; %s + %lld <= %s; %s += %lld)\n", at, step * (lanes - 1) + 1, end, at, step * lanes);
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
  const char *from = dc_arena_printf(e->arena, "from%u_%u", l->param, levels), *to = dc_arena_printf(e->arena, "to%u_%u", l->param, levels);
  const char **outer = DC_NEW_ARRAY(e->arena, const char *, e->accumulators.n);
  long long size = l->step * (lanes ? lanes : 1);
  for (uint32_t k = 0; k < levels; k++) size *= BLOCK;
  dc_cpu_line(e, "for (i64 %s = %s; %s < %s; %s += %lld) {", from, begin, from, end, from, size);
  e->indent++;
  dc_cpu_line(e, "const i64 %s = %s - %s < %lld ? %s : %s + %lld;", to, end, from, size, end, from, size);
  for (uint32_t a = 0; a < e->accumulators.n; a++) {
    accumulator *acc = &e->accumulators.v[a];
    if (!is_sum_through(e, l, a)) continue;
    outer[a] = acc->name;
    bool laned = dc_cpu_is_laned(e, acc);
    declare(e, a, dc_arena_printf(e->arena, "p%u_%u_a%u", l->param, levels, a), laned ? e->lane->lanes : lanes, laned ? "lanes" : number(e, lanes));
  }
  emit_blocks(e, l, lanes, levels - 1, from, to);
  for (uint32_t a = 0; a < e->accumulators.n; a++) {
    accumulator *acc = &e->accumulators.v[a];
    if (!outer[a]) continue;
    const char *add = combined(e, acc, outer[a], acc->name);
    bool laned = dc_cpu_is_laned(e, acc);
    if (laned || lanes) dc_text_puts(e->out, "#pragma omp simd\n");
    if (laned || lanes) dc_cpu_line(e, "for (i64 l = 0; l < %s; l++) %s", laned ? "lanes" : number(e, lanes), add);
    else dc_cpu_line(e, "%s", add);
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
  if (dc_cpu_extent(e, l) < 0) dc_cpu_line(e, "if (%s - %s >= %lld) {", end, at, 4 * strip);
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
