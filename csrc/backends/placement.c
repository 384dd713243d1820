/* Placement: blocks lie in gaps between those that live when they do.
 *
 * Threads take the elements of an array in order, so that its halves belong to different threads, whose cores may share no
 * cache.  What a thread writes had better not lie where another just wrote: of all places in all gaps the one is best at which
 * most of a block lies in the same half of what lay there shortly before, and of what will shortly after, unless it is larger than
 * caches; then the smallest gap. */
#include "backends/placement.h"

#include <stdlib.h>

#include "backends/allocator.h"

enum { MAX_LIVING = 512 };
enum { NEAR_BLOCKS = 8, NEAR_STEPS = 256, PROBES = 8 };
enum { SMALL_BYTES = 1 << 16 /* few lines of a cache */, LARGE_BYTES = 64 << 20 /* gone from all caches soon */ };

void dc_placement_init(dc_placement *p, dc_arena *arena, uint32_t n_steps) {
  *p = (dc_placement){.arena = arena, .leaves = 2};
  while (p->leaves < n_steps + 2) p->leaves *= 2;
  DC_PUSH(arena, &p->entries, (dc_block_entry){0});
  p->whole = DC_NEW_ARRAY(arena, uint32_t, 2 * p->leaves);
  p->starting = DC_NEW_ARRAY(arena, uint32_t, p->leaves), p->ending = DC_NEW_ARRAY(arena, uint32_t, p->leaves);
  p->whole_top = DC_NEW_ARRAY(arena, uint64_t, 2 * p->leaves);
  p->some_top = DC_NEW_ARRAY(arena, uint64_t, 2 * p->leaves);
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void enter(dc_placement *p, uint32_t *list, const dc_block *b) {
  DC_PUSH(p->arena, &p->entries, ((dc_block_entry){b, *list}));
  *list = p->entries.n - 1;
}

static void enter_at(dc_placement *p, uint32_t node, const dc_block *b, uint64_t end) {
  enter(p, &p->whole[node], b);
  p->whole_top[node] = larger(p->whole_top[node], end);
  for (; node && p->some_top[node] < end; node /= 2) p->some_top[node] = end;
}

void dc_placement_enter(dc_placement *p, const dc_block *b) {
  uint64_t end = b->offset + b->bytes;
  enter(p, &p->starting[b->first], b);
  enter(p, &p->ending[b->last], b);
  for (uint32_t l = b->first + p->leaves, r = b->last + 1 + p->leaves; l < r; l /= 2, r /= 2) {
    if (l % 2) enter_at(p, l++, b, end);
    if (r % 2) enter_at(p, --r, b, end);
  }
}

/* ---- what lives when a block does ---- */

/* The highest end of it. */
static uint64_t top_of(const dc_placement *p, const dc_block *b) {
  uint64_t top = 0;
  for (uint32_t l = b->first + p->leaves, r = b->last + 1 + p->leaves; l < r; l /= 2, r /= 2) {
    if (l % 2) top = larger(top, p->some_top[l++]);
    if (r % 2) top = larger(top, p->some_top[--r]);
  }
  for (uint32_t l = b->first + p->leaves, r = b->last + p->leaves; l; l /= 2, r /= 2)
    top = larger(top, larger(p->whole_top[l], p->whole_top[r]));
  return top;
}

static uint32_t collect(const dc_placement *p, uint32_t list, const dc_block **out, uint32_t n, uint32_t most) {
  for (; list && n < most; list = p->entries.v[list].next) out[n++] = p->entries.v[list].block;
  return n;
}

/* At most MAX_LIVING + 1. */
static uint32_t living_with(const dc_placement *p, const dc_block *b, const dc_block **out) {
  uint32_t n = 0;
  for (uint32_t node = b->first + p->leaves; node; node /= 2) n = collect(p, p->whole[node], out, n, MAX_LIVING + 1);
  for (uint32_t s = b->first + 1; s <= b->last && n <= MAX_LIVING; s++) n = collect(p, p->starting[s], out, n, MAX_LIVING + 1);
  return n;
}

static int by_offset(const void *a, const void *b) {
  uint64_t x = (*(const dc_block *const *)a)->offset, y = (*(const dc_block *const *)b)->offset;
  return (x > y) - (x < y);
}

/* ---- places ---- */

/* The nearer to a block's life, the earlier in the list. */
typedef struct {
  const dc_block *v[NEAR_BLOCKS];
  uint32_t n;
} dead;

typedef struct {
  uint64_t at, beyond, gap; /* beyond: bytes that lie outside the room */
  uint32_t strange;         /* probes that lie in another half of what lies there before or after */
} place;

typedef struct {
  const dc_block *block;
  uint64_t room;
  dead before, after;
  place best;
} search;

static void look_around(const dc_placement *p, search *s) {
  const dc_block *b = s->block;
  if (b->bytes < SMALL_BYTES || b->bytes > LARGE_BYTES) return;
  for (uint32_t k = 1; k <= NEAR_STEPS && k < b->first && s->before.n < NEAR_BLOCKS; k++)
    s->before.n = collect(p, p->ending[b->first - k], s->before.v, s->before.n, NEAR_BLOCKS);
  for (uint32_t k = 1; k <= NEAR_STEPS && b->last + k < p->leaves && s->after.n < NEAR_BLOCKS; k++)
    s->after.n = collect(p, p->starting[b->last + k], s->after.v, s->after.n, NEAR_BLOCKS);
}

static uint32_t strange_probes(const dead *d, uint64_t at, uint64_t bytes) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < PROBES; k++) {
    uint64_t probe = at + (2 * k + 1) * bytes / (2 * PROBES);
    for (uint32_t i = 0; i < d->n; i++) {
      const dc_block *o = d->v[i];
      if (probe < o->offset || probe >= o->offset + o->bytes) continue;
      n += (probe - o->offset >= o->bytes / 2) != (k >= PROBES / 2);
      break;
    }
  }
  return n;
}

