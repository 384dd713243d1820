/* The IR: a stateful dataflow graph, the same from import to code generation.
 *
 * A Graph owns containers (arrays), an expression pool, nodes, and states.  A state is a
 * scope: an ordered list of nodes, one valid topological order of its dataflow DAG.  The
 * edges of the DAG are memlets: the READ leaves inside expressions and index lists (in) and
 * a tasklet's written element (out); library nodes touch whole containers.  Edges and access
 * nodes are therefore derived (dc_node_uses), never stored twice.
 *
 * Node kinds:
 *   LIBRARY  an operator with attributes, input and output containers (0: absent optional);
 *            with `wrt` > 0 it is the derived gradient of that operator (see below)
 *   MAP      parameters with ranges, a schedule, and a body scope
 *   TASKLET  if guard: out[index] (=, or wcr=) value
 * A REDUCE map sets every element that its body writes with a WCR to the WCR's identity when
 * it is entered, so the text
 *     map i in 0:M, j in 0:N { reduce k in 0:K { C[i, j] sum= A[i, k] * B[k, j] } }
 * is a matrix product.  A WCR write outside a REDUCE map accumulates into what is there.
 * Overwriting is allowed (a container may have several writers); order decides.
 *
 * All lists live in the graph's arena; ids are stable; 0 is none. */
#ifndef DCML_IR_GRAPH_H
#define DCML_IR_GRAPH_H

#include "base/machine.h"
#include "base/status.h"
#include "expr/expr.h"

/* What a graph may hold.  Whoever makes a container or a map keeps to it and the verifier checks it, so that code
 * which is given a graph may size its arrays by these. */
enum {
  DC_MAX_RANK = 64,               /* dimensions of a container, as in NumPy */
  DC_MAX_LOOPS = 4 * DC_MAX_RANK, /* parameters of a map and of all maps around it; a map without any counts as one */
};

typedef uint32_t dc_cid; /* container id */
typedef uint32_t dc_nid; /* node id */

typedef enum {
  DC_ROLE_TEMP,   /* transient: written before read, planned into the arena */
  DC_ROLE_INPUT,  /* given at each call; nodes that write it change the caller's array, in place */
  DC_ROLE_PARAM,  /* given at each call by the owner of the weights; may have initial data */
  DC_ROLE_CONST,  /* data fixed in the graph */
  DC_ROLE_SAVED,  /* forward graph: written into the call's saved block; backward: read from it */
} dc_role;

typedef enum {
  DC_STORE_HEAP,     /* addressable memory */
  DC_STORE_REGISTER, /* a scalar (or small fixed array) local to one iteration of the map that holds all its uses */
} dc_storage;

/* Where memory is. */
typedef enum { DC_HOST, DC_CUDA, DC_DEVICE_COUNT } dc_device;

/* An element of a constant of type DC_STRING. */
typedef struct {
  const char *s;
  uint64_t n;
} dc_string;

typedef struct {
  dc_name name;    /* unique in the graph */
  uint8_t dtype;   /* dc_dtype */
  uint8_t role;    /* dc_role */
  uint8_t storage; /* dc_storage */
  uint8_t device;  /* dc_device, where its memory is */
  bool is_output;  /* also a result of the graph (position in graph->outputs) */
  bool is_host;    /* a sequence, an optional or a map: only the host holds it; rank is 0 */
  bool is_once;    /* of a program: what writes it reads constants alone and runs before the first run; its buffer stays */
  bool is_claimed; /* its shape is only said to be that of what nodes compute: inference replaces it */
  uint32_t rank;
  dc_ex *shape;   /* rank i64 expressions over symbols and constants only */
  dc_ex *strides; /* elements; NULL: row-major contiguous */
  dc_cid alias_of; /* 0, or the container whose buffer this one views ... */
  dc_ex alias_offset; /* ... from this element on (0: start); both row-major contiguous, or of one shape and layout */
  const void *data;   /* CONST always, PARAM perhaps: row-major contents, not owned unless in the arena */
  uint64_t data_bytes;
  dc_ex *known;   /* element values as i64 expressions, for small integer tensors that carry shapes; or NULL */
  uint32_t known_count;
} dc_container;

typedef enum {
  DC_ATTR_INT = 1,
  DC_ATTR_FLOAT,
  DC_ATTR_STRING,
  DC_ATTR_TENSOR, /* a CONST container id in .i */
  DC_ATTR_GRAPH,  /* a subgraph id in .i (graph->subgraphs) */
  DC_ATTR_INTS,
  DC_ATTR_FLOATS,
  DC_ATTR_STRINGS,
} dc_attr_kind;

typedef struct {
  dc_name name;
  uint8_t kind; /* dc_attr_kind */
  uint32_t n;   /* for lists */
  union {
    int64_t i;
    double f;
    const char *s; /* in the arena; length in n, may hold zeros */
    int64_t *ints;
    double *floats;
    const char **strings;
  };
} dc_attr;

