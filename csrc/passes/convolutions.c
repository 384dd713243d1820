/* What a library's convolution does not do stands around it: an added bias, padding that is not the same on both sides, and zeros
 * behind channels of which it loads several at once.
 *
 *     Y = Conv(X, W, B) {pads = [0, 0, 1, 1]}
 *     becomes   P = Pad(X) {pads = [0, 0, 0, 0, 0, 0, 1, 1]}   C = Conv(P, W)   R = Unsqueeze(B)   Y = Add(C, R)
 *
 * where a library runs the convolution so, and none as it was: the sum then joins what follows, which no library has.  An image
 * of three channels that is copied channels-last in any case gets a fourth on the way, or eight of 16 bits, and so do the filters:
 *
 *     Y = Conv(X, W)   becomes   P = Pad(X)   Q = Pad(W)   Y = Conv(P, Q)
 *
 * A transposed convolution whose windows lie side by side is a product of each pixel's channels with all filters:
 *
 *     Y = ConvTranspose(X, W) {strides = kernel_shape = [2, 2]}
 *     becomes   F = filters of W as rows   C = Conv(X, F) with windows of one pixel   Y = DepthToSpace(C)
 *
 * Runs before differentiation, so that gradients of the convolution are those of one that the library takes. */
#include <string.h>

#include "passes/operators.h"

enum { MAX_SPATIAL = 3 };

typedef struct {
  int n; /* spatial dimensions */
  int64_t left[MAX_SPATIAL], right[MAX_SPATIAL], most[MAX_SPATIAL]; /* most: what both sides have */
} padding;

static int64_t int_at(const dc_graph *graph, dc_nid node, const char *name, int at, int64_t fallback) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  return a && a->kind == DC_ATTR_INTS && (int)a->n > at ? a->ints[at] : fallback;
}

static const char *mode_of(const dc_graph *graph, dc_nid node) {
  const dc_attr *a = dc_node_attr(graph, node, "auto_pad");
  return a && a->kind == DC_ATTR_STRING && *a->s ? a->s : "NOTSET";
}

/* Along one dimension, as the mode says. */
static bool same_padding(const dc_graph *graph, dc_nid node, int d, const char *mode, padding *p) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  int64_t in, window, stride = int_at(graph, node, "strides", d, 1);
  if (!dc_ex_is_int(&graph->pool, dc_cont(graph, lib->in[0])->shape[2 + d], &in)) return false;
  if (!dc_ex_is_int(&graph->pool, dc_cont(graph, lib->in[1])->shape[2 + d], &window) || stride < 1) return false;
  int64_t total = ((in + stride - 1) / stride - 1) * stride + (window - 1) * int_at(graph, node, "dilations", d, 1) + 1 - in;
  if (total < 0 || strcmp(mode, "VALID") == 0) total = 0;
  p->left[d] = strcmp(mode, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
  p->right[d] = total - p->left[d];
  return true;
}

/* False where it is not known. */
static bool read_padding(const dc_graph *graph, dc_nid node, padding *p) {
  const char *mode = mode_of(graph, node);
  *p = (padding){.n = (int)dc_cont(graph, dc_node_at(graph, node)->lib.in[0])->rank - 2};
  if (p->n < 1 || p->n > MAX_SPATIAL) return false;
  for (int d = 0; d < p->n; d++) {
    p->left[d] = int_at(graph, node, "pads", d, 0), p->right[d] = int_at(graph, node, "pads", p->n + d, 0);
    if (strcmp(mode, "NOTSET") != 0 && !same_padding(graph, node, d, mode, p)) return false;
    p->most[d] = p->left[d] < p->right[d] ? p->left[d] : p->right[d];
    if (p->most[d] < 0) p->most[d] = 0;
  }
  return true;
}

static bool is_even(const padding *p) {
  bool even = true;
  for (int d = 0; d < p->n; d++) even &= p->left[d] == p->right[d] && p->left[d] >= 0;
  return even;
}

