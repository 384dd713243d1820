/* Checks of graphs: what a graph computes on data of its own, whether another computes the same, and smaller graphs that
 * still fail.  The command line is made of these. */
#include <string.h>

#include "check/reduce.h"
#include "python/binding.h"

static dc_target target_of(const dc_session *session, dc_backend_kind backend) {
  return (dc_target){session->ops, session->natives, session->jit, backend, session->workspace, NULL, NULL, NULL};
}

/* ---- arguments ---- */

/* {name: value} of symbols; -1 with an exception.  The names live as long as the dictionary. */
static int parse_sizes(module_state *state, const dc_graph *graph, PyObject *dict, dc_size **out, uint32_t *n) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  if (!PyDict_Check(dict)) return PyErr_SetString(PyExc_TypeError, "expected a dictionary of extents"), -1;
  *out = PyMem_Calloc((size_t)PyDict_GET_SIZE(dict) + 1, sizeof **out), *n = 0;
  if (!*out) return PyErr_NoMemory(), -1;
  while (PyDict_Next(dict, &at, &key, &value)) {
    dc_size size = {PyUnicode_AsUTF8(key), PyLong_AsLongLong(value)};
    bool known = false;
    for (dc_sym s = 1; s < graph->pool.symbols.n && size.name; s++)
      known |= strcmp(dc_name_text(&graph->names, graph->pool.symbols.v[s].name), size.name) == 0;
    if (!PyErr_Occurred() && !known) PyErr_Format(state->errors[DC_ERR_VALUE], "the graph has no symbol '%s'", size.name);
    if (PyErr_Occurred()) return PyMem_Free(*out), -1;
    (*out)[(*n)++] = size;
  }
  return 0;
}

/* Values of all symbols, those of the dictionary and others of a set; -1 with an exception that says what is assumed. */
static int choose_sizes(module_state *state, const dc_graph *graph, PyObject *dict, uint32_t set, int64_t *symbols) {
  dc_size *given;
  uint32_t n;
  dc_text why = {0};
  if (parse_sizes(state, graph, dict, &given, &n)) return -1;
  bool good = dc_sizes_choose(graph, set, given, n, symbols, &why);
  if (!good) PyErr_Format(state->errors[DC_ERR_SHAPE], "these extents do not suit the graph: %s", why.s);
  PyMem_Free(given);
  dc_text_free(&why);
  return good ? 0 : -1;
}

static GraphObject *graph_arg(module_state *state, PyObject *object) {
  if (Py_IS_TYPE(object, state->graph_type)) return (GraphObject *)object;
  PyErr_SetString(PyExc_TypeError, "expected a Graph");
  return NULL;
}

/* ---- sizes and data ---- */

PyObject *graph_symbols(GraphObject *self, void *unused) {
  PyObject *dict = PyDict_New();
  const dc_pool *pool = &self->graph->pool;
  (void)unused;
  for (dc_sym s = 1; dict && s < pool->symbols.n; s++) {
    PyObject *least = PyLong_FromLongLong(pool->symbols.v[s].min);
    const char *name = dc_name_text(&self->graph->names, pool->symbols.v[s].name);
    if (!least || PyDict_SetItemString(dict, name, least)) Py_CLEAR(dict);
    Py_XDECREF(least);
  }
  return dict;
}

/* sizes(set, given) -> {symbol: value}; ShapeError where the graph assumes otherwise. */
PyObject *graph_sizes(GraphObject *self, PyObject *args) {
  unsigned set;
  PyObject *given;
  int64_t symbols[DC_MAX_SIZES] = {0};
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "O&O", read_id, &set, &given) || choose_sizes(state, self->graph, given, set % DC_SIZE_SETS, symbols))
    return NULL;
  PyObject *dict = PyDict_New();
  for (dc_sym s = 1; dict && s < self->graph->pool.symbols.n; s++) {
    PyObject *value = PyLong_FromLongLong(symbols[s]);
    const char *name = dc_name_text(&self->graph->names, self->graph->pool.symbols.v[s].name);
    if (!value || PyDict_SetItemString(dict, name, value)) Py_CLEAR(dict);
    Py_XDECREF(value);
  }
  return dict;
}

static PyObject *array_of(module_state *state, const dc_graph *graph, dc_cid c, const int64_t *symbols, void **data) {
  dc_array shape = {.dtype = (dc_dtype)dc_cont(graph, c)->dtype, .rank = dc_cont(graph, c)->rank};
  for (uint32_t d = 0; d < shape.rank; d++) shape.dims[d] = dc_ix_eval(&graph->pool, dc_cont(graph, c)->shape[d], symbols, NULL);
  return new_tensor(state, &shape, false, data);
}

