/* The passes of kernels, in order. */
#include <string.h>

#include "backends/kernel/kernel.h"

const dc_kernel_pass dc_kernel_passes[] = {
    {"merge", "loops over dimensions that lie one after the other become one", dc_kernel_merge},
    {"pieces", "runs loops in pieces in which their conditions are decided", dc_kernel_pieces},
    {"narrow", "writes what a short loop makes narrower than it computes by a loop of its own", dc_kernel_narrow},
    {"products", "finds matrix products, which run in blocks", dc_kernel_products},
    {"lanes", "runs parallel loops in strips, inside the loops of their bodies", dc_kernel_lanes},
    {"tiles", "tiles element-wise loops that read across and write along", dc_kernel_tiles},
    {"carries", "keeps what the next iteration of a sequential loop reads in registers", dc_kernel_carries},
    {"accumulators", "keeps what reductions combine into in registers", dc_kernel_accumulators},
    {"collisions", "marks loops whose iterations may write one element", dc_kernel_collisions},
    {"vectors", "marks innermost loops that vectors may run", dc_kernel_vectors},
    {"join", "lets neighbouring blocks of a loop run as one", dc_kernel_join},
    {"sums", "gives sums an order: lanes, and blocks in blocks", dc_kernel_sums},
    {"copies", "makes loops that only clear or copy memory one call", dc_kernel_copies},
    {"threads", "shares the loops of maps between threads", dc_kernel_threads},
    {"overlaps", "lets the last vector of a short loop begin where it is whole", dc_kernel_overlaps},
    {NULL, NULL, NULL},
};

const dc_kernel_pass dc_kernel_passes_grid[] = {
    {"merge", "loops over dimensions that lie one after the other become one", dc_kernel_merge},
    {"outward", "loops of reductions that never meet in one element become parallel ones around them", dc_kernel_outward},
    {"identities", "sets what a reduction adds to rows of memory before it, by loops of their own", dc_kernel_identities},
    {"accumulators", "keeps what reductions combine into in registers", dc_kernel_accumulators},
    {"collisions", "marks loops whose iterations may write one element", dc_kernel_collisions},
    {"sums", "gives sums an order: lanes, and blocks in blocks", dc_kernel_sums},
    {"grid", "deals the iterations of loops to the threads of a device", dc_kernel_grid},
    {"crossings", "reads what lies across the threads of a grid by tiles", dc_kernel_crossings},
    {"packs", "takes iterations together whose elements lie side by side", dc_kernel_packs},
    {"reciprocals", "divides by what a loop does not change before it", dc_kernel_reciprocals},
    {"parts", "keeps what a team adds up over a sequential loop in registers of its threads", dc_kernel_parts},
    {"rows", "keeps what loops of a team use of a row in registers of its threads", dc_kernel_rows},
    {NULL, NULL, NULL},
};

static const dc_kernel_pass *find(const dc_kernel_pass *list, const char *name, dc_text *names) {
  for (const dc_kernel_pass *pass = list; pass->name; pass++) {
    if (!strcmp(pass->name, name)) return pass;
    bool named = list != dc_kernel_passes;
    for (const dc_kernel_pass *other = dc_kernel_passes; named && other->name; other++)
      if (!strcmp(pass->name, other->name)) named = false;
    if (list == dc_kernel_passes || named) dc_text_printf(names, "%s%s", names->n ? ", " : "", pass->name);
  }
  return NULL;
}

dc_status dc_kernel_pass_run(dc_kernel *kernel, const char *name) {
  dc_text names = {0};
  const dc_kernel_pass *pass = find(dc_kernel_passes, name, &names);
  if (!pass) pass = find(dc_kernel_passes_grid, name, &names);
  dc_status status = DC_OK;
  if (pass) pass->run(kernel);
  if (pass) status = dc_error_at(dc_kernel_verify(kernel), "after kernel pass '%s'", name);
  else status = dc_error(DC_ERR_VALUE, "there is no kernel pass '%s'; there are %s", name, names.s);
  dc_text_free(&names);
  return status;
}
