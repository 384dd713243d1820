/* Bindings: a program under values of its symbols, with its memory planned and the calls of libraries bound; and the few of them
 * that a program keeps. */
#include <stdlib.h>
#include <string.h>

#include "backends/limits.h"
#include "backends/program.h"
#include "backends/threads.h"

enum { MAX_BINDINGS = 64, FEW_LAUNCHES = 4 };
static const double BRIEF_WORK = 1000; /* element operations: some us of interpretation */
static const double HOLLOW_WALK = 1e6; /* iterations that find nothing to do, of a compiled kernel ... */
static const double HOLLOW_SHARE = 1024; /* ... for each that finds something, where interpreting that is quicker */

void dc_binding_destroy(dc_binding *b) {
  dc_binding_end_runs(b);
  for (uint32_t k = 0; b->natives && k < b->program->n_steps; k++) dc_native_call_destroy(b->natives[k]);
  dc_arena_free(&b->arena);
  free(b);
}

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
static const dc_step_call *call_of(const dc_binding *b, const dc_step *st, const dc_work *w) {
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
    if (p->steps[k].once) b->calls[k] = &dc_step_empty; /* done by then, but judged as others are */
    else b->work += found[k].work;
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

static void find_chains(dc_binding *b) {
  const dc_program *p = b->program;
  dc_chain_step *steps = dc_arena_copy(&b->arena, p->chain_steps, p->n_steps * sizeof *steps);
  for (uint32_t k = 0; k < p->n_steps; k++) {
    if (b->calls[k] == &dc_step_empty || b->calls[k] == &dc_step_interpreted) steps[k].extent = 0;
    else if (p->steps[k].native) dc_chain_read_call(p->graph, p->steps[k].node, b->natives[k], &b->arena, &steps[k]);
  }
  b->chain_threads = dc_thread_count();
  dc_chains_find(p->graph, steps, p->n_steps, &b->plan, b->symbols, b->chain_threads, &b->arena, &b->chains);
  b->chain_at = DC_NEW_ARRAY(&b->arena, uint32_t, p->n_steps);
  for (uint32_t c = 0; c < b->chains.n; c++) b->chain_at[b->chains.v[c].first] = c + 1;
}

/* Each thread has its own. */
static void add_scratch_of_parts(const dc_binding *b, uint64_t *scratch) {
  for (uint32_t c = 0; c < b->chains.n; c++)
    for (uint32_t k = b->chains.v[c].first; k < b->chains.v[c].end; k++) {
      const uint64_t all = b->natives[k] ? b->chain_threads * dc_memory_aligned(dc_native_part_scratch(b->natives[k])) : 0;
      if (all > scratch[k]) scratch[k] = all;
    }
}

/* Libraries are asked only for sizes that have been judged; what they want for themselves is then planned with the rest. */
static dc_status bind_natives(dc_binding *b, dc_plan_task *task) {
  const dc_program *p = b->program;
  uint64_t *scratch = DC_NEW_ARRAY(&b->arena, uint64_t, p->n_steps), most = 0;
  b->natives = DC_NEW_ARRAY(&b->arena, dc_native_call *, p->n_steps);
  for (uint32_t k = 0; k < p->n_steps; k++) {
    if (!p->steps[k].native) continue;
    DC_TRY(bind_native(b, k));
    scratch[k] = b->calls[k] == &dc_step_empty ? 0 : dc_native_scratch(b->natives[k]);
    if (scratch[k] > most) most = scratch[k];
  }
  if (p->chain_steps) find_chains(b), add_scratch_of_parts(b, scratch), task->chains = &b->chains;
  return most || b->chains.n ? dc_plan_make(p->graph, task, scratch, &b->arena, &b->plan) : DC_OK;
}

/* Libraries work on the device that is the thread's. */
static dc_status enter_and_bind_natives(dc_binding *b, dc_plan_task *task) {
  bool entered;
  DC_TRY(dc_program_enter(b->program, &entered));
  dc_status status = bind_natives(b, task);
  dc_program_leave(b->program, entered);
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
  dc_plan_task task = {nodes, p->n_steps, b->symbols, dc_program_keeps_arenas(p), lent ? &b->lent : NULL, NULL};
  dc_status status = dc_plan_make(p->graph, &task, NULL, &b->arena, &b->plan);
  if (!status) status = weigh(p, b, nodes);
  if (!status && p->n_natives) status = enter_and_bind_natives(b, &task);
  if (status) dc_binding_destroy(b);
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
  dc_binding_destroy(gone);
}

static uint32_t modes_of(const dc_program *p) { return p->n_natives ? p->row->modes(&p->target) : 0; }

/* Libraries read the modes themselves, which another thread may change meanwhile. */
static dc_status make_in_one_mode(dc_program *p, const int64_t *symbols, const dc_lent *lent, uint32_t modes, dc_binding **out) {
  for (;;) {
    DC_TRY(make_binding(p, symbols, lent, out));
    (*out)->modes = modes_of(p);
    if ((*out)->modes == modes) return DC_OK;
    modes = (*out)->modes;
    dc_binding_destroy(*out);
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
  if (!dc_program_keeps_arenas(p)) lent = NULL;
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
