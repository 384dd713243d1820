/* How a language of the C family spells what kernels are made of.  The printer's statements are alike in all of them;
 * types, literals, primitives and qualifiers are rows here. */
#ifndef DCML_BACKENDS_PRINTER_DIALECT_H
#define DCML_BACKENDS_PRINTER_DIALECT_H

#include "expr/expr.h"

/* How a type is kept in memory and computed with. */
typedef struct {
  const char *storage, *compute; /* types; NULL: not supported */
  const char *load, *store;      /* code around $ between the two */
  const char *kind;              /* suffix of the library functions for it */
} dc_type_spelling;

/* How a primitive is spelled for floats and for integers: $a $b arguments, $k kind suffix, $t type. */
typedef struct {
  const char *real, *integer;
} dc_prim_spelling;

/* A function of floats of 32 bits, cheaper where its argument is NaN or lies between two numbers. */
typedef struct {
  dc_op prim;
  dc_range range;
  const char *spelling;
} dc_ranged_spelling;

typedef struct {
  const char *name, *suffix; /* of files */
  const dc_type_spelling *types;  /* by dc_dtype */
  const dc_prim_spelling *prims;  /* by dc_op */
  const dc_ranged_spelling *ranged; /* the first that fits, before those of prims; ends with one without a spelling; or NULL */
  const char *boolean_accumulator; /* a type that reductions of vectors take for bool */
  const char *function;           /* qualifiers of a function of the kernel's own */
  const char *no_alias;           /* of a pointer that nothing else reaches */
  const char *vectors;            /* a line before a loop that vectors run */
  const char *sums;               /* the same of one over lanes that each have an accumulator, which belong in registers */
  const char *columns;            /* the same where they are more than registers hold */
  const char *in_order;           /* first in the body of a loop that no vectors may run */
  const char *bits_f32, *bits_f64, *from_f32, *from_f64; /* a float's bits as an integer, and back */
  const char *inf_f32, *inf_f64, *nan_f32, *nan_f64;
  const char
      *atomic; /* an element %s, of storage type %s, becomes the value %s of its former one `was`; NULL: no two threads meet in one */
  const char *const (*atomics)[DC_DTYPE_COUNT]; /* by dc_wcr and dc_dtype: combines the element %s with the value %s, NULL: by `atomic` */
  const char *narrow_index; /* the type of indices that 32 bits hold, where those are cheaper; NULL: they are not */
  const char *fused_f32, *fused_f64; /* "%s * %s + %s", rounded once; NULL: nothing is quicker */
  const char *pick_f32; /* "%s ? %s : %s" without a branch, for what runs in lanes */
} dc_dialect;

/* The types that it has, as bits. */
static inline uint64_t dc_dialect_types(const dc_dialect *d) {
  uint64_t types = 0;
  for (int t = 0; t < DC_DTYPE_COUNT; t++)
    if (d->types[t].storage) types |= (uint64_t)1 << t;
  return types;
}

#endif
