/* What the pass `attention` is made of. */
#ifndef DCML_PASSES_ATTENTION_H
#define DCML_PASSES_ATTENTION_H

#include "ir/graph.h"

/* States the gradient of a node of attention; of_mask: of its mask too, where somebody may want it. */
DC_MUST_USE dc_status dc_attention_state_gradient(dc_graph *graph, dc_nid node, bool of_mask);

#endif
