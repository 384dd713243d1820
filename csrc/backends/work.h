/* How much a node does for given sizes, known before it runs; and whether that is more than sense allows. */
#ifndef DCML_BACKENDS_WORK_H
#define DCML_BACKENDS_WORK_H

#include "backends/plan.h"

typedef struct {
  double work;    /* tasklets that are run: element operations */
  double visits;  /* iterations of its loops, where a nest around an empty loop is skipped whole */
  double walked;  /* the same where the outer loops of such a nest are walked all the same */
} dc_work;

/* Of maps and tasklets, by node; of library calls nothing.  A loop whose bounds depend on data counts as a few
 * iterations; one whose bounds depend on outer loops, as at the first or the last of theirs, whichever has more. */
DC_MUST_USE dc_status dc_work_count(const dc_graph *graph, const dc_nid *nodes, uint32_t n, const int64_t *symbols, dc_work *out);
/* Does a map run no tasklet at all?  What a REDUCE map sets to the identity is not asked. */
bool dc_map_is_idle(const dc_graph *graph, dc_nid map, const int64_t *symbols);

/* An error that names the node that asks for most, if all nodes together ask for more steps (by node, in the order
 * of `nodes`) than the values that the caller holds justify. */
DC_MUST_USE dc_status dc_work_judge(dc_graph *graph, const dc_nid *nodes, const double *steps, uint32_t n,
                                    uint64_t held_bytes);
/* The memory that a caller who holds so many bytes may ask for. */
double dc_memory_justified_bytes(uint64_t held_bytes);

#endif
