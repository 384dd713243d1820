/* Parts of containers, as memlets say them: a range for each dimension. */
#ifndef DCML_IR_FLOW_BOX_H
#define DCML_IR_FLOW_BOX_H

#include "ir/graph.h"

typedef struct {
  dc_ex begin, end; /* end 0: up to the extent; begin 0 as well: all of the dimension */
  dc_ex step;       /* 0: 1 */
  bool is_point;    /* written as an index */
} dc_box_range;

typedef struct {
  uint32_t rank;
  dc_box_range *range;
  bool is_all; /* nothing is known but the container */
} dc_box;

/* The whole container; is_all where it has no shape. */
dc_box dc_box_whole(dc_graph *graph, dc_arena *arena, dc_cid c);
/* Is a dimension's index a matter of code, not of a memlet?  Where it reads data, or lies outside for certain, as in what
 * is never run. */
bool dc_box_needs_index(dc_graph *graph, dc_cid c, uint32_t d, dc_ex index);
/* What an index list touches; a dimension whose index is a matter of code counts whole. */
dc_box dc_box_of_index(dc_graph *graph, dc_arena *arena, dc_cid c, const dc_ex *index);
/* What it touches while the parameters run over their ranges: ranges where that is certain, else whole dimensions. */
void dc_box_spread(dc_graph *graph, dc_box *box, dc_cid c, const dc_param *params, uint32_t n);
/* Grows `to` by `more`. */
void dc_box_join(dc_graph *graph, dc_box *to, const dc_box *more, dc_cid c);
/* Keeps it within the container. */
void dc_box_clip(dc_graph *graph, dc_box *box, dc_cid c);

#endif
