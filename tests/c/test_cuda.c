/* The runtime of CUDA against a driver that is not there: tests/cuda/fake, whose path is in DCML_TEST_CUDA.  Without it only
 * what needs no driver at all is tested. */
#include "backends/cuda/device.h"
#include "backends/target.h"
#include "check.h"
#include "dcml.h"

#include <dlfcn.h>

static const char *fake;
static char folder[] = "/tmp/dcml-test-XXXXXX";

/* ---- the fake ---- */

enum { ALLOCATIONS, BYTES, PINNED, STREAMS, EVENTS, MODULES, GRAPHS, EXECUTABLE_GRAPHS, KINDS };

static long long alive(int kind) {
  long long counts[KINDS] = {0};
  void *library = dlopen(fake, RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, "fake_cuda_alive") : NULL;
  void (*count)(long long *);
  memcpy(&count, &symbol, sizeof count);
  if (count) count(counts);
  return counts[kind];
}

static void forgive(void) {
  void *library = dlopen(fake, RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, "fake_cuda_forgive") : NULL;
  void (*call)(void);
  memcpy(&call, &symbol, sizeof call);
  if (call) call();
}

static void use(const char *driver, const char *nvrtc) {
  setenv("DCML_CUDA_DRIVER", driver, 1);
  setenv("DCML_NVRTC", nvrtc, 1);
}

static dc_status open_first(int32_t ordinal) {
  dc_gpu *gpu;
  dc_cuda *cuda = dc_cuda_create(getenv("DCML_LIBRARIES"));
  dc_status status = dc_cuda_device(cuda, ordinal, &gpu);
  dc_cuda_destroy(cuda);
  return status;
}

/* ---- what is missing ---- */

static void a_missing_driver_is_said(void) {
  use("/nonexistent/libcuda.so.1", "");
  CHECK_ERROR(open_first(0), DC_ERR_DEVICE, "DCML_CUDA_DRIVER='/nonexistent/libcuda.so.1' cannot be opened");
  use("", "");
  void *there = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!there) CHECK_ERROR(open_first(0), DC_ERR_DEVICE, "the driver's library libcuda.so.1 was not found; install NVIDIA's driver");
  use("libc.so.6", "");
  CHECK_ERROR(open_first(0), DC_ERR_DEVICE, "the driver is too old for dcml, which needs CUDA 12: it lacks cuInit");
}

static void what_a_driver_lacks_is_said(void) {
  use(fake, fake);
  setenv("FAKE_CUDA_DEVICES", "0", 1);
  CHECK_ERROR(open_first(0), DC_ERR_DEVICE, "there is no GPU");
  setenv("FAKE_CUDA_DEVICES", "2", 1);
  CHECK_ERROR(open_first(2), DC_ERR_DEVICE, "there is no device cuda:2: this machine has 2");
  CHECK_ERROR(open_first(-1), DC_ERR_DEVICE, "there is no device cuda:-1");
  CHECK_ERROR(open_first(1 << 20), DC_ERR_DEVICE, "there is no device cuda:1048576");
  CHECK_OK(open_first(1));
  unsetenv("FAKE_CUDA_DEVICES");
  setenv("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:1", 1);
  CHECK_ERROR(open_first(0), DC_ERR_DEVICE, "cuda:0 cannot be used");
  unsetenv("FAKE_CUDA_FAIL");
  use(fake, "/nonexistent/libnvrtc.so");
  CHECK_ERROR(open_first(0), DC_ERR_DEVICE, "DCML_NVRTC='/nonexistent/libnvrtc.so' cannot be opened");
}

/* ---- programs ---- */

static dc_session session;

static dc_status make(const char *text, bool training, dc_function **out) {
  dc_graph *g = NULL;
  static const char *const wrt[] = {"X"};
  DC_TRY(dc_graph_parse(text, &g));
  return dc_function_create(&session, g, &(dc_function_options){.backend = DC_BACKEND_CUDA, .training = training, .wrt = wrt, .n_wrt = training}, out);
}

