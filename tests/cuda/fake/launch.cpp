/* Memory, copies, modules and launches. */
#include "driver.h"
#include "machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <memory>
#include <unistd.h>

/* ---- memory ---- */

static uint64_t used(int device) {
  uint64_t bytes = 0;
  for (Allocation *a : memory_all())
    if (a->device == device && !a->given_back) bytes += a->bytes;
  return bytes;
}

static Allocation *take(int device, uint64_t bytes) {
  uint64_t limit = (uint64_t)setting("FAKE_CUDA_MEMORY", 4l << 30);
  if (bytes > limit || used(device) > limit - bytes) return nullptr;
  return memory_reserve(device, bytes);
}

static int end(Allocation *a, Context *context) {
  if (a->state != Allocation::LIVE) return fault(context, ILLEGAL_ADDRESS, "memory is freed that is not live: " + memory_where((void *)a->at));
  if (!memory_end(a)) return fault(context, ILLEGAL_ADDRESS, "a write beyond the end of an allocation of " + std::to_string(a->bytes) + " bytes");
  return 0;
}

API int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
  CALL(CONTEXT);
  call.note("bytes=%zu", bytes);
  if (!bytes) return call.done(INVALID_VALUE);
  if (any_capture()) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  Allocation *a = take(current()->device, bytes);
  if (!a) return call.done(OUT_OF_MEMORY);
  memory_begin(a);
  *out = a->at;
  return call.note("at=%#llx", (long long)a->at).done(SUCCESS);
}

API int cuMemFree_v2(uint64_t at) {
  CALL(CONTEXT);
  call.note("at=%#llx", (long long)at);
  if (!at) return call.done(SUCCESS);
  Allocation *a = memory_at(at);
  if (!a || a->at != at || a->device < 0 || a->given_back) return call.done(INVALID_VALUE);
  if (any_capture()) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  finish_all(-1);
  a->given_back = true;
  return call.done(end(a, current()));
}

API int cuMemAllocAsync(uint64_t *out, size_t bytes, void *stream) {
  CALL(CONTEXT);
  call.note("bytes=%zu stream=%p", bytes, stream);
  Stream *s = stream_of(stream);
  if (!s || !bytes) return call.done(s ? INVALID_VALUE : INVALID_HANDLE);
  Allocation *a = take(s->context->device, bytes);
  if (!a) return call.done(OUT_OF_MEMORY);
  a->of_pool = true, a->of_graph = s->capture != nullptr;
  *out = a->at;
  call.note("at=%#llx", (long long)a->at);
  Context *context = s->context;
  return call.done(submit(s, {"alloc", [a, context] {
    if (a->state == Allocation::LIVE) return fault(context, ILLEGAL_ADDRESS, "a graph allocates what it has not freed");
    return memory_begin(a), 0;
  }, {}}));
}

API int cuMemFreeAsync(uint64_t at, void *stream) {
  CALL(CONTEXT);
  call.note("at=%#llx stream=%p", (long long)at, stream);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  if (!at) return call.done(SUCCESS);
  Allocation *a = memory_at(at);
  if (!a || a->at != at || a->device < 0 || a->given_back) return call.done(INVALID_VALUE);
  a->given_back = true;
  Context *context = s->context;
  return call.done(submit(s, {"free", [a, context] { return end(a, context); }, {}}));
}

API int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  CALL(CONTEXT);
  call.note("bytes=%zu flags=%u", bytes, flags);
  if (any_capture()) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  Allocation *a = bytes ? memory_pinned(bytes) : nullptr;
  if (!a) return call.done(bytes ? OUT_OF_MEMORY : INVALID_VALUE);
  *out = (void *)a->at;
  return call.note("at=%p", *out).done(SUCCESS);
}
API int cuMemAllocHost_v2(void **out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }

API int cuMemFreeHost(void *at) {
  CALL(CONTEXT);
  call.note("at=%p", at);
  Allocation *a = memory_at((uint64_t)at);
  if (!a || a->device >= 0 || a->state != Allocation::LIVE || a->at != (uint64_t)at) return call.done(INVALID_VALUE);
  finish_all(-1);
  return memory_unpin(a), call.done(SUCCESS);
}

API int cuMemHostGetDevicePointer_v2(uint64_t *out, void *at, unsigned) {
  CALL(CONTEXT);
  Allocation *a = memory_at((uint64_t)at);
  if (!a || a->device >= 0 || a->state != Allocation::LIVE) return call.done(INVALID_VALUE);
  return *out = (uint64_t)at, call.done(SUCCESS);
}

