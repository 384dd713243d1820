/* Convolutions by 3x3 windows and their gradients in Winograd's form F(2x2, 3x3) (Lavin and Gray, 2016): four results of a
 * channel take 16 multiplications instead of 36.  Images lie channels-last and are taken in tiles of 4x4 pixels, which overlap
 * by two.  Sums and halves of pixels and filters are products' operands,
 *
 *     y = A' [sum over channels of (G g G') (B' d B)] A
 *
 * and the gradient of filters is the adjoint of that.  Errors are those of a direct sum; an infinite pixel becomes NaN in the
 * results that it reaches.  Only gradients of small filters depend on the number of threads, in their last bits.
 *
 * Sums and halves of bf16 are rounded to bf16, so that a result errs two to three times as much as one that is rounded once; of a
 * ResNet-18, whose images and filters are rounded as well, the result and gradients err by a tenth to a sixth more.
 *
 * It stands in for the library that a convolution is stamped with, where sizes promise that it takes less time. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) && __has_include(<avx512bf16intrin.h>)
#define MULTIPLIES_PAIRS /* the compiler knows the instruction */
#include <immintrin.h>
#endif

#include "backends/allocator.h"
#include "backends/native/held.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

/* Blocks of channels of the result whose products are kept at a time; tiles of a task, and of the sums of a gradient. */
enum { WINOGRAD_BLOCKS = 4, POINTS = 16, LINE = 16 };
enum { TASK_TILES = 48, SUM_TILES = 192, FEW_TILES = 8 };
enum { SMALL_SUMS = 64 * 64, CACHED_FLOATS = 3 << 16 }; /* pairs of channels; what is spread of a range, in the second cache */

typedef struct {
  int64_t n, height, width, channels;
} winograd_images;

typedef struct {
  int64_t rows, columns, tiles; /* of an image; of all */
  int64_t top, left;            /* the first tile begins so far outside */
} winograd_grid;

typedef struct {
  int64_t from, to; /* channels that are summed, or the rows of a gradient; channels of the result, or its columns ... */
  int64_t all;      /* ... of which those may be some, in memory that has room for all */
} winograd_filters;

/* Tiles [begin, begin + count), the first of them the at-th in memory that has room for `room`. */
typedef struct {
  int64_t begin, count, at, room;
} winograd_span;

/* What u, v and d hold are operands of products, in terms of 4 bytes: floats, or pairs of bf16. */
typedef struct {
  int64_t lanes, pair; /* pair: elements of a term */
  void (*turn_filters)(const winograd_filters *, const void *w, int64_t block, float *u);
  void (*turn_filters_back)(const winograd_filters *, const void *w, int64_t block, float *u);
  void (*spread)(const winograd_images *, const winograd_grid *, const void *x, const void *zeros, winograd_span, float *v);
  void (*spread_terms)(const winograd_images *, const winograd_grid *, const void *x, const void *zeros, winograd_span, float *v);
  void (*spread_result)(const winograd_images *, const winograd_grid *, const void *y, const void *zeros, winograd_span, float *d);
  void (*product)(const winograd_filters *, winograd_span of_v, const float *v, float *u, int64_t first, int64_t blocks, winograd_span of_m,
                  float *m);
  void (*collect)(const winograd_images *, const winograd_grid *, const float *m, winograd_span, int64_t first, int64_t blocks,
                  const void *bias, void *y);
  void (*sums)(const winograd_filters *, winograd_span, const float *v, const float *d, int64_t point, int64_t first, int64_t block,
               bool adds, float *s);
  void (*narrow)(const winograd_filters *, const float *s, int64_t block, void *w);
} winograd_routines;

/* From one of the sixteen matrices of n floats to the next: an odd number of lines, so that all are found in a cache at once. */
static inline int64_t apart(int64_t n) { return ((n + LINE - 1) / LINE | 1) * LINE; }

#define UNROLL _Pragma("GCC unroll 16")
#define VECTOR_BYTES 16
#define ROWS 4
#define TERM_ROWS 4
#define TARGET
#define NAME(x) plain_##x
#include "backends/native/winograd_tiles.h"
#ifdef __x86_64__
#define VECTOR_BYTES 32
#define ROWS 6
#define TERM_ROWS 4
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_##x
#include "backends/native/winograd_tiles.h"
#define VECTOR_BYTES 64
#define ROWS 12
#define TERM_ROWS 8
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_##x
#include "backends/native/winograd_tiles.h"
#endif
#ifdef MULTIPLIES_PAIRS
#define VECTOR_BYTES 64
#define ROWS 12
#define TERM_ROWS 8
#define PAIR
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")))
#define NAME(x) pairs_##x
#include "backends/native/winograd_tiles.h"
#endif

