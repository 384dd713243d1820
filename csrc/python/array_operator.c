/* The types Array, ArrayCalls and ArrayOperator: arrays of a front end, and its operators on them.
 *
 * The one idea: a front end's array is a name for one of numpy's, with a place on its tape; so what nearly all calls need, arrays
 * by position that nothing records, is here from the arguments to the array that is handed out, and every other call is Python's.
 * Must not know: what operators compute, how calls are recorded. */
#include "python/eager.h"

#include <string.h>
#include <structmember.h>

enum { FEW_INPUTS = 8 };

/* ---- arrays ---- */

typedef struct {
  PyObject_HEAD
  PyObject *data; /* of numpy's; NULL or None: it comes with the tape's */
  PyObject *look, *tape, *gradient, *wish; /* the front end's: wish and tape are None where no gradient concerns the array */
  PyObject *weak;
  char shared;
} ArrayObject;

static bool is_none(const PyObject *x) { return !x || x == Py_None; }
static bool is_on_tape(const ArrayObject *a) { return !is_none(a->tape) || !is_none(a->wish); }

static int array_init(ArrayObject *self, PyObject *args, PyObject *named) {
  PyObject *data;
  static char *names[] = {"data", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, named, "O", names, &data)) return -1;
  Py_XSETREF(self->data, Py_NewRef(data));
  return 0;
}

static int array_traverse(ArrayObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->data);
  Py_VISIT(self->look);
  Py_VISIT(self->tape);
  Py_VISIT(self->gradient);
  Py_VISIT(self->wish);
  return 0;
}

static int array_clear(ArrayObject *self) {
  Py_CLEAR(self->data);
  Py_CLEAR(self->look);
  Py_CLEAR(self->tape);
  Py_CLEAR(self->gradient);
  Py_CLEAR(self->wish);
  return 0;
}