API int cuMemGetInfo_v2(size_t *left, size_t *total) {
  CALL(CONTEXT);
  *total = (size_t)setting("FAKE_CUDA_MEMORY", 4l << 30);
  *left = *total - used(current()->device);
  return call.done(SUCCESS);
}

API int cuDeviceGetDefaultMemPool(void **out, int device) { return *out = context_of(device), SUCCESS; }
API int cuDeviceGetMemPool(void **out, int device) { return *out = context_of(device), SUCCESS; }
API int cuMemPoolSetAttribute(void *, int, void *) { return SUCCESS; }
API int cuMemPoolGetAttribute(void *, int, void *value) { return *(uint64_t *)value = 0, SUCCESS; }
API int cuMemPoolTrimTo(void *, size_t) { return SUCCESS; }

API int cuPointerGetAttribute(void *out, int attribute, uint64_t at) {
  CALL(DRIVER);
  Allocation *a = memory_at(at);
  if (!a || a->state == Allocation::FREED) return call.done(INVALID_VALUE);
  switch (attribute) {
  case 1: *(void **)out = context_of(a->device < 0 ? 0 : a->device); break;
  case 2: *(unsigned *)out = a->device < 0 ? 1 : 2; break; /* host, device */
  case 3: *(uint64_t *)out = at; break;
  case 9: *(int *)out = a->device < 0 ? 0 : a->device; break;
  default: return call.done(INVALID_VALUE);
  }
  return call.done(SUCCESS);
}

/* ---- copies ---- */

/* The allocation that holds all of it; a pageable range of the host has none. */
static bool covers(uint64_t at, size_t bytes, Allocation **out) {
  *out = memory_at(at);
  if (!*out) return !memory_is_device(at);
  return at - (*out)->at <= (*out)->bytes && bytes <= (*out)->bytes - (at - (*out)->at);
}

static int copy_now(uint64_t to, uint64_t from, size_t bytes, Context *context) {
  Allocation *a, *b;
  covers(to, bytes, &a), covers(from, bytes, &b);
  for (Allocation *x : {a, b}) {
    if (x && x->state != Allocation::LIVE) return memory_close(), fault(context, ILLEGAL_ADDRESS, "a copy touched " + memory_where((void *)x->at));
    if (x) memory_open_one(x);
  }
  memmove((void *)to, (void *)from, bytes);
  memory_close();
  return 0;
}

static int copy(Call &call, uint64_t to, uint64_t from, size_t bytes, void *stream, bool now) {
  call.note("bytes=%zu stream=%p to=%#llx from=%#llx", bytes, stream, (long long)to, (long long)from);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  if (!bytes) return call.done(SUCCESS);
  Allocation *a, *b;
  if (!to || !from || !covers(to, bytes, &a) || !covers(from, bytes, &b) || (a && a->given_back && !a->of_graph) || (b && b->given_back && !b->of_graph))
    return call.done(INVALID_VALUE);
  if (now && any_capture()) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  Context *context = s->context;
  int error;
  if (!b && a && !s->capture) { /* the driver takes a copy of what is pageable before it returns */
    auto bytes_of = std::make_shared<std::string>((const char *)from, bytes);
    error = submit(s, {"copy", [=] { return copy_now(to, (uint64_t)bytes_of->data(), bytes, context); }, {}});
  } else {
    error = submit(s, {"copy", [=] { return copy_now(to, from, bytes, context); }, {}});
    now = now || (!a && !s->capture);
  }
  return call.done(error ? error : now ? finish(s) : SUCCESS);
}

API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  CALL(CONTEXT);
  return copy(call, to, from, bytes, stream, false);
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  CALL(CONTEXT);
  if (!memory_is_device(to)) return call.note("to=%#llx is of no device", (long long)to).done(INVALID_VALUE);
  return copy(call, to, (uint64_t)from, bytes, stream, false);
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  CALL(CONTEXT);
  if (!memory_is_device(from)) return call.note("from=%#llx is of no device", (long long)from).done(INVALID_VALUE);
  return copy(call, (uint64_t)to, from, bytes, stream, false);
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  CALL(CONTEXT);
  if (!memory_is_device(to) || !memory_is_device(from)) return call.done(INVALID_VALUE);
  return copy(call, to, from, bytes, stream, false);
}
API int cuMemcpy(uint64_t to, uint64_t from, size_t bytes) {
  CALL(CONTEXT);
  return copy(call, to, from, bytes, nullptr, true);
}
API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  CALL(CONTEXT);
  if (!memory_is_device(to)) return call.done(INVALID_VALUE);
  return copy(call, to, (uint64_t)from, bytes, nullptr, true);
}
API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  CALL(CONTEXT);
  if (!memory_is_device(from)) return call.done(INVALID_VALUE);
  return copy(call, (uint64_t)to, from, bytes, nullptr, true);
}
API int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  CALL(CONTEXT);
  return copy(call, to, from, bytes, nullptr, true);
}
API int cuMemcpyPeerAsync(uint64_t to, void *, uint64_t from, void *, size_t bytes, void *stream) {
  CALL(CONTEXT);
  return copy(call, to, from, bytes, stream, false);
}

