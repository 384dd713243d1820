/* Reads the text form of a kernel that text.c writes. */
#include <string.h>

#include "backends/kernel/kernel.h"
#include "ir/lexer.h"

typedef struct {
  dc_parser lexer;
  dc_kernel *k;
} reader;

enum { MAX_BUFFERS = 1 << 16, MAX_ACCUMULATORS = 1 << 16 };

static dc_status accept(reader *r, const char *word, bool *took) { return dc_parser_accept(&r->lexer, word, took); }
static dc_status expect(reader *r, const char *word) { return dc_parser_expect(&r->lexer, word); }

static dc_status small(reader *r, int64_t least, int64_t most, int64_t *out) {
  DC_TRY(dc_parser_int(&r->lexer, out));
  if (*out >= least && *out <= most) return DC_OK;
  return dc_error_at(dc_parser_fail(&r->lexer, "a smaller number"), "%lld is not in %lld .. %lld", (long long)*out, (long long)least,
                     (long long)most);
}

/* "(", numbers between commas, ")" */
static dc_status numbers(reader *r, uint32_t n, int64_t most, int64_t *out) {
  for (uint32_t k = 0; k < n; k++) {
    DC_TRY(expect(r, k ? "," : "("));
    DC_TRY(small(r, 0, most, &out[k]));
  }
  return expect(r, ")");
}

/* ---- declarations ---- */

static dc_status read_symbol(reader *r) {
  char *name;
  int64_t min;
  DC_TRY(dc_parser_name(&r->lexer, &name));
  DC_TRY(expect(r, ">="));
  DC_TRY(dc_parser_int(&r->lexer, &min));
  dc_symbol_get(&r->lexer.graph->pool, name, min);
  return DC_OK;
}

static dc_status read_container(reader *r, bool is_register) {
  dc_graph *g = r->lexer.graph;
  char *name, *type_name, *base;
  dc_ex_list shape;
  bool took;
  DC_TRY(dc_parser_name(&r->lexer, &name));
  if (dc_container_find(g, name)) return dc_error_at(dc_parser_fail(&r->lexer, "a new name"), "'%s' is declared twice", name);
  if (!is_register && r->k->n_buffers + 1 != g->containers.n) return dc_parser_fail(&r->lexer, "buffers before registers");
  if (g->containers.n > MAX_BUFFERS) return dc_parser_fail(&r->lexer, "fewer buffers");
  DC_TRY(expect(r, ":"));
  DC_TRY(dc_parser_name(&r->lexer, &type_name));
  dc_dtype type = dc_dtype_from_name(type_name);
  if (!type) return dc_error_at(dc_parser_fail(&r->lexer, "a type"), "'%s'", type_name);
  DC_TRY(expect(r, "["));
  DC_TRY(dc_parser_list(&r->lexer, "]", &shape));
  if (shape.n > DC_MAX_RANK) return dc_parser_fail(&r->lexer, "fewer dimensions");
  dc_cid c = dc_container_add(g, name, type, shape.n, shape.v, DC_ROLE_TEMP);
  dc_cont(g, c)->storage = is_register ? DC_STORE_REGISTER : DC_STORE_HEAP;
  r->k->n_buffers += !is_register;
  if (is_register) DC_TRY(accept(r, "own", &took));
  while (is_register && r->k->own.n <= c) DC_PUSH(&g->arena, &r->k->own, false);
  if (is_register && took) return r->k->own.v[c] = true, DC_OK;
  DC_TRY(accept(r, "view", &took));
  if (!took) return DC_OK;
  DC_TRY(dc_parser_name(&r->lexer, &base));
  dc_cid of = dc_container_find(g, base);
  if (!of || of == c || dc_cont(g, of)->alias_of) return dc_error_at(dc_parser_fail(&r->lexer, "a buffer that views none"), "'%s'", base);
  dc_cont(g, c)->alias_of = of;
  return DC_OK;
}

/* ---- writes ---- */

static dc_status read_meets(reader *r, dc_write *w) {
  DC_TRY(expect(r, "("));
  for (bool more = true; more;) {
    dc_ex p;
    DC_TRY(dc_parser_expr(&r->lexer, &p));
    const dc_exnode *node = dc_ex_node(&r->lexer.graph->pool, p);
    if (node->op != DC_EX_PARAM) return dc_parser_fail(&r->lexer, "the parameter of a loop");
    DC_PUSH(r->k->arena, &w->meets, node->ref);
    DC_TRY(accept(r, ",", &more));
  }
  return expect(r, ")");
}

