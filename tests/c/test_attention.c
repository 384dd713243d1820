/* Attention and its gradient against plain loops in double: each element type and width of vectors, blocks that are full and
 * that are not, masks of each kind, few heads and many, rows behind one another and apart. */
#include <math.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "check.h"

typedef struct {
  int64_t heads, queries, keys, width, values;
  bool causal;
  int mask; /* 0: none; 1: bool by key; 2: floats by query and key, the same for all heads */
  bool hides_all; /* the mask hides all keys of some query, for which there is 0 */
} problem;

static const problem problems[] = {
    {3, 5, 7, 4, 6, false, 0, false},     {1, 130, 300, 33, 20, false, 2, false}, {2, 70, 70, 64, 64, true, 0, false},
    {20, 9, 40, 8, 8, true, 2, true},     {4, 300, 70, 16, 40, true, 0, false},   {2, 64, 256, 32, 32, false, 1, false},
    {2, 3, 4, 1, 1, false, 1, true},      {1, 700, 600, 8, 8, true, 0, false},    {2, 3, 0, 4, 5, false, 0, false},
    {0, 3, 4, 4, 5, false, 0, false},
};

enum { Q, K, V, MASK, Y, L, G, DQ, DK, DV, DS, N_BUFFERS };

/* How rows lie: behind one another; those of all heads side by side, and some numbers apart; whole lines of a cache apart. */
typedef enum { TOGETHER, APART, LINES_APART } lying;

typedef struct {
  problem p;
  bool wide;
  lying lies;
  dc_graph *graph;
  int64_t rank[N_BUFFERS], dims[N_BUFFERS][3];
  void *data[N_BUFFERS];
} fixture;

static int64_t count(const fixture *f, int b) {
  int64_t n = 1;
  for (int64_t d = 0; d < f->rank[b]; d++) n *= f->dims[b][d];
  return n;
}

static double get(const fixture *f, int b, int64_t k) {
  if (b == MASK && f->p.mask == 1) return ((char *)f->data[b])[k] ? 0 : -INFINITY;
  return f->wide ? ((double *)f->data[b])[k] : ((float *)f->data[b])[k];
}

static double random_number(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 33) / 1073741824.0 - 1;
}

static void fill(fixture *f, int b, uint64_t state) {
  int64_t n = count(f, b);
  f->data[b] = malloc((size_t)(n + 1) * 8);
  for (int64_t k = 0; k < n; k++) {
    double x = random_number(&state);
    bool hidden = f->p.hides_all ? k < f->p.keys || x < -0.5 : k > 0 && x < -0.5;
    if (b == MASK && f->p.mask == 1) ((char *)f->data[b])[k] = !hidden;
    else if (b == MASK && hidden && f->p.hides_all) x = -INFINITY;
    if (b == MASK && f->p.mask == 1) continue;
    if (f->wide) ((double *)f->data[b])[k] = x;
    else ((float *)f->data[b])[k] = (float)x;
  }
}

static fixture prepare(const problem *p, bool wide, lying lies) {
  fixture f = {.p = *p, .wide = wide, .lies = lies, .graph = dc_graph_create("g")};
  const int64_t shapes[N_BUFFERS][3] = {{p->heads, p->queries, p->width}, {p->heads, p->keys, p->width}, {p->heads, p->keys, p->values},
                                        {p->queries, p->keys},           {p->heads, p->queries, p->values}, {p->heads, p->queries},
                                        {p->heads, p->queries, p->values}, {p->heads, p->queries, p->width}, {p->heads, p->keys, p->width},
                                        {p->heads, p->keys, p->values}, {p->heads, p->queries, p->keys}};
  for (int b = 0; b < N_BUFFERS; b++) {
    f.rank[b] = b == MASK || b == L ? 2 : 3;
    memcpy(f.dims[b], shapes[b], sizeof f.dims[b]);
    if (b == MASK && p->mask == 1) f.dims[b][0] = 1;
    if (b != MASK || p->mask) fill(&f, b, 17u + (unsigned)b);
  }
  return f;
}

static bool is_apart(const fixture *f, int b) { return f->lies && b != MASK && b != L && b != DS; }

