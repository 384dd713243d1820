/* What the pass bands will do, for passes that run before it. */
#ifndef DCML_PASSES_BANDS_H
#define DCML_PASSES_BANDS_H

#include "ir/graph.h"

/* Will a map of rows take along the sums at a place of the scope, once fusion has made it?  Who asks leaves them whole:
 * where the pass finds another reason against it, later, they are slower for that. */
bool dc_bands_expect(dc_graph *graph, dc_arena *arena, dc_scope *scope, uint32_t at);

#endif
