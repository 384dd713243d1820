/* Shared by the files of this folder. */
#ifndef DCML_ONNX_WIRE_H
#define DCML_ONNX_WIRE_H

#include "onnx.pb-c.h" /* generated */
#include "onnx/onnx.h"

/* scan.c: checks encoded bytes before protobuf-c allocates or recurses for them, and has it unpack them.  outline: the raw data of
 * each tensor is a dc_onnx_place. */
typedef struct {
  uint64_t at, n_bytes; /* in the file, inside of it */
} dc_onnx_place;
DC_MUST_USE dc_status dc_onnx_read(const void *bytes, uint64_t n_bytes, bool outline, Onnx__ModelProto **out);

/* What an outline is of, and the folder in which external data may lie (NULL: none may). */
typedef struct {
  const uint8_t *bytes;
  const char *base_dir;
} dc_onnx_file;

/* tensor.c: decodes a tensor of at most max_bytes; *data is in the graph's arena. */
typedef struct {
  dc_dtype dtype;
  uint32_t rank;
  int64_t *dims;
  void *data;
  uint64_t n_bytes;
} dc_onnx_data;
DC_MUST_USE dc_status dc_onnx_decode(dc_graph *graph, const Onnx__TensorProto *tensor, const dc_onnx_file *file, uint64_t max_bytes,
                                     dc_onnx_data *out);
/* The dense form of a sparse tensor: a few bytes can announce any size. */
DC_MUST_USE dc_status dc_onnx_decode_sparse(dc_graph *graph, const Onnx__SparseTensorProto *tensor, const dc_onnx_file *file,
                                            uint64_t max_bytes, dc_onnx_data *out);
/* Strings become dc_string elements in the graph's arena; sets data and n_bytes. */
void dc_onnx_strings(dc_graph *graph, const ProtobufCBinaryData *items, size_t n, dc_onnx_data *out);
/* Elements in one stored byte for the 4- and 2-bit types, 1 for all others. */
int dc_onnx_packed(dc_dtype type);

/* export.c: a container's contents as a message in the arena, which points into the graph's data. */
Onnx__TensorProto *dc_onnx_tensor_message(dc_arena *arena, const dc_graph *graph, dc_cid cid, const char *name);

/* external.c: reads a slice of a file that must lie inside base_dir. */
DC_MUST_USE dc_status dc_onnx_external(const char *base_dir, const char *location, uint64_t offset, uint64_t n_bytes, void *to);
DC_MUST_USE dc_status dc_onnx_external_size(const char *base_dir, const char *location, uint64_t *out);

#endif
