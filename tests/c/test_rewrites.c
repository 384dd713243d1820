/* Every row of rewrites.def on random and special values: what it replaces and what it puts there agree as it says,
 * in both orders of commuting operands; the replacement costs less, and rewriting ends. */
#include <math.h>

#include "backends/interp/value.h"
#include "check.h"
#include "ir/work.h"
#include "passes/rewrite.h"

enum { N_REALS = 3, N_CONDITIONS = 2, N_RANDOM = 400 };

typedef struct {
  dc_pool *pool;
  double real[N_REALS];     /* of the containers 1, 2, 3 */
  bool condition[N_CONDITIONS]; /* of the containers 4, 5 */
} values;

/* ---- evaluation: as the interpreter does, and with more digits ---- */

static dc_scalar evaluate(const values *v, dc_ex e) {
  const dc_exnode *node = dc_ex_node(v->pool, e);
  if (node->op == DC_EX_FLOAT) return (dc_scalar){.f = node->f};
  if (node->op == DC_EX_INT) return (dc_scalar){.i = node->i};
  if (node->op == DC_EX_READ) return node->ref <= N_REALS ? (dc_scalar){.f = v->real[node->ref - 1]} : (dc_scalar){.i = v->condition[node->ref - N_REALS - 1]};
  dc_scalar args[3] = {{0}};
  for (uint32_t k = 0; k < node->nargs; k++) args[k] = evaluate(v, dc_ex_arg(v->pool, e, k));
  if (node->op == DC_EX_SELECT) return args[0].i ? args[1] : args[2];
  return dc_scalar_prim((dc_op)node->op, dc_ex_dtype(v->pool, dc_ex_arg(v->pool, e, 0)), args[0], args[1]);
}

static long double long_prim(dc_op op, long double a, long double b) {
  switch (op) {
    case DC_ADD: return a + b;
    case DC_MUL: return a * b;
    case DC_DIV: return a / b;
    case DC_NEG: return -a;
    case DC_MIN: return a < b || isnan(a) ? a : b;
    case DC_EXP: return expl(a);
    case DC_LOG: return logl(a);
    case DC_SQRT: return sqrtl(a);
    case DC_TANH: return tanhl(a);
    case DC_SIGMOID: return a >= 0 ? 1 / (1 + expl(-a)) : expl(a) / (1 + expl(a));
    case DC_SOFTPLUS: return a > 0 ? a + log1pl(expl(-a)) : log1pl(expl(a));
    default: CHECK(!"a primitive with more digits"); return 0;
  }
}

static long double evaluate_long(const values *v, dc_ex e) {
  const dc_exnode *node = dc_ex_node(v->pool, e);
  if (node->op == DC_EX_FLOAT) return node->f;
  if (node->op == DC_EX_READ) return v->real[node->ref - 1];
  long double args[2] = {0};
  for (uint32_t k = 0; k < node->nargs; k++) args[k] = evaluate_long(v, dc_ex_arg(v->pool, e, k));
  return long_prim((dc_op)node->op, args[0], args[1]);
}

/* ---- comparison ---- */

static int64_t position(dc_dtype type, double value) { /* among the numbers of the type */
  int64_t bits;
  int32_t narrow;
  float single = (float)value;
  memcpy(&bits, &value, sizeof bits);
  memcpy(&narrow, &single, sizeof narrow);
  if (type == DC_F32) return narrow < 0 ? -(int64_t)(narrow & INT32_MAX) : narrow;
  return bits < 0 ? -(bits & INT64_MAX) : bits;
}

static bool within(dc_dtype type, double a, double b, uint32_t ulps) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (isinf(a) || isinf(b) || a == 0 || b == 0 || !ulps) {
    if (a == b && signbit(a) == signbit(b)) return true;
    if (isinf(a) || isinf(b) || !ulps || a == b) return false;
  }
  return llabs(position(type, a) - position(type, b)) <= ulps;
}

