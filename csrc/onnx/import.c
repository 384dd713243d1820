/* ModelProto to Graph: one container for each value, one library node for each node.
 *
 * Local functions are inlined: a call opens a scope of names in which the function's inputs are
 * the caller's values. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/wire.h"

enum { MAX_CALL_DEPTH = 32, MAX_NODES = 1 << 22 };

typedef struct {
  const char *name; /* NULL: empty slot */
  dc_cid cid;
} entry;

typedef struct {
  entry *slots;
  uint32_t n, capacity;
} table;

typedef struct scope {
  const struct scope *outer; /* for messages and depth only: names do not leak */
  table names;
  const Onnx__FunctionProto *function; /* NULL for the main graph */
  const Onnx__NodeProto *call;
  Onnx__OperatorSetIdProto *const *opsets;
  size_t n_opsets;
  int depth;
} scope;

typedef struct {
  dc_graph *graph;
  const Onnx__ModelProto *model;
  const char *base_dir;
  bool as_params;
  uint32_t n_nodes;
  uint32_t fresh_symbols;
} importer;

/* ---- names ---- */

static entry *slot_of(const table *t, const char *name) {
  uint32_t k = (uint32_t)dc_hash_bytes(0, name, strlen(name)) & (t->capacity - 1);
  while (t->slots[k].name && strcmp(t->slots[k].name, name)) k = (k + 1) & (t->capacity - 1);
  return &t->slots[k];
}

static void put_name(table *t, const char *name, dc_cid cid) {
  if (t->n * 2 >= t->capacity) {
    table bigger = {.capacity = t->capacity ? t->capacity * 2 : 64};
    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots) abort();
    for (uint32_t k = 0; k < t->capacity; k++)
      if (t->slots[k].name) *slot_of(&bigger, t->slots[k].name) = t->slots[k], bigger.n++;
    free(t->slots);
    *t = bigger;
  }
  entry *e = slot_of(t, name);
  t->n += e->name == NULL;
  *e = (entry){name, cid};
}

static dc_cid get_name(const table *t, const char *name) { return t->capacity ? slot_of(t, name)->cid : 0; }

static const char *text_of(const char *s) { return s ? s : ""; }

/* ---- shapes ---- */

static dc_ex symbol_of(importer *im, const char *name) {
  char buffer[128];
  size_t n = 0;
  for (const char *c = name; *c && n + 1 < sizeof buffer; c++) buffer[n++] = isalnum((unsigned char)*c) ? *c : '_';
  buffer[n] = 0;
  if (!n || isdigit((unsigned char)buffer[0])) snprintf(buffer, sizeof buffer, "dim_%u", im->fresh_symbols++);
  return dc_ex_sym(&im->graph->pool, dc_symbol_get(&im->graph->pool, buffer, 0));
}

static dc_status set_type(importer *im, dc_cid cid, const Onnx__TypeProto *type, const char *name) {
  if (!type) return DC_OK;
  if (type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
    return type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET ? DC_OK : dc_error(DC_ERR_UNSUPPORTED, "value '%.200s' is not a tensor, which is not supported", name);
  int32_t dtype = type->tensor_type->elem_type;
  if (dtype < 0 || dtype >= DC_DTYPE_COUNT) return dc_error(DC_ERR_DTYPE, "value '%.200s' has an unknown data type", name);
  const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
  if (shape && shape->n_dim > 64) return dc_error(DC_ERR_SHAPE, "value '%.200s' has more than 64 dimensions", name);
  dc_ex dims[64];
  for (size_t d = 0; shape && d < shape->n_dim; d++) {
    const Onnx__TensorShapeProto__Dimension *dim = shape->dim[d];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
      if (dim->dim_value < 0) return dc_error(DC_ERR_SHAPE, "value '%.200s' has a negative dimension", name);
      dims[d] = dc_ex_int(&im->graph->pool, dim->dim_value);
    } else {
      bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
      dims[d] = symbol_of(im, named ? text_of(dim->dim_param) : "");
    }
  }
  dc_container *c = dc_cont(im->graph, cid);
  c->dtype = (uint8_t)dtype;
  if (!shape) return DC_OK;
  c->rank = (uint32_t)shape->n_dim;
  c->shape = dc_arena_copy(&im->graph->arena, dims, shape->n_dim * sizeof *dims);
  return DC_OK;
}

