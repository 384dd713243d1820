/* Does a graph compute the same after a pass, or as a program? */
#ifndef DCML_CHECK_AGREE_H
#define DCML_CHECK_AGREE_H

#include "check/values.h"

typedef enum { DC_AGREES, DC_DIFFERS, DC_REFUSES, DC_CRASHES, DC_USELESS } dc_verdict;

/* What is tried on a graph besides passes and transformations, which go by their names. */
#define DC_PROGRAM_INTERPRETED "interpreted program"
#define DC_PROGRAM_COMPILED "compiled program"
#define DC_PROGRAM_NATIVE "native program" /* what libraries serve is still an operator in the graph */
#define DC_PROGRAM_WHOLE "whole pipeline"  /* passes around what libraries serve, compiled */
#define DC_FLAT_VIEW "flat view"           /* each state built anew from its flat view */
#define DC_KERNEL_TEXTS "kernel texts"     /* of a scheduled graph; nothing is run */

typedef struct {
  const dc_target *target; /* its backend is chosen by what is tried */
  const dc_size *sizes;    /* symbols whose values are given */
  uint32_t n_sizes;
  uint32_t n_sets;  /* of sizes and contents, at most DC_SIZE_SETS; 0: all */
  double tolerance; /* as in dc_values_same */
} dc_check;

/* How to run what is tried: a graph after a pass is interpreted. */
dc_run_kind dc_check_kind(const char *what);
dc_backend_kind dc_check_backend(const char *what);

/* Derives each state's flat view and builds it back, node by node. */
DC_MUST_USE dc_status dc_check_rebuild(dc_graph *graph);

/* Each map or tasklet of a scheduled graph becomes a kernel, which verifies and reads back after each of its passes. */
DC_MUST_USE dc_status dc_check_kernels(const dc_graph *graph);

/* Tries it at all sets of sizes; why takes what is wrong.  DC_USELESS: the graph itself does not run, or gives NaN. */
dc_verdict dc_check_try(const dc_check *check, const dc_graph *graph, const char *what, dc_text *why);
/* The same in a process of its own, which may crash or run for too long. */
dc_verdict dc_check_try_apart(const dc_check *check, const dc_graph *graph, const char *what);

#endif
