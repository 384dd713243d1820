/* Runs of programs: the memory of one, its steps one by one, observed, or recorded by a device. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/program.h"

enum { MAX_IDLE_STATES = 4, RECORDED_STEPS = 6 };
static const uint64_t SHARED_BYTES = 1 << 20; /* of an arena: those of fewer stay with their program, and cost no lock */
static const double BRIEF_STEP = 1.6e7; /* element operations of a step that are as quick for a device as to start it */
static const uint64_t MOST_KEPT = 64 << 20; /* bytes of an arena that a recorded run keeps */

/* ---- memory ---- */

static dc_workspace *workspace_of(const dc_binding *b) {
  return b->plan.arena_bytes < SHARED_BYTES || !dc_program_keeps_arenas(b->program) ? NULL : b->program->target.workspace;
}

static void take_arena(const dc_binding *b, dc_run_state *s) {
  uint64_t bytes = b->plan.arena_bytes;
  const dc_allocator *memory = b->program->memory;
  if (bytes)
    s->arena =
        workspace_of(b) ? dc_workspace_take(workspace_of(b), bytes) : (dc_work_block){memory->take(memory->self, bytes, s->stream), bytes};
}

static void give_block(const dc_binding *b, dc_run_state *s) {
  dc_workspace *workspace = b->program->target.workspace;
  if (workspace) dc_workspace_give(workspace, s->block);
  else b->program->memory->give(b->program->memory->self, s->block.data, s->block.bytes, NULL);
  s->block = (dc_work_block){NULL, 0};
}

static void give_arena(const dc_binding *b, dc_run_state *s) {
  const dc_allocator *memory = b->program->memory;
  if (workspace_of(b)) dc_workspace_give(workspace_of(b), s->arena);
  else memory->give(memory->self, s->arena.data, s->arena.bytes, s->stream);
  s->arena = (dc_work_block){NULL, 0};
}

static void destroy_state(const dc_binding *b, dc_run_state *s) {
  give_arena(b, s);
  give_block(b, s);
  free(s->table);
  free(s->pointers);
  free(s);
}

/* A run that a device can start at once, and the arena that it works in: one run at a time does. */
typedef struct {
  void *run;
  dc_work_block arena;
} recording;

/* Nothing of it runs any more. */
static void drop_recording(void *context, void *opaque) {
  const dc_program *p = context;
  recording *r = opaque;
  if (r->run) p->row->device->drop(&p->target, r->run);
  p->memory->give(p->memory->self, r->arena.data, r->arena.bytes, NULL);
  free(r);
}

static void drop_replays(dc_binding *b) {
  const dc_program *p = b->program;
  bool entered;
  if (!b->replays.n) return;
  dc_status lost = dc_program_enter(p, &entered);
  if (!lost) p->row->device->wait(&p->target);
  if (!lost) dc_replays_end(&b->replays, drop_recording, (void *)p);
  if (!lost) dc_program_leave(p, entered);
  dc_status_free(lost);
}

void dc_binding_end_runs(dc_binding *b) {
  drop_replays(b);
  for (dc_run_state *s; (s = b->idle);) b->idle = s->next, destroy_state(b, s);
  if (workspace_of(b)) dc_workspace_trim(workspace_of(b), b->plan.arena_bytes);
}

/* ---- running ---- */

static dc_status new_state(const dc_binding *b, dc_run_state **out) {
  const dc_program *p = b->program;
  dc_run_state *s = calloc(1, sizeof *s);
  if (!s) return dc_error(DC_ERR_MEMORY, "out of memory");
  s->table = calloc(p->graph->containers.n, sizeof *s->table);
  s->pointers = calloc((p->n_buffers + 1) * (b->chains.n ? 1 + (size_t)b->chain_threads : 1), sizeof *s->pointers);
  if (s->table && s->pointers) return *out = s, DC_OK;
  destroy_state(b, s);
  return dc_error(DC_ERR_MEMORY, "out of memory");
}

