/* Backends: from a scheduled graph to a Program that runs without Python.
 *
 * A Program is compiled once for a graph whose shapes may hold symbols.  Binding it to symbol
 * values gives sizes, offsets and library descriptors (cached per value tuple); running a
 * binding touches caller buffers, one arena and one saved block.
 * `interp` evaluates the IR directly: the oracle, and what needs no compiler.  `cpu` emits C. */
#ifndef DCML_BACKENDS_BACKEND_H
#define DCML_BACKENDS_BACKEND_H

#include "ops/ops.h"

typedef struct dc_program dc_program;
typedef struct dc_workspace dc_workspace; /* workspace.h */
typedef struct dc_cuda dc_cuda;           /* cuda/device.h: the GPUs of this machine ... */
typedef struct dc_gpu dc_gpu;             /* ... and one of them */

/* What callers allow libraries of a device, as torch has switches for it: products and convolutions of f32 whose operands
 * are rounded to 10 bits of mantissa. */
typedef enum { DC_MODE_TF32_PRODUCTS = 1, DC_MODE_TF32_CONVOLUTIONS = 2 } dc_mode;

/* Native libraries, opened at run time. */
typedef struct dc_natives dc_natives;
typedef struct dc_native_library dc_native_library; /* native/library.h */
/* list: of a target, NULL at its end.  mask is DCML_NATIVE: "none", "openblas", "onednn" or a comma list; NULL: all that
 * load.  folder: where libraries may lie besides the system's places; NULL: nowhere.  place: what of a device they work on
 * (cuda/natives.h), for which they are opened at once; NULL: the host, where each is once a node asks for it. */
DC_MUST_USE dc_status dc_natives_create(const dc_native_library *const *list, const char *mask, const char *folder, const void *place,
                                        dc_natives **out);
/* Adds a library that is open, which runs the nodes that wish for it by name. */
void dc_natives_add(dc_natives *natives, const dc_native_library *library, void *handle);
void dc_natives_destroy(dc_natives *natives);
/* Stamps a library node with the native that runs it, and why others do not (dc_library.by, why).  only: a mask as above;
 * NULL: any that is loaded; a wish of the node's own (dc_node_wish) comes first.  natives may be NULL. */
void dc_natives_stamp(const dc_natives *natives, dc_ops *ops, dc_graph *graph, dc_nid node, const char *only);

/* One native call of the library that the node is stamped with, bound to shapes, or of one that is faster for them, unless
 * `only`, as above, or the node's wish says who is to run it.  buffers: inputs then outputs in the
 * node's order (NULL: absent). */
typedef struct dc_native_call dc_native_call;
DC_MUST_USE dc_status dc_native_bind(const dc_natives *natives, const char *only, dc_graph *graph, dc_nid node,
                                     const int64_t *symbol_values, dc_native_call **out);
/* Multiplications that a node comes to which a native serves. */
double dc_native_steps(const dc_graph *graph, dc_nid node, const int64_t *symbol_values);
const char *dc_native_name(const dc_native_call *call); /* of the library that runs it: another than stamped where that is faster */
uint64_t dc_native_scratch(const dc_native_call *call); /* bytes of memory of its own that a run wants */
DC_MUST_USE dc_status dc_native_run(dc_native_call *call, void *const *buffers, void *scratch, void *stream);
void dc_native_call_destroy(dc_native_call *call);
/* Channels of which a call computes each by itself.  axes: by buffer, the dimension along which they lie, or as in chains.h; as
 * many as the node has buffers, which the caller sets to DC_AXIS_UNUSED. */
typedef struct {
  int64_t extent;
  int8_t *axes;
} dc_division;
bool dc_native_divides(const dc_native_call *call, dc_division *out);
uint64_t dc_native_part_scratch(const dc_native_call *call); /* bytes that a part wants */
/* Runs channels [part[0], part[1]) on the calling thread. */
void dc_native_run_part(const dc_native_call *call, void *const *buffers, void *scratch, const int64_t *part);

/* Compiled kernels of the cpu backend: one function per top-level map or tasklet of a state.
 * buffers[-1] is an int64_t *error: a kernel whose data-dependent index leaves its container stores
 * 1 + the ordinal of the tasklet (in dc_node_tasklets order) there, and never touches memory outside;
 * the caller zeroes it before and checks it after.  Buffers must not overlap unless their containers
 * are views of one another, except that a map without nested maps may write over an input that it
 * reads only at the element that it writes.  part: NULL, or of a kernel that can be divided the iterations [part[0], part[1])
 * of its outermost loop, which the calling thread runs alone. */
