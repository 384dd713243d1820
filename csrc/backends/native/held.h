/* Copies of operands in the layouts that libraries work in, which calls share: a constant's is made in the first run of all, a
 * parameter's again where a run finds that its contents have changed.  They may be written past every counter, so each run reads
 * them, which takes a third of the time of making the copy or less. */
#ifndef DCML_BACKENDS_NATIVE_HELD_H
#define DCML_BACKENDS_NATIVE_HELD_H

#include <pthread.h>

#include "backends/backend.h"

typedef struct dc_held dc_held;

/* The copies of one opened library. */
typedef struct {
  pthread_mutex_t lock;
  dc_held *first;
  void *library;
  /* Layouts are the library's: are two the same, one of the list's own or NULL, and its end. */
  bool (*same)(void *library, const void *a, const void *b);
  void *(*clone)(void *library, const void *layout);
  void (*drop)(void *library, void *layout);
} dc_holder;

/* A holder of a routine of our own, whose layouts are so many bytes, gaps included; opened and closed with it. */
const char *dc_holder_open(size_t layout_bytes, void **handle);
void dc_holder_close(void *handle);

/* An operand as a call wants it: `bytes` in a layout. */
typedef struct {
  dc_holder *holder;
  const void *layout;
  uint64_t bytes, source_bytes;
  bool changes;  /* a parameter, or an argument: */
  bool moves;    /* which is held where two runs find it at one place */
  /* Guarded by the holder's lock: */
  const void *seen; /* where the last run found the operand */
  dc_held *last;    /* what it took, which is there for the next one */
} dc_hold;

/* Is the operand of a forward convolution or product one that runs find as it was: a constant, or, where nothing is differentiated,
 * a parameter or an argument in the place of one?  Tells the hold which. */
bool dc_hold_pays(const dc_graph *graph, dc_nid node, int buffer, dc_hold *hold);
/* Does the run find the operand where it is to be held? */
bool dc_hold_serves(dc_hold *hold, const void *source);

/* The copy of `source`, made by `pack` where it is not there or has become another; to be given back after the run. */
typedef dc_status (*dc_pack)(void *self, const void *source, void *to);
DC_MUST_USE dc_status dc_held_take(dc_hold *hold, const void *source, dc_pack pack, void *self, dc_held **out, void **data);
void dc_held_give(dc_hold *hold, dc_held *held); /* NULL is allowed */
void dc_hold_end(dc_hold *hold);

#endif
