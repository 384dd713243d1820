/* Runs a graph of maps on pseudo-random data with the interpreter, for tests that compare what
 * a graph computes before and after a pass. */
#ifndef DCML_TESTS_GRAPH_RUN_H
#define DCML_TESTS_GRAPH_RUN_H

#include <math.h>

#include "backends/backend.h"
#include "check.h"

typedef struct {
  void **buffers; /* by container */
  uint32_t n;
} run_data;

static inline int64_t run_symbols(const dc_graph *g, int64_t *symbols) {
  for (dc_sym s = 1; s < g->pool.symbols.n; s++) symbols[s] = g->pool.symbols.v[s].min > 3 ? g->pool.symbols.v[s].min : 3 + s;
  return g->pool.symbols.n;
}

static inline int64_t run_elements(const dc_graph *g, dc_cid c, const int64_t *symbols) {
  int64_t n = 1;
  for (uint32_t d = 0; d < dc_cont(g, c)->rank; d++) n *= dc_ix_eval(&g->pool, dc_cont(g, c)->shape[d], symbols, NULL);
  return n;
}

static inline double run_load(dc_dtype type, const void *data, int64_t k) {
  switch (type) {
    case DC_F32: return ((const float *)data)[k];
    case DC_F64: return ((const double *)data)[k];
    case DC_F16: return dc_f16_to_f32(((const uint16_t *)data)[k]);
    case DC_BF16: return dc_bf16_to_f32(((const uint16_t *)data)[k]);
    case DC_I64: return (double)((const int64_t *)data)[k];
    case DC_U64: return (double)((const uint64_t *)data)[k];
    case DC_I32: return ((const int32_t *)data)[k];
    case DC_U32: return ((const uint32_t *)data)[k];
    case DC_I16: return ((const int16_t *)data)[k];
    case DC_U16: return ((const uint16_t *)data)[k];
    case DC_I8: return ((const int8_t *)data)[k];
    default: return ((const uint8_t *)data)[k];
  }
}

/* Values depend on the container's name, so that clones of a graph see the same data. */
static inline void run_fill(const dc_graph *g, dc_cid c, void *data, int64_t n) {
  dc_dtype type = (dc_dtype)dc_cont(g, c)->dtype;
  uint64_t state = dc_hash_bytes(1, dc_cont_name(g, c), strlen(dc_cont_name(g, c)));
  for (int64_t k = 0; k < n; k++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double unit = (double)(state >> 33) / 2147483648.0;
    if (type == DC_F32) ((float *)data)[k] = (float)(4 * unit - 2);
    else if (type == DC_F64) ((double *)data)[k] = 4 * unit - 2;
    else if (type == DC_I64) ((int64_t *)data)[k] = (int64_t)(3 * unit);
    else if (type == DC_I32) ((int32_t *)data)[k] = (int32_t)(3 * unit);
    else if (type == DC_F16) ((uint16_t *)data)[k] = dc_f32_to_f16((float)(4 * unit - 2));
    else ((uint8_t *)data)[k] = unit > 0.5;
  }
}

static inline run_data run_graph(const dc_graph *g) {
  int64_t symbols[64];
  run_data r = {calloc(g->containers.n, sizeof(void *)), g->containers.n};
  run_symbols(g, symbols);
  for (dc_cid c = 1; c < r.n; c++) {
    const dc_container *k = dc_cont(g, c);
    int64_t n = run_elements(g, c, symbols);
    if (k->alias_of) continue;
    r.buffers[c] = malloc((size_t)(n + 1) * 8);
    memset(r.buffers[c], 0xFF, (size_t)(n + 1) * 8); /* NaN: nobody reads what nobody wrote */
    if (k->role == DC_ROLE_INPUT || k->role == DC_ROLE_PARAM) run_fill(g, c, r.buffers[c], n);
    if (k->data) memcpy(r.buffers[c], k->data, k->data_bytes);
  }
  for (dc_cid c = 1; c < r.n; c++) {
    const dc_container *k = dc_cont(g, c);
    if (!k->alias_of) continue;
    int64_t offset = 0;
    dc_cid root = c;
    for (; dc_cont(g, root)->alias_of; root = dc_cont(g, root)->alias_of)
      if (dc_cont(g, root)->alias_offset) offset += dc_ix_eval(&g->pool, dc_cont(g, root)->alias_offset, symbols, NULL);
    r.buffers[c] = (char *)r.buffers[root] + offset * dc_dtype_bytes((dc_dtype)k->dtype);
  }
  for (uint32_t s = 0; s < g->states.n; s++)
    for (uint32_t k = 0; k < g->states.v[s].scope.n; k++) CHECK_OK(dc_interp_node(g, g->states.v[s].scope.v[k], r.buffers, symbols));
  return r;
}

static inline void run_free(const dc_graph *g, run_data *r) {
  for (dc_cid c = 1; c < r->n; c++)
    if (!dc_cont(g, c)->alias_of) free(r->buffers[c]);
  free(r->buffers);
}

static inline bool run_close(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b || fabs(a - b) <= 2e-5 * (1 + fabs(a) + fabs(b));
}

/* Outputs and saved values of `after` equal those of `before`, found by name. */
static inline void check_same_results(const dc_graph *before, const dc_graph *after, const char *what) {
  int64_t symbols[64];
  run_symbols(before, symbols);
  run_data x = run_graph(before), y = run_graph(after);
  for (dc_cid c = 1; c < before->containers.n; c++) {
    const dc_container *k = dc_cont(before, c);
    if (!k->is_output && k->role != DC_ROLE_SAVED) continue;
    dc_cid other = dc_container_find(after, dc_cont_name(before, c));
    int64_t n = run_elements(before, c, symbols), wrong = 0;
    for (int64_t e = 0; e < n && other; e++)
      wrong += !run_close(run_load((dc_dtype)k->dtype, x.buffers[c], e), run_load((dc_dtype)k->dtype, y.buffers[other], e));
    if (!other || wrong) printf("%s: '%s' has %lld different elements of %lld\n", what, dc_cont_name(before, c), (long long)wrong, (long long)n);
    CHECK(other && !wrong);
  }
  run_free(before, &x);
  run_free(after, &y);
}

#endif
