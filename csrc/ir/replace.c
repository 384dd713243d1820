/* Copying the contents of one graph into another, in the place of a library node.
 *
 * Containers come first, so that an error leaves the graph's nodes alone; then nodes, with parameters of their own. */
#include "ir/replace.h"

#include <string.h>

typedef struct {
  dc_graph *to;
  const dc_graph *from;
  dc_cid *container; /* by container of `from` */
  dc_ex *param;      /* by parameter of `from`: what it is in `to`, once its map is copied */
  dc_name op;        /* the origin of nodes that have none */
} copier;

static dc_ex new_leaf(void *context, const dc_pool *from, dc_ex leaf) {
  copier *c = context;
  const dc_exnode *node = dc_ex_node(from, leaf);
  if (node->op == DC_EX_PARAM) return c->param[node->ref];
  dc_symbol s = from->symbols.v[node->ref];
  return dc_ex_sym(&c->to->pool, dc_symbol_get(&c->to->pool, dc_name_text(from->names, s.name), s.min));
}

static uint32_t new_container(void *context, uint32_t container) { return ((copier *)context)->container[container]; }

static dc_ex import(copier *c, dc_ex e) {
  dc_importer importer = {new_leaf, new_container, c};
  return e ? dc_ex_import(&c->to->pool, &c->from->pool, e, &importer) : 0;
}

static dc_ex *import_all(copier *c, const dc_ex *list, uint32_t n) {
  if (!list) return NULL;
  dc_ex *out = DC_NEW_ARRAY(&c->to->arena, dc_ex, n);
  for (uint32_t k = 0; k < n; k++) out[k] = import(c, list[k]);
  return out;
}

static dc_name renamed(copier *c, dc_name name) { return name ? dc_name_intern(&c->to->names, dc_name_text(&c->from->names, name)) : 0; }

/* ---- containers ---- */

/* What has no type yet takes that of what stands for it. */
static dc_status check_fit(copier *c, dc_cid inner, dc_cid outer) {
  const dc_container *a = dc_cont(c->from, inner);
  dc_container *b = dc_cont(c->to, outer);
  const char *name = dc_cont_name(c->from, inner), *other = dc_cont_name(c->to, outer);
  if (!b->shape && a->dtype && a->shape && (!b->dtype || b->dtype == a->dtype)) {
    b->dtype = a->dtype, b->rank = a->rank, b->shape = import_all(c, a->shape, a->rank);
    return DC_OK;
  }
  if (a->dtype && a->dtype != b->dtype)
    return dc_error(DC_ERR_DTYPE, "array '%s' has type %s, but stands for '%s' of type %s", name, dc_dtype_name((dc_dtype)a->dtype), other,
                    dc_dtype_name((dc_dtype)b->dtype));
  if (!a->shape) return DC_OK; /* the operators inside will say */
  if (a->rank != b->rank) return dc_error(DC_ERR_SHAPE, "array '%s' has %u dimensions, but stands for '%s' with %u", name, a->rank, other, b->rank);
  for (uint32_t d = 0; d < a->rank; d++) {
    int64_t have, want;
    dc_ex extent = import(c, a->shape[d]);
    if (dc_ex_is_int(&c->to->pool, extent, &have) && dc_ex_is_int(&c->to->pool, dc_cont(c->to, outer)->shape[d], &want) && have != want)
      return dc_error(DC_ERR_SHAPE, "array '%s': dimension %u is %lld, but stands for '%s' with %lld", name, d, (long long)have, other, (long long)want);
  }
  return DC_OK;
}