/* The identity holds with more digits than any type has, and the replacement is close to what it is with more digits. */
static bool is_true(const values *v, dc_dtype type, dc_ex from, dc_ex to, uint32_t ulps) {
  double before = evaluate(v, from).f, after = evaluate(v, to).f;
  long double wanted = evaluate_long(v, to), was = evaluate_long(v, from), scale = fmaxl(1, fabsl(wanted));
  if (isnan(before) != isnan(after) || (isinf(after) && !isinf(before))) return false;
  if (!isnan(was) && !isinf(was) && fabsl(was - wanted) > 0x1p-55L * scale) return false;
  return within(type, after, type == DC_F32 ? (double)(float)wanted : (double)wanted, ulps);
}

static bool agrees(const values *v, dc_dtype type, const dc_rewrite_row *row, dc_ex from, dc_ex to) {
  dc_scalar before = evaluate(v, from), after = evaluate(v, to);
  if (dc_ex_dtype(v->pool, from) == DC_BOOL) return before.i == after.i;
  return row->accuracy == DC_REWRITE_TRUTH ? is_true(v, type, from, to, row->ulps) : within(type, before.f, after.f, row->ulps);
}

/* ---- weights: why a row pays ---- */

typedef struct {
  uint32_t functions; /* distinct operations that are no simple arithmetic ... */
  double cost;        /* ... what the price list says of all ... */
  uint32_t size;      /* ... and all nodes, constants too */
} weight;

static void add_weight(void *context, const dc_pool *pool, dc_ex e) {
  weight *w = context;
  uint8_t op = dc_ex_node(pool, e)->op;
  w->functions += op < DC_PRIM_COUNT && dc_prims[op].kind == DC_PRIM_FLOAT && dc_prims[op].cost > 0.1f;
  w->functions += op == DC_POW;
  w->cost += dc_ex_cost(pool, e), w->size++;
}

static weight weight_of(const dc_pool *pool, dc_ex e) {
  weight w = {0};
  dc_ex_walk(pool, e, add_weight, &w);
  return w;
}

/* The first of the three that differs decides. */
static int order_of(weight a, weight b) {
  if (a.functions != b.functions) return a.functions < b.functions ? -1 : 1;
  if (fabs(a.cost - b.cost) > 1e-6) return a.cost < b.cost ? -1 : 1;
  return (a.size > b.size) - (a.size < b.size);
}

static bool is_lighter(const dc_pool *pool, dc_ex a, dc_ex b) { return order_of(weight_of(pool, a), weight_of(pool, b)) < 0; }

/* ---- a multiset path ordering: why rewriting ends ---- */

static int precedence(const dc_exnode *node) {
  static const uint8_t levels[DC_PRIM_COUNT] = {
      [DC_POW] = 90, [DC_TANH] = 80, [DC_LOG] = 70, [DC_EXP] = 60, [DC_DIV] = 50, [DC_SIN] = 50, [DC_TAN] = 40, [DC_SQRT] = 40, [DC_SIGMOID] = 40,
      [DC_SOFTPLUS] = 40, [DC_MUL] = 30, [DC_ADD] = 20, [DC_SUB] = 20, [DC_MIN] = 20, [DC_AND] = 20, [DC_OR] = 20, [DC_FLOOR] = 19, [DC_CEIL] = 19,
      [DC_NEG] = 10, [DC_ABS] = 10, [DC_NOT] = 10};
  if (node->op < DC_PRIM_COUNT && dc_prims[node->op].kind == DC_PRIM_TEST) return 30;
  return node->op >= DC_PRIM_COUNT ? 1000 + node->op : levels[node->op] ? levels[node->op] : 100 + node->op;
}

static bool is_constant(const dc_exnode *node) { return node->op == DC_EX_FLOAT || node->op == DC_EX_INT; }

static bool is_equivalent(const dc_pool *pool, dc_ex a, dc_ex b);

/* Pairs equivalent arguments off; how many, with bits for those of a and of b. */
static uint32_t pair_arguments(const dc_pool *pool, dc_ex a, dc_ex b, uint32_t *of_a, uint32_t *of_b) {
  uint32_t pairs = 0;
  *of_a = *of_b = 0;
  for (uint32_t j = 0; j < dc_ex_node(pool, b)->nargs; j++)
    for (uint32_t k = 0; k < dc_ex_node(pool, a)->nargs && !(*of_b >> j & 1); k++)
      if (!(*of_a >> k & 1) && is_equivalent(pool, dc_ex_arg(pool, a, k), dc_ex_arg(pool, b, j))) *of_a |= 1u << k, *of_b |= 1u << j, pairs++;
  return pairs;
}

