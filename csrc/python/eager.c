/* eager(): runs one operator on arrays.
 *
 * The one idea: a function of that operator alone is kept by operator, version, attributes, and types and ranks of the
 * inputs; extents are symbols, but for those of 1, which may be broadcast and are part of the key.  What is little work is
 * interpreted, which starts at once, always, so that the same arrays give the same bits at every call; more is compiled, and
 * what a native library may serve is its from the first call on. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "python/eager.h"
#include "python/function.h"

enum { SETS = 256, WAYS = 4, FEW_VIEWS = 4, SHORT_KEY = 256 };
static const double LITTLE = 1024;               /* element operations, tens of us of interpreting, that are not worth compiling for */
static const Py_ssize_t LARGEST_KEY = 1 << 16;   /* bytes; functions of larger ones are not kept */

typedef struct {
  uint64_t hash, used;
  char *key;
  size_t key_bytes;
  PyObject *functions[2]; /* interpreted, compiled; NULL: not made yet */
  bool native;            /* a library may serve it */
} entry;

struct eager_cache {
  entry entries[SETS * WAYS];
  uint64_t clock;
};

typedef struct {
  char *s, few[SHORT_KEY]; /* s: few, or memory of its own */
  size_t n, cap;
} key_text;

/* ---- the cache ---- */

struct eager_cache *eager_cache_create(void) { return calloc(1, sizeof(struct eager_cache)); }

int eager_cache_traverse(struct eager_cache *cache, visitproc visit, void *arg) {
  for (int k = 0; cache && k < SETS * WAYS; k++)
    for (int j = 0; j < 2; j++) Py_VISIT(cache->entries[k].functions[j]);
  return 0;
}

/* Leaves the entry empty before anything else runs: what goes may call back. */
static void forget(entry *e) {
  entry old = *e;
  *e = (entry){0};
  free(old.key);
  Py_XDECREF(old.functions[0]);
  Py_XDECREF(old.functions[1]);
}

void eager_cache_clear(struct eager_cache *cache) {
  for (int k = 0; cache && k < SETS * WAYS; k++) forget(&cache->entries[k]);
}

void eager_cache_destroy(struct eager_cache *cache) {
  eager_cache_clear(cache);
  free(cache);
}

/* The entry of a key, made if there is none: the one of its set that was used longest ago goes. */
static entry *find(struct eager_cache *cache, const key_text *key) {
  uint64_t hash = dc_hash_bytes(0, key->s, key->n);
  entry *set = &cache->entries[hash % SETS * WAYS], *oldest = set;
  for (int k = 0; k < WAYS; k++) {
    entry *e = &set[k];
    if (e->used < oldest->used) oldest = e;
    if (!e->key || e->hash != hash || e->key_bytes != key->n || memcmp(e->key, key->s, key->n)) continue;
    e->used = ++cache->clock;
    return e;
  }
  forget(oldest);
  char *copy = malloc(key->n + 1);
  if (!copy) return NULL;
  memcpy(copy, key->s, key->n);
  *oldest = (entry){.hash = hash, .used = ++cache->clock, .key = copy, .key_bytes = key->n};
  return oldest;
}

/* ---- keys ---- */

static void grow(key_text *key, size_t n) {
  size_t cap = 2 * (key->n + n);
  char *grown = realloc(key->s == key->few ? NULL : key->s, cap);
  if (!grown) abort();
  if (key->s == key->few) memcpy(grown, key->few, key->n);
  key->s = grown, key->cap = cap;
}

static inline void put(key_text *key, const void *data, size_t n) {
  if (key->n + n > key->cap) grow(key, n);
  memcpy(key->s + key->n, data, n);
  key->n += n;
}

static int put_text(key_text *key, PyObject *text) {
  Py_ssize_t n;
  const char *s = PyUnicode_AsUTF8AndSize(text, &n);
  if (!s) return -1;
  put(key, &n, sizeof n);
  put(key, s, (size_t)n);
  return 0;
}

static int put_array(module_state *state, key_text *key, PyObject *value) {
  tensor_view view;
  if (view_tensor(state, value, &view)) return -1;
  const dc_array *a = &view.array;
  put(key, &a->dtype, sizeof a->dtype);
  put(key, &a->rank, sizeof a->rank);
  put(key, a->dims, a->rank * sizeof *a->dims);
  put(key, a->data, dc_array_bytes(a));
  release_view(&view);
  return 0;
}

