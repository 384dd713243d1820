/* infer(): what one operator makes of types, shapes with symbols and known values.
 *
 * The one idea: a graph of that node alone, whose inputs are named as the operator's row names them, so that errors
 * speak of the operator and its inputs.  An extent or an element that nobody knows is a symbol of its own, whose name
 * begins with '?', and comes out as None. */
#include <string.h>

#include "python/binding.h"

static const int64_t ANY_NUMBER = -((int64_t)1 << 31); /* below what an element that is not known may be */

typedef struct {
  module_state *state;
  dc_graph *graph;
  const dc_row *row; /* or NULL */
  uint32_t unknown;  /* symbols made so far for what is not known */
} inference;

static dc_ex unknown_symbol(inference *in, int64_t least) {
  char name[16];
  PyOS_snprintf(name, sizeof name, "?%u", in->unknown++);
  return dc_ex_sym(&in->graph->pool, dc_symbol_get(&in->graph->pool, name, least));
}

/* An integer, a symbol's name, or None; least: what an unknown one is at least. */
static int number(inference *in, PyObject *item, int64_t least, dc_ex *out) {
  if (item == Py_None) return *out = unknown_symbol(in, least), 0;
  if (PyLong_Check(item)) {
    int64_t i = PyLong_AsLongLong(item);
    if (i == -1 && PyErr_Occurred()) return -1;
    if (i >= least || least < 0) return *out = dc_ex_int(&in->graph->pool, i), 0;
  }
  const char *name = PyUnicode_Check(item) ? PyUnicode_AsUTF8(item) : NULL;
  if (name && *name && *name != '?') return *out = dc_ex_sym(&in->graph->pool, dc_symbol_get(&in->graph->pool, name, least)), 0;
  if (!PyErr_Occurred()) PyErr_Format(in->state->errors[DC_ERR_SHAPE], "expected an extent: an integer, a name or None, got %R", item);
  return -1;
}

static int numbers(inference *in, PyObject *list, int64_t least, dc_ex **out, uint32_t *n) {
  PyObject *items = PySequence_Fast(list, "expected a sequence of extents");
  int failed = items ? 0 : -1;
  *n = items ? (uint32_t)PySequence_Fast_GET_SIZE(items) : 0;
  *out = DC_NEW_ARRAY(&in->graph->arena, dc_ex, *n);
  for (uint32_t k = 0; k < *n && !failed; k++) failed = number(in, PySequence_Fast_GET_ITEM(items, k), least, &(*out)[k]);
  Py_XDECREF(items);
  return failed;
}

static const char *input_name(const inference *in, uint32_t k) {
  const dc_row_arg *args;
  uint32_t n = in->row ? dc_row_inputs(in->row, &args) : 0;
  return k < n ? args[k].name : n && args[n - 1].variadic ? args[n - 1].name : "input";
}

static int know(inference *in, dc_cid c, PyObject *known) {
  dc_ex *values;
  uint32_t n;
  if (numbers(in, known, ANY_NUMBER, &values, &n)) return -1;
  dc_container *k = dc_cont(in->graph, c);
  int64_t dims[DC_MAX_RANK], count = 1;
  bool fixed = dc_container_dims(in->graph, c, dims);
  for (uint32_t d = 0; fixed && d < k->rank; d++) fixed = dims[d] <= n + 1, count *= fixed ? dims[d] : 1;
  if (!fixed || count != n) {
    PyErr_Format(in->state->errors[DC_ERR_VALUE], "%u known elements do not fill the shape", n);
    return -1;
  }
  return k->known = values, k->known_count = n, 0;
}

/* (type, shape), (type, shape, known elements), or an array whose contents are known. */
static int add_input(inference *in, PyObject *item, const char *name, dc_cid *out) {
  int type;
  PyObject *shape, *known = Py_None;
  dc_ex *dims;
  uint32_t rank;
  if (item == Py_None) return *out = 0, 0;
  if (!PyTuple_Check(item)) {
    tensor_view view;
    if (view_tensor(in->state, item, &view)) return -1;
    const dc_array *a = &view.array;
    *out = dc_container_add_const(in->graph, name, a->dtype, a->rank, a->dims, a->data, dc_array_bytes(a));
    release_view(&view);
    return 0;
  }
  if (!PyArg_ParseTuple(item, "iO|O", &type, &shape, &known) || numbers(in, shape, 0, &dims, &rank)) return -1;
  if (type <= 0 || type >= DC_DTYPE_COUNT || rank > DC_MAX_RANK) {
    PyErr_Format(in->state->errors[type <= 0 || type >= DC_DTYPE_COUNT ? DC_ERR_DTYPE : DC_ERR_SHAPE],
                 "type %d with %u dimensions: expected an ONNX type with at most %d dimensions", type, rank, DC_MAX_RANK);
    return -1;
  }
  *out = dc_container_add(in->graph, name, (dc_dtype)type, rank, dims, DC_ROLE_INPUT);
  return known == Py_None ? 0 : know(in, *out, known);
}

static int add_inputs(inference *in, PyObject *list, cid_list *out) {
  PyObject *items = PySequence_Fast(list, "expected a sequence of inputs");
  int failed = items ? 0 : -1;
  for (Py_ssize_t k = 0; !failed && k < PySequence_Fast_GET_SIZE(items); k++) {
    dc_cid c;
    failed = add_input(in, PySequence_Fast_GET_ITEM(items, k), input_name(in, (uint32_t)k), &c);
    if (failed) blame(in->state, "input", input_name(in, (uint32_t)k));
    else DC_PUSH(&in->graph->arena, out, c);
  }
  Py_XDECREF(items);
  return failed;
}

