/* Products of bytes, summed in whole numbers: tiles of a few rows by a panel of two vectors of columns.
 *
 * Instructions multiply signed bytes by unsigned ones, some neighbours at a time, so terms lie in groups: of a row one after the
 * other, of a panel those of each column side by side.  Operands of the other sign are moved by 128 on their way there, and their
 * zero points with them. */
#ifndef DCML_BACKENDS_NATIVE_BYTES_H
#define DCML_BACKENDS_NATIVE_BYTES_H

#include <stdint.h>

enum { BYTES_GROUP = 4 /* bytes of a group */, BYTES_MOST_TERMS = 4, BYTES_MOST_COLUMNS = 32, BYTES_MOST_ROWS = 12 };

typedef struct {
  int rows, columns;
  int terms; /* of a group: four bytes, or two of 16 bits */
  /* n terms of a row, moved by `flip`, then zeros to the end of their last group; their sum. */
  int32_t (*lay_row)(const int8_t *from, int64_t n, uint8_t flip, void *to);
  /* One group of a panel from as many lines as it has terms. */
  void (*lay_columns)(const uint8_t *const *lines, uint8_t flip, void *to);
  /* sums[rows][columns] of so many groups. */
  void (*multiply)(const char *rows, int64_t row_bytes, int n_rows, const char *panel, int64_t groups, int32_t *sums);
  /* to[columns] = sums - zero*by_column - by_zero*row, where those by column are there for the whole panel. */
  void (*finish)(const int32_t *sums, int32_t zero, const int32_t *by_column, int32_t row, const int32_t *by_zero, int64_t columns,
                 int32_t *to);
} bytes_routines;

/* Those that this processor runs quickest; NULL: none of them. */
const bytes_routines *bytes_choose(uint32_t vector_bytes);

#endif
