/* See names.h. */
#include "backends/jit/names.h"

#include <string.h>

#include "base/text.h"

static uint32_t *slot_of(const dc_name_table *t, const void *list, size_t item_bytes, const char *name) {
  uint32_t at = (uint32_t)dc_hash_bytes(0, name, DC_KERNEL_NAME) & (t->size - 1);
  while (t->slots[at] && strcmp((const char *)list + (t->slots[at] - 1) * item_bytes, name))
    at = (at + 1) & (t->size - 1);
  return &t->slots[at];
}

uint32_t dc_name_table_find(const dc_name_table *table, const void *list, size_t item_bytes, const char *name) {
  return table->size ? *slot_of(table, list, item_bytes, name) : 0;
}

void dc_name_table_enter(dc_arena *arena, dc_name_table *t, const void *list, size_t item_bytes) {
  if (2 * ++t->n > t->size) {
    t->size = t->size ? 2 * t->size : 64;
    t->slots = DC_NEW_ARRAY(arena, uint32_t, t->size);
    for (uint32_t k = 0; k + 1 < t->n; k++) *slot_of(t, list, item_bytes, (const char *)list + k * item_bytes) = k + 1;
  }
  *slot_of(t, list, item_bytes, (const char *)list + (t->n - 1) * item_bytes) = t->n;
}
