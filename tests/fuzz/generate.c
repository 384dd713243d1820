/* Random graphs of operators: a table of ways to use values that are there already, and motifs that repeat them: steps
 * that share weights and values, recurrences, attention.  Every value may be read by several nodes and be an output. */
#include "fuzz/generate.h"

#include <string.h>

#include "fuzz/build.h"

/* ---- element by element ---- */

static dc_cid unary(builder *b) {
  static const char *const ops[] = {"Tanh", "Sigmoid", "Sin", "Cos", "Neg", "Softplus", "Erf", "Gelu", "Mish", "Swish", "Softsign", "Identity",
                                    "Relu", "Abs", "LeakyRelu", "Elu", "Selu", "HardSwish", "HardSigmoid", "Celu", "dcml.StopGradient"};
  return fuzz_apply(b, ops[fuzz_pick(b, sizeof ops / sizeof *ops)], fuzz_any(b), 0, 0);
}

static bool is_one(const builder *b, dc_ex extent) {
  int64_t value;
  return fuzz_known(b, extent, &value) && value == 1;
}

static bool broadcasts(const builder *b, dc_cid x, dc_cid y) {
  uint32_t rx = fuzz_rank(b, x), ry = fuzz_rank(b, y);
  for (uint32_t d = 1; d <= rx && d <= ry; d++) {
    dc_ex p = fuzz_dim(b, x, rx - d), q = fuzz_dim(b, y, ry - d);
    if (p != q && !is_one(b, p) && !is_one(b, q)) return false;
  }
  return true;
}

/* A value that broadcasts with x: one that is there, or an input, of a tail of the shape, perhaps with extents of 1. */
static dc_cid partner(builder *b, dc_cid x) {
  for (int tries = 0; tries < 6; tries++) {
    dc_cid y = fuzz_any(b);
    if (y != x && (broadcasts(b, x, y) || fuzz_one_in(b, 400))) return y;
  }
  dc_ex shape[8];
  uint32_t rank = fuzz_rank(b, x), skip = fuzz_one_in(b, 2) ? 0 : fuzz_pick(b, rank + 1);
  for (uint32_t d = skip; d < rank; d++) {
    dc_ex extent = fuzz_dim(b, x, d);
    shape[d - skip] = is_one(b, extent) && fuzz_one_in(b, 2) ? fuzz_extent(b) : fuzz_one_in(b, 4) ? fuzz_int(b, 1) : extent;
  }
  return fuzz_input(b, shape, rank - skip);
}

static dc_cid binary(builder *b) {
  static const char *const ops[] = {"Add", "Sub", "Mul", "Add", "Mul", "Max", "Min"};
  dc_cid x = fuzz_any(b), y = partner(b, x);
  const char *op = ops[fuzz_pick(b, sizeof ops / sizeof *ops)];
  return fuzz_one_in(b, 2) ? fuzz_apply(b, op, x, y, 0) : fuzz_apply(b, op, y, x, 0);
}

static dc_cid quotient(builder *b) { /* by 1 + y*y */
  dc_cid x = fuzz_any(b), y = partner(b, x), square = fuzz_apply(b, "Mul", y, y, 0);
  dc_cid below = square ? fuzz_apply(b, "Add", square, fuzz_scalar(b, 1), 0) : 0;
  if (below && fuzz_one_in(b, 2)) below = fuzz_apply(b, "Sqrt", below, 0, 0);
  return below ? fuzz_apply(b, "Div", x, below, 0) : 0;
}

static dc_cid several(builder *b) {
  static const char *const ops[] = {"Sum", "Mean", "Max", "Min"};
  dc_cid x = fuzz_any(b), y = partner(b, x), z = partner(b, x);
  return broadcasts(b, y, z) ? fuzz_apply(b, ops[fuzz_pick(b, 4)], x, y, z) : 0;
}

static dc_cid choice(builder *b) {
  static const char *const ops[] = {"Greater", "Less", "GreaterOrEqual"};
  dc_cid x = fuzz_any(b), y = partner(b, x), z = partner(b, x);
  if (!broadcasts(b, y, z)) return 0;
  dc_cid condition = fuzz_apply(b, ops[fuzz_pick(b, 3)], x, y, 0);
  return condition ? fuzz_apply(b, "Where", condition, fuzz_one_in(b, 3) ? fuzz_scalar(b, 0) : x, z) : 0;
}

static dc_cid clip(builder *b) { return fuzz_apply(b, "Clip", fuzz_any(b), fuzz_scalar(b, -0.7), fuzz_scalar(b, 0.9)); }

/* ---- reductions, norms ---- */