static dc_cid add_value(importer *im, const char *name, dc_role role) {
  dc_cid c = dc_container_add(im->graph, name, DC_NOTYPE, 0, NULL, role);
  dc_cont(im->graph, c)->shape = NULL;
  return c;
}

/* ---- tensors ---- */

static dc_status add_tensor(importer *im, const Onnx__TensorProto *t, const char *name, dc_cid *out) {
  dc_onnx_data data;
  DC_TRY(dc_onnx_decode(im->graph, t, im->base_dir, &data));
  dc_ex *shape = DC_NEW_ARRAY(&im->graph->arena, dc_ex, data.rank);
  for (uint32_t d = 0; d < data.rank; d++) shape[d] = dc_ex_int(&im->graph->pool, data.dims[d]);
  *out = dc_container_add(im->graph, name, data.dtype, data.rank, shape, DC_ROLE_CONST);
  dc_cont(im->graph, *out)->data = data.data;
  dc_cont(im->graph, *out)->data_bytes = data.n_bytes;
  return DC_OK;
}

/* ---- attributes ---- */

static dc_status add_attr(importer *im, const Onnx__AttributeProto *a, dc_attr *out) {
  dc_graph *g = im->graph;
  const char *name = text_of(a->name);
  dc_cid cid;
  switch (a->type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT: return *out = dc_attr_int(g, name, a->i), DC_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT: return *out = dc_attr_float(g, name, a->f), DC_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING: return *out = dc_attr_string(g, name, (const char *)a->s.data, a->s.len), DC_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS: return *out = dc_attr_ints(g, name, a->ints, (uint32_t)a->n_ints), DC_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS: {
      double *values = DC_NEW_ARRAY(&g->arena, double, a->n_floats);
      for (size_t k = 0; k < a->n_floats; k++) values[k] = a->floats[k];
      return *out = dc_attr_floats(g, name, values, (uint32_t)a->n_floats), DC_OK;
    }
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
      *out = (dc_attr){.name = dc_name_intern(&g->names, name), .kind = DC_ATTR_STRINGS, .n = (uint32_t)a->n_strings};
      out->strings = DC_NEW_ARRAY(&g->arena, const char *, a->n_strings);
      for (size_t k = 0; k < a->n_strings; k++) {
        char *copy = dc_arena_alloc(&g->arena, a->strings[k].len + 1);
        if (a->strings[k].len) memcpy(copy, a->strings[k].data, a->strings[k].len);
        out->strings[k] = copy;
      }
      return DC_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
      if (!a->t) return dc_error(DC_ERR_MODEL, "attribute '%.200s' has no tensor", name);
      DC_TRY(add_tensor(im, a->t, name, &cid));
      *out = (dc_attr){.name = dc_name_intern(&g->names, name), .kind = DC_ATTR_TENSOR, .n = 1, .i = cid};
      return DC_OK;
    default: return dc_error(DC_ERR_UNSUPPORTED, "attribute '%.200s' holds a graph, a sparse tensor or a type, which is not supported", name);
  }
}

/* The caller's attribute that a reference inside a function stands for; NULL if neither it nor a default is given. */
static const Onnx__AttributeProto *resolve_reference(const scope *s, const char *reference) {
  for (size_t k = 0; s->call && k < s->call->n_attribute; k++)
    if (strcmp(text_of(s->call->attribute[k]->name), reference) == 0) return s->call->attribute[k];
  for (size_t k = 0; s->function && k < s->function->n_attribute_proto; k++)
    if (strcmp(text_of(s->function->attribute_proto[k]->name), reference) == 0) return s->function->attribute_proto[k];
  return NULL;
}

