/* Matrix products inside maps, as the passes see them that copy operands:
 *
 *     map n, v { reduce k { r sum= X[n, k] * W[k, v] } .. }     v is the column
 *
 * or the square or the size of X[n, k] - W[k, v] in the place of the product. */
#ifndef DCML_PASSES_PRODUCT_H
#define DCML_PASSES_PRODUCT_H

#include "ir/graph.h"

typedef struct {
  dc_nid top;         /* the node of a state that holds it */
  dc_param column;    /* the last parameter of the map around the reduction */
  const dc_map *reduce;
  const dc_nid *maps; /* around the reduction, from the top on; the last one has the column */
  uint32_t n_maps;
  dc_term term;
  dc_ex factors[2];
} dc_product_place;

/* Is the tasklet, which lies in these maps, a sum of products of two factors, or of other terms of two?  *reduce is the place's, and belongs to the caller. */
bool dc_product_find(const dc_graph *graph, dc_nid top, dc_nid tasklet, const dc_nid *maps, uint32_t n_maps, dc_map *reduce,
                     dc_product_place *out);
bool dc_product_moves_by_one(dc_pool *pool, dc_ex index, dc_param p);
/* How often each element is read: iterations of the loops around the sum that do not move the operand, few of each. */
double dc_product_reads_of_each(dc_graph *graph, const dc_product_place *p, dc_ex read);
bool dc_product_writes(const dc_graph *graph, const dc_product_place *p, dc_cid c);
/* Does a copy of `read` in another order pay, which the column moves and not the other factor?  No order is asked about. */
bool dc_product_copy_pays(dc_graph *graph, const dc_product_place *p, dc_ex read, dc_ex other);

#endif