static int put_value(module_state *state, key_text *key, PyObject *value) {
  char kind = PyLong_Check(value) ? 'i' : PyFloat_Check(value) ? 'f' : PyUnicode_Check(value) ? 's' : PyBytes_Check(value) ? 'b' : 'a';
  bool list = PyList_Check(value) || PyTuple_Check(value);
  if (list) kind = 'l';
  put(key, &kind, 1);
  if (kind == 'i') {
    long long i = PyLong_AsLongLong(value);
    put(key, &i, sizeof i);
    return i == -1 && PyErr_Occurred() ? -1 : 0;
  }
  if (kind == 'f') return put(key, &(double){PyFloat_AS_DOUBLE(value)}, sizeof(double)), 0;
  if (kind == 's') return put_text(key, value);
  if (kind == 'a') return put_array(state, key, value);
  Py_ssize_t n = kind == 'b' ? PyBytes_GET_SIZE(value) : PySequence_Fast_GET_SIZE(value);
  put(key, &n, sizeof n);
  if (kind == 'b') return put(key, PyBytes_AS_STRING(value), (size_t)n), 0;
  for (Py_ssize_t k = 0; k < n; k++) {
    PyObject *item = PySequence_Fast_GET_ITEM(value, k);
    bool deep = PyList_Check(item) || PyTuple_Check(item);
    if (deep) PyErr_SetString(state->errors[DC_ERR_VALUE], "a list of lists is no attribute");
    if (deep || put_value(state, key, item)) return -1;
  }
  return 0;
}

static int put_attributes(module_state *state, key_text *key, PyObject *attributes) {
  PyObject *name, *value;
  Py_ssize_t at = 0;
  if (attributes == Py_None) return 0;
  if (!PyDict_Check(attributes)) return PyErr_SetString(PyExc_TypeError, "expected attributes as a dictionary"), -1;
  while (PyDict_Next(attributes, &at, &name, &value)) {
    if (value == Py_None) continue;
    if (!PyUnicode_Check(name)) return PyErr_SetString(PyExc_TypeError, "expected names of attributes as str"), -1;
    if (put_text(key, name)) return -1;
    if (put_value(state, key, value)) {
      blame(state, "attribute", PyUnicode_AsUTF8(name));
      return -1;
    }
  }
  return 0;
}

/* ---- calls ---- */

/* What a function is made for, by input. */
typedef struct {
  uint64_t ones; /* the k-th bit: the k-th extent is 1 */
  uint8_t type, rank; /* type 0: the input is absent */
} look;

typedef struct {
  module_state *state;
  const eager_operator *what;
  const char *op, *domain;
  PyObject *const *inputs; /* borrowed: views hold what they need */
  Py_ssize_t n;
  tensor_view *views; /* of the inputs that are given */
  uint32_t n_views;
  uint64_t elements; /* of all inputs */
  key_text key;
  tensor_view few[FEW_VIEWS];
} call;

static const dc_row *row_of(call *c) {
  dc_session *session = session_of(c->state);
  return session ? dc_ops_find(session->ops, c->domain, c->op, (int)c->what->opset) : NULL;
}

static const char *input_name(const dc_row *row, Py_ssize_t k) {
  const dc_row_arg *args;
  Py_ssize_t n = row ? dc_row_inputs(row, &args) : 0;
  return k < n ? args[k].name : n && args[n - 1].variadic ? args[n - 1].name : "input";
}

static void blame_input(call *c, Py_ssize_t k) {
  const dc_row *row = row_of(c);
  blame(c->state, "input", input_name(row, k));
  blame(c->state, "operator", c->op);
}

static bool is_number(PyObject *item) { return PyFloat_CheckExact(item) || PyLong_CheckExact(item); }

/* A view of each input that is given; 1 where they are not of the types that were asked for, -1 with an exception. */
static int view_inputs(call *c) {
  dc_dtype type = DC_NOTYPE;
  uint32_t types = c->what->types;
  for (Py_ssize_t k = 0; k < c->n; k++) {
    if (c->inputs[k] == Py_None) continue;
    tensor_view *view = &c->views[c->n_views++];
    *view = (tensor_view){0};
    if (types && is_number(c->inputs[k])) continue;
    if (view_tensor(c->state, c->inputs[k], view)) return blame_input(c, k), -1;
    if (types && type && view->array.dtype != type) return 1;
    type = view->array.dtype;
  }
  if (!types) return 0;
  tensor_view *view = c->views;
  for (Py_ssize_t k = 0; k < c->n; k++) {
    if (c->inputs[k] == Py_None) continue;
    if (is_number(c->inputs[k]) && view_number_as(type, c->inputs[k], view)) return 1;
    view++;
  }
  return types >> type & 1 ? 0 : 1;
}

static void look_at_inputs(call *c) {
  const tensor_view *view = c->views;
  for (Py_ssize_t k = 0; k < c->n; k++) {
    look seen;
    memset(&seen, 0, sizeof seen); /* padding too, which is in the key */
    if (c->inputs[k] != Py_None) {
      uint64_t elements = 1;
      seen.type = (uint8_t)view->array.dtype, seen.rank = (uint8_t)view->array.rank;
      for (uint32_t d = 0; d < view->array.rank; d++) {
        elements *= (uint64_t)view->array.dims[d];
        if (view->array.dims[d] == 1) seen.ones |= (uint64_t)1 << d;
      }
      c->elements += elements;
      view++;
    }
    put(&c->key, &seen, sizeof seen);
  }
}

