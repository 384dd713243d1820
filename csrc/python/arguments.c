/* What a call is given, by position or by name, in the order of the function's inputs; numbers for scalars; values of
 * symbols. */
#include <math.h>
#include <string.h>

#include "backends/interp/value.h"
#include "python/eager.h"
#include "python/function.h"

/* ---- numbers ---- */

static int number_fails(module_state *state, const dc_graph *graph, dc_cid c, PyObject *object) {
  const char *name = dc_cont_name(graph, c), *type = dc_dtype_name((dc_dtype)dc_cont(graph, c)->dtype);
  PyErr_Clear();
  PyErr_Format(state->errors[DC_ERR_DTYPE], "input '%s': %R is no value of type %s", name, object, type);
  return -1;
}

/* The bits of a whole number, or -1 if the type does not hold it. */
static int read_whole(PyObject *object, dc_dtype type, dc_scalar *out) {
  int overflow = 0;
  PyObject *whole = PyNumber_Index(object);
  if (!whole) return -1;
  out->i = PyLong_AsLongLongAndOverflow(whole, &overflow);
  bool large = type == DC_U64 && overflow > 0;
  if (large) out->i = (int64_t)PyLong_AsUnsignedLongLong(whole);
  Py_DECREF(whole);
  if (PyErr_Occurred()) return -1;
  if (type == DC_BOOL) return out->i = out->i != 0, 0;
  if (large || (type == DC_I64 && !overflow)) return 0;
  return overflow || (double)out->i < dc_dtype_min(type) || (double)out->i > dc_dtype_max(type) ? -1 : 0;
}

static int read_complex(PyObject *object, dc_dtype type, char *number) {
  Py_complex value = PyComplex_AsCComplex(object);
  if (value.real == -1 && PyErr_Occurred()) return -1;
  dc_scalar_store(dc_dtype_part(type), number, 0, (dc_scalar){.f = value.real});
  dc_scalar_store(dc_dtype_part(type), number, 1, (dc_scalar){.f = value.imag});
  return 0;
}

/* A scalar may be given as a number; the view holds its value.  -1, maybe with an exception, where the type does not. */
static int view_value(dc_dtype type, PyObject *object, tensor_view *out) {
  dc_scalar value;
  *out = (tensor_view){0};
  out->array = (dc_array){.data = out->number, .dtype = type};
  if (dc_dtype_is_complex(type)) return read_complex(object, type, out->number);
  if (dc_dtype_is_float(type)) {
    double number = PyFloat_AsDouble(object);
    if (number == -1 && PyErr_Occurred()) return -1;
    value = dc_scalar_convert(DC_F64, type, (dc_scalar){.f = number});
  } else if (read_whole(object, type, &value)) return -1;
  dc_scalar_store(type, out->number, 0, value);
  return 0;
}

static int view_number(module_state *state, const dc_graph *graph, dc_cid c, PyObject *object, tensor_view *out) {
  return view_value((dc_dtype)dc_cont(graph, c)->dtype, object, out) ? number_fails(state, graph, c, object) : 0;
}

/* Only where numpy rounds as we do, and has nothing to say. */
int view_number_as(dc_dtype type, PyObject *number, tensor_view *out) {
  bool real = type == DC_F32 || type == DC_F64, whole = PyLong_CheckExact(number) && dc_dtype_is_integer(type);
  if ((!real && !whole) || view_value(type, number, out)) return PyErr_Clear(), -1;
  bool overflows = type == DC_F32 && isinf(*(float *)out->number) && !(PyFloat_CheckExact(number) && isinf(PyFloat_AS_DOUBLE(number)));
  return overflows ? -1 : 0;
}

static bool is_number(module_state *state, PyObject *object) {
  const PyNumberMethods *methods = Py_TYPE(object)->tp_as_number;
  if (PyFloat_Check(object) || PyLong_Check(object) || PyComplex_Check(object)) return true;
  return methods && (methods->nb_float || methods->nb_index) && !is_array(state, object); /* numpy's scalars */
}

/* ---- one argument ---- */

int view_argument(FunctionObject *self, uint32_t k, PyObject *object, tensor_view *out) {
  module_state *state = state_of((PyObject *)self);
  const dc_graph *graph = dc_function_graph(self->function);
  dc_cid c = graph->inputs.v[k];
  dc_dtype type = (dc_dtype)dc_cont(graph, c)->dtype;
  bool writes = dc_function_writes(self->function, k), fits = type && dc_dtype_bytes(type) <= (int)sizeof out->number;
  bool scalar = dc_cont(graph, c)->shape && dc_cont(graph, c)->rank == 0; /* without a shape it may be of any rank */
  if (!writes && fits && scalar && is_number(state, object)) return view_number(state, graph, c, object, out);
  if (self->flat && dc_cont(graph, c)->rank == 1) return view_flat(state, object, out);
  return writes ? view_in_place(state, object, out) : view_anywhere(state, object, out);
}

