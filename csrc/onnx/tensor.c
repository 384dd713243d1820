/* TensorProto in all its encodings: raw bytes, typed fields, external files. */
#include <stdlib.h>
#include <string.h>

#include "onnx/wire.h"

static const uint64_t MAX_TENSOR_BYTES = (uint64_t)1 << 36;

static dc_status fail(const Onnx__TensorProto *t, dc_code code, const char *what) {
  return dc_error(code, "tensor '%.200s': %s", t->name ? t->name : "", what);
}

/* Elements in one stored byte for the packed types, 1 for all others. */
static int packed_in_byte(dc_dtype type) {
  return type == DC_U4 || type == DC_I4 || type == DC_F4E2M1 ? 2 : type == DC_U2 || type == DC_I2 ? 4 : 1;
}

static void unpack(dc_dtype type, const uint8_t *from, uint8_t *to, uint64_t n) {
  int per = packed_in_byte(type), bits = 8 / per;
  for (uint64_t k = 0; k < n; k++) {
    uint8_t field = (uint8_t)(from[k / (uint64_t)per] >> (k % (uint64_t)per * (uint64_t)bits)) & (uint8_t)((1 << bits) - 1);
    bool negative = (type == DC_I4 || type == DC_I2) && field >> (bits - 1);
    to[k] = negative ? (uint8_t)(field | (0xFFu << bits)) : field;
  }
}

/* Typed fields hold one element an entry, the packed types one byte an entry. */
static dc_status from_fields(const Onnx__TensorProto *t, dc_onnx_data *out, uint64_t n) {
  uint64_t stored = (n + (uint64_t)packed_in_byte(out->dtype) - 1) / (uint64_t)packed_in_byte(out->dtype);
  size_t have = 0;
  switch (out->dtype) {
    case DC_F32: have = t->n_float_data; break;
    case DC_F64: have = t->n_double_data; break;
    case DC_I64: have = t->n_int64_data; break;
    case DC_U32: case DC_U64: have = t->n_uint64_data; break;
    default: have = t->n_int32_data;
  }
  if (have != stored) return fail(t, DC_ERR_MODEL, "it holds another number of elements than its dimensions say");
  if (packed_in_byte(out->dtype) > 1) {
    uint8_t *bytes = malloc(stored + 1);
    if (!bytes) return fail(t, DC_ERR_MEMORY, "out of memory");
    for (uint64_t k = 0; k < stored; k++) bytes[k] = (uint8_t)t->int32_data[k];
    unpack(out->dtype, bytes, out->data, n);
    free(bytes);
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

static dc_status from_raw(const Onnx__TensorProto *t, dc_onnx_data *out, uint64_t n, uint64_t stored, const char *base_dir) {
  bool external = t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL, packed = stored != out->n_bytes;
  if (!external && t->raw_data.len != stored) return fail(t, DC_ERR_MODEL, "its raw data has another size than its dimensions say");
  uint8_t *bytes = packed ? malloc(stored + 1) : out->data;
  if (!bytes) return fail(t, DC_ERR_MEMORY, "out of memory");
  dc_status status = DC_OK;
  if (external) status = from_file(t, base_dir, stored, bytes);
  else if (stored) memcpy(bytes, t->raw_data.data, stored);
  if (!status && packed) unpack(out->dtype, bytes, out->data, n);
  if (packed) free(bytes);
  return status;
}

dc_status dc_onnx_decode(dc_graph *graph, const Onnx__TensorProto *t, const char *base_dir, dc_onnx_data *out) {
  *out = (dc_onnx_data){.dtype = t->data_type > 0 && t->data_type < DC_DTYPE_COUNT ? (dc_dtype)t->data_type : DC_NOTYPE, .rank = (uint32_t)t->n_dims};
  if (!out->dtype) return fail(t, DC_ERR_DTYPE, "it has an unknown data type");
  if (out->dtype == DC_STRING || out->dtype == DC_C64 || out->dtype == DC_C128) return fail(t, DC_ERR_UNSUPPORTED, "strings and complex numbers are not supported");
  if (t->n_dims > 64) return fail(t, DC_ERR_SHAPE, "expected at most 64 dimensions");
  uint64_t n = 1, bytes = (uint64_t)dc_dtype_bytes(out->dtype);
  for (size_t d = 0; d < t->n_dims; d++) {
    if (t->dims[d] < 0) return fail(t, DC_ERR_SHAPE, "a dimension is negative");
    if (__builtin_mul_overflow(n, (uint64_t)t->dims[d], &n)) return fail(t, DC_ERR_SHAPE, "its dimensions are too large");
  }
  if (n > MAX_TENSOR_BYTES / bytes) return fail(t, DC_ERR_SHAPE, "its dimensions are too large");
  out->dims = dc_arena_copy(&graph->arena, t->dims, t->n_dims * sizeof *t->dims);
  out->n_bytes = n * bytes;
  uint64_t per = (uint64_t)packed_in_byte(out->dtype), stored = per > 1 ? (n + per - 1) / per : out->n_bytes;
  bool external = t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  bool raw = t->has_raw_data || external;
  uint64_t present = external ? 0 : t->has_raw_data ? t->raw_data.len : (t->n_float_data + t->n_int32_data + t->n_int64_data + t->n_double_data + t->n_uint64_data) * per;
  if (!external && (raw ? present != stored : present < n)) return fail(t, DC_ERR_MODEL, "it holds another number of elements than its dimensions say");
  if (external) { /* do not allocate for a file that is not there */
    uint64_t size = 0;
    const char *location = "";
    for (size_t k = 0; k < t->n_external_data; k++)
      if (t->external_data[k]->key && t->external_data[k]->value && strcmp(t->external_data[k]->key, "location") == 0) location = t->external_data[k]->value;
    DC_TRY(dc_onnx_external_size(base_dir, location, &size));
    if (stored > size) return fail(t, DC_ERR_MODEL, "its external data reaches beyond the end of the file");
  }
  out->data = dc_arena_alloc(&graph->arena, out->n_bytes);
  return raw ? from_raw(t, out, n, stored, base_dir) : from_fields(t, out, n);
}

dc_status dc_onnx_tensor(dc_graph *graph, const void *bytes, uint64_t n_bytes, const char *base_dir, dc_cid *out) {
  DC_TRY(dc_onnx_scan(bytes, n_bytes, &onnx__tensor_proto__descriptor));
  Onnx__TensorProto *t = onnx__tensor_proto__unpack(NULL, n_bytes, bytes);
  if (!t) return dc_error(DC_ERR_MODEL, "not a valid tensor");
  dc_onnx_data data;
  dc_status status = dc_onnx_decode(graph, t, base_dir, &data);
  if (!status) *out = dc_container_add_const(graph, t->name ? t->name : "tensor", data.dtype, data.rank, data.dims, data.data, data.n_bytes);
  onnx__tensor_proto__free_unpacked(t, NULL);
  return status;
}
