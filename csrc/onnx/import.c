/* ModelProto to Graph: one container for each value, one library node for each node.
 *
 * Local functions are inlined: a call opens a scope of names in which the function's inputs are
 * the caller's values; so are the graphs that FlexAttention calls.  Any other subgraph becomes a graph of its own, whose last inputs stand for the
 * outer values that it reads.  What a file holds once costs in proportion to its bytes; what a function
 * body repeats is paid from a budget, so that a small file cannot unfold into a huge graph. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "onnx/wire.h"

enum { MAX_CALL_DEPTH = 32, MAX_OPERANDS = 4096, MAX_ATTRIBUTES = 1024, MAX_SYMBOLS = 1 << 16, MAX_FLEX_ATTRIBUTES = 4 };
static const uint64_t MAX_UNFOLDED_BYTES = (uint64_t)1 << 28;

typedef struct {
  const char *name; /* NULL: empty slot */
  uint32_t id;      /* a container (0: an absent optional input), an expression or an index */
} entry;

typedef struct {
  entry *slots;
  uint32_t n, capacity;
} table;

typedef struct scope {
  const struct scope *outer; /* the caller, for messages and depth only: names do not leak */
  struct scope *around;      /* of a subgraph: where its node stands, whose names it sees */
  bool inlined;              /* the subgraph's nodes go to the graph around it */
  table names;
  const Onnx__FunctionProto *function; /* NULL for the main graph */
  const Onnx__NodeProto *call;
  Onnx__OperatorSetIdProto *const *opsets;
  size_t n_opsets;
  int depth;
} scope;

typedef struct importer {
  dc_ops *ops;
  dc_graph *graph;
  struct importer *around; /* of a subgraph: of the graph that holds it */
  const Onnx__ModelProto *model;
  dc_onnx_file file;
  bool as_params;
  bool weighs_constants; /* the model has its weights in Constant nodes: they are parameters too */
  table functions;      /* domain, name and overload -> index + 1 */
  table dims, symbols;  /* dim_param -> expression; names of symbols that are taken */
  uint32_t call_depth;
  uint64_t unfolded_bytes; /* of copies and zeros that the file does not hold itself */
  uint64_t free_bytes;     /* of memory: many tensors may name the same external file */
} importer;

/* ---- names ---- */

static entry *slot_of(const table *t, const char *name) {
  uint32_t k = (uint32_t)dc_hash_bytes(0, name, strlen(name)) & (t->capacity - 1);
  while (t->slots[k].name && strcmp(t->slots[k].name, name)) k = (k + 1) & (t->capacity - 1);
  return &t->slots[k];
}

/* The name must live as long as the table. */
static void put_name(table *t, const char *name, uint32_t id) {
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
  *e = (entry){name, id};
}

static bool has_name(const table *t, const char *name) { return t->capacity && slot_of(t, name)->name; }
static uint32_t get_name(const table *t, const char *name) { return t->capacity ? slot_of(t, name)->id : 0; }

static const char *text_of(const char *s) { return s ? s : ""; }

/* Charges for what a function body repeats; the main graph is bounded by the file. */
static dc_status spend(importer *im, uint64_t n_bytes) {
  im->unfolded_bytes += im->call_depth ? n_bytes : 0;
  if (im->unfolded_bytes <= MAX_UNFOLDED_BYTES) return DC_OK;
  return dc_error(DC_ERR_MODEL, "the model's functions unfold to more than %llu bytes", (unsigned long long)MAX_UNFOLDED_BYTES);
}

/* ---- shapes ---- */

/* A symbol whose name is `wanted` with other characters replaced, and a suffix if that is taken. */
static const char *fresh_symbol(importer *im, const char *wanted) {
  char base[100], name[120];
  size_t n = 0;
  for (const char *c = wanted; *c && n + 1 < sizeof base; c++) base[n++] = isalnum((unsigned char)*c) ? *c : '_';
  base[n] = 0;
  bool usable = n && !isdigit((unsigned char)base[0]);
  if (usable && !has_name(&im->symbols, base)) return dc_arena_strdup(&im->graph->arena, base);
  uint32_t k = im->symbols.n;
  do snprintf(name, sizeof name, "%s_%u", usable ? base : "dim", k++);
  while (has_name(&im->symbols, name));
  return dc_arena_strdup(&im->graph->arena, name);
}

/* The same text is the same symbol; different texts, and dimensions without one, are different symbols. */
static dc_status symbol_of(importer *im, const char *dim_param, dc_ex *out) {
  if (*dim_param && has_name(&im->dims, dim_param)) return *out = get_name(&im->dims, dim_param), DC_OK;
  if (im->symbols.n == MAX_SYMBOLS)
    return dc_error(DC_ERR_UNSUPPORTED, "more than %d different symbolic dimensions are not supported", MAX_SYMBOLS);
  const char *name = fresh_symbol(im, dim_param);
  *out = dc_ex_sym(&im->graph->pool, dc_symbol_get(&im->graph->pool, name, 0));
  put_name(&im->symbols, name, 1);
  if (*dim_param) put_name(&im->dims, dim_param, *out);
  return DC_OK;
}

