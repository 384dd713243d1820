/* Judging a run by its sizes.
 *
 * A few bytes of attributes or shapes can ask for any number of loop iterations and any amount of memory, and a run
 * that never ends cannot be told from a long one.  So both are compared with what the caller holds and passed in -
 * inputs, weights, constants of the file - for those bytes are real: a million steps for each of them is more than
 * operators take on large tensors (a product of n by n matrices takes n/12, sorting n numbers by comparing all n/8),
 * and 16 KB for each is more than any network keeps.  Below 2^31 steps and 1 GB nobody need hold anything.
 * DCML_ALLOW, a factor on both or "inf", is for those who know better. */
#include "backends/limits.h"

#include <math.h>
#include <stdlib.h>

static const double FREE_STEPS = 0x1p31, STEPS_PER_BYTE = 0x1p20, FREE_BYTES = 0x1p30, BYTES_PER_BYTE = 0x1p14;

/* Read where it matters, which is where something is about to be refused. */
static double allowance(void) {
  const char *text = getenv("DCML_ALLOW");
  double factor = text ? strtod(text, NULL) : 1;
  return factor > 0 ? factor : 1;
}

static double justified(double amount_free, double per_byte, uint64_t held_bytes) {
  return fmax(amount_free, per_byte * (double)held_bytes);
}

double dc_limits_memory_bytes(uint64_t held_bytes) {
  return allowance() * justified(FREE_BYTES, BYTES_PER_BYTE, held_bytes);
}

dc_status dc_limits_check_steps(dc_graph *g, const dc_nid *nodes, const double *steps, uint32_t n, uint64_t held_bytes) {
  double total = 0, most = justified(FREE_STEPS, STEPS_PER_BYTE, held_bytes);
  uint32_t largest = 0;
  for (uint32_t k = 0; k < n; k++) {
    total += steps[k];
    if (steps[k] > steps[largest]) largest = k;
  }
  if (total < most || total < allowance() * most) return DC_OK;
  return dc_error(DC_ERR_MEMORY, "%s: it asks for %.3g steps, the graph for %.3g, but %llu bytes of inputs and weights "
                                 "justify no more than %.3g; DCML_ALLOW=<factor> allows more",
                  dc_node_describe(g, nodes[largest]), steps[largest], total, (unsigned long long)held_bytes, most);
}
