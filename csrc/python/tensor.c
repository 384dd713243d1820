/* Arrays in and out: torch tensors by DLPack's C exchange interface, plain arrays of numpy's as they lie in memory, everything
 * else by the buffer protocol. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "python/binding.h"
#include "python/dlpack.h"
#include "python/numpy.h"

static const uint64_t LARGE_COPY = (uint64_t)1 << 28;

/* ---- types ---- */

static const struct {
  uint8_t code, bits;
  dc_dtype type;
} dl_types[] = {{DL_FLOAT, 32, DC_F32}, {DL_FLOAT, 64, DC_F64}, {DL_FLOAT, 16, DC_F16}, {DL_BFLOAT, 16, DC_BF16}, {DL_INT, 64, DC_I64},
                {DL_INT, 32, DC_I32},   {DL_INT, 16, DC_I16},   {DL_INT, 8, DC_I8},     {DL_UINT, 8, DC_U8},      {DL_UINT, 16, DC_U16},
                {DL_UINT, 32, DC_U32},  {DL_UINT, 64, DC_U64},  {DL_BOOL, 8, DC_BOOL},
                {DL_COMPLEX, 64, DC_C64}, {DL_COMPLEX, 128, DC_C128}};
enum { DL_TYPES = sizeof dl_types / sizeof *dl_types };

static const struct {
  const char *name;
  dc_dtype type;
} numpy_types[] = {{"float32", DC_F32},
                   {"float64", DC_F64},
                   {"float16", DC_F16},
                   {"bfloat16", DC_BF16},
                   {"int64", DC_I64},
                   {"int32", DC_I32},
                   {"int16", DC_I16},
                   {"int8", DC_I8},
                   {"uint8", DC_U8},
                   {"uint16", DC_U16},
                   {"uint32", DC_U32},
                   {"uint64", DC_U64},
                   {"bool", DC_BOOL},
                   {"float8_e4m3fn", DC_F8E4M3FN},
                   {"float8_e4m3fnuz", DC_F8E4M3FNUZ},
                   {"float8_e5m2", DC_F8E5M2},
                   {"float8_e5m2fnuz", DC_F8E5M2FNUZ},
                   {"float8_e8m0fnu", DC_F8E8M0},
                   {"float4_e2m1fn", DC_F4E2M1},
                   {"int4", DC_I4},
                   {"uint4", DC_U4},
                   {"int2", DC_I2},
                   {"uint2", DC_U2},
                   {"complex64", DC_C64},
                   {"complex128", DC_C128}};
enum { NUMPY_TYPES = sizeof numpy_types / sizeof *numpy_types };

static const char *numpy_name(dc_dtype type) {
  for (int k = 0; k < NUMPY_TYPES; k++)
    if (numpy_types[k].type == type) return numpy_types[k].name;
  return "uint8";
}

/* ---- torch ---- */

static const DLExchange *exchange_of(module_state *state, PyTypeObject *type) {
  if (type == state->torch_type) return state->exchange;
  PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
  if (!capsule) {
    PyErr_Clear();
    return NULL;
  }
  const DLExchangeHeader *header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  Py_DECREF(capsule);
  while (header && header->version.major != 1) header = header->previous;
  if (!header) {
    PyErr_Clear();
    return NULL;
  }
  Py_INCREF(type);
  Py_XSETREF(state->torch_type, type);
  return state->exchange = header;
}

bool requires_grad(const module_state *state, PyObject *tensor) {
  PyObject *flag = PyObject_GetAttr(tensor, state->requires_grad);
  bool set = flag == Py_True;
  if (!flag) PyErr_Clear();
  Py_XDECREF(flag);
  return set;
}

int use_torch(module_state *state) {
  PyObject *torch = PyImport_ImportModule("torch"), *type = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
  bool found = type && exchange_of(state, (PyTypeObject *)type);
  if (type && !found) PyErr_SetString(state->errors[DC_ERR_DEVICE], "this torch does not exchange tensors by DLPack's C interface");
  Py_XDECREF(type);
  Py_XDECREF(torch);
  return found ? 0 : -1;
}

typedef enum { READ, IN_PLACE, FLAT, ON_HOST } view_kind; /* all but the last on any device */

static bool contiguous(const DLTensor *t) {
  int64_t stride = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (t->shape[d] == 0) return true;
    if (t->shape[d] != 1 && t->strides && t->strides[d] != stride) return false;
    stride *= t->shape[d];
  }
  return true;
}

static int type_of(const DLTensor *t) {
  int k = 0;
  while (k < DL_TYPES && (dl_types[k].code != t->dtype.code || dl_types[k].bits != t->dtype.bits || t->dtype.lanes != 1)) k++;
  return k;
}

