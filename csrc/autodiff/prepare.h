/* Before a state of any program is differentiated. */
#ifndef DCML_AUTODIFF_PREPARE_H
#define DCML_AUTODIFF_PREPARE_H

#include "ir/graph.h"

/* Rewrites a state so that no value that its adjoint may read is overwritten: see prepare.c.  It computes what it did.
 * DC_ERR_UNSUPPORTED names an array whose values cannot be kept. */
DC_MUST_USE dc_status dc_autodiff_prepare(dc_graph *graph, uint32_t state);

#endif
