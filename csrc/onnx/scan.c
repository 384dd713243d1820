/* Reading messages: a walk over the wire format with protobuf-c's own descriptors, and then protobuf-c.
 *
 * protobuf-c recurses for each nested message and allocates for each element that the bytes
 * announce; the walk bounds both first.  It recurses itself, but never deeper than MAX_DEPTH.
 * A message field that comes twice would be merged, in quadratic time: no writer does that.
 *
 * protobuf-c also copies what tensors hold, nearly all of a file.  So the walk makes an outline: the same message, but the raw
 * data of each tensor is only the place of its bytes in the file. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/wire.h"

enum { MAX_DEPTH = 48, MESSAGE_COST = 256, ELEMENT_COST = 16 };
static const uint64_t MAX_BYTES = (uint64_t)1 << 31;

typedef struct {
  const uint8_t *at, *end;
} slice;

typedef struct {
  const uint8_t *file;
  uint64_t cost, allowed; /* bytes that unpacking will allocate */
  bool outlines;
  uint8_t *outline;       /* malloc's, which fails for good; it is no longer than ... */
  uint64_t n, cap;
} walk;

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

static dc_status spend(walk *b, uint64_t cost) {
  b->cost += cost;
  return b->cost > b->allowed ? dc_error(DC_ERR_MODEL, "the file unpacks to too much memory for its size") : DC_OK;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type, uint64_t number) {
  return type && number < UINT32_MAX ? protobuf_c_message_descriptor_get_field(type, (unsigned)number) : NULL;
}

/* ---- the outline ---- */

enum { LENGTH_BYTES = 5 /* of a length below 2^35: a number may end with groups of zeros */ };

static dc_status append(walk *w, const void *bytes, uint64_t n) {
  if (!w->outlines || !n) return DC_OK;
  if (n > w->cap - w->n) {
    uint64_t cap = 2 * w->cap + n + 4096;
    uint8_t *grown = realloc(w->outline, cap);
    if (!grown) return dc_error(DC_ERR_MEMORY, "out of memory");
    w->outline = grown, w->cap = cap;
  }
  memcpy(w->outline + w->n, bytes, n);
  w->n += n;
  return DC_OK;
}

static void spell_length(uint64_t length, uint8_t *out) {
  for (int k = 0; k < LENGTH_BYTES; k++) out[k] = (uint8_t)((length >> 7 * k & 127) | (k + 1 < LENGTH_BYTES ? 128 : 0));
}

static dc_status append_length(walk *w, uint64_t length) {
  uint8_t spelled[LENGTH_BYTES];
  spell_length(length, spelled);
  return append(w, spelled, sizeof spelled);
}

static dc_status append_place(walk *w, slice data) {
  const dc_onnx_place place = {(uint64_t)(data.at - w->file), (uint64_t)(data.end - data.at)};
  DC_TRY(append_length(w, sizeof place));
  return append(w, &place, sizeof place);
}

/* ---- the walk ---- */

static dc_status scan(slice s, const ProtobufCMessageDescriptor *type, int depth, walk *w);

/* Notes in `seen` that a single message field came; an error if it did before. */
static dc_status once(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field, uint64_t *seen) {
  uint64_t bit = (uint64_t)1 << (field - type->fields);
  assert(type->n_fields <= 64);
  if (field->label == PROTOBUF_C_LABEL_REPEATED) return DC_OK;
  if (*seen & bit) return dc_error(DC_ERR_MODEL, "not a valid ONNX file: field '%s' comes twice", field->name);
  *seen |= bit;
  return DC_OK;
}

static dc_status scan_message(slice s, const ProtobufCMessageDescriptor *type, int depth, walk *w) {
  uint64_t begin = w->n + LENGTH_BYTES;
  DC_TRY(spend(w, MESSAGE_COST));
  DC_TRY(append_length(w, 0));
  DC_TRY(scan(s, type, depth, w));
  if (w->outlines) spell_length(w->n - begin, w->outline + begin - LENGTH_BYTES);
  return DC_OK;
}

/* The bytes of a field after its key, whose length begins at `length_at`. */
static dc_status scan_bytes(slice s, const uint8_t *length_at, const ProtobufCFieldDescriptor *field, walk *w) {
  uint64_t length = (uint64_t)(s.end - s.at);
  if (!field) return append(w, length_at, (uint64_t)(s.end - length_at));
  if (field->type == PROTOBUF_C_TYPE_STRING && length && strcmp(field->name, "doc_string") != 0 && memchr(s.at, 0, length))
    return dc_error(DC_ERR_MODEL, "not a valid ONNX file: field '%s' holds a zero byte, which no name may", field->name);
  bool text = field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES;
  DC_TRY(spend(w, text ? length : length * 8));
  if (field->type == PROTOBUF_C_TYPE_BYTES && strcmp(field->name, "raw_data") == 0) return append_place(w, s);
  return append(w, length_at, (uint64_t)(s.end - length_at));
}

static dc_status scan_field(slice *s, const ProtobufCMessageDescriptor *type, int depth, walk *w, uint64_t *seen) {
  const uint8_t *begin = s->at;
  uint64_t key, length;
  DC_TRY(varint(s, &key));
  const ProtobufCFieldDescriptor *field = field_of(type, key >> 3);
  const uint8_t *after_key = s->at;
  DC_TRY(spend(w, ELEMENT_COST));
  switch (key & 7) {
    case 0:
      DC_TRY(varint(s, &length));
      return append(w, begin, (uint64_t)(s->at - begin));
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
  DC_TRY(append(w, begin, (uint64_t)(after_key - begin)));
  if ((key & 7) != 2) return append(w, inner.at, length);
  if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE) return scan_bytes(inner, after_key, field, w);
  DC_TRY(once(type, field, seen));
  return scan_message(inner, field->descriptor, depth + 1, w);
}

static dc_status scan(slice s, const ProtobufCMessageDescriptor *type, int depth, walk *w) {
  if (depth > MAX_DEPTH) return dc_error(DC_ERR_MODEL, "messages are nested deeper than %d", MAX_DEPTH);
  uint64_t seen = 0;
  while (s.at < s.end) DC_TRY(scan_field(&s, type, depth, w, &seen));
  return DC_OK;
}

dc_status dc_onnx_read(const void *bytes, uint64_t n_bytes, bool outline, Onnx__ModelProto **out) {
  *out = NULL;
  if (n_bytes > MAX_BYTES)
    return dc_error(DC_ERR_MODEL, "the file has %llu bytes, expected at most %llu", (unsigned long long)n_bytes,
                    (unsigned long long)MAX_BYTES);
  walk w = {.file = bytes, .outlines = outline, .allowed = ((uint64_t)256 << 20) + 10 * n_bytes};
  dc_status status = scan((slice){bytes, (const uint8_t *)bytes + n_bytes}, &onnx__model_proto__descriptor, 0, &w);
  if (!status) *out = onnx__model_proto__unpack(NULL, outline ? w.n : n_bytes, outline ? w.outline : bytes);
  free(w.outline);
  return status || *out ? status : dc_error(DC_ERR_MODEL, "not a valid ONNX file");
}
