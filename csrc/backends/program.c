/* Programs: a flat list of steps over a scheduled graph, and its bindings to sizes.
 *
 * A step is a function and its context.  Which is decided once, by the graph and the row of the target alone: compiled and
 * interpreted sums differ in their last bits, and every run of a program gives the same ones. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/limits.h"
#include "backends/plan.h"
#include "backends/replay.h"
#include "backends/report.h"
#include "backends/target.h"
#include "backends/workspace.h"
#include "ir/work.h"

enum { MAX_BINDINGS = 64, MAX_IDLE_STATES = 4, FEW_SCALARS = 4, FEW_LAUNCHES = 4, RECORDED_STEPS = 6 };
static const uint64_t SHARED_BYTES = 1 << 20; /* of an arena: those of fewer stay with their program, and cost no lock */
static const double BRIEF_WORK = 1000; /* element operations: some us of interpretation */
static const double BRIEF_STEP = 1.6e7; /* element operations of a step that are as quick for a device as to start it */
static const uint64_t MOST_KEPT = 64 << 20; /* bytes of an arena that a recorded run keeps */
static const double HOLLOW_WALK = 1e6; /* iterations that find nothing to do, of a compiled kernel ... */
static const double HOLLOW_SHARE = 1024; /* ... for each that finds something, where interpreting that is quicker */

typedef struct {
  dc_nid node;
  bool native;       /* then each binding has a call of its own */
  dc_step_call call; /* of other nodes, once they are prepared */
  uint32_t n_buffers, first_buffer; /* into the program's buffer list; [-1] is the error flag's place */
  uint64_t nanoseconds, runs;       /* while timing is on */
} step;

typedef struct dc_run_state {
  struct dc_run_state *next;
  dc_work_block arena; /* none while the state is idle, if the program shares its memory */
  dc_work_block block; /* in place of a saved block that must not be changed; none while the state is idle */
  void **table;    /* by container */
  void **pointers; /* of all steps, each with a leading slot */
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
  step *steps;
  uint32_t n_steps, n_natives;
  dc_cid *buffers;
  dc_nid *nodes; /* of the steps that no library runs */
  uint32_t n_buffers, n_nodes;
  void **constants; /* by container */
  void *state;      /* the row's own: what was begun for steps, or what was made as they were prepared */
  bool prepared, timing;
  bool worth_compiling; /* there are loops, or many scalars */
  dc_step_observer observer;
  void *observer_context;
  dc_binding *bindings;
  pthread_mutex_t lock, prepare_lock;
};

/* ---- creation ---- */

static dc_status list_steps(dc_program *p) {
  DC_VEC(step) steps = {0};
  DC_VEC(dc_cid) buffers = {0};
  DC_VEC(dc_nid) nodes = {0};
  for (uint32_t s = 0; s < p->graph->states.n; s++) {
    const dc_scope *scope = &p->graph->states.v[s].scope;
    for (uint32_t k = 0; k < scope->n; k++) {
      step made = {.node = scope->v[k], .native = dc_node_at(p->graph, scope->v[k])->kind == DC_NODE_LIBRARY};
      const dc_library *lib = &dc_node_at(p->graph, made.node)->lib;
      DC_PUSH(&p->arena, &buffers, 0);
      made.first_buffer = buffers.n;
      p->n_natives += made.native;
      if (!made.native) DC_PUSH(&p->arena, &nodes, made.node);
      p->worth_compiling |= dc_node_at(p->graph, made.node)->kind == DC_NODE_MAP || steps.n - p->n_natives >= FEW_SCALARS;
      const dc_cid *list = made.native ? NULL : dc_kernel_buffers(p->graph, made.node, &p->arena, &made.n_buffers);
      if (made.native) made.n_buffers = lib->n_in + lib->n_out;
      for (uint32_t j = 0; j < made.n_buffers; j++)
        DC_PUSH(&p->arena, &buffers, list ? list[j] : j < lib->n_in ? lib->in[j] : lib->out[j - lib->n_in]);
      DC_PUSH(&p->arena, &steps, made);
    }
  }
  p->steps = steps.v, p->n_steps = steps.n, p->buffers = buffers.v, p->n_buffers = buffers.n, p->nodes = nodes.v, p->n_nodes = nodes.n;
  return DC_OK;
}

