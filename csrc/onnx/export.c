/* Graph of library nodes to ModelProto.
 *
 * The message is built in an arena of its own and points into the graph's data where it can.  A subgraph sees the names of
 * the graphs around it, so its own must be others: names that are taken there get a suffix. */
#include <stdlib.h>
#include <string.h>

#include "onnx/wire.h"

enum { IR_VERSION = 10, DEFAULT_OPSET = 21, MAX_NESTED = 64 };

typedef struct {
  const char *domain;
  int version; /* the newest that a node needs */
} needed;

typedef struct level {
  const dc_graph *graph;
  const struct level *around; /* of a subgraph: of the graph that holds it */
  uint32_t depth, n_own;      /* inputs that are its own; the others stand for containers of the graph around */
  char **names;               /* by container, in the file */
} level;

typedef struct {
  const dc_graph *graph; /* that is being written, at this level */
  const level *level;
  dc_arena arena;
  int opset; /* of ai.onnx */
  DC_VEC(needed) domains;
  dc_names taken; /* names of all graphs, and those that are made */
} exporter;

static char *copy_text(exporter *ex, const char *s) { return dc_arena_strdup(&ex->arena, s); }
static char *container_name(exporter *ex, dc_cid c) { return c ? ex->level->names[c] : copy_text(ex, ""); }

#define NEW(ex, Type, init) ({ Type *made_ = DC_NEW(&(ex)->arena, Type); init(made_); made_; })

/* Two or four elements to the byte, as files store the small types; in memory each has a byte. */
static ProtobufCBinaryData packed_data(dc_arena *arena, const dc_container *c) {
  uint64_t per = (uint64_t)dc_onnx_packed((dc_dtype)c->dtype), bits = 8 / per, n = c->data_bytes;
  if (per == 1) return (ProtobufCBinaryData){n, (uint8_t *)c->data};
  uint8_t *bytes = dc_arena_alloc(arena, (n + per - 1) / per);
  for (uint64_t k = 0; k < n; k++) {
    uint8_t element = ((const uint8_t *)c->data)[k] & (uint8_t)((1 << bits) - 1);
    bytes[k / per] |= (uint8_t)(element << (k % per * bits));
  }
  return (ProtobufCBinaryData){(n + per - 1) / per, bytes};
}

Onnx__TensorProto *dc_onnx_tensor_message(dc_arena *arena, const dc_graph *graph, dc_cid cid, const char *name) {
  const dc_container *c = dc_cont(graph, cid);
  Onnx__TensorProto *t = DC_NEW(arena, Onnx__TensorProto);
  onnx__tensor_proto__init(t);
  t->name = dc_arena_strdup(arena, name);
  t->has_data_type = 1, t->data_type = c->dtype;
  t->n_dims = c->rank, t->dims = DC_NEW_ARRAY(arena, int64_t, c->rank);
  dc_container_dims(graph, cid, t->dims);
  t->has_raw_data = 1;
  t->raw_data = packed_data(arena, c);
  return t;
}

static Onnx__TensorProto *tensor_of(exporter *ex, dc_cid cid, const char *name) {
  return dc_onnx_tensor_message(&ex->arena, ex->graph, cid, name);
}