/* sample(name, sizes, seed) -> array of random data for an input. */
PyObject *graph_sample(GraphObject *self, PyObject *args) {
  const char *name;
  PyObject *given;
  unsigned long long seed;
  int64_t symbols[DC_MAX_SIZES] = {0}, n;
  void *data;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "sOK", &name, &given, &seed) || choose_sizes(state, self->graph, given, 0, symbols)) return NULL;
  dc_cid c = dc_container_find(self->graph, name);
  if (!c) return PyErr_Format(state->errors[DC_ERR_VALUE], "there is no container '%s'", name);
  RAISE_IF(state, dc_values_elements(self->graph, c, symbols, &n));
  PyObject *array = array_of(state, self->graph, c, symbols, &data);
  if (array) dc_values_sample(self->graph, c, symbols, seed, data, n);
  return array;
}

/* ---- values ---- */

typedef struct {
  PyObject_HEAD
  dc_values values;
} ValuesObject;

static void values_dealloc(ValuesObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  dc_values_free(&self->values);
  PyObject_Free(self);
  Py_DECREF(type);
}

/* Arrays of the caller's by name; who runs a graph holds no lock and sees contiguous copies. */
typedef struct {
  tensor_view *views;
  const char **names;
  uint32_t n;
} given_arrays;

static const void *find_given(void *context, const char *name, uint64_t *n_bytes) {
  const given_arrays *g = context;
  for (uint32_t k = 0; k < g->n; k++)
    if (strcmp(g->names[k], name) == 0) return *n_bytes = dc_array_bytes(&g->views[k].array), g->views[k].array.data;
  return NULL;
}

static void release_given(given_arrays *g) {
  for (uint32_t k = 0; k < g->n; k++) release_view(&g->views[k]);
  PyMem_Free(g->views), PyMem_Free(g->names);
}

static int check_type(module_state *state, const dc_graph *graph, const char *name, const dc_array *array) {
  dc_cid c = dc_container_find(graph, name);
  if (!c) return PyErr_Format(state->errors[DC_ERR_VALUE], "the graph has no input '%s'", name), -1;
  if (dc_cont(graph, c)->dtype == array->dtype) return 0;
  const char *wanted = dc_dtype_name((dc_dtype)dc_cont(graph, c)->dtype);
  PyErr_Format(state->errors[DC_ERR_DTYPE], "input '%s' has type %s, expected %s", name, dc_dtype_name(array->dtype), wanted);
  return -1;
}

static int parse_given(module_state *state, const dc_graph *graph, PyObject *dict, given_arrays *out) {
  PyObject *key, *value;
  Py_ssize_t at = 0, n = PyDict_GET_SIZE(dict);
  *out = (given_arrays){PyMem_Calloc((size_t)n + 1, sizeof *out->views), PyMem_Calloc((size_t)n + 1, sizeof *out->names), 0};
  if (!out->views || !out->names) PyErr_NoMemory();
  while (!PyErr_Occurred() && PyDict_Next(dict, &at, &key, &value)) {
    const char *name = PyUnicode_AsUTF8(key);
    if (!name || view_tensor(state, value, &out->views[out->n])) continue;
    out->names[out->n] = name;
    check_type(state, graph, name, &out->views[out->n++].array);
  }
  if (!PyErr_Occurred()) return 0;
  release_given(out);
  return -1;
}

/* evaluate(graph, sizes, what, seed, given) -> Values.  what: "interpreted", or one of the programs of check/agree.h.
 * given: {input: array}; other inputs are random. */
PyObject *core_evaluate(PyObject *module, PyObject *args) {
  module_state *state = PyModule_GetState(module);
  PyObject *object, *sizes, *dict;
  const char *what;
  unsigned long long seed;
  int64_t symbols[DC_MAX_SIZES] = {0};
  given_arrays given;
  if (!PyArg_ParseTuple(args, "OOsKO!", &object, &sizes, &what, &seed, &PyDict_Type, &dict)) return NULL;
  GraphObject *graph = graph_arg(state, object);
  dc_session *session = session_of(state);
  if (!graph || !session || choose_sizes(state, graph->graph, sizes, 0, symbols)) return NULL;
  if (parse_given(state, graph->graph, dict, &given)) return NULL;
  ValuesObject *self = PyObject_New(ValuesObject, state->values_type);
  if (self) {
    dc_target target = target_of(session, dc_check_backend(what));
    self->values = (dc_values){0};
    dc_contents contents = {find_given, &given, seed};
    dc_status status;
    Py_BEGIN_ALLOW_THREADS
    status = dc_values_run(&target, graph->graph, dc_check_kind(what), symbols, contents, &self->values);
    Py_END_ALLOW_THREADS
    if (status) {
      raise_status(state, status);
      Py_CLEAR(self);
    }
  }
  release_given(&given);
  return (PyObject *)self;
}

