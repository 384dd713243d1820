/* The Graph type: a handle on the IR, with the calls that build, show and change it. */
#include <string.h>

#include "python/binding.h"

PyObject *wrap_graph(module_state *state, dc_graph *graph, PyObject *owner) {
  GraphObject *self = PyObject_New(GraphObject, state->graph_type);
  if (!self) return NULL;
  self->graph = graph;
  self->owner = Py_XNewRef(owner);
  self->flows = NULL, self->edits = 0, self->version = 0;
  return (PyObject *)self;
}

static void graph_dealloc(GraphObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  flows_free(self);
  if (!self->owner) dc_graph_destroy(self->graph);
  Py_XDECREF(self->owner);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"name", "opset", NULL};
  const char *name;
  int opset = 21;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|i", names, &name, &opset)) return NULL;
  GraphObject *self = (GraphObject *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->graph = dc_graph_create(name);
  self->graph->opset = opset;
  return (PyObject *)self;
}

static PyObject *text_object(dc_text *text) {
  PyObject *out = PyUnicode_DecodeUTF8(text->s ? text->s : "", (Py_ssize_t)text->n, "replace");
  dc_text_free(text);
  return out;
}

static PyObject *graph_text(GraphObject *self, PyObject *unused) {
  dc_text text = {0};
  (void)unused;
  dc_graph_print(self->graph, &text);
  return text_object(&text);
}

static PyObject *graph_str(GraphObject *self) { return graph_text(self, NULL); }

/* ---- containers ---- */

static dc_cid find(GraphObject *self, const char *name) {
  dc_cid c = dc_container_find(self->graph, name);
  if (!c) PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "graph '%s' has no container '%s'",
                       dc_name_text(&self->graph->names, self->graph->name), name);
  return c;
}

static PyObject *add_container(GraphObject *self, PyObject *args, dc_role role) {
  self->version++;
  const char *name;
  int type;
  PyObject *shape;
  dc_ex *dims;
  uint32_t rank;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "siO", &name, &type, &shape)) return NULL;
  if (type <= 0 || type >= DC_DTYPE_COUNT || !dc_dtype_bytes((dc_dtype)type))
    return PyErr_Format(state->errors[DC_ERR_DTYPE], "'%s': %d is no data type", name, type);
  if (parse_shape(state, self->graph, shape, &dims, &rank)) return NULL;
  dc_cid c = dc_container_add(self->graph, name, (dc_dtype)type, rank, dims, role);
  return name_object(dc_cont_name(self->graph, c));
}

static PyObject *graph_add_input(GraphObject *self, PyObject *args) { return add_container(self, args, DC_ROLE_INPUT); }
static PyObject *graph_add_param(GraphObject *self, PyObject *args) { return add_container(self, args, DC_ROLE_PARAM); }

/* What is not transient is the caller's: given at each call, and changed in place by whatever writes it; "__return" and
 * "__return_0", ... are results instead. */
static PyObject *graph_add_array(GraphObject *self, PyObject *args) {
  PyObject *shape;
  const char *name;
  int type, transient;
  if (!PyArg_ParseTuple(args, "siOp", &name, &type, &shape, &transient)) return NULL;
  bool result = !transient && strncmp(name, "__return", 8) == 0;
  PyObject *rest = Py_BuildValue("siO", name, type, shape),
           *made = rest ? add_container(self, rest, transient || result ? DC_ROLE_TEMP : DC_ROLE_INPUT) : NULL;
  if (made && result) dc_graph_mark_output(self->graph, self->graph->containers.n - 1);
  Py_XDECREF(rest);
  return made;
}

static PyObject *graph_add_const(GraphObject *self, PyObject *args) {
  self->version++;
  const char *name;
  PyObject *value;
  tensor_view view;
  if (!PyArg_ParseTuple(args, "sO", &name, &value)) return NULL;
  if (view_tensor(state_of((PyObject *)self), value, &view)) return NULL;
  const dc_array *a = &view.array;
  dc_cid c = dc_container_add_const(self->graph, name, a->dtype, a->rank, a->dims, a->data, dc_array_bytes(a));
  release_view(&view);
  return name_object(dc_cont_name(self->graph, c));
}

static PyObject *shape_tuple(const dc_graph *graph, const dc_container *c) {
  PyObject *shape = PyTuple_New(c->rank);
  for (uint32_t d = 0; shape && d < c->rank; d++) {
    int64_t extent;
    dc_text text = {0};
    bool number = dc_ex_is_int(&graph->pool, c->shape[d], &extent);
    if (!number) dc_ex_print(graph, c->shape[d], &text);
    PyTuple_SET_ITEM(shape, d, number ? PyLong_FromLongLong(extent) : text_object(&text));
  }
  return shape;
}

static PyObject *graph_info(GraphObject *self, PyObject *name) {
  static const char *const roles[] = {"temp", "input", "param", "const", "saved"};
  const char *text = PyUnicode_AsUTF8(name);
  dc_cid c = text ? find(self, text) : 0;
  if (!c) return NULL;
  const dc_container *k = dc_cont(self->graph, c);
  PyObject *shape = k->shape || !k->dtype ? shape_tuple(self->graph, k) : PyTuple_New(0);
  return shape ? Py_BuildValue("(iNs)", (int)k->dtype, shape, roles[k->role]) : NULL;
}

