/* Kernels as text: one of a graph's node, the passes by name, and the code that a kernel becomes. */
#include "backends/cpu/c.h"
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

PyObject *core_kernel_passes(PyObject *module, PyObject *unused) {
  PyObject *list = PyList_New(0);
  (void)module, (void)unused;
  for (const dc_kernel_pass *pass = dc_kernel_passes; list && pass->name; pass++) {
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

PyObject *core_kernel_code(PyObject *module, PyObject *text) {
  module_state *state = PyModule_GetState(module);
  const char *source = PyUnicode_AsUTF8(text);
  dc_text code = {0};
  dc_kernel kernel;
  if (!source) return NULL;
  RAISE_IF(state, dc_kernel_parse(source, &kernel));
  dc_status status = dc_emit_kernel(&dc_c_language, &kernel, "kernel", &code);
  dc_kernel_free(&kernel);
  PyObject *out = status ? NULL : name_object(code.s);
  dc_text_free(&code);
  if (status) raise_status(state, status);
  return out;
}