static dc_status value_info(exporter *ex, dc_cid cid, Onnx__ValueInfoProto **out) {
  const dc_container *c = dc_cont(ex->graph, cid);
  Onnx__ValueInfoProto *info = *out = NEW(ex, Onnx__ValueInfoProto, onnx__value_info_proto__init);
  info->name = container_name(ex, cid);
  bool known = c->dtype && !c->is_host;
  if (!known && ex->level->around) return DC_OK; /* the node that holds the subgraph says what it is */
  if (c->is_host)
    return dc_error(DC_ERR_UNSUPPORTED, "'%s' is a sequence, an optional or a map, of which nothing says what it holds; "
                    "ONNXModel.save writes the model as it was read", dc_cont_name(ex->graph, cid));
  if (!known) return dc_error(DC_ERR_MODEL, "'%s' has no type yet: infer first", dc_cont_name(ex->graph, cid));
  info->type = NEW(ex, Onnx__TypeProto, onnx__type_proto__init);
  info->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  Onnx__TypeProto__Tensor *t = info->type->tensor_type = NEW(ex, Onnx__TypeProto__Tensor, onnx__type_proto__tensor__init);
  t->has_elem_type = 1, t->elem_type = c->dtype;
  if (!c->shape) return DC_OK; /* of any rank */
  t->shape = NEW(ex, Onnx__TensorShapeProto, onnx__tensor_shape_proto__init);
  t->shape->n_dim = c->rank;
  t->shape->dim = DC_NEW_ARRAY(&ex->arena, Onnx__TensorShapeProto__Dimension *, c->rank);
  for (uint32_t d = 0; d < c->rank; d++) {
    Onnx__TensorShapeProto__Dimension *dim = t->shape->dim[d] =
        NEW(ex, Onnx__TensorShapeProto__Dimension, onnx__tensor_shape_proto__dimension__init);
    int64_t extent;
    const dc_exnode *e = dc_ex_node(&ex->graph->pool, c->shape[d]);
    if (dc_ex_is_int(&ex->graph->pool, c->shape[d], &extent)) {
      dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE, dim->dim_value = extent;
    } else if (e->op == DC_EX_SYM) {
      dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
      dim->dim_param = copy_text(ex, dc_name_text(&ex->graph->names, ex->graph->pool.symbols.v[e->ref].name));
    } /* a computed extent is left open: shape inference finds it again */
  }
  return DC_OK;
}

static dc_status write_graph(exporter *ex, const dc_graph *of, Onnx__GraphProto **out);

static dc_status attribute(exporter *ex, const dc_attr *a, Onnx__AttributeProto **out) {
  Onnx__AttributeProto *p = *out = NEW(ex, Onnx__AttributeProto, onnx__attribute_proto__init);
  p->name = copy_text(ex, dc_name_text(&ex->graph->names, a->name));
  p->has_type = 1;
  switch ((dc_attr_kind)a->kind) {
    case DC_ATTR_INT: p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, p->has_i = 1, p->i = a->i; return DC_OK;
    case DC_ATTR_FLOAT: p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, p->has_f = 1, p->f = (float)a->f; return DC_OK;
    case DC_ATTR_STRING:
      p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, p->has_s = 1;
      p->s = (ProtobufCBinaryData){a->n, (uint8_t *)a->s};
      return DC_OK;
    case DC_ATTR_TENSOR: p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, p->t = tensor_of(ex, (dc_cid)a->i, ""); return DC_OK;
    case DC_ATTR_INTS: p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, p->n_ints = a->n, p->ints = a->ints; return DC_OK;
    case DC_ATTR_FLOATS:
      p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS, p->n_floats = a->n;
      p->floats = DC_NEW_ARRAY(&ex->arena, float, a->n);
      for (uint32_t k = 0; k < a->n; k++) p->floats[k] = (float)a->floats[k];
      return DC_OK;
    case DC_ATTR_STRINGS:
      p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS, p->n_strings = a->n;
      p->strings = DC_NEW_ARRAY(&ex->arena, ProtobufCBinaryData, a->n);
      for (uint32_t k = 0; k < a->n; k++) p->strings[k] = (ProtobufCBinaryData){strlen(a->strings[k]), (uint8_t *)a->strings[k]};
      return DC_OK;
    case DC_ATTR_GRAPH:
      p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
      return dc_error_at(write_graph(ex, ex->graph->subgraphs.v[a->i], &p->g), "attribute '%s'", p->name);
  }
  return dc_error(DC_ERR_UNSUPPORTED, "attribute '%s' cannot be exported", p->name);
}

