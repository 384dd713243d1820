/* The Function type: a graph made callable on tensors and arrays. */
#include "python/placing.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

/* ---- hooks ---- */

static dc_status hook_failed(void) { return dc_error(DC_ERR_VALUE, "a hook raised an exception"); }

/* A handle that the hook kept gets a copy: the lent graph changes, and may go before the handle does. */
static void end_loan(PyObject *handle, const dc_graph *lent) {
  GraphObject *graph = (GraphObject *)handle;
  if (handle && Py_REFCNT(handle) > 1) {
    graph->graph = dc_graph_clone(lent);
    Py_CLEAR(graph->owner);
  }
  Py_XDECREF(handle);
}

/* Graphs are lent: the hook sees handles that do not own them. */
static dc_status call_hook(FunctionObject *self, PyObject *hook, dc_graph *forward, dc_graph *backward) {
  module_state *state = state_of((PyObject *)self);
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *f = wrap_graph(state, forward, (PyObject *)self), *b = backward ? wrap_graph(state, backward, (PyObject *)self) : NULL;
  PyObject *result = !f ? NULL : b ? PyObject_CallFunctionObjArgs(hook, f, b, NULL) : PyObject_CallFunctionObjArgs(hook, f, NULL);
  end_loan(f, forward);
  end_loan(b, backward);
  Py_XDECREF(result);
  PyGILState_Release(gil);
  return result ? DC_OK : hook_failed();
}

static dc_status post_onnx(void *context, dc_graph *f, dc_graph *b) {
  return call_hook(context, ((FunctionObject *)context)->post_onnx, f, b);
}
static dc_status post_autodiff(void *context, dc_graph *f, dc_graph *b) {
  return call_hook(context, ((FunctionObject *)context)->post_autodiff, f, b);
}
static dc_status post_compile(void *context, dc_graph *f, dc_graph *b) {
  return call_hook(context, ((FunctionObject *)context)->post_compile, f, b);
}

/* ---- creation ---- */

static PyObject *function_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *kwnames);

static int choose(module_state *state, const char *word, const char *const *words, const char *what) {
  for (int k = 0; words[k]; k++)
    if (strcmp(words[k], word) == 0) return k;
  PyErr_Format(state->errors[DC_ERR_VALUE], "%s '%s' is not known", what, word);
  return -1;
}

static int wrt_names(PyObject *wrt, const char ***out, uint32_t *n) {
  PyObject *items = PySequence_Fast(wrt, "expected a list of names");
  if (!items) return -1;
  *n = (uint32_t)PySequence_Fast_GET_SIZE(items);
  *out = PyMem_Calloc(*n + 1, sizeof **out);
  for (uint32_t k = 0; *out && k < *n; k++) (*out)[k] = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(items, k));
  Py_DECREF(items); /* the strings live as long as the caller's list */
  return *out && !PyErr_Occurred() ? 0 : -1;
}

static PyObject *wrt_positions(module_state *state, const dc_graph *graph, const char *const *wrt, uint32_t n) {
  PyObject *list = PyTuple_New(n);
  for (uint32_t k = 0; list && k < n; k++) {
    long position = -1, at = graph->inputs.n;
    for (uint32_t i = 0; i < graph->inputs.n; i++)
      if (strcmp(dc_cont_name(graph, graph->inputs.v[i]), wrt[k]) == 0) position = i;
    for (dc_cid c = 1; c < graph->containers.n; c++) {
      if (dc_cont(graph, c)->role != DC_ROLE_PARAM) continue;
      if (strcmp(dc_cont_name(graph, c), wrt[k]) == 0) position = at;
      at++;
    }
    if (position < 0) {
      PyErr_Format(state->errors[DC_ERR_VALUE], "'%s' is no input or parameter of the graph", wrt[k]);
      Py_CLEAR(list);
    } else PyTuple_SET_ITEM(list, k, PyLong_FromLong(position));
  }
  return list;
}