typedef void (*dc_kernel_fn)(void *const *buffers, const int64_t *symbols, const int64_t *part);
/* What a node was compiled to: a dc_kernel_fn; on a device of many threads functions that are launched (kernel/launch.h),
 * of which it is the first.  Lives as long as the jit.  Both NULL: the language lacks one of the node's types. */
typedef struct {
  void *function;
  const struct dc_launches *launches;
  bool divides; /* its outermost loop, of the node's first parameter, is all that it is */
} dc_compiled;
static inline dc_kernel_fn dc_compiled_fn(dc_compiled c) { return (dc_kernel_fn)(uintptr_t)c.function; }
typedef struct dc_jit dc_jit; /* compiler, cache folder, loaded modules */
typedef struct dc_language dc_language;   /* jit/emit.h */
typedef struct dc_toolchain dc_toolchain; /* jit/toolchain.h */
/* context: the toolchain's own, which outlives the jit, or NULL.  cache_dir NULL: $DCML_CACHE or the user's cache folder.  spare_compiler: the program `zig`, for where the system has
 * no C compiler, or NULL.  A missing compiler is not an error here. */
DC_MUST_USE dc_status dc_jit_create(const dc_language *language, const dc_toolchain *tools, void *context, const char *cache_dir,
                                    const char *spare_compiler, dc_jit **out);
void dc_jit_destroy(dc_jit *jit);
const char *dc_jit_compiler(const dc_jit *jit); /* the program, NULL if there is none */
const char *dc_jit_folder(const dc_jit *jit, bool *lasts); /* of the cache; lasts: longer than this process */
bool dc_jit_available(const dc_jit *jit, const char **why);
/* The same for who is about to compile: what is missing is said on stderr, once. */
bool dc_jit_ready(dc_jit *jit);
/* Compiles nodes[k] of the graph into kernels[k].
 * buffers of kernel k are the containers dc_kernel_buffers gives for that node, in that order; symbols is indexed by
 * dc_sym. */
DC_MUST_USE dc_status dc_jit_compile(dc_jit *jit, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_compiled *kernels);
/* The same in two steps, between which compilers run beside the caller.  Neither graph nor nodes are looked at any more by the
 * second, which takes the batch. */
typedef struct dc_batch dc_batch;
DC_MUST_USE dc_status dc_jit_begin(dc_jit *jit, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_batch **out);
DC_MUST_USE dc_status dc_jit_end(dc_batch *batch, dc_compiled *kernels);
void dc_jit_drop(dc_batch *batch); /* instead, where nothing of it is wanted; NULL: nothing */
/* Containers that a kernel takes, without REGISTER ones and with aliases resolved by the caller. */
const dc_cid *dc_kernel_buffers(const dc_graph *graph, dc_nid node, dc_arena *arena, uint32_t *n);

/* The interpreter: runs one node (map, tasklet) on buffers indexed by container id.  What is prepared lies in the arena, reads the
 * graph, takes room for all its expressions, and may be run by several threads at once: one of them finds the
 * room that the last run was in. */
typedef struct dc_interp dc_interp;
DC_MUST_USE dc_status dc_interp_prepare(const dc_graph *graph, dc_nid node, dc_arena *arena, dc_interp **out);
DC_MUST_USE dc_status dc_interp_run(dc_interp *prepared, void *const *buffers_by_cid, const int64_t *symbols);
DC_MUST_USE dc_status dc_interp_node(const dc_graph *graph, dc_nid node, void *const *buffers_by_cid, const int64_t *symbols);

/* Programs. */
/* AUTO: compiled before the first run, but for a few scalars without a loop and where there is no compiler.  What each
 * comes to is a row of target.h. */
typedef enum { DC_BACKEND_AUTO, DC_BACKEND_INTERP, DC_BACKEND_CPU, DC_BACKEND_CUDA } dc_backend_kind;
typedef struct {
  dc_ops *ops;
  dc_natives *natives; /* may be NULL */
  dc_jit *jit;         /* may be NULL: interp only */
  dc_backend_kind backend;
  dc_workspace *workspace; /* may be NULL: then programs keep memory of their own */
  const struct dc_allocator *memory; /* where they get it; NULL: what the row of the target has */
  dc_gpu *gpu; /* of DC_BACKEND_CUDA, with its memory, natives and jit above */
  const char *only; /* of the natives, those that were asked for, as in dc_natives_stamp */
} dc_target;
/* Takes the graph (fully scheduled; library nodes left in it are native calls); the program keeps it. */
DC_MUST_USE dc_status dc_program_create(const dc_target *target, dc_graph *graph, dc_program **out);
void dc_program_destroy(dc_program *program);
/* Begins, beside the caller, what the first run waits for. */
DC_MUST_USE dc_status dc_program_begin(dc_program *program);
dc_graph *dc_program_graph(const dc_program *program);

