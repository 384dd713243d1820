/* Attention and its gradient as routines of our own, for the processor at hand: heads are shared between threads, and what a
 * head works on is packed for products and taken in tiles, so that no matrix of all scores is ever in memory.
 *
 * A row of weights is computed block of keys by block of keys, relative to its largest score so far; its gradient computes
 * the scores again from the logarithm of the row's sum.  What a thread computes does not depend on how many there are. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

/* A block of scores stays in the second cache; keys are a multiple of every vector. */
enum { ATTENTION_QUERIES = 64, ATTENTION_KEYS = 256, CHUNKS = 4, AHEAD = 8 /* rows */ };
enum { ATTENTION_CLASHING = 1024 }; /* rows so many bytes apart, or a multiple, share few places of the first cache */

static const double WORK_FOR_THREADS = 200e3; /* multiplications */

/* data: f32 or f64 where is_float, else bytes; NULL: nothing is masked.  Steps in elements; `at`: where a head's begins. */
typedef struct {
  const char *data;
  bool is_float;
  int64_t at, row, column;
} attention_mask;

/* Numbers from one row to the next. */
typedef struct {
  void *at;
  int64_t row;
} attention_rows;

typedef struct {
  int64_t queries, keys, width, values;
  attention_rows q, k, v, y, g, dq, dk, dv; /* g: gradient of y */
  void *l, *ds; /* ds: gradients of scores, which masks were added to; NULL: nobody wants them */
  attention_mask mask;
  bool is_causal, is_safe;
  double scale;
} attention_head;

typedef struct {
  void (*forward)(const attention_head *h, int64_t begin, int64_t end, void *scratch);
  void (*backward)(const attention_head *h, void *scratch);
  int64_t (*forward_room)(const attention_head *h); /* bytes of scratch, for sizes alone */
  int64_t (*backward_room)(const attention_head *h);
} attention_routines;

#define UNROLL _Pragma("GCC unroll 16")
#define REAL float
#define WHOLE int32_t
#define VECTOR_BYTES 16
#define LANE_NUMBERS 0, 1, 2, 3
#define ROWS 4
#define TARGET
#define NAME(x) plain_f32_##x
#include "backends/native/attention_tiles.h"
#define REAL double
#define WHOLE int64_t
#define VECTOR_BYTES 16
#define LANE_NUMBERS 0, 1
#define ROWS 4
#define TARGET
#define NAME(x) plain_f64_##x
#include "backends/native/attention_tiles.h"
#ifdef __x86_64__
#define REAL float
#define WHOLE int32_t
#define VECTOR_BYTES 32
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#define TURNS
#define ROWS 4
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_f32_##x
#include "backends/native/attention_tiles.h"
#define REAL double
#define WHOLE int64_t
#define VECTOR_BYTES 32
#define LANE_NUMBERS 0, 1, 2, 3
#define ROWS 4
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) avx2_f64_##x
#include "backends/native/attention_tiles.h"
#define REAL float
#define WHOLE int32_t
#define VECTOR_BYTES 64
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define TURNS
#define ROWS 8
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_f32_##x
#include "backends/native/attention_tiles.h"
#define REAL double
#define WHOLE int64_t
#define VECTOR_BYTES 64
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#define ROWS 8
#define TARGET __attribute__((target("avx512f,avx512dq,fma")))
#define NAME(x) avx512_f64_##x
#include "backends/native/attention_tiles.h"
#endif

static const attention_routines *choose(bool wide, uint32_t vector_bytes) {
  return wide ? DC_BUILT(vector_bytes, &plain_f64_routines, &avx2_f64_routines, &avx512_f64_routines)
              : DC_BUILT(vector_bytes, &plain_f32_routines, &avx2_f32_routines, &avx512_f32_routines);
}

/* ---- calls ---- */

enum { Q, K, V, MASK, Y, L, G, DQ, DK, DV, DS }; /* buffers of a gradient; attention's are the first ones, perhaps without a mask */

enum { N_BUFFERS = DS + 1 };
typedef int64_t attention_steps[DC_PROBLEM_DIMS];

