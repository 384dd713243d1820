/* The Flow type: the flat view of a state, to look at and to edit.
 *
 * A flow belongs to the graph's handle, so that a draft outlives the objects that show it; Flow is a handle on it.  It is
 * derived anew once the state was changed by other means, unless it is a draft. */
#include <string.h>

#include "ir/flow.h"
#include "python/binding.h"

typedef struct flow_record {
  dc_flow flow;
  bool derived;
  /* The state as it was when the flow was derived or built. */
  uint64_t edits;
  uint32_t n_nodes;
  const dc_nid *nodes;
  PyObject *handle; /* the Flow that shows it, not owned; or NULL */
  struct flow_record *next;
} flow_record;

typedef struct flow_records {
  flow_record **v; /* by state */
  uint32_t n;
  flow_record *removed; /* of states that are gone */
} flow_records;

typedef struct {
  PyObject_HEAD
  GraphObject *graph;
  flow_record *record;
  uint32_t state;
} FlowObject;

static void free_record(flow_record *r) {
  if (!r) return;
  dc_flow_free(&r->flow);
  PyMem_Free(r);
}

void flows_free(GraphObject *self) {
  if (!self->flows) return;
  for (uint32_t k = 0; k < self->flows->n; k++) free_record(self->flows->v[k]);
  for (flow_record *r = self->flows->removed, *next; r; r = next) next = r->next, free_record(r);
  PyMem_Free(self->flows->v);
  PyMem_Free(self->flows);
}

/* Room for a view of a state; 0, or -1 with an exception. */
static int flows_reserve(GraphObject *self, uint32_t n) {
  if (!self->flows && !(self->flows = PyMem_Calloc(1, sizeof *self->flows))) return PyErr_NoMemory(), -1;
  if (n <= self->flows->n) return 0;
  flow_record **grown = PyMem_Realloc(self->flows->v, n * sizeof *grown);
  if (!grown) return PyErr_NoMemory(), -1;
  while (self->flows->n < n) grown[self->flows->n++] = NULL;
  self->flows->v = grown;
  return 0;
}

static void flows_number(flow_records *f, uint32_t from) {
  for (uint32_t k = from; k < f->n; k++)
    if (f->v[k] && f->v[k]->handle) ((FlowObject *)f->v[k]->handle)->state = k;
}

int flows_insert(GraphObject *self, uint32_t at) {
  if (!self->flows || at >= self->flows->n) return 0;
  if (flows_reserve(self, self->flows->n + 1)) return -1;
  memmove(self->flows->v + at + 1, self->flows->v + at, (self->flows->n - 1 - at) * sizeof *self->flows->v);
  self->flows->v[at] = NULL;
  return flows_number(self->flows, at), 0;
}

int flows_order(GraphObject *self, const uint32_t *order) {
  uint32_t n = self->graph->states.n;
  if (flows_reserve(self, n)) return -1;
  flow_record **v = PyMem_Calloc(n + 1, sizeof *v);
  if (!v) return PyErr_NoMemory(), -1;
  for (uint32_t k = 0; k < n; k++) v[k] = self->flows->v[order[k]];
  PyMem_Free(self->flows->v);
  self->flows->v = v;
  return flows_number(self->flows, 0), 0;
}

/* What showed the state shows nothing from now on. */
void flows_remove(GraphObject *self, uint32_t at) {
  flow_records *f = self->flows;
  if (!f || at >= f->n) return;
  flow_record *gone = f->v[at];
  memmove(f->v + at, f->v + at + 1, (--f->n - at) * sizeof *f->v);
  flows_number(f, at);
  if (!gone) return;
  dc_flow_free(&gone->flow);
  gone->flow = (dc_flow){0};
  gone->next = f->removed, f->removed = gone;
  if (gone->handle) ((FlowObject *)gone->handle)->state = UINT32_MAX;
}

PyObject *get_has_drafts(GraphObject *self, void *unused) {
  (void)unused;
  for (uint32_t k = 0; self->flows && k < self->flows->n; k++)
    if (self->flows->v[k] && self->flows->v[k]->flow.is_draft) Py_RETURN_TRUE;
  Py_RETURN_FALSE;
}

/* ---- names of parameters ---- */

typedef struct {
  dc_ops *ops;
  dc_name unknown, domain; /* the last operator that nobody knew: asking takes long, and comes once for each parameter */
  int since;
} parameter_names;

static bool in_list(const dc_row_arg *args, uint32_t n, const char *name) {
  for (uint32_t k = 0; k < n; k++)
    if (strcmp(args[k].name, name) == 0) return true;
  return false;
}

/* ONNX's name, with in_ or out_ before one that stands on both sides, and a number behind a variadic one. */
static bool row_parameter(const dc_row *row, bool is_input, uint32_t k, const char *prefix, char *out, size_t size) {
  const dc_row_arg *in, *outs;
  uint32_t n_in = dc_row_inputs(row, &in), n_out = dc_row_outputs(row, &outs), n = is_input ? n_in : n_out;
  const dc_row_arg *args = is_input ? in : outs;
  bool last = n && k >= n - 1 && args[n - 1].variadic;
  if (k >= n && !last) return false;
  const dc_row_arg *arg = &args[last ? n - 1 : k];
  bool both = in_list(is_input ? outs : in, is_input ? n_out : n_in, arg->name);
  int at = snprintf(out, size, "%s%s%s", prefix, !both ? "" : is_input ? "in_" : "out_", arg->name);
  if (last && at >= 0 && (size_t)at < size) snprintf(out + at, size - (size_t)at, "__%u", k - (n - 1));
  return true;
}