static dc_cid reduction(builder *b) {
  static const char *const ops[] = {"ReduceSum", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare", "ReduceLogSumExp"};
  dc_cid x = fuzz_ranked(b, 1, 5);
  if (!x) return 0;
  int64_t axes[8];
  uint32_t n = 0;
  for (uint32_t d = 0; d < fuzz_rank(b, x); d++)
    if (fuzz_one_in(b, 2)) axes[n++] = d;
  if (!n) axes[n++] = fuzz_pick(b, fuzz_rank(b, x));
  return fuzz_apply_int(b, ops[fuzz_pick(b, sizeof ops / sizeof *ops)], x, fuzz_ints(b, axes, n), 0, "keepdims", fuzz_pick(b, 2));
}

static dc_cid along_an_axis(builder *b) {
  static const char *const ops[] = {"Softmax", "Softmax", "LogSoftmax", "LpNormalization"};
  dc_cid x = fuzz_ranked(b, 1, 5);
  return x ? fuzz_apply_int(b, ops[fuzz_pick(b, 4)], x, 0, 0, "axis", fuzz_pick(b, fuzz_rank(b, x))) : 0;
}

static dc_cid normalisation(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 4);
  if (!x) return 0;
  dc_ex shape[8];
  uint32_t axis = fuzz_pick(b, fuzz_rank(b, x)), n = fuzz_rank(b, x) - axis;
  for (uint32_t d = 0; d < n; d++) shape[d] = fuzz_dim(b, x, axis + d);
  dc_cid scale = fuzz_input(b, shape, n);
  if (fuzz_one_in(b, 3)) return fuzz_apply_int(b, "RMSNormalization", x, scale, 0, "axis", axis);
  return fuzz_apply_int(b, "LayerNormalization", x, scale, fuzz_one_in(b, 2) ? fuzz_input(b, shape, n) : 0, "axis", axis);
}

static dc_cid running_sum(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 4);
  if (!x) return 0;
  int64_t axis = fuzz_pick(b, fuzz_rank(b, x));
  dc_cid at = dc_container_add_const(b->g, "n", DC_I64, 0, NULL, &axis, sizeof axis), in[] = {x, at};
  dc_attr attrs[] = {dc_attr_int(b->g, "exclusive", fuzz_pick(b, 2)), dc_attr_int(b->g, "reverse", fuzz_pick(b, 2))};
  return fuzz_node(b, "CumSum", in, 2, attrs, 2, NULL, 0);
}

/* ---- products ---- */

static dc_cid swapped(builder *b, dc_cid x) {
  int64_t order[8];
  uint32_t rank = fuzz_rank(b, x);
  for (uint32_t d = 0; d < rank; d++) order[d] = d;
  order[rank - 1] = rank - 2, order[rank - 2] = rank - 1;
  dc_attr attr = dc_attr_ints(b->g, "perm", order, rank);
  return fuzz_node(b, "Transpose", &x, 1, &attr, 1, NULL, 0);
}

static dc_cid product(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 4);
  if (!x) return 0;
  uint32_t rank = fuzz_rank(b, x);
  for (int tries = 0; tries < 6 && rank > 1; tries++) {
    dc_cid y = fuzz_ranked(b, 2, 4);
    if (!y || fuzz_rank(b, y) != rank || (rank > 2 && fuzz_dim(b, y, 0) != fuzz_dim(b, x, 0))) continue;
    if (fuzz_dim(b, y, rank - 2) == fuzz_dim(b, x, rank - 1)) return fuzz_apply(b, "MatMul", x, y, 0);
    if (fuzz_dim(b, y, rank - 1) == fuzz_dim(b, x, rank - 1) && (y = swapped(b, y))) return fuzz_apply(b, "MatMul", x, y, 0);
  }
  dc_ex k = fuzz_dim(b, x, rank - 1), n = fuzz_extent(b), shape[8];
  if (rank == 2 && fuzz_one_in(b, 3)) {
    bool turned = fuzz_one_in(b, 2);
    dc_cid w = fuzz_input(b, (dc_ex[]){turned ? n : k, turned ? k : n}, 2), in[] = {x, w, fuzz_input(b, &n, 1)};
    dc_attr attrs[] = {dc_attr_int(b->g, "transB", turned), dc_attr_float(b->g, "alpha", fuzz_one_in(b, 2) ? 1 : 0.5)};
    return fuzz_node(b, "Gemm", in, fuzz_one_in(b, 3) ? 2 : 3, attrs, 2, NULL, 0);
  }
  uint32_t batch = rank > 2 && fuzz_one_in(b, 2) ? rank - 2 : 0;
  for (uint32_t d = 0; d < batch; d++) shape[d] = fuzz_one_in(b, 4) ? fuzz_int(b, 1) : fuzz_dim(b, x, d);
  shape[batch] = k, shape[batch + 1] = n;
  return fuzz_apply(b, "MatMul", x, fuzz_input(b, shape, fuzz_one_in(b, 6) && !batch ? 1 : batch + 2), 0);
}

