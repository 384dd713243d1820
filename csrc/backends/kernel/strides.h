/* What a vector of accesses along p costs beyond a load of neighbours: shuffles for a short step, a line of cache for
 * each element otherwise. */
#ifndef DCML_BACKENDS_KERNEL_STRIDES_H
#define DCML_BACKENDS_KERNEL_STRIDES_H

#include "backends/kernel/kernel.h"

enum { DC_STRIDE_FREE = 0, DC_STRIDE_SHUFFLED = 1, DC_STRIDE_JUMPS = 4 };

static inline uint32_t dc_stride_cost(const dc_kernel *k, dc_ex address, dc_param p) {
  dc_ex factor, rest;
  int64_t step;
  if (!dc_ix_split(k->pool, address, p, &factor, &rest) || !dc_ex_is_int(k->pool, factor, &step)) return DC_STRIDE_JUMPS;
  return step == 0 || step == 1 ? DC_STRIDE_FREE : step > 1 && step <= 4 ? DC_STRIDE_SHUFFLED : DC_STRIDE_JUMPS;
}

#endif