/* Inputs of a gradient: the operator's inputs, its outputs, and the gradients of those; its output: an input's gradient. */
static bool gradient_parameter(const dc_row *row, const dc_library *lib, bool is_input, uint32_t k, char *out, size_t size) {
  if (!is_input) return k == 0 && row_parameter(row, true, lib->wrt - 1, "grad_", out, size);
  if (k < lib->n_fwd_in) return row_parameter(row, true, k, "", out, size);
  k -= lib->n_fwd_in;
  if (k < lib->n_fwd_out) return row_parameter(row, false, k, "result_", out, size);
  return k < 2 * lib->n_fwd_out && row_parameter(row, false, k - lib->n_fwd_out, "grad_", out, size);
}

/* ONNX's name of a parameter of an operator without a row, which the host runs: 1, 0 past the last, -1 where nobody knows. */
static int told_parameter(const dc_graph *graph, const dc_library *lib, bool is_input, uint32_t k, char *out, size_t size) {
  PyObject *module = PyImport_ImportModule("dcml.onnx.nodes.onnx_op");
  PyObject *name = !module ? NULL : PyObject_CallMethod(module, "parameter_name", "ssiOI", dc_name_text(&graph->names, lib->domain),
                                                        dc_name_text(&graph->names, lib->op), lib->since, is_input ? Py_True : Py_False, k);
  const char *text = name && name != Py_None ? PyUnicode_AsUTF8(name) : NULL;
  int found = !text ? -1 : *text != 0;
  if (found == 1) snprintf(out, size, "%s", text);
  PyErr_Clear(); /* the onnx package may be missing */
  Py_XDECREF(name);
  Py_XDECREF(module);
  return found;
}

static bool parameter_name(void *context, const dc_graph *graph, dc_nid library, bool is_input, uint32_t k, char *out, size_t size) {
  parameter_names *names = context;
  const dc_library *lib = &dc_node_at(graph, library)->lib;
  const dc_row *row = dc_ops_find(names->ops, dc_name_text(&graph->names, lib->domain), dc_name_text(&graph->names, lib->op), lib->since);
  bool is_unknown = lib->op == names->unknown && lib->domain == names->domain && lib->since == names->since;
  int told = row || is_unknown ? -1 : told_parameter(graph, lib, is_input, k, out, size);
  if (!row && told < 0) names->unknown = lib->op, names->domain = lib->domain, names->since = lib->since;
  if (!row) return told < 0 ? dc_flow_numbered.name(NULL, graph, library, is_input, k, out, size) : told;
  return lib->wrt ? gradient_parameter(row, lib, is_input, k, out, size) : row_parameter(row, is_input, k, "", out, size);
}

/* ---- keeping up ---- */

static void note_state(FlowObject *self) {
  const dc_scope *scope = &self->graph->graph->states.v[self->state].scope;
  self->record->edits = self->graph->edits, self->record->n_nodes = scope->n, self->record->nodes = scope->v;
}

static bool is_current(const FlowObject *self) {
  const flow_record *r = self->record;
  const dc_scope *scope = &self->graph->graph->states.v[self->state].scope;
  return r->edits == self->graph->edits && r->n_nodes == scope->n && r->nodes == scope->v;
}

static int derive(FlowObject *self) {
  module_state *state = state_of((PyObject *)self);
  flow_record *r = self->record;
  dc_graph *g = self->graph->graph;
  if (self->state >= g->states.n) {
    PyErr_Format(state->errors[DC_ERR_VALUE], "graph '%s' has no state %u any more", dc_name_text(&g->names, g->name), self->state);
    return -1;
  }
  if ((r->derived && is_current(self)) || r->flow.is_draft) return 0;
  dc_session *session = session_of(state);
  if (!session) return -1;
  parameter_names names = {.ops = session->ops};
  dc_status status = dc_flow_derive(&r->flow, g, self->state, (dc_flow_params){parameter_name, &names});
  if (status) {
    raise_status(state, status);
    return -1;
  }
  r->derived = true;
  note_state(self);
  return 0;
}

PyObject *graph_flow(GraphObject *self, PyObject *args) {
  unsigned index = 0;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "|O&", read_id, &index)) return NULL;
  if (index >= self->graph->states.n) return PyErr_Format(state->errors[DC_ERR_VALUE], "the graph has %u states, not %u", self->graph->states.n, index + 1);
  if (flows_reserve(self, index + 1)) return NULL;
  flow_record *r = self->flows->v[index];
  if (!r && !(r = self->flows->v[index] = PyMem_Calloc(1, sizeof *r))) return PyErr_NoMemory();
  FlowObject *flow = (FlowObject *)Py_XNewRef(r->handle);
  if (!flow) {
    flow = PyObject_New(FlowObject, state->flow_type);
    if (!flow) return NULL;
    flow->graph = (GraphObject *)Py_NewRef((PyObject *)self), flow->record = r, flow->state = index;
    r->handle = (PyObject *)flow;
  }
  if (derive(flow)) Py_CLEAR(flow);
  return (PyObject *)flow;
}

static void flow_dealloc(FlowObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  self->record->handle = NULL;
  Py_DECREF((PyObject *)self->graph);
  PyObject_Free(self);
  Py_DECREF(type);
}