static dc_cid window(builder *b) {
  dc_cid x = fuzz_ranked(b, 3, 4);
  int64_t channels, size[2];
  if (!x || !fuzz_known(b, fuzz_dim(b, x, 1), &channels) || channels < 1) return 0;
  uint32_t n = fuzz_rank(b, x) - 2;
  int64_t kernel[2], pads[4], strides[2];
  dc_ex shape[4] = {fuzz_int(b, 1 + fuzz_pick(b, 3)), fuzz_int(b, channels)};
  for (uint32_t d = 0; d < n; d++) {
    kernel[d] = 1 + fuzz_pick(b, 3), strides[d] = 1 + fuzz_pick(b, 2), pads[d] = fuzz_pick(b, 2), pads[n + d] = fuzz_pick(b, 2);
    if (fuzz_known(b, fuzz_dim(b, x, 2 + d), &size[d]) && size[d] + pads[d] + pads[n + d] < kernel[d]) return 0;
    shape[2 + d] = fuzz_int(b, kernel[d]);
  }
  dc_attr attrs[] = {dc_attr_ints(b->g, "kernel_shape", kernel, n), dc_attr_ints(b->g, "pads", pads, 2 * n), dc_attr_ints(b->g, "strides", strides, n)};
  if (fuzz_one_in(b, 3)) return fuzz_node(b, fuzz_one_in(b, 2) ? "AveragePool" : "MaxPool", &x, 1, attrs, 3, NULL, 0);
  dc_cid in[] = {x, fuzz_input(b, shape, n + 2), fuzz_input(b, shape, 1)};
  return fuzz_node(b, "Conv", in, 2 + fuzz_pick(b, 2), attrs, 3, NULL, 0);
}

/* ---- moves ---- */

static dc_cid slice(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 5);
  if (!x) return 0;
  static const int64_t starts[] = {0, 1, -2, -1, 2}, ends[] = {INT64_MAX, -1, 2, 3}, steps[] = {1, 1, 1, 2, 3};
  int64_t axis = fuzz_pick(b, fuzz_rank(b, x)), start = starts[fuzz_pick(b, 5)], end = ends[fuzz_pick(b, 4)], step = steps[fuzz_pick(b, 5)];
  if (fuzz_one_in(b, 6)) start = -1, end = INT64_MIN, step = -1 - (int64_t)fuzz_pick(b, 2);
  dc_cid in[] = {x, fuzz_ints(b, &start, 1), fuzz_ints(b, &end, 1), fuzz_ints(b, &axis, 1), fuzz_ints(b, &step, 1)};
  return fuzz_node(b, "Slice", in, 5, NULL, 0, NULL, 0);
}

static dc_cid gather(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 4), index;
  int64_t values[3], extent = 0;
  if (!x) return 0;
  int64_t axis = fuzz_pick(b, fuzz_rank(b, x));
  dc_ex bound = fuzz_dim(b, x, (uint32_t)axis), shape[] = {fuzz_extent(b), fuzz_extent(b)};
  bool known = fuzz_known(b, bound, &extent);
  if (known && extent == 0) return 0;
  for (int k = 0; k < 3; k++) values[k] = known ? (int64_t)fuzz_pick(b, (uint32_t)extent) : k % 2 - 1;
  switch (fuzz_pick(b, 4)) {
    case 0: index = dc_container_add_const(b->g, "n", DC_I64, 0, NULL, values, sizeof *values); break;
    case 1: index = fuzz_ints(b, values, 1 + fuzz_pick(b, 3)); break;
    default: index = fuzz_index(b, "below", bound, shape, fuzz_pick(b, 3));
  }
  return fuzz_apply_int(b, "Gather", x, index, 0, "axis", axis);
}