/* tape: for each output, the names of what lies on its tape. */
static int note_tape(FunctionObject *self, PyObject *tape, const char *const *wrt) {
  PyObject *items = PySequence_Fast(tape, "expected a list of sets of names");
  Py_ssize_t n = items ? PySequence_Fast_GET_SIZE(items) : 0;
  self->differentiable = items ? PyTuple_New(n) : NULL;
  self->tape = PyMem_Calloc((size_t)n * self->n_wrt + 1, sizeof *self->tape);
  int failed = !self->differentiable || !self->tape;
  for (Py_ssize_t k = 0; !failed && k < n; k++) {
    bool any = false;
    for (uint32_t w = 0; !failed && w < self->n_wrt; w++) {
      PyObject *name = PyUnicode_FromString(wrt[w]);
      int found = name ? PySequence_Contains(PySequence_Fast_GET_ITEM(items, k), name) : -1;
      failed = found < 0;
      self->tape[(size_t)k * self->n_wrt + w] = found > 0;
      any |= found > 0;
      Py_XDECREF(name);
    }
    PyTuple_SET_ITEM(self->differentiable, k, Py_NewRef(any ? Py_True : Py_False));
  }
  Py_XDECREF(items);
  return failed ? -1 : 0;
}

bool function_reaches(const FunctionObject *f, uint32_t output, uint32_t k) {
  return !f->tape || output >= PyTuple_GET_SIZE(f->differentiable) || f->tape[(size_t)output * f->n_wrt + k];
}

static PyObject *hook_or_null(PyObject *hook) { return hook && hook != Py_None ? Py_NewRef(hook) : NULL; }

/* Takes the graph.  options: all but the hooks, which are those of self. */
static int function_init(module_state *state, FunctionObject *self, dc_graph *graph, dc_function_options *options, PyObject *tape) {
  options->post_onnx = self->post_onnx ? post_onnx : NULL;
  options->post_autodiff = self->post_autodiff ? post_autodiff : NULL;
  options->post_compile = self->post_compile ? post_compile : NULL;
  options->hook_context = self;
  self->n_inputs = graph->inputs.n, self->n_wrt = options->n_wrt, self->training = options->training;
  for (dc_cid c = 1; c < graph->containers.n; c++) self->n_params += dc_cont(graph, c)->role == DC_ROLE_PARAM;
  self->vectorcall = function_call;
  self->positions = name_arguments(self, graph) ? NULL : wrt_positions(state, graph, options->wrt, options->n_wrt);
  if (self->positions && options->training && tape != Py_None && note_tape(self, tape, options->wrt)) Py_CLEAR(self->positions);
  dc_status status = dc_function_create(session_of(state), graph, options, &self->function);
  if (status) raise_status(state, status);
  return status || !self->positions ? -1 : 0;
}

