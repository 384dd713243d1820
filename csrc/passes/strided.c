/* What a library takes by its strides is what it is copied from, or copied to.
 *
 *     map b, h, n, d { Q[b, h, n, d] = X[b, n, 64*h + d] }   Y = Attention(Q, ...)
 *     map b, n, h, d { Z[b, n, h, d] = Y[b, h, n, d] }                               becomes
 *     temp Q: f32[B, 8, 128, 64] strides [65536, 64, 512, 1] view X     temp Y: ... view Z
 *
 * A row names such operands and results (`strided`); their rows stay in one piece.  Copies of copies are followed to where what
 * is copied lies, by the address of an element.  Nothing may write there before the last one reads it, nor touch it before it would
 * have been written.  Does nothing where a state may run twice. */
#include <string.h>

#include "ops/ops.h"
#include "passes/access.h"
#include "passes/passes.h"

enum { MAX_COPIES = 8 };

/* Of a container, by places of nodes, which count from 1. */
typedef struct {
  uint32_t n_maps, map, n_libraries, last; /* that read it: maps, and the last of them; libraries; last: of both */
  bool as_rows, viewed;                    /* as_rows: a library takes it, and not by strides */
  dc_cid read;                             /* of a buffer: the name under which it is read, ... */
  uint32_t n_names;                        /* ... where it is so under one only */
} use;

typedef struct {
  dc_ops *ops;
  dc_graph *graph;
  dc_scope *scope;
  dc_writers *writers; /* by buffer */
  use *uses;           /* by container */
  bool *drop;          /* by place */
  uint32_t place;
} search;

/* Where elements of a container lie in a buffer: from `offset` on, steps apart. */
typedef struct {
  dc_cid root;
  dc_ex steps[DC_MAX_RANK], offset;
  uint32_t maps[MAX_COPIES], n; /* places of copies that go */
} location;

/* ---- who uses what ---- */

static void note_use(void *context, dc_cid c, dc_use how, dc_nid by) {
  search *s = context;
  use *u = &s->uses[c];
  const dc_node *node = dc_node_at(s->graph, by);
  if (node->kind == DC_NODE_LIBRARY) u->as_rows |= !dc_ops_takes_strides(s->ops, s->graph, &node->lib, c);
  if (how != DC_USE_READ) return;
  u->last = s->place;
  if (node->kind == DC_NODE_LIBRARY) u->n_libraries++;
  else if (u->map != s->place) u->n_maps++, u->map = s->place;
}

static void look(search *s) {
  dc_graph *graph = s->graph;
  memset(s->uses, 0, graph->containers.n * sizeof *s->uses), memset(s->writers, 0, graph->containers.n * sizeof *s->writers);
  dc_graph_writers(graph, s->writers);
  for (s->place = 1; s->place <= s->scope->n; s->place++) dc_node_uses(graph, s->scope->v[s->place - 1], note_use, s);
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    use *root = &s->uses[dc_container_root(graph, c)];
    if (s->uses[c].last) root->read = c, root->n_names++;
    s->uses[dc_cont(graph, c)->alias_of].viewed = true;
  }
}

static bool is_free(const search *s, dc_cid c) {
  const dc_container *k = dc_cont(s->graph, c);
  return k->role == DC_ROLE_TEMP && k->storage == DC_STORE_HEAP && k->shape && k->rank && !k->is_output && !k->is_host && !k->strides &&
         !k->known && !s->uses[c].as_rows && !s->uses[c].viewed;
}

/* ---- copies ---- */

static const dc_tasklet *copy_at(const search *s, uint32_t place) { return dc_access_only_copy(s->graph, s->scope->v[place - 1]); }

static bool runs_over(const search *s, uint32_t place, dc_cid c, const dc_ex *index, dc_param *out) {
  return dc_access_runs_over(s->graph, &dc_node_at(s->graph, s->scope->v[place - 1])->map, c, index, UINT32_MAX, out);
}

/* ---- addresses ---- */

/* Of an element in the buffer; 0: it does not lie there in rows. */
static dc_ex address_of(dc_graph *graph, dc_cid c, const dc_ex *index) {
  for (dc_cid at = c; at; at = dc_cont(graph, at)->alias_of) {
    const dc_container *k = dc_cont(graph, at);
    if (k->strides || !k->shape || k->dtype != dc_cont(graph, c)->dtype || k->storage != DC_STORE_HEAP || k->is_host) return 0;
  }
  return dc_access_address(graph, c, index);
}