/* Constants are all alike, so are operations of one precedence, and arguments have no order. */
static bool is_equivalent(const dc_pool *pool, dc_ex a, dc_ex b) {
  const dc_exnode *x = dc_ex_node(pool, a), *y = dc_ex_node(pool, b);
  uint32_t of_a, of_b;
  if (a == b || (is_constant(x) && is_constant(y))) return true;
  if (x->op == DC_EX_READ || x->nargs != y->nargs || precedence(x) != precedence(y)) return false;
  return pair_arguments(pool, a, b, &of_a, &of_b) == x->nargs;
}

static bool comes_after(const dc_pool *pool, dc_ex a, dc_ex b);

/* Without what both have, each argument of b comes before one of a's. */
static bool arguments_come_after(const dc_pool *pool, dc_ex a, dc_ex b) {
  uint32_t n = dc_ex_node(pool, a)->nargs, m = dc_ex_node(pool, b)->nargs, taken, matched;
  if (pair_arguments(pool, a, b, &taken, &matched) == n) return false;
  for (uint32_t j = 0; j < m; j++) {
    bool found = matched >> j & 1;
    for (uint32_t k = 0; k < n && !found; k++) found = !(taken >> k & 1) && comes_after(pool, dc_ex_arg(pool, a, k), dc_ex_arg(pool, b, j));
    if (!found) return false;
  }
  return true;
}

static bool comes_after(const dc_pool *pool, dc_ex a, dc_ex b) {
  const dc_exnode *x = dc_ex_node(pool, a), *y = dc_ex_node(pool, b);
  if (x->op == DC_EX_READ || is_constant(x)) return false;
  if (is_constant(y)) return true;
  for (uint32_t k = 0; k < x->nargs; k++)
    if (is_equivalent(pool, dc_ex_arg(pool, a, k), b) || comes_after(pool, dc_ex_arg(pool, a, k), b)) return true;
  if (y->op == DC_EX_READ) return false;
  if (precedence(x) == precedence(y)) return arguments_come_after(pool, a, b);
  if (precedence(x) < precedence(y)) return false;
  for (uint32_t k = 0; k < y->nargs; k++)
    if (!comes_after(pool, a, dc_ex_arg(pool, b, k))) return false;
  return true;
}

/* ---- the left side of a row, with commuting operands exchanged where a bit of the mask says so ---- */

typedef struct {
  dc_pool *pool;
  const dc_rewrite_match *m;
  const uint8_t *at;
  uint32_t mask, n_commuting;
} side;

static dc_ex build_side(side *s) {
  uint8_t code = *s->at++;
  if (code >= DC_REWRITE_X && code < DC_REWRITE_NUM) return s->m->bound[code - DC_REWRITE_X];
  if (code == DC_REWRITE_NUM) return dc_ex_const(s->pool, s->m->type, *s->at++);
  bool commutes = code == DC_ADD || code == DC_MUL || code == DC_MIN || code == DC_MAX || code == DC_EQ || code == DC_NE || code == DC_AND || code == DC_OR;
  bool swaps = commutes && s->mask >> s->n_commuting++ & 1;
  uint32_t arity = code == DC_EX_SELECT ? 3 : dc_prims[code].arity;
  dc_ex args[3];
  for (uint32_t k = 0; k < arity; k++) args[k] = build_side(s);
  if (arity == 3) return dc_ex_select(s->pool, args[0], args[1], args[2]);
  return arity == 1 ? dc_ex_prim1(s->pool, (dc_op)code, args[0]) : dc_ex_prim2(s->pool, (dc_op)code, args[swaps], args[!swaps]);
}

/* ---- values ---- */

static const double specials[] = {0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2.5, 1.5, 3.5, INFINITY, -INFINITY, NAN, 0x1p-149, -0x1p-149, 0x1p-130, -0x1p-126,
                                  0x1p127, -0x1p127, 3.4028234e38, 20, -20, 88.5, -88.5, -104, 710, -746, 0x1p-1074, 0x1p1023};
