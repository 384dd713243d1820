/* The Call type, a forward whose backward may follow, and the Backward type, one backward pass of it in parts. */
#include <string.h>

#include "python/placing.h"

/* The gradients that a backward pass is given, by floating output. */
typedef struct {
  tensor_view view;
  PyObject *item; /* what was given, NULL for None */
  void *own;      /* zeros where the caller has none, or a copy where the forward ran; NULL: the view's */
  uint64_t bytes; /* of it */
} given_gradient;

/* A gradient that is begun and not yet handed out. */
typedef struct {
  PyObject *array;
  void *data, *host; /* where the program writes it, and where it goes from there, or NULL */
} made_gradient;

/* What the caller gives back of the call's results, where the pass reads it. */
typedef struct {
  tensor_view view;
  PyObject *item; /* NULL: it is not read */
} given_result;

typedef struct {
  PyObject_HEAD
  CallObject *call;
  given_gradient *given;
  given_result *results; /* by output */
  uint32_t n_given;
  made_gradient *made; /* by wrt */
  bool *reached;   /* by wrt: it has a gradient, if only of zeros */
  bool shares_given;   /* a gradient that is an output's own is the very tensor that was given */
  dc_backward_run *run;
  bool running; /* in some thread */
  call_place place; /* the pass has a stream of its own */
} BackwardObject;

PyObject *call_new(FunctionObject *function, const dc_call *call, tensor_view *views, uint32_t n_views, void *saved, bool torch,
                   const call_place *place) {
  CallObject *self = PyObject_New(CallObject, state_of((PyObject *)function)->call_type);
  if (!self) return NULL;
  self->function = (FunctionObject *)Py_NewRef(function);
  self->call = *call, self->views = views, self->n_views = n_views, self->saved = saved, self->spoilt = self->shared = false;
  self->torch = torch, self->place = *place;
  return (PyObject *)self;
}