/* The contents of a constant or an initial weight, as a numpy array. */
static PyObject *graph_data(GraphObject *self, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  dc_cid c = text ? find(self, text) : 0;
  if (!c) return NULL;
  return container_array(state_of((PyObject *)self), self->graph, c);
}

/* Gives a weight its initial contents, which an export writes out, or takes them away. */
static PyObject *graph_set_data(GraphObject *self, PyObject *args) {
  self->version++;
  const char *name;
  PyObject *value;
  tensor_view view;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "sO", &name, &value)) return NULL;
  dc_cid c = find(self, name);
  if (!c) return NULL;
  dc_container *k = dc_cont(self->graph, c);
  if (value == Py_None && k->role == DC_ROLE_PARAM) {
    k->data = NULL, k->data_bytes = 0;
    Py_RETURN_NONE;
  }
  if (view_tensor(state, value, &view)) return NULL;
  int64_t dims[DC_MAX_RANK];
  bool fits = k->role == DC_ROLE_PARAM && k->dtype == view.array.dtype && k->rank == view.array.rank &&
              dc_container_dims(self->graph, c, dims) && memcmp(dims, view.array.dims, k->rank * sizeof *dims) == 0;
  if (fits) k->data_bytes = dc_array_bytes(&view.array), k->data = dc_arena_copy(&self->graph->arena, view.array.data, k->data_bytes);
  release_view(&view);
  if (!fits) return PyErr_Format(state->errors[DC_ERR_SHAPE], "'%s' is no weight of this type and shape", name);
  Py_RETURN_NONE;
}

/* A weight becomes a constant with these contents. */
static PyObject *graph_fix(GraphObject *self, PyObject *args) {
  const char *name;
  PyObject *value;
  if (!PyArg_ParseTuple(args, "sO", &name, &value)) return NULL;
  PyObject *done = graph_set_data(self, args);
  dc_cid c = done ? find(self, name) : 0;
  if (c && dc_cont(self->graph, c)->data) dc_cont(self->graph, c)->role = DC_ROLE_CONST;
  return done;
}

