/* Call.derivative: gradients that are differentiated in turn. */
#include "python/function.h"

enum { MAX_DERIVATIVES = 16 }; /* kept by a function */
typedef enum { NONE, ZEROS, COMPUTED } gradient_kind;

/* What is asked: by output, whether it is given a gradient, and whether that is differentiated; by wrt, what its gradient is; and of
 * which kind the call is. */
typedef struct {
  bool *given, *through, *wanted;
  uint8_t *kind;
  char *all; /* the block that they lie in */
  size_t bytes;
} question;

/* Is what the call has saved there, and as it was? */
static bool may_share(const CallObject *self) { return self->saved && !self->spoilt && self->torch && !self->place.gpu; }

static int read_question(CallObject *self, PyObject *grads, PyObject *wanted, question *q) {
  module_state *state = state_of((PyObject *)self);
  const FunctionObject *f = self->function;
  uint32_t n_out = self->call.n_outputs, n_wrt = f->n_wrt;
  if (PyTuple_GET_SIZE(grads) != (Py_ssize_t)n_out || PyTuple_GET_SIZE(wanted) != (Py_ssize_t)n_wrt)
    return PyErr_Format(state->errors[DC_ERR_VALUE], "expected gradients of %u outputs and flags of %u wrt", n_out, n_wrt), -1;
  uint32_t kind = dc_call_derivative_kind(&self->call, may_share(self));
  q->bytes = 2 * (size_t)n_out + 2 * (size_t)n_wrt + sizeof kind;
  if (!(q->all = PyMem_Calloc(q->bytes + 1, 1))) return PyErr_NoMemory(), -1;
  q->given = (bool *)q->all, q->through = q->given + n_out, q->wanted = q->through + n_out, q->kind = (uint8_t *)(q->wanted + n_wrt);
  memcpy(q->kind + n_wrt, &kind, sizeof kind);
  for (uint32_t k = 0; k < n_out; k++) {
    dc_array output;
    PyObject *item = PyTuple_GET_ITEM(grads, k);
    dc_call_output(&self->call, k, &output);
    q->given[k] = item != Py_None && dc_dtype_is_float(output.dtype);
    q->through[k] = q->given[k] && requires_grad(state, item);
    for (uint32_t w = 0; w < n_wrt && q->given[k]; w++)
      if (function_reaches(f, k, w)) q->kind[w] = f->tape ? ZEROS : NONE, q->wanted[w] = PyTuple_GET_ITEM(wanted, w) == Py_True;
  }
  for (uint32_t w = 0; w < n_wrt; w++) {
    dc_array gradient;
    if (!q->wanted[w]) q->kind[w] = NONE;
    else if (dc_call_gradient(&self->call, w, &gradient)) q->kind[w] = COMPUTED;
    q->wanted[w] = q->kind[w] == COMPUTED;
  }
  return 0;
}

/* The names of what the derivative is differentiated in: the function's wrt, and gradients that are differentiated. */
static const char **names_of(const CallObject *self, const question *q, const dc_graph *graph, uint32_t *n) {
  const dc_function_options *options = dc_function_get_options(self->call.function);
  uint32_t n_out = self->call.n_outputs, at = self->function->n_inputs;
  const char **names = PyMem_Calloc(options->n_wrt + n_out + 1, sizeof *names);
  *n = 0;
  for (uint32_t k = 0; names && k < options->n_wrt; k++) names[(*n)++] = options->wrt[k];
  for (uint32_t k = 0; names && k < n_out; k++) {
    if (!q->given[k]) continue;
    if (q->through[k]) names[(*n)++] = dc_cont_name(graph, graph->inputs.v[at]);
    at++;
  }
  return names;
}

static PyObject *make(CallObject *self, const question *q) {
  uint32_t n;
  dc_derivative derivative;
  RAISE_IF(state_of((PyObject *)self), dc_call_derivative(&self->call, q->given, q->wanted, may_share(self), &derivative));
  const char **names = names_of(self, q, derivative.graph, &n);
  PyObject *made = names ? function_derive(self->function, &derivative, names, n) : PyErr_NoMemory();
  if (!names) dc_graph_destroy(derivative.graph);
  PyMem_Free(names);
  return made;
}

/* The function that was made for this question, or a new one. */
static PyObject *find(CallObject *self, const question *q) {
  FunctionObject *f = self->function;
  if (!f->derivatives && !(f->derivatives = PyDict_New())) return NULL;
  PyObject *key = PyBytes_FromStringAndSize(q->all, (Py_ssize_t)q->bytes);
  PyObject *found = key ? Py_XNewRef(PyDict_GetItemWithError(f->derivatives, key)) : NULL;
  if (key && !found && !PyErr_Occurred() && (found = make(self, q))) {
    if (PyDict_GET_SIZE(f->derivatives) >= MAX_DERIVATIVES) PyDict_Clear(f->derivatives);
    if (PyDict_SetItem(f->derivatives, key, found)) Py_CLEAR(found);
  }
  Py_XDECREF(key);
  return found;
}

/* The saved values that the derivative takes, where they lie. */
static PyObject *shared_values(CallObject *self, const FunctionObject *derivative) {
  module_state *state = state_of((PyObject *)self);
  PyObject *out = PyTuple_New(derivative ? derivative->n_shared : 0);
  for (uint32_t k = 0; out && derivative && k < derivative->n_shared; k++) {
    dc_array value;
    uint64_t offset;
    dc_call_saved(&self->call, derivative->shared[k], &value, &offset);
    value.data = (char *)self->saved + offset;
    PyObject *tensor = tensor_inside(state, (PyObject *)self, &value);
    if (tensor) PyTuple_SET_ITEM(out, k, tensor);
    else Py_CLEAR(out);
    self->shared = true;
  }
  return out;
}

/* derivative(grads, wanted) -> (Function or None, kinds, shared): grads, by output, a tensor or None; wanted, by wrt; kinds, by wrt: 0 for
 * None, 1 for zeros, 2 for an output of the function, whose inputs are those of the call, the tensors of grads and then shared. */
PyObject *call_derivative(PyObject *object, PyObject *args) {
  CallObject *self = (CallObject *)object;
  PyObject *grads, *wanted, *out = NULL;
  question q = {0};
  if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &grads, &PyTuple_Type, &wanted)) return NULL;
  if (!read_question(self, grads, wanted, &q)) {
    bool any = false;
    for (uint32_t w = 0; w < self->function->n_wrt; w++) any |= q.wanted[w];
    PyObject *function = any ? find(self, &q) : Py_NewRef(Py_None);
    PyObject *kinds = function ? PyBytes_FromStringAndSize((const char *)q.kind, self->function->n_wrt) : NULL;
    PyObject *shared = kinds ? shared_values(self, any ? (FunctionObject *)function : NULL) : NULL;
    out = shared ? Py_BuildValue("(OOO)", function, kinds, shared) : NULL;
    Py_XDECREF(shared);
    Py_XDECREF(function);
    Py_XDECREF(kinds);
  }
  PyMem_Free(q.all);
  return out;
}
