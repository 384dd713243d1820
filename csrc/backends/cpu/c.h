/* The language of the cpu: how C spells kernels, the library that they call, and who compiles them. */
#ifndef DCML_BACKENDS_CPU_C_H
#define DCML_BACKENDS_CPU_C_H

#include "backends/jit/emit.h"
#include "backends/jit/toolchain.h"

extern const dc_dialect dc_c_dialect;
/* kernel_lib.c: the types, macros and functions that the text of kernels uses. */
void dc_c_library(const char *kernels, dc_text *out);
extern const dc_language dc_c_language;
extern const dc_toolchain dc_c_toolchain;

#endif
