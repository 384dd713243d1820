/* What a graph computes, and whether two graphs compute the same.
 *
 * A graph is run on contents that depend on the names of its inputs alone, so that it and what a pass made of it see the
 * same.  The interpreter, on the graph before its first pass, says what is right. */
#ifndef DCML_CHECK_VALUES_H
#define DCML_CHECK_VALUES_H

#include "backends/backend.h"

/* ---- sizes ---- */

enum { DC_SIZE_SETS = 12, DC_MAX_SIZES = 1024 };

/* A symbol whose value is given. */
typedef struct {
  const char *name;
  int64_t value;
} dc_size;

/* Values of the symbols for one of DC_SIZE_SETS sets, but for those that are given; symbols holds DC_MAX_SIZES.  The
 * first sets are all different, the later ones have extents of 0 and 1, and equal ones.  A symbol has the same value in
 * every graph that has it.  Writes to *why, unless that is NULL, what the graph assumes otherwise, and returns false. */
bool dc_sizes_choose(const dc_graph *graph, uint32_t set, const dc_size *given, uint32_t n_given, int64_t *symbols, dc_text *why);

/* ---- values ---- */

/* A graph with the contents of its containers. */
typedef struct {
  dc_graph *graph; /* owned */
  void **buffers;  /* by container */
  int64_t *symbols;
} dc_values;

/* Contents of the container of that name, or NULL for data that depend on name and seed. */
typedef struct {
  const void *(*find)(void *context, const char *name, uint64_t *n_bytes);
  void *context;
  uint64_t seed;
} dc_contents;

typedef enum {
  DC_RUN_INTERPRETED, /* a clone, with its library nodes expanded, node by node */
  DC_RUN_PROGRAM,     /* a program of a clone; the graph is scheduled */
  DC_RUN_WHOLE,       /* the whole pipeline on a clone, libraries included, and its program */
} dc_run_kind;

/* Runs a graph; out is to be freed even after an error. */
DC_MUST_USE dc_status dc_values_run(const dc_target *target, const dc_graph *graph, dc_run_kind kind, const int64_t *symbols,
                                    dc_contents contents, dc_values *out);
void dc_values_free(dc_values *values);
/* Data for an input: n elements of its type, which depend on its name and the seed.  Integers lie in 0..2, or below N
 * for a name "below_N" or "distinct_N". */
void dc_values_sample(const dc_graph *graph, dc_cid c, const int64_t *symbols, uint64_t seed, void *data, int64_t n);
/* Elements of a container; an error if they take more than 4 GiB, or there is no shape. */
DC_MUST_USE dc_status dc_values_elements(const dc_graph *graph, dc_cid c, const int64_t *symbols, int64_t *out);

/* ---- differences ---- */

typedef struct {
  const char *name;    /* of the container; lives as long as the values */
  const char *problem; /* what is wrong besides elements, or NULL */
  int64_t wrong, elements, at; /* how many elements differ, of how many; which one most ... */
  double got, wanted, largest; /* ... and what it is, should be, and the difference */
} dc_difference;

/* Outputs, by position, and saved values of `wanted`, by name, are in `got`; if not, out says what differs first.
 * tolerance: of elements, relative to the largest of the container; 0: as befits their type.  */
bool dc_values_same(const dc_values *wanted, const dc_values *got, double tolerance, dc_difference *out);
void dc_difference_print(const dc_difference *difference, dc_text *out);
/* Is any element of an output NaN? */
bool dc_values_have_nan(const dc_values *values);

#endif
