/* tree_key() and run_trees(): what tells op-trees apart, found by one walk, and what was kept for them, run.
 *
 * The one idea: a front end whose expressions are tuples (dictionary of the operator, left, right) keeps what was compiled by a
 * key of structure; the walk that makes the key is most of a small call, so it is here.  Must not know: operators, tensors. */
#include <stdlib.h>
#include <string.h>

#include "python/binding.h"

enum { FEW = 64 };

/* From an object to its number, in the order in which they were met. */
typedef struct {
  PyObject **keys, *few_keys[FEW];
  uint32_t *numbers, few_numbers[FEW], n, capacity;
} numbered;

typedef struct {
  PyObject **v, *few[FEW];
  size_t n, capacity;
} objects;

typedef struct {
  PyObject *node_type, *tensor_type, *operand_type;
  const module_state *state; /* for names */
  objects key, numbers, operands; /* owned */
  bool has_gradient, only_tensors;
  numbered nodes, slots;
  objects left; /* all borrowed: the trees hold them */
} walk;

/* ---- memory ---- */

static int push(objects *s, PyObject *x) {
  if (s->n == s->capacity) {
    PyObject **grown = PyMem_Malloc(2 * s->capacity * sizeof *grown);
    if (!grown) return PyErr_NoMemory(), -1;
    memcpy(grown, s->v, s->n * sizeof *grown);
    if (s->v != s->few) PyMem_Free(s->v);
    s->v = grown, s->capacity *= 2;
  }
  return s->v[s->n++] = x, 0;
}

/* Takes the reference. */
static int keep(objects *s, PyObject *x) {
  if (x && push(s, x) == 0) return 0;
  Py_XDECREF(x);
  return -1;
}

static void drop(objects *s) {
  for (size_t k = 0; k < s->n; k++) Py_DECREF(s->v[k]);
  if (s->v != s->few) PyMem_Free(s->v);
}

static uint32_t place_of(const numbered *s, PyObject *x) {
  uint32_t at = (uint32_t)((uintptr_t)x >> 4) * 2654435769u & (s->capacity - 1);
  while (s->keys[at] && s->keys[at] != x) at = (at + 1) & (s->capacity - 1);
  return at;
}

static int grow(numbered *s) {
  numbered old = *s;
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

/* 1 if the object is met for the first time, 0 if not, -1 with an exception. */
static int number_of(numbered *s, PyObject *x, uint32_t *number) {
  uint32_t at = place_of(s, x);
  if (s->keys[at]) return *number = s->numbers[at], 0;
  s->keys[at] = x, *number = s->numbers[at] = s->n++;
  return 2 * s->n < s->capacity || grow(s) == 0 ? 1 : -1;
}

static void begin_objects(objects *s) { s->v = s->few, s->n = 0, s->capacity = FEW; }

static void begin_numbered(numbered *s) {
  memset(s->few_keys, 0, sizeof s->few_keys);
  s->keys = s->few_keys, s->numbers = s->few_numbers, s->n = 0, s->capacity = FEW;
}

static int begin_walk(walk *w, PyObject *module, PyObject *types) {
  begin_objects(&w->key), begin_objects(&w->numbers), begin_objects(&w->operands), begin_objects(&w->left);
  begin_numbered(&w->nodes), begin_numbered(&w->slots);
  w->has_gradient = false, w->only_tensors = true;
  w->state = PyModule_GetState(module);
  if (PyTuple_GET_SIZE(types) != 3) return PyErr_SetString(PyExc_TypeError, "expected the types of nodes, tensors and operands"), -1;
  w->node_type = PyTuple_GET_ITEM(types, 0), w->tensor_type = PyTuple_GET_ITEM(types, 1), w->operand_type = PyTuple_GET_ITEM(types, 2);
  if (PyType_Check(w->node_type) && PyType_IsSubtype((PyTypeObject *)w->node_type, &PyTuple_Type)) return 0;
  return PyErr_SetString(PyExc_TypeError, "nodes of op-trees are of a type of tuples"), -1;
}

static void end_numbered(numbered *s) {
  if (s->keys != s->few_keys) PyMem_Free(s->keys), PyMem_Free(s->numbers);
}

static void end_walk(walk *w) {
  drop(&w->key), drop(&w->numbers), drop(&w->operands);
  if (w->left.v != w->left.few) PyMem_Free(w->left.v);
  end_numbered(&w->nodes), end_numbered(&w->slots);
}

/* ---- the walk ---- */

/* An operator without options is its name. */
static int append_operator(walk *w, PyObject *operator, PyObject *op) {
  if (PyDict_GET_SIZE(operator) == 2 && PyDict_Contains(operator, w->state->shape) == 1) return keep(&w->key, Py_NewRef(op));
  PyObject *items = PyDict_Items(operator), *all = items ? PyList_AsTuple(items) : NULL;
  Py_XDECREF(items);
  if (PyUnicode_Check(op) && PyUnicode_CompareWithASCIIString(op, "grad") == 0) w->has_gradient = true;
  return keep(&w->key, all);
}

static int visit_node(walk *w, PyObject *x) {
  uint32_t number;
  int first = number_of(&w->nodes, x, &number);
  if (first <= 0) return first ? -1 : keep(&w->key, PyLong_FromUnsignedLong(number));
  bool whole = PyTuple_GET_SIZE(x) == 3 && PyDict_Check(PyTuple_GET_ITEM(x, 0));
  PyObject *op = whole ? PyDict_GetItemWithError(PyTuple_GET_ITEM(x, 0), w->state->op) : NULL;
  if (!op) return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "a node of an op-tree has an operator and two operands"), -1);
  PyObject *a = PyTuple_GET_ITEM(x, 1), *b = PyTuple_GET_ITEM(x, 2);
  if (append_operator(w, PyTuple_GET_ITEM(x, 0), op)) return -1;
  if (is_tree_number(b) && PyUnicode_Check(op) &&
      PyUnicode_CompareWithASCIIString(op, "pow") == 0) { /* exponents are part of the structure */
    if (keep(&w->key, PyTuple_Pack(2, (PyObject *)Py_TYPE(b), b))) return -1;
  } else if (push(&w->left, b)) return -1;
  return push(&w->left, a);
}

