/* How much a node computes and moves: for reports, never for decisions. */
#ifndef DCML_BACKENDS_REPORT_H
#define DCML_BACKENDS_REPORT_H

#include "backends/plan.h"
#include "ops/ops.h"

/* Scalar operations; a library call counts as its definition, which is expanded in `copy`, a clone of its graph.
 * symbols: values by dc_sym. */
double dc_node_operations(dc_ops *ops, dc_graph *copy, dc_nid node, const int64_t *symbols);
/* Sizes of the distinct containers that a node reads and writes.  seen: by container, zero before the first node. */
uint64_t dc_node_bytes(const dc_graph *graph, dc_nid node, const dc_plan *plan, dc_nid *seen);

#endif