void flows_follow(GraphObject *self) {
  for (uint32_t k = self->flows ? self->flows->n : 0; k-- > 0;) {
    flow_record *r = self->flows->v[k];
    if (k >= self->graph->states.n) flows_remove(self, k);
    if (!r || k >= self->graph->states.n) continue;
    dc_status status = dc_flow_derive(&r->flow, self->graph, k, dc_flow_numbered); /* ids stay where nodes do */
    r->derived = false, r->flow.is_draft = false;
    if (status) dc_flow_free(&r->flow);
    dc_status_free(status);
  }
}

/* ---- looking ---- */

#define FLOW(self) (&(self)->record->flow)

static dc_fid node_of(FlowObject *self, unsigned long id) {
  if (PyErr_Occurred()) return 0;
  if (id < UINT32_MAX && dc_flow_has(FLOW(self), (dc_fid)id)) return (dc_fid)id;
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "node %lu is not in state '%s' any more", id, FLOW(self)->name ? FLOW(self)->name : "");
  return 0;
}

static dc_fid node_of_kind(FlowObject *self, unsigned long id, dc_flow_kind kind, const char *expected) {
  dc_fid n = node_of(self, id);
  if (!n || dc_flow_at(FLOW(self), n)->kind == kind) return n;
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "node %lu is no %s", id, expected);
  return 0;
}

static dc_fid node_arg(FlowObject *self, PyObject *id) { return node_of(self, PyLong_AsUnsignedLong(id)); }

static PyObject *flow_nodes(FlowObject *self, PyObject *unused) {
  dc_arena scratch = {0};
  dc_fid *order;
  uint32_t n;
  (void)unused;
  dc_status_free(dc_flow_order(FLOW(self), &scratch, &order, &n));
  PyObject *list = PyList_New(n);
  for (uint32_t k = 0; list && k < n; k++) PyList_SET_ITEM(list, k, PyLong_FromUnsignedLong(order[k]));
  dc_arena_free(&scratch);
  return list;
}

static PyObject *name_list(const dc_flow_names *names) {
  PyObject *list = PyList_New(names->n);
  for (uint32_t k = 0; list && k < names->n; k++) PyList_SET_ITEM(list, k, name_object(names->v[k]));
  return list;
}

static const char *const schedule_names[DC_FLOW_SCHEDULES] = {"default", "parallel", "sequential", "reduce", "scatter"};

static PyObject *map_detail(const dc_flow *flow, const dc_flow_node *node) {
  const dc_flow_node *entry = node->kind == DC_FLOW_ENTRY ? node : node->other ? dc_flow_at(flow, node->other) : node;
  PyObject *ranges = PyList_New(entry->n_ranges);
  for (uint32_t k = 0; ranges && k < entry->n_ranges; k++)
    PyList_SET_ITEM(ranges, k, Py_BuildValue("(ssss)", entry->range[k].param, entry->range[k].begin, entry->range[k].end, entry->range[k].step));
  return ranges ? Py_BuildValue("(INs)", node->other, ranges, schedule_names[entry->schedule]) : NULL;
}

static PyObject *library_detail(const dc_graph *g, const dc_flow_node *node) {
  const dc_library *lib = &dc_node_at(g, node->node)->lib;
  return Py_BuildValue("(NNiIO)", name_object(dc_name_text(&g->names, lib->op)), name_object(dc_name_text(&g->names, lib->domain)), lib->since, node->node,
                       lib->wrt ? Py_True : Py_False);
}

static PyObject *detail(FlowObject *self, dc_fid n) {
  const dc_flow_node *node = dc_flow_at(FLOW(self), n);
  switch ((dc_flow_kind)node->kind) {
    case DC_FLOW_ACCESS: return name_object(node->label);
    case DC_FLOW_ENTRY: case DC_FLOW_EXIT: return map_detail(FLOW(self), node);
    case DC_FLOW_LIBRARY: return library_detail(self->graph->graph, node);
    case DC_FLOW_TASKLET: {
      PyObject *in = name_list(&node->in), *out = in ? name_list(&node->out) : NULL;
      return out ? Py_BuildValue("(NNs)", in, out, node->python ? node->python : node->code ? node->code : "") : NULL;
    }
    default: {
      dc_graph *inner = node->inner;
      __atomic_add_fetch(&inner->references, 1, __ATOMIC_RELAXED);
      return wrap_graph(state_of((PyObject *)self), inner, NULL);
    }
  }
}

static PyObject *flow_node(FlowObject *self, PyObject *id) {
  static const char *const kinds[] = {"", "access", "entry", "exit", "tasklet", "library", "nested"};
  dc_fid n = node_arg(self, id);
  PyObject *about = n ? detail(self, n) : NULL;
  if (!about) return NULL;
  return Py_BuildValue("(sNN)", kinds[dc_flow_at(FLOW(self), n)->kind], name_object(dc_flow_at(FLOW(self), n)->label), about);
}

static PyObject *flow_has(FlowObject *self, PyObject *id) {
  unsigned long n = PyLong_AsUnsignedLong(id);
  if (PyErr_Occurred()) return NULL;
  return PyBool_FromLong(n < UINT32_MAX && dc_flow_has(FLOW(self), (dc_fid)n));
}

static PyObject *flow_origin(FlowObject *self, PyObject *id) {
  dc_fid n = node_arg(self, id);
  return n ? PyLong_FromUnsignedLong(dc_flow_at(FLOW(self), n)->node) : NULL;
}

