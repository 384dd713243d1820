/* cuBLASLt: matrix products.
 *
 * Rows of ours are its columns: the product of row-major A and B is, for a library of column-major matrices, that of B and A.
 * It is asked once for each binding which of its kernels is best; split sums are added in an order, never by atomics, and in
 * the type of the sum. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "backends/allocator.h"
#include "backends/cuda/cublas.h"
#include "backends/cuda/natives.h"
#include "backends/cuda/shared.h"
#include "backends/native/problem.h"

enum { WORKSPACE_ALIGN = 256, VECTOR_ALIGN = 16 };
static const uint64_t MOST_WORKSPACE = (uint64_t)32 << 20;

typedef struct {
#define X(result, name, parameters) result(*name) parameters;
  LT_FUNCTIONS(X)
#undef X
  void *library, *handle;
  dc_cuda_place place;
} cublas;

static dc_status failed(int code, const char *what) { return dc_error(DC_ERR_DEVICE, "cuBLASLt: %s failed with code %d", what, code); }
#define LT_TRY(call, what)                       \
  do {                                           \
    int lt_code = (call);                        \
    if (lt_code) return failed(lt_code, (what)); \
  } while (0)

/* ---- opening ---- */

static void close_cublas(void *opaque) {
  cublas *lib = opaque;
  if (lib->handle) lib->cublasLtDestroy(lib->handle);
  if (lib->library) dlclose(lib->library);
  free(lib);
}

static const char *start(cublas *lib, const char *folder) {
  static const char *const packages[] = {"nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cu12/lib", NULL};
  static const dc_cuda_symbol symbols[] = {
#define X(result, name, parameters) {#name, offsetof(cublas, name)},
      LT_FUNCTIONS(X)
#undef X
  };
  lib->library = dc_cuda_shared_open("DCML_CUBLASLT", folder, packages, "libcublasLt.so.13");
  if (!lib->library) lib->library = dc_cuda_shared_open("DCML_CUBLASLT", folder, packages, "libcublasLt.so.12");
  if (!lib->library) return "neither libcublasLt.so.13 nor libcublasLt.so.12 is found";
  if (dc_cuda_shared_symbols(lib->library, symbols, sizeof symbols / sizeof *symbols, lib)) return "it lacks functions of version 12";
  size_t major = lib->cublasLtGetVersion() / 10000;
  if (major != 12 && major != 13) return "expected version 12 or 13";
  return lib->cublasLtCreate(&lib->handle) ? "it does not start on this device" : NULL;
}

static const char *open_cublas(const char *folder, const void *place, void **out) {
  cublas *lib = place ? calloc(1, sizeof *lib) : NULL;
  if (!lib) return place ? "out of memory" : "there is no device";
  lib->place = *(const dc_cuda_place *)place;
  const char *why = start(lib, folder);
  if (why) close_cublas(lib);
  else *out = lib;
  return why;
}

/* ---- binding ---- */

typedef struct {
  cublas *lib;
  int buffers[3], bias; /* ours: a, b, result; bias -1: none */
  int64_t batch, m, n, k;
  uint64_t size;        /* of an element */
  bool wide, hollow;    /* wide: f64.  hollow: there is nothing to sum up, and one column of zeros stands for it */
  void *desc, *a, *b, *d; /* the library's: a is our b */
  lt_choice fast, any;  /* for operands aligned to vectors; for others, chosen when such come */
  bool has_any;
  uint64_t zeros;       /* bytes of a hollow product's operand */
  pthread_mutex_t lock; /* of desc, which holds where the bias is, and of any */
} product_call;

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  dc_dtype type = dc_problem_type(graph, node);
  (void)handle;
  if (type != DC_F32 && type != DC_F64 && type != DC_F16 && type != DC_BF16) return "a type other than f32, f64, f16 and bf16";
  return dc_problem_is_conv(graph, node) ? "a convolution" : dc_problem_refuses(graph, node);
}

static int type_of(dc_dtype type) { return type == DC_F32 ? LT_R_32F : type == DC_F64 ? LT_R_64F : type == DC_F16 ? LT_R_16F : LT_R_16BF; }

/* columns lie next to one another, as the library has it: our row is its column. */
static dc_status describe(const product_call *c, int type, int64_t rows, int64_t columns, bool apart, void **out) {
  const cublas *lib = c->lib;
  LT_TRY(lib->cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)columns, rows), "describing a matrix");
  if (c->batch == 1) return DC_OK;
  int32_t batch = (int32_t)c->batch;
  int64_t offset = apart ? rows * columns : 0;
  LT_TRY(lib->cublasLtMatrixLayoutSetAttribute(*out, LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch), "describing a batch");
  LT_TRY(lib->cublasLtMatrixLayoutSetAttribute(*out, LT_LAYOUT_BATCH_OFFSET, &offset, sizeof offset), "describing a batch");
  return DC_OK;
}