/* A function of torch's that knows its GPU works in torch's memory. */
static int use_gpu(module_state *state, int32_t ordinal, bool torch, dc_function_options *options) {
  dc_gpu *gpu = gpu_of(state, ordinal > 0 ? ordinal : 0);
  if (!gpu) return -1;
  if (!torch || ordinal < 0) return 0;
  options->memory = torch_memory_of(state, gpu_memory(gpu));
  return options->memory ? 0 : (PyErr_NoMemory(), -1);
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"graph",         "wrt",          "keep",    "backend",      "post_onnx",
                          "post_autodiff", "post_compile", "natives", "optimize",     "torch",
                          "tape",          "flat",         "ordinal", "results_stay", NULL};
  static const char *const keeps[] = {"auto", "store", "recompute", "least", NULL}, *const backends[] = {"auto", "interp", "cpu", "cuda",
                                                                                                         NULL};
  PyObject *graph, *wrt = Py_None, *tape = Py_None, *hooks[3] = {0};
  const char *keep = "auto", *backend = "auto", *natives = NULL;
  int optimize = 1, torch = 0, flat = 0, ordinal = -1, stay = 0;
  module_state *state = PyType_GetModuleState(type);
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OssOOOzppOpip", names, state->graph_type, &graph, &wrt, &keep, &backend, &hooks[0],
                                   &hooks[1], &hooks[2], &natives, &optimize, &torch, &tape, &flat, &ordinal, &stay))
    return NULL;
  int keep_index = choose(state, keep, keeps, "strategy"), backend_index = choose(state, backend, backends, "backend");
  if (keep_index < 0 || backend_index < 0 || !session_of(state)) return NULL;
  dc_function_options options = {.keep = (dc_keep)keep_index,
                                 .backend = (dc_backend_kind)backend_index,
                                 .training = wrt != Py_None,
                                 .natives = natives,
                                 .as_expanded = !optimize,
                                 .results_stay = stay};
  const char **list = NULL;
  if (torch && use_torch(state)) return NULL;
  bool cuda = options.backend == DC_BACKEND_CUDA;
  if (cuda && use_gpu(state, ordinal, torch, &options)) return NULL;
  if (options.training && wrt_names(wrt, &list, &options.n_wrt)) return NULL;
  FunctionObject *self = (FunctionObject *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->torch = torch, self->flat = flat, self->ordinal = ordinal;
  self->on_gpu = cuda, self->on_host = !cuda && options.backend != DC_BACKEND_AUTO;
  self->post_onnx = hook_or_null(hooks[0]), self->post_autodiff = hook_or_null(hooks[1]), self->post_compile = hook_or_null(hooks[2]);
  options.wrt = list;
  if (function_init(state, self, dc_graph_clone(((GraphObject *)graph)->graph), &options, tape)) Py_CLEAR(self);
  PyMem_Free(list);
  return (PyObject *)self;
}

PyObject *function_derive(FunctionObject *f, const dc_derivative *made, const char *const *wrt, uint32_t n_wrt) {
  PyTypeObject *type = Py_TYPE(f);
  FunctionObject *self = (FunctionObject *)type->tp_alloc(type, 0);
  if (!self) return dc_graph_destroy(made->graph), NULL;
  self->shared = PyMem_Calloc(made->n_shared + 1, sizeof *self->shared), self->n_shared = self->shared ? made->n_shared : 0;
  for (uint32_t k = 0; k < self->n_shared; k++) self->shared[k] = made->given[made->n_given - made->n_shared + k].value;
  self->torch = f->torch, self->on_gpu = f->on_gpu, self->on_host = f->on_host, self->ordinal = f->ordinal;
  self->post_onnx = Py_XNewRef(f->post_onnx), self->post_autodiff = Py_XNewRef(f->post_autodiff),
  self->post_compile = Py_XNewRef(f->post_compile);
  dc_function_options options = *dc_function_get_options(f->function);
  options.wrt = wrt, options.n_wrt = n_wrt, options.given = made->given, options.n_given = made->n_given;
  if (function_init(state_of((PyObject *)f), self, made->graph, &options, Py_None)) Py_CLEAR(self);
  return (PyObject *)self;
}

static int function_traverse(FunctionObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->post_onnx);
  Py_VISIT(self->post_autodiff);
  Py_VISIT(self->post_compile);
  Py_VISIT(self->params);
  Py_VISIT(self->observer);
  Py_VISIT(self->derivatives);
  return 0;
}

static int function_clear(FunctionObject *self) {
  Py_CLEAR(self->post_onnx);
  Py_CLEAR(self->post_autodiff);
  Py_CLEAR(self->post_compile);
  Py_CLEAR(self->params);
  Py_CLEAR(self->observer);
  Py_CLEAR(self->derivatives);
  Py_CLEAR(self->names);
  Py_CLEAR(self->symbols);
  Py_CLEAR(self->positions);
  Py_CLEAR(self->parts);
  Py_CLEAR(self->differentiable);
  Py_CLEAR(self->influences);
  return 0;
}

