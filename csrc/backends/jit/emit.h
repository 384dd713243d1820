/* From a node of a scheduled graph to the text of a target's language: kernel, passes, printer. */
#ifndef DCML_BACKENDS_JIT_EMIT_H
#define DCML_BACKENDS_JIT_EMIT_H

#include "backends/kernel/launch.h"
#include "backends/printer/printer.h"

/* A language that kernels are printed in. */
typedef struct dc_language {
  const dc_kernel_pass *passes; /* a row without a name at the end */
  const dc_dialect *dialect;
  void (*library)(const char *kernels, dc_text *out); /* what stands above the text of kernels, which use it */
  bool launches; /* a kernel is functions that are launched; or else one, which is called */
} dc_language;

/* One node as a function or several, without the library.  DC_ERR_UNSUPPORTED: the language lacks one of its types.
 * *launches: how they are launched, the caller's; NULL where the language has one function that is called.  loose: NULL, or
 * empty; then its loose text is made too, where the language has one function that is called. */
DC_MUST_USE dc_status dc_emit_node(const dc_language *language, const dc_graph *graph, dc_nid node, const char *name, dc_text *out,
                                   dc_launches **launches, dc_loose *loose);
/* A kernel as it is, with the library.  launches: NULL, or made empty by the caller. */
DC_MUST_USE dc_status dc_emit_kernel(const dc_language *language, dc_kernel *kernel, const char *name, dc_launches *launches, dc_text *out);

#endif
