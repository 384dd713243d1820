/* One scalar of any type, and loading, storing and converting it. */
#ifndef DCML_BACKENDS_INTERP_VALUE_H
#define DCML_BACKENDS_INTERP_VALUE_H

#include "expr/expr.h"

typedef union {
  double f;  /* floating types; f32 values are exact floats */
  int64_t i; /* integers in their own width, sign- or zero-extended; bool 0 or 1; u64 as bits */
} dc_scalar;

dc_scalar dc_scalar_load(dc_dtype type, const void *data, int64_t at);
void dc_scalar_store(dc_dtype type, void *data, int64_t at, dc_scalar value);
dc_scalar dc_scalar_convert(dc_dtype from, dc_dtype to, dc_scalar value);
dc_scalar dc_scalar_bits(dc_dtype from, dc_dtype to, dc_scalar value);
/* Both operands have `type`; the result has the prim's result type. */
dc_scalar dc_scalar_prim(dc_op prim, dc_dtype type, dc_scalar a, dc_scalar b);
/* The same of n values each; a step of 0 is one value for all. */
void dc_scalar_prims(dc_op prim, dc_dtype type, const dc_scalar *a, uint32_t a_step, const dc_scalar *b, uint32_t b_step, uint32_t n,
                     dc_scalar *out);

#endif
