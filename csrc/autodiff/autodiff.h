/* Reverse mode on the IR, a file per construct: tasklet, map, reduction, gather/scatter,
 * library node.  What to keep is decided in keep.c by a minimum cut. */
#ifndef DCML_AUTODIFF_AUTODIFF_H
#define DCML_AUTODIFF_AUTODIFF_H

#include "ops/ops.h"

typedef enum { DC_KEEP_AUTO, DC_KEEP_STORE, DC_KEEP_RECOMPUTE, DC_KEEP_LEAST } dc_keep;

/* Gradient containers of one differentiated graph. */
typedef struct {
  dc_cid forward;  /* container id in the forward graph */
  dc_cid gradient; /* container id in the backward graph, 0 if the gradient is identically zero */
} dc_grad_pair;

typedef struct {
  dc_graph *backward; /* owned by the caller.  Inputs, in order: gradients of `outputs`; then every forward
                       * INPUT or PARAM that it reads, under its own name and role; containers of role SAVED
                       * have the name of the forward container.  Outputs: gradients of `wrt`, in order. */
  dc_grad_pair *wrt;  /* n_wrt pairs, allocated in backward's arena */
} dc_backward;

/* The floating ones of n containers, in order, into out; only they carry gradients.  Returns how many. */
uint32_t dc_autodiff_floats(const dc_graph *graph, const dc_cid *from, uint32_t n, dc_cid *out);

/* Differentiates `outputs` of `forward` with respect to `wrt` (INPUT or PARAM containers).
 * Changes `forward`: containers that the backward needs become SAVED; outputs are copied to such, or, where they `stay`, are
 * read themselves: they are SAVED under their own name in the backward graph, and the caller has them still.
 * Library nodes are differentiated in this order: .grad of the row; a tagged gradient node if
 * a native library runs the node; the adjoint of the row's expansion (the node is expanded in place).
 * Errors: DC_ERR_DTYPE names a wrt or output that is not floating point; DC_ERR_UNSUPPORTED
 * names an operator that has no gradient. */
DC_MUST_USE dc_status dc_autodiff(dc_ops *ops, dc_graph *forward, const dc_cid *outputs, uint32_t n_outputs,
                                  const dc_cid *wrt, uint32_t n_wrt, dc_keep keep, bool stay, dc_backward *out);

/* Adds the adjoint of one state to the graph itself, as a state behind all others: an input "gradient_<name>" for each
 * of `outputs`, and an input of that name, written in place, for each of `wrt`; one that is there already is used.  Any
 * floating container of that state may be either.  The state is rewritten where it overwrites what the adjoint reads.
 * Errors as above, DC_ERR_VALUE for a name that is taken otherwise, DC_ERR_UNSUPPORTED for updates in place that cannot
 * be differentiated. */
DC_MUST_USE dc_status dc_autodiff_join(dc_ops *ops, dc_graph *graph, uint32_t state, const dc_cid *outputs, uint32_t n_outputs,
                                       const dc_cid *wrt, uint32_t n_wrt);

/* The same within the state: appends the adjoint of all its nodes; seeds[k] holds the gradient of outputs[k], which may be
 * repeated, and gradients[k] is the container that then holds the gradient of wrt[k].  The values of `wrt` count as given:
 * one has no influence on another. */
DC_MUST_USE dc_status dc_autodiff_inline(dc_ops *ops, dc_graph *graph, uint32_t state, const dc_cid *outputs, const dc_cid *seeds,
                                         uint32_t n_outputs, const dc_cid *wrt, uint32_t n_wrt, dc_cid *gradients);

/* A library node whose gradient somebody states: which inputs (required) get one, from those of which outputs (given).
 * The graph then has the operators of own.c around it; `placeholder` is a node dcml.Backward, whose operands are those of
 * the node, its given outputs and their gradients, and whose results are the required ones: the caller replaces it.
 * cotangent[k] is the gradient of output given[k], gradient[k] that of input required[k]; the node's types are known.
 * DC_ERR_VALUE for operands that it does not have. */
typedef struct {
  const uint32_t *required, *given;
  uint32_t n_required, n_given;
  dc_nid placeholder;
  dc_cid *cotangent, *gradient;
} dc_border;
DC_MUST_USE dc_status dc_autodiff_border(dc_graph *graph, dc_nid node, dc_border *border);
/* Where nothing is differentiated: such operators become the identities that they are. */
void dc_autodiff_forget_borders(dc_graph *graph);
bool dc_own_is(const dc_graph *graph, dc_nid node); /* is it one of those operators? */

/* Tables by container that many expansions share, so that one costs what its operator does: zero between them. */
typedef struct {
  dc_arena arena;
  uint32_t n;
  dc_cid *grad;
  bool *active, *rewritten, *written, *given, *needed;
} dc_adjoint_room;

/* Expands a gradient node (lib.wrt > 0) in place: the row's own, or the adjoint of the operator's expansion
 * with respect to one input, appended to `scope` and tagged (operator, input).  The caller frees the room's arena. */
DC_MUST_USE dc_status dc_autodiff_expand(dc_ops *ops, dc_graph *graph, dc_nid node, dc_adjoint_room *room,
                                         dc_scope *scope);

#endif