/* Those for a type, NULL if there are none. */
static const winograd_routines *choose(dc_dtype type, uint32_t vector_bytes) {
#ifdef MULTIPLIES_PAIRS
  if (type == DC_BF16) return vector_bytes >= 64 && dc_machine_bf16_way() == DC_BF16_IN_PAIRS ? &pairs_routines : NULL;
#endif
  return type == DC_F32 ? DC_BUILT(vector_bytes, &plain_routines, &avx2_routines, &avx512_routines) : NULL;
}

/* ---- calls ---- */

/* How filters lie that are turned, which depends on no other size. */
typedef struct {
  winograd_filters filters;
  const winograd_routines *routines;
  bool back;
} winograd_layout;

typedef struct {
  const winograd_routines *routines;
  dc_problem_unknown wanted;
  winograd_images in, out; /* out: the result, or the gradient that comes with the images */
  winograd_grid grid;
  winograd_filters filters;
  int at_in, at_out, at_w, bias;
  int threads;
  bool by_panels;            /* tasks are panels of the result's channels, else ranges of tiles */
  int64_t tasks, task_tiles; /* task_tiles: of a range */
  int64_t parts, part_tiles; /* of a panel, ranges of tiles that threads share; of a gradient's tiles, with sums for each, if any */
  int64_t room_u, room_v, room_m; /* floats or terms */
  uint64_t floats;                /* of scratch */
  bool held;                      /* filters are, turned, by `hold`: */
  dc_hold hold;
  winograd_layout layout;
} winograd_call;

static winograd_layout layout_of(const winograd_call *call) {
  winograd_layout l;
  memset(&l, 0, sizeof l); /* gaps too: layouts are compared as bytes */
  l.filters = call->filters, l.routines = call->routines, l.back = call->wanted == DC_CONV_X;
  return l;
}

static const char *open_winograd(const char *folder, const void *place, void **handle) {
  return (void)folder, (void)place, dc_holder_open(sizeof(winograd_layout), handle);
}

static winograd_images images_of(const dc_problem_shape *s) { return (winograd_images){s->dims[0], s->dims[2], s->dims[3], s->dims[1]}; }

/* Is it a 3x3 convolution of what lies channels-last, in whole blocks of channels?  Sizes that disagree are left to libraries
 * that say so. */
static bool fits(const dc_problem_conv *c, int64_t lanes) {
  bool three = c->n == 2 && dc_problem_conv_agrees(c);
  for (int d = 0; three && d < 2; d++) {
    three = c->w.dims[2 + d] == 3 && c->strides[d] == 1 && c->dilations[d] == 1 && c->left[d] >= 0 && c->right[d] >= 0;
    three &= c->y.dims[2 + d] == c->x.dims[2 + d] + c->left[d] + c->right[d] - 2;
  }
  if (!three || dc_problem_conv_is_empty(c)) return false;
  bool lies = dc_problem_is_last(&c->x) && dc_problem_is_last(&c->y) && dc_problem_is_row_major(&c->w);
  return lies && c->x.dims[1] % lanes == 0 && c->y.dims[1] % lanes == 0;
}

/* Does it take less time than the direct form?  Counted in multiplications of a product, as measured on cores with vectors of
 * 64 bytes: each element that is spread or collected takes as long as `move` of them, each of the filters' as long as `turn`,
 * or READ where it comes from memory, turned before. */
static bool pays(const winograd_call *call, const dc_problem_conv *c) {
  enum { READ = 12 };
  const bool pairs = call->routines->pair > 1;
  const int move = pairs ? 12 : 7, turn = pairs ? 9 : 21;
  double from = (double)call->filters.from, to = (double)call->filters.to, tiles = (double)call->grid.tiles;
  double direct = 9 * (double)dc_problem_elements(&c->y) * (double)c->x.dims[1];
  double products = 1.1 * tiles * from * to, moved = move * tiles * (from + to), turned = (call->held ? READ : turn) * from * to;
  return POINTS * (products + moved + turned) < direct;
}

static winograd_grid grid_of(const winograd_images *tiled, int64_t top, int64_t left) {
  winograd_grid g = {.rows = (tiled->height + 1) / 2, .columns = (tiled->width + 1) / 2, .top = top, .left = left};
  g.tiles = tiled->n * g.rows * g.columns;
  return g;
}

