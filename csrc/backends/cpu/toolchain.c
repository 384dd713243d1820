/* The toolchain of the cpu: the system's C compiler, modules that the process opens, and the threads that kernels ask for. */
#include <dlfcn.h>
#include <omp.h>
#include <stdint.h>

#include "backends/cpu/c.h"
#include "backends/cpu/compiler.h"

typedef void (*task_fn)(const int64_t *v, int64_t lo, int64_t hi, int64_t part);

/* What kernels call through dc_kernel_run; the only place that starts threads for them. */
static int64_t run_tasks(task_fn task, const int64_t *v, int64_t n, int64_t parts) {
  int64_t threads = omp_in_parallel() ? 1 : omp_get_max_threads(), used = 1;
  if (threads > parts) threads = parts;
  if (threads > n) threads = n;
  if (threads <= 1) {
    task(v, 0, n, 0);
    return 1;
  }
#pragma omp parallel num_threads((int)threads)
  {
    int64_t part = omp_get_thread_num(), count = omp_get_num_threads();
    if (part == 0) used = count;
    task(v, n * part / count, n * (part + 1) / count, part);
  }
  return used;
}

static dc_status load(const dc_compiler *compiler, const char *path, void **module) {
  (void)compiler;
  *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!*module) return dc_error(DC_ERR_COMPILE, "cannot load a compiled kernel: %s", dlerror());
  int64_t (**run)(task_fn, const int64_t *, int64_t, int64_t) = dlsym(*module, "dc_kernel_run");
  if (run) return *run = run_tasks, DC_OK;
  dlclose(*module);
  return dc_error(DC_ERR_COMPILE, "a compiled module lacks its library");
}

static void *find(const dc_compiler *compiler, void *module, const char *function) { return (void)compiler, dlsym(module, function); }
static void unload(const dc_compiler *compiler, void *module) { (void)compiler, dlclose(module); }

const dc_toolchain dc_c_toolchain = {
    .source_suffix = ".c",
    .module_suffix = ".so",
    .open = dc_compiler_find,
    .close = dc_compiler_free,
    .start = dc_compiler_start,
    .is_done = dc_compiler_is_done,
    .finish = dc_compiler_finish,
    .load = load,
    .find = find,
    .unload = unload,
};
