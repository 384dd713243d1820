/* Layout: what convolutions of a library read and write lies channels-last, and so does what comes between them.
 *
 *     temp Y: f32[8, 64, 56, 56]   becomes   temp Y: f32[8, 64, 56, 56] strides [200704, 1, 3584, 64]
 *
 * The library runs such images without a copy of its own, and maps take every element where it lies.  Images that one
 * map reads and writes are taken together, so that its vectors find all of them in one order.  Arrays of callers, results
 * and buffers that somebody views in another shape stay row-major: whoever uses them meets the border.  Runs after
 * expansion, when all nodes but those of libraries are maps, and before loops are put in the order of memory. */
#include <string.h>

#include "passes/passes.h"

/* The libraries that take images of convolutions by their strides; all other operands of libraries are row-major. */
static const char *const by_strides[] = {"onednn"};

enum { MIN_RANK = 3, MAX_RANK = 5 };

typedef struct {
  dc_graph *graph;
  dc_cid *set;   /* by buffer: union-find; 0: it stays row-major */
  bool *wanted;  /* by set: some of it lies so already */
  double *multiplications, *elements; /* by set: of its convolutions, for each pixel */
  dc_cid *images; /* of the node at hand */
  uint32_t n_images;
} search;

static dc_cid find(const search *s, dc_cid c) {
  while (s->set[c] != c) c = s->set[c] = s->set[s->set[c]];
  return c;
}

/* ---- which buffers may change ---- */

static bool same_extents(const dc_container *a, const dc_container *b) {
  return a->rank == b->rank && a->dtype == b->dtype && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* Symbols: the number of channels is known to fill a vector; the others may be any. */
static bool is_image(const dc_graph *graph, dc_cid c) {
  const dc_container *k = dc_cont(graph, c);
  int64_t channels;
  bool is_open = (k->role == DC_ROLE_TEMP || k->role == DC_ROLE_SAVED) && !k->is_output && k->storage == DC_STORE_HEAP && !k->is_host;
  if (!is_open || k->alias_of || k->known || !k->shape || k->rank < MIN_RANK || k->rank > MAX_RANK) return false;
  return dc_ex_is_int(&graph->pool, k->shape[1], &channels) && channels >= graph->machine.vector_bytes / (uint32_t)sizeof(float);
}

static void list_images(search *s) {
  dc_graph *graph = s->graph;
  dc_writers *writers = DC_NEW_ARRAY(&graph->arena, dc_writers, graph->containers.n);
  dc_graph_writers(graph, writers);
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    bool lies = dc_cont(graph, c)->strides != NULL; /* as a forward graph saved it */
    s->set[c] = (lies || writers[c].n) && is_image(graph, c) ? c : 0, s->wanted[c] = lies;
  }
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    dc_cid root = dc_container_root(graph, c);
    if (root != c && (k->alias_offset || !k->shape || !dc_cont(graph, root)->shape || !same_extents(k, dc_cont(graph, root)))) s->set[root] = 0;
  }
}

/* ---- what the users want ---- */

static bool is_convolution(const dc_graph *graph, const dc_library *lib) {
  const char *op = dc_name_text(&graph->names, lib->op), *by = lib->by ? dc_name_text(&graph->names, lib->by) : "";
  bool known = false;
  for (size_t k = 0; k < sizeof by_strides / sizeof *by_strides; k++) known |= strcmp(by, by_strides[k]) == 0;
  return known && !lib->domain && (strcmp(op, "Conv") == 0 || strcmp(op, "ConvTranspose") == 0);
}

/* Operands 1 and 2 are filters and bias; so is what a gradient with respect to them makes. */
static void visit_library(search *s, const dc_library *lib) {
  bool convolves = is_convolution(s->graph, lib);
  uint32_t n_filters = lib->wrt ? lib->n_fwd_in : lib->n_in; /* behind the image */
  for (uint32_t k = 0; k < lib->n_in + lib->n_out; k++) {
    dc_cid c = dc_container_root(s->graph, k < lib->n_in ? lib->in[k] : lib->out[k - lib->n_in]);
    bool is_filter = (k >= 1 && k < n_filters) || (k >= lib->n_in && lib->wrt > 1);
    if (!c || !s->set[c]) continue;
    if (!convolves || is_filter) s->set[c] = 0;
  }
}

static void note_image(void *context, dc_cid c, dc_use use, dc_nid by) {
  search *s = context;
  dc_cid root = dc_container_root(s->graph, c);
  (void)use, (void)by;
  if (s->set[root]) s->images[s->n_images++ % s->graph->containers.n] = root;
}

static void unite(search *s, dc_cid a, dc_cid b) {
  dc_cid x = find(s, a), y = find(s, b);
  const dc_container *k = dc_cont(s->graph, a), *l = dc_cont(s->graph, b);
  if (x == y || k->rank != l->rank || k->shape[1] != l->shape[1]) return;
  s->set[y] = x;
  s->wanted[x] |= s->wanted[y];
}