/* The caller's arrays: memory of the device, filled. */
static dc_array on_device(dc_gpu *gpu, const float *data, int64_t n) {
  dc_array a = {.dtype = DC_F32, .device = DC_CUDA, .ordinal = gpu->ordinal, .rank = 1, .dims = {n}};
  uint64_t bytes = (uint64_t)n * sizeof *data;
  bool entered;
  CHECK_OK(dc_gpu_enter(gpu, &entered));
  a.data = gpu->memory.take(gpu->memory.self, bytes ? bytes : 1, NULL);
  if (data && n) CHECK_OK(gpu->memory.fill(gpu->memory.self, a.data, data, bytes, NULL));
  dc_gpu_leave(gpu, entered);
  return a;
}

static void refill(dc_gpu *gpu, dc_array *a, const float *data) {
  bool entered;
  CHECK_OK(dc_gpu_enter(gpu, &entered));
  CHECK_OK(gpu->memory.fill(gpu->memory.self, a->data, data, dc_array_bytes(a), NULL));
  dc_gpu_leave(gpu, entered);
}

static void drop(dc_gpu *gpu, dc_array *a) {
  bool entered;
  CHECK_OK(dc_gpu_enter(gpu, &entered));
  gpu->memory.give(gpu->memory.self, a->data, dc_array_bytes(a), NULL);
  dc_gpu_leave(gpu, entered);
}

static dc_status start_once(dc_function *f, dc_array *in, dc_array *out) {
  dc_call call;
  DC_TRY(dc_call_begin(f, in, 1, NULL, NULL, &call));
  dc_status status = dc_call_run(&call, (void *[]){out->data}, NULL);
  dc_call_end(&call);
  return status;
}

static dc_status run_once(dc_gpu *gpu, dc_function *f, dc_array *in, dc_array *out, float *y) {
  dc_status status = start_once(f, in, out);
  return status ? status : dc_gpu_read(gpu, y, out->data, dc_array_bytes(out), NULL);
}

/* Y of a function of X alone. */
static dc_status call_once(dc_gpu *gpu, dc_function *f, const float *x, int64_t n, float *y, int64_t n_y) {
  dc_array in = on_device(gpu, x, n), out = on_device(gpu, NULL, n_y);
  dc_status status = run_once(gpu, f, &in, &out, y);
  drop(gpu, &in), drop(gpu, &out);
  return status;
}

static const char scaled[] =
    "graph g { symbol n >= 0 input X: f32[n] const C: f32[4] = {1, 2, 3, 4} temp S: f32[1] temp Y: f32[n] outputs Y state s {"
    " map z in 0:1 { S[z] = 0.0f } map z in 0:1 { reduce i in 0:n { S[z] sum= X[i] } } map i in 0:n { Y[i] = X[i] * S[0] + C[i % 4] } } }";

static void a_graph_runs_on_the_device(dc_gpu *gpu) {
  dc_function *f = NULL;
  float x[300], y[300];
  CHECK_OK(make(scaled, false, &f));
  long long before = 0;
  for (int64_t n = 0; n <= 300; n += n < 6 ? 1 : 147) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 5), sum += x[i];
    CHECK_OK(call_once(gpu, f, x, n, y, n));
    bool good = true;
    for (int64_t i = 0; i < n; i++) good &= y[i] == x[i] * sum + (float)(i % 4 + 1);
    CHECK(good);
    if (n == 2) before = alive(ALLOCATIONS);
  }
  CHECK(alive(ALLOCATIONS) == before); /* calls give back all that they take */
  dc_function_destroy(f);
}

