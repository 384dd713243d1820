/* The Memory type: bytes of the pool of results, for arrays of numpy.
 *
 * The one idea: numpy puts arrays at odd places (16 bytes), so that every vector of a kernel crosses a line of the cache, and gives
 * large ones back to the system, which then clears each page again.  What lies here is aligned, and used again.
 * Must not know: numpy's types and shapes. */
#include "python/binding.h"

typedef struct {
  PyObject_HEAD
  dc_buffer_pool *pool; /* stays, as arrays may outlive the module */
  void *data;
  Py_ssize_t bytes;
} MemoryObject;

PyObject *new_memory(module_state *state, uint64_t bytes, void **data) {
  MemoryObject *self = PyObject_New(MemoryObject, state->memory_type);
  if (!self) return NULL;
  self->pool = state->pool, self->bytes = (Py_ssize_t)bytes;
  self->data = *data = bytes <= PY_SSIZE_T_MAX ? dc_buffer_take(state->pool, bytes) : NULL;
  if (self->data) return (PyObject *)self;
  Py_DECREF(self);
  return PyErr_Format(state->errors[DC_ERR_MEMORY], "cannot get %llu bytes", (unsigned long long)bytes);
}

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *named) {
  static char *names[] = {"bytes", NULL};
  Py_ssize_t bytes;
  void *data;
  if (!PyArg_ParseTupleAndKeywords(args, named, "n:Memory", names, &bytes)) return NULL;
  module_state *state = PyType_GetModuleState(type);
  if (bytes < 0) return PyErr_SetString(state->errors[DC_ERR_VALUE], "Memory: expected a number of bytes that is not negative"), NULL;
  return new_memory(state, (uint64_t)bytes, &data);
}

static void memory_dealloc(MemoryObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  dc_buffer_give(self->pool, self->data);
  PyObject_Free(self);
  Py_DECREF(type);
}

static int memory_buffer(MemoryObject *self, Py_buffer *view, int flags) {
  return PyBuffer_FillInfo(view, (PyObject *)self, self->data, self->bytes, 0, flags);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_bf_getbuffer, memory_buffer},
    {Py_tp_doc, "Memory(bytes): aligned for vectors, of undefined contents, by the buffer protocol; it returns to a pool."},
    {0, NULL}};
PyType_Spec memory_spec = {"dcml._core.Memory", sizeof(MemoryObject), 0, Py_TPFLAGS_DEFAULT, memory_slots};