static PyObject *flow_statements(FlowObject *self, PyObject *id) {
  dc_fid n = node_arg(self, id);
  return n ? name_object(dc_flow_at(FLOW(self), n)->code ? dc_flow_at(FLOW(self), n)->code : "") : NULL;
}

static PyObject *flow_connectors(FlowObject *self, PyObject *id) {
  dc_fid n = node_arg(self, id);
  if (!n) return NULL;
  PyObject *in = name_list(&dc_flow_at(FLOW(self), n)->in), *out = in ? name_list(&dc_flow_at(FLOW(self), n)->out) : NULL;
  return out ? Py_BuildValue("(NN)", in, out) : NULL;
}

/* None, or (container, subset, wcr, the subset at a copy's other end). */
static PyObject *memlet_object(const dc_flow_edge *e) {
  if (!e->has_memlet) Py_RETURN_NONE;
  const dc_memlet *m = &e->memlet;
  PyObject *data = m->data ? name_object(m->data) : Py_NewRef(Py_None);
  if (!data) return NULL;
  return Py_BuildValue("(Nzsz)", data, m->subset, dc_wcr_name((dc_wcr)m->wcr), m->other);
}

static PyObject *conn_object(const char *name) { return name ? name_object(name) : Py_NewRef(Py_None); }

static PyObject *edge_object(FlowObject *self, dc_eid e) {
  const dc_flow_edge *edge = dc_flow_edge_at(FLOW(self), e);
  PyObject *memlet = memlet_object(edge), *src = memlet ? conn_object(edge->src_conn) : NULL, *dst = src ? conn_object(edge->dst_conn) : NULL;
  return dst ? Py_BuildValue("(IININN)", e, edge->src, src, edge->dst, dst, memlet) : NULL;
}

static PyObject *edge_list(FlowObject *self, const dc_eid *edges, uint32_t n) {
  PyObject *list = PyList_New(n);
  for (uint32_t k = 0; list && k < n; k++) {
    PyObject *item = edge_object(self, edges[k]);
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, k, item);
  }
  return list;
}

