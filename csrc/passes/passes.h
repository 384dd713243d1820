/* Passes: graph in, graph out, one per file.  pipeline.c is the table of contents.
 * Each can be run alone by name on a graph's text form, which is how it is tested. */
#ifndef DCML_PASSES_PASSES_H
#define DCML_PASSES_PASSES_H

#include "ops/ops.h"

/* Infers types, shapes and known values of all library nodes in order.  *blocked as in dc_ops_infer. */
DC_MUST_USE dc_status dc_pass_infer(dc_ops *ops, dc_graph *graph, dc_cid *blocked);
/* Replaces the operator Gradient by the adjoint of what stands before it. */
DC_MUST_USE dc_status dc_pass_gradient(dc_ops *ops, dc_graph *graph);
/* Drops dead nodes and identities.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_tidy(dc_ops *ops, dc_graph *graph);
/* Drops dead nodes and turns reshapes of contiguous data into aliases, which differentiation does not follow. */
DC_MUST_USE dc_status dc_pass_simplify(dc_ops *ops, dc_graph *graph);
/* Expands every library node for which keep(node) is false (keep NULL: all). */
typedef bool (*dc_keep_fn)(void *context, const dc_graph *graph, dc_nid node);
DC_MUST_USE dc_status dc_pass_expand(dc_ops *ops, dc_graph *graph, dc_keep_fn keep, void *context);
/* The same for one node, into a scope of the caller's. */
DC_MUST_USE dc_status dc_pass_expand_node(dc_ops *ops, dc_graph *graph, dc_nid node, dc_scope *out);
/* Fuses maps of a scope: equal domains and common prefixes, producers into consumers,
 * reductions with prologue and epilogue, several outputs per map; contracts temporaries
 * that no longer leave an iteration to registers. */
DC_MUST_USE dc_status dc_pass_fuse(dc_graph *graph);
/* Drops loops of one iteration, and puts the loop that walks memory contiguously last.  Runs before fusion. */
DC_MUST_USE dc_status dc_pass_loops(dc_graph *graph);
/* Moves what a sequential loop computes only for later behind it.  Runs before fusion, as does gather. */
DC_MUST_USE dc_status dc_pass_fission(dc_graph *graph);
/* Makes scattered sums reductions where their indices allow. */
DC_MUST_USE dc_status dc_pass_gather(dc_graph *graph);
/* Moves fills of what a sequential loop meets slice by slice into the loop. */
DC_MUST_USE dc_status dc_pass_sink(dc_graph *graph);
/* Puts blocks of a batch around a sequential loop.  Runs after fusion. */
DC_MUST_USE dc_status dc_pass_batches(dc_graph *graph);
/* Copies operands of products that lie across the columns of the result.  Runs after fusion. */
DC_MUST_USE dc_status dc_pass_columns(dc_graph *graph);
/* Unrolls short reductions and loops over residues (p // c, p % c), so that vectors run along the loop
 * outside.  Runs after fusion. */
DC_MUST_USE dc_status dc_pass_unroll(dc_graph *graph);

/* Runs a pass by name ("infer", "simplify", "differentiate", "expand", "fission", "gather", "sink", "loops", "fuse", "columns", "batches", "unroll"); DC_ERR_VALUE lists the names. */
DC_MUST_USE dc_status dc_pass_run(dc_ops *ops, dc_graph *graph, const char *name);

/* Applies a public transformation by name ("TaskletFusion", ...) to the top-level nodes given, or to all
 * (nodes NULL); *count: places where it applied.  DC_ERR_VALUE lists the names. */
DC_MUST_USE dc_status dc_transform_apply(dc_ops *ops, dc_graph *graph, const char *name, const dc_nid *nodes, uint32_t n_nodes,
                                         uint32_t *count);

#endif
