/* Preparation: steps of a program become callable, and on a device know their sizes, before the first run. */
#include "backends/program.h"

dc_status dc_program_begin(dc_program *p) {
  return p->row->begin && !p->state ? p->row->begin(&p->target, p->graph, p->nodes, p->n_nodes, &p->state) : DC_OK;
}

static dc_status prepare_steps(dc_program *p, const dc_binding *b) {
  dc_step_call *calls = DC_NEW_ARRAY(&p->arena, dc_step_call, p->n_nodes);
  DC_TRY(p->row->prepare(&p->target, p->graph, p->nodes, p->n_nodes, &p->arena, calls, &p->state));
  for (uint32_t k = 0, done = 0; k < p->n_steps; k++)
    if (!p->steps[k].native) p->steps[k].call = calls[done++];
  return dc_once_run(b);
}

/* Before the first run, for many programs are bound and never run. */
static dc_status ensure_prepared(dc_program *p, const dc_binding *b) {
  if (__atomic_load_n(&p->prepared, __ATOMIC_ACQUIRE)) return DC_OK;
  pthread_mutex_lock(&p->prepare_lock);
  dc_status status = p->prepared ? DC_OK : prepare_steps(p, b);
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

/* What a program and a binding need before their first run. */
dc_status dc_program_ensure_ready(dc_program *p, dc_binding *b) {
  bool entered;
  if (__atomic_load_n(&p->prepared, __ATOMIC_ACQUIRE) && (!p->row->device || __atomic_load_n(&b->sized, __ATOMIC_ACQUIRE))) return DC_OK;
  DC_TRY(dc_program_enter(p, &entered));
  dc_status status = ensure_prepared(p, b);
  if (!status) status = ensure_sized(p, b);
  dc_program_leave(p, entered);
  return status;
}