static void read_problem(winograd_call *call, const dc_problem_conv *c) {
  call->wanted = c->wanted, call->bias = c->bias, call->at_w = c->at_w;
  bool back = c->wanted == DC_CONV_X; /* images of y by turned filters */
  call->in = images_of(back ? &c->y : &c->x), call->out = images_of(back ? &c->x : &c->y);
  call->at_in = back ? c->at_y : c->at_x, call->at_out = back ? c->at_x : c->at_y;
  call->filters = (winograd_filters){call->in.channels, call->out.channels, call->out.channels};
  call->grid = grid_of(&call->out, back ? 2 - c->left[0] : c->left[0], back ? 2 - c->left[1] : c->left[1]);
}

/* Floats or terms of the sixteen matrices of an operand of `elements`, and of sums. */
static int64_t room_of_terms(const winograd_call *call, int64_t elements) { return POINTS * apart(elements / call->routines->pair); }

static int64_t room_of_sums(int64_t elements) { return POINTS * apart(elements); }

/* Tiles that are summed are taken in whole terms. */
static int64_t whole_terms(const winograd_call *call, int64_t tiles) {
  int64_t pair = call->routines->pair;
  return dc_quotient_up(tiles, pair) * pair;
}

static int64_t bytes_of_element(const winograd_call *call) { return (int64_t)sizeof(float) / call->routines->pair; }

/* Ranges of tiles, as many for each thread, which share filters that were turned before. */
static void divide_tiles(winograd_call *call) {
  int64_t tiles = call->grid.tiles, n = dc_quotient_up(dc_quotient_up(tiles, TASK_TILES), call->threads) * call->threads;
  call->task_tiles = dc_quotient_up(tiles, n), call->tasks = dc_quotient_up(tiles, call->task_tiles);
  call->room_u = room_of_terms(call, call->filters.from * call->filters.to);
  call->room_v = room_of_terms(call, call->filters.from * call->task_tiles);
  call->room_m = room_of_sums(WINOGRAD_BLOCKS * call->routines->lanes * call->task_tiles);
  call->floats = (uint64_t)((call->held ? 0 : call->room_u) + call->threads * (call->room_v + call->room_m));
}

/* Few tiles, which all threads spread first, by many filters, of which a thread turns a panel at a time. */
static void divide_panels(winograd_call *call) {
  int64_t lanes = call->routines->lanes, tiles = call->grid.tiles, panels = dc_quotient_up(call->filters.to, 2 * lanes);
  int64_t parts = dc_quotient_up(tiles, TASK_TILES), wanted = dc_quotient_up(call->threads, panels);
  call->by_panels = true, call->tasks = panels, call->parts = parts < wanted ? parts : wanted;
  call->part_tiles = dc_quotient_up(tiles, call->parts), call->task_tiles = tiles < TASK_TILES ? tiles : TASK_TILES;
  call->room_u = room_of_terms(call, call->filters.from * 2 * lanes), call->room_v = room_of_terms(call, call->filters.from * tiles);
  call->room_m = room_of_sums(WINOGRAD_BLOCKS * lanes * call->task_tiles);
  call->floats = (uint64_t)(call->room_v + call->threads * (call->room_u + call->room_m));
}

/* Sums that are small are kept by each thread, for as many ranges of tiles as there are threads. */
static void divide_small_sums(winograd_call *call) {
  int64_t tiles = call->grid.tiles, channels = call->filters.from + call->filters.to;
  int64_t room = CACHED_FLOATS * call->routines->pair / (POINTS * channels);
  call->parts = call->threads, call->part_tiles = dc_quotient_up(tiles, call->parts);
  call->task_tiles = whole_terms(call, room < FEW_TILES ? FEW_TILES : room > SUM_TILES ? SUM_TILES : room);
  call->room_u = room_of_sums(call->filters.from * call->filters.to);
  call->room_v = room_of_terms(call, call->filters.from * call->task_tiles);
  call->room_m = room_of_terms(call, call->filters.to * call->task_tiles);
  call->floats = (uint64_t)(call->parts * (call->room_u + call->room_v + call->room_m));
}