static dc_status add_attrs(importer *im, const scope *s, const Onnx__NodeProto *node, dc_attr **out, uint32_t *n) {
  *out = DC_NEW_ARRAY(&im->graph->arena, dc_attr, node->n_attribute);
  *n = 0;
  for (size_t k = 0; k < node->n_attribute; k++) {
    const Onnx__AttributeProto *a = node->attribute[k];
    Onnx__AttributeProto named;
    for (size_t j = 0; j < k; j++)
      if (strcmp(text_of(node->attribute[j]->name), text_of(a->name)) == 0) return dc_error(DC_ERR_MODEL, "attribute '%.200s' is given twice", text_of(a->name));
    if (a->ref_attr_name && *a->ref_attr_name) {
      const Onnx__AttributeProto *actual = resolve_reference(s, a->ref_attr_name);
      if (!actual) continue;
      if (actual->ref_attr_name && *actual->ref_attr_name && s->outer) actual = resolve_reference(s->outer, actual->ref_attr_name);
      if (!actual) continue;
      named = *actual;
      named.name = a->name;
      a = &named;
    }
    DC_TRY(add_attr(im, a, &(*out)[(*n)++]));
  }
  return DC_OK;
}

/* ---- nodes ---- */

static bool same_domain(const char *a, const char *b) {
  if (strcmp(a, "ai.onnx") == 0) a = "";
  if (strcmp(b, "ai.onnx") == 0) b = "";
  return strcmp(a, b) == 0;
}

static int opset_of(const scope *s, const char *domain) {
  for (size_t k = 0; k < s->n_opsets; k++)
    if (same_domain(text_of(s->opsets[k]->domain), domain)) return s->opsets[k]->version > 0 && s->opsets[k]->version < 10000 ? (int)s->opsets[k]->version : 1;
  return 1;
}

static const Onnx__FunctionProto *find_function(const importer *im, const Onnx__NodeProto *node) {
  for (size_t k = 0; k < im->model->n_functions; k++) {
    const Onnx__FunctionProto *f = im->model->functions[k];
    if (strcmp(text_of(f->name), text_of(node->op_type)) == 0 && same_domain(text_of(f->domain), text_of(node->domain)) &&
        strcmp(text_of(f->overload), text_of(node->overload)) == 0)
      return f;
  }
  return NULL;
}

static dc_status find_inputs(const scope *s, const Onnx__NodeProto *node, dc_cid *in) {
  for (size_t k = 0; k < node->n_input; k++) {
    const char *name = text_of(node->input[k]);
    in[k] = *name ? get_name(&s->names, name) : 0;
    if (*name && !in[k]) return dc_error(DC_ERR_MODEL, "input '%.200s' is computed later or not at all", name);
  }
  return DC_OK;
}

static dc_status bind_output(importer *im, scope *s, const char *name, dc_cid *out) {
  *out = 0;
  if (!*name) return DC_OK;
  if (get_name(&s->names, name)) return dc_error(DC_ERR_MODEL, "value '%.200s' is computed twice", name);
  *out = add_value(im, name, DC_ROLE_TEMP);
  put_name(&s->names, name, *out);
  return DC_OK;
}

static dc_status add_nodes(importer *im, scope *s, Onnx__NodeProto *const *nodes, size_t n);

static dc_status inline_call(importer *im, scope *s, const Onnx__NodeProto *node, const Onnx__FunctionProto *f) {
  scope inner = {.outer = s, .function = f, .call = node, .opsets = f->opset_import, .n_opsets = f->n_opset_import, .depth = s->depth + 1};
  for (const scope *at = s; at; at = at->outer)
    if (at->function == f) return dc_error(DC_ERR_MODEL, "function '%.200s' calls itself", text_of(f->name));
  if (inner.depth > MAX_CALL_DEPTH) return dc_error(DC_ERR_MODEL, "functions call each other deeper than %d", MAX_CALL_DEPTH);
  if (node->n_input > f->n_input) return dc_error(DC_ERR_MODEL, "function '%.200s' takes %zu inputs", text_of(f->name), f->n_input);
  if (node->n_output > f->n_output) return dc_error(DC_ERR_MODEL, "function '%.200s' has %zu outputs", text_of(f->name), f->n_output);
  dc_cid *in = DC_NEW_ARRAY(&im->graph->arena, dc_cid, node->n_input);
  DC_TRY(find_inputs(s, node, in));
  for (size_t k = 0; k < node->n_input; k++)
    if (in[k]) put_name(&inner.names, text_of(f->input[k]), in[k]);
  dc_status status = add_nodes(im, &inner, f->node, f->n_node);
  for (size_t k = 0; k < node->n_output && !status; k++) {
    const char *name = text_of(node->output[k]);
    dc_cid value = get_name(&inner.names, text_of(f->output[k]));
    if (!*name) continue;
    if (!value) status = dc_error(DC_ERR_MODEL, "function '%.200s' does not compute its output '%.200s'", text_of(f->name), text_of(f->output[k]));
    else if (get_name(&s->names, name)) status = dc_error(DC_ERR_MODEL, "value '%.200s' is computed twice", name);
    else put_name(&s->names, name, value);
  }
  free(inner.names.slots);
  return dc_error_at(status, "function '%.200s'", text_of(f->name));
}