static void array_dealloc(ArrayObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (self->weak) PyObject_ClearWeakRefs((PyObject *)self);
  array_clear(self);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

static PyMemberDef array_members[] = {{"_data", T_OBJECT, offsetof(ArrayObject, data), 0, NULL},
                                      {"_look", T_OBJECT, offsetof(ArrayObject, look), 0, NULL},
                                      {"_tape", T_OBJECT, offsetof(ArrayObject, tape), 0, NULL},
                                      {"_grad", T_OBJECT, offsetof(ArrayObject, gradient), 0, NULL},
                                      {"_grad_req", T_OBJECT, offsetof(ArrayObject, wish), 0, NULL},
                                      {"_shared", T_BOOL, offsetof(ArrayObject, shared), 0, NULL},
                                      {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weak), READONLY, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static PyType_Slot array_slots[] = {{Py_tp_init, array_init},
                                    {Py_tp_dealloc, array_dealloc},
                                    {Py_tp_traverse, array_traverse},
                                    {Py_tp_clear, array_clear},
                                    {Py_tp_members, array_members},
                                    {Py_tp_doc, "Array(data): what arrays of a front end are: one of numpy's, and a place on a tape."},
                                    {0, NULL}};
PyType_Spec array_spec = {"dcml._core.Array", sizeof(ArrayObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                          array_slots};

/* ---- calls ---- */

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyTypeObject *array_type;
  PyObject *thread;  /* its attribute "recording": are calls of this thread recorded? */
  PyObject *record;  /* record(array type, op, domain, opset, inputs, attributes, outputs) -> list of arrays */
  PyObject *recording, *value; /* names */
} ArrayCallsObject;

static PyObject *new_array(const ArrayCallsObject *self, PyObject *data) {
  ArrayObject *array = (ArrayObject *)self->array_type->tp_alloc(self->array_type, 0);
  if (array) array->data = Py_NewRef(data);
  return (PyObject *)array;
}

static PyObject *new_arrays(const ArrayCallsObject *self, PyObject *results) {
  PyObject *list = results ? PyList_New(PyTuple_GET_SIZE(results)) : NULL;
  for (Py_ssize_t k = 0; list && k < PyTuple_GET_SIZE(results); k++) {
    PyObject *array = new_array(self, PyTuple_GET_ITEM(results, k));
    if (!array) Py_CLEAR(list);
    else PyList_SET_ITEM(list, k, array);
  }
  return list;
}

/* Is a call on these inputs recorded?  -1 with an exception. */
static int is_recorded(const ArrayCallsObject *self, PyObject *const *inputs, Py_ssize_t n) {
  bool any = false;
  for (Py_ssize_t k = 0; k < n; k++) any |= Py_TYPE(inputs[k]) == self->array_type && is_on_tape((ArrayObject *)inputs[k]);
  PyObject *flag = any ? PyObject_GetAttr(self->thread, self->recording) : Py_NewRef(Py_False);
  int is = flag ? PyObject_IsTrue(flag) : -1;
  Py_XDECREF(flag);
  return is;
}

/* What the core takes for an input, a new reference. */
static PyObject *value_of(const ArrayCallsObject *self, PyObject *input) {
  if (Py_TYPE(input) != self->array_type) return Py_NewRef(input);
  PyObject *data = ((ArrayObject *)input)->data;
  return is_none(data) ? PyObject_CallMethodNoArgs(input, self->value) : Py_NewRef(data);
}

static PyObject *apply_to_values(const ArrayCallsObject *self, const eager_operator *what, PyObject *const *inputs, Py_ssize_t n) {
  PyObject *few[FEW_INPUTS], **values = n <= FEW_INPUTS ? few : PyMem_Malloc((size_t)n * sizeof *values), *results = NULL;
  Py_ssize_t have = 0;
  if (!values) return PyErr_NoMemory();
  while (have < n && (values[have] = value_of(self, inputs[have]))) have++;
  if (have == n) results = eager_apply(PyType_GetModuleState(Py_TYPE(self)), what, values, n);
  for (Py_ssize_t k = 0; k < have; k++) Py_DECREF(values[k]);
  if (values != few) PyMem_Free(values);
  return results;
}

enum { RECORDED = 7 };
static PyObject *record(const ArrayCallsObject *self, PyObject *const *args) {
  return PyObject_Vectorcall(self->record, args, RECORDED, NULL);
}

static PyObject *call_or_record(const ArrayCallsObject *self, const eager_operator *what, PyObject *const *args, Py_ssize_t n,
                                PyObject *inputs) {
  int recorded = is_recorded(self, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs));
  if (recorded < 0) return NULL;
  if (recorded)
    return record(self, (PyObject *[]){(PyObject *)self->array_type, args[0], args[1], args[2], inputs, what->attributes,
                                       n > 5 ? args[5] : Py_None});
  PyObject *results = apply_to_values(self, what, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs));
  PyObject *arrays = new_arrays(self, results);
  Py_XDECREF(results);
  return arrays;
}

/* calls(op, domain, opset, inputs, attributes=None, outputs=None) -> list of arrays. */
static PyObject *calls_call(PyObject *callable, PyObject *const *args, size_t flagged, PyObject *names) {
  ArrayCallsObject *self = (ArrayCallsObject *)callable;
  Py_ssize_t n = PyVectorcall_NARGS(flagged);
  eager_operator what;
  if (names && PyTuple_GET_SIZE(names)) return PyErr_SetString(PyExc_TypeError, "expected arguments by position"), NULL;
  if (eager_parse(PyType_GetModuleState(Py_TYPE(self)), args, n, &what)) return NULL;
  PyObject *inputs = PySequence_Tuple(args[3]), *arrays = inputs ? call_or_record(self, &what, args, n, inputs) : NULL;
  Py_XDECREF(inputs);
  return arrays;
}

/* ArrayCalls(array type, thread, record) */
static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *named) {
  const module_state *state = PyType_GetModuleState(type);
  PyObject *array_type, *thread, *record;
  if (named || !PyArg_ParseTuple(args, "O!OO", &PyType_Type, &array_type, &thread, &record)) return NULL;
  if (!PyType_IsSubtype((PyTypeObject *)array_type, state->array_type))
    return PyErr_SetString(PyExc_TypeError, "ArrayCalls(): expected a subclass of Array"), NULL;
  ArrayCallsObject *self = (ArrayCallsObject *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = calls_call, self->array_type = (PyTypeObject *)Py_NewRef(array_type);
  self->thread = Py_NewRef(thread), self->record = Py_NewRef(record);
  self->recording = PyUnicode_InternFromString("recording"), self->value = PyUnicode_InternFromString("_value");
  if (!self->recording || !self->value) Py_CLEAR(self);
  return (PyObject *)self;
}

static int calls_traverse(ArrayCallsObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->array_type);
  Py_VISIT(self->thread);
  Py_VISIT(self->record);
  return 0;
}