static dc_status set_bias(const product_call *c, const void *bias) {
  if (c->bias >= 0) LT_TRY(c->lib->cublasLtMatmulDescSetAttribute(c->desc, LT_DESC_BIAS_POINTER, &bias, sizeof bias), "placing a bias");
  return DC_OK;
}

/* Parts that are added in place take turns, in the type of the result: in 16 bits that would round each time. */
static dc_status prefer(const product_call *c, void *preference, uint64_t workspace, uint32_t alignment) {
  const cublas *lib = c->lib;
  uint32_t reductions = LT_REDUCTION_NONE | LT_REDUCTION_COMPUTE_TYPE | (c->size >= sizeof(float) ? LT_REDUCTION_IN_PLACE : 0);
  LT_TRY(lib->cublasLtMatmulPreferenceSetAttribute(preference, LT_PREF_WORKSPACE, &workspace, sizeof workspace), "limiting the workspace");
  LT_TRY(lib->cublasLtMatmulPreferenceSetAttribute(preference, LT_PREF_REDUCTIONS, &reductions, sizeof reductions),
         "limiting the reductions");
  for (int k = LT_PREF_ALIGN_A; k <= LT_PREF_ALIGN_D; k++)
    LT_TRY(lib->cublasLtMatmulPreferenceSetAttribute(preference, k, &alignment, sizeof alignment), "stating an alignment");
  return DC_OK;
}

/* A bias is taken to be aligned as its address is, though nothing is read there. */
static dc_status choose(product_call *c, uint64_t workspace, uint32_t alignment, lt_choice *out) {
  const cublas *lib = c->lib;
  void *preference = NULL;
  int found = 0, code = 0;
  DC_TRY(set_bias(c, (const void *)(uintptr_t)alignment));
  LT_TRY(lib->cublasLtMatmulPreferenceCreate(&preference), "creating a preference");
  dc_status status = prefer(c, preference, workspace, alignment);
  if (!status) code = lib->cublasLtMatmulAlgoGetHeuristic(lib->handle, c->desc, c->a, c->b, c->d, c->d, preference, 1, out, &found);
  lib->cublasLtMatmulPreferenceDestroy(preference);
  if (status) return status;
  if (code || !found || out->state)
    return dc_error(DC_ERR_DEVICE, "cuBLASLt has no way to multiply %lld matrices of %lld by %lld with %lld by %lld (code %d)",
                    (long long)c->batch, (long long)c->m, (long long)c->k, (long long)c->k, (long long)c->n, code ? code : out->state);
  return DC_OK;
}

static dc_status read_product(product_call *c, const dc_problem_product *p) {
  const dc_problem_shape *a = &p->a.stored, *b = &p->b.stored;
  int r = a->rank - 1;
  c->buffers[0] = p->a.buffer, c->buffers[1] = p->b.buffer, c->buffers[2] = p->result, c->bias = p->bias;
  c->batch = 1;
  for (int d = 0; d < r - 1; d++) c->batch *= a->dims[d];
  c->m = a->dims[p->a.transposed ? r : r - 1], c->k = a->dims[p->a.transposed ? r - 1 : r], c->n = b->dims[p->b.transposed ? r - 1 : r];
  int64_t limit = INT32_MAX;
  if (c->m > limit || c->n > limit || c->k > limit || c->batch > limit)
    return dc_error(DC_ERR_UNSUPPORTED, "cuBLASLt: a matrix of 2^31 or more rows or columns, or as many matrices");
  return DC_OK;
}

static dc_status describe_all(product_call *c, int type, bool ta, bool tb, int compute) {
  const cublas *lib = c->lib;
  int32_t turn_a = tb ? LT_OP_T : LT_OP_N, turn_b = ta ? LT_OP_T : LT_OP_N;
  uint32_t epilogue = c->bias >= 0 ? LT_EPILOGUE_BIAS : LT_EPILOGUE_DEFAULT;
  LT_TRY(lib->cublasLtMatmulDescCreate(&c->desc, compute, c->wide ? LT_R_64F : LT_R_32F), "describing a product");
  LT_TRY(lib->cublasLtMatmulDescSetAttribute(c->desc, LT_DESC_TRANSA, &turn_a, sizeof turn_a), "describing a product");
  LT_TRY(lib->cublasLtMatmulDescSetAttribute(c->desc, LT_DESC_TRANSB, &turn_b, sizeof turn_b), "describing a product");
  LT_TRY(lib->cublasLtMatmulDescSetAttribute(c->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue), "describing a product");
  int64_t k = c->hollow ? 1 : c->k;
  DC_TRY(describe(c, type, tb ? k : c->n, tb ? c->n : k, !c->hollow, &c->a));
  DC_TRY(describe(c, type, ta ? c->m : k, ta ? k : c->m, !c->hollow, &c->b));
  return describe(c, type, c->n, c->m, true, &c->d);
}

static bool is_empty(const product_call *c) { return !c->m || !c->n || !c->batch; }

