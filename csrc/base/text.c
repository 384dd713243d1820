/* Text buffers and interned names. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(dc_text *text, size_t extra) {
  if (text->n + extra + 1 <= text->cap) return;
  size_t cap = text->cap ? text->cap * 2 : 256;
  while (cap < text->n + extra + 1) cap *= 2;
  char *grown = realloc(text->s, cap);
  if (!grown) {
    fputs("dcml: out of memory\n", stderr);
    abort();
  }
  text->s = grown;
  text->cap = cap;
}

void dc_text_puts(dc_text *text, const char *string) {
  size_t n = strlen(string);
  reserve(text, n);
  memcpy(text->s + text->n, string, n + 1);
  text->n += n;
}

void dc_text_printf(dc_text *text, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  if (n >= 0) {
    reserve(text, (size_t)n);
    vsnprintf(text->s + text->n, (size_t)n + 1, format, again);
    text->n += (size_t)n;
  }
  va_end(again);
  va_end(args);
}

void dc_text_indent(dc_text *text, int levels) {
  for (int i = 0; i < levels; i++) dc_text_puts(text, "  ");
}

void dc_text_free(dc_text *text) {
  free(text->s);
  *text = (dc_text){0};
}

uint64_t dc_hash_bytes(uint64_t seed, const void *data, size_t size_bytes) {
  const unsigned char *bytes = data;
  uint64_t h = seed ^ 14695981039346656037ull;
  for (size_t i = 0; i < size_bytes; i++) h = (h ^ bytes[i]) * 1099511628211ull;
  h ^= h >> 32;
  h *= 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

/* The slot that holds the name, or the empty one where it belongs. */
static uint32_t find_slot(const dc_names *names, const char *string, size_t length) {
  uint32_t mask = names->slot_count - 1;
  uint32_t slot = (uint32_t)dc_hash_bytes(0, string, length) & mask;
  while (names->slots[slot]) {
    const char *other = names->names.v[names->slots[slot]];
    if (strncmp(other, string, length) == 0 && other[length] == 0) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

static void grow_slots(dc_names *names) {
  names->slot_count = names->slot_count ? names->slot_count * 2 : 64;
  names->slots = DC_NEW_ARRAY(names->arena, uint32_t, names->slot_count);
  for (uint32_t i = 1; i < names->names.n; i++)
    names->slots[find_slot(names, names->names.v[i], strlen(names->names.v[i]))] = i;
}

dc_name dc_name_intern_n(dc_names *names, const char *string, size_t length) {
  const char *end = memchr(string, 0, length);
  if (end) length = (size_t)(end - string); /* a name ends at its first zero byte */
  if (length == 0) return 0;
  if (names->names.n == 0) DC_PUSH(names->arena, &names->names, "");
  if (names->names.n * 2 >= names->slot_count) grow_slots(names);
  uint32_t slot = find_slot(names, string, length);
  if (names->slots[slot]) return names->slots[slot];
  char *copy = dc_arena_alloc(names->arena, length + 1);
  memcpy(copy, string, length);
  names->slots[slot] = names->names.n;
  DC_PUSH(names->arena, &names->names, copy);
  return names->names.n - 1;
}

dc_name dc_name_intern(dc_names *names, const char *string) {
  return dc_name_intern_n(names, string, strlen(string));
}

dc_name dc_name_find(const dc_names *names, const char *string) {
  return names->slot_count && *string ? names->slots[find_slot(names, string, strlen(string))] : 0;
}

const char *dc_name_text(const dc_names *names, dc_name name) { return name ? names->names.v[name] : ""; }
