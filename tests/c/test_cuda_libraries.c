/* cuBLASLt and cuDNN bound and run on the host, by the fakes of tests/cuda/fake in their place: each operator and gradient
 * against plain loops, in each type and layout, with operands that are not aligned, and refusals. */
#include <stdlib.h>

#include "backends/cuda/natives.h"
#include "native_cases.h"

static CUresult set_bytes(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
  (void)stream;
  memset((void *)(uintptr_t)to, value, n);
  return 0;
}

static const dc_driver driver = {.cuMemsetD8Async = set_bytes};
static uint32_t modes;
static const dc_cuda_place device = {&driver, 0, &modes};

/* The file is built beside the test, or not at all: then there is nothing to test with. */
static bool build_fakes(char *path, size_t bytes, const char *test) {
  char command[4096];
  const char *compiler = getenv("CXX");
  snprintf(path, bytes, "%s.fake.so", test);
  snprintf(command, sizeof command, "%s -std=c++17 -O1 -Wall -Wextra -Werror -shared -fPIC tests/cuda/fake/libraries.cpp -o '%s'",
           compiler && *compiler ? compiler : "c++", path);
  return system(command) == 0;
}

static const struct {
  const char *name;
  dc_dtype type;
  double tolerance;
} types[] = {{"f32", DC_F32, 2e-5}, {"f64", DC_F64, 2e-5}, {"f16", DC_F16, 2e-3}, {"bf16", DC_BF16, 1e-2}};

static void products_equal_the_loops_in_each_type(void) {
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int unaligned = 0; unaligned < 2; unaligned++) {
      meets.type = types[t].type, meets.tolerance = types[t].tolerance, meets.shift = unaligned * dc_dtype_bytes(types[t].type);
      products_equal_the_loops();
    }
  memset(&meets, 0, sizeof meets);
}

static void convolutions_equal_the_loops_in_each_type_and_layout(void) {
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int way = 0; way < 3; way++) {
      memset(&meets, 0, sizeof meets);
      meets.type = types[t].type, meets.tolerance = types[t].tolerance * 4, meets.last = way == 1;
      meets.shift = way == 2 ? dc_dtype_bytes(types[t].type) : 0;
      meets.refusals = "an added bias; padding that is not the same on both sides";
      convolutions_equal_the_loops();
    }
  memset(&meets, 0, sizeof meets);
}

/* What a library cannot run as it lies is copied. */
static void images_are_copied_where_no_engine_takes_their_layout(void) {
  setenv("FAKE_CUDNN_ONLY_ROWS", "1", 1);
  meets.last = true, meets.refusals = "an added bias; padding that is not the same on both sides";
  convolutions_equal_the_loops();
  memset(&meets, 0, sizeof meets);
  unsetenv("FAKE_CUDNN_ONLY_ROWS");
}

/* The largest difference from the loops, where operands may be rounded to TF32. */
static double error_of(bound *b, const double *wanted) {
  double most = 0;
  bind_it(b);
  CHECK_OK(run(b, b->blocks));
  move_buffer(b, b->n_in, false);
  for (int64_t k = 0; k < b->n_out; k++) most = fmax(most, fabs(((float *)b->buffers[b->n_in])[k] - wanted[k]));
  finish(b);
  return most;
}

static double product_error(void) {
  bound b = make_product(&products[0], 0);
  double *wanted = calloc((size_t)b.n_out, sizeof *wanted);
  product_reference(&products[0], 0, &b, wanted);
  double error = error_of(&b, wanted);
  free(wanted);
  return error;
}

static double convolution_error(void) {
  shape y;
  bound b = make_conv(&convs[0], 0, &y);
  double *wanted = calloc((size_t)b.n_out, sizeof *wanted);
  conv_reference(&convs[0], 0, b.buffers, &y, wanted);
  double error = error_of(&b, wanted);
  free(wanted);
  return error;
}

static void operands_are_rounded_only_where_that_is_allowed(double (*error)(void), uint32_t mode) {
  modes = ~mode;
  CHECK(error() < 1e-5);
  modes = mode;
  double rounded = error();
  CHECK(rounded > 1e-5 && rounded < 1e-2);
  modes = 0;
}

/* ---- what is refused ---- */

