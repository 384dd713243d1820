/* Fusion of maps: their bodies come into one map, tasklets as they were, and what only it uses lives in registers. */
#include "passes/fuse.h"
#include "passes/transforms/transforms.h"

static dc_status fuse(const dc_transform *t, dc_fuse_options options, uint32_t *count) {
  dc_fuse_counts counts = {0};
  options.as_written = options.registers_only = true;
  options.fixed = t->fixed, options.n_fixed = t->n_fixed;
  dc_fuse_merge(t->graph, &options, &counts);
  if (counts.merged) dc_fuse_contract(t->graph, &options);
  return *count = counts.merged, DC_OK;
}

dc_status dc_transform_map_fusion(const dc_transform *t, uint32_t *count) {
  return fuse(t, (dc_fuse_options){.producers_only = true, .whole_only = true}, count);
}

dc_status dc_transform_subgraph_fusion(const dc_transform *t, uint32_t *count) {
  return fuse(t, (dc_fuse_options){.strangers = !t->all}, count);
}
