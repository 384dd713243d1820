/* What runs a graph node by node needs of it: operators with their attributes and subgraphs, and
 * segments, which are copies of a graph that hold some of its nodes.
 *
 * Names identify values across these graphs; a segment keeps the names of the graph it is cut from. */
#include <string.h>

#include "ir/replace.h"
#include "ir/inside.h"
#include "python/binding.h"

static PyObject *text_of(const char *s, uint64_t n) { return PyUnicode_DecodeUTF8(s, (Py_ssize_t)n, "surrogateescape"); }

static PyObject *string_list(const dc_string *strings, uint64_t n) {
  PyObject *list = PyList_New((Py_ssize_t)n);
  for (uint64_t k = 0; list && k < n; k++) {
    PyObject *item = text_of(strings[k].s, strings[k].n);
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, (Py_ssize_t)k, item);
  }
  return list;
}

/* An array of objects: an empty list of strings would otherwise become one of floats. */
static PyObject *string_array(const dc_graph *graph, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  int64_t dims[DC_MAX_RANK];
  if (!dc_container_dims(graph, c, dims)) Py_RETURN_NONE;
  PyObject *shape = PyTuple_New(k->rank), *numpy = PyImport_ImportModule("numpy");
  for (uint32_t d = 0; shape && d < k->rank; d++) PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(dims[d]));
  PyObject *list = numpy && shape ? string_list(k->data, k->data_bytes / sizeof(dc_string)) : NULL;
  PyObject *flat = list ? PyObject_CallMethod(numpy, "array", "Os", list, "O") : NULL;
  PyObject *array = flat ? PyObject_CallMethod(flat, "reshape", "(O)", shape) : NULL;
  Py_XDECREF(flat);
  Py_XDECREF(list);
  Py_XDECREF(numpy);
  Py_XDECREF(shape);
  return array;
}

PyObject *container_array(module_state *state, const dc_graph *graph, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  dc_array shape = {.dtype = (dc_dtype)k->dtype, .rank = k->rank};
  void *data;
  if (k->dtype == DC_STRING && k->data) return string_array(graph, c);
  if (!k->data || !dc_container_dims(graph, c, shape.dims)) Py_RETURN_NONE;
  PyObject *array = new_tensor(state, &shape, false, &data);
  if (array) memcpy(data, k->data, k->data_bytes);
  return array;
}

/* ---- nodes ---- */

static PyObject *value_names(const dc_graph *graph, const dc_cid *ids, uint32_t n) {
  PyObject *names = PyTuple_New(n);
  for (uint32_t k = 0; names && k < n; k++) PyTuple_SET_ITEM(names, k, name_object(ids[k] ? dc_cont_name(graph, ids[k]) : ""));
  return names;
}

static PyObject *operator_tuple(dc_session *session, dc_graph *g, dc_nid id) {
  const dc_library *lib = &dc_node_at(g, id)->lib;
  const char *op = dc_name_text(&g->names, lib->op), *domain = dc_name_text(&g->names, lib->domain);
  bool known = dc_ops_find(session->ops, domain, op, lib->since) != NULL;
  PyObject *in = value_names(g, lib->in, lib->n_in), *out = in ? value_names(g, lib->out, lib->n_out) : NULL;
  if (!out) {
    Py_XDECREF(in);
    return NULL;
  }
  return Py_BuildValue("(INNiNNNO)", id, name_object(op), name_object(domain), lib->since, name_object(dc_node_describe(g, id)), in, out,
                       known ? Py_True : Py_False);
}

static bool add_operators(dc_session *session, dc_graph *graph, dc_scope scope, uint32_t depth, PyObject *list) {
  for (uint32_t k = 0; k < scope.n; k++) {
    const dc_node *node = dc_node_at(graph, scope.v[k]);
    if (node->kind == DC_NODE_MAP && depth && !add_operators(session, graph, node->map.body, depth - 1, list)) return false;
    if (node->kind != DC_NODE_LIBRARY) continue;
    PyObject *item = operator_tuple(session, graph, scope.v[k]);
    bool good = item && !PyList_Append(list, item);
    Py_XDECREF(item);
    if (!good) return false;
  }
  return true;
}

PyObject *graph_operators(GraphObject *self, PyObject *args) {
  int inside = 0;
  if (!PyArg_ParseTuple(args, "|p", &inside)) return NULL;
  dc_session *session = session_of(state_of((PyObject *)self));
  PyObject *list = session ? PyList_New(0) : NULL;
  for (uint32_t s = 0; list && s < self->graph->states.n; s++)
    if (!add_operators(session, self->graph, self->graph->states.v[s].scope, inside ? DC_MAX_LOOPS : 0, list)) Py_CLEAR(list);
  return list;
}