/* Where steps can read it: as it stands, or copied to the device. */
static dc_status place_constant(dc_program *p, dc_cid c) {
  const dc_allocator *memory = p->memory;
  const dc_container *k = dc_cont(p->graph, c);
  const char *name = dc_cont_name(p->graph, c);
  if (k->device != memory->device)
    return dc_error(DC_ERR_DEVICE, "'%s' is in the memory of %s, but target '%s' computes on %s", name,
                    dc_device_name((dc_device)k->device), p->row->name, dc_device_name(memory->device));
  if (!k->data || k->role != DC_ROLE_CONST) return DC_OK;
  if (memory->reads(k->data)) return p->constants[c] = (void *)k->data, DC_OK;
  p->constants[c] = memory->take(memory->self, k->data_bytes, NULL);
  if (k->data_bytes && !p->constants[c])
    return dc_error(DC_ERR_MEMORY, "cannot get %llu bytes for '%s'", (unsigned long long)k->data_bytes, name);
  if (p->row->device) p->row->device->wait(&p->target); /* recycled memory may be in use on a stream of the caller's */
  return k->data_bytes ? memory->fill(memory->self, p->constants[c], k->data, k->data_bytes, NULL) : DC_OK;
}

static dc_status place_constants(dc_program *p) {
  p->constants = DC_NEW_ARRAY(&p->arena, void *, p->graph->containers.n);
  for (dc_cid c = 1; c < p->graph->containers.n; c++) DC_TRY(place_constant(p, c));
  return DC_OK;
}

static dc_status enter(const dc_program *p, bool *entered) {
  *entered = false;
  return p->row->device ? p->row->device->enter(&p->target, entered) : DC_OK;
}

static void leave(const dc_program *p, bool entered) {
  if (p->row->device) p->row->device->leave(&p->target, entered);
}

static dc_status place_on_device(dc_program *p) {
  bool entered;
  DC_TRY(enter(p, &entered));
  dc_status status = place_constants(p);
  leave(p, entered);
  return status;
}

static void give_constants(dc_program *p) {
  for (dc_cid c = 1; p->constants && c < p->graph->containers.n; c++)
    if (p->constants[c] != dc_cont(p->graph, c)->data)
      p->memory->give(p->memory->self, p->constants[c], dc_cont(p->graph, c)->data_bytes, NULL);
}

/* Gives back what it holds of the device. */
static void leave_device(dc_program *p) {
  const dc_device_row *device = p->row ? p->row->device : NULL;
  bool entered;
  dc_status lost = device ? device->enter(&p->target, &entered) : DC_OK; /* with all that is there */
  if (!lost && device) device->wait(&p->target);
  if (!lost) give_constants(p);
  if (!lost && device) device->forget(&p->target, p->state), device->leave(&p->target, entered);
  dc_status_free(lost);
}

dc_status dc_program_create(const dc_target *target, dc_graph *graph, dc_program **out) {
  dc_program *p = calloc(1, sizeof *p);
  if (!p) return dc_error(DC_ERR_MEMORY, "out of memory");
  p->target = *target, p->graph = graph;
  pthread_mutex_init(&p->lock, NULL);
  pthread_mutex_init(&p->prepare_lock, NULL);
  dc_status status = list_steps(p);
  p->row = dc_target_choose(target, p->worth_compiling);
  p->memory = target->memory ? target->memory : p->row->memory;
  if (!status) status = place_on_device(p);
  if (!status) return *out = p, DC_OK;
  leave_device(p);
  p->constants = NULL, p->graph = NULL; /* stays the caller's */
  dc_program_destroy(p);
  return status;
}

