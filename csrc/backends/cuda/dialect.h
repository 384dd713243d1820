/* The language of NVIDIA's devices: how CUDA C++ spells kernels, and the library that they call. */
#ifndef DCML_BACKENDS_CUDA_DIALECT_H
#define DCML_BACKENDS_CUDA_DIALECT_H

#include "backends/jit/emit.h"

extern const dc_dialect dc_cuda_dialect;
/* library.c: the types, macros and functions that the text of kernels uses. */
void dc_cuda_library(const char *kernels, dc_text *out);
extern const dc_language dc_cuda_language;

#endif
