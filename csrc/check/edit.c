/* See edit.h. */
#include "check/edit.h"

#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

/* ---- edits ---- */

typedef struct {
  dc_ops *ops;
  dc_graph *g;
  uint32_t left; /* edits to pass over before the one that is made */
  bool made;
} edit;

static bool is_next(edit *e) {
  if (e->made) return false;
  if (e->left) return e->left--, false;
  return e->made = true;
}

static void drop_output(edit *e) {
  for (uint32_t k = 0; k < e->g->outputs.n && e->g->outputs.n > 1; k++) {
    if (!is_next(e)) continue;
    dc_cont(e->g, e->g->outputs.v[k])->is_output = false;
    for (uint32_t j = k; j + 1 < e->g->outputs.n; j++) e->g->outputs.v[j] = e->g->outputs.v[j + 1];
    e->g->outputs.n--;
    return;
  }
}

typedef struct {
  edit *e;
  dc_cid *output;
  bool *writes; /* by container: does the node write it? */
  dc_cid read;  /* what becomes the output instead, or 0 */
} earlier;

static void note_write(void *context, dc_cid c, dc_use use, dc_nid by) {
  (void)by;
  if (use == DC_USE_WRITE) ((earlier *)context)->writes[c] = true;
}

static void choose_read(void *context, dc_cid c, dc_use use, dc_nid by) {
  earlier *at = context;
  const dc_container *k = dc_cont(at->e->g, c);
  (void)by;
  bool is_plain = k->role == DC_ROLE_TEMP && k->storage == DC_STORE_HEAP && !k->alias_of && !k->is_output;
  if (use == DC_USE_READ && is_plain && !at->writes[c] && !at->read && is_next(at->e)) at->read = c;
}

/* What an output is computed of becomes the output in its place. */
static void move_output(edit *e) {
  dc_graph *g = e->g;
  bool *writes = calloc(g->containers.n, sizeof *writes);
  for (uint32_t s = 0; s < g->states.n && writes; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++)
      for (uint32_t j = 0; j < g->outputs.n && !e->made; j++) {
        earlier at = {e, &g->outputs.v[j], writes, 0};
        memset(writes, 0, g->containers.n * sizeof *writes);
        dc_node_uses(g, g->states.v[s].scope.v[k], note_write, &at);
        if (!writes[*at.output]) continue;
        dc_node_uses(g, g->states.v[s].scope.v[k], choose_read, &at);
        if (!at.read) continue;
        dc_cont(g, *at.output)->is_output = false, dc_cont(g, at.read)->is_output = true;
        *at.output = at.read;
      }
  free(writes);
}

/* A run of nodes of one scope, from all of them to single ones. */
static void drop_nodes(edit *e, dc_scope *scope, uint32_t level) {
  for (uint32_t size = scope->n; size && !e->made; size = size > 1 ? (size + 1) / 2 : 0) {
    for (uint32_t k = 0; k < scope->n && !e->made; k += size) {
      if (!is_next(e)) continue;
      uint32_t end = k + size < scope->n ? k + size : scope->n;
      for (uint32_t j = end; j < scope->n; j++) scope->v[k + j - end] = scope->v[j];
      scope->n -= end - k;
    }
  }
  for (uint32_t k = 0; k < scope->n && !e->made; k++) {
    dc_node *node = dc_node_at(e->g, scope->v[k]);
    if (node->kind == DC_NODE_MAP) drop_nodes(e, &node->map.body, level + 1);
  }
}

/* A weight becomes an input, whose contents nobody prints and whose extents can shrink. */
static void forget_data(edit *e) {
  for (dc_cid c = 1; c < e->g->containers.n && !e->made; c++) {
    dc_container *k = dc_cont(e->g, c);
    if (k->role == DC_ROLE_CONST && dc_dtype_is_float((dc_dtype)k->dtype) && is_next(e)) k->role = DC_ROLE_PARAM;
  }
}