typedef struct {
  const attention_routines *routines;
  bool backward, wide, gives_scores;
  attention_head head; /* sizes, and steps of rows and of the mask */
  attention_steps steps[N_BUFFERS]; /* of operands and results along the batch's dimensions */
  int64_t heads, room; /* room: bytes of scratch of a thread */
  int threads;
  int64_t mask_steps[DC_PROBLEM_DIMS], batch[DC_PROBLEM_DIMS];
  int n_batch, y; /* y: where results begin among the buffers of attention itself */
  bool is_masked;
} attention_call;

static bool is_gradient(const dc_graph *graph, dc_nid node) { return dc_problem_op_is(graph, node, "AttentionGradient"); }

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  (void)handle;
  if (!dc_problem_is_attention(graph, node)) return "the operator is not served";
  const dc_container *q = dc_cont(graph, lib->in[0]);
  if (q->dtype != DC_F32 && q->dtype != DC_F64) return "a type other than f32 and f64";
  if (q->rank > DC_PROBLEM_DIMS) return "too many dimensions";
  if (lib->n_in <= MASK || !lib->in[MASK]) return NULL;
  const dc_container *mask = dc_cont(graph, lib->in[MASK]);
  return mask->dtype != DC_BOOL && mask->dtype != q->dtype ? "a mask of another type" : NULL;
}

static int64_t extent(const dc_graph *graph, dc_cid c, uint32_t d, const int64_t *symbols) {
  return dc_ix_eval(&graph->pool, dc_cont(graph, c)->shape[d], symbols, NULL);
}

/* Steps along the batch's dimensions; returns that from row to row. */
static int64_t read_steps(attention_call *call, const dc_graph *graph, int buffer, dc_cid c, const int64_t *symbols) {
  const dc_container *k = dc_cont(graph, c);
  int64_t step = 1, row = 0;
  for (uint32_t d = k->rank; d-- > 0;) {
    const int64_t here = k->strides ? dc_ix_eval(&graph->pool, k->strides[d], symbols, NULL) : step;
    if (d < (uint32_t)call->n_batch) call->steps[buffer][d] = here;
    else if (d + 2 == k->rank) row = here;
    step *= extent(graph, c, d, symbols);
  }
  return row;
}

static void read_all_steps(attention_call *call, const dc_graph *graph, const dc_library *lib, const int64_t *symbols) {
  attention_head *h = &call->head;
  h->q.row = read_steps(call, graph, Q, lib->in[Q], symbols), h->k.row = read_steps(call, graph, K, lib->in[K], symbols);
  h->v.row = read_steps(call, graph, V, lib->in[V], symbols);
  h->y.row = read_steps(call, graph, Y, call->backward ? lib->in[Y] : lib->out[0], symbols);
  if (!call->backward) return;
  h->g.row = read_steps(call, graph, G, lib->in[G], symbols), h->dq.row = read_steps(call, graph, DQ, lib->out[0], symbols);
  h->dk.row = read_steps(call, graph, DK, lib->out[DK - DQ], symbols), h->dv.row = read_steps(call, graph, DV, lib->out[DV - DQ], symbols);
}

/* A mask's steps along the batch's dimensions, queries and keys: 0 where it is broadcast. */
static void read_mask(attention_call *call, const dc_graph *graph, dc_cid c, const int64_t *symbols) {
  int64_t steps[DC_PROBLEM_DIMS + 2] = {0}, step = 1;
  uint32_t rank = dc_cont(graph, c)->rank, all = (uint32_t)call->n_batch + 2;
  for (uint32_t d = rank; d-- > 0;) {
    int64_t n = extent(graph, c, d, symbols);
    steps[all - rank + d] = n == 1 ? 0 : step;
    step *= n;
  }
  memcpy(call->mask_steps, steps, (size_t)call->n_batch * sizeof *steps);
  call->is_masked = true;
  call->head.mask = (attention_mask){.is_float = dc_cont(graph, c)->dtype != DC_BOOL, .row = steps[all - 2], .column = steps[all - 1]};
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_attr *scale = dc_node_attr(graph, node, "scale");
  attention_call *call = calloc(1, sizeof *call);
  (void)handle;
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->backward = is_gradient(graph, node), call->wide = dc_cont(graph, lib->in[Q])->dtype == DC_F64;
  call->routines = choose(call->wide, graph->machine.vector_bytes), call->n_batch = (int)dc_cont(graph, lib->in[Q])->rank - 2;
  call->gives_scores = call->backward && lib->n_out > DS - DQ && lib->out[DS - DQ];
  call->heads = 1, call->y = call->backward ? Y : (int)lib->n_in;
  uint32_t row = (uint32_t)call->n_batch, column = row + 1;
  for (uint32_t d = 0; d < row; d++) call->heads *= call->batch[d] = extent(graph, lib->in[Q], d, symbols);
  call->head = (attention_head){.queries = extent(graph, lib->in[Q], row, symbols),
                                .keys = extent(graph, lib->in[K], row, symbols),
                                .width = extent(graph, lib->in[Q], column, symbols),
                                .values = extent(graph, lib->in[V], column, symbols),
                                .is_causal = dc_node_attr_int(graph, node, "is_causal", 0),
                                .is_safe = dc_node_attr_int(graph, node, "safe", 0),
                                .scale = scale && scale->kind == DC_ATTR_FLOAT ? scale->f : 1};
  read_all_steps(call, graph, lib, symbols);
  if (lib->n_in > MASK && lib->in[MASK]) read_mask(call, graph, lib->in[MASK], symbols);
  call->room = (call->backward ? call->routines->backward_room : call->routines->forward_room)(&call->head);
  call->room = (int64_t)dc_memory_aligned((uint64_t)call->room);
  call->threads = (int)dc_thread_count();
  *out = call;
  return DC_OK;
}

