/* What the files that make up a program share: program.c makes it, binding.c binds it to sizes, prepare.c
 * makes its steps callable, run.c runs it. */
#ifndef DCML_BACKENDS_PROGRAM_H
#define DCML_BACKENDS_PROGRAM_H

#include <pthread.h>

#include "backends/chains.h"
#include "backends/replay.h"
#include "backends/target.h"
#include "backends/workspace.h"
#include "ir/work.h"

typedef struct {
  dc_nid node;
  bool native;       /* then each binding has a call of its own */
  bool once;         /* it runs when the program is prepared, and not again (once.c) */
  dc_step_call call; /* of other nodes, once they are prepared */
  uint32_t n_buffers, first_buffer; /* into the program's buffer list; [-1] is the error flag's place */
  uint64_t nanoseconds, runs;       /* while timing is on */
} dc_step;

typedef struct dc_run_state {
  struct dc_run_state *next;
  dc_work_block arena; /* none while the state is idle, if the program shares its memory */
  dc_work_block block; /* in place of a saved block that must not be changed; none while the state is idle */
  void **table;    /* by container */
  void **pointers; /* of all steps, each with a leading slot; then the same for each thread that runs chains */
  void *stream;    /* of the device that steps run on; NULL on the host */
} dc_run_state;

struct dc_binding {
  dc_program *program;
  struct dc_binding *next; /* most recently used first */
  uint32_t users, modes; /* modes: of the target's row, when it was made */
  int64_t *symbols;
  dc_lent lent; /* bytes 0: nothing is */
  dc_arena arena;
  dc_plan plan;
  dc_native_call **natives; /* by step */
  const dc_step_call **calls; /* by step: what runs it under these sizes */
  dc_chains chains;
  uint32_t *chain_at, chain_threads; /* chain_at: by step, 1 + the chain that begins with it; NULL: nobody has looked */
  double work;
  bool sized; /* steps know the sizes, where a device wants them to */
  dc_replays replays; /* of a device */
  dc_run_state *idle;
  uint32_t n_idle;
};

struct dc_program {
  dc_target target;
  const dc_target_row *row;
  const dc_allocator *memory;
  dc_graph *graph;
  dc_arena arena;
  dc_step *steps;
  uint32_t n_steps, n_natives;
  dc_cid *buffers;
  dc_nid *nodes; /* of the steps that no library runs */
  uint32_t n_buffers, n_nodes;
  dc_chain_step *chain_steps; /* by step; NULL: there are no chains */
  void **constants; /* by container */
  void *state;      /* the row's own: what was begun for steps, or what was made as they were prepared */
  bool prepared, timing;
  bool worth_compiling; /* there are loops, or many scalars */
  dc_step_observer observer;
  void *observer_context;
  dc_binding *bindings;
  pthread_mutex_t lock, prepare_lock;
};

/* Between the two, the device is the calling thread's. */
static inline dc_status dc_program_enter(const dc_program *p, bool *entered) {
  *entered = false;
  return p->row->device ? p->row->device->enter(&p->target, entered) : DC_OK;
}
static inline void dc_program_leave(const dc_program *p, bool entered) {
  if (p->row->device) p->row->device->leave(&p->target, entered);
}
/* Memory of a device is taken and given in the order of a stream, which costs no more than keeping it. */
static inline bool dc_program_keeps_arenas(const dc_program *p) { return !p->row->device; }

/* What a program and a binding need before their first run. */
DC_MUST_USE dc_status dc_program_ensure_ready(dc_program *program, dc_binding *binding);
void dc_binding_destroy(dc_binding *binding);
/* The chain that begins with a step, where its kernels have turned out to be loops of channels; NULL. */
const dc_chain *dc_binding_chain_at(const dc_binding *binding, uint32_t step);
/* once.c: steps that run once for all, which ones (the row is chosen), and what they leave. */
void dc_once_find(dc_program *program);
DC_MUST_USE dc_status dc_once_run(const dc_binding *binding);
/* Gives back what its runs have worked in; none runs any more. */
void dc_binding_end_runs(dc_binding *binding);

#endif
