/* Inside the public transformations: what a run is given, and a function for each row of table.c.
 *
 * Each adds the number of places where it applied to *count, and changes nothing where that is 0.  It keeps what the
 * graph computes, and after so many runs it applies nowhere. */
#ifndef DCML_PASSES_TRANSFORMS_TRANSFORMS_H
#define DCML_PASSES_TRANSFORMS_TRANSFORMS_H

#include "passes/passes.h"

enum { DC_MAX_OPTIONS = 4 };
typedef struct {
  int64_t values[DC_MAX_RANK];
  uint32_t n; /* 0: not given */
} dc_transform_option;

typedef struct {
  const dc_transform_tools *tools;
  dc_graph *graph;
  bool *fixed; /* by node, up to n_fixed: neither given nor inside a map that is; nodes from there on are new */
  uint32_t n_fixed;
  const bool *chosen; /* by container; NULL: all are meant */
  bool all;           /* nothing was given: everything is meant */
  dc_transform_option options[DC_MAX_OPTIONS]; /* in the order of the row */
} dc_transform;

static inline bool dc_transform_means(const dc_transform *t, dc_nid node) { return node >= t->n_fixed || !t->fixed[node]; }

/* Calls `each` on every scope, inner ones first; it may change the scope and add nodes. */
typedef void (*dc_scope_fn)(const dc_transform *t, dc_scope *scope, uint32_t *count);
void dc_transform_each_scope(const dc_transform *t, dc_scope_fn each, uint32_t *count);

typedef dc_status (*dc_transform_fn)(const dc_transform *t, uint32_t *count);

/* fusion.c */
dc_status dc_transform_map_fusion(const dc_transform *t, uint32_t *count);
dc_status dc_transform_subgraph_fusion(const dc_transform *t, uint32_t *count);
/* tasklets.c */
dc_status dc_transform_tasklet_fusion(const dc_transform *t, uint32_t *count);
dc_status dc_transform_tasklet_fission(const dc_transform *t, uint32_t *count);
/* maps.c */
dc_status dc_transform_map_expansion(const dc_transform *t, uint32_t *count);
dc_status dc_transform_map_collapse(const dc_transform *t, uint32_t *count);
dc_status dc_transform_map_tiling(const dc_transform *t, uint32_t *count);
dc_status dc_transform_trivial_ranges(const dc_transform *t, uint32_t *count);
dc_status dc_transform_vectorization(const dc_transform *t, uint32_t *count);
/* copies.c */
dc_status dc_transform_redundant_array(const dc_transform *t, uint32_t *count);
/* constants.c */
dc_status dc_transform_constant_folding(const dc_transform *t, uint32_t *count);
dc_status dc_transform_input_to_constant(const dc_transform *t, uint32_t *count);
/* states.c */
dc_status dc_transform_state_fusion(const dc_transform *t, uint32_t *count);

#endif
