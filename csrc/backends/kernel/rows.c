/* Rows: what several loops of a team read or write of a row stays in registers of the threads that take it.
 *
 *     reduce j in 0:n team { M max= X[n*i + j] }                     reduce j in 0:n team turns(4) { row[j] = X[n*i + j]  M max= row[j] }
 *     parallel j in 0:n team { Y[n*i + j] = X[n*i + j] - M }  becomes  parallel j in 0:n team turns(4) { Y[n*i + j] = row[j] - M }
 *
 * Loops over as many iterations, in packs of one size, deal each of them to the same thread.  What a loop writes and a
 * later one combines into goes to memory once, from the last of them. */
#include "backends/kernel/kernel.h"

enum { MAX_LOOPS = 16, MAX_PLACES = 16, MOST_TURNS = 16 };
/* Registers: of a thread for rows, at most; of a multiprocessor; of a thread beside rows. */
enum { MOST_WORDS = 64, REGISTERS = 64 << 10, OTHERS = 24 };

/* An element of memory for each iteration. */
typedef struct {
  dc_cid c;
  dc_ex address; /* with the parameter of the first loop */
  uint32_t uses; /* loops that do */
  bool read_again, written, fails, chosen;
  bool common; /* the same elements for all rows: it is in a cache */
  const dc_write *last; /* that writes it */
} place;

/* Loops in one body. */
typedef struct {
  dc_kernel *k;
  dc_loop *loops[MAX_LOOPS];
  uint32_t n;
  place places[MAX_PLACES];
  uint32_t n_places;
  /* while looking */
  const dc_loop *at;
  place *of;
  bool met, other;
  dc_ex held;
} row;

static dc_ex as_in_first(const row *r, dc_ex x, const dc_loop *l) {
  const dc_param from[] = {l->param};
  const dc_ex to[] = {dc_ex_par(r->k->pool, r->loops[0]->param)};
  return l == r->loops[0] ? x : dc_ex_subst(r->k->pool, x, from, to, 1);
}

static bool is_at(const row *r, const place *p, dc_ex access, const dc_loop *l) {
  const dc_exnode *node = dc_ex_node(r->k->pool, access);
  return node->ref == p->c && node->nargs == 1 && as_in_first(r, dc_read_address(r->k, access), l) == p->address;
}

/* ---- the loops ---- */

static int64_t takes(const dc_kernel *k, const dc_loop *l) { return (int64_t)k->grid.team * (l->pack ? l->pack : 1); }

bool dc_loop_may_take_turns(dc_kernel *k, const dc_loop *l) {
  int64_t extent = dc_loop_extent(k, l);
  bool plain = l->on_team && l->is_entry && !dc_loop_has_loops(l) && l->step == 1 && dc_kernel_is_number(k, l->begin, 0) && !l->collides;
  return plain && extent > 0 && extent <= MOST_TURNS * takes(k, l);
}

uint32_t dc_loop_row_turns(dc_kernel *k, const dc_loop *l) { return (uint32_t)((dc_loop_extent(k, l) + takes(k, l) - 1) / takes(k, l)); }

uint32_t dc_loop_row_words(dc_kernel *k, const dc_loop *l, dc_dtype type) {
  return dc_loop_row_turns(k, l) * (l->pack ? l->pack : 1) * (dc_dtype_bytes(dc_dtype_compute(type)) > 4 ? 2 : 1);
}

uint32_t dc_kernel_row_words(const dc_kernel *k) {
  const uint32_t at_once = k->grid.at_once ? k->grid.at_once : 2; /* of two blocks one loads while the other computes */
  const uint32_t of_thread = REGISTERS / at_once / k->grid.block;
  if (k->grid.at_once) return of_thread / 2; /* none of which may be spilled in a loop */
  return of_thread > MOST_WORDS + OTHERS ? MOST_WORDS : of_thread > OTHERS ? of_thread - OTHERS : 0;
}

static uint32_t words_of(const row *r, dc_cid c) { return dc_loop_row_words(r->k, r->loops[0], (dc_dtype)dc_cont(r->k->graph, c)->dtype); }

/* What a register holds longer than for an iteration of the loop around (parts.c). */
static bool is_kept_outside(const dc_kernel *k, const dc_loop *l, dc_cid c) {
  return dc_kernel_is_own(k, c) && k->homes.v[c] && k->homes.v[c] != l->parent;
}

/* The registers of a thread that are taken where a row is used. */
static uint32_t kept_words(const row *r) {
  uint32_t words = 0;
  for (dc_cid c = r->k->n_buffers + 1; c < r->k->homes.n; c++)
    if (is_kept_outside(r->k, r->loops[0], c) && dc_loop_is_inside(r->loops[0], r->k->homes.v[c])) words += words_of(r, c);
  return words;
}