static void function_dealloc(FunctionObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  function_clear(self);
  PyMem_Free(self->tape);
  PyMem_Free(self->shared);
  dc_function_destroy(self->function);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

/* ---- arguments ---- */

void release_views(tensor_view *views, uint32_t n) {
  for (uint32_t k = 0; views && k < n; k++) release_view(&views[k]);
  PyMem_Free(views);
}

const char *argument_name(FunctionObject *self, uint32_t k) {
  const dc_graph *graph = dc_function_graph(self->function);
  if (k < graph->inputs.n) return dc_cont_name(graph, graph->inputs.v[k]);
  dc_cid c = 0;
  for (k -= graph->inputs.n; c + 1 < graph->containers.n; ) /* the k-th weight */
    if (dc_cont(graph, ++c)->role == DC_ROLE_PARAM && !k--) break;
  return dc_cont_name(graph, c);
}

static int check_counts(FunctionObject *self, Py_ssize_t n) {
  Py_ssize_t given = self->params ? PyTuple_GET_SIZE(self->params) : 0;
  if (n == (Py_ssize_t)self->n_inputs && given == (Py_ssize_t)self->n_params) return 0;
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "expected %u inputs and %u parameters, got %zd and %zd", self->n_inputs,
               self->n_params, n, given);
  return -1;
}

/* Do this input and the last one have the same extent? */
static bool is_like_last(const FunctionObject *self, uint32_t k) {
  const dc_graph *graph = dc_function_graph(self->function);
  const dc_container *a = dc_cont(graph, graph->inputs.v[k]), *b = dc_cont(graph, graph->inputs.v[k - 1]);
  return a->rank == 1 && b->rank == 1 && a->shape[0] == b->shape[0];
}

static tensor_view *view_all(FunctionObject *self, PyObject *const *inputs, bool *torch) {
  module_state *state = state_of((PyObject *)self);
  uint32_t n = self->n_inputs, total = n + self->n_params;
  tensor_view *views = PyMem_Malloc((total + 1) * sizeof *views);
  *torch = self->torch;
  for (uint32_t k = 0; views && k < total; k++) {
    if (k < n ? view_argument(self, k, inputs[k], &views[k]) : view_anywhere(state, PyTuple_GET_ITEM(self->params, k - n), &views[k])) {
      blame(state, k < n ? "input" : "weight", argument_name(self, k));
      release_views(views, k);
      return NULL;
    }
    if (k && k < n && views[k].layout != views[k - 1].layout && is_like_last(self, k)) {
      PyErr_Format(state->errors[DC_ERR_SHAPE], "input '%s' lies in memory in another order than '%s'", argument_name(self, k),
                   argument_name(self, k - 1));
      release_views(views, k + 1);
      return NULL;
    }
    *torch |= views[k].is_torch && (k < n || n == 0);
  }
  if (!views) PyErr_NoMemory();
  return views;
}

dc_array *arrays_of(const tensor_view *views, uint32_t n) {
  dc_array *arrays = PyMem_Malloc((n + 1) * sizeof *arrays);
  for (uint32_t k = 0; arrays && k < n; k++) arrays[k] = views[k].array;
  return arrays;
}

/* An exception of a hook is the caller's to see, not ours to replace. */
static void raise_call(module_state *state, dc_status status) {
  if (PyErr_Occurred()) dc_status_free(status);
  else raise_status(state, status);
}

/* ---- forward ---- */

/* A result: where a program writes it, and where it goes from there, or NULL. */
typedef struct {
  void **data, **host;
} result_places;

static PyObject *make_outputs(module_state *state, const dc_call *call, bool torch, const call_place *place, result_places to) {
  PyObject *outputs = PyTuple_New(call->n_outputs);
  for (uint32_t k = 0; outputs && k < call->n_outputs; k++) {
    dc_array shape;
    dc_call_output(call, k, &shape);
    PyObject *tensor = new_result(state, place, &shape, torch, &to.data[k], &to.host[k]);
    if (tensor) PyTuple_SET_ITEM(outputs, k, tensor);
    else {
      const dc_graph *graph = dc_function_graph(call->function);
      blame(state, "output", k < graph->outputs.n ? dc_cont_name(graph, graph->outputs.v[k]) : "");
      Py_CLEAR(outputs);
    }
  }
  return outputs;
}