/* Memory of a device is taken and given in the order of a stream, which costs no more than keeping it. */
static bool keeps_arenas(const dc_program *p) { return !p->row->device; }

static dc_workspace *workspace_of(const dc_binding *b) {
  return b->plan.arena_bytes < SHARED_BYTES || !keeps_arenas(b->program) ? NULL : b->program->target.workspace;
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
  dc_status lost = enter(p, &entered);
  if (!lost) p->row->device->wait(&p->target);
  if (!lost) dc_replays_end(&b->replays, drop_recording, (void *)p);
  if (!lost) leave(p, entered);
  dc_status_free(lost);
}

static void destroy_binding(dc_binding *b) {
  drop_replays(b);
  for (dc_run_state *s; (s = b->idle);) b->idle = s->next, destroy_state(b, s);
  if (workspace_of(b)) dc_workspace_trim(workspace_of(b), b->plan.arena_bytes);
  for (uint32_t k = 0; b->natives && k < b->program->n_steps; k++) dc_native_call_destroy(b->natives[k]);
  dc_arena_free(&b->arena);
  free(b);
}

void dc_program_destroy(dc_program *p) {
  if (!p) return;
  for (dc_binding *b; (b = p->bindings);) p->bindings = b->next, destroy_binding(b);
  pthread_mutex_destroy(&p->lock);
  pthread_mutex_destroy(&p->prepare_lock);
  if (p->constants) leave_device(p);
  if (p->state && p->row->drop) p->row->drop(p->state);
  dc_graph_destroy(p->graph);
  dc_arena_free(&p->arena);
  free(p);
}

dc_graph *dc_program_graph(const dc_program *program) { return program->graph; }

/* ---- preparation ---- */

dc_status dc_program_begin(dc_program *p) {
  return p->row->begin && !p->state ? p->row->begin(&p->target, p->graph, p->nodes, p->n_nodes, &p->state) : DC_OK;
}

static dc_status prepare_steps(dc_program *p) {
  dc_step_call *calls = DC_NEW_ARRAY(&p->arena, dc_step_call, p->n_nodes);
  DC_TRY(p->row->prepare(&p->target, p->graph, p->nodes, p->n_nodes, &p->arena, calls, &p->state));
  for (uint32_t k = 0, done = 0; k < p->n_steps; k++)
    if (!p->steps[k].native) p->steps[k].call = calls[done++];
  return DC_OK;
}

/* Before the first run, for many programs are bound and never run. */
static dc_status ensure_prepared(dc_program *p) {
  if (__atomic_load_n(&p->prepared, __ATOMIC_ACQUIRE)) return DC_OK;
  pthread_mutex_lock(&p->prepare_lock);
  dc_status status = p->prepared ? DC_OK : prepare_steps(p);
  if (!status) __atomic_store_n(&p->prepared, true, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&p->prepare_lock);
  return status;
}

static dc_status size_steps(dc_binding *b) {
  const dc_program *p = b->program;
  for (uint32_t k = 0; k < p->n_steps; k++) {
    if (b->calls[k] != &p->steps[k].call) continue;
    dc_step_call *call = DC_NEW(&b->arena, dc_step_call);
    DC_TRY(p->row->device->bind(&p->steps[k].call, b->symbols, p->steps[k].n_buffers, &b->arena, call));
    b->calls[k] = call;
  }
  return DC_OK;
}

static dc_status ensure_sized(dc_program *p, dc_binding *b) {
  if (!p->row->device || __atomic_load_n(&b->sized, __ATOMIC_ACQUIRE)) return DC_OK;
  pthread_mutex_lock(&p->prepare_lock);
  dc_status status = b->sized ? DC_OK : size_steps(b);
  if (!status) __atomic_store_n(&b->sized, true, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&p->prepare_lock);
  return status;
}

/* ---- binding ---- */

typedef struct {
  const dc_binding *binding;
  bool leaves; /* something in memory */
} result_search;