static int set(Call &call, uint64_t to, unsigned value, size_t width, size_t n, void *stream, bool now) {
  call.note("bytes=%zu stream=%p to=%#llx", width * n, stream, (long long)to);
  Stream *s = stream_of(stream);
  Allocation *a;
  if (!s) return call.done(INVALID_HANDLE);
  if (!n) return call.done(SUCCESS);
  if (!covers(to, width * n, &a) || !a) return call.done(INVALID_VALUE);
  Context *context = s->context;
  int error = submit(s, {"set", [=] {
    if (a->state != Allocation::LIVE) return fault(context, ILLEGAL_ADDRESS, "a fill touched " + memory_where((void *)to));
    memory_open_one(a);
    for (size_t k = 0; k < n; k++) memcpy((char *)to + k * width, &value, width);
    memory_close();
    return 0;
  }, {}});
  return call.done(error ? error : now ? finish(s) : SUCCESS);
}
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, void *stream) {
  CALL(CONTEXT);
  return set(call, to, value, 1, n, stream, false);
}
API int cuMemsetD16Async(uint64_t to, unsigned short value, size_t n, void *stream) {
  CALL(CONTEXT);
  return set(call, to, value, 2, n, stream, false);
}
API int cuMemsetD32Async(uint64_t to, unsigned value, size_t n, void *stream) {
  CALL(CONTEXT);
  return set(call, to, value, 4, n, stream, false);
}
API int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t n) {
  CALL(CONTEXT);
  return set(call, to, value, 1, n, nullptr, true);
}

/* ---- modules ---- */

/* An image has no length beside it: it is read off its tables, as the driver does. */
static size_t length_of(const void *image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_shentsize != sizeof(Elf64_Shdr)) return 0;
  return header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
}

API int cuModuleLoadData(void **out, const void *image) {
  CALL(CONTEXT);
  size_t n = memcmp(image, ELFMAG, SELFMAG) ? 0 : length_of(image);
  if (!n) return call.done(INVALID_IMAGE);
  if (any_capture()) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  const char *folder = getenv("TMPDIR");
  std::string path = std::string(folder ? folder : "/tmp") + "/fake_cuda_XXXXXX";
  int file = mkstemp(&path[0]);
  if (file < 0) return call.done(UNKNOWN);
  bool written = write(file, image, n) == (ssize_t)n;
  close(file);
  void *library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) fprintf(stderr, "fake cuda: %s\n", dlerror());
  unlink(path.c_str());
  if (!library) return call.done(INVALID_IMAGE);
  const int *arch = (const int *)dlsym(library, "fake_arch");
  long ours = setting("FAKE_CUDA_ARCH", 90);
  if (!arch || *arch / 10 != ours / 10 || *arch > ours) return dlclose(library), call.done(arch ? NO_BINARY : INVALID_IMAGE);
  *(fake_machine **)dlsym(library, "fake_here") = &machine;
  Module *m = new Module();
  m->context = current(), m->library = library;
  *out = enter_handle(m, Handle::MODULE);
  return call.note("bytes=%zu module=%p", n, *out).done(SUCCESS);
}
API int cuModuleLoadDataEx(void **out, const void *image, unsigned, int *, void **) { return cuModuleLoadData(out, image); }

API int cuModuleUnload(void *module) {
  CALL(CONTEXT);
  call.note("module=%p", module);
  if (!is_alive(module, Handle::MODULE)) return call.done(INVALID_HANDLE);
  Module *m = (Module *)module;
  finish_all(m->context->device);
  m->alive = false;
  dlclose(m->library);
  return call.done(SUCCESS);
}