static dc_cid shaped_like(dc_graph *graph, dc_cid c, const char *suffix, uint32_t rank, const dc_ex *shape) {
  return dc_container_after(graph, c, suffix, (dc_dtype)dc_cont(graph, c)->dtype, rank, shape);
}

/* The same convolution of another image, without a bias and with padding of its own; it makes what the old one does. */
static dc_nid without(dc_graph *graph, dc_nid node, dc_cid image, const padding *p) {
  dc_library lib = dc_node_at(graph, node)->lib;
  dc_attr *attr = DC_NEW_ARRAY(&graph->arena, dc_attr, lib.n_attr + 1);
  int64_t pads[2 * MAX_SPATIAL];
  uint32_t n = 0;
  for (uint32_t k = 0; k < lib.n_attr; k++) {
    const char *name = dc_name_text(&graph->names, lib.attr[k].name);
    if (!p || (strcmp(name, "pads") != 0 && strcmp(name, "auto_pad") != 0)) attr[n++] = lib.attr[k];
  }
  for (int d = 0; p && d < p->n; d++) pads[d] = pads[p->n + d] = p->most[d];
  if (p) attr[n++] = dc_attr_ints(graph, "pads", pads, 2 * (uint32_t)p->n);
  dc_cid in[] = {image, lib.in[1]};
  dc_nid made = dc_node_library(graph, dc_name_text(&graph->names, lib.op), "", lib.since, in, 2, lib.out, 1, attr, n);
  dc_node_at(graph, made)->name = dc_node_at(graph, node)->name;
  return made;
}

/* A value with zeros around it: before and behind each dimension. */
static dc_nid pad(dc_graph *graph, dc_cid value, const char *suffix, const int64_t *pads, dc_cid *out) {
  uint32_t rank = dc_cont(graph, value)->rank;
  dc_ex shape[DC_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++)
    shape[d] = dc_ix_add(&graph->pool, dc_cont(graph, value)->shape[d], dc_ex_int(&graph->pool, pads[d] + pads[rank + d]));
  *out = shaped_like(graph, value, suffix, rank, shape);
  dc_attr attr = dc_attr_ints(graph, "pads", pads, 2 * rank);
  return dc_node_library(graph, "Pad", "", 2, &value, 1, out, 1, &attr, 1);
}

/* The image with what one side has more than the other. */
static dc_nid padded(dc_graph *graph, dc_cid image, const padding *p, dc_cid *out) {
  uint32_t rank = dc_cont(graph, image)->rank;
  int64_t pads[2 * DC_MAX_RANK] = {0};
  for (uint32_t d = 2; d < rank; d++) pads[d] = p->left[d - 2] - p->most[d - 2], pads[rank + d] = p->right[d - 2] - p->most[d - 2];
  return pad(graph, image, "padded", pads, out);
}

/* The bias along the channels of the result, added to what the node makes from now on. */
static void add_bias(dc_graph *graph, dc_nid convolution, dc_cid bias, dc_scope *scope) {
  dc_cid *made = dc_node_at(graph, convolution)->lib.out, result = *made;
  uint32_t rank = dc_cont(graph, result)->rank;
  dc_ex shape[DC_MAX_RANK];
  int64_t axes[DC_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) shape[d] = d ? dc_ex_int(&graph->pool, 1) : dc_cont(graph, bias)->shape[0], axes[d] = d + 1;
  dc_cid row = shaped_like(graph, bias, "row", rank - 1, shape), plain = dc_container_like(graph, result, "plain");
  dc_attr attr = dc_attr_ints(graph, "axes", axes, rank - 2);
  dc_cid in[] = {plain, row};
  dc_node_at(graph, convolution)->lib.out = dc_arena_copy(&graph->arena, &plain, sizeof plain);
  dc_scope_push(graph, scope, convolution);
  dc_scope_push(graph, scope, dc_node_library(graph, "Unsqueeze", "", 1, &bias, 1, &row, 1, &attr, 1));
  dc_scope_push(graph, scope, dc_node_library(graph, "Add", "", 14, in, 2, &result, 1, NULL, 0));
}