/* What was computed elsewhere comes to where it was asked for, also where the run failed, since its memory is given back. */
static dc_status finish_outputs(const dc_call *call, const call_place *place, result_places to) {
  dc_status status = DC_OK;
  for (uint32_t k = 0; place->to_host && k < call->n_outputs; k++) {
    dc_array shape;
    dc_call_output(call, k, &shape);
    dc_status one = finish_result(place, &shape, to.data[k], to.host[k]);
    if (status) dc_status_free(one);
    else status = one;
  }
  return status;
}

/* Runs a begun call; on success *saved is the saved block (or NULL). */
static PyObject *run_forward(module_state *state, dc_call *call, bool torch, const call_place *place, void **saved) {
  enum { FEW = 32 };
  void *small[2 * FEW], **data = call->n_outputs <= FEW ? small : PyMem_Calloc(2 * (size_t)call->n_outputs, sizeof *data);
  if (place->to_host && data == small) memset(small, 0, sizeof small);
  result_places to = {data, data ? data + call->n_outputs : NULL};
  PyObject *outputs = data ? make_outputs(state, call, torch, place, to) : PyErr_NoMemory();
  uint64_t bytes = dc_call_saved_bytes(call);
  *saved = NULL;
  dc_status status = outputs && bytes ? take_block(state, place, bytes, "saved values", saved) : DC_OK;
  if (outputs && !status) WITHOUT_GIL_UNLESS(dc_binding_is_brief(call->forward), status = dc_call_run(call, data, *saved));
  dc_status finished = data ? finish_outputs(call, place, to) : DC_OK;
  if (status) dc_status_free(finished);
  else status = finished;
  if (data != small) PyMem_Free(data);
  if (!status && outputs) return outputs;
  if (PyErr_Occurred()) dc_status_free(status);
  else if (status) raise_status(state, status);
  Py_XDECREF(outputs);
  give_block(state, place, *saved, bytes);
  *saved = NULL;
  return NULL;
}

/* The outputs for views of all inputs and weights; *record is what a backward pass needs, which takes the views, NULL without training. */
static PyObject *run_viewed(FunctionObject *self, tensor_view *views, bool torch, const int64_t *symbols, PyObject **record) {
  module_state *state = state_of((PyObject *)self);
  uint32_t n = self->n_inputs + self->n_params;
  call_place place;
  *record = NULL;
  if (place_call(self, views, n, &place)) return NULL;
  dc_array *arrays = arrays_of(views, n);
  dc_call call;
  void *saved = NULL;
  dc_status status =
      arrays ? dc_call_begin(self->function, arrays, n, symbols, place.stream, &call) : dc_error(DC_ERR_MEMORY, "out of memory");
  PyMem_Free(arrays);
  bool declined = !status && self->most_work > 0 && dc_binding_work(call.forward) > self->most_work;
  PyObject *outputs = status ? NULL : declined ? Py_NewRef(Py_NotImplemented) : run_forward(state, &call, torch, &place, &saved);
  uint64_t saved_bytes = saved ? dc_call_saved_bytes(&call) : 0;
  if (status) raise_call(state, status);
  else if (outputs && (status = return_written(&place, self, views, n))) {
    raise_status(state, status), status = DC_OK;
    Py_CLEAR(outputs);
  }
  if (outputs && self->training && !(*record = call_new(self, &call, views, n, saved, torch, &place))) Py_CLEAR(outputs);
  if (*record) return outputs;
  if (saved || !status) give_block(state, &place, saved, saved_bytes);
  if (!status) dc_call_end(&call);
  end_place(&place);
  return outputs;
}

static PyObject *run(FunctionObject *self, PyObject *const *inputs, const int64_t *symbols, PyObject **record) {
  bool torch;
  tensor_view *views = view_all(self, inputs, &torch);
  *record = NULL;
  PyObject *outputs = views ? run_viewed(self, views, torch, symbols, record) : NULL;
  if (views && !*record) release_views(views, self->n_inputs + self->n_params);
  return outputs;
}

