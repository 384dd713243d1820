/* See replay.h. */
#include "backends/replay.h"

#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 64 }; /* runs with new addresses, after which nobody hopes for old ones */

/* A free place, or that of the addresses that were met longest ago; NULL: all are in use. */
static dc_replay *make_room(dc_replays *all, void **gone) {
  if (all->n < DC_REPLAYS) return &all->items[all->n++];
  dc_replay *oldest = NULL;
  for (uint32_t k = 0; k < all->n; k++) {
    dc_replay *r = &all->items[k];
    if (!r->users && !r->busy && (!oldest || r->used < oldest->used)) oldest = r;
  }
  if (oldest) *gone = oldest->recording, oldest->recording = NULL;
  return oldest;
}

static void note(dc_replays *all, void *const *table, uint32_t n, void **gone) {
  dc_replay *r = make_room(all, gone);
  if (++all->vain > PATIENCE) all->off = true;
  if (!r) return;
  if (!r->table) r->table = calloc(n, sizeof *r->table);
  if (!r->table) abort();
  memcpy(r->table, table, n * sizeof *table);
  r->used = all->clock;
}

dc_replay_kind dc_replays_take(dc_replays *all, void *const *table, uint32_t n, dc_replay **item, void **gone) {
  *gone = NULL, *item = NULL;
  if (all->off) return DC_REPLAY_NOT;
  all->clock++;
  dc_replay *r = NULL;
  for (uint32_t k = 0; k < all->n && !r; k++)
    if (memcmp(all->items[k].table, table, n * sizeof *table) == 0) r = &all->items[k];
  if (!r) return note(all, table, n, gone), DC_REPLAY_NOT;
  all->vain = 0, r->used = all->clock;
  if (r->busy) return DC_REPLAY_NOT;
  *item = r, r->users++;
  if (r->recording) return DC_REPLAY_START;
  return r->busy = true, DC_REPLAY_RECORD;
}

void dc_replays_give(dc_replays *all, dc_replay *item, dc_replay_kind kind, void *recording) {
  item->users--;
  if (kind != DC_REPLAY_RECORD) return;
  item->busy = false, item->recording = recording;
  all->off |= !recording;
}

void dc_replays_end(dc_replays *all, void (*drop)(void *context, void *recording), void *context) {
  for (uint32_t k = 0; k < all->n; k++) {
    if (all->items[k].recording) drop(context, all->items[k].recording);
    free(all->items[k].table);
  }
  *all = (dc_replays){.off = true};
}