static void arguments_elsewhere_are_refused(dc_gpu *gpu) {
  dc_graph *g = NULL;
  dc_function *f = NULL;
  dc_call call;
  float x[2] = {1, 2};
  CHECK_OK(dc_graph_parse("graph g { input A: f32[2] input B: f32[2] temp Y: f32[2] outputs Y state s { map i in 0:2 { Y[i] = A[i] + B[i] } } }", &g));
  CHECK_OK(dc_function_create(&session, g, &(dc_function_options){.backend = DC_BACKEND_CUDA}, &f));
  dc_array there = on_device(gpu, x, 2), here = {.data = x, .dtype = DC_F32, .rank = 1, .dims = {2}}, other = there;
  other.ordinal = 1;
  CHECK_ERROR(dc_call_begin(f, (dc_array[]){there, here}, 2, NULL, NULL, &call), DC_ERR_DEVICE, "input 'B' is in the memory of the host, but 'A' in that of cuda:0");
  CHECK_ERROR(dc_call_begin(f, (dc_array[]){there, other}, 2, NULL, NULL, &call), DC_ERR_DEVICE, "input 'B' is in the memory of cuda:1, but 'A' in that of cuda:0");
  CHECK_ERROR(dc_call_begin(f, (dc_array[]){here, here}, 2, NULL, NULL, &call), DC_ERR_DEVICE, "input 'A' is in the memory of the host, expected cuda");
  drop(gpu, &there);
  dc_function_destroy(f);
  CHECK_OK(dc_graph_parse("graph g { input A: f32[2] temp Y: f32[2] outputs Y state s { map i in 0:2 { Y[i] = A[i] } } }", &g));
  CHECK_OK(dc_function_create(&session, g, &(dc_function_options){.backend = DC_BACKEND_CPU}, &f));
  CHECK_ERROR(dc_call_begin(f, &there, 1, NULL, NULL, &call), DC_ERR_DEVICE, "input 'A' is in the memory of cuda:0, expected the host");
  dc_function_destroy(f);
}

static void failures_are_errors_and_leak_nothing(dc_gpu *gpu) {
  static const struct {
    const char *fail, *says;
    dc_code code;
  } cases[] = {
      {"cuModuleLoadData:1", "cannot be loaded to cuda:0", DC_ERR_DEVICE},
      {"cuLaunchKernel:1", "cannot be launched on cuda:0", DC_ERR_DEVICE},
      {"nvrtcCompileProgram:1", "NVRTC failed on a generated kernel", DC_ERR_COMPILE},
  };
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
  long long allocations = alive(ALLOCATIONS);
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    char text[600];
    dc_function *f = NULL;
    snprintf(text, sizeof text, "graph g { input X: f32[8] temp Y: f32[8] outputs Y state s { map i in 0:8 { Y[i] = X[i] + %zu.5f } } }", k); /* not in the cache */
    CHECK_OK(make(text, false, &f));
    setenv("FAKE_CUDA_FAIL", cases[k].fail, 1);
    CHECK_ERROR(call_once(gpu, f, x, 8, y, 8), cases[k].code, cases[k].says);
    unsetenv("FAKE_CUDA_FAIL");
    forgive();
    CHECK_OK(call_once(gpu, f, x, 8, y, 8));
    CHECK(y[7] == 8.5f + (float)k);
    dc_function_destroy(f);
    CHECK(alive(ALLOCATIONS) == allocations);
  }
}

/* The calls that take memory, each failing in turn. */
static void short_memory_is_an_error_and_leaks_nothing(dc_gpu *gpu) {
  static const struct {
    const char *fail, *says;
  } cases[] = {{"cuMemAllocAsync:1", "cannot get 16 bytes for 'C'"}, {"cuMemAllocAsync:2", "bytes for intermediate results"}};
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
  dc_array in = on_device(gpu, x, 8), out = on_device(gpu, NULL, 8);
  long long allocations = alive(ALLOCATIONS);
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    dc_function *f = NULL;
    CHECK_OK(make(scaled, false, &f));
    setenv("FAKE_CUDA_FAIL", cases[k].fail, 1);
    dc_status status = run_once(gpu, f, &in, &out, y);
    CHECK_ERROR(status, DC_ERR_MEMORY, cases[k].says);
    unsetenv("FAKE_CUDA_FAIL");
    CHECK_OK(run_once(gpu, f, &in, &out, y));
    CHECK(y[7] == 8 * 36 + 4);
    dc_function_destroy(f);
    CHECK(alive(ALLOCATIONS) == allocations);
  }
  drop(gpu, &in), drop(gpu, &out);
}

