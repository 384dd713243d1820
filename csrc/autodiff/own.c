/* Gradients that the graph states itself, in place of an adjoint.
 *
 * Three operators of the domain dcml draw the border.  `Cotangent(y) -> c` stands for the gradient of y; nodes that
 * depend on it compute gradients, and run only in the backward pass.  `GiveGradient(y, x, b) -> z` is y, and says that
 * b is the gradient of x; `TakeGradient(y, c) -> z` is y, and says that the gradient of z is c.  No gradient passes
 * through either.  All gives of a function stand before all its takes. */
#include <string.h>

#include "autodiff/reverse.h"

typedef struct {
  dc_nid node;
  bool takes;
  dc_cid out, cotangent; /* of a take */
  dc_cid of, gradient;   /* of a give */
} border;

struct dc_own {
  DC_VEC(border) borders;
  dc_scope piece;  /* nodes of the backward pass, in order */
  bool *emitted;   /* by node of the piece */
  bool *dependent; /* by buffer: depends on a cotangent */
  bool *seed;      /* by buffer: is a cotangent ... */
  bool *filled;    /* ... which has its value */
  bool *given;     /* by buffer: a gradient that was contributed */
};

static const char *op_of(const dc_graph *g, dc_nid node) {
  const dc_node *n = dc_node_at(g, node);
  bool ours = n->kind == DC_NODE_LIBRARY && strcmp(dc_name_text(&g->names, n->lib.domain), "dcml") == 0;
  return ours ? dc_name_text(&g->names, n->lib.op) : "";
}

bool dc_own_is(const dc_graph *graph, dc_nid node) {
  const char *op = op_of(graph, node);
  return strcmp(op, "Cotangent") == 0 || strcmp(op, "GiveGradient") == 0 || strcmp(op, "TakeGradient") == 0;
}

/* ---- what belongs to the backward pass ---- */

/* A border becomes the identity that it is for the forward pass. */
static void note_border(dc_reverse *r, dc_nid id) {
  dc_library *lib = &dc_node_at(r->graph, id)->lib;
  border made = {.node = id, .takes = lib->n_in == 2, .out = lib->out[0]};
  if (made.takes) made.cotangent = lib->in[1];
  else made.of = lib->in[1], made.gradient = lib->in[2];
  DC_PUSH(&r->arena, &r->own->borders, made);
  lib->op = dc_name_intern(&r->graph->names, "Identity"), lib->domain = dc_name_intern(&r->graph->names, "");
  lib->n_in = 1;
}

void dc_autodiff_forget_borders(dc_graph *graph) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid id = graph->states.v[s].scope.v[k];
      if (!dc_own_is(graph, id) || dc_node_at(graph, id)->lib.n_in == 1) continue;
      dc_library *lib = &dc_node_at(graph, id)->lib;
      lib->op = dc_name_intern(&graph->names, "Identity"), lib->domain = dc_name_intern(&graph->names, "");
      lib->n_in = 1;
    }
}

static void find_dependent(dc_reverse *r, const dc_scope *nodes) {
  struct dc_own *own = r->own;
  for (uint32_t k = 0; k < nodes->n; k++) {
    dc_nid id = nodes->v[k];
    bool is_border = dc_own_is(r->graph, id), is_seed = is_border && dc_node_at(r->graph, id)->lib.n_in == 1;
    if (is_seed) dc_node_mark(r->graph, id, DC_USE_WRITE, own->seed);
    else if (is_border) note_border(r, id);
    if (is_seed || dc_node_touches(r->graph, id, DC_USE_READ, own->dependent)) dc_node_mark(r->graph, id, DC_USE_WRITE, own->dependent);
  }
}

