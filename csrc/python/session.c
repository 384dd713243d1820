/* The session of a module: made on first use with what the running Python has installed, and its cache folder for
 * other files that are compiled here. */
#include "backends/cuda/device.h"
#include "backends/jit/cache.h"
#include "backends/threads.h"
#include "python/binding.h"

/* Item k of what dcml.installed.places() returned, as a path or NULL. */
static const char *place(PyObject *places, Py_ssize_t k, PyObject **keep) {
  PyObject *item = PyTuple_GetItem(places, k);
  if (!item || item == Py_None || !PyUnicode_FSConverter(item, keep)) return NULL;
  return PyBytes_AS_STRING(*keep);
}

dc_session *session_of(module_state *state) {
  if (state->session_ready) return &state->session;
  PyObject *module = PyImport_ImportModule("dcml.installed");
  PyObject *places = module ? PyObject_CallMethod(module, "places", NULL) : NULL, *keep[2] = {NULL, NULL};
  Py_XDECREF(module);
  if (!places) return NULL;
  const char *libraries = place(places, 0, &keep[0]), *compiler = place(places, 1, &keep[1]);
  if (!PyErr_Occurred() && !state->session_ready) {
    dc_status status = dc_session_create(libraries, compiler, &state->session);
    if (!status) dc_natives_add(state->session.natives, &host_library, state);
    state->session_ready = !status;
    if (!status) dc_threads_guard_forks();
    if (status) raise_status(state, status);
  }
  Py_XDECREF(keep[0]);
  Py_XDECREF(keep[1]);
  Py_DECREF(places);
  return state->session_ready ? &state->session : NULL;
}

/* Libraries of GPUs read it when they are bound, and a function's plans are bound again when it changes. */
PyObject *core_allow_tf32(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  dc_session *session = session_of(PyModule_GetState(module));
  if (!session) return NULL;
  if (n != 2) return PyErr_Format(PyExc_TypeError, "allow_tf32() takes 2 arguments, got %zd", n);
  int products = PyObject_IsTrue(args[0]), convolutions = products < 0 ? -1 : PyObject_IsTrue(args[1]);
  if (convolutions < 0) return NULL;
  dc_cuda_allow(session->cuda, (products ? DC_MODE_TF32_PRODUCTS : 0u) | (convolutions ? DC_MODE_TF32_CONVOLUTIONS : 0u));
  Py_RETURN_NONE;
}

/* ---- the cache folder ---- */

PyObject *core_toolchain(PyObject *module, PyObject *unused) {
  dc_session *session = session_of(PyModule_GetState(module));
  (void)unused;
  if (!session) return NULL;
  bool lasts;
  const char *compiler = dc_jit_compiler(session->jit), *folder = dc_jit_folder(session->jit, &lasts);
  PyObject *program = compiler ? PyUnicode_DecodeFSDefault(compiler) : Py_NewRef(Py_None);
  return program ? Py_BuildValue("(NNO)", program, PyUnicode_DecodeFSDefault(folder), lasts ? Py_True : Py_False) : NULL;
}

PyObject *core_seal(PyObject *module, PyObject *args) {
  PyObject *scratch = NULL, *path = NULL;
  if (!PyArg_ParseTuple(args, "O&O&", PyUnicode_FSConverter, &scratch, PyUnicode_FSConverter, &path)) return NULL;
  dc_status status = dc_cache_seal(PyBytes_AS_STRING(scratch), PyBytes_AS_STRING(path));
  Py_DECREF(scratch);
  Py_DECREF(path);
  RAISE_IF(PyModule_GetState(module), status);
  Py_RETURN_NONE;
}

PyObject *core_is_sealed(PyObject *module, PyObject *path) {
  PyObject *name = NULL;
  (void)module;
  if (!PyUnicode_FSConverter(path, &name)) return NULL;
  bool sealed = dc_cache_is_sealed(PyBytes_AS_STRING(name));
  Py_DECREF(name);
  return PyBool_FromLong(sealed);
}