enum { N_SPECIALS = sizeof specials / sizeof *specials };

static double of_type(dc_dtype type, double value) { return type == DC_F32 ? (double)(float)value : value; }

static double random_real(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  double fraction = (double)(int64_t)*state / 0x1p63;
  return *state >> 8 & 1 ? fraction * 30 : ldexp(fraction, (int)(*state >> 10 & 511) - 256);
}

static void set_case(values *v, dc_dtype type, uint32_t n, uint64_t *random) {
  for (uint32_t k = 0; k < N_REALS; k++) {
    v->real[k] = of_type(type, n < N_SPECIALS * N_SPECIALS ? specials[(k ? n / N_SPECIALS + (k - 1) * 7 : n) % N_SPECIALS] : random_real(random));
    if (n < N_SPECIALS * N_SPECIALS && k == 2) v->real[k] = of_type(type, specials[(n * 5 + 3) % N_SPECIALS]);
  }
  for (uint32_t k = 0; k < N_CONDITIONS; k++) v->condition[k] = (n + n / N_SPECIALS) >> k & 1;
}

/* ---- rows ---- */

static void report(const dc_rewrite_row *row, dc_dtype type, const values *v, dc_ex from, dc_ex to) {
  dc_scalar before = evaluate(v, from), after = evaluate(v, to);
  printf("  %s -> %s, %s, x = %.17g, y = %.17g, z = %.17g: %.17g became %.17g\n", row->from_text, row->to_text, dc_dtype_name(type), v->real[0],
         v->real[1], v->real[2], before.f, after.f);
}

static void check_values(values *v, dc_dtype type, const dc_rewrite_row *row, dc_ex from, dc_ex to) {
  uint64_t random = 1;
  for (uint32_t n = 0; n < N_SPECIALS * N_SPECIALS + N_RANDOM; n++) {
    set_case(v, type, n, &random);
    bool good = agrees(v, type, row, from, to);
    CHECK(good);
    if (!good) return report(row, type, v, from, to);
  }
}

/* With variables in place of constants nothing folds. */
static uint32_t whole_size(dc_pool *pool, const dc_rewrite_row *row, const dc_rewrite_match *m) {
  dc_rewrite_match open = *m;
  for (uint8_t k = DC_REWRITE_J; k <= DC_REWRITE_K; k++) open.bound[k - DC_REWRITE_X] = dc_ex_read(pool, m->type, k, NULL, 0);
  return weight_of(pool, dc_rewrite_build(pool, row->from, &open)).size;
}

/* True where the row applies to its own left side with these constants. */
static bool check_side(dc_pool *pool, const dc_rewrite_row *row, const dc_rewrite_match *m, uint32_t mask, bool *last) {
  values v = {.pool = pool};
  side s = {pool, m, row->from, mask, 0};
  dc_ex from = build_side(&s), to = dc_rewrite_build(pool, row->to, m);
  *last = mask + 1 >= 1u << s.n_commuting;
  if (weight_of(pool, from).size != whole_size(pool, row, m)) return false; /* constructors folded it */
  dc_ex now = dc_rewrite(pool, from);
  bool applies = now != from && is_lighter(pool, now, from), pays = is_lighter(pool, to, from), ends = comes_after(pool, from, to);
  CHECK(applies && pays && ends);
  if (!applies || !pays || !ends) printf("  %s -> %s: applies %d, pays %d, ends %d\n", row->from_text, row->to_text, applies, pays, ends);
  CHECK(dc_rewrite(pool, now) == now);
  check_values(&v, m->type, row, from, to);
  return true;
}

static void bind_variables(dc_pool *pool, dc_dtype type, dc_rewrite_match *m) {
  *m = (dc_rewrite_match){.type = type};
  for (uint32_t k = 0; k < N_REALS + N_CONDITIONS; k++) m->bound[k] = dc_ex_read(pool, k < N_REALS ? type : DC_BOOL, k + 1, NULL, 0);
}