static PyObject *names_where(GraphObject *self, bool (*wanted)(const dc_container *)) {
  PyObject *list = PyList_New(0);
  for (dc_cid c = 1; list && c < self->graph->containers.n; c++) {
    if (!dc_cont(self->graph, c)->name || (wanted && !wanted(dc_cont(self->graph, c)))) continue;
    PyObject *name = name_object(dc_cont_name(self->graph, c));
    if (!name || PyList_Append(list, name)) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  return list;
}

static PyObject *names_of(GraphObject *self, const dc_cid *ids, uint32_t n) {
  PyObject *list = PyList_New(n);
  for (uint32_t k = 0; list && k < n; k++) PyList_SET_ITEM(list, k, name_object(dc_cont_name(self->graph, ids[k])));
  return list;
}

/* Operands of operators whose rows take no complex numbers. */
static void note_operands(dc_ops *ops, dc_graph *graph, const dc_scope *scope, uint32_t depth, bool *used) {
  for (uint32_t k = 0; k < scope->n && depth <= DC_MAX_LOOPS; k++) {
    const dc_node *node = dc_node_at(graph, scope->v[k]);
    if (node->kind == DC_NODE_MAP) note_operands(ops, graph, &node->map.body, depth + 1, used);
    if (node->kind != DC_NODE_LIBRARY) continue;
    const dc_row *row = dc_ops_row_of(ops, graph, &node->lib);
    if (!row || !dc_row_takes_complex(row)) dc_node_mark(graph, scope->v[k], DC_USE_READ | DC_USE_WRITE, used);
  }
}

/* What the core does not compute with alone: sequences, optionals, maps, strings, inputs of any rank, and complex numbers
 * where they are no pairs of real ones to it. */
static PyObject *get_host_values(GraphObject *self, void *u) {
  dc_session *session = session_of(state_of((PyObject *)self));
  if (!session) return NULL;
  dc_arena scratch = {0};
  dc_graph *g = self->graph;
  bool *used = DC_NEW_ARRAY(&scratch, bool, g->containers.n);
  for (uint32_t s = 0; s < g->states.n; s++) note_operands(session->ops, g, &g->states.v[s].scope, 0, used);
  PyObject *list = PyList_New(0);
  for (dc_cid c = 1; list && c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    bool operand = dc_dtype_is_complex((dc_dtype)k->dtype) && used[dc_container_root(g, c)];
    if (!k->name || !(k->is_host || k->dtype == DC_STRING || operand || (k->role == DC_ROLE_INPUT && !k->shape))) continue;
    PyObject *name = name_object(dc_cont_name(g, c));
    if (!name || PyList_Append(list, name)) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  dc_arena_free(&scratch);
  return (void)u, list;
}
static bool is_param(const dc_container *c) { return c->role == DC_ROLE_PARAM; }
static PyObject *get_inputs(GraphObject *self, void *u) { return (void)u, names_of(self, self->graph->inputs.v, self->graph->inputs.n); }
static PyObject *get_outputs(GraphObject *self, void *u) { return (void)u, names_of(self, self->graph->outputs.v, self->graph->outputs.n); }
static PyObject *get_params(GraphObject *self, void *u) { return (void)u, names_where(self, is_param); }
static PyObject *get_arrays(GraphObject *self, void *u) { return (void)u, names_where(self, NULL); }
static PyObject *get_name(GraphObject *self, void *u) { return (void)u, name_object(dc_name_text(&self->graph->names, self->graph->name)); }
static PyObject *get_opset(GraphObject *self, void *u) { return (void)u, PyLong_FromLong(self->graph->opset); }
static PyObject *get_version(GraphObject *self, void *u) { return (void)u, PyLong_FromUnsignedLong(self->version); }
static PyObject *get_n_states(GraphObject *self, void *u) { return (void)u, PyLong_FromUnsignedLong(self->graph->states.n); }

static PyObject *graph_mark_output(GraphObject *self, PyObject *name) {
  self->version++;
  const char *text = PyUnicode_AsUTF8(name);
  dc_cid c = text ? find(self, text) : 0;
  if (!c) return NULL;
  dc_graph_mark_output(self->graph, c);
  Py_RETURN_NONE;
}

static PyObject *graph_exchange_output(GraphObject *self, PyObject *args) {
  self->version++;
  const char *old, *new;
  if (!PyArg_ParseTuple(args, "ss", &old, &new)) return NULL;
  dc_cid from = find(self, old), to = from ? find(self, new) : 0;
  if (!to) return NULL;
  for (uint32_t k = 0; k < self->graph->outputs.n; k++)
    if (self->graph->outputs.v[k] == from) self->graph->outputs.v[k] = to, dc_cont(self->graph, to)->is_output = true;
  dc_cont(self->graph, from)->is_output = from == to && dc_cont(self->graph, from)->is_output;
  Py_RETURN_NONE;
}

/* ---- nodes ---- */

static int parse_inputs(GraphObject *self, PyObject *list, cid_list *out);

/* A list of integers, floats or strings by its first element; -1 with an exception. */
static int list_attr(GraphObject *self, const char *name, PyObject *value, dc_attr *out) {
  PyObject *items = PySequence_Tuple(value); /* which no __index__ changes */
  if (!items) return -1;
  dc_graph *g = self->graph;
  uint32_t n = (uint32_t)PySequence_Fast_GET_SIZE(items);
  PyObject **v = PySequence_Fast_ITEMS(items);
  int64_t *ints = DC_NEW_ARRAY(&g->arena, int64_t, n);
  double *floats = DC_NEW_ARRAY(&g->arena, double, n);
  const char **strings = DC_NEW_ARRAY(&g->arena, const char *, n);
  bool real = false, text = n && PyUnicode_Check(v[0]);
  for (uint32_t k = 0; k < n; k++) real |= PyFloat_Check(v[k]);
  for (uint32_t k = 0; k < n && !PyErr_Occurred(); k++) {
    if (text) {
      const char *s = PyUnicode_AsUTF8(v[k]);
      strings[k] = s ? dc_arena_strdup(&g->arena, s) : NULL;
    } else if (real) floats[k] = PyFloat_AsDouble(v[k]);
    else ints[k] = PyLong_AsLongLong(v[k]);
  }
  Py_DECREF(items);
  if (PyErr_Occurred()) return -1;
  if (text) *out = (dc_attr){.name = dc_name_intern(&g->names, name), .kind = DC_ATTR_STRINGS, .n = n, .strings = strings};
  else *out = real ? dc_attr_floats(g, name, floats, n) : dc_attr_ints(g, name, ints, n);
  return 0;
}

static int tensor_attr(GraphObject *self, const char *name, PyObject *value, dc_attr *out) {
  tensor_view view;
  if (view_tensor(state_of((PyObject *)self), value, &view)) return -1;
  const dc_array *a = &view.array;
  dc_cid c = dc_container_add_const(self->graph, name, a->dtype, a->rank, a->dims, a->data, dc_array_bytes(a));
  release_view(&view);
  *out = (dc_attr){.name = dc_name_intern(&self->graph->names, name), .kind = DC_ATTR_TENSOR, .n = 1, .i = c};
  return 0;
}

static bool holds_graph(const GraphObject *self, PyObject *value) {
  PyTypeObject *type = state_of((PyObject *)self)->graph_type;
  if (PyObject_TypeCheck(value, type)) return true;
  return PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 2 && PyObject_TypeCheck(PyTuple_GET_ITEM(value, 0), type);
}

/* A copy of a graph, given alone or with the names of the values that its last inputs stand for. */
static int graph_attr(GraphObject *self, const char *name, PyObject *value, dc_attr *out) {
  bool pair = PyTuple_Check(value);
  const dc_graph *given = ((GraphObject *)(pair ? PyTuple_GET_ITEM(value, 0) : value))->graph;
  cid_list captures = {0};
  if (pair && parse_inputs(self, PyTuple_GET_ITEM(value, 1), &captures)) return -1;
  bool known = captures.n <= given->inputs.n;
  for (uint32_t k = 0; k < captures.n; k++) known &= captures.v[k] != 0;
  if (!known) {
    PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "attribute '%s': a graph of %u inputs cannot take %u values", name,
                 given->inputs.n, captures.n);
    return -1;
  }
  dc_graph *body = dc_graph_clone(given);
  body->captures.n = 0;
  for (uint32_t k = 0; k < captures.n; k++) {
    DC_PUSH(&body->arena, &body->captures, captures.v[k]);
    dc_cont(body, body->inputs.v[body->inputs.n - captures.n + k])->dtype = dc_cont(self->graph, captures.v[k])->dtype;
  }
  DC_PUSH(&self->graph->arena, &self->graph->subgraphs, body);
  *out = (dc_attr){.name = dc_name_intern(&self->graph->names, name), .kind = DC_ATTR_GRAPH, .n = 1, .i = self->graph->subgraphs.n - 1};
  return 0;
}

static int one_attr(GraphObject *self, const char *name, PyObject *value, dc_attr *out) {
  Py_ssize_t length;
  if (PyLong_Check(value)) *out = dc_attr_int(self->graph, name, PyLong_AsLongLong(value));
  else if (PyFloat_Check(value)) *out = dc_attr_float(self->graph, name, PyFloat_AsDouble(value));
  else if (PyUnicode_Check(value)) {
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (!text) return -1;
    *out = dc_attr_string(self->graph, name, text, (size_t)length);
  } else if (PyBytes_Check(value)) *out = dc_attr_string(self->graph, name, PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value));
  else if (holds_graph(self, value)) return graph_attr(self, name, value, out);
  else if (PyList_Check(value) || PyTuple_Check(value)) return list_attr(self, name, value, out);
  else return tensor_attr(self, name, value, out);
  return PyErr_Occurred() ? -1 : 0;
}

