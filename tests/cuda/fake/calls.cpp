/* The frame of every call: the lock, the log, failures on demand; devices and contexts. */
#include "driver.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <unistd.h>
#include <unordered_map>

static std::mutex big; /* one call at a time */
static bool initialised;
static std::vector<Context *> contexts;
static thread_local std::vector<Context *> stack;
static std::unordered_map<const void *, Handle::Kind> handles;
static std::string last_fault;

enum { MOST_DEVICES = 16 };

/* ---- settings ---- */

long setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}

bool is_lazy() { return setting("FAKE_CUDA_LAZY", 0) != 0; }

int device_count() {
  long n = setting("FAKE_CUDA_DEVICES", 1);
  return n < 0 ? 0 : n > MOST_DEVICES ? MOST_DEVICES : (int)n;
}

uint64_t draw() {
  static uint64_t state;
  static long seed = -1;
  long wanted = setting("FAKE_CUDA_SEED", 1);
  if (wanted != seed) state = (uint64_t)(seed = wanted) * 0x2545F4914F6CDD1Du;
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* ---- log ---- */

void log_line(const std::string &line) {
  static std::string open_path;
  static int file = -1;
  const char *path = getenv("FAKE_CUDA_LOG");
  if (!path || !*path) return;
  if (file < 0 || open_path != path) {
    if (file >= 0) close(file);
    open_path = path;
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
  std::string whole = line + "\n";
  if (file >= 0 && write(file, whole.data(), whole.size()) < 0) perror("FAKE_CUDA_LOG");
}

int fault(Context *context, int code, const std::string &why) {
  last_fault = why;
  fprintf(stderr, "fake cuda: %s\n", why.c_str());
  log_line("fault " + why);
  if (context && !context->error) context->error = code;
  return code;
}

/* ---- failures on demand: FAKE_CUDA_FAIL=name:which[:code],...; which: 1 is the next call, * each ---- */

static int code_of(const std::string &name) {
  if (name.find("Alloc") != std::string::npos) return OUT_OF_MEMORY;
  if (name.find("cuModuleLoad") == 0) return INVALID_IMAGE;
  if (name == "cuInit") return NO_DEVICE;
  if (name == "cuLaunchKernel" || name == "cuGraphLaunch") return LAUNCH_FAILED;
  if (name == "nvrtcCompileProgram") return 6;
  if (name.find("nvrtc") == 0) return 11;
  return UNKNOWN;
}

static int demanded_failure(const char *name) {
  static std::string known;
  static std::map<std::string, long> counts;
  const char *text = getenv("FAKE_CUDA_FAIL");
  if (!text || !*text) return known.clear(), 0;
  if (known != text) known = text, counts.clear();
  std::string all = known + ",";
  long count = ++counts[name];
  for (size_t at = 0, end; (end = all.find(',', at)) != std::string::npos; at = end + 1) {
    std::string item = all.substr(at, end - at), first = item.substr(0, item.find(':'));
    if (first != name) continue;
    std::string rest = item.size() > first.size() ? item.substr(first.size() + 1) : "1";
    std::string which = rest.substr(0, rest.find(':'));
    if (which != "*" && atol(which.c_str()) != count) continue;
    return rest.find(':') == std::string::npos ? code_of(name) : atoi(rest.c_str() + rest.find(':') + 1);
  }
  return 0;
}

/* ---- the frame ---- */

Call::Call(const char *n, Needs needs) : name(n), lock(big), refused(0) {
  if ((refused = demanded_failure(name))) {
    note("demanded");
    return;
  }
  if (needs == NOTHING) return;
  if (!initialised) {
    refused = NOT_INITIALIZED;
  } else if (needs == CONTEXT) {
    Context *c = current();
    refused = !c ? INVALID_CONTEXT : c->error;
  }
}

Call &Call::note(const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  notes += std::string(" ") + text;
  return *this;
}

int Call::done(int result) {
  if (getenv("FAKE_CUDA_LOG")) {
    Context *c = current();
    log_line(std::string(name) + notes + (c ? " device=" + std::to_string(c->device) : "") + " -> " + std::to_string(result));
  }
  return result;
}

void *enter_handle(Handle *h, Handle::Kind kind) {
  h->kind = kind, h->alive = true;
  handles[h] = kind;
  return h;
}

bool is_alive(const void *handle, Handle::Kind kind) {
  auto it = handles.find(handle);
  return it != handles.end() && it->second == kind && ((const Handle *)handle)->alive;
}

unsigned count_alive(Handle::Kind kind) {
  unsigned n = 0;
  for (auto &entry : handles) n += entry.second == kind && ((const Handle *)entry.first)->alive;
  return n;
}

/* ---- devices ---- */

Context *context_of(int device) {
  while ((int)contexts.size() <= device) contexts.push_back(new Context{(int)contexts.size(), 0, 0});
  return contexts[(size_t)device];
}

Context *current() { return stack.empty() ? nullptr : stack.back(); }

API int cuInit(unsigned flags) {
  CALL(NOTHING);
  if (flags) return call.done(INVALID_VALUE);
  if (!device_count()) return call.done(NO_DEVICE);
  initialised = true;
  return call.done(SUCCESS);
}

API int cuDriverGetVersion(int *out) { return *out = (int)setting("FAKE_CUDA_VERSION", 13000), SUCCESS; }

API int cuDeviceGetCount(int *out) {
  CALL(DRIVER);
  return *out = device_count(), call.done(SUCCESS);
}

API int cuDeviceGet(int *out, int ordinal) {
  CALL(DRIVER);
  call.note("ordinal=%d", ordinal);
  if (ordinal < 0 || ordinal >= device_count()) return call.done(INVALID_DEVICE);
  return *out = ordinal, call.done(SUCCESS);
}

API int cuDeviceGetName(char *name, int length, int device) {
  CALL(DRIVER);
  if (device < 0 || device >= device_count()) return call.done(INVALID_DEVICE);
  return snprintf(name, (size_t)length, "Fake GPU %d", device), call.done(SUCCESS);
}

API int cuDeviceGetUuid_v2(unsigned char *out, int device) {
  CALL(DRIVER);
  if (device < 0 || device >= device_count()) return call.done(INVALID_DEVICE);
  memset(out, 0, 16);
  return out[15] = (unsigned char)device, call.done(SUCCESS);
}

API int cuDeviceTotalMem_v2(size_t *out, int device) {
  CALL(DRIVER);
  if (device < 0 || device >= device_count()) return call.done(INVALID_DEVICE);
  return *out = (size_t)setting("FAKE_CUDA_MEMORY", 4l << 30), call.done(SUCCESS);
}

API int cuDeviceGetAttribute(int *out, int attribute, int device) {
  CALL(DRIVER);
  if (device < 0 || device >= device_count()) return call.done(INVALID_DEVICE);
  long arch = setting("FAKE_CUDA_ARCH", 90);
  switch (attribute) { /* numbers of an H100, by CUdevice_attribute */
  case 1: case 2: case 3: *out = 1024; break;    /* threads of a block */
  case 4: *out = 64; break;
  case 5: *out = 2147483647; break;
  case 6: case 7: *out = 65535; break;
  case 8: *out = 49152; break;                   /* shared bytes of a block */
  case 9: *out = 65536; break;
  case 10: *out = 32; break;
  case 12: case 82: *out = 65536; break;         /* registers */
  case 13: *out = 1980000; break;                /* kHz */
  case 16: *out = (int)setting("FAKE_CUDA_PROCESSORS", 132); break;
  case 36: *out = 2619000; break;
  case 37: *out = 5120; break;                   /* bits of the bus */
  case 38: *out = 52428800; break;               /* bytes of level 2 */
  case 39: *out = 2048; break;
  case 75: *out = (int)arch / 10; break;
  case 76: *out = (int)arch % 10; break;
  case 81: *out = 233472; break;
  case 97: *out = 232448; break;
  case 106: *out = 32; break;
  case 111: *out = 1024; break;
  case 15: case 19: case 31: case 41: case 78: case 79: case 80: case 83: case 95: case 115: *out = 1; break;
  case 40: *out = 3; break;
  default: *out = 0;
  }
  return call.note("attribute=%d", attribute).done(SUCCESS);
}

/* ---- contexts ---- */

API int cuDevicePrimaryCtxRetain(void **out, int device) {
  CALL(DRIVER);
  call.note("of=%d", device);
  if (device < 0 || device >= device_count()) return call.done(INVALID_DEVICE);
  Context *c = context_of(device);
  c->references++;
  return *out = c, call.done(SUCCESS);
}

API int cuDevicePrimaryCtxRelease_v2(int device) {
  CALL(DRIVER);
  call.note("of=%d", device);
  if (device < 0 || device >= device_count()) return call.done(INVALID_DEVICE);
  Context *c = context_of(device);
  if (!c->references) return call.done(INVALID_CONTEXT);
  if (!--c->references) {
    finish_all(device);
    memory_forget(device);
  }
  return call.done(SUCCESS);
}

API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  CALL(DRIVER);
  if (device < 0 || device >= device_count()) return call.done(INVALID_DEVICE);
  *flags = 0, *active = context_of(device)->references != 0;
  return call.done(SUCCESS);
}
API int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return SUCCESS; }