static void note_result(void *context, dc_cid c, dc_use use, dc_nid by) {
  result_search *s = context;
  (void)by;
  bool in_memory = dc_cont(s->binding->program->graph, c)->storage == DC_STORE_HEAP && s->binding->plan.bytes[c];
  s->leaves |= use == DC_USE_WRITE && in_memory;
}

static bool leaves_nothing(const dc_binding *b, dc_nid node) {
  result_search s = {.binding = b};
  dc_node_uses(b->program->graph, node, note_result, &s);
  return !s.leaves;
}

/* Where a compiled kernel would walk long outer loops although an inner one is empty, the interpreter, which looks first,
 * runs the node, at each call with these sizes. */
static const dc_step_call *call_of(const dc_binding *b, const step *st, const dc_work *w) {
  if (leaves_nothing(b, st->node)) return &dc_step_empty;
  bool hollow = !st->native && !b->program->row->device && w->walked > HOLLOW_WALK + HOLLOW_SHARE * (w->work + w->visits);
  return hollow ? &dc_step_interpreted : &st->call;
}

/* Counts the steps of each node and judges them. */
static dc_status weigh(dc_program *p, dc_binding *b, const dc_nid *nodes) {
  dc_work *found = DC_NEW_ARRAY(&b->arena, dc_work, p->n_steps);
  double *steps = DC_NEW_ARRAY(&b->arena, double, p->n_steps);
  dc_work_count(p->graph, nodes, p->n_steps, b->symbols, false, found);
  b->calls = DC_NEW_ARRAY(&b->arena, const dc_step_call *, p->n_steps);
  for (uint32_t k = 0; k < p->n_steps; k++) {
    b->calls[k] = call_of(b, &p->steps[k], &found[k]);
    if (b->calls[k] == &dc_step_empty) continue;
    b->work += found[k].work;
    steps[k] = p->steps[k].native ? dc_native_steps(p->graph, nodes[k], b->symbols)
                                  : found[k].work + (b->calls[k] == &dc_step_interpreted ? found[k].visits : found[k].walked);
  }
  return dc_limits_check_steps(p->graph, nodes, steps, p->n_steps, b->plan.held_bytes);
}

static dc_status bind_native(dc_binding *b, uint32_t k) {
  const dc_program *p = b->program;
  DC_TRY(dc_native_bind(p->target.natives, p->target.only, p->graph, p->steps[k].node, b->symbols, &b->natives[k]));
  if (b->calls[k] == &dc_step_empty) return DC_OK;
  dc_step_call *call = DC_NEW(&b->arena, dc_step_call);
  *call = dc_step_native(b->natives[k], dc_native_name(b->natives[k]));
  return b->calls[k] = call, DC_OK;
}

/* Libraries are asked only for sizes that have been judged; what they want for themselves is then planned with the rest. */
static dc_status bind_natives(dc_binding *b, const dc_plan_task *task) {
  const dc_program *p = b->program;
  uint64_t *scratch = DC_NEW_ARRAY(&b->arena, uint64_t, p->n_steps), most = 0;
  b->natives = DC_NEW_ARRAY(&b->arena, dc_native_call *, p->n_steps);
  for (uint32_t k = 0; k < p->n_steps; k++) {
    if (!p->steps[k].native) continue;
    DC_TRY(bind_native(b, k));
    scratch[k] = b->calls[k] == &dc_step_empty ? 0 : dc_native_scratch(b->natives[k]);
    if (scratch[k] > most) most = scratch[k];
  }
  return most ? dc_plan_make(p->graph, task, scratch, &b->arena, &b->plan) : DC_OK;
}

/* Libraries work on the device that is the thread's. */
static dc_status enter_and_bind_natives(dc_binding *b, const dc_plan_task *task) {
  bool entered;
  DC_TRY(enter(b->program, &entered));
  dc_status status = bind_natives(b, task);
  leave(b->program, entered);
  return status;
}

