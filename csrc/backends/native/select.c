/* Selection: the greatest or least elements of each line in order (TopK, and sorting, where all of them are asked for).
 *
 * Elements become numbers of 64 bits that compare as they do, so that one form serves all types: few of a line are kept in
 * a heap, many are sorted by their bytes.  Equal elements keep their order; NaN counts as greatest. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/library.h"

typedef struct {
  uint64_t key;
  int64_t at;
} entry;

typedef struct {
  dc_dtype type;
  bool largest;
  int values, indices; /* buffers; -1: not wanted */
  int64_t outer, n, inner, k;
  int threads;
} selection;

enum { FEW = 16 /* of a line that is longer by this factor, a heap */, SHORT = 48 /* lines that insertion sorts */ };
static const double WORK_FOR_THREADS = 20e3; /* elements */

/* ---- keys ---- */

/* The line's elements through e, which makes a number x of this type another that compares as the element does. */
#define READ(type, e)                                               \
  {                                                                 \
    const type all = (type)~(type)0, sign = (type)(all ^ all >> 1); \
    (void)sign;                                                     \
    _Pragma("omp simd") for (int64_t k = 0; k < s->n; k++) {        \
      const type x = ((const type *)line)[k * s->inner];            \
      key[k] = (type)((e) ^ (s->largest ? all : 0));                \
    }                                                               \
    return;                                                         \
  }
/* Zeros are one number, and so are the NaNs. */
#define FLOAT(infinity) ((x & ~sign) > (infinity) ? all : (x & ~sign) ^ ((x & sign) && x != sign ? all >> 1 : sign))

/* In the lowest bits of the type's size: the least key is the first element of the result. */
static void read_keys(const selection *s, const void *line, uint64_t *key) {
  switch (s->type) {
    case DC_F16: READ(uint16_t, FLOAT(0x7c00))
    case DC_BF16: READ(uint16_t, FLOAT(0x7f80))
    case DC_F32: READ(uint32_t, FLOAT(0x7f800000))
    case DC_F64: READ(uint64_t, FLOAT(0x7ff0000000000000))
    case DC_U8: READ(uint8_t, x)
    case DC_U16: READ(uint16_t, x)
    case DC_U32: READ(uint32_t, x)
    case DC_U64: READ(uint64_t, x)
    case DC_I8: READ(uint8_t, x ^ sign)
    case DC_I16: READ(uint16_t, x ^ sign)
    case DC_I32: READ(uint32_t, x ^ sign)
    default: READ(uint64_t, x ^ sign)
  }
}

/* ---- order ---- */

static bool before(entry a, entry b) { return a.key != b.key ? a.key < b.key : a.at < b.at; }

/* heap[0] comes last of all; what is below place `at` is in order already. */
static void sink(entry *heap, int64_t n, int64_t at) {
  entry moved = heap[at];
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
    if (!before(moved, heap[child])) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

static void keep_few(const selection *s, const uint64_t *key, entry *heap) {
  for (int64_t k = 0; k < s->k; k++) heap[k] = (entry){key[k], k};
  for (int64_t k = s->k / 2; k-- > 0;) sink(heap, s->k, k);
  for (int64_t k = s->k; k < s->n; k++) {
    if (key[k] >= heap[0].key) continue; /* of equals the first is kept */
    heap[0] = (entry){key[k], k};
    sink(heap, s->k, 0);
  }
  for (int64_t n = s->k - 1; n > 0; n--) {
    entry last = heap[0];
    heap[0] = heap[n], heap[n] = last;
    sink(heap, n, 0);
  }
}

static void insert_all(entry *v, int64_t n) {
  for (int64_t k = 1; k < n; k++) {
    entry x = v[k];
    int64_t at = k;
    for (; at && x.key < v[at - 1].key; at--) v[at] = v[at - 1];
    v[at] = x;
  }
}

/* By the lowest byte, then the next, each time keeping the order of equals; where all have one byte there is nothing to do. */
static entry *sort_all(const selection *s, const uint64_t *key, entry *v, entry *other) {
  for (int64_t k = 0; k < s->n; k++) v[k] = (entry){key[k], k};
  if (s->n <= SHORT) return insert_all(v, s->n), v;
  for (int shift = 0; shift < 8 * dc_dtype_bytes(s->type); shift += 8) {
    int64_t at[256] = {0}, sum = 0;
    for (int64_t k = 0; k < s->n; k++) at[v[k].key >> shift & 255]++;
    if (at[v[0].key >> shift & 255] == s->n) continue;
    for (int b = 0; b < 256; b++) {
      int64_t n = at[b];
      at[b] = sum, sum += n;
    }
    for (int64_t k = 0; k < s->n; k++) other[at[v[k].key >> shift & 255]++] = v[k];
    entry *sorted = other;
    other = v, v = sorted;
  }
  return v;
}

/* ---- lines ---- */

static uint64_t line_bytes(const selection *s) { return (uint64_t)s->n * (sizeof(uint64_t) + 2 * sizeof(entry)); }

static void select_line(const selection *s, void *const *buffers, int64_t line, char *scratch) {
  const int64_t size = dc_dtype_bytes(s->type), a = line / s->inner, b = line % s->inner;
  const char *x = (const char *)buffers[0] + (a * s->n * s->inner + b) * size;
  entry *v = (entry *)scratch, *chosen = v;
  uint64_t *key = (uint64_t *)(v + 2 * s->n);
  read_keys(s, x, key);
  if (s->k < s->n / FEW) keep_few(s, key, v);
  else chosen = sort_all(s, key, v, v + s->n);
  for (int64_t k = 0; k < s->k; k++) {
    int64_t at = (a * s->k + k) * s->inner + b;
    if (s->values >= 0) memcpy((char *)buffers[s->values] + at * size, x + chosen[k].at * s->inner * size, (size_t)size);
    if (s->indices >= 0) ((int64_t *)buffers[s->indices])[at] = chosen[k].at;
  }
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  (void)stream;
  const selection *s = opaque;
  const int64_t lines = s->outer * s->inner;
  const uint64_t own = line_bytes(s);
  int threads = omp_in_parallel() || (double)lines * (double)s->n < WORK_FOR_THREADS ? 1 : s->threads;
  if (s->k == 0) return DC_OK;
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int part = 0; part < threads; part++)
    for (int64_t line = lines * part / threads; line < lines * (part + 1) / threads; line++)
      select_line(s, buffers, line, (char *)scratch + (uint64_t)part * own);
  return DC_OK;
}

