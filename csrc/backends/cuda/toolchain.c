/* See toolchain.h. */
#include "backends/cuda/toolchain.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/cuda/device.h"

/* Contraction is off as on the processor, since a*b - c*d with a*b == c*d must be 0; kernels ask for fused operations by
 * name.  No fast functions, and denormal numbers stay. */
static const char *const options[] = {"-std=c++17", "--fmad=false"};
enum { OPTIONS = sizeof options / sizeof *options, MESSAGE_BYTES = 2000 };

/* ---- opening ---- */

static void open_compiler(const char *spare, dc_compiler *out) {
  const dc_gpu *gpu = out->context;
  struct stat file = {0};
  (void)spare;
  DC_PUSH(&out->arena, &out->command, gpu->nvrtc.path);
  DC_PUSH(&out->arena, &out->command, dc_arena_printf(&out->arena, "--gpu-architecture=sm_%d%d", gpu->major, gpu->minor));
  for (size_t k = 0; k < OPTIONS; k++) DC_PUSH(&out->arena, &out->command, options[k]);
  (void)stat(gpu->nvrtc.path, &file); /* a library of one version that was made anew is another */
  int64_t numbers[] = {gpu->nvrtc.major, gpu->nvrtc.minor, (int64_t)file.st_size, (int64_t)file.st_mtime};
  out->identity = dc_hash_bytes(0xcda, numbers, sizeof numbers);
  for (uint32_t k = 0; k < out->command.n; k++) out->identity = dc_hash_bytes(out->identity, out->command.v[k], strlen(out->command.v[k]));
}

static void close_compiler(dc_compiler *compiler) { dc_arena_free(&compiler->arena); }

/* ---- compiling ---- */

struct dc_job {
  const dc_compiler *compiler;
  const char *source, *object, *messages;
  pthread_t thread;
  bool threaded; /* else it was done at once */
  bool done;
  dc_status status;
};

static char *read_file(const char *path, size_t *n) {
  FILE *file = fopen(path, "re");
  char *text = NULL;
  long end = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  if (end >= 0 && fseek(file, 0, SEEK_SET) == 0) text = malloc((size_t)end + 1);
  if (text && fread(text, 1, (size_t)end, file) != (size_t)end) free(text), text = NULL;
  if (text) text[end] = 0, *n = (size_t)end;
  if (file) fclose(file);
  return text;
}

static dc_status write_file(const char *path, const char *data, size_t n) {
  FILE *file = fopen(path, "wxe");
  bool good = file && fwrite(data, 1, n, file) == n;
  if (file) good = fclose(file) == 0 && good;
  return good ? DC_OK : dc_error(DC_ERR_COMPILE, "cannot write '%s': %s", path, strerror(errno));
}

static dc_status failed(const dc_nvrtc *nvrtc, nvrtcProgram program, nvrtcResult result) {
  char log[MESSAGE_BYTES + 1] = "";
  size_t n = 0;
  char *all = program && nvrtc->nvrtcGetProgramLogSize(program, &n) == 0 && n ? malloc(n) : NULL;
  if (all && nvrtc->nvrtcGetProgramLog(program, all) == 0)
    snprintf(log, sizeof log, "%.*s", (int)(n < MESSAGE_BYTES ? n : MESSAGE_BYTES), all);
  free(all);
  const char *name = nvrtc->nvrtcGetErrorString(result);
  return dc_error(DC_ERR_COMPILE, "NVRTC failed on a generated kernel (%s):\n%s", name ? name : "unknown error",
                  *log ? log : "(it said nothing)");
}

static dc_status take_cubin(const dc_nvrtc *nvrtc, nvrtcProgram program, const char *object) {
  size_t n = 0;
  nvrtcResult result = nvrtc->nvrtcGetCUBINSize(program, &n);
  char *cubin = !result && n ? malloc(n) : NULL;
  if (cubin) result = nvrtc->nvrtcGetCUBIN(program, cubin);
  dc_status status = cubin && !result ? write_file(object, cubin, n) : failed(nvrtc, program, result);
  free(cubin);
  return status;
}

static dc_status compile(const dc_job *job) {
  const dc_nvrtc *nvrtc = &((const dc_gpu *)job->compiler->context)->nvrtc;
  nvrtcProgram program = NULL;
  size_t n = 0;
  char *text = read_file(job->source, &n);
  if (!text) return dc_error(DC_ERR_COMPILE, "cannot read '%s': %s", job->source, strerror(errno));
  nvrtcResult result = nvrtc->nvrtcCreateProgram(&program, text, "kernels.cu", 0, NULL, NULL);
  free(text);
  if (!result) result = nvrtc->nvrtcCompileProgram(program, (int)job->compiler->command.n - 1, job->compiler->command.v + 1);
  dc_status status = result ? failed(nvrtc, program, result) : take_cubin(nvrtc, program, job->object);
  if (program) (void)nvrtc->nvrtcDestroyProgram(&program);
  return status;
}

static void *run_job(void *opaque) {
  dc_job *job = opaque;
  job->status = compile(job);
  __atomic_store_n(&job->done, true, __ATOMIC_RELEASE);
  return NULL;
}

static dc_status start(const dc_compiler *compiler, const char *source, const char *object, const char *messages, dc_job **out) {
  dc_job *job = calloc(1, sizeof *job);
  if (!job) return dc_error(DC_ERR_MEMORY, "out of memory");
  *job = (dc_job){.compiler = compiler, .source = source, .object = object, .messages = messages};
  job->threaded = pthread_create(&job->thread, NULL, run_job, job) == 0;
  if (!job->threaded) run_job(job);
  return *out = job, DC_OK;
}

static bool is_done(dc_job *job) { return __atomic_load_n(&job->done, __ATOMIC_ACQUIRE); }

static dc_status finish(dc_job *job, const char *object, const char *messages) {
  (void)object, (void)messages; /* as they were given to start; what the compiler said is in the status */
  if (job->threaded) pthread_join(job->thread, NULL);
  dc_status status = job->status;
  free(job);
  return status;
}

/* ---- loading ---- */

static dc_status load(const dc_compiler *compiler, const char *path, void **module) {
  const dc_gpu *gpu = compiler->context;
  size_t n = 0;
  bool entered;
  char *image = read_file(path, &n);
  if (!image) return dc_error(DC_ERR_COMPILE, "cannot read '%s': %s", path, strerror(errno));
  dc_status status = dc_gpu_enter(gpu, &entered);
  CUmodule made = NULL;
  if (!status) {
    status = dc_driver_status(&gpu->driver, gpu->driver.cuModuleLoadData(&made, image), "a compiled kernel cannot be loaded to cuda:%d",
                              gpu->ordinal);
    dc_gpu_leave(gpu, entered);
  }
  free(image);
  return *module = made, status;
}

static void *find(const dc_compiler *compiler, void *module, const char *function) {
  const dc_gpu *gpu = compiler->context;
  CUfunction found = NULL;
  return gpu->driver.cuModuleGetFunction(&found, module, function) ? NULL : found;
}

static void unload(const dc_compiler *compiler, void *module) { (void)((const dc_gpu *)compiler->context)->driver.cuModuleUnload(module); }

const dc_toolchain dc_nvrtc_toolchain = {
    .source_suffix = ".cu",
    .module_suffix = ".cubin",
    .open = open_compiler,
    .close = close_compiler,
    .start = start,
    .is_done = is_done,
    .finish = finish,
    .load = load,
    .find = find,
    .unload = unload,
};
