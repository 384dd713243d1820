/* What the generator builds graphs with.  Nodes are inferred at once, so that every choice sees shapes. */
#include "fuzz/build.h"

#include <string.h>

uint32_t fuzz_pick(builder *b, uint32_t below) {
  b->random ^= b->random << 13, b->random ^= b->random >> 7, b->random ^= b->random << 17;
  return below ? (uint32_t)((b->random * 0x9e3779b97f4a7c15u >> 33) % below) : 0;
}

bool fuzz_one_in(builder *b, uint32_t n) { return fuzz_pick(b, n) == 0; }

/* ---- shapes ---- */

uint32_t fuzz_rank(const builder *b, dc_cid c) { return dc_cont(b->g, c)->rank; }
dc_ex fuzz_dim(const builder *b, dc_cid c, uint32_t d) { return dc_cont(b->g, c)->shape[d]; }
bool fuzz_known(const builder *b, dc_ex extent, int64_t *value) { return dc_ex_is_int(&b->g->pool, extent, value); }
dc_ex fuzz_int(builder *b, int64_t value) { return dc_ex_int(&b->g->pool, value); }

dc_ex fuzz_extent(builder *b) {
  static const int64_t numbers[] = {1, 2, 2, 3, 3, 4, 5, 8, 17, 0};
  static const char *const symbols[] = {"A", "A", "A", "B", "B", "C"};
  if (b->is_symbolic && fuzz_pick(b, 5) < 2) return dc_ex_sym(&b->g->pool, dc_symbol_get(&b->g->pool, symbols[fuzz_pick(b, 6)], 0));
  uint32_t k = fuzz_pick(b, 10);
  return fuzz_int(b, numbers[k >= 8 && !fuzz_one_in(b, 4) ? 3 : k]);
}

int64_t fuzz_elements(const builder *b, dc_cid c, int64_t symbol) {
  int64_t values[64], n = 1;
  for (uint32_t s = 0; s < 64; s++) values[s] = symbol;
  for (uint32_t d = 0; d < fuzz_rank(b, c); d++) n *= dc_ix_eval(&b->g->pool, fuzz_dim(b, c, d), values, NULL);
  return n;
}

/* ---- values ---- */

static void add_to_pool(builder *b, dc_cid c) {
  if (b->n < FUZZ_VALUES && dc_cont(b->g, c)->dtype == b->real && !dc_cont(b->g, c)->known) b->pool[b->n++] = c;
}

static dc_cid made_before(builder *b, dc_dtype type, const dc_ex *shape, uint32_t rank) {
  if (b->next_made >= b->n_made) return 0;
  dc_cid c = b->made[b->next_made];
  const dc_container *k = dc_cont(b->g, c);
  if (k->dtype != type || k->rank != rank || memcmp(k->shape, shape, rank * sizeof *shape)) return 0;
  return b->next_made++, c;
}

static dc_cid make_input(builder *b, const char *name, dc_dtype type, const dc_ex *shape, uint32_t rank) {
  dc_cid c = made_before(b, type, shape, rank);
  if (c) return c;
  c = dc_container_add(b->g, name, type, rank, shape, DC_ROLE_INPUT);
  if (b->n_made < FUZZ_VALUES) b->made[b->n_made++] = c, b->next_made = b->n_made;
  return c;
}

dc_cid fuzz_input(builder *b, const dc_ex *shape, uint32_t rank) { return make_input(b, "x", b->real, shape, rank); }

dc_cid fuzz_index(builder *b, const char *kind, dc_ex bound, const dc_ex *shape, uint32_t rank) {
  dc_text name = {0};
  int64_t value;
  const dc_exnode *node = dc_ex_node(&b->g->pool, bound);
  if (fuzz_known(b, bound, &value)) dc_text_printf(&name, "%s_%lld", kind, (long long)value);
  else if (node->op == DC_EX_SYM) dc_text_printf(&name, "%s_%s", kind, dc_name_text(&b->g->names, b->g->pool.symbols.v[node->ref].name));
  else dc_text_printf(&name, "%s_1", kind);
  dc_cid c = make_input(b, name.s, DC_I64, shape, rank);
  dc_text_free(&name);
  return c;
}

