/* Layout: what convolutions of a library read and write lies channels-last, and so does what comes between them.
 *
 *     temp Y: f32[8, 64, 56, 56]   becomes   temp Y: f32[8, 64, 56, 56] strides [200704, 1, 3584, 64]
 *
 * The library runs such images without a copy of its own, and maps take every element where it lies.  Images that one
 * map reads and writes are taken together, of any number of channels, so that its vectors find all of them in one order.
 * Arrays of callers, results and buffers that somebody views in another shape stay row-major: whoever uses them meets the
 * border.  An image that a caller gives or takes with its channels last of all, as torch's memory format has it, lies so from
 * there on.  Runs after expansion, when all nodes but those of libraries are maps, and before loops are put in the order of memory.
 *
 * A library that makes no copies of its own wants all operands of a convolution in one order, filters too.  What only one
 * such convolution uses then lies so, and the rest is copied by maps:
 *
 *     L = copy of W   Y = Conv(X, L)   with   temp L: f32[64, 32, 3, 3] strides [288, 1, 96, 32] */
#include <string.h>

#include "passes/passes.h"

/* The libraries that take images of convolutions by their strides; all other operands of libraries are row-major.
 * in_one_order: those of a convolution lie either all channels-last or none, and it always pays, but for f64.
 * load_bytes: of neighbouring channels, that its quick kernels load at once; 0: they take any number. */
static const struct {
  const char *name;
  bool in_one_order;
  uint32_t load_bytes;
} by_strides[] = {{"onednn", false, 0}, {"cudnn", true, 16}};

enum { MIN_RANK = 3, MAX_RANK = 5, MOST_FILLED = 3 /* times as many channels: more zeros are more work than they save */ };

typedef struct {
  dc_graph *graph;
  dc_cid *set;   /* by buffer: union-find; 0: it stays row-major */
  bool *wanted;  /* by set: some of it lies so already */
  bool *given;   /* by set: callers give or take some of it so */
  bool *mixed;   /* by set: a convolution has one image in it, and the other in rows */
  bool *in_rows; /* by set: a routine of rows reads or writes some of it, and maps between both orders are slow; by buffer without
                    a set: a forward graph saved it so, and it will not lie otherwise */
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
    s->in_rows[c] = !lies && !writers[c].n && dc_cont(graph, c)->role == DC_ROLE_SAVED && is_image(graph, c);
  }
  for (dc_cid c = 1; c < graph->containers.n; c++) {
    const dc_container *k = dc_cont(graph, c);
    dc_cid root = dc_container_root(graph, c);
    if (root != c && (k->alias_offset || !k->shape || !dc_cont(graph, root)->shape || !same_extents(k, dc_cont(graph, root))))
      s->set[root] = 0;
  }
}

/* ---- what the users want ---- */

static bool is_convolution(const dc_graph *graph, const dc_library *lib) {
  const char *op = dc_name_text(&graph->names, lib->op), *by = lib->by ? dc_name_text(&graph->names, lib->by) : "";
  bool known = false;
  for (size_t k = 0; k < sizeof by_strides / sizeof *by_strides; k++) known |= strcmp(by, by_strides[k].name) == 0;
  return known && !lib->domain && (strcmp(op, "Conv") == 0 || strcmp(op, "ConvTranspose") == 0);
}

/* Is it one of a library that wants all operands in one order? */
static bool wants_one_order(const dc_graph *graph, const dc_library *lib) {
  bool wants = false;
  for (size_t k = 0; k < sizeof by_strides / sizeof *by_strides; k++)
    wants |= by_strides[k].in_one_order && lib->by && strcmp(dc_name_text(&graph->names, lib->by), by_strides[k].name) == 0;
  return wants && is_convolution(graph, lib);
}

static bool takes_rows(const dc_graph *graph, const dc_library *lib) {
  return lib->by && strcmp(dc_name_text(&graph->names, lib->by), "depthwise") == 0;
}