static int calls_clear(ArrayCallsObject *self) {
  Py_CLEAR(self->array_type);
  Py_CLEAR(self->thread);
  Py_CLEAR(self->record);
  return 0;
}

static void calls_dealloc(ArrayCallsObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  calls_clear(self);
  Py_XDECREF(self->recording), Py_XDECREF(self->value);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

static PyMemberDef calls_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(ArrayCallsObject, vectorcall), READONLY, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static PyType_Slot calls_slots[] = {
    {Py_tp_new, calls_new},
    {Py_tp_dealloc, calls_dealloc},
    {Py_tp_traverse, calls_traverse},
    {Py_tp_clear, calls_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, calls_members},
    {Py_tp_doc, "ArrayCalls(array_type, thread, record): runs an operator on arrays, or records it where thread.recording and a gradient "
                "concerns an input."},
    {0, NULL}};
PyType_Spec array_calls_spec = {"dcml._core.ArrayCalls", sizeof(ArrayCallsObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, calls_slots};

/* ---- operators ---- */

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  ArrayCallsObject *calls;
  PyObject *otherwise; /* what it stands for: takes the same arguments, serves all of them */
  PyObject *attributes; /* of the Python object */
  PyObject *opset;
  eager_operator what;
  Py_ssize_t least, most; /* inputs */
  int reflected;
} ArrayOperatorObject;

/* Arrays, and maybe numbers beside one. */
static bool serves(const ArrayOperatorObject *self, PyObject *const *args, Py_ssize_t n) {
  bool arrays = false;
  if (n < self->least || n > self->most) return false;
  for (Py_ssize_t k = 0; k < n; k++) {
    bool is_array = Py_TYPE(args[k]) == self->calls->array_type;
    bool is_number = self->what.types && (PyFloat_CheckExact(args[k]) || PyLong_CheckExact(args[k]));
    if (!is_array && !is_number) return false;
    arrays |= is_array;
  }
  return arrays;
}

/* The first of a sequence of results, which it takes, as an array. */
static PyObject *first_array(const ArrayOperatorObject *self, PyObject *results) {
  PyObject *array = results ? new_array(self->calls, PyTuple_GET_ITEM(results, 0)) : NULL;
  Py_XDECREF(results);
  return array;
}

static PyObject *record_operator(const ArrayOperatorObject *self, PyObject *const *inputs, Py_ssize_t n) {
  PyObject *tuple = PyTuple_New(n), *array = NULL;
  for (Py_ssize_t k = 0; tuple && k < n; k++) PyTuple_SET_ITEM(tuple, k, Py_NewRef(inputs[k]));
  const eager_operator *what = &self->what;
  PyObject *args[RECORDED] = {(PyObject *)self->calls->array_type, what->op, what->domain, self->opset, tuple, what->attributes, Py_None};
  PyObject *list = tuple ? record(self->calls, args) : NULL;
  if (list) array = PySequence_GetItem(list, 0);
  Py_XDECREF(list);
  Py_XDECREF(tuple);
  return array;
}

static PyObject *operator_call(PyObject *callable, PyObject *const *args, size_t flagged, PyObject *names) {
  ArrayOperatorObject *self = (ArrayOperatorObject *)callable;
  Py_ssize_t n = PyVectorcall_NARGS(flagged);
  if (!names && serves(self, args, n)) {
    PyObject *turned[2] = {n > 1 ? args[1] : NULL, args[0]}, *const *inputs = self->reflected ? turned : args, *array = NULL;
    int recorded = is_recorded(self->calls, args, n);
    if (!recorded) array = first_array(self, apply_to_values(self->calls, &self->what, inputs, n));
    else if (recorded > 0 && !self->what.types) array = record_operator(self, inputs, n);
    if (array || PyErr_Occurred()) return array;
  }
  return PyObject_Vectorcall(self->otherwise, args, flagged, names);
}

/* A word for types: "any", "numbers", which are no truths, or "floats"; "inputs" leaves them to the operator. */
static uint32_t types_of(const char *word) {
  uint32_t types = 0;
  for (int k = 1; k < DC_DTYPE_COUNT; k++) {
    bool real = k == DC_F32 || k == DC_F64 || k == DC_F16 || k == DC_BF16;
    bool is = strcmp(word, "floats") == 0 ? real : strcmp(word, "numbers") == 0 ? k != DC_BOOL : strcmp(word, "any") == 0;
    types |= (uint32_t)is << k;
  }
  return types;
}

/* ArrayOperator(calls, otherwise, op, domain, opset, least, most, types="inputs", attributes=None, reflected=False) */
static PyObject *operator_new(PyTypeObject *type, PyObject *args, PyObject *named) {
  static char *names[] = {"calls", "otherwise", "op", "domain", "opset", "least", "most", "types", "attributes", "reflected", NULL};
  const module_state *state = PyType_GetModuleState(type);
  PyObject *calls, *otherwise, *op, *domain, *attributes = Py_None;
  const char *types = "inputs";
  long opset;
  Py_ssize_t least, most;
  int reflected = 0;
  if (!PyArg_ParseTupleAndKeywords(args, named, "O!OUUlnn|sOp", names, state->array_calls_type, &calls, &otherwise, &op, &domain, &opset,
                                   &least, &most, &types, &attributes, &reflected))
    return NULL;
  if (least < 1 || most > FEW_INPUTS || (reflected && (least != 2 || most != 2)) || (attributes != Py_None && !PyDict_Check(attributes)))
    return PyErr_Format(PyExc_ValueError, "ArrayOperator(): 1 to %d inputs, two where they are reflected, and a dictionary", FEW_INPUTS);
  ArrayOperatorObject *self = (ArrayOperatorObject *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = operator_call, self->calls = (ArrayCallsObject *)Py_NewRef(calls), self->otherwise = Py_NewRef(otherwise);
  self->opset = PyLong_FromLong(opset), self->least = least, self->most = most, self->reflected = reflected;
  self->what = (eager_operator){Py_NewRef(op), Py_NewRef(domain), opset, -1, Py_NewRef(attributes), types_of(types)};
  if (!self->opset) Py_CLEAR(self);
  return (PyObject *)self;
}

static int operator_traverse(ArrayOperatorObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->calls);
  Py_VISIT(self->otherwise);
  Py_VISIT(self->attributes);
  Py_VISIT(self->what.attributes);
  return 0;
}

static int operator_clear(ArrayOperatorObject *self) {
  Py_CLEAR(self->calls);
  Py_CLEAR(self->otherwise);
  Py_CLEAR(self->attributes);
  Py_CLEAR(self->what.attributes);
  return 0;
}

static void operator_dealloc(ArrayOperatorObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  operator_clear(self);
  Py_XDECREF(self->what.op), Py_XDECREF(self->what.domain), Py_XDECREF(self->opset);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

static PyObject *operator_bind(PyObject *self, PyObject *object, PyObject *type) {
  (void)type;
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyMemberDef operator_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ArrayOperatorObject, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(ArrayOperatorObject, attributes), READONLY, NULL}, /* for functools.wraps() */
    {NULL, 0, 0, 0, NULL}};
static PyGetSetDef operator_properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
                                            {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot operator_slots[] = {
    {Py_tp_new, operator_new},
    {Py_tp_dealloc, operator_dealloc},
    {Py_tp_traverse, operator_traverse},
    {Py_tp_clear, operator_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, operator_bind},
    {Py_tp_members, operator_members},
    {Py_tp_getset, operator_properties},
    {Py_tp_doc, "ArrayOperator(calls, otherwise, op, domain, opset, least, most, types='inputs', attributes=None, reflected=False): a "
                "function of arrays that applies an operator."},
    {0, NULL}};
PyType_Spec array_operator_spec = {"dcml._core.ArrayOperator", sizeof(ArrayOperatorObject), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                   operator_slots};
