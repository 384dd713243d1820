/* The RepeatedCall type: a function together with all that must be unchanged for it to serve the next call as it served
 * the last one.  A call compares and runs; where anything differs it returns NotImplemented, and Python decides. */
#include <string.h>

#include "python/binding.h"

typedef struct {
  dc_array like; /* without data */
  bool needs_grad;
  Py_ssize_t first; /* where the same tensor stands first */
} expected_input;

/* A container, and the version at which it last held what it has to. */
typedef struct {
  PyObject *holder; /* kept by watched or slots */
  uint64_t version;
} place;

typedef struct {
  PyObject_HEAD
  PyObject *function, *params; /* the tuple that the function has */
  PyObject *slots;             /* tuple of (dict, key): where each parameter is found */
  PyObject *watched;           /* tuple of observations (watch.c): modules' attributes and all else that was built in */
  PyObject *last;              /* callable that makes the last input, or None */
  PyObject *probes;            /* tuple of callables without arguments ... */
  PyObject *answers;           /* ... and the objects that they returned */
  expected_input *inputs;
  place *places;    /* of watched and then of slots */
  bool *needs_grad; /* by parameter */
  Py_ssize_t n_inputs;
  bool watches_grad;
} RepeatedCallObject;

/* ---- creation ---- */

static Py_ssize_t first_place(PyObject *inputs, Py_ssize_t k) {
  Py_ssize_t first = 0;
  while (PyTuple_GET_ITEM(inputs, first) != PyTuple_GET_ITEM(inputs, k)) first++;
  return first;
}

static int note_input(module_state *state, PyObject *inputs, Py_ssize_t k, expected_input *out) {
  tensor_view view;
  PyObject *tensor = PyTuple_GET_ITEM(inputs, k);
  if (view_anywhere(state, tensor, &view)) return -1;
  *out = (expected_input){view.array, requires_grad(state, tensor), first_place(inputs, k)};
  release_view(&view);
  return 0;
}

static int note_answers(RepeatedCallObject *self) {
  Py_ssize_t n = PyTuple_GET_SIZE(self->probes);
  self->answers = PyTuple_New(n);
  for (Py_ssize_t k = 0; self->answers && k < n; k++) {
    PyObject *answer = PyObject_CallNoArgs(PyTuple_GET_ITEM(self->probes, k));
    if (!answer) return -1;
    PyTuple_SET_ITEM(self->answers, k, answer);
  }
  return self->answers ? 0 : -1;
}

static int note_params(module_state *state, RepeatedCallObject *self, PyObject *slots) {
  self->params = PyObject_GetAttrString(self->function, "params");
  self->slots = self->params ? PySequence_Tuple(slots) : NULL;
  if (!self->slots) return -1;
  Py_ssize_t n = self->params == Py_None ? 0 : PyTuple_GET_SIZE(self->params);
  if (n != PyTuple_GET_SIZE(self->slots)) return PyErr_SetString(PyExc_ValueError, "expected a slot for each parameter"), -1;
  self->needs_grad = PyMem_Calloc((size_t)n + 1, sizeof *self->needs_grad);
  for (Py_ssize_t k = 0; self->needs_grad && k < n; k++) self->needs_grad[k] = requires_grad(state, PyTuple_GET_ITEM(self->params, k));
  return self->needs_grad ? 0 : -1;
}

static int note_places(RepeatedCallObject *self) {
  Py_ssize_t n = PyTuple_GET_SIZE(self->watched), m = PyTuple_GET_SIZE(self->slots);
  self->places = PyMem_Calloc((size_t)(n + m) + 1, sizeof *self->places);
  for (Py_ssize_t k = 0; self->places && k < n + m; k++)
    self->places[k].holder = PyTuple_GET_ITEM(k < n ? PyTuple_GET_ITEM(self->watched, k) : PyTuple_GET_ITEM(self->slots, k - n), 0);
  return self->places ? 0 : (PyErr_NoMemory(), -1);
}

/* RepeatedCall(function, inputs, slots, watched, probes, watches_grad, last) */
static PyObject *repeated_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  module_state *state = PyType_GetModuleState(type);
  PyObject *function, *inputs, *slots, *watched, *probes, *last;
  int watches_grad;
  (void)kwargs;
  if (!PyArg_ParseTuple(args, "O!O!OOO!pO", state->function_type, &function, &PyTuple_Type, &inputs, &slots, &watched, &PyTuple_Type, &probes,
                        &watches_grad, &last))
    return NULL;
  RepeatedCallObject *self = (RepeatedCallObject *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->function = Py_NewRef(function), self->probes = Py_NewRef(probes), self->last = Py_NewRef(last), self->watches_grad = watches_grad;
  self->watched = PySequence_Tuple(watched);
  self->inputs = PyMem_Calloc((size_t)PyTuple_GET_SIZE(inputs) + 1, sizeof *self->inputs);
  int failed = !self->watched || check_observations(self->watched) || !self->inputs || note_params(state, self, slots) ||
               note_places(self) || note_answers(self);
  for (; !failed && self->n_inputs < PyTuple_GET_SIZE(inputs); self->n_inputs++)
    failed = note_input(state, inputs, self->n_inputs, &self->inputs[self->n_inputs]);
  if (!failed) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int repeated_call_traverse(RepeatedCallObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->function);
  Py_VISIT(self->params);
  Py_VISIT(self->slots);
  Py_VISIT(self->watched);
  Py_VISIT(self->probes);
  Py_VISIT(self->last);
  return 0;
}