/* The place of a type among torch's; DL_TYPES: it is none of them. */
static int place_of(dc_dtype type) {
  int k = 0;
  while (k < DL_TYPES && dl_types[k].type != type) k++;
  return k;
}

static bool lies_with(const DLTensor *t, const dc_array *array) {
  return array->device == DC_HOST ? t->device.type == DL_CPU : t->device.type == DL_CUDA && t->device.id == array->ordinal;
}

static bool has_strides(const DLTensor *t, const int64_t *strides) {
  return strides ? t->strides && memcmp(t->strides, strides, (size_t)t->ndim * sizeof *strides) == 0 : contiguous(t);
}

bool is_like(module_state *state, PyObject *object, const dc_array *want, const int64_t *strides) {
  DLTensor t;
  const DLExchange *api = exchange_of(state, Py_TYPE(object));
  if (!api) return false;
  if (api->borrow(object, &t)) return PyErr_Clear(), false;
  int k = type_of(&t);
  if (t.dtype.code == DL_COMPLEX) return false; /* it may be a conjugate view, which nothing here says */
  return lies_with(&t, want) && k < DL_TYPES && dl_types[k].type == want->dtype && (uint32_t)t.ndim == want->rank &&
         memcmp(t.shape, want->dims, want->rank * sizeof *t.shape) == 0 && has_strides(&t, strides);
}

int note_layout(module_state *state, PyObject *object, dc_array *like, int64_t **strides) {
  tensor_view v;
  DLTensor t;
  const DLExchange *api = exchange_of(state, Py_TYPE(object));
  if (!api) return PyErr_SetString(state->errors[DC_ERR_VALUE], "expected a tensor"), -1;
  if (view_anywhere(state, object, &v)) return -1;
  *like = v.array, like->data = NULL;
  release_view(&v);
  if (api->borrow(object, &t)) return -1;
  if (contiguous(&t)) return 0;
  size_t bytes = (size_t)t.ndim * sizeof **strides;
  if (!(*strides = PyMem_Malloc(bytes))) return PyErr_NoMemory(), -1;
  memcpy(*strides, t.strides, bytes);
  return 0;
}

static int fail(module_state *state, dc_code code, const char *text) {
  PyErr_SetString(state->errors[code], text);
  return -1;
}

static int fail_rank(module_state *state, Py_ssize_t rank) {
  PyErr_Format(state->errors[DC_ERR_SHAPE], "%zd dimensions were given, expected at most %d", rank, DC_MAX_RANK);
  return -1;
}

/* torch's message speaks of storage and carries a C++ backtrace; the layout says more (sparse, meta, fake). */
static int not_plain(module_state *state, PyObject *object) {
  PyErr_Clear();
  PyObject *layout = PyObject_GetAttrString(object, "layout"), *device = PyObject_GetAttrString(object, "device");
  if (layout && device)
    PyErr_Format(state->errors[DC_ERR_VALUE], "a %s of layout %S on %S has no memory that dcml could read", Py_TYPE(object)->tp_name,
                 layout, device);
  Py_XDECREF(layout);
  Py_XDECREF(device);
  return -1;
}

static int fail_gaps(module_state *state) {
  return fail(state, DC_ERR_VALUE, "it is written in place: expected a contiguous array, its last dimension innermost");
}

/* Do the elements, in some order of the dimensions, lie without gaps? */
static bool is_dense(const DLTensor *t, int64_t elements) {
  int64_t reach = 1;
  for (int d = 0; d < t->ndim; d++) reach += (t->shape[d] - 1) * t->strides[d];
  bool dense = reach == elements; /* with positive strides of which each ... */
  for (int d = 0; d < t->ndim; d++) {
    int64_t inner = 1; /* ... is the product of the extents that lie closer */
    for (int k = 0; k < t->ndim; k++) inner *= t->shape[k] != 1 && t->strides[k] < t->strides[d] ? t->shape[k] : 1;
    dense &= t->shape[d] == 1 || t->strides[d] == inner;
  }
  return dense;
}

static int flatten(module_state *state, const DLTensor *t, tensor_view *out) {
  int64_t elements = 1;
  for (int d = 0; d < t->ndim; d++) elements *= t->shape[d];
  if (!contiguous(t)) {
    if (!is_dense(t, elements)) return fail(state, DC_ERR_SHAPE, "it is taken as it lies in memory: expected a tensor without gaps");
    out->layout = dc_hash_bytes(1, t->shape, (size_t)t->ndim * sizeof *t->shape);
    for (int d = 0; d < t->ndim; d++) out->layout = dc_hash_bytes(out->layout, &t->strides[t->shape[d] == 1 ? 0 : d], sizeof *t->strides);
  }
  out->array.rank = 1, out->array.dims[0] = elements;
  return 0;
}