PyObject *function_run_views(PyObject *function, tensor_view *views, uint32_t n) {
  FunctionObject *self = (FunctionObject *)function;
  bool torch = false;
  PyObject *record;
  if (check_counts(self, n)) return NULL;
  for (uint32_t k = 0; k < n; k++) torch |= views[k].is_torch;
  return run_viewed(self, views, torch, NULL, &record);
}

/* _run(inputs) -> (outputs, Call or None): no autograd. */
static PyObject *function_run(FunctionObject *self, PyObject *inputs) {
  PyObject *record;
  if (!PyTuple_Check(inputs)) return PyErr_Format(PyExc_TypeError, "expected a tuple of inputs");
  PyObject *outputs = check_counts(self, PyTuple_GET_SIZE(inputs)) ? NULL : run(self, &PyTuple_GET_ITEM(inputs, 0), NULL, &record);
  if (!outputs) return NULL;
  return record ? Py_BuildValue("(NN)", outputs, record) : Py_BuildValue("(NO)", outputs, Py_None);
}

static bool wants_autograd(const module_state *state, FunctionObject *self, PyObject *const *inputs, Py_ssize_t n) {
  if (!self->training) return false;
  for (Py_ssize_t k = 0; k < n; k++)
    if (requires_grad(state, inputs[k])) return true;
  for (Py_ssize_t k = 0; self->params && k < PyTuple_GET_SIZE(self->params); k++)
    if (requires_grad(state, PyTuple_GET_ITEM(self->params, k))) return true;
  return false;
}

/* By the autograd node that node.py has at the moment: the one in C++ may become ready while others serve. */
static PyObject *autograd_apply(module_state *state, PyObject *self, PyObject *inputs) {
  if (!state->node && !(state->node = PyImport_ImportModule("dcml.pytorch.call.node"))) return NULL;
  PyObject *apply = PyObject_GetAttr(state->node, state->apply);
  PyObject *outputs = apply ? PyObject_CallFunctionObjArgs(apply, self, inputs, NULL) : NULL;
  Py_XDECREF(apply);
  return outputs;
}

static PyObject *call_ordered(FunctionObject *self, PyObject *const *inputs, const int64_t *symbols) {
  module_state *state = state_of((PyObject *)self);
  PyObject *record, *outputs;
  if (check_counts(self, self->n_inputs)) return NULL;
  if (!wants_autograd(state, self, inputs, self->n_inputs)) {
    outputs = run(self, inputs, symbols, &record);
    Py_XDECREF(record);
    return outputs;
  }
  PyObject *tuple = PyTuple_New(self->n_inputs);
  for (uint32_t k = 0; tuple && k < self->n_inputs; k++) PyTuple_SET_ITEM(tuple, k, Py_NewRef(inputs[k]));
  outputs = tuple ? autograd_apply(state, (PyObject *)self, tuple) : NULL;
  Py_XDECREF(tuple);
  return outputs;
}

/* function(*inputs, **inputs and symbols) -> outputs; what the graph writes in place is no output. */
static PyObject *function_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *kwnames) {
  FunctionObject *self = (FunctionObject *)object;
  enum { FEW = 32 };
  PyObject *few[FEW], **inputs = few;
  int64_t few_symbols[FEW], *symbols = few_symbols;
  Py_ssize_t n = PyVectorcall_NARGS(flags), n_symbols = PyTuple_GET_SIZE(self->symbols) + 1;
  if (!kwnames && check_counts(self, n)) return NULL;
  if (self->n_inputs > FEW) inputs = PyMem_Calloc(self->n_inputs, sizeof *inputs);
  if (n_symbols > FEW) symbols = PyMem_Calloc((size_t)n_symbols, sizeof *symbols);
  int failed = !inputs || !symbols ? (PyErr_NoMemory(), -1) : order_arguments(self, args, n, kwnames, inputs, symbols);
  PyObject *outputs = failed ? NULL : call_ordered(self, inputs, kwnames ? symbols : NULL);
  if (inputs != few) PyMem_Free(inputs);
  if (symbols != few_symbols) PyMem_Free(symbols);
  return outputs;
}