/* The first result names a node in messages better than its name, which may be empty. */
static const char *first_output(const exporter *ex, const dc_library *lib) {
  for (uint32_t k = 0; k < lib->n_out; k++)
    if (lib->out[k]) return dc_cont_name(ex->graph, lib->out[k]);
  return "";
}

/* A model has one version for each domain; a node made for a newer one would change its meaning. */
static dc_status import_domain(exporter *ex, const dc_library *lib) {
  const char *domain = dc_name_text(&ex->graph->names, lib->domain);
  uint32_t k = 0;
  while (k < ex->domains.n && strcmp(ex->domains.v[k].domain, domain)) k++;
  if (k == ex->domains.n && lib->domain) DC_PUSH(&ex->arena, &ex->domains, ((needed){copy_text(ex, domain), lib->since}));
  if (lib->domain && lib->since > ex->domains.v[k].version) ex->domains.v[k].version = lib->since;
  if (lib->domain || lib->since <= ex->opset) return DC_OK;
  return dc_error(DC_ERR_UNSUPPORTED, "node %s (output '%s') is of version %d, but the graph of version %d",
                  dc_name_text(&ex->graph->names, lib->op), first_output(ex, lib), lib->since, ex->opset);
}

static dc_status node(exporter *ex, dc_nid id, Onnx__NodeProto **out) {
  const dc_node *n = dc_node_at(ex->graph, id);
  if (n->kind != DC_NODE_LIBRARY || n->lib.wrt)
    return dc_error(DC_ERR_UNSUPPORTED, "only graphs of operators can be exported, before they are expanded");
  const char *op = dc_name_text(&ex->graph->names, n->lib.op), *domain = dc_name_text(&ex->graph->names, n->lib.domain);
  if (strcmp(domain, "dcml") == 0)
    return dc_error(DC_ERR_UNSUPPORTED, "node %s (output '%s'): operator dcml.%s is internal and has no ONNX form", op,
                    first_output(ex, &n->lib), op);
  DC_TRY(import_domain(ex, &n->lib));
  Onnx__NodeProto *p = *out = NEW(ex, Onnx__NodeProto, onnx__node_proto__init);
  p->op_type = copy_text(ex, op), p->domain = copy_text(ex, domain), p->name = copy_text(ex, dc_name_text(&ex->graph->names, n->name));
  p->n_input = n->lib.n_in, p->input = DC_NEW_ARRAY(&ex->arena, char *, n->lib.n_in);
  for (uint32_t k = 0; k < n->lib.n_in; k++) p->input[k] = container_name(ex, n->lib.in[k]);
  p->n_output = n->lib.n_out, p->output = DC_NEW_ARRAY(&ex->arena, char *, n->lib.n_out);
  for (uint32_t k = 0; k < n->lib.n_out; k++)
    if (n->lib.out[k] && dc_cont(ex->graph, n->lib.out[k])->role == DC_ROLE_INPUT)
      return dc_error(DC_ERR_UNSUPPORTED, "node %s writes input '%s' in place, which has no ONNX form", op,
                      dc_cont_name(ex->graph, n->lib.out[k]));
  for (uint32_t k = 0; k < n->lib.n_out; k++) p->output[k] = container_name(ex, n->lib.out[k]);
  p->attribute = DC_NEW_ARRAY(&ex->arena, Onnx__AttributeProto *, n->lib.n_attr);
  for (uint32_t k = 0; k < n->lib.n_attr; k++)
    if (!dc_attr_is_wish(ex->graph, &n->lib.attr[k])) DC_TRY(attribute(ex, &n->lib.attr[k], &p->attribute[p->n_attribute++]));
  return DC_OK;
}

/* ---- graphs ---- */

static void take_names(exporter *ex, const dc_graph *graph, uint32_t depth) {
  for (dc_cid c = 1; c < graph->containers.n; c++) (void)dc_name_intern(&ex->taken, dc_cont_name(graph, c));
  for (uint32_t k = 0; k < graph->subgraphs.n && depth < MAX_NESTED; k++) take_names(ex, graph->subgraphs.v[k], depth + 1);
}

