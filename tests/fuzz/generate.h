/* Random graphs of operators, for the fuzzer of passes. */
#ifndef DCML_TESTS_FUZZ_GENERATE_H
#define DCML_TESTS_FUZZ_GENERATE_H

#include "ops/ops.h"

/* A graph of inferred library nodes; equal seeds give equal graphs.  Extents are numbers or the symbols A, B and C,
 * which may be 0.  Integer inputs are named after what they may hold: "below_N..." elements in 0 .. N-1,
 * "distinct_N..." no two equal ones if there are at most N; N is a number or a symbol. */
dc_graph *fuzz_generate(dc_ops *ops, uint64_t seed);

#endif