static PyObject *number_list(const dc_attr *a) {
  PyObject *list = PyList_New(a->n);
  for (uint32_t k = 0; list && k < a->n; k++) {
    PyObject *item = a->kind == DC_ATTR_INTS     ? PyLong_FromLongLong(a->ints[k])
                     : a->kind == DC_ATTR_FLOATS ? PyFloat_FromDouble(a->floats[k])
                                                 : text_of(a->strings[k], strlen(a->strings[k]));
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, k, item);
  }
  return list;
}

static dc_graph *share_graph(dc_graph *graph) {
  __atomic_add_fetch(&graph->references, 1, __ATOMIC_RELAXED);
  return graph;
}

static PyObject *subgraph_pair(GraphObject *self, uint32_t k) {
  dc_graph *graph = self->graph->subgraphs.v[k];
  PyObject *captures = value_names(self->graph, graph->captures.v, graph->captures.n);
  /* The graph around is kept, and not this handle, which may get another one (become). */
  if (!captures) return NULL;
  dc_graph *kept = self->owner ? self->graph : share_graph(self->graph);
  PyObject *around = wrap_graph(state_of((PyObject *)self), kept, self->owner);
  PyObject *handle = around ? wrap_graph(state_of((PyObject *)self), graph, around) : NULL;
  Py_XDECREF(around);
  return handle ? Py_BuildValue("(NN)", handle, captures) : NULL;
}

static PyObject *attribute_value(GraphObject *self, const dc_attr *a) {
  switch ((dc_attr_kind)a->kind) {
    case DC_ATTR_INT: return PyLong_FromLongLong(a->i);
    case DC_ATTR_FLOAT: return PyFloat_FromDouble(a->f);
    case DC_ATTR_STRING: return text_of(a->s, a->n);
    case DC_ATTR_TENSOR: return container_array(state_of((PyObject *)self), self->graph, (dc_cid)a->i);
    case DC_ATTR_GRAPH: return subgraph_pair(self, (uint32_t)a->i);
    default: return number_list(a);
  }
}

const dc_library *library_at(GraphObject *self, unsigned long k) {
  bool good = k && k < self->graph->nodes.n && dc_node_at(self->graph, (dc_nid)k)->kind == DC_NODE_LIBRARY;
  if (!good) PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "%lu is no operator of the graph", k);
  return good ? &dc_node_at(self->graph, (dc_nid)k)->lib : NULL;
}

int check_in_state(GraphObject *self, const dc_graph *graph, unsigned long id) {
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++)
      if (graph->states.v[s].scope.v[k] == id) return 0;
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "there is no node %lu in a state of graph '%s'", id,
               dc_name_text(&graph->names, graph->name));
  return -1;
}

PyObject *graph_attributes(GraphObject *self, PyObject *id) {
  unsigned long k = PyLong_AsUnsignedLong(id);
  const dc_library *lib = PyErr_Occurred() ? NULL : library_at(self, k);
  PyObject *dict = lib ? PyDict_New() : NULL;
  for (uint32_t k = 0; dict && k < lib->n_attr; k++) {
    PyObject *value = attribute_value(self, &lib->attr[k]), *name = name_object(dc_name_text(&self->graph->names, lib->attr[k].name));
    if (!value || !name || PyDict_SetItem(dict, name, value)) Py_CLEAR(dict);
    Py_XDECREF(name);
    Py_XDECREF(value);
  }
  return dict;
}

/* ---- replacing ---- */

PyObject *graph_wish(GraphObject *self, PyObject *id) {
  unsigned long k = PyLong_AsUnsignedLong(id);
  if (PyErr_Occurred() || !library_at(self, k)) return NULL;
  const char *wish = dc_node_wish(self->graph, (dc_nid)k);
  return wish ? text_of(wish, strlen(wish)) : Py_NewRef(Py_None);
}

/* map[c] of dc_node_replace from names, into the graph's arena; NULL with an exception. */
static dc_cid *stand_ins(GraphObject *self, const dc_graph *inner, PyObject *names) {
  module_state *state = state_of((PyObject *)self);
  dc_cid *map = DC_NEW_ARRAY(&self->graph->arena, dc_cid, inner->containers.n);
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(names, &at, &key, &value)) {
    const char *from = PyUnicode_AsUTF8(key), *to = from ? PyUnicode_AsUTF8(value) : NULL;
    dc_cid a = to ? dc_container_find(inner, from) : 0, b = to ? dc_container_find(self->graph, to) : 0;
    if (!to) return NULL;
    if (!b) return PyErr_Format(state->errors[DC_ERR_VALUE], "there is no array '%s' to stand for '%s'", to, from), NULL;
    if (a) map[a] = b;
  }
  return map;
}