static dc_cid update(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 3);
  if (!x) return 0;
  dc_ex shape[8];
  uint32_t rank = fuzz_rank(b, x), axis = fuzz_pick(b, rank);
  int64_t extent = 0;
  dc_ex bound = fuzz_dim(b, x, axis);
  if (fuzz_known(b, bound, &extent) && extent == 0) return 0;
  for (uint32_t d = 0; d < rank; d++) shape[d] = fuzz_dim(b, x, d);
  bool adds = fuzz_one_in(b, 2);
  if (adds || rank == 1) shape[axis] = adds ? fuzz_extent(b) : bound;
  if (fuzz_one_in(b, 3)) return fuzz_apply_int(b, "GatherElements", x, fuzz_index(b, "below", bound, shape, rank), 0, "axis", axis);
  dc_cid updates = fuzz_input(b, shape, rank);
  if (adds) {
    dc_cid in[] = {x, fuzz_index(b, "below", bound, shape, rank), updates};
    dc_attr attrs[] = {dc_attr_int(b->g, "axis", axis), dc_attr_string(b->g, "reduction", "add", 3)};
    return fuzz_node(b, "ScatterElements", in, 3, attrs, 2, NULL, 0);
  }
  if (rank == 1) return fuzz_apply(b, "ScatterElements", x, fuzz_index(b, "distinct", bound, shape, 1), updates);
  dc_ex rows[] = {fuzz_dim(b, x, 0), fuzz_int(b, 1)};
  return fuzz_apply(b, "ScatterND", x, fuzz_index(b, "distinct", rows[0], rows, 2), updates);
}

static dc_cid join(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 4), in[4] = {x};
  if (!x) return 0;
  uint32_t rank = fuzz_rank(b, x), axis = fuzz_pick(b, rank), n = 2 + fuzz_pick(b, 2);
  dc_ex shape[8];
  for (uint32_t d = 0; d < rank; d++) shape[d] = fuzz_dim(b, x, d);
  for (uint32_t k = 1; k < n; k++) {
    for (int tries = 0; tries < 5 && !in[k]; tries++) {
      dc_cid y = fuzz_any(b);
      bool fits = fuzz_rank(b, y) == rank;
      for (uint32_t d = 0; d < rank && fits; d++) fits = d == axis || fuzz_dim(b, y, d) == shape[d];
      if (fits) in[k] = y;
    }
    shape[axis] = fuzz_extent(b);
    if (!in[k]) in[k] = fuzz_one_in(b, 3) ? x : fuzz_input(b, shape, rank);
  }
  dc_attr attr = dc_attr_int(b->g, "axis", axis);
  return fuzz_node(b, "Concat", in, n, &attr, 1, NULL, 0);
}

static dc_cid split(builder *b) {
  dc_cid x = fuzz_ranked(b, 1, 4), second = 0;
  int64_t extent;
  if (!x) return 0;
  uint32_t axis = fuzz_pick(b, fuzz_rank(b, x));
  if (!fuzz_known(b, fuzz_dim(b, x, axis), &extent) || extent < 2) return 0;
  int64_t first = 1 + fuzz_pick(b, (uint32_t)extent - 1), parts[] = {first, extent - first};
  dc_cid in[] = {x, fuzz_ints(b, parts, 2)};
  dc_attr attr = dc_attr_int(b->g, "axis", axis);
  dc_cid a = fuzz_node(b, "Split", in, 2, &attr, 1, &second, 1);
  return a && first * 2 == extent && fuzz_one_in(b, 2) ? fuzz_apply(b, "Mul", a, second, 0) : a;
}

static dc_cid reshape(builder *b) {
  dc_cid x = fuzz_any(b);
  uint32_t rank = fuzz_rank(b, x);
  int64_t shape[8] = {0}, axis = fuzz_pick(b, rank + 1), extent;
  switch (fuzz_pick(b, 6)) {
    case 0: return fuzz_apply_int(b, "Flatten", x, 0, 0, "axis", axis);
    case 1: return fuzz_apply(b, "Unsqueeze", x, fuzz_ints(b, &axis, 1), 0);
    case 2:
      for (uint32_t d = 0; d < rank; d++)
        if (axis = d, is_one(b, fuzz_dim(b, x, d))) return fuzz_apply(b, "Squeeze", x, fuzz_ints(b, &axis, 1), 0);
      return 0;
    case 3: shape[0] = -1; return fuzz_apply(b, "Reshape", x, fuzz_ints(b, shape, 1), 0);
    case 4: /* the last two become one */
      if (rank < 2) return 0;
      shape[rank - 2] = -1;
      return fuzz_apply(b, "Reshape", x, fuzz_ints(b, shape, rank - 1), 0);
    default: /* the last one becomes two */
      if (!rank || rank > 3 || !fuzz_known(b, fuzz_dim(b, x, rank - 1), &extent) || extent < 2) return 0;
      shape[rank - 1] = extent % 2 ? extent : extent / 2, shape[rank] = extent % 2 ? 1 : 2;
      return fuzz_apply(b, "Reshape", x, fuzz_ints(b, shape, rank + 1), 0);
  }
}