static dc_status set_type(importer *im, dc_cid cid, const Onnx__TypeProto *type, const char *name) {
  if (!type || type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET) return DC_OK;
  if (type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return dc_cont(im->graph, cid)->is_host = true, DC_OK;
  int32_t dtype = type->tensor_type->elem_type;
  if (dtype < 0 || dtype >= DC_DTYPE_COUNT) return dc_error(DC_ERR_DTYPE, "value '%.200s' has an unknown data type", name);
  const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
  if (shape && shape->n_dim > DC_MAX_RANK)
    return dc_error(DC_ERR_SHAPE, "value '%.200s' has %zu dimensions, expected at most %d", name, shape->n_dim, DC_MAX_RANK);
  dc_ex dims[DC_MAX_RANK];
  for (size_t d = 0; shape && d < shape->n_dim; d++) {
    const Onnx__TensorShapeProto__Dimension *dim = shape->dim[d];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
      if (dim->dim_value < -1) return dc_error(DC_ERR_SHAPE, "value '%.200s' has a negative dimension", name);
      dims[d] = dc_ex_int(&im->graph->pool, dim->dim_value);
      if (dim->dim_value < 0) DC_TRY(symbol_of(im, "", &dims[d])); /* many exporters write -1 for what is not known */
    } else {
      bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
      DC_TRY(symbol_of(im, named ? text_of(dim->dim_param) : "", &dims[d]));
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

static dc_status add_data(importer *im, const char *name, const dc_onnx_data *data, dc_cid *out) {
  im->free_bytes -= data->n_bytes;
  dc_ex shape[DC_MAX_RANK];
  for (uint32_t d = 0; d < data->rank; d++) shape[d] = dc_ex_int(&im->graph->pool, data->dims[d]);
  *out = dc_container_add(im->graph, name, data->dtype, data->rank, shape, DC_ROLE_CONST);
  dc_cont(im->graph, *out)->data = data->data;
  dc_cont(im->graph, *out)->data_bytes = data->n_bytes;
  return DC_OK;
}

static dc_status add_tensor(importer *im, const Onnx__TensorProto *t, const char *name, dc_cid *out) {
  dc_onnx_data data;
  DC_TRY(dc_onnx_decode(im->graph, t, &im->file, im->free_bytes, &data));
  DC_TRY(spend(im, data.n_bytes));
  return add_data(im, name, &data, out);
}

static dc_status add_sparse(importer *im, const Onnx__SparseTensorProto *t, const char *name, dc_cid *out) {
  dc_onnx_data data;
  uint64_t left = MAX_UNFOLDED_BYTES - im->unfolded_bytes;
  DC_TRY(dc_onnx_decode_sparse(im->graph, t, &im->file, left < im->free_bytes ? left : im->free_bytes, &data));
  im->unfolded_bytes += data.n_bytes;
  return add_data(im, name, &data, out);
}

/* ---- attributes ---- */

static dc_status add_subgraph(importer *im, scope *s, const Onnx__GraphProto *g, uint32_t *out);

static dc_status add_attr(importer *im, scope *s, const Onnx__AttributeProto *a, dc_attr *out) {
  dc_graph *g = im->graph;
  const char *name = text_of(a->name);
  dc_cid cid;
  uint32_t subgraph;
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
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH:
      if (!a->g) return dc_error(DC_ERR_MODEL, "attribute '%.200s' has no graph", name);
      DC_TRY(dc_error_at(add_subgraph(im, s, a->g, &subgraph), "graph '%.200s'", name));
      *out = (dc_attr){.name = dc_name_intern(&g->names, name), .kind = DC_ATTR_GRAPH, .n = 1, .i = subgraph};
      return DC_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED:
      return dc_error(DC_ERR_MODEL, "attribute '%.200s' has no type", name);
    default:
      return dc_error(DC_ERR_UNSUPPORTED, "attribute '%.200s' holds a list of graphs or tensors, which is not supported", name);
  }
}

/* The attribute that a reference inside a function stands for: the caller's, else the function's default,
 * NULL if neither is given.  The caller's may itself refer to an attribute of its own function. */
static const Onnx__AttributeProto *resolve(const scope *s, const Onnx__AttributeProto *a) {
  while (a && *text_of(a->ref_attr_name)) {
    const char *wanted = a->ref_attr_name;
    const scope *at = s;
    a = NULL;
    for (size_t k = 0; at->call && !a && k < at->call->n_attribute; k++)
      if (strcmp(text_of(at->call->attribute[k]->name), wanted) == 0) a = at->call->attribute[k];
    s = at->outer;
    if (a && s) continue;
    for (size_t k = 0; at->function && !a && k < at->function->n_attribute_proto; k++)
      if (strcmp(text_of(at->function->attribute_proto[k]->name), wanted) == 0) a = at->function->attribute_proto[k];
    return a && *text_of(a->ref_attr_name) ? NULL : a; /* a default refers to nothing */
  }
  return a;
}

static dc_status add_attrs(importer *im, scope *s, const Onnx__NodeProto *node, dc_attr **out, uint32_t *n) {
  *out = DC_NEW_ARRAY(&im->graph->arena, dc_attr, node->n_attribute);
  *n = 0;
  for (size_t k = 0; k < node->n_attribute; k++) {
    const Onnx__AttributeProto *a = node->attribute[k];
    Onnx__AttributeProto named;
    for (size_t j = 0; j < k; j++)
      if (strcmp(text_of(node->attribute[j]->name), text_of(a->name)) == 0)
        return dc_error(DC_ERR_MODEL, "attribute '%.200s' is given twice", text_of(a->name));
    if (!s->function && *text_of(a->ref_attr_name))
      return dc_error(DC_ERR_MODEL, "attribute '%.200s' refers to a function's attribute outside a function", text_of(a->name));
    const Onnx__AttributeProto *actual = resolve(s, a);
    if (!actual || actual->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO) continue; /* a type only declares */
    if (actual != a && actual->g)
      return dc_error(DC_ERR_UNSUPPORTED, "attribute '%.200s': a graph passed to a function is not supported", text_of(a->name));
    named = *actual;
    named.name = a->name;
    DC_TRY(add_attr(im, s, &named, &(*out)[(*n)++]));
  }
  return DC_OK;
}

/* ---- nodes ---- */

static bool same_domain(const char *a, const char *b) {
  if (strcmp(a, "ai.onnx") == 0) a = "";
  if (strcmp(b, "ai.onnx") == 0) b = "";
  return strcmp(a, b) == 0;
}

/* The version of a domain that the model or function imports; else, as in ONNX Runtime, the newest, but of ONNX's own none: 0. */
static int opset_of(const importer *im, const scope *s, const char *domain) {
  for (size_t k = 0; k < s->n_opsets; k++) {
    int64_t version = s->opsets[k]->version;
    if (same_domain(text_of(s->opsets[k]->domain), domain)) return version > 0 && version < INT32_MAX ? (int)version : 0;
  }
  return im->ops && *domain ? dc_ops_newest(im->ops, domain) : 0;
}

/* Three names as one; the lengths keep different triples apart. */
static const char *function_key(importer *im, const char *domain, const char *name, const char *overload) {
  if (same_domain(domain, "")) domain = "";
  return dc_arena_printf(&im->graph->arena, "%zu:%zu:%s%s%s", strlen(domain), strlen(name), domain, name, overload);
}

static dc_status index_functions(importer *im) {
  for (size_t k = 0; k < im->model->n_functions; k++) {
    const Onnx__FunctionProto *f = im->model->functions[k];
    const char *key = function_key(im, text_of(f->domain), text_of(f->name), text_of(f->overload));
    if (has_name(&im->functions, key)) return dc_error(DC_ERR_MODEL, "function '%.200s' is given twice", text_of(f->name));
    put_name(&im->functions, key, (uint32_t)k + 1);
  }
  return DC_OK;
}

static const Onnx__FunctionProto *find_function(importer *im, const Onnx__NodeProto *node) {
  if (!im->functions.n) return NULL;
  uint32_t k = get_name(&im->functions, function_key(im, text_of(node->domain), text_of(node->op_type), text_of(node->overload)));
  return k ? im->model->functions[k - 1] : NULL;
}

/* Where a name is not a subgraph's own, it is the outer graph's: the subgraph gets an input for it. */
static bool find_value(importer *im, scope *s, const char *name, dc_cid *out) {
  dc_cid outer;
  *out = get_name(&s->names, name);
  if (*out || has_name(&s->names, name)) return true;
  if (!s->around || !find_value(s->inlined ? im : im->around, s->around, name, &outer)) return false;
  if (s->inlined) return *out = outer, true;
  if (outer) {
    uint8_t dtype = dc_cont(im->around->graph, outer)->dtype;
    *out = add_value(im, name, DC_ROLE_INPUT);
    dc_cont(im->graph, *out)->dtype = dtype;
    DC_PUSH(&im->graph->arena, &im->graph->captures, outer);
  }
  put_name(&s->names, name, *out);
  return true;
}

static dc_status find_inputs(importer *im, scope *s, const Onnx__NodeProto *node, dc_cid *in) {
  for (size_t k = 0; k < node->n_input; k++) {
    const char *name = text_of(node->input[k]);
    in[k] = 0;
    if (*name && !find_value(im, s, name, &in[k])) return dc_error(DC_ERR_MODEL, "input '%.200s' is computed later or not at all", name);
  }
  return DC_OK;
}

static dc_status bind_output(importer *im, scope *s, const char *name, dc_cid *out) {
  *out = 0;
  if (!*name) return DC_OK;
  if (has_name(&s->names, name)) return dc_error(DC_ERR_MODEL, "value '%.200s' is computed twice", name);
  *out = add_value(im, name, DC_ROLE_TEMP);
  put_name(&s->names, name, *out);
  return DC_OK;
}

static dc_status add_nodes(importer *im, scope *s, Onnx__NodeProto *const *nodes, size_t n);
static dc_status add_initializers(importer *im, scope *s, const Onnx__GraphProto *g);

/* Results of a call get the caller's names. */
static dc_status bind_results(scope *s, const scope *inner, const Onnx__NodeProto *node, const Onnx__FunctionProto *f) {
  for (size_t k = 0; k < node->n_output; k++) {
    const char *name = text_of(node->output[k]), *computed = text_of(f->output[k]);
    dc_cid value = get_name(&inner->names, computed);
    if (!*name) continue;
    if (!value) return dc_error(DC_ERR_MODEL, "it does not compute its output '%.200s'", computed);
    if (has_name(&s->names, name)) return dc_error(DC_ERR_MODEL, "value '%.200s' is computed twice", name);
    put_name(&s->names, name, value);
  }
  return DC_OK;
}

static dc_status inline_call(importer *im, scope *s, const Onnx__NodeProto *node, const Onnx__FunctionProto *f) {
  scope inner = {.outer = s, .function = f, .call = node, .opsets = f->opset_import, .n_opsets = f->n_opset_import, .depth = s->depth + 1};
  const char *name = text_of(f->name);
  for (const scope *at = s; at; at = at->outer)
    if (at->function == f) return dc_error(DC_ERR_MODEL, "function '%.200s' calls itself", name);
  if (inner.depth > MAX_CALL_DEPTH) return dc_error(DC_ERR_MODEL, "functions call each other deeper than %d", MAX_CALL_DEPTH);
  if (f->n_attribute_proto > MAX_ATTRIBUTES || f->n_input > MAX_OPERANDS || f->n_output > MAX_OPERANDS)
    return dc_error(DC_ERR_MODEL, "function '%.200s' has more than %d parameters", name, MAX_ATTRIBUTES);
  if (node->n_input > f->n_input) return dc_error(DC_ERR_MODEL, "function '%.200s' takes %zu inputs", name, f->n_input);
  if (node->n_output > f->n_output) return dc_error(DC_ERR_MODEL, "function '%.200s' has %zu outputs", name, f->n_output);
  dc_cid *in = DC_NEW_ARRAY(&im->graph->arena, dc_cid, f->n_input); /* zeros: inputs that the call leaves out */
  DC_TRY(find_inputs(im, s, node, in));
  for (size_t k = 0; k < f->n_input; k++) put_name(&inner.names, text_of(f->input[k]), in[k]);
  im->call_depth++;
  dc_status status = spend(im, 64 * f->n_input);
  if (!status) status = add_nodes(im, &inner, f->node, f->n_node);
  if (!status) status = bind_results(s, &inner, node, f);
  im->call_depth--;
  free(inner.names.slots);
  return dc_error_at(status, "function '%.200s'", name);
}

/* The attribute of a Constant that holds a tensor or strings, which is data and not a computation; else NULL. */
static const Onnx__AttributeProto *constant_of(const scope *s, const Onnx__NodeProto *node) {
  bool constant = strcmp(text_of(node->op_type), "Constant") == 0 && same_domain(text_of(node->domain), "");
  if (!constant || node->n_attribute != 1 || node->n_output != 1 || !*text_of(node->output[0])) return NULL;
  const Onnx__AttributeProto *a = resolve(s, node->attribute[0]);
  const char *name = text_of(node->attribute[0]->name);
  if (!a) return NULL;
  bool dense = a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR && a->t && strcmp(name, "value") == 0;
  bool sparse = a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR && a->sparse_tensor && strcmp(name, "sparse_value") == 0;
  bool text = a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING && strcmp(name, "value_string") == 0;
  bool texts = a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS && strcmp(name, "value_strings") == 0;
  return dense || sparse || text || texts ? a : NULL;
}

static dc_status add_strings(importer *im, const Onnx__AttributeProto *a, const char *name, dc_cid *out) {
  bool list = a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
  int64_t dims[1] = {(int64_t)a->n_strings};
  dc_onnx_data data = {.dtype = DC_STRING, .rank = list, .dims = dims};
  dc_onnx_strings(im->graph, list ? a->strings : &a->s, list ? a->n_strings : 1, &data);
  return add_data(im, name, &data, out);
}

/* Of a container or of a file: dc_dtype has ONNX's numbers. */
static bool is_trainable(int32_t type) { return type == DC_F32 || type == DC_F64 || type == DC_F16 || type == DC_BF16; }

/* A single number is part of a formula. */
static bool is_weight(const importer *im, dc_cid c) {
  int64_t dims[DC_MAX_RANK], most = 0;
  if (!im->weighs_constants || im->call_depth || !is_trainable(dc_cont(im->graph, c)->dtype) || !dc_container_dims(im->graph, c, dims)) return false;
  for (uint32_t d = 0; d < dc_cont(im->graph, c)->rank; d++) most = dims[d] > most ? dims[d] : most;
  return most > 1;
}

static dc_status add_constant(importer *im, scope *s, const Onnx__AttributeProto *a, const char *name) {
  dc_cid cid;
  if (has_name(&s->names, name)) return dc_error(DC_ERR_MODEL, "value '%.200s' is computed twice", name);
  if (a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR) DC_TRY(add_tensor(im, a->t, name, &cid));
  else if (a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR) DC_TRY(add_sparse(im, a->sparse_tensor, name, &cid));
  else DC_TRY(add_strings(im, a, name, &cid));
  if (is_weight(im, cid)) dc_cont(im->graph, cid)->role = DC_ROLE_PARAM;
  put_name(&s->names, name, cid);
  return DC_OK;
}

/* What one more copy of a node takes in memory, tensors aside. */
static uint64_t bytes_of(const Onnx__NodeProto *node) {
  uint64_t n = 512 + 8 * (node->n_input + node->n_output);
  for (size_t k = 0; k < node->n_output; k++) n += 160 + 2 * strlen(text_of(node->output[k]));
  for (size_t k = 0; k < node->n_attribute; k++) {
    const Onnx__AttributeProto *a = node->attribute[k];
    n += 64 + a->s.len + 8 * (a->n_ints + a->n_floats + 2 * a->n_strings);
    for (size_t j = 0; j < a->n_strings; j++) n += a->strings[j].len;
  }
  return n;
}

static dc_status add_library(importer *im, scope *s, const Onnx__NodeProto *node) {
  const char *domain = same_domain(text_of(node->domain), "") ? "" : text_of(node->domain);
  int opset = opset_of(im, s, domain);
  if (!opset) return dc_error(DC_ERR_MODEL, "no valid version of domain '%.200s' is imported", *domain ? domain : "ai.onnx");
  dc_cid *in = DC_NEW_ARRAY(&im->graph->arena, dc_cid, node->n_input), *out = DC_NEW_ARRAY(&im->graph->arena, dc_cid, node->n_output);
  dc_attr *attrs;
  uint32_t n_attrs;
  DC_TRY(find_inputs(im, s, node, in));
  DC_TRY(add_attrs(im, s, node, &attrs, &n_attrs));
  for (size_t k = 0; k < node->n_output; k++) DC_TRY(bind_output(im, s, text_of(node->output[k]), &out[k]));
  uint32_t n_in = (uint32_t)node->n_input, n_out = (uint32_t)node->n_output;
  while (n_in && !in[n_in - 1]) n_in--; /* absent at the end is absent */
  dc_nid id = dc_node_library(im->graph, text_of(node->op_type), domain, opset, in, n_in, out, n_out, attrs, n_attrs);
  dc_node_at(im->graph, id)->name = dc_name_intern(&im->graph->names, text_of(node->name));
  dc_scope_push(im->graph, dc_graph_scope(im->graph), id);
  return DC_OK;
}

/* A graph of one input and one output, computed where it is called. */
static dc_status inline_graph(importer *im, scope *s, const Onnx__GraphProto *g, dc_cid *value) {
  scope inner = *s;
  inner.around = s, inner.inlined = true, inner.names = (table){0};
  if (g->n_input != 1 || g->n_output != 1) return dc_error(DC_ERR_MODEL, "expected a graph of one input and one output");
  if (++im->call_depth > MAX_CALL_DEPTH) return dc_error(DC_ERR_MODEL, "graphs are nested deeper than %d", MAX_CALL_DEPTH);
  put_name(&inner.names, text_of(g->input[0]->name), *value);
  dc_status status = add_initializers(im, &inner, g);
  if (!status) status = add_nodes(im, &inner, g->node, g->n_node);
  if (!status && !find_value(im, &inner, text_of(g->output[0]->name), value)) status = dc_error(DC_ERR_MODEL, "its output is not computed");
  im->call_depth--;
  free(inner.names.slots);
  return status;
}

static void add_step(importer *im, const Onnx__NodeProto *node, const char *op, const char *domain, int opset, const dc_cid *in,
                     uint32_t n_in, dc_cid *out, const dc_attr *attrs, uint32_t n_attrs) {
  if (!*out) *out = add_value(im, op, DC_ROLE_TEMP);
  dc_nid id = dc_node_library(im->graph, op, domain, opset, in, n_in, out, 1, attrs, n_attrs);
  dc_node_at(im->graph, id)->name = dc_name_intern(&im->graph->names, text_of(node->name));
  dc_scope_push(im->graph, dc_graph_scope(im->graph), id);
}

/* FlexAttention: scores, score_mod, softmax, prob_mod, values. */
static dc_status add_flex_attention(importer *im, scope *s, const Onnx__NodeProto *node) {
  const Onnx__GraphProto *mods[2] = {NULL, NULL};
  dc_attr attrs[MAX_FLEX_ATTRIBUTES];
  uint32_t n_attrs = 0;
  dc_cid in[3], scores = 0, probabilities = 0, out;
  if (node->n_input != 3 || node->n_output != 1) return dc_error(DC_ERR_MODEL, "expected three inputs and one output");
  for (size_t k = 0; k < node->n_attribute; k++) {
    const Onnx__AttributeProto *a = resolve(s, node->attribute[k]);
    const char *name = text_of(node->attribute[k]->name);
    bool probability = strcmp(name, "prob_mod") == 0;
    if (!a) continue;
    Onnx__AttributeProto named = *a;
    named.name = node->attribute[k]->name;
    if (a->g && (probability || strcmp(name, "score_mod") == 0)) mods[probability] = a->g;
    else if (n_attrs == MAX_FLEX_ATTRIBUTES) return dc_error(DC_ERR_MODEL, "expected at most %d attributes", MAX_FLEX_ATTRIBUTES);
    else DC_TRY(add_attr(im, s, &named, &attrs[n_attrs++]));
  }
  DC_TRY(find_inputs(im, s, node, in));
  add_step(im, node, "FlexScores", "dcml", 1, in, 2, &scores, attrs, n_attrs);
  if (mods[0]) DC_TRY(dc_error_at(inline_graph(im, s, mods[0], &scores), "graph 'score_mod'"));
  add_step(im, node, "Softmax", "", 13, &scores, 1, &probabilities, NULL, 0);
  if (mods[1]) DC_TRY(dc_error_at(inline_graph(im, s, mods[1], &probabilities), "graph 'prob_mod'"));
  DC_TRY(bind_output(im, s, text_of(node->output[0]), &out));
  add_step(im, node, "FlexValues", "dcml", 1, (dc_cid[]){probabilities, in[2]}, 2, &out, NULL, 0);
  return DC_OK;
}

static dc_status add_node(importer *im, scope *s, const Onnx__NodeProto *node) {
  if (node->n_input > MAX_OPERANDS || node->n_output > MAX_OPERANDS)
    return dc_error(DC_ERR_MODEL, "expected at most %d inputs and outputs", MAX_OPERANDS);
  if (!node->n_output) return dc_error(DC_ERR_MODEL, "it has no output");
  if (node->n_attribute > MAX_ATTRIBUTES) return dc_error(DC_ERR_MODEL, "expected at most %d attributes", MAX_ATTRIBUTES);
  DC_TRY(spend(im, bytes_of(node)));
  const Onnx__FunctionProto *f = find_function(im, node);
  if (f) return inline_call(im, s, node, f);
  if (strcmp(text_of(node->op_type), "FlexAttention") == 0 && same_domain(text_of(node->domain), "ai.onnx.preview"))
    return add_flex_attention(im, s, node);
  const Onnx__AttributeProto *constant = constant_of(s, node);
  return constant ? add_constant(im, s, constant, node->output[0]) : add_library(im, s, node);
}

static dc_status add_nodes(importer *im, scope *s, Onnx__NodeProto *const *nodes, size_t n) {
  for (size_t k = 0; k < n; k++) {
    const char *name = text_of(nodes[k]->name), *first = nodes[k]->n_output ? text_of(nodes[k]->output[0]) : "";
    dc_status status = add_node(im, s, nodes[k]);
    if (status) return dc_error_at(status, "node '%.200s' (%.100s)", *name ? name : first, text_of(nodes[k]->op_type));
  }
  return DC_OK;
}

/* ---- order: nodes may stand in a file before what they read, as long as there is no circle ---- */

typedef struct {
  dc_arena arena;
  table makers; /* name -> 1 + the node that computes it */
  DC_VEC(uint32_t) reads; /* those of node k from first[k] on, as makers */
  uint32_t *first;
} order;

static bool is_in_order(const order *o, const Onnx__GraphProto *g) {
  for (uint32_t k = 0; k < g->n_node; k++)
    for (size_t i = 0; i < g->node[k]->n_input; i++)
      if (get_name(&o->makers, text_of(g->node[k]->input[i])) > k) return false;
  return true;
}

static void note_read(order *o, const char *name) {
  uint32_t maker = get_name(&o->makers, text_of(name));
  if (maker) DC_PUSH(&o->arena, &o->reads, maker);
}

/* What a node reads, its subgraphs included; how deep they nest was checked with the file. */
static void note_reads(order *o, const Onnx__NodeProto *node) {
  for (size_t k = 0; k < node->n_input; k++) note_read(o, node->input[k]);
  for (size_t a = 0; a < node->n_attribute; a++) {
    const Onnx__GraphProto *g = node->attribute[a]->g;
    for (size_t k = 0; g && k < g->n_node; k++) note_reads(o, g->node[k]);
    for (size_t k = 0; g && k < g->n_output; k++) note_read(o, g->output[k]->name);
  }
}

/* Each node after what it reads, otherwise as in the file; a circle stays, and its first node reads what is not there. */
static Onnx__NodeProto **sorted(order *o, const Onnx__GraphProto *g) {
  uint32_t n = (uint32_t)g->n_node, n_out = 0, depth;
  o->first = DC_NEW_ARRAY(&o->arena, uint32_t, n + 1);
  uint32_t *next = DC_NEW_ARRAY(&o->arena, uint32_t, n), *stack = DC_NEW_ARRAY(&o->arena, uint32_t, n);
  bool *met = DC_NEW_ARRAY(&o->arena, bool, n);
  Onnx__NodeProto **out = DC_NEW_ARRAY(&o->arena, Onnx__NodeProto *, n);
  for (uint32_t k = 0; k < n; k++) next[k] = o->first[k] = o->reads.n, note_reads(o, g->node[k]);
  o->first[n] = o->reads.n;
  for (uint32_t k = 0; k < n; k++) {
    depth = 0;
    if (!met[k]) stack[depth++] = k, met[k] = true;
    while (depth) {
      uint32_t top = stack[depth - 1];
      if (next[top] == o->first[top + 1]) {
        out[n_out++] = g->node[top], depth--;
        continue;
      }
      uint32_t maker = o->reads.v[next[top]++] - 1;
      if (!met[maker]) stack[depth++] = maker, met[maker] = true;
    }
  }
  return out;
}

static dc_status add_ordered(importer *im, scope *s, const Onnx__GraphProto *g) {
  order o = {0};
  for (uint32_t k = 0; k < g->n_node; k++)
    for (size_t i = 0; i < g->node[k]->n_output; i++) {
      const char *name = text_of(g->node[k]->output[i]);
      if (*name && !has_name(&o.makers, name)) put_name(&o.makers, name, k + 1);
    }
  dc_status status = add_nodes(im, s, is_in_order(&o, g) ? g->node : sorted(&o, g), g->n_node);
  free(o.makers.slots);
  dc_arena_free(&o.arena);
  return status;
}

/* ---- the model ---- */

static dc_status name_initializer(importer *im, scope *s, const char *name, dc_cid cid) {
  if (im->as_params && is_trainable(dc_cont(im->graph, cid)->dtype)) dc_cont(im->graph, cid)->role = DC_ROLE_PARAM;
  if (!*name || has_name(&s->names, name)) return dc_error(DC_ERR_MODEL, "initialiser '%.200s' has no name or is given twice", name);
  put_name(&s->names, name, cid);
  return DC_OK;
}

static dc_status add_initializers(importer *im, scope *s, const Onnx__GraphProto *g) {
  dc_cid cid;
  for (size_t k = 0; k < g->n_initializer; k++) {
    const char *name = text_of(g->initializer[k]->name);
    DC_TRY(add_tensor(im, g->initializer[k], name, &cid));
    DC_TRY(name_initializer(im, s, name, cid));
  }
  for (size_t k = 0; k < g->n_sparse_initializer; k++) {
    const Onnx__SparseTensorProto *t = g->sparse_initializer[k];
    const char *name = t->values ? text_of(t->values->name) : "";
    DC_TRY(add_sparse(im, t, name, &cid));
    DC_TRY(name_initializer(im, s, name, cid));
  }
  return DC_OK;
}

static dc_status add_inputs(importer *im, scope *s, const Onnx__GraphProto *g) {
  for (size_t k = 0; k < g->n_input; k++) {
    const char *name = text_of(g->input[k]->name);
    dc_cid known = get_name(&s->names, name);
    if (!*name || (known && dc_cont(im->graph, known)->role == DC_ROLE_INPUT))
      return dc_error(DC_ERR_MODEL, "input '%.200s' has no name or is given twice", name);
    if (known) continue; /* an initialiser listed as input has its value */
    dc_cid cid = add_value(im, name, DC_ROLE_INPUT);
    DC_TRY(set_type(im, cid, g->input[k]->type, name));
    const dc_container *c = dc_cont(im->graph, cid);
    bool host = c->is_host || im->around; /* a subgraph's inputs need no type: the outer graph gives the values */
    if (!c->dtype && !host) return dc_error(DC_ERR_MODEL, "input '%.200s' has no type", name);
    put_name(&s->names, name, cid);
  }
  return DC_OK;
}

static dc_status add_declared(importer *im, const scope *s, Onnx__ValueInfoProto *const *values, size_t n) {
  for (size_t k = 0; k < n; k++) {
    dc_cid cid = get_name(&s->names, text_of(values[k]->name));
    if (cid && dc_cont(im->graph, cid)->role == DC_ROLE_TEMP && !dc_cont(im->graph, cid)->shape)
      DC_TRY(set_type(im, cid, values[k]->type, text_of(values[k]->name)));
    if (cid) dc_cont(im->graph, cid)->is_claimed = dc_cont(im->graph, cid)->role == DC_ROLE_TEMP;
  }
  return DC_OK;
}

/* An output has the model's name, also where the body of a function computed it, or has a value of that name. */
static void name_output(importer *im, dc_cid cid, const char *name) {
  dc_graph *g = im->graph;
  dc_cid other = dc_container_find(g, name);
  if (im->around || other == cid || dc_cont(g, cid)->role != DC_ROLE_TEMP) return;
  if (other) {
    const char *unused;
    uint32_t k = other;
    if (dc_cont(g, other)->role == DC_ROLE_INPUT || dc_cont(g, other)->is_output) return;
    do unused = dc_arena_printf(&g->arena, "%s_%u", name, k++);
    while (dc_container_find(g, unused));
    dc_container_rename(g, other, unused);
  }
  dc_container_rename(g, cid, name);
}

static dc_status import_graph(importer *im, scope *s, const Onnx__GraphProto *g) {
  DC_TRY(add_initializers(im, s, g));
  DC_TRY(add_inputs(im, s, g));
  DC_TRY(add_ordered(im, s, g));
  DC_TRY(add_declared(im, s, g->value_info, g->n_value_info));
  DC_TRY(add_declared(im, s, g->output, g->n_output));
  for (size_t k = 0; k < g->n_output; k++) {
    dc_cid cid;
    if (!find_value(im, s, text_of(g->output[k]->name), &cid) || !cid)
      return dc_error(DC_ERR_MODEL, "output '%.200s' is not computed", text_of(g->output[k]->name));
    if (dc_cont(im->graph, cid)->is_output && !im->around)
      return dc_error(DC_ERR_MODEL, "output '%.200s' is given twice", text_of(g->output[k]->name));
    name_output(im, cid, text_of(g->output[k]->name));
    dc_graph_mark_output(im->graph, cid);
  }
  return g->n_output ? DC_OK : dc_error(DC_ERR_MODEL, "the graph has no output");
}

/* Names and attributes of an enclosing function are the subgraph's too; budgets are common. */
static dc_status add_subgraph(importer *im, scope *s, const Onnx__GraphProto *g, uint32_t *out) {
  dc_graph *graph = dc_graph_create(text_of(g->name));
  graph->opset = im->graph->opset;
  importer inner = *im;
  inner.graph = graph, inner.around = im, inner.as_params = inner.weighs_constants = false;
  inner.dims = inner.symbols = (table){0};
  scope names = *s;
  names.around = s, names.names = (table){0};
  dc_status status = import_graph(&inner, &names, g);
  im->unfolded_bytes = inner.unfolded_bytes, im->free_bytes = inner.free_bytes;
  free(names.names.slots), free(inner.dims.slots), free(inner.symbols.slots);
  if (status) {
    dc_graph_destroy(graph);
    return status;
  }
  *out = im->graph->subgraphs.n;
  DC_PUSH(&im->graph->arena, &im->graph->subgraphs, graph);
  return DC_OK;
}

static dc_status check_versions(const Onnx__ModelProto *model) {
  if (!model->graph) return dc_error(DC_ERR_MODEL, "the model has no graph");
  if (model->ir_version < 1 || model->ir_version > ONNX__VERSION__IR_VERSION)
    return dc_error(DC_ERR_MODEL, "the file's IR version is %lld, expected 1 to %d", (long long)model->ir_version,
                    ONNX__VERSION__IR_VERSION);
  return DC_OK;
}

/* What decides extents - a Resize's scales - is no weight, though it is a float. */
static void keep_what_decides_extents(importer *im) {
  dc_graph *graph = im->graph;
  const dc_scope *scope = dc_graph_scope(graph);
  for (uint32_t k = 0; k < scope->n; k++) {
    const dc_library *lib = &dc_node_at(graph, scope->v[k])->lib;
    const dc_row *row = dc_ops_row_of(im->ops, graph, lib);
    const dc_row_arg *args;
    const uint32_t n = row ? dc_row_inputs(row, &args) : 0;
    for (uint32_t j = 0; j < lib->n_in && j < n; j++)
      if (lib->in[j] && args[j].is_meta && dc_cont(graph, lib->in[j])->role == DC_ROLE_PARAM)
        dc_cont(graph, lib->in[j])->role = DC_ROLE_CONST;
  }
}

/* Some exporters write no initialisers of floats. */
static bool has_weights(const Onnx__GraphProto *g) {
  bool any = g->n_sparse_initializer > 0;
  for (size_t k = 0; k < g->n_initializer; k++) any |= is_trainable(g->initializer[k]->data_type);
  return any;
}

static dc_status import_model(dc_ops *ops, const Onnx__ModelProto *model, dc_onnx_file file, bool as_params, dc_graph **out) {
  DC_TRY(check_versions(model));
  scope s = {.opsets = model->opset_import, .n_opsets = model->n_opset_import};
  dc_graph *graph = dc_graph_create(text_of(model->graph->name));
  importer im = {.ops = ops, .graph = graph, .model = model, .file = file, .as_params = as_params,
                 .weighs_constants = as_params && !has_weights(model->graph),
                 .free_bytes = dc_memory_available_bytes()};
  graph->opset = opset_of(&im, &s, "");
  dc_status status = index_functions(&im);
  if (!status) status = import_graph(&im, &s, model->graph);
  if (!status && as_params) keep_what_decides_extents(&im);
  free(s.names.slots), free(im.functions.slots), free(im.dims.slots), free(im.symbols.slots);
  if (!status) return *out = graph, DC_OK;
  dc_status located = dc_error_at(status, "model '%.200s'", text_of(model->graph->name));
  dc_graph_destroy(graph);
  return located;
}

dc_status dc_onnx_import(dc_ops *ops, const void *bytes, uint64_t n_bytes, const char *base_dir, bool as_params, dc_graph **out) {
  Onnx__ModelProto *model;
  DC_TRY(dc_onnx_read(bytes, n_bytes, true, &model));
  dc_status status = import_model(ops, model, (dc_onnx_file){bytes, base_dir}, as_params, out);
  onnx__model_proto__free_unpacked(model, NULL);
  return status;
}
