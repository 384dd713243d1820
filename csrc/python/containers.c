/* What programs that are written by hand need of a graph besides nodes: arrays with their layout, symbols, states, and
 * the words of the expression language.
 *
 * Names identify containers, positions identify states. */
#include <string.h>

#include "ir/lexer.h"
#include "python/binding.h"

static PyObject *fail_value(GraphObject *self, const char *format, const char *name) {
  return PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], format, dc_name_text(&self->graph->names, self->graph->name), name);
}

static dc_cid container_named(GraphObject *self, const char *name) {
  dc_cid c = name ? dc_container_find(self->graph, name) : 0;
  if (name && !c) fail_value(self, "graph '%s' has no container '%s'", name);
  return c;
}

/* ---- sizes ---- */

static dc_status parse_all(dc_parser *p, dc_ex *out) {
  DC_TRY(dc_parser_next(p));
  DC_TRY(dc_parser_expr(p, out));
  if (p->token.kind != TOK_END) return dc_parser_fail(p, "the end of the size");
  if (dc_ex_dtype(&p->graph->pool, *out) != DC_I64 || dc_ex_uses_op(&p->graph->pool, *out, DC_EX_READ))
    return dc_parser_fail(p, "an integer of symbols");
  return DC_OK;
}

/* An expression of symbols that the graph has. */
dc_status parse_size(dc_graph *graph, const char *text, dc_ex *out) {
  dc_arena scratch = {0};
  dc_parser *p = DC_NEW(&scratch, dc_parser);
  p->start = p->at = text, p->scratch = &scratch, p->graph = graph;
  dc_status status = parse_all(p, out);
  dc_arena_free(&scratch);
  return dc_error_at(status, "size '%s'", text);
}

PyObject *graph_add_symbol(GraphObject *self, PyObject *args) {
  self->version++;
  const char *name;
  long long least = 0;
  if (!PyArg_ParseTuple(args, "s|L", &name, &least)) return NULL;
  if (dc_container_find(self->graph, name)) return fail_value(self, "graph '%s' has a container '%s': a symbol needs another name", name);
  dc_symbol_get(&self->graph->pool, name, least);
  Py_RETURN_NONE;
}

/* ---- containers ---- */

static int set_strides(GraphObject *self, dc_cid c, PyObject *strides) {
  dc_ex *values;
  uint32_t n;
  module_state *state = state_of((PyObject *)self);
  if (strides == Py_None) return dc_cont(self->graph, c)->strides = NULL, 0;
  if (parse_shape(state, self->graph, strides, &values, &n)) return -1;
  if (n == dc_cont(self->graph, c)->rank) return dc_cont(self->graph, c)->strides = values, 0;
  PyErr_Format(state->errors[DC_ERR_SHAPE], "'%s' has %u dimensions, and %u strides", dc_cont_name(self->graph, c),
               dc_cont(self->graph, c)->rank, n);
  return -1;
}

PyObject *graph_set_layout(GraphObject *self, PyObject *args) {
  self->version++;
  const char *name;
  PyObject *strides;
  int is_register;
  if (!PyArg_ParseTuple(args, "sOp", &name, &strides, &is_register)) return NULL;
  dc_cid c = container_named(self, name);
  if (!c || set_strides(self, c, strides)) return NULL;
  dc_cont(self->graph, c)->storage = is_register ? DC_STORE_REGISTER : DC_STORE_HEAP;
  Py_RETURN_NONE;
}

static PyObject *size_object(const dc_graph *graph, dc_ex e) {
  int64_t number;
  dc_text text = {0};
  if (dc_ex_is_int(&graph->pool, e, &number)) return PyLong_FromLongLong(number);
  dc_ex_print(graph, e, &text);
  PyObject *out = name_object(text.s ? text.s : "");
  dc_text_free(&text);
  return out;
}

