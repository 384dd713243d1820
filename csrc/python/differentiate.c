/* Methods of Graph for what differentiates programs from Python. */
#include "passes/pipeline.h"
#include "python/binding.h"

/* A list of numbers into the graph's arena; NULL with an exception. */
static uint32_t *read_places(GraphObject *self, PyObject *sequence, uint32_t *n) {
  PyObject *list = PySequence_Fast(sequence, "expected a list of positions");
  *n = list ? (uint32_t)PySequence_Fast_GET_SIZE(list) : 0;
  uint32_t *out = list ? DC_NEW_ARRAY(&self->graph->arena, uint32_t, *n + 1) : NULL;
  for (uint32_t k = 0; out && k < *n; k++) out[k] = (uint32_t)PyLong_AsUnsignedLong(PySequence_Fast_GET_ITEM(list, k));
  Py_XDECREF(list);
  return PyErr_Occurred() ? NULL : out;
}

static PyObject *names_of(const dc_graph *graph, const dc_cid *ids, uint32_t n) {
  PyObject *list = PyList_New(n);
  for (uint32_t k = 0; list && k < n; k++) PyList_SET_ITEM(list, k, name_object(dc_cont_name(graph, ids[k])));
  return list;
}

/* border(id, required, given) -> (id of what to replace, outputs as computed, their gradients, gradients of inputs) */
PyObject *graph_border(GraphObject *self, PyObject *args) {
  unsigned id;
  PyObject *required, *given;
  module_state *state = state_of((PyObject *)self);
  dc_border b = {0};
  if (!PyArg_ParseTuple(args, "O&OO", read_id, &id, &required, &given) || !library_at(self, id)) return NULL;
  b.required = read_places(self, required, &b.n_required);
  b.given = b.required ? read_places(self, given, &b.n_given) : NULL;
  if (!b.given) return NULL;
  self->version++;
  RAISE_IF(state, dc_autodiff_border(self->graph, id, &b));
  dc_cid *outputs = DC_NEW_ARRAY(&self->graph->arena, dc_cid, b.n_given);
  for (uint32_t k = 0; k < b.n_given; k++) outputs[k] = dc_node_at(self->graph, id)->lib.out[b.given[k]];
  return Py_BuildValue("(INNN)", b.placeholder, names_of(self->graph, outputs, b.n_given), names_of(self->graph, b.cotangent, b.n_given),
                       names_of(self->graph, b.gradient, b.n_required));
}

/* become(other): has what the other graph had, and the other one what this had. */
PyObject *graph_become(GraphObject *self, PyObject *object) {
  module_state *state = state_of((PyObject *)self);
  GraphObject *other = (GraphObject *)object;
  if (Py_TYPE(object) != state->graph_type || self->owner || other->owner)
    return PyErr_Format(state->errors[DC_ERR_VALUE], "expected a graph, and neither lent by a function");
  dc_graph *kept = self->graph;
  self->graph = other->graph, other->graph = kept;
  self->version++, other->version++, self->edits++, other->edits++;
  flows_follow(self), flows_follow(other);
  Py_RETURN_NONE;
}

typedef struct {
  GraphObject *forward;
  PyObject *prepare;
} hook_context;

static dc_status call_prepare(void *context, dc_graph *forward, dc_graph *backward) {
  hook_context *h = context;
  (void)forward, (void)backward;
  h->forward->version++;
  PyObject *done = h->prepare == Py_None ? Py_NewRef(Py_None) : PyObject_CallOneArg(h->prepare, (PyObject *)h->forward);
  Py_XDECREF(done);
  return done ? DC_OK : dc_error(DC_ERR_VALUE, "the hook raised an exception");
}

/* differentiate(wrt, prepare) -> backward: this graph becomes the forward one; prepare(graph) or None is called before. */
PyObject *graph_differentiate(GraphObject *self, PyObject *args) {
  PyObject *wrt, *prepare, *items = NULL;
  module_state *state = state_of((PyObject *)self);
  dc_session *session = session_of(state);
  if (!session || !PyArg_ParseTuple(args, "OO", &wrt, &prepare) || !(items = PySequence_Fast(wrt, "expected a list of names"))) return NULL;
  uint32_t n = (uint32_t)PySequence_Fast_GET_SIZE(items);
  dc_name *names = DC_NEW_ARRAY(&self->graph->arena, dc_name, n + 1);
  for (uint32_t k = 0; k < n && !PyErr_Occurred(); k++) {
    const char *text = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(items, k));
    if (text) names[k] = dc_name_intern(&self->graph->names, text);
  }
  Py_DECREF(items);
  if (PyErr_Occurred()) return NULL;
  hook_context context = {self, prepare};
  dc_pipeline pipeline = {
      .passes = {.ops = session->ops, .training = true, .wrt = names, .n_wrt = n}, .post_onnx = call_prepare, .hook_context = &context};
  dc_graph *backward = NULL;
  self->version++, self->edits++;
  dc_graph *graph = self->graph; /* the hook may give the handle another one */
  __atomic_add_fetch(&graph->references, 1, __ATOMIC_RELAXED);
  dc_status status = dc_pipeline_differentiate(&pipeline, graph, &backward);
  dc_graph_destroy(graph);
  if (PyErr_Occurred()) {
    dc_status_free(status);
    return NULL;
  }
  RAISE_IF(state, status);
  return wrap_graph(state, backward, NULL);
}