/* torch's conjugates may be views of what was not conjugated: those become arrays of their own, or cannot be written. */
static int resolve(module_state *state, const DLExchange *api, bool in_place, PyObject **object, DLTensor *t) {
  PyObject *whole = PyObject_CallMethod(*object, "resolve_conj", NULL);
  if (whole) Py_SETREF(whole, PyObject_CallMethod(whole, "resolve_neg", NULL));
  if (!whole) return -1;
  bool same = whole == *object;
  Py_SETREF(*object, whole);
  if (!same && in_place) return fail(state, DC_ERR_VALUE, "it is written in place and a conjugate view: expected tensor.resolve_conj()");
  return same ? 0 : api->borrow(whole, t) ? -1 : 0;
}

/* Memory that torch looks at, and whom it goes back to when torch is done with it. */
typedef struct {
  DLManaged managed;
  void *owner;
  int64_t dims[]; /* shape, then strides */
} handed_over;

/* Shape, then strides. */
static void lay_out(const dc_array *shape, int64_t *dims) {
  int64_t stride = 1;
  for (uint32_t d = shape->rank; d-- > 0;) {
    dims[d] = shape->dims[d];
    dims[shape->rank + d] = stride;
    stride *= shape->dims[d];
  }
}

/* A tensor of torch's over an array of the host; `drop` is told when torch lets go of it.  NULL: the owner still has it. */
static PyObject *hand_over(module_state *state, const dc_array *array, void *owner, void (*drop)(DLManaged *)) {
  const DLExchange *api = state->exchange;
  void *object = NULL;
  int k = place_of(array->dtype);
  if (k == DL_TYPES) return fail(state, DC_ERR_DTYPE, "a result has a type that torch cannot take over"), NULL;
  handed_over *h = calloc(1, sizeof *h + 2 * array->rank * sizeof(int64_t));
  if (!h) return PyErr_NoMemory();
  lay_out(array, h->dims);
  h->owner = owner;
  h->managed = (DLManaged){.version = {1, 0}, .context = h, .deleter = drop};
  h->managed.tensor = (DLTensor){.data = array->data, .device = {DL_CPU, 0}, .ndim = (int32_t)array->rank,
                                 .dtype = {dl_types[k].code, dl_types[k].bits, 1}, .shape = h->dims, .strides = h->dims + array->rank};
  if (api->to_object(&h->managed, &object)) free(h);
  return object;
}

static void drop_pooled(DLManaged *self) {
  dc_buffer_give(((handed_over *)self)->owner, self->tensor.data);
  free(self);
}

static PyObject *new_pooled(module_state *state, const dc_array *shape, void **data) {
  uint64_t bytes = dc_array_bytes(shape);
  dc_array array = *shape;
  array.data = dc_buffer_take(state->pool, bytes);
  if (!array.data) return PyErr_Format(state->errors[DC_ERR_MEMORY], "cannot get %llu bytes", (unsigned long long)bytes);
  PyObject *tensor = hand_over(state, &array, state->pool, drop_pooled);
  if (tensor) *data = array.data;
  else dc_buffer_give(state->pool, array.data);
  return tensor;
}

static void drop_borrowed(DLManaged *self) {
  if (Py_IsInitialized()) { /* in whichever thread */
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)((handed_over *)self)->owner);
    PyGILState_Release(gil);
  }
  free(self);
}

PyObject *tensor_inside(module_state *state, PyObject *owner, const dc_array *array) {
  PyObject *tensor = hand_over(state, array, owner, drop_borrowed);
  if (tensor) Py_INCREF(owner);
  return tensor;
}

enum { SMALL_COPY = 1 << 16 }; /* elements: torch takes longer to describe a copy than to make it */

static void copy_row(char *to, const char *from, int64_t n, int64_t stride, size_t item) {
  for (int64_t k = 0; k < n; k++) memcpy(to + (size_t)k * item, from + k * stride * (int64_t)item, item);
}

