/* An Einsum as passes see it: which axes of its operands are the same, and how long they are. */
#ifndef DCML_PASSES_EQUATION_H
#define DCML_PASSES_EQUATION_H

#include "ops/einsum.h"

enum { DC_EQUATION_TERMS = 8 };

typedef struct {
  uint32_t n; /* operands */
  dc_cid operand[DC_EQUATION_TERMS], result;
  dc_einsum_labels term[DC_EQUATION_TERMS], output;
  dc_ex extent[DC_EINSUM_END]; /* by label; 0: there is none */
} dc_equation;

/* False if the node is no Einsum itself, has too many operands, or extents of one label differ. */
bool dc_equation_read(const dc_graph *graph, dc_nid node, dc_equation *out);
/* Of an array with these labels; its rank. */
uint32_t dc_equation_shape(const dc_equation *e, const dc_einsum_labels *labels, dc_ex *shape);

#endif
