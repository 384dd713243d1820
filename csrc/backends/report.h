/* How much a step computes, for people: a library call is as much work as its definition. */
#ifndef DCML_BACKENDS_REPORT_H
#define DCML_BACKENDS_REPORT_H

#include "ops/ops.h"

/* Scalar operations; a library node is expanded in `copy`, a clone of its graph.  symbols: values by dc_sym. */
double dc_node_operations(dc_ops *ops, dc_graph *copy, dc_nid node, const int64_t *symbols);

#endif
