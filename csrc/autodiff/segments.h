/* Cuts a list of nodes into segments of which one at a time is computed again (Chen et al., "Training Deep Nets with
 * Sublinear Memory Cost", 2016): only what one segment hands to later ones stays in memory. */
#ifndef DCML_AUTODIFF_SEGMENTS_H
#define DCML_AUTODIFF_SEGMENTS_H

#include <stdbool.h>

#include "base/arena.h"

typedef struct {
  uint32_t n_nodes, n_values;
  const uint32_t *born,
      *last; /* by value: the node that writes it first, and the one that reads it last; born == last: no other node does */
  const int64_t *bytes;        /* by value; 0: none of these */
  const bool *kept;            /* by value: it is in memory while its segment is differentiated */
} dc_segments;

/* by node: the number of its segment.  Linear in nodes and values. */
void dc_segments_choose(const dc_segments *problem, uint32_t *segment);

#endif
