/* tree_key(): what tells op-trees apart, found by one walk.
 *
 * The one idea: a front end whose expressions are tuples (dictionary of the operator, left, right) keeps what was compiled by a
 * key of structure; the walk that makes the key is most of a small call, so it is here.  Must not know: operators, tensors. */
#include <stdlib.h>
#include <string.h>

#include "python/binding.h"

enum { FEW = 64 };

/* From a node to its number, in the order of the walk. */
typedef struct {
  PyObject **keys, *few_keys[FEW];
  uint32_t *numbers, few_numbers[FEW], n, capacity;
} seen_nodes;

typedef struct {
  PyObject **v, *few[FEW];
  size_t n, capacity;
} stack;

typedef struct {
  PyObject *slot, *slots;                   /* callable: an operand -> its number; dictionary: id -> number */
  PyObject *node_type, *tensor_type, *operand_type;
  PyObject *op, *shape;                     /* names */
  PyObject *key, *numbers;                  /* lists */
  bool has_gradient;
  seen_nodes seen;
  stack left; /* all borrowed: the trees hold them */
} walk;

/* ---- memory ---- */

static int push(stack *s, PyObject *x) {
  if (s->n == s->capacity) {
    PyObject **grown = PyMem_Malloc(2 * s->capacity * sizeof *grown);
    if (!grown) return PyErr_NoMemory(), -1;
    memcpy(grown, s->v, s->n * sizeof *grown);
    if (s->v != s->few) PyMem_Free(s->v);
    s->v = grown, s->capacity *= 2;
  }
  return s->v[s->n++] = x, 0;
}

static uint32_t place_of(const seen_nodes *s, PyObject *x) {
  uint32_t at = (uint32_t)((uintptr_t)x >> 4) * 2654435769u & (s->capacity - 1);
  while (s->keys[at] && s->keys[at] != x) at = (at + 1) & (s->capacity - 1);
  return at;
}

static int grow(seen_nodes *s) {
  seen_nodes old = *s;
  PyObject **keys = s->keys;
  uint32_t *numbers = s->numbers;
  s->capacity *= 4;
  s->keys = PyMem_Calloc(s->capacity, sizeof *s->keys), s->numbers = PyMem_Calloc(s->capacity, sizeof *s->numbers);
  for (uint32_t k = 0; s->keys && s->numbers && k < old.capacity; k++) {
    uint32_t at = keys[k] ? place_of(s, keys[k]) : 0;
    if (keys[k]) s->keys[at] = keys[k], s->numbers[at] = numbers[k];
  }
  if (keys != s->few_keys) PyMem_Free(keys), PyMem_Free(numbers);
  return s->keys && s->numbers ? 0 : (PyErr_NoMemory(), -1);
}

/* ---- the walk ---- */

static int append(walk *w, PyObject *item) {
  int failed = !item || PyList_Append(w->key, item) ? -1 : 0;
  Py_XDECREF(item);
  return failed;
}

/* An operator without options is its name. */
static int append_operator(walk *w, PyObject *operator, PyObject *op) {
  if (PyDict_GET_SIZE(operator) == 2 && PyDict_Contains(operator, w->shape) == 1) return append(w, Py_NewRef(op));
  PyObject *items = PyDict_Items(operator), *all = items ? PyList_AsTuple(items) : NULL;
  Py_XDECREF(items);
  if (PyUnicode_Check(op) && PyUnicode_CompareWithASCIIString(op, "grad") == 0) w->has_gradient = true;
  return append(w, all);
}

static bool is_number(PyObject *x) { return PyFloat_CheckExact(x) || PyLong_CheckExact(x); }