/* difference(other, tolerance) -> {name, problem, wrong, elements, at, got, wanted, largest, same, text}. */
static PyObject *values_difference(ValuesObject *self, PyObject *args) {
  PyObject *other;
  double tolerance;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "O!d", state->values_type, &other, &tolerance)) return NULL;
  dc_difference d;
  dc_text text = {0};
  bool same = dc_values_same(&self->values, &((ValuesObject *)other)->values, tolerance, &d);
  if (!same) dc_difference_print(&d, &text);
  PyObject *name = name_object(d.name ? d.name : ""), *said = name_object(text.s ? text.s : "");
  PyObject *out = Py_BuildValue("{s:N,s:z,s:L,s:L,s:L,s:d,s:d,s:d,s:O,s:N}", "name", name, "problem", d.problem,
                                "wrong", (long long)d.wrong, "elements", (long long)d.elements, "at", (long long)d.at, "got", d.got,
                                "wanted", d.wanted, "largest", d.largest, "same", same ? Py_True : Py_False, "text", said);
  dc_text_free(&text);
  return out;
}

static PyObject *values_array(ValuesObject *self, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  module_state *state = state_of((PyObject *)self);
  const dc_graph *graph = self->values.graph;
  dc_cid c = text ? dc_container_find(graph, text) : 0;
  int64_t n;
  void *data;
  if (!text) return NULL;
  if (!c || !self->values.buffers[c]) return PyErr_Format(state->errors[DC_ERR_VALUE], "there is no value '%s'", text);
  RAISE_IF(state, dc_values_elements(graph, c, self->values.symbols, &n));
  PyObject *array = array_of(state, graph, c, self->values.symbols, &data);
  if (array) memcpy(data, self->values.buffers[c], (size_t)n * (size_t)dc_dtype_bytes((dc_dtype)dc_cont(graph, c)->dtype));
  return array;
}

static PyMethodDef values_methods[] = {
    {"difference", (PyCFunction)values_difference, METH_VARARGS,
     "difference(other, tolerance) -> what differs most; 'same': within the tolerance (0: as befits the type)."},
    {"array", (PyCFunction)values_array, METH_O, "array(name) -> the contents of a container."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot values_slots[] = {{Py_tp_dealloc, values_dealloc}, {Py_tp_methods, values_methods}, {0, NULL}};
PyType_Spec values_spec = {"dcml._core.Values", sizeof(ValuesObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           values_slots};

/* ---- reduction ---- */

/* attempt(graph, what, sizes, tolerance, apart) -> (verdict, why): a pass or a program at all sets of sizes. */
PyObject *core_attempt(PyObject *module, PyObject *args) {
  static const char *const verdicts[] = {"agrees", "differs", "refuses", "crashes", "useless"};
  module_state *state = PyModule_GetState(module);
  PyObject *object, *dict;
  const char *what;
  dc_check check = {0};
  dc_size *sizes;
  int apart;
  if (!PyArg_ParseTuple(args, "OsOdp", &object, &what, &dict, &check.tolerance, &apart)) return NULL;
  GraphObject *graph = graph_arg(state, object);
  dc_session *session = session_of(state);
  if (!graph || !session || parse_sizes(state, graph->graph, dict, &sizes, &check.n_sizes)) return NULL;
  dc_target target = target_of(session, DC_BACKEND_AUTO);
  dc_text why = {0};
  check.target = &target, check.sizes = sizes;
  dc_verdict verdict = apart ? dc_check_try_apart(&check, graph->graph, what) : dc_check_try(&check, graph->graph, what, &why);
  PyObject *out = Py_BuildValue("(sN)", verdicts[verdict], name_object(why.s ? why.s : ""));
  PyMem_Free(sizes);
  dc_text_free(&why);
  return out;
}

typedef struct {
  module_state *state;
  PyObject *callable;
} asked;

/* What the callable raises ends the search: nothing fails any more. */
static bool ask(void *context, const dc_graph *graph) {
  asked *a = context;
  if (PyErr_Occurred()) return false;
  PyObject *handle = wrap_graph(a->state, dc_graph_clone(graph), NULL);
  PyObject *answer = handle ? PyObject_CallOneArg(a->callable, handle) : NULL;
  int fails = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  Py_XDECREF(handle);
  return fails > 0;
}

/* reduce(graph, fails) -> text of a smaller graph for which fails(graph) is true; None if it is for none. */
PyObject *core_reduce(PyObject *module, PyObject *args) {
  module_state *state = PyModule_GetState(module);
  PyObject *object;
  asked a = {.state = state};
  if (!PyArg_ParseTuple(args, "OO", &object, &a.callable)) return NULL;
  GraphObject *graph = graph_arg(state, object);
  dc_session *session = session_of(state);
  if (!graph || !session) return NULL;
  dc_text text = {0};
  bool found = dc_reduce(session->ops, graph->graph, ask, &a, &text);
  PyObject *out = PyErr_Occurred() ? NULL : found ? name_object(text.s) : Py_NewRef(Py_None);
  dc_text_free(&text);
  return out;
}