/* A Constant with a tensor is data, not a computation. */
static bool is_constant(const Onnx__NodeProto *node) {
  return strcmp(text_of(node->op_type), "Constant") == 0 && same_domain(text_of(node->domain), "") && node->n_attribute == 1 && node->n_output == 1 &&
         node->attribute[0]->t && node->attribute[0]->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR && *text_of(node->output[0]);
}

static dc_status add_node(importer *im, scope *s, const Onnx__NodeProto *node) {
  if (++im->n_nodes > MAX_NODES) return dc_error(DC_ERR_MODEL, "expected at most %d nodes", MAX_NODES);
  const char *domain = text_of(node->domain);
  const Onnx__FunctionProto *f = find_function(im, node);
  if (f) return inline_call(im, s, node, f);
  if (is_constant(node)) {
    dc_cid cid;
    if (get_name(&s->names, node->output[0])) return dc_error(DC_ERR_MODEL, "value '%.200s' is computed twice", node->output[0]);
    DC_TRY(add_tensor(im, node->attribute[0]->t, node->output[0], &cid));
    put_name(&s->names, node->output[0], cid);
    return DC_OK;
  }
  if (node->n_input > 4096 || node->n_output > 4096) return dc_error(DC_ERR_MODEL, "expected at most 4096 inputs and outputs");
  dc_cid *in = DC_NEW_ARRAY(&im->graph->arena, dc_cid, node->n_input), *out = DC_NEW_ARRAY(&im->graph->arena, dc_cid, node->n_output);
  dc_attr *attrs;
  uint32_t n_attrs;
  DC_TRY(find_inputs(s, node, in));
  DC_TRY(add_attrs(im, s, node, &attrs, &n_attrs));
  for (size_t k = 0; k < node->n_output; k++) DC_TRY(bind_output(im, s, text_of(node->output[k]), &out[k]));
  uint32_t n_in = (uint32_t)node->n_input, n_out = (uint32_t)node->n_output;
  while (n_in && !in[n_in - 1]) n_in--; /* absent at the end is absent */
  dc_nid id = dc_node_library(im->graph, text_of(node->op_type), strcmp(domain, "ai.onnx") ? domain : "", opset_of(s, domain), in, n_in, out, n_out, attrs, n_attrs);
  dc_node_at(im->graph, id)->name = dc_name_intern(&im->graph->names, text_of(node->name));
  dc_scope_push(im->graph, dc_graph_scope(im->graph), id);
  return DC_OK;
}

static dc_status add_nodes(importer *im, scope *s, Onnx__NodeProto *const *nodes, size_t n) {
  for (size_t k = 0; k < n; k++) {
    const char *name = text_of(nodes[k]->name), *first = nodes[k]->n_output ? text_of(nodes[k]->output[0]) : "";
    dc_status status = add_node(im, s, nodes[k]);
    if (status) return dc_error_at(status, "node '%.200s' (%.100s)", *name ? name : first, text_of(nodes[k]->op_type));
  }
  return DC_OK;
}

/* ---- the model ---- */