static dc_status make_binding(dc_program *p, const int64_t *symbols, const dc_lent *lent, dc_binding **out) {
  dc_binding *b = calloc(1, sizeof *b);
  if (!b) return dc_error(DC_ERR_MEMORY, "out of memory");
  b->program = p;
  b->symbols = dc_arena_copy(&b->arena, symbols, p->graph->pool.symbols.n * sizeof *symbols);
  dc_nid *nodes = DC_NEW_ARRAY(&b->arena, dc_nid, p->n_steps);
  for (uint32_t k = 0; k < p->n_steps; k++) nodes[k] = p->steps[k].node;
  if (lent) b->lent = (dc_lent){lent->bytes, lent->n, dc_arena_copy(&b->arena, lent->v, lent->n * sizeof *lent->v)};
  dc_plan_task task = {nodes, p->n_steps, b->symbols, keeps_arenas(p), lent ? &b->lent : NULL};
  dc_status status = dc_plan_make(p->graph, &task, NULL, &b->arena, &b->plan);
  if (!status) status = weigh(p, b, nodes);
  if (!status && p->n_natives) status = enter_and_bind_natives(b, &task);
  if (status) destroy_binding(b);
  else *out = b;
  return status;
}

/* Drops the least recently used binding that nobody runs. */
static void evict(dc_program *p) {
  uint32_t n = 0;
  dc_binding **victim = NULL;
  for (dc_binding **at = &p->bindings; *at; at = &(*at)->next) {
    n++;
    if (!(*at)->users) victim = at;
  }
  if (n <= MAX_BINDINGS || !victim || *victim == p->bindings) return;
  dc_binding *gone = *victim;
  *victim = gone->next;
  destroy_binding(gone);
}

static uint32_t modes_of(const dc_program *p) { return p->n_natives ? p->row->modes(&p->target) : 0; }

/* Libraries read the modes themselves, which another thread may change meanwhile. */
static dc_status make_in_one_mode(dc_program *p, const int64_t *symbols, const dc_lent *lent, uint32_t modes, dc_binding **out) {
  for (;;) {
    DC_TRY(make_binding(p, symbols, lent, out));
    (*out)->modes = modes_of(p);
    if ((*out)->modes == modes) return DC_OK;
    modes = (*out)->modes;
    destroy_binding(*out);
  }
}

static bool is_for(const dc_binding *b, uint32_t modes, const int64_t *symbols, const dc_lent *lent) {
  if (b->modes != modes || memcmp(b->symbols, symbols, b->program->graph->pool.symbols.n * sizeof *symbols)) return false;
  bool same = b->lent.bytes == (lent ? lent->bytes : 0) && b->lent.n == (lent ? lent->n : 0);
  for (uint32_t k = 0; k < b->lent.n && same; k++) same = b->lent.v[k].c == lent->v[k].c && b->lent.v[k].offset == lent->v[k].offset;
  return same;
}

dc_status dc_program_bind(dc_program *p, const int64_t *symbols, const dc_lent *lent, dc_binding **out) {
  uint32_t modes = modes_of(p);
  dc_status status = DC_OK;
  if (!keeps_arenas(p)) lent = NULL;
  pthread_mutex_lock(&p->lock);
  dc_binding **at = &p->bindings;
  while (*at && !is_for(*at, modes, symbols, lent)) at = &(*at)->next;
  dc_binding *b = *at;
  if (b) *at = b->next;
  else status = make_in_one_mode(p, symbols, lent, modes, &b);
  if (!status) {
    b->next = p->bindings, p->bindings = b;
    b->users++;
    evict(p);
    *out = b;
  }
  pthread_mutex_unlock(&p->lock);
  return status;
}

bool dc_program_is_bound(const dc_program *p) { return p->bindings && p->bindings->modes == modes_of(p); }

void dc_binding_use(dc_binding *b) {
  pthread_mutex_lock(&b->program->lock);
  b->users++;
  pthread_mutex_unlock(&b->program->lock);
}

void dc_binding_release(dc_binding *b) {
  pthread_mutex_lock(&b->program->lock);
  b->users--;
  pthread_mutex_unlock(&b->program->lock);
}

