/* See equation.h. */
#include "passes/equation.h"

#include "passes/operators.h"

static bool read_extents(const dc_graph *graph, dc_equation *e) {
  bool same = true;
  for (uint32_t t = 0; t < e->n; t++)
    for (uint32_t d = 0; d < e->term[t].n; d++) {
      dc_ex *extent = &e->extent[(int)e->term[t].label[d]];
      const dc_ex own = dc_cont(graph, e->operand[t])->shape[d];
      same &= !*extent || *extent == own;
      *extent = own;
    }
  return same;
}

bool dc_equation_read(const dc_graph *graph, dc_nid node, dc_equation *out) {
  if (!dc_operator_is(graph, node, "Einsum")) return false;
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_attr *equation = dc_node_attr(graph, node, "equation");
  uint32_t ranks[DC_EQUATION_TERMS];
  if (!equation || equation->kind != DC_ATTR_STRING || lib->n_in > DC_EQUATION_TERMS || !lib->out[0]) return false;
  *out = (dc_equation){.n = lib->n_in, .result = lib->out[0]};
  for (uint32_t t = 0; t < out->n; t++) {
    if (!(out->operand[t] = lib->in[t])) return false;
    ranks[t] = dc_cont(graph, out->operand[t])->rank;
  }
  dc_status status = dc_einsum_read(equation->s, ranks, out->n, out->term, &out->output);
  const bool is_read = !status;
  dc_status_free(status); /* inference has said so already */
  return is_read && read_extents(graph, out);
}

uint32_t dc_equation_shape(const dc_equation *e, const dc_einsum_labels *labels, dc_ex *shape) {
  for (uint32_t k = 0; k < labels->n; k++) shape[k] = e->extent[(int)labels->label[k]];
  return labels->n;
}