/* The elements of a strided tensor one after the other. */
static void copy_strided(char *to, const char *from, const DLTensor *t, size_t item) {
  int64_t at[DC_MAX_RANK] = {0}, run = 1, rows = 1, step = 1;
  int outer = t->ndim;
  while (outer > 0 && (t->shape[outer - 1] == 1 || t->strides[outer - 1] == run)) run *= t->shape[--outer];
  if (run == 1 && outer > 0) run = t->shape[--outer], step = t->strides[outer];
  for (int d = 0; d < outer; d++) rows *= t->shape[d];
  for (int64_t row = 0; row < rows; row++, to += (size_t)run * item) {
    int64_t offset = 0;
    for (int d = 0; d < outer; d++) offset += at[d] * t->strides[d];
    const char *first = from + offset * (int64_t)item;
    if (step == 1) memcpy(to, first, (size_t)run * item);
    else if (item == sizeof(float)) copy_row(to, first, run, step, sizeof(float)); /* so that the compiler knows the size */
    else copy_row(to, first, run, step, item);
    for (int d = outer; d-- > 0 && ++at[d] == t->shape[d];) at[d] = 0;
  }
}

/* Do the elements in memory stand for their negatives? */
static bool is_negated(PyObject *tensor) {
  PyObject *flag = PyObject_CallMethod(tensor, "is_neg", NULL);
  bool set = flag != Py_False;
  if (!flag) PyErr_Clear();
  Py_XDECREF(flag);
  return set;
}

/* A contiguous copy of a tensor. */
static PyObject *contiguous_copy(module_state *state, const DLTensor *t, PyObject *object) {
  int k = type_of(t);
  int64_t elements = 1;
  for (int d = 0; d < t->ndim; d++) elements *= t->shape[d];
  if (t->device.type != DL_CPU || k == DL_TYPES || elements > SMALL_COPY || is_negated(object))
    return PyObject_CallMethod(object, "contiguous", NULL);
  void *data;
  dc_array shape = {.dtype = dl_types[k].type, .rank = (uint32_t)t->ndim};
  memcpy(shape.dims, t->shape, (size_t)t->ndim * sizeof *t->shape);
  PyObject *copy = new_pooled(state, &shape, &data);
  if (copy) copy_strided(data, (const char *)t->data + t->byte_offset, t, dc_dtype_bytes(shape.dtype));
  return copy;
}

static int view_torch(module_state *state, const DLExchange *api, PyObject *object, view_kind how, tensor_view *out) {
  DLTensor t;
  bool in_place = how == IN_PLACE;
  if (api->borrow(object, &t)) return not_plain(state, object);
  out->is_torch = true;
  out->owner = Py_NewRef(object);
  if (t.dtype.code == DL_COMPLEX && resolve(state, api, in_place, &out->owner, &t)) return -1;
  if (t.device.type != DL_CPU && (how == ON_HOST || t.device.type != DL_CUDA))
    return fail(state, DC_ERR_DEVICE, "expected a tensor on the CPU");
  bool empty = false;
  for (int d = 0; d < t.ndim; d++) empty |= t.shape[d] == 0;
  if (!t.data && !empty) return not_plain(state, object);
  if (t.ndim > DC_MAX_RANK) return fail_rank(state, t.ndim);
  if (in_place && requires_grad(state, object))
    return fail(state, DC_ERR_VALUE, "it is written in place and requires a gradient: expected tensor.detach()");
  if (how != FLAT && !contiguous(&t)) {
    if (in_place) return fail_gaps(state);
    PyObject *copy = contiguous_copy(state, &t, out->owner);
    if (!copy) return -1;
    Py_SETREF(out->owner, copy);
    if (api->borrow(copy, &t)) return -1;
  }
  int k = type_of(&t);
  if (k == DL_TYPES) return fail(state, DC_ERR_DTYPE, "a tensor has a type that dcml does not know");
  out->array.dtype = dl_types[k].type;
  out->array.rank = (uint32_t)t.ndim;
  memcpy(out->array.dims, t.shape, (size_t)t.ndim * sizeof *t.shape);
  out->array.data = (char *)t.data + t.byte_offset;
  out->array.device = t.device.type == DL_CUDA ? DC_CUDA : DC_HOST, out->array.ordinal = t.device.type == DL_CUDA ? t.device.id : 0;
  return how == FLAT ? flatten(state, &t, out) : 0;
}