static PyObject *flow_edges(FlowObject *self, PyObject *unused) {
  PyObject *list = PyList_New(0);
  (void)unused;
  for (dc_eid e = 1; list && e < FLOW(self)->edges.n; e++) {
    if (!dc_flow_edge_at(FLOW(self), e)->src) continue;
    PyObject *item = edge_object(self, e);
    if (!item || PyList_Append(list, item)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

static PyObject *flow_in_edges(FlowObject *self, PyObject *id) {
  dc_fid n = node_arg(self, id);
  return n ? edge_list(self, dc_flow_at(FLOW(self), n)->into.v, dc_flow_at(FLOW(self), n)->into.n) : NULL;
}

static PyObject *flow_out_edges(FlowObject *self, PyObject *id) {
  dc_fid n = node_arg(self, id);
  return n ? edge_list(self, dc_flow_at(FLOW(self), n)->from.v, dc_flow_at(FLOW(self), n)->from.n) : NULL;
}

static PyObject *flow_scopes(FlowObject *self, PyObject *unused) {
  dc_arena scratch = {0};
  dc_fid *order;
  uint32_t n;
  (void)unused;
  dc_status status = dc_flow_order(FLOW(self), &scratch, &order, &n);
  PyObject *dict = status ? NULL : PyDict_New();
  for (uint32_t k = 0; dict && k < n; k++) {
    PyObject *id = PyLong_FromUnsignedLong(order[k]), *scope = PyLong_FromUnsignedLong(dc_flow_at(FLOW(self), order[k])->scope);
    if (!id || !scope || PyDict_SetItem(dict, id, scope)) Py_CLEAR(dict);
    Py_XDECREF(id);
    Py_XDECREF(scope);
  }
  dc_arena_free(&scratch);
  RAISE_IF(state_of((PyObject *)self), status);
  return dict;
}

static PyObject *flow_text(FlowObject *self, PyObject *unused) {
  dc_text text = {0};
  (void)unused;
  dc_flow_print(FLOW(self), self->graph->graph, &text);
  PyObject *out = PyUnicode_DecodeUTF8(text.s, (Py_ssize_t)text.n, "replace");
  dc_text_free(&text);
  return out;
}

/* ---- editing ---- */

static PyObject *id_object(uint32_t id) { return PyLong_FromUnsignedLong(id); }

static PyObject *flow_add_access(FlowObject *self, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  return text ? id_object(dc_flow_add(FLOW(self), DC_FLOW_ACCESS, text)) : NULL;
}

/* Declares connectors by a sequence of names. */
static int connect_all(FlowObject *self, dc_fid n, PyObject *names, bool is_input) {
  PyObject *items = PySequence_Fast(names, "expected names of connectors");
  for (Py_ssize_t k = 0; items && k < PySequence_Fast_GET_SIZE(items); k++) {
    const char *text = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(items, k));
    if (!text) Py_CLEAR(items);
    else dc_flow_connect(FLOW(self), n, text, is_input);
  }
  Py_XDECREF(items);
  return items ? 0 : -1;
}

static PyObject *flow_add_tasklet(FlowObject *self, PyObject *args) {
  const char *label, *code;
  PyObject *in, *out;
  if (!PyArg_ParseTuple(args, "sOOs", &label, &in, &out, &code)) return NULL;
  dc_fid n = dc_flow_add_tasklet(FLOW(self), label, code);
  if (!connect_all(self, n, in, true) && !connect_all(self, n, out, false)) return id_object(n);
  dc_flow_remove(FLOW(self), n);
  return NULL;
}

static int schedule_of(FlowObject *self, const char *name) {
  for (int k = 0; k < DC_FLOW_SCHEDULES; k++)
    if (strcmp(name, schedule_names[k]) == 0) return k;
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "there is no schedule '%s'; there are default, parallel, sequential, reduce, scatter", name);
  return -1;
}

/* Ranges from (param, begin, end, step) as text, into memory of the flow; NULL with an exception. */
static dc_flow_range *ranges_of(FlowObject *self, PyObject *sequence, uint32_t *n) {
  PyObject *items = PySequence_Fast(sequence, "expected a list of ranges");
  if (!items) return NULL;
  *n = (uint32_t)PySequence_Fast_GET_SIZE(items);
  dc_flow_range *ranges = DC_NEW_ARRAY(&FLOW(self)->arena, dc_flow_range, *n);
  for (uint32_t k = 0; k < *n && !PyErr_Occurred(); k++) {
    const char *p, *begin, *end, *step;
    PyObject *item = PySequence_Fast_GET_ITEM(items, k);
    if (!PyTuple_Check(item)) PyErr_SetString(PyExc_TypeError, "a range is a tuple (param, begin, end, step)");
    else if (PyArg_ParseTuple(item, "ssss", &p, &begin, &end, &step)) {
      dc_arena *arena = &FLOW(self)->arena;
      ranges[k] = (dc_flow_range){dc_arena_strdup(arena, p), dc_arena_strdup(arena, begin), dc_arena_strdup(arena, end), dc_arena_strdup(arena, step)};
    }
  }
  Py_DECREF(items);
  return PyErr_Occurred() ? NULL : ranges;
}

static PyObject *flow_add_map(FlowObject *self, PyObject *args) {
  const char *label, *schedule = "default";
  PyObject *list;
  uint32_t n;
  if (!PyArg_ParseTuple(args, "sO|s", &label, &list, &schedule)) return NULL;
  int chosen = schedule_of(self, schedule);
  dc_flow_range *ranges = chosen < 0 ? NULL : ranges_of(self, list, &n);
  if (!ranges) return NULL;
  dc_fid entry = dc_flow_add_map(FLOW(self), label, ranges, n, (uint32_t)chosen);
  return Py_BuildValue("(II)", entry, dc_flow_at(FLOW(self), entry)->other);
}

static PyObject *flow_set_ranges(FlowObject *self, PyObject *args) {
  PyObject *list;
  unsigned id;
  uint32_t n;
  if (!PyArg_ParseTuple(args, "O&O", read_id, &id, &list)) return NULL;
  dc_fid entry = node_of_kind(self, id, DC_FLOW_ENTRY, "entry of a map");
  dc_flow_range *ranges = entry ? ranges_of(self, list, &n) : NULL;
  if (!ranges) return NULL;
  dc_flow_touch(FLOW(self), entry);
  dc_flow_at(FLOW(self), entry)->range = ranges, dc_flow_at(FLOW(self), entry)->n_ranges = n;
  Py_RETURN_NONE;
}

static PyObject *flow_set_schedule(FlowObject *self, PyObject *args) {
  const char *name;
  unsigned id;
  if (!PyArg_ParseTuple(args, "O&s", read_id, &id, &name)) return NULL;
  int schedule = schedule_of(self, name);
  dc_fid n = schedule < 0 ? 0 : node_of_kind(self, id, DC_FLOW_ENTRY, "entry of a map");
  if (!n) return NULL;
  if (dc_flow_at(FLOW(self), n)->schedule == 1 + DC_MAP_REDUCE) Py_RETURN_NONE; /* it begins at the identity: no other one says so */
  dc_flow_touch(FLOW(self), n), dc_flow_at(FLOW(self), n)->schedule = (uint8_t)schedule;
  Py_RETURN_NONE;
}

static PyObject *flow_set_code(FlowObject *self, PyObject *args) {
  const char *code;
  unsigned id;
  if (!PyArg_ParseTuple(args, "O&s", read_id, &id, &code)) return NULL;
  dc_fid n = node_of_kind(self, id, DC_FLOW_TASKLET, "tasklet");
  if (!n) return NULL;
  dc_flow_touch(FLOW(self), n);
  dc_flow_at(FLOW(self), n)->code = dc_arena_strdup(&FLOW(self)->arena, code), dc_flow_at(FLOW(self), n)->python = NULL;
  Py_RETURN_NONE;
}

static PyObject *flow_set_label(FlowObject *self, PyObject *args) {
  const char *label;
  unsigned id;
  if (!PyArg_ParseTuple(args, "O&s", read_id, &id, &label)) return NULL;
  dc_fid n = node_of(self, id);
  if (!n) return NULL;
  dc_flow_touch(FLOW(self), n);
  dc_flow_at(FLOW(self), n)->label = dc_arena_strdup(&FLOW(self)->arena, label);
  Py_RETURN_NONE;
}

static PyObject *flow_add_library(FlowObject *self, PyObject *args) {
  const char *label, *op, *domain;
  int opset;
  PyObject *attrs = Py_None;
  dc_attr *list;
  uint32_t n;
  if (!PyArg_ParseTuple(args, "sssi|O", &label, &op, &domain, &opset, &attrs)) return NULL;
  if (attrs_from_dict(self->graph, attrs, &list, &n)) return NULL;
  dc_graph *g = self->graph->graph;
  dc_nid node = dc_node_library(g, op, domain, opset, NULL, 0, NULL, 0, list, n);
  dc_node_at(g, node)->name = dc_name_intern(&g->names, label);
  return id_object(dc_flow_add_library(FLOW(self), label, node));
}

static PyObject *flow_set_attributes(FlowObject *self, PyObject *args) {
  PyObject *attrs;
  unsigned id;
  dc_attr *list;
  uint32_t count;
  int opset = 0;
  if (!PyArg_ParseTuple(args, "O&O|i", read_id, &id, &attrs, &opset)) return NULL;
  dc_fid n = node_of_kind(self, id, DC_FLOW_LIBRARY, "library node");
  if (!n) return NULL;
  if (attrs_from_dict(self->graph, attrs, &list, &count)) return NULL;
  dc_graph *g = self->graph->graph;
  dc_node like = *dc_node_at(g, dc_flow_at(FLOW(self), n)->node); /* the graph's own stays as it is until the draft is built */
  dc_nid made = dc_node_library(g, "", "", 0, NULL, 0, NULL, 0, list, count);
  like.lib.attr = dc_node_at(g, made)->lib.attr, like.lib.n_attr = count;
  if (opset > 0) like.lib.since = opset;
  *dc_node_at(g, made) = like;
  dc_flow_touch(FLOW(self), n);
  dc_flow_at(FLOW(self), n)->node = made;
  Py_RETURN_NONE;
}

static int add_symbols(FlowObject *self, dc_fid n, PyObject *symbols) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (symbols && symbols != Py_None && PyDict_Next(symbols, &at, &key, &value)) {
    const char *name = PyUnicode_AsUTF8(key), *text = name ? PyUnicode_AsUTF8(value) : NULL;
    if (!text) return -1;
    dc_flow_add_symbol(FLOW(self), n, name, text);
  }
  return 0;
}

