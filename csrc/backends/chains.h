/* Chains: steps that follow one another and compute each channel by itself, as normalisations and depthwise convolutions do, are run
 * some channels at a time, so that what one step writes the next one reads from a cache.
 *
 *     map c in 0:144 { Y[n, c, ..] = normalised X[n, c, ..] }            channels 0 to 3 of the three, then 4 to 7, ...
 *     Z = Conv(Y, W) {group = 144}                                      by one thread, and 72 to 75, ... by another
 *     map c in 0:144 { Z[n, c, ..] normalised in its turn }
 *
 * An array that no other step touches is but a few channels of each thread's, again and again, and need not reach memory.  What is
 * computed, and in which order, stays the same to the last bit. */
#ifndef DCML_BACKENDS_CHAINS_H
#define DCML_BACKENDS_CHAINS_H

#include "backends/plan.h"

enum { DC_AXIS_WHOLE = -1, DC_AXIS_UNUSED = -2 };

/* What one iteration of a step's outermost loop, or one channel of a call, does to a container: it touches the elements whose
 * index in dimension `axis` is its own; DC_AXIS_WHOLE: any. */
typedef struct {
  dc_cid c, root;
  int8_t axis;
  bool is_written;
} dc_chain_use;

/* extent: iterations, or channels; 0: they do not run one by one. */
typedef struct {
  int64_t extent;
  dc_chain_use *uses;
  uint32_t n;
} dc_chain_step;

typedef struct {
  uint32_t first, end; /* steps, the last one excluded */
  int64_t extent, at_once;
} dc_chain;

struct dc_chains {
  dc_chain *v;
  uint32_t n;
  int64_t *folded; /* by container: bytes from a channel to the next, where threads keep only those at hand; else 0 */
};

/* Reads a node that a kernel will run; asks the graph's pool, which may grow. */
void dc_chain_read_node(dc_graph *graph, dc_nid node, dc_arena *arena, dc_chain_step *out);
/* Reads a call that is bound to sizes. */
void dc_chain_read_call(const dc_graph *graph, dc_nid node, const dc_native_call *call, dc_arena *arena, dc_chain_step *out);

/* plan: of steps that run one by one. */
void dc_chains_find(const dc_graph *graph, const dc_chain_step *steps, uint32_t n_steps, const dc_plan *plan, const int64_t *symbols,
                    uint32_t threads, dc_arena *arena, dc_chains *out);

#endif
