/* dcml._core: module state, exceptions and module functions. */
#include <string.h>

#include "backends/target.h"
#include "python/binding.h"

static const uint64_t IDLE_RESULT_BYTES = (uint64_t)1 << 31;

module_state *state_of(PyObject *self) { return PyType_GetModuleState(Py_TYPE(self)); }

int read_id(PyObject *number, void *out) {
  if (!PyLong_Check(number)) return PyErr_Format(PyExc_TypeError, "expected an integer, not %s", Py_TYPE(number)->tp_name), 0;
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  *(uint32_t *)out = overflow || value < 0 || value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
  return 1;
}

PyObject *name_object(const char *text) { return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"); }

void raise_status(module_state *state, dc_status status) {
  dc_code code = dc_status_code(status);
  PyObject *class = (int)code < (int)ERROR_CLASSES ? state->errors[code] : state->errors[0];
  PyObject *text = name_object(dc_status_text(status)), *error = text ? PyObject_CallOneArg(class, text) : NULL;
  PyObject *about = dc_status_about(status) ? name_object(dc_status_about(status)) : Py_NewRef(Py_None);
  if (error && about && PyObject_SetAttrString(error, "needs_value", about) == 0) PyErr_SetObject(class, error);
  Py_XDECREF(about);
  Py_XDECREF(error);
  Py_XDECREF(text);
  dc_status_free(status);
}

/* The exception's text; its own __str__ may fail. */
static PyObject *text_of(PyObject *error) {
  PyObject *text = PyObject_Str(error);
  if (text || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))) return text;
  PyErr_Clear();
  return PyUnicode_FromString(Py_TYPE(error)->tp_name);
}

/* Of our errors the class stays; numpy's, torch's and those of an argument's own methods get the nearest of ours. */
static PyObject *class_for(const module_state *state, PyObject *error) {
  if (PyErr_GivenExceptionMatches(error, state->errors[0])) return (PyObject *)Py_TYPE(error);
  if (PyErr_GivenExceptionMatches(error, PyExc_MemoryError)) return state->errors[DC_ERR_MEMORY];
  return state->errors[PyErr_GivenExceptionMatches(error, PyExc_TypeError) ? DC_ERR_DTYPE : DC_ERR_VALUE];
}

void blame(module_state *state, const char *what, const char *name) {
  PyObject *type, *error, *trace;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return; /* an interruption stays one */
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  if (trace) PyException_SetTraceback(error, trace);
  PyObject *text = text_of(error), *label = name_object(name);
  bool ours = PyErr_GivenExceptionMatches(error, state->errors[0]);
  PyObject *message = !text || !label ? NULL : ours ? PyUnicode_FromFormat("%s '%U': %U", what, label, text)
                                                    : PyUnicode_FromFormat("%s '%U': %s: %U", what, label, Py_TYPE(error)->tp_name, text);
  PyObject *made = message ? PyObject_CallOneArg(class_for(state, error), message) : NULL;
  if (made) {
    PyException_SetCause(made, ours ? NULL : Py_NewRef(error));
    PyErr_SetObject((PyObject *)Py_TYPE(made), made);
  }
  Py_XDECREF(made);
  Py_XDECREF(message);
  Py_XDECREF(label);
  Py_XDECREF(text);
  Py_XDECREF(trace);
  Py_XDECREF(error);
  Py_XDECREF(type);
}

/* add_ops(text): rows of the operator language; they replace built-in ones of the same name and version. */
static PyObject *core_add_ops(PyObject *module, PyObject *text) {
  module_state *state = PyModule_GetState(module);
  const char *s = PyUnicode_AsUTF8(text);
  dc_session *session = s ? session_of(state) : NULL;
  if (!session) return NULL;
  RAISE_IF(state, dc_ops_add(session->ops, s));
  eager_cache_clear(state->eager); /* its functions were made of the rows before */
  Py_RETURN_NONE;
}

static PyObject *accepted_types(const dc_row *row, const char *type) {
  PyObject *list = PyList_New(0);
  for (int t = 1; list && t < DC_DTYPE_COUNT; t++) {
    PyObject *number = dc_row_accepts(row, type, (dc_dtype)t) ? PyLong_FromLong(t) : NULL;
    if (number && PyList_Append(list, number)) Py_CLEAR(list);
    Py_XDECREF(number);
  }
  return list;
}

