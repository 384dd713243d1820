/* What a capture has built in of Python: whether containers hold what they held, and which code runs.
 *
 * The one idea: an observation is a container with the very objects that it held; comparing it is a walk over
 * pointers, without a hash or a call. */
#include <string.h>

#include "python/binding.h"
#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE 1
#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe_structs.h"
#endif
#undef Py_BUILD_CORE
#endif

/* ---- observations ---- */

/* The same keys and values, in the same order. */
static bool same_dict(PyObject *dict, PyObject *seen) {
  PyObject *key, *value;
  Py_ssize_t at = 0, k = 0;
  if (2 * PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(seen)) return false;
  while (PyDict_Next(dict, &at, &key, &value)) {
    if (key != PyTuple_GET_ITEM(seen, k) || value != PyTuple_GET_ITEM(seen, k + 1)) return false;
    k += 2;
  }
  return true;
}

/* A byte for each key: is its value anything but None? */
static bool same_presence(PyObject *dict, PyObject *seen) {
  PyObject *key, *value;
  Py_ssize_t at = 0, k = 0;
  if (PyDict_GET_SIZE(dict) != PyBytes_GET_SIZE(seen)) return false;
  while (PyDict_Next(dict, &at, &key, &value))
    if ((value != Py_None) != PyBytes_AS_STRING(seen)[k++]) return false;
  return true;
}

static bool same_items(PyObject *const *items, Py_ssize_t n, PyObject *seen) {
  if (n != PyTuple_GET_SIZE(seen)) return false;
  for (Py_ssize_t k = 0; k < n; k++)
    if (items[k] != PyTuple_GET_ITEM(seen, k)) return false;
  return true;
}

static bool same_iteration(PyObject *holder, PyObject *seen) {
  PyObject *items = PySequence_Tuple(holder);
  bool same = items && same_items(&PyTuple_GET_ITEM(items, 0), PyTuple_GET_SIZE(items), seen);
  if (!items) PyErr_Clear();
  Py_XDECREF(items);
  return same;
}

static bool same_bytes(PyObject *holder, PyObject *seen) {
  Py_buffer have;
  if (PyObject_GetBuffer(holder, &have, PyBUF_C_CONTIGUOUS)) return PyErr_Clear(), false;
  bool same = have.len == PyBytes_GET_SIZE(seen) && memcmp(have.buf, PyBytes_AS_STRING(seen), (size_t)have.len) == 0;
  PyBuffer_Release(&have);
  return same;
}

static bool same_contents(PyObject *holder, PyObject *seen) {
  if (PyDict_Check(holder)) return PyBytes_Check(seen) ? same_presence(holder, seen) : same_dict(holder, seen);
  if (PyList_Check(holder)) return same_items(((PyListObject *)holder)->ob_item, PyList_GET_SIZE(holder), seen);
  if (PyCell_Check(holder)) return PyCell_GET(holder) == (PyTuple_GET_SIZE(seen) ? PyTuple_GET_ITEM(seen, 0) : NULL);
  return PyBytes_Check(seen) ? same_bytes(holder, seen) : same_iteration(holder, seen);
}

/* One item of a dictionary, what instances of a class find by a name, or one attribute of another object. */
static bool same_part(PyObject *holder, PyObject *key, PyObject *seen) {
  if (PyDict_Check(holder)) return PyDict_GetItem(holder, key) == seen;
  if (PyType_Check(holder)) return _PyType_Lookup((PyTypeObject *)holder, key) == seen;
  PyObject *value = PyObject_GetAttr(holder, key);
  if (!value) PyErr_Clear();
  Py_XDECREF(value); /* compared by address only */
  return value == seen;
}

/* By PEP 509; Python 3.12 gives its versions away to others (PEP 699). */
uint64_t dict_version(PyObject *holder) {
#if PY_VERSION_HEX < 0x030C0000
  if (PyDict_Check(holder)) return ((PyDictObject *)holder)->ma_version_tag;
#endif
  (void)holder;
  return 0;
}

bool same_observation(PyObject *seen) {
  PyObject *holder = PyTuple_GET_ITEM(seen, 0), *second = PyTuple_GET_ITEM(seen, 1);
  return PyTuple_GET_SIZE(seen) == 2 ? same_contents(holder, second) : same_part(holder, second, PyTuple_GET_ITEM(seen, 2));
}

static bool is_observation(PyObject *item) {
  if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) < 2 || PyTuple_GET_SIZE(item) > 3) return false;
  PyObject *second = PyTuple_GET_ITEM(item, 1);
  return PyTuple_GET_SIZE(item) == 3 || PyTuple_Check(second) || PyBytes_Check(second);
}

int check_observations(PyObject *list) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(list); k++)
    if (!is_observation(PyTuple_GET_ITEM(list, k)))
      return PyErr_SetString(PyExc_TypeError, "expected (holder, contents) or (holder, key, value)"), -1;
  return 0;
}

