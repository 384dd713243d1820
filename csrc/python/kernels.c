/* Kernels as text: one of a graph's node, the passes by name, and the code that a kernel becomes. */
#include "backends/cpu/c.h"
#include "backends/cuda/dialect.h"
#include "backends/kernel/kernel.h"
#include "binding.h"

/* Takes the kernel. */
static PyObject *kernel_text(dc_kernel *kernel) {
  dc_text text = {0};
  dc_kernel_print(kernel, &text);
  dc_kernel_free(kernel);
  PyObject *out = name_object(text.s);
  dc_text_free(&text);
  return out;
}

PyObject *graph_kernel(GraphObject *self, PyObject *id) {
  module_state *state = state_of((PyObject *)self);
  unsigned long node = PyLong_AsUnsignedLong(id);
  dc_kernel kernel;
  if (PyErr_Occurred()) return NULL;
  if (check_in_state(self, self->graph, node)) return NULL;
  RAISE_IF(state, dc_kernel_build(self->graph, (dc_nid)node, &kernel));
  return kernel_text(&kernel);
}

/* NULL with ValueError: no target of that name prints kernels. */
static const dc_language *language_of(const char *target) {
  if (!target || !strcmp(target, "cpu")) return &dc_c_language;
  if (!strcmp(target, "cuda")) return &dc_cuda_language;
  PyErr_Format(PyExc_ValueError, "no target is called '%s'; there are cpu, cuda", target);
  return NULL;
}

PyObject *core_kernel_passes(PyObject *module, PyObject *args) {
  const char *target = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "|s", &target)) return NULL;
  const dc_language *language = language_of(target);
  PyObject *list = language ? PyList_New(0) : NULL;
  for (const dc_kernel_pass *pass = language ? language->passes : NULL; list && pass->name; pass++) {
    PyObject *row = Py_BuildValue("(ss)", pass->name, pass->summary);
    if (!row || PyList_Append(list, row)) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

PyObject *core_run_kernel_pass(PyObject *module, PyObject *args) {
  module_state *state = PyModule_GetState(module);
  const char *text, *name;
  dc_kernel kernel;
  if (!PyArg_ParseTuple(args, "ss", &text, &name)) return NULL;
  RAISE_IF(state, dc_kernel_parse(text, &kernel));
  dc_status status = dc_kernel_pass_run(&kernel, name);
  if (!status) return kernel_text(&kernel);
  dc_kernel_free(&kernel);
  raise_status(state, status);
  return NULL;
}

PyObject *core_kernel_code(PyObject *module, PyObject *args) {
  module_state *state = PyModule_GetState(module);
  const char *source, *target = NULL;
  dc_text code = {0};
  dc_kernel kernel;
  if (!PyArg_ParseTuple(args, "s|s", &source, &target)) return NULL;
  const dc_language *language = language_of(target);
  if (!language) return NULL;
  RAISE_IF(state, dc_kernel_parse(source, &kernel));
  dc_status status = dc_emit_kernel(language, &kernel, "kernel", NULL, &code);
  dc_kernel_free(&kernel);
  PyObject *out = status ? NULL : name_object(code.s);
  dc_text_free(&code);
  if (status) raise_status(state, status);
  return out;
}

/* Symbols by number, from a dict of those whose value is asked for. */
static int64_t *symbol_values(const dc_kernel *k, PyObject *sizes, bool *failed) {
  int64_t *values = DC_NEW_ARRAY(k->arena, int64_t, k->pool->symbols.n);
  for (dc_sym s = 1; s < k->pool->symbols.n && !*failed; s++) {
    PyObject *value = PyDict_GetItemString(sizes, dc_name_text(&k->graph->names, k->pool->symbols.v[s].name));
    values[s] = value ? PyLong_AsLongLong(value) : k->pool->symbols.v[s].min;
    *failed = PyErr_Occurred() != NULL;
  }
  return values;
}

static PyObject *launch_rows(const dc_kernel *k, const dc_launches *l, PyObject *sizes) {
  bool failed = false;
  int64_t *values = symbol_values(k, sizes, &failed);
  PyObject *rows = failed ? NULL : PyList_New(0), *symbols = failed ? NULL : PyList_New(0);
  for (uint32_t j = 0; rows && j < l->launches.n; j++) {
    const dc_launch *at = &l->launches.v[j];
    PyObject *row =
        Py_BuildValue("(sLII)", at->suffix, (long long)dc_ix_eval(&l->pool, at->blocks, values, NULL), at->threads, at->shared_bytes);
    if (!row || PyList_Append(rows, row)) Py_CLEAR(rows);
    Py_XDECREF(row);
  }
  for (uint32_t j = 0; symbols && j < l->symbols.n; j++) {
    PyObject *name = name_object(dc_name_text(&k->graph->names, k->pool->symbols.v[l->symbols.v[j]].name));
    if (!name || PyList_Append(symbols, name)) Py_CLEAR(symbols);
    Py_XDECREF(name);
  }
  PyObject *out = rows && symbols ? Py_BuildValue("(OOO)", rows, symbols, l->checks ? Py_True : Py_False) : NULL;
  Py_XDECREF(rows);
  Py_XDECREF(symbols);
  return out;
}

PyObject *core_kernel_launches(PyObject *module, PyObject *args) {
  module_state *state = PyModule_GetState(module);
  const char *source;
  PyObject *sizes;
  dc_text code = {0};
  dc_kernel kernel;
  dc_launches *launches = dc_launches_create();
  PyObject *out = NULL;
  dc_status status = DC_OK;
  if (PyArg_ParseTuple(args, "sO!", &source, &PyDict_Type, &sizes)) {
    status = dc_kernel_parse(source, &kernel);
    if (!status) {
      status = dc_emit_kernel(&dc_cuda_language, &kernel, "kernel", launches, &code);
      if (!status) out = launch_rows(&kernel, launches, sizes);
      dc_kernel_free(&kernel);
    }
  }
  dc_text_free(&code);
  dc_launches_destroy(launches);
  if (status) raise_status(state, status);
  return out;
}