static PyObject *arg_list(const dc_row *row, const dc_row_arg *args, uint32_t n) {
  PyObject *list = PyList_New(n);
  for (uint32_t k = 0; list && k < n; k++)
    PyList_SET_ITEM(list, k,
                    Py_BuildValue("{s:s,s:O,s:O,s:s,s:N}", "name", args[k].name, "optional", args[k].optional ? Py_True : Py_False,
                                  "variadic", args[k].variadic ? Py_True : Py_False, "type", args[k].type, "types",
                                  accepted_types(row, args[k].type)));
  return list;
}

static PyObject *native_list(const dc_row *row) {
  PyObject *list = PyList_New(0);
  const char *name;
  for (uint32_t k = 0; list && (name = dc_row_native(row, k)); k++) {
    PyObject *text = PyUnicode_FromString(name);
    if (!text || PyList_Append(list, text)) Py_CLEAR(list);
    Py_XDECREF(text);
  }
  return list;
}

static PyObject *row_dict(const dc_row *row) {
  const dc_row_arg *in, *out;
  const dc_row_attr *attr;
  uint32_t n_in = dc_row_inputs(row, &in), n_out = dc_row_outputs(row, &out), n_attr = dc_row_attrs(row, &attr);
  PyObject *attrs = PyDict_New();
  for (uint32_t k = 0; attrs && k < n_attr; k++) {
    PyObject *fallback = Py_BuildValue("z", attr[k].fallback);
    if (!fallback || PyDict_SetItemString(attrs, attr[k].name, fallback)) Py_CLEAR(attrs);
    Py_XDECREF(fallback);
  }
  return Py_BuildValue("{s:s,s:s,s:i,s:N,s:N,s:N,s:N,s:O,s:O,s:s}", "domain", dc_row_domain(row), "name", dc_row_name(row), "since",
                       dc_row_since(row), "inputs", arg_list(row, in, n_in), "outputs", arg_list(row, out, n_out), "attributes", attrs,
                       "natives", native_list(row), "grad", dc_row_has_grad(row) ? Py_True : Py_False, "native",
                       dc_row_is_native(row) ? Py_True : Py_False, "text", dc_row_text(row));
}

/* ops() -> a dictionary for each row: domain, name, since, inputs, outputs, attributes (name -> default as text, None if
 * required), natives (libraries), grad (a clause), native (no expansion), text. */
