/* Tells whether memory still holds what it held: 128 bits of its contents, as fast as it can be read.  Any one word that changes
 * changes them; nothing here withstands somebody who wants two contents to look alike. */
#ifndef DCML_BASE_FINGERPRINT_H
#define DCML_BASE_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint64_t sums, bits;
} dc_fingerprint;

dc_fingerprint dc_fingerprint_of(const void *data, size_t bytes);
/* Of what stands in parts, told one after the other; `all` begins as {0, 0}. */
dc_fingerprint dc_fingerprint_after(dc_fingerprint all, dc_fingerprint next);
static inline bool dc_fingerprint_same(dc_fingerprint a, dc_fingerprint b) { return a.sums == b.sums && a.bits == b.bits; }

#endif
