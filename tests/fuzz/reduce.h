/* Makes a graph on which a pass fails as small as it gets. */
#ifndef DCML_TESTS_FUZZ_REDUCE_H
#define DCML_TESTS_FUZZ_REDUCE_H

#include "fuzz/agree.h"

typedef enum { FUZZ_AGREES, FUZZ_DIFFERS, FUZZ_REFUSES, FUZZ_CRASHES, FUZZ_USELESS } fuzz_verdict;

/* What is tried on a graph: a pass by name, or one of these. */
#define FUZZ_INTERPRETED "interpreted program"
#define FUZZ_COMPILED "compiled program"
#define FUZZ_NATIVE "native program" /* what libraries serve is still an operator in the graph */

/* Tries it at all sets of sizes; why takes what is wrong.  FUZZ_USELESS: the graph itself does not run, or gives NaN. */
fuzz_verdict fuzz_try(const dc_target *target, const dc_graph *graph, const char *what, dc_text *why);
/* The same in a process of its own, which may crash or run for too long. */
fuzz_verdict fuzz_try_apart(const dc_target *target, const dc_graph *graph, const char *what);
/* The text of a smaller graph with the same verdict. */
void fuzz_reduce(const dc_target *target, const dc_graph *graph, const char *what, dc_text *out);

#endif