int parse_attrs(GraphObject *self, PyObject *dict, attr_list *out) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (dict && dict != Py_None && PyDict_Next(dict, &at, &key, &value)) {
    dc_attr a;
    const char *name = PyUnicode_AsUTF8(key);
    if (value == Py_None) continue;
    if (!name || one_attr(self, name, value, &a)) return -1;
    DC_PUSH(&self->graph->arena, out, a);
  }
  return 0;
}

int attrs_from_dict(GraphObject *self, PyObject *dict, dc_attr **attrs, uint32_t *n) {
  attr_list list = {0};
  if (dict != Py_None && !PyDict_Check(dict)) return PyErr_SetString(PyExc_TypeError, "expected a dictionary of attributes"), -1;
  if (parse_attrs(self, dict, &list)) return -1;
  *attrs = list.v, *n = list.n;
  return 0;
}

static int parse_inputs(GraphObject *self, PyObject *list, cid_list *out) {
  PyObject *items = PySequence_Fast(list, "expected a list of input names");
  for (Py_ssize_t k = 0; items && k < PySequence_Fast_GET_SIZE(items); k++) {
    PyObject *item = PySequence_Fast_GET_ITEM(items, k);
    const char *name = item == Py_None ? "" : PyUnicode_AsUTF8(item);
    dc_cid c = name && *name ? find(self, name) : 0;
    if (!name || (*name && !c)) Py_CLEAR(items);
    else DC_PUSH(&self->graph->arena, out, c);
  }
  Py_XDECREF(items);
  return items ? 0 : -1;
}

enum { MAX_COUNTED_OUTPUTS = 65536 };

static int make_outputs(GraphObject *self, PyObject *outputs, const char *op, cid_list *out) {
  bool counted = PyLong_Check(outputs);
  PyObject *items = counted ? NULL : PySequence_Fast(outputs, "expected a count or a list of output names");
  if (!counted && !items) return -1;
  Py_ssize_t n = counted ? PyLong_AsSsize_t(outputs) : PySequence_Fast_GET_SIZE(items);
  if (counted && !PyErr_Occurred() && (n < 0 || n > MAX_COUNTED_OUTPUTS))
    PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "%s: %zd outputs; there are at most %d", op, n, MAX_COUNTED_OUTPUTS),
        n = 0;
  for (Py_ssize_t k = 0; k < n; k++) {
    PyObject *item = counted ? NULL : PySequence_Fast_GET_ITEM(items, k);
    const char *name = !item || item == Py_None ? op : PyUnicode_AsUTF8(item);
    dc_cid c = name ? dc_container_add(self->graph, name, DC_NOTYPE, 0, NULL, DC_ROLE_TEMP) : 0;
    if (!c) break;
    dc_cont(self->graph, c)->shape = NULL;
    DC_PUSH(&self->graph->arena, out, c);
  }
  Py_XDECREF(items);
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject *graph_add_node(GraphObject *self, PyObject *args, PyObject *kwargs) {
  self->version++;
  static char *names[] = {"op", "inputs", "outputs", "attrs", "domain", "name", "opset", NULL};
  const char *op, *domain = "", *name = "";
  int opset = 0;
  PyObject *inputs, *outputs, *attrs = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOO|Ossi", names, &op, &inputs, &outputs, &attrs, &domain, &name, &opset)) return NULL;
  cid_list in = {0}, out = {0};
  attr_list list = {0};
  if (parse_inputs(self, inputs, &in) || parse_attrs(self, attrs, &list) || make_outputs(self, outputs, op, &out)) return NULL;
  dc_nid node = dc_node_library(self->graph, op, domain,
                                opset     ? opset
                                : *domain ? 1
                                          : self->graph->opset,
                                in.v, in.n, out.v, out.n, list.v, list.n);
  dc_node_at(self->graph, node)->name = dc_name_intern(&self->graph->names, name);
  dc_scope_push(self->graph, dc_graph_scope(self->graph), node);
  return names_of(self, out.v, out.n);
}