static int repeated_call_clear(RepeatedCallObject *self) {
  Py_CLEAR(self->function);
  Py_CLEAR(self->params);
  Py_CLEAR(self->slots);
  Py_CLEAR(self->watched);
  Py_CLEAR(self->probes);
  Py_CLEAR(self->last);
  Py_CLEAR(self->answers);
  return 0;
}

static void repeated_call_dealloc(RepeatedCallObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  repeated_call_clear(self);
  PyMem_Free(self->inputs);
  PyMem_Free(self->places);
  PyMem_Free(self->needs_grad);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

/* ---- calling ---- */

static bool same_input(module_state *state, const RepeatedCallObject *self, PyObject *inputs, Py_ssize_t k) {
  PyObject *tensor = PyTuple_GET_ITEM(inputs, k);
  const expected_input *want = &self->inputs[k];
  bool same = first_place(inputs, k) == want->first && is_like(state, tensor, &want->like);
  return same && (!self->watches_grad || requires_grad(state, tensor) == want->needs_grad);
}

/* The k-th place holds what it has to; a dictionary that nobody touched since is not looked into. */
static bool same_place(const RepeatedCallObject *self, Py_ssize_t k) {
  place *p = &self->places[k];
  Py_ssize_t n = PyTuple_GET_SIZE(self->watched);
  uint64_t version = dict_version(p->holder);
  if (version && version == p->version) return true;
  if (k < n) {
    if (!same_observation(PyTuple_GET_ITEM(self->watched, k))) return false;
  } else {
    PyObject *key = PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->slots, k - n), 1);
    if (PyDict_GetItem(p->holder, key) != PyTuple_GET_ITEM(self->params, k - n)) return false;
  }
  p->version = version;
  return true;
}

static bool same_params(module_state *state, const RepeatedCallObject *self) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self->slots); k++) {
    if (!same_place(self, PyTuple_GET_SIZE(self->watched) + k)) return false;
    if (self->watches_grad && requires_grad(state, PyTuple_GET_ITEM(self->params, k)) != self->needs_grad[k]) return false;
  }
  return true;
}

static bool same_surroundings(const RepeatedCallObject *self) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self->watched); k++)
    if (!same_place(self, k)) return false;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self->probes); k++) {
    PyObject *answer = PyObject_CallNoArgs(PyTuple_GET_ITEM(self->probes, k));
    bool same = answer == PyTuple_GET_ITEM(self->answers, k); /* True, False and None are single objects */
    if (!answer) PyErr_Clear();
    Py_XDECREF(answer);
    if (!same) return false;
  }
  return true;
}

static PyObject *with_last(const RepeatedCallObject *self, PyObject *args) {
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject *all = PyTuple_New(n + 1), *last = all ? PyObject_CallNoArgs(self->last) : NULL;
  if (!last) return Py_XDECREF(all), NULL;
  for (Py_ssize_t k = 0; k < n; k++) PyTuple_SET_ITEM(all, k, Py_NewRef(PyTuple_GET_ITEM(args, k)));
  PyTuple_SET_ITEM(all, n, last);
  return all;
}

/* call(*inputs) -> outputs or NotImplemented */
static PyObject *repeated_call_call(RepeatedCallObject *self, PyObject *args, PyObject *kwargs) {
  module_state *state = state_of((PyObject *)self);
  bool same = !kwargs && PyTuple_GET_SIZE(args) == self->n_inputs && same_surroundings(self) && same_params(state, self);
  for (Py_ssize_t k = 0; same && k < self->n_inputs; k++) same = same_input(state, self, args, k);
  if (!same) Py_RETURN_NOTIMPLEMENTED;
  PyObject *all = self->last == Py_None ? Py_NewRef(args) : with_last(self, args);
  PyObject *outputs = all ? PyObject_Call(self->function, all, NULL) : NULL;
  Py_XDECREF(all);
  return outputs;
}

static PyType_Slot repeated_call_slots[] = {{Py_tp_new, repeated_call_new},         {Py_tp_dealloc, repeated_call_dealloc}, {Py_tp_traverse, repeated_call_traverse},
                                   {Py_tp_clear, repeated_call_clear},     {Py_tp_call, repeated_call_call},
                                   {Py_tp_doc, "RepeatedCall(function, inputs, slots, watched, probes, watches_grad, last): serves calls like this one."}, {0, NULL}};
PyType_Spec repeated_call_spec = {"dcml._core.RepeatedCall", sizeof(RepeatedCallObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, repeated_call_slots};
