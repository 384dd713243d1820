/* The machine that graphs are scheduled for, as numbers: passes read them from the graph and know no processor. */
#ifndef DCML_BASE_MACHINE_H
#define DCML_BASE_MACHINE_H

#include <stdbool.h>
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
  uint32_t image_multiplications; /* for each element that convolutions move; with fewer, images stay as they lie */
  uint32_t short_stride;      /* elements between lanes of a vector that loads still bear */
  /* of a device whose teams of threads each take a sum, or neighbouring sums; 0: the threads of one processor share sums */
  uint32_t teams;             /* that fill the device, and ... */
  uint32_t team_threads;      /* ... threads of one */
  uint32_t team_columns;      /* sums whose terms lie side by side, that a team takes at once ... */
  uint32_t wide_columns;      /* ... and as many as that where there are more, as long pieces of memory are read faster */
  uint32_t row_elements;      /* of a row that registers of a team hold, at which memory is read fastest */
  uint32_t thread_terms;      /* of a sum, that a thread adds in the time that another kernel takes to start */
  double store_ns;            /* a byte written to memory and read back */
  double cached_ns;           /* what is cheaper for an f32 than to store it and load it again from a cache */
  /* of kernels */
  uint32_t strip_lanes;       /* iterations that run side by side inside the loops of their body: some vectors of accumulators */
  uint32_t long_strip_lanes;  /* the same where memory is read once: long runs matter more than registers */
  uint32_t few_iterations;    /* of a loop, too few for vectors */
  uint32_t sum_lanes;         /* accumulators of one sum at most: several vectors, as each addition waits for the last one */
  uint32_t accumulator_bytes; /* of all sums of a loop: about what registers hold */
  uint32_t tile_rows, tile_columns; /* of what is read across and written along: a line of cache, and as many as its ways */
  uint32_t product_rows, product_columns; /* of a block of a matrix product, whose sums stay in the L2 */
  uint32_t tile_bytes;        /* of a row of sums that registers hold, beside other rows; 0: no operand is put in strips for them */
  uint32_t task_iterations;   /* of a vectorised loop, that a thread takes at a time */
  uint32_t tiny_iterations;   /* of a loop, that are less than a microsecond for certain */
  uint32_t serial_ns;         /* work that one thread does as soon as several would */
  double iteration_ns, store_add_ns, accumulate_ns, collision_ns; /* what a loop, a write, a sum and a shared element add to a value */
  double multiply_ns;         /* a multiplication in a matrix product */
  uint32_t multiprocessors;   /* of a device, each with a thousand threads and more; 0: a processor */
} dc_machine;

/* A typical processor: what a graph is made for until somebody says otherwise, so that texts are the same everywhere. */
extern const dc_machine dc_machine_typical;
/* A typical device of many threads, by the same rule. */
extern const dc_machine dc_machine_cuda_typical;
/* Of the routines that are built for AVX-512, for AVX2 and for any processor: the bytes of a vector in those that may run here,
 * `most` at most; 64, 32 or 0. */
uint32_t dc_machine_built_vectors(uint32_t most);
/* Did Intel make the processor that runs this? */
bool dc_machine_is_intel(void);
/* How this processor multiplies bf16 quickest: turned into f32, by instructions of AVX-512 for pairs, or by tiles (AMX). */
typedef enum { DC_BF16_AS_F32, DC_BF16_IN_PAIRS, DC_BF16_IN_TILES } dc_bf16_way;
dc_bf16_way dc_machine_bf16_way(void);
/* Of three builds of one routine the one that those vectors mean; elsewhere than on x86 there is only the plain one. */
#ifdef __x86_64__
#define DC_BUILT(most, plain, avx2, avx512) \
  (dc_machine_built_vectors(most) == 64 ? (avx512) : dc_machine_built_vectors(most) == 32 ? (avx2) : (plain))
#else
#define DC_BUILT(most, plain, avx2, avx512) ((void)(most), (plain))
#endif
/* The processor that runs this, where it is asked for what it differs in: vectors and caches. */
void dc_machine_read(dc_machine *out);

#endif