/* Numbers from one row to the next. */
static int64_t row_of(const fixture *f, int b) {
  const int64_t size = f->wide ? 8 : 4, all = f->dims[b][0] * f->dims[b][2];
  return f->lies == APART ? all + 3 : (all * size + 1023) / 1024 * 1024 / size;
}

/* To where the library finds it, or back. */
static void move(const fixture *f, int b, char *block, bool back) {
  const int64_t *n = f->dims[b], size = f->wide ? 8 : 4, row = row_of(f, b);
  for (int64_t h = 0; h < n[0]; h++)
    for (int64_t r = 0; r < n[1]; r++) {
      char *dense = (char *)f->data[b] + (h * n[1] + r) * n[2] * size, *apart = block + (r * row + h * n[2]) * size;
      memcpy(back ? dense : apart, back ? apart : dense, (size_t)(n[2] * size));
    }
}

static void run(fixture *f, bool backward, uint32_t vector_bytes) {
  dc_graph *g = f->graph;
  dc_cid ids[N_BUFFERS] = {0};
  void *call = NULL, *buffers[N_BUFFERS];
  for (int b = 0; b < N_BUFFERS; b++) {
    dc_ex dims[3];
    for (int64_t d = 0; d < f->rank[b]; d++) dims[d] = dc_ex_int(&g->pool, f->dims[b][d]);
    dc_dtype type = b == MASK && f->p.mask == 1 ? DC_BOOL : f->wide ? DC_F64 : DC_F32;
    if (f->data[b]) ids[b] = dc_container_add(g, "t", type, (uint32_t)f->rank[b], dims, DC_ROLE_TEMP);
    buffers[b] = f->data[b];
    if (!f->data[b] || !is_apart(f, b)) continue;
    dc_ex strides[] = {dims[2], dc_ex_int(&g->pool, row_of(f, b)), dc_ex_int(&g->pool, 1)};
    dc_cont(g, ids[b])->strides = dc_arena_copy(&g->arena, strides, sizeof strides);
    buffers[b] = malloc((size_t)(f->dims[b][1] * row_of(f, b) + 1) * 8);
    move(f, b, buffers[b], false);
  }
  dc_attr attr[] = {dc_attr_int(g, "is_causal", f->p.causal), dc_attr_int(g, "safe", 1), dc_attr_float(g, "scale", 0.5)};
  dc_nid node = backward ? dc_node_library(g, "AttentionGradient", "dcml", 1, ids, DQ, ids + DQ, 4, attr, 3)
                         : dc_node_library(g, "Attention", "dcml", 1, ids, Y, ids + Y, 2, attr, 3);
  g->machine.vector_bytes = vector_bytes;
  CHECK(!dc_native_ours.refuses(NULL, g, node));
  CHECK_OK(dc_native_ours.bind(NULL, g, node, NULL, &call));
  uint64_t bytes = dc_native_ours.scratch(call);
  void *scratch = dc_host_memory.take(NULL, bytes, NULL);
  CHECK_OK(dc_native_ours.run(call, buffers, scratch, NULL));
  for (int b = 0; b < N_BUFFERS; b++) {
    if (buffers[b] == f->data[b]) continue;
    move(f, b, buffers[b], true);
    free(buffers[b]);
  }
  dc_host_memory.give(NULL, scratch, bytes, NULL);
  dc_native_ours.destroy(call);
}

static double dot(const fixture *f, int a, int64_t row, int b, int64_t other, int64_t width) {
  double sum = 0;
  for (int64_t d = 0; d < width; d++) sum += get(f, a, row * width + d) * get(f, b, other * width + d);
  return sum;
}