/* The whole of its buffer, in rows? */
static bool is_whole(const dc_graph *graph, dc_cid c) {
  for (dc_cid at = c; at; at = dc_cont(graph, at)->alias_of) {
    const dc_container *k = dc_cont(graph, at);
    if (k->strides || k->alias_offset || k->dtype != dc_cont(graph, c)->dtype) return false;
  }
  return true;
}

/* The index, of an element of a view, in another view of all of the buffer. */
static bool index_in(dc_graph *graph, dc_cid from, const dc_ex *index, dc_cid to, dc_ex *out) {
  if (!is_whole(graph, to)) return false;
  if (is_whole(graph, from) && dc_access_same_but_ones(graph, from, to)) return dc_access_index_but_ones(graph, from, to, index, out), true;
  const dc_container k = *dc_cont(graph, to);
  dc_ex address = address_of(graph, from, index);
  uint32_t first = 0; /* dimension that is not of extent one: what is left of the address is its index */
  while (first + 1 < k.rank && dc_ex_is_one(&graph->pool, k.shape[first])) first++;
  for (uint32_t d = k.rank; d-- > 0 && address;) {
    const bool one = d < first || dc_ex_is_one(&graph->pool, k.shape[d]);
    out[d] = one ? dc_ex_int(&graph->pool, 0) : d == first ? address : dc_ix_mod(&graph->pool, address, k.shape[d]);
    if (!one) address = dc_ix_div(&graph->pool, address, k.shape[d]);
  }
  return address;
}

static bool is_known(dc_pool *pool, dc_ex e) {
  return !dc_ex_uses_op(pool, e, DC_EX_PARAM) && !dc_ex_uses_op(pool, e, DC_EX_READ) && dc_ix_proves_ge(pool, e, 0);
}

static bool find_steps(dc_graph *graph, dc_ex address, const dc_param *params, uint32_t rank, location *out) {
  dc_pool *pool = &graph->pool;
  int64_t last = 0;
  for (uint32_t d = 0; d < rank; d++) {
    out->steps[d] = dc_ex_int(pool, d + 1 == rank);
    if (params[d] && (!dc_ix_split(pool, address, params[d], &out->steps[d], &address) || !is_known(pool, out->steps[d]))) return false;
  }
  out->offset = address;
  return dc_ex_is_int(pool, out->steps[rank - 1], &last) && last == 1 && is_known(pool, address);
}

/* ---- operands ---- */

/* May what is read at a place be read later?  Arrays of callers are theirs again after the call. */
static bool stays(const search *s, dc_cid root, uint32_t place) {
  const uint8_t role = dc_cont(s->graph, root)->role;
  return (role == DC_ROLE_TEMP || role == DC_ROLE_SAVED || role == DC_ROLE_INPUT) && s->writers[root].last < place;
}

/* The element of what is read at a place, as what the only copy into that reads; false: there is none. */
static bool step_back(search *s, uint32_t *place, dc_ex *read) {
  dc_graph *graph = s->graph;
  const dc_exnode from = *dc_ex_node(&graph->pool, *read);
  const dc_cid root = dc_container_root(graph, from.ref);
  dc_ex at[DC_MAX_RANK], index[DC_MAX_RANK];
  dc_param params[DC_MAX_RANK];
  const uint32_t before = s->writers[root].last;
  const bool one_each = s->writers[root].n == 1 && dc_cont(graph, root)->role == DC_ROLE_TEMP && before < *place;
  const dc_tasklet *copy = one_each ? copy_at(s, before) : NULL;
  if (!copy) return false;
  const dc_tasklet t = *copy;
  for (uint32_t d = 0; d < from.nargs; d++) at[d] = dc_ex_arg(&graph->pool, *read, d);
  if (!runs_over(s, before, t.out, t.index, params) || !index_in(graph, from.ref, at, t.out, index)) return false;
  uint32_t n = 0;
  for (uint32_t d = 0; d < t.rank; d++)
    if (params[d]) params[n] = params[d], index[n++] = index[d];
  *read = dc_ex_subst(&graph->pool, t.value, params, index, n), *place = before;
  return true;
}

/* The operand's element at parameters that stand for its index. */
static dc_ex any_element(dc_graph *graph, dc_cid c, dc_param *params) {
  const dc_container k = *dc_cont(graph, c);
  dc_ex index[DC_MAX_RANK];
  for (uint32_t d = 0; d < k.rank; d++) {
    params[d] = dc_param_new(&graph->pool, "i", dc_ex_int(&graph->pool, 0), k.shape[d], 0);
    index[d] = dc_ex_par(&graph->pool, params[d]);
  }
  return dc_ex_read(&graph->pool, (dc_dtype)k.dtype, c, index, k.rank);
}