static dc_cid add_input(dc_graph *g, const char *name, Py_ssize_t k, const look *seen) {
  dc_ex dims[DC_MAX_RANK];
  char symbol[32];
  for (int d = 0; d < seen->rank; d++) {
    PyOS_snprintf(symbol, sizeof symbol, "n%zd_%d", k, d);
    dims[d] = seen->ones >> d & 1 ? dc_ex_int(&g->pool, 1) : dc_ex_sym(&g->pool, dc_symbol_get(&g->pool, symbol, 0));
  }
  return seen->type ? dc_container_add(g, name, (dc_dtype)seen->type, seen->rank, dims, DC_ROLE_INPUT) : 0;
}

static dc_nid add_node(call *c, GraphObject *handle, const dc_row *row, const char *looks) {
  dc_graph *g = handle->graph;
  cid_list in = {0}, out = {0};
  attr_list attrs = {0};
  const dc_row_arg *made;
  uint32_t n_made = row ? dc_row_outputs(row, &made) : 0, n_out = 0;
  for (Py_ssize_t k = 0; k < c->n; k++) {
    look seen;
    memcpy(&seen, looks + (size_t)k * sizeof seen, sizeof seen); /* the key has no alignment */
    DC_PUSH(&g->arena, &in, add_input(g, input_name(row, k), k, &seen));
  }
  if (parse_attrs(handle, c->what->attributes, &attrs)) return 0;
  while (c->what->outputs < 0 && n_out < n_made && !made[n_out].optional && !made[n_out].variadic) n_out++;
  if (c->what->outputs >= 0) n_out = (uint32_t)c->what->outputs;
  for (uint32_t k = 0; k < (n_out ? n_out : 1); k++) {
    dc_cid output = dc_container_add(g, k < n_made ? made[k].name : "output", DC_NOTYPE, 0, NULL, DC_ROLE_TEMP);
    dc_cont(g, output)->shape = NULL;
    DC_PUSH(&g->arena, &out, output);
  }
  dc_nid node = dc_node_library(g, c->op, c->domain, (int)c->what->opset, in.v, in.n, out.v, out.n, attrs.v, attrs.n);
  dc_scope_push(g, dc_graph_scope(g), node);
  for (uint32_t k = 0; k < out.n; k++) dc_graph_mark_output(g, out.v[k]);
  return node;
}

/* looks: a look at each input.  named: extents are symbols; else each shape is compiled by itself. */
static PyObject *make_function(call *c, const char *looks, bool compiled, bool named) {
  dc_graph *graph = dc_graph_create(c->op);
  graph->opset = *c->domain ? graph->opset : (int)c->what->opset;
  PyObject *handle = wrap_graph(c->state, graph, NULL), *function = NULL;
  if (!handle) return dc_graph_destroy(graph), NULL;
  if (add_node(c, (GraphObject *)handle, row_of(c), looks)) {
    for (uint32_t k = 0; !named && k < graph->inputs.n; k++) dc_cont(graph, graph->inputs.v[k])->shape = NULL;
    PyObject *args = PyTuple_Pack(1, handle), *options = Py_BuildValue("{s:s}", "backend", compiled ? "auto" : "interp");
    function = args && options ? PyObject_Call((PyObject *)c->state->function_type, args, options) : NULL;
    if (function && !compiled) function_limit(function, LITTLE);
    Py_XDECREF(args);
    Py_XDECREF(options);
  }
  Py_DECREF(handle);
  return function;
}

/* The first call of a function: where the operator cannot work with symbols, shapes are compiled as they are. */
static PyObject *run_first(call *c, const char *looks, bool compiled, PyObject **function) {
  PyObject *results = NULL;
  for (int exact = 0; !results && exact < 2; exact++) {
    if (exact && !PyErr_ExceptionMatches(c->state->errors[0])) break;
    PyErr_Clear();
    Py_XSETREF(*function, make_function(c, looks, compiled, !exact));
    results = *function ? function_run_views(*function, c->views, c->n_views) : NULL;
  }
  if (!results) Py_CLEAR(*function);
  return results;
}

/* While Python ran, other threads may have too, and the entry may have become another's. */
static bool is_of(const entry *e, const call *c, uint64_t hash) {
  return e->hash == hash && e->key_bytes == c->key.n && memcmp(e->key, c->key.s, c->key.n) == 0;
}