/* Borrowed: torch's object for a type, and for a GPU. */
static PyObject *torch_type_of(module_state *state, dc_dtype type) {
  if (state->torch_types[type]) return state->torch_types[type];
  PyObject *torch = PyImport_ImportModule("torch");
  state->torch_types[type] = torch ? PyObject_GetAttrString(torch, numpy_name(type)) : NULL;
  Py_XDECREF(torch);
  if (!state->torch_types[type] && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_Clear(), fail(state, DC_ERR_DTYPE, "an output has a type that torch does not have");
  return state->torch_types[type];
}

static PyObject *torch_device(module_state *state, int32_t ordinal) {
  if (!state->torch_devices && !(state->torch_devices = PyDict_New())) return NULL;
  PyObject *key = PyLong_FromLong(ordinal), *found = key ? PyDict_GetItemWithError(state->torch_devices, key) : NULL;
  if (!found && key && !PyErr_Occurred()) {
    PyObject *torch = PyImport_ImportModule("torch"),
             *made = torch ? PyObject_CallMethod(torch, "device", "si", "cuda", (int)ordinal) : NULL;
    if (made && PyDict_SetItem(state->torch_devices, key, made) == 0) found = made;
    Py_XDECREF(made); /* which the dictionary holds */
    Py_XDECREF(torch);
  }
  Py_XDECREF(key);
  return found;
}

static int find_empty(module_state *state) {
  PyObject *torch = state->torch_empty ? NULL : PyImport_ImportModule("torch");
  if (torch) state->torch_empty = PyObject_GetAttrString(torch, "empty");
  Py_XDECREF(torch);
  return state->torch_empty ? 0 : -1;
}

PyObject *core_make_empty_by(PyObject *module, PyObject *capsule) {
  module_state *state = PyModule_GetState(module);
  empty_maker *maker = PyCapsule_GetPointer(capsule, "dcml.empty_maker");
  if (!maker) return NULL;
  state->make_empty = *maker; /* in the memory of an extension, which stays */
  Py_RETURN_NONE;
}

static PyObject *new_empty(module_state *state, const dc_array *shape, void **data) {
  int k = place_of(shape->dtype);
  if (k == DL_TYPES) return fail(state, DC_ERR_DTYPE, "an output has a type that torch does not have"), NULL;
  PyObject *made = state->make_empty(dl_types[k].code, dl_types[k].bits, shape->ordinal, shape->rank, shape->dims, data);
  if (made && !*data) *data = (void *)state; /* any address, where there are no elements */
  return made;
}

/* By torch itself: a tensor of its caching allocator may be handed to other streams, as one made of foreign memory may not. */
static PyObject *new_on_device(module_state *state, const dc_array *shape, void **data) {
  DLTensor t;
  if (state->make_empty) return new_empty(state, shape, data);
  PyObject *type = torch_type_of(state, shape->dtype), *device = type ? torch_device(state, shape->ordinal) : NULL;
  PyObject *dims = device && !find_empty(state) ? PyTuple_New(shape->rank) : NULL, *made = NULL;
  for (uint32_t d = 0; dims && d < shape->rank; d++) PyTuple_SET_ITEM(dims, d, PyLong_FromLongLong(shape->dims[d]));
  if (dims && !PyErr_Occurred()) made = PyObject_Vectorcall(state->torch_empty, (PyObject *[]){dims, type, device}, 1, state->empty_names);
  Py_XDECREF(dims);
  if (made && state->exchange && ((const DLExchange *)state->exchange)->borrow(made, &t)) Py_CLEAR(made);
  if (made) *data = t.data ? (char *)t.data + t.byte_offset : (void *)state; /* any address, where there are no elements */
  return made;
}

static PyObject *new_torch(module_state *state, const dc_array *shape, void **data) {
  return shape->device == DC_HOST ? new_pooled(state, shape, data) : new_on_device(state, shape, data);
}

/* ---- numpy ---- */

/* NULL, and no exception, where numpy has another ABI than numpy.h knows. */
static NumpyFunctions find_functions(void) {
  static const char *const modules[] = {"numpy._core._multiarray_umath", "numpy.core._multiarray_umath"}; /* before numpy 2: the latter */
  NumpyFunctions found = NULL;
  for (int k = 0; k < 2 && !found; k++) {
    PyObject *module = PyImport_ImportModule(modules[k]), *capsule = module ? PyObject_GetAttrString(module, "_ARRAY_API") : NULL;
    if (capsule) found = PyCapsule_GetPointer(capsule, NULL);
    PyErr_Clear();
    Py_XDECREF(capsule);
    Py_XDECREF(module);
  }
  unsigned abi = found ? (*(const numpy_abi_version *)&found[NUMPY_ABI_VERSION])() >> 24 : 0;
  return abi == 1 || abi == 2 ? found : NULL;
}

static int find_numpy(module_state *state) {
  if (state->numpy_array) return 0;
  PyObject *numpy = PyImport_ImportModule("numpy");
  if (numpy) state->numpy_functions = find_functions();
  if (numpy) state->numpy_array = PyObject_GetAttrString(numpy, "ndarray");
  Py_XDECREF(numpy);
  return state->numpy_array ? 0 : -1;
}

static int numpy_type(module_state *state, PyObject *object, dc_dtype *out, bool *native) {
  PyObject *dtype = PyObject_GetAttrString(object, "dtype"), *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
  PyObject *order = name ? PyObject_GetAttrString(dtype, "isnative") : NULL;
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  int k = 0;
  while (text && k < NUMPY_TYPES && strcmp(numpy_types[k].name, text)) k++;
  if (text && k == NUMPY_TYPES) PyErr_Format(state->errors[DC_ERR_DTYPE], "an array has type %s, which dcml does not know", text);
  bool other = !text && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_AttributeError));
  if (other) PyErr_Format(state->errors[DC_ERR_VALUE], "expected a tensor or an array, got %s", Py_TYPE(object)->tp_name);
  *native = order != Py_False;
  Py_XDECREF(order);
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  if (!text || k == NUMPY_TYPES || !order) return -1;
  *out = numpy_types[k].type;
  return 0;
}

