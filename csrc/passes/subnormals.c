/* Constant filters and matrices lose numbers that are too small to be normal: they become zero of their sign.
 *
 * Training leaves many of them, where decay has gone on for long (of a text detector's filters 185,260 in 294,912), and a processor
 * takes a hundred times as long to multiply one.  A result differs by less than 2^-126 for each one of the operand that it meets.
 * Only for graphs that nobody differentiates, in which weights stay as they are. */
#include <string.h>

#include "passes/operators.h"

static const uint32_t FRACTION = 0x007fffff, SIGN = 0x80000000;

/* Bits of its absolute value between those of zero and of the least normal number. */
static inline bool is_subnormal(uint32_t bits) { return (bits & ~SIGN) - 1 < FRACTION; }

static bool has_subnormals(const dc_container *k) {
  enum { AT_ONCE = 1024 };
  const uint64_t n = k->data_bytes / sizeof(uint32_t);
  uint32_t any = 0;
  for (uint64_t at = 0; at < n && !any; at += AT_ONCE) {
    uint32_t bits[AT_ONCE] = {0};
    memcpy(bits, (const char *)k->data + at * sizeof *bits, (n - at < AT_ONCE ? n - at : AT_ONCE) * sizeof *bits);
#pragma omp simd reduction(| : any)
    for (int j = 0; j < AT_ONCE; j++) any |= is_subnormal(bits[j]);
  }
  return any;
}

/* The same constant without them. */
static dc_cid without_subnormals(dc_graph *graph, dc_cid c) {
  const dc_container k = *dc_cont(graph, c);
  int64_t dims[DC_MAX_RANK];
  if (!dc_container_dims(graph, c, dims)) return c;
  uint32_t *bits = dc_arena_copy(&graph->arena, k.data, k.data_bytes);
  for (uint64_t j = 0; j < k.data_bytes / sizeof *bits; j++)
    if (is_subnormal(bits[j])) bits[j] &= SIGN;
  const char *name = dc_arena_printf(&graph->arena, "%s_normal", dc_cont_name(graph, c));
  return dc_container_add_const(graph, name, DC_F32, k.rank, dims, bits, k.data_bytes);
}

static bool multiplies(const dc_graph *graph, dc_nid node) {
  static const char *const ops[] = {"Conv", "ConvTranspose", "MatMul", "Gemm", "Product"};
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const char *op = dc_name_text(&graph->names, lib->op), *domain = dc_name_text(&graph->names, lib->domain);
  bool is = false;
  for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) is |= strcmp(op, ops[k]) == 0;
  return is && !lib->wrt && (!*domain || strcmp(domain, "dcml") == 0);
}

dc_status dc_pass_subnormals(dc_ops *ops, dc_graph *graph) {
  const uint32_t n = graph->containers.n;
  dc_cid *instead = DC_NEW_ARRAY(&graph->arena, dc_cid, n); /* by constant that has been looked at */
  for (uint32_t s = 0; s < graph->states.n && !graph->subgraphs.n; s++)
    for (uint32_t j = 0; j < graph->states.v[s].scope.n; j++) {
      const dc_nid id = graph->states.v[s].scope.v[j];
      if (dc_node_at(graph, id)->kind != DC_NODE_LIBRARY || !multiplies(graph, id)) continue;
      for (uint32_t k = 0; k < 3 && k < dc_node_at(graph, id)->lib.n_in; k++) {
        const dc_cid c = dc_node_at(graph, id)->lib.in[k];
        const dc_container *at = c && c < n ? dc_cont(graph, c) : NULL;
        if (!at || at->role != DC_ROLE_CONST || !at->data || at->dtype != DC_F32 || at->strides || at->alias_of) continue;
        if (!instead[c]) instead[c] = has_subnormals(at) ? without_subnormals(graph, c) : c;
        dc_node_at(graph, id)->lib.in[k] = instead[c];
      }
    }
  return dc_pass_tidy(ops, graph);
}
