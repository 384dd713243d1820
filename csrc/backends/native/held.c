/* The list of copies, and whether what they were made from still holds what it did. */
#include "backends/native/held.h"

#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "base/fingerprint.h"

struct dc_held {
  dc_held *next;
  const void *source;
  void *layout, *data;
  dc_fingerprint of; /* the source as it was */
  bool made;         /* else no run has been done with it */
  uint32_t users;    /* holds that took it last, and runs */
};

/* ---- layouts that are bytes ---- */

static bool same_bytes(void *bytes, const void *a, const void *b) { return memcmp(a, b, (size_t)(uintptr_t)bytes) == 0; }

static void *clone_bytes(void *bytes, const void *layout) {
  void *own = malloc((size_t)(uintptr_t)bytes);
  return own ? memcpy(own, layout, (size_t)(uintptr_t)bytes) : NULL;
}

static void drop_bytes(void *bytes, void *layout) { (void)bytes, free(layout); }

const char *dc_holder_open(size_t layout_bytes, void **handle) {
  dc_holder *holder = malloc(sizeof *holder);
  if (!holder) return "out of memory";
  *holder = (dc_holder){.library = (void *)(uintptr_t)layout_bytes, .same = same_bytes, .clone = clone_bytes, .drop = drop_bytes};
  pthread_mutex_init(&holder->lock, NULL);
  return *handle = holder, NULL;
}

void dc_holder_close(void *handle) {
  dc_holder *holder = handle;
  pthread_mutex_destroy(&holder->lock);
  free(holder);
}

/* ---- which operands ---- */

bool dc_hold_pays(const dc_graph *graph, dc_nid node, int buffer, dc_hold *hold) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  if (buffer < 0 || buffer >= (int)lib->n_in || !lib->in[buffer]) return false;
  const dc_container *c = dc_cont(graph, lib->in[buffer]);
  hold->moves = c->role == DC_ROLE_INPUT;
  hold->changes = hold->moves || c->role == DC_ROLE_PARAM;
  if (!hold->changes) return (c->role == DC_ROLE_CONST && c->data) || c->is_once;
  return !graph->trained && !lib->wrt && (!hold->moves || buffer == 1); /* inputs 0 are images */
}

bool dc_hold_serves(dc_hold *hold, const void *source) {
  if (!hold->moves) return true;
  pthread_mutex_lock(&hold->holder->lock);
  bool again = hold->seen == source;
  hold->seen = source;
  pthread_mutex_unlock(&hold->holder->lock);
  return again;
}

/* ---- contents ---- */

enum { PART_BYTES = 1 << 18, FEW_PARTS = 2 };

static dc_fingerprint print_of_part(const char *data, uint64_t bytes, uint64_t k) {
  uint64_t rest = bytes - k * PART_BYTES;
  return dc_fingerprint_of(data + k * PART_BYTES, rest < PART_BYTES ? rest : PART_BYTES);
}

/* The same for any number of threads. */
static dc_status print_of(const void *data, uint64_t bytes, dc_fingerprint *out) {
  uint64_t n = (bytes + PART_BYTES - 1) / PART_BYTES;
  dc_fingerprint few[FEW_PARTS], *parts = n <= FEW_PARTS ? few : malloc(n * sizeof *parts);
  if (!parts) return dc_error(DC_ERR_MEMORY, "out of memory");
#pragma omp parallel for schedule(static) if (n >= FEW_PARTS)
  for (uint64_t k = 0; k < n; k++) parts[k] = print_of_part(data, bytes, k);
  *out = (dc_fingerprint){0, 0};
  for (uint64_t k = 0; k < n; k++) *out = dc_fingerprint_after(*out, parts[k]);
  if (parts != few) free(parts);
  return DC_OK;
}

/* ---- the list; its lock is held ---- */

static void leave(dc_holder *holder, dc_held *held) {
  if (!held || --held->users) return;
  dc_held **at = &holder->first;
  while (*at != held) at = &(*at)->next;
  *at = held->next;
  holder->drop(holder->library, held->layout);
  free(held->data);
  free(held);
}

static dc_held *find(const dc_holder *holder, const void *source, const void *layout) {
  dc_held *held = holder->first;
  while (held && !(held->source == source && holder->same(holder->library, held->layout, layout))) held = held->next;
  return held;
}

static dc_held *add(dc_hold *hold, const void *source) {
  dc_holder *holder = hold->holder;
  dc_held *held = calloc(1, sizeof *held);
  if (!held) return NULL;
  *held = (dc_held){.next = holder->first, .source = source, .layout = holder->clone(holder->library, hold->layout)};
  if (held->layout) held->data = aligned_alloc(DC_MEMORY_ALIGN, dc_memory_aligned(hold->bytes));
  if (held->data) return holder->first = held;
  if (held->layout) holder->drop(holder->library, held->layout);
  free(held);
  return NULL;
}

static dc_held *take(dc_hold *hold, const void *source) {
  dc_held *held = find(hold->holder, source, hold->layout);
  if (!held) held = add(hold, source);
  if (!held) return NULL;
  held->users++;
  if (held == hold->last) return held;
  leave(hold->holder, hold->last);
  held->users++;
  return hold->last = held;
}

static dc_status make(dc_held *held, dc_fingerprint print, dc_pack pack, void *self) {
  if (held->made && dc_fingerprint_same(held->of, print)) return DC_OK;
  held->made = false;
  DC_TRY(pack(self, held->source, held->data));
  held->made = true, held->of = print;
  return DC_OK;
}

/* ---- runs ---- */

dc_status dc_held_take(dc_hold *hold, const void *source, dc_pack pack, void *self, dc_held **out, void **data) {
  dc_fingerprint print = {0, 0};
  if (hold->changes) DC_TRY(print_of(source, hold->source_bytes, &print));
  pthread_mutex_lock(&hold->holder->lock);
  dc_held *held = take(hold, source);
  dc_status status = held ? make(held, print, pack, self) : dc_error(DC_ERR_MEMORY, "out of memory");
  if (status) leave(hold->holder, held), held = NULL;
  pthread_mutex_unlock(&hold->holder->lock);
  *out = held;
  if (held) *data = held->data;
  return status;
}

void dc_held_give(dc_hold *hold, dc_held *held) {
  pthread_mutex_lock(&hold->holder->lock);
  leave(hold->holder, held);
  pthread_mutex_unlock(&hold->holder->lock);
}

void dc_hold_end(dc_hold *hold) {
  if (!hold->holder) return;
  dc_held_give(hold, hold->last);
  hold->last = NULL;
}
