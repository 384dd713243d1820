/* dcml's C interface: everything that a binding or a C program needs, in the order of use.
 *
 *   dc_session_create   operators, native libraries, compiler cache: one for a process
 *   dc_onnx_import      or dc_graph_create and friends: a graph
 *   dc_function_create  a graph made callable; compiled on demand for the inputs it sees
 *   dc_call_begin       and the other dc_call_: one call */
#ifndef DCML_DCML_H
#define DCML_DCML_H

#include "backends/allocator.h"
#include "backends/backend.h"
#include "onnx/onnx.h"
#include "passes/pipeline.h"

typedef struct {
  dc_ops *ops;
  dc_natives *natives;
  dc_jit *jit;
  dc_workspace *workspace;
  dc_cuda *cuda; /* whose devices are opened when they are first used */
  dc_machine machine;
} dc_session;

/* library_folder: where native libraries may lie besides the system's places, or NULL.  spare_compiler: as for dc_jit_create. */
DC_MUST_USE dc_status dc_session_create(const char *library_folder, const char *spare_compiler, dc_session *out);
void dc_session_destroy(dc_session *session);

/* A caller's array.  Row-major contiguous; `data` of an output is filled in by the caller
 * between dc_call_output and dc_call_run. */
typedef struct {
  void *data;
  dc_dtype dtype;
  dc_device device; /* where data is ... */
  int32_t ordinal;  /* ... among several of a kind */
  const void *host; /* of what is on a device: the same contents on the host; NULL: there are none */
  uint32_t rank;
  int64_t dims[DC_MAX_RANK];
} dc_array;
uint64_t dc_array_bytes(const dc_array *array); /* of its contents */

typedef struct {
  bool training;            /* differentiate */
  bool as_expanded;         /* no fusion and no exchange of loops */
  bool results_stay;        /* the caller keeps results for the backward pass: those that it reads are not copied */
  const char *const *wrt;   /* names of inputs and parameters */
  uint32_t n_wrt;
  dc_keep keep;
  dc_backend_kind backend;
  const dc_allocator *memory; /* of the device, in place of the target's own; NULL: that one */
  const char *natives; /* libraries that may serve operators, as in dc_natives_stamp; NULL: all */
  dc_graph_hook post_onnx, post_autodiff, post_compile;
  void *hook_context;
  const dc_given_value *given; /* values of the graph that some of its inputs hold */
  uint32_t n_given;
} dc_function_options;

typedef struct dc_function dc_function;
/* Takes the graph. */
DC_MUST_USE dc_status dc_function_create(const dc_session *session, dc_graph *graph, const dc_function_options *options, dc_function **out);
void dc_function_destroy(dc_function *function);
const dc_function_options *dc_function_get_options(const dc_function *function);
/* The graphs of the plan that ran last, NULL before the first call. */
const dc_graph *dc_function_forward(const dc_function *function);
const dc_graph *dc_function_backward(const dc_function *function);

/* For reports: the program of the plan that ran last, NULL if there is none; and the number of plans compiled. */
const dc_graph *dc_function_graph(const dc_function *function); /* as given, before passes */
dc_program *dc_function_program(const dc_function *function, bool backward);
const dc_pass_times *dc_function_pass_times(const dc_function *function, bool backward); /* of that plan */
/* By argument: does one of the outputs depend on it?  outputs: by output of dc_function_graph. */
void dc_function_influences(const dc_function *function, const bool *outputs, bool *args);
/* Does the backward pass of the plan that ran last read the contents of this argument? */
bool dc_function_backward_reads(const dc_function *function, uint32_t arg);
uint32_t dc_function_plans(const dc_function *function);
/* As dc_program_observe, for all programs of the function, also those to come. */
void dc_function_observe(dc_function *function, dc_step_observer observer, void *context);

/* Is this argument an input that the graph writes?  Its array is changed in place, and no other may overlap it. */
bool dc_function_writes(const dc_function *function, uint32_t arg);

/* One call.  arrays: inputs in the graph's order, then parameters in container order. */
typedef struct dc_plan_s dc_plan_handle;
typedef struct {
  dc_function *function;
  dc_plan_handle *plan;
  dc_binding *forward, *backward;
  void **buffers; /* of the forward program, by container */
  uint32_t n_outputs;
  int32_t ordinal; /* of the device that it runs on, ... */
  void *stream;    /* ... on which all is put in order; NULL: its default one, and on the host */
} dc_call;

