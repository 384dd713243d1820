/* Tiles that threads of a block load along one loop of the grid, and use along another. */
#include "backends/printer/printer.h"

enum { ROWS = DC_TILE_THREADS / DC_TILE, MOST_TILES = 4 };

typedef struct {
  dc_printer *p;
  const dc_loop *tile, *last;
  dc_ex reads[MOST_TILES];
  uint32_t n;
} collector;

static void add(void *context, const dc_pool *pool, dc_ex read) {
  collector *c = context;
  (void)pool;
  if (c->n == MOST_TILES || !dc_read_is_crossing(c->p->k, c->tile, c->last, read)) return;
  for (uint32_t k = 0; k < c->n; k++)
    if (c->reads[k] == read) return;
  c->reads[c->n++] = read;
}

static collector collect(dc_printer *p, const dc_loop *tile, const dc_loop *last) {
  collector c = {.p = p, .tile = tile, .last = last};
  for (uint32_t j = 0; j < p->k->writes.n; j++) {
    dc_kernel_each_read(p->k, p->k->writes.v[j]->value, add, &c);
    if (p->k->writes.v[j]->guard) dc_kernel_each_read(p->k, p->k->writes.v[j]->guard, add, &c);
  }
  return c;
}

static const dc_type_spelling *type_of(const dc_printer *p, dc_ex read) {
  return &p->dialect->types[dc_cont(p->k->graph, dc_ex_node(p->pool, read)->ref)->dtype];
}

/* A loop over the parts of a tile that its threads take in turn; `of_tile` is what the place in a row counts, `of_last` the other, or
 * the other way round. */
static void open_part(dc_printer *p, const collector *c, const char *of_tile, const char *of_last, uint32_t *mark) {
  const dc_loop *loops[] = {c->tile, c->last};
  const char *places[] = {of_tile, of_last};
  const char *ends[] = {dc_print_value(p, c->tile->end), dc_print_value(p, c->last->end)};
  dc_text_puts(p->out, "#pragma unroll\n");
  dc_print_open(p, dc_arena_printf(p->arena, "for (int part = 0; part < %d; part += %d)", DC_TILE, ROWS));
  for (int k = 0; k < 2; k++) {
    const char *type = dc_print_index_type(p, dc_ex_par(p->pool, loops[k]->param));
    dc_print_line(p, "const %s j%u = (%s)(first%u + %s);", type, loops[k]->param, type, loops[k]->param, places[k]);
  }
  dc_print_line(p, "if (j%u >= %s || j%u >= %s) continue;", c->tile->param, ends[0], c->last->param, ends[1]);
  *mark = dc_print_scope(p);
}

static void load(dc_printer *p, const collector *c) {
  uint32_t mark;
  open_part(p, c, "side", "down + part", &mark);
  for (uint32_t k = 0; k < c->n; k++) {
    dc_cid of = dc_ex_node(p->pool, c->reads[k])->ref;
    const char *address = dc_print_value(p, dc_read_address(p->k, c->reads[k]));
    dc_print_line(p, "tile%u[(down + part) * %d + side] = b%u[%s];", k, DC_TILE + 1, of, address);
  }
  dc_print_scope_end(p, mark);
  dc_print_close(p);
  dc_print_line(p, "__syncthreads();");
}

void dc_print_tile_begin(dc_printer *p, const dc_loop *tile, const dc_loop *last, uint32_t *mark) {
  collector c = collect(p, tile, last);
  for (uint32_t k = 0; k < c.n; k++) /* a column more: rows begin in different banks */
    dc_print_line(p, "__shared__ %s tile%u[%d];", type_of(p, c.reads[k])->storage, k, DC_TILE * (DC_TILE + 1));
  load(p, &c);
  open_part(p, &c, "down + part", "side", mark);
  for (uint32_t k = 0; k < c.n; k++) {
    const char *element = dc_arena_printf(p->arena, "tile%u[side * %d + down + part]", k, DC_TILE + 1);
    const char *value = dc_print_around(p, type_of(p, c.reads[k])->load, element);
    dc_print_remember(p, c.reads[k], dc_print_local(p, dc_ex_dtype(p->pool, c.reads[k]), value));
  }
}

void dc_print_tile_end(dc_printer *p, uint32_t mark) {
  dc_print_scope_end(p, mark);
  dc_print_close(p);
  dc_print_line(p, "__syncthreads();");
}