static void call_dealloc(CallObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  module_state *state = state_of((PyObject *)self);
  if (self->saved || !self->place.gpu) give_block(state, &self->place, self->saved, dc_call_saved_bytes(&self->call));
  end_place(&self->place);
  dc_call_end(&self->call);
  release_views(self->views, self->n_views);
  Py_DECREF(self->function);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* ---- what a backward pass is given ---- */

static const char *output_name(const dc_call *call, uint32_t output) {
  const dc_graph *graph = dc_function_graph(call->function);
  return output < graph->outputs.n ? dc_cont_name(graph, graph->outputs.v[output]) : "";
}

static dc_status check_gradient(const dc_call *call, uint32_t output, const dc_array *given) {
  dc_array want;
  dc_call_output(call, output, &want);
  bool same = want.dtype == given->dtype && want.rank == given->rank && memcmp(want.dims, given->dims, want.rank * sizeof *want.dims) == 0;
  return same ? DC_OK
              : dc_error(DC_ERR_SHAPE, "the gradient of output '%s' has another type or shape than the output", output_name(call, output));
}

static dc_status take_own(BackwardObject *self, given_gradient *g, uint64_t bytes) {
  g->bytes = bytes ? bytes : 1;
  return take_block(state_of((PyObject *)self), &self->place, g->bytes, "a gradient", &g->own);
}

static dc_status zero_gradient(BackwardObject *self, uint32_t output, given_gradient *g) {
  dc_array shape;
  dc_call_output(&self->call->call, output, &shape);
  uint64_t bytes = dc_array_bytes(&shape);
  DC_TRY(take_own(self, g, bytes));
  return clear(&self->place, g->own, bytes);
}

/* A gradient lies where the forward ran; one on the host is copied there, if the results are there too or it is a number. */
static dc_status place_gradient(BackwardObject *self, uint32_t output, given_gradient *g) {
  const dc_array *a = &g->view.array;
  const call_place *place = &self->place;
  if (is_there(place, a)) return DC_OK;
  if (a->device != DC_HOST || (!place->to_host && a->rank))
    return dc_error(DC_ERR_DEVICE, "the gradient of output '%s' is not on the device of the output",
                    output_name(&self->call->call, output));
  DC_TRY(take_own(self, g, dc_array_bytes(a)));
  return copy_to(place, g->own, a->data, dc_array_bytes(a));
}

static void note_tapeed(BackwardObject *self, uint32_t output) {
  const FunctionObject *f = self->call->function;
  for (uint32_t k = 0; k < f->n_wrt; k++) self->reached[k] |= function_reaches(f, output, k);
}

/* Reads grads[k] for output k; an exception may be set instead of a status. */
static dc_status read_gradients(BackwardObject *self, PyObject *grads, void **data) {
  module_state *state = state_of((PyObject *)self);
  const dc_call *call = &self->call->call;
  if (PyTuple_GET_SIZE(grads) != (Py_ssize_t)call->n_outputs)
    return dc_error(DC_ERR_VALUE, "expected a gradient or None for each of %u outputs, got %zd", call->n_outputs, PyTuple_GET_SIZE(grads));
  for (uint32_t k = 0; k < call->n_outputs; k++) {
    dc_array shape;
    PyObject *item = PyTuple_GET_ITEM(grads, k);
    dc_call_output(call, k, &shape);
    if (!dc_dtype_is_float(shape.dtype)) continue;
    if (item != Py_None) note_tapeed(self, k);
    given_gradient *g = &self->given[self->n_given];
    void **place = &data[self->n_given++];
    if (item == Py_None) DC_TRY(zero_gradient(self, k, g));
    else if (view_anywhere(state, item, &g->view)) return blame(state, "gradient of output", output_name(call, k)), DC_OK;
    else {
      DC_TRY(check_gradient(call, k, &g->view.array));
      DC_TRY(place_gradient(self, k, g));
    }
    g->item = item == Py_None ? NULL : Py_NewRef(item);
    self->shares_given &= item == Py_None || g->view.is_torch;
    *place = g->own ? g->own : g->view.array.data;
  }
  return DC_OK;
}

static bool reads_result(const dc_call *call, uint32_t k) {
  bool reads = false;
  for (uint32_t part = 0; part < dc_call_parts(call) && !reads; part++) reads = dc_call_reads_result(call, part, k);
  return reads;
}

/* Reads results[k], where a part reads the k-th result of the call; an exception may be set instead of a status. */
static dc_status read_results(BackwardObject *self, PyObject *results, void **data) {
  module_state *state = state_of((PyObject *)self);
  const dc_call *call = &self->call->call;
  bool given = results && PyTuple_Check(results) && PyTuple_GET_SIZE(results) == (Py_ssize_t)call->n_outputs;
  for (uint32_t k = 0; k < call->n_outputs; k++) {
    given_result *r = &self->results[k];
    dc_array want;
    if (!reads_result(call, k)) continue;
    PyObject *item = given ? PyTuple_GET_ITEM(results, k) : Py_None;
    if (item == Py_None)
      return dc_error(DC_ERR_VALUE, "the backward pass reads output '%s', which is to be given to it", output_name(call, k));
    if (view_anywhere(state, item, &r->view)) return blame(state, "output", output_name(call, k)), DC_OK;
    r->item = Py_NewRef(item);
    dc_call_output(call, k, &want);
    const dc_array *a = &r->view.array;
    bool same = a->dtype == want.dtype && a->rank == want.rank && !memcmp(a->dims, want.dims, want.rank * sizeof *want.dims);
    if (!same || !is_there(&self->place, a))
      return dc_error(DC_ERR_VALUE, "output '%s' has another type, shape or place than when the function was called", output_name(call, k));
    data[k] = a->data;
  }
  return DC_OK;
}

static BackwardObject *new_backward(CallObject *call) {
  BackwardObject *self = PyObject_New(BackwardObject, state_of((PyObject *)call)->backward_type);
  if (!self) return NULL;
  self->place = call->place, self->place.staged = NULL;
  self->call = (CallObject *)Py_NewRef(call), self->n_given = 0, self->run = NULL, self->running = false, self->shares_given = call->torch;
  size_t n_out = call->call.n_outputs, n_wrt = call->function->n_wrt;
  self->given = PyMem_Calloc(1, n_out * (sizeof *self->given + sizeof *self->results) +
                                    n_wrt * (sizeof *self->made + sizeof *self->reached)); /* one block */
  self->results = (given_result *)(self->given + n_out);
  self->made = (made_gradient *)(self->results + n_out);
  self->reached = (bool *)(self->made + n_wrt);
  if (self->given) return self;
  Py_DECREF(self);
  PyErr_NoMemory();
  return NULL;
}

/* What the backward pass reads of the arguments: FSDP frees parameters after the forward pass and brings them back elsewhere. */
static int renew_views(CallObject *self) {
  module_state *state = state_of((PyObject *)self);
  for (uint32_t k = 0; k < self->n_views; k++) {
    bool reads = false;
    for (uint32_t part = 0; part < dc_call_parts(&self->call) && !reads; part++) reads = dc_call_reads(&self->call, part, k);
    if (!reads) continue;
    if (renew_view(state, &self->views[k])) return -1;
    if (self->views[k].array.data || !dc_array_bytes(&self->views[k].array)) continue;
    PyErr_Format(state->errors[DC_ERR_VALUE], "the backward pass reads argument %u, whose memory has been freed", k);
    return -1;
  }
  return 0;
}

static PyObject *begin_pass(CallObject *self, PyObject *const *args, Py_ssize_t n, bool is_last) {
  module_state *state = state_of((PyObject *)self);
  if (self->spoilt) return PyErr_Format(state->errors[DC_ERR_VALUE], "the last backward pass of this call has begun");
  if (n < 1 || n > 2) return PyErr_Format(PyExc_TypeError, "expected gradients, and results or None, got %zd arguments", n);
  void *small[64], **data = self->call.n_outputs <= 32 ? small : PyMem_Calloc(2 * (size_t)self->call.n_outputs, sizeof *data);
  void **results = data ? data + self->call.n_outputs : NULL;
  PyObject *items = PySequence_Tuple(args[0]);
  BackwardObject *out = items && data ? new_backward(self) : NULL;
  if (out && find_stream(state, &out->place)) Py_CLEAR(out);
  if (out && renew_views(self)) Py_CLEAR(out);
  dc_array *arrays = out ? arrays_of(self->views, self->n_views) : NULL;
  dc_status status = arrays ? read_gradients(out, items, data) : PyErr_Occurred() ? DC_OK : dc_error(DC_ERR_MEMORY, "out of memory");
  if (!status && !PyErr_Occurred())
    status = read_results(out, n > 1 ? args[1] : NULL, results);
  if (!status && !PyErr_Occurred())
    status = dc_backward_begin(&self->call, arrays, results, data, self->saved, is_last && !self->shared, out->place.stream, &out->run);
  if (out && out->run && out->shares_given) dc_backward_share_given(out->run);
  if (PyErr_Occurred()) dc_status_free(status);
  else if (status) raise_status(state, status);
  if (PyErr_Occurred()) Py_CLEAR(out);
  self->spoilt = out && is_last;
  if (data != small) PyMem_Free(data);
  PyMem_Free(arrays);
  Py_XDECREF(items);
  return (PyObject *)out;
}

/* start(grads, results=None) -> Backward: one gradient or None for each output, and the results that the pass reads. */
static PyObject *call_start(CallObject *self, PyObject *const *args, Py_ssize_t n) { return begin_pass(self, args, n, false); }
static PyObject *call_start_last(CallObject *self, PyObject *const *args, Py_ssize_t n) { return begin_pass(self, args, n, true); }

static dc_status finish_gradient(BackwardObject *self, uint32_t k) {
  dc_array shape;
  made_gradient *made = &self->made[k];
  void *host = made->host;
  dc_call_gradient(&self->call->call, k, &shape);
  made->host = NULL;
  return finish_result(&self->place, &shape, made->data, host);
}

static void backward_dealloc(BackwardObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  module_state *state = state_of((PyObject *)self);
  dc_backward_end(self->run);
  for (uint32_t k = 0; k < self->n_given; k++) {
    release_view(&self->given[k].view);
    Py_XDECREF(self->given[k].item);
    if (self->given[k].own) give_block(state, &self->place, self->given[k].own, self->given[k].bytes);
  }
  for (uint32_t k = 0; self->given && k < self->call->call.n_outputs; k++) {
    if (self->results[k].item) release_view(&self->results[k].view);
    Py_XDECREF(self->results[k].item);
  }
  for (uint32_t k = 0; self->given && k < self->call->function->n_wrt; k++) {
    if (self->made[k].host) dc_status_free(finish_gradient(self, k));
    Py_XDECREF(self->made[k].array);
  }
  PyMem_Free(self->given);
  Py_DECREF(self->call);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* ---- the parts ---- */

/* Makes the gradients that the next part begins. */
static int make_gradients(BackwardObject *self) {
  for (uint32_t k = 0; k < self->call->function->n_wrt; k++) {
    dc_array shape;
    made_gradient *made = &self->made[k];
    if (!dc_backward_needs(self->run, k)) continue;
    dc_call_gradient(&self->call->call, k, &shape);
    made->array = new_result(state_of((PyObject *)self), &self->place, &shape, self->call->torch, &made->data, &made->host);
    if (!made->array) return -1;
    dc_backward_give(self->run, k, made->data);
  }
  return 0;
}

/* Where torch records a path but the gradient is zero all along it, torch has a tensor of zeros. */
static PyObject *zeros(BackwardObject *self, uint32_t k) {
  void *data, *host;
  module_state *state = state_of((PyObject *)self);
  size_t position = PyLong_AsSize_t(PyTuple_GET_ITEM(self->call->function->positions, k));
  dc_array like = self->call->views[position].array;
  PyObject *out = new_result(state, &self->place, &like, self->call->torch, &data, &host);
  if (!out) return NULL;
  dc_status status = clear(&self->place, data, dc_array_bytes(&like)), finished = finish_result(&self->place, &like, data, host);
  if (!status && !finished) return out;
  if (status) dc_status_free(finished);
  raise_status(state, status ? status : finished);
  Py_DECREF(out);
  return NULL;
}

/* The k-th gradient, handed out: None where nothing that was given a gradient depends on it. */
static PyObject *take(BackwardObject *self, uint32_t k) {
  int32_t same = self->shares_given ? dc_call_copied(&self->call->call, k) : -1;
  PyObject *out = same >= 0 ? Py_XNewRef(self->given[same].item) : self->made[k].array;
  self->made[k].array = NULL;
  if (!self->reached[k]) return Py_XDECREF(out), Py_NewRef(Py_None);
  if (out) return out;
  return self->call->function->tape ? zeros(self, k) : Py_NewRef(Py_None);
}

/* The gradients that a part has completed come to the host, if that is their place. */
static dc_status finish_gradients(BackwardObject *self, uint32_t part) {
  for (uint32_t k = 0; self->place.to_host && k < self->call->function->n_wrt; k++)
    if (self->made[k].host && dc_call_ready(&self->call->call, k) == part) DC_TRY(finish_gradient(self, k));
  return DC_OK;
}

/* next() -> the gradients that the next part completes, in the order of wrt. */
static PyObject *backward_next(BackwardObject *self, PyObject *unused) {
  module_state *state = state_of((PyObject *)self);
  (void)unused;
  if (self->running || dc_backward_done(self->run))
    return PyErr_Format(state->errors[DC_ERR_VALUE], self->running ? "the backward pass is running" : "the backward pass has ended");
  const dc_call *call = &self->call->call;
  uint32_t n_wrt = self->call->function->n_wrt, part = dc_backward_part(self->run), n = 0;
  for (uint32_t k = 0; k < n_wrt; k++) n += dc_call_ready(call, k) == part;
  PyObject *out = make_gradients(self) ? NULL : PyTuple_New(n);
  if (!out) return NULL;
  dc_status status;
  self->running = true;
  WITHOUT_GIL_UNLESS(dc_binding_is_brief(call->backward), status = dc_backward_next(self->run));
  self->running = false;
  if (!status) status = finish_gradients(self, part);
  bool taken = true;
  for (uint32_t k = 0, at = 0; k < n_wrt; k++) {
    if (dc_call_ready(call, k) != part) continue;
    PyObject *gradient = take(self, k);
    taken &= gradient != NULL;
    PyTuple_SET_ITEM(out, at++, gradient);
  }
  if (!status && taken) return out;
  Py_DECREF(out);
  if (status) raise_status(state, status);
  return NULL;
}

/* backward(grads, results=None): all parts at once; one gradient for each wrt. */
PyObject *call_backward(PyObject *call, PyObject *const *args, Py_ssize_t n) {
  CallObject *self = (CallObject *)call;
  uint32_t n_wrt = self->function->n_wrt, at = 0;
  PyObject *run = call_start(self, args, n), *out = run ? PyTuple_New(n_wrt) : NULL;
  for (uint32_t part = 0; out && part < dc_call_parts(&self->call); part++, at = 0) {
    PyObject *found = backward_next((BackwardObject *)run, NULL);
    for (uint32_t k = 0; found && k < n_wrt; k++)
      if (dc_call_ready(&self->call, k) == part) PyTuple_SET_ITEM(out, k, Py_NewRef(PyTuple_GET_ITEM(found, at++)));
    if (!found) Py_CLEAR(out);
    Py_XDECREF(found);
  }
  Py_XDECREF(run);
  return out;
}

static int append(PyObject *list, PyObject *item) {
  int failed = !item || PyList_Append(list, item);
  Py_XDECREF(item);
  return failed;
}

/* (positions of what a part completes, positions of what it reads, both among inputs and parameters; of results that it reads). */
static PyObject *describe_part(const CallObject *self, uint32_t part) {
  PyObject *completes = PyList_New(0), *reads = PyList_New(0), *results = PyList_New(0), *out = NULL;
  int failed = !completes || !reads || !results;
  for (uint32_t k = 0; !failed && k < self->function->n_wrt; k++)
    if (dc_call_ready(&self->call, k) == part) failed = PyList_Append(completes, PyTuple_GET_ITEM(self->function->positions, k));
  for (uint32_t k = 0; !failed && k < self->n_views; k++)
    if (dc_call_reads(&self->call, part, k)) failed = append(reads, PyLong_FromUnsignedLong(k));
  for (uint32_t k = 0; !failed && k < self->call.n_outputs; k++)
    if (dc_call_reads_result(&self->call, part, k)) failed = append(results, PyLong_FromUnsignedLong(k));
  if (!failed) out = Py_BuildValue("(NNN)", PyList_AsTuple(completes), PyList_AsTuple(reads), PyList_AsTuple(results));
  Py_XDECREF(results);
  Py_XDECREF(completes);
  Py_XDECREF(reads);
  return out;
}

static PyObject *call_parts(CallObject *self, void *unused) {
  FunctionObject *f = self->function;
  uint32_t plan = dc_call_plan(&self->call), n = dc_call_parts(&self->call);
  (void)unused;
  if (f->parts && f->parts_of == plan) return Py_NewRef(f->parts);
  PyObject *out = PyTuple_New(n);
  for (uint32_t part = 0; out && part < n; part++) {
    PyObject *item = describe_part(self, part);
    if (!item) Py_CLEAR(out);
    else PyTuple_SET_ITEM(out, part, item);
  }
  if (!out) return NULL;
  Py_XSETREF(f->parts, Py_NewRef(out));
  f->parts_of = plan;
  return out;
}

static PyMethodDef call_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))call_backward, METH_FASTCALL,
     "backward(grads, results=None) -> gradients by wrt, None where zero."},
    {"derivative", (PyCFunction)call_derivative, METH_VARARGS,
     "derivative(grads, wanted) -> (Function or None, kinds, shared): the gradients as a function, see call/twice.py."},
    {"start", (PyCFunction)(void (*)(void))call_start, METH_FASTCALL, "start(grads, results=None) -> Backward, a pass in parts."},
    {"start_last", (PyCFunction)(void (*)(void))call_start_last, METH_FASTCALL,
     "start_last(grads, results=None) -> Backward, after which there is no other: it may work where saved values lie."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef call_properties[] = {
    {"parts", (getter)call_parts, NULL,
     "for each part of the backward pass: (positions of the wrt that it completes, positions of what it reads, results that it reads)",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot call_slots[] = {
    {Py_tp_dealloc, call_dealloc}, {Py_tp_methods, call_methods}, {Py_tp_getset, call_properties}, {0, NULL}};
PyType_Spec call_spec = {"dcml._core.Call", sizeof(CallObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, call_slots};

static PyMethodDef backward_methods[] = {
    {"next", (PyCFunction)backward_next, METH_NOARGS, "next() -> the gradients that the next part completes, None where zero."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot backward_slots[] = {{Py_tp_dealloc, backward_dealloc}, {Py_tp_methods, backward_methods}, {0, NULL}};
PyType_Spec backward_spec = {"dcml._core.Backward", sizeof(BackwardObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             backward_slots};
