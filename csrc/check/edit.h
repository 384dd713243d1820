/* Edits that make a graph smaller.  An edit is named by a number, so that all of them can be tried in turn on clones. */
#ifndef DCML_CHECK_EDIT_H
#define DCML_CHECK_EDIT_H

#include "ops/ops.h"

/* The k-th edit on a clone: an output or nodes less, an output that is computed earlier, a symbol fixed, a weight that
 * becomes an input, half an extent, a simpler value.  NULL when there are no more. */
dc_graph *dc_edit_make(dc_ops *ops, const dc_graph *graph, uint32_t k);
/* Makes it a graph that runs by itself again: what is read but no longer written becomes an input, weights and what is
 * saved too, and what nobody writes is no output. */
void dc_edit_repair(dc_graph *graph);

#endif