dc_cid fuzz_scalar(builder *b, double value) {
  float narrow = (float)value;
  const void *data = b->real == DC_F64 ? (const void *)&value : &narrow;
  return dc_container_add_const(b->g, "c", b->real, 0, NULL, data, (uint64_t)dc_dtype_bytes(b->real));
}

dc_cid fuzz_ints(builder *b, const int64_t *values, uint32_t n) {
  return dc_container_add_const(b->g, "n", DC_I64, 1, &(int64_t){n}, values, n * sizeof *values);
}

dc_cid fuzz_any(builder *b) {
  uint32_t late = b->n < 5 ? b->n : 5;
  return b->pool[fuzz_one_in(b, 2) ? b->n - 1 - fuzz_pick(b, late) : fuzz_pick(b, b->n)];
}

dc_cid fuzz_ranked(builder *b, uint32_t least, uint32_t most) {
  for (int tries = 0; tries < 12; tries++) {
    dc_cid c = fuzz_any(b);
    if (fuzz_rank(b, c) >= least && fuzz_rank(b, c) <= most) return c;
  }
  return 0;
}

/* ---- nodes ---- */

static bool is_small(const builder *b, dc_cid c) {
  return dc_cont(b->g, c)->rank <= 5 && fuzz_elements(b, c, 2) <= FUZZ_MAX_ELEMENTS && fuzz_elements(b, c, 7) <= 20 * FUZZ_MAX_ELEMENTS;
}

dc_cid fuzz_node(builder *b, const char *op, const dc_cid *in, uint32_t n_in, const dc_attr *attrs, uint32_t n_attrs, dc_cid *more, uint32_t n_more) {
  dc_cid out[8] = {0}, blocked = 0;
  const char *dot = strchr(op, '.'), *domain = dot ? "dcml" : "", *name = dot ? dot + 1 : op;
  for (uint32_t k = 0; k <= n_more; k++) out[k] = dc_container_add(b->g, "t", 0, 0, NULL, DC_ROLE_TEMP);
  for (uint32_t k = 0; k <= n_more; k++) dc_cont(b->g, out[k])->shape = NULL;
  const dc_row *row = dc_ops_find(b->ops, domain, name, FUZZ_OPSET);
  dc_nid node = dc_node_library(b->g, name, domain, row ? dc_row_since(row) : 1, in, n_in, out, n_more + 1, attrs, n_attrs);
  dc_status status = dc_ops_infer(b->ops, b->g, node, &blocked);
  bool good = !status && !blocked;
  dc_status_free(status);
  for (uint32_t k = 0; k <= n_more && good; k++) good = is_small(b, out[k]);
  if (!good) return 0;
  dc_scope_push(b->g, dc_graph_scope(b->g), node);
  for (uint32_t k = 0; k <= n_more; k++) add_to_pool(b, out[k]);
  for (uint32_t k = 0; k < n_more; k++) more[k] = out[k + 1];
  return out[0];
}

dc_cid fuzz_apply(builder *b, const char *op, dc_cid x, dc_cid y, dc_cid z) {
  dc_cid in[] = {x, y, z};
  return x ? fuzz_node(b, op, in, z ? 3 : y ? 2 : 1, NULL, 0, NULL, 0) : 0;
}

dc_cid fuzz_apply_int(builder *b, const char *op, dc_cid x, dc_cid y, dc_cid z, const char *name, int64_t value) {
  dc_cid in[] = {x, y, z};
  dc_attr attr = dc_attr_int(b->g, name, value);
  return x ? fuzz_node(b, op, in, z ? 3 : y ? 2 : 1, &attr, 1, NULL, 0) : 0;
}