static void divide_sums(winograd_call *call) {
  int64_t tiles = call->grid.tiles, lanes = call->routines->lanes;
  call->by_panels = tiles <= call->filters.to;
  int64_t n = call->by_panels ? 1 : dc_quotient_up(tiles, SUM_TILES);
  call->task_tiles = whole_terms(call, dc_quotient_up(tiles, n)), call->tasks = dc_quotient_up(tiles, call->task_tiles);
  call->room_u = room_of_sums(call->filters.from * (call->by_panels ? 2 * lanes : call->filters.to));
  call->room_v = room_of_terms(call, call->filters.from * call->task_tiles);
  call->room_m = room_of_terms(call, call->filters.to * call->task_tiles);
  call->floats = (uint64_t)((call->by_panels ? call->threads : 1) * call->room_u + call->room_v + call->room_m);
}

static void divide(winograd_call *call) {
  bool small = call->filters.from * call->filters.to <= SMALL_SUMS && call->grid.tiles >= call->threads * SUM_TILES;
  if (call->wanted == DC_CONV_W && small) divide_small_sums(call);
  else if (call->wanted == DC_CONV_W) divide_sums(call);
  else if (!call->held && call->grid.tiles <= call->filters.to) divide_panels(call);
  else divide_tiles(call);
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  *out = NULL;
  if (!dc_problem_is_conv(graph, node) || dc_problem_refuses(graph, node)) return DC_OK;
  dc_problem_conv c = dc_problem_read_conv(graph, node, symbols);
  const winograd_routines *routines = choose(dc_problem_type(graph, node), graph->machine.vector_bytes);
  if (!routines || !fits(&c, routines->lanes)) return DC_OK;
  winograd_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->routines = routines;
  call->threads = (int)dc_thread_count();
  call->held = c.wanted != DC_CONV_W && dc_hold_pays(graph, node, c.at_w, &call->hold) && !call->hold.moves;
  read_problem(call, &c);
  if (!pays(call, &c)) {
    free(call);
    return DC_OK;
  }
  divide(call);
  if (call->held) {
    call->layout = layout_of(call);
    call->hold.holder = handle, call->hold.layout = &call->layout;
    call->hold.bytes = (uint64_t)call->room_u * sizeof(float);
    call->hold.source_bytes = (uint64_t)(dc_problem_elements(&c.w) * bytes_of_element(call));
  }
  *out = call;
  return DC_OK;
}

static void destroy_call(void *opaque) {
  winograd_call *call = opaque;
  dc_hold_end(&call->hold);
  free(call);
}

/* Zeros for a pixel of either image. */
static int64_t room_of_zeros(const winograd_call *call) {
  return call->filters.from > call->filters.to ? call->filters.from : call->filters.to;
}

static uint64_t scratch_of(const void *opaque) {
  const winograd_call *call = opaque;
  return (call->floats + (uint64_t)room_of_zeros(call)) * sizeof(float);
}

/* ---- convolutions ---- */

static void turn_block(const winograd_call *call, const winograd_filters *f, const void *w, int64_t block, float *u) {
  if (call->wanted == DC_CONV_X) call->routines->turn_filters_back(f, w, block, u);
  else call->routines->turn_filters(f, w, block, u);
}

static void turn_filters(const winograd_call *call, const void *w, float *u) {
#pragma omp parallel for num_threads(call->threads) schedule(static)
  for (int64_t b = 0; b < call->filters.to / call->routines->lanes; b++) turn_block(call, &call->filters, w, b, u);
}

static dc_status pack(void *self, const void *source, void *to) { return turn_filters(self, source, to), DC_OK; }

/* As many tiles from `begin` on as a range has, or there are before `end`. */
static winograd_span range_of(const winograd_call *call, int64_t begin, int64_t end) {
  int64_t rest = end - begin, room = call->task_tiles;
  return (winograd_span){begin, rest < room ? rest : room, 0, room};
}

static void run_range(const winograd_call *call, int64_t task, void *const *buffers, const float *zeros, float *u, float *own) {
  const winograd_routines *r = call->routines;
  const void *bias = call->bias < 0 ? NULL : buffers[call->bias];
  winograd_span span = range_of(call, task * call->task_tiles, call->grid.tiles);
  int64_t blocks = call->filters.to / r->lanes;
  float *v = own, *m = v + call->room_v;
  r->spread(&call->in, &call->grid, buffers[call->at_in], zeros, span, v);
  for (int64_t b = 0; b < blocks; b += WINOGRAD_BLOCKS) {
    int64_t some = blocks - b < WINOGRAD_BLOCKS ? blocks - b : WINOGRAD_BLOCKS;
    r->product(&call->filters, span, v, u, b, some, span, m);
    r->collect(&call->out, &call->grid, m, span, b, some, bias, buffers[call->at_out]);
  }
}

