/* The machine that graphs are scheduled for, as numbers: passes read them from the graph and know no processor. */
#ifndef DCML_BASE_MACHINE_H
#define DCML_BASE_MACHINE_H

#include <stdint.h>

typedef struct {
  uint32_t vector_bytes;      /* of a register */
  uint32_t l1_bytes, l2_bytes; /* caches of data of one core */
  uint32_t local_elements;    /* of an array that one iteration keeps to itself: a small part of the L1 */
  uint32_t few_tasks;         /* iterations that do not keep all threads busy ... */
  uint32_t serial_work;       /* ... unless there are no more element operations than this */
  uint32_t block_rows;        /* of a batch, that share what is read for all of them: rows of a product */
  uint32_t few_rows;          /* of a product, that do not pay for turning an operand round */
  uint32_t unrolled_trips;    /* of a reduction: longer ones stay loops */
  uint32_t unrolled_residues; /* copies of a body for p % c */
  uint32_t short_stride;      /* elements between lanes of a vector that loads still bear */
  double store_ns;            /* a byte written to memory and read back */
  double cached_ns;           /* what is cheaper for an f32 than to store it and load it again from a cache */
} dc_machine;

/* A typical processor: what a graph is made for until somebody says otherwise, so that texts are the same everywhere. */
extern const dc_machine dc_machine_typical;
/* The processor that runs this, where it is asked for what it differs in: vectors and caches. */
void dc_machine_read(dc_machine *out);

#endif
