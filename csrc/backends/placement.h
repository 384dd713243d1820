/* Where blocks of memory lie that live at known times. */
#ifndef DCML_BACKENDS_PLACEMENT_H
#define DCML_BACKENDS_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

/* Sizes and offsets are multiples of DC_MEMORY_ALIGN. */
typedef struct {
  uint64_t bytes, offset;
  uint32_t first, last; /* steps, from 1 on */
} dc_block;

typedef struct {
  const dc_block *block;
  uint32_t next; /* the entry before, 0 at the end */
} dc_block_entry;

/* A tree over the steps: node 1 stands for all, node k for what 2k and 2k + 1 stand for, node `leaves` + s for step s.
 * A life is entered at the few nodes that make it up. */
typedef struct {
  dc_arena *arena;
  uint32_t leaves;
  DC_VEC(dc_block_entry) entries;         /* [0] unused */
  uint32_t *whole, *starting, *ending;    /* by tree node: lives entered there; by step: lives that start or end there */
  uint64_t *whole_top, *some_top;         /* by tree node: the highest end of what lives at all its steps, or at some */
} dc_placement;

void dc_placement_init(dc_placement *p, dc_arena *arena, uint32_t n_steps);
/* A block that lies at its offset. */
void dc_placement_enter(dc_placement *p, const dc_block *b);
/* Gives a block an offset at which nothing else lies in its life, and enters it.  Room: bytes that it stays within if it can;
 * where it must, false, and nothing is done if it cannot. */
bool dc_placement_find(dc_placement *p, uint64_t room, bool must, dc_block *b);

#endif