static dc_status convolve_ranges(winograd_call *call, void *const *buffers, const float *zeros, float *scratch) {
  void *u = scratch;
  float *own = scratch + (call->held ? 0 : call->room_u);
  dc_held *held = NULL;
  if (call->held) DC_TRY(dc_held_take(&call->hold, buffers[call->at_w], pack, call, &held, &u));
  else turn_filters(call, buffers[call->at_w], scratch);
  dc_shares shares;
  dc_share_out(&shares, call->tasks, call->threads);
#pragma omp parallel num_threads(call->threads)
  for (int64_t task; dc_share_next(&shares, &task);)
    run_range(call, task, buffers, zeros, u, own + omp_get_thread_num() * (call->room_v + call->room_m));
  if (held) dc_held_give(&call->hold, held);
  return DC_OK;
}

/* The channels of one panel, and where w begins for them. */
static winograd_filters panel_of(const winograd_call *call, int64_t panel, void *const *buffers, void **w) {
  int64_t wide = 2 * call->routines->lanes, first = panel * wide, rest = call->filters.to - first;
  *w = (char *)buffers[call->at_w] + first * 9 * (call->wanted == DC_CONV_X ? 1 : call->filters.from) * bytes_of_element(call);
  return (winograd_filters){call->filters.from, rest < wide ? rest : wide, call->filters.all};
}

static void run_panel(const winograd_call *call, int64_t task, void *const *buffers, const float *v, float *own) {
  const winograd_routines *r = call->routines;
  const void *bias = call->bias < 0 ? NULL : buffers[call->bias];
  int64_t tiles = call->grid.tiles, begin = task % call->parts * call->part_tiles, rest = tiles - begin;
  int64_t end = rest < call->part_tiles ? tiles : begin + call->part_tiles;
  void *w;
  winograd_filters f = panel_of(call, task / call->parts, buffers, &w);
  int64_t blocks = f.to / r->lanes, first = task / call->parts * 2;
  float *u = own, *m = u + call->room_u;
  for (int64_t b = 0; b < blocks; b++) turn_block(call, &f, w, b, u);
  for (int64_t t = begin; t < end; t += call->task_tiles) {
    winograd_span span = range_of(call, t, end);
    r->product(&f, (winograd_span){t, span.count, t, tiles}, v, u, 0, blocks, span, m);
    r->collect(&call->out, &call->grid, m, span, first, blocks, bias, buffers[call->at_out]);
  }
}

static void convolve_panels(const winograd_call *call, void *const *buffers, const float *zeros, float *v) {
  int64_t tiles = call->grid.tiles;
  float *own = v + call->room_v;
  dc_shares shares;
  dc_share_out(&shares, call->tasks * call->parts, call->threads);
#pragma omp parallel num_threads(call->threads)
  {
#pragma omp for schedule(static)
    for (int64_t t = 0; t < tiles; t += FEW_TILES) {
      winograd_span few = {t, tiles - t < FEW_TILES ? tiles - t : FEW_TILES, t, tiles};
      call->routines->spread(&call->in, &call->grid, buffers[call->at_in], zeros, few, v);
    }
    for (int64_t task; dc_share_next(&shares, &task);)
      run_panel(call, task, buffers, v, own + omp_get_thread_num() * (call->room_u + call->room_m));
  }
}

/* ---- gradients of filters ---- */

static void spread_both(const winograd_call *call, winograd_span s, void *const *buffers, const float *zeros, float *v, float *d) {
  const winograd_routines *r = call->routines;
#pragma omp for schedule(static)
  for (int64_t t = 0; t < s.count; t += FEW_TILES) {
    winograd_span few = {s.begin + t, s.count - t < FEW_TILES ? s.count - t : FEW_TILES, t, s.room};
    r->spread_terms(&call->in, &call->grid, buffers[call->at_in], zeros, few, v);
    r->spread_result(&call->out, &call->grid, buffers[call->at_out], zeros, few, d);
  }
}

