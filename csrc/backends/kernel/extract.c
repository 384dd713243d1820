/* Copies one node into a small graph of its own.
 *
 * Kernels grow expressions, and what is printed for a target must depend on the kernel alone, so that equal
 * kernels of different graphs share a cache entry: in the copy, containers are numbered by
 * first use and parameters by nesting.  Symbols keep their numbers, which kernels index by. */
#include "backends/kernel/extract.h"

#include <assert.h>
#include <string.h>

#include "backends/backend.h"

typedef struct {
  const dc_graph *from;
  dc_graph *to;
  DC_VEC(dc_cid) containers; /* of the source, by new id */
  DC_VEC(dc_param) params_from;
  DC_VEC(dc_ex) params_to;
} copier;

static dc_ex import(copier *c, dc_ex e);

static dc_cid new_container(void *context, dc_cid old) {
  copier *c = context;
  for (dc_cid k = 1; k < c->containers.n; k++)
    if (c->containers.v[k] == old) return k;
  dc_container container = *dc_cont(c->from, old);
  dc_ex *shape = DC_NEW_ARRAY(&c->to->arena, dc_ex, container.rank);
  dc_ex *strides = container.strides ? DC_NEW_ARRAY(&c->to->arena, dc_ex, container.rank) : NULL;
  for (uint32_t d = 0; d < container.rank; d++) {
    shape[d] = import(c, container.shape[d]);
    if (strides) strides[d] = import(c, container.strides[d]);
  }
  dc_cid fresh = dc_container_add(c->to, dc_cont_name(c->from, old), (dc_dtype)container.dtype, container.rank, shape, DC_ROLE_TEMP);
  dc_cont(c->to, fresh)->strides = strides;
  dc_cont(c->to, fresh)->storage = container.storage;
  DC_PUSH(&c->to->arena, &c->containers, old);
  assert(fresh == c->containers.n - 1);
  return fresh;
}

static dc_ex new_leaf(void *context, const dc_pool *from, dc_ex leaf) {
  copier *c = context;
  const dc_exnode *node = dc_ex_node(from, leaf);
  if (node->op == DC_EX_SYM) return dc_ex_sym(&c->to->pool, node->ref);
  for (uint32_t k = c->params_from.n; k-- > 0;)
    if (c->params_from.v[k] == node->ref) return c->params_to.v[k];
  assert(!"a parameter outside its map");
  return 0;
}

static dc_ex import(copier *c, dc_ex e) {
  dc_importer importer = {new_leaf, new_container, c};
  return e ? dc_ex_import(&c->to->pool, &c->from->pool, e, &importer) : 0;
}

static dc_nid copy_tasklet(copier *c, dc_tasklet t) {
  dc_ex value = import(c, t.value), guard = import(c, t.guard);
  dc_ex *index = DC_NEW_ARRAY(&c->to->arena, dc_ex, t.rank);
  for (uint32_t d = 0; d < t.rank; d++) index[d] = import(c, t.index[d]);
  return dc_node_tasklet(c->to, new_container(c, t.out), (dc_wcr)t.wcr, index, t.rank, guard, value);
}

/* A name for a parameter that no loop around it and no symbol has. */
static const char *fresh_name(copier *c, const char *base) {
  const char *fresh = base;
  for (uint32_t n = 2;; n++) {
    bool taken = dc_symbol_find(&c->to->pool, fresh) != 0;
    for (uint32_t k = 0; k < c->params_to.n && !taken; k++) {
      dc_param p = dc_ex_node(&c->to->pool, c->params_to.v[k])->ref;
      taken = strcmp(dc_name_text(&c->to->names, c->to->pool.params.v[p].name), fresh) == 0;
    }
    if (!taken) return fresh;
    fresh = dc_arena_printf(&c->to->arena, "%s_%u", base, n);
  }
}

static dc_status copy_node(copier *c, dc_nid id, dc_nid *out) {
  dc_node node = *dc_node_at(c->from, id);
  if (node.kind == DC_NODE_LIBRARY) return dc_error(DC_ERR_UNSUPPORTED, "a kernel holds a library node");
  if (node.kind == DC_NODE_TASKLET) return *out = copy_tasklet(c, node.tasklet), DC_OK;
  uint32_t outer = c->params_from.n, n_params = node.map.n_params ? node.map.n_params : 1;
  dc_param *params = DC_NEW_ARRAY(&c->to->arena, dc_param, n_params);
  if (!node.map.n_params)
    params[0] = dc_param_new(&c->to->pool, fresh_name(c, "once"), dc_ex_int(&c->to->pool, 0), dc_ex_int(&c->to->pool, 1), 0);
  for (uint32_t k = 0; k < node.map.n_params; k++) {
    dc_parameter p = c->from->pool.params.v[node.map.params[k]];
    params[k] = dc_param_new(&c->to->pool, fresh_name(c, dc_name_text(&c->from->names, p.name)), import(c, p.begin), import(c, p.end),
                             import(c, p.step));
    DC_PUSH(&c->to->arena, &c->params_from, node.map.params[k]);
    DC_PUSH(&c->to->arena, &c->params_to, dc_ex_par(&c->to->pool, params[k]));
  }
  *out = dc_node_map(c->to, (dc_schedule)node.map.schedule, params, n_params); /* a map without parameters runs once */
  for (uint32_t k = 0; k < node.map.body.n; k++) {
    dc_nid child;
    DC_TRY(copy_node(c, node.map.body.v[k], &child));
    dc_scope_push(c->to, &dc_node_at(c->to, *out)->map.body, child);
  }
  c->params_from.n = c->params_to.n = outer;
  return DC_OK;
}

/* Only whether two containers share memory matters: the later one becomes a view of the first. */
static void link_views(copier *c) {
  for (dc_cid k = 2; k < c->containers.n; k++)
    for (dc_cid j = 1; j < k && !dc_cont(c->to, k)->alias_of; j++)
      if (dc_container_root(c->from, c->containers.v[j]) == dc_container_root(c->from, c->containers.v[k])) dc_cont(c->to, k)->alias_of = j;
}

dc_status dc_kernel_extract(const dc_graph *graph, dc_nid node, dc_graph **out, dc_nid *copy, uint32_t *n_buffers) {
  *out = dc_graph_create("kernel");
  (*out)->machine = graph->machine;
  copier c = {.from = graph, .to = *out};
  DC_PUSH(&c.to->arena, &c.containers, 0);
  for (dc_sym s = 1; s < graph->pool.symbols.n; s++)
    dc_symbol_get(&c.to->pool, dc_name_text(&graph->names, graph->pool.symbols.v[s].name), graph->pool.symbols.v[s].min);
  const dc_cid *buffers = dc_kernel_buffers(graph, node, &c.to->arena, n_buffers);
  for (uint32_t k = 0; k < *n_buffers; k++) new_container(&c, buffers[k]);
  DC_TRY(copy_node(&c, node, copy));
  link_views(&c);
  return DC_OK;
}
