/* Einsum's equations: which axes of its operands and of its result are the same. */
#ifndef DCML_OPS_EINSUM_H
#define DCML_OPS_EINSUM_H

#include "ir/graph.h"

enum {
  DC_EINSUM_LETTERS = 52,
  DC_EINSUM_LABELS = DC_MAX_RANK + DC_EINSUM_LETTERS, /* all that there are: none is ever one too many */
  DC_EINSUM_END = 128,                                /* every label is less */
};

/* Of each axis of an array: a letter, or, of an ellipsis, a number 1.. counted from the right. */
typedef struct {
  char label[DC_EINSUM_LABELS + 1];
  uint32_t n;
} dc_einsum_labels;

bool dc_einsum_has(const dc_einsum_labels *l, char label);
void dc_einsum_add(dc_einsum_labels *l, char label);
/* Of an equation for n operands of these ranks. */
DC_MUST_USE dc_status dc_einsum_read(const char *equation, const uint32_t *ranks, uint32_t n, dc_einsum_labels *terms,
                                     dc_einsum_labels *output);

#endif