/* Operands 1 and 2 are filters and bias; so is what a gradient with respect to them makes. */
static void visit_library(search *s, const dc_library *lib) {
  bool convolves = is_convolution(s->graph, lib);
  uint32_t n_filters = lib->wrt ? lib->n_fwd_in : lib->n_in; /* behind the image */
  for (uint32_t k = 0; k < lib->n_in + lib->n_out; k++) {
    dc_cid c = dc_container_root(s->graph, k < lib->n_in ? lib->in[k] : lib->out[k - lib->n_in]);
    bool is_filter = (k >= 1 && k < n_filters) || (k >= lib->n_in && lib->wrt > 1);
    if (!c || !s->set[c]) continue;
    if (takes_rows(s->graph, lib) && !is_filter) s->in_rows[c] = true;
    else if (!convolves || is_filter) s->set[c] = 0;
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
  if (x == y || k->rank != l->rank) return;
  s->set[y] = x;
  s->wanted[x] |= s->wanted[y], s->given[x] |= s->given[y], s->in_rows[x] |= s->in_rows[y];
}

/* Is it an image, and the other one what callers give or take, with the axes of the image in the order channels-last? */
static bool is_turned(const search *s, dc_cid image, const dc_ex *at, uint32_t rank, dc_cid other, const dc_ex *there) {
  const dc_container *k = dc_cont(s->graph, other);
  bool turned = s->set[dc_container_root(s->graph, image)] && (k->role == DC_ROLE_INPUT || k->is_output) && !k->strides && k->rank == rank;
  for (uint32_t d = 0; turned && d < rank; d++) turned = there[d] == at[d == 0 ? 0 : d + 1 == rank ? 1 : d + 1];
  return turned;
}

/* What callers give or take channels-last is copied from or to an image as it lies, where that lies channels-last, too.  With one
 * axis of pixels nobody knows which of two matrices is the image. */
static void note_border(search *s, const dc_map *map) {
  if (map->body.n != 1 || dc_node_at(s->graph, map->body.v[0])->kind != DC_NODE_TASKLET) return;
  const dc_tasklet *t = &dc_node_at(s->graph, map->body.v[0])->tasklet;
  const dc_exnode value = *dc_ex_node(&s->graph->pool, t->value);
  dc_ex read[DC_MAX_RANK];
  if (t->wcr || t->guard || value.op != DC_EX_READ || value.nargs != t->rank || t->rank < 4) return;
  for (uint32_t d = 0; d < t->rank; d++) read[d] = dc_ex_arg(&s->graph->pool, t->value, d);
  if (is_turned(s, t->out, t->index, t->rank, value.ref, read)) s->given[find(s, dc_container_root(s->graph, t->out))] = true;
  if (is_turned(s, value.ref, read, t->rank, t->out, t->index)) s->given[find(s, dc_container_root(s->graph, value.ref))] = true;
}

static void visit_map(search *s, dc_nid id) {
  if (!s->graph->machine.teams) note_border(s, &dc_node_at(s->graph, id)->map);
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

/* Tensor cores take channels side by side; groups of some channels are slow that way. */
static bool is_quick_channels_last(const dc_graph *graph, const dc_library *lib) {
  const dc_container *filter = dc_cont(graph, lib->in[1]);
  int64_t groups = 1, channels;
  for (uint32_t k = 0; k < lib->n_attr; k++)
    if (strcmp(dc_name_text(&graph->names, lib->attr[k].name), "group") == 0 && lib->attr[k].kind == DC_ATTR_INT) groups = lib->attr[k].i;
  bool is_alone = groups == 1 || (dc_ex_is_int(&graph->pool, filter->shape[1], &channels) && channels == 1);
  return is_alone && filter->dtype != DC_F64;
}

/* One image in each order is worse than two in rows.  Is one in rows? */
static bool note_mixed(search *s, const dc_cid *images) {
  bool in_rows = false;
  for (int k = 0; k < 2; k++) in_rows |= s->in_rows[s->set[images[k]] ? find(s, images[k]) : images[k]];
  for (int k = 0; k < 2 && in_rows; k++)
    if (s->set[images[k]]) s->mixed[find(s, images[k])] = true;
  return in_rows;
}

static void add_price(search *s, const dc_library *lib) {
  if (!is_convolution(s->graph, lib)) return;
  dc_cid gradient = lib->wrt ? lib->in[lib->n_fwd_in + lib->n_fwd_out] : 0, filter = lib->in[1];
  dc_cid x = lib->in[0], y = gradient ? gradient : lib->out[0];
  dc_cid images[] = {dc_container_root(s->graph, lib->wrt == 1 ? lib->out[0] : x), dc_container_root(s->graph, y)};
  if (note_mixed(s, images)) return;
  for (int k = 0; k < 2; k++) {
    if (!s->set[images[k]]) continue;
    dc_cid set = find(s, images[k]);
    s->wanted[set] |= wants_one_order(s->graph, lib) && is_quick_channels_last(s->graph, lib);
    s->multiplications[set] += extent_of(s->graph, filter, false);
    s->elements[set] += extent_of(s->graph, x, true) + extent_of(s->graph, y, true);
  }
}

static bool pays(const search *s, dc_cid set) {
  if (s->in_rows[set]) return false;
  if (s->wanted[set] || (s->given[set] && !s->mixed[set])) return true;
  return s->elements[set] > 0 && s->multiplications[set] >= s->graph->machine.image_multiplications * s->elements[set];
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

/* ---- all operands in one order ---- */

typedef struct {
  dc_graph *graph;
  dc_nid *only;  /* by container: the one library node that uses it, or NOBODY, or SEVERAL */
  bool *written, *viewed;
} order;

enum { NOBODY = 0, SEVERAL = UINT32_MAX };

static void look(order *o) {
  dc_graph *graph = o->graph;
  uint32_t n = graph->containers.n;
  dc_writers *writers = DC_NEW_ARRAY(&graph->arena, dc_writers, n);
  o->only = DC_NEW_ARRAY(&graph->arena, dc_nid, n), o->written = DC_NEW_ARRAY(&graph->arena, bool, n),
  o->viewed = DC_NEW_ARRAY(&graph->arena, bool, n);
  dc_graph_writers(graph, writers);
  for (dc_cid c = 1; c < n; c++) {
    o->written[c] = writers[c].n;
    if (dc_cont(graph, c)->alias_of) o->viewed[c] = o->viewed[dc_container_root(graph, c)] = true;
  }
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_nid id = graph->states.v[s].scope.v[k];
      const dc_library *lib = &dc_node_at(graph, id)->lib;
      if (dc_node_at(graph, id)->kind != DC_NODE_LIBRARY) continue;
      for (uint32_t j = 0; j < lib->n_in + lib->n_out; j++) {
        dc_cid c = j < lib->n_in ? lib->in[j] : lib->out[j - lib->n_in];
        if (c) o->only[c] = o->only[c] == NOBODY || o->only[c] == id ? id : SEVERAL;
      }
    }
}

/* Nobody sees how it lies but maps and this node. */
static bool may_lie_otherwise(const order *o, dc_cid c, dc_nid node) {
  const dc_container *k = dc_cont(o->graph, c);
  bool is_open =
      (k->role == DC_ROLE_TEMP || k->role == DC_ROLE_SAVED) && !k->is_output && k->storage == DC_STORE_HEAP && !k->is_host && !k->known;
  return is_open && o->written[c] && !o->viewed[c] && o->only[c] == node;
}

/* Copies one container into another, for the node. */
static void copy(dc_graph *graph, dc_nid node, dc_cid from, dc_cid to, dc_scope *scope) {
  dc_nid map = dc_node_copy(graph, from, to);
  dc_node library = *dc_node_at(graph, node), *made = dc_node_at(graph, map);
  made->name = library.name, made->tag_op = library.lib.op, made->tag_wrt = library.lib.wrt;
  dc_scope_push(graph, scope, map);
}

/* Of one channel, or of one pixel: its elements are in the same places. */
static bool lies_both_ways(const dc_graph *graph, const dc_container *k) {
  int64_t extent;
  bool channel = dc_ex_is_int(&graph->pool, k->shape[1], &extent) && extent == 1, pixel = true;
  for (uint32_t d = 2; d < k->rank; d++) pixel &= dc_ex_is_int(&graph->pool, k->shape[d], &extent) && extent == 1;
  return channel || pixel;
}

static dc_cid brought_last(const order *o, dc_nid node, dc_cid c, bool is_made, dc_scope *scope) {
  dc_graph *graph = o->graph;
  const dc_container *k = dc_cont(graph, c);
  if (k->strides || k->rank < MIN_RANK || k->rank > MAX_RANK || lies_both_ways(graph, k)) return c;
  if (may_lie_otherwise(o, c, node)) return put_channels_last(graph, c), c;
  dc_cid lying = dc_container_like(graph, c, "last");
  put_channels_last(graph, lying);
  copy(graph, node, is_made ? lying : c, is_made ? c : lying, scope);
  return lying;
}

/* The operands that a convolution or its gradient looks at; the others are only there. */
static void order_operands(const order *o, dc_nid node, dc_scope *scope) {
  dc_graph *graph = o->graph;
  dc_library lib = dc_node_at(graph, node)->lib;
  dc_cid *in = dc_arena_copy(&graph->arena, lib.in, lib.n_in * sizeof *in),
         *out = dc_arena_copy(&graph->arena, lib.out, lib.n_out * sizeof *out);
  uint32_t gradient = lib.n_fwd_in + lib.n_fwd_out;
  dc_cid image = lib.wrt == 1 ? out[0] : in[0], other = lib.wrt ? in[gradient] : out[0];
  dc_scope behind = {0};
  if (lib.wrt < 3 && (dc_cont(graph, image)->strides || dc_cont(graph, other)->strides)) {
    if (lib.wrt != 1) in[0] = brought_last(o, node, in[0], false, scope);
    if (lib.wrt != 2) in[1] = brought_last(o, node, in[1], false, scope);
    if (lib.wrt) in[gradient] = brought_last(o, node, in[gradient], false, scope);
    out[0] = brought_last(o, node, out[0], true, &behind);
  }
  dc_node_at(graph, node)->lib.in = in, dc_node_at(graph, node)->lib.out = out;
  dc_scope_push(graph, scope, node);
  for (uint32_t k = 0; k < behind.n; k++) dc_scope_push(graph, scope, behind.v[k]);
}

static void put_in_one_order(dc_graph *graph) {
  order o = {.graph = graph};
  look(&o);
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope old = graph->states.v[s].scope, new = {0};
    for (uint32_t k = 0; k < old.n; k++) {
      const dc_node *node = dc_node_at(graph, old.v[k]);
      if (node->kind == DC_NODE_LIBRARY && wants_one_order(graph, &node->lib)) order_operands(&o, old.v[k], &new);
      else dc_scope_push(graph, &new, old.v[k]);
    }
    graph->states.v[s].scope = new;
  }
}

dc_status dc_pass_layout(dc_graph *graph) {
  uint32_t n = graph->containers.n;
  dc_arena *arena = &graph->arena;
  search s = {.graph = graph,
              .set = DC_NEW_ARRAY(arena, dc_cid, n),
              .wanted = DC_NEW_ARRAY(arena, bool, n),
              .given = DC_NEW_ARRAY(arena, bool, n),
              .mixed = DC_NEW_ARRAY(arena, bool, n),
              .in_rows = DC_NEW_ARRAY(arena, bool, n),
              .images = DC_NEW_ARRAY(arena, dc_cid, n),
              .multiplications = DC_NEW_ARRAY(arena, double, n),
              .elements = DC_NEW_ARRAY(arena, double, n)};
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
  put_in_one_order(graph);
  return DC_OK;
}

/* ---- channels that are loaded at once ---- */

bool dc_layout_takes_images(const dc_graph *graph, dc_nid node) { return is_convolution(graph, &dc_node_at(graph, node)->lib); }

/* An image that has many channels, and is nobody's but the graph's, lies channels-last as it is made. */
int64_t dc_layout_missing_channels(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  int64_t all, channels, load = 1;
  if (lib->wrt || !is_convolution(graph, lib) || strcmp(dc_name_text(&graph->names, lib->op), "Conv") != 0) return 0;
  const dc_container *image = dc_cont(graph, lib->in[0]), *filter = dc_cont(graph, lib->in[1]);
  if (!dc_ex_is_int(&graph->pool, image->shape[1], &all) || !dc_ex_is_int(&graph->pool, filter->shape[1], &channels)) return 0;
  if (all != channels || !is_quick_channels_last(graph, lib) || !is_image(graph, lib->out[0]) || is_image(graph, lib->in[0])) return 0;
  for (size_t k = 0; k < sizeof by_strides / sizeof *by_strides; k++)
    if (by_strides[k].load_bytes && strcmp(dc_name_text(&graph->names, lib->by), by_strides[k].name) == 0)
      load = by_strides[k].load_bytes / dc_dtype_bytes((dc_dtype)filter->dtype);
  int64_t missing = (load - channels % load) % load;
  return channels + missing <= MOST_FILLED * channels ? missing : 0;
}

/* What a forward graph saves is read as it was laid out. */
void dc_layout_carry(const dc_graph *forward, dc_graph *backward) {
  for (dc_cid c = 1; c < backward->containers.n; c++) {
    dc_container *k = dc_cont(backward, c);
    dc_cid source = k->role == DC_ROLE_SAVED && k->name ? dc_container_find(forward, dc_cont_name(backward, c)) : 0;
    if (source && dc_cont(forward, source)->strides) put_channels_last(backward, c);
  }
}