/* A bias that is added afterwards is added to what was rounded, which only wide types can afford. */
static bool is_wide(const dc_graph *graph, dc_cid c) { return dc_dtype_bytes((dc_dtype)dc_cont(graph, c)->dtype) >= 4; }

/* ---- windows side by side ---- */

static int64_t extent(const dc_graph *graph, dc_cid c, uint32_t d) {
  int64_t n;
  return dc_ex_is_int(&graph->pool, dc_cont(graph, c)->shape[d], &n) ? n : 0;
}

/* The side of the square windows of a transposed convolution that neither overlap nor leave gaps; 0: it is another. */
static int64_t side_of_windows(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_attr *shape = dc_node_attr(graph, node, "output_shape"), *group = dc_node_attr(graph, node, "group");
  bool turned = strcmp(dc_name_text(&graph->names, lib->op), "ConvTranspose") == 0;
  bool shaped = shape && shape->kind == DC_ATTR_INTS && shape->n;
  if (!turned || shaped || dc_cont(graph, lib->in[0])->rank != 4 || (group && group->i != 1)) return 0;
  int64_t side = extent(graph, lib->in[1], 2);
  bool whole = side > 1 && extent(graph, lib->in[1], 0) && extent(graph, lib->in[1], 1) && strcmp(mode_of(graph, node), "NOTSET") == 0;
  for (int d = 0; d < 2; d++) {
    whole &= extent(graph, lib->in[1], 2 + (uint32_t)d) == side && int_at(graph, node, "strides", d, 1) == side;
    whole &= int_at(graph, node, "dilations", d, 1) == 1 && int_at(graph, node, "output_padding", d, 0) == 0;
    whole &= int_at(graph, node, "pads", d, 0) == 0 && int_at(graph, node, "pads", 2 + d, 0) == 0;
  }
  return whole ? side : 0;
}

/* The filters [from, to, side, side] as [side * side * to, from, 1, 1]. */
static dc_cid filters_as_rows(dc_graph *graph, dc_cid filters, int64_t side, dc_scope *scope) {
  static const int64_t perm[] = {2, 3, 1, 0}, axes[] = {2, 3};
  const dc_ex *old = dc_cont(graph, filters)->shape, one = dc_ex_int(&graph->pool, 1), from = old[0], to = old[1];
  dc_ex turned[] = {old[2], old[3], to, from}, rows[] = {dc_ix_mul(&graph->pool, dc_ex_int(&graph->pool, side * side), to), from, one, one};
  dc_cid t = shaped_like(graph, filters, "turned", 4, turned), flat = shaped_like(graph, filters, "flat", 2, rows);
  dc_cid made = shaped_like(graph, filters, "rows", 4, rows);
  dc_attr transpose = dc_attr_ints(graph, "perm", perm, 4), flatten = dc_attr_int(graph, "axis", 3);
  dc_attr unsqueeze = dc_attr_ints(graph, "axes", axes, 2);
  dc_scope_push(graph, scope, dc_node_library(graph, "Transpose", "", 1, &filters, 1, &t, 1, &transpose, 1));
  dc_scope_push(graph, scope, dc_node_library(graph, "Flatten", "", 1, &t, 1, &flat, 1, &flatten, 1));
  dc_scope_push(graph, scope, dc_node_library(graph, "Unsqueeze", "", 1, &flat, 1, &made, 1, &unsqueeze, 1));
  return made;
}

