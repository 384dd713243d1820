/* Memory plan of a program under one binding: where every temporary lies. */
#ifndef DCML_BACKENDS_PLAN_H
#define DCML_BACKENDS_PLAN_H

#include "ir/graph.h"

typedef struct {
  uint64_t arena_bytes, saved_bytes;
  uint64_t held_bytes; /* of inputs, weights and constants: what is there before the run */
  uint64_t *bytes;    /* by container: size in bytes */
  uint64_t *offset;   /* by container: into the arena (TEMP) or the saved block (SAVED, if written) */
  dc_cid *root;       /* by container: the container whose buffer it is */
  int64_t *view;      /* by container: bytes from the root's start */
  bool *planned;      /* TEMP roots that live in the arena */
  bool *saved;        /* SAVED containers that this graph writes */
  uint64_t *scratch;  /* by step: into the arena, what it has for itself while it runs */
} dc_plan;

/* Steps are the nodes of all states in order.  scratch: bytes that each wants for itself; NULL: none.  Allocates in `arena`. */
DC_MUST_USE dc_status dc_plan_make(dc_graph *graph, const dc_nid *steps, uint32_t n_steps, const uint64_t *scratch, const int64_t *symbols,
                                   dc_arena *arena, dc_plan *out);

#endif