static dc_status add_initializers(importer *im, scope *s, const Onnx__GraphProto *g) {
  for (size_t k = 0; k < g->n_initializer; k++) {
    const char *name = text_of(g->initializer[k]->name);
    dc_cid cid;
    if (!*name || get_name(&s->names, name)) return dc_error(DC_ERR_MODEL, "initialiser '%.200s' has no name or is given twice", name);
    DC_TRY(add_tensor(im, g->initializer[k], name, &cid));
    dc_container *c = dc_cont(im->graph, cid);
    bool native = c->dtype == DC_F32 || c->dtype == DC_F64 || c->dtype == DC_F16 || c->dtype == DC_BF16;
    if (im->as_params && native) c->role = DC_ROLE_PARAM;
    put_name(&s->names, name, cid);
  }
  if (g->n_sparse_initializer) return dc_error(DC_ERR_UNSUPPORTED, "sparse initialisers are not supported");
  return DC_OK;
}

static dc_status add_inputs(importer *im, scope *s, const Onnx__GraphProto *g) {
  for (size_t k = 0; k < g->n_input; k++) {
    const char *name = text_of(g->input[k]->name);
    dc_cid known = get_name(&s->names, name);
    if (!*name || (known && dc_cont(im->graph, known)->role == DC_ROLE_INPUT)) return dc_error(DC_ERR_MODEL, "input '%.200s' has no name or is given twice", name);
    if (known) continue; /* an initialiser listed as input has its value */
    dc_cid cid = add_value(im, name, DC_ROLE_INPUT);
    DC_TRY(set_type(im, cid, g->input[k]->type, name));
    if (!dc_cont(im->graph, cid)->dtype) return dc_error(DC_ERR_MODEL, "input '%.200s' has no type", name);
    put_name(&s->names, name, cid);
  }
  return DC_OK;
}

static dc_status add_declared(importer *im, const scope *s, Onnx__ValueInfoProto *const *values, size_t n) {
  for (size_t k = 0; k < n; k++) {
    dc_cid cid = get_name(&s->names, text_of(values[k]->name));
    if (cid && dc_cont(im->graph, cid)->role == DC_ROLE_TEMP && !dc_cont(im->graph, cid)->shape) DC_TRY(set_type(im, cid, values[k]->type, text_of(values[k]->name)));
  }
  return DC_OK;
}

static dc_status import_graph(importer *im, scope *s, const Onnx__GraphProto *g) {
  DC_TRY(add_initializers(im, s, g));
  DC_TRY(add_inputs(im, s, g));
  DC_TRY(add_nodes(im, s, g->node, g->n_node));
  DC_TRY(add_declared(im, s, g->value_info, g->n_value_info));
  DC_TRY(add_declared(im, s, g->output, g->n_output));
  for (size_t k = 0; k < g->n_output; k++) {
    dc_cid cid = get_name(&s->names, text_of(g->output[k]->name));
    if (!cid) return dc_error(DC_ERR_MODEL, "output '%.200s' is not computed", text_of(g->output[k]->name));
    dc_graph_mark_output(im->graph, cid);
  }
  return g->n_output ? DC_OK : dc_error(DC_ERR_MODEL, "the graph has no output");
}

static dc_status import_model(const Onnx__ModelProto *model, const char *base_dir, bool as_params, dc_graph **out) {
  if (!model->graph) return dc_error(DC_ERR_MODEL, "the model has no graph");
  scope s = {.opsets = model->opset_import, .n_opsets = model->n_opset_import};
  dc_graph *graph = dc_graph_create(text_of(model->graph->name));
  graph->opset = opset_of(&s, "");
  importer im = {.graph = graph, .model = model, .base_dir = base_dir, .as_params = as_params};
  dc_status status = import_graph(&im, &s, model->graph);
  free(s.names.slots);
  if (!status) return *out = graph, DC_OK;
  dc_status located = dc_error_at(status, "model '%.200s'", text_of(model->graph->name));
  dc_graph_destroy(graph);
  return located;
}

dc_status dc_onnx_import(const void *bytes, uint64_t n_bytes, const char *base_dir, bool as_params, dc_graph **out) {
  DC_TRY(dc_onnx_scan(bytes, n_bytes, &onnx__model_proto__descriptor));
  Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, n_bytes, bytes);
  if (!model) return dc_error(DC_ERR_MODEL, "not a valid ONNX file");
  dc_status status = import_model(model, base_dir, as_params, out);
  onnx__model_proto__free_unpacked(model, NULL);
  return status;
}