static void simplify_tasklet(edit *e, dc_tasklet *t) {
  const dc_pool *pool = &e->g->pool;
  if (t->guard && is_next(e)) t->guard = 0;
  const dc_exnode *value = dc_ex_node(pool, t->value);
  for (uint32_t k = 0; k < value->nargs && value->op != DC_EX_READ && value->op != DC_EX_LINEAR; k++) {
    dc_ex arg = dc_ex_arg(pool, t->value, k);
    if (dc_ex_dtype(pool, arg) == dc_ex_dtype(pool, t->value) && is_next(e)) {
      t->value = arg;
      return;
    }
  }
  dc_dtype type = dc_ex_dtype(pool, t->value);
  if (value->nargs && (type == DC_F32 || type == DC_F64) && is_next(e)) t->value = dc_ex_const(&e->g->pool, type, 0.5);
}

static void simplify_values(edit *e, const dc_scope *scope) {
  for (uint32_t k = 0; k < scope->n && !e->made; k++) {
    dc_node *node = dc_node_at(e->g, scope->v[k]);
    if (node->kind == DC_NODE_MAP) simplify_values(e, &node->map.body);
    if (node->kind == DC_NODE_TASKLET) simplify_tasklet(e, &node->tasklet);
  }
}

typedef struct {
  dc_sym symbol;
  dc_ex value;
} replacement;

static dc_ex replace_symbol(void *context, dc_pool *pool, dc_ex leaf) {
  const replacement *r = context;
  const dc_exnode *node = dc_ex_node(pool, leaf);
  return node->op == DC_EX_SYM && node->ref == r->symbol ? r->value : leaf;
}

static void fix_symbol(dc_graph *g, replacement r) {
  for (dc_cid c = 1; c < g->containers.n; c++) {
    dc_container *k = dc_cont(g, c);
    for (uint32_t d = 0; d < k->rank && k->shape; d++) k->shape[d] = dc_ex_rewrite(&g->pool, k->shape[d], replace_symbol, &r);
    for (uint32_t d = 0; d < k->rank && k->strides; d++) k->strides[d] = dc_ex_rewrite(&g->pool, k->strides[d], replace_symbol, &r);
    if (k->alias_offset) k->alias_offset = dc_ex_rewrite(&g->pool, k->alias_offset, replace_symbol, &r);
  }
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) dc_node_rewrite(g, g->states.v[s].scope.v[k], replace_symbol, &r);
}

static void fix_symbols(edit *e) {
  dc_pool *pool = &e->g->pool;
  for (dc_sym s = 1; s < pool->symbols.n && !e->made; s++) {
    for (int64_t value = 1; value <= 3 && !e->made; value++)
      if (is_next(e)) fix_symbol(e->g, (replacement){s, dc_ex_int(pool, value)});
    for (dc_sym other = 1; other < s && !e->made; other++)
      if (is_next(e)) fix_symbol(e->g, (replacement){s, dc_ex_sym(pool, other)});
  }
}

static dc_ex halved(dc_pool *pool, dc_ex extent, int64_t from) {
  int64_t value;
  return dc_ex_is_int(pool, extent, &value) && value == from ? dc_ex_int(pool, from / 2) : extent;
}

/* All extents and ends of loops of that many; what is inferred is inferred anew. */
static void halve_extent(edit *e, int64_t from) {
  dc_graph *g = e->g;
  for (dc_cid c = 1; c < g->containers.n; c++)
    for (uint32_t d = 0; d < dc_cont(g, c)->rank && dc_cont(g, c)->shape && !dc_cont(g, c)->data; d++)
      dc_cont(g, c)->shape[d] = halved(&g->pool, dc_cont(g, c)->shape[d], from);
  for (dc_param p = 1; p < g->pool.params.n; p++) {
    dc_ex end = halved(&g->pool, g->pool.params.v[p].end, from);
    g->pool.params.v[p].end = end;
  }
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) {
      const dc_node *node = dc_node_at(g, g->states.v[s].scope.v[k]);
      if (node->kind != DC_NODE_LIBRARY || node->lib.wrt) continue;
      for (uint32_t j = 0; j < node->lib.n_out; j++)
        if (node->lib.out[j]) dc_cont(g, node->lib.out[j])->known = NULL, dc_cont(g, node->lib.out[j])->known_count = 0;
    }
  dc_cid blocked;
  dc_status_free(dc_pass_infer(e->ops, g, &blocked)); /* whoever tries it finds what does not fit */
}