void dc_own_prepare(dc_reverse *r, dc_scope *nodes) {
  bool any = false;
  for (uint32_t k = 0; k < nodes->n; k++) any |= dc_own_is(r->graph, nodes->v[k]);
  if (!any) return;
  struct dc_own *own = r->own = dc_arena_alloc(&r->arena, sizeof *own);
  *own = (struct dc_own){.dependent = DC_NEW_ARRAY(&r->arena, bool, r->n), .seed = DC_NEW_ARRAY(&r->arena, bool, r->n),
                         .filled = DC_NEW_ARRAY(&r->arena, bool, r->n), .given = DC_NEW_ARRAY(&r->arena, bool, r->n)};
  find_dependent(r, nodes);
  dc_scope left = {0};
  for (uint32_t k = 0; k < nodes->n; k++) { /* also what only prepares a buffer that others add to */
    if (dc_node_touches(r->graph, nodes->v[k], DC_USE_WRITE, own->seed)) continue;
    dc_scope *to = dc_node_touches(r->graph, nodes->v[k], DC_USE_WRITE, own->dependent) ? &own->piece : &left;
    dc_scope_push(r->graph, to, nodes->v[k]);
  }
  own->emitted = DC_NEW_ARRAY(&r->arena, bool, own->piece.n);
  *nodes = left;
}

bool dc_own_computes(const dc_reverse *r, dc_cid c) { return r->own && r->own->dependent[dc_container_root(r->graph, c)]; }

/* ---- the reverse sweep ---- */

static void fill_cotangent(dc_reverse *r, dc_cid c, dc_cid gradient) {
  dc_emit_fill(r, r->out, c, gradient, DC_WCR_NONE);
  r->own->filled[c] = true;
}

/* Cotangents that a gradient needs; the nodes between are marked in `wanted`. */
static bool *find_needs(dc_reverse *r, dc_cid gradient, bool *wanted) {
  struct dc_own *own = r->own;
  bool *needs = DC_NEW_ARRAY(&r->arena, bool, r->n);
  needs[dc_container_root(r->graph, gradient)] = true;
  for (uint32_t k = own->piece.n; k-- > 0;) {
    wanted[k] = dc_node_touches(r->graph, own->piece.v[k], DC_USE_WRITE, needs);
    if (wanted[k]) dc_node_mark(r->graph, own->piece.v[k], DC_USE_READ, needs);
  }
  return needs;
}

/* Makes a gradient of the graph's own available in the backward pass; false if no gradient reaches it. */
static bool compute(dc_reverse *r, dc_cid gradient) {
  struct dc_own *own = r->own;
  bool *wanted = DC_NEW_ARRAY(&r->arena, bool, own->piece.n), *needs = find_needs(r, gradient, wanted), depends = false, reached = false;
  for (dc_cid c = 1; c < r->n; c++) {
    depends |= needs[c] && own->seed[c];
    reached |= needs[c] && own->filled[c];
  }
  if (depends && !reached) return false;
  for (dc_cid c = 1; c < r->n; c++)
    if (needs[c] && own->seed[c] && !own->filled[c]) fill_cotangent(r, c, 0);
  for (uint32_t k = 0; k < own->piece.n; k++) {
    if (!wanted[k] || own->emitted[k]) continue;
    dc_scope_push(r->graph, r->out, own->piece.v[k]);
    own->emitted[k] = true;
  }
  return true;
}

static void contribute(dc_reverse *r, const border *b) {
  if (!r->active[b->of] || r->own->given[b->gradient] || !compute(r, b->gradient)) return;
  bool first = !r->grad[b->of];
  r->own->given[b->gradient] = true;
  if (first) r->grad[b->of] = dc_gradient_new(r, b->of);
  else dc_gradient_owned(r, b->of);
  dc_emit_fill(r, r->out, r->grad[b->of], b->gradient, first ? DC_WCR_NONE : DC_WCR_SUM);
}

bool dc_own_gives(const dc_reverse *r, dc_nid node) {
  for (uint32_t k = 0; r->own && k < r->own->borders.n; k++) {
    const border *b = &r->own->borders.v[k];
    if (b->node == node) return !b->takes && r->active[b->of];
  }
  return false;
}

bool dc_own_reverse(dc_reverse *r, dc_nid node) {
  for (uint32_t k = 0; r->own && k < r->own->borders.n; k++) {
    const border *b = &r->own->borders.v[k];
    if (b->node != node) continue;
    if (!b->takes) contribute(r, b);
    else if (r->grad[b->out]) fill_cotangent(r, b->cotangent, r->grad[b->out]);
    return true;
  }
  return false;
}