/* Has it no turns yet, but for what is kept outside? */
static bool is_free(const dc_kernel *k, const dc_loop *l) {
  for (uint32_t j = 0; j < l->body.n && l->turns; j++)
    if (l->body.v[j].write->out < k->homes.n && is_kept_outside(k, l, l->body.v[j].write->out)) return true;
  return !l->turns;
}

/* ---- what they have in common ---- */

static void add_place(void *context, const dc_pool *pool, dc_ex access) {
  row *r = context;
  const dc_exnode node = *dc_ex_node(pool, access);
  dc_ex factor, rest, address = dc_read_address(r->k, access);
  int64_t step;
  if (dc_kernel_is_register(r->k, node.ref) || node.nargs > 1 || r->n_places == MAX_PLACES || dc_ex_uses_op(pool, address, DC_EX_READ))
    return;
  if (!dc_ix_split(r->k->pool, address, r->at->param, &factor, &rest) || !dc_ex_is_int(pool, factor, &step) || !step) return;
  for (uint32_t j = 0; j < r->n_places; j++)
    if (is_at(r, &r->places[j], access, r->at)) return;
  const bool common = !dc_ex_uses_op(pool, rest, DC_EX_PARAM);
  r->places[r->n_places++] = (place){.c = node.ref, .address = as_in_first(r, address, r->at), .common = common};
}

static void find_places(row *r) {
  for (uint32_t j = 0; j < r->n; j++)
    for (uint32_t i = 0; i < r->loops[j]->body.n; i++) {
      const dc_write *w = r->loops[j]->body.v[i].write;
      r->at = r->loops[j];
      dc_kernel_each_read(r->k, w->value, add_place, r);
      dc_kernel_each_read(r->k, w->guard, add_place, r);
      if (!w->accumulator) add_place(r, r->k->pool, w->element);
    }
}

/* ---- what may stay in registers ---- */

static void note_read(void *context, const dc_pool *pool, dc_ex read) {
  row *r = context;
  dc_cid c = dc_ex_node(pool, read)->ref;
  if (!(r->k->bits[c] & r->k->bits[r->of->c])) return;
  if (r->at && is_at(r, r->of, read, r->at)) r->met = true;
  else r->other = true;
}

/* Does an access of a write to the place, or to what it may overlap, keep the place from staying? */
static void look_at_write(row *r, const dc_loop *l, const dc_write *w) {
  place *p = r->of;
  r->at = l, r->met = r->other = false;
  dc_kernel_each_read(r->k, w->value, note_read, r);
  dc_kernel_each_read(r->k, w->guard, note_read, r);
  dc_kernel_each_read(r->k, dc_read_address(r->k, w->element), note_read, r);
  if (r->other && p->written) p->fails = true;
  bool began = p->uses || r->met;
  if (r->met && p->uses) p->read_again = true;
  if (!(r->k->bits[w->out] & r->k->bits[p->c])) return;
  if (!l || !is_at(r, p, w->element, l)) {
    p->fails |= began;
    return;
  }
  p->fails |= w->accumulator || w->guard || w->meets.n || (w->wcr && l->schedule == DC_MAP_REDUCE);
  p->read_again |= w->wcr && p->uses;
  p->written = r->met = true, p->last = w;
}

static bool is_of(const row *r, const dc_loop *l) {
  for (uint32_t j = 0; j < r->n; j++)
    if (r->loops[j] == l) return true;
  return false;
}

static void look_at_body(row *r, const dc_loop *body, bool outside) {
  for (uint32_t j = 0; j < body->body.n; j++) {
    const dc_loop *l = body->body.v[j].loop;
    if (l) {
      bool ours = !outside && is_of(r, l), used = false;
      for (uint32_t i = 0; ours && i < l->body.n; i++) {
        look_at_write(r, l, l->body.v[i].write);
        used |= r->met;
      }
      r->of->uses += used;
      if (!ours) look_at_body(r, l, true);
    } else {
      look_at_write(r, NULL, body->body.v[j].write);
    }
  }
}

/* ---- moving it there ---- */

static dc_ex replaced(void *context, dc_pool *pool, dc_ex leaf) {
  const row *r = context;
  return dc_ex_node(pool, leaf)->op == DC_EX_READ && is_at(r, r->of, leaf, r->at) ? r->held : leaf;
}

