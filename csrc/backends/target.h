/* Targets as data: what graphs are scheduled for, which libraries may run operators, what makes nodes callable, and
 * where memory comes from.  A program knows its row and no target by name. */
#ifndef DCML_BACKENDS_TARGET_H
#define DCML_BACKENDS_TARGET_H

#include "backends/allocator.h"
#include "backends/backend.h"
#include "backends/native/library.h"

/* What a step sees of the run that it is part of. */
typedef struct {
  const dc_graph *graph;
  dc_nid node;
  const int64_t *symbols;
  void *const *by_container;
  void **buffers; /* of the step, in its order; [-1] is a place of its own */
  void *scratch;  /* memory of as many bytes as the step has asked for */
  const int64_t *part; /* NULL, or of a step that divides: the iterations, or channels, [part[0], part[1]) alone */
  void *stream;   /* NULL on the host */
} dc_step_frame;

/* A step that can be run.  run NULL: the target cannot. */
typedef struct {
  dc_status (*run)(const dc_step_frame *frame, const void *context);
  const void *context;
  const char *by; /* for reports */
  bool divides; /* of a kernel: may be run by parts */
} dc_step_call;

/* What a target that computes beside the host does besides.  All but `enter` is called between it and `leave`. */
typedef struct {
  dc_status (*enter)(const dc_target *target, bool *entered); /* makes the device the calling thread's */
  void (*leave)(const dc_target *target, bool entered);
  /* A prepared step under the values of symbols, before its first run with them. */
  dc_status (*bind)(const dc_step_call *prepared, const int64_t *symbols, uint32_t n_buffers, dc_arena *arena, dc_step_call *out);
  dc_status (*complaint)(void *state); /* what steps of earlier runs have found wrong since */
  void (*wait)(const dc_target *target); /* until nothing runs any more */
  void (*forget)(const dc_target *target, void *state); /* that `prepare` made for a program */
  /* Recordings of runs (replay.h): what is put on *stream until `recorded`, which fails where it cannot be kept. */
  dc_status (*record)(const dc_target *target, void **stream);
  dc_status (*recorded)(const dc_target *target, void *stream, bool failed, void **recording);
  dc_status (*start)(const dc_target *target, void *recording, void *stream);
  void (*drop)(const dc_target *target, void *recording);
  bool (*may_record)(const dc_target *target, void *stream); /* not while the caller records what is put on it */
  /* A point of a stream, and nanoseconds between two, which go then, once the later one is reached. */
  void *(*mark)(const dc_target *target, void *stream);
  double (*between)(const dc_target *target, void *from, void *to);
} dc_device_row;

typedef struct dc_target_row {
  const char *name;
  /* Both NULL where there may be several of a kind: then the target knows its own. */
  void (*machine)(dc_machine *out); /* asks it */
  const dc_allocator *memory;
  const dc_device_row *device; /* NULL: the host */
  const dc_native_library *const *natives; /* NULL at the end */
  /* What calls of libraries are bound for besides sizes, as it is now: bits of dc_mode of a device, threads of the processor. */
  uint32_t (*modes)(const dc_target *target);
  const dc_language *language;   /* that kernels are printed in after its passes; NULL: nothing is printed */
  const dc_toolchain *toolchain; /* that makes functions of the text */
  /* Can nodes be made callable by `prepare`?  NULL: yes.  May say on stderr, once, what is missing. */
  bool (*is_ready)(dc_jit *jit);
  /* Begins what `prepare` will be asked for with the same nodes, beside the caller, or takes that back.  NULL: nothing can be
   * begun. */
  dc_status (*begin)(const dc_target *target, const dc_graph *graph, const dc_nid *nodes, uint32_t n, void **state);
  void (*drop)(void *state);
  /* Makes nodes callable; those that it cannot are left to the interpreter, where that reads the memory.  What it makes
   * lies in the arena, and *state is the program's own: what was begun, or NULL before. */
  dc_status (*prepare)(const dc_target *target, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_arena *arena,
                       dc_step_call *calls, void **state);
} dc_target_row;

extern const dc_target_row dc_target_interpreter, dc_target_cpu, dc_target_cuda;

/* The row that serves a graph: worth_it says whether compiling is, where that is left to us. */
const dc_target_row *dc_target_choose(const dc_target *target, bool worth_it);

/* Steps that any target has: a native call, of which that is the context; a node under the interpreter; nothing at all. */
dc_step_call dc_step_native(const dc_native_call *call, const char *by);
extern const dc_step_call dc_step_interpreted, dc_step_empty;

#endif
