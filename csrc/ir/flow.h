/* The flat view of a state: access nodes, map entries and exits, tasklets and library nodes, joined by memlets.
 *
 * A flow is names and text, apart from the graph: what it says is looked up when it is built, so that nodes and edges may
 * come in any order.  dc_flow_derive makes it from a state's scope; dc_flow_build is the inverse.  What nobody edited in the
 * flow (a "unit": a node of the state with all that is in it) is kept as it is when the flow is built.
 *
 * Code of a tasklet is statements `name = expression if guard` in the text form of scalar expressions, in order; a
 * connector is read as `a[]`, or `a[i, j]` with indices from the start of its memlet, of the dimensions that are ranges
 * there; an output may be written as `b[i] = ...` in the same way.  What ranges of a map read comes by connectors of the
 * entry that do not begin with IN_.  It must not know operators: names of their parameters come from a dc_flow_params. */
#ifndef DCML_IR_FLOW_H
#define DCML_IR_FLOW_H

#include "ir/flow_box.h"

typedef uint32_t dc_fid; /* a node of a flow; 0 is none */
typedef uint32_t dc_eid; /* an edge of a flow; 0 is none */

typedef enum { DC_FLOW_ACCESS = 1, DC_FLOW_ENTRY, DC_FLOW_EXIT, DC_FLOW_TASKLET, DC_FLOW_LIBRARY, DC_FLOW_NESTED } dc_flow_kind;

/* Schedules by name: "default" (build decides), then as in the text form: "map", "sequential", "reduce", "scatter". */
const char *dc_flow_schedule_name(uint32_t schedule);
enum { DC_FLOW_SCHEDULES = 5 };

typedef struct {
  const char *param, *begin, *end, *step;
} dc_flow_range;

typedef struct {
  const char *data;   /* container; NULL: what the edge's path begins or ends with */
  const char *subset; /* "0:5, i"; NULL: all of it */
  const char *other;  /* of a copy: the subset at the end that is not `data`; NULL: as large, from 0 */
  uint8_t wcr;        /* dc_wcr */
} dc_memlet;

typedef struct {
  dc_fid src, dst; /* 0: the edge is gone */
  const char *src_conn, *dst_conn; /* NULL: none */
  bool has_memlet; /* without one it is about order only */
  dc_memlet memlet;
} dc_flow_edge;

typedef DC_VEC(const char *) dc_flow_names;

/* What a node is known by: it keeps its id when a flow is derived again. */
typedef struct {
  uint32_t kind, a, b, c; /* access: container, node that wrote it last, map around; else: graph node */
} dc_flow_key;

typedef struct {
  uint8_t kind; /* dc_flow_kind; 0: the node is gone */
  uint8_t schedule; /* entry: 0 default, 1 + dc_schedule */
  bool is_drafted;  /* added by an edit, not derived */
  uint32_t position; /* among nodes without a path between them */
  const char *label; /* access: the container's name */
  dc_flow_names in, out; /* connectors */
  DC_VEC(dc_eid) into, from;
  dc_fid other;     /* entry: its exit; exit: its entry */
  dc_fid scope;     /* the entry around; of drafts as of the last dc_flow_order */
  dc_flow_range *range;
  uint32_t n_ranges;
  const char *code;   /* tasklet: statements */
  const char *python; /* tasklet that was derived: its code as Python spells it; else NULL */
  dc_nid node; /* the graph's: what it was derived from or built as; of a library draft: what holds operator and attributes */
  uint32_t unit; /* what the graph has for it and for those with the same unit, as long as nobody edits one; 0: nothing yet */
  dc_flow_key key;
  dc_graph *inner; /* nested: the graph, owned ... */
  dc_flow_names symbol, value; /* ... and what its symbols are */
} dc_flow_node;

typedef struct {
  dc_arena arena;
  const char *name;           /* of the state */
  DC_VEC(dc_flow_node) nodes; /* [0] unused */
  DC_VEC(dc_flow_edge) edges; /* [0] unused */
  DC_VEC(dc_scope) units;     /* [0] unused: nodes of the state */
  bool is_draft;
} dc_flow;

/* Names of a library node's parameters, for its connectors: into at most `size` bytes; false past the last.  */
typedef struct {
  bool (*name)(void *context, const dc_graph *graph, dc_nid library, bool is_input, uint32_t k, char *out, size_t size);
  void *context;
} dc_flow_params;
extern const dc_flow_params dc_flow_numbered; /* "in_0", "out_0" */

void dc_flow_free(dc_flow *flow); /* not the struct itself */
uint32_t dc_flow_add_unit(dc_flow *flow, const dc_nid *nodes, uint32_t n); /* [derive, build] */

/* ---- looking ---- */