static PyObject *flow_add_nested(FlowObject *self, PyObject *args) {
  const char *label;
  GraphObject *inner;
  PyObject *in, *out, *symbols = NULL;
  if (!PyArg_ParseTuple(args, "sO!OO|O!", &label, state_of((PyObject *)self)->graph_type, &inner, &in, &out, &PyDict_Type, &symbols)) return NULL;
  if (inner->graph == self->graph->graph)
    return PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "a graph is not nested in itself");
  __atomic_add_fetch(&inner->graph->references, 1, __ATOMIC_RELAXED);
  dc_fid n = dc_flow_add_nested(FLOW(self), label, inner->graph);
  if (!connect_all(self, n, in, true) && !connect_all(self, n, out, false) && !add_symbols(self, n, symbols)) return id_object(n);
  dc_flow_remove(FLOW(self), n);
  return NULL;
}

static PyObject *flow_add_connector(FlowObject *self, PyObject *args) {
  const char *name;
  unsigned id;
  int is_input;
  if (!PyArg_ParseTuple(args, "O&sp", read_id, &id, &name, &is_input)) return NULL;
  dc_fid n = node_of(self, id);
  if (!n) return NULL;
  bool added = !dc_flow_has_connector(FLOW(self), n, name, is_input);
  if (added) dc_flow_connect(FLOW(self), n, name, is_input);
  return PyBool_FromLong(added);
}

static PyObject *flow_remove_connector(FlowObject *self, PyObject *args) {
  const char *name;
  unsigned id;
  int is_input;
  if (!PyArg_ParseTuple(args, "O&sp", read_id, &id, &name, &is_input)) return NULL;
  dc_fid n = node_of(self, id);
  return n ? PyBool_FromLong(dc_flow_disconnect(FLOW(self), n, name, is_input)) : NULL;
}

/* From None or (container or None, subset or None, wcr[, other subset or None]). */
static int memlet_of(FlowObject *self, PyObject *object, dc_memlet *out) {
  const char *wcr = "";
  *out = (dc_memlet){0};
  if (!PyTuple_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "a memlet is None or a tuple (container, subset, wcr, other subset)");
    return -1;
  }
  if (!PyArg_ParseTuple(object, "zz|sz", &out->data, &out->subset, &wcr, &out->other)) return -1;
  for (int k = DC_WCR_NONE; k <= DC_WCR_MAX; k++)
    if (strcmp(wcr, dc_wcr_name((dc_wcr)k)) == 0) return out->wcr = (uint8_t)k, 0;
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "there is no WCR '%s'; there are sum, prod, min and max", wcr);
  return -1;
}

static PyObject *flow_add_edge(FlowObject *self, PyObject *args) {
  unsigned src, dst;
  const char *src_conn, *dst_conn;
  PyObject *object = Py_None;
  dc_memlet memlet;
  if (!PyArg_ParseTuple(args, "O&zO&z|O", read_id, &src, &src_conn, read_id, &dst, &dst_conn, &object)) return NULL;
  if (!node_of(self, src) || !node_of(self, dst) || (object != Py_None && memlet_of(self, object, &memlet))) return NULL;
  return id_object(dc_flow_join(FLOW(self), src, src_conn, dst, dst_conn, object == Py_None ? NULL : &memlet));
}

static dc_eid edge_of(FlowObject *self, unsigned long e) {
  if (PyErr_Occurred()) return 0;
  if (e && e < FLOW(self)->edges.n && dc_flow_edge_at(FLOW(self), (dc_eid)e)->src) return (dc_eid)e;
  PyErr_Format(state_of((PyObject *)self)->errors[DC_ERR_VALUE], "edge %lu is not in state '%s' any more", e, FLOW(self)->name ? FLOW(self)->name : "");
  return 0;
}

