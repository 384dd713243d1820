/* What the files of this folder share: module state, errors, handles. */
#ifndef DCML_PYTHON_BINDING_H
#define DCML_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "backends/buffer_pool.h"
#include "dcml.h"

enum { ERROR_CLASSES = 9 };

/* The function of torch_node.cpp: an empty tensor of a DLPack type on a GPU, and where its elements are. */
typedef PyObject *(*empty_maker)(uint8_t code, uint8_t bits, int32_t ordinal, uint32_t rank, const int64_t *dims, void **data);

typedef struct {
  dc_session session;
  bool session_ready;
  dc_buffer_pool *pool;
  PyObject *errors[ERROR_CLASSES]; /* [0] Error, then by dc_code */
  PyTypeObject *graph_type, *flow_type, *function_type, *call_type, *backward_type, *repeated_call_type, *values_type, *memory_type;
  PyTypeObject *array_type, *array_calls_type;
  struct torch_memory *torch_memory; /* of GPUs */
  PyTypeObject *torch_type; /* the type whose exchange interface is `exchange` */
  const void *exchange;
  PyObject *numpy_types[DC_DTYPE_COUNT]; /* looked up on first use, as is all of the next line */
  PyObject *torch_empty, *torch_types[DC_DTYPE_COUNT], *torch_devices; /* torch.empty, its types, devices by number */
  PyObject *empty_names; /* ("dtype", "device") */
  empty_maker make_empty; /* makes results on GPUs; NULL: torch.empty does, see core_make_empty_by */
  PyObject *numpy_array, *node; /* node: the module dcml.pytorch.call.node */
  void *const *numpy_functions; /* numpy.h; NULL: of another ABI */
  PyObject *requires_grad, *apply, *op, *shape, *move_to_end; /* names */
  struct eager_cache *eager;                  /* functions of single operators */
} module_state;

typedef struct {
  PyObject_HEAD
  dc_graph *graph; /* owned unless `owner` keeps it */
  PyObject *owner;
  struct flow_records *flows; /* flat views of states, or NULL */
  uint64_t edits; /* counts what may have changed nodes in place: passes, transformations */
  unsigned version; /* differs after any change that was made by a method */
} GraphObject;

extern PyModuleDef dcml_module;
module_state *state_of(PyObject *self); /* of any object of this module */
dc_session *session_of(module_state *state); /* made on first use; NULL with an exception */

/* Sets the exception of a status and frees it. */
void raise_status(module_state *state, dc_status status);
/* Replaces the exception that is set by an error of ours that says which argument or result it is about, as in "input 'x'". */
void blame(module_state *state, const char *what, const char *name);
#define RAISE_IF(state, call)                  \
  do {                                         \
    dc_status raise_if_status = (call);        \
    if (raise_if_status) {                     \
      raise_status((state), raise_if_status);  \
      return NULL;                             \
    }                                          \
  } while (0)

/* A model's name or a message as str: bytes that are no UTF-8 are replaced. */
PyObject *name_object(const char *text);
/* Converter for "O&": an id or a position as uint32_t; what fits none becomes UINT32_MAX, which names nothing. */
int read_id(PyObject *number, void *out);
PyObject *wrap_graph(module_state *state, dc_graph *graph, PyObject *owner);

/* graph.c: attributes of an operator from a dictionary, kept in the graph; 0, or -1 with an exception. */
typedef DC_VEC(dc_attr) attr_list;
typedef DC_VEC(dc_cid) cid_list;
int parse_attrs(GraphObject *self, PyObject *dict, attr_list *out);

