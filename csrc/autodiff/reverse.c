/* The driver: a forward graph in, a backward graph out.
 *
 * The backward graph starts as a clone of the forward one, so containers and expressions keep
 * their ids; its scope is emptied and filled with the adjoints, preceded by those forward nodes
 * that are computed again. */
#include "autodiff/reverse.h"

#include <string.h>

#include "autodiff/keep.h"
#include "autodiff/prepare.h"

/* ---- preparing the forward graph ---- */

/* On a device, whose memory is slow beside its arithmetic: a result of the caller's would be written twice. */
static bool would_copy(const dc_graph *graph, const dc_library *lib) {
  return graph->machine.teams && dc_cont(graph, lib->out[0])->is_output;
}

static bool stays_library(dc_ops *ops, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_row *row = dc_ops_row_of(ops, graph, lib);
  if (dc_own_is(graph, node)) return true;
  if (lib->wrt) return lib->by && dc_linear_is(ops, graph, node);
  if (row && !lib->by && dc_row_grad_keeps(row) && would_copy(graph, lib)) return false;
  return row && (dc_row_has_grad(row) || dc_row_is_alias(row) || lib->by);
}

static dc_status expand_node(dc_ops *ops, dc_graph *graph, dc_nid node, dc_adjoint_room *room, dc_scope *out) {
  const dc_node *n = dc_node_at(graph, node);
  if (n->kind != DC_NODE_LIBRARY || stays_library(ops, graph, node)) return dc_scope_push(graph, out, node), DC_OK;
  return n->lib.wrt ? dc_autodiff_expand(ops, graph, node, room, out) : dc_ops_expand(ops, graph, node, out);
}

static dc_status expand_state(dc_ops *ops, dc_graph *graph, uint32_t state) {
  dc_scope_separate(graph, &graph->states.v[state].scope);
  dc_scope before = graph->states.v[state].scope, after = {0};
  dc_adjoint_room room = {0};
  dc_status status = DC_OK;
  for (uint32_t k = 0; k < before.n && !status; k++) status = expand_node(ops, graph, before.v[k], &room, &after);
  dc_arena_free(&room.arena);
  graph->states.v[state].scope = after;
  return status ? status : dc_unfuse(graph, state);
}

/* Before it is prepared, which looks at what maps do. */
static dc_status expand_inside(dc_ops *ops, dc_graph *graph, uint32_t state) {
  dc_scope scope = graph->states.v[state].scope;
  for (uint32_t k = 0; k < scope.n; k++)
    if (dc_node_at(graph, scope.v[k])->kind == DC_NODE_MAP) DC_TRY(dc_ops_expand_inside(ops, graph, scope.v[k]));
  return DC_OK;
}

uint32_t dc_autodiff_floats(const dc_graph *graph, const dc_cid *from, uint32_t n, dc_cid *out) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < n; k++)
    if (dc_dtype_is_float((dc_dtype)dc_cont(graph, from[k])->dtype)) out[count++] = from[k];
  return count;
}

static dc_status check_float(const dc_graph *graph, dc_cid c, const char *what) {
  dc_dtype type = (dc_dtype)dc_cont(graph, c)->dtype;
  if (dc_dtype_is_float(type)) return DC_OK;
  return dc_error(DC_ERR_DTYPE, "%s '%s' has type %s: only floating values are differentiable", what, dc_cont_name(graph, c),
                  dc_dtype_name(type));
}

static dc_status check_floats(const dc_graph *graph, const dc_cid *outputs, uint32_t n_outputs, const dc_cid *wrt, uint32_t n_wrt) {
  for (uint32_t k = 0; k < n_outputs; k++) DC_TRY(check_float(graph, outputs[k], "output"));
  for (uint32_t k = 0; k < n_wrt; k++) DC_TRY(check_float(graph, wrt[k], "input"));
  return DC_OK;
}

