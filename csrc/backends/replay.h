/* Recordings of runs: what many short steps put on a stream, kept by a device as one thing that it starts at once.
 *
 * A recording has the addresses of all buffers built in, so that it serves the runs that come with the same ones.  It is
 * made when addresses are seen again, and given up where they are always new.  This file knows when, and not how. */
#ifndef DCML_BACKENDS_REPLAY_H
#define DCML_BACKENDS_REPLAY_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct dc_replay {
  void **table;  /* addresses by container */
  uint64_t used; /* when */
  uint32_t users;
  bool busy;       /* somebody records */
  void *recording; /* the program's; NULL: its addresses were only seen */
} dc_replay;

enum { DC_REPLAYS = 6 };
/* All zero at the start; the caller locks around each function. */
typedef struct {
  dc_replay items[DC_REPLAYS];
  uint32_t n, vain; /* addresses in a row that were new */
  uint64_t clock;
  bool off;
} dc_replays;

typedef enum { DC_REPLAY_NOT, DC_REPLAY_RECORD, DC_REPLAY_START } dc_replay_kind;
/* What a run with these n addresses is to do; unless that is NOT, *item is held until dc_replays_give.  What makes room is
 * left in *gone, NULL if nothing does. */
dc_replay_kind dc_replays_take(dc_replays *replays, void *const *table, uint32_t n, dc_replay **item, void **gone);
/* recording: what was recorded; NULL after START, or where it failed, and then nothing is tried again. */
void dc_replays_give(dc_replays *replays, dc_replay *item, dc_replay_kind kind, void *recording);
/* Nobody holds any.  Calls drop for each recording. */
void dc_replays_end(dc_replays *replays, void (*drop)(void *context, void *recording), void *context);

#endif