static dc_status read_condition(reader *r, dc_ex *out) {
  DC_TRY(dc_parser_expr(&r->lexer, out));
  return dc_ex_dtype(&r->lexer.graph->pool, *out) == DC_BOOL ? DC_OK : dc_parser_fail(&r->lexer, "a bool condition");
}

static dc_status read_accumulator(reader *r, dc_write *w) {
  int64_t a;
  DC_TRY(small(r, 0, MAX_ACCUMULATORS, &a));
  dc_kernel *k = r->k;
  while (k->accumulators.n <= a) DC_PUSH(k->arena, &k->accumulators, (dc_accumulator){0});
  w->accumulator = (uint32_t)a + 1;
  if (k->accumulators.v[a].first) return DC_OK;
  k->accumulators.v[a].first = w, k->accumulators.v[a].type = dc_dtype_compute((dc_dtype)dc_cont(k->graph, w->out)->dtype);
  return DC_OK;
}

static dc_status read_clauses(reader *r, dc_write *w) {
  bool took;
  DC_TRY(accept(r, "if", &took));
  if (took) DC_TRY(read_condition(r, &w->guard));
  DC_TRY(accept(r, "inside", &took));
  if (took) DC_TRY(read_condition(r, &w->inside));
  DC_TRY(accept(r, "as", &took));
  if (took) DC_TRY(read_accumulator(r, w));
  DC_TRY(accept(r, "meets", &took));
  return took ? read_meets(r, w) : DC_OK;
}

static dc_status read_write(reader *r, dc_loop *parent) {
  dc_kernel *k = r->k;
  dc_write *w = DC_NEW(k->arena, dc_write);
  bool took = false;
  w->ordinal = k->writes.n, w->parent = parent;
  DC_TRY(dc_parser_expr(&r->lexer, &w->element));
  const dc_exnode *element = dc_ex_node(k->pool, w->element);
  if (element->op != DC_EX_READ) return dc_parser_fail(&r->lexer, "an element that is written");
  w->out = element->ref;
  for (int wcr = DC_WCR_SUM; wcr <= DC_WCR_MAX && !took; wcr++) {
    DC_TRY(accept(r, dc_wcr_name((dc_wcr)wcr), &took));
    if (took) w->wcr = (uint8_t)wcr;
  }
  DC_TRY(expect(r, "="));
  DC_TRY(dc_parser_expr(&r->lexer, &w->value));
  DC_TRY(read_clauses(r, w));
  DC_PUSH(k->arena, &k->writes, w);
  DC_PUSH(k->arena, &parent->body, ((dc_item){.write = w}));
  return DC_OK;
}

/* ---- loops ---- */

static dc_status read_keeps(reader *r, dc_loop *l) {
  DC_TRY(expect(r, "("));
  for (bool more = true; more;) {
    int64_t a;
    DC_TRY(small(r, 0, MAX_ACCUMULATORS, &a));
    while (r->k->accumulators.n <= a) DC_PUSH(r->k->arena, &r->k->accumulators, (dc_accumulator){0});
    if (r->k->accumulators.v[a].home) return dc_parser_fail(&r->lexer, "one loop for each accumulator");
    r->k->accumulators.v[a].home = l;
    DC_TRY(accept(r, ",", &more));
  }
  return expect(r, ")");
}

static dc_status read_threads(reader *r, dc_loop *l) {
  int64_t n;
  dc_threads *t = l->threads = DC_NEW(r->k->arena, dc_threads);
  DC_TRY(expect(r, "("));
  DC_TRY(small(r, 1, DC_MAX_LOOPS, &n));
  DC_TRY(expect(r, ","));
  DC_TRY(small(r, 1, INT32_MAX, &t->block));
  DC_TRY(expect(r, ","));
  DC_TRY(dc_parser_expr(&r->lexer, &t->cost));
  DC_TRY(expect(r, ")"));
  t->n = (uint32_t)n;
  return accept(r, "sliced", &t->sliced);
}

