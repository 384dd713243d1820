/* From a node of a scheduled graph to C: kernel, passes, printer. */
#include "backends/backend.h"
#include "backends/cpu/c.h"

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

static void put_with_library(dc_text *kernel, dc_text *out) {
  dc_c_library(kernel->s, out);
  dc_text_puts(out, kernel->s);
  dc_text_free(kernel);
}

dc_status dc_c_spell(dc_kernel *kernel, const char *name, dc_text *out) {
  dc_text text = {0};
  DC_TRY(dc_kernel_supported(kernel, dc_dialect_types(&dc_c_dialect)));
  dc_kernel_spell(kernel, &dc_c_dialect, name, &text);
  put_with_library(&text, out);
  return DC_OK;
}

dc_status dc_cpu_emit(const dc_graph *graph, dc_nid node, const char *function_name, dc_text *out) {
  dc_text text = {0};
  DC_TRY(dc_c_kernel(graph, node, function_name, &text));
  put_with_library(&text, out);
  return DC_OK;
}