API int cuModuleGetFunction(void **out, void *module, const char *name) {
  CALL(CONTEXT);
  call.note("module=%p name=%s", module, name);
  if (!is_alive(module, Handle::MODULE)) return call.done(INVALID_HANDLE);
  Module *m = (Module *)module;
  for (Function *known : m->functions)
    if (known->name == name) return *out = known, call.done(SUCCESS);
  auto find = [&](const char *prefix) { return dlsym(m->library, (std::string("fake_") + prefix + "_" + name).c_str()); };
  void *run = find("run");
  if (!run) return call.done(NOT_FOUND);
  Function *f = new Function();
  f->module = m, f->name = name, f->run = (void (*)(void **))run;
  unsigned n = ((unsigned (*)())find("count"))();
  for (unsigned k = 0; k < n; k++) f->sizes.push_back(((unsigned (*)(unsigned))find("size"))(k));
  unsigned bounds = ((unsigned (*)())find("bounds"))();
  f->most_threads = bounds ? bounds : 1024;
  f->dynamic_limit = 49152;
  m->functions.push_back(f);
  return *out = f, call.done(SUCCESS);
}

API int cuFuncGetAttribute(int *out, int attribute, void *function) {
  CALL(CONTEXT);
  Function *f = (Function *)function;
  if (!is_alive(f->module, Handle::MODULE)) return call.done(INVALID_HANDLE);
  const int values[] = {(int)f->most_threads, 0, 0, 0, 32, 90, 90, 0, f->dynamic_limit};
  if (attribute < 0 || attribute > 8) return call.done(INVALID_VALUE);
  return *out = values[attribute], call.done(SUCCESS);
}

API int cuFuncSetAttribute(void *function, int attribute, int value) {
  CALL(CONTEXT);
  Function *f = (Function *)function;
  if (!is_alive(f->module, Handle::MODULE)) return call.done(INVALID_HANDLE);
  if (attribute == 8 && (value < 0 || value > 232448)) return call.done(INVALID_VALUE);
  if (attribute == 8) f->dynamic_limit = value;
  return call.note("attribute=%d value=%d", attribute, value).done(SUCCESS);
}
API int cuFuncSetCacheConfig(void *, int) { return SUCCESS; }

API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *, int threads, size_t) { return *out = threads > 0 ? 2048 / threads : 0, SUCCESS; }

/* ---- launches ---- */

struct Launch {
  Function *function;
  unsigned grid[3], block[3], shared;
  std::vector<std::string> parameters;
};

static int launch_now(const Launch &l, Context *context) {
  Function *f = l.function;
  if (!is_alive(f->module, Handle::MODULE)) return fault(context, LAUNCH_FAILED, f->name + ": its module was unloaded");
  std::vector<void *> addresses;
  for (const std::string &p : l.parameters) addresses.push_back((void *)p.data());
  Grid g = {};
  g.run = f->run, g.parameters = addresses.data();
  memcpy(g.grid, l.grid, sizeof g.grid), memcpy(g.block, l.block, sizeof g.block);
  char **bounds = (char **)dlsym(f->module->library, "fake_shared_bounds");
  g.shared_begin = bounds[0], g.shared_end = bounds[1];
  g.dynamic = (unsigned char *)dlsym(f->module->library, "fake_dynamic_shared"), g.dynamic_bytes = l.shared;
  memory_open(context->device);
  std::string why = machine_run(g, setting("FAKE_CUDA_SEED", 1) ? draw() | 1 : 0, memory_where);
  std::string beyond = memory_close();
  if (why.empty()) why = beyond;
  if (why.empty()) return 0;
  return fault(context, why.find(" touched ") != std::string::npos || !beyond.empty() ? ILLEGAL_ADDRESS : LAUNCH_FAILED, f->name + ": " + why);
}

API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                       void **parameters, void **extra) {
  CALL(CONTEXT);
  Function *f = (Function *)function;
  if (!f || !is_alive(f->module, Handle::MODULE) || f->module->context != current()) return call.done(INVALID_HANDLE);
  call.note("name=%s grid=%ux%ux%u block=%ux%ux%u shared=%u stream=%p", f->name.c_str(), gx, gy, gz, bx, by, bz, shared, stream);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  bool fits = gx && gy && gz && bx && by && bz && gx <= 2147483647u && gy <= 65535 && gz <= 65535 && bx <= 1024 && by <= 1024 && bz <= 64;
  if (!fits || (uint64_t)bx * by * bz > f->most_threads || shared > (unsigned)f->dynamic_limit || extra || (!parameters && !f->sizes.empty()))
    return call.done(INVALID_VALUE);
  Launch l = {f, {gx, gy, gz}, {bx, by, bz}, shared, {}};
  for (size_t k = 0; k < f->sizes.size(); k++) l.parameters.emplace_back((const char *)parameters[k], f->sizes[k]);
  Context *context = s->context;
  return call.done(submit(s, {"kernel " + f->name, [l, context] { return launch_now(l, context); }, {}}));
}
