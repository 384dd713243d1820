/* Packs of iterations: their elements move between memory and arrays of a thread as a whole. */
#include "backends/printer/printer.h"

typedef struct {
  dc_printer *p;
  const dc_loop *l;
  bool stored, loaded;
} collector;

static void add(void *context, const dc_pool *pool, dc_ex read) {
  collector *c = context;
  dc_printer *p = c->p;
  dc_cid of = dc_ex_node(pool, read)->ref;
  if (!dc_read_is_packed(p->k, c->l, read, c->l->pack)) return;
  dc_ex address = dc_read_address(p->k, read);
  for (uint32_t k = 0; k < p->n_packs; k++) {
    if (p->packs[k].c != of || p->packs[k].address != address) continue;
    p->packs[k].stored |= c->stored, p->packs[k].loaded |= c->loaded;
    return;
  }
  struct dc_pack *grown = (void *)DC_NEW_ARRAY(p->arena, char, (p->n_packs + 1) * sizeof *grown);
  for (uint32_t k = 0; k < p->n_packs; k++) grown[k] = p->packs[k];
  grown[p->n_packs] = (struct dc_pack){.c = of, .address = address, .loaded = c->loaded, .stored = c->stored};
  p->packs = grown, p->n_packs++;
}

static void collect(dc_printer *p, const dc_loop *l) {
  for (uint32_t j = 0; j < l->body.n; j++) {
    const dc_write *w = l->body.v[j].write;
    collector reads = {p, l, false, true}, element = {p, l, true, w->wcr || w->guard};
    dc_kernel_each_read(p->k, w->value, add, &reads);
    dc_kernel_each_read(p->k, w->guard, add, &reads);
    if (!w->accumulator && !dc_kernel_is_register(p->k, w->out)) add(&element, p->pool, w->element);
  }
}

static const char *count_of(dc_printer *p, const dc_loop *l) {
  int64_t extent = dc_loop_extent(p->k, l);
  return extent >= 0 && extent % l->pack == 0 ? dc_arena_printf(p->arena, "%u", l->pack) : "count";
}

static void put_arrays(dc_printer *p, const dc_loop *l) {
  for (uint32_t k = 0; k < p->n_packs; k++) {
    const char *type = p->dialect->types[dc_cont(p->k->graph, p->packs[k].c)->dtype].storage;
    dc_print_line(p, "%s x%u[%u];", type, p->next_pack + k, l->pack * (dc_print_moves(p, l, k) ? dc_print_turning(l)->turns : 1));
  }
}

static void put_place(dc_printer *p, uint32_t pack) {
  struct dc_pack *x = &p->packs[pack];
  p->aligned |= (uint64_t)1 << (x->c < 63 ? x->c : 63);
  x->place = dc_arena_printf(p->arena, "&b%u[%s]", x->c, dc_print_value(p, x->address));
}

/* Loads the packs of which each turn has its own, or those of which it has not. */
static void put_loads(dc_printer *p, const dc_loop *l, bool moving, const char *count) {
  for (uint32_t k = 0; k < p->n_packs; k++) {
    if (!p->packs[k].loaded || dc_print_moves(p, l, k) != moving) continue;
    put_place(p, k);
    dc_print_line(p, "load_pack<%u>(&%s, %s, aligned, %s);", l->pack, dc_print_lane(p, l, k, "0"), p->packs[k].place, count);
  }
}

static void put_first(dc_printer *p, const dc_loop *l) {
  dc_print_line(p, "const %s j%u = base%u;", dc_print_index_type(p, dc_ex_par(p->pool, l->param)), l->param, l->param);
}

bool dc_print_packs_ahead(dc_printer *p, const dc_loop *l) {
  bool moving = false, still = false;
  collect(p, l);
  put_arrays(p, l);
  for (uint32_t k = 0; k < p->n_packs; k++)
    if (p->packs[k].loaded) *(dc_print_moves(p, l, k) ? &moving : &still) = true;
  if (!still) return moving;
  uint32_t mark = dc_print_scope(p);
  put_first(p, l);
  put_loads(p, l, false, count_of(p, l));
  dc_print_scope_end(p, mark);
  return moving;
}

void dc_print_pack_loads(dc_printer *p, const dc_loop *l) {
  put_first(p, l);
  put_loads(p, l, true, count_of(p, l));
}

void dc_print_pack_begin(dc_printer *p, const dc_loop *l, uint32_t *mark) {
  const char *type = dc_print_index_type(p, dc_ex_par(p->pool, l->param)), *count = count_of(p, l);
  const bool ahead = dc_print_turning(l) != NULL;
  if (!ahead) collect(p, l);
  if (count[0] == 'c') {
    const char *end = dc_print_value(p, l->end);
    dc_print_line(p, "const int count = %s - base%u < %u ? (int)(%s - base%u) : %u;", end, l->param, l->pack, end, l->param, l->pack);
  }
  put_first(p, l);
  *mark = dc_print_scope(p);
  if (!ahead) put_arrays(p, l), put_loads(p, l, false, count);
  for (uint32_t k = 0; k < p->n_packs; k++)
    if (p->packs[k].stored) put_place(p, k);
  dc_print_scope_end(p, *mark); /* of the first element only */
  p->packed = l;
  dc_text_puts(p->out, "#pragma unroll\n");
  dc_print_open(p, dc_arena_printf(p->arena, "for (int l = 0; l < %u; l++)", l->pack));
  if (count[0] == 'c') dc_print_line(p, "if (l >= count) continue;");
  dc_print_line(p, "const %s j%u = base%u + l;", type, l->param, l->param);
}

void dc_print_pack_end(dc_printer *p, const dc_loop *l, uint32_t mark) {
  const char *count = count_of(p, l);
  dc_print_scope_end(p, mark);
  dc_print_close(p);
  for (uint32_t k = 0; k < p->n_packs; k++)
    if (p->packs[k].stored)
      dc_print_line(p, "store_pack<%u>(%s, &%s, aligned, %s);", l->pack, p->packs[k].place, dc_print_lane(p, l, k, "0"), count);
  p->next_pack += p->n_packs;
  p->n_packs = 0;
}