void function_limit(PyObject *function, double most_work) { ((FunctionObject *)function)->most_work = most_work; }

static PyObject *function_set_params(FunctionObject *self, PyObject *list) {
  PyObject *params = PySequence_Tuple(list);
  if (!params) return NULL;
  if (PyTuple_GET_SIZE(params) != (Py_ssize_t)self->n_params) {
    PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "expected %u parameters, got %zd", self->n_params,
                 PyTuple_GET_SIZE(params));
    Py_DECREF(params);
    return NULL;
  }
  Py_XSETREF(self->params, params);
  Py_RETURN_NONE;
}

/* ---- backward ---- */

/* vjp(inputs, output_grads) -> (outputs, gradients); None for a gradient that is identically zero. */
static PyObject *function_vjp(FunctionObject *self, PyObject *args) {
  PyObject *inputs, *grads;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "OO", &inputs, &grads)) return NULL;
  if (!self->training) return PyErr_Format(state->errors[DC_ERR_VALUE], "the function was made without wrt");
  PyObject *tuple = PySequence_Tuple(inputs), *pair = tuple ? function_run(self, tuple) : NULL;
  PyObject *gradients = pair ? call_backward(PyTuple_GET_ITEM(pair, 1), (PyObject *[]){grads, PyTuple_GET_ITEM(pair, 0)}, 2) : NULL;
  PyObject *out = gradients ? Py_BuildValue("(ON)", PyTuple_GET_ITEM(pair, 0), gradients) : NULL;
  Py_XDECREF(tuple);
  Py_XDECREF(pair);
  return out;
}

/* ---- views ---- */

static PyObject *graph_of(FunctionObject *self, const dc_graph *graph) {
  if (!graph) Py_RETURN_NONE;
  return wrap_graph(state_of((PyObject *)self), dc_graph_clone(graph), NULL);
}

static PyObject *get_forward(FunctionObject *self, void *unused) {
  return (void)unused, graph_of(self, dc_function_forward(self->function));
}
static PyObject *get_backward(FunctionObject *self, void *unused) {
  return (void)unused, graph_of(self, dc_function_backward(self->function));
}

static PyObject *get_params(FunctionObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(self->params ? self->params : Py_None);
}

static PyObject *get_differentiable(FunctionObject *self, void *unused) {
  return (void)unused, Py_NewRef(self->differentiable ? self->differentiable : Py_None);
}

/* Found when it is first asked for: most functions are differentiated once. */
static PyObject *get_influences(FunctionObject *self, void *unused) {
  uint32_t n = dc_function_graph(self->function)->outputs.n;
  (void)unused;
  if (self->influences) return Py_NewRef(self->influences);
  bool *outputs = PyMem_Calloc(n + 1, sizeof *outputs);
  PyObject *bytes = outputs ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)self->n_inputs + self->n_params) : PyErr_NoMemory();
  for (uint32_t k = 0; bytes && k < n; k++)
    outputs[k] =
        !self->differentiable || k >= PyTuple_GET_SIZE(self->differentiable) || PyTuple_GET_ITEM(self->differentiable, k) == Py_True;
  if (bytes) dc_function_influences(self->function, outputs, (bool *)PyBytes_AS_STRING(bytes));
  PyMem_Free(outputs);
  return Py_XNewRef(self->influences = bytes);
}

static PyObject *get_positions(FunctionObject *self, void *unused) { return (void)unused, Py_NewRef(self->positions); }

/* What an observer raises is no reason to stop half-way through a program. */
static void call_observer(void *context, const dc_graph *graph, dc_nid node, bool begins) {
  FunctionObject *self = context;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *observer = Py_XNewRef(self->observer),
           *result = observer ? PyObject_CallFunction(observer, "sO", node_label(graph, node), begins ? Py_True : Py_False) : NULL;
  if (observer && !result) PyErr_WriteUnraisable(observer);
  Py_XDECREF(result);
  Py_XDECREF(observer);
  PyGILState_Release(gil);
}

