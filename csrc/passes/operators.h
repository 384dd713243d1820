/* Who makes and who reads a value, for passes that recognise operators around one another. */
#ifndef DCML_PASSES_OPERATORS_H
#define DCML_PASSES_OPERATORS_H

#include "passes/passes.h"

typedef struct {
  dc_graph *graph;
  dc_nid *maker;  /* by container: the only node that writes it, where it is a plain value of one state; else 0 */
  uint32_t *uses; /* by container: nodes that read it, and the graph's result as one more */
} dc_operators;

enum { DC_LEAST_MATRIX = 8 }; /* rows, columns and terms of a product that pays for copies of its operands */

/* Is it this operator of ONNX, itself and no gradient, run by whoever we like? */
bool dc_operator_is(const dc_graph *graph, dc_nid node, const char *op);
/* Of all containers that there are now. */
void dc_operators_look(dc_operators *o, dc_graph *graph);
/* The node that makes a value if it is this operator; else 0. */
dc_nid dc_operator_making(const dc_operators *o, dc_cid value, const char *op);
/* The same if nobody else reads the value. */
dc_nid dc_operator_making_only(const dc_operators *o, dc_cid value, const char *op);
dc_cid dc_operator_input(const dc_operators *o, dc_nid node, uint32_t k); /* 0 where there is none */
/* A Transpose's permutation; false if the node is none that states it. */
bool dc_operator_permutation(const dc_operators *o, dc_nid node, int64_t *perm);
/* Pushes a Reshape of a value to the shape of another one. */
void dc_operator_reshape(dc_graph *graph, dc_cid from, dc_cid to, dc_scope *scope);
/* Pushes what stands for a node, where something shall; else it returns false, and the node stays. */
typedef bool (*dc_operator_replacer)(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *state, dc_scope *scope);
/* Asks for each node of each state.  A graph with subgraphs stays as it is: their captures name containers too. */
void dc_operators_replace(const dc_pass_context *context, dc_graph *graph, dc_operator_replacer replace, void *state);
/* Says on a node which library runs it, or why none does. */
void dc_operator_choose(const dc_pass_context *context, dc_graph *graph, dc_nid node);
/* Would a library run the node?  Of a pass that is run by itself everything is assumed of libraries. */
bool dc_operator_is_served(const dc_pass_context *context, dc_graph *graph, dc_nid node);

#endif