static dc_cid transpose(builder *b) {
  dc_cid x = fuzz_ranked(b, 2, 4);
  if (!x) return 0;
  int64_t order[8];
  uint32_t rank = fuzz_rank(b, x);
  for (uint32_t d = 0; d < rank; d++) order[d] = d;
  for (uint32_t d = rank - 1; d; d--) {
    uint32_t k = fuzz_pick(b, d + 1);
    int64_t swap = order[d];
    order[d] = order[k], order[k] = swap;
  }
  dc_attr attr = dc_attr_ints(b->g, "perm", order, rank);
  return fuzz_node(b, "Transpose", &x, 1, &attr, 1, NULL, 0);
}

static dc_cid enlarge(builder *b) {
  dc_cid x = fuzz_ranked(b, 0, 3);
  if (!x) return 0;
  int64_t list[16] = {0};
  uint32_t rank = fuzz_rank(b, x);
  dc_attr mode = fuzz_one_in(b, 3) ? dc_attr_string(b->g, "mode", "edge", 4) : dc_attr_string(b->g, "mode", "constant", 8);
  switch (fuzz_pick(b, 4)) {
    case 0:
      for (uint32_t d = 0; d < rank; d++) list[d] = 1 + fuzz_pick(b, 2);
      return rank ? fuzz_apply(b, "Tile", x, fuzz_ints(b, list, rank), 0) : 0;
    case 1:
      for (uint32_t d = 0; d < 2 * rank; d++) list[d] = (int64_t)fuzz_pick(b, 3) - (fuzz_one_in(b, 4) && mode.n == 8);
      dc_cid in[] = {x, fuzz_ints(b, list, 2 * rank)};
      return rank ? fuzz_node(b, "Pad", in, 2, &mode, 1, NULL, 0) : 0;
    case 2: return rank > 1 ? fuzz_apply_int(b, "Trilu", x, 0, 0, "upper", fuzz_pick(b, 2)) : 0;
    default:
      for (uint32_t d = 0; d <= rank; d++) list[d] = d ? 1 : 1 + fuzz_pick(b, 3);
      return fuzz_apply(b, "Expand", x, fuzz_ints(b, list, rank + 1), 0);
  }
}

/* ---- recurrences ---- */

/* A sweep over [time, batch, features]. */
static dc_cid sweep(builder *b, dc_cid x) {
  static const char *const ops[] = {"GRU", "RNN", "LSTM"}, *const directions[] = {"forward", "reverse", "bidirectional"};
  static const int64_t gates[] = {3, 1, 4};
  uint32_t kind = fuzz_pick(b, 3), turn = fuzz_pick(b, 5) % 3;
  int64_t d = turn == 2 ? 2 : 1, h = 1 + fuzz_pick(b, 4), axis = 1;
  if (!x || fuzz_rank(b, x) != 3) x = fuzz_input(b, (dc_ex[]){fuzz_extent(b), fuzz_extent(b), fuzz_extent(b)}, 3);
  dc_ex dirs = fuzz_int(b, d), v = fuzz_int(b, gates[kind] * h), hidden = fuzz_int(b, h);
  dc_cid w = fuzz_input(b, (dc_ex[]){dirs, v, fuzz_dim(b, x, 2)}, 3), r = fuzz_input(b, (dc_ex[]){dirs, v, hidden}, 3), last[2] = {0};
  dc_cid bias = fuzz_one_in(b, 2) ? fuzz_input(b, (dc_ex[]){dirs, fuzz_int(b, 2 * gates[kind] * h)}, 2) : 0;
  dc_cid start = fuzz_one_in(b, 2) ? fuzz_input(b, (dc_ex[]){dirs, fuzz_dim(b, x, 1), hidden}, 3) : 0;
  dc_cid in[] = {x, w, r, bias, 0, start};
  dc_attr attrs[] = {dc_attr_int(b->g, "hidden_size", h), dc_attr_string(b->g, "direction", directions[turn], strlen(directions[turn])),
                     dc_attr_int(b->g, "linear_before_reset", 1)};
  dc_cid y = fuzz_node(b, ops[kind], in, start ? 6 : bias ? 4 : 3, attrs, kind ? 2 : 2 + fuzz_pick(b, 2), last, kind == 2 ? 2 : 1);
  if (y && d == 1 && !fuzz_one_in(b, 4)) y = fuzz_apply(b, "Squeeze", y, fuzz_ints(b, &axis, 1), 0); /* [time, batch, hidden] */
  return y;
}

static dc_cid recurrence(builder *b) { return sweep(b, fuzz_ranked(b, 3, 3)); }

/* ---- the table ---- */