/* From the node at a place on back, copy by copy. */
static bool find_source(search *s, dc_cid c, uint32_t place, location *out) {
  dc_graph *graph = s->graph;
  dc_param params[DC_MAX_RANK];
  dc_ex read = any_element(graph, c, params);
  bool found = false;
  *out = (location){.n = 0};
  for (uint32_t k = 0; k < MAX_COPIES; k++) {
    const dc_exnode node = *dc_ex_node(&graph->pool, read);
    dc_ex index[DC_MAX_RANK];
    location here = *out;
    here.root = dc_container_root(graph, node.ref);
    for (uint32_t d = 0; d < node.nargs; d++) index[d] = dc_ex_arg(&graph->pool, read, d);
    const dc_ex address = dc_cont(graph, node.ref)->dtype == dc_cont(graph, c)->dtype ? address_of(graph, node.ref, index) : 0;
    if (!address) return found;
    if (k && stays(s, here.root, place) && find_steps(graph, address, params, dc_cont(graph, c)->rank, &here)) *out = here, found = true;
    if (!step_back(s, &place, &read)) return found;
    if (!k && !dc_cont(graph, c)->alias_of) out->maps[out->n++] = place; /* the others go if nobody else reads what they make */
  }
  return found;
}

/* ---- results ---- */

/* Do two nodes, of which one is a copy, write different elements of the buffer, and read none? */
static bool are_apart(search *s, dc_nid node, dc_ex element, dc_cid root) {
  dc_accesses all = {0};
  dc_arena scratch = {0};
  const dc_access own = {.container = dc_ex_node(&s->graph->pool, element)->ref, .root = root, .element = element, .writes = true};
  bool apart = dc_node_at(s->graph, node)->kind == DC_NODE_MAP;
  dc_access_collect(s->graph, &scratch, node, false, &all);
  for (uint32_t k = 0; k < all.n && apart; k++)
    if (all.v[k].root == root) apart = all.v[k].element && !all.v[k].reads && dc_access_disjoint(s->graph, &own, &all.v[k]);
  dc_arena_free(&scratch);
  return apart;
}

static bool is_among(const uint32_t *places, uint32_t n, uint32_t place) {
  for (uint32_t k = 0; k < n; k++)
    if (places[k] == place) return true;
  return false;
}

/* May what the copies bring to the buffer be there from its making on?  The element is what the last copy writes. */
static bool may_come_early(search *s, dc_cid c, const location *to, dc_ex element) {
  const dc_container *k = dc_cont(s->graph, to->root);
  const uint32_t made = s->writers[c].last, copied = to->maps[to->n - 1], last = s->uses[c].last > copied ? s->uses[c].last : copied;
  const dc_library *lib = &dc_node_at(s->graph, s->scope->v[made - 1])->lib;
  if ((k->role != DC_ROLE_TEMP && k->role != DC_ROLE_SAVED) || made > copied) return false;
  for (uint32_t j = 0; j < lib->n_in; j++)
    if (lib->in[j] && dc_container_root(s->graph, lib->in[j]) == to->root) return false;
  for (uint32_t at = made + 1; at <= last; at++) {
    const dc_nid node = s->scope->v[at - 1];
    if (s->drop[at] || is_among(to->maps, to->n, at)) continue;
    const unsigned uses = at <= copied ? DC_USE_READ | DC_USE_WRITE : DC_USE_WRITE;
    if (dc_node_touches_one(s->graph, node, uses, to->root) && !(at <= copied && are_apart(s, node, element, to->root))) return false;
  }
  return true;
}

/* From the element that a copy writes to the one that the only copy out of there writes. */
static bool step_on(search *s, uint32_t *place, dc_cid *to, dc_ex *index) {
  dc_graph *graph = s->graph;
  const dc_cid root = dc_container_root(graph, *to);
  const dc_container *k = dc_cont(graph, root);
  const dc_cid read = s->uses[root].read;
  const use *u = &s->uses[read];
  if (k->role != DC_ROLE_TEMP || k->is_output || s->writers[root].n != 1 || s->uses[root].n_names != 1) return false;
  const dc_tasklet *copy = u->n_maps == 1 && !u->n_libraries && u->map > *place ? copy_at(s, u->map) : NULL;
  if (!copy) return false;
  const dc_tasklet t = *copy;
  dc_ex from[DC_MAX_RANK];
  dc_param params[DC_MAX_RANK];
  for (uint32_t d = 0; d < dc_cont(graph, read)->rank; d++) from[d] = dc_ex_arg(&graph->pool, t.value, d);
  if (dc_ex_node(&graph->pool, t.value)->ref != read || !runs_over(s, u->map, read, from, params)) return false;
  if (!index_in(graph, *to, index, read, from)) return false;
  uint32_t n = 0;
  for (uint32_t d = 0; d < dc_cont(graph, read)->rank; d++)
    if (params[d]) params[n] = params[d], from[n++] = from[d];
  for (uint32_t d = 0; d < t.rank; d++) index[d] = dc_ex_subst(&graph->pool, t.index[d], params, from, n);
  return *place = u->map, *to = t.out, true;
}