static int visit_operand(walk *w, PyObject *x, uint32_t *slot) {
  int first = number_of(&w->slots, x, slot);
  return first < 0 || (first && keep(&w->operands, Py_NewRef(x))) ? -1 : 0;
}

static int visit(walk *w, PyObject *x) {
  PyObject *type = (PyObject *)Py_TYPE(x);
  uint32_t slot;
  if (type == w->node_type) return visit_node(w, x);
  if (x == Py_None) return keep(&w->key, Py_NewRef(x));
  if (is_tree_number(x)) return keep(&w->numbers, Py_NewRef(x)) || keep(&w->key, Py_NewRef(type)) ? -1 : 0;
  int is_operand = type == w->tensor_type ? 1 : PyObject_IsInstance(x, w->operand_type);
  w->only_tensors &= type == w->tensor_type;
  if (is_operand > 0) return visit_operand(w, x, &slot) ? -1 : keep(&w->key, PyLong_FromLong(-1 - (long)slot));
  if (!is_operand) PyErr_Format(PyExc_TypeError, "an op-tree has %s as an operand", Py_TYPE(x)->tp_name);
  return -1;
}

/* pairs: a tuple of (target, tree).  The key has the number of trees, their structures and the slots of targets. */
static int walk_pairs(walk *w, PyObject *pairs) {
  Py_ssize_t n = PyTuple_GET_SIZE(pairs);
  uint32_t slot = 0;
  if (keep(&w->key, PyLong_FromSsize_t(n))) return -1;
  for (Py_ssize_t k = n; k-- > 0;) {
    PyObject *pair = PyTuple_GET_ITEM(pairs, k);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)
      return PyErr_SetString(PyExc_TypeError, "expected pairs of a target and an op-tree"), -1;
    if (push(&w->left, PyTuple_GET_ITEM(pair, 1))) return -1;
  }
  while (w->left.n)
    if (visit(w, w->left.v[--w->left.n])) return -1;
  for (Py_ssize_t k = 0; k < n; k++) {
    PyObject *target = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, k), 0);
    w->only_tensors &= (PyObject *)Py_TYPE(target) == w->tensor_type;
    if (visit_operand(w, target, &slot) || keep(&w->key, PyLong_FromUnsignedLong(slot))) return -1;
  }
  return 0;
}

static PyObject *list_of(const objects *s) {
  PyObject *list = PyList_New((Py_ssize_t)s->n);
  for (size_t k = 0; list && k < s->n; k++) PyList_SET_ITEM(list, (Py_ssize_t)k, Py_NewRef(s->v[k]));
  return list;
}

/* tree_key(pairs, (node type, tensor type, operand type)) -> (key, operands by slot, numbers, whether a node is "grad"). */
PyObject *core_tree_key(PyObject *module, PyObject *args) {
  walk w;
  PyObject *pairs, *types, *out = NULL;
  if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &pairs, &PyTuple_Type, &types)) return NULL;
  if (begin_walk(&w, module, types) == 0 && walk_pairs(&w, pairs) == 0)
    out = Py_BuildValue("(NNNO)", list_of(&w.key), list_of(&w.operands), list_of(&w.numbers), w.has_gradient ? Py_True : Py_False);
  end_walk(&w);
  return out;
}

