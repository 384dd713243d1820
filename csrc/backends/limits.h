/* Whether what a program asks of time and memory is more than sense allows. */
#ifndef DCML_BACKENDS_LIMITS_H
#define DCML_BACKENDS_LIMITS_H

#include "ir/graph.h"

/* An error that names the node that asks for most, if all nodes together ask for more steps (by node, in the order
 * of `nodes`) than the values that the caller holds justify. */
DC_MUST_USE dc_status dc_limits_check_steps(dc_graph *graph, const dc_nid *nodes, const double *steps, uint32_t n,
                                            uint64_t held_bytes);
/* The memory that a caller who holds so many bytes may ask for. */
double dc_limits_memory_bytes(uint64_t held_bytes);

#endif
