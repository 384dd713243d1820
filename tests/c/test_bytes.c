/* Products and convolutions of bytes against plain loops, which they equal to the last bit: each sign of both operands, zero points of
 * each kind, each width of vectors, one thread and several, operands that are held and that are not. */
#include <omp.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "base/machine.h"
#include "check.h"

enum { A, B, ZA, ZB, Y, N_BUFFERS, MOST = 5 };

/* An image by filters; a product is windows of one pixel in one image of one row: b[terms, n] as [1, terms, 1, n]. */
typedef struct {
  bool is_conv;
  int64_t images, channels, filters, groups, dims[2], window[2], strides[2], dilations[2], begin[2], end[2];
} problem;

static const problem problems[] = {
    {false, 1, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {false, 1, 5, 3, 1, {1, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {false, 1, 131, 29, 1, {1, 70}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {false, 1, 768, 300, 1, {1, 33}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {false, 1, 3, 0, 1, {1, 5}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {false, 1, 0, 3, 1, {1, 5}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {true, 2, 3, 5, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {true, 1, 8, 8, 4, {1, 20}, {1, 5}, {1, 1}, {1, 2}, {0, 3}, {0, 1}},
    {true, 1, 16, 32, 1, {17, 40}, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {true, 2, 6, 6, 6, {30, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {true, 1, 5, 40, 1, {50, 50}, {5, 5}, {2, 1}, {1, 1}, {2, 2}, {2, 2}},
    {true, 1, 40, 70, 1, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {true, 0, 3, 5, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
};

typedef struct {
  const problem *p;
  bool a_signed, b_signed, each, held; /* each: a zero point for each filter, or column, else one */
  int zeros;                           /* bits: za, zb */
  int64_t out[2];
  int64_t rank[N_BUFFERS], dims[N_BUFFERS][MOST];
  void *data[N_BUFFERS];
} fixture;

static int64_t count(const fixture *f, int b) {
  int64_t n = 1;
  for (int64_t d = 0; d < f->rank[b]; d++) n *= f->dims[b][d];
  return n;
}

static void set_dims(fixture *f, int b, int64_t rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
  const int64_t dims[] = {n0, n1, n2, n3};
  f->rank[b] = rank;
  memcpy(f->dims[b], dims, sizeof dims);
  f->data[b] = calloc((size_t)count(f, b) + 1, b == Y ? 4 : 1);
}

static fixture prepare(const problem *p, int kind) {
  fixture f = {.p = p, .a_signed = kind & 1, .b_signed = kind & 2, .each = kind & 4, .held = kind & 8, .zeros = kind >> 4};
  for (int d = 0; d < 2; d++)
    f.out[d] = (p->dims[d] + p->begin[d] + p->end[d] - (p->window[d] - 1) * p->dilations[d] - 1) / p->strides[d] + 1;
  const int64_t n = p->filters, columns = p->dims[1];
  if (p->is_conv) { /* the image comes first */
    set_dims(&f, A, 4, p->images, p->channels, p->dims[0], p->dims[1]);
    set_dims(&f, B, 4, n, p->channels / p->groups, p->window[0], p->window[1]);
    set_dims(&f, Y, 4, p->images, n, f.out[0], f.out[1]);
  } else {
    set_dims(&f, A, 2, n, p->channels, 0, 0), set_dims(&f, B, 2, p->channels, columns, 0, 0), set_dims(&f, Y, 2, n, columns, 0, 0);
  }
  if (f.zeros & 1) set_dims(&f, ZA, 0, 0, 0, 0, 0);
  if (f.zeros & 2) set_dims(&f, ZB, f.each, p->is_conv ? n : columns, 0, 0, 0);
  uint64_t state = 11;
  for (int b = 0; b < Y; b++)
    for (int64_t k = 0; f.data[b] && k < count(&f, b); k++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      ((uint8_t *)f.data[b])[k] = (uint8_t)(state >> 40);
    }
  return f;
}

static bool run(fixture *f, uint32_t vector_bytes) {
  dc_graph *g = dc_graph_create("g");
  dc_cid ids[N_BUFFERS] = {0};
  void *handle, *call = NULL;
  for (int b = 0; b < N_BUFFERS; b++) {
    dc_ex dims[MOST];
    const bool is_signed = b == A || b == ZA ? f->a_signed : f->b_signed;
    const dc_dtype type = b == Y ? DC_I32 : is_signed ? DC_I8 : DC_U8;
    for (int64_t d = 0; d < f->rank[b]; d++) dims[d] = dc_ex_int(&g->pool, f->dims[b][d]);
    if (!f->data[b]) continue;
    const bool constant = f->held && b == B;
    ids[b] = constant ? dc_container_add_const(g, "t", type, (uint32_t)f->rank[b], f->dims[b], f->data[b], (uint64_t)count(f, b))
                      : dc_container_add(g, "t", type, (uint32_t)f->rank[b], dims, DC_ROLE_TEMP);
  }
  const problem *p = f->p;
  const int64_t pads[] = {p->begin[0], p->begin[1], p->end[0], p->end[1]};
  dc_attr attr[] = {dc_attr_int(g, "group", p->groups), dc_attr_ints(g, "strides", p->strides, 2),
                    dc_attr_ints(g, "dilations", p->dilations, 2), dc_attr_ints(g, "pads", pads, 4)};
  dc_nid node = p->is_conv ? dc_node_library(g, "ConvInteger", "", 10, ids, 4, ids + Y, 1, attr, 4)
                           : dc_node_library(g, "MatMulInteger", "", 10, ids, 4, ids + Y, 1, NULL, 0);
  g->machine.vector_bytes = vector_bytes;
  CHECK(!dc_native_bytes.open(NULL, NULL, &handle));
  const bool taken = !dc_native_bytes.refuses(handle, g, node);
  if (taken) {
    CHECK_OK(dc_native_bytes.bind(handle, g, node, NULL, &call));
    const uint64_t bytes = dc_native_bytes.scratch(call);
    void *scratch = dc_host_memory.take(NULL, bytes, NULL);
    for (int again = 0; again < 2; again++) CHECK_OK(dc_native_bytes.run(call, f->data, scratch, NULL));
    dc_host_memory.give(NULL, scratch, bytes, NULL);
    dc_native_bytes.destroy(call);
  }
  dc_native_bytes.close(handle);
  dc_graph_destroy(g);
  return taken;
}

static int64_t get(const fixture *f, int b, int64_t k) {
  const bool is_signed = b == A || b == ZA ? f->a_signed : f->b_signed;
  return !f->data[b] ? 0 : is_signed ? ((int8_t *)f->data[b])[k] : ((uint8_t *)f->data[b])[k];
}

static int64_t zero_b(const fixture *f, int64_t k) { return get(f, ZB, f->each ? k : 0); }

static int32_t product_at(const fixture *f, int64_t row, int64_t column) {
  const int64_t terms = f->p->channels, n = f->p->dims[1];
  int64_t sum = 0;
  for (int64_t k = 0; k < terms; k++) sum += (get(f, A, row * terms + k) - get(f, ZA, 0)) * (get(f, B, k * n + column) - zero_b(f, column));
  return (int32_t)sum;
}

static int32_t window_at(const fixture *f, int64_t image, int64_t filter, int64_t i, int64_t j) {
  const problem *p = f->p;
  const int64_t channels = p->channels / p->groups, first = filter / (p->filters / p->groups) * channels;
  int64_t sum = 0;
  for (int64_t c = 0; c < channels; c++)
    for (int64_t s = 0; s < p->window[0]; s++)
      for (int64_t t = 0; t < p->window[1]; t++) {
        const int64_t y = i * p->strides[0] + s * p->dilations[0] - p->begin[0], x = j * p->strides[1] + t * p->dilations[1] - p->begin[1];
        if (y < 0 || y >= p->dims[0] || x < 0 || x >= p->dims[1]) continue;
        const int64_t pixel = get(f, A, ((image * p->channels + first + c) * p->dims[0] + y) * p->dims[1] + x) - get(f, ZA, 0);
        sum += pixel * (get(f, B, ((filter * channels + c) * p->window[0] + s) * p->window[1] + t) - zero_b(f, filter));
      }
  return (int32_t)sum;
}

static void compare(const fixture *f) {
  const problem *p = f->p;
  const int32_t *y = f->data[Y];
  int64_t wrong = 0;
  for (int64_t k = 0; k < count(f, Y) && !p->is_conv; k++) wrong += y[k] != product_at(f, k / p->dims[1], k % p->dims[1]);
  const int64_t pixels = f->out[0] * f->out[1];
  for (int64_t k = 0; k < count(f, Y) && p->is_conv; k++)
    wrong += y[k] != window_at(f, k / pixels / p->filters, k / pixels % p->filters, k % pixels / f->out[1], k % f->out[1]);
  CHECK(wrong == 0);
}

int main(void) {
  static const uint32_t widths[] = {16, 32, 64};
  for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
    for (int kind = 0; kind < 64; kind++)
      for (size_t w = 0; w < 3; w++) {
        fixture f = prepare(&problems[k], kind);
        omp_set_num_threads(1 + (kind + (int)k) % 3);
        const bool taken = run(&f, widths[w]);
        CHECK(taken == (dc_machine_built_vectors(widths[w]) > 0));
        if (taken) compare(&f);
        for (int b = 0; b < N_BUFFERS; b++) free(f.data[b]);
      }
  return check_report();
}