static dc_scope all_nodes(dc_graph *graph) {
  dc_scope all = {0};
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) dc_scope_push(graph, &all, graph->states.v[s].scope.v[k]);
  return all;
}

static void init(dc_reverse *r, dc_ops *ops, dc_graph *graph, dc_scope *out) {
  *r = (dc_reverse){.ops = ops, .graph = graph, .out = out, .n = graph->containers.n};
  r->grad = DC_NEW_ARRAY(&r->arena, dc_cid, r->n);
  r->active = DC_NEW_ARRAY(&r->arena, bool, r->n);
  r->rewritten = DC_NEW_ARRAY(&r->arena, bool, r->n);
  r->written = DC_NEW_ARRAY(&r->arena, bool, r->n);
  for (dc_cid c = 1; c < r->n; c++) r->written[c] = dc_cont(graph, c)->role == DC_ROLE_INPUT;
  dc_views_find(r);
}

static dc_status sweep(dc_reverse *r, const dc_scope *forward) {
  dc_reverse_activity(r, forward);
  for (uint32_t k = forward->n; k-- > 0;) DC_TRY(dc_reverse_node(r, forward->v[k]));
  dc_views_fold(r, 0);
  return DC_OK;
}

/* ---- the backward graph ---- */

/* A clone without nodes; outputs of the forward are plain values in it. */
static dc_graph *empty_clone(const dc_graph *forward) {
  dc_graph *backward = dc_graph_clone(forward);
  for (uint32_t k = 0; k < backward->outputs.n; k++) dc_cont(backward, backward->outputs.v[k])->is_output = false;
  backward->inputs.n = backward->outputs.n = 0;
  backward->states.n = 0;
  char *name = dc_arena_printf(&backward->arena, "%s_backward", dc_name_text(&backward->names, backward->name));
  backward->name = dc_name_intern(&backward->names, name);
  dc_state_add(backward, "main");
  return backward;
}

static void add_seeds(dc_reverse *r, const dc_graph *forward, const dc_cid *outputs, uint32_t n_outputs) {
  for (uint32_t k = 0; k < n_outputs; k++) {
    dc_container c = *dc_cont(r->graph, outputs[k]);
    char *name = dc_arena_printf(&r->arena, "gradient_%s", dc_cont_name(forward, outputs[k]));
    r->grad[outputs[k]] = dc_container_add(r->graph, name, (dc_dtype)c.dtype, c.rank, c.shape, DC_ROLE_INPUT);
  }
}

static void add_inputs(dc_reverse *r, const dc_graph *forward, const dc_cid *outputs, uint32_t n_outputs) {
  add_seeds(r, forward, outputs, n_outputs);
  for (uint32_t k = 0; k < forward->inputs.n; k++) DC_PUSH(&r->graph->arena, &r->graph->inputs, forward->inputs.v[k]);
}

static void mark_gradients(dc_reverse *r, const dc_graph *forward, const dc_cid *wrt, uint32_t n, dc_grad_pair *pairs) {
  for (uint32_t k = 0; k < n; k++) {
    pairs[k].forward = wrt[k];
    if (!r->grad[wrt[k]]) continue;
    dc_cid g = dc_gradient_owned(r, wrt[k]);
    char *name = dc_arena_printf(&r->arena, "gradient_%s", dc_cont_name(forward, wrt[k]));
    if (!dc_container_find(r->graph, name)) dc_container_rename(r->graph, g, name);
    dc_graph_mark_output(r->graph, g);
    pairs[k].gradient = g;
  }
}

