/* A walk over the wire format with protobuf-c's own descriptors.
 *
 * protobuf-c recurses for each nested message and allocates for each element that the bytes
 * announce; this walk bounds both first.  It recurses itself, but never deeper than MAX_DEPTH.
 * A message field that comes twice would be merged, in quadratic time: no writer does that. */
#include <assert.h>
#include <string.h>

#include "onnx/wire.h"

enum { MAX_DEPTH = 48, MESSAGE_COST = 256, ELEMENT_COST = 16 };
static const uint64_t MAX_BYTES = (uint64_t)1 << 31;

typedef struct {
  const uint8_t *at, *end;
} slice;

typedef struct {
  uint64_t cost, allowed; /* bytes that unpacking will allocate */
} budget;

static dc_status malformed(const char *what) { return dc_error(DC_ERR_MODEL, "not a valid ONNX file: %s", what); }

static dc_status varint(slice *s, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (s->at == s->end) return malformed("it ends inside a number");
    uint8_t byte = *s->at++;
    *out |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128)) return DC_OK;
  }
  return malformed("a number is too long");
}

static dc_status spend(budget *b, uint64_t cost) {
  b->cost += cost;
  return b->cost > b->allowed ? dc_error(DC_ERR_MODEL, "the file unpacks to too much memory for its size") : DC_OK;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type, uint64_t number) {
  return type && number < UINT32_MAX ? protobuf_c_message_descriptor_get_field(type, (unsigned)number) : NULL;
}

static dc_status scan(slice s, const ProtobufCMessageDescriptor *type, int depth, budget *b);

/* Notes in `seen` that a single message field came; an error if it did before. */
static dc_status once(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field, uint64_t *seen) {
  uint64_t bit = (uint64_t)1 << (field - type->fields);
  assert(type->n_fields <= 64);
  if (field->label == PROTOBUF_C_LABEL_REPEATED) return DC_OK;
  if (*seen & bit) return dc_error(DC_ERR_MODEL, "not a valid ONNX file: field '%s' comes twice", field->name);
  *seen |= bit;
  return DC_OK;
}

static dc_status scan_field(slice *s, const ProtobufCMessageDescriptor *type, int depth, budget *b, uint64_t *seen) {
  uint64_t key, length;
  DC_TRY(varint(s, &key));
  const ProtobufCFieldDescriptor *field = field_of(type, key >> 3);
  DC_TRY(spend(b, ELEMENT_COST));
  switch (key & 7) {
    case 0: return varint(s, &length);
    case 1: case 5:
      length = (key & 7) == 1 ? 8 : 4;
      break;
    case 2:
      DC_TRY(varint(s, &length));
      break;
    default: return malformed("an unknown wire type");
  }
  if (length > (uint64_t)(s->end - s->at)) return malformed("a length reaches beyond the end");
  slice inner = {s->at, s->at + length};
  s->at += length;
  if ((key & 7) != 2 || !field) return DC_OK;
  if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
    DC_TRY(once(type, field, seen));
    DC_TRY(spend(b, MESSAGE_COST));
    return scan(inner, field->descriptor, depth + 1, b);
  }
  if (field->type == PROTOBUF_C_TYPE_STRING && length && strcmp(field->name, "doc_string") != 0 && memchr(inner.at, 0, length))
    return dc_error(DC_ERR_MODEL, "not a valid ONNX file: field '%s' holds a zero byte, which no name may", field->name);
  bool text = field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES;
  return spend(b, text ? length : length * 8);
}

static dc_status scan(slice s, const ProtobufCMessageDescriptor *type, int depth, budget *b) {
  if (depth > MAX_DEPTH) return dc_error(DC_ERR_MODEL, "messages are nested deeper than %d", MAX_DEPTH);
  uint64_t seen = 0;
  while (s.at < s.end) DC_TRY(scan_field(&s, type, depth, b, &seen));
  return DC_OK;
}

dc_status dc_onnx_scan(const void *bytes, uint64_t n_bytes, const ProtobufCMessageDescriptor *type) {
  if (n_bytes > MAX_BYTES)
    return dc_error(DC_ERR_MODEL, "the file has %llu bytes, expected at most %llu", (unsigned long long)n_bytes,
                    (unsigned long long)MAX_BYTES);
  budget b = {.allowed = ((uint64_t)256 << 20) + 10 * n_bytes};
  return scan((slice){bytes, (const uint8_t *)bytes + n_bytes}, type, 0, &b);
}