typedef enum { DC_NODE_LIBRARY = 1, DC_NODE_MAP, DC_NODE_TASKLET } dc_node_kind;

typedef enum { DC_WCR_NONE, DC_WCR_SUM, DC_WCR_PROD, DC_WCR_MIN, DC_WCR_MAX } dc_wcr;

typedef enum {
  DC_MAP_PARALLEL,   /* iterations are independent */
  DC_MAP_SEQUENTIAL, /* iterations run in order and may read what earlier ones wrote */
  DC_MAP_REDUCE,     /* iterations combine by WCR, in any order, from the identity */
  DC_MAP_SCATTER,    /* iterations may write the same element by WCR (or any one wins): atomics or one thread */
} dc_schedule;

typedef DC_VEC(dc_nid) dc_scope;

typedef struct {
  dc_name op, domain; /* domain: 0 for ai.onnx */
  int since;          /* the row's version */
  uint32_t n_in, n_out, n_attr;
  dc_cid *in, *out;
  dc_attr *attr;
  /* wrt = 0: the operator itself.  wrt = k+1: its gradient with respect to input k; then
   * in = forward inputs (n_fwd_in) ++ forward outputs (n_fwd_out) ++ gradients of those
   * outputs (n_fwd_out; 0 where none), and out = { gradient of input k }. */
  uint32_t wrt, n_fwd_in, n_fwd_out;
  /* Which native library runs it, and why those before in the row's list do not; both 0: nobody has chosen yet. */
  dc_name by, why;
} dc_library;

typedef struct {
  uint8_t schedule; /* dc_schedule */
  uint32_t n_params;
  dc_param *params;
  dc_scope body;
} dc_map;

typedef struct {
  dc_cid out;
  uint8_t wcr; /* dc_wcr */
  uint32_t rank;
  dc_ex *index;
  dc_ex guard; /* bool; 0: always */
  dc_ex value; /* converted to the container's type on store */
} dc_tasklet;

typedef struct {
  uint8_t kind; /* dc_node_kind */
  dc_name name; /* the model's node name, for messages; may be 0 */
  dc_name tag_op; /* the operator that this came from, 0 if none ... */
  uint32_t tag_wrt; /* ... and 0 for its forward, k+1 for the gradient of input k */
  union {
    dc_library lib;
    dc_map map;
    dc_tasklet tasklet;
  };
} dc_node;

typedef struct {
  dc_name name;
  dc_scope scope;
} dc_state;

/* Two extents that shape inference took for the same number: whoever gives symbols values checks it. */
typedef struct {
  dc_ex a, b;
  bool broadcast; /* one of them may also be 1 */
} dc_equality;

typedef struct dc_graph {
  dc_arena arena;
  dc_names names;
  dc_pool pool;
  dc_name name;
  int opset; /* ai.onnx opset of the model, for operators added later */
  dc_machine machine; /* what it is scheduled for */
  DC_VEC(dc_container) containers; /* [0] unused */
  DC_VEC(dc_cid) named;            /* by name: a container that had it when it was added or renamed */
  DC_VEC(dc_node) nodes;           /* [0] unused */
  DC_VEC(dc_state) states;         /* run in order */
  DC_VEC(dc_cid) inputs;           /* INPUT containers in call order */
  DC_VEC(dc_cid) outputs;
  DC_VEC(dc_equality) equalities;
  DC_VEC(struct dc_graph *) subgraphs; /* owned; bodies of If, Loop, Scan */
  DC_VEC(dc_cid) captures; /* of a subgraph: containers of the outer graph that its last inputs stand for */
  uint32_t references;     /* one for the creator, one for each living clone */
  bool trained;            /* it has a backward pass or is one: parameters will be others in its next run */
  struct dc_graph *origin; /* what this was cloned from, kept alive for its constant data; or NULL */
  void (*release)(void *owner); /* called when the graph is destroyed, e.g. to drop a file mapping */
  void *owner;
} dc_graph;

/* Creation and destruction. */
dc_graph *dc_graph_create(const char *name);
void dc_graph_destroy(dc_graph *graph); /* drops the creator's reference; NULL is allowed */
dc_graph *dc_graph_clone(const dc_graph *graph); /* deep, ids preserved; constant data is shared and kept alive */

/* Containers.  The name is made unique by a suffix if it is taken. */
dc_cid dc_container_add(dc_graph *graph, const char *name, dc_dtype type, uint32_t rank, const dc_ex *shape, dc_role role);
dc_cid dc_container_add_const(dc_graph *graph, const char *name, dc_dtype type, uint32_t rank, const int64_t *dims,
                              const void *data, uint64_t data_bytes); /* copies data */