/* Interpreted, which gives NotImplemented where that is too much work, or else compiled. */
static PyObject *run_kept(call *c, const char *looks) {
  PyObject *results = NULL;
  entry *e = find(c->state->eager, &c->key);
  if (!e) return PyErr_NoMemory();
  uint64_t hash = e->hash;
  if (!e->functions[0] && !e->functions[1]) {
    const dc_row *row = row_of(c);
    e->native = row && dc_row_native(row, 0);
  }
  for (int compiled = e->native || (double)c->elements > LITTLE; compiled < 2; compiled++) {
    PyObject *function = is_of(e, c, hash) ? Py_XNewRef(e->functions[compiled]) : NULL;
    bool first = !function;
    Py_XSETREF(results, first ? run_first(c, looks, compiled, &function) : function_run_views(function, c->views, c->n_views));
    if (first && function && is_of(e, c, hash)) Py_XSETREF(e->functions[compiled], Py_NewRef(function));
    Py_XDECREF(function);
    if (results != Py_NotImplemented) break;
  }
  return results;
}

static PyObject *run_once(call *c, const char *looks) {
  PyObject *function = NULL, *results = run_first(c, looks, true, &function);
  Py_XDECREF(function);
  return results;
}

/* Keys, looks, finds, runs; views and key are the caller's to release. */
static PyObject *run_call(call *c) {
  const eager_operator *what = c->what;
  int failed = view_inputs(c);
  if (failed) return NULL;
  long numbers[3] = {what->opset, what->outputs, (long)c->n};
  put(&c->key, numbers, sizeof numbers);
  if (put_text(&c->key, what->op) || put_text(&c->key, what->domain)) return NULL;
  size_t at = c->key.n;
  look_at_inputs(c);
  if (put_attributes(c->state, &c->key, what->attributes)) return NULL;
  const char *looks = c->key.s + at;
  return c->key.n > (size_t)LARGEST_KEY ? run_once(c, looks) : run_kept(c, looks);
}

PyObject *eager_apply(module_state *state, const eager_operator *what, PyObject *const *inputs, Py_ssize_t n) {
  call c;
  c.state = state, c.what = what, c.inputs = inputs, c.n = n, c.n_views = 0, c.elements = 0, c.views = c.few;
  c.key.s = c.key.few, c.key.n = 0, c.key.cap = sizeof c.key.few;
  c.op = PyUnicode_AsUTF8(what->op), c.domain = PyUnicode_AsUTF8(what->domain);
  if (!c.op || !c.domain) return NULL;
  if (n > 1 << 16) return PyErr_Format(state->errors[DC_ERR_VALUE], "%s cannot have %zd inputs", c.op, n), NULL;
  if (n > FEW_VIEWS && !(c.views = PyMem_Malloc((size_t)n * sizeof *c.views))) return PyErr_NoMemory();
  PyObject *results = run_call(&c);
  for (uint32_t k = 0; k < c.n_views; k++) release_view(&c.views[k]);
  if (c.views != c.few) PyMem_Free(c.views);
  if (c.key.s != c.key.few) free(c.key.s);
  return results;
}

int eager_parse(module_state *state, PyObject *const *args, Py_ssize_t n, eager_operator *out) {
  if (n < 4 || n > 6) return PyErr_Format(PyExc_TypeError, "eager() takes 4 to 6 arguments, %zd were given", n), -1;
  if (!PyUnicode_Check(args[0]) || !PyUnicode_Check(args[1]))
    return PyErr_SetString(PyExc_TypeError, "expected operator and domain as str"), -1;
  *out = (eager_operator){.op = args[0], .domain = args[1], .opset = PyLong_AsLong(args[2]), .outputs = -1};
  out->attributes = n > 4 ? args[4] : Py_None;
  if (n > 5 && args[5] != Py_None) out->outputs = PyLong_AsLong(args[5]);
  if (PyErr_Occurred()) return -1;
  bool known = out->outputs <= 1 << 16 && out->opset <= 1 << 16 && out->opset >= 0;
  if (!known)
    PyErr_Format(state->errors[DC_ERR_VALUE], "%U of opset %ld with %ld outputs is not known", out->op, out->opset, out->outputs);
  return known ? 0 : -1;
}

/* eager(op, domain, opset, arrays, attributes=None, outputs=None) -> tuple of arrays.
 * arrays: numpy's or torch's; None: absent.  outputs: how many; None: those that are never left out. */
PyObject *core_eager(PyObject *module, PyObject *const *args, Py_ssize_t n) {
  module_state *state = PyModule_GetState(module);
  eager_operator what;
  if (eager_parse(state, args, n, &what)) return NULL;
  PyObject *inputs = PySequence_Tuple(args[3]); /* a list could change while others run */
  PyObject *results = inputs ? eager_apply(state, &what, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs)) : NULL;
  Py_XDECREF(inputs);
  return results;
}
