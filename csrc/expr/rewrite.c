/* Walking and rewriting expressions.  Both remember what they have seen, so that a DAG costs
 * its distinct nodes and not its paths. */
#include <stdlib.h>
#include <string.h>

#include "expr/expr.h"
#include "expr/pool.h"

/* A small map from expression to expression for one traversal; most expressions need no memory of the heap. */
enum { FEW = 32 };
typedef struct {
  dc_ex *key, *value;
  uint32_t count, capacity;
  dc_ex few_keys[FEW], few_values[FEW];
} memo;

static uint32_t memo_slot(const memo *m, dc_ex e) {
  uint32_t slot = (e * 2654435769u) & (m->capacity - 1);
  while (m->key[slot] && m->key[slot] != e) slot = (slot + 1) & (m->capacity - 1);
  return slot;
}

static void memo_free(memo *m) {
  if (m->key == m->few_keys) return;
  free(m->key);
  free(m->value);
}

static void memo_grow(memo *m) {
  if (!m->capacity) {
    m->key = m->few_keys, m->value = m->few_values, m->capacity = FEW;
    return;
  }
  dc_ex *keys = m->key, *values = m->value;
  uint32_t before = m->capacity;
  m->capacity = 4 * before;
  m->key = calloc(m->capacity, sizeof *m->key);
  m->value = calloc(m->capacity, sizeof *m->value);
  if (!m->key || !m->value) abort();
  for (uint32_t i = 0; i < before; i++) {
    if (!keys[i]) continue;
    uint32_t slot = memo_slot(m, keys[i]);
    m->key[slot] = keys[i], m->value[slot] = values[i];
  }
  if (keys == m->few_keys) return;
  free(keys);
  free(values);
}

static dc_ex memo_get(const memo *m, dc_ex e) { return m->capacity ? m->value[memo_slot(m, e)] : 0; }

static void memo_put(memo *m, dc_ex e, dc_ex value) {
  if (m->count * 2 >= m->capacity) memo_grow(m);
  uint32_t slot = memo_slot(m, e);
  m->count += m->key[slot] == 0;
  m->key[slot] = e, m->value[slot] = value;
}

/* False if it is there already. */
static bool memo_add(memo *m, dc_ex e) {
  if (m->count * 2 >= m->capacity) memo_grow(m);
  uint32_t slot = memo_slot(m, e);
  if (m->key[slot]) return false;
  m->key[slot] = e, m->count++;
  return true;
}

/* ---- walk ---- */

static void walk(const dc_pool *pool, dc_ex e, dc_visit_fn visit, void *context, memo *seen) {
  if (!e || !memo_add(seen, e)) return;
  uint32_t n = dc_ex_node(pool, e)->nargs;
  for (uint32_t k = 0; k < n; k++) walk(pool, dc_ex_arg(pool, e, k), visit, context, seen);
  visit(context, pool, e);
}

void dc_ex_walk(const dc_pool *pool, dc_ex e, dc_visit_fn visit, void *context) {
  memo seen = {0};
  walk(pool, e, visit, context, &seen);
  memo_free(&seen);
}

typedef struct {
  uint8_t op;
  uint32_t ref;
  bool found;
} search;

static void match(void *context, const dc_pool *pool, dc_ex e) {
  search *s = context;
  const dc_exnode *node = dc_ex_node(pool, e);
  if (node->op == s->op && (!s->ref || node->ref == s->ref)) s->found = true;
}

bool dc_ex_uses_param(const dc_pool *pool, dc_ex e, dc_param p) {
  search s = {.op = DC_EX_PARAM, .ref = p};
  if (e) dc_ex_walk(pool, e, match, &s);
  return s.found;
}

bool dc_ex_uses_op(const dc_pool *pool, dc_ex e, dc_op op) {
  search s = {.op = (uint8_t)op};
  if (e) dc_ex_walk(pool, e, match, &s);
  return s.found;
}

/* ---- rebuild ---- */

