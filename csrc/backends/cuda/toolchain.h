/* The toolchain of CUDA: NVRTC in threads of this process makes cubins, the driver loads them.  Its context is a dc_gpu,
 * which is entered while modules are loaded and unloaded. */
#ifndef DCML_BACKENDS_CUDA_TOOLCHAIN_H
#define DCML_BACKENDS_CUDA_TOOLCHAIN_H

#include "backends/jit/toolchain.h"

extern const dc_toolchain dc_nvrtc_toolchain;

#endif