API int cuCtxPushCurrent_v2(void *context) {
  CALL(DRIVER);
  if (!context || !((Context *)context)->references) return call.done(INVALID_CONTEXT);
  return stack.push_back((Context *)context), call.done(SUCCESS);
}

API int cuCtxPopCurrent_v2(void **out) {
  CALL(DRIVER);
  if (stack.empty()) return call.done(INVALID_CONTEXT);
  if (out) *out = stack.back();
  return stack.pop_back(), call.done(SUCCESS);
}

API int cuCtxSetCurrent(void *context) {
  CALL(DRIVER);
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back((Context *)context);
  return call.done(SUCCESS);
}

API int cuCtxGetCurrent(void **out) {
  CALL(DRIVER);
  return *out = current(), call.done(SUCCESS);
}

API int cuCtxGetDevice(int *out) {
  CALL(CONTEXT);
  return *out = current()->device, call.done(SUCCESS);
}

API int cuCtxSynchronize(void) {
  CALL(CONTEXT);
  if (any_capture()) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  return call.done(finish_all(current()->device));
}

/* ---- names of errors ---- */

static const struct {
  int code;
  const char *name, *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not initiated in this stream"},
    {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed because it included changes which violated constraints"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

API int cuGetErrorName(int code, const char **out) {
  for (auto &e : errors)
    if (e.code == code) return *out = e.name, SUCCESS;
  return *out = nullptr, INVALID_VALUE;
}
API int cuGetErrorString(int code, const char **out) {
  for (auto &e : errors)
    if (e.code == code) return *out = e.text, SUCCESS;
  return *out = nullptr, INVALID_VALUE;
}

/* ---- for tests, which call them through ctypes ---- */

API const char *fake_cuda_fault(void) { /* what the last kernel did wrong */
  static std::string copy;
  std::lock_guard<std::mutex> guard(big);
  return (copy = last_fault).c_str();
}

/* Allocations of devices, their bytes, pinned allocations, streams, events, modules, graphs, executable graphs. */
API void fake_cuda_alive(long long *out) {
  std::lock_guard<std::mutex> guard(big);
  memset(out, 0, 8 * sizeof *out);
  for (Allocation *a : memory_all()) {
    if (a->device < 0) out[2]++;
    else if (!a->given_back) out[0]++, out[1] += (long long)a->bytes;
  }
  for (int kind = 0; kind < Handle::KINDS; kind++) out[3 + kind] = count_alive((Handle::Kind)kind);
}

API void fake_cuda_forgive(void) { /* devices that failed work again */
  std::lock_guard<std::mutex> guard(big);
  finish_all(-1);
  for (Context *c : contexts) c->error = 0;
  last_fault.clear();
}