static PyObject *flow_edge(FlowObject *self, PyObject *id) {
  dc_eid e = edge_of(self, PyLong_AsUnsignedLong(id));
  return e ? edge_object(self, e) : NULL;
}

static PyObject *flow_set_memlet(FlowObject *self, PyObject *args) {
  unsigned id;
  PyObject *object;
  dc_memlet memlet;
  if (!PyArg_ParseTuple(args, "O&O", read_id, &id, &object)) return NULL;
  dc_eid e = edge_of(self, id);
  if (!e || (object != Py_None && memlet_of(self, object, &memlet))) return NULL;
  dc_flow_set_memlet(FLOW(self), e, object == Py_None ? NULL : &memlet);
  Py_RETURN_NONE;
}

static PyObject *flow_remove_node(FlowObject *self, PyObject *id) {
  dc_fid n = node_arg(self, id);
  if (!n) return NULL;
  dc_flow_remove(FLOW(self), n);
  Py_RETURN_NONE;
}

static PyObject *flow_remove_edge(FlowObject *self, PyObject *id) {
  dc_eid e = edge_of(self, PyLong_AsUnsignedLong(id));
  if (!e) return NULL;
  dc_flow_remove_edge(FLOW(self), e);
  Py_RETURN_NONE;
}

static PyObject *flow_touch(FlowObject *self, PyObject *unused) {
  (void)unused;
  dc_flow_touch(FLOW(self), 0);
  Py_RETURN_NONE;
}

static PyObject *flow_build(FlowObject *self, PyObject *unused) {
  module_state *state = state_of((PyObject *)self);
  dc_session *session = session_of(state);
  (void)unused;
  if (!session) return NULL;
  if (!FLOW(self)->is_draft) Py_RETURN_NONE;
  if (self->state >= self->graph->graph->states.n) return PyErr_Format(state->errors[DC_ERR_VALUE], "the flow's state is gone");
  self->graph->version++;
  parameter_names names = {.ops = session->ops};
  if (self->state < self->graph->graph->states.n && !is_current(self)) dc_flow_touch(FLOW(self), 0); /* what was kept may be gone */
  RAISE_IF(state, dc_flow_build(FLOW(self), self->graph->graph, self->state, (dc_flow_params){parameter_name, &names}));
  self->record->derived = true;
  note_state(self);
  Py_RETURN_NONE;
}

static PyObject *flow_renew(FlowObject *self, PyObject *unused) {
  (void)unused;
  self->record->derived = false;
  Py_RETURN_NONE;
}

/* ---- nested graphs ---- */

/* {inner name: (name, subset or None)}; 0, or -1 with an exception. */
static int inlined_names(PyObject *dict, dc_inlined_name *out) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  for (uint32_t k = 0; PyDict_Next(dict, &at, &key, &value); k++) {
    if (!PyTuple_Check(value)) return PyErr_SetString(PyExc_TypeError, "an array of a nested graph is a tuple (name, subset or None)"), -1;
    if (!(out[k].inner = PyUnicode_AsUTF8(key)) || !PyArg_ParseTuple(value, "sz", &out[k].outer, &out[k].subset)) return -1;
  }
  return 0;
}

static int inlined_symbols(PyObject *dict, const char **names, const char **values) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  for (uint32_t k = 0; dict && PyDict_Next(dict, &at, &key, &value); k++)
    if (!(names[k] = PyUnicode_AsUTF8(key)) || !(values[k] = PyUnicode_AsUTF8(value))) return -1;
  return 0;
}

PyObject *graph_inline(GraphObject *self, PyObject *args) {
  unsigned index;
  GraphObject *inner;
  PyObject *containers, *symbols = NULL;
  module_state *state = state_of((PyObject *)self);
  if (!PyArg_ParseTuple(args, "O&O!O!|O!", read_id, &index, state->graph_type, &inner, &PyDict_Type, &containers, &PyDict_Type, &symbols)) return NULL;
  if (index >= self->graph->states.n) return PyErr_Format(state->errors[DC_ERR_VALUE], "the graph has %u states, not %u", self->graph->states.n, index + 1);
  if (inner->graph == self->graph) return PyErr_Format(state->errors[DC_ERR_VALUE], "a graph is not nested in itself");
  uint32_t n = (uint32_t)PyDict_GET_SIZE(containers), n_symbols = symbols ? (uint32_t)PyDict_GET_SIZE(symbols) : 0;
  dc_arena scratch = {0};
  dc_inlined_name *names = DC_NEW_ARRAY(&scratch, dc_inlined_name, n);
  const char **symbol = DC_NEW_ARRAY(&scratch, const char *, n_symbols), **value = DC_NEW_ARRAY(&scratch, const char *, n_symbols);
  bool good = !inlined_names(containers, names) && !inlined_symbols(symbols, symbol, value);
  dc_scope added = {0};
  dc_status status = good ? dc_graph_inline_named(self->graph, &added, inner->graph, names, n, symbol, value, n_symbols) : DC_OK;
  for (uint32_t k = 0; good && !status && k < added.n; k++) dc_scope_push(self->graph, &self->graph->states.v[index].scope, added.v[k]);
  dc_arena_free(&scratch);
  RAISE_IF(state, status);
  if (!good) return NULL;
  Py_RETURN_NONE;
}