static PyObject *function_observe(FunctionObject *self, PyObject *observer) {
  Py_XSETREF(self->observer, observer == Py_None ? NULL : Py_NewRef(observer));
  dc_function_observe(self->function, self->observer ? call_observer : NULL, self);
  Py_RETURN_NONE;
}

static PyObject *get_observer(FunctionObject *self, void *unused) {
  return (void)unused, Py_NewRef(self->observer ? self->observer : Py_None);
}

dc_function *function_core(PyObject *self) { return ((FunctionObject *)self)->function; }

/* Positions, as in wrt_positions, of what the backward pass of the last plan reads. */
static PyObject *get_reads(FunctionObject *self, void *unused) {
  PyObject *list = PyList_New(0);
  (void)unused;
  for (uint32_t k = 0; list && k < self->n_inputs + self->n_params; k++) {
    if (!dc_function_backward_reads(self->function, k)) continue;
    PyObject *position = PyLong_FromUnsignedLong(k);
    if (!position || PyList_Append(list, position)) Py_CLEAR(list);
    Py_XDECREF(position);
  }
  PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
  Py_XDECREF(list);
  return tuple;
}

static PyObject *get_plans(FunctionObject *self, void *unused) {
  return (void)unused, PyLong_FromUnsignedLong(dc_function_plans(self->function));
}

static PyMethodDef methods[] = {
    {"report", function_report, METH_NOARGS, "report() -> (forward, backward): steps and memory plan as they ran last, or None."},
    {"observe", (PyCFunction)function_observe, METH_O, "observe(f): calls f(label, begins) around each step; None ends it."},
    {"time", function_time, METH_O, "time(on): starts timing each step, from zero, or stops it."},
    {"_run", (PyCFunction)function_run, METH_O, "_run(inputs) -> (outputs, Call or None), without autograd."},
    {"set_params", (PyCFunction)function_set_params, METH_O, "set_params(tensors): the weights of the next calls, shared and not copied."},
    {"vjp", (PyCFunction)function_vjp, METH_VARARGS, "vjp(inputs, output_grads) -> (outputs, gradients by wrt)."},
    {NULL, NULL, 0, NULL}};
static PyObject *get_names(FunctionObject *self, void *unused) { return (void)unused, Py_NewRef(self->names); }
static PyObject *get_symbols(FunctionObject *self, void *unused) { return (void)unused, Py_NewRef(self->symbols); }

static PyGetSetDef properties[] = {
    {"arguments", (getter)get_names, NULL, "names of the inputs, in call order", NULL},
    {"symbols", (getter)get_symbols, NULL, "names of the symbols, which a call may be given too", NULL},
    {"backward_reads", (getter)get_reads, NULL, "position among inputs and parameters of what the backward pass reads", NULL},
    {"differentiable", (getter)get_differentiable, NULL, "by output: does it lie on the tape of a wrt?  None: all do", NULL},
    {"influences", (getter)get_influences, NULL, "bytes by input and parameter: does what has gradients depend on it?", NULL},
    {"observer", (getter)get_observer, NULL, "what was given to observe, or None", NULL},
    {"n_plans", (getter)get_plans, NULL, "number of plans compiled so far", NULL},
    {"forward_graph", (getter)get_forward, NULL, "the forward graph that ran last, or None", NULL},
    {"params", (getter)get_params, NULL, "the tensors last given to set_params", NULL},
    {"wrt_positions", (getter)get_positions, NULL, "position among inputs and parameters of each wrt", NULL},
    {"backward_graph", (getter)get_backward, NULL, "its backward graph, or None", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(FunctionObject, vectorcall), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot function_slots[] = {
    {Py_tp_new, function_new},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_members, members},
    {Py_tp_doc,
     "Function(graph, wrt=None, keep='auto', backend='auto', ..., natives=None, torch=False): a callable graph, compiled on demand."},
    {0, NULL}};
PyType_Spec function_spec = {"dcml._core.Function", sizeof(FunctionObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, function_slots};