static int visit_node(walk *w, PyObject *x) {
  uint32_t at = place_of(&w->seen, x);
  if (w->seen.keys[at]) return append(w, PyLong_FromUnsignedLong(w->seen.numbers[at]));
  w->seen.keys[at] = x, w->seen.numbers[at] = w->seen.n++;
  if (2 * w->seen.n >= w->seen.capacity && grow(&w->seen)) return -1;
  bool whole = PyTuple_GET_SIZE(x) == 3 && PyDict_Check(PyTuple_GET_ITEM(x, 0));
  PyObject *op = whole ? PyDict_GetItemWithError(PyTuple_GET_ITEM(x, 0), w->op) : NULL;
  if (!op) return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "a node of an op-tree has an operator and two operands"), -1);
  PyObject *a = PyTuple_GET_ITEM(x, 1), *b = PyTuple_GET_ITEM(x, 2);
  if (append_operator(w, PyTuple_GET_ITEM(x, 0), op)) return -1;
  if (is_number(b) && PyUnicode_Check(op) && PyUnicode_CompareWithASCIIString(op, "pow") == 0) { /* exponents are part of the structure */
    if (append(w, PyTuple_Pack(2, (PyObject *)Py_TYPE(b), b))) return -1;
  } else if (push(&w->left, b)) return -1;
  return push(&w->left, a);
}

static int visit_operand(walk *w, PyObject *x) {
  PyObject *id = PyLong_FromVoidPtr(x), *known = id ? PyDict_GetItemWithError(w->slots, id) : NULL;
  PyObject *number = known ? Py_NewRef(known) : PyErr_Occurred() ? NULL : PyObject_CallOneArg(w->slot, x);
  long k = number ? PyLong_AsLong(number) : -1;
  Py_XDECREF(number);
  Py_XDECREF(id);
  return PyErr_Occurred() ? -1 : append(w, PyLong_FromLong(-1 - k));
}

static int visit(walk *w, PyObject *x) {
  PyObject *type = (PyObject *)Py_TYPE(x);
  if (type == w->node_type) return visit_node(w, x);
  if (type == w->tensor_type) return visit_operand(w, x);
  if (x == Py_None) return append(w, Py_NewRef(x));
  if (is_number(x)) return PyList_Append(w->numbers, x) || append(w, Py_NewRef(type)) ? -1 : 0;
  int is_operand = PyObject_IsInstance(x, w->operand_type);
  if (is_operand > 0) return visit_operand(w, x);
  if (!is_operand) PyErr_Format(PyExc_TypeError, "an op-tree has %s as an operand", Py_TYPE(x)->tp_name);
  return -1;
}

/* tree_key(trees, slot, slots, (node type, tensor type, operand type)) -> (key, numbers, whether a node is "grad").
 * trees: a tuple.  slot: gives the number of an operand that slots, a dictionary by id, does not have. */
PyObject *core_tree_key(PyObject *module, PyObject *args) {
  walk w = {0};
  PyObject *trees, *out = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!OO!(OOO)", &PyTuple_Type, &trees, &w.slot, &PyDict_Type, &w.slots, &w.node_type, &w.tensor_type, &w.operand_type)) return NULL;
  if (!PyType_Check(w.node_type) || !PyType_IsSubtype((PyTypeObject *)w.node_type, &PyTuple_Type))
    return PyErr_Format(PyExc_TypeError, "tree_key(): nodes are of a type of tuples");
  w.seen.keys = w.seen.few_keys, w.seen.numbers = w.seen.few_numbers, w.seen.capacity = FEW;
  w.left.v = w.left.few, w.left.capacity = FEW;
  w.op = PyUnicode_InternFromString("op"), w.shape = PyUnicode_InternFromString("shape");
  w.key = PyList_New(0), w.numbers = PyList_New(0);
  int failed = !w.op || !w.shape || !w.key || !w.numbers || append(&w, PyLong_FromSsize_t(PyTuple_GET_SIZE(trees)));
  for (Py_ssize_t k = PyTuple_GET_SIZE(trees); !failed && k-- > 0;) failed = push(&w.left, PyTuple_GET_ITEM(trees, k));
  while (!failed && w.left.n) failed = visit(&w, w.left.v[--w.left.n]);
  if (!failed) out = Py_BuildValue("(OOO)", w.key, w.numbers, w.has_gradient ? Py_True : Py_False);
  if (w.left.v != w.left.few) PyMem_Free(w.left.v);
  if (w.seen.keys != w.seen.few_keys) PyMem_Free(w.seen.keys), PyMem_Free(w.seen.numbers);
  Py_XDECREF(w.op), Py_XDECREF(w.shape), Py_XDECREF(w.key), Py_XDECREF(w.numbers);
  return out;
}
