/* What nodes do for given sizes, and what that costs: the one price list.
 *
 * Prices are nanoseconds of a vectorised loop.  They are compared with one another - computing again with storing, a
 * loop with the start of threads - never with a clock, so it is their ratios that matter. */
#ifndef DCML_IR_WORK_H
#define DCML_IR_WORK_H

#include "ir/graph.h"

/* ---- prices ---- */

/* Of an expression by itself, without what it is computed from. */
double dc_ex_cost(const dc_pool *pool, dc_ex e);
/* Of a value with all that it is computed from, each distinct part once.  Addresses are free: they are shared and hoisted. */
typedef struct {
  double cost;       /* without the reads */
  double operations; /* as people count them */
  uint32_t reads;    /* those inside indices included */
  bool by_data;      /* an index reads data */
} dc_value_work;
dc_value_work dc_ex_work(const dc_pool *pool, dc_ex value);

/* ---- sizes ---- */

#define DC_WORK_MOST 1e150 /* what counts are cut off at: products of such numbers are finite */

/* Iterations of a loop if they are a constant, else DC_WORK_MOST. */
double dc_param_trips(dc_pool *pool, dc_param p);
/* The same, with a guess at what no constant bounds. */
double dc_param_likely_trips(dc_pool *pool, dc_param p);
/* A guess at the symbols, by dc_sym, for choices that must not depend on run-time sizes. */
void dc_work_guess(const dc_pool *pool, int64_t *symbols);
double dc_container_elements(const dc_graph *graph, dc_cid c, const int64_t *symbols);

typedef struct {
  double work;       /* tasklets that are run: element operations */
  double visits;     /* iterations of its loops, where a nest around an empty loop is skipped whole */
  double walked;     /* the same where the outer loops of such a nest are walked all the same */
  double operations; /* scalar operations, if values are counted; ... */
  double cost;       /* ... and nanoseconds, reads of memory included */
} dc_work;

/* Of maps and tasklets, by node; of library calls nothing.  symbols: values by dc_sym; NULL: they are unknown, and a loop
 * over one has DC_WORK_MOST iterations.  A loop whose bounds depend on data counts as a few iterations; one whose bounds
 * depend on outer loops, as at the first or the last of theirs, whichever has more. */
void dc_work_count(dc_graph *graph, const dc_nid *nodes, uint32_t n, const int64_t *symbols, bool values, dc_work *out);
/* Does a map run no tasklet at all?  What a REDUCE map sets to the identity is not asked. */
bool dc_map_is_idle(const dc_graph *graph, dc_nid map, const int64_t *symbols);
/* Sizes of the distinct containers that a node reads and writes.  bytes: by container; seen: by container, zero before the
 * first node. */
uint64_t dc_node_bytes(const dc_graph *graph, dc_nid node, const uint64_t *bytes, dc_nid *seen);

#endif
