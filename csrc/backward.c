/* The backward pass of a call.
 *
 * It runs in parts, each of which completes some gradients, so that a caller can use those (send them to other
 * processes, step an optimizer, free them) while later ones are computed: a part ends where the gradients that it
 * completes exceed PART_BYTES.  Small functions have one. */
#include <stdlib.h>

#include "function.h"

enum { PART_BYTES = 1 << 20 }; /* the first bucket of torch's DistributedDataParallel */

/* ---- what a plan knows ---- */

static void connect_symbols(dc_plan_handle *plan, const dc_graph *forward, const dc_graph *backward) {
  plan->back_symbol = DC_NEW_ARRAY(&plan->arena, dc_sym, backward->pool.symbols.n);
  for (dc_sym s = 1; s < backward->pool.symbols.n; s++) {
    plan->back_symbol[s] = dc_symbol_find(&forward->pool, dc_name_text(&backward->names, backward->pool.symbols.v[s].name));
  }
}

static int32_t output_of(const dc_graph *forward, dc_cid c) {
  uint32_t k = 0;
  while (k < forward->outputs.n && forward->outputs.v[k] != c) k++;
  return k < forward->outputs.n ? (int32_t)k : -1;
}

/* Where each backward container gets its contents from. */
static void connect_containers(const dc_function *f, dc_plan_handle *plan, const dc_graph *forward, const dc_graph *backward) {
  plan->back_feed = DC_NEW_ARRAY(&plan->arena, dc_cid, backward->containers.n);
  plan->back_grad = DC_NEW_ARRAY(&plan->arena, int32_t, backward->containers.n);
  plan->back_arg = DC_NEW_ARRAY(&plan->arena, int32_t, backward->containers.n);
  plan->back_result = DC_NEW_ARRAY(&plan->arena, int32_t, backward->containers.n);
  uint32_t n_grads = 0, position = 0;
  for (uint32_t k = 0; k < forward->outputs.n; k++) n_grads += dc_dtype_is_float((dc_dtype)dc_cont(forward, forward->outputs.v[k])->dtype);
  int32_t *arg_of = DC_NEW_ARRAY(&plan->arena, int32_t, forward->containers.n); /* by forward container */
  for (dc_cid c = 0; c < forward->containers.n; c++) arg_of[c] = -1;
  for (uint32_t k = 0; k < f->n_args; k++) arg_of[f->args[k]] = (int32_t)k;
  for (dc_cid c = 1; c < backward->containers.n; c++) plan->back_grad[c] = -1;
  for (uint32_t k = 0; k < backward->inputs.n && position < n_grads; k++) plan->back_grad[backward->inputs.v[k]] = (int32_t)position++;
  for (dc_cid c = 1; c < backward->containers.n; c++) {
    uint8_t role = dc_cont(backward, c)->role;
    if (plan->back_grad[c] < 0 && (role == DC_ROLE_INPUT || role == DC_ROLE_PARAM || role == DC_ROLE_SAVED))
      plan->back_feed[c] = dc_container_find(forward, dc_cont_name(backward, c));
    plan->back_arg[c] = plan->back_feed[c] ? arg_of[plan->back_feed[c]] : -1;
    plan->back_result[c] = role == DC_ROLE_SAVED && plan->back_feed[c] ? output_of(forward, plan->back_feed[c]) : -1;
  }
}

typedef struct {
  const dc_graph *graph;
  uint32_t step;
  uint32_t *first, *last; /* by buffer: steps that touch it, from 1 on; 0: none */
  dc_nid *node;           /* by step */
  const dc_plan_handle *plan;
  uint32_t part, n_args, n_outputs;
} visit;

static void each_step(visit *v, void (*visit_step)(visit *v, dc_nid node)) {
  v->step = 0;
  for (uint32_t s = 0; s < v->graph->states.n; s++)
    for (uint32_t k = 0; k < v->graph->states.v[s].scope.n; k++) {
      v->step++;
      visit_step(v, v->graph->states.v[s].scope.v[k]);
    }
}