/* oneDNN searches each window for what meets it, which takes several times as long as the product. */
static bool multiply(const dc_pass_context *context, dc_graph *graph, dc_nid node, dc_scope *scope) {
  const dc_library lib = dc_node_at(graph, node)->lib;
  int64_t side = side_of_windows(graph, node);
  bool adds = lib.n_in > 2 && lib.in[2];
  if (!side || (adds && !is_wide(graph, lib.out[0])) || !dc_operator_is_served(context, graph, node)) return false;
  if (context->stamp && strcmp(dc_name_text(&graph->names, dc_node_at(graph, node)->lib.by), "onednn") != 0) return false;
  dc_cid rows = filters_as_rows(graph, lib.in[1], side, scope);
  dc_ex shape[4];
  memcpy(shape, dc_cont(graph, lib.in[0])->shape, sizeof shape);
  shape[1] = dc_cont(graph, rows)->shape[0];
  dc_cid all = shaped_like(graph, lib.out[0], "windows", 4, shape), in[] = {lib.in[0], rows};
  dc_nid made = dc_node_library(graph, "Conv", "", 1, in, 2, &all, 1, NULL, 0);
  dc_attr attr = dc_attr_int(graph, "blocksize", side);
  dc_nid spread = dc_node_library(graph, "DepthToSpace", "", 1, &all, 1, lib.out, 1, &attr, 1);
  dc_node_at(graph, made)->name = dc_node_at(graph, spread)->name = dc_node_at(graph, node)->name;
  dc_scope_push(graph, scope, made);
  if (adds) add_bias(graph, spread, lib.in[2], scope);
  else dc_scope_push(graph, scope, spread);
  return true;
}

/* ---- a bias beside products ---- */

static bool is_single_pixel(const dc_graph *graph, dc_nid node, const padding *p) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_attr *group = dc_node_attr(graph, node, "group");
  bool single = !group || (group->kind == DC_ATTR_INT && group->i == 1);
  for (int d = 0; d < p->n; d++) {
    single &= extent(graph, lib->in[1], 2 + (uint32_t)d) == 1 && int_at(graph, node, "strides", d, 1) == 1;
    single &= p->left[d] == 0 && p->right[d] == 0;
  }
  return single;
}

/* Is the bias better added by what reads the result?  oneDNN takes an image's rows as they lie only without one. */
static bool is_bias_of_pixels(const dc_pass_context *context, dc_graph *graph, dc_nid node, const bool *in_library) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  dc_cid result = lib->out[0];
  padding p;
  bool joins = context->stamp && !in_library[result] && !dc_cont(graph, result)->is_output && is_wide(graph, result);
  if (!joins || strcmp(dc_name_text(&graph->names, lib->op), "Conv") != 0) return false;
  if (!read_padding(graph, node, &p) || !is_single_pixel(graph, node, &p) || !dc_operator_is_served(context, graph, node)) return false;
  return strcmp(dc_name_text(&graph->names, dc_node_at(graph, node)->lib.by), "onednn") == 0;
}

/* By container: does a library read it? */
static bool *read_by_libraries(const dc_pass_context *context, dc_graph *graph) {
  bool *read = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  for (uint32_t s = 0; s < graph->states.n && context->stamp; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid node = graph->states.v[s].scope.v[k];
      if (dc_node_at(graph, node)->kind != DC_NODE_LIBRARY || !dc_operator_is_served(context, graph, node)) continue;
      for (uint32_t j = 0; j < dc_node_at(graph, node)->lib.n_in; j++) read[dc_node_at(graph, node)->lib.in[j]] = true;
    }
  return read;
}

