/* Passes: graph in, graph out, one per file.  passes.def lists them, registry.c puts them in order.
 * Each can be run alone by name on a graph's text form, which is how it is tested. */
#ifndef DCML_PASSES_PASSES_H
#define DCML_PASSES_PASSES_H

#include "ops/ops.h"

/* What a pass may ask besides the graph. */
typedef struct {
  dc_ops *ops;
  void (*stamp)(void *context, dc_graph *graph, dc_nid node); /* which native library runs it; NULL: none does */
  void *stamp_context;
  bool training;      /* differentiation follows, with respect to wrt */
  const dc_name *wrt; /* names of containers, in the graph's name table */
  uint32_t n_wrt;
} dc_pass_context;

/* Infers types, shapes and known values of all library nodes in order.  *blocked as in dc_ops_infer. */
DC_MUST_USE dc_status dc_pass_infer(dc_ops *ops, dc_graph *graph, dc_cid *blocked);
/* Replaces operators that stand for gradients by the adjoint of what stands before them. */
DC_MUST_USE dc_status dc_pass_gradient(const dc_pass_context *context, dc_graph *graph);
/* Makes complex numbers pairs of real ones.  What a caller gives or gets keeps its type, and has a view of parts. */
DC_MUST_USE dc_status dc_pass_complexes(dc_ops *ops, dc_graph *graph);
/* Drops dead nodes and identities.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_tidy(dc_ops *ops, dc_graph *graph);
/* Computes equal operators once.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_share(dc_ops *ops, dc_graph *graph);
/* Drops dead nodes and turns reshapes of contiguous data into aliases, which differentiation does not follow. */
DC_MUST_USE dc_status dc_pass_simplify(dc_ops *ops, dc_graph *graph);
void dc_simplify_drop_dead(dc_graph *graph);
/* Puts what a result is a reshape of where the result lies: a view of the result.  Differentiation may not follow. */
DC_MUST_USE dc_status dc_pass_results(dc_ops *ops, dc_graph *graph);
/* Takes operators that an optimizer has fused apart, where a library runs the product or the convolution in them. */
DC_MUST_USE dc_status dc_pass_apart(const dc_pass_context *context, dc_graph *graph);
/* Makes a Split of Gathers that take all slices of an array.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_subnormals(dc_ops *ops, dc_graph *graph);
DC_MUST_USE dc_status dc_pass_integers(const dc_pass_context *context, dc_graph *graph);
DC_MUST_USE dc_status dc_pass_unbind(const dc_pass_context *context, dc_graph *graph);
/* Makes Einsums of two operands each of one of several, where that pays.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_pairs(const dc_pass_context *context, dc_graph *graph);
/* Makes a product of an Einsum of two operands, where a library runs it.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_contractions(const dc_pass_context *context, dc_graph *graph);
/* Makes one operator of attention that is spelled out, where a library runs it, and states its gradient. */
DC_MUST_USE dc_status dc_pass_attention(const dc_pass_context *context, dc_graph *graph);
/* Takes transposed operands and an added row into products that a library runs.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_products(const dc_pass_context *context, dc_graph *graph);
/* Takes normalisations by constants into filters.  Differentiation may not follow. */
DC_MUST_USE dc_status dc_pass_fold(const dc_pass_context *context, dc_graph *graph);
/* Takes a bias and uneven padding off convolutions that a library runs only without, and fills up channels that it loads at once.
 * Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_convolutions(const dc_pass_context *context, dc_graph *graph);
/* Runs products and convolutions of 16-bit floats in f32, where a library runs them only so.  Differentiation may follow. */
DC_MUST_USE dc_status dc_pass_widen(const dc_pass_context *context, dc_graph *graph);
/* Asks for each library node that bears no stamp which native library runs it (dc_library.by). */
void dc_pass_natives(const dc_pass_context *context, dc_graph *graph);
/* Expands every library node that no native library runs. */
DC_MUST_USE dc_status dc_pass_expand(dc_ops *ops, dc_graph *graph);
/* The same for one node, into a scope of the caller's. */
DC_MUST_USE dc_status dc_pass_expand_node(dc_ops *ops, dc_graph *graph, dc_nid node, dc_scope *out);
/* Computes copies, constants and the like where they are read. */
DC_MUST_USE dc_status dc_pass_inline(dc_graph *graph);
/* Merges maps of a scope: equal domains and common prefixes, producers into consumers, reductions with prologue and
 * epilogue, several outputs per map. */