static uint32_t count_steps(const dc_graph *graph) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < graph->states.n; s++) n += graph->states.v[s].scope.n;
  return n;
}

static void note_touch(void *context, dc_cid c, dc_use use, dc_nid by) {
  visit *v = context;
  dc_cid root = dc_container_root(v->graph, c);
  (void)use, (void)by;
  if (!v->first[root]) v->first[root] = v->step;
  v->last[root] = v->step;
}

static void note_read(void *context, dc_cid c, dc_use use, dc_nid by) {
  visit *v = context;
  dc_cid root = dc_container_root(v->graph, c);
  int32_t arg = v->plan->back_arg[root], result = v->plan->back_result[root];
  (void)by;
  if (use == DC_USE_READ && arg >= 0) v->plan->part_reads[v->part * v->n_args + (uint32_t)arg] = true;
  if (use == DC_USE_READ && result >= 0) v->plan->part_results[v->part * v->n_outputs + (uint32_t)result] = true;
}

static void touches_of(visit *v, dc_nid node) {
  v->node[v->step] = node;
  dc_node_uses(v->graph, node, note_touch, v);
}
static void reads_of(visit *v, dc_nid node) {
  if (v->step > v->plan->part_end[v->part]) v->part++;
  dc_node_uses(v->graph, node, note_read, v);
}

/* Bytes of a gradient whose extents are known now: that of a parameter. */
static uint64_t gradient_bytes(const dc_graph *g, dc_cid c) {
  uint64_t n = (uint64_t)dc_dtype_bytes((dc_dtype)dc_cont(g, c)->dtype);
  for (uint32_t d = 0; d < dc_cont(g, c)->rank; d++) {
    int64_t extent;
    if (!dc_ex_is_int(&g->pool, dc_cont(g, c)->shape[d], &extent)) return 0;
    n *= (uint64_t)extent;
  }
  return n;
}

static void end_parts(const dc_function *f, dc_plan_handle *plan, const visit *v) {
  uint32_t n_steps = v->step;
  uint64_t *completes = DC_NEW_ARRAY(&plan->arena, uint64_t, n_steps + 1), bytes = 0, left = 0;
  for (uint32_t k = 0; k < f->options.n_wrt; k++) {
    dc_cid gradient = plan->wrt[k].gradient;
    if (gradient) completes[v->last[dc_container_root(v->graph, gradient)]] += gradient_bytes(v->graph, gradient);
  }
  for (uint32_t s = 0; s <= n_steps; s++) left += completes[s];
  plan->part_end = DC_NEW_ARRAY(&plan->arena, uint32_t, n_steps + 1);
  for (uint32_t s = 1; s < n_steps; s++) {
    bytes += completes[s], left -= completes[s];
    if (bytes < PART_BYTES || !left) continue;
    plan->part_end[plan->n_parts++] = s;
    bytes = 0;
  }
  plan->part_end[plan->n_parts++] = n_steps;
}

static uint32_t part_of(const dc_plan_handle *plan, uint32_t step) {
  uint32_t part = 0;
  while (plan->part_end[part] < step) part++;
  return part;
}

/* The container that a step copies, element by element, into `to`; 0 if it does anything else. */
static dc_cid copied_by(const dc_graph *g, dc_nid step, dc_cid to) {
  const dc_node *n = dc_node_at(g, step);
  if (n->kind == DC_NODE_MAP && n->map.schedule == DC_MAP_PARALLEL && n->map.body.n == 1) n = dc_node_at(g, n->map.body.v[0]);
  if (n->kind != DC_NODE_TASKLET || n->tasklet.out != to || n->tasklet.wcr || n->tasklet.guard) return 0;
  const dc_exnode *value = dc_ex_node(&g->pool, n->tasklet.value);
  if (value->op != DC_EX_READ || value->nargs != n->tasklet.rank) return 0;
  const dc_container *a = dc_cont(g, value->ref), *b = dc_cont(g, to);
  bool same = a->dtype == b->dtype && a->rank == b->rank && a->rank == value->nargs;
  for (uint32_t d = 0; same && d < a->rank; d++)
    same = a->shape[d] == b->shape[d] && dc_ex_arg(&g->pool, n->tasklet.value, d) == n->tasklet.index[d];
  return same ? value->ref : 0;
}