static dc_status read_word(reader *r, dc_loop *l, bool *took) {
  static const char *const words[] = {"product", "lanes", "usual", "keeps", "collides", "vector", "ordered", "sums", "spread", "terms",
                                      "clear", "copy", "joined", "threads", "grid", "team", "pack", "turns", "tile", "overlaps"};
  enum { PRODUCT, LANES, USUAL, KEEPS, COLLIDES, VECTOR, ORDERED, SUMS, SPREAD, TERMS, CLEAR, COPY, JOINED, THREADS, GRID, TEAM, PACK,
         TURNS, TILE, OVERLAPS, WORDS };
  int64_t v[2];
  int word = 0;
  for (*took = false; word < WORDS && !*took; word += !*took) DC_TRY(accept(r, words[word], took));
  switch (word) {
    case PRODUCT: /* its sums are found again when the tree is complete */
      DC_TRY(numbers(r, 2, 1 << 12, v));
      l->product = DC_NEW(r->k->arena, dc_product);
      l->product->rows = v[0], l->product->columns = v[1];
      break;
    case LANES: DC_TRY(numbers(r, 1, 1 << 16, v)); l->lanes = (uint32_t)v[0]; break;
    case USUAL: DC_TRY(numbers(r, 1, INT32_MAX, v)); l->usual = v[0]; break;
    case KEEPS: return read_keeps(r, l);
    case COLLIDES: l->collides = true; break;
    case VECTOR: l->is_vector = true; break;
    case ORDERED: l->is_ordered = true; break;
    case SUMS: DC_TRY(numbers(r, 2, 1 << 16, v)); l->sum_lanes = (uint32_t)v[0], l->sum_levels = (uint32_t)v[1]; break;
    case SPREAD: DC_TRY(numbers(r, 1, 1 << 16, v)); l->spread = (uint32_t)v[0]; break;
    case TERMS: DC_TRY(numbers(r, 1, 16, v)); l->terms = (uint32_t)v[0]; break;
    case CLEAR: l->memory_run = DC_RUN_CLEAR; break;
    case COPY: l->memory_run = DC_RUN_COPY; break;
    case JOINED:
      DC_TRY(expect(r, "("));
      DC_TRY(dc_parser_expr(&r->lexer, &l->joined));
      return expect(r, ")");
    case THREADS: return read_threads(r, l);
    case GRID: l->on_grid = true; break;
    case TEAM: l->on_team = true; break;
    case PACK: DC_TRY(numbers(r, 1, 16, v)); l->pack = (uint32_t)v[0]; break;
    case TILE: DC_TRY(numbers(r, 1, DC_TILE, v)); l->tile = (uint32_t)v[0]; break;
    case OVERLAPS: DC_TRY(numbers(r, 1, 64, v)); l->overlaps = (uint32_t)v[0]; break;
    case TURNS: DC_TRY(numbers(r, 1, 1 << 10, v)); l->turns = (uint32_t)v[0]; break;
    default: break;
  }
  return DC_OK;
}

static dc_status read_body(reader *r, dc_loop *l);

static dc_status read_loop(reader *r, dc_loop *parent, uint8_t schedule, bool is_entry) {
  dc_ex begin, end;
  int64_t step = 1;
  char *name;
  bool took;
  DC_TRY(dc_parser_name(&r->lexer, &name));
  DC_TRY(expect(r, "in"));
  DC_TRY(dc_parser_or(&r->lexer, &begin));
  DC_TRY(expect(r, ":"));
  DC_TRY(dc_parser_or(&r->lexer, &end));
  DC_TRY(accept(r, ":", &took));
  if (took) DC_TRY(small(r, 1, INT32_MAX, &step));
  if (r->lexer.n_params == DC_MAX_LOOPS) return dc_parser_fail(&r->lexer, "a smaller nest of loops");
  dc_loop *l = dc_loop_new(r->k, name, begin, end, step);
  l->parent = parent, l->schedule = schedule, l->is_entry = is_entry;
  r->lexer.params[r->lexer.n_params++] = l->param;
  do DC_TRY(read_word(r, l, &took));
  while (took);
  DC_TRY(expect(r, "{"));
  DC_PUSH(r->k->arena, &parent->body, ((dc_item){.loop = l}));
  DC_TRY(read_body(r, l));
  r->lexer.n_params--;
  return DC_OK;
}