static dc_status ensure_arena(const dc_binding *b, dc_run_state *s) {
  if (!s->arena.data) take_arena(b, s);
  if (s->arena.data || !b->plan.arena_bytes) return DC_OK;
  return dc_error(DC_ERR_MEMORY, "cannot get %llu bytes for intermediate results", (unsigned long long)b->plan.arena_bytes);
}

/* What lies in a saved block that must stay as it is gets memory of its own. */
static dc_status ensure_block(const dc_binding *b, dc_run_state *s) {
  uint64_t bytes = b->plan.block_bytes;
  const dc_allocator *memory = b->program->memory;
  dc_workspace *workspace = b->program->target.workspace;
  s->block = workspace ? dc_workspace_take(workspace, bytes) : (dc_work_block){memory->take(memory->self, bytes, s->stream), bytes};
  return s->block.data ? DC_OK : dc_error(DC_ERR_MEMORY, "cannot get %llu bytes for intermediate results", (unsigned long long)bytes);
}

static dc_status take_state(dc_binding *b, void *stream, bool spoils, dc_run_state **out) {
  pthread_mutex_lock(&b->program->lock);
  *out = b->idle;
  if (b->idle) b->idle = b->idle->next, b->n_idle--;
  pthread_mutex_unlock(&b->program->lock);
  if (!*out) DC_TRY(new_state(b, out));
  (*out)->stream = stream;
  if (!dc_program_keeps_arenas(b->program)) return DC_OK; /* until it is known that steps run one by one */
  dc_status status = ensure_arena(b, *out);
  if (!status && b->plan.block_bytes && !spoils) status = ensure_block(b, *out);
  if (status) destroy_state(b, *out), *out = NULL;
  return status;
}

static void give_state(dc_binding *b, dc_run_state *s) {
  if (s->block.data) give_block(b, s);
  if (workspace_of(b) || !dc_program_keeps_arenas(b->program)) give_arena(b, s);
  pthread_mutex_lock(&b->program->lock);
  bool keep = b->n_idle < MAX_IDLE_STATES;
  if (keep) s->next = b->idle, b->idle = s, b->n_idle++;
  pthread_mutex_unlock(&b->program->lock);
  if (!keep) destroy_state(b, s);
}

/* block: the saved one, which is filled or may be spoilt. */
static char *block_of(const dc_run_state *s, void *saved) { return saved ? saved : s->block.data; }

static void fill_table(const dc_binding *b, dc_run_state *s, void *const *given, char *saved) {
  const dc_program *p = b->program;
  const dc_plan *plan = &b->plan;
  for (dc_cid c = 1; c < p->graph->containers.n; c++) {
    dc_cid root = plan->root[c];
    char *base = dc_cont(p->graph, root)->is_once ? p->constants[root] : given[root];
    if (plan->planned[root]) { /* of an arena that may come later */
      uintptr_t start = (uintptr_t)(plan->in_block[root] ? block_of(s, saved) : s->arena.data);
      s->table[c] = (char *)(start + plan->offset[root] + (uintptr_t)plan->view[c]);
      continue;
    }
    if (plan->saved[root] && !dc_cont(p->graph, root)->is_output) base = saved + plan->offset[root];
    else if (!base) base = p->constants[root];
    s->table[c] = base ? base + plan->view[c] : NULL;
  }
}

/* What fill_table placed before there was an arena lies in it. */
static void move_into_arena(const dc_binding *b, dc_run_state *s) {
  for (dc_cid c = 1; c < b->program->graph->containers.n; c++)
    if (b->plan.planned[b->plan.root[c]]) s->table[c] = s->arena.data + (uintptr_t)s->table[c];
}

static dc_status enter_arena(const dc_binding *b, dc_run_state *s) {
  if (s->arena.data || !b->plan.arena_bytes) return DC_OK;
  DC_TRY(ensure_arena(b, s));
  return move_into_arena(b, s), DC_OK;
}

static char *scratch_of(const dc_run *run, uint32_t k) {
  const dc_plan *plan = &run->binding->plan;
  return (plan->scratch_in_block[k] ? block_of(run->state, run->saved) : run->state->arena.data) + plan->scratch[k];
}