static void an_index_out_of_range_is_told_later(dc_gpu *gpu) {
  dc_function *f = NULL;
  float x[4] = {0, 1, 9, 3}, y[4];
  CHECK_OK(make("graph g { input X: f32[4] temp Y: f32[4] outputs Y state s { map i in 0:4 { Y[i] = X[i64(X[i])] } } }", false, &f));
  CHECK_ERROR(call_once(gpu, f, x, 4, y, 4), DC_ERR_VALUE, "an index is out of range"); /* where the result is read ... */
  dc_array in = on_device(gpu, x, 4), out = on_device(gpu, NULL, 4);
  CHECK_OK(start_once(f, &in, &out));
  CHECK_ERROR(start_once(f, &in, &out), DC_ERR_VALUE, "an index is out of range"); /* ... by the next call ... */
  CHECK_OK(start_once(f, &in, &out));
  CHECK_ERROR(dc_gpu_synchronize(gpu, NULL), DC_ERR_VALUE, "an index is out of range"); /* ... or who waits */
  CHECK_OK(dc_gpu_synchronize(gpu, NULL));
  drop(gpu, &in), drop(gpu, &out);
  x[2] = 2;
  CHECK_OK(call_once(gpu, f, x, 4, y, 4));
  CHECK(y[2] == 2 && y[3] == 3);
  dc_function_destroy(f);
}

/* Lines of the log of the driver's calls that begin so. */
static int count_calls(const char *path, const char *name) {
  char *text = check_read(path);
  int n = 0;
  for (char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) n += strncmp(at, name, strlen(name)) == 0;
  free(text);
  return n;
}

static dc_function *make_chain(int length) {
  dc_text text = {0};
  dc_graph *g = NULL;
  dc_function *f = NULL;
  dc_text_printf(&text, "graph g { input X: f32[8] temp Y0: f32[8]");
  for (int k = 1; k < length; k++) dc_text_printf(&text, " temp Y%d: f32[8]", k);
  dc_text_printf(&text, " outputs Y%d state s { map i in 0:8 { Y0[i] = X[i] + 1.0f }", length - 1);
  for (int k = 1; k < length; k++) dc_text_printf(&text, " map i in 0:8 { Y%d[i] = Y%d[7 - i] + 1.0f }", k, k - 1);
  dc_text_printf(&text, " } }");
  CHECK_OK(dc_graph_parse(text.s, &g));
  CHECK_OK(dc_function_create(&session, g, &(dc_function_options){.backend = DC_BACKEND_CUDA, .as_expanded = true}, &f));
  dc_text_free(&text);
  return f;
}

static bool chain_is_right(const float *x, const float *y, int length) {
  bool good = true;
  for (int i = 0; i < 8; i++) good &= y[i] == x[length % 2 ? i : 7 - i] + (float)length;
  return good;
}

