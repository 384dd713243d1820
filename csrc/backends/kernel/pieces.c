/* Pieces: a loop whose conditions, minima and quotients change a few times on its way runs in pieces, in each of which they
 * are decided.  What is padded, rolled or put together is then copied where it lies.
 *
 *     parallel i in 0:35 { Y[i] = X[max(i - 1, 1 - i)] }   becomes
 *     parallel i in 0:1 { Y[i] = X[1] }  parallel i in 0:34 { Y[i + 1] = X[i] }
 *
 * Only of element-wise loops over constant ranges, by conditions on the loop alone, which are tried out. */
#include "backends/kernel/kernel.h"

enum { MAX_PIECES = 4, MAX_CUTS = 16, MAX_WRITES = 32, LONGEST = 1 << 15, SHORTEST = 8, MAX_DEPTH = 64, MANY_TASKS = 64 };

typedef struct {
  dc_kernel *k;
  dc_loop *loop;
  int64_t begin, end;
  int64_t cuts[MAX_CUTS]; /* in order: where pieces begin, but the first */
  uint32_t n_cuts;
  int64_t *values; /* of parameters, by number */
} search;

/* ---- decisions ---- */

static bool depends_on_loop_alone(const search *s, dc_ex x) {
  const dc_pool *pool = s->k->pool;
  if (dc_ex_node(pool, x)->op == DC_EX_PARAM) return dc_ex_node(pool, x)->ref == s->loop->param;
  if (dc_ex_node(pool, x)->op == DC_EX_SYM || dc_ex_node(pool, x)->op == DC_EX_READ || dc_ex_dtype(pool, x) != DC_I64) return false;
  for (uint32_t j = 0; j < dc_ex_node(pool, x)->nargs; j++)
    if (!depends_on_loop_alone(s, dc_ex_arg(pool, x, j))) return false;
  return true;
}

static int64_t floor_of(int64_t a, int64_t b) { return b < 1 ? 0 : a / b - (a % b != 0 && a < 0); }

static int64_t decide(uint8_t op, int64_t a, int64_t b) {
  switch (op) {
    case DC_LT: case DC_GE: case DC_EX_IMIN: return a < b;
    case DC_GT: case DC_LE: case DC_EX_IMAX: return a > b;
    case DC_EQ: case DC_NE: return a == b;
    default: return floor_of(a, b);
  }
}

static bool is_decision(uint8_t op) {
  return op == DC_LT || op == DC_GE || op == DC_GT || op == DC_LE || op == DC_EQ || op == DC_NE || op == DC_EX_IMIN || op == DC_EX_IMAX ||
         op == DC_EX_IDIV || op == DC_EX_IMOD;
}

static void add_cut(search *s, int64_t at) {
  uint32_t j = s->n_cuts;
  for (uint32_t i = 0; i < s->n_cuts; i++)
    if (s->cuts[i] == at) return;
  if (s->n_cuts++ >= MAX_CUTS) return; /* too many */
  for (; j > 0 && s->cuts[j - 1] > at; j--) s->cuts[j] = s->cuts[j - 1];
  s->cuts[j] = at;
}

static void try_out(void *context, const dc_pool *pool, dc_ex x) {
  search *s = context;
  const dc_exnode node = *dc_ex_node(pool, x);
  if (s->n_cuts > MAX_CUTS || !is_decision(node.op) || dc_ex_dtype(pool, dc_ex_arg(pool, x, 0)) != DC_I64) return;
  dc_ex a = dc_ex_arg(pool, x, 0), b = dc_ex_arg(pool, x, 1);
  bool used = dc_ex_uses_param(pool, x, s->loop->param);
  if (!used || !depends_on_loop_alone(s, a) || !depends_on_loop_alone(s, b)) return;
  int64_t before = 0;
  for (int64_t at = s->begin; at < s->end && s->n_cuts <= MAX_CUTS; at++) {
    s->values[s->loop->param] = at;
    int64_t now = decide(node.op, dc_ix_eval(pool, a, NULL, s->values), dc_ix_eval(pool, b, NULL, s->values));
    if (at > s->begin && now != before) add_cut(s, at);
    before = now;
  }
}

/* ---- what may be cut ---- */

/* Element-wise: a register inside is each iteration's own. */
static bool is_plain(const search *s, const dc_loop *l, uint32_t *writes) {
  if (l->depth >= MAX_DEPTH || l->schedule != DC_MAP_PARALLEL || l->step != 1) return false;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    if (!w && !is_plain(s, l->body.v[j].loop, writes)) return false;
    if (w && w->meets.n) return false;
    *writes += w != NULL;
  }
  return true;
}

