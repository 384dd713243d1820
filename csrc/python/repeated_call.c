/* The RepeatedCall type: a function together with all that must be unchanged for it to serve the next call as it served
 * the last one.  A call compares and runs; where anything differs it returns NotImplemented, and Python decides. */
#include <string.h>

#include "python/function.h"

/* A leaf of the arguments that is a tensor. */
typedef struct {
  dc_array like;     /* without data */
  int64_t *strides;  /* NULL: contiguous */
  bool needs_grad, is_tensor;
  Py_ssize_t first; /* where the same tensor stands first */
} expected_leaf;

/* A container, and the version at which it last held what it has to. */
typedef struct {
  PyObject *holder; /* kept by watched or slots */
  uint64_t version;
} place;

typedef struct {
  PyObject_HEAD
  PyObject *function, *params; /* the tuple that the function has */
  PyObject *form;              /* (args, kwargs) with ... for each tensor, or None where args are the leaves */
  PyObject *taken;             /* tuple: which leaves are the function's inputs, or None for all */
  PyObject *turned;            /* tuple of (input, order of its axes in which the function takes it) */
  PyObject *slots;             /* tuple of (dict, key): where each parameter is found */
  PyObject *watched;           /* tuple of observations (watch.c): modules' attributes and all else that was built in */
  PyObject *last;              /* callable that makes the last input, or None */
  PyObject *probes;            /* tuple of callables without arguments ... */
  PyObject *answers;           /* ... and the objects that they returned */
  expected_leaf *leaves;
  place *places;    /* of watched and then of slots */
  bool *needs_grad; /* by parameter */
  Py_ssize_t n_leaves;
  bool watches_grad;
} RepeatedCallObject;

/* ---- leaves ---- */

/* Leaves as they are met: a tuple of n, of which `at` are there. */
typedef struct {
  PyObject *tuple;
  Py_ssize_t at, n;
} leaf_list;

static bool add_leaf(leaf_list *out, PyObject *leaf) {
  if (out->at == out->n) return false;
  PyTuple_SET_ITEM(out->tuple, out->at++, Py_NewRef(leaf));
  return true;
}

/* A number, a text or None that stands where it stood before. */
static bool same_value(PyObject *form, PyObject *value) {
  if (form == value) return true;
  bool plain = PyLong_CheckExact(form) || PyUnicode_CheckExact(form);
  return plain && Py_TYPE(form) == Py_TYPE(value) && PyObject_RichCompareBool(form, value, Py_EQ) == 1;
}

static bool take_leaves(PyObject *form, PyObject *value, leaf_list *out);

static bool take_leaves_of_dict(PyObject *form, PyObject *value, leaf_list *out) {
  Py_ssize_t at[2] = {0};
  PyObject *key[2], *held[2];
  bool same = PyDict_GET_SIZE(form) == PyDict_GET_SIZE(value);
  while (same && PyDict_Next(form, &at[0], &key[0], &held[0]))
    same = PyDict_Next(value, &at[1], &key[1], &held[1]) && same_value(key[0], key[1]) && take_leaves(held[0], held[1], out);
  return same;
}

/* The leaves of what has this form; false for what has not. */
static bool take_leaves(PyObject *form, PyObject *value, leaf_list *out) {
  if (form == Py_Ellipsis) return add_leaf(out, value);
  if (!PyTuple_CheckExact(form) && !PyList_CheckExact(form) && !PyDict_CheckExact(form))
    return same_value(form, value) && add_leaf(out, value);
  if (Py_TYPE(form) != Py_TYPE(value) || Py_EnterRecursiveCall("")) return PyErr_Clear(), false;
  bool same;
  if (PyDict_CheckExact(form)) same = take_leaves_of_dict(form, value, out);
  else {
    Py_ssize_t n = PySequence_Fast_GET_SIZE(form);
    same = n == PySequence_Fast_GET_SIZE(value);
    for (Py_ssize_t k = 0; same && k < n; k++)
      same = take_leaves(PySequence_Fast_GET_ITEM(form, k), PySequence_Fast_GET_ITEM(value, k), out);
  }
  Py_LeaveRecursiveCall();
  return same;
}