static dc_status build(product_call *c, const dc_graph *graph, dc_nid node, const int64_t *symbols, bool tf32) {
  dc_problem_product p = dc_problem_read_product(graph, node, symbols);
  dc_dtype type = dc_problem_type(graph, node);
  DC_TRY(read_product(c, &p));
  c->size = (uint64_t)dc_dtype_bytes(type), c->wide = type == DC_F64, c->hollow = !c->k;
  if (is_empty(c) || (c->hollow && c->bias < 0)) return DC_OK;
  int compute = c->wide ? LT_COMPUTE_64F : type == DC_F32 && tf32 ? LT_COMPUTE_32F_FAST_TF32 : LT_COMPUTE_32F;
  DC_TRY(describe_all(c, type_of(type), p.a.transposed, p.b.transposed, compute));
  if (c->hollow) c->zeros = (uint64_t)(c->m > c->n ? c->m : c->n) * c->size;
  return choose(c, MOST_WORKSPACE, VECTOR_ALIGN, &c->fast);
}

static void destroy_call(void *opaque) {
  product_call *c = opaque;
  if (c->a) c->lib->cublasLtMatrixLayoutDestroy(c->a);
  if (c->b) c->lib->cublasLtMatrixLayoutDestroy(c->b);
  if (c->d) c->lib->cublasLtMatrixLayoutDestroy(c->d);
  if (c->desc) c->lib->cublasLtMatmulDescDestroy(c->desc);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  product_call *c = calloc(1, sizeof *c);
  if (!c) return dc_error(DC_ERR_MEMORY, "out of memory");
  c->lib = handle;
  pthread_mutex_init(&c->lock, NULL);
  dc_status status = build(c, graph, node, symbols, dc_cuda_modes(&c->lib->place) & DC_MODE_TF32_PRODUCTS);
  if (status) destroy_call(c);
  else *out = c;
  return status;
}

/* ---- running ---- */

static uint64_t aligned(uint64_t bytes) { return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN; }

/* The workspace, aligned, and behind it the zeros. */
static uint64_t scratch_of(const void *opaque) {
  const product_call *c = opaque;
  uint64_t bytes = aligned(c->fast.workspace) + c->zeros;
  return bytes ? bytes + WORKSPACE_ALIGN - DC_MEMORY_ALIGN : 0;
}

/* The kernel for operands that lie so. */
static dc_status find_choice(product_call *c, uintptr_t addresses, const lt_choice **out) {
  *out = addresses % VECTOR_ALIGN == 0 ? &c->fast : &c->any;
  if (*out == &c->fast || c->has_any) return DC_OK;
  DC_TRY(choose(c, c->fast.workspace, (uint32_t)c->size, &c->any));
  return c->has_any = true, DC_OK;
}

static dc_status multiply(product_call *c, const void *a, const void *b, const void *bias, void *d, void *workspace, void *stream) {
  static const float one = 1, zero = 0;
  static const double wide_one = 1, wide_zero = 0;
  const void *alpha = c->wide ? (const void *)&wide_one : &one, *beta = c->wide ? (const void *)&wide_zero : &zero;
  const lt_choice *choice;
  DC_TRY(find_choice(c, (uintptr_t)a | (uintptr_t)b | (uintptr_t)d | (uintptr_t)bias, &choice));
  DC_TRY(set_bias(c, bias));
  LT_TRY(c->lib->cublasLtMatmul(c->lib->handle, c->desc, alpha, a, c->a, b, c->b, beta, d, c->d, d, c->d, &choice->algo, workspace,
                                choice->workspace, stream),
         "a matrix product");
  return DC_OK;
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  product_call *c = opaque;
  const dc_driver *driver = c->lib->place.driver;
  if (is_empty(c)) return DC_OK;
  void *result = buffers[c->buffers[2]];
  if (c->hollow && c->bias < 0) return dc_cuda_clear(driver, result, (uint64_t)(c->batch * c->m * c->n) * c->size, stream);
  char *workspace = (char *)(uintptr_t)aligned((uint64_t)(uintptr_t)scratch), *zeros = workspace + aligned(c->fast.workspace);
  if (c->hollow) DC_TRY(dc_cuda_clear(driver, zeros, c->zeros, stream));
  const void *a = c->hollow ? zeros : buffers[c->buffers[1]], *b = c->hollow ? zeros : buffers[c->buffers[0]];
  pthread_mutex_lock(&c->lock);
  dc_status status = multiply(c, a, b, c->bias < 0 ? NULL : buffers[c->bias], result, workspace, stream);
  pthread_mutex_unlock(&c->lock);
  return status;
}

const dc_native_library dc_native_cublas = {
    .name = "cublas",
    .open = open_cublas,
    .close = close_cublas,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = destroy_call,
};

dc_status dc_cuda_clear(const dc_driver *driver, void *memory, uint64_t bytes, void *stream) {
  int code = bytes ? driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)memory, 0, bytes, stream) : 0;
  return code ? dc_error(DC_ERR_DEVICE, "CUDA: clearing %llu bytes failed with code %d", (unsigned long long)bytes, code) : DC_OK;
}