PyObject *graph_replace(GraphObject *self, PyObject *args) {
  unsigned id;
  PyObject *names;
  GraphObject *inner;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "O&O!O!", read_id, &id, state->graph_type, &inner, &PyDict_Type, &names) || !library_at(self, id))
    return NULL;
  if (inner->graph == self->graph) return PyErr_Format(state->errors[DC_ERR_VALUE], "a graph cannot replace a node of itself");
  dc_cid *map = stand_ins(self, inner->graph, names);
  if (!map) return NULL;
  const char *node = dc_node_describe(self->graph, id);
  self->version++, self->edits++;
  RAISE_IF(state, dc_error_at(dc_node_replace(self->graph, id, inner->graph, map), "%s: what is to replace it", node));
  Py_RETURN_NONE;
}

/* ---- segments ---- */

/* What was given becomes undefined, for a segment defines its own inputs; strings and complex numbers may come as places in a table. */
static void forget_roles(dc_graph *g) {
  for (dc_cid c = 1; c < g->containers.n; c++) {
    dc_container *k = dc_cont(g, c);
    k->is_output = false, k->known = NULL, k->known_count = 0;
    if (k->role == DC_ROLE_CONST) continue;
    k->role = DC_ROLE_TEMP, k->data = NULL;
    if (k->dtype == DC_STRING || k->dtype == DC_C64 || k->dtype == DC_C128) k->dtype = DC_NOTYPE, k->shape = NULL, k->rank = 0;
  }
  g->inputs.n = g->outputs.n = g->captures.n = 0;
}

static int set_input(module_state *state, dc_graph *g, PyObject *item) {
  const char *name;
  int type;
  PyObject *shape;
  dc_ex *dims = NULL;
  uint32_t rank = 0;
  if (!PyTuple_Check(item)) return PyErr_SetString(PyExc_TypeError, "an input is a tuple (name, dtype, shape or None)"), -1;
  if (!PyArg_ParseTuple(item, "siO", &name, &type, &shape)) return -1;
  if (shape != Py_None && parse_shape(state, g, shape, &dims, &rank)) return -1;
  dc_cid c = dc_container_find(g, name);
  if (!c || type <= 0 || type >= DC_DTYPE_COUNT) {
    PyErr_Format(state->errors[DC_ERR_VALUE], "'%s' is no value of the graph, or %d no type", name, type);
    return -1;
  }
  dc_container *k = dc_cont(g, c);
  k->role = DC_ROLE_INPUT, k->dtype = (uint8_t)type, k->shape = dims, k->rank = rank, k->data = NULL;
  DC_PUSH(&g->arena, &g->inputs, c);
  return 0;
}

static int set_output(module_state *state, dc_graph *g, PyObject *item) {
  const char *name = PyUnicode_AsUTF8(item);
  dc_cid c = name ? dc_container_find(g, name) : 0;
  if (name && !c) PyErr_Format(state->errors[DC_ERR_VALUE], "'%s' is no value of the graph", name);
  if (c) dc_graph_mark_output(g, c);
  return c ? 0 : -1;
}

static int for_each(module_state *state, dc_graph *g, PyObject *sequence, int (*act)(module_state *, dc_graph *, PyObject *)) {
  PyObject *items = PySequence_Fast(sequence, "expected a sequence");
  int failed = items ? 0 : -1;
  for (Py_ssize_t k = 0; !failed && k < PySequence_Fast_GET_SIZE(items); k++) failed = act(state, g, PySequence_Fast_GET_ITEM(items, k));
  Py_XDECREF(items);
  return failed;
}

/* The nodes by id, in place of what the states hold; 0, or -1 with an exception. */
static int keep_nodes(GraphObject *self, dc_graph *g, PyObject *sequence) {
  dc_scope kept = {0};
  PyObject *items = PySequence_Fast(sequence, "expected a sequence of nodes");
  for (Py_ssize_t k = 0; items && k < PySequence_Fast_GET_SIZE(items); k++) {
    unsigned long id = PyLong_AsUnsignedLong(PySequence_Fast_GET_ITEM(items, k));
    /* Others may be inside a map. */
    bool is_operator = !PyErr_Occurred() && id && id < g->nodes.n && dc_node_at(g, (dc_nid)id)->kind == DC_NODE_LIBRARY;
    if (PyErr_Occurred() || (!is_operator && check_in_state(self, g, id))) Py_CLEAR(items);
    else dc_scope_push(g, &kept, (dc_nid)id);
  }
  dc_graph_scope(g); /* there is a state */
  g->states.n = 1, g->states.v[0].scope = kept;
  Py_XDECREF(items);
  return items ? 0 : -1;
}