static bool find_target(search *s, dc_cid c, location *out) {
  dc_graph *graph = s->graph;
  dc_ex index[DC_MAX_RANK];
  dc_param params[DC_MAX_RANK];
  uint32_t place = s->uses[c].map;
  const bool one_each = s->writers[c].n == 1 && s->uses[c].n_maps == 1 && !dc_cont(graph, c)->alias_of;
  const dc_tasklet *copy = one_each ? copy_at(s, place) : NULL;
  if (!copy || dc_node_at(graph, s->scope->v[s->writers[c].last - 1])->kind != DC_NODE_LIBRARY) return false;
  if (dc_ex_node(&graph->pool, copy->value)->ref != c) return false;
  for (uint32_t d = 0; d < dc_cont(graph, c)->rank; d++) index[d] = dc_ex_arg(&graph->pool, copy->value, d);
  if (!runs_over(s, place, c, index, params)) return false;
  memcpy(index, copy->index, copy->rank * sizeof *index);
  dc_cid to = copy->out;
  location here = {.n = 0};
  bool found = false;
  while (here.n < MAX_COPIES) {
    const dc_ex address = dc_cont(graph, to)->dtype == dc_cont(graph, c)->dtype ? address_of(graph, to, index) : 0; /* else it is rounded */
    if (!address) return found;
    const dc_ex element = dc_ex_read(&graph->pool, (dc_dtype)dc_cont(graph, to)->dtype, to, index, dc_cont(graph, to)->rank);
    here.maps[here.n++] = place, here.root = dc_container_root(graph, to);
    const bool has_steps = find_steps(graph, address, params, dc_cont(graph, c)->rank, &here);
    if (has_steps && may_come_early(s, c, &here, element)) *out = here, found = true;
    if (!step_on(s, &place, &to, index)) return found;
  }
  return found;
}

/* ---- all of it ---- */

static void put(search *s, dc_cid c, const location *at) {
  dc_container *k = dc_cont(s->graph, c);
  int64_t offset;
  k->strides = dc_arena_copy(&s->graph->arena, at->steps, k->rank * sizeof *at->steps);
  k->alias_of = at->root, k->alias_offset = dc_ex_is_int(&s->graph->pool, at->offset, &offset) && !offset ? 0 : at->offset;
  for (uint32_t j = 0; j < at->n; j++) s->drop[at->maps[j]] = true;
}

static void drop_copies(search *s) {
  uint32_t kept = 0;
  for (uint32_t k = 0; k < s->scope->n; k++)
    if (!s->drop[k + 1]) s->scope->v[kept++] = s->scope->v[k];
  s->scope->n = kept;
  dc_simplify_drop_dead(s->graph);
}

/* Operands or results of a library's nodes. */
static bool lend(search *s, bool results) {
  bool any = false;
  look(s);
  for (uint32_t k = 0; k < s->scope->n; k++) {
    const dc_node *node = dc_node_at(s->graph, s->scope->v[k]);
    if (node->kind != DC_NODE_LIBRARY || !node->lib.by) continue;
    const dc_library lib = node->lib;
    for (uint32_t j = 0; j < (results ? lib.n_out : lib.n_in); j++) {
      const dc_cid c = results ? lib.out[j] : lib.in[j];
      location at;
      if (!c || !is_free(s, c) || !(results ? find_target(s, c, &at) : !s->uses[c].n_maps && find_source(s, c, k + 1, &at))) continue;
      put(s, c, &at), any = true;
    }
  }
  return any;
}

/* Operands first: what they read is then known to be viewed. */
dc_status dc_pass_strided(dc_ops *ops, dc_graph *graph) {
  if (graph->states.n != 1 || graph->subgraphs.n) return DC_OK;
  search s = {.ops = ops, .graph = graph, .scope = &graph->states.v[0].scope};
  s.writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  s.uses = DC_NEW_ARRAY(&graph->arena, use, graph->containers.n);
  s.drop = DC_NEW_ARRAY(&graph->arena, bool, s.scope->n + 1);
  const bool read = lend(&s, false), written = lend(&s, true);
  if (read || written) drop_copies(&s);
  return DC_OK;
}
