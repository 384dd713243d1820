/* What the generator builds graphs with: a pool of values, and nodes that are inferred as they are added. */
#ifndef DCML_TESTS_FUZZ_BUILD_H
#define DCML_TESTS_FUZZ_BUILD_H

#include "ops/ops.h"

enum { FUZZ_VALUES = 256, FUZZ_MAX_ELEMENTS = 3000, FUZZ_OPSET = 23 };

typedef struct {
  dc_ops *ops;
  dc_graph *g;
  uint64_t random;
  dc_dtype real;
  dc_cid pool[FUZZ_VALUES]; /* real values, oldest first */
  uint32_t n;
  dc_cid made[FUZZ_VALUES]; /* inputs in the order in which they were asked for; a repeated step is given them again */
  uint32_t n_made, next_made;
  bool is_symbolic;
} builder;

uint32_t fuzz_pick(builder *b, uint32_t below);
bool fuzz_one_in(builder *b, uint32_t n);

/* Shapes. */
uint32_t fuzz_rank(const builder *b, dc_cid c);
dc_ex fuzz_dim(const builder *b, dc_cid c, uint32_t d);
bool fuzz_known(const builder *b, dc_ex extent, int64_t *value);
dc_ex fuzz_int(builder *b, int64_t value);
dc_ex fuzz_extent(builder *b); /* a random one */
int64_t fuzz_elements(const builder *b, dc_cid c, int64_t symbol); /* with that value for all symbols */

/* Values. */
dc_cid fuzz_input(builder *b, const dc_ex *shape, uint32_t rank);
dc_cid fuzz_index(builder *b, const char *kind, dc_ex bound, const dc_ex *shape, uint32_t rank);
dc_cid fuzz_scalar(builder *b, double value);
dc_cid fuzz_ints(builder *b, const int64_t *values, uint32_t n);
dc_cid fuzz_any(builder *b);                                /* of the pool, rather a late one */
dc_cid fuzz_ranked(builder *b, uint32_t least, uint32_t most); /* 0 where there seems to be none */

/* Adds a node and its outputs; 0 (and no node) where the operator refuses or results are large.  The first output is
 * returned, and put into the pool if it is real; more[k] takes the k-th further one. */
dc_cid fuzz_node(builder *b, const char *op, const dc_cid *in, uint32_t n_in, const dc_attr *attrs, uint32_t n_attrs, dc_cid *more, uint32_t n_more);
dc_cid fuzz_apply(builder *b, const char *op, dc_cid x, dc_cid y, dc_cid z); /* without attributes; 0: absent */
dc_cid fuzz_apply_int(builder *b, const char *op, dc_cid x, dc_cid y, dc_cid z, const char *name, int64_t value);

#endif