/* ---- results ---- */

/* Was this extent taken to be another one's, which may be 1 instead? */
static bool is_guess(const dc_graph *graph, dc_ex e) {
  for (uint32_t k = 0; k < graph->equalities.n; k++) {
    dc_equality q = graph->equalities.v[k];
    int64_t i;
    bool fixed = dc_ex_is_int(&graph->pool, q.a, &i) || dc_ex_is_int(&graph->pool, q.b, &i);
    if (q.broadcast && !fixed && (q.a == e || q.b == e)) return true;
  }
  return false;
}

static PyObject *number_object(const dc_graph *graph, dc_ex e) {
  int64_t i;
  if (dc_ex_is_int(&graph->pool, e, &i)) return PyLong_FromLongLong(i);
  if (is_guess(graph, e)) Py_RETURN_NONE;
  dc_text text = {0};
  dc_ex_print(graph, e, &text);
  PyObject *out = strchr(text.s, '?') ? Py_NewRef(Py_None) : name_object(text.s);
  dc_text_free(&text);
  return out;
}

static PyObject *number_tuple(const dc_graph *graph, const dc_ex *values, uint32_t n) {
  PyObject *tuple = PyTuple_New(n);
  for (uint32_t k = 0; tuple && k < n; k++) {
    PyObject *item = number_object(graph, values[k]);
    if (!item) Py_CLEAR(tuple);
    else PyTuple_SET_ITEM(tuple, k, item);
  }
  return tuple;
}

static PyObject *results(const dc_graph *graph, const dc_library *lib) {
  PyObject *list = PyList_New(lib->n_out);
  for (uint32_t k = 0; list && k < lib->n_out; k++) {
    const dc_container *c = dc_cont(graph, lib->out[k]);
    PyObject *shape = number_tuple(graph, c->shape, c->rank);
    PyObject *known = c->known ? number_tuple(graph, c->known, c->known_count) : Py_NewRef(Py_None);
    PyObject *item = shape && known ? Py_BuildValue("(iOO)", (int)c->dtype, shape, known) : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(known);
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, k, item);
  }
  return list;
}

/* Outputs that every use of the operator has, where the caller names no number. */
static uint32_t outputs_of(const inference *in) {
  const dc_row_arg *args;
  uint32_t n = in->row ? dc_row_outputs(in->row, &args) : 1, k = 0;
  while (in->row && k < n && !args[k].optional && !args[k].variadic) k++;
  return in->row && k ? k : 1;
}

static void add_output(dc_graph *graph, const dc_row *row, uint32_t k, cid_list *out) {
  const dc_row_arg *args;
  uint32_t n = row ? dc_row_outputs(row, &args) : 0;
  dc_cid c = dc_container_add(graph, k < n ? args[k].name : "output", DC_NOTYPE, 0, NULL, DC_ROLE_TEMP);
  dc_cont(graph, c)->shape = NULL;
  DC_PUSH(&graph->arena, out, c);
}

static dc_status infer_node(dc_session *session, inference *in, dc_nid node) {
  dc_cid blocked;
  DC_TRY(dc_ops_infer(session->ops, in->graph, node, &blocked));
  if (!blocked) return DC_OK;
  const char *name = dc_cont_name(in->graph, blocked);
  return dc_error_about(
      dc_error(DC_ERR_UNSUPPORTED, "%s: the value of input '%s' must be known to tell shapes", dc_node_describe(in->graph, node), name),
      name);
}

/* infer(op, domain, opset, inputs, attributes=None, outputs=None) -> [(type, shape, known elements or None)] by output.
 * inputs: None (absent), (type, shape), (type, shape, known elements), or an array whose contents are known; extents and
 * elements are integers, names of symbols, or None (not known).  outputs: how many; None: those that are never left out. */
PyObject *core_infer(PyObject *module, PyObject *args) {
  const char *op, *domain;
  int opset;
  PyObject *inputs, *attributes = Py_None, *outputs = Py_None;
  inference in = {.state = PyModule_GetState(module)};
  if (!PyArg_ParseTuple(args, "ssiO|OO", &op, &domain, &opset, &inputs, &attributes, &outputs)) return NULL;
  if (attributes != Py_None && !PyDict_Check(attributes)) return PyErr_Format(PyExc_TypeError, "expected attributes as a dictionary");
  dc_session *session = session_of(in.state);
  if (!session) return NULL;
  RAISE_IF(in.state, dc_ops_lookup(session->ops, domain, op, opset, &in.row));
  unsigned long n = outputs == Py_None ? outputs_of(&in) : PyLong_AsUnsignedLong(outputs);
  if (n > 1 << 16) return PyErr_Occurred() ? NULL : PyErr_Format(in.state->errors[DC_ERR_VALUE], "%s cannot have %lu outputs", op, n);
  in.graph = dc_graph_create("");
  PyObject *handle = wrap_graph(in.state, in.graph, NULL), *list = NULL;
  cid_list given = {0}, made = {0};
  attr_list attrs = {0};
  if (!handle) dc_graph_destroy(in.graph);
  else if (!add_inputs(&in, inputs, &given) && !parse_attrs((GraphObject *)handle, attributes, &attrs)) {
    for (uint32_t k = 0; k < n; k++) add_output(in.graph, in.row, k, &made);
    dc_nid node = dc_node_library(in.graph, op, domain, opset, given.v, given.n, made.v, made.n, attrs.v, attrs.n);
    dc_status status = infer_node(session, &in, node);
    if (status) raise_status(in.state, status);
    else list = results(in.graph, &dc_node_at(in.graph, node)->lib);
  }
  Py_XDECREF(handle);
  return list;
}