static PyObject *graph_set_attribute(GraphObject *self, PyObject *args) {
  unsigned id;
  const char *name;
  PyObject *value;
  dc_attr made;
  if (!PyArg_ParseTuple(args, "O&sO", read_id, &id, &name, &value) || !library_at(self, id) ||
      (value != Py_None && one_attr(self, name, value, &made)))
    return NULL;
  dc_library *lib = &dc_node_at(self->graph, id)->lib;
  attr_list list = {0};
  for (uint32_t k = 0; k < lib->n_attr; k++)
    if (strcmp(dc_name_text(&self->graph->names, lib->attr[k].name), name)) DC_PUSH(&self->graph->arena, &list, lib->attr[k]);
  if (value != Py_None) DC_PUSH(&self->graph->arena, &list, made);
  lib->attr = list.v, lib->n_attr = list.n;
  Py_RETURN_NONE;
}

typedef struct {
  const dc_graph *graph;
  PyObject *reads, *writes;
} use_lists;

static void collect_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  use_lists *l = context;
  (void)by;
  PyObject *name = name_object(dc_cont_name(l->graph, c)), *list = use == DC_USE_READ ? l->reads : l->writes;
  if (name && !PySequence_Contains(list, name)) PyList_Append(list, name);
  Py_XDECREF(name);
}

static const char *const kinds[] = {"", "library", "map", "tasklet"};

const char *node_label(const dc_graph *g, dc_nid id) {
  const dc_node *n = dc_node_at(g, id);
  if (n->kind == DC_NODE_LIBRARY) return dc_name_text(&g->names, n->lib.op);
  return n->tag_op ? dc_name_text(&g->names, n->tag_op) : kinds[n->kind];
}

static PyObject *node_tuple(const dc_graph *g, dc_nid id) {
  const dc_node *n = dc_node_at(g, id);
  const char *label = node_label(g, id);
  use_lists l = {g, PyList_New(0), PyList_New(0)};
  if (!l.reads || !l.writes) return NULL;
  dc_node_uses(g, id, collect_use, &l);
  return Py_BuildValue("(IssNN)", id, kinds[n->kind], label, PySequence_Tuple(l.reads), PySequence_Tuple(l.writes));
}

static PyObject *graph_nodes(GraphObject *self, PyObject *args) {
  unsigned index = 0;
  if (!PyArg_ParseTuple(args, "|O&", read_id, &index)) return NULL;
  if (index >= self->graph->states.n) return PyList_New(0);
  const dc_scope *scope = &self->graph->states.v[index].scope;
  PyObject *list = PyList_New(scope->n);
  for (uint32_t k = 0; list && k < scope->n; k++) {
    PyObject *item = node_tuple(self->graph, scope->v[k]);
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, k, item);
  }
  return list;
}

/* ---- whole graphs ---- */

static PyObject *graph_clone(GraphObject *self, PyObject *unused) {
  (void)unused;
  return wrap_graph(state_of((PyObject *)self), dc_graph_clone(self->graph), NULL);
}

static PyObject *graph_run_pass(GraphObject *self, PyObject *name) {
  self->version++;
  const char *text = PyUnicode_AsUTF8(name);
  module_state *state = state_of((PyObject *)self);
  dc_session *session = text ? session_of(state) : NULL;
  if (!session) return NULL;
  self->edits++;
  RAISE_IF(state, dc_pass_run(session->ops, self->graph, text));
  Py_RETURN_NONE;
}

/* A sequence of node ids; NULL with an exception set on failure. */
static dc_nid *node_ids(PyObject *sequence, Py_ssize_t *n) {
  PyObject *list = PySequence_Fast(sequence, "expected a sequence of node ids");
  if (!list) return NULL;
  *n = PySequence_Fast_GET_SIZE(list);
  dc_nid *ids = PyMem_Malloc(sizeof *ids * (size_t)(*n + 1));
  for (Py_ssize_t k = 0; ids && k < *n; k++) ids[k] = (dc_nid)PyLong_AsUnsignedLong(PySequence_Fast_GET_ITEM(list, k));
  Py_DECREF(list);
  if (!ids) return (dc_nid *)PyErr_NoMemory();
  if (!PyErr_Occurred()) return ids;
  PyMem_Free(ids);
  return NULL;
}

/* Containers by name; NULL with an exception set on failure. */
static dc_cid *named_containers(GraphObject *self, PyObject *sequence, uint32_t *n) {
  PyObject *list = PySequence_Fast(sequence, "expected a sequence of names");
  if (!list) return NULL;
  *n = (uint32_t)PySequence_Fast_GET_SIZE(list);
  dc_cid *ids = PyMem_Calloc(*n + 1, sizeof *ids);
  for (uint32_t k = 0; ids && k < *n && !PyErr_Occurred(); k++) {
    const char *name = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(list, k));
    ids[k] = name ? dc_container_find(self->graph, name) : 0;
    if (name && !ids[k]) PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "there is no container '%s'", name);
  }
  Py_DECREF(list);
  if (ids && PyErr_Occurred()) PyMem_Free(ids), ids = NULL;
  else if (!ids) PyErr_NoMemory();
  return ids;
}