DC_MUST_USE dc_status dc_pass_merge(dc_graph *graph);
/* Temporaries that no longer leave an iteration move into their readers, or become registers. */
DC_MUST_USE dc_status dc_pass_contract(dc_graph *graph);
DC_MUST_USE dc_status dc_pass_again(dc_graph *graph);
/* Sums down columns are taken in bands of rows, by the map that works on the rows.  Runs between two rounds of fusion. */
DC_MUST_USE dc_status dc_pass_exponents(dc_graph *graph);
DC_MUST_USE dc_status dc_pass_blocks(dc_graph *graph);
DC_MUST_USE dc_status dc_pass_bands(dc_graph *graph);
/* Cheaper forms of scalar expressions.  Runs after contraction, which makes them long. */
DC_MUST_USE dc_status dc_pass_rewrite(dc_graph *graph);
/* Puts the loop that walks memory contiguously last. */
DC_MUST_USE dc_status dc_pass_order(dc_graph *graph);
/* On a device: sums of floats at places that data choose become sums of whole numbers, whose order does not show.  Runs after gather. */
DC_MUST_USE dc_status dc_pass_exact(dc_graph *graph);
/* On a device: sums compute what they add to, results take the place of temporaries that they copy.  Runs before fusion. */
DC_MUST_USE dc_status dc_pass_traffic(dc_graph *graph);
/* Names what a view that only adds or drops extents of one shows of a buffer by the buffer.  Runs before fusion. */
DC_MUST_USE dc_status dc_pass_views(dc_graph *graph);
/* Drops loops of one iteration, and puts the loop that walks memory contiguously last.  Runs before fusion. */
DC_MUST_USE dc_status dc_pass_loops(dc_graph *graph);
/* Puts images of convolutions that a library runs, and what lies between them, channels-last.  Runs after expansion. */
DC_MUST_USE dc_status dc_pass_layout(dc_graph *graph);
/* What a library takes by its strides is what it is copied from, or copied to.  Runs after expansion. */
DC_MUST_USE dc_status dc_pass_strided(dc_ops *ops, dc_graph *graph);
/* Makes images that lie as arrays of callers do views of those.  Runs after layout. */
DC_MUST_USE dc_status dc_pass_borders(dc_graph *graph);
/* Does a library run this convolution on images by their strides, as it is stamped? */
bool dc_layout_takes_images(const dc_graph *graph, dc_nid node);
/* Channels of zeros that a convolution's image and filters lack for the library to load channels at once, where the image is copied
 * channels-last for it; 0: none, or too many.  For before the pass. */