/* The forward keeps c for the backward: a result of the caller's gets a copy of ours, if it does not stay. */
static void store_value(dc_reverse *r, dc_graph *forward, dc_cid c, bool stay) {
  dc_cid kept = c;
  if (dc_cont(forward, c)->is_output && stay) {
    dc_cont(r->graph, c)->role = DC_ROLE_SAVED;
    return;
  }
  if (dc_cont(forward, c)->is_output) {
    dc_container k = *dc_cont(forward, c);
    kept = dc_container_add(forward, dc_arena_printf(&r->arena, "saved_%s", dc_cont_name(forward, c)), (dc_dtype)k.dtype, k.rank, k.shape,
                            DC_ROLE_SAVED);
    dc_reverse copy = {.graph = forward};
    dc_emit_fill(&copy, dc_graph_scope(forward), kept, c, DC_WCR_NONE);
  }
  dc_cont(forward, kept)->role = DC_ROLE_SAVED;
  dc_cont(r->graph, c)->role = DC_ROLE_SAVED;
  dc_container_rename(r->graph, c, dc_cont_name(forward, kept));
}

typedef struct {
  const dc_graph *graph;
  dc_nid *writer; /* by buffer: the last so far; 0: none */
  bool *changing;
  dc_nid node;
} change_search;

static void note_change(void *context, dc_cid c, dc_use use, dc_nid by) {
  change_search *s = context;
  dc_cid root = dc_container_root(s->graph, c);
  (void)by;
  if (use != DC_USE_WRITE) return;
  s->changing[root] |= dc_cont(s->graph, root)->role == DC_ROLE_INPUT || (s->writer[root] && s->writer[root] != s->node);
  s->writer[root] = s->node;
}

/* Buffers that several nodes write, and those of the caller that are written: to run a node that uses one again would find
 * another value there. */
static bool *changing_buffers(dc_reverse *r, const dc_scope *nodes) {
  uint32_t n = r->graph->containers.n;
  change_search s = {r->graph, DC_NEW_ARRAY(&r->arena, dc_nid, n), DC_NEW_ARRAY(&r->arena, bool, n), 0};
  for (uint32_t k = 0; k < nodes->n; k++) dc_node_uses(r->graph, s.node = nodes->v[k], note_change, &s);
  return s.changing;
}

/* What is computed again stands right before the adjoint node that needs it first, so that it does not lie in memory before. */
static void place_again(dc_reverse *r, const dc_keep_problem *p, const bool *again) {
  dc_scope *out = dc_graph_scope(r->graph);
  uint32_t *before = DC_NEW_ARRAY(&r->arena, uint32_t, p->forward->n), *next = DC_NEW_ARRAY(&r->arena, uint32_t, p->forward->n),
           *first = DC_NEW_ARRAY(&r->arena, uint32_t, p->adjoint->n + 1); /* lists of 1 + node */
  dc_keep_schedule(p, again, before);
  for (uint32_t k = p->forward->n; k-- > 0;)
    if (again[k]) next[k] = first[before[k]], first[before[k]] = k + 1;
  for (uint32_t a = 0; a <= p->adjoint->n; a++) {
    for (uint32_t k = first[a]; k; k = next[k - 1]) dc_scope_push(r->graph, out, p->forward->v[k - 1]);
    if (a < p->adjoint->n) dc_scope_push(r->graph, out, p->adjoint->v[a]);
  }
}

static void keep_values(dc_reverse *r, dc_graph *forward, const dc_scope *nodes, const dc_scope *adjoint, dc_keep strategy, bool overwrites,
                        bool stay) {
  bool *available = DC_NEW_ARRAY(&r->arena, bool, r->n), *store = DC_NEW_ARRAY(&r->arena, bool, r->n),
       *again = DC_NEW_ARRAY(&r->arena, bool, nodes->n);
  for (dc_cid c = 1; c < r->n; c++) {
    uint8_t role = dc_cont(r->graph, dc_container_root(r->graph, c))->role;
    available[c] = role == DC_ROLE_INPUT || role == DC_ROLE_PARAM || role == DC_ROLE_CONST || dc_own_computes(r, c);
  }
  dc_keep_problem problem = {r->ops, r->graph, r->n, nodes, adjoint, available, overwrites ? changing_buffers(r, nodes) : NULL, strategy};
  dc_keep_decide(&problem, store, again);
  if (dc_told_use(r, &problem, store)) dc_keep_decide(&problem, store, again);
  for (dc_cid c = 1; c < r->n; c++)
    if (store[c]) store[dc_container_root(r->graph, c)] = true;
  for (dc_cid c = 1; c < r->n; c++)
    if (store[c] && !dc_cont(r->graph, c)->alias_of) store_value(r, forward, c, stay);
  place_again(r, &problem, again);
}