static PyObject *core_ops(PyObject *module, PyObject *unused) {
  module_state *state = PyModule_GetState(module);
  dc_session *session = session_of(state);
  PyObject *list = session ? PyList_New(0) : NULL;
  const dc_row *row = NULL;
  (void)unused;
  for (uint32_t k = 0; list; k++) {
    dc_status status = dc_ops_row_at(session->ops, k, &row);
    if (status) raise_status(state, status);
    if (!status && !row) return list;
    PyObject *item = status ? NULL : row_dict(row);
    if (!item || PyList_Append(list, item)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return NULL;
}

static PyObject *core_operators(PyObject *module, PyObject *unused) {
  dc_session *session = session_of(PyModule_GetState(module));
  PyObject *list = session ? PyList_New(0) : NULL;
  dc_row_key row;
  (void)unused;
  for (uint32_t k = 0; list && dc_ops_key_at(session->ops, k, &row); k++) {
    PyObject *item = Py_BuildValue("(ssi)", row.domain, row.name, row.since);
    if (!item || PyList_Append(list, item)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

static PyObject *core_operator(PyObject *module, PyObject *args) {
  module_state *state = PyModule_GetState(module);
  const char *domain, *name;
  int opset;
  dc_session *session = PyArg_ParseTuple(args, "ssi", &domain, &name, &opset) ? session_of(state) : NULL;
  const dc_row *row;
  if (!session) return NULL;
  RAISE_IF(state, dc_ops_lookup(session->ops, domain, name, opset, &row));
  return row ? row_dict(row) : Py_NewRef(Py_None);
}

static PyObject *pass_positions(const dc_pass *pass) {
  PyObject *list = PyList_New(0);
  const dc_pass *at;
  for (uint32_t k = 0; list && (at = dc_pipeline_pass(k)); k++) {
    PyObject *number = at == pass ? PyLong_FromUnsignedLong(k + 1) : NULL;
    if (at == pass && (!number || PyList_Append(list, number))) Py_CLEAR(list);
    Py_XDECREF(number);
  }
  PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
  Py_XDECREF(list);
  return tuple;
}

static PyObject *core_passes(PyObject *module, PyObject *unused) {
  PyObject *list = PyList_New(0);
  const dc_pass *pass;
  (void)module, (void)unused;
  for (uint32_t k = 0; list && (pass = dc_pass_at(k)); k++) {
    PyObject *item = Py_BuildValue("(ssN)", pass->name, pass->summary, pass_positions(pass));
    if (!item || PyList_Append(list, item)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

/* Names of what may serve operators of a processor and of a GPU, whether it is found here or not. */
static PyObject *core_libraries(PyObject *module, PyObject *unused) {
  const dc_target_row *rows[] = {&dc_target_cpu, &dc_target_cuda};
  PyObject *list = PyList_New(0);
  (void)module, (void)unused;
  for (uint32_t r = 0; list && r < 2; r++)
    for (uint32_t k = 0; list && rows[r]->natives[k]; k++) {
      PyObject *name = PyUnicode_FromString(rows[r]->natives[k]->name);
      if (!name || PyList_Append(list, name)) Py_CLEAR(list);
      Py_XDECREF(name);
    }
  return list;
}

static PyMethodDef functions[] = {
    {"parse", core_parse, METH_O, "parse(text) -> Graph from its text form."},
    {"import_onnx", core_import_onnx, METH_VARARGS, "import_onnx(bytes, base_dir=None, as_params=False) -> Graph"},
    {"add_ops", core_add_ops, METH_O, "add_ops(text): adds rows of the operator language."},
    {"infer", core_infer, METH_VARARGS,
     "infer(op, domain, opset, inputs, attributes=None, outputs=None) -> [(type, shape, known)]: what an operator makes of types."},
    {"eager", (PyCFunction)(void (*)(void))core_eager, METH_FASTCALL,
     "eager(op, domain, opset, arrays, attributes=None, outputs=None) -> tuple of arrays: runs an operator."},
    {"tree_key", core_tree_key, METH_VARARGS,
     "tree_key(pairs, types) -> (key, operands, numbers, has_gradient): what tells op-trees apart."},
    {"run_trees", (PyCFunction)(void (*)(void))core_run_trees, METH_FASTCALL,
     "run_trees(kept, many, pairs, types, name) -> whether something was kept for these op-trees, and ran."},
    {"operators", core_operators, METH_NOARGS, "operators() -> [(domain, name, since)] of the operator table, which is not parsed."},
    {"operator", core_operator, METH_VARARGS, "operator(domain, name, opset) -> the row that serves a version, as in ops(), or None."},
    {"first_change", core_first_change, METH_O, "first_change(observations) -> position of the first that no longer holds, or -1."},
    {"evaluate", core_evaluate, METH_VARARGS, "evaluate(graph, sizes, what, seed, given) -> Values: what a graph computes."},
    {"attempt", core_attempt, METH_VARARGS, "attempt(graph, what, sizes, tolerance, apart) -> (verdict, why) of a pass or a program."},
    {"reduce", core_reduce, METH_VARARGS, "reduce(graph, fails) -> text of a smaller graph that fails, or None."},
    {"tell_of_code", core_tell_of_code, METH_VARARGS,
     "tell_of_code(tell, function, around, ending, at_end): tells of code that runs in this thread."},
    {"passes", core_passes, METH_NOARGS, "passes() -> [(name, what it does, its places in the pipeline, from 1 on)]."},
    {"kernel_passes", core_kernel_passes, METH_VARARGS,
     "kernel_passes(target='cpu') -> [(name, summary)], in the order in which they run."},
    {"run_kernel_pass", core_run_kernel_pass, METH_VARARGS, "run_kernel_pass(text, name) -> text of the kernel after the pass."},
    {"kernel_launches", core_kernel_launches, METH_VARARGS,
     "kernel_launches(text, sizes) -> ([(suffix, blocks, threads, shared bytes)], names of symbols, whether it checks indices), for cuda."},
    {"kernel_code", core_kernel_code, METH_VARARGS,
     "kernel_code(text, target='cpu') -> the C, or CUDA C++, that the kernel becomes as it is."},
    {"allow_tf32", (PyCFunction)(void (*)(void))core_allow_tf32, METH_FASTCALL,
     "allow_tf32(products, convolutions): whether libraries of GPUs may round operands of f32 to TF32."},
    {"make_empty_by", core_make_empty_by, METH_O, "make_empty_by(capsule): makes results on GPUs by this function of the node in C++."},
    {"toolchain", core_toolchain, METH_NOARGS, "toolchain() -> (compiler or None, cache folder, whether that lasts)."},
    {"seal", core_seal, METH_VARARGS, "seal(scratch, path): moves a file into the cache folder, as a whole."},
    {"is_sealed", core_is_sealed, METH_O, "is_sealed(path) -> whether such a file is there, complete and unchanged."},
    {"primitives", core_primitives, METH_NOARGS, "primitives() -> {name: number of arguments} of the scalar functions."},
    {"type_names", core_type_names, METH_NOARGS, "type_names() -> names of the element types, by number."},
    {"libraries", core_libraries, METH_NOARGS, "libraries() -> names of the native libraries that may serve operators."},
    {"ops", core_ops, METH_NOARGS, "ops() -> [row]: the operator table."},
    {NULL, NULL, 0, NULL}};

static int add_error(PyObject *module, module_state *state, int code, const char *name, PyObject *base, const char *doc) {
  char full[64];
  PyOS_snprintf(full, sizeof full, "dcml.%s", name);
  PyObject *bases = code ? PyTuple_Pack(base ? 2 : 1, state->errors[0], base) : NULL;
  state->errors[code] = PyErr_NewExceptionWithDoc(full, doc, bases, NULL);
  Py_XDECREF(bases);
  return state->errors[code] ? PyModule_AddObjectRef(module, name, state->errors[code]) : -1;
}

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
  PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
  return type && PyModule_AddType(module, type) == 0 ? type : NULL;
}

static int core_exec(PyObject *module) {
  module_state *state = PyModule_GetState(module);
  int failed = add_error(module, state, 0, "Error", NULL, "Base of all errors that dcml raises.");
  failed |= add_error(module, state, DC_ERR_MODEL, "ModelError", PyExc_ValueError, "A malformed or contradictory model.");
  failed |= add_error(module, state, DC_ERR_UNSUPPORTED, "UnsupportedOpError", PyExc_NotImplementedError,
                      "An operator or feature that dcml lacks.");
  failed |= add_error(module, state, DC_ERR_SHAPE, "ShapeError", PyExc_ValueError, "Shapes that do not fit.");
  failed |= add_error(module, state, DC_ERR_DTYPE, "DTypeError", PyExc_TypeError, "An element type that does not fit.");
  failed |= add_error(module, state, DC_ERR_COMPILE, "CompileError", PyExc_RuntimeError, "The system compiler failed on a kernel.");
  failed |= add_error(module, state, DC_ERR_DEVICE, "DeviceError", PyExc_RuntimeError, "A device is missing or refuses.");
  failed |= add_error(module, state, DC_ERR_VALUE, "ValueError_", PyExc_ValueError, "An argument out of its domain.");
  state->errors[DC_ERR_MEMORY] = Py_XNewRef(state->errors[0]);
  failed |= PyModule_AddIntMacro(module, POOLED_BYTES);
  if (failed) return -1;
  state->pool = dc_buffer_pool_create(dc_target_cpu.memory, IDLE_RESULT_BYTES);
  if (!(state->eager = eager_cache_create())) return PyErr_NoMemory(), -1;
  state->graph_type = add_type(module, &graph_spec);
  state->flow_type = add_type(module, &flow_spec);
  state->function_type = add_type(module, &function_spec);
  state->call_type = add_type(module, &call_spec);
  state->backward_type = add_type(module, &backward_spec);
  state->repeated_call_type = add_type(module, &repeated_call_spec);
  state->values_type = add_type(module, &values_spec);
  state->memory_type = add_type(module, &memory_spec);
  state->array_type = add_type(module, &array_spec);
  state->array_calls_type = add_type(module, &array_calls_spec);
  PyTypeObject *tree_operator = add_type(module, &tree_operator_spec), *array_operator = add_type(module, &array_operator_spec);
  Py_XDECREF(tree_operator);
  Py_XDECREF(array_operator);
  state->requires_grad = PyUnicode_InternFromString("requires_grad");
  state->apply = PyUnicode_InternFromString("apply");
  state->op = PyUnicode_InternFromString("op");
  state->shape = PyUnicode_InternFromString("shape");
  state->move_to_end = PyUnicode_InternFromString("move_to_end");
  bool names = state->requires_grad && state->apply && state->op && state->shape && state->move_to_end;
  state->empty_names = Py_BuildValue("(ss)", "dtype", "device");
  bool types = state->graph_type && state->flow_type && state->function_type && state->call_type && state->backward_type &&
               state->repeated_call_type && state->array_type && state->array_calls_type && array_operator;
  return state->pool && types && tree_operator && state->values_type && state->memory_type && names && state->empty_names ? 0 : -1;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
  module_state *state = PyModule_GetState(module);
  for (int k = 0; k < ERROR_CLASSES; k++) Py_VISIT(state->errors[k]);
  Py_VISIT(state->graph_type);
  Py_VISIT(state->flow_type);
  Py_VISIT(state->function_type);
  Py_VISIT(state->call_type);
  Py_VISIT(state->backward_type);
  Py_VISIT(state->repeated_call_type);
  Py_VISIT(state->values_type);
  Py_VISIT(state->memory_type);
  Py_VISIT(state->array_type);
  Py_VISIT(state->array_calls_type);
  Py_VISIT(state->torch_type);
  for (int k = 0; k < DC_DTYPE_COUNT; k++) Py_VISIT(state->numpy_types[k]);
  for (int k = 0; k < DC_DTYPE_COUNT; k++) Py_VISIT(state->torch_types[k]);
  Py_VISIT(state->torch_empty);
  Py_VISIT(state->torch_devices);
  Py_VISIT(state->empty_names);
  Py_VISIT(state->numpy_array);
  Py_VISIT(state->node);
  return eager_cache_traverse(state->eager, visit, arg);
}

static int core_clear(PyObject *module) {
  module_state *state = PyModule_GetState(module);
  for (int k = 0; k < ERROR_CLASSES; k++) Py_CLEAR(state->errors[k]);
  Py_CLEAR(state->graph_type);
  Py_CLEAR(state->flow_type);
  Py_CLEAR(state->function_type);
  Py_CLEAR(state->call_type);
  Py_CLEAR(state->backward_type);
  Py_CLEAR(state->repeated_call_type);
  Py_CLEAR(state->values_type);
  Py_CLEAR(state->memory_type);
  Py_CLEAR(state->array_type);
  Py_CLEAR(state->array_calls_type);
  Py_CLEAR(state->requires_grad);
  Py_CLEAR(state->torch_type);
  for (int k = 0; k < DC_DTYPE_COUNT; k++) Py_CLEAR(state->numpy_types[k]);
  for (int k = 0; k < DC_DTYPE_COUNT; k++) Py_CLEAR(state->torch_types[k]);
  Py_CLEAR(state->torch_empty);
  Py_CLEAR(state->torch_devices);
  Py_CLEAR(state->empty_names);
  Py_CLEAR(state->numpy_array);
  Py_CLEAR(state->node);
  Py_CLEAR(state->apply);
  Py_CLEAR(state->op);
  Py_CLEAR(state->shape);
  Py_CLEAR(state->move_to_end);
  eager_cache_clear(state->eager);
  return 0;
}

/* The buffer pool stays: tensors may outlive the module and return to it. */
static void core_free(void *module) {
  module_state *state = PyModule_GetState(module);
  if (state) eager_cache_destroy(state->eager);
  if (state && state->session_ready) dc_session_destroy(&state->session);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, core_exec}, {0, NULL}};
PyModuleDef dcml_module = {PyModuleDef_HEAD_INIT, "dcml._core", "The compiled core of dcml.",
                           sizeof(module_state),  functions,    slots,
                           core_traverse,         core_clear,   core_free};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&dcml_module); }