/* first_change(observations) -> position of the first that no longer holds, -1 if all do */
PyObject *core_first_change(PyObject *module, PyObject *list) {
  (void)module;
  if (!PyTuple_Check(list)) return PyErr_Format(PyExc_TypeError, "expected a tuple of observations");
  if (check_observations(list)) return NULL;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(list); k++)
    if (!same_observation(PyTuple_GET_ITEM(list, k))) return PyLong_FromSsize_t(k);
  return PyLong_FromLong(-1);
}

/* ---- code that runs ---- */

/* Names that are neither local nor global are looked up in a dictionary that each frame points to; only this frame's
 * changes here, and the caller keeps the dictionary as long as a frame may run. */
static void give_builtins(PyFrameObject *frame, PyObject *builtins) {
#if PY_VERSION_HEX < 0x030B0000
  Py_INCREF(builtins);
  Py_XSETREF(frame->f_builtins, builtins);
#else
  frame->f_frame->f_builtins = builtins;
#endif
}

/* What tell_of_code was given, with {address: code, or (code, builtins)} of the codes met so far. */
enum { MET, TELL, FUNCTION, AROUND, ENDING, AT_END };

static int call_back(PyObject *callable, PyObject *argument) {
  PyObject *result = PyObject_CallFunctionObjArgs(callable, argument, NULL);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

/* Tells of a new code; a dictionary in return is for the names of the builtins in its frames. */
static PyObject *tell(PyObject *told, PyFrameObject *frame, PyObject *code, PyObject *address) {
  PyObject *globals = PyObject_GetAttrString((PyObject *)frame, "f_globals");
  PyObject *builtins = globals && !PyDict_SetItem(PyTuple_GET_ITEM(told, MET), address, code)
                           ? PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(told, TELL), code, globals, NULL) : NULL;
  PyObject *kept = !builtins ? NULL : PyDict_Check(builtins) ? PyTuple_Pack(2, code, builtins) : Py_NewRef(code);
  if (kept && PyDict_SetItem(PyTuple_GET_ITEM(told, MET), address, kept)) Py_CLEAR(kept);
  Py_XDECREF(builtins);
  Py_XDECREF(globals);
  Py_XDECREF(kept); /* which the dictionary holds */
  return kept;
}

static int on_call(PyObject *told, PyFrameObject *frame) {
  PyObject *code = (PyObject *)PyFrame_GetCode(frame), *address = PyLong_FromVoidPtr(code);
  PyObject *known = address ? PyDict_GetItemWithError(PyTuple_GET_ITEM(told, MET), address) : NULL;
  if (!known && address && !PyErr_Occurred()) known = tell(told, frame, code, address);
  if (known && PyTuple_Check(known)) give_builtins(frame, PyTuple_GET_ITEM(known, 1));
  Py_XDECREF(address);
  Py_DECREF(code);
  return known ? 0 : -1;
}

static int on_return(PyObject *told, PyFrameObject *frame) {
  PyObject *code = (PyObject *)PyFrame_GetCode(frame);
  bool ending = code == PyTuple_GET_ITEM(told, ENDING);
  Py_DECREF(code);
  return ending ? call_back(PyTuple_GET_ITEM(told, AT_END), (PyObject *)frame) : 0;
}

static int on_event(PyObject *told, PyFrameObject *frame, int what, PyObject *about) {
  if (what == PyTrace_CALL) return on_call(told, frame);
  if (what == PyTrace_RETURN) return about ? on_return(told, frame) : 0;
  if (about != PyTuple_GET_ITEM(told, FUNCTION)) return 0;
  return call_back(PyTuple_GET_ITEM(told, AROUND), what == PyTrace_C_CALL ? (PyObject *)frame : Py_None);
}

/* tell_of_code(tell, function, around, ending, at_end), or without arguments for no longer.  In this thread:
 * tell(code, globals) is called before a code first runs, and may return a dictionary that its frames then find builtins in;
 * around(frame), then around(None), when a frame calls the built-in ``function``; at_end(frame) when code ``ending`` returns. */
PyObject *core_tell_of_code(PyObject *module, PyObject *args) {
  PyObject *tell, *function, *around, *ending, *at_end;
  (void)module;
  if (!PyTuple_GET_SIZE(args)) {
    PyEval_SetProfile(NULL, NULL);
    Py_RETURN_NONE;
  }
  if (!PyArg_ParseTuple(args, "OOOO!O", &tell, &function, &around, &PyCode_Type, &ending, &at_end)) return NULL;
  PyObject *told = Py_BuildValue("({}OOOOO)", tell, function, around, ending, at_end);
  if (!told) return NULL;
  PyEval_SetProfile(on_event, told);
  Py_DECREF(told); /* the interpreter holds it */
  Py_RETURN_NONE;
}