void dc_binding_dims(const dc_binding *b, dc_cid c, int64_t *dims) {
  const dc_graph *g = b->program->graph;
  for (uint32_t d = 0; d < dc_cont(g, c)->rank; d++) dims[d] = dc_ix_eval(&g->pool, dc_cont(g, c)->shape[d], b->symbols, NULL);
}

uint64_t dc_binding_bytes(const dc_binding *b, dc_cid c) { return b->plan.bytes[c]; }
uint64_t dc_binding_arena_bytes(const dc_binding *b) { return b->plan.arena_bytes; }
double dc_binding_work(const dc_binding *b) { return b->work; }

bool dc_binding_is_brief(const dc_binding *b) {
  const dc_program *p = b->program;
  bool is_short = p->row->device ? p->n_steps <= FEW_LAUNCHES : b->work < BRIEF_WORK;
  return is_short && !p->n_natives && !p->observer && __atomic_load_n(&p->prepared, __ATOMIC_ACQUIRE);
}
uint64_t dc_binding_saved_bytes(const dc_binding *b) { return b->plan.saved_bytes; }
uint64_t dc_binding_saved_offset(const dc_binding *b, dc_cid c) { return b->plan.offset[c]; }

/* ---- running ---- */

static dc_status new_state(const dc_binding *b, dc_run_state **out) {
  const dc_program *p = b->program;
  dc_run_state *s = calloc(1, sizeof *s);
  if (!s) return dc_error(DC_ERR_MEMORY, "out of memory");
  s->table = calloc(p->graph->containers.n, sizeof *s->table);
  s->pointers = calloc(p->n_buffers + 1, sizeof *s->pointers);
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
  if (!keeps_arenas(b->program)) return DC_OK; /* until it is known that steps run one by one */
  dc_status status = ensure_arena(b, *out);
  if (!status && b->plan.block_bytes && !spoils) status = ensure_block(b, *out);
  if (status) destroy_state(b, *out), *out = NULL;
  return status;
}