PyObject *graph_layout(GraphObject *self, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  dc_cid c = container_named(self, text);
  if (!c) return NULL;
  const dc_container *k = dc_cont(self->graph, c);
  PyObject *strides = k->strides ? PyTuple_New(k->rank) : Py_NewRef(Py_None);
  for (uint32_t d = 0; strides && k->strides && d < k->rank; d++) PyTuple_SET_ITEM(strides, d, size_object(self->graph, k->strides[d]));
  return strides ? Py_BuildValue("(NOO)", strides, k->storage == DC_STORE_REGISTER ? Py_True : Py_False, k->is_output ? Py_True : Py_False)
                 : NULL;
}

PyObject *graph_device(GraphObject *self, PyObject *name) {
  dc_cid c = container_named(self, PyUnicode_AsUTF8(name));
  return c ? PyUnicode_FromString(dc_cont(self->graph, c)->device == DC_CUDA ? "cuda" : "cpu") : NULL;
}

/* What only the host can hold stays there. */
PyObject *graph_set_device(GraphObject *self, PyObject *args) {
  const char *name, *device;
  if (!PyArg_ParseTuple(args, "ss", &name, &device)) return NULL;
  bool is_cuda = strcmp(device, "cuda") == 0;
  dc_cid c = container_named(self, name);
  if (!c) return NULL;
  dc_container *k = dc_cont(self->graph, c);
  if (!is_cuda && strcmp(device, "cpu") != 0)
    return PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_DEVICE], "array '%s': there is no device '%s'; there are cpu and cuda",
                        name, device);
  if (is_cuda && (k->is_host || k->dtype == DC_STRING))
    return PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_DEVICE], "'%s' is no array of numbers: only the host can hold it", name);
  self->version += k->device != (is_cuda ? DC_CUDA : DC_HOST);
  k->device = is_cuda ? DC_CUDA : DC_HOST;
  Py_RETURN_NONE;
}

static void drop(dc_cid *ids, uint32_t *n, dc_cid c) {
  uint32_t kept = 0;
  for (uint32_t k = 0; k < *n; k++)
    if (ids[k] != c) ids[kept++] = ids[k];
  *n = kept;
}

/* Arguments become values of a call's own and the other way round. */
PyObject *graph_set_transient(GraphObject *self, PyObject *args) {
  self->version++;
  const char *name;
  int transient;
  if (!PyArg_ParseTuple(args, "sp", &name, &transient)) return NULL;
  dc_cid c = container_named(self, name);
  if (!c) return NULL;
  dc_container *k = dc_cont(self->graph, c);
  bool is_given = k->role == DC_ROLE_INPUT;
  if (k->role != DC_ROLE_TEMP && !is_given) return fail_value(self, "graph '%s': '%s' is a weight or a constant", name);
  if (is_given == !transient) Py_RETURN_NONE;
  k->role = transient ? DC_ROLE_TEMP : DC_ROLE_INPUT;
  if (transient) drop(self->graph->inputs.v, &self->graph->inputs.n, c);
  else DC_PUSH(&self->graph->arena, &self->graph->inputs, c);
  Py_RETURN_NONE;
}

/* What the argument is turned back by: a node before all others. */
static void put_transpose_first(dc_graph *graph, dc_cid from, dc_cid to, const int64_t *perm, uint32_t n) {
  dc_attr attr = dc_attr_ints(graph, "perm", perm, n);
  dc_scope *scope = dc_graph_scope(graph);
  dc_scope_push(graph, scope, dc_node_library(graph, "Transpose", "", graph->opset, &from, 1, &to, 1, &attr, 1));
  dc_nid last = scope->v[scope->n - 1];
  memmove(scope->v + 1, scope->v, (scope->n - 1) * sizeof *scope->v);
  scope->v[0] = last;
}