static dc_status run_step(const dc_run *run, uint32_t k) {
  const dc_binding *b = run->binding;
  const dc_run_state *s = run->state;
  const dc_program *p = b->program;
  const dc_step *st = &p->steps[k];
  void **pointers = s->pointers + st->first_buffer;
  for (uint32_t j = 0; j < st->n_buffers; j++) pointers[j] = s->table[p->buffers[st->first_buffer + j]];
  dc_step_frame frame = {p->graph, st->node, b->symbols, s->table, pointers, scratch_of(run, k), NULL, s->stream};
  return b->calls[k]->run(&frame, b->calls[k]->context);
}

/* ---- running, in chains ---- */

/* Some channels, and the first one that the thread takes: of an array that is folded, the channels at hand lie from where that does on. */
typedef struct {
  int64_t thread, first, channels[2];
} part;

static dc_status run_part(const dc_run *run, uint32_t k, const part *at) {
  const dc_binding *b = run->binding;
  const dc_run_state *s = run->state;
  const dc_program *p = b->program;
  const dc_step *st = &p->steps[k];
  void **pointers = s->pointers + (at->thread + 1) * (p->n_buffers + 1) + st->first_buffer;
  for (uint32_t j = 0; j < st->n_buffers; j++) {
    const dc_cid c = p->buffers[st->first_buffer + j];
    pointers[j] = (char *)((uintptr_t)s->table[c] - (uintptr_t)((at->channels[0] - at->first) * b->chains.folded[c]));
  }
  const uint64_t own = st->native ? dc_memory_aligned(dc_native_part_scratch(b->natives[k])) : 0;
  char *scratch = scratch_of(run, k) + (uint64_t)at->thread * own;
  dc_step_frame frame = {p->graph, st->node, b->symbols, s->table, pointers, scratch, at->channels, s->stream};
  return b->calls[k]->run(&frame, b->calls[k]->context);
}

static uint64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The share of one of so many threads.  spent: nanoseconds by step of the chain; NULL: nobody asks. */
static dc_status run_share(const dc_run *run, const dc_chain *chain, int64_t thread, int64_t threads, uint64_t *spent) {
  const int64_t begin = chain->extent * thread / threads, end = chain->extent * (thread + 1) / threads;
  dc_status status = DC_OK;
  for (int64_t c = begin; c < end && !status; c += chain->at_once) {
    const part at = {thread, begin, {c, end - c < chain->at_once ? end : c + chain->at_once}};
    for (uint32_t k = chain->first; k < chain->end && !status; k++) {
      const uint64_t from = spent ? nanoseconds() : 0;
      status = run_part(run, k, &at);
      if (spent) __atomic_add_fetch(&spent[k - chain->first], nanoseconds() - from, __ATOMIC_RELAXED);
    }
  }
  return status;
}

static dc_status run_chain(const dc_run *run, const dc_chain *chain, uint64_t *spent, int64_t *threads) {
  dc_status first = DC_OK;
#pragma omp parallel num_threads((int)run->binding->chain_threads)
  {
    dc_status status = run_share(run, chain, omp_get_thread_num(), omp_get_num_threads(), spent);
#pragma omp critical(dc_chain_status)
    {
      *threads = omp_get_num_threads();
      if (first) dc_status_free(status);
      else first = status;
    }
  }
  return first;
}

const dc_chain *dc_binding_chain_at(const dc_binding *b, uint32_t step) {
  const dc_chain *chain = b->chain_at && b->chain_at[step] ? &b->chains.v[b->chain_at[step] - 1] : NULL;
  for (uint32_t k = chain ? chain->first : 0; chain && k < chain->end; k++)
    if (!b->natives[k] && !b->calls[k]->divides) return NULL;
  return chain;
}

/* A run may end within one. */
static const dc_chain *chain_at(const dc_run *run, uint32_t end) {
  const dc_chain *chain = dc_binding_chain_at(run->binding, run->step);
  return chain && chain->end <= end ? chain : NULL;
}

