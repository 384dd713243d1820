/* TensorProto in all its encodings: raw bytes, typed fields, external files, sparse.
 *
 * Sizes come from a hostile file: every product is checked, and nothing is allocated before the
 * data that fills it was seen to be there.  Knows no graph but the arena that it fills. */
#include <stdlib.h>
#include <string.h>

#include "onnx/wire.h"


static dc_status fail(const Onnx__TensorProto *t, dc_code code, const char *what) {
  return dc_error(code, "tensor '%.200s': %s", t->name ? t->name : "", what);
}

int dc_onnx_packed(dc_dtype type) {
  return type == DC_U4 || type == DC_I4 || type == DC_F4E2M1 ? 2 : type == DC_U2 || type == DC_I2 ? 4 : 1;
}

static void unpack(dc_dtype type, const uint8_t *from, uint8_t *to, uint64_t n) {
  int per = dc_onnx_packed(type), bits = 8 / per;
  for (uint64_t k = 0; k < n; k++) {
    uint8_t field = (uint8_t)(from[k / (uint64_t)per] >> (k % (uint64_t)per * (uint64_t)bits)) & (uint8_t)((1 << bits) - 1);
    bool negative = (type == DC_I4 || type == DC_I2) && field >> (bits - 1);
    to[k] = negative ? (uint8_t)(field | (0xFFu << bits)) : field;
  }
}

/* Typed fields hold one element an entry, the packed types one byte an entry. */
static dc_status from_fields(const Onnx__TensorProto *t, dc_onnx_data *out, uint64_t n) {
  uint64_t stored = (n + (uint64_t)dc_onnx_packed(out->dtype) - 1) / (uint64_t)dc_onnx_packed(out->dtype);
  size_t have = 0;
  switch (out->dtype) {
    case DC_F32: have = t->n_float_data; break;
    case DC_F64: have = t->n_double_data; break;
    case DC_I64: have = t->n_int64_data; break;
    case DC_U32: case DC_U64: have = t->n_uint64_data; break;
    case DC_C64: have = t->n_float_data / 2; break; /* real and imaginary parts in turn */
    case DC_C128: have = t->n_double_data / 2; break;
    default: have = t->n_int32_data;
  }
  if (have != stored) return fail(t, DC_ERR_MODEL, "it holds another number of elements than its dimensions say");
  if (dc_onnx_packed(out->dtype) > 1) {
    uint8_t *bytes = malloc(stored + 1);
    if (!bytes) return fail(t, DC_ERR_MEMORY, "out of memory");
    for (uint64_t k = 0; k < stored; k++) bytes[k] = (uint8_t)t->int32_data[k];
    unpack(out->dtype, bytes, out->data, n);
    free(bytes);
    return DC_OK;
  }
  if (n && (out->dtype == DC_C64 || out->dtype == DC_C128)) {
    memcpy(out->data, out->dtype == DC_C64 ? (void *)t->float_data : (void *)t->double_data, out->n_bytes);
    return DC_OK;
  }
  for (uint64_t k = 0; k < n; k++) {
    switch (out->dtype) {
      case DC_F32: ((float *)out->data)[k] = t->float_data[k]; break;
      case DC_F64: ((double *)out->data)[k] = t->double_data[k]; break;
      case DC_I64: ((int64_t *)out->data)[k] = t->int64_data[k]; break;
      case DC_U64: ((uint64_t *)out->data)[k] = t->uint64_data[k]; break;
      case DC_U32: ((uint32_t *)out->data)[k] = (uint32_t)t->uint64_data[k]; break;
      case DC_I32: ((int32_t *)out->data)[k] = t->int32_data[k]; break;
      case DC_BOOL: ((uint8_t *)out->data)[k] = t->int32_data[k] != 0; break;
      default:
        if (dc_dtype_bytes(out->dtype) == 2) ((uint16_t *)out->data)[k] = (uint16_t)t->int32_data[k];
        else ((uint8_t *)out->data)[k] = (uint8_t)t->int32_data[k];
    }
  }
  return DC_OK;
}

static dc_status number(const Onnx__TensorProto *t, const char *text, uint64_t *out) {
  char *end;
  if (*text < '0' || *text > '9' || strlen(text) > 18) return fail(t, DC_ERR_MODEL, "an offset or a length is no number");
  *out = strtoull(text, &end, 10);
  return *end ? fail(t, DC_ERR_MODEL, "an offset or a length is no number") : DC_OK;
}

