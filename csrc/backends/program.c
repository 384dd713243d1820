/* Programs: a flat list of steps over a scheduled graph, and its bindings to sizes.
 *
 * A step is a function and its context.  Which is decided once, by the graph and the row of the target alone: compiled and
 * interpreted sums differ in their last bits, and every run of a program gives the same ones. */
#include "backends/program.h"

#include <stdlib.h>

#include "backends/report.h"

enum { FEW_SCALARS = 4 };

/* ---- creation ---- */

static dc_status list_steps(dc_program *p) {
  DC_VEC(dc_step) steps = {0};
  DC_VEC(dc_cid) buffers = {0};
  DC_VEC(dc_nid) nodes = {0};
  for (uint32_t s = 0; s < p->graph->states.n; s++) {
    const dc_scope *scope = &p->graph->states.v[s].scope;
    for (uint32_t k = 0; k < scope->n; k++) {
      dc_step made = {.node = scope->v[k], .native = dc_node_at(p->graph, scope->v[k])->kind == DC_NODE_LIBRARY};
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

static dc_status place_on_device(dc_program *p) {
  bool entered;
  DC_TRY(dc_program_enter(p, &entered));
  dc_status status = place_constants(p);
  dc_program_leave(p, entered);
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

/* Now, since a graph that runs may not change. */
static void read_chain_steps(dc_program *p) {
  if (p->row->device || !p->n_natives) return;
  p->chain_steps = DC_NEW_ARRAY(&p->arena, dc_chain_step, p->n_steps);
  for (uint32_t k = 0; k < p->n_steps; k++)
    if (!p->steps[k].native && !p->steps[k].once) dc_chain_read_node(p->graph, p->steps[k].node, &p->arena, &p->chain_steps[k]);
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
  if (!status) dc_once_find(p), status = place_on_device(p);
  if (!status) read_chain_steps(p);
  if (!status) return *out = p, DC_OK;
  leave_device(p);
  p->constants = NULL, p->graph = NULL; /* stays the caller's */
  dc_program_destroy(p);
  return status;
}
void dc_program_destroy(dc_program *p) {
  if (!p) return;
  for (dc_binding *b; (b = p->bindings);) p->bindings = b->next, dc_binding_destroy(b);
  pthread_mutex_destroy(&p->lock);
  pthread_mutex_destroy(&p->prepare_lock);
  if (p->constants) leave_device(p);
  if (p->state && p->row->drop) p->row->drop(p->state);
  dc_graph_destroy(p->graph);
  dc_arena_free(&p->arena);
  free(p);
}

dc_graph *dc_program_graph(const dc_program *program) { return program->graph; }

/* ---- reports ---- */

dc_binding *dc_program_recent(const dc_program *p) { return p->bindings; }

uint32_t dc_program_report(const dc_program *p, dc_step_report *out, uint32_t capacity) {
  const dc_binding *b = p->bindings;
  if (!b || !capacity) return p->n_steps;
  dc_graph *copy = dc_graph_clone(p->graph);
  dc_nid *seen = DC_NEW_ARRAY(&copy->arena, dc_nid, copy->containers.n);
  for (uint32_t k = 0; k < p->n_steps && k < capacity; k++) {
    const dc_step *st = &p->steps[k];
    const dc_node *n = dc_node_at(p->graph, st->node);
    const char *by = !st->native ? st->call.by : b->natives[k] ? dc_native_name(b->natives[k]) : dc_name_text(&p->graph->names, n->lib.by);
    const char *why = st->native ? dc_name_text(&p->graph->names, n->lib.why) : "";
    double operations = dc_node_operations(p->target.ops, copy, st->node, b->symbols);
    out[k] = (dc_step_report){.node = st->node, .by = by ? by : dc_step_interpreted.by, .why = why, .operations = operations,
                              .bytes = dc_node_bytes(p->graph, st->node, b->plan.bytes, seen),
                              .seconds = (double)st->nanoseconds * 1e-9, .runs = st->runs};
    const dc_chain *chain = dc_binding_chain_at(b, k);
    if (chain) out[k].chained = chain->end - k, out[k].channels = chain->extent, out[k].at_once = chain->at_once;
  }
  dc_graph_destroy(copy);
  return p->n_steps;
}

dc_place dc_binding_place(const dc_binding *b, dc_cid c, uint64_t *offset) {
  dc_cid root = b->plan.root[c];
  *offset = b->plan.offset[root] + (uint64_t)b->plan.view[c];
  if (root != c) return DC_PLACE_VIEW;
  if (dc_cont(b->program->graph, c)->is_once) return DC_PLACE_KEPT;
  return b->plan.in_block[c] ? DC_PLACE_LENT : b->plan.planned[c] ? DC_PLACE_ARENA : b->plan.saved[c] ? DC_PLACE_SAVED : DC_PLACE_CALLER;
}

void dc_program_time(dc_program *p, bool on) {
  for (uint32_t k = 0; on && k < p->n_steps; k++) p->steps[k].nanoseconds = 0, p->steps[k].runs = 0;
  p->timing = on;
}

void dc_program_observe(dc_program *p, dc_step_observer observer, void *context) { p->observer = observer, p->observer_context = context; }
