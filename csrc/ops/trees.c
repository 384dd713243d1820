/* List functions for tables that are given by identifiers: forests and the entries of their leaves.
 *
 * Rows of ai.onnx.ml describe a tree by (tree, node) pairs; here they become positions, once,
 * while the row is instantiated.  What a tree computes stays in the row. */
#include <stdlib.h>

#include "ops/inst.h"

typedef struct {
  int64_t a, b;
  uint32_t at;
} pair;

static int by_key(const void *x, const void *y) {
  const pair *p = x, *q = y;
  if (p->a != q->a) return p->a < q->a ? -1 : 1;
  if (p->b != q->b) return p->b < q->b ? -1 : 1;
  return p->at < q->at ? -1 : p->at > q->at;
}

static dc_status integers(dc_inst *in, const dc_value *list, int64_t **out) {
  *out = DC_NEW_ARRAY(in->arena, int64_t, list->n + 1);
  if (list->kind != VAL_LIST) return dc_inst_fail(in, DC_ERR_MODEL, "expected a list of integers");
  for (uint32_t k = 0; k < list->n; k++)
    if (!dc_val_is_int(in, &list->items[k], &(*out)[k]))
      return dc_inst_fail(in, DC_ERR_MODEL, "expected integers that are known when shapes are computed");
  return DC_OK;
}

static dc_status sorted_pairs(dc_inst *in, const dc_value *a, const dc_value *b, pair **out) {
  int64_t *x, *y;
  DC_TRY(integers(in, a, &x));
  DC_TRY(integers(in, b, &y));
  if (a->n != b->n) return dc_inst_fail(in, DC_ERR_MODEL, "expected lists of one length, got %u and %u elements", a->n, b->n);
  *out = DC_NEW_ARRAY(in->arena, pair, a->n + 1);
  for (uint32_t k = 0; k < a->n; k++) (*out)[k] = (pair){x[k], y[k], k};
  qsort(*out, a->n, sizeof **out, by_key);
  return DC_OK;
}

/* The first entry that is not below the key. */
static uint32_t lower_bound(const pair *table, uint32_t n, int64_t a, int64_t b) {
  uint32_t low = 0, high = n;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    bool below = table[middle].a != a ? table[middle].a < a : table[middle].b < b;
    if (below) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* match(a, b, x, y): for each (x, y) the position of that pair in (a, b), -1 where it is not. */
dc_status dc_list_match(dc_inst *in, const dc_value *v, uint32_t n, dc_value *out) {
  pair *table, *wanted;
  (void)n;
  DC_TRY(sorted_pairs(in, &v[0], &v[1], &table));
  DC_TRY(sorted_pairs(in, &v[2], &v[3], &wanted));
  *out = dc_val_list(in, v[2].n);
  for (uint32_t k = 0; k < v[2].n; k++) {
    uint32_t at = lower_bound(table, v[0].n, wanted[k].a, wanted[k].b);
    bool found = at < v[0].n && table[at].a == wanted[k].a && table[at].b == wanted[k].b;
    out->items[wanted[k].at] = dc_val_int(in, found ? (int64_t)table[at].at : -1);
  }
  return DC_OK;
}

/* firsts(list): where each distinct value stands first, in the order of the values. */
dc_status dc_list_firsts(dc_inst *in, const dc_value *v, uint32_t n, dc_value *out) {
  pair *table;
  (void)n;
  DC_TRY(sorted_pairs(in, &v[0], &v[0], &table));
  *out = dc_val_list(in, v[0].n);
  out->n = 0;
  for (uint32_t k = 0; k < v[0].n; k++)
    if (k == 0 || table[k].a != table[k - 1].a) out->items[out->n++] = dc_val_int(in, table[k].at);
  return DC_OK;
}

/* grouped(groups, n): positions ordered by group, and where each of the n groups starts. */
dc_status dc_list_grouped(dc_inst *in, const dc_value *v, uint32_t n, dc_value *out) {
  pair *table;
  int64_t count;
  (void)n;
  DC_TRY(sorted_pairs(in, &v[0], &v[0], &table));
  if (!dc_val_is_int(in, &v[1], &count) || count < 0 || count > 1 << 24)
    return dc_inst_fail(in, DC_ERR_MODEL, "expected a number of groups");
  *out = dc_val_list(in, 2);
  out->items[0] = dc_val_list(in, v[0].n);
  out->items[1] = dc_val_list(in, (uint32_t)count + 1);
  for (uint32_t k = 0; k < v[0].n; k++) out->items[0].items[k] = dc_val_int(in, table[k].at);
  for (uint32_t g = 0; g <= (uint32_t)count; g++) out->items[1].items[g] = dc_val_int(in, lower_bound(table, v[0].n, g, INT64_MIN));
  return DC_OK;
}

/* longest(left, right, roots): the steps of the longest way down; a negative child is a leaf. */
dc_status dc_list_longest(dc_inst *in, const dc_value *v, uint32_t n, dc_value *out) {
  int64_t *child[2], *roots, deepest = 0;
  (void)n;
  DC_TRY(integers(in, &v[0], &child[0]));
  DC_TRY(integers(in, &v[1], &child[1]));
  DC_TRY(integers(in, &v[2], &roots));
  if (v[0].n != v[1].n) return dc_inst_fail(in, DC_ERR_MODEL, "expected lists of one length, got %u and %u elements", v[0].n, v[1].n);
  uint32_t nodes = v[0].n, *level = DC_NEW_ARRAY(in->arena, uint32_t, 2 * nodes + v[2].n + 1), top = 0, visits = 0;
  int64_t *stack = DC_NEW_ARRAY(in->arena, int64_t, 2 * nodes + v[2].n + 1);
  for (uint32_t k = 0; k < v[2].n; k++)
    if (roots[k] >= 0) stack[top] = roots[k], level[top++] = 1;
  while (top > 0) {
    int64_t node = stack[--top];
    uint32_t depth = level[top];
    if (node >= nodes || ++visits > nodes + v[2].n)
      return dc_inst_fail(in, DC_ERR_MODEL, "expected trees: a node is missing or has two parents");
    if (depth > deepest) deepest = depth;
    for (int side = 0; side < 2; side++)
      if (child[side][node] >= 0) stack[top] = child[side][node], level[top++] = depth + 1;
  }
  return *out = dc_val_int(in, deepest), DC_OK;
}