static char *new_name(exporter *ex, const char *base) {
  char *name;
  uint32_t k = 2;
  do name = dc_arena_printf(&ex->arena, "%s_%u", base, k++);
  while (dc_name_find(&ex->taken, name));
  (void)dc_name_intern(&ex->taken, name);
  return name;
}

static void name_containers(exporter *ex, level *l) {
  const dc_graph *g = l->graph;
  l->names = DC_NEW_ARRAY(&ex->arena, char *, g->containers.n);
  for (uint32_t k = l->n_own; k < g->inputs.n; k++) l->names[g->inputs.v[k]] = l->around->names[g->captures.v[k - l->n_own]];
  for (dc_cid c = 1; c < g->containers.n; c++) {
    const char *own = dc_cont_name(g, c);
    bool taken = false;
    for (const level *at = l->around; at && !taken; at = at->around) taken = dc_container_find(at->graph, own) != 0;
    if (!l->names[c]) l->names[c] = taken ? new_name(ex, own) : copy_text(ex, own);
  }
}

static void note_attributes(const dc_graph *from, bool *only) {
  for (dc_nid k = 1; k < from->nodes.n; k++)
    for (uint32_t j = 0; from->nodes.v[k].kind == DC_NODE_LIBRARY && j < from->nodes.v[k].lib.n_attr; j++)
      if (from->nodes.v[k].lib.attr[j].kind == DC_ATTR_TENSOR) only[from->nodes.v[k].lib.attr[j].i] = true;
}

/* What a subgraph hands on as it is, or twice, is no result of a node of its own: one is put before it. */
static char *identity(exporter *ex, Onnx__GraphProto *g, dc_cid c) {
  Onnx__NodeProto *p = g->node[g->n_node++] = NEW(ex, Onnx__NodeProto, onnx__node_proto__init);
  p->op_type = copy_text(ex, "Identity"), p->name = copy_text(ex, "");
  p->n_input = p->n_output = 1, p->input = DC_NEW_ARRAY(&ex->arena, char *, 1), p->output = DC_NEW_ARRAY(&ex->arena, char *, 1);
  p->input[0] = container_name(ex, c);
  return p->output[0] = new_name(ex, p->input[0]);
}

static dc_status outputs(exporter *ex, Onnx__GraphProto *g) {
  const dc_graph *from = ex->graph;
  bool *seen = DC_NEW_ARRAY(&ex->arena, bool, from->containers.n);
  g->output = DC_NEW_ARRAY(&ex->arena, Onnx__ValueInfoProto *, from->outputs.n);
  for (uint32_t k = 0; k < from->outputs.n; k++) {
    dc_cid c = from->outputs.v[k];
    DC_TRY(value_info(ex, c, &g->output[g->n_output]));
    if (ex->level->around && (seen[c] || dc_cont(from, c)->role != DC_ROLE_TEMP)) g->output[g->n_output]->name = identity(ex, g, c);
    seen[c] = true, g->n_output++;
  }
  return DC_OK;
}

static dc_status graph(exporter *ex, Onnx__GraphProto *g) {
  const dc_graph *from = ex->graph;
  uint32_t n_nodes = 0, most = from->containers.n;
  bool *attribute_only = DC_NEW_ARRAY(&ex->arena, bool, most);
  note_attributes(from, attribute_only);
  for (uint32_t s = 0; s < from->states.n; s++) n_nodes += from->states.v[s].scope.n;
  g->name = copy_text(ex, *dc_name_text(&from->names, from->name) ? dc_name_text(&from->names, from->name) : "graph");
  g->node = DC_NEW_ARRAY(&ex->arena, Onnx__NodeProto *, n_nodes + from->outputs.n);
  for (uint32_t s = 0; s < from->states.n; s++)
    for (uint32_t k = 0; k < from->states.v[s].scope.n; k++) DC_TRY(node(ex, from->states.v[s].scope.v[k], &g->node[g->n_node++]));
  g->initializer = DC_NEW_ARRAY(&ex->arena, Onnx__TensorProto *, most);
  g->input = DC_NEW_ARRAY(&ex->arena, Onnx__ValueInfoProto *, most);
  for (uint32_t k = 0; k < ex->level->n_own; k++) DC_TRY(value_info(ex, from->inputs.v[k], &g->input[g->n_input++]));
  for (dc_cid c = 1; c < most; c++) {
    const dc_container *k = dc_cont(from, c);
    if ((k->role != DC_ROLE_CONST && k->role != DC_ROLE_PARAM) || attribute_only[c]) continue;
    if (k->data) g->initializer[g->n_initializer++] = tensor_of(ex, c, container_name(ex, c));
    else DC_TRY(value_info(ex, c, &g->input[g->n_input++])); /* a weight without data is an input */
  }
  return outputs(ex, g);
}

