/* Memory plan of a program under one binding: where every temporary lies. */
#ifndef DCML_BACKENDS_PLAN_H
#define DCML_BACKENDS_PLAN_H

#include "backends/backend.h"

typedef struct dc_chains dc_chains; /* chains.h */

typedef struct {
  uint64_t arena_bytes, saved_bytes;
  uint64_t held_bytes; /* of inputs, weights and constants: what is there before the run */
  uint64_t *bytes;    /* by container: size in bytes */
  uint64_t *offset;   /* by container: into the arena (TEMP) or the saved block (SAVED, if written) */
  dc_cid *root;       /* by container: the container whose buffer it is */
  int64_t *view;      /* by container: bytes from the root's start */
  uint32_t *first, *last; /* by root: 1 + the steps that touch it first and last, 0: none does */
  bool *planned;      /* TEMP roots that live in the arena, or ... */
  bool *in_block;     /* ... by container: in a part of the saved block that holds nothing at that time; `offset` is into it */
  bool *saved;        /* SAVED containers that this graph writes */
  uint64_t *scratch;  /* by step: what it has for itself while it runs, into the arena or ... */
  bool *scratch_in_block; /* ... by step: into the saved block */
  uint64_t block_bytes;   /* of the saved block, if anything planned lies in it; else 0 */
} dc_plan;

/* What a plan is made for. */
typedef struct {
  const dc_nid *steps; /* the nodes of all states in order */
  uint32_t n_steps;
  const int64_t *symbols;
  bool fills_block;    /* what is planned may lie in the saved block, where values that steps write are still to come */
  const dc_lent *lent; /* or where they are no longer read; NULL: there is none */
  const dc_chains *chains; /* of steps that are under way together; NULL: none are */
} dc_plan_task;

/* scratch: bytes that each step wants for itself; NULL: none.  Allocates in `arena`. */
DC_MUST_USE dc_status dc_plan_make(dc_graph *graph, const dc_plan_task *task, const uint64_t *scratch, dc_arena *arena, dc_plan *out);

#endif