static void halve_extents(edit *e) {
  int64_t seen[64], extent;
  uint32_t n = 0;
  for (dc_cid c = 1; c < e->g->containers.n && !e->made; c++)
    for (uint32_t d = 0; d < dc_cont(e->g, c)->rank && dc_cont(e->g, c)->shape && !e->made; d++) {
      bool is_new = dc_ex_is_int(&e->g->pool, dc_cont(e->g, c)->shape[d], &extent) && extent > 1 && n < 64;
      for (uint32_t k = 0; k < n && is_new; k++) is_new = seen[k] != extent;
      if (!is_new) continue;
      seen[n++] = extent;
      if (is_next(e)) halve_extent(e, extent);
    }
}

/* ---- repair ---- */

typedef struct {
  const dc_graph *g;
  bool *read, *written;
} use_sets;

static void note_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  use_sets *u = context;
  (void)by;
  if (use == DC_USE_READ) u->read[dc_container_root(u->g, c)] = true;
  else u->written[dc_container_root(u->g, c)] = true;
}

static void find_uses(const dc_graph *g, use_sets *u) {
  *u = (use_sets){g, calloc(g->containers.n, 1), calloc(g->containers.n, 1)};
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) dc_node_uses(g, g->states.v[s].scope.v[k], note_use, u);
}

void dc_edit_repair(dc_graph *g) {
  use_sets u;
  find_uses(g, &u);
  for (dc_cid c = 1; c < g->containers.n; c++) {
    dc_container *k = dc_cont(g, c);
    if (k->role == DC_ROLE_SAVED && u.written[c]) {
      k->role = DC_ROLE_TEMP;
      if (!k->is_output) dc_graph_mark_output(g, c);
    }
    bool is_open = k->role == DC_ROLE_TEMP && !k->alias_of && k->storage == DC_STORE_HEAP && u.read[c] && !u.written[c];
    if (!is_open && k->role != DC_ROLE_PARAM && k->role != DC_ROLE_SAVED) continue;
    k->role = DC_ROLE_INPUT, k->data = NULL, k->data_bytes = 0;
    DC_PUSH(&g->arena, &g->inputs, c);
  }
  uint32_t n = 0;
  for (uint32_t k = 0; k < g->outputs.n; k++) {
    dc_cid c = g->outputs.v[k];
    if (u.written[dc_container_root(g, c)]) g->outputs.v[n++] = c;
    else dc_cont(g, c)->is_output = false;
  }
  g->outputs.n = n;
  free(u.read), free(u.written);
}

/* ---- all edits ---- */

dc_graph *dc_edit_make(dc_ops *ops, const dc_graph *g, uint32_t k) {
  edit e = {ops, dc_graph_clone(g), k, false};
  drop_output(&e);
  for (uint32_t s = 0; s < e.g->states.n && !e.made; s++) drop_nodes(&e, &e.g->states.v[s].scope, 0);
  if (!e.made) move_output(&e);
  if (!e.made) fix_symbols(&e);
  if (!e.made) forget_data(&e);
  if (!e.made) halve_extents(&e);
  for (uint32_t s = 0; s < e.g->states.n && !e.made; s++) simplify_values(&e, &e.g->states.v[s].scope);
  if (e.made) return dc_edit_repair(e.g), e.g;
  dc_graph_destroy(e.g);
  return NULL;
}