static dc_status differentiate(dc_reverse *r, dc_graph *forward, const dc_cid *outputs, uint32_t n_outputs, const dc_cid *wrt,
                               uint32_t n_wrt, dc_keep keep, bool overwrites, bool stay, dc_backward *out) {
  dc_scope nodes = all_nodes(r->graph), adjoint = {0};
  dc_graph *backward = r->graph;
  backward->states.n = 0;
  dc_state_add(backward, "main");
  r->out = &adjoint;
  for (uint32_t k = 0; k < n_wrt; k++) r->active[wrt[k]] = true;
  add_inputs(r, forward, outputs, n_outputs);
  dc_own_prepare(r, &nodes);
  DC_TRY(sweep(r, &nodes));
  out->wrt = DC_NEW_ARRAY(&backward->arena, dc_grad_pair, n_wrt);
  mark_gradients(r, forward, wrt, n_wrt, out->wrt);
  keep_values(r, forward, &nodes, &adjoint, keep, overwrites, stay);
  return dc_graph_verify(backward);
}

/* A graph of operators gives each result an array of its own; maps of a program need not. */
static bool may_overwrite(dc_graph *graph) {
  bool any = dc_graph_writes_inputs(graph);
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n && !any; k++)
      any = dc_node_at(graph, graph->states.v[s].scope.v[k])->kind != DC_NODE_LIBRARY;
  return any;
}

/* Adds to the forward graph what the backward pass would have to look for; what it does not read after all is dropped later. */
static void note_winners(dc_graph *forward, dc_reverse *notes) {
  notes->winner = DC_NEW_ARRAY(&forward->arena, dc_cid, forward->nodes.n);
  for (uint32_t s = 0; s < forward->states.n; s++) {
    dc_scope before = forward->states.v[s].scope, after = {0};
    notes->out = &after;
    for (uint32_t k = 0; k < before.n; k++) {
      dc_scope_push(forward, &after, before.v[k]);
      dc_note_winners(notes, before.v[k]);
    }
    forward->states.v[s].scope = after;
  }
}

dc_status dc_autodiff(dc_ops *ops, dc_graph *forward, const dc_cid *outputs, uint32_t n_outputs, const dc_cid *wrt, uint32_t n_wrt,
                      dc_keep keep, bool stay, dc_backward *out) {
  DC_TRY(check_floats(forward, outputs, n_outputs, wrt, n_wrt));
  bool overwrites = may_overwrite(forward);
  for (uint32_t s = 0; s < forward->states.n && overwrites; s++) {
    DC_TRY(expand_inside(ops, forward, s));
    DC_TRY(dc_autodiff_prepare(forward, s));
  }
  for (uint32_t s = 0; s < forward->states.n; s++) DC_TRY(expand_state(ops, forward, s));
  dc_reverse r, notes = {.graph = forward};
  note_winners(forward, &notes);
  dc_graph *backward = empty_clone(forward);
  dc_scope nodes = all_nodes(forward);
  for (uint32_t k = 0; k < nodes.n; k++) dc_scope_push(backward, dc_graph_scope(backward), nodes.v[k]);
  init(&r, ops, backward, NULL);
  r.winner = notes.winner;
  dc_status status = differentiate(&r, forward, outputs, n_outputs, wrt, n_wrt, keep, overwrites, stay, out);
  dc_arena_free(&r.arena), dc_arena_free(&notes.arena);
  if (status) dc_graph_destroy(backward);
  else out->backward = backward;
  return dc_error_at(status, "backward pass");
}

/* ---- in one graph ---- */