/* A tuple of the leaves of arguments, or NULL, without an exception where they have another form. */
static PyObject *leaves_of(const RepeatedCallObject *self, PyObject *args, PyObject *kwargs) {
  if (kwargs && !PyDict_GET_SIZE(kwargs)) kwargs = NULL;
  if (self->form == Py_None) return !kwargs && PyTuple_GET_SIZE(args) == self->n_leaves ? Py_NewRef(args) : NULL;
  PyObject *forms[2] = {PyTuple_GET_ITEM(self->form, 0), PyTuple_GET_ITEM(self->form, 1)};
  leaf_list out = {PyTuple_New(self->n_leaves), 0, self->n_leaves};
  bool same = out.tuple && take_leaves(forms[0], args, &out);
  same = same && (kwargs ? take_leaves(forms[1], kwargs, &out) : PyDict_GET_SIZE(forms[1]) == 0) && out.at == out.n;
  if (!same) Py_CLEAR(out.tuple);
  return out.tuple;
}

/* The function's inputs among leaves. */
static PyObject *inputs_of(const RepeatedCallObject *self, PyObject *leaves) {
  if (self->taken == Py_None) return Py_NewRef(leaves);
  PyObject *inputs = PyTuple_New(PyTuple_GET_SIZE(self->taken));
  for (Py_ssize_t k = 0; inputs && k < PyTuple_GET_SIZE(self->taken); k++)
    PyTuple_SET_ITEM(inputs, k, Py_NewRef(PyTuple_GET_ITEM(leaves, PyLong_AsSsize_t(PyTuple_GET_ITEM(self->taken, k)))));
  return inputs;
}

/* ---- creation ---- */

static Py_ssize_t first_place(PyObject *leaves, Py_ssize_t k) {
  Py_ssize_t first = 0;
  while (PyTuple_GET_ITEM(leaves, first) != PyTuple_GET_ITEM(leaves, k)) first++;
  return first;
}

static int note_leaf(module_state *state, PyObject *leaves, Py_ssize_t k, expected_leaf *out) {
  PyObject *leaf = PyTuple_GET_ITEM(leaves, k);
  out->first = first_place(leaves, k);
  if (!is_array(state, leaf)) return 0;
  out->is_tensor = true, out->needs_grad = requires_grad(state, leaf);
  return note_layout(state, leaf, &out->like, &out->strides);
}

static int note_leaves(module_state *state, RepeatedCallObject *self, PyObject *args, PyObject *kwargs) {
  self->leaves = PyMem_Calloc((size_t)self->n_leaves + 1, sizeof *self->leaves);
  if (!self->leaves) return PyErr_NoMemory(), -1;
  PyObject *leaves = leaves_of(self, args, kwargs);
  if (!leaves) return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "the arguments have another form"), -1);
  int failed = 0;
  for (Py_ssize_t k = 0; !failed && k < self->n_leaves; k++) failed = note_leaf(state, leaves, k, &self->leaves[k]);
  Py_ssize_t n = self->taken == Py_None ? 0 : PyTuple_GET_SIZE(self->taken);
  for (Py_ssize_t k = 0; !failed && k < n; k++) {
    Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->taken, k));
    if (at < 0 || at >= self->n_leaves || !self->leaves[at].is_tensor) failed = -1;
    if (failed && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "an input is no tensor among the leaves");
  }
  Py_DECREF(leaves);
  return failed;
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

static int check_form(RepeatedCallObject *self) {
  bool plain = self->form == Py_None, pair = PyTuple_CheckExact(self->form) && PyTuple_GET_SIZE(self->form) == 2;
  pair = pair && PyTuple_CheckExact(PyTuple_GET_ITEM(self->form, 0)) && PyDict_CheckExact(PyTuple_GET_ITEM(self->form, 1));
  if ((plain || pair) && (self->taken == Py_None || PyTuple_CheckExact(self->taken))) return 0;
  return PyErr_SetString(PyExc_TypeError, "expected a form (tuple, dictionary) or None, and a tuple of places or None"), -1;
}

