/* NumPy's arrays, and the functions that make them, as its C interface lays them out in memory: the part that is the same in
 * the first and the second ABI.  Who finds another ABI asks NumPy through Python instead. */
#ifndef DCML_PYTHON_NUMPY_H
#define DCML_PYTHON_NUMPY_H

#include <Python.h>

typedef struct {
  PyObject_HEAD
  PyTypeObject *scalar;
  char kind, letter, order, unused; /* order: '=' or '|' is this machine's */
  int number;
} NumpyType;

typedef struct {
  PyObject_HEAD
  char *data;
  int rank;
  Py_ssize_t *dims, *strides_bytes;
  PyObject *base;
  NumpyType *type;
  int flags;
} NumpyArray;

enum { NUMPY_CONTIGUOUS = 0x1, NUMPY_ALIGNED = 0x100, NUMPY_WRITEABLE = 0x400 };
enum { NUMPY_BOOL, NUMPY_BYTE, NUMPY_UBYTE, NUMPY_SHORT, NUMPY_USHORT, NUMPY_INT, NUMPY_UINT, NUMPY_LONG, NUMPY_ULONG, NUMPY_LONGLONG,
       NUMPY_ULONGLONG, NUMPY_FLOAT, NUMPY_DOUBLE, NUMPY_HALF = 23 };

/* The table of functions, which a capsule has, and places in it. */
typedef void *const *NumpyFunctions;
enum { NUMPY_ABI_VERSION = 0, NUMPY_NEW_FROM_DESCR = 94 };
typedef unsigned (*numpy_abi_version)(void); /* the highest byte counts */
/* Takes the type.  data NULL: memory of its own, of undefined contents. */
typedef PyObject *(*numpy_new_from_descr)(PyTypeObject *array, PyObject *type, int rank, const Py_ssize_t *dims, const Py_ssize_t *strides,
                                          void *data, int flags, PyObject *like);

#endif