/* Gradients of `wrt` as containers of the graph; those that nothing reaches are filled with zeros. */
static dc_status adjoint_of(dc_reverse *r, const dc_scope *nodes, const dc_cid *wrt, uint32_t n_wrt, dc_cid *gradients, dc_scope *adjoint) {
  dc_graph *graph = r->graph;
  r->out = adjoint;
  for (uint32_t k = 0; k < n_wrt; k++) r->active[wrt[k]] = true;
  DC_TRY(sweep(r, nodes));
  for (uint32_t k = 0; k < n_wrt; k++) {
    bool reached = r->grad[wrt[k]] != 0;
    dc_container c = *dc_cont(graph, wrt[k]);
    char *name = dc_arena_printf(&r->arena, "gradient_%s", dc_cont_name(graph, wrt[k]));
    gradients[k] = reached ? dc_gradient_owned(r, wrt[k]) : dc_container_add(graph, name, (dc_dtype)c.dtype, c.rank, c.shape, DC_ROLE_TEMP);
    if (!reached) dc_emit_fill(r, adjoint, gradients[k], 0, DC_WCR_NONE);
    else if (!dc_container_find(graph, name)) dc_container_rename(graph, gradients[k], name);
  }
  return DC_OK;
}

/* Prepares one state; *nodes is what to differentiate. */
static dc_status open_state(dc_reverse *r, dc_ops *ops, dc_graph *graph, uint32_t state, dc_scope *nodes) {
  if (state >= graph->states.n) return dc_error(DC_ERR_VALUE, "there is no state %u, the graph has %u", state, graph->states.n);
  DC_TRY(expand_inside(ops, graph, state));
  DC_TRY(dc_autodiff_prepare(graph, state));
  DC_TRY(expand_state(ops, graph, state));
  *nodes = graph->states.v[state].scope;
  init(r, ops, graph, NULL);
  return DC_OK;
}

/* The array gradient_<name> of the graph: 0 if there is none yet. */
static dc_status gradient_array(dc_reverse *r, dc_cid c, dc_cid *out) {
  const dc_graph *g = r->graph;
  const dc_container *k = dc_cont(g, c);
  dc_cid found = *out = dc_container_find(g, dc_arena_printf(&r->arena, "gradient_%s", dc_cont_name(g, c)));
  if (!found) return DC_OK;
  const dc_container *f = dc_cont(g, found);
  bool same = f->role == DC_ROLE_INPUT && f->dtype == k->dtype && f->rank == k->rank;
  for (uint32_t d = 0; d < k->rank && same; d++) same = f->shape[d] == k->shape[d];
  return same ? DC_OK
              : dc_error(DC_ERR_VALUE,
                         "there is an array '%s' already that is not given by the caller, or of another type or shape than '%s'",
                         dc_cont_name(g, found), dc_cont_name(g, c));
}

static dc_status take_seed(dc_reverse *r, dc_cid output) {
  dc_container c = *dc_cont(r->graph, output);
  char *name = dc_arena_printf(&r->arena, "gradient_%s", dc_cont_name(r->graph, output));
  if (r->grad[output]) return dc_error(DC_ERR_VALUE, "output '%s' is named twice", dc_cont_name(r->graph, output));
  DC_TRY(gradient_array(r, output, &r->grad[output]));
  if (!r->grad[output]) r->grad[output] = dc_container_add(r->graph, name, (dc_dtype)c.dtype, c.rank, c.shape, DC_ROLE_INPUT);
  return DC_OK;
}

/* The gradient is written to an array of the caller's. */
static dc_status give_gradient(dc_reverse *r, dc_cid of, dc_cid gradient) {
  dc_graph *graph = r->graph;
  dc_cid given;
  char *name = dc_arena_printf(&r->arena, "gradient_%s", dc_cont_name(graph, of));
  if (strcmp(dc_cont_name(graph, gradient), name)) {
    DC_TRY(gradient_array(r, of, &given));
    if (given) return dc_emit_fill(r, r->out, given, gradient, DC_WCR_NONE), DC_OK;
  }
  dc_cont(graph, gradient)->role = DC_ROLE_INPUT;
  DC_PUSH(&graph->arena, &graph->inputs, gradient);
  return DC_OK;
}