static void find_copies(const dc_function *f, dc_plan_handle *plan, const visit *v) {
  plan->copy_step = DC_NEW_ARRAY(&plan->arena, uint32_t, f->options.n_wrt);
  plan->copy_of = DC_NEW_ARRAY(&plan->arena, int32_t, f->options.n_wrt);
  for (uint32_t k = 0; k < f->options.n_wrt; k++) {
    dc_cid gradient = plan->wrt[k].gradient;
    if (!gradient || dc_cont(v->graph, gradient)->alias_of || v->first[gradient] != v->last[gradient]) continue;
    dc_cid from = copied_by(v->graph, v->node[v->first[gradient]], gradient);
    plan->copy_of[k] = from ? plan->back_grad[from] : -1;
    if (plan->copy_of[k] >= 0) plan->copy_step[k] = v->first[gradient];
  }
  plan->next_copy = DC_NEW_ARRAY(&plan->arena, uint32_t, v->step + 1);
  for (uint32_t k = 0; k < f->options.n_wrt; k++)
    if (plan->copy_step[k]) plan->next_copy[plan->copy_step[k] - 1] = plan->copy_step[k];
  for (uint32_t s = v->step; s-- > 0;)
    if (!plan->next_copy[s]) plan->next_copy[s] = plan->next_copy[s + 1];
}

static void find_parts(const dc_function *f, dc_plan_handle *plan, const dc_graph *backward) {
  visit v = {.graph = backward, .plan = plan, .n_args = f->n_args, .n_outputs = f->graph->outputs.n};
  v.first = DC_NEW_ARRAY(&plan->arena, uint32_t, backward->containers.n);
  v.last = DC_NEW_ARRAY(&plan->arena, uint32_t, backward->containers.n);
  v.node = DC_NEW_ARRAY(&plan->arena, dc_nid, count_steps(backward) + 1);
  each_step(&v, touches_of);
  find_copies(f, plan, &v);
  end_parts(f, plan, &v);
  plan->first_part = DC_NEW_ARRAY(&plan->arena, uint32_t, f->options.n_wrt);
  plan->ready_part = DC_NEW_ARRAY(&plan->arena, uint32_t, f->options.n_wrt);
  for (uint32_t k = 0; k < f->options.n_wrt; k++) {
    dc_cid root = dc_container_root(backward, plan->wrt[k].gradient);
    plan->first_part[k] = part_of(plan, v.first[root]), plan->ready_part[k] = part_of(plan, v.last[root]);
  }
  plan->part_reads = DC_NEW_ARRAY(&plan->arena, bool, (size_t)plan->n_parts * f->n_args);
  plan->part_results = DC_NEW_ARRAY(&plan->arena, bool, (size_t)plan->n_parts * v.n_outputs);
  each_step(&v, reads_of);
}

void dc_plan_connect(const dc_function *f, dc_plan_handle *plan, const dc_graph *forward, const dc_graph *backward) {
  connect_symbols(plan, forward, backward);
  connect_containers(f, plan, forward, backward);
  find_parts(f, plan, backward);
}

/* ---- what a call tells ---- */

void dc_call_describe(const dc_program *program, const dc_binding *binding, dc_cid c, dc_array *out) {
  const dc_container *k = dc_cont(dc_program_graph(program), c);
  out->data = NULL, out->dtype = (dc_dtype)k->dtype, out->device = (dc_device)k->device, out->ordinal = 0, out->rank = k->rank;
  dc_binding_dims(binding, c, out->dims);
}

bool dc_call_gradient(const dc_call *call, uint32_t k, dc_array *out) {
  dc_cid gradient = call->plan->wrt[k].gradient;
  if (gradient) dc_call_describe(call->plan->backward, call->backward, gradient, out), out->ordinal = call->ordinal;
  return gradient != 0;
}