/* Names what there is to look at: nodes by id and containers by name, None for everything. */
static PyObject *graph_apply(GraphObject *self, PyObject *args) {
  const char *call;
  PyObject *nodes = Py_None, *containers = Py_None;
  Py_ssize_t n = 0;
  uint32_t count = 0;
  if (!PyArg_ParseTuple(args, "s|OO", &call, &nodes, &containers)) return NULL;
  module_state *state = state_of((PyObject *)self);
  dc_session *session = session_of(state);
  dc_transform_target on = {0};
  dc_nid *ids = session && nodes != Py_None ? node_ids(nodes, &n) : NULL;
  dc_cid *cids = !PyErr_Occurred() && session && containers != Py_None ? named_containers(self, containers, &on.n_containers) : NULL;
  on.nodes = ids, on.n_nodes = (uint32_t)n, on.containers = cids;
  dc_status status = DC_OK;
  if (!PyErr_Occurred()) {
    dc_transform_tools tools = {.ops = session->ops, .interpret = dc_interp_node};
    self->edits++, self->version++;
    status = dc_transform_apply(&tools, self->graph, call, &on, &count);
  }
  PyMem_Free(ids);
  PyMem_Free(cids);
  RAISE_IF(state, status);
  return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLong(count);
}

static dc_status add_backward(dc_ops *ops, dc_graph *graph, uint32_t at, const dc_cid *outputs, uint32_t n_outputs, const dc_cid *wrt,
                              uint32_t n_wrt) {
  dc_cid blocked;
  DC_TRY(dc_pass_infer(ops, graph, &blocked));
  if (blocked) return dc_error(DC_ERR_UNSUPPORTED, "the value of '%s' must be known to compute shapes", dc_cont_name(graph, blocked));
  DC_TRY(dc_pass_complexes(ops, graph));
  return dc_autodiff_join(ops, graph, at, outputs, n_outputs, wrt, n_wrt);
}

static PyObject *graph_add_backward(GraphObject *self, PyObject *args) {
  self->version++;
  unsigned at;
  PyObject *outputs, *wrt;
  if (!PyArg_ParseTuple(args, "O&OO", read_id, &at, &outputs, &wrt)) return NULL;
  module_state *state = state_of((PyObject *)self);
  dc_session *session = session_of(state);
  uint32_t n_outputs = 0, n_wrt = 0;
  dc_cid *from = session ? named_containers(self, outputs, &n_outputs) : NULL, *to = from ? named_containers(self, wrt, &n_wrt) : NULL;
  dc_status status = DC_OK;
  if (to) {
    dc_graph *trial = dc_graph_clone(self->graph); /* a failure leaves the graph as it was */
    status = add_backward(session->ops, trial, at, from, n_outputs, to, n_wrt);
    dc_graph_destroy(trial);
    self->edits++;
    if (!status) status = add_backward(session->ops, self->graph, at, from, n_outputs, to, n_wrt);
  }
  bool found = to != NULL;
  PyMem_Free(from);
  PyMem_Free(to);
  RAISE_IF(state, status);
  if (!found) return NULL;
  Py_RETURN_NONE;
}

static PyObject *graph_append(GraphObject *self, PyObject *args) {
  unsigned state;
  const char *text;
  if (!PyArg_ParseTuple(args, "O&s", read_id, &state, &text)) return NULL;
  RAISE_IF(state_of((PyObject *)self), dc_graph_append(self->graph, state, text));
  Py_RETURN_NONE;
}

static PyObject *graph_verify(GraphObject *self, PyObject *unused) {
  (void)unused;
  RAISE_IF(state_of((PyObject *)self), dc_graph_verify(self->graph));
  Py_RETURN_NONE;
}

static bool outputs_are_typed(const dc_graph *g) {
  bool all = true;
  for (uint32_t k = 0; k < g->outputs.n; k++) {
    const dc_container *c = dc_cont(g, g->outputs.v[k]);
    all &= c->is_host || (c->dtype && c->shape);
  }
  return all;
}

static PyObject *graph_to_onnx(GraphObject *self, PyObject *unused) {
  uint8_t *bytes;
  uint64_t n;
  dc_cid blocked;
  module_state *state = state_of((PyObject *)self);
  dc_session *session = session_of(state);
  (void)unused;
  if (!session) return NULL;
  dc_graph *typed = dc_graph_clone(self->graph);
  dc_status status = DC_OK; /* outputs need types and shapes, which are not inferred through operators with bodies */
  if (!outputs_are_typed(typed)) status = dc_pass_infer(session->ops, typed, &blocked);
  if (!status) status = dc_onnx_export(typed, &bytes, &n);
  dc_graph_destroy(typed);
  RAISE_IF(state, status);
  PyObject *out = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)n);
  free(bytes);
  return out;
}

static PyObject *graph_update_onnx(GraphObject *self, PyObject *file) {
  uint8_t *bytes;
  uint64_t n;
  Py_buffer view;
  if (PyObject_GetBuffer(file, &view, PyBUF_SIMPLE)) return NULL;
  dc_status status = dc_onnx_update(view.buf, (uint64_t)view.len, self->graph, &bytes, &n);
  PyBuffer_Release(&view);
  RAISE_IF(state_of((PyObject *)self), status);
  PyObject *out = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)n);
  free(bytes);
  return out;
}