dc_status dc_autodiff_join(dc_ops *ops, dc_graph *graph, uint32_t state, const dc_cid *outputs, uint32_t n_outputs, const dc_cid *wrt,
                           uint32_t n_wrt) {
  dc_scope nodes, adjoint = {0};
  dc_reverse r;
  DC_TRY(check_floats(graph, outputs, n_outputs, wrt, n_wrt));
  for (uint32_t k = 0; k < n_wrt; k++)
    for (uint32_t j = 0; j < k; j++)
      if (wrt[j] == wrt[k]) return dc_error(DC_ERR_VALUE, "input '%s' is named twice", dc_cont_name(graph, wrt[k]));
  DC_TRY(open_state(&r, ops, graph, state, &nodes));
  dc_cid *gradients = DC_NEW_ARRAY(&graph->arena, dc_cid, n_wrt);
  dc_status status = DC_OK;
  dc_own_prepare(&r, &nodes);
  graph->states.v[state].scope = nodes;
  for (uint32_t k = 0; k < n_outputs && !status; k++) status = take_seed(&r, outputs[k]);
  if (!status) status = adjoint_of(&r, &nodes, wrt, n_wrt, gradients, &adjoint);
  for (uint32_t k = 0; k < n_wrt && !status; k++) status = give_gradient(&r, wrt[k], gradients[k]);
  dc_arena_free(&r.arena);
  if (status) return dc_error_at(status, "backward pass");
  dc_state_add(graph, "backward")->scope = adjoint;
  return dc_error_at(dc_graph_verify(graph), "backward pass");
}

typedef struct {
  const dc_cid *given;
  uint32_t n;
  bool writes;
} given_values;

static void note_write(void *context, dc_cid c, dc_use use, dc_nid by) {
  given_values *g = context;
  (void)by;
  for (uint32_t k = 0; k < g->n && use == DC_USE_WRITE; k++) g->writes |= g->given[k] == c;
}

/* Without the nodes that compute one of the values. */
static dc_scope without_producers(dc_graph *graph, const dc_scope *nodes, const dc_cid *given, uint32_t n) {
  dc_scope left = {0};
  for (uint32_t k = 0; k < nodes->n; k++) {
    given_values g = {given, n, false};
    dc_node_uses(graph, nodes->v[k], note_write, &g);
    if (!g.writes) dc_scope_push(graph, &left, nodes->v[k]);
  }
  return left;
}

/* Gradients of a repeated output add up. */
static void plant_seeds(dc_reverse *r, dc_scope *adjoint, const dc_cid *outputs, const dc_cid *seeds, uint32_t n) {
  r->out = adjoint;
  for (uint32_t k = 0; k < n; k++) {
    dc_cid *gradient = &r->grad[outputs[k]];
    if (*gradient) dc_emit_fill(r, adjoint, dc_gradient_owned(r, outputs[k]), seeds[k], DC_WCR_SUM);
    else *gradient = seeds[k];
  }
}

dc_status dc_autodiff_inline(dc_ops *ops, dc_graph *graph, uint32_t state, const dc_cid *outputs, const dc_cid *seeds, uint32_t n_outputs,
                             const dc_cid *wrt, uint32_t n_wrt, dc_cid *gradients) {
  dc_scope nodes, adjoint = {0};
  dc_reverse r;
  DC_TRY(check_floats(graph, outputs, n_outputs, wrt, n_wrt));
  DC_TRY(open_state(&r, ops, graph, state, &nodes));
  for (uint32_t k = 0; k < nodes.n; k++) {
    if (!dc_own_is(graph, nodes.v[k])) continue;
    dc_arena_free(&r.arena);
    return dc_error(DC_ERR_UNSUPPORTED, "a gradient inside the graph of a function with a gradient of its own");
  }
  plant_seeds(&r, &adjoint, outputs, seeds, n_outputs);
  nodes = without_producers(graph, &nodes, wrt, n_wrt);
  dc_status status = adjoint_of(&r, &nodes, wrt, n_wrt, gradients, &adjoint);
  dc_arena_free(&r.arena);
  for (uint32_t k = 0; k < adjoint.n; k++) dc_scope_push(graph, &graph->states.v[state].scope, adjoint.v[k]);
  return dc_error_at(status, "backward pass");
}

