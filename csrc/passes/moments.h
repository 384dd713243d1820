/* Moments: sums of squared distances from what is made of a sum of the same data, as a variance is.
 *
 *     sum (x - m)^2  =  sum (x - k)^2 + (m - k) (n (m - k) - 2 sum (x - k))     for each k, n terms
 *
 * The right side needs no m before its terms are summed up, so that one pass over the data gives mean and variance.  Where k is one
 * of the x nothing large cancels, unless that one lies far from all others (Chan, Golub and LeVeque, 1983). */
#ifndef DCML_PASSES_MOMENTS_H
#define DCML_PASSES_MOMENTS_H

#include "ir/graph.h"

/* By container that there was when it was made: the data whose sum it is, or is made of; 0: of none. */
typedef struct {
  dc_cid *data;
  uint32_t n;
} dc_moments;

dc_moments dc_moments_find(const dc_graph *graph, dc_arena *arena);
/* Is a term of a reduction the square of such a distance?  x: depends on the reduction; m: does not. */
bool dc_moment_is(dc_graph *graph, const dc_moments *moments, const dc_map *reduce, const dc_tasklet *t, dc_ex *x, dc_ex *m);
/* x of the first iteration, if there is one. */
dc_ex dc_moment_first(dc_graph *graph, const dc_map *reduce, dc_ex x);
/* The sum: squares and distances are the sums of (x - k)^2 and x - k over all iterations, whose number is `terms`. */
dc_ex dc_moment_sum(dc_pool *pool, dc_ex m, dc_ex k, dc_ex squares, dc_ex distances, dc_ex terms);

#endif