PyObject *graph_turn_input(GraphObject *self, PyObject *args) {
  self->version++;
  const char *name;
  PyObject *list;
  if (!PyArg_ParseTuple(args, "sO!", &name, &PyTuple_Type, &list)) return NULL;
  dc_cid c = container_named(self, name);
  if (!c) return NULL;
  dc_graph *graph = self->graph;
  const dc_container k = *dc_cont(graph, c);
  if (k.role != DC_ROLE_INPUT || !k.shape) return fail_value(self, "graph '%s': '%s' is no input of known extents", name);
  dc_ex shape[DC_MAX_RANK];
  int64_t perm[DC_MAX_RANK];
  for (uint32_t d = 0; d < k.rank; d++) perm[d] = -1;
  bool orders = PyTuple_GET_SIZE(list) == k.rank;
  for (uint32_t d = 0; orders && d < k.rank; d++) {
    const Py_ssize_t axis = PyLong_AsSsize_t(PyTuple_GET_ITEM(list, d));
    orders = axis >= 0 && axis < (Py_ssize_t)k.rank && perm[axis] < 0;
    if (orders) perm[axis] = d, shape[d] = k.shape[axis];
  }
  if (PyErr_Occurred()) return NULL;
  if (!orders) return fail_value(self, "graph '%s': expected each axis of '%s' once", name);
  const char *given = dc_arena_printf(&graph->arena, "%s_as_it_lies", name);
  dc_cid to = dc_container_add(graph, given, (dc_dtype)k.dtype, k.rank, shape, DC_ROLE_INPUT);
  graph->inputs.n--;
  for (uint32_t j = 0; j < graph->inputs.n; j++)
    if (graph->inputs.v[j] == c) graph->inputs.v[j] = to;
  dc_cont(graph, c)->role = DC_ROLE_TEMP;
  put_transpose_first(graph, to, c, perm, k.rank);
  return PyUnicode_FromString(dc_cont_name(graph, to));
}

typedef struct {
  dc_cid wanted;
  bool found;
} search;

static void see_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  search *s = context;
  (void)use, (void)by;
  s->found |= c == s->wanted;
}

/* The first node that uses a container, 0 if none does. */
static dc_nid user_of(const dc_graph *graph, dc_cid c) {
  search s = {c, false};
  for (uint32_t k = 0; k < graph->states.n; k++)
    for (uint32_t n = 0; n < graph->states.v[k].scope.n; n++) {
      dc_node_uses(graph, graph->states.v[k].scope.v[n], see_use, &s);
      if (s.found) return graph->states.v[k].scope.v[n];
    }
  return 0;
}

PyObject *graph_remove(GraphObject *self, PyObject *name) {
  self->version++;
  const char *text = PyUnicode_AsUTF8(name);
  dc_graph *g = self->graph;
  dc_cid c = container_named(self, text);
  if (!c) return NULL;
  dc_nid user = user_of(g, c);
  for (dc_cid k = 1; k < g->containers.n && !user; k++)
    if (dc_cont(g, k)->alias_of == c) return fail_value(self, "graph '%s': other arrays view '%s'", text);
  if (user)
    return PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "'%s' cannot be removed: %s uses it", text,
                        dc_node_describe(g, user));
  drop(g->inputs.v, &g->inputs.n, c);
  drop(g->outputs.v, &g->outputs.n, c);
  dc_container_forget(g, c);
  Py_RETURN_NONE;
}

/* Ids of the containers that some node uses, by name: for who drops the others. */
static void mark_use(void *context, dc_cid c, dc_use use, dc_nid by) { (void)use, (void)by, ((bool *)context)[c] = true; }