static dc_status run_steps(dc_run *run, uint32_t end) {
  dc_status status = DC_OK;
  for (const dc_chain *chain; run->step < end && !status; run->step = chain ? chain->end : run->step + 1) {
    int64_t threads;
    chain = chain_at(run, end);
    status = chain ? run_chain(run, chain, NULL, &threads) : run_step(run, run->step);
  }
  return status;
}

/* ---- running, observed ---- */

/* Two points of the device's time for a step, which is taken when all steps have been started. */
typedef struct {
  void *from, *to;
} marked_step;

static dc_status time_step(const dc_run *run, uint32_t k, marked_step *marks) {
  const dc_program *p = run->binding->program;
  const dc_run_state *s = run->state;
  const dc_device_row *device = p->row->device;
  dc_step *st = &p->steps[k];
  if (p->observer) p->observer(p->observer_context, p->graph, st->node, true);
  if (marks) marks->from = device->mark(&p->target, s->stream);
  uint64_t begin = nanoseconds();
  dc_status status = run_step(run, k);
  if (!device) __atomic_add_fetch(&st->nanoseconds, nanoseconds() - begin, __ATOMIC_RELAXED);
  if (marks) marks->to = device->mark(&p->target, s->stream);
  __atomic_add_fetch(&st->runs, 1, __ATOMIC_RELAXED);
  if (p->observer) p->observer(p->observer_context, p->graph, st->node, false);
  return status;
}

/* A step has spent what threads have on average. */
static dc_status time_chain(const dc_run *run, const dc_chain *chain) {
  dc_step *steps = run->binding->program->steps + chain->first;
  const uint32_t n = chain->end - chain->first;
  uint64_t *spent = calloc(n, sizeof *spent);
  int64_t threads = 1;
  dc_status status = run_chain(run, chain, spent, &threads);
  for (uint32_t k = 0; k < n; k++) {
    if (spent) __atomic_add_fetch(&steps[k].nanoseconds, spent[k] / (uint64_t)threads, __ATOMIC_RELAXED);
    __atomic_add_fetch(&steps[k].runs, 1, __ATOMIC_RELAXED);
  }
  free(spent);
  return status;
}

/* An observer sees steps one by one. */
static dc_status time_steps(dc_run *run, uint32_t end) {
  const dc_program *p = run->binding->program;
  uint32_t from = run->step, n = end > from ? end - from : 0;
  marked_step *marks = p->row->device && p->timing ? calloc(n + 1, sizeof *marks) : NULL;
  dc_status status = DC_OK;
  for (const dc_chain *chain; run->step < end && !status; run->step = chain ? chain->end : run->step + 1) {
    chain = p->observer ? NULL : chain_at(run, end);
    status = chain ? time_chain(run, chain) : time_step(run, run->step, marks ? &marks[run->step - from] : NULL);
  }
  for (uint32_t k = 0; marks && k < n; k++) {
    double spent = p->row->device->between(&p->target, marks[k].from, marks[k].to);
    __atomic_add_fetch(&p->steps[from + k].nanoseconds, (uint64_t)spent, __ATOMIC_RELAXED);
  }
  free(marks);
  return status;
}

/* ---- running, recorded ---- */

/* Whole runs of steps that take a device no longer than it takes us to start them. */
static bool is_worth_recording(const dc_run *run, uint32_t end) {
  const dc_binding *b = run->binding;
  const dc_program *p = b->program;
  bool whole = p->row->device && run->step == 0 && end == p->n_steps && !run->state->arena.data;
  bool brief = whole && end >= RECORDED_STEPS && b->work <= BRIEF_STEP * end && b->plan.arena_bytes <= MOST_KEPT;
  return brief && !b->replays.off && p->row->device->may_record(&p->target, run->state->stream);
}

/* All steps, on the stream that the device records. */
static dc_status record_steps(dc_run *run, void **made) {
  const dc_program *p = run->binding->program;
  void *own = run->state->stream;
  dc_status status = p->row->device->record(&p->target, &run->state->stream);
  if (!status) {
    dc_status failed = run_steps(run, p->n_steps);
    status = p->row->device->recorded(&p->target, run->state->stream, failed != DC_OK, made);
    dc_status_free(failed);
  }
  run->state->stream = own, run->step = 0;
  return status;
}