static void look_at(search *s, const dc_loop *l) {
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    if (!w) {
      look_at(s, l->body.v[j].loop);
      continue;
    }
    dc_ex_walk(s->k->pool, w->element, try_out, s);
    dc_ex_walk(s->k->pool, w->value, try_out, s);
    if (w->guard) dc_ex_walk(s->k->pool, w->guard, try_out, s);
  }
}

/* ---- cutting ---- */

typedef struct {
  dc_param from[MAX_DEPTH];
  dc_ex to[MAX_DEPTH];
  uint32_t n;
  dc_cid *registers; /* by container: the piece's own in the place of one inside the loop; 0: none */
  uint32_t n_registers;
} renaming;

static dc_ex rename_leaf(void *context, dc_pool *pool, dc_ex leaf) {
  const renaming *r = context;
  const dc_exnode node = *dc_ex_node(pool, leaf);
  if (node.op != DC_EX_READ) return dc_ex_substitute(&(dc_substitution){r->from, r->to, r->n}, pool, leaf);
  dc_cid own = node.ref < r->n_registers ? r->registers[node.ref] : 0;
  if (!own) return leaf;
  dc_ex index[2] = {dc_ex_arg(pool, leaf, 0), node.nargs > 1 ? dc_ex_arg(pool, leaf, 1) : 0};
  return dc_ex_read(pool, dc_ex_dtype(pool, leaf), own, index, node.nargs);
}

static dc_ex renamed(dc_kernel *k, renaming *r, dc_ex x) { return x ? dc_ex_rewrite(k->pool, x, rename_leaf, r) : 0; }

static void add_registers(dc_kernel *k, const dc_loop *l, renaming *r) {
  *r = (renaming){.registers = DC_NEW_ARRAY(k->arena, dc_cid, k->homes.n), .n_registers = k->homes.n};
  for (dc_cid c = k->n_buffers + 1; c < k->homes.n; c++) {
    if (!k->homes.v[c] || !dc_loop_is_inside(k->homes.v[c], l)) continue;
    dc_container from = *dc_cont(k->graph, c);
    r->registers[c] = dc_kernel_add_register(k, dc_cont_name(k->graph, c), (dc_dtype)from.dtype, from.rank, from.shape);
  }
}

static dc_loop *copy_of(dc_kernel *k, const dc_loop *l, renaming *r, dc_loop *parent);

static void copy_body(dc_kernel *k, const dc_loop *l, renaming *r, dc_loop *into) {
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_item item = {0};
    if (l->body.v[j].loop) {
      item.loop = copy_of(k, l->body.v[j].loop, r, into);
    } else {
      const dc_write *w = l->body.v[j].write;
      dc_ex guard = renamed(k, r, w->guard);
      if (guard && dc_kernel_is_number(k, guard, 0)) continue;
      item.write = DC_NEW(k->arena, dc_write);
      *item.write = *w;
      item.write->parent = into, item.write->out = r->registers[w->out] ? r->registers[w->out] : w->out;
      item.write->element = renamed(k, r, w->element), item.write->value = renamed(k, r, w->value);
      item.write->guard = guard && dc_kernel_is_true(k, guard) ? 0 : guard, item.write->inside = renamed(k, r, w->inside);
      DC_PUSH(k->arena, &k->writes, item.write);
    }
    DC_PUSH(k->arena, &into->body, item);
  }
}

static dc_loop *new_loop(dc_kernel *k, const dc_loop *like, dc_ex begin, dc_ex end, dc_loop *parent) {
  dc_loop *made = dc_loop_like(k, like, begin, end);
  made->is_entry = like->is_entry, made->parent = parent;
  return made;
}

static dc_loop *copy_of(dc_kernel *k, const dc_loop *l, renaming *r, dc_loop *parent) {
  dc_loop *made = new_loop(k, l, renamed(k, r, l->begin), renamed(k, r, l->end), parent);
  r->from[r->n] = l->param, r->to[r->n++] = dc_ex_par(k->pool, made->param);
  copy_body(k, l, r, made);
  r->n--;
  return made;
}

static void forget_writes(dc_kernel *k, const dc_loop *l) {
  uint32_t n = 0;
  for (uint32_t j = 0; j < k->writes.n; j++)
    if (!dc_loop_is_inside(k->writes.v[j]->parent, l)) k->writes.v[n++] = k->writes.v[j];
  k->writes.n = n;
}

/* Iterations of a loop where every symbol is 1: no fewer than there are, if any. */
static int64_t least_trips(const search *s, const dc_loop *l) {
  dc_ex n = dc_ix_sub(s->k->pool, l->end, l->begin);
  int64_t *ones = DC_NEW_ARRAY(s->k->arena, int64_t, s->k->pool->symbols.n);
  for (uint32_t j = 0; j < s->k->pool->symbols.n; j++) ones[j] = 1;
  return dc_kernel_dependence(s->k, n).reads ? 1 : dc_ix_eval(s->k->pool, n, ones, s->values);
}