static int check_turned(const RepeatedCallObject *self) {
  const Py_ssize_t n = self->taken == Py_None ? self->n_leaves : PyTuple_GET_SIZE(self->taken);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self->turned); k++) {
    PyObject *one = PyTuple_GET_ITEM(self->turned, k);
    if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 2) return PyErr_SetString(PyExc_TypeError, "expected pairs (input, order)"), -1;
    const Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(one, 0));
    if (PyErr_Occurred()) return -1;
    if (at < 0 || at >= n) return PyErr_SetString(PyExc_ValueError, "there is no such input"), -1;
  }
  return 0;
}

/* RepeatedCall(function, args, kwargs, form, n_leaves, taken, turned, slots, watched, probes, watches_grad, last) */
static PyObject *repeated_call_new(PyTypeObject *type, PyObject *args, PyObject *unused) {
  module_state *state = PyType_GetModuleState(type);
  PyObject *function, *given, *kwargs, *form, *taken, *turned, *slots, *watched, *probes, *last;
  Py_ssize_t n_leaves;
  int watches_grad;
  (void)unused;
  if (!PyArg_ParseTuple(args, "O!O!O!OnOO!OOO!pO", state->function_type, &function, &PyTuple_Type, &given, &PyDict_Type, &kwargs, &form,
                        &n_leaves, &taken, &PyTuple_Type, &turned, &slots, &watched, &PyTuple_Type, &probes, &watches_grad, &last))
    return NULL;
  if (n_leaves < 0) return PyErr_SetString(PyExc_ValueError, "expected a number of leaves"), NULL;
  RepeatedCallObject *self = (RepeatedCallObject *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->function = Py_NewRef(function), self->probes = Py_NewRef(probes), self->last = Py_NewRef(last), self->watches_grad = watches_grad;
  self->form = Py_NewRef(form), self->taken = Py_NewRef(taken), self->turned = Py_NewRef(turned), self->n_leaves = n_leaves;
  self->watched = PySequence_Tuple(watched);
  int failed = !self->watched || check_form(self) || check_turned(self) || check_observations(self->watched) ||
               note_params(state, self, slots) || note_places(self) || note_answers(self) || note_leaves(state, self, given, kwargs);
  if (!failed) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int repeated_call_traverse(RepeatedCallObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->function);
  Py_VISIT(self->params);
  Py_VISIT(self->form);
  Py_VISIT(self->taken);
  Py_VISIT(self->turned);
  Py_VISIT(self->slots);
  Py_VISIT(self->watched);
  Py_VISIT(self->probes);
  Py_VISIT(self->last);
  return 0;
}

static int repeated_call_clear(RepeatedCallObject *self) {
  Py_CLEAR(self->function);
  Py_CLEAR(self->params);
  Py_CLEAR(self->form);
  Py_CLEAR(self->taken);
  Py_CLEAR(self->turned);
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
  for (Py_ssize_t k = 0; self->leaves && k < self->n_leaves; k++) PyMem_Free(self->leaves[k].strides);
  PyMem_Free(self->leaves);
  PyMem_Free(self->places);
  PyMem_Free(self->needs_grad);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

/* ---- calling ---- */

static bool same_leaf(module_state *state, const RepeatedCallObject *self, PyObject *leaves, Py_ssize_t k) {
  PyObject *leaf = PyTuple_GET_ITEM(leaves, k);
  const expected_leaf *want = &self->leaves[k];
  if (!want->is_tensor) return true; /* its form has the value */
  bool same = first_place(leaves, k) == want->first && is_like(state, leaf, &want->like, want->strides);
  return same && (!self->watches_grad || requires_grad(state, leaf) == want->needs_grad);
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
  PyObject *now = ((FunctionObject *)self->function)->params; /* another call may have set others */
  if ((now ? now : Py_None) != self->params) return false;
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

static PyObject *with_last(const RepeatedCallObject *self, PyObject *inputs) {
  Py_ssize_t n = PyTuple_GET_SIZE(inputs);
  PyObject *all = PyTuple_New(n + 1), *last = all ? PyObject_CallNoArgs(self->last) : NULL;
  if (!last) return Py_XDECREF(all), NULL;
  for (Py_ssize_t k = 0; k < n; k++) PyTuple_SET_ITEM(all, k, Py_NewRef(PyTuple_GET_ITEM(inputs, k)));
  PyTuple_SET_ITEM(all, n, last);
  return all;
}

/* Inputs, of which some have their axes in another order. */
static PyObject *with_turned(const RepeatedCallObject *self, PyObject *inputs) {
  const Py_ssize_t n = PyTuple_GET_SIZE(inputs);
  PyObject *all = PyTuple_New(n);
  for (Py_ssize_t k = 0; all && k < n; k++) PyTuple_SET_ITEM(all, k, Py_NewRef(PyTuple_GET_ITEM(inputs, k)));
  for (Py_ssize_t k = 0; all && k < PyTuple_GET_SIZE(self->turned); k++) {
    PyObject *one = PyTuple_GET_ITEM(self->turned, k);
    const Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(one, 0));
    PyObject *given = PyTuple_GET_ITEM(all, at), *view = PyObject_CallMethod(given, "permute", "O", PyTuple_GET_ITEM(one, 1));
    if (!view) return Py_DECREF(all), NULL;
    PyTuple_SET_ITEM(all, at, view);
    Py_DECREF(given);
  }
  return all;
}

static PyObject *run_again(const RepeatedCallObject *self, PyObject *leaves) {
  PyObject *inputs = inputs_of(self, leaves);
  if (inputs && PyTuple_GET_SIZE(self->turned)) Py_SETREF(inputs, with_turned(self, inputs));
  if (inputs && self->last != Py_None) Py_SETREF(inputs, with_last(self, inputs));
  PyObject *outputs = inputs ? PyObject_Call(self->function, inputs, NULL) : NULL;
  Py_XDECREF(inputs);
  return outputs;
}

/* call(*args, **kwargs) -> outputs or NotImplemented */
static PyObject *repeated_call_call(RepeatedCallObject *self, PyObject *args, PyObject *kwargs) {
  module_state *state = state_of((PyObject *)self);
  PyObject *leaves = leaves_of(self, args, kwargs), *outputs = NULL;
  bool same = leaves != NULL;
  for (Py_ssize_t k = 0; same && k < self->n_leaves; k++) same = same_leaf(state, self, leaves, k);
  same = same && same_surroundings(self) && same_params(state, self);
  if (same) outputs = run_again(self, leaves);
  Py_XDECREF(leaves);
  if (same || PyErr_Occurred()) return outputs;
  Py_RETURN_NOTIMPLEMENTED;
}

/* leaves(args, kwargs) -> tuple, of arguments of which the call has just been made */
static PyObject *repeated_call_leaves(RepeatedCallObject *self, PyObject *both) {
  PyObject *args, *kwargs;
  if (!PyArg_ParseTuple(both, "O!O!", &PyTuple_Type, &args, &PyDict_Type, &kwargs)) return NULL;
  PyObject *leaves = leaves_of(self, args, kwargs);
  if (!leaves && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the arguments have another form");
  return leaves;
}

static PyMethodDef repeated_call_methods[] = {
    {"leaves", (PyCFunction)repeated_call_leaves, METH_VARARGS, "leaves(args, kwargs) -> the leaves of arguments like those of the call."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot repeated_call_slots[] = {{Py_tp_new, repeated_call_new},
                                            {Py_tp_dealloc, repeated_call_dealloc},
                                            {Py_tp_traverse, repeated_call_traverse},
                                            {Py_tp_clear, repeated_call_clear},
                                            {Py_tp_call, repeated_call_call},
                                            {Py_tp_methods, repeated_call_methods},
                                            {Py_tp_doc, "RepeatedCall(function, args, kwargs, form, n_leaves, taken, slots, watched, "
                                                        "probes, watches_grad, last): serves calls like this one."},
                                            {0, NULL}};
PyType_Spec repeated_call_spec = {"dcml._core.RepeatedCall", sizeof(RepeatedCallObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                  repeated_call_slots};
