/* What a backward pass keeps of the forward, and what it computes again. */
#ifndef DCML_AUTODIFF_KEEP_H
#define DCML_AUTODIFF_KEEP_H

#include "autodiff/autodiff.h"

typedef struct {
  dc_ops *ops;
  dc_graph *graph;           /* the backward graph; forward containers are those below n */
  uint32_t n;
  const dc_scope *forward;   /* forward nodes, in order */
  const dc_scope *adjoint;   /* what reads forward values */
  const bool *available;     /* by container: need not be kept (inputs, constants) */
  const bool *changing;      /* by buffer: what reads or writes it is not run again; NULL: none */
  dc_keep strategy;
} dc_keep_problem;

/* Sets store[c] for the containers to keep and again[k] for the forward nodes to run again. */
void dc_keep_decide(const dc_keep_problem *problem, bool *store, bool *again);
/* before[k], for the nodes to run again: the adjoint node that needs it first, as late as it can run. */
void dc_keep_schedule(const dc_keep_problem *problem, const bool *again, uint32_t *before);

#endif