/* ---- what was kept ---- */

/* Appends the layouts of operands to the key, and puts their arrays into their places; 0 where one has none yet, or where a
 * target's memory is another operand's too: that takes a closer look. */
static int view_operands(walk *w, PyObject *name, size_t n_targets) {
  PyObject *roots[FEW];
  size_t n = w->operands.n, first_slot = w->key.n - n_targets;
  if (n > FEW) return 0;
  for (size_t k = 0; k < n; k++) {
    PyObject *view = PyObject_GetAttr(w->operands.v[k], name);
    bool seen = view && PyTuple_CheckExact(view) && PyTuple_GET_SIZE(view) == 3 && PyTuple_GET_ITEM(view, 0) != Py_None;
    if (!seen) return Py_XDECREF(view), view ? 0 : -1;
    roots[k] = PyTuple_GET_ITEM(view, 2); /* only compared */
    Py_SETREF(w->operands.v[k], Py_NewRef(PyTuple_GET_ITEM(view, 0)));
    int failed = keep(&w->key, Py_NewRef(PyTuple_GET_ITEM(view, 1)));
    Py_DECREF(view);
    if (failed) return -1;
  }
  for (size_t t = 0; t < n_targets; t++) {
    long target = PyLong_AsLong(w->key.v[first_slot + t]);
    for (size_t k = 0; k < n; k++)
      if ((long)k != target && roots[k] == roots[target]) return 0;
  }
  return 1;
}

/* entry: (function, positions among operands and then numbers of what it is given) */
static int run_entry(walk *w, PyObject *entry) {
  PyObject *given[2 * FEW];
  if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 2 || !PyTuple_Check(PyTuple_GET_ITEM(entry, 1)))
    return PyErr_SetString(PyExc_TypeError, "run_trees(): expected a function and positions"), -1;
  PyObject *function = PyTuple_GET_ITEM(entry, 0), *picks = PyTuple_GET_ITEM(entry, 1);
  size_t n = (size_t)PyTuple_GET_SIZE(picks), known = w->operands.n + w->numbers.n;
  if (n > 2 * FEW) return 0;
  for (size_t k = 0; k < n; k++) {
    size_t at = PyLong_AsSize_t(PyTuple_GET_ITEM(picks, (Py_ssize_t)k));
    if (at >= known) return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_IndexError, "run_trees(): no such argument"), -1);
    given[k] = at < w->operands.n ? w->operands.v[at] : w->numbers.v[at - w->operands.n];
  }
  PyObject *result = PyObject_Vectorcall(function, given, n, NULL);
  Py_XDECREF(result);
  return result ? 1 : -1;
}

static int run_kept(walk *w, PyObject *kept, Py_ssize_t many, PyObject *pairs, PyObject *name) {
  if (walk_pairs(w, pairs)) return -1;
  int plain = w->only_tensors && !w->has_gradient ? view_operands(w, name, (size_t)PyTuple_GET_SIZE(pairs)) : 0;
  if (plain <= 0) return plain;
  PyObject *key = PyTuple_New((Py_ssize_t)w->key.n);
  if (!key) return -1;
  for (size_t k = 0; k < w->key.n; k++) PyTuple_SET_ITEM(key, (Py_ssize_t)k, Py_NewRef(w->key.v[k]));
  PyObject *entry = Py_XNewRef(PyDict_GetItemWithError(kept, key)), *moved = NULL;
  if (entry && PyDict_GET_SIZE(kept) >= many) moved = PyObject_CallMethodOneArg(kept, w->state->move_to_end, key);
  int served = PyErr_Occurred() ? -1 : entry ? run_entry(w, entry) : 0;
  Py_XDECREF(moved);
  Py_XDECREF(entry);
  Py_DECREF(key);
  return served;
}

/* run_trees(kept, many, pairs, types, name) -> whether something was kept for these trees, and ran.
 * kept: an OrderedDict by key, as of tree_key() followed by layouts; where it has ``many`` entries, what runs becomes the last.
 * name: of the attribute of a tensor that has its view: (array, layout, owner of the memory). */
PyObject *core_run_trees(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  walk w;
  if (n != 5 || !PyDict_Check(args[0]) || !PyLong_Check(args[1]) || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3]) ||
      !PyUnicode_Check(args[4]))
    return PyErr_SetString(PyExc_TypeError, "run_trees() takes a dictionary, a number, pairs, types and a name"), NULL;
  Py_ssize_t many = PyLong_AsSsize_t(args[1]);
  if (many == -1 && PyErr_Occurred()) return NULL;
  int served = begin_walk(&w, module, args[3]) ? -1 : run_kept(&w, args[0], many, args[2], args[4]);
  end_walk(&w);
  return served < 0 ? NULL : PyBool_FromLong(served);
}