/* Weights of a query, and the logarithm of their sum. */
static double weigh(const fixture *f, int64_t head, int64_t n, double *w) {
  const problem *p = &f->p;
  double most = -INFINITY, sum = 0;
  for (int64_t m = 0; m < p->keys; m++) {
    double mask = !p->mask ? 0 : get(f, MASK, p->mask == 1 ? m : n * p->keys + m);
    w[m] = p->causal && m > n ? -INFINITY : 0.5 * dot(f, Q, head * p->queries + n, K, head * p->keys + m, p->width) + mask;
    most = fmax(most, w[m]);
  }
  for (int64_t m = 0; m < p->keys; m++) sum += w[m] = w[m] == -INFINITY ? 0 : exp(w[m] - most);
  for (int64_t m = 0; m < p->keys; m++) w[m] = sum > 0 ? w[m] / sum : 0;
  return sum > 0 ? most + log(sum) : -INFINITY;
}

static void compare(const fixture *f, int b, int64_t at, double wanted, double *worst) {
  double got = get(f, b, at), apart = got == wanted ? 0 : fabs(got - wanted) / (4 + fabs(wanted));
  if (!(apart <= *worst)) *worst = apart;
}

static double check_forward(const fixture *f, double *w) {
  const problem *p = &f->p;
  double worst = 0;
  for (int64_t row = 0; row < p->heads * p->queries; row++) {
    double l = weigh(f, row / p->queries, row % p->queries, w);
    compare(f, L, row, l, &worst);
    for (int64_t e = 0; e < p->values; e++) {
      double y = 0;
      for (int64_t m = 0; m < p->keys; m++) y += w[m] * get(f, V, (row / p->queries * p->keys + m) * p->values + e);
      compare(f, Y, row * p->values + e, y, &worst);
    }
  }
  return worst;
}

static double check_backward(const fixture *f, double *w) {
  const problem *p = &f->p;
  double worst = 0, *dk = calloc((size_t)count(f, DK) + 1, 8), *dv = calloc((size_t)count(f, DV) + 1, 8);
  for (int64_t row = 0; row < p->heads * p->queries; row++) {
    int64_t head = row / p->queries;
    weigh(f, head, row % p->queries, w);
    double rest = dot(f, G, row, Y, row, p->values), *dq = calloc((size_t)p->width, 8);
    for (int64_t m = 0; m < p->keys; m++) {
      int64_t key = head * p->keys + m;
      double of_score = w[m] * (dot(f, G, row, V, key, p->values) - rest), ds = 0.5 * of_score;
      compare(f, DS, row * p->keys + m, of_score, &worst);
      for (int64_t e = 0; e < p->values; e++) dv[key * p->values + e] += w[m] * get(f, G, row * p->values + e);
      for (int64_t d = 0; d < p->width; d++) {
        dq[d] += ds * get(f, K, key * p->width + d);
        dk[key * p->width + d] += ds * get(f, Q, row * p->width + d);
      }
    }
    for (int64_t d = 0; d < p->width; d++) compare(f, DQ, row * p->width + d, dq[d], &worst);
    free(dq);
  }
  for (int64_t k = 0; k < count(f, DK); k++) compare(f, DK, k, dk[k], &worst);
  for (int64_t k = 0; k < count(f, DV); k++) compare(f, DV, k, dv[k], &worst);
  free(dk), free(dv);
  return worst;
}

static void check_problem(const problem *p, bool wide, lying lies, uint32_t vector_bytes) {
  fixture f = prepare(p, wide, lies);
  double *w = calloc((size_t)p->keys + 1, 8), limit = wide ? 1e-14 : 2e-6;
  run(&f, false, vector_bytes);
  double forward = check_forward(&f, w);
  run(&f, true, vector_bytes);
  double backward = check_backward(&f, w);
  if (forward > limit || backward > limit)
    printf("%ld queries, %ld keys, %u bytes: %g and %g off\n", (long)p->queries, (long)p->keys, vector_bytes, forward, backward);
  CHECK(forward <= limit);
  CHECK(backward <= limit);
  for (int b = 0; b < N_BUFFERS; b++) free(f.data[b]);
  free(w);
  dc_graph_destroy(f.graph);
}

int main(void) {
  for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
    for (int wide = 0; wide < 2; wide++)
      for (uint32_t bytes = 16; bytes <= 64; bytes *= 2)
        for (int lies = TOGETHER; lies <= LINES_APART; lies++) check_problem(&problems[k], wide, (lying)lies, bytes);
  return check_report();
}