/* Compiles if needed, checks shapes and types (errors name the input), and binds sizes.  symbols: values by symbol of
 * dc_function_graph, DC_UNKNOWN where the extents of the arrays say it; NULL: they say all. */
#define DC_UNKNOWN INT64_MIN
DC_MUST_USE dc_status dc_call_begin(dc_function *function, const dc_array *arrays, uint32_t n, const int64_t *symbols, void *stream,
                                    dc_call *out);
void dc_call_output(const dc_call *call, uint32_t k, dc_array *out); /* type and dims; data NULL */
uint64_t dc_call_saved_bytes(const dc_call *call);
/* outputs[k]: buffers for the results; saved: dc_call_saved_bytes bytes. */
DC_MUST_USE dc_status dc_call_run(dc_call *call, void *const *outputs, void *saved);
/* The k-th gradient (of wrt k): false if it is identically zero, else type and dims. */
bool dc_call_gradient(const dc_call *call, uint32_t k, dc_array *out);
/* Names the plan that serves the call, among those of the function. */
uint32_t dc_call_plan(const dc_call *call);
/* The backward pass runs in parts, each of which completes some gradients.  How many there are; the part that completes
 * the k-th gradient; and whether a part reads the contents of an argument. */
uint32_t dc_call_parts(const dc_call *call);
uint32_t dc_call_ready(const dc_call *call, uint32_t k);
bool dc_call_reads(const dc_call *call, uint32_t part, uint32_t arg);
/* ... and of the k-th result, which then has to stay as it was. */
bool dc_call_reads_result(const dc_call *call, uint32_t part, uint32_t k);
/* The floating output whose gradient is the k-th gradient, element for element; -1: none. */
int32_t dc_call_copied(const dc_call *call, uint32_t k);
/* Calls of one kind share the graph of dc_call_derivative. */
uint32_t dc_call_derivative_kind(const dc_call *call, bool shares);
/* The gradients of the call as a graph: its inputs are the function's, then the gradients of the outputs that are `given`
 * one, its parameters the function's, its outputs the `wanted` gradients.  given: by output; wanted: by wrt.
 * shares: values that the call has saved are inputs too, behind all others: the last n_shared of out->given. */
typedef struct {
  dc_graph *graph;
  const dc_given_value *given; /* in the graph's memory, or the function's */
  uint32_t n_given, n_shared;
} dc_derivative;
DC_MUST_USE dc_status dc_call_derivative(const dc_call *call, const bool *given, const bool *wanted, bool shares, dc_derivative *out);
/* Where the saved block has a value, by its name in the function's graph: type, dims and offset. */
void dc_call_saved(const dc_call *call, dc_cid c, dc_array *out, uint64_t *offset);
void dc_call_end(dc_call *call); /* releases what dc_call_begin took */

/* One backward pass; a call may have several, also at once, and outlives them; after one that `spoils` saved, there is no
 * other: what it computes may lie where saved values were.  grad_outputs[k] for each floating output in order; arrays as
 * given to dc_call_begin; results[k]: those of the call, where a part reads them.  Before each part: give a buffer for every gradient k that `needs` names.
 * After it: the gradients for which dc_call_ready names it are final, and the pass does not touch them again.
 * stream: the pass's own, of the device of the call. */
typedef struct dc_backward_run dc_backward_run;
DC_MUST_USE dc_status dc_backward_begin(const dc_call *call, const dc_array *arrays, void *const *results, void *const *grad_outputs,
                                        void *saved, bool spoils, void *stream, dc_backward_run **out);
bool dc_backward_done(const dc_backward_run *run); /* no part is left */
bool dc_backward_needs(const dc_backward_run *run, uint32_t k);
uint32_t dc_backward_part(const dc_backward_run *run); /* the one that runs next */
void dc_backward_give(dc_backward_run *run, uint32_t k, void *data);
/* The caller gives as a gradient what dc_call_copied names instead of having it copied: those gradients need no buffer. */
void dc_backward_share_given(dc_backward_run *run);
DC_MUST_USE dc_status dc_backward_next(dc_backward_run *run);
void dc_backward_end(dc_backward_run *run); /* NULL is allowed */

#endif
