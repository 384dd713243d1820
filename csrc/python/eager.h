/* Running one operator on arrays: what front ends ask of eager.c. */
#ifndef DCML_PYTHON_EAGER_H
#define DCML_PYTHON_EAGER_H

#include "python/binding.h"

/* An operator, and which inputs it is asked for. */
typedef struct {
  PyObject *op, *domain; /* str */
  long opset, outputs;   /* outputs: how many; -1: those that are never left out */
  PyObject *attributes;  /* a dictionary or None */
  uint32_t types; /* the k-th bit: all inputs may have type k, and numbers beside them take it; 0: any inputs, but no numbers */
} eager_operator;

/* A tuple of arrays for inputs, which are numpy's or torch's arrays, None where absent, or exact ints and floats.  NULL without an
 * exception: the inputs are not of the types that were asked for. */
PyObject *eager_apply(module_state *state, const eager_operator *what, PyObject *const *inputs, Py_ssize_t n);

/* The arguments of eager(): operator, domain, opset, inputs, and maybe attributes and the number of outputs; -1 with an exception. */
int eager_parse(module_state *state, PyObject *const *args, Py_ssize_t n, eager_operator *out);

/* arguments.c: a number as an array without dimensions, in a type; 0, or -1 where the type does not hold it. */
int view_number_as(dc_dtype type, PyObject *number, tensor_view *out);

#endif