static dc_status copy_container(copier *c, dc_cid inner) {
  dc_container old = *dc_cont(c->from, inner);
  const char *name = dc_cont_name(c->from, inner);
  if (old.is_host || old.dtype == DC_STRING) return dc_error(DC_ERR_UNSUPPORTED, "array '%s' is held by the host only", name);
  if (old.role == DC_ROLE_INPUT || (old.role == DC_ROLE_PARAM && !old.data)) return dc_error(DC_ERR_MODEL, "array '%s' stands for nothing outside", name);
  dc_role role = old.data ? DC_ROLE_CONST : DC_ROLE_TEMP;
  dc_cid made = c->container[inner] = dc_container_add(c->to, name, (dc_dtype)old.dtype, old.rank, import_all(c, old.shape, old.rank), role);
  dc_ex *strides = import_all(c, old.strides, old.rank);
  dc_container *fresh = dc_cont(c->to, made);
  if (!old.shape) fresh->shape = NULL;
  fresh->storage = old.storage, fresh->strides = strides;
  if (!old.data) return DC_OK;
  fresh->data_bytes = old.data_bytes;
  fresh->data = dc_arena_copy(&c->to->arena, old.data, old.data_bytes);
  return DC_OK;
}

static dc_status copy_containers(copier *c, const dc_cid *map) {
  for (dc_cid k = 1; k < c->from->containers.n; k++) {
    c->container[k] = map[k];
    if (map[k]) DC_TRY(check_fit(c, k, map[k]));
    else DC_TRY(copy_container(c, k));
  }
  for (dc_cid k = 1; k < c->from->containers.n; k++) { /* views, once what they view is there */
    const dc_container *old = dc_cont(c->from, k);
    if (map[k] || !old->alias_of) continue;
    dc_ex offset = import(c, old->alias_offset);
    dc_container *fresh = dc_cont(c->to, c->container[k]);
    fresh->alias_of = c->container[old->alias_of], fresh->alias_offset = offset;
  }
  return DC_OK;
}

/* ---- nodes ---- */

static dc_status copy_attr(copier *c, const dc_attr *old, dc_attr *out) {
  dc_arena *arena = &c->to->arena;
  *out = *old;
  out->name = renamed(c, old->name);
  switch ((dc_attr_kind)old->kind) {
    case DC_ATTR_STRING: *out = dc_attr_string(c->to, dc_name_text(&c->from->names, old->name), old->s, old->n); break;
    case DC_ATTR_TENSOR: out->i = c->container[old->i]; break;
    case DC_ATTR_GRAPH: return dc_error(DC_ERR_UNSUPPORTED, "attribute '%s' is a graph", dc_name_text(&c->from->names, old->name));
    case DC_ATTR_INTS: out->ints = dc_arena_copy(arena, old->ints, old->n * sizeof *old->ints); break;
    case DC_ATTR_FLOATS: out->floats = dc_arena_copy(arena, old->floats, old->n * sizeof *old->floats); break;
    case DC_ATTR_STRINGS:
      out->strings = DC_NEW_ARRAY(arena, const char *, old->n);
      for (uint32_t k = 0; k < old->n; k++) out->strings[k] = dc_arena_strdup(arena, old->strings[k]);
      break;
    default: break;
  }
  return DC_OK;
}

static dc_cid *copy_arguments(copier *c, const dc_cid *old, uint32_t n) {
  dc_cid *out = DC_NEW_ARRAY(&c->to->arena, dc_cid, n);
  for (uint32_t k = 0; k < n; k++) out[k] = old[k] ? c->container[old[k]] : 0;
  return out;
}

static dc_status copy_library(copier *c, const dc_library *old, dc_nid *out) {
  dc_attr *attr = DC_NEW_ARRAY(&c->to->arena, dc_attr, old->n_attr);
  for (uint32_t k = 0; k < old->n_attr; k++) DC_TRY(copy_attr(c, &old->attr[k], &attr[k]));
  *out = dc_node_library(c->to, dc_name_text(&c->from->names, old->op), dc_name_text(&c->from->names, old->domain), old->since,
                         copy_arguments(c, old->in, old->n_in), old->n_in, copy_arguments(c, old->out, old->n_out), old->n_out, attr, old->n_attr);
  dc_library *made = &dc_node_at(c->to, *out)->lib;
  made->wrt = old->wrt, made->n_fwd_in = old->n_fwd_in, made->n_fwd_out = old->n_fwd_out;
  return DC_OK;
}

