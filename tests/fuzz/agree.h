/* Do two graphs compute the same?  Runs them on pseudo-random data at sets of sizes, and compares. */
#ifndef DCML_TESTS_FUZZ_AGREE_H
#define DCML_TESTS_FUZZ_AGREE_H

#include "backends/backend.h"

enum { FUZZ_SIZE_SETS = 12, FUZZ_SYMBOLS = 64 };

/* A graph with the contents of its containers. */
typedef struct {
  dc_graph *graph; /* owned */
  void **buffers;  /* by container */
  int64_t symbols[FUZZ_SYMBOLS];
} fuzz_values;

/* Values of the symbols for one of the sets; false where the graph assumes others.  The first sets are all different, the
 * later ones have extents of 0 and 1, and equal ones. */
bool fuzz_sizes(const dc_graph *graph, uint32_t set, int64_t *symbols);

/* Interprets a clone of the graph, with its library nodes expanded.  Inputs have the contents of the containers of that
 * name in `given` (may be NULL) if they are there, else values that depend on name and seed. */
dc_status fuzz_interpret(dc_ops *ops, const dc_graph *graph, const int64_t *symbols, uint64_t seed, const fuzz_values *given, fuzz_values *out);
/* The same by a program of a clone of a scheduled graph. */
dc_status fuzz_execute(const dc_target *target, const dc_graph *graph, const int64_t *symbols, uint64_t seed, const fuzz_values *given, fuzz_values *out);
void fuzz_values_free(fuzz_values *values);

/* Outputs, by position, and saved values of `wanted`, by name, are in `got`; if not, why says where they differ. */
bool fuzz_same(const fuzz_values *wanted, const fuzz_values *got, dc_text *why);

#endif