/* An object that only looks like an array becomes one, so that its type and its shape are those of its memory, and so
 * does an array in another byte order. */
static PyObject *real_array(module_state *state, PyObject *numpy, PyObject *object, bool in_place, dc_dtype *type) {
  bool native;
  if (numpy_type(state, object, type, &native)) return NULL;
  if (in_place && !native) return fail(state, DC_ERR_VALUE, "it is written in place, but is in another byte order"), NULL;
  if (native && (PyObject *)Py_TYPE(object) == state->numpy_array) return Py_NewRef(object);
  PyObject *array = PyObject_CallMethod(numpy, "asarray", "O", object);
  if (array && numpy_type(state, array, type, &native)) Py_CLEAR(array);
  if (array && !native) Py_SETREF(array, PyObject_CallMethod(numpy, "asarray", "Os", array, numpy_name(*type)));
  return array;
}

static int read_shape(module_state *state, PyObject *array, dc_array *out) {
  PyObject *shape = PyObject_GetAttrString(array, "shape"); /* a real array's: a tuple of extents */
  Py_ssize_t rank = shape ? PyTuple_GET_SIZE(shape) : 0;
  out->rank = rank <= DC_MAX_RANK ? (uint32_t)rank : 0;
  for (uint32_t d = 0; d < out->rank; d++) out->dims[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
  Py_XDECREF(shape);
  return !shape ? -1 : rank > DC_MAX_RANK ? fail_rank(state, rank) : 0;
}

static int fail_readonly(module_state *state) {
  PyErr_Clear();
  return fail(state, DC_ERR_VALUE, "it is written in place, but is read-only");
}

/* An array with gaps is copied, and one that repeats its elements may be far larger than its memory. */
static int check_copy(module_state *state, PyObject *array, uint64_t bytes) {
  Py_buffer plain;
  if (bytes < LARGE_COPY) return 0;
  if (!PyObject_GetBuffer(array, &plain, PyBUF_C_CONTIGUOUS)) return PyBuffer_Release(&plain), 0;
  PyErr_Clear();
  if (bytes <= dc_memory_available_bytes()) return 0;
  PyErr_Format(state->errors[DC_ERR_MEMORY], "a copy without gaps takes %llu MB, which are not available",
               (unsigned long long)(bytes >> 20));
  return -1;
}

static int view_array(module_state *state, PyObject *numpy, PyObject *array, bool in_place, tensor_view *out) {
  if (read_shape(state, array, &out->array) || check_copy(state, array, dc_array_bytes(&out->array))) return -1;
  PyObject *plain =
      out->array.rank ? PyObject_CallMethod(numpy, "ascontiguousarray", "O", array) : PyObject_CallMethod(array, "reshape", "i", 1);
  if (in_place && out->array.rank && plain && plain != array) return Py_DECREF(plain), fail_gaps(state);
  PyObject *bytes = plain ? PyObject_CallMethod(plain, "view", "s", "uint8") : NULL;
  Py_XDECREF(plain);
  if (!bytes) return -1;
  out->owner = bytes;
  if (PyObject_GetBuffer(bytes, &out->buffer, in_place ? PyBUF_WRITABLE : PyBUF_SIMPLE)) return in_place ? fail_readonly(state) : -1;
  out->has_buffer = true;
  out->array.data = out->buffer.buf;
  return 0;
}

static dc_dtype type_of_number(int number) {
  static const uint8_t types[] = {[NUMPY_BOOL] = DC_BOOL, [NUMPY_BYTE] = DC_I8,   [NUMPY_UBYTE] = DC_U8,  [NUMPY_SHORT] = DC_I16,
                                  [NUMPY_USHORT] = DC_U16, [NUMPY_INT] = DC_I32,  [NUMPY_UINT] = DC_U32,
                                  [NUMPY_LONG] = sizeof(long) == 8 ? DC_I64 : DC_I32, [NUMPY_ULONG] = sizeof(long) == 8 ? DC_U64 : DC_U32,
                                  [NUMPY_LONGLONG] = DC_I64, [NUMPY_ULONGLONG] = DC_U64, [NUMPY_FLOAT] = DC_F32, [NUMPY_DOUBLE] = DC_F64,
                                  [NUMPY_HALF] = DC_F16};
  return (size_t)number < sizeof types ? (dc_dtype)types[number] : DC_NOTYPE;
}

/* A contiguous array of such a type, of numpy's own class: nothing of Python's runs.  False, and no exception, for others. */
static bool view_plain(module_state *state, PyObject *object, bool in_place, tensor_view *out) {
  if ((PyObject *)Py_TYPE(object) != state->numpy_array || !state->numpy_functions) return false;
  const NumpyArray *array = (NumpyArray *)object;
  int wanted = NUMPY_CONTIGUOUS | NUMPY_ALIGNED | (in_place ? NUMPY_WRITEABLE : 0);
  out->array.dtype = type_of_number(array->type->number);
  if (!out->array.dtype || (array->flags & wanted) != wanted || array->rank > DC_MAX_RANK) return false;
  if (array->type->order != '=' && array->type->order != '|') return false;
  out->array.rank = (uint32_t)array->rank;
  for (uint32_t d = 0; d < out->array.rank; d++) out->array.dims[d] = array->dims[d];
  out->array.data = array->data;
  out->owner = Py_NewRef(object);
  return true;
}

static int view_buffer(module_state *state, PyObject *object, bool in_place, tensor_view *out) {
  if (find_numpy(state)) return -1;
  if (view_plain(state, object, in_place, out)) return 0;
  PyObject *numpy = PyImport_ImportModule("numpy"), *array = numpy ? real_array(state, numpy, object, in_place, &out->array.dtype) : NULL;
  bool other = array && in_place && !PyObject_TypeCheck(object, (PyTypeObject *)state->numpy_array);
  if (other) fail(state, DC_ERR_VALUE, "it is written in place: expected an array of numpy or a tensor of torch");
  int failed = !array || other || view_array(state, numpy, array, in_place, out) ? -1 : 0;
  Py_XDECREF(array);
  Py_XDECREF(numpy);
  return failed;
}

static int view(module_state *state, PyObject *object, view_kind how, tensor_view *out) {
  bool is_numpy = (PyObject *)Py_TYPE(object) == state->numpy_array;
  *out = (tensor_view){0};
  const DLExchange *api = is_numpy ? NULL : exchange_of(state, Py_TYPE(object));
  int failed = api ? view_torch(state, api, object, how, out) : view_buffer(state, object, how == IN_PLACE || how == FLAT, out);
  if (failed) release_view(out);
  return failed;
}

bool is_array(module_state *state, PyObject *object) {
  return (PyObject *)Py_TYPE(object) == state->numpy_array || exchange_of(state, Py_TYPE(object));
}

int renew_view(module_state *state, tensor_view *view) {
  DLTensor t;
  if (!view->is_torch || view->layout) return 0;
  const DLExchange *api = exchange_of(state, Py_TYPE(view->owner));
  if (!api || api->borrow(view->owner, &t)) return not_plain(state, view->owner);
  if (!lies_with(&t, &view->array)) return 0; /* a copy on the call's device stands for it */
  bool same =
      (uint32_t)t.ndim == view->array.rank && contiguous(&t) && !memcmp(view->array.dims, t.shape, (size_t)t.ndim * sizeof *t.shape);
  if (!same) return fail(state, DC_ERR_VALUE, "it has another shape than when the function was called");
  view->array.data = t.data ? (char *)t.data + t.byte_offset : NULL;
  return 0;
}

int view_tensor(module_state *state, PyObject *object, tensor_view *out) { return view(state, object, ON_HOST, out); }
int view_anywhere(module_state *state, PyObject *object, tensor_view *out) { return view(state, object, READ, out); }
int view_in_place(module_state *state, PyObject *object, tensor_view *out) { return view(state, object, IN_PLACE, out); }
int view_flat(module_state *state, PyObject *object, tensor_view *out) { return view(state, object, FLAT, out); }

void release_view(tensor_view *view) {
  if (view->has_buffer) PyBuffer_Release(&view->buffer);
  Py_CLEAR(view->owner);
  view->has_buffer = false;
}

/* Types that numpy has from elsewhere. */
static bool is_extended(dc_dtype type) { return type == DC_BF16 || type >= DC_F8E4M3FN; }

/* Borrowed: numpy's object for a type. */
static PyObject *type_object(module_state *state, dc_dtype type) {
  if (state->numpy_types[type]) return state->numpy_types[type];
  PyObject *module = PyImport_ImportModule(is_extended(type) ? "ml_dtypes" : "numpy");
  PyObject *scalar = module ? PyObject_GetAttrString(module, type == DC_BOOL ? "bool_" : numpy_name(type)) : NULL;
  PyObject *numpy = scalar ? PyImport_ImportModule("numpy") : NULL;
  state->numpy_types[type] = numpy ? PyObject_CallMethod(numpy, "dtype", "O", scalar) : NULL;
  Py_XDECREF(module);
  Py_XDECREF(scalar);
  Py_XDECREF(numpy);
  return state->numpy_types[type];
}

static PyObject *pooled_numpy(module_state *state, PyObject *dims, PyObject *type, uint64_t bytes, void **data) {
  PyObject *memory = dims && type ? new_memory(state, bytes, data) : NULL;
  PyObject *array = memory ? PyObject_Vectorcall(state->numpy_array, (PyObject *[]){dims, type, memory}, 3, NULL) : NULL;
  Py_XDECREF(memory);
  return array;
}

/* By numpy's own function. */
static PyObject *new_plain(module_state *state, const dc_array *shape, void **data) {
  Py_ssize_t dims[DC_MAX_RANK];
  PyObject *type = type_object(state, shape->dtype);
  if (!type) return NULL;
  for (uint32_t d = 0; d < shape->rank; d++) dims[d] = (Py_ssize_t)shape->dims[d];
  numpy_new_from_descr make = *(const numpy_new_from_descr *)&state->numpy_functions[NUMPY_NEW_FROM_DESCR];
  PyObject *array = make((PyTypeObject *)state->numpy_array, Py_NewRef(type), (int)shape->rank, dims, NULL, NULL, 0, NULL);
  if (array) *data = ((NumpyArray *)array)->data;
  return array;
}

static PyObject *new_numpy(module_state *state, const dc_array *shape, void **data) {
  if (find_numpy(state)) return NULL;
  if (state->numpy_functions && dc_array_bytes(shape) < POOLED_BYTES) return new_plain(state, shape, data);
  PyObject *dims = PyTuple_New(shape->rank), *type = type_object(state, shape->dtype);
  for (uint32_t d = 0; dims && d < shape->rank; d++) PyTuple_SET_ITEM(dims, d, PyLong_FromLongLong(shape->dims[d]));
  PyObject *array = pooled_numpy(state, dims, type, dc_array_bytes(shape), data);
  Py_XDECREF(dims);
  return array;
}

PyObject *new_tensor(module_state *state, const dc_array *shape, bool torch, void **data) {
  return torch ? new_torch(state, shape, data) : new_numpy(state, shape, data);
}

int parse_shape(module_state *state, dc_graph *graph, PyObject *shape, dc_ex **out, uint32_t *rank) {
  PyObject *items = PySequence_Fast(shape, "expected a list of extents");
  if (!items) return -1;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  int failed = n > DC_MAX_RANK ? fail_rank(state, n) : 0;
  *rank = failed ? 0 : (uint32_t)n;
  *out = DC_NEW_ARRAY(&graph->arena, dc_ex, *rank);
  for (uint32_t d = 0; d < *rank && !failed; d++) {
    PyObject *item = PySequence_Fast_GET_ITEM(items, d);
    if (PyLong_Check(item)) {
      int64_t extent = PyLong_AsLongLong(item);
      if (extent < 0) failed = PyErr_Occurred() ? -1 : fail(state, DC_ERR_SHAPE, "expected an extent that is not negative");
      (*out)[d] = dc_ex_int(&graph->pool, extent);
    } else {
      const char *name = PyUnicode_Check(item) ? PyUnicode_AsUTF8(item) : NULL;
      dc_status status =
          name && strpbrk(name, "+-*/%(") && !dc_symbol_find(&graph->pool, name) ? parse_size(graph, name, &(*out)[d]) : NULL;
      if (!name) failed = fail(state, DC_ERR_SHAPE, "expected extents to be integers, names or expressions of them");
      else if (status || !(*out)[d])
        (*out)[d] = dc_ex_sym(&graph->pool, dc_symbol_get(&graph->pool, name, 0)); /* models have symbols of any name */
      dc_status_free(status);
    }
  }
  Py_DECREF(items);
  return failed;
}
