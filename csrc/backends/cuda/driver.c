/* See driver.h. */
#define _GNU_SOURCE /* dladdr */
#include "backends/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/shared.h"

enum { LEAST_CUDA = 12000 }; /* updating a graph, and memory in the order of streams */

static const dc_cuda_symbol driver_symbols[] = {
#define X(name, parameters) {#name, offsetof(dc_driver, name)},
    DC_DRIVER_FUNCTIONS(X)
#undef X
};
static const dc_cuda_symbol nvrtc_symbols[] = {
#define X(name, parameters) {#name, offsetof(dc_nvrtc, name)},
    DC_NVRTC_FUNCTIONS(X)
#undef X
    {"nvrtcGetErrorString", offsetof(dc_nvrtc, nvrtcGetErrorString)},
};
enum { DRIVER_SYMBOLS = sizeof driver_symbols / sizeof *driver_symbols, NVRTC_SYMBOLS = sizeof nvrtc_symbols / sizeof *nvrtc_symbols };

dc_status dc_driver_status(const dc_driver *driver, CUresult result, const char *format, ...) {
  if (!result) return DC_OK;
  char what[400];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  const char *name = NULL, *text = NULL;
  (void)driver->cuGetErrorName(result, &name), (void)driver->cuGetErrorString(result, &text);
  dc_code code = result == CUDA_ERROR_OUT_OF_MEMORY ? DC_ERR_MEMORY : DC_ERR_DEVICE;
  return dc_error(code, "%s: %s (%s)", what, text ? text : "the driver does not say why", name ? name : "unknown error");
}

/* Why a library that was named, or is nowhere, cannot be used. */
static dc_status not_found(const char *variable, const char *advice) {
  const char *given = getenv(variable), *why = given && *given ? dlerror() : NULL;
  if (given && *given) return dc_error(DC_ERR_DEVICE, "%s='%s' cannot be opened: %s", variable, given, why ? why : "unknown error");
  return dc_error(DC_ERR_DEVICE, "%s", advice);
}

static dc_status use_driver(void *library, dc_driver *out) {
  const char *missing = dc_cuda_shared_symbols(library, driver_symbols, DRIVER_SYMBOLS, out);
  if (missing)
    return dc_error(DC_ERR_DEVICE, "the driver is too old for dcml, which needs CUDA 12: it lacks %s; update NVIDIA's driver", missing);
  int version = 0;
  CUresult failed = out->cuInit(0);
  if (failed == CUDA_ERROR_NO_DEVICE) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return dc_error(DC_ERR_DEVICE, "there is no GPU: the driver finds no device%s%s%s", visible ? " with CUDA_VISIBLE_DEVICES='" : "",
                    visible ? visible : "", visible ? "'" : "; `nvidia-smi` lists those that it knows");
  }
  DC_TRY(dc_driver_status(out, failed, "the CUDA driver does not start"));
  DC_TRY(dc_driver_status(out, out->cuDriverGetVersion(&version), "the CUDA driver does not tell its version"));
  if (version >= LEAST_CUDA) return DC_OK;
  return dc_error(DC_ERR_DEVICE, "the driver is too old for dcml, which needs CUDA 12: it is for CUDA %d.%d; update NVIDIA's driver",
                  version / 1000, version % 1000 / 10);
}

dc_status dc_driver_open(dc_driver *out) {
  static const char *const nowhere[] = {NULL}; /* it comes with the system, never with a package */
  void *library = dc_cuda_shared_open("DCML_CUDA_DRIVER", NULL, nowhere, "libcuda.so.1");
  if (!library)
    return not_found("DCML_CUDA_DRIVER", "CUDA cannot be used: the driver's library libcuda.so.1 was not found; install NVIDIA's driver, "
                                         "or in a container start it with access to the GPU");
  dc_status status = use_driver(library, out);
  if (status) (void)dlclose(library);
  return status; /* once used it stays open: what it made may outlive who opened it */
}

/* ---- the compiler ---- */

/* A driver runs code of compilers up to its own version: where several are installed, an older one serves. */
static void *open_nvrtc(const char *folder, int version) {
  static const char *const packages[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", NULL};
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
  const size_t first = version < 13000;
  void *library = dc_cuda_shared_open("DCML_NVRTC", folder, packages, names[first]);
  return library ? library : dc_cuda_shared_open("DCML_NVRTC", folder, packages, names[1 - first]);
}

/* Of the file that a function of the library lies in. */
static const char *path_of(const dc_nvrtc *nvrtc, dc_arena *arena) {
  Dl_info info;
  void *function;
  memcpy(&function, &nvrtc->nvrtcVersion, sizeof function);
  return dladdr(function, &info) && info.dli_fname ? dc_arena_strdup(arena, info.dli_fname) : "NVRTC";
}

/* What it compiles for, and whether that is for the device. */
static dc_status check_architecture(const dc_nvrtc *nvrtc, int architecture) {
  enum { MOST = 256 };
  int n = 0, known[MOST], newest = 0;
  bool told = nvrtc->nvrtcGetNumSupportedArchs(&n) == 0 && n > 0 && n <= MOST && nvrtc->nvrtcGetSupportedArchs(known) == 0;
  if (!told) return DC_OK; /* it will say so itself */
  for (int k = 0; k < n; k++) {
    if (known[k] == architecture) return DC_OK;
    if (known[k] > newest) newest = known[k];
  }
  static const char *const advice[] = {"an older one: `pip install nvidia-cuda-nvrtc-cu12`",
                                       "a newer one: `pip install -U nvidia-cuda-nvrtc`"};
  const int a = architecture;
  return dc_error(DC_ERR_DEVICE,
                  "NVRTC %d.%d does not compile for compute capability %d.%d, which this GPU has, but for others up to %d.%d; install %s",
                  nvrtc->major, nvrtc->minor, a / 10, a % 10, newest / 10, newest % 10, advice[a > newest]);
}

static dc_status use_nvrtc(void *library, int version, dc_nvrtc *out) {
  const char *missing = dc_cuda_shared_symbols(library, nvrtc_symbols, NVRTC_SYMBOLS, out);
  if (missing) return dc_error(DC_ERR_DEVICE, "NVRTC is too old for dcml: it lacks %s; `pip install 'dcml[cuda]'` brings one", missing);
  if (out->nvrtcVersion(&out->major, &out->minor)) return dc_error(DC_ERR_DEVICE, "NVRTC does not tell its version");
  if (out->major <= version / 1000) return DC_OK;
  return dc_error(
      DC_ERR_DEVICE,
      "the driver is for CUDA %d.%d, too old for code of NVRTC %d.%d: update NVIDIA's driver, or `pip install nvidia-cuda-nvrtc-cu%d`",
      version / 1000, version % 1000 / 10, out->major, out->minor, version / 1000);
}

dc_status dc_nvrtc_open(const dc_driver *driver, const char *folder, int architecture, dc_arena *arena, dc_nvrtc *out) {
  int version = 0;
  DC_TRY(dc_driver_status(driver, driver->cuDriverGetVersion(&version), "the CUDA driver does not tell its version"));
  void *library = open_nvrtc(folder, version);
  if (!library)
    return not_found("DCML_NVRTC",
                     "CUDA cannot be used: NVRTC, which compiles kernels, was not found; `pip install 'dcml[cuda]'` brings it");
  dc_status status = use_nvrtc(library, version, out);
  if (!status) status = check_architecture(out, architecture);
  if (status) (void)dlclose(library);
  else out->path = path_of(out, arena);
  return status;
}