static const struct {
  dc_cid (*add)(builder *);
  uint32_t weight;
} ways[] = {{unary, 8}, {binary, 12}, {quotient, 2}, {several, 1}, {choice, 2}, {clip, 1}, {reduction, 7}, {along_an_axis, 4}, {normalisation, 2},
            {running_sum, 1}, {product, 8}, {window, 1}, {slice, 3}, {gather, 3}, {update, 2}, {join, 4}, {split, 2}, {reshape, 3}, {transpose, 3},
            {enlarge, 2}, {recurrence, 1}};

static dc_cid any_way(builder *b) {
  uint32_t total = 0, k = 0;
  for (size_t j = 0; j < sizeof ways / sizeof *ways; j++) total += ways[j].weight;
  uint32_t at = fuzz_pick(b, total);
  while (at >= ways[k].weight) at -= ways[k++].weight;
  return ways[k].add(b);
}

/* ---- inputs that are written in place ---- */

typedef struct {
  dc_param params[8];
  dc_ex index[8];
  uint32_t n;
} elements;

/* Loops over the elements of a value; `half`: over every second along the last dimension. */
static elements elements_of(builder *b, dc_cid c, bool half) {
  dc_pool *pool = &b->g->pool;
  elements e = {.n = fuzz_rank(b, c)};
  for (uint32_t d = 0; d < e.n; d++) {
    e.params[d] = dc_param_new(pool, "i", dc_ex_int(pool, 0), fuzz_dim(b, c, d), half && d + 1 == e.n ? dc_ex_int(pool, 2) : 0);
    e.index[d] = dc_ex_par(pool, e.params[d]);
  }
  return e;
}

static dc_ex element(builder *b, dc_cid c, const elements *e) { return dc_ex_read(&b->g->pool, b->real, c, e->index, e->n); }

/* An input of that shape: one that is there, or a new one. */
static dc_cid target(builder *b, dc_cid like) {
  dc_ex shape[8];
  uint32_t rank = fuzz_rank(b, like);
  for (uint32_t d = 0; d < rank; d++) shape[d] = fuzz_dim(b, like, d);
  for (uint32_t k = 0; k < b->n; k++) {
    dc_cid c = b->pool[fuzz_pick(b, b->n)];
    bool same = c != like && dc_cont(b->g, c)->role == DC_ROLE_INPUT && fuzz_rank(b, c) == rank;
    for (uint32_t d = 0; d < rank && same; d++) same = fuzz_dim(b, c, d) == shape[d];
    if (same) return c;
  }
  return fuzz_input(b, shape, rank);
}

/* x is written, added or partly written to an input, or the input to itself; who reads that later sees it. */
static dc_cid in_place(builder *b) {
  dc_pool *pool = &b->g->pool;
  dc_cid x = fuzz_any(b), z = target(b, x);
  if (z == x || fuzz_rank(b, x) > 4 || dc_cont(b->g, x)->role == DC_ROLE_CONST) return 0;
  uint32_t way = fuzz_pick(b, 6), n;
  elements e = elements_of(b, z, way == 1);
  dc_ex value = element(b, x, &e), guard = 0;
  dc_wcr wcr = way == 2 ? DC_WCR_SUM : way == 3 ? DC_WCR_MAX : DC_WCR_NONE;
  if (way == 4) value = dc_ex_prim2(pool, DC_ADD, dc_ex_prim2(pool, DC_MUL, element(b, z, &e), dc_ex_const(pool, b->real, 0.5)), value);
  if (way == 5) guard = dc_ex_prim2(pool, DC_LT, element(b, z, &e), value);
  dc_nid tasklet = dc_node_tasklet(b->g, z, wcr, e.index, n = e.n, guard, value);
  dc_scope_push(b->g, dc_graph_scope(b->g), dc_node_wrap(b->g, DC_MAP_PARALLEL, e.params, n, tasklet));
  if (b->n < FUZZ_VALUES) b->pool[b->n++] = z; /* rather a late one */
  return z;
}

/* An operator whose result is the caller's array. */
static dc_cid result_in_place(builder *b) {
  dc_cid x = fuzz_any(b), y = fuzz_apply(b, fuzz_one_in(b, 2) ? "Tanh" : "Neg", x, 0, 0), z = y ? target(b, y) : 0;
  dc_scope *scope = dc_graph_scope(b->g);
  if (!y || z == x) return y;
  dc_node_at(b->g, scope->v[scope->n - 1])->lib.out[0] = z;
  if (b->pool[b->n - 1] != y) return y; /* it was full */
  return b->pool[b->n - 1] = z;
}

/* ---- steps ---- */

