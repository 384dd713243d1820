/* The language of the cpu backend: how C spells kernels, and the library that they call. */
#ifndef DCML_BACKENDS_CPU_C_H
#define DCML_BACKENDS_CPU_C_H

#include "backends/printer/printer.h"

extern const dc_dialect dc_c_dialect;

/* emit.c: one node as a function, without the library.  DC_ERR_UNSUPPORTED: C does not compute with one of its types. */
DC_MUST_USE dc_status dc_c_kernel(const dc_graph *graph, dc_nid node, const char *name, dc_text *out);

/* The same of a kernel as its passes left it, with the library. */
DC_MUST_USE dc_status dc_c_spell(dc_kernel *kernel, const char *name, dc_text *out);

/* kernel_lib.c: the types, macros and functions that the text of kernels uses. */
void dc_c_library(const char *kernels, dc_text *out);

#endif
