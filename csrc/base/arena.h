/* Arena: memory that is freed all at once.
 *
 * Graphs, rows and plans allocate here and never free piecewise, so no cleanup
 * path exists to forget.  Sizes that come from a file are checked by the caller
 * before they get here; running out of address space ends the process. */
#ifndef DCML_BASE_ARENA_H
#define DCML_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct dc_arena_block dc_arena_block;
typedef struct {
  dc_arena_block *head;
} dc_arena;

/* Zeroed memory, aligned to 16 bytes; size 0 gives a valid pointer. */
void *dc_arena_alloc(dc_arena *arena, size_t size_bytes);
void *dc_arena_raw(dc_arena *arena, size_t size_bytes); /* the same, not zeroed */
void *dc_arena_copy(dc_arena *arena, const void *source, size_t size_bytes);
char *dc_arena_strdup(dc_arena *arena, const char *text);
char *dc_arena_printf(dc_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dc_arena_free(dc_arena *arena);

#define DC_NEW(arena, type) ((type *)dc_arena_alloc((arena), sizeof(type)))
#define DC_NEW_ARRAY(arena, type, n) ((type *)dc_arena_alloc((arena), sizeof(type) * (size_t)(n)))

/* Growable array inside an arena: `struct { T *v; uint32_t n, cap; }`.
 * Old storage stays in the arena when it grows; that is the price of no frees. */
#define DC_VEC(type) \
  struct {           \
    type *v;         \
    uint32_t n, cap; \
  }
#define DC_PUSH(arena, vec, item)                                                                       \
  do {                                                                                                  \
    if ((vec)->n == (vec)->cap)                                                                         \
      (vec)->v = dc_vec_grow((arena), (vec)->v, (vec)->n, &(vec)->cap, sizeof(*(vec)->v));              \
    (vec)->v[(vec)->n++] = (item);                                                                      \
  } while (0)
void *dc_vec_grow(dc_arena *arena, void *old, uint32_t n, uint32_t *cap, size_t item_bytes);

#endif