/* Passes leave graphs with bodies alone, since these may read any value: they go if no node that stays has one. */
static void drop_bodies(dc_graph *g) {
  const dc_scope *scope = dc_graph_scope(g);
  for (uint32_t k = 0; k < scope->n; k++) {
    const dc_node *node = dc_node_at(g, scope->v[k]);
    for (uint32_t a = 0; node->kind == DC_NODE_LIBRARY && a < node->lib.n_attr; a++)
      if (node->lib.attr[a].kind == DC_ATTR_GRAPH) return;
  }
  for (uint32_t k = 0; k < g->subgraphs.n; k++) dc_graph_destroy(g->subgraphs.v[k]);
  g->subgraphs.n = 0;
}

PyObject *graph_segment(GraphObject *self, PyObject *args) {
  PyObject *nodes, *inputs, *outputs;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "OOO", &nodes, &inputs, &outputs)) return NULL;
  dc_graph *g = dc_graph_clone(self->graph);
  forget_roles(g);
  if (keep_nodes(self, g, nodes) || for_each(state, g, inputs, set_input) || for_each(state, g, outputs, set_output)) {
    dc_graph_destroy(g);
    return NULL;
  }
  drop_bodies(g);
  return wrap_graph(state, g, NULL);
}

/* ---- states ---- */

/* Positions of states, none of them twice; their number, or -1 with an exception. */
static Py_ssize_t read_states(GraphObject *self, PyObject *list, uint32_t *out) {
  module_state *state = state_of((PyObject *)self);
  const dc_graph *g = self->graph;
  Py_ssize_t n = PyList_GET_SIZE(list);
  for (Py_ssize_t k = 0; k < n; k++) {
    unsigned long at = PyLong_AsUnsignedLong(PyList_GET_ITEM(list, k));
    if (PyErr_Occurred()) return -1;
    bool good = k < (Py_ssize_t)g->states.n && at < g->states.n;
    for (Py_ssize_t j = 0; j < k && good; j++) good = out[j] != at;
    if (!good) return PyErr_Format(state->errors[DC_ERR_VALUE], "state %lu: expected positions of states, each once", at), -1;
    out[k] = (uint32_t)at;
  }
  return n;
}

PyObject *graph_order_states(GraphObject *self, PyObject *list) {
  dc_graph *g = self->graph;
  if (!PyList_Check(list)) return PyErr_Format(PyExc_TypeError, "expected a list of positions");
  uint32_t *order = DC_NEW_ARRAY(&g->arena, uint32_t, g->states.n + 1);
  Py_ssize_t n = read_states(self, list, order);
  if (n < 0) return NULL;
  if (n != (Py_ssize_t)g->states.n)
    return PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "expected the positions of all states");
  if (flows_order(self, order)) return NULL;
  dc_state *states = dc_arena_copy(&g->arena, g->states.v, (size_t)n * sizeof *states);
  for (Py_ssize_t k = 0; k < n; k++) g->states.v[k] = states[order[k]];
  self->version++;
  Py_RETURN_NONE;
}

PyObject *graph_enclose(GraphObject *self, PyObject *args) {
  PyObject *list;
  const char *name = NULL;
  module_state *state = state_of((PyObject *)self);
  dc_graph *g = self->graph;
  if (!PyArg_ParseTuple(args, "O!|z", &PyList_Type, &list, &name)) return NULL;
  uint32_t *states = DC_NEW_ARRAY(&g->arena, uint32_t, g->states.n + 1);
  Py_ssize_t n = read_states(self, list, states);
  if (n < 0) return NULL;
  dc_sym symbol = name ? dc_symbol_find(&g->pool, name) : 0;
  if (!n || (name && !symbol)) return PyErr_Format(state->errors[DC_ERR_VALUE], "there is no symbol '%s', or no state", name ? name : "");
  self->version++, self->edits++;
  RAISE_IF(state, dc_states_enclose(g, states, (uint32_t)n, symbol));
  Py_RETURN_NONE;
}

PyObject *graph_uses_symbol(GraphObject *self, PyObject *object) {
  const char *name = PyUnicode_AsUTF8(object);
  dc_sym symbol = name ? dc_symbol_find(&self->graph->pool, name) : 0;
  return name ? PyBool_FromLong(symbol && dc_graph_uses_symbol(self->graph, symbol)) : NULL;
}
