/* From a node of a scheduled graph to the text of a target's language: kernel, passes, printer. */
#ifndef DCML_BACKENDS_JIT_EMIT_H
#define DCML_BACKENDS_JIT_EMIT_H

#include "backends/printer/printer.h"

/* A language that kernels are printed in. */
typedef struct dc_language {
  const dc_kernel_pass *passes; /* a row without a name at the end */
  const dc_dialect *dialect;
  void (*library)(const char *kernels, dc_text *out); /* what stands above the text of kernels, which use it */
} dc_language;

/* One node as a function, without the library.  DC_ERR_UNSUPPORTED: the language lacks one of its types. */
DC_MUST_USE dc_status dc_emit_node(const dc_language *language, const dc_graph *graph, dc_nid node, const char *name, dc_text *out);
/* A kernel as it is, with the library. */
DC_MUST_USE dc_status dc_emit_kernel(const dc_language *language, dc_kernel *kernel, const char *name, dc_text *out);

#endif
