/* From a node of a scheduled graph to C: kernel, passes, printer. */
#include "backends/backend.h"
#include "backends/cpu/c.h"
#include "backends/printer/printer.h"

dc_status dc_c_kernel(const dc_graph *graph, dc_nid node, const char *name, dc_text *out) {
  dc_kernel kernel;
  DC_TRY(dc_kernel_build(graph, node, &kernel));
  dc_status status = dc_kernel_supported(&kernel, dc_dialect_types(&dc_c_dialect));
  if (!status) {
    dc_kernel_schedule(&kernel);
    dc_kernel_spell(&kernel, &dc_c_dialect, name, out);
  }
  dc_kernel_free(&kernel);
  return status;
}

dc_status dc_cpu_emit(const dc_graph *graph, dc_nid node, const char *function_name, dc_text *out) {
  dc_text kernel = {0};
  dc_status status = dc_c_kernel(graph, node, function_name, &kernel);
  if (!status) {
    dc_c_library(kernel.s, out);
    dc_text_puts(out, kernel.s);
  }
  dc_text_free(&kernel);
  return status;
}
