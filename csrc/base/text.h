/* Text: a growable string for printers and code generators, and name interning. */
#ifndef DCML_BASE_TEXT_H
#define DCML_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct {
  char *s; /* always NUL-terminated once anything was written; free with dc_text_free */
  size_t n, cap;
} dc_text;

void dc_text_printf(dc_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dc_text_puts(dc_text *text, const char *string);
void dc_text_indent(dc_text *text, int levels); /* two spaces a level */
void dc_text_free(dc_text *text);

/* Interned names: equal strings have equal ids, 0 is the empty name. */
typedef uint32_t dc_name;
typedef struct {
  dc_arena *arena;
  DC_VEC(const char *) names;
  uint32_t *slots;
  uint32_t slot_count;
} dc_names;

dc_name dc_name_intern(dc_names *names, const char *string);
dc_name dc_name_intern_n(dc_names *names, const char *string, size_t length);
dc_name dc_name_find(const dc_names *names, const char *string); /* 0 if absent */
const char *dc_name_text(const dc_names *names, dc_name name);

/* 64-bit hash of bytes (FNV-1a, finalised), for tables and cache keys. */
uint64_t dc_hash_bytes(uint64_t seed, const void *data, size_t size_bytes);

#endif
