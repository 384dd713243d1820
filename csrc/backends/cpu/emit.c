/* From a node of a scheduled graph to C: kernel, passes, printer. */
#include <stdio.h>

#include "backends/backend.h"
#include "backends/cpu/c.h"
#include "base/dump.h"

/* Where the stages of a kernel go when they are wanted: GRAPH.kernel-NODE.NN-PASS.kernel */
typedef struct {
  const char *graph, *kernel;
} dump_name;

static dc_status dump(const dc_kernel *kernel, dump_name name, uint32_t number, const char *stage) {
  if (!dc_dump_wanted()) return DC_OK;
  dc_text text = {0};
  dc_kernel_print(kernel, &text);
  dc_status status = dc_dump_text(name.graph, name.kernel, number, stage, "kernel", text.s);
  dc_text_free(&text);
  return status;
}

static dc_status schedule(dc_kernel *kernel, dump_name name, uint32_t *n_stages) {
  const bool verify = dc_verify_wanted();
  *n_stages = 0;
  DC_TRY(dump(kernel, name, 0, "build"));
  for (const dc_kernel_pass *pass; (pass = dc_kernel_pass_at((*n_stages)++));) {
    pass->run(kernel);
    if (verify) DC_TRY(dc_error_at(dc_kernel_verify(kernel), "after kernel pass '%s'", pass->name));
    DC_TRY(dump(kernel, name, *n_stages, pass->name));
  }
  return DC_OK;
}

static dc_status spell(const dc_graph *graph, dc_nid node, dc_kernel *kernel, const char *function, dc_text *out) {
  char label[40];
  uint32_t n_stages;
  snprintf(label, sizeof label, "kernel-%u", node);
  dump_name name = {dc_name_text(&graph->names, graph->name), label};
  DC_TRY(dc_kernel_supported(kernel, dc_dialect_types(&dc_c_dialect)));
  DC_TRY(schedule(kernel, name, &n_stages));
  dc_kernel_spell(kernel, &dc_c_dialect, function, out);
  return dc_dump_text(name.graph, name.kernel, n_stages, "printed", "c", out->s);
}

dc_status dc_c_kernel(const dc_graph *graph, dc_nid node, const char *name, dc_text *out) {
  dc_kernel kernel;
  DC_TRY(dc_kernel_build(graph, node, &kernel));
  dc_status status = spell(graph, node, &kernel, name, out);
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