/* NULL where it cannot be: then the steps run as ever, in the same arena, and tell what is wrong if anything is. */
static recording *record(dc_run *run) {
  recording *r = calloc(1, sizeof *r);
  dc_status status = r ? enter_arena(run->binding, run->state) : dc_error(DC_ERR_MEMORY, "out of memory");
  if (!status) status = record_steps(run, &r->run);
  bool made = !status && r->run;
  dc_status_free(status);
  if (!made) return free(r), NULL;
  r->arena = run->state->arena;
  run->state->arena = (dc_work_block){NULL, 0};
  return r;
}

static void drop_gone(const dc_program *p, void *gone) {
  if (!gone) return;
  p->row->device->wait(&p->target);
  drop_recording((void *)p, gone);
}

/* Starts a recording of the run, if there is one, or it is time to make it; *done: that was all. */
static dc_status replay(dc_run *run, bool *done) {
  dc_binding *b = run->binding;
  dc_program *p = b->program;
  dc_replay *item;
  void *gone;
  pthread_mutex_lock(&p->lock);
  dc_replay_kind kind = dc_replays_take(&b->replays, run->state->table, p->graph->containers.n, &item, &gone);
  recording *r = item ? item->recording : NULL;
  pthread_mutex_unlock(&p->lock);
  drop_gone(p, gone);
  if (kind == DC_REPLAY_NOT) return DC_OK;
  if (kind == DC_REPLAY_RECORD) r = record(run);
  dc_status status = r ? p->row->device->start(&p->target, r->run, run->state->stream) : DC_OK;
  pthread_mutex_lock(&p->lock);
  dc_replays_give(&b->replays, item, kind, r);
  pthread_mutex_unlock(&p->lock);
  if (r) *done = true, run->step = p->n_steps;
  return status;
}

/* ---- running, from outside ---- */
/* Asks the device for nothing once both are ready: a run has its memory when it is known that its steps run one by one. */
dc_status dc_run_begin(dc_program *p, dc_binding *b, void *stream, void *saved, dc_run *out) {
  *out = (dc_run){.binding = b, .saved = saved};
  DC_TRY(dc_program_ensure_ready(p, b));
  if (p->row->device) DC_TRY(p->row->device->complaint(p->state));
  return take_state(b, stream, saved != NULL, &out->state);
}

void dc_run_place(dc_run *run, void *const *buffers) { fill_table(run->binding, run->state, buffers, run->saved); }

dc_status dc_run_until(dc_run *run, uint32_t end) {
  const dc_program *p = run->binding->program;
  bool entered;
  if (run->step >= end) return DC_OK; /* the device is asked for nothing */
  dc_status status = dc_program_enter(p, &entered);
  if (status) return status;
  bool watched = p->timing || p->observer, done = false;
  if (!watched && is_worth_recording(run, end)) status = replay(run, &done);
  if (!done && !status) status = enter_arena(run->binding, run->state);
  if (!done && !status) status = watched ? time_steps(run, end) : run_steps(run, end);
  dc_program_leave(p, entered);
  return status;
}

void dc_run_end(dc_run *run) {
  bool entered = false, holds = run->state && run->state->arena.data && run->binding->program->row->device;
  if (!run->state) return;
  dc_status lost = holds ? dc_program_enter(run->binding->program, &entered) : DC_OK; /* with all memory */
  if (lost) run->state->arena = (dc_work_block){NULL, 0};
  give_state(run->binding, run->state);
  if (holds && !lost) dc_program_leave(run->binding->program, entered);
  dc_status_free(lost);
  run->state = NULL;
}

dc_status dc_program_run(dc_program *p, dc_binding *b, void *stream, void **buffers, void *saved) {
  dc_run run;
  DC_TRY(dc_run_begin(p, b, stream, saved, &run));
  dc_run_place(&run, buffers);
  dc_status status = dc_run_until(&run, p->n_steps);
  dc_run_end(&run);
  return status;
}
