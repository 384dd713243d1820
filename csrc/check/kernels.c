/* Do kernels hold as texts?  See agree.h. */
#include <string.h>

#include "backends/kernel/kernel.h"
#include "check/agree.h"

/* The text of a kernel reads back as a kernel that prints alike. */
static dc_status round_trip(const dc_kernel *kernel) {
  dc_text text = {0}, back = {0};
  dc_kernel again;
  dc_kernel_print(kernel, &text);
  dc_status status = dc_kernel_parse(text.s, &again);
  if (!status) {
    dc_kernel_print(&again, &back);
    if (strcmp(text.s, back.s)) status = dc_error(DC_ERR_MODEL, "the kernel reads back as\n%s", back.s);
    dc_kernel_free(&again);
  }
  status = dc_error_at(status, "%s", text.s);
  dc_text_free(&text);
  dc_text_free(&back);
  return status;
}

static dc_status try_kernel(const dc_graph *g, dc_nid node, const dc_kernel_pass *passes) {
  dc_kernel kernel;
  DC_TRY(dc_kernel_build(g, node, &kernel));
  dc_status status = dc_kernel_verify(&kernel);
  for (const dc_kernel_pass *pass = passes; pass->name && !status; pass++) {
    status = dc_kernel_pass_run(&kernel, pass->name);
    if (!status) status = round_trip(&kernel);
  }
  dc_kernel_free(&kernel);
  return status;
}

dc_status dc_check_kernels(const dc_graph *g) {
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) {
      dc_nid node = g->states.v[s].scope.v[k];
      if (dc_node_at(g, node)->kind == DC_NODE_LIBRARY) continue;
      DC_TRY(try_kernel(g, node, dc_kernel_passes));
      DC_TRY(try_kernel(g, node, dc_kernel_passes_grid));
    }
  return DC_OK;
}