/* Pushes what stands for the node; false: it stays as it is. */
static bool split(const dc_pass_context *context, dc_graph *graph, dc_nid node, const bool *in_library, dc_scope *scope) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  bool turned = strcmp(dc_name_text(&graph->names, lib->op), "ConvTranspose") == 0;
  dc_cid image = lib->in[0], bias = lib->n_in > 2 ? lib->in[2] : 0, wider = 0;
  padding p;
  bool uneven = !turned && read_padding(graph, node, &p) && !is_even(&p);
  bool apart = bias && is_bias_of_pixels(context, graph, node, in_library);
  if ((!bias && !uneven) || (!apart && context->stamp && dc_operator_is_served(context, graph, node))) return false;
  dc_nid made = bias ? without(graph, node, image, NULL) : 0, before = 0;
  if (!made || (uneven && !context->stamp) || !dc_operator_is_served(context, graph, made)) {
    if (!uneven) return false;
    before = padded(graph, image, &p, &wider);
    made = without(graph, node, wider, &p);
    if (!dc_operator_is_served(context, graph, made)) return false;
    dc_scope_push(graph, scope, before);
  }
  if (bias) add_bias(graph, made, bias, scope);
  else dc_scope_push(graph, scope, made);
  return true;
}

static bool is_convolution(const dc_graph *graph, dc_nid id) {
  const dc_node *node = dc_node_at(graph, id);
  if (node->kind != DC_NODE_LIBRARY || node->lib.wrt || *dc_name_text(&graph->names, node->lib.domain) || dc_node_wish(graph, id))
    return false;
  const char *op = dc_name_text(&graph->names, node->lib.op);
  bool is_it = strcmp(op, "Conv") == 0 || strcmp(op, "ConvTranspose") == 0;
  return is_it && dc_cont(graph, node->lib.in[0])->shape && dc_cont(graph, node->lib.in[0])->rank >= 3;
}

static bool replace(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *in_library, dc_scope *scope) {
  return is_convolution(graph, node) && (multiply(context, graph, node, scope) || split(context, graph, node, in_library, scope));
}

/* ---- channels that are loaded at once ---- */

/* By container: does somebody read it who wants it row-major, a library that runs something else, or a view? */
static bool *read_in_rows(const dc_pass_context *context, dc_graph *graph) {
  bool *read = DC_NEW_ARRAY(&graph->arena, bool, graph->containers.n);
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid node = graph->states.v[s].scope.v[k];
      const dc_library *lib = &dc_node_at(graph, node)->lib;
      if (dc_node_at(graph, node)->kind != DC_NODE_LIBRARY) continue;
      const dc_row *row = dc_ops_row_of(context->ops, graph, lib);
      bool views = row && dc_row_is_alias(row);
      if (!views && (!lib->by || dc_layout_takes_images(graph, node))) continue;
      for (uint32_t j = 0; j < lib->n_in; j++) read[lib->in[j]] = true;
    }
  return read;
}

static dc_cid filled(dc_graph *graph, dc_cid value, int64_t channels, dc_scope *scope) {
  int64_t pads[2 * DC_MAX_RANK] = {0};
  dc_cid made;
  pads[dc_cont(graph, value)->rank + 1] = channels;
  dc_scope_push(graph, scope, pad(graph, value, "filled", pads, &made));
  return made;
}

/* Zeros times zeros behind the channels add nothing, and the gradient forgets them. */
static bool fill(const dc_pass_context *context, dc_graph *graph, dc_nid node, void *in_rows, dc_scope *scope) {
  bool **rows = in_rows;
  int64_t missing = is_convolution(graph, node) ? dc_layout_missing_channels(graph, node) : 0;
  if (missing && !*rows) *rows = read_in_rows(context, graph);
  const dc_library lib = dc_node_at(graph, node)->lib;
  if (!missing || (*rows)[lib.out[0]] || (lib.n_in > 2 && lib.in[2])) return false;
  dc_nid made = without(graph, node, filled(graph, lib.in[0], missing, scope), NULL);
  dc_cid filters = filled(graph, lib.in[1], missing, scope);
  dc_node_at(graph, made)->lib.in[1] = filters;
  dc_scope_push(graph, scope, made);
  return true;
}

dc_status dc_pass_convolutions(const dc_pass_context *context, dc_graph *graph) {
  bool *in_rows = NULL;
  dc_operators_replace(context, graph, replace, read_by_libraries(context, graph));
  dc_operators_replace(context, graph, fill, &in_rows);
  return dc_pass_tidy(context->ops, graph);
}
