/* How the functions that one kernel becomes on a device of many threads are started: each as so many blocks of so many
 * threads, one after the other.
 *
 * Parameters of each function, in this order: a pointer for each buffer in the order of dc_kernel_buffers, the values of
 * `symbols` as i64, and, if it `checks`, an i64 *error. */
#ifndef DCML_BACKENDS_KERNEL_LAUNCH_H
#define DCML_BACKENDS_KERNEL_LAUNCH_H

#include "ir/graph.h"

typedef struct {
  const char *suffix;    /* of the function's name, behind the kernel's */
  uint32_t threads;      /* of a block */
  dc_ex blocks;          /* how many, in `pool`, over symbols; what comes to 0 or less is not launched */
  uint32_t shared_bytes; /* that a block is given when it is launched, besides what the function declares */
  void *function;        /* once it is loaded */
} dc_launch;

typedef struct dc_launches {
  dc_arena arena;
  dc_pool pool; /* of `blocks`; symbols have the numbers that they have in the graph */
  DC_VEC(dc_launch) launches;
  DC_VEC(dc_sym) symbols;
  bool checks; /* an index that depends on data may be outside: then 1 + the ordinal of the tasklet is stored to *error */
} dc_launches;

dc_launches *dc_launches_create(void);
void dc_launches_destroy(dc_launches *launches); /* NULL is allowed */
/* Copies an expression of another pool over the same symbols. */
void dc_launch_add(dc_launches *launches, const char *suffix, uint32_t threads, const dc_pool *from, dc_ex blocks, uint32_t shared_bytes);
uint64_t dc_launches_hash(const dc_launches *launches); /* of all but the loaded functions; NULL is allowed */

#endif
