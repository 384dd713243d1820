/* Carries: what an iteration of a sequential loop reads of the one before stays in a register, and need not go through memory.
 *
 *     sequential n { Y[n] = (n >= 1 ? Y[n - 1] : 1) * X[n] }   becomes
 *     y = 1  sequential n { Y[n] = y * X[n]  y = Y[n] } */
#include "backends/kernel/kernel.h"

typedef struct {
  dc_kernel *k;
  dc_loop *loop;
  const dc_write *write;
  dc_ex before; /* address of what the iteration before wrote */
  dc_ex carried; /* READ of the register; 0 while looking */
  bool found;
} carry;

static bool is_before(const carry *c, dc_ex x) {
  const dc_exnode *node = dc_ex_node(c->k->pool, x);
  return node->op == DC_EX_READ && node->ref == c->write->out && dc_ex_arg(c->k->pool, x, 0) == c->before;
}

static void find_read(void *context, const dc_pool *pool, dc_ex read) {
  carry *c = context;
  (void)pool;
  c->found = c->found || is_before(c, read);
}

static bool reads_before(carry *c, dc_ex x) {
  c->found = false;
  dc_kernel_each_read(c->k, x, find_read, c);
  return c->found;
}

/* The first iteration reads nothing of one before it. */
static bool begins_anew(carry *c, dc_ex x) {
  dc_pool *pool = c->k->pool;
  if (!x || !reads_before(c, x)) return true;
  const dc_param from[] = {c->loop->param};
  const dc_ex to[] = {c->loop->begin}, before = c->before;
  dc_ex first = dc_ex_subst(pool, x, from, to, 1);
  c->before = dc_ex_subst(pool, before, from, to, 1);
  bool reads = reads_before(c, first);
  c->before = before;
  return !reads;
}

/* The only write to its memory, in every iteration, of an element that the next one moves on from. */
static bool is_carried(carry *c) {
  dc_kernel *k = c->k;
  const dc_write *w = c->write;
  const dc_loop *l = c->loop;
  if (w->wcr || w->guard || dc_read_check(k, w->element) || dc_kernel_is_register(k, w->out)) return false;
  const dc_param from[] = {l->param};
  const dc_ex address = dc_read_address(k, w->element),
              to[] = {dc_ix_sub(k->pool, dc_ex_par(k->pool, l->param), dc_ex_int(k->pool, l->step))};
  c->before = dc_ex_subst(k->pool, address, from, to, 1);
  bool used = false;
  if (c->before == address || dc_ex_uses_op(k->pool, address, DC_EX_READ)) return false;
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *other = l->body.v[j].write;
    if (!other || (other != w && (k->bits[other->out] & k->bits[w->out])) || dc_read_check(k, other->element)) return false;
    used = used || reads_before(c, other->value) || reads_before(c, other->guard);
    if (!begins_anew(c, other->value) || !begins_anew(c, other->guard)) return false;
  }
  return used;
}

/* ---- what the first iteration takes instead ---- */

typedef struct {
  const carry *c;
  dc_ex choice; /* SELECT between what is carried and something else; 0: none found */
} choice_search;

static void find_choice(void *context, const dc_pool *pool, dc_ex x) {
  choice_search *s = context;
  if (dc_ex_node(pool, x)->op == DC_EX_SELECT && is_before(s->c, dc_ex_arg(pool, x, 1))) s->choice = x;
}

/* Does it hold in all iterations but the first? */
static bool holds_later(const carry *c, dc_ex condition) {
  dc_pool *pool = c->k->pool;
  const dc_exnode node = *dc_ex_node(pool, condition);
  if ((node.op != DC_GE && node.op != DC_LT) || dc_ex_dtype(pool, dc_ex_arg(pool, condition, 0)) != DC_I64) return false;
  const dc_param from[] = {c->loop->param};
  const dc_ex step = dc_ex_int(pool, c->loop->step);
  const dc_param rest = dc_param_new(pool, "later", dc_ix_add(pool, c->loop->begin, step), c->loop->end, step);
  DC_PUSH(c->k->arena, &c->k->loop_of, NULL);
  const dc_ex to[] = {dc_ex_par(pool, rest)};
  const dc_ex difference = dc_ix_sub(pool, dc_ex_arg(pool, condition, 0), dc_ex_arg(pool, condition, 1)),
              later = dc_ex_subst(pool, node.op == DC_GE ? difference : dc_ix_sub(pool, dc_ex_int(pool, -1), difference), from, to, 1);
  return dc_ix_proves_ge(pool, later, 0);
}

/* What the first iteration takes becomes what is carried at first, if it is a number or lies in memory that the loop only reads. */
static dc_ex take_choice(const carry *c, dc_ex zero) {
  dc_kernel *k = c->k;
  dc_loop *l = c->loop;
  choice_search s = {.c = c};
  for (uint32_t j = 0; j < l->body.n && !s.choice; j++) dc_ex_walk(k->pool, l->body.v[j].write->value, find_choice, &s);
  if (!s.choice || !holds_later(c, dc_ex_arg(k->pool, s.choice, 0))) return zero;
  const dc_param from[] = {l->param};
  const dc_ex to[] = {l->begin}, first = dc_ex_subst(k->pool, dc_ex_arg(k->pool, s.choice, 2), from, to, 1);
  const dc_dependence d = dc_kernel_dependence(k, first);
  if ((d.reads && !(dc_loop_extent(k, l) > 0)) || d.reads & l->writes || !d.safe) return zero;
  dc_exchange exchange = {s.choice, c->carried};
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_write *w = l->body.v[j].write;
    w->value = dc_ex_transform(k->pool, w->value, dc_ex_exchange, &exchange);
    if (w->guard) w->guard = dc_ex_transform(k->pool, w->guard, dc_ex_exchange, &exchange);
  }
  return first;
}

static dc_ex replace(void *context, dc_pool *pool, dc_ex leaf) {
  const carry *c = context;
  (void)pool;
  return is_before(c, leaf) ? c->carried : leaf;
}

static void keep(carry *c) {
  dc_kernel *k = c->k;
  dc_loop *l = c->loop, *outer = l->parent;
  dc_dtype type = (dc_dtype)dc_cont(k->graph, c->write->out)->dtype;
  dc_ex address = dc_ex_int(k->pool, 0), value = c->write->element;
  c->carried = dc_ex_read(k->pool, type, dc_kernel_add_register(k, "carry", type, 0, NULL), &address, 1);
  const dc_ex first = take_choice(c, dc_ex_const(k->pool, type, 0));
  for (uint32_t j = 0; j < l->body.n; j++) {
    dc_write *w = l->body.v[j].write;
    w->value = dc_ex_rewrite(k->pool, w->value, replace, c);
    if (w->guard) w->guard = dc_ex_rewrite(k->pool, w->guard, replace, c);
  }
  dc_kernel_add_write(k, l, l->body.n, c->carried, value);
  uint32_t at = 0;
  while (outer->body.v[at].loop != l) at++;
  dc_kernel_add_write(k, outer, at, c->carried, first);
}

static void find_carries(dc_kernel *k, dc_loop *l) {
  if (l->schedule != DC_MAP_SEQUENTIAL || !l->is_entry || dc_loop_has_loops(l) || dc_loop_strip(l)) return;
  for (uint32_t j = 0, n = l->body.n; j < n; j++) {
    carry c = {.k = k, .loop = l, .write = l->body.v[j].write};
    if (is_carried(&c)) keep(&c);
  }
}

void dc_kernel_carries(dc_kernel *k) {
  dc_kernel_each_loop(k, k->root, find_carries);
  dc_kernel_settle(k);
}
