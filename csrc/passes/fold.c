/* Takes a normalisation by constants into the constant filters of the convolution before it, where nobody else reads what
 * the convolution makes:
 *
 *     C = Conv(X, W, B)   Y = BatchNormalization(C, scale, shift, mean, var)
 *     becomes   Y = Conv(X, W', B')   with   W' = W a   B' = (B - mean) a + shift   a = scale / sqrt(var + epsilon)
 *
 * Sums are rounded otherwise than before.  Only for graphs that nobody differentiates: gradients are those of W. */
#include <math.h>
#include <string.h>

#include "passes/operators.h"

typedef struct {
  const dc_container *at;
  const float *data;
} constant;

/* False where its contents are not known, or no floats in rows. */
static bool read_constant(const dc_graph *graph, dc_cid c, constant *out) {
  const dc_container *k = c ? dc_cont(graph, c) : NULL;
  if (!k || k->role != DC_ROLE_CONST || !k->data || k->dtype != DC_F32 || k->strides || k->alias_of) return false;
  *out = (constant){k, k->data};
  return true;
}

/* Its elements; 0: too many for a number, or not known. */
static int64_t count(const dc_graph *graph, const dc_container *k) {
  int64_t n = 1, extent;
  for (uint32_t d = 0; d < k->rank; d++)
    if (!dc_ex_is_int(&graph->pool, k->shape[d], &extent) || __builtin_mul_overflow(n, extent, &n)) return 0;
  return (uint64_t)n * sizeof(float) == k->data_bytes ? n : 0;
}

typedef struct {
  constant filters, scale, shift, mean, variance, bias;
  bool has_bias, turned;
  int64_t channels, groups;
  double epsilon;
} folding;

static bool is_row_of(const dc_graph *graph, const constant *c, int64_t channels) {
  return c->at->rank == 1 && count(graph, c->at) == channels;
}

/* Does the node normalise by constants, with one result?  Before version 9 it had other modes. */
static bool normalises(const dc_graph *graph, dc_nid norm) {
  const dc_library *lib = &dc_node_at(graph, norm)->lib;
  bool one = lib->n_in == 5 && lib->n_out > 0 && lib->since >= 9 && !dc_node_attr_int(graph, norm, "training_mode", 0);
  for (uint32_t k = 1; k < lib->n_out; k++) one &= !lib->out[k];
  return one;
}

static bool read_folding(const dc_graph *graph, dc_nid conv, dc_nid norm, folding *f) {
  const dc_library *c = &dc_node_at(graph, conv)->lib, *n = &dc_node_at(graph, norm)->lib;
  const dc_attr *epsilon = dc_node_attr(graph, norm, "epsilon");
  dc_cid bias = c->n_in > 2 ? c->in[2] : 0;
  *f = (folding){.has_bias = bias != 0,
                 .turned = strcmp(dc_name_text(&graph->names, c->op), "ConvTranspose") == 0,
                 .groups = dc_node_attr_int(graph, conv, "group", 1),
                 .epsilon = epsilon && epsilon->kind == DC_ATTR_FLOAT ? epsilon->f : 1e-5};
  constant *const rows[] = {&f->scale, &f->shift, &f->mean, &f->variance};
  if (!read_constant(graph, c->in[1], &f->filters) || f->filters.at->rank < 3 || f->groups < 1) return false;
  if (!count(graph, f->filters.at)) return false;
  if (!dc_ex_is_int(&graph->pool, f->filters.at->shape[f->turned], &f->channels)) return false;
  if (f->turned) f->channels *= f->groups;
  for (uint32_t k = 0; k < 4; k++)
    if (!read_constant(graph, n->in[1 + k], rows[k]) || !is_row_of(graph, rows[k], f->channels)) return false;
  return !bias || (read_constant(graph, bias, &f->bias) && is_row_of(graph, &f->bias, f->channels));
}

