/* Shared by the files of this folder: one reverse sweep in progress.
 *
 * Adjoint statements are appended to `out` of `graph`.  grad[c] is the container that
 * accumulates the gradient of container c, 0 while nothing has contributed. */
#ifndef DCML_AUTODIFF_REVERSE_H
#define DCML_AUTODIFF_REVERSE_H

#include "autodiff/keep.h"

/* What is asked of an element of the operand may be asked of the result, at the same place; or the result is it. */
typedef struct {
  dc_cid operand, result;
  dc_ex element, asked; /* a read of the operand; an expression of it */
  bool is_result;
} dc_told;

typedef struct {
  dc_ops *ops;
  dc_graph *graph;
  dc_arena arena;
  dc_scope *out;
  dc_scope *prologue; /* where zero fills go that must precede a sequential loop; NULL outside one */
  dc_cid *grad;       /* by forward container */
  bool *active;       /* by forward container: depends on what is differentiated for */
  bool *rewritten;    /* by forward container: an earlier node may write the same elements too */
  bool *written;      /* by forward container, while activity is found: a node so far does */
  uint32_t n;         /* forward containers */
  dc_cid wanted, target; /* the gradient of `wanted` goes to `target`; 0: to a new container */
  dc_cid fresh;          /* containers from here on are the sweep's own, as is `target`; 0: every temp is */
  dc_name tag_op;
  uint32_t tag_wrt;
  struct dc_own *own; /* NULL: no gradient is the graph's own */
  DC_VEC(dc_cid) views; /* forward containers that are views */
  DC_VEC(dc_told) told;
  dc_cid *winner; /* by node that was there before any were noted: where the winners of a tasklet that takes a max or min are; 0: nowhere */
} dc_reverse;

/* scalar.c: what one floating READ contributes to a value. */
typedef struct {
  dc_ex read;
  dc_ex coefficient; /* d(value)/d(read) times the seed */
  dc_ex guard;       /* 0: always */
} dc_partial;
typedef DC_VEC(dc_partial) dc_partials;
/* result: a READ of what holds the value, for derivatives in its terms; 0: it is computed again. */
DC_MUST_USE dc_status dc_scalar_partials(dc_reverse *r, dc_ex value, dc_ex result, dc_ex seed, dc_partials *out);

/* access.c: one adjoint statement  d(read) += coefficient  over the loops of the statement. */
typedef struct {
  const dc_param *loops; /* domain, then reduction parameters */
  uint32_t n_loops;
  bool in_sequence; /* inside a sequential loop: accumulate only */
} dc_nest;
DC_MUST_USE dc_status dc_emit_contribution(dc_reverse *r, const dc_nest *nest, const dc_partial *partial);
/* The gradient container of c, made and filled with zeros if it does not exist. */
dc_cid dc_gradient_zeroed(dc_reverse *r, dc_cid c);
/* The container of c's gradient, not filled; a further one for a part that is added later. */
dc_cid dc_gradient_new(dc_reverse *r, dc_cid c);
dc_cid dc_gradient_part(dc_reverse *r, dc_cid c);
/* Adds a part to the gradient of c, which it becomes if there is none yet. */
void dc_gradient_add(dc_reverse *r, dc_cid c, dc_cid part);
/* The gradient of c as a container that may be written: copies one that was handed in or is a view. */
dc_cid dc_gradient_owned(dc_reverse *r, dc_cid c);
void dc_reverse_tag(dc_reverse *r, dc_nid node);
/* dc_node_wrap with both nodes tagged as part of this gradient. */
dc_nid dc_reverse_wrap(dc_reverse *r, dc_schedule schedule, const dc_param *params, uint32_t n, dc_nid inner);
/* map over all elements of `target`: target[x] (=, sum=) value, where value(x) reads `source` or is zero. */
void dc_emit_fill(dc_reverse *r, dc_scope *scope, dc_cid target, dc_cid source, dc_wcr wcr);

/* nodes.c: earlier writers of what a statement overwrites get no gradient from later readers. */
void dc_clear_overwritten(dc_reverse *r, const dc_nest *nest, const dc_tasklet *t);
/* reduction.c: the adjoint of a reduction.  note_winners: if `node` is one by max or min, further nodes of r->out note which
 * iterations win (r->winner), so that the backward pass need not look for them in the operand and the result. */
DC_MUST_USE dc_status dc_reverse_reduction(dc_reverse *r, const dc_param *domain, uint32_t n_domain, dc_nid reduce, bool in_sequence);
void dc_note_winners(dc_reverse *r, dc_nid node);
/* nodes.c: the adjoint of any node. */
DC_MUST_USE dc_status dc_reverse_node(dc_reverse *r, dc_nid node);
/* own.c: gradients that the graph states itself.  is: one of the operators that do so.  prepare: takes what belongs to the
 * backward pass out of `nodes`.  reverse: the adjoint of such an operator; false if the node is none.  computes: is a
 * container's value one of the backward pass? */
void dc_own_prepare(dc_reverse *r, dc_scope *nodes);
bool dc_own_reverse(dc_reverse *r, dc_nid node);
bool dc_own_gives(const dc_reverse *r, dc_nid node); /* does it state the gradient of something active? */
bool dc_own_computes(const dc_reverse *r, dc_cid c);
/* linear.c: gradient nodes whose adjoint is the operator itself. */
bool dc_linear_is(dc_ops *ops, const dc_graph *graph, dc_nid node);
void dc_linear_reverse(dc_reverse *r, dc_nid node);
/* told.c: notes what the result of a statement tells.  use: lets the adjoint read results in the place of operands where both would
 * be kept otherwise; false where there are none. */
void dc_told_note(dc_reverse *r, const dc_nest *nest, const dc_tasklet *t);
bool dc_told_use(dc_reverse *r, const dc_keep_problem *problem, const bool *store);
/* views.c: finds the graph's views; lets the gradients of those join the bases that a node writes (0: all that are left). */
void dc_views_find(dc_reverse *r);
void dc_views_fold(dc_reverse *r, dc_nid node);
/* unfuse.c: what fusion made of a state, taken apart as far as differentiation needs. */
DC_MUST_USE dc_status dc_unfuse(dc_graph *graph, uint32_t state);
/* nodes.c: fills r->active. */
void dc_reverse_activity(dc_reverse *r, const dc_scope *scope);

#endif
