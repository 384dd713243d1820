/* Arena: a chain of blocks, bump allocation, freed together. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BLOCK_BYTES = 4096, LARGEST_BLOCK_BYTES = 1 << 20 };

struct dc_arena_block {
  dc_arena_block *next;
  size_t used_bytes, size_bytes;
  _Alignas(16) char data[];
};

static void *checked(void *memory) {
  if (memory) return memory;
  fputs("dcml: out of memory\n", stderr);
  abort();
}

static dc_arena_block *add_block(dc_arena *arena, size_t need_bytes) {
  size_t size = arena->head ? arena->head->size_bytes * 2 : FIRST_BLOCK_BYTES;
  if (size > LARGEST_BLOCK_BYTES) size = LARGEST_BLOCK_BYTES;
  if (size < need_bytes) size = need_bytes;
  dc_arena_block *block = checked(malloc(sizeof *block + size));
  *block = (dc_arena_block){.next = arena->head, .size_bytes = size};
  return arena->head = block;
}

void *dc_arena_raw(dc_arena *arena, size_t size_bytes) {
  size_t size = (size_bytes + 15) & ~(size_t)15;
  if (size < size_bytes) checked(NULL);
  dc_arena_block *block = arena->head;
  if (!block || block->size_bytes - block->used_bytes < size) block = add_block(arena, size);
  void *memory = block->data + block->used_bytes;
  block->used_bytes += size;
  return memory;
}

void *dc_arena_alloc(dc_arena *arena, size_t size_bytes) { return memset(dc_arena_raw(arena, size_bytes), 0, size_bytes); }

void *dc_arena_copy(dc_arena *arena, const void *source, size_t size_bytes) {
  void *memory = dc_arena_alloc(arena, size_bytes);
  return size_bytes ? memcpy(memory, source, size_bytes) : memory;
}

char *dc_arena_strdup(dc_arena *arena, const char *text) { return dc_arena_copy(arena, text, strlen(text) + 1); }

char *dc_arena_printf(dc_arena *arena, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  char *text = dc_arena_alloc(arena, (size_t)(n < 0 ? 0 : n) + 1);
  if (n > 0) vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  va_end(args);
  return text;
}

void dc_arena_free(dc_arena *arena) {
  for (dc_arena_block *block = arena->head, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  arena->head = NULL;
}

void *dc_vec_grow(dc_arena *arena, void *old, uint32_t n, uint32_t *cap, size_t item_bytes) {
  *cap = *cap ? *cap * 2 : 4;
  void *grown = dc_arena_alloc(arena, *cap * item_bytes);
  return n ? memcpy(grown, old, n * item_bytes) : grown;
}
