/* The TreeOperator type: a method that makes a node of an op-tree.
 *
 * The one idea: an expression of Python makes a node for each operator, so what most calls need, two operands of one shape or a
 * number beside one, is here, and every other call is Python's.  Must not know: operators, tensors. */

#include "python/binding.h"

#include <structmember.h>

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *op;
  PyObject *otherwise;                 /* what it stands for: takes the same arguments, serves all of them */
  PyTypeObject *node_type, *operand_type;
  PyObject *op_name, *shape_name; /* "op", "shape" */
  PyObject *attributes;
  PyObject *last;                      /* the dictionary of an operator with the extents of the last call, to be copied; or NULL */
  Py_ssize_t first, operands;          /* where operands begin among the arguments, and how many there are */
  int reflected;
} TreeOperatorObject;

/* The extents of an operand, a new reference; NULL without an exception for what is none. */
static PyObject *shape_of(const TreeOperatorObject *self, PyObject *x) {
  if (Py_TYPE(x) == self->node_type && PyTuple_GET_SIZE(x) == 3 && PyDict_CheckExact(PyTuple_GET_ITEM(x, 0)))
    return Py_XNewRef(PyDict_GetItemWithError(PyTuple_GET_ITEM(x, 0), self->shape_name));
  return PyObject_TypeCheck(x, self->operand_type) ? PyObject_GetAttr(x, self->shape_name) : NULL;
}

/* The extents of the value where both operands have the same, or one is a number; NULL, maybe with an exception, where not. */
static PyObject *common_shape(const TreeOperatorObject *self, PyObject *a, PyObject *b) {
  if (b && is_tree_number(a)) return shape_of(self, b);
  PyObject *shape = shape_of(self, a), *other = !shape || !b || is_tree_number(b) ? NULL : shape_of(self, b);
  if (!shape || !b || is_tree_number(b)) return shape;
  int same = !other                                                   ? 0
             : shape == other                                         ? 1
             : PyTuple_CheckExact(shape) && PyTuple_CheckExact(other) ? PyObject_RichCompareBool(shape, other, Py_EQ)
                                                                      : 0;
  Py_XDECREF(other);
  if (same <= 0) Py_CLEAR(shape);
  return shape;
}

/* A dictionary of its own for a node; nearly every call has the extents of the one before. */
static PyObject *operator_of(TreeOperatorObject *self, PyObject *shape) {
  if (!self->last || PyDict_GetItemWithError(self->last, self->shape_name) != shape) {
    PyObject *made = PyDict_New();
    if (!made || PyDict_SetItem(made, self->op_name, self->op) || PyDict_SetItem(made, self->shape_name, shape))
      return Py_XDECREF(made), NULL;
    Py_XSETREF(self->last, made);
  }
  return PyDict_Copy(self->last);
}

/* Takes the shape. */
static PyObject *node_of(TreeOperatorObject *self, PyObject *shape, PyObject *a, PyObject *b) {
  PyObject *operator = operator_of(self, shape), *node = operator ? self->node_type->tp_alloc(self->node_type, 3) : NULL;
  Py_DECREF(shape);
  if (!node) return Py_XDECREF(operator), NULL;
  PyTuple_SET_ITEM(node, 0, operator);
  PyTuple_SET_ITEM(node, 1, Py_NewRef(a));
  PyTuple_SET_ITEM(node, 2, Py_NewRef(b ? b : Py_None));
  return node;
}

static PyObject *call(PyObject *callable, PyObject *const *args, size_t flagged, PyObject *names) {
  TreeOperatorObject *self = (TreeOperatorObject *)callable;
  if (!names && PyVectorcall_NARGS(flagged) == self->first + self->operands) {
    PyObject *a = args[self->first], *b = self->operands == 2 ? args[self->first + 1] : NULL;
    PyObject *left = self->reflected ? b : a, *right = self->reflected ? a : b, *shape = common_shape(self, left, right);
    if (shape) return node_of(self, shape, left, right);
    if (PyErr_Occurred()) return NULL;
  }
  return PyObject_Vectorcall(self->otherwise, args, flagged, names);
}

/* ---- the type ---- */

/* TreeOperator(op, otherwise, node_type, operand_type, first, operands, reflected=False) */
static PyObject *tree_operator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  const module_state *state = PyType_GetModuleState(type);
  PyObject *op, *otherwise;
  PyTypeObject *node_type, *operand_type;
  Py_ssize_t first, operands;
  int reflected = 0;
  static char *names[] = {"op", "otherwise", "node_type", "operand_type", "first", "operands", "reflected", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UOO!O!nn|p", names, &op, &otherwise, &PyType_Type, &node_type, &PyType_Type,
                                   &operand_type, &first, &operands, &reflected))
    return NULL;
  bool tuples = PyType_IsSubtype(node_type, &PyTuple_Type);
  if (!tuples || first < 0 || first > 1 || operands < 1 || operands > 2 || (reflected && operands != 2))
    return PyErr_Format(PyExc_ValueError, "TreeOperator(): %s",
                        tuples ? "one or two operands, from the first or second argument on" : "nodes are of a type of tuples");
  TreeOperatorObject *self = (TreeOperatorObject *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = call, self->op = Py_NewRef(op), self->otherwise = Py_NewRef(otherwise);
  self->node_type = (PyTypeObject *)Py_NewRef(node_type), self->operand_type = (PyTypeObject *)Py_NewRef(operand_type);
  self->op_name = Py_NewRef(state->op), self->shape_name = Py_NewRef(state->shape);
  self->first = first, self->operands = operands, self->reflected = reflected;
  return (PyObject *)self;
}

static int tree_operator_traverse(TreeOperatorObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self->otherwise);
  Py_VISIT(self->node_type);
  Py_VISIT(self->operand_type);
  Py_VISIT(self->attributes);
  Py_VISIT(self->last);
  return 0;
}

static int tree_operator_clear(TreeOperatorObject *self) {
  Py_CLEAR(self->otherwise);
  Py_CLEAR(self->node_type);
  Py_CLEAR(self->operand_type);
  Py_CLEAR(self->attributes);
  Py_CLEAR(self->last);
  return 0;
}

static void tree_operator_dealloc(TreeOperatorObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  tree_operator_clear(self);
  Py_XDECREF(self->op), Py_XDECREF(self->op_name), Py_XDECREF(self->shape_name);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

static PyObject *bind(PyObject *self, PyObject *object, PyObject *type) {
  (void)type;
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(TreeOperatorObject, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(TreeOperatorObject, attributes), READONLY, NULL}, /* for functools.wraps() */
    {NULL, 0, 0, 0, NULL}};
static PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot tree_operator_slots[] = {
    {Py_tp_new, tree_operator_new},
    {Py_tp_dealloc, tree_operator_dealloc},
    {Py_tp_traverse, tree_operator_traverse},
    {Py_tp_clear, tree_operator_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, bind},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {Py_tp_doc, "TreeOperator(op, otherwise, node_type, operand_type, first, operands, reflected=False): a method that makes nodes."},
    {0, NULL}};
PyType_Spec tree_operator_spec = {"dcml._core.TreeOperator", sizeof(TreeOperatorObject), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                  tree_operator_slots};
