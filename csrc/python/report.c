/* Reports of a compiled function as dictionaries: its steps, its memory plan and the passes it went through. */
#include "python/binding.h"

static PyObject *dims_list(const dc_binding *binding, const dc_graph *graph, dc_cid c) {
  int64_t dims[DC_MAX_RANK];
  uint32_t rank = dc_cont(graph, c)->rank;
  dc_binding_dims(binding, c, dims);
  PyObject *shape = PyTuple_New(rank);
  for (uint32_t d = 0; shape && d < rank; d++) PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(dims[d]));
  return shape;
}

static PyObject *steps_list(const dc_program *program) {
  uint32_t n = dc_program_report(program, NULL, 0);
  dc_step_report *steps = PyMem_Calloc(n + 1, sizeof *steps);
  PyObject *list = steps ? PyList_New(n) : NULL;
  if (steps) (void)dc_program_report(program, steps, n);
  for (uint32_t k = 0; list && k < n; k++) {
    const dc_step_report *s = &steps[k];
    PyObject *item =
        Py_BuildValue("{s:I,s:s,s:s,s:d,s:K,s:d,s:K,s:I,s:L,s:L}", "node", s->node, "by", s->by, "why", s->why, "operations", s->operations,
                      "bytes", (unsigned long long)s->bytes, "seconds", s->seconds, "runs", (unsigned long long)s->runs, "chained",
                      s->chained, "channels", (long long)s->channels, "at_once", (long long)s->at_once);
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, k, item);
  }
  PyMem_Free(steps);
  return list;
}

static PyObject *value_item(const dc_graph *graph, const dc_binding *binding, dc_cid c) {
  static const char *const places[] = {"caller", "arena", "saved", "view", "lent", "kept"};
  uint64_t offset;
  dc_place place = dc_binding_place(binding, c, &offset);
  return Py_BuildValue("{s:N,s:N,s:K,s:s,s:K}", "name", name_object(dc_cont_name(graph, c)),
                       "shape", dims_list(binding, graph, c), "bytes", (unsigned long long)dc_binding_bytes(binding, c),
                       "place", places[place], "offset", (unsigned long long)offset);
}

static PyObject *values_list(const dc_program *program, const dc_binding *binding) {
  const dc_graph *graph = dc_program_graph(program);
  PyObject *list = PyList_New(0);
  for (dc_cid c = 1; list && c < graph->containers.n; c++) {
    PyObject *item = value_item(graph, binding, c);
    if (!item || PyList_Append(list, item)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

/* (name, seconds) of the passes that scheduled the graph. */
static PyObject *passes_list(const dc_pass_times *times) {
  PyObject *list = PyList_New(0);
  for (uint32_t k = 0; list && k < DC_PIPELINE_LENGTH; k++) {
    if (times->seconds[k] < 0) continue;
    PyObject *item = Py_BuildValue("(sd)", dc_pipeline_pass(k)->name, times->seconds[k]);
    if (!item || PyList_Append(list, item)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

/* None if the program has not run. */
static PyObject *program_report(const dc_function *f, bool backward) {
  const dc_program *program = dc_function_program(f, backward);
  const dc_binding *binding = program ? dc_program_recent(program) : NULL;
  if (!binding) Py_RETURN_NONE;
  unsigned long long arena = dc_binding_arena_bytes(binding), saved = dc_binding_saved_bytes(binding);
  return Py_BuildValue("{s:N,s:N,s:K,s:K,s:N}", "steps", steps_list(program), "values", values_list(program, binding),
                       "arena_bytes", arena, "saved_bytes", saved, "passes", passes_list(dc_function_pass_times(f, backward)));
}

PyObject *function_report(PyObject *self, PyObject *unused) {
  dc_function *f = function_core(self);
  (void)unused;
  return Py_BuildValue("(NN)", program_report(f, false), program_report(f, true));
}

PyObject *function_time(PyObject *self, PyObject *on) {
  dc_function *f = function_core(self);
  int wanted = PyObject_IsTrue(on);
  if (wanted < 0) return NULL;
  for (int k = 0; k < 2; k++)
    if (dc_function_program(f, k)) dc_program_time(dc_function_program(f, k), wanted);
  Py_RETURN_NONE;
}
