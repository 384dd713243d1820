/* Copies one node into a small graph of its own, whose containers 1 .. *n_buffers are the kernel's arguments. */
#ifndef DCML_BACKENDS_KERNEL_EXTRACT_H
#define DCML_BACKENDS_KERNEL_EXTRACT_H

#include "ir/graph.h"

DC_MUST_USE dc_status dc_kernel_extract(const dc_graph *graph, dc_nid node, dc_graph **out, dc_nid *copy, uint32_t *n_buffers);

#endif
