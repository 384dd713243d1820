/* See operators.h. */
#include "passes/operators.h"

#include <math.h>
#include <string.h>

#include "ir/work.h"

static void count(void *context, dc_cid c, dc_use use, dc_nid by) {
  (void)by;
  ((dc_operators *)context)->uses[c] += use == DC_USE_READ;
}

void dc_operators_look(dc_operators *o, dc_graph *graph) {
  uint32_t n = graph->containers.n;
  dc_writers *writers = DC_NEW_ARRAY(&graph->arena, dc_writers, n);
  bool *viewed = DC_NEW_ARRAY(&graph->arena, bool, n);
  *o = (dc_operators){graph, DC_NEW_ARRAY(&graph->arena, dc_nid, n), DC_NEW_ARRAY(&graph->arena, uint32_t, n)};
  dc_graph_writers(graph, writers);
  for (dc_cid c = 1; c < n; c++) {
    o->uses[c] += dc_cont(graph, c)->is_output;
    if (dc_cont(graph, c)->alias_of) viewed[c] = viewed[dc_container_root(graph, c)] = true;
  }
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid id = graph->states.v[s].scope.v[k];
      const dc_node *node = dc_node_at(graph, id);
      dc_node_uses(graph, id, count, o);
      for (uint32_t j = 0; node->kind == DC_NODE_LIBRARY && j < node->lib.n_out; j++) {
        dc_cid c = node->lib.out[j];
        if (c && !viewed[c] && writers[c].n == 1 && dc_cont(graph, c)->role == DC_ROLE_TEMP) o->maker[c] = id;
      }
    }
}

bool dc_operator_is(const dc_graph *graph, dc_nid node, const char *op) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  if (dc_node_at(graph, node)->kind != DC_NODE_LIBRARY || lib->wrt || *dc_name_text(&graph->names, lib->domain)) return false;
  return strcmp(dc_name_text(&graph->names, lib->op), op) == 0 && !dc_node_wish(graph, node);
}

dc_nid dc_operator_making(const dc_operators *o, dc_cid value, const char *op) {
  dc_nid id = o->maker[value];
  return id && dc_operator_is(o->graph, id, op) && dc_node_at(o->graph, id)->lib.out[0] == value ? id : 0;
}

dc_nid dc_operator_making_only(const dc_operators *o, dc_cid value, const char *op) {
  return o->uses[value] == 1 ? dc_operator_making(o, value, op) : 0;
}

dc_cid dc_operator_input(const dc_operators *o, dc_nid node, uint32_t k) {
  const dc_library *lib = &dc_node_at(o->graph, node)->lib;
  return k < lib->n_in ? lib->in[k] : 0;
}

bool dc_operator_permutation(const dc_operators *o, dc_nid node, int64_t *perm) {
  uint32_t rank = dc_cont(o->graph, dc_operator_input(o, node, 0))->rank;
  const dc_attr *a = dc_node_attr(o->graph, node, "perm");
  if (!a || a->kind != DC_ATTR_INTS || a->n != rank) return false;
  memcpy(perm, a->ints, rank * sizeof *perm);
  return true;
}

void dc_operator_reshape(dc_graph *graph, dc_cid from, dc_cid to, dc_scope *scope) {
  const uint32_t rank = dc_cont(graph, to)->rank;
  const dc_ex length = dc_ex_int(&graph->pool, rank);
  const dc_cid in[] = {from, dc_container_after(graph, to, "extents", DC_I64, 1, &length)};
  dc_attr attr = dc_attr_int(graph, "allowzero", 1);
  dc_cont(graph, in[1])->known = dc_arena_copy(&graph->arena, dc_cont(graph, to)->shape, rank * sizeof(dc_ex));
  dc_cont(graph, in[1])->known_count = rank;
  dc_scope_push(graph, scope, dc_node_library(graph, "Reshape", "", 14, in, 2, &to, 1, &attr, 1));
}

void dc_operators_replace(const dc_pass_context *context, dc_graph *graph, dc_operator_replacer replace, void *state) {
  for (uint32_t s = 0; s < graph->states.n && !graph->subgraphs.n; s++) {
    dc_scope old = graph->states.v[s].scope, new = {0};
    for (uint32_t k = 0; k < old.n; k++)
      if (!replace(context, graph, old.v[k], state, &new)) dc_scope_push(graph, &new, old.v[k]);
    graph->states.v[s].scope = new;
  }
}

/* ---- libraries ---- */

enum { SMALL_MATRIX = 1 << 12 /* elements */ };
static const double SMALL_WORK = 1 << 21; /* multiplications: many times what a call costs */

static bool is_product(const dc_graph *graph, const dc_library *lib) {
  const char *op = dc_name_text(&graph->names, lib->op);
  return lib->n_in > 1 && (strcmp(op, "MatMul") == 0 || strcmp(op, "Gemm") == 0 || strcmp(op, "Product") == 0);
}

static bool is_whole(int64_t extent, int64_t lanes) { return extent == 1 || (lanes > 1 && extent % lanes == 0); }

/* Rows of the left operand, those of a batch included; an unknown extent is guessed, for the choice is about time only. */
static double rows_of(const dc_graph *graph, dc_cid c) {
  dc_arena scratch = {0};
  int64_t *symbols = DC_NEW_ARRAY(&scratch, int64_t, graph->pool.symbols.n + 1);
  dc_work_guess(&graph->pool, symbols);
  const dc_container *k = dc_cont(graph, c);
  double elements = dc_container_elements(graph, c, symbols);
  double width = (double)dc_ix_eval(&graph->pool, k->shape[k->rank - 1], symbols, NULL);
  dc_arena_free(&scratch);
  return elements / fmax(width, 1);
}

/* Is it the product of not too many rows with one matrix of few whole vectors in either direction?  A call of a library then costs
 * more than it gains, and maps take up what stands around them; of a single column they always are as good.  The gradient of the
 * matrix sums over all rows, and products for each of a batch gain from a library that keeps small tiles in registers. */
static bool is_small_product(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  if (graph->machine.multiprocessors || !is_product(graph, lib) || lib->wrt == 2 || dc_node_wish(graph, node)) return false;
  const dc_container *a = dc_cont(graph, lib->in[0]), *b = dc_cont(graph, lib->in[1]);
  int64_t k, n, lanes = graph->machine.vector_bytes / (int64_t)sizeof(float);
  if (a->dtype != DC_F32 || b->dtype != DC_F32 || a->rank < 1 || b->rank != 2 || dc_node_attr_int(graph, node, "transA", 0)) return false;
  if (!dc_ex_is_int(&graph->pool, b->shape[0], &k) || !dc_ex_is_int(&graph->pool, b->shape[1], &n)) return false;
  if (k > SMALL_MATRIX || n > SMALL_MATRIX || k * n > SMALL_MATRIX || !is_whole(k, lanes) || !is_whole(n, lanes)) return false;
  return k == 1 || n == 1 || rows_of(graph, lib->in[0]) * (double)(k * n) <= SMALL_WORK;
}

void dc_operator_choose(const dc_pass_context *context, dc_graph *graph, dc_nid node) {
  if (is_small_product(graph, node)) dc_node_at(graph, node)->lib.why = dc_name_intern(&graph->names, "a small product");
  else if (context->stamp) context->stamp(context->stamp_context, graph, node);
}

bool dc_operator_is_served(const dc_pass_context *context, dc_graph *graph, dc_nid node) {
  if (!context->stamp) return true;
  dc_operator_choose(context, graph, node);
  return dc_node_at(graph, node)->lib.by != 0;
}
