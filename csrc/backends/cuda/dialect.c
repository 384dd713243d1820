/* CUDA C++: until kernels are spelled for it, one thread runs what C has. */
#include "backends/cuda/cuda.h"

#include "backends/cpu/c.h"

static dc_status one_thread(dc_kernel *kernel, dc_launches *out) {
  dc_launch_add(out, "", 1, kernel->pool, dc_ex_int(kernel->pool, 1), 0);
  return DC_OK;
}

const dc_language dc_cuda_language = {.passes = dc_kernel_passes, .dialect = &dc_c_dialect, .library = dc_c_library, .launches = one_thread};
