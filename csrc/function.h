/* What function.c (plans and forward) and backward.c (the backward pass of a call) share. */
#ifndef DCML_FUNCTION_H
#define DCML_FUNCTION_H

#include "dcml.h"

enum { DC_FEW_VALUES = 8 };
/* A number that an argument holds, as a symbol of a plan. */
typedef struct {
  dc_sym symbol;
  uint32_t arg, at;
} dc_value_symbol;

struct dc_plan_s {
  dc_plan_handle *next;
  uint32_t users, id;
  uint64_t key;
  bool exact; /* compiled for these shapes only */
  dc_gpu *gpu; /* where it runs; NULL: on the host */
  dc_program *forward, *backward;
  dc_grad_pair *wrt;
  dc_pass_times times[2]; /* of the forward and the backward graph */
  dc_cid *outputs;    /* of the forward graph, in order */
  dc_cid *back_feed;  /* by backward container: forward container that feeds it, 0 otherwise */
  int32_t *back_grad; /* by backward container: position among floating outputs, -1 otherwise */
  int32_t *back_result; /* by backward container: the output that feeds it, -1 otherwise */
  int32_t *back_arg;  /* by backward container: the argument that feeds it, -1 otherwise */
  dc_value_symbol *values; /* where other symbols than extents come from */
  uint32_t n_values;
  dc_sym *back_symbol; /* by symbol of the backward graph: the forward's of that name, 0 otherwise */
  uint32_t n_parts, *part_end; /* the step before which each part of the backward pass ends */
  uint32_t *first_part, *ready_part; /* by wrt: the part that touches its gradient first, and last */
  bool *part_reads; /* by part and argument: it reads its contents */
  bool *part_results; /* ... and by part and output */
  uint32_t *copy_step; /* by wrt: the step, from 1 on, that only copies the gradient of an output; 0: none */
  uint32_t *next_copy; /* by steps done: the next such step, 0: none */
  int32_t *copy_of;    /* by wrt: that output, among the floating ones */
  void **buffers;   /* of a call that has ended, for the next one: by forward container, NULL but for arguments and outputs; or NULL */
  dc_arena arena;
};

struct dc_function {
  dc_session session;
  dc_graph *graph;
  dc_function_options options;
  dc_arena arena;
  dc_cid *args; /* inputs, then parameters */
  uint32_t n_args, n_inputs;
  bool *by_value;  /* by argument: its value decides shapes */
  bool *varies;    /* by argument: it has had several such values: its numbers, from two on, are symbols */
  bool literal;    /* nothing varies so: operators ask for numbers */
  int64_t (*seen)[DC_FEW_VALUES]; /* by argument: its value in the last plan that was compiled */
  bool *by_shape;  /* by argument: the graph leaves its shape open */
  bool *writes;    /* by argument: it is an input that the graph writes */
  uint32_t n_writes;
  bool *computes;  /* by symbol: what the graph computes depends on it, besides by shapes of arguments */
  dc_plan_handle *plans, *last;
  dc_array *like; /* without data: the arguments that the last plan and its last bindings served, and serve again */
  bool repeats;   /* there are such */
  uint32_t last_id;
  dc_step_observer observer;
  void *observer_context;
};

/* place.c: where a call computes, and its arguments as function.c looks at them. */
typedef struct {
  const dc_array *given;
  dc_array *arrays; /* the same, but data of what decides shapes is the host's, and fetched */
  dc_gpu *gpu;      /* where all others are; NULL: on the host */
  void *stream;
  dc_arena arena;
} dc_place_of_call;
/* DC_ERR_DEVICE names two arguments on different devices, or one that is not where the function computes. */
DC_MUST_USE dc_status dc_place_find(const dc_function *function, const dc_array *arrays, void *stream, dc_place_of_call *out);
void dc_place_free(dc_place_of_call *place);
/* The value of an argument is wanted on the host. */
DC_MUST_USE dc_status dc_place_fetch(dc_place_of_call *place, uint32_t arg);
/* What else is given on the host is refused. */
DC_MUST_USE dc_status dc_place_check(const dc_function *function, const dc_place_of_call *place);
/* Puts the containers of a graph there. */
void dc_place_graph(dc_graph *graph, const dc_gpu *gpu);

/* Fills what a plan knows of its backward graph; plan->wrt is set. */
void dc_plan_connect(const dc_function *function, dc_plan_handle *plan, const dc_graph *forward, const dc_graph *backward);
void dc_call_describe(const dc_program *program, const dc_binding *binding, dc_cid c, dc_array *out); /* type and dims */

#endif