PyObject *core_parse(PyObject *module, PyObject *text) {
  module_state *state = PyModule_GetState(module);
  const char *s = PyUnicode_AsUTF8(text);
  dc_graph *graph;
  if (!s) return NULL;
  RAISE_IF(state, dc_graph_parse(s, &graph));
  return wrap_graph(state, graph, NULL);
}

PyObject *core_import_onnx(PyObject *module, PyObject *args) {
  module_state *state = PyModule_GetState(module);
  Py_buffer bytes;
  const char *base_dir = NULL;
  int as_params = 0;
  dc_graph *graph;
  dc_session *session = session_of(state);
  if (!session || !PyArg_ParseTuple(args, "y*|zp", &bytes, &base_dir, &as_params)) return NULL;
  dc_status status = dc_onnx_import(session->ops, bytes.buf, (uint64_t)bytes.len, base_dir, as_params, &graph);
  PyBuffer_Release(&bytes);
  RAISE_IF(state, status);
  dc_ops_seed(session->ops, graph);
  return wrap_graph(state, graph, NULL);
}

static PyMethodDef methods[] = {
    {"add_input", (PyCFunction)graph_add_input, METH_VARARGS,
     "add_input(name, dtype, shape) -> name. dtype: ONNX element type; shape: integers and symbol names."},
    {"add_array", (PyCFunction)graph_add_array, METH_VARARGS,
     "add_array(name, dtype, shape, transient) -> name. What is not transient is given at each call, and may be written in place; "
     "'__return' is a result."},
    {"add_param", (PyCFunction)graph_add_param, METH_VARARGS, "add_param(name, dtype, shape) -> name. A weight, given at each call."},
    {"add_const", (PyCFunction)graph_add_const, METH_VARARGS, "add_const(name, array) -> name. Data fixed in the graph."},
    {"add_node", (PyCFunction)(void (*)(void))graph_add_node, METH_VARARGS | METH_KEYWORDS,
     "add_node(op, inputs, outputs, attrs={}, domain='', name='', opset=the graph's) -> names. outputs: a count or wanted names; an absent "
     "input is None."},
    {"set_attribute", (PyCFunction)graph_set_attribute, METH_VARARGS,
     "set_attribute(id, name, value): an attribute of an operator; None: without it."},
    {"mark_output", (PyCFunction)graph_mark_output, METH_O, "mark_output(name): also a result of the graph."},
    {"exchange_output", (PyCFunction)graph_exchange_output, METH_VARARGS, "exchange_output(old, new): new is a result in its place."},
    {"info", (PyCFunction)graph_info, METH_O, "info(name) -> (dtype, shape, role)."},
    {"data", (PyCFunction)graph_data, METH_O, "data(name) -> numpy array of a constant's or an initial weight's contents, or None."},
    {"set_data", (PyCFunction)graph_set_data, METH_VARARGS, "set_data(name, array): initial contents of a weight; None: without any."},
    {"fix", (PyCFunction)graph_fix, METH_VARARGS, "fix(name, array): a weight becomes a constant of these contents, which are copied."},
    {"add_symbol", (PyCFunction)graph_add_symbol, METH_VARARGS,
     "add_symbol(name, least=0): an integer that shapes, ranges and code may name."},
    {"layout", (PyCFunction)graph_layout, METH_O,
     "layout(name) -> (strides in elements, or None for row-major; whether it is in registers; whether it is a result)."},
    {"device", (PyCFunction)graph_device, METH_O, "device(name) -> \"cpu\" or \"cuda\": where an array lies."},
    {"set_device", (PyCFunction)graph_set_device, METH_VARARGS, "set_device(name, \"cpu\" or \"cuda\")."},
    {"set_layout", (PyCFunction)graph_set_layout, METH_VARARGS, "set_layout(name, strides, in_registers)."},
    {"set_transient", (PyCFunction)graph_set_transient, METH_VARARGS,
     "set_transient(name, transient): an argument becomes a value inside a call, or the other way round."},
    {"turn_input", (PyCFunction)graph_turn_input, METH_VARARGS,
     "turn_input(name, order) -> the name of the input in its place, which is given with its axes in this order."},
    {"remove", (PyCFunction)graph_remove, METH_O, "remove(name): a container that nobody uses."},
    {"unused", (PyCFunction)graph_unused, METH_NOARGS, "unused() -> names of values and constants that no node uses."},
    {"rename", (PyCFunction)graph_rename, METH_VARARGS, "rename(name, new): a container or a symbol."},
    {"add_state", (PyCFunction)graph_add_state, METH_VARARGS, "add_state(name, at=last) -> its position."},
    {"remove_state", (PyCFunction)graph_remove_state, METH_O, "remove_state(position)."},
    {"nodes", (PyCFunction)graph_nodes, METH_VARARGS, "nodes(state=0) -> [(id, kind, label, reads, writes)]."},
    {"flow", (PyCFunction)graph_flow, METH_VARARGS,
     "flow(state=0) -> Flow: the flat view of a state; the same object as long as one is held."},
    {"inline", (PyCFunction)graph_inline, METH_VARARGS,
     "inline(state, inner, {inner name: (name, subset or None)}, {symbol: expression}): appends what a graph does, on parts of this one's "
     "containers."},
    {"operators", (PyCFunction)graph_operators, METH_VARARGS,
     "operators(inside=False) -> [(id, op, domain, opset, description, inputs, outputs, known)] of the library nodes, with `inside` also "
     "of those "
     "in maps; '' is absent."},
    {"attributes", (PyCFunction)graph_attributes, METH_O,
     "attributes(id) -> {name: value} of an operator; a subgraph is (Graph, names of the values that its last inputs stand for)."},
    {"wish", (PyCFunction)graph_wish, METH_O, "wish(id) -> the implementation that an operator's node asks for, or None."},
    {"replace", (PyCFunction)graph_replace, METH_VARARGS,
     "replace(id, graph, {name: name}): puts the contents of another graph in the place of an operator; arrays by name inside -> name "
     "here."},
    {"segment", (PyCFunction)graph_segment, METH_VARARGS,
     "segment(nodes, inputs, outputs) -> Graph of these nodes. inputs: (name, dtype, shape or None); names are kept."},
    {"text", (PyCFunction)graph_text, METH_NOARGS, "text() -> the text form, which parse() reads back."},
    {"clone", (PyCFunction)graph_clone, METH_NOARGS, "clone() -> Graph"},
    {"run_pass", (PyCFunction)graph_run_pass, METH_O,
     "run_pass(name): runs a pass and verifies; there are"
#define PASS(name, with_operators, run, kind, summary) " " #name
#include "passes/passes.def"
     "."},
    {"apply", (PyCFunction)graph_apply, METH_VARARGS,
     "apply(call, node_ids=None, names=None) -> the number of places where it applied; the call is a name with options in parentheses."},
    {"add_backward", (PyCFunction)graph_add_backward, METH_VARARGS,
     "add_backward(state, outputs, wrt): adds the gradients of a state's values as a state."},
    {"order_states", (PyCFunction)graph_order_states, METH_O, "order_states(positions): states run in this order."},
    {"uses_symbol", (PyCFunction)graph_uses_symbol, METH_O,
     "uses_symbol(name) -> whether nodes or shapes do; loops around states leave theirs unused."},
    {"enclose", (PyCFunction)graph_enclose, METH_VARARGS,
     "enclose(positions, symbol=None): what states hold becomes the body of the empty map at the end of the first; a symbol is its "
     "parameter there."},
    {"append", (PyCFunction)graph_append, METH_VARARGS,
     "append(state, text): parses symbols, temps, inputs, maps, statements and operators, in the names of the graph, and puts them at the "
     "end of a state."},
    {"border", (PyCFunction)graph_border, METH_VARARGS,
     "border(id, required, given) -> (id, outputs, their gradients, gradients of inputs): room for a gradient of an operator; replace(id, "
     "...) states it."},
    {"become", (PyCFunction)graph_become, METH_O, "become(graph): exchanges the contents of two graphs."},
    {"differentiate", (PyCFunction)graph_differentiate, METH_VARARGS,
     "differentiate(wrt, prepare) -> Graph of the gradients; this one keeps what it needs."},
    {"sizes", (PyCFunction)graph_sizes, METH_VARARGS, "sizes(set, given) -> {symbol: value}, one of twelve choices."},
    {"sample", (PyCFunction)graph_sample, METH_VARARGS, "sample(name, sizes, seed) -> array of random data for an input."},
    {"kernel", (PyCFunction)graph_kernel, METH_O,
     "kernel(node_id) -> text of the kernel that a map or tasklet becomes, before its passes."},
    {"verify", (PyCFunction)graph_verify, METH_NOARGS, "verify(): raises ModelError if a rule of the IR is broken."},
    {"update_onnx", (PyCFunction)graph_update_onnx, METH_O,
     "update_onnx(bytes) -> the model that the graph was imported from, with the weights as they are now."},
    {"to_onnx", (PyCFunction)graph_to_onnx, METH_NOARGS, "to_onnx() -> bytes of a ModelProto."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef properties[] = {
    {"inputs", (getter)get_inputs, NULL, "names of the inputs, in call order", NULL},
    {"outputs", (getter)get_outputs, NULL, "names of the outputs", NULL},
    {"params", (getter)get_params, NULL, "names of the weights", NULL},
    {"symbols", (getter)graph_symbols, NULL, "{symbol: least value}", NULL},
    {"host_values", (getter)get_host_values, NULL, "names of the values that only the host holds", NULL},
    {"arrays", (getter)get_arrays, NULL, "names of all containers", NULL},
    {"name", (getter)get_name, (setter)set_graph_name, NULL, NULL},
    {"opset", (getter)get_opset, NULL, NULL, NULL},
    {"states", (getter)get_states, NULL, "names of the states, in order", NULL},
    {"n_states", (getter)get_n_states, NULL, NULL, NULL},
    {"has_drafts", (getter)get_has_drafts, NULL, "whether the view of some state was edited and not built", NULL},
    {"version", (getter)get_version, NULL, "another number after each change", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, graph_new}, {Py_tp_dealloc, graph_dealloc}, {Py_tp_methods, methods}, {Py_tp_getset, properties},
                              {Py_tp_str, graph_str}, {Py_tp_doc, "Graph(name, opset=21): a stateful dataflow graph."}, {0, NULL}};
PyType_Spec graph_spec = {"dcml._core.Graph", sizeof(GraphObject), 0, Py_TPFLAGS_DEFAULT, slots};
