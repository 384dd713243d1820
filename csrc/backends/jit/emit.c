/* See emit.h. */
#include <stdio.h>

#include "backends/jit/emit.h"
#include "base/dump.h"

static void print_kernel(const void *kernel, dc_text *out) { dc_kernel_print(kernel, out); }

/* Stages go to GRAPH.kernel-NODE.NN-PASS.kernel. */
static dc_status dump(const dc_kernel *kernel, dc_dump_name name, uint32_t number, const char *stage) {
  return dc_dump_printed(name, number, stage, "kernel", print_kernel, kernel);
}

static dc_status schedule(const dc_language *language, dc_kernel *kernel, dc_dump_name name, uint32_t *n_stages) {
  const bool verify = dc_verify_wanted();
  *n_stages = 0;
  DC_TRY(dump(kernel, name, 0, "build"));
  for (const dc_kernel_pass *pass = language->passes; pass->name; pass++) {
    pass->run(kernel);
    if (verify) DC_TRY(dc_error_at(dc_kernel_verify(kernel), "after kernel pass '%s'", pass->name));
    DC_TRY(dump(kernel, name, ++*n_stages, pass->name));
  }
  return DC_OK;
}

static dc_status spell(const dc_language *language, const dc_graph *graph, dc_nid node, dc_kernel *kernel, const char *function,
                       dc_text *out, dc_launches *launches) {
  char label[40];
  uint32_t n_stages;
  snprintf(label, sizeof label, "kernel-%u", node);
  dc_dump_name name = {dc_name_text(&graph->names, graph->name), label};
  DC_TRY(dc_kernel_supported(kernel, dc_dialect_types(language->dialect)));
  DC_TRY(schedule(language, kernel, name, &n_stages));
  dc_kernel_spell(kernel, language->dialect, function, launches, out);
  return dc_dump_text(name, n_stages + 1, "printed", language->dialect->suffix, out->s);
}

dc_status dc_emit_node(const dc_language *language, const dc_graph *graph, dc_nid node, const char *name, dc_text *out,
                       dc_launches **launches, dc_loose *loose) {
  dc_kernel kernel;
  *launches = NULL;
  DC_TRY(dc_kernel_build(graph, node, &kernel));
  if (language->launches) *launches = dc_launches_create();
  dc_status status = spell(language, graph, node, &kernel, name, out, *launches);
  if (loose && !status && !language->launches) dc_kernel_spell_loose(&kernel, language->dialect, name, loose);
  dc_kernel_free(&kernel);
  if (status) dc_launches_destroy(*launches), *launches = NULL;
  return status;
}

dc_status dc_emit_kernel(const dc_language *language, dc_kernel *kernel, const char *name, dc_launches *launches, dc_text *out) {
  dc_text text = {0};
  DC_TRY(dc_kernel_supported(kernel, dc_dialect_types(language->dialect)));
  if ((kernel->grid.block != 0) != language->launches)
    return dc_error(DC_ERR_VALUE, "kernels in %s run on %s grid of threads", language->dialect->name, language->launches ? "a" : "no");
  dc_kernel_spell(kernel, language->dialect, name, launches, &text);
  language->library(text.s, out);
  dc_text_puts(out, text.s);
  dc_text_free(&text);
  return DC_OK;
}