static PyObject *get_is_draft(FlowObject *self, void *u) { return (void)u, PyBool_FromLong(FLOW(self)->is_draft); }
static PyObject *get_graph(FlowObject *self, void *u) { return (void)u, Py_NewRef((PyObject *)self->graph); }
static PyObject *get_state(FlowObject *self, void *u) { return (void)u, PyLong_FromUnsignedLong(self->state); }

static PyMethodDef methods[] = {
    {"nodes", (PyCFunction)flow_nodes, METH_NOARGS, "nodes() -> [id], sources first; in the order of adding where edges make a circle."},
    {"node", (PyCFunction)flow_node, METH_O,
     "node(id) -> (kind, label, detail). access: name of the container; entry, exit: (id of the other, [(param, begin, end, step)], schedule); "
     "tasklet: (inputs, outputs, code); library: (op, domain, opset, node of the graph, whether it is a gradient); nested: Graph."},
    {"has", (PyCFunction)flow_has, METH_O, "has(id) -> whether the node is still there."},
    {"origin", (PyCFunction)flow_origin, METH_O, "origin(id) -> the node of the graph that it was derived from or built as; 0 for access nodes, and before."},
    {"statements", (PyCFunction)flow_statements, METH_O, "statements(id) -> a tasklet's code in the text form."},
    {"connectors", (PyCFunction)flow_connectors, METH_O, "connectors(id) -> (names of inputs, names of outputs)."},
    {"edges", (PyCFunction)flow_edges, METH_NOARGS,
     "edges() -> [(id, src, src_conn, dst, dst_conn, memlet)]. memlet: None or (container, subset or None, wcr, "
     "the subset at a copy's other end or None)."},
    {"edge", (PyCFunction)flow_edge, METH_O, "edge(id) -> as in edges()."},
    {"in_edges", (PyCFunction)flow_in_edges, METH_O, "in_edges(id) -> as edges()."},
    {"out_edges", (PyCFunction)flow_out_edges, METH_O, "out_edges(id) -> as edges()."},
    {"scopes", (PyCFunction)flow_scopes, METH_NOARGS, "scopes() -> {id: id of the entry around, or 0}."},
    {"text", (PyCFunction)flow_text, METH_NOARGS, "text() -> nodes and edges, a line each."},
    {"add_access", (PyCFunction)flow_add_access, METH_O, "add_access(name) -> id."},
    {"add_tasklet", (PyCFunction)flow_add_tasklet, METH_VARARGS,
     "add_tasklet(label, inputs, outputs, statements) -> id. statements: `name = expression if guard` over connectors, `a[]` or `a[i]`."},
    {"add_map", (PyCFunction)flow_add_map, METH_VARARGS, "add_map(label, [(param, begin, end, step)], schedule='default') -> (entry, exit)."},
    {"add_library", (PyCFunction)flow_add_library, METH_VARARGS, "add_library(label, op, domain, opset, attrs={}) -> id."},
    {"add_nested", (PyCFunction)flow_add_nested, METH_VARARGS, "add_nested(label, graph, inputs, outputs, symbols={}) -> id. symbols: {name: expression}."},
    {"add_connector", (PyCFunction)flow_add_connector, METH_VARARGS, "add_connector(id, name, is_input) -> whether it is new."},
    {"remove_connector", (PyCFunction)flow_remove_connector, METH_VARARGS, "remove_connector(id, name, is_input) -> whether there was one; its edges go too."},
    {"add_edge", (PyCFunction)flow_add_edge, METH_VARARGS, "add_edge(src, src_conn, dst, dst_conn, memlet=None) -> id. memlet: as edges() gives it; without one it is about order."},
    {"set_memlet", (PyCFunction)flow_set_memlet, METH_VARARGS, "set_memlet(edge, memlet)."},
    {"set_ranges", (PyCFunction)flow_set_ranges, METH_VARARGS, "set_ranges(entry, [(param, begin, end, step)])."},
    {"set_schedule", (PyCFunction)flow_set_schedule, METH_VARARGS, "set_schedule(entry, name)."},
    {"set_code", (PyCFunction)flow_set_code, METH_VARARGS, "set_code(tasklet, statements)."},
    {"set_label", (PyCFunction)flow_set_label, METH_VARARGS, "set_label(id, label); of an access node, its container."},
    {"set_attributes", (PyCFunction)flow_set_attributes, METH_VARARGS, "set_attributes(library, {name: value}, opset=as it is): in place of those there are."},
    {"remove_node", (PyCFunction)flow_remove_node, METH_O, "remove_node(id), with its edges."},
    {"remove_edge", (PyCFunction)flow_remove_edge, METH_O, "remove_edge(id)."},
    {"renew", (PyCFunction)flow_renew, METH_NOARGS, "renew(): shows the graph as it was built, and no longer the nodes that were drafted."},
    {"touch", (PyCFunction)flow_touch, METH_NOARGS, "touch(): build() makes every node anew."},
    {"build", (PyCFunction)flow_build, METH_NOARGS, "build(): puts a draft into the graph; raises ModelError naming array, connector and node."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef properties[] = {{"is_draft", (getter)get_is_draft, NULL, "edited since it was derived or built", NULL},
                                   {"graph", (getter)get_graph, NULL, NULL, NULL},
                                   {"state", (getter)get_state, NULL, "index of the state", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, flow_dealloc}, {Py_tp_methods, methods}, {Py_tp_getset, properties},
                              {Py_tp_doc, "The flat view of a state: access nodes, maps, tasklets, library nodes, joined by memlets."}, {0, NULL}};
PyType_Spec flow_spec = {"dcml._core.Flow", sizeof(FlowObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