static uint64_t scratch_of(const void *opaque) {
  const attention_call *call = opaque;
  return call->heads ? (uint64_t)call->room * (uint64_t)call->threads : 0;
}

static int64_t place_of(const attention_call *call, const int64_t *steps, int64_t head) {
  int64_t at = 0;
  for (int d = call->n_batch; d-- > 0; head /= call->batch[d]) at += head % call->batch[d] * steps[d];
  return at;
}

static void *head_at(const attention_call *call, void *const *buffers, int buffer, int64_t head) {
  const int at = buffer == Y ? call->y : buffer;
  return (char *)buffers[at] + place_of(call, call->steps[buffer], head) * (call->wide ? 8 : 4);
}

static attention_head head_of(const attention_call *call, void *const *buffers, int64_t index) {
  attention_head h = call->head;
  const int64_t size = call->wide ? 8 : 4;
  h.q.at = head_at(call, buffers, Q, index), h.k.at = head_at(call, buffers, K, index), h.v.at = head_at(call, buffers, V, index);
  h.y.at = head_at(call, buffers, Y, index), h.l = (char *)buffers[call->y + 1] + index * h.queries * size;
  if (call->backward) {
    h.g.at = head_at(call, buffers, G, index), h.dq.at = head_at(call, buffers, DQ, index);
    h.dk.at = head_at(call, buffers, DK, index), h.dv.at = head_at(call, buffers, DV, index);
    if (call->gives_scores) h.ds = (char *)buffers[DS] + index * h.queries * h.keys * size;
  }
  h.mask.data = call->is_masked ? buffers[MASK] : NULL;
  h.mask.at = place_of(call, call->mask_steps, index);
  return h;
}

/* Of few heads, threads share the queries. */
static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  (void)stream;
  const attention_call *call = opaque;
  int64_t blocks = (call->head.queries + ATTENTION_QUERIES - 1) / ATTENTION_QUERIES;
  int64_t parts = call->backward || call->heads >= CHUNKS * call->threads ? 1 : blocks < CHUNKS ? blocks : CHUNKS;
  int64_t part = parts ? (blocks + parts - 1) / parts * ATTENTION_QUERIES : 0;
  double scores = (double)call->heads * (double)call->head.queries * (double)call->head.keys;
  bool threads = scores * (double)(call->head.width + call->head.values) > WORK_FOR_THREADS;
  dc_shares shares;
  dc_share_out(&shares, call->heads * parts, threads ? call->threads : 1);
#pragma omp parallel num_threads(call->threads) if (threads)
  for (int64_t task; dc_share_next(&shares, &task);) {
    attention_head h = head_of(call, buffers, task / parts);
    char *room = (char *)scratch + omp_get_thread_num() * call->room;
    int64_t begin = task % parts * part, end = begin + part < h.queries ? begin + part : h.queries;
    if (call->backward) call->routines->backward(&h, room);
    else call->routines->forward(&h, begin, end, room);
  }
  return DC_OK;
}

const dc_native_library dc_native_ours = {
    .name = "dcml",
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