/* ---- one gradient node ---- */

static dc_cid temp_like(dc_graph *graph, dc_cid c, const char *name) {
  dc_container k = *dc_cont(graph, c);
  return dc_container_add(graph, name, (dc_dtype)k.dtype, k.rank, k.shape, DC_ROLE_TEMP);
}

/* The forward operator again, private to this gradient; its input k is a view of its own, so
 * that an operand used twice is told apart. */
static dc_status private_forward(dc_ops *ops, dc_graph *graph, const dc_library *lib, dc_scope *scope, dc_cid *input, dc_cid *outputs) {
  dc_cid *in = dc_arena_copy(&graph->arena, lib->in, lib->n_fwd_in * sizeof *in);
  uint32_t k = lib->wrt - 1;
  *input = temp_like(graph, lib->in[k], dc_cont_name(graph, lib->in[k]));
  dc_cont(graph, *input)->alias_of = lib->in[k];
  dc_container *source = dc_cont(graph, lib->in[k]);
  if (source->known) dc_cont(graph, *input)->known = source->known, dc_cont(graph, *input)->known_count = source->known_count;
  in[k] = *input;
  for (uint32_t j = 0; j < lib->n_fwd_out; j++) {
    dc_cid given = lib->in[lib->n_fwd_in + j], gradient = lib->in[lib->n_fwd_in + lib->n_fwd_out + j];
    outputs[j] = given ? given : gradient ? temp_like(graph, gradient, "y") : 0;
  }
  dc_nid node = dc_node_library(graph, dc_name_text(&graph->names, lib->op), dc_name_text(&graph->names, lib->domain), lib->since, in,
                                lib->n_fwd_in, outputs, lib->n_fwd_out, lib->attr, lib->n_attr);
  return dc_ops_expand(ops, graph, node, scope);
}

typedef struct {
  const dc_reverse *r;
  const dc_adjoint_room *room;
  bool hit;
} demand;

static void note_demand(void *context, dc_cid c, dc_use use, dc_nid by) {
  demand *d = context;
  dc_cid root = dc_container_root(d->r->graph, c);
  (void)by;
  if (use == DC_USE_READ && root < d->r->n && !d->room->given[root]) d->room->needed[root] = true;
}

static void note_supply(void *context, dc_cid c, dc_use use, dc_nid by) {
  demand *d = context;
  dc_cid root = dc_container_root(d->r->graph, c);
  (void)by;
  d->hit |= use == DC_USE_WRITE && root < d->r->n && d->room->needed[root];
}

/* The forward nodes whose values the adjoint reads run again; nothing is kept for a gradient that stands alone. */
static void push_needed(dc_reverse *r, const dc_adjoint_room *room, const dc_scope *forward, const dc_scope *adjoint,
                        dc_scope *out) {
  bool *again = DC_NEW_ARRAY(&r->arena, bool, forward->n);
  demand d = {r, room, false};
  for (uint32_t k = 0; k < adjoint->n; k++) dc_node_uses(r->graph, adjoint->v[k], note_demand, &d);
  for (uint32_t k = forward->n; k-- > 0;) {
    d.hit = false;
    dc_node_uses(r->graph, forward->v[k], note_supply, &d);
    again[k] = d.hit;
    if (d.hit) dc_node_uses(r->graph, forward->v[k], note_demand, &d);
  }
  for (uint32_t k = 0; k < forward->n; k++)
    if (again[k]) dc_scope_push(r->graph, out, forward->v[k]);
  for (uint32_t k = 0; k < adjoint->n; k++) dc_scope_push(r->graph, out, adjoint->v[k]);
}