int64_t dc_layout_missing_channels(const dc_graph *graph, dc_nid node);
/* What a forward graph saves lies in its backward graph as it does there.  Before the passes of the backward graph. */
void dc_layout_carry(const dc_graph *forward, dc_graph *backward);
/* Moves what a sequential loop computes only for later behind it.  Runs before fusion, as does gather. */
DC_MUST_USE dc_status dc_pass_fission(dc_graph *graph);
/* Puts rows around a sequential loop that runs along them.  Runs before fission. */
DC_MUST_USE dc_status dc_pass_exchange(dc_graph *graph);
/* Makes scattered sums reductions where their indices allow. */
DC_MUST_USE dc_status dc_pass_gather(dc_graph *graph);
/* Moves fills of what a sequential loop meets slice by slice into the loop. */
DC_MUST_USE dc_status dc_pass_sink(dc_graph *graph);
/* Puts blocks of a batch around a sequential loop.  Runs after fusion. */
DC_MUST_USE dc_status dc_pass_batches(dc_graph *graph);
/* Splits long reductions with few results, where a device runs them, and those down long columns.  Runs before fusion, as does factor. */
DC_MUST_USE dc_status dc_pass_split(dc_graph *graph);
/* Multiplies what all terms of a sum are multiplied by once, behind the sum. */
DC_MUST_USE dc_status dc_pass_factor(dc_graph *graph);
/* Copies operands of products into strips as wide as tiles of sums.  Runs after fusion. */
DC_MUST_USE dc_status dc_pass_strips(dc_graph *graph);
/* Copies operands of products that lie across the columns of the result.  Runs after fusion. */
DC_MUST_USE dc_status dc_pass_columns(dc_graph *graph);
/* Unrolls short reductions and loops over residues (p // c, p % c), so that vectors run along the loop
 * outside.  Runs after fusion. */
DC_MUST_USE dc_status dc_pass_unroll(dc_graph *graph);
/* One slice of a temporary for all iterations of a loop that each thread runs by itself.  Runs last: nothing merges with
 * such a loop. */
DC_MUST_USE dc_status dc_pass_slices(dc_graph *graph);

/* ---- by name ---- */

typedef enum { DC_PASS_NEEDED, DC_PASS_IN_PLACE, DC_PASS_RESTRUCTURES, DC_PASS_ON_OPERATORS, DC_PASS_SEQUENCE } dc_pass_kind;
typedef struct {
  const char *name, *summary; /* what it does, without a full stop */
  dc_status (*with_operators)(const dc_pass_context *, dc_graph *);
  dc_status (*run)(dc_graph *);
  dc_pass_kind kind;
} dc_pass;

enum { DC_PIPELINE_LENGTH = 34 };
/* The k-th of all passes, and the k-th of those that schedule a graph, forward or backward; NULL at the end. */
const dc_pass *dc_pass_at(uint32_t k);
const dc_pass *dc_pipeline_pass(uint32_t k);
DC_MUST_USE dc_status dc_pass_apply(const dc_pass *pass, const dc_pass_context *context, dc_graph *graph);
/* Runs a pass by name, without libraries, and verifies; DC_ERR_VALUE lists the names. */
DC_MUST_USE dc_status dc_pass_run(dc_ops *ops, dc_graph *graph, const char *name);

/* ---- public transformations ---- */

/* What a transformation may ask besides the graph. */
typedef struct {
  dc_ops *ops;
  /* Runs a map or a tasklet on buffers by container, as the interpreter does; NULL: nobody can. */
  dc_status (*interpret)(const dc_graph *graph, dc_nid node, void *const *buffers, const int64_t *symbols);
} dc_transform_tools;

/* What to look at; a map stands for all that is in it. */
typedef struct {
  const dc_nid *nodes; /* both NULL: everything */
  uint32_t n_nodes;
  const dc_cid *containers;
  uint32_t n_containers;
} dc_transform_target;

/* Applies a transformation wherever it can be; *count: places where it was.  The call is its name, with options in
 * parentheses: "MapTiling(tile_sizes=32,8;divides_evenly=1)".  DC_ERR_VALUE for an unknown name or option says what
 * there is.  Everything that is computed stays the same. */
DC_MUST_USE dc_status dc_transform_apply(const dc_transform_tools *tools, dc_graph *graph, const char *call, const dc_transform_target *on,
                                         uint32_t *count);
const char *dc_transform_at(uint32_t k); /* the name of the k-th, NULL at the end */
/* A pass by name, or a transformation, whose call has a capital. */
DC_MUST_USE dc_status dc_step_run(const dc_transform_tools *tools, dc_graph *graph, const char *what);

#endif