/* The write goes to the register, and the last one's value to memory too; returns the writes that were added. */
static uint32_t move_write(row *r, dc_loop *l, uint32_t at) {
  dc_kernel *k = r->k;
  dc_write *w = l->body.v[at].write;
  dc_ex memory = w->element;
  if (w->wcr) {
    dc_dtype type = dc_dtype_compute((dc_dtype)dc_cont(k->graph, w->out)->dtype);
    w->value = dc_ex_prim2(k->pool, dc_wcr_prim((dc_wcr)w->wcr), dc_ex_cast(k->pool, type, r->held), dc_ex_cast(k->pool, type, w->value));
    w->wcr = DC_WCR_NONE, w->inside = 0;
  }
  w->out = dc_ex_node(k->pool, r->held)->ref, w->element = r->held;
  if (w != r->of->last) return 0;
  dc_kernel_add_write(k, l, at + 1, memory, r->held);
  return 1;
}

static void hold(row *r, place *p) {
  dc_kernel *k = r->k;
  dc_dtype type = (dc_dtype)dc_cont(k->graph, p->c)->dtype;
  dc_cid c = dc_kernel_add_register(k, "row", type, 1, &r->loops[0]->end);
  bool filled = false;
  k->own.v[c] = true, r->of = p;
  for (uint32_t j = 0; j < r->n; j++) {
    dc_loop *l = r->loops[j];
    dc_ex at = dc_ex_par(k->pool, l->param);
    bool used = false;
    r->at = l, r->held = dc_ex_read(k->pool, type, c, &at, 1);
    for (uint32_t i = 0; i < l->body.n; i++) {
      dc_write *w = l->body.v[i].write;
      dc_ex value = dc_ex_rewrite(k->pool, w->value, replaced, r), guard = w->guard ? dc_ex_rewrite(k->pool, w->guard, replaced, r) : 0;
      bool target = !w->accumulator && is_at(r, p, w->element, l), reads = value != w->value || guard != w->guard || (target && w->wcr);
      w->value = value, w->guard = guard;
      used |= reads || target;
      if (reads && !filled) {
        const dc_param from[] = {r->loops[0]->param};
        dc_ex address = dc_ex_subst(k->pool, p->address, from, &at, 1);
        dc_kernel_add_write(k, l, i++, r->held, dc_ex_read(k->pool, type, p->c, &address, 1));
      }
      filled |= reads || target;
      if (target) i += move_write(r, l, i);
    }
    if (used) l->turns = dc_loop_row_turns(k, l);
  }
}

/* Of places that as many loops use, those of one row come first. */
static void choose(row *r) {
  const uint32_t most = dc_kernel_row_words(r->k);
  uint32_t used = kept_words(r);
  for (uint32_t rank = 2 * r->n + 1; rank >= 4; rank--)
    for (uint32_t j = 0; j < r->n_places; j++) {
      place *p = &r->places[j];
      if (2 * p->uses + !p->common != rank || !p->read_again || p->fails || used + words_of(r, p->c) > most) continue;
      used += words_of(r, p->c);
      p->chosen = true;
    }
}

static void hold_best(row *r) {
  choose(r);
  for (uint32_t uses = r->n; uses >= 2; uses--)
    for (uint32_t j = 0; j < r->n_places; j++)
      if (r->places[j].chosen && r->places[j].uses == uses) hold(r, &r->places[j]);
}

/* ---- the pass ---- */

static void gather(dc_kernel *k, dc_loop *body, uint32_t first) {
  row r = {.k = k};
  const dc_loop *like = body->body.v[first].loop;
  for (uint32_t j = first; j < body->body.n && r.n < MAX_LOOPS; j++) {
    dc_loop *l = body->body.v[j].loop;
    if (l && is_free(k, l) && dc_loop_may_take_turns(k, l) && l->pack == like->pack && dc_loop_extent(k, l) == dc_loop_extent(k, like))
      r.loops[r.n++] = l;
  }
  if (r.n < 2) return;
  find_places(&r);
  for (uint32_t j = 0; j < r.n_places; j++) {
    r.of = &r.places[j];
    look_at_body(&r, body, false);
  }
  hold_best(&r);
}

static void find_rows(dc_kernel *k, dc_loop *body) {
  for (uint32_t j = 0; j < body->body.n; j++) {
    dc_loop *l = body->body.v[j].loop;
    if (l && is_free(k, l) && dc_loop_may_take_turns(k, l)) gather(k, body, j);
  }
}

void dc_kernel_rows(dc_kernel *k) {
  if (k->grid.team == 1 || k->grid.across) return;
  dc_kernel_each_loop(k, k->root, find_rows);
  find_rows(k, k->root);
  dc_kernel_settle(k);
}
