/* A native library whose operators Python runs: what dcml.onnx.environments.onnxruntime takes and binds.
 *
 * A call is a Python function of buffers; it is called with the lock of the interpreter, from whatever thread runs the
 * program.  Which operators it takes, and by what package, is Python's to know. */
#include <stdlib.h>

#include "backends/native/library.h"
#include "python/binding.h"

typedef struct {
  PyObject *function;
  uint32_t n;      /* inputs, then outputs */
  uint64_t *bytes; /* of each buffer */
} host_call;

/* What is set as an exception, as the reason of a status. */
static dc_status failed(const char *what) {
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  PyObject *text = error ? PyObject_Str(error) : NULL;
  const char *s = text ? PyUnicode_AsUTF8(text) : NULL;
  dc_status status = dc_error(DC_ERR_UNSUPPORTED, "%s: %s", what, s ? s : "an exception");
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(trace);
  return status;
}

static PyObject *environment(const char *function, module_state *state, const dc_graph *graph, dc_nid node, PyObject *more) {
  PyObject *module = PyImport_ImportModule("dcml.onnx.environments.onnxruntime");
  PyObject *lent = module ? wrap_graph(state, (dc_graph *)graph, module) : NULL; /* not kept beyond the call */
  PyObject *id = lent ? PyLong_FromUnsignedLong(node) : NULL, *name = id ? PyUnicode_FromString(function) : NULL;
  PyObject *out = name ? PyObject_CallMethodObjArgs(module, name, lent, id, more, NULL) : NULL;
  Py_XDECREF(name);
  Py_XDECREF(id);
  Py_XDECREF(lent);
  Py_XDECREF(module);
  return out;
}

/* Reasons are interned, so that they outlive the call. */
static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  if (dc_node_at(graph, node)->lib.wrt) return "it takes no gradients";
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *reason = environment("refuses", handle, graph, node, NULL);
  if (!reason) PyErr_Clear();
  const char *text = !reason ? "its check failed" : reason == Py_None ? NULL : PyUnicode_AsUTF8(reason);
  Py_XDECREF(reason); /* the module holds its reasons */
  PyGILState_Release(gil);
  return text;
}

static PyObject *described(const dc_graph *graph, const dc_cid *ids, uint32_t n, const int64_t *symbols, uint64_t *bytes) {
  PyObject *list = PyList_New(n);
  for (uint32_t k = 0; list && k < n; k++) {
    const dc_container *c = dc_cont(graph, ids[k]);
    PyObject *dims = PyTuple_New(ids[k] ? c->rank : 0);
    bytes[k] = ids[k] ? (uint64_t)dc_dtype_bytes((dc_dtype)c->dtype) : 0;
    for (uint32_t d = 0; dims && ids[k] && d < c->rank; d++) {
      int64_t extent = dc_ix_eval(&graph->pool, c->shape[d], symbols, NULL);
      bytes[k] *= (uint64_t)extent;
      PyTuple_SET_ITEM(dims, d, PyLong_FromLongLong(extent));
    }
    PyObject *item = dims ? Py_BuildValue("(iN)", ids[k] ? (int)c->dtype : 0, dims) : NULL;
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, k, item);
  }
  return list;
}

static void destroy_call(void *opaque) {
  host_call *call = opaque;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_XDECREF(call->function);
  PyGILState_Release(gil);
  free(call->bytes);
  free(call);
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  host_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->n = lib->n_in + lib->n_out;
  call->bytes = calloc(call->n + 1, sizeof *call->bytes);
  if (!call->bytes) return free(call), dc_error(DC_ERR_MEMORY, "out of memory");
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *inputs = described(graph, lib->in, lib->n_in, symbols, call->bytes);
  PyObject *outputs = inputs ? described(graph, lib->out, lib->n_out, symbols, call->bytes + lib->n_in) : NULL;
  PyObject *both = outputs ? Py_BuildValue("(OO)", inputs, outputs) : NULL;
  call->function = both ? environment("bind", handle, graph, node, both) : NULL;
  dc_status status = call->function ? DC_OK : failed("onnxruntime");
  Py_XDECREF(both);
  Py_XDECREF(inputs);
  Py_XDECREF(outputs);
  PyGILState_Release(gil);
  if (!status) return *out = call, DC_OK;
  free(call->bytes);
  free(call);
  return status;
}

static uint64_t no_scratch(const void *call) { return (void)call, 0; }

/* Views of the buffers, None where there is none; they end with the call, whoever holds them. */
static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const host_call *call = opaque;
  static char nothing[1];
  (void)scratch, (void)stream;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *views = PyList_New(call->n);
  for (uint32_t k = 0; views && k < call->n; k++) {
    bool there = buffers[k] || call->bytes[k] == 0;
    PyObject *view =
        !there ? Py_NewRef(Py_None) : PyMemoryView_FromMemory(buffers[k] ? buffers[k] : nothing, (Py_ssize_t)call->bytes[k], PyBUF_WRITE);
    if (!view) Py_CLEAR(views);
    else PyList_SET_ITEM(views, k, view);
  }
  PyObject *result = views ? PyObject_CallOneArg(call->function, views) : NULL;
  dc_status status = result ? DC_OK : failed("onnxruntime");
  Py_XDECREF(result);
  Py_XDECREF(views);
  PyGILState_Release(gil);
  return status;
}

static const char *open_nothing(const char *folder, const void *place, void **handle) {
  return (void)folder, (void)place, *handle = NULL, NULL;
}
static void close_nothing(void *handle) { (void)handle; }

const dc_native_library host_library = {
    .name = "onnxruntime",
    .open = open_nothing,
    .close = close_nothing,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = no_scratch,
    .run = run_call,
    .destroy = destroy_call,
};