static dc_status read_item(reader *r, dc_loop *l) {
  static const char *const schedules[] = {"parallel", "sequential", "reduce", "scatter"};
  bool took;
  for (uint8_t k = 0; k < 4; k++) {
    DC_TRY(accept(r, schedules[k], &took));
    if (took) return read_loop(r, l, k, true);
  }
  DC_TRY(accept(r, "also", &took));
  if (!took) return read_write(r, l);
  return l == r->k->root ? dc_parser_fail(&r->lexer, "a loop of a map") : read_loop(r, l, l->schedule, false);
}

static dc_status read_body(reader *r, dc_loop *l) {
  bool done;
  DC_TRY(accept(r, "}", &done));
  while (!done) {
    DC_TRY(read_item(r, l));
    DC_TRY(accept(r, "}", &done));
  }
  return DC_OK;
}

/* ---- kernels ---- */

static void find_slice(dc_kernel *k, dc_loop *l) {
  if (!l->threads || !l->threads->sliced) return;
  dc_loop *at = l;
  while (at && (at->collides || at == l)) at = at->body.n == 1 ? at->body.v[0].loop : NULL;
  l->threads->slice = at;
  (void)k;
}

static void find_product(dc_kernel *k, dc_loop *l) {
  const dc_product *told = l->product;
  if (!told) return;
  l->product = NULL; /* else its own loops would look like part of one */
  dc_loop *n = l->body.n == 1 ? l->body.v[0].loop : NULL;
  dc_product *x = n ? dc_kernel_product_at(k, n) : NULL;
  for (uint32_t j = 0; x && j < x->n_sums; j++) x->sums[j].sum->in_product = true;
  if (x) x->rows = told->rows, x->columns = told->columns;
  l->product = x ? x : (dc_product *)told; /* the verifier refuses one without sums */
}

static dc_status read_grid(reader *r) {
  int64_t v[2];
  bool took;
  DC_TRY(accept(r, "grid", &took));
  if (!took) return DC_OK;
  DC_TRY(numbers(r, 2, 1024, v));
  r->k->grid = (dc_grid){.block = (uint32_t)v[0], .team = (uint32_t)v[1]};
  DC_TRY(accept(r, "across", &r->k->grid.across));
  DC_TRY(accept(r, "slices", &took));
  if (took) DC_TRY(numbers(r, 1, DC_MOST_SLICES, v));
  if (took) r->k->grid.slices = (uint32_t)v[0];
  DC_TRY(accept(r, "at_once", &took));
  if (took) DC_TRY(numbers(r, 1, DC_MOST_THREADS, v));
  if (took) r->k->grid.at_once = (uint32_t)v[0];
  return DC_OK;
}

static dc_status read_kernel(reader *r) {
  bool symbol, buffer, reg, done;
  DC_TRY(dc_parser_next(&r->lexer));
  DC_TRY(expect(r, "kernel"));
  DC_TRY(read_grid(r));
  DC_TRY(expect(r, "{"));
  do {
    DC_TRY(accept(r, "symbol", &symbol));
    if (symbol) DC_TRY(read_symbol(r));
    DC_TRY(accept(r, "buffer", &buffer));
    if (buffer) DC_TRY(read_container(r, false));
    DC_TRY(accept(r, "register", &reg));
    if (reg) DC_TRY(read_container(r, true));
  } while (symbol || buffer || reg);
  dc_kernel_open(r->k);
  DC_TRY(accept(r, "}", &done));
  while (!done) {
    DC_TRY(read_item(r, r->k->root));
    DC_TRY(accept(r, "}", &done));
  }
  if (r->lexer.token.kind != TOK_END) return dc_parser_fail(&r->lexer, "the end");
  dc_kernel_settle(r->k);
  dc_kernel_each_loop(r->k, r->k->root, find_product);
  dc_kernel_each_loop(r->k, r->k->root, find_slice);
  DC_TRY(dc_kernel_verify(r->k));
  dc_kernel_widen(r->k);
  return DC_OK;
}

dc_status dc_kernel_parse(const char *text, dc_kernel *out) {
  dc_arena scratch = {0};
  *out = (dc_kernel){.graph = dc_graph_create("kernel")};
  reader *r = DC_NEW(&scratch, reader);
  r->k = out;
  r->lexer.start = r->lexer.at = text, r->lexer.scratch = &scratch, r->lexer.graph = out->graph, r->lexer.is_flat = true;
  dc_status status = read_kernel(r);
  if (status) dc_kernel_free(out);
  dc_arena_free(&scratch);
  return dc_error_at(status, "kernel text");
}