static int64_t least_work(const search *s, const dc_loop *l) {
  int64_t inside = 0;
  for (uint32_t j = 0; j < l->body.n; j++) inside += l->body.v[j].loop ? least_work(s, l->body.v[j].loop) : 1;
  return least_trips(s, l) * inside;
}

/* The loop to be copied for each piece: this one; or, where the loops around it are too few to share, the outermost one of the map,
 * so that threads may share the pieces too. */
static dc_loop *loop_to_copy(const search *s) {
  dc_loop *top = s->loop;
  int64_t around = 1;
  while (!top->is_entry && dc_loop_only(top->parent) == top) top = top->parent, around *= least_trips(s, top);
  bool shared = around >= MANY_TASKS || around * least_work(s, s->loop) < s->k->graph->machine.serial_work;
  return shared ? s->loop : top;
}

/* Copies of the loops from `l` on around the one that is cut, whose piece goes into the last of them. */
static dc_loop *copy_around(dc_kernel *k, const dc_loop *l, const dc_loop *cut, renaming *r, dc_loop *parent) {
  if (l == cut) return parent;
  dc_loop *made = new_loop(k, l, renamed(k, r, l->begin), renamed(k, r, l->end), parent);
  r->from[r->n] = l->param, r->to[r->n++] = dc_ex_par(k->pool, made->param);
  DC_PUSH(k->arena, &parent->body, ((dc_item){.loop = made}));
  return copy_around(k, dc_loop_only(l), cut, r, made);
}

static void add_piece(search *s, const dc_loop *top, dc_loop *outer, int64_t from, int64_t to) {
  dc_kernel *k = s->k;
  const dc_loop *l = s->loop;
  renaming r;
  add_registers(k, l, &r);
  dc_loop *around = copy_around(k, top, l, &r, outer);
  dc_loop *piece = new_loop(k, l, dc_ex_int(k->pool, 0), dc_ex_int(k->pool, to - from), around);
  piece->is_entry = top == l;
  r.from[r.n] = l->param, r.to[r.n++] = dc_ix_add(k->pool, dc_ex_par(k->pool, piece->param), dc_ex_int(k->pool, from));
  copy_body(k, l, &r, piece);
  DC_PUSH(k->arena, &around->body, ((dc_item){.loop = piece}));
}

/* Where piece j begins, and the one before it ends. */
static int64_t bound(const search *s, uint32_t j) { return j == 0 ? s->begin : j > s->n_cuts ? s->end : s->cuts[j - 1]; }

static void cut(search *s) {
  dc_kernel *k = s->k;
  const dc_loop *top = loop_to_copy(s);
  dc_loop *outer = top->parent;
  const dc_item *before = outer->body.v;
  uint32_t n = outer->body.n;
  outer->body.v = NULL, outer->body.n = outer->body.cap = 0;
  for (uint32_t j = 0; j < n; j++) {
    if (before[j].loop != top) DC_PUSH(k->arena, &outer->body, before[j]);
    for (uint32_t c = 0; c <= s->n_cuts && before[j].loop == top; c++)
      add_piece(s, top, outer, bound(s, c), bound(s, c + 1));
  }
  forget_writes(k, top);
  dc_kernel_settle(k);
}

/* Of many pieces the longest stays, if it is most of the loop, and what is before and behind it. */
static void leave_longest(search *s) {
  uint32_t longest = 0;
  for (uint32_t j = 1; j <= s->n_cuts; j++)
    if (bound(s, j + 1) - bound(s, j) > bound(s, longest + 1) - bound(s, longest)) longest = j;
  int64_t from = bound(s, longest), to = bound(s, longest + 1);
  s->n_cuts = 0;
  if (2 * (to - from) < s->end - s->begin) return;
  if (from > s->begin) s->cuts[s->n_cuts++] = from;
  if (to < s->end) s->cuts[s->n_cuts++] = to;
}

static void find_pieces(dc_kernel *k, dc_loop *l) {
  search s = {.k = k, .loop = l};
  uint32_t writes = 0;
  bool known = dc_ex_is_int(k->pool, l->begin, &s.begin) && dc_ex_is_int(k->pool, l->end, &s.end);
  if (!known || s.end - s.begin < SHORTEST || s.end - s.begin > LONGEST || !is_plain(&s, l, &writes)) return;
  s.values = DC_NEW_ARRAY(k->arena, int64_t, k->pool->params.n);
  look_at(&s, l);
  if (s.n_cuts > MAX_CUTS) return;
  if (s.n_cuts >= MAX_PIECES) leave_longest(&s);
  if (s.n_cuts && writes * (s.n_cuts + 1) <= MAX_WRITES) cut(&s);
}

void dc_kernel_pieces(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, find_pieces);
}