/* x as something that may be added to `like` and keeps its shape. */
static dc_cid fitted(builder *b, dc_cid x, dc_cid like) {
  int64_t axes[8];
  uint32_t n = 0, rank = fuzz_rank(b, x), have = fuzz_rank(b, like), lead = rank > have ? rank - have : 0;
  for (uint32_t d = 0; d < lead; d++) axes[n++] = d;
  if (n && !(x = fuzz_apply_int(b, "ReduceMean", x, fuzz_ints(b, axes, n), 0, "keepdims", 0))) return 0;
  rank = fuzz_rank(b, x), n = 0;
  for (uint32_t d = 0; d < rank; d++)
    if (fuzz_dim(b, x, d) != fuzz_dim(b, like, have - rank + d) && !is_one(b, fuzz_dim(b, x, d))) axes[n++] = d;
  return n ? fuzz_apply_int(b, "ReduceSum", x, fuzz_ints(b, axes, n), 0, "keepdims", 1) : x;
}

/* One step: a few random nodes over the state and what came before all steps, then the next state. */
static dc_cid step(builder *b, dc_cid state, uint32_t length, dc_cid *seen) {
  b->pool[b->n++] = state;
  dc_cid last = 0;
  for (uint32_t k = 0; k < length; k++) {
    dc_cid made = any_way(b);
    if (made && dc_cont(b->g, made)->dtype == b->real) last = made;
  }
  *seen = last ? last : state;
  dc_cid change = last ? fitted(b, last, state) : 0, sum = change ? fuzz_apply(b, "Add", state, change, 0) : 0;
  if (!sum || fuzz_rank(b, sum) != fuzz_rank(b, state)) return state;
  return fuzz_apply(b, "Tanh", sum, 0, 0);
}

static dc_cid stacked(builder *b, const dc_cid *values, uint32_t n, uint32_t most) {
  dc_cid in[8];
  int64_t axis = fuzz_pick(b, most + 1);
  for (uint32_t k = 0; k < n; k++)
    if (!(in[k] = fuzz_apply(b, "Unsqueeze", values[k], fuzz_ints(b, &axis, 1), 0))) return 0;
  dc_attr attr = dc_attr_int(b->g, "axis", axis);
  return fuzz_node(b, "Concat", in, n, &attr, 1, NULL, 0);
}

/* The same nodes n times, with the same weights. */
static void unrolled(builder *b) {
  dc_cid state = fuzz_ranked(b, 1, 3), states[8], seen[8];
  if (!state || b->n > FUZZ_VALUES / 2) return;
  uint32_t n = 2 + fuzz_pick(b, 4), length = 2 + fuzz_pick(b, 5), base = b->n, first = b->n_made;
  uint64_t restart = b->random;
  for (uint32_t k = 0; k < n; k++) {
    b->random = restart, b->next_made = k ? first : b->n_made;
    b->n = base;
    states[k] = state = step(b, state, length, &seen[k]);
  }
  b->next_made = b->n_made, b->n = base;
  if (state) b->pool[b->n++] = state;
  stacked(b, states, n, fuzz_rank(b, states[0]));
  bool alike = true;
  for (uint32_t k = 1; k < n; k++) alike &= fuzz_rank(b, seen[k]) == fuzz_rank(b, seen[0]);
  if (alike && fuzz_one_in(b, 2)) stacked(b, seen, n, fuzz_rank(b, seen[0]));
}

/* ---- attention over a memory, step by step ---- */

static dc_cid dense(builder *b, dc_cid x, dc_cid w) { return x && w ? fuzz_apply(b, "MatMul", x, w, 0) : 0; }

typedef struct {
  dc_cid memory, keys, query, energy, input, recurrent; /* [N, L, H] and weights */
} attention;

static dc_cid attend(builder *b, const attention *a, dc_cid h, dc_cid *weights) {
  int64_t one = 1, last = 2;
  dc_cid q = dense(b, h, a->query), wide = q ? fuzz_apply(b, "Unsqueeze", q, fuzz_ints(b, &one, 1), 0) : 0;
  dc_cid sum = wide ? fuzz_apply(b, "Add", wide, a->keys, 0) : 0, score = dense(b, sum ? fuzz_apply(b, "Tanh", sum, 0, 0) : 0, a->energy);
  dc_cid flat = score ? fuzz_apply(b, "Squeeze", score, fuzz_ints(b, &last, 1), 0) : 0;
  *weights = flat ? fuzz_apply_int(b, "Softmax", flat, 0, 0, "axis", -1) : 0;
  dc_cid row = *weights ? fuzz_apply(b, "Unsqueeze", *weights, fuzz_ints(b, &one, 1), 0) : 0;
  dc_cid context = dense(b, row, a->memory);
  return context ? fuzz_apply(b, "Squeeze", context, fuzz_ints(b, &one, 1), 0) : 0;
}