/* A temporary named after another, `like_suffix`: of a type and shape of its own, or of the other's. */
dc_cid dc_container_after(dc_graph *graph, dc_cid like, const char *suffix, dc_dtype type, uint32_t rank, const dc_ex *shape);
dc_cid dc_container_like(dc_graph *graph, dc_cid like, const char *suffix);
dc_cid dc_container_find(const dc_graph *graph, const char *name); /* 0 if absent */
void dc_container_rename(dc_graph *graph, dc_cid c, const char *name); /* the caller knows that the name is free */
static inline dc_container *dc_cont(const dc_graph *graph, dc_cid c) { return &graph->containers.v[c]; }
void dc_container_forget(dc_graph *graph, dc_cid c); /* nobody uses it: from now on it has no name, and is not printed */
const char *dc_cont_name(const dc_graph *graph, dc_cid c);
const char *dc_device_name(dc_device device);
dc_cid dc_container_root(const dc_graph *graph, dc_cid c); /* the container whose buffer it is: itself, or what it views in the end */
/* All extents constant: writes rank values and returns true. */
bool dc_container_dims(const dc_graph *graph, dc_cid c, int64_t *dims);
/* A constant of one whole number, i64 or i32; false if it is none. */
bool dc_container_number(const dc_graph *graph, dc_cid c, int64_t *out);
void dc_graph_mark_output(dc_graph *graph, dc_cid c);
void dc_graph_take_equal(dc_graph *graph, dc_ex a, dc_ex b); /* notes the equality, once */
void dc_graph_take_broadcast(dc_graph *graph, dc_ex a, dc_ex b); /* the same of extents that are broadcast */

/* Nodes: made here, placed by pushing the id onto a scope. */
dc_nid dc_node_library(dc_graph *graph, const char *op, const char *domain, int since, const dc_cid *in, uint32_t n_in,
                       const dc_cid *out, uint32_t n_out, const dc_attr *attr, uint32_t n_attr);
dc_nid dc_node_map(dc_graph *graph, dc_schedule schedule, const dc_param *params, uint32_t n_params);
dc_nid dc_node_tasklet(dc_graph *graph, dc_cid out, dc_wcr wcr, const dc_ex *index, uint32_t rank, dc_ex guard, dc_ex value);
static inline dc_node *dc_node_at(const dc_graph *graph, dc_nid n) { return &graph->nodes.v[n]; }
/* NB: node and container pointers move when nodes or containers are added; hold ids. */
/* A map around one node, with the node's origin; the node itself where there are no loops and nothing to reduce. */
dc_nid dc_node_wrap(dc_graph *graph, dc_schedule schedule, const dc_param *params, uint32_t n, dc_nid inner);
void dc_scope_push(dc_graph *graph, dc_scope *scope, dc_nid node);
dc_nid dc_node_copy(dc_graph *graph, dc_cid from, dc_cid to); /* map x.. { to[x..] = from[x..] } */
dc_scope *dc_graph_scope(dc_graph *graph); /* the scope of the last state; a first state is made on demand */
dc_state *dc_state_add(dc_graph *graph, const char *name);
/* Deep copy of a node into the same graph with fresh parameters. */
dc_nid dc_node_clone(dc_graph *graph, dc_nid node);
void dc_node_take_origin(dc_graph *graph, dc_nid to, dc_nid from); /* its name, and the operator that it was made for */
bool dc_map_holds_maps(const dc_graph *graph, const dc_map *map); /* directly */
/* "node 'conv1' (Conv)" into the graph's arena, for messages. */
const char *dc_node_describe(dc_graph *graph, dc_nid node);

/* Attributes of a library node. */
const dc_attr *dc_node_attr(const dc_graph *graph, dc_nid node, const char *name); /* NULL if absent */
int64_t dc_node_attr_int(const dc_graph *graph, dc_nid node, const char *name, int64_t fallback);
/* Attributes whose names begin with __ are wishes how the node be run: operators do not know them, files do not hold them. */
bool dc_attr_is_wish(const dc_graph *graph, const dc_attr *attr);
/* Who is to run the node ("pure", "native" or a library), NULL: nobody said.  Of a gradient node, who is to run that. */
const char *dc_node_wish(const dc_graph *graph, dc_nid node);
dc_attr dc_attr_int(dc_graph *graph, const char *name, int64_t value);
dc_attr dc_attr_float(dc_graph *graph, const char *name, double value);
dc_attr dc_attr_string(dc_graph *graph, const char *name, const char *value, size_t length);
dc_attr dc_attr_ints(dc_graph *graph, const char *name, const int64_t *values, uint32_t n);
dc_attr dc_attr_floats(dc_graph *graph, const char *name, const double *values, uint32_t n);

/* Dataflow: calls `visit` for each container that the node (and its body) reads or writes;
 * a WCR write outside a REDUCE map is both.  Order: reads of a tasklet, then its write. */