static void give_state(dc_binding *b, dc_run_state *s) {
  if (s->block.data) give_block(b, s);
  if (workspace_of(b) || !keeps_arenas(b->program)) give_arena(b, s);
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
    char *base = given[root];
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

static uint64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static dc_status run_step(const dc_run *run, uint32_t k) {
  const dc_binding *b = run->binding;
  const dc_run_state *s = run->state;
  const dc_program *p = b->program;
  const step *st = &p->steps[k];
  void **pointers = s->pointers + st->first_buffer;
  for (uint32_t j = 0; j < st->n_buffers; j++) pointers[j] = s->table[p->buffers[st->first_buffer + j]];
  char *scratch = b->plan.scratch_in_block[k] ? block_of(s, run->saved) : s->arena.data;
  dc_step_frame frame = {p->graph, st->node, b->symbols, s->table, pointers, scratch + b->plan.scratch[k], s->stream};
  return b->calls[k]->run(&frame, b->calls[k]->context);
}

static dc_status run_steps(dc_run *run, uint32_t end) {
  dc_status status = DC_OK;
  for (; run->step < end && !status; run->step++) status = run_step(run, run->step);
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
  step *st = &p->steps[k];
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

static dc_status time_steps(dc_run *run, uint32_t end) {
  const dc_program *p = run->binding->program;
  uint32_t from = run->step, n = end > from ? end - from : 0;
  marked_step *marks = p->row->device && p->timing ? calloc(n + 1, sizeof *marks) : NULL;
  dc_status status = DC_OK;
  for (; run->step < end && !status; run->step++) status = time_step(run, run->step, marks ? &marks[run->step - from] : NULL);
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

/* What a program and a binding need before their first run. */
static dc_status ensure_ready(dc_program *p, dc_binding *b) {
  bool entered;
  if (__atomic_load_n(&p->prepared, __ATOMIC_ACQUIRE) && (!p->row->device || __atomic_load_n(&b->sized, __ATOMIC_ACQUIRE))) return DC_OK;
  DC_TRY(enter(p, &entered));
  dc_status status = ensure_prepared(p);
  if (!status) status = ensure_sized(p, b);
  leave(p, entered);
  return status;
}

/* Asks the device for nothing once both are ready: a run has its memory when it is known that its steps run one by one. */
dc_status dc_run_begin(dc_program *p, dc_binding *b, void *stream, void *saved, dc_run *out) {
  *out = (dc_run){.binding = b, .saved = saved};
  DC_TRY(ensure_ready(p, b));
  if (p->row->device) DC_TRY(p->row->device->complaint(p->state));
  return take_state(b, stream, saved != NULL, &out->state);
}

void dc_run_place(dc_run *run, void *const *buffers) { fill_table(run->binding, run->state, buffers, run->saved); }

dc_status dc_run_until(dc_run *run, uint32_t end) {
  const dc_program *p = run->binding->program;
  bool entered;
  if (run->step >= end) return DC_OK; /* the device is asked for nothing */
  dc_status status = enter(p, &entered);
  if (status) return status;
  bool watched = p->timing || p->observer, done = false;
  if (!watched && is_worth_recording(run, end)) status = replay(run, &done);
  if (!done && !status) status = enter_arena(run->binding, run->state);
  if (!done && !status) status = watched ? time_steps(run, end) : run_steps(run, end);
  leave(p, entered);
  return status;
}

void dc_run_end(dc_run *run) {
  bool entered = false, holds = run->state && run->state->arena.data && run->binding->program->row->device;
  if (!run->state) return;
  dc_status lost = holds ? enter(run->binding->program, &entered) : DC_OK; /* with all memory */
  if (lost) run->state->arena = (dc_work_block){NULL, 0};
  give_state(run->binding, run->state);
  if (holds && !lost) leave(run->binding->program, entered);
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

/* ---- reports ---- */

dc_binding *dc_program_recent(const dc_program *p) { return p->bindings; }

uint32_t dc_program_report(const dc_program *p, dc_step_report *out, uint32_t capacity) {
  const dc_binding *b = p->bindings;
  if (!b || !capacity) return p->n_steps;
  dc_graph *copy = dc_graph_clone(p->graph);
  dc_nid *seen = DC_NEW_ARRAY(&copy->arena, dc_nid, copy->containers.n);
  for (uint32_t k = 0; k < p->n_steps && k < capacity; k++) {
    const step *st = &p->steps[k];
    const dc_node *n = dc_node_at(p->graph, st->node);
    const char *by = !st->native ? st->call.by : b->natives[k] ? dc_native_name(b->natives[k]) : dc_name_text(&p->graph->names, n->lib.by);
    const char *why = st->native ? dc_name_text(&p->graph->names, n->lib.why) : "";
    double operations = dc_node_operations(p->target.ops, copy, st->node, b->symbols);
    out[k] = (dc_step_report){st->node, by ? by : dc_step_interpreted.by, why, operations,
                              dc_node_bytes(p->graph, st->node, b->plan.bytes, seen), (double)st->nanoseconds * 1e-9, st->runs};
  }
  dc_graph_destroy(copy);
  return p->n_steps;
}

dc_place dc_binding_place(const dc_binding *b, dc_cid c, uint64_t *offset) {
  dc_cid root = b->plan.root[c];
  *offset = b->plan.offset[root] + (uint64_t)b->plan.view[c];
  if (root != c) return DC_PLACE_VIEW;
  return b->plan.in_block[c] ? DC_PLACE_LENT : b->plan.planned[c] ? DC_PLACE_ARENA : b->plan.saved[c] ? DC_PLACE_SAVED : DC_PLACE_CALLER;
}

void dc_program_time(dc_program *p, bool on) {
  for (uint32_t k = 0; on && k < p->n_steps; k++) p->steps[k].nanoseconds = 0, p->steps[k].runs = 0;
  p->timing = on;
}

void dc_program_observe(dc_program *p, dc_step_observer observer, void *context) { p->observer = observer, p->observer_context = context; }