static dc_status expand_gradient(dc_reverse *r, const dc_library *lib, const dc_adjoint_room *room, const dc_scope *forward,
                                 dc_cid input, const dc_cid *outputs, dc_scope *scope) {
  dc_scope adjoint = {0};
  r->out = &adjoint;
  r->tag_wrt = lib->wrt;
  r->active[input] = true;
  r->wanted = input, r->target = lib->out[0], r->fresh = r->n; /* the gradient of another input reads the same operands */
  for (uint32_t j = 0; j < lib->n_fwd_out; j++)
    if (outputs[j]) r->grad[outputs[j]] = lib->in[lib->n_fwd_in + lib->n_fwd_out + j];
  DC_TRY(sweep(r, forward));
  if (!r->grad[input]) dc_emit_fill(r, &adjoint, lib->out[0], 0, DC_WCR_NONE);
  for (uint32_t k = 0; k < lib->n_in; k++)
    if (lib->in[k]) room->given[dc_container_root(r->graph, lib->in[k])] = true;
  push_needed(r, room, forward, &adjoint, scope);
  return DC_OK;
}

static void open_room(dc_adjoint_room *room, uint32_t n) {
  if (n <= room->n) return;
  room->n = 2 * n;
  room->grad = DC_NEW_ARRAY(&room->arena, dc_cid, room->n);
  bool **tables[] = {&room->active, &room->rewritten, &room->written, &room->given, &room->needed};
  for (size_t k = 0; k < sizeof tables / sizeof *tables; k++) *tables[k] = DC_NEW_ARRAY(&room->arena, bool, room->n);
}

static void clear_entry(const dc_adjoint_room *room, dc_cid c) {
  room->grad[c] = 0;
  room->active[c] = room->rewritten[c] = room->written[c] = room->given[c] = room->needed[c] = false;
}

/* Only the operands of the node, and what its expansion added, were entered. */
static void clear_room(const dc_graph *graph, const dc_adjoint_room *room, const dc_library *lib, dc_cid from,
                       dc_cid end) {
  for (uint32_t k = 0; k < lib->n_in + lib->n_out; k++) {
    dc_cid c = k < lib->n_in ? lib->in[k] : lib->out[k - lib->n_in];
    for (; c; c = dc_cont(graph, c)->alias_of) clear_entry(room, c);
  }
  for (dc_cid c = from; c < end; c++) clear_entry(room, c);
}

dc_status dc_autodiff_expand(dc_ops *ops, dc_graph *graph, dc_nid node, dc_adjoint_room *room, dc_scope *scope) {
  dc_library lib = dc_node_at(graph, node)->lib;
  const dc_row *row = dc_ops_row_of(ops, graph, &lib);
  if (row && dc_row_has_grad(row))
    return dc_ops_expand_grad(ops, graph, node, lib.wrt - 1, lib.in + lib.n_fwd_in + lib.n_fwd_out, lib.out[0], scope);
  dc_scope forward = {0};
  dc_cid input, *outputs = DC_NEW_ARRAY(&graph->arena, dc_cid, lib.n_fwd_out), from = graph->containers.n;
  DC_TRY(private_forward(ops, graph, &lib, &forward, &input, outputs));
  open_room(room, graph->containers.n);
  dc_reverse r = {.ops = ops, .graph = graph, .n = graph->containers.n, .grad = room->grad, .active = room->active,
                  .rewritten = room->rewritten, .written = room->written};
  dc_status status = expand_gradient(&r, &lib, room, &forward, input, outputs, scope);
  clear_room(graph, room, &lib, from, r.n);
  dc_arena_free(&r.arena);
  return dc_error_at(status, "gradient of %s", dc_node_describe(graph, node));
}