static void visit_map(search *s, dc_nid id) {
  s->n_images = 0;
  dc_node_uses(s->graph, id, note_image, s);
  uint32_t n = s->n_images < s->graph->containers.n ? s->n_images : s->graph->containers.n;
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t j = 0; j < k; j++) unite(s, s->images[k], s->images[j]);
}

static void visit_all(search *s, dc_node_kind kind) {
  for (uint32_t state = 0; state < s->graph->states.n; state++) {
    const dc_scope *scope = &s->graph->states.v[state].scope;
    for (uint32_t k = 0; k < scope->n; k++) {
      const dc_node *node = dc_node_at(s->graph, scope->v[k]);
      if ((node->kind == DC_NODE_LIBRARY) != (kind == DC_NODE_LIBRARY)) continue;
      if (kind == DC_NODE_LIBRARY) visit_library(s, &node->lib);
      else visit_map(s, scope->v[k]);
    }
  }
}

/* ---- whether it pays ---- */

/* Of all its elements, or of those of one pixel; 0: not known. */
static double extent_of(const dc_graph *graph, dc_cid c, bool pixel) {
  const dc_container *k = dc_cont(graph, c);
  double all = 1;
  for (uint32_t d = 0; d < k->rank; d++) {
    int64_t extent;
    if (pixel && d != 1) continue;
    if (!dc_ex_is_int(&graph->pool, k->shape[d], &extent)) return 0;
    all *= (double)extent;
  }
  return all;
}

static void add_price(search *s, const dc_library *lib) {
  if (!is_convolution(s->graph, lib)) return;
  dc_cid gradient = lib->wrt ? lib->in[lib->n_fwd_in + lib->n_fwd_out] : 0;
  dc_cid filter = lib->in[1], images[] = {lib->in[0], gradient ? gradient : lib->out[0]};
  double moved = extent_of(s->graph, images[0], true) + extent_of(s->graph, images[1], true);
  for (int k = 0; k < 2; k++) {
    dc_cid image = lib->wrt == 1 && k == 0 ? lib->out[0] : images[k], root = dc_container_root(s->graph, image);
    if (!s->set[root]) continue;
    s->multiplications[find(s, root)] += extent_of(s->graph, filter, false);
    s->elements[find(s, root)] += moved;
  }
}

static bool pays(const search *s, dc_cid set) {
  return s->wanted[set] || (s->elements[set] > 0 && s->multiplications[set] >= s->graph->machine.image_multiplications * s->elements[set]);
}

/* ---- the layout ---- */

static void put_channels_last(dc_graph *graph, dc_cid c) {
  dc_container *k = dc_cont(graph, c);
  dc_ex *strides = DC_NEW_ARRAY(&graph->arena, dc_ex, k->rank), stride = k->shape[1];
  strides[1] = dc_ex_int(&graph->pool, 1);
  for (uint32_t d = k->rank; d-- > 2;) strides[d] = stride, stride = dc_ix_mul(&graph->pool, stride, k->shape[d]);
  strides[0] = stride;
  k->strides = strides;
}

dc_status dc_pass_layout(dc_graph *graph) {
  uint32_t n = graph->containers.n;
  dc_arena *arena = &graph->arena;
  search s = {.graph = graph, .set = DC_NEW_ARRAY(arena, dc_cid, n), .wanted = DC_NEW_ARRAY(arena, bool, n), .images = DC_NEW_ARRAY(arena, dc_cid, n),
              .multiplications = DC_NEW_ARRAY(arena, double, n), .elements = DC_NEW_ARRAY(arena, double, n)};
  list_images(&s);
  visit_all(&s, DC_NODE_LIBRARY);
  visit_all(&s, DC_NODE_MAP);
  for (uint32_t state = 0; state < graph->states.n; state++)
    for (uint32_t k = 0; k < graph->states.v[state].scope.n; k++) {
      const dc_node *node = dc_node_at(graph, graph->states.v[state].scope.v[k]);
      if (node->kind == DC_NODE_LIBRARY) add_price(&s, &node->lib);
    }
  for (dc_cid c = 1; c < n; c++) {
    dc_cid root = dc_container_root(graph, c);
    bool lies = root != c && dc_cont(graph, root)->strides;
    if (!dc_cont(graph, c)->strides && (lies || (s.set[root] && pays(&s, find(&s, root))))) put_channels_last(graph, c);
  }
  return DC_OK;
}

/* What a forward graph saves is read as it was laid out. */
void dc_layout_carry(const dc_graph *forward, dc_graph *backward) {
  for (dc_cid c = 1; c < backward->containers.n; c++) {
    dc_container *k = dc_cont(backward, c);
    dc_cid source = k->role == DC_ROLE_SAVED && k->name ? dc_container_find(forward, dc_cont_name(backward, c)) : 0;
    if (source && dc_cont(forward, source)->strides) put_channels_last(backward, c);
  }
}