/* The block that a forward program has filled, as the program of its backward pass sees it: where the containers lie that
 * the latter reads.  What it has read for the last time makes room for what it computes. */
typedef struct {
  uint64_t bytes;
  uint32_t n;
  struct dc_lent_value {
    dc_cid c;
    uint64_t offset;
  } *v;
} dc_lent;

/* Plans memory and binds natives for symbol values (indexed by dc_sym) and what is lent, or NULL; cached. */
typedef struct dc_binding dc_binding;
DC_MUST_USE dc_status dc_program_bind(dc_program *program, const int64_t *symbol_values, const dc_lent *lent, dc_binding **out);
/* Would another bind for the sizes of the last one be that one?  Not once threads, or what a device allows, have changed. */
bool dc_program_is_bound(const dc_program *program);
/* Each bind is paired with a release; a binding without users may be evicted.  use() is a bind to what is bound already. */
void dc_binding_use(dc_binding *binding);
void dc_binding_release(dc_binding *binding);
uint64_t dc_binding_bytes(const dc_binding *binding, dc_cid c); /* size of a container */
uint64_t dc_binding_arena_bytes(const dc_binding *binding);
double dc_binding_work(const dc_binding *binding); /* element operations of a run, estimated */
/* A run takes microseconds and compiles nothing: letting other threads run meanwhile is not worth a lock. */
bool dc_binding_is_brief(const dc_binding *binding);
/* Concrete extents of a container under a binding; rank values. */
void dc_binding_dims(const dc_binding *binding, dc_cid c, int64_t *dims);
/* Bytes of the saved block that a forward program fills (0: none), and where in it a SAVED container lies. */
uint64_t dc_binding_saved_bytes(const dc_binding *binding);
uint64_t dc_binding_saved_offset(const dc_binding *binding, dc_cid c);
/* Runs.  buffers: by container id, for INPUT, PARAM, CONST (filled by the program when NULL) and outputs;
 * SAVED containers of a forward program are set by the program to saved + offset; for a backward
 * program the caller sets them.  saved: the block; for a backward program the one that is lent, which the run spoils, or NULL
 * to leave it as it is.  stream: of the target's device, on which all is put in order; NULL: its default one, and
 * on the host.  Thread-safe: each run takes an arena from the program's pool. */
DC_MUST_USE dc_status dc_program_run(dc_program *program, dc_binding *binding, void *stream, void **buffers, void *saved);

/* The same in pieces: begin; then place and until, as often as there are pieces; then end.  Buffers that earlier steps
 * do not touch may be NULL until the place before a step that does.  Steps count from 0, in the order of the nodes of
 * all states; `until` runs those before `end`. */
typedef struct {
  dc_binding *binding;
  struct dc_run_state *state;
  void *saved;
  uint32_t step;
} dc_run;
DC_MUST_USE dc_status dc_run_begin(dc_program *program, dc_binding *binding, void *stream, void *saved, dc_run *out);
void dc_run_place(dc_run *run, void *const *buffers);
DC_MUST_USE dc_status dc_run_until(dc_run *run, uint32_t end);
void dc_run_end(dc_run *run);

/* For reports: the steps of a program under the binding used last, and where its containers lie. */
typedef struct {
  dc_nid node;
  const char *by;    /* name of the native library, "compiled" or "interpreted" */
  const char *why;   /* of a library's node: why those before in the row's list do not run it; or "" */
  double operations; /* scalar operations; of a library call, those of its definition */
  uint64_t bytes;    /* of the containers that it reads and writes */
  double seconds;    /* spent in it while timing was on ... */
  uint64_t runs;     /* ... in that many runs */
  uint32_t chained;  /* so many steps, from this one on, run some channels at a time (chains.h); 0: none do */
  int64_t channels, at_once; /* of those */
} dc_step_report;
/* LENT: for a while in the saved block.  KEPT: made once, in memory of the program's own. */
typedef enum { DC_PLACE_CALLER, DC_PLACE_ARENA, DC_PLACE_SAVED, DC_PLACE_VIEW, DC_PLACE_LENT, DC_PLACE_KEPT } dc_place;
dc_binding *dc_program_recent(const dc_program *program); /* NULL before the first bind */
uint32_t dc_program_report(const dc_program *program, dc_step_report *out, uint32_t capacity); /* returns the number of steps */
dc_place dc_binding_place(const dc_binding *binding, dc_cid c, uint64_t *offset);
/* Starts timing each step, from zero, or stops it. */
void dc_program_time(dc_program *program, bool on);
/* Calls `observer` before and after each step from now on, from the thread that runs it; NULL ends it. */
typedef void (*dc_step_observer)(void *context, const dc_graph *graph, dc_nid node, bool begins);
void dc_program_observe(dc_program *program, dc_step_observer observer, void *context);
#endif
