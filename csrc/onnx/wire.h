/* Shared by the files of this folder. */
#ifndef DCML_ONNX_WIRE_H
#define DCML_ONNX_WIRE_H

#include "onnx.pb-c.h" /* generated */
#include "onnx/onnx.h"

/* scan.c: checks encoded bytes before protobuf-c allocates or recurses for them. */
DC_MUST_USE dc_status dc_onnx_scan(const void *bytes, uint64_t n_bytes, const ProtobufCMessageDescriptor *type);

/* tensor.c: decodes a tensor; *data is in the graph's arena. */
typedef struct {
  dc_dtype dtype;
  uint32_t rank;
  int64_t *dims;
  void *data;
  uint64_t n_bytes;
} dc_onnx_data;
DC_MUST_USE dc_status dc_onnx_decode(dc_graph *graph, const Onnx__TensorProto *tensor, const char *base_dir, dc_onnx_data *out);

/* external.c: reads a slice of a file that must lie inside base_dir. */
DC_MUST_USE dc_status dc_onnx_external(const char *base_dir, const char *location, uint64_t offset, uint64_t n_bytes, void *to);
DC_MUST_USE dc_status dc_onnx_external_size(const char *base_dir, const char *location, uint64_t *out);

#endif