/* tree_key.c: what tells op-trees apart, and runs what was kept for them. */
PyObject *core_tree_key(PyObject *module, PyObject *args);
static inline bool is_tree_number(PyObject *x) { return PyFloat_CheckExact(x) || PyLong_CheckExact(x); }
PyObject *core_run_trees(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* infer.c and eager.c: one operator by itself. */
PyObject *core_infer(PyObject *module, PyObject *args);
PyObject *core_eager(PyObject *module, PyObject *const *args, Py_ssize_t n);
struct eager_cache *eager_cache_create(void); /* NULL without memory */
int eager_cache_traverse(struct eager_cache *cache, visitproc visit, void *arg);
void eager_cache_clear(struct eager_cache *cache);
void eager_cache_destroy(struct eager_cache *cache);

/* report.c: methods of a Function, whose core function.c gives. */
dc_function *function_core(PyObject *function);
PyObject *function_report(PyObject *self, PyObject *unused);
PyObject *function_time(PyObject *self, PyObject *on);
const char *node_label(const dc_graph *graph, dc_nid node); /* graph.c: operator that a node is or came from */

/* tensor.c: a borrowed view of an array that Python owns. */
typedef struct {
  dc_array array;
  PyObject *owner; /* what keeps the data alive: the object, or a contiguous copy of it */
  Py_buffer buffer;
  bool has_buffer, is_torch;
  uint64_t layout; /* of a flat view: 0 for a contiguous tensor, else of its extents and strides */
  char number[16]; /* of a number that was given for an array without dimensions: its element */
} tensor_view;
int use_torch(module_state *state); /* results may be tensors although no input is one; 0, or -1 with an exception */
bool requires_grad(const module_state *state, PyObject *tensor); /* false for what has no such attribute */
int view_tensor(module_state *state, PyObject *object, tensor_view *out); /* on the host; 0, or -1 with an exception */
int view_anywhere(module_state *state, PyObject *object, tensor_view *out); /* on any device, as in the next two */
/* Finds the memory of a tensor that was viewed before: its owner may have moved it since, or freed it (NULL). */
int renew_view(module_state *state, tensor_view *view);
int view_in_place(module_state *state, PyObject *object, tensor_view *out); /* of what is to be written: never a copy */
/* The elements of a tensor without gaps in the order in which they lie, whatever its dimensions and however torch differentiates it. */
int view_flat(module_state *state, PyObject *object, tensor_view *out);
void release_view(tensor_view *view);
bool is_array(module_state *state, PyObject *object); /* of numpy's own class, or of torch's */
/* Is it a torch tensor of this type, these extents and these strides (NULL: contiguous), on this device?  Nothing is held or copied. */
bool is_like(module_state *state, PyObject *object, const dc_array *want, const int64_t *strides);
/* What is_like compares a torch tensor with, without data; 0, or -1 with an exception.  *strides is for PyMem_Free. */
int note_layout(module_state *state, PyObject *object, dc_array *like, int64_t **strides);
/* A new array of the kind of the inputs, on the device that the shape names; *data is where to write. */
PyObject *new_tensor(module_state *state, const dc_array *shape, bool torch, void **data);
enum { POOLED_BYTES = 1 << 12 }; /* from here on an array is worth memory of the pool; NumPy's own costs less to ask for */
PyObject *new_memory(module_state *state, uint64_t bytes, void **data); /* memory.c: an object of dcml._core.Memory */
int parse_shape(module_state *state, dc_graph *graph, PyObject *shape, dc_ex **out, uint32_t *rank);

extern const dc_native_library host_library; /* host_library.c; its handle is the module_state */

/* nodes.c: methods of Graph. */
PyObject *graph_operators(GraphObject *self, PyObject *args);
PyObject *graph_order_states(GraphObject *self, PyObject *list);
PyObject *graph_uses_symbol(GraphObject *self, PyObject *name);
PyObject *graph_enclose(GraphObject *self, PyObject *args);
PyObject *graph_attributes(GraphObject *self, PyObject *id);
PyObject *graph_wish(GraphObject *self, PyObject *id);
PyObject *graph_replace(GraphObject *self, PyObject *args);
const dc_library *library_at(GraphObject *self, unsigned long id); /* NULL with an exception: no operator of the graph */
/* -1 with an exception: no node that stands in a state by itself. */
int check_in_state(GraphObject *self, const dc_graph *graph, unsigned long id);
PyObject *graph_segment(GraphObject *self, PyObject *args);
/* A constant's or initial weight's contents as a numpy array; None without. */
PyObject *container_array(module_state *state, const dc_graph *graph, dc_cid c);

/* containers.c: methods of Graph that declare arrays, symbols and states, and the words of the expression language. */
dc_status parse_size(dc_graph *graph, const char *text, dc_ex *out);
PyObject *graph_add_symbol(GraphObject *self, PyObject *args);
PyObject *graph_device(GraphObject *self, PyObject *name);
PyObject *graph_set_device(GraphObject *self, PyObject *args);
PyObject *graph_layout(GraphObject *self, PyObject *name);
PyObject *graph_set_layout(GraphObject *self, PyObject *args);
PyObject *graph_set_transient(GraphObject *self, PyObject *args);
PyObject *graph_turn_input(GraphObject *self, PyObject *args);
PyObject *graph_remove(GraphObject *self, PyObject *name);
PyObject *graph_unused(GraphObject *self, PyObject *unused);
PyObject *graph_rename(GraphObject *self, PyObject *args);
PyObject *graph_add_state(GraphObject *self, PyObject *args);
PyObject *graph_remove_state(GraphObject *self, PyObject *index);
PyObject *get_states(GraphObject *self, void *unused);
int set_graph_name(GraphObject *self, PyObject *value, void *unused);
PyObject *core_primitives(PyObject *module, PyObject *unused);
PyObject *core_type_names(PyObject *module, PyObject *unused);

/* flow.c: flat views of a graph's states. */
PyObject *graph_flow(GraphObject *self, PyObject *args);
PyObject *graph_inline(GraphObject *self, PyObject *args);
void flows_free(GraphObject *self);
int flows_insert(GraphObject *self, uint32_t at); /* views move with their states; 0, or -1 with an exception */
int flows_order(GraphObject *self, const uint32_t *order); /* of all states; 0, or -1 with an exception */
void flows_remove(GraphObject *self, uint32_t at);
void flows_follow(GraphObject *self); /* the handle has another graph: views show that one, and drafts are gone */
PyObject *get_has_drafts(GraphObject *self, void *unused);
/* graph.c: attributes from a dictionary, in the graph's arena; 0, or -1 with an exception. */
int attrs_from_dict(GraphObject *self, PyObject *dict, dc_attr **attrs, uint32_t *n);

/* differentiate.c: methods of Graph. */
PyObject *graph_border(GraphObject *self, PyObject *args);
PyObject *graph_become(GraphObject *self, PyObject *other);
PyObject *graph_differentiate(GraphObject *self, PyObject *args);

/* check.c: what graphs compute; the functions are described there. */
PyObject *graph_symbols(GraphObject *self, void *unused);
PyObject *graph_sizes(GraphObject *self, PyObject *args);
PyObject *graph_sample(GraphObject *self, PyObject *args);
PyObject *core_evaluate(PyObject *module, PyObject *args);
PyObject *core_attempt(PyObject *module, PyObject *args);
PyObject *core_reduce(PyObject *module, PyObject *args);

/* watch.c: an observation is (container, tuple or bytes of its contents) or (mapping or object, key or name, value). */
bool same_observation(PyObject *seen);
int check_observations(PyObject *tuple); /* 0, or -1 with an exception */
uint64_t dict_version(PyObject *holder); /* differs after any change of the dictionary; 0 if that is not known */
PyObject *core_first_change(PyObject *module, PyObject *observations);
PyObject *core_tell_of_code(PyObject *module, PyObject *args);

/* kernels.c */
PyObject *graph_kernel(GraphObject *self, PyObject *id);
PyObject *core_kernel_passes(PyObject *module, PyObject *args);
PyObject *core_run_kernel_pass(PyObject *module, PyObject *args);
PyObject *core_kernel_launches(PyObject *module, PyObject *args);
PyObject *core_kernel_code(PyObject *module, PyObject *args);

extern PyType_Spec graph_spec, flow_spec, function_spec, call_spec, backward_spec, repeated_call_spec, values_spec, tree_operator_spec,
    memory_spec, array_spec, array_calls_spec, array_operator_spec;
PyObject *core_toolchain(PyObject *module, PyObject *unused);
PyObject *core_allow_tf32(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *core_make_empty_by(PyObject *module, PyObject *capsule); /* tensor.c */
PyObject *core_seal(PyObject *module, PyObject *args);
PyObject *core_is_sealed(PyObject *module, PyObject *path);
PyObject *core_import_onnx(PyObject *module, PyObject *args);
PyObject *core_parse(PyObject *module, PyObject *args);

#endif