static dc_status copy_node(copier *c, dc_nid id, dc_nid *out);

static dc_status copy_map(copier *c, const dc_map *old, dc_nid *out) {
  dc_param *params = DC_NEW_ARRAY(&c->to->arena, dc_param, old->n_params);
  for (uint32_t k = 0; k < old->n_params; k++) {
    dc_parameter p = c->from->pool.params.v[old->params[k]];
    dc_ex begin = import(c, p.begin), end = import(c, p.end), step = import(c, p.step);
    params[k] = dc_param_new(&c->to->pool, dc_name_text(&c->from->names, p.name), begin, end, step);
    c->param[old->params[k]] = dc_ex_par(&c->to->pool, params[k]);
  }
  *out = dc_node_map(c->to, (dc_schedule)old->schedule, params, old->n_params);
  for (uint32_t k = 0; k < old->body.n; k++) {
    dc_nid child;
    DC_TRY(copy_node(c, old->body.v[k], &child));
    dc_scope_push(c->to, &dc_node_at(c->to, *out)->map.body, child);
  }
  return DC_OK;
}

static dc_nid copy_tasklet(copier *c, const dc_tasklet *t) {
  dc_ex *index = import_all(c, t->index, t->rank), guard = import(c, t->guard), value = import(c, t->value);
  return dc_node_tasklet(c->to, c->container[t->out], (dc_wcr)t->wcr, index, t->rank, guard, value);
}

/* Maps are not nested deeper than DC_MAX_LOOPS, nor is this recursion. */
static dc_status copy_node(copier *c, dc_nid id, dc_nid *out) {
  dc_node old = *dc_node_at(c->from, id);
  if (old.kind == DC_NODE_TASKLET) *out = copy_tasklet(c, &old.tasklet);
  else DC_TRY(old.kind == DC_NODE_MAP ? copy_map(c, &old.map, out) : copy_library(c, &old.lib, out));
  dc_name name = renamed(c, old.name), tag = old.tag_op ? renamed(c, old.tag_op) : c->op;
  dc_node *made = dc_node_at(c->to, *out);
  made->name = name;
  if (old.kind != DC_NODE_LIBRARY) made->tag_op = tag, made->tag_wrt = old.tag_wrt;
  return DC_OK;
}

static dc_scope *scope_of(dc_graph *graph, dc_nid node, uint32_t *at) {
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope *scope = &graph->states.v[s].scope;
    for (*at = 0; *at < scope->n; (*at)++)
      if (scope->v[*at] == node) return scope;
  }
  return NULL;
}

dc_status dc_node_replace(dc_graph *graph, dc_nid node, const dc_graph *inner, const dc_cid *map) {
  uint32_t at;
  dc_scope *scope = scope_of(graph, node, &at), after = {0};
  if (!scope) return dc_error(DC_ERR_VALUE, "node %u is in no state", node);
  copier c = {graph, inner, DC_NEW_ARRAY(&graph->arena, dc_cid, inner->containers.n), DC_NEW_ARRAY(&graph->arena, dc_ex, inner->pool.params.n),
              dc_node_at(graph, node)->lib.op};
  DC_TRY(copy_containers(&c, map));
  for (uint32_t k = 0; k < at; k++) dc_scope_push(graph, &after, scope->v[k]);
  for (uint32_t s = 0; s < inner->states.n; s++)
    for (uint32_t k = 0; k < inner->states.v[s].scope.n; k++) {
      dc_nid copy;
      DC_TRY(copy_node(&c, inner->states.v[s].scope.v[k], &copy));
      dc_scope_push(graph, &after, copy);
    }
  for (uint32_t k = at + 1; k < scope->n; k++) dc_scope_push(graph, &after, scope->v[k]);
  *scope = after;
  for (uint32_t k = 0; k < inner->equalities.n; k++)
    dc_graph_take_equal(graph, import(&c, inner->equalities.v[k].a), import(&c, inner->equalities.v[k].b));
  return DC_OK;
}