/* All threads share first the tiles of a range, then its sums; after the last range filters are made of the sums. */
static void sum_ranges(const winograd_call *call, void *const *buffers, const float *zeros, float *s) {
  const winograd_routines *r = call->routines;
  float *v = s + call->room_u, *d = v + call->room_v;
  int64_t pairs = dc_quotient_up(call->filters.to, 2 * r->lanes);
#pragma omp parallel num_threads(call->threads)
  {
    for (int64_t task = 0; task < call->tasks; task++) {
      winograd_span span = range_of(call, task * call->task_tiles, call->grid.tiles);
      spread_both(call, span, buffers, zeros, v, d);
#pragma omp for schedule(static)
      for (int64_t k = 0; k < POINTS * pairs; k++) r->sums(&call->filters, span, v, d, k / pairs, 0, k % pairs * 2, task > 0, s);
    }
#pragma omp for schedule(static)
    for (int64_t b = 0; b < call->filters.to / r->lanes; b++) r->narrow(&call->filters, s, b, buffers[call->at_w]);
  }
}

/* The sums of part `part` of the tiles; those of no tiles are zero. */
static void sum_part(const winograd_call *call, int64_t part, void *const *buffers, const float *zeros, float *s, float *v) {
  const winograd_routines *r = call->routines;
  int64_t begin = part * call->part_tiles, rest = call->grid.tiles - begin;
  int64_t end = rest < call->part_tiles ? call->grid.tiles : begin + call->part_tiles;
  float *d = v + call->room_v;
  if (begin >= end) memset(s, 0, (size_t)call->room_u * sizeof(float));
  for (int64_t t = begin; t < end; t += call->task_tiles) {
    winograd_span span = range_of(call, t, end);
    r->spread_terms(&call->in, &call->grid, buffers[call->at_in], zeros, span, v);
    r->spread_result(&call->out, &call->grid, buffers[call->at_out], zeros, span, d);
    for (int k = 0; k < POINTS; k++)
      for (int64_t b = 0; b * r->lanes < call->filters.to; b += 2) r->sums(&call->filters, span, v, d, k, 0, b, t > begin, s);
  }
}

static void sum_parts(const winograd_call *call, void *const *buffers, const float *zeros, float *s) {
  float *own = s + call->parts * call->room_u;
#pragma omp parallel num_threads(call->threads)
  {
#pragma omp for schedule(static, 1)
    for (int64_t p = 0; p < call->parts; p++)
      sum_part(call, p, buffers, zeros, s + p * call->room_u, own + p * (call->room_v + call->room_m));
#pragma omp for schedule(static)
    for (int64_t k = 0; k < call->room_u; k++)
      for (int64_t p = 1; p < call->parts; p++) s[k] += s[p * call->room_u + k];
#pragma omp for schedule(static)
    for (int64_t b = 0; b < call->filters.to / call->routines->lanes; b++)
      call->routines->narrow(&call->filters, s, b, buffers[call->at_w]);
  }
}

/* Of few tiles, a thread takes all sums of a panel of the result's channels, and makes filters of them at once. */
static void sum_panels(const winograd_call *call, void *const *buffers, const float *zeros, float *v) {
  const winograd_routines *r = call->routines;
  float *d = v + call->room_v, *own = d + call->room_m;
  dc_shares shares;
  dc_share_out(&shares, dc_quotient_up(call->filters.to, 2 * r->lanes), call->threads);
#pragma omp parallel num_threads(call->threads)
  {
    winograd_span all = {0, call->grid.tiles, 0, call->task_tiles};
    spread_both(call, all, buffers, zeros, v, d);
    for (int64_t panel; dc_share_next(&shares, &panel);) {
      void *w;
      float *s = own + omp_get_thread_num() * call->room_u;
      winograd_filters f = panel_of(call, panel, buffers, &w);
      for (int k = 0; k < POINTS; k++) r->sums(&f, all, v, d, k, 2 * panel, 0, false, s);
      for (int64_t b = 0; b < f.to / r->lanes; b++) r->narrow(&f, s, b, w);
    }
  }
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  (void)stream;
  winograd_call *call = opaque;
  float *zeros = scratch, *own = zeros + room_of_zeros(call);
  memset(zeros, 0, (size_t)room_of_zeros(call) * sizeof(float));
  if (call->wanted != DC_CONV_W && !call->by_panels) return convolve_ranges(call, buffers, zeros, own);
  if (call->wanted != DC_CONV_W) convolve_panels(call, buffers, zeros, own);
  else if (call->by_panels) sum_panels(call, buffers, zeros, own);
  else if (call->parts) sum_parts(call, buffers, zeros, own);
  else sum_ranges(call, buffers, zeros, own);
  return DC_OK;
}

const dc_native_library dc_native_winograd = {
    .name = "winograd",
    .stands_in = true,
    .open = open_winograd,
    .close = dc_holder_close,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = destroy_call,
};
