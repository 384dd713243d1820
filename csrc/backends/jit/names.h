/* Names of kernels, "k" and a hash, and lists of what has one: it stands at the start of each item. */
#ifndef DCML_BACKENDS_JIT_NAMES_H
#define DCML_BACKENDS_JIT_NAMES_H

#include "base/arena.h"

enum { DC_KERNEL_NAME = 17 };
typedef char dc_kernel_name[DC_KERNEL_NAME + 1];

/* Positions in a list by name. */
typedef struct {
  uint32_t *slots; /* 1 + position, 0: empty */
  uint32_t n, size;
} dc_name_table;

/* 1 + the position of a name in a list; 0: it is not there. */
uint32_t dc_name_table_find(const dc_name_table *table, const void *list, size_t item_bytes, const char *name);
/* Enters the last item of the list, whose name is new. */
void dc_name_table_enter(dc_arena *arena, dc_name_table *table, const void *list, size_t item_bytes);

#endif
