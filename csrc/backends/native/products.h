/* Matrix products as plain numbers: what products.c binds and the routines run. */
#ifndef DCML_BACKENDS_NATIVE_PRODUCTS_H
#define DCML_BACKENDS_NATIVE_PRODUCTS_H

#include "backends/backend.h"

enum {
  PRODUCTS_ROWS = 6, /* of a tile: registers hold as many rows of sums, ... */
  PRODUCTS_STRIP = 16, /* ... of as many columns each */
  PRODUCTS_CLASHING = 512, /* lines so many numbers apart, or a multiple, push each other out of the first cache */
};

/* c = a b (+ bias by column). */
typedef struct {
  int64_t m, n, k;
  const float *a, *b, *bias; /* bias NULL: none */
  float *c;
  int64_t a_row, a_step; /* a's number of (i, k) lies at i * a_row + k * a_step, where one of the two is 1 */
  int64_t b_row, c_row;
  bool b_turned; /* b's number of (k, j) lies at j * b_row + k, else at k * b_row + j */
} products_job;

/* NULL: there are none for this processor and vectors of so many bytes. */
typedef struct {
  int64_t (*room)(const products_job *job); /* numbers of scratch */
  /* Sums have one order for one k, whatever part of a product the job is. */
  void (*run)(const products_job *job, float *room);
} products_routines;
const products_routines *products_choose(uint32_t vector_bytes);

#endif