/* One graph at its level, and back to where the exporter was. */
static dc_status write_graph(exporter *ex, const dc_graph *of, Onnx__GraphProto **out) {
  const level *around = ex->level;
  uint32_t captures = around ? of->captures.n : 0;
  level l = {.graph = of, .around = around, .depth = around ? around->depth + 1 : 0, .n_own = of->inputs.n - captures};
  if (l.depth > MAX_NESTED) return dc_error(DC_ERR_UNSUPPORTED, "graphs nested more than %d deep", MAX_NESTED);
  name_containers(ex, &l);
  *out = NEW(ex, Onnx__GraphProto, onnx__graph_proto__init);
  ex->level = &l, ex->graph = of;
  dc_status status = graph(ex, *out);
  ex->level = around, ex->graph = around ? around->graph : of;
  return status;
}

static Onnx__OperatorSetIdProto *opset_import(exporter *ex, const char *domain, int version) {
  Onnx__OperatorSetIdProto *p = NEW(ex, Onnx__OperatorSetIdProto, onnx__operator_set_id_proto__init);
  p->domain = copy_text(ex, domain), p->has_version = 1, p->version = version;
  return p;
}

static dc_status pack(exporter *ex, uint8_t **bytes, uint64_t *n_bytes) {
  Onnx__ModelProto *model = NEW(ex, Onnx__ModelProto, onnx__model_proto__init);
  model->has_ir_version = 1, model->ir_version = IR_VERSION;
  model->producer_name = copy_text(ex, "dcml");
  ex->taken.arena = &ex->arena;
  take_names(ex, ex->graph, 0);
  DC_TRY(write_graph(ex, ex->graph, &model->graph));
  model->opset_import = DC_NEW_ARRAY(&ex->arena, Onnx__OperatorSetIdProto *, ex->domains.n + 1);
  model->opset_import[model->n_opset_import++] = opset_import(ex, "", ex->opset);
  for (uint32_t k = 0; k < ex->domains.n; k++)
    model->opset_import[model->n_opset_import++] = opset_import(ex, ex->domains.v[k].domain, ex->domains.v[k].version);
  *n_bytes = onnx__model_proto__get_packed_size(model);
  if (*n_bytes > INT32_MAX)
    return dc_error(DC_ERR_UNSUPPORTED, "the model has %llu bytes, but a file holds at most 2 GiB", (unsigned long long)*n_bytes);
  *bytes = malloc(*n_bytes + 1);
  if (!*bytes) return dc_error(DC_ERR_MEMORY, "out of memory");
  onnx__model_proto__pack(model, *bytes);
  return DC_OK;
}

dc_status dc_onnx_export(const dc_graph *graph, uint8_t **bytes, uint64_t *n_bytes) {
  exporter ex = {.graph = graph, .opset = graph->opset > 0 ? graph->opset : DEFAULT_OPSET};
  dc_status status = pack(&ex, bytes, n_bytes);
  dc_arena_free(&ex.arena);
  return dc_error_at(status, "export of '%s'", dc_name_text(&graph->names, graph->name));
}