static bool is_better(const place *a, const place *b) {
  if (a->beyond != b->beyond) return a->beyond < b->beyond;
  if (a->strange != b->strange) return a->strange < b->strange;
  return a->gap != b->gap ? a->gap < b->gap : a->at < b->at;
}

static void try_place(search *s, uint64_t at, uint64_t gap) {
  uint64_t bytes = s->block->bytes, end = at + bytes;
  place p = {at, end > s->room ? end - s->room : 0, gap, 0};
  if (p.beyond > s->best.beyond) return;
  p.strange = strange_probes(&s->before, at, bytes) + strange_probes(&s->after, at, bytes);
  if (is_better(&p, &s->best)) s->best = p;
}

/* Around the middles of others that lie in the gap at other times. */
static void try_middles(search *s, const dead *d, uint64_t from, uint64_t to) {
  for (uint32_t i = 0; i < d->n; i++) {
    uint64_t middle = d->v[i]->offset + d->v[i]->bytes / 2, half = s->block->bytes / 2;
    uint64_t at = middle < half ? 0 : (middle - half) / DC_MEMORY_ALIGN * DC_MEMORY_ALIGN;
    if (from <= at && at <= to - s->block->bytes) try_place(s, at, to - from);
  }
}

static void try_gap(search *s, uint64_t from, uint64_t to) {
  if (to < from + s->block->bytes) return;
  try_place(s, from, to - from);
  try_place(s, to - s->block->bytes, to - from);
  try_middles(s, &s->before, from, to);
  try_middles(s, &s->after, from, to);
}

/* On top of all where very many live. */
static uint64_t best_offset(const dc_placement *p, uint64_t room, const dc_block *b) {
  const dc_block *living[MAX_LIVING + 1];
  uint32_t n = living_with(p, b, living);
  if (n > MAX_LIVING) return top_of(p, b);
  search s = {.block = b, .room = room, .best = {.beyond = UINT64_MAX}};
  look_around(p, &s);
  qsort(living, n, sizeof *living, by_offset);
  uint64_t end = 0;
  for (uint32_t k = 0; k < n; k++) {
    try_gap(&s, end, living[k]->offset);
    end = larger(end, living[k]->offset + living[k]->bytes);
  }
  try_gap(&s, end, larger(room, end + b->bytes));
  return s.best.at;
}

bool dc_placement_find(dc_placement *p, uint64_t room, bool must, dc_block *b) {
  if (must && b->bytes > room) return false;
  b->offset = best_offset(p, room, b);
  if (must && b->offset > room - b->bytes) return false;
  return dc_placement_enter(p, b), true;
}