typedef enum { DC_USE_READ = 1, DC_USE_WRITE = 2 } dc_use;
typedef void (*dc_use_fn)(void *context, dc_cid container, dc_use use, dc_nid by);
void dc_node_uses(const dc_graph *graph, dc_nid node, dc_use_fn visit, void *context);
/* Does a map or tasklet do the same in every run if what it reads is the same: it is neither random nor a matter of sizes? */
bool dc_node_is_fixed(const dc_graph *graph, dc_nid node);
/* By dc_container_root: does the node use (DC_USE_READ, DC_USE_WRITE or both) a buffer of a set; adds what it uses to one. */
bool dc_node_touches(const dc_graph *graph, dc_nid node, unsigned uses, const bool *buffers);
void dc_node_mark(const dc_graph *graph, dc_nid node, unsigned uses, bool *buffers);
/* The same for one buffer. */
bool dc_node_touches_one(const dc_graph *graph, dc_nid node, unsigned uses, dc_cid buffer);
/* By buffer: how many nodes of all states write it, and the place of the last one among all nodes, from 1 on.  `out` has
 * an entry for each container, zero before. */
typedef struct {
  uint32_t n, last;
} dc_writers;
void dc_graph_writers(const dc_graph *graph, dc_writers *out);
/* What nobody uses views nothing: a buffer that becomes smaller leaves no view that is larger. */
void dc_graph_drop_unused_views(dc_graph *graph);
bool dc_graph_writes_inputs(dc_graph *graph); /* in place, that is: into arrays of the caller's */
/* A library node may write what it reads (as two of its operands, or by a view): then a copy of its own is what it
 * writes, and a map behind it copies that.  Operators may write their results before they have read all operands. */
void dc_scope_separate(dc_graph *graph, dc_scope *scope);
/* The scope of every state anew: `put` pushes what stands for a map, or the map itself; other nodes stay where they are. */
typedef dc_status (*dc_map_fn)(void *context, dc_graph *graph, dc_nid map, dc_scope *out);
DC_MUST_USE dc_status dc_graph_each_map(dc_graph *graph, dc_map_fn put, void *context);
/* Visits every tasklet under a node with the enclosing maps, outermost first. */
typedef dc_status (*dc_tasklet_fn)(void *context, dc_nid tasklet, const dc_nid *maps, uint32_t n_maps);
DC_MUST_USE dc_status dc_node_tasklets(const dc_graph *graph, dc_nid node, dc_tasklet_fn visit, void *context);
/* Rewrites all expressions under a node (ranges, indices, guards, values) by `leaf`. */
void dc_node_rewrite(dc_graph *graph, dc_nid node, dc_leaf_fn leaf, void *context);
/* Replaces an expression that stands by itself (an element read, say) by a value in all of them. */
void dc_node_forward(dc_graph *graph, dc_nid node, dc_ex element, dc_ex value);
/* What a node, and all under it, reads and writes of container `from` becomes `to`, of the same rank. */
void dc_node_rename(dc_graph *graph, dc_nid node, dc_cid from, dc_cid to);
/* Replaces a parameter by an expression in all of them. */
void dc_node_substitute(dc_graph *graph, dc_nid node, dc_param param, dc_ex value);

/* Text form: prints losslessly, parses back (equal text after a round trip). */
void dc_graph_print(const dc_graph *graph, dc_text *out);
void dc_ex_print(const dc_graph *graph, dc_ex e, dc_text *out);
void dc_name_print(const char *name, dc_text *out); /* in quotes where it is no identifier */
DC_MUST_USE dc_status dc_graph_parse(const char *text, dc_graph **out);
/* Parses symbols, temps, inputs, equal extents and nodes in the graph's names, and appends the nodes to a state (0 is made on demand), with
 * accesses as dc_node_bound leaves them.  On an error the state is as before; what was declared until then stays. */
DC_MUST_USE dc_status dc_graph_append(dc_graph *graph, uint32_t state, const char *text);
/* Accesses whose indices are not proven to lie inside their containers: they count from the end where they are negative, as
 * in Python; what is outside then is read at the nearest element and not written. */
void dc_node_bound(dc_graph *graph, dc_nid node);

/* The rules of a well-formed graph, a table in verify.c; an error names the broken rule.  Among them:
 * a register is written before it is read; the elements that a REDUCE map combines into stay in
 * place while it runs, and inside it nobody reads or overwrites them; a REDUCE map inside another
 * has its result read there. */
DC_MUST_USE dc_status dc_graph_verify(const dc_graph *graph);

double dc_wcr_identity(dc_wcr wcr, dc_dtype type); /* as a value of the compute type */
dc_op dc_wcr_prim(dc_wcr wcr); /* the primitive that combines two values; not for DC_WCR_NONE */
const char *dc_wcr_name(dc_wcr wcr);

#endif