static const char *refusal(const char *text) {
  dc_graph *g = NULL;
  char *copy = NULL;
  CHECK_OK(dc_graph_parse(text, &g));
  const char *why = library->refuses(handle, g, 1);
  if (why) copy = strdup(why);
  dc_graph_destroy(g);
  return copy;
}

static void check_refusal(const char *containers, const char *node, const char *why) {
  char text[1024];
  snprintf(text, sizeof text, "graph g { symbol N >= 1 %s outputs Y state s { Y = %s @n } }", containers, node);
  const char *got = refusal(text);
  CHECK_TEXT(got ? got : "none", why);
  free((void *)got);
}

static void cudnn_says_why_it_refuses(void) {
  static const char image[] = "input X: f32[1, 2, 8, 8] input W: f32[2, 2, 3, 3] temp Y: f32[1, 2, 4, 4]";
  check_refusal(image, "Conv@11(X, W) {pads = ints [0, 0, 1, 1], strides = ints [2, 2]}", "padding that is not the same on both sides");
  check_refusal(image, "Conv@11(X, W) {auto_pad = \"SAME_UPPER\", strides = ints [2, 2]}", "padding that is not the same on both sides");
  check_refusal("input X: f32[1, 2, N, N] input W: f32[2, 2, 3, 3] temp Y: f32[1, 2, N, N]", "Conv@11(X, W) {auto_pad = \"SAME_UPPER\"}", "none");
  check_refusal("input X: f32[N, 2, 9, 9] input W: f32[2, 2, 3, 3] temp Y: f32[N, 2, 4, 4]", "Conv@11(X, W) {strides = ints [2, 2]}", "none");
  check_refusal("input X: i32[1, 2, 8, 8] input W: i32[2, 2, 3, 3] temp Y: i32[1, 2, 6, 6]", "Conv@11(X, W)",
                "a type other than f32, f64, f16 and bf16");
  check_refusal("input X: f32[1, 2, 8, 8] input W: f32[2, 2, 3, 3] input B: f32[2] temp Y: f32[1, 2, 6, 6]", "Conv@11(X, W, B)", "an added bias");
  /* what lies to the right of the last window does not matter */
  check_refusal("input X: f32[1, 2, 8, 8] input W: f32[2, 2, 3, 3] temp Y: f32[1, 2, 3, 3]", "Conv@11(X, W) {strides = ints [2, 2]}", "none");
  check_refusal("input X: f32[1, 2, N, N] input W: f32[2, 2, 3, 3] temp Y: f32[1, 2, 2*N, 2*N]",
                "ConvTranspose@11(X, W) {pads = ints [1, 1, 1, 1], strides = ints [2, 2], output_padding = ints [1, 1]}", "none");
}

static void nothing_starts_without_a_device(const dc_native_library *which) {
  void *out;
  CHECK_TEXT(which->open(NULL, NULL, &out), "there is no device");
}

int main(int n, char **arguments) {
  char path[1024];
  (void)n;
  nothing_starts_without_a_device(&dc_native_cublas);
  nothing_starts_without_a_device(&dc_native_cudnn);
  if (!build_fakes(path, sizeof path, arguments[0])) return puts("skipped: there is no C++ compiler"), check_report();
  setenv("DCML_CUBLASLT", path, 1);
  setenv("DCML_CUDNN", path, 1);
  library = &dc_native_cublas;
  const char *why = library->open(NULL, &device, &handle);
  CHECK_TEXT(why ? why : "", "");
  products_equal_the_loops_in_each_type();
  operands_are_rounded_only_where_that_is_allowed(product_error, DC_MODE_TF32_PRODUCTS);
  library->close(handle);
  library = &dc_native_cudnn;
  why = library->open(NULL, &device, &handle);
  CHECK_TEXT(why ? why : "", "");
  convolutions_equal_the_loops_in_each_type_and_layout();
  images_are_copied_where_no_engine_takes_their_layout();
  operands_are_rounded_only_where_that_is_allowed(convolution_error, DC_MODE_TF32_CONVOLUTIONS);
  calls_run_in_threads_that_did_not_bind_them();
  cudnn_says_why_it_refuses();
  library->close(handle);
  return check_report();
}