/* ---- binding ---- */

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_dtype type = (dc_dtype)dc_cont(graph, lib->in[0])->dtype;
  bool whole = type == DC_I8 || type == DC_I16 || type == DC_I32 || type == DC_I64 || type == DC_U8 || type == DC_U16 || type == DC_U32 ||
               type == DC_U64;
  (void)handle;
  if (lib->wrt || strcmp(dc_name_text(&graph->names, lib->op), "TopK") != 0) return "not a selection";
  return whole || type == DC_F16 || type == DC_BF16 || type == DC_F32 || type == DC_F64 ? NULL : "a type of other than 8 to 64 bits";
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *x = dc_cont(graph, lib->in[0]);
  const int64_t axis = dc_node_attr_int(graph, node, "axis", -1);
  const uint32_t at = (uint32_t)(axis < 0 ? axis + x->rank : axis);
  selection *s = calloc(1, sizeof *s);
  (void)handle;
  if (!s) return dc_error(DC_ERR_MEMORY, "out of memory");
  *s = (selection){.type = (dc_dtype)x->dtype, .largest = dc_node_attr_int(graph, node, "largest", 1) != 0, .values = -1, .indices = -1, .outer = 1, .inner = 1};
  for (uint32_t d = 0; d < x->rank; d++) {
    int64_t extent = dc_ix_eval(&graph->pool, x->shape[d], symbols, NULL);
    *(d < at ? &s->outer : d == at ? &s->n : &s->inner) *= d == at ? 1 : extent;
    if (d == at) s->n = extent;
  }
  for (uint32_t k = 0; k < lib->n_out; k++) {
    if (!lib->out[k]) continue;
    *(k ? &s->indices : &s->values) = (int)(lib->n_in + k);
    s->k = dc_ix_eval(&graph->pool, dc_cont(graph, lib->out[k])->shape[at], symbols, NULL);
  }
  const int64_t lines = s->outer * s->inner, most = omp_get_max_threads();
  s->threads = (int)(lines < 1 ? 1 : lines < most ? lines : most);
  if (s->k > s->n) {
    dc_status status = dc_error(DC_ERR_SHAPE, "TopK of %lld of %lld elements", (long long)s->k, (long long)s->n);
    free(s);
    return status;
  }
  *out = s;
  return DC_OK;
}

static uint64_t scratch_of(const void *call) { return (uint64_t)((const selection *)call)->threads * line_bytes(call); }

static const char *open_select(const char *folder, const void *place, void **handle) {
  return (void)folder, (void)place, *handle = NULL, NULL;
}
static void close_select(void *handle) { (void)handle; }

const dc_native_library dc_native_select = {"select", open_select, close_select, refuses, bind_call, scratch_of, run_call, free};