static inline dc_flow_node *dc_flow_at(const dc_flow *flow, dc_fid n) { return &flow->nodes.v[n]; }
static inline dc_flow_edge *dc_flow_edge_at(const dc_flow *flow, dc_eid e) { return &flow->edges.v[e]; }
static inline bool dc_flow_has(const dc_flow *flow, dc_fid n) { return n && n < flow->nodes.n && flow->nodes.v[n].kind; }
/* Nodes, sources first, else in the order of adding; an error names nodes of a circle, or an edge across scopes, and the
 * nodes come in the order of adding.  Also sets `scope` of each.  *order lives in `scratch`. */
DC_MUST_USE dc_status dc_flow_order(dc_flow *flow, dc_arena *scratch, dc_fid **order, uint32_t *n);
/* "tasklet 'mul'", into the scratch arena, for messages. */
const char *dc_flow_describe(const dc_flow *flow, dc_fid n, dc_arena *scratch);
const char *dc_flow_describe_edge(const dc_flow *flow, dc_eid e, dc_arena *scratch);
void dc_flow_print(const dc_flow *flow, const dc_graph *graph, dc_text *out);

/* ---- editing: makes a draft; texts are copied ---- */

dc_fid dc_flow_add(dc_flow *flow, dc_flow_kind kind, const char *label);
dc_fid dc_flow_add_tasklet(dc_flow *flow, const char *label, const char *code);
/* The exit is the entry's `other`. */
dc_fid dc_flow_add_map(dc_flow *flow, const char *label, const dc_flow_range *ranges, uint32_t n, uint32_t schedule);
/* The operator's node is made in the graph, in no scope yet. */
dc_fid dc_flow_add_library(dc_flow *flow, const char *label, dc_nid node);
dc_fid dc_flow_add_nested(dc_flow *flow, const char *label, dc_graph *inner); /* takes the graph */
void dc_flow_add_symbol(dc_flow *flow, dc_fid nested, const char *symbol, const char *value);
/* Takes the next free name where there is one already and `fresh` is set; returns the name. */
const char *dc_flow_connect(dc_flow *flow, dc_fid n, const char *name, bool is_input);
bool dc_flow_disconnect(dc_flow *flow, dc_fid n, const char *name, bool is_input); /* with its edges; false: there is none */
bool dc_flow_has_connector(const dc_flow *flow, dc_fid n, const char *name, bool is_input);
dc_eid dc_flow_join(dc_flow *flow, dc_fid src, const char *src_conn, dc_fid dst, const char *dst_conn, const dc_memlet *memlet);
void dc_flow_set_memlet(dc_flow *flow, dc_eid e, const dc_memlet *memlet); /* NULL: none */
void dc_flow_remove_edge(dc_flow *flow, dc_eid e);
void dc_flow_remove(dc_flow *flow, dc_fid n); /* with its edges; of a map the entry or the exit alone */
void dc_flow_touch(dc_flow *flow, dc_fid n);  /* the node was edited in place; 0: all were */

/* ---- between a flow and its graph ---- */

/* Makes the flow say what the state does; nodes of it that are still there keep their ids. */
DC_MUST_USE dc_status dc_flow_derive(dc_flow *flow, dc_graph *graph, uint32_t state, dc_flow_params params);
/* Puts a draft into the graph as the state; after an error the state is as before. */
DC_MUST_USE dc_status dc_flow_build(dc_flow *flow, dc_graph *graph, uint32_t state, dc_flow_params params);

/* ---- nested graphs ---- */

/* A container of the inner graph is this part of one of the outer graph, of the same rank but for points. */
typedef struct {
  dc_cid inner, outer;
  dc_box box;
} dc_inlined;

typedef struct {
  const char *name; /* a symbol of the inner graph */
  dc_ex value;      /* of the outer one; symbols that are not named stay symbols */
} dc_inlined_symbol;

/* Appends what the inner graph does to a scope.  Containers that are not mapped become containers of the outer graph, but
 * inputs must be mapped.  The inner graph stays as it is. */
DC_MUST_USE dc_status dc_graph_inline(dc_graph *graph, dc_scope *scope, const dc_graph *inner, const dc_inlined *containers, uint32_t n,
                                      const dc_inlined_symbol *symbols, uint32_t n_symbols);
/* The same with names and text: parts as memlets say them, or NULL for all of a container; values of symbols in the text
 * form; params are those of the maps around. */
typedef struct {
  const char *inner, *outer, *subset;
} dc_inlined_name;
DC_MUST_USE dc_status dc_graph_inline_named(dc_graph *graph, dc_scope *scope, const dc_graph *inner, const dc_inlined_name *containers,
                                            uint32_t n,
                                            const char *const *symbols, const char *const *values, uint32_t n_symbols);

#endif
