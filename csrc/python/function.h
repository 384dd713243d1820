/* What function.c (Function) and call.c (Call, Backward) share. */
#ifndef DCML_PYTHON_FUNCTION_H
#define DCML_PYTHON_FUNCTION_H

#include "python/binding.h"

/* Lets other threads run while a statement does, unless that is brief. */
#define WITHOUT_GIL_UNLESS(brief, statement)                       \
  do {                                                             \
    PyThreadState *released = (brief) ? NULL : PyEval_SaveThread(); \
    statement;                                                     \
    if (released) PyEval_RestoreThread(released);                  \
  } while (0)

typedef struct {
  PyObject_HEAD
  dc_function *function;
  PyObject *post_onnx, *post_autodiff, *post_compile;
  PyObject *observer;  /* called around each step, or NULL */
  PyObject *params;    /* tuple of tensors */
  PyObject *names, *symbols; /* tuples: of inputs, and of symbols from 1 on */
  vectorcallfunc vectorcall;
  PyObject *derivatives; /* by what is asked of them: functions of gradients, or NULL */
  PyObject *positions; /* of each wrt among inputs and parameters */
  PyObject *parts;     /* what Call.parts gives for the plan `parts_of`, or NULL */
  uint32_t parts_of;
  PyObject *differentiable; /* by output, if tapes are known: does it lie on the tape of a wrt? */
  PyObject *influences; /* bytes, by argument: does an output on a tape depend on it? */
  bool *tape;              /* [output][wrt]: does it lie on its tape?  NULL: all do */
  uint32_t n_inputs, n_params, n_wrt;
  dc_cid *shared;      /* of a derivative: the saved values of the call before that its last inputs are */
  uint32_t n_shared;
  double most_work; /* a call with more is not run, and gives NotImplemented; 0: any is */
  int training;
  bool torch; /* results are tensors whatever the inputs are */
  bool flat;  /* tensors are given as they lie in memory, for arrays of one dimension */
  bool on_host, on_gpu; /* runs there only; neither: where the arguments are */
  int32_t ordinal;      /* of the GPU, -1: any */
} FunctionObject;

/* Where a call runs (placing.h). */
typedef struct {
  dc_gpu *gpu; /* NULL: on the host */
  const dc_allocator *memory;
  void *stream;
  void *staged; /* copies of what the caller has on the host */
  uint64_t staged_bytes;
  bool to_host; /* results go back: no argument is on a GPU */
} call_place;

typedef struct {
  PyObject_HEAD
  FunctionObject *function;
  dc_call call;
  tensor_view *views;
  uint32_t n_views;
  void *saved;
  bool spoilt; /* a pass may have changed it */
  bool shared; /* a derivative reads it */
  bool torch;
  call_place place;
} CallObject;

/* A forward whose backward may follow; owns what it was given. */
PyObject *call_new(FunctionObject *function, const dc_call *call, tensor_view *views, uint32_t n_views, void *saved, bool torch,
                   const call_place *place);
const char *argument_name(FunctionObject *function, uint32_t k); /* of an input, or of a weight, which come behind them */
PyObject *call_backward(PyObject *call, PyObject *const *args, Py_ssize_t n); /* gradients, and results or None */

/* The outputs of a function made without wrt and without weights for views of its inputs, which stay the caller's. */
PyObject *function_run_views(PyObject *function, tensor_view *views, uint32_t n);

/* Sets most_work, in element operations, of a function made without wrt. */
void function_limit(PyObject *function, double most_work);

/* derivative.c: the gradients of a call as a function. */
PyObject *call_derivative(PyObject *call, PyObject *args);
/* A function of the graph, which it takes, with the options and hooks of f. */
PyObject *function_derive(FunctionObject *f, const dc_derivative *made, const char *const *wrt, uint32_t n_wrt);
/* A tensor of torch's that lies in memory of the owner, which it keeps. */
PyObject *tensor_inside(module_state *state, PyObject *owner, const dc_array *array);

/* Does the output depend on the k-th wrt by operations that a caller's autograd records? */
bool function_reaches(const FunctionObject *function, uint32_t output, uint32_t k);

/* arguments.c: the inputs of a call in order, borrowed, and values by symbol; 0, or -1 with an exception. */
int name_arguments(FunctionObject *function, const dc_graph *graph);
int order_arguments(FunctionObject *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject **inputs, int64_t *symbols);
int view_argument(FunctionObject *function, uint32_t k, PyObject *object, tensor_view *out);

void release_views(tensor_view *views, uint32_t n);
dc_array *arrays_of(const tensor_view *views, uint32_t n);

#endif