int32_t dc_call_copied(const dc_call *call, uint32_t k) { return call->plan->copy_step[k] ? call->plan->copy_of[k] : -1; }
uint32_t dc_call_plan(const dc_call *call) { return call->plan->id; }
uint32_t dc_call_parts(const dc_call *call) { return call->plan->n_parts; }
uint32_t dc_call_ready(const dc_call *call, uint32_t k) { return call->plan->ready_part[k]; }
bool dc_call_reads(const dc_call *call, uint32_t part, uint32_t arg) {
  return call->plan->part_reads[part * call->function->n_args + arg];
}

bool dc_call_reads_result(const dc_call *call, uint32_t part, uint32_t k) { return call->plan->part_results[part * call->n_outputs + k]; }

bool dc_function_backward_reads(const dc_function *f, uint32_t arg) {
  bool found = false;
  for (uint32_t part = 0; f->last && arg < f->n_args && part < f->last->n_parts; part++)
    found |= f->last->part_reads[part * f->n_args + arg];
  return found;
}

/* ---- runs ---- */

struct dc_backward_run {
  const dc_call *call;
  dc_run run;
  uint32_t part;
  bool shares_given;
  void *buffers[]; /* by backward container */
};

dc_status dc_backward_begin(const dc_call *call, const dc_array *arrays, void *const *results, void *const *grad_outputs, void *saved,
                            bool spoils, void *stream, dc_backward_run **out) {
  const dc_plan_handle *plan = call->plan;
  const dc_graph *backward = dc_program_graph(plan->backward), *forward = dc_program_graph(plan->forward);
  dc_backward_run *run = calloc(1, sizeof *run + backward->containers.n * sizeof *run->buffers);
  if (!run) return dc_error(DC_ERR_MEMORY, "out of memory");
  run->call = call;
  for (dc_cid c = 1; c < backward->containers.n; c++) {
    dc_cid source = plan->back_feed[c];
    if (plan->back_grad[c] >= 0) run->buffers[c] = grad_outputs[plan->back_grad[c]];
    if (!source) continue;
    if (dc_cont(forward, source)->role == DC_ROLE_SAVED) run->buffers[c] = (char *)saved + dc_binding_saved_offset(call->forward, source);
    if (plan->back_result[c] >= 0) run->buffers[c] = results[plan->back_result[c]];
    bool is_constant = plan->gpu && plan->back_arg[c] >= 0 && call->function->by_value[plan->back_arg[c]]; /* it decided shapes */
    if (plan->back_arg[c] >= 0 && !is_constant) run->buffers[c] = arrays[plan->back_arg[c]].data;
  }
  dc_status status = dc_run_begin(plan->backward, call->backward, stream, spoils ? saved : NULL, &run->run);
  if (status) free(run);
  else *out = run;
  return status;
}

bool dc_backward_done(const dc_backward_run *run) { return run->part == run->call->plan->n_parts; }

bool dc_backward_needs(const dc_backward_run *run, uint32_t k) {
  const dc_plan_handle *plan = run->call->plan;
  return plan->wrt[k].gradient && plan->first_part[k] == run->part && !(run->shares_given && plan->copy_step[k]);
}
uint32_t dc_backward_part(const dc_backward_run *run) { return run->part; }

void dc_backward_give(dc_backward_run *run, uint32_t k, void *data) { run->buffers[run->call->plan->wrt[k].gradient] = data; }

void dc_backward_share_given(dc_backward_run *run) { run->shares_given = true; }

/* The next step that need not run, or `end`. */
static uint32_t next_copy(const dc_backward_run *run, uint32_t end) {
  uint32_t next = run->call->plan->next_copy[run->run.step];
  return run->shares_given && next && next <= end ? next - 1 : end;
}

dc_status dc_backward_next(dc_backward_run *run) {
  uint32_t end = run->call->plan->part_end[run->part++];
  dc_run_place(&run->run, run->buffers);
  while (run->run.step < end) {
    uint32_t stop = next_copy(run, end);
    DC_TRY(dc_run_until(&run->run, stop));
    if (stop < end) run->run.step = stop + 1;
  }
  return DC_OK;
}

void dc_backward_end(dc_backward_run *run) {
  if (run) dc_run_end(&run->run);
  free(run);
}