/* ---- all of them ---- */

static PyObject *names_from(const dc_graph *graph, uint32_t n, const char *(*name)(const dc_graph *, uint32_t)) {
  PyObject *names = PyTuple_New(n);
  for (uint32_t k = 0; names && k < n; k++) {
    PyObject *text = name_object(name(graph, k));
    if (text) PyUnicode_InternInPlace(&text);
    if (text) PyTuple_SET_ITEM(names, k, text);
    else Py_CLEAR(names);
  }
  return names;
}

static const char *input_name(const dc_graph *graph, uint32_t k) { return dc_cont_name(graph, graph->inputs.v[k]); }
static const char *symbol_name(const dc_graph *graph, uint32_t k) { return dc_name_text(&graph->names, graph->pool.symbols.v[k + 1].name); }

int name_arguments(FunctionObject *self, const dc_graph *graph) {
  self->names = names_from(graph, graph->inputs.n, input_name);
  self->symbols = names_from(graph, graph->pool.symbols.n - 1, symbol_name);
  return self->names && self->symbols ? 0 : -1;
}

/* Where a name stands, -1 if nowhere: names of calls are interned, as ours are. */
static Py_ssize_t place_of(PyObject *names, PyObject *name) {
  Py_ssize_t n = PyTuple_GET_SIZE(names), k = 0;
  while (k < n && PyTuple_GET_ITEM(names, k) != name) k++;
  if (k == n)
    for (k = 0; k < n && PyUnicode_Compare(PyTuple_GET_ITEM(names, k), name); k++) {}
  return k < n ? k : -1;
}

static int fail(FunctionObject *self, const char *format, PyObject *name) {
  const dc_graph *graph = dc_function_graph(self->function);
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], format, dc_name_text(&graph->names, graph->name), name);
  return -1;
}

static int fail_unknown(FunctionObject *self, PyObject *name) {
  PyObject *all = PySequence_Concat(self->names, self->symbols);
  const dc_graph *graph = dc_function_graph(self->function);
  if (all)
    PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "'%s' has no argument %R; it has %R",
                 dc_name_text(&graph->names, graph->name), name, all);
  Py_XDECREF(all);
  return -1;
}

static int take_symbol(FunctionObject *self, Py_ssize_t at, PyObject *name, PyObject *value, int64_t *symbols) {
  PyObject *whole = PyNumber_Index(value);
  int64_t number = whole ? PyLong_AsLongLong(whole) : -1;
  Py_XDECREF(whole);
  if (number == -1 && PyErr_Occurred()) return PyErr_Clear(), fail(self, "'%s': symbol %R takes a whole number", name);
  symbols[at + 1] = number == DC_UNKNOWN ? number + 1 : number;
  return 0;
}

int order_arguments(FunctionObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject **inputs, int64_t *symbols) {
  Py_ssize_t n_names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (n > (Py_ssize_t)self->n_inputs) {
    PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "expected %u inputs and %u parameters, got %zd and %u", self->n_inputs,
                 self->n_params, n, self->params ? (uint32_t)PyTuple_GET_SIZE(self->params) : 0);
    return -1;
  }
  for (uint32_t k = 0; k < self->n_inputs; k++) inputs[k] = k < n ? args[k] : NULL;
  for (Py_ssize_t s = 0; s <= PyTuple_GET_SIZE(self->symbols); s++) symbols[s] = DC_UNKNOWN;
  for (Py_ssize_t k = 0; k < n_names; k++) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, k), *value = args[n + k];
    Py_ssize_t at = place_of(self->names, name), symbol = at < 0 ? place_of(self->symbols, name) : -1;
    if (at < 0 && symbol < 0) return fail_unknown(self, name);
    if (at < 0) {
      if (take_symbol(self, symbol, name, value, symbols)) return -1;
    } else if (inputs[at]) return fail(self, "'%s' was given argument %R twice", name);
    else inputs[at] = value;
  }
  for (uint32_t k = 0; k < self->n_inputs; k++)
    if (!inputs[k]) return fail(self, "'%s' was not given its argument %R", PyTuple_GET_ITEM(self->names, k));
  return 0;
}