static dc_status from_file(const Onnx__TensorProto *t, const char *base_dir, uint64_t stored, void *to) {
  const char *location = NULL;
  uint64_t offset = 0, length = stored, size;
  for (size_t k = 0; k < t->n_external_data; k++) {
    const char *key = t->external_data[k]->key, *value = t->external_data[k]->value;
    if (!key || !value) continue;
    if (strcmp(key, "location") == 0) location = value;
    if (strcmp(key, "offset") == 0) DC_TRY(number(t, value, &offset));
    if (strcmp(key, "length") == 0) DC_TRY(number(t, value, &length));
  }
  if (!location) return fail(t, DC_ERR_MODEL, "its external data has no location");
  if (length != stored) return fail(t, DC_ERR_MODEL, "its external data has another length than its dimensions say");
  DC_TRY(dc_onnx_external_size(base_dir, location, &size));
  if (offset > size || length > size - offset) return fail(t, DC_ERR_MODEL, "its external data reaches beyond the end of the file");
  return dc_onnx_external(base_dir, location, offset, length, to);
}

static bool is_external(const Onnx__TensorProto *t) {
  return t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* Raw data in the file that the message is an outline of. */
static dc_onnx_place place_of(const Onnx__TensorProto *t) {
  dc_onnx_place place;
  memcpy(&place, t->raw_data.data, sizeof place);
  return place;
}

static dc_status from_raw(const Onnx__TensorProto *t, dc_onnx_data *out, uint64_t n, uint64_t stored, const dc_onnx_file *file) {
  bool packed = stored != out->n_bytes;
  uint8_t *bytes = packed ? malloc(stored + 1) : out->data;
  if (!bytes) return fail(t, DC_ERR_MEMORY, "out of memory");
  dc_status status = DC_OK;
  if (is_external(t)) status = from_file(t, file->base_dir, stored, bytes);
  else if (stored) memcpy(bytes, file->bytes + place_of(t).at, stored);
  if (!status && packed) unpack(out->dtype, bytes, out->data, n);
  if (packed) free(bytes);
  return status;
}

static const char *location_of(const Onnx__TensorProto *t) {
  const char *location = "";
  for (size_t k = 0; k < t->n_external_data; k++) {
    const Onnx__StringStringEntryProto *e = t->external_data[k];
    if (e->key && e->value && strcmp(e->key, "location") == 0) location = e->value;
  }
  return location;
}

/* Type and dimensions; the number of elements, of which at most max_bytes are accepted. */
static dc_status decode_shape(dc_graph *graph, const Onnx__TensorProto *t, const int64_t *dims, size_t rank, uint64_t max_bytes,
                              dc_onnx_data *out, uint64_t *n) {
  bool known = t->data_type > 0 && t->data_type < DC_DTYPE_COUNT;
  *out = (dc_onnx_data){.dtype = known ? (dc_dtype)t->data_type : DC_NOTYPE, .rank = (uint32_t)rank};
  if (!known) return fail(t, DC_ERR_DTYPE, "it has an unknown data type");
  if (rank > DC_MAX_RANK)
    return dc_error(DC_ERR_SHAPE, "tensor '%.200s' has %zu dimensions, expected at most %d", t->name ? t->name : "", rank, DC_MAX_RANK);
  *n = 1;
  for (size_t d = 0; d < rank; d++) {
    if (dims[d] < 0) return fail(t, DC_ERR_SHAPE, "a dimension is negative");
    if (__builtin_mul_overflow(*n, (uint64_t)dims[d], n)) return fail(t, DC_ERR_SHAPE, "its dimensions are too large");
  }
  uint64_t each = out->dtype == DC_STRING ? sizeof(dc_string) : (uint64_t)dc_dtype_bytes(out->dtype);
  if (*n > max_bytes / each) return fail(t, DC_ERR_SHAPE, "its dimensions are too large");
  out->n_bytes = *n * each;
  out->dims = dc_arena_copy(&graph->arena, dims, rank * sizeof *dims);
  return DC_OK;
}

void dc_onnx_strings(dc_graph *graph, const ProtobufCBinaryData *items, size_t n, dc_onnx_data *out) {
  dc_string *strings = DC_NEW_ARRAY(&graph->arena, dc_string, n);
  for (size_t k = 0; k < n; k++) strings[k] = (dc_string){dc_arena_copy(&graph->arena, items[k].data, items[k].len), items[k].len};
  out->data = strings, out->n_bytes = n * sizeof *strings;
}

dc_status dc_onnx_decode(dc_graph *graph, const Onnx__TensorProto *t, const dc_onnx_file *file, uint64_t max_bytes, dc_onnx_data *out) {
  uint64_t n;
  DC_TRY(decode_shape(graph, t, t->dims, t->n_dims, max_bytes, out, &n));
  if (out->dtype == DC_STRING) {
    if (t->n_string_data != n) return fail(t, DC_ERR_MODEL, "it holds another number of elements than its dimensions say");
    dc_onnx_strings(graph, t->string_data, n, out);
    return DC_OK;
  }
  uint64_t per = (uint64_t)dc_onnx_packed(out->dtype), stored = per > 1 ? (n + per - 1) / per : out->n_bytes, have;
  if (is_external(t)) {
    DC_TRY(dc_onnx_external_size(file->base_dir, location_of(t), &have));
    if (stored > have) return fail(t, DC_ERR_MODEL, "its external data reaches beyond the end of the file");
  } else {
    have = t->n_float_data + t->n_int32_data + t->n_int64_data + t->n_double_data + t->n_uint64_data;
    if (t->has_raw_data ? place_of(t).n_bytes != stored : have * per < n)
      return fail(t, DC_ERR_MODEL, "it holds another number of elements than its dimensions say");
  }
  out->data = dc_arena_raw(&graph->arena, out->n_bytes); /* all of it is written, or there is an error */
  return is_external(t) || t->has_raw_data ? from_raw(t, out, n, stored, file) : from_fields(t, out, n);
}

/* Where the k-th value lies: indices are linear, or one for each dimension. */
static bool sparse_offset(const int64_t *indices, uint64_t k, bool linear, const dc_onnx_data *out, uint64_t n, uint64_t *offset) {
  *offset = linear ? (uint64_t)indices[k] : 0;
  for (uint32_t d = 0; !linear && d < out->rank; d++) {
    int64_t i = indices[k * out->rank + d];
    if (i < 0 || i >= out->dims[d]) return false;
    *offset = *offset * (uint64_t)out->dims[d] + (uint64_t)i;
  }
  return *offset < n;
}

dc_status dc_onnx_decode_sparse(dc_graph *graph, const Onnx__SparseTensorProto *t, const dc_onnx_file *file, uint64_t max_bytes,
                                dc_onnx_data *out) {
  dc_onnx_data values, indices;
  uint64_t n, offset;
  if (!t->values || !t->indices) return dc_error(DC_ERR_MODEL, "a sparse tensor lacks its values or its indices");
  DC_TRY(decode_shape(graph, t->values, t->dims, t->n_dims, max_bytes, out, &n));
  DC_TRY(dc_onnx_decode(graph, t->values, file, max_bytes, &values));
  DC_TRY(dc_onnx_decode(graph, t->indices, file, max_bytes, &indices));
  if (out->dtype == DC_STRING) return fail(t->values, DC_ERR_UNSUPPORTED, "sparse strings are not supported");
  uint64_t each = (uint64_t)dc_dtype_bytes(out->dtype), count = values.n_bytes / each;
  bool linear = indices.rank == 1;
  if (values.rank != 1 || indices.dtype != DC_I64 || (!linear && (indices.rank != 2 || indices.dims[1] != out->rank)) ||
      (count && (uint64_t)indices.dims[0] != count))
    return fail(t->values, DC_ERR_MODEL, "expected [n] values and i64 indices of shape [n] or [n, rank]");
  out->data = dc_arena_alloc(&graph->arena, out->n_bytes);
  for (uint64_t k = 0; k < count; k++) {
    if (!sparse_offset(indices.data, k, linear, out, n, &offset)) return fail(t->values, DC_ERR_MODEL, "a sparse index is out of range");
    memcpy((char *)out->data + offset * each, (const char *)values.data + k * each, each);
  }
  return DC_OK;
}
