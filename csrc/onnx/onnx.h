/* ONNX files: import into a Graph of library nodes, and export back. Model bytes are hostile:
 * size, nesting depth and counts are scanned before protobuf-c unpacks, everything after by
 * checked arithmetic. */
#ifndef DCML_ONNX_ONNX_H
#define DCML_ONNX_ONNX_H

#include "ops/ops.h"

/* base_dir: folder in which external data may lie, NULL forbids external data.
 * Initialisers become CONST containers (as_params: PARAM containers with data if floating point).
 * Local functions are inlined. Function operators of the standard that have no row are left as
 * library nodes (dc_ops_infer then reports them). A domain that the model does not import is of the newest version that `ops` has
 * (NULL: an error), but for ONNX's own. Node names are kept for messages. */
DC_MUST_USE dc_status dc_onnx_import(dc_ops *ops, const void *bytes, uint64_t n_bytes, const char *base_dir, bool as_params,
                                   dc_graph **out);
/* Serialises a graph of library nodes (no maps) as a ModelProto; *bytes is malloc'ed. */
DC_MUST_USE dc_status dc_onnx_export(const dc_graph *graph, uint8_t **bytes, uint64_t *n_bytes);
/* The file that `graph` was imported from, with the weights (PARAM) that the graph holds now, and with
 * the data of its tensors that lie in other files; *bytes is malloc'ed. */
DC_MUST_USE dc_status dc_onnx_update(const void *file, uint64_t n_file, const dc_graph *graph, uint8_t **bytes, uint64_t *n_bytes);

#endif
