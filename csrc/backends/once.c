/* Steps that read constants alone - filters kept in 8 bits that become floats, tables of sines - run when a program is prepared:
 * what they leave stays in memory of its own, and libraries hold it in their layouts as they do constants of the graph. */
#include <stdlib.h>

#include "backends/program.h"
#include "ir/work.h"

/* ---- which ---- */

typedef struct {
  const dc_graph *graph;
  const dc_writers *writers; /* by buffer */
  bool *written;             /* by buffer: the step at hand writes it */
  double reads, writes;      /* bytes, of the step at hand */
  bool good;
} search;

/* What is made of little - a mask of positions - is made again as quickly as it is read, and need not fill memory for good. */
static const double MODEST_BYTES = 0x1p20, MOST_FOR_A_BYTE = 16;
static bool is_worth_keeping(const search *s) { return s->writes <= MODEST_BYTES || s->writes <= MOST_FOR_A_BYTE * s->reads; }

static bool is_known_place(const dc_graph *graph, dc_cid c) {
  int64_t dims[DC_MAX_RANK], offset;
  const dc_container *k = dc_cont(graph, c);
  if (!dc_container_dims(graph, c, dims)) return false;
  return !k->alias_of || ((!k->alias_offset || dc_ex_is_int(&graph->pool, k->alias_offset, &offset)) && is_known_place(graph, k->alias_of));
}

static void look_at_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  search *s = context;
  const dc_cid root = dc_container_root(s->graph, c);
  const dc_container *k = dc_cont(s->graph, root);
  (void)by;
  if (k->storage != DC_STORE_HEAP) return;
  if (use == DC_USE_WRITE) s->written[root] = true;
  if (!is_known_place(s->graph, c)) {
    s->good = false;
    return;
  }
  bool constant = (k->role == DC_ROLE_CONST && k->data) || k->is_once;
  bool ours = k->role == DC_ROLE_TEMP && !k->is_output && !k->is_once && s->writers[root].n == 1;
  const double bytes = dc_container_elements(s->graph, c, NULL) * dc_dtype_bytes((dc_dtype)dc_cont(s->graph, c)->dtype);
  *(use == DC_USE_WRITE ? &s->writes : &s->reads) += bytes;
  s->good &= use == DC_USE_WRITE ? ours : constant || s->written[root];
}

void dc_once_find(dc_program *p) {
  dc_graph *graph = p->graph;
  const uint32_t n = graph->containers.n;
  for (dc_cid c = 1; c < n; c++) dc_cont(graph, c)->is_once = false; /* of the program whose graph this is a copy of */
  if (p->row->device) return;
  dc_arena arena = {0};
  dc_writers *writers = DC_NEW_ARRAY(&arena, dc_writers, n);
  dc_graph_writers(graph, writers);
  search s = {.graph = graph, .writers = writers, .written = DC_NEW_ARRAY(&arena, bool, n)};
  for (uint32_t k = 0; k < p->n_steps; k++) {
    dc_step *st = &p->steps[k];
    s.good = !st->native && dc_node_is_fixed(graph, st->node);
    if (!s.good) continue;
    s.reads = s.writes = 0;
    dc_node_uses(graph, st->node, look_at_use, &s);
    st->once = s.good = s.good && is_worth_keeping(&s);
    for (uint32_t j = 0; j < st->n_buffers; j++) {
      const dc_cid root = dc_container_root(graph, p->buffers[st->first_buffer + j]);
      dc_cont(graph, root)->is_once |= s.good && s.written[root];
      s.written[root] = false;
    }
  }
  dc_arena_free(&arena);
}

/* ---- running ---- */

static dc_status take_memory(dc_program *p, const dc_plan *plan) {
  for (dc_cid c = 1; c < p->graph->containers.n; c++) {
    dc_container *k = dc_cont(p->graph, c);
    if (!k->is_once || p->constants[c]) continue;
    k->data_bytes = plan->bytes[c];
    p->constants[c] = p->memory->take(p->memory->self, k->data_bytes, NULL);
    if (k->data_bytes && !p->constants[c])
      return dc_error(DC_ERR_MEMORY, "cannot get %llu bytes for '%s'", (unsigned long long)k->data_bytes, dc_cont_name(p->graph, c));
  }
  return DC_OK;
}

static dc_status run_step(const dc_binding *b, const dc_step *st, void *const *table, void **pointers) {
  const dc_program *p = b->program;
  for (uint32_t j = 0; j < st->n_buffers; j++) pointers[j + 1] = table[p->buffers[st->first_buffer + j]];
  const dc_step_frame frame = {p->graph, st->node, b->symbols, table, pointers + 1, NULL, NULL, NULL};
  return st->call.run(&frame, st->call.context);
}

dc_status dc_once_run(const dc_binding *b) {
  dc_program *p = b->program;
  bool any = false;
  for (uint32_t k = 0; k < p->n_steps; k++) any |= p->steps[k].once;
  if (!any) return DC_OK;
  DC_TRY(take_memory(p, &b->plan));
  dc_arena arena = {0};
  void **table = DC_NEW_ARRAY(&arena, void *, p->graph->containers.n), **pointers = DC_NEW_ARRAY(&arena, void *, p->n_buffers + 1);
  for (dc_cid c = 1; c < p->graph->containers.n; c++) {
    char *base = p->constants[b->plan.root[c]];
    table[c] = base ? base + b->plan.view[c] : NULL;
  }
  dc_status status = DC_OK;
  for (uint32_t k = 0; k < p->n_steps && !status; k++)
    if (p->steps[k].once) status = run_step(b, &p->steps[k], table, pointers);
  dc_arena_free(&arena);
  return status;
}
