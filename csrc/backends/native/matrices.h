/* Decompositions of matrices as plain numbers: what matrices.c binds and matrices_tiles.h runs. */
#ifndef DCML_BACKENDS_NATIVE_MATRICES_H
#define DCML_BACKENDS_NATIVE_MATRICES_H

#include "backends/backend.h"

enum {
  MATRICES_COLUMNS = 64, /* of right-hand sides that a thread takes */
  MATRICES_PANEL = 16,   /* of columns that are eliminated together */
  MATRICES_PAD = 16,     /* numbers between rows in scratch: rows of a power of two would share few lines of a cache */
};

typedef enum { MATRICES_LU, MATRICES_CHOLESKY, MATRICES_TRIANGULAR } matrices_kind;

typedef struct {
  matrices_kind kind;
  int64_t batch, n, columns; /* matrices of n rows and columns; columns of right-hand sides */
  bool upper, unit;
  const void *a, *x;  /* the matrices; right-hand sides */
  void *y, *u;        /* L, the factor or the solution; the other factor */
  int64_t *pivots;
} matrices_job; /* results that nobody wants are NULL */

/* A tile is as many matrices as a vector has numbers, side by side; else each is worked on alone, along its rows. */
typedef struct {
  int lanes;
  void (*tile)(const matrices_job *job, int64_t tile, void *scratch);
  void (*alone)(const matrices_job *job, int64_t matrix, int64_t from, int64_t to, void *scratch); /* these columns */
} matrices_routines;

const matrices_routines *matrices_choose(bool wide, uint32_t vector_bytes);

#endif