static void short_steps_are_replayed_for_equal_addresses(dc_gpu *gpu) {
  enum { LENGTH = 9 };
  char log[100];
  float x[8] = {3, 1, 4, 1, 5, 9, 2, 6}, y[8];
  dc_function *f = make_chain(LENGTH);
  dc_array in = on_device(gpu, x, 8), out = on_device(gpu, NULL, 8), other = on_device(gpu, NULL, 8);
  snprintf(log, sizeof log, "%s/log", folder);
  setenv("FAKE_CUDA_LOG", log, 1);
  for (int k = 0; k < 5; k++) {
    x[0] = (float)k;
    refill(gpu, &in, x);
    CHECK_OK(run_once(gpu, f, &in, &out, y));
    CHECK(chain_is_right(x, y, LENGTH));
  }
  CHECK(count_calls(log, "cuGraphLaunch") == 4 && count_calls(log, "cuGraphInstantiate") == 1);
  CHECK_OK(run_once(gpu, f, &in, &other, y)); /* elsewhere */
  CHECK(chain_is_right(x, y, LENGTH) && count_calls(log, "cuGraphLaunch") == 4);
  CHECK_OK(run_once(gpu, f, &in, &other, y));
  CHECK_OK(run_once(gpu, f, &in, &out, y));
  CHECK(count_calls(log, "cuGraphLaunch") == 6 && count_calls(log, "cuGraphInstantiate") == 2);
  unsetenv("FAKE_CUDA_LOG");
  dc_function_destroy(f);
  drop(gpu, &in), drop(gpu, &out), drop(gpu, &other);
  CHECK(alive(EXECUTABLE_GRAPHS) == 0 && alive(GRAPHS) == 0);
}

static void gradients_are_replayed_too(dc_gpu *gpu) {
  enum { LENGTH = 8 };
  static const char *const wrt[] = {"X"};
  float x[8] = {3, 1, 4, 1, 5, 9, 2, 6}, dy[8], dx[8];
  char log[100];
  dc_text text = {0};
  dc_graph *g = NULL;
  dc_function *f = NULL;
  dc_text_printf(&text, "graph g { input X: f32[8]");
  for (int k = 0; k < LENGTH; k++) dc_text_printf(&text, " temp Y%d: f32[8]", k);
  dc_text_printf(&text, " outputs Y%d state s { map i in 0:8 { Y0[i] = X[i] * 2.0f }", LENGTH - 1);
  for (int k = 1; k < LENGTH; k++) dc_text_printf(&text, " map i in 0:8 { Y%d[i] = Y%d[7 - i] * 2.0f }", k, k - 1);
  dc_text_printf(&text, " } }");
  CHECK_OK(dc_graph_parse(text.s, &g));
  CHECK_OK(dc_function_create(&session, g, &(dc_function_options){.backend = DC_BACKEND_CUDA, .as_expanded = true, .training = true, .wrt = wrt, .n_wrt = 1}, &f));
  dc_array in = on_device(gpu, x, 8), out = on_device(gpu, NULL, 8), given = on_device(gpu, x, 8), gradient = on_device(gpu, NULL, 8), saved = on_device(gpu, NULL, 1000);
  snprintf(log, sizeof log, "%s/gradients", folder);
  setenv("FAKE_CUDA_LOG", log, 1);
  for (int k = 0; k < 4; k++) {
    dc_call call;
    dc_backward_run *run = NULL;
    for (int i = 0; i < 8; i++) dy[i] = (float)(i + k);
    refill(gpu, &given, dy);
    CHECK_OK(dc_call_begin(f, &in, 1, NULL, NULL, &call));
    CHECK(dc_call_saved_bytes(&call) <= dc_array_bytes(&saved));
    CHECK_OK(dc_call_run(&call, (void *[]){out.data}, saved.data));
    CHECK_OK(dc_backward_begin(&call, &in, NULL, (void *[]){given.data}, saved.data, false, NULL, &run));
    dc_backward_give(run, 0, gradient.data);
    while (run && !dc_backward_done(run)) CHECK_OK(dc_backward_next(run));
    dc_backward_end(run);
    dc_call_end(&call);
    CHECK_OK(dc_gpu_read(gpu, dx, gradient.data, sizeof dx, NULL));
    bool good = true;
    for (int i = 0; i < 8; i++) good &= dx[i] == 256 * dy[LENGTH % 2 ? i : 7 - i];
    CHECK(good);
  }
  CHECK(count_calls(log, "cuGraphLaunch") == 6 && count_calls(log, "cuGraphInstantiate") == 2);
  unsetenv("FAKE_CUDA_LOG");
  dc_text_free(&text);
  dc_function_destroy(f);
  drop(gpu, &in), drop(gpu, &out), drop(gpu, &given), drop(gpu, &gradient), drop(gpu, &saved);
}