static void decoder(builder *b) {
  dc_ex n = fuzz_extent(b), l = fuzz_extent(b), h = fuzz_int(b, 1 + fuzz_pick(b, 4));
  int64_t order[] = {1, 0, 2};
  attention a = {.memory = 0};
  dc_attr perm = dc_attr_ints(b->g, "perm", order, 3);
  dc_cid swept = fuzz_one_in(b, 2) ? sweep(b, fuzz_input(b, (dc_ex[]){l, n, fuzz_extent(b)}, 3)) : 0;
  if (swept && fuzz_rank(b, swept) == 3) a.memory = fuzz_node(b, "Transpose", &swept, 1, &perm, 1, NULL, 0), h = fuzz_dim(b, swept, 2);
  if (!a.memory) a.memory = fuzz_input(b, (dc_ex[]){n, l, h}, 3);
  dc_ex square[] = {h, h}, thin[] = {h, fuzz_int(b, 1)};
  a.keys = dense(b, a.memory, fuzz_input(b, square, 2));
  a.query = fuzz_input(b, square, 2), a.energy = fuzz_input(b, thin, 2), a.input = fuzz_input(b, square, 2), a.recurrent = fuzz_input(b, square, 2);
  dc_cid state = fuzz_input(b, (dc_ex[]){n, h}, 2), states[8], maps[8];
  uint32_t steps = 2 + fuzz_pick(b, 4), k = 0;
  bool joined = fuzz_one_in(b, 2);
  dc_cid both = joined ? fuzz_input(b, (dc_ex[]){dc_ix_add(&b->g->pool, h, h), h}, 2) : 0;
  dc_attr last = dc_attr_int(b->g, "axis", 1);
  for (; k < steps && a.keys && state; k++) {
    dc_cid context = attend(b, &a, state, &maps[k]), in[] = {context, state}, sum;
    if (!context) return;
    if (joined) sum = dense(b, fuzz_node(b, "Concat", in, 2, &last, 1, NULL, 0), both);
    else sum = fuzz_apply(b, "Add", dense(b, context, a.input), dense(b, state, a.recurrent), 0);
    states[k] = state = sum ? fuzz_apply(b, "Tanh", sum, 0, 0) : 0;
  }
  if (k < steps || !state) return;
  stacked(b, states, steps, 2);
  if (fuzz_one_in(b, 2)) stacked(b, maps, steps, 2);
}

/* ---- graphs ---- */

static void mark_outputs(builder *b, uint32_t from) {
  uint32_t n = 1 + fuzz_pick(b, 4);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t late = b->n - from < 3 ? b->n - from : 3;
    dc_cid c = b->pool[k == 0 || fuzz_one_in(b, 2) ? b->n - 1 - fuzz_pick(b, late) : from + fuzz_pick(b, b->n - from)];
    if (!dc_cont(b->g, c)->is_output) dc_graph_mark_output(b->g, c);
  }
}

dc_graph *fuzz_generate(dc_ops *ops, uint64_t seed) {
  builder b = {.ops = ops, .g = dc_graph_create("fuzz"), .random = (seed + 1) * 0x9e3779b97f4a7c15u};
  b.g->opset = FUZZ_OPSET;
  for (int k = 0; k < 4; k++) fuzz_pick(&b, 2);
  bool changes = b.random >> 40 & 1 && b.random >> 41 & 1; /* a quarter of the graphs write inputs */
  b.real = fuzz_one_in(&b, 4) ? DC_F32 : DC_F64, b.is_symbolic = !fuzz_one_in(&b, 6);
  uint32_t inputs = 1 + fuzz_pick(&b, 3);
  for (uint32_t k = 0; k < inputs; k++) {
    dc_ex shape[4];
    uint32_t rank = fuzz_one_in(&b, 12) ? 0 : 1 + fuzz_pick(&b, 3);
    for (uint32_t d = 0; d < rank; d++) shape[d] = fuzz_extent(&b);
    b.pool[b.n++] = fuzz_input(&b, shape, rank);
  }
  uint32_t from = b.n;
  if (fuzz_one_in(&b, 8)) decoder(&b);
  uint32_t nodes = 2 + fuzz_pick(&b, fuzz_one_in(&b, 5) ? 16 : 7);
  for (uint32_t k = 0; k < nodes; k++) {
    if (changes && fuzz_one_in(&b, 2)) fuzz_one_in(&b, 4) ? result_in_place(&b) : in_place(&b);
    if (fuzz_one_in(&b, 20)) unrolled(&b);
    else any_way(&b);
  }
  mark_outputs(&b, b.n > from ? from : 0);
  return b.g;
}
