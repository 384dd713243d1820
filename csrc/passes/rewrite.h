/* The rows of rewrites.def as data, for the pass and for the test that checks each. */
#ifndef DCML_PASSES_REWRITE_H
#define DCML_PASSES_REWRITE_H

#include "expr/expr.h"

/* A pattern is its operations in prefix order, a byte each: a dc_op, a variable, or DC_REWRITE_NUM and the number. */
enum { DC_REWRITE_X = 128, DC_REWRITE_Y, DC_REWRITE_Z, DC_REWRITE_C, DC_REWRITE_D, DC_REWRITE_J, DC_REWRITE_K, DC_REWRITE_NUM };
enum { DC_REWRITE_VARIABLES = DC_REWRITE_NUM - DC_REWRITE_X, DC_REWRITE_LENGTH = 48 };

typedef struct {
  dc_dtype type;                      /* of x, y, z, j, k and numbers */
  dc_ex bound[DC_REWRITE_VARIABLES];
} dc_rewrite_match;

typedef enum { DC_REWRITE_EXACT, DC_REWRITE_ULPS, DC_REWRITE_TRUTH } dc_rewrite_accuracy;
typedef struct {
  const char *from_text, *to_text;
  uint8_t from[DC_REWRITE_LENGTH], to[DC_REWRITE_LENGTH];
  bool (*condition)(double j, double k); /* NULL: any */
  dc_rewrite_accuracy accuracy;
  uint32_t ulps;
} dc_rewrite_row;

const dc_rewrite_row *dc_rewrite_at(uint32_t k); /* NULL at the end */
/* The pattern with its variables replaced, as constructors make it. */
dc_ex dc_rewrite_build(dc_pool *pool, const uint8_t *pattern, const dc_rewrite_match *match);
/* An equal expression that no row makes cheaper. */
dc_ex dc_rewrite(dc_pool *pool, dc_ex e);

#endif