/* The channel of the result that an element of the filters belongs to: [out, in / groups, ...], or [in, out / groups, ...]. */
static int64_t channel_of(const folding *f, int64_t element, int64_t window, int64_t second, int64_t first) {
  int64_t a = element / window / second, b = element / window % second;
  return f->turned ? a / (first / f->groups) * second + b : a;
}

static dc_cid constant_like(dc_graph *graph, const dc_container *like, const char *name, const float *data) {
  int64_t dims[DC_MAX_RANK];
  for (uint32_t d = 0; d < like->rank; d++)
    if (!dc_ex_is_int(&graph->pool, like->shape[d], &dims[d])) return 0;
  return dc_container_add_const(graph, name, DC_F32, like->rank, dims, data, like->data_bytes);
}

/* The convolution that stands for both; 0: something is not constant. */
static dc_nid folded(dc_graph *graph, dc_nid conv, dc_nid norm) {
  folding f;
  if (!read_folding(graph, conv, norm, &f)) return 0;
  int64_t n = count(graph, f.filters.at), first = 0, second = 0;
  if (!dc_ex_is_int(&graph->pool, f.filters.at->shape[0], &first) || !dc_ex_is_int(&graph->pool, f.filters.at->shape[1], &second)) return 0;
  if (first % f.groups) return 0;
  float *w = DC_NEW_ARRAY(&graph->arena, float, n), *b = DC_NEW_ARRAY(&graph->arena, float, f.channels);
  double *a = DC_NEW_ARRAY(&graph->arena, double, f.channels);
  for (int64_t k = 0; k < f.channels; k++) {
    a[k] = (double)f.scale.data[k] / sqrt((double)f.variance.data[k] + f.epsilon);
    b[k] = (float)(((f.has_bias ? (double)f.bias.data[k] : 0) - (double)f.mean.data[k]) * a[k] + (double)f.shift.data[k]);
  }
  int64_t window = n / (first * second);
  for (int64_t k = 0; k < n; k++) w[k] = (float)((double)f.filters.data[k] * a[channel_of(&f, k, window, second, first)]);
  const dc_library lib = dc_node_at(graph, conv)->lib;
  const char *name = dc_arena_printf(&graph->arena, "%s_folded", dc_cont_name(graph, lib.in[1]));
  const dc_container filters = *f.filters.at, row = *f.scale.at;
  dc_cid in[] = {lib.in[0], constant_like(graph, &filters, name, w), 0};
  in[2] = constant_like(graph, &row, dc_arena_printf(&graph->arena, "%s_bias", name), b);
  if (!in[1] || !in[2]) return 0;
  const char *op = dc_name_text(&graph->names, lib.op);
  dc_nid made = dc_node_library(graph, op, "", lib.since, in, 3, dc_node_at(graph, norm)->lib.out, 1, lib.attr, lib.n_attr);
  dc_node_at(graph, made)->name = dc_node_at(graph, conv)->name;
  return made;
}

static dc_nid convolution_before(const dc_operators *o, dc_nid norm) {
  dc_cid image = dc_operator_input(o, norm, 0);
  dc_nid conv = image ? dc_operator_making_only(o, image, "Conv") : 0;
  return conv || !image ? conv : dc_operator_making_only(o, image, "ConvTranspose");
}

dc_status dc_pass_fold(const dc_pass_context *context, dc_graph *graph) {
  dc_operators o;
  if (graph->subgraphs.n) return DC_OK; /* their captures name containers too */
  dc_operators_look(&o, graph);
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid id = graph->states.v[s].scope.v[k];
      dc_cid out = dc_node_at(graph, id)->kind == DC_NODE_LIBRARY ? dc_node_at(graph, id)->lib.out[0] : 0;
      bool is_norm = out && out < o.graph->containers.n && dc_operator_making(&o, out, "BatchNormalization") == id;
      dc_nid conv = is_norm && normalises(graph, id) ? convolution_before(&o, id) : 0, made = conv ? folded(graph, conv, id) : 0;
      if (made) graph->states.v[s].scope.v[k] = made;
    }
  return dc_pass_tidy(context->ops, graph);
}