PyObject *graph_unused(GraphObject *self, PyObject *unused) {
  const dc_graph *g = self->graph;
  bool *used = PyMem_Calloc(g->containers.n + 1, sizeof *used);
  PyObject *list = used ? PyList_New(0) : PyErr_NoMemory();
  (void)unused;
  for (uint32_t k = 0; used && k < g->states.n; k++)
    for (uint32_t n = 0; n < g->states.v[k].scope.n; n++) dc_node_uses(g, g->states.v[k].scope.v[n], mark_use, used);
  for (dc_cid c = 1; used && c < g->containers.n; c++) used[dc_cont(g, c)->alias_of] = true;
  for (dc_cid c = 1; list && c < g->containers.n; c++) {
    const dc_container *k = dc_cont(g, c);
    if (used[c] || k->is_output || !k->name || (k->role != DC_ROLE_TEMP && k->role != DC_ROLE_CONST)) continue;
    PyObject *name = name_object(dc_cont_name(g, c));
    if (!name || PyList_Append(list, name)) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  PyMem_Free(used);
  return list;
}

PyObject *graph_rename(GraphObject *self, PyObject *args) {
  self->version++;
  const char *from, *to;
  if (!PyArg_ParseTuple(args, "ss", &from, &to)) return NULL;
  dc_graph *g = self->graph;
  self->edits++; /* views say names */
  dc_sym symbol = dc_symbol_find(&g->pool, from);
  if (!*to || dc_container_find(g, to) || dc_symbol_find(&g->pool, to))
    return fail_value(self, "graph '%s' has a '%s' already, or it is no name", to);
  dc_cid c = symbol ? 0 : container_named(self, from);
  if (symbol) dc_symbol_rename(&g->pool, symbol, to);
  else if (c) dc_container_rename(g, c, to);
  else return NULL;
  Py_RETURN_NONE;
}

int set_graph_name(GraphObject *self, PyObject *value, void *unused) {
  const char *name = value ? PyUnicode_AsUTF8(value) : NULL;
  (void)unused;
  if (!value) PyErr_SetString(PyExc_AttributeError, "a graph has a name");
  if (!name) return -1;
  self->version++;
  self->graph->name = dc_name_intern(&self->graph->names, name);
  return 0;
}

/* ---- states ---- */

PyObject *get_states(GraphObject *self, void *unused) {
  const dc_graph *g = self->graph;
  PyObject *list = PyList_New(g->states.n);
  (void)unused;
  for (uint32_t k = 0; list && k < g->states.n; k++) PyList_SET_ITEM(list, k, name_object(dc_name_text(&g->names, g->states.v[k].name)));
  return list;
}

PyObject *graph_add_state(GraphObject *self, PyObject *args) {
  self->version++;
  const char *name;
  unsigned at = UINT32_MAX;
  if (!PyArg_ParseTuple(args, "s|O&", &name, read_id, &at)) return NULL;
  dc_graph *g = self->graph;
  if (flows_insert(self, at)) return NULL;
  dc_state_add(g, name);
  uint32_t last = g->states.n - 1;
  if (at >= last) return PyLong_FromUnsignedLong(last);
  dc_state made = g->states.v[last];
  memmove(g->states.v + at + 1, g->states.v + at, (last - at) * sizeof made);
  g->states.v[at] = made;
  return PyLong_FromUnsignedLong(at);
}

PyObject *graph_remove_state(GraphObject *self, PyObject *index) {
  self->version++;
  unsigned long at = PyLong_AsUnsignedLong(index);
  dc_graph *g = self->graph;
  if (PyErr_Occurred()) return NULL;
  if (at >= g->states.n)
    return PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "graph '%s' has no state %lu", dc_name_text(&g->names, g->name),
                        at);
  flows_remove(self, (uint32_t)at);
  g->states.n--;
  memmove(g->states.v + at, g->states.v + at + 1, (g->states.n - at) * sizeof *g->states.v);
  Py_RETURN_NONE;
}

/* ---- words of the language ---- */

PyObject *core_primitives(PyObject *module, PyObject *unused) {
  PyObject *dict = PyDict_New();
  (void)module, (void)unused;
  for (int k = 0; dict && k < DC_PRIM_COUNT; k++) {
    PyObject *arity = PyLong_FromLong(dc_prims[k].arity);
    if (!arity || PyDict_SetItemString(dict, dc_prims[k].name, arity)) Py_CLEAR(dict);
    Py_XDECREF(arity);
  }
  return dict;
}

PyObject *core_type_names(PyObject *module, PyObject *unused) {
  PyObject *list = PyList_New(DC_DTYPE_COUNT);
  (void)module, (void)unused;
  for (int k = 0; list && k < DC_DTYPE_COUNT; k++) PyList_SET_ITEM(list, k, name_object(dc_dtype_name((dc_dtype)k)));
  return list;
}