static void what_cannot_be_recorded_runs_as_ever(dc_gpu *gpu) {
  static const char *const failing[] = {"cuStreamBeginCapture_v2:*", "cuStreamEndCapture:*", "cuGraphInstantiateWithFlags:*"};
  float x[8] = {3, 1, 4, 1, 5, 9, 2, 6}, y[8];
  for (size_t k = 0; k < sizeof failing / sizeof *failing; k++) {
    dc_function *f = make_chain(8);
    dc_array in = on_device(gpu, x, 8), out = on_device(gpu, NULL, 8);
    setenv("FAKE_CUDA_FAIL", failing[k], 1);
    for (int j = 0; j < 4; j++) {
      CHECK_OK(run_once(gpu, f, &in, &out, y));
      CHECK(chain_is_right(x, y, 8));
    }
    unsetenv("FAKE_CUDA_FAIL");
    forgive();
    dc_function_destroy(f);
    drop(gpu, &in), drop(gpu, &out);
  }
}

static void steps_are_timed_by_the_device(dc_gpu *gpu) {
  float x[8] = {0}, y[8];
  dc_function *f = make_chain(8);
  dc_array in = on_device(gpu, x, 8), out = on_device(gpu, NULL, 8);
  dc_step_report steps[8];
  CHECK_OK(run_once(gpu, f, &in, &out, y));
  dc_program_time(dc_function_program(f, false), true);
  for (int k = 0; k < 3; k++) CHECK_OK(run_once(gpu, f, &in, &out, y));
  uint32_t n = dc_program_report(dc_function_program(f, false), steps, 8);
  bool timed = n == 8;
  for (uint32_t k = 0; k < n && k < 8; k++) timed &= steps[k].runs == 3 && steps[k].seconds > 0 && strcmp(steps[k].by, "compiled") == 0;
  CHECK(timed && alive(EVENTS) == 0);
  dc_function_destroy(f);
  drop(gpu, &in), drop(gpu, &out);
}

static void programs_run(void) {
  dc_gpu *gpu;
  use(fake, fake);
  CHECK_OK(dc_session_create(getenv("DCML_LIBRARIES"), NULL, &session));
  dc_status status = dc_cuda_device(session.cuda, 0, &gpu);
  bool opened = !status;
  CHECK_OK(status);
  if (opened) {
    long long allocations = alive(ALLOCATIONS), pinned = alive(PINNED);
    a_graph_runs_on_the_device(gpu);
    arguments_elsewhere_are_refused(gpu);
    failures_are_errors_and_leak_nothing(gpu);
    short_memory_is_an_error_and_leaks_nothing(gpu);
    an_index_out_of_range_is_told_later(gpu);
    short_steps_are_replayed_for_equal_addresses(gpu);
    gradients_are_replayed_too(gpu);
    what_cannot_be_recorded_runs_as_ever(gpu);
    steps_are_timed_by_the_device(gpu);
    CHECK(alive(ALLOCATIONS) == allocations && alive(PINNED) == pinned);
  }
  dc_session_destroy(&session);
  CHECK(alive(MODULES) == 0);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!mkdtemp(folder)) return 1;
  setenv("DCML_CACHE", folder, 1);
  fake = getenv("DCML_TEST_CUDA");
  a_missing_driver_is_said();
  if (fake && *fake) {
    what_a_driver_lacks_is_said();
    programs_run();
  } else printf("skipped: no fake driver in DCML_TEST_CUDA\n");
  char command[80];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return check_report();
}