/* The same operation on other arguments, through the constructors, so that it folds again. */
static dc_ex rebuild(dc_pool *pool, dc_exnode node, const dc_ex *args) {
  dc_ex out;
  if (node.op < DC_PRIM_COUNT)
    return node.nargs == 1 ? dc_ex_prim1(pool, (dc_op)node.op, args[0]) : dc_ex_prim2(pool, (dc_op)node.op, args[0], args[1]);
  switch (node.op) {
    case DC_EX_LINEAR:
      out = dc_ex_int(pool, node.i);
      for (uint32_t k = 0; k < node.nargs; k += 2) out = dc_ix_add(pool, out, dc_ix_mul(pool, args[k], args[k + 1]));
      return out;
    case DC_EX_PRODUCT:
      out = args[0];
      for (uint32_t k = 1; k < node.nargs; k++) out = dc_ix_mul(pool, out, args[k]);
      return out;
    case DC_EX_IDIV: return dc_ix_div(pool, args[0], args[1]);
    case DC_EX_IMOD: return dc_ix_mod(pool, args[0], args[1]);
    case DC_EX_IMIN: return dc_ix_min(pool, args[0], args[1]);
    case DC_EX_IMAX: return dc_ix_max(pool, args[0], args[1]);
    case DC_EX_SELECT: return dc_ex_select(pool, args[0], args[1], args[2]);
    case DC_EX_CAST: return dc_ex_cast(pool, (dc_dtype)node.dtype, args[0]);
    case DC_EX_BITS: return dc_ex_bits(pool, (dc_dtype)node.dtype, args[0]);
    case DC_EX_READ: return dc_ex_read(pool, (dc_dtype)node.dtype, node.ref, args, node.nargs);
    case DC_EX_INT: case DC_EX_FLOAT: return dc_pool_cons(pool, node, NULL);
    default: return 0; /* symbols and parameters are leaves */
  }
}

static bool is_leaf(uint8_t op) { return op == DC_EX_SYM || op == DC_EX_PARAM; }

typedef struct {
  dc_pool *to;
  const dc_pool *from;
  dc_leaf_fn leaf;             /* within one pool */
  dc_leaf_fn each;             /* sees the rebuilt inner nodes as well; or NULL */
  void *context;
  const dc_importer *importer; /* between pools */
  memo done;
} rewriter;

enum { SMALL_ARGS = 16 };

static dc_ex rewrite(rewriter *r, dc_ex e) {
  if (!e) return 0;
  dc_ex known = memo_get(&r->done, e);
  if (known) return known;
  dc_exnode node = *dc_ex_node(r->from, e);
  dc_ex small[SMALL_ARGS], *args = node.nargs <= SMALL_ARGS ? small : malloc(node.nargs * sizeof *args), out;
  if (!args) abort();
  bool same = r->leaf != NULL;
  for (uint32_t k = 0; k < node.nargs; k++) {
    dc_ex before = dc_ex_arg(r->from, e, k);
    args[k] = rewrite(r, before);
    same = same && args[k] == before;
  }
  if (is_leaf(node.op)) {
    out = r->leaf ? r->leaf(r->context, r->to, e) : r->importer->leaf(r->importer->context, r->from, e);
  } else {
    if (node.op == DC_EX_READ && r->importer) node.ref = r->importer->container(r->importer->context, node.ref);
    out = same ? e : rebuild(r->to, node, args);
    if (node.op == DC_EX_READ && r->leaf) out = r->leaf(r->context, r->to, out);
    if (r->each) out = r->each(r->context, r->to, out);
  }
  if (args != small) free(args);
  memo_put(&r->done, e, out);
  return out;
}

dc_ex dc_ex_rewrite(dc_pool *pool, dc_ex e, dc_leaf_fn leaf, void *context) {
  rewriter r = {.to = pool, .from = pool, .leaf = leaf, .context = context};
  dc_ex out = rewrite(&r, e);
  memo_free(&r.done);
  return out;
}

static dc_ex keep_leaf(void *context, dc_pool *pool, dc_ex leaf) {
  (void)context, (void)pool;
  return leaf;
}

dc_ex dc_ex_transform(dc_pool *pool, dc_ex e, dc_leaf_fn each, void *context) {
  rewriter r = {.to = pool, .from = pool, .leaf = keep_leaf, .each = each, .context = context};
  dc_ex out = rewrite(&r, e);
  memo_free(&r.done);
  return out;
}

dc_ex dc_ex_import(dc_pool *to, const dc_pool *from, dc_ex e, const dc_importer *importer) {
  rewriter r = {.to = to, .from = from, .importer = importer};
  dc_ex out = rewrite(&r, e);
  memo_free(&r.done);
  return out;
}

dc_ex dc_ex_exchange(void *exchange, dc_pool *pool, dc_ex e) {
  const dc_exchange *x = exchange;
  (void)pool;
  return e == x->from ? x->to : e;
}

dc_ex dc_ex_substitute(void *context, dc_pool *pool, dc_ex leaf) {
  const dc_substitution *s = context;
  const dc_exnode *node = dc_ex_node(pool, leaf);
  if (node->op != DC_EX_PARAM) return leaf;
  for (uint32_t k = 0; k < s->n; k++)
    if (s->from[k] == node->ref) return s->to[k];
  return leaf;
}

dc_ex dc_ex_subst(dc_pool *pool, dc_ex e, const dc_param *from, const dc_ex *to, uint32_t n) {
  dc_substitution s = {from, to, n};
  return n ? dc_ex_rewrite(pool, e, dc_ex_substitute, &s) : e;
}