static bool names(const dc_rewrite_row *row, uint8_t variable) { return memchr(row->from, variable, DC_REWRITE_LENGTH) != NULL; }

static void check_row(const dc_rewrite_row *row, dc_dtype type) {
  static const double constants[] = {-3, -2, -1, -0.5, -0.0, 0, 0.25, 1, 3, 4, 0x1p-130, 0x1p126, INFINITY, NAN};
  enum { N = sizeof constants / sizeof *constants };
  uint32_t applied = 0, n_j = names(row, DC_REWRITE_J) ? N : 1, n_k = names(row, DC_REWRITE_K) ? N : 1;
  dc_graph *g = dc_graph_create("g");
  for (uint32_t at = 0; at < n_j * n_k; at++) {
    double j = constants[at / n_k], k = constants[at % n_k];
    dc_rewrite_match m;
    bind_variables(&g->pool, type, &m);
    m.bound[DC_REWRITE_J - DC_REWRITE_X] = dc_ex_const(&g->pool, type, j), m.bound[DC_REWRITE_K - DC_REWRITE_X] = dc_ex_const(&g->pool, type, k);
    if (row->condition && !row->condition(j, k)) continue;
    bool last = false;
    for (uint32_t mask = 0; !last; mask++) applied += check_side(&g->pool, row, &m, mask, &last);
  }
  CHECK(applied > 0);
  if (!applied) printf("  %s never applies\n", row->from_text);
  dc_graph_destroy(g);
}

static void each_row_is_right(void) {
  for (uint32_t k = 0; dc_rewrite_at(k); k++) check_row(dc_rewrite_at(k), DC_F32), check_row(dc_rewrite_at(k), DC_F64);
}

/* ---- expressions of many rows ---- */

static dc_ex random_expression(dc_pool *pool, const dc_rewrite_match *m, uint64_t *state, int depth) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  uint32_t pick = (uint32_t)(*state >> 33);
  if (!depth) return pick % 4 ? m->bound[pick % N_REALS] : dc_ex_const(pool, m->type, (int)(pick / 4 % 5) - 2);
  dc_op op = (dc_op)(pick % DC_PRIM_COUNT);
  while (dc_prims[op].kind > DC_PRIM_FLOAT || op == DC_STOP) op = (dc_op)((op + 1) % DC_PRIM_COUNT);
  if (pick / 64 % 3 == 0) op = pick / 256 % 2 ? DC_NEG : DC_ABS;
  dc_ex a = random_expression(pool, m, state, depth - 1);
  return dc_prims[op].arity == 1 ? dc_ex_prim1(pool, op, a) : dc_ex_prim2(pool, op, a, random_expression(pool, m, state, depth - 1));
}

static void show(dc_graph *g, dc_ex e, dc_ex now) {
  dc_text text = {0};
  for (int k = 0; k < N_REALS; k++) (void)dc_container_add(g, (const char *const[]){"x", "y", "z"}[k], DC_F32, 0, NULL, DC_ROLE_INPUT);
  dc_ex_print(g, e, &text);
  dc_text_puts(&text, " -> ");
  dc_ex_print(g, now, &text);
  dc_text_puts(&text, " -> ");
  dc_ex_print(g, dc_rewrite(&g->pool, now), &text);
  printf("  %s\n", text.s);
  dc_text_free(&text);
}

static void expressions_of_many_rows_come_to_an_end(void) {
  uint64_t state = 7;
  uint32_t changed = 0;
  for (int n = 0; n < 20000; n++) {
    dc_graph *g = dc_graph_create("g");
    dc_rewrite_match m;
    bind_variables(&g->pool, DC_F32, &m);
    dc_ex e = random_expression(&g->pool, &m, &state, 1 + n % 5), now = dc_rewrite(&g->pool, e);
    bool good = (now == e || comes_after(&g->pool, e, now)) && dc_rewrite(&g->pool, now) == now;
    changed += now != e;
    CHECK(good);
    if (!good) show(g, e, now);
    dc_graph_destroy(g);
  }
  CHECK(changed > 2000);
}

int main(void) {
  each_row_is_right();
  expressions_of_many_rows_come_to_an_end();
  return check_report();
}
