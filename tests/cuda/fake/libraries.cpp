// cuBLASLt and cuDNN for the host: naive loops that honour what descriptors say, and refuse every argument that the real
// libraries would refuse or misread.  Work is put on streams of the fake driver where there is one, else done at once.
//
// What they choose shows mistakes: kernels for aligned operands want a workspace and spoil it, TF32 rounds operands as tensor
// cores do, and the heuristics of cuDNN offer engines first that sum in no order or cannot run what is asked for.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

// Of the fake driver, where it is in the same library: nobody else may touch the memory of its devices.
extern "C" __attribute__((weak)) int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data);
extern "C" __attribute__((weak)) int cuCtxGetDevice(int *device);
__attribute__((weak)) void memory_open(int device);
__attribute__((weak)) std::string memory_close();

namespace {

typedef int64_t i64;
enum Type { F32, F64, F16, BF16, NONE };
int size_of(Type t) { return t == F64 ? 8 : t == F32 ? 4 : 2; }

double from_half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  double v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return h >> 15 ? -v : v;
}

uint16_t to_half(double d) {
  uint16_t sign = std::signbit(d) ? 0x8000 : 0;
  double a = std::fabs(d);
  if (std::isnan(d)) return 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  int e = a < std::ldexp(1, -14) ? -14 : std::ilogb(a);
  double q = std::nearbyint(std::ldexp(a, 10 - e)); // an integer of 11 bits, or 2^11
  if (q >= 2048) q /= 2, e++;
  return sign | (q < 1024 ? (uint16_t)q : (uint16_t)((e + 15) << 10 | ((int)q - 1024)));
}

// Rounds to the nearest float of fewer bits, ties to even.
float narrowed(float f, int dropped) {
  uint32_t u;
  memcpy(&u, &f, 4);
  u += (1u << (dropped - 1)) - 1 + (u >> dropped & 1);
  u &= ~((1u << dropped) - 1);
  memcpy(&f, &u, 4);
  return f;
}

double load(const void *p, Type t, i64 k) {
  if (t == F64) return ((const double *)p)[k];
  if (t == F32) return ((const float *)p)[k];
  uint16_t h = ((const uint16_t *)p)[k];
  if (t == F16) return from_half(h);
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

void store(void *p, Type t, i64 k, double v) {
  if (t == F64) ((double *)p)[k] = v;
  else if (t == F32) ((float *)p)[k] = (float)v;
  else if (t == F16) ((uint16_t *)p)[k] = to_half(v);
  else {
    float f = std::isfinite(v) ? narrowed((float)v, 16) : (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    ((uint16_t *)p)[k] = (uint16_t)(u >> 16);
  }
}

double operand(const void *p, Type t, i64 k, bool tf32) { return tf32 && t == F32 ? narrowed((float)load(p, t, k), 13) : load(p, t, k); }

bool complain(const char *what) {
  fprintf(stderr, "fake libraries: %s\n", what);
  return false;
}

// ---- streams ----

struct Work {
  std::function<void()> run;
  int device;
};

void run(void *work) {
  Work *w = (Work *)work;
  if (memory_open) memory_open(w->device);
  w->run();
  std::string beyond = memory_close ? memory_close() : "";
  if (!beyond.empty()) complain(beyond.c_str()), abort();
}

// A graph that captured the work runs it more than once, so it is kept.
int put(void *stream, std::function<void()> work) {
  int device = 0;
  if (!cuLaunchHostFunc) return work(), 0;
  if (cuCtxGetDevice(&device)) return complain("no context is current"), 1;
  return cuLaunchHostFunc(stream, run, new Work{std::move(work), device});
}

} // namespace

// ---- cuBLASLt ----

namespace {

enum { INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum : uint64_t { LT_HANDLE = 0x1b1a5, LT_LAYOUT, LT_DESC, LT_PREFERENCE, LT_ALGO };

struct Handle {
  uint64_t magic;
};
struct Layout {
  uint64_t magic;
  Type type;
  uint64_t rows, columns;
  i64 leading, offset;
  int32_t batch;
};
struct Desc {
  uint64_t magic;
  int compute, scale;
  int32_t turn_a, turn_b;
  uint32_t epilogue;
  const void *bias;
};
struct Preference {
  uint64_t magic, workspace;
  uint32_t reductions, alignment[4];
};
struct Algo {
  uint64_t magic, workspace, alignment, bias_alignment, rest[4];
};
struct Choice {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Algo) == 64 && sizeof(Choice) == 96, "as the real library's");

Type lt_type(int t) { return t == 0 ? F32 : t == 1 ? F64 : t == 2 ? F16 : t == 14 ? BF16 : NONE; }
template <class T> T *lt(void *p, uint64_t magic) { return p && *(uint64_t *)p == magic ? (T *)p : (complain("not a handle of that kind"), nullptr); }
template <class T> bool take(T *to, const void *from, size_t bytes) {
  if (!from || bytes != sizeof *to) return complain("an attribute of another size");
  return memcpy(to, from, bytes), true;
}

bool agree(const Desc *d, const Layout *a, const Layout *b, const Layout *c, const Layout *out) {
  if (!d || !a || !b || !c || !out) return false;
  uint64_t m = d->turn_a ? a->columns : a->rows, k = d->turn_a ? a->rows : a->columns, n = d->turn_b ? b->rows : b->columns;
  if ((d->turn_b ? b->columns : b->rows) != k || out->rows != m || out->columns != n || c->rows != m || c->columns != n) return complain("extents");
  if (!m || !n || !k) return complain("an empty matrix");
  for (const Layout *l : {a, b, c, out})
    if (l->leading < (i64)l->rows || l->type != a->type || l->batch != out->batch || l->batch < 1) return complain("a layout");
  if (out->batch > 1 && out->offset < (i64)(m * n)) return complain("results that overlap");
  if (d->scale != (a->type == F64 ? 1 : 0) || (a->type == F64) != (d->compute == 70)) return complain("a type of sums");
  if (d->compute == 77 && a->type != F32) return complain("TF32 of another type");
  return d->epilogue == 1 || (d->epilogue == 4 && d->bias) || complain("an epilogue");
}

uint64_t alignment_of(const void *p) { return p ? (uintptr_t)p & -(uintptr_t)p : 256; }

void multiply(const Desc &d, const Layout &la, const Layout &lb, const Layout &lo, const void *a, const void *b, void *out) {
  uint64_t k = d.turn_a ? la.rows : la.columns;
  bool tf32 = d.compute == 77;
  for (i64 s = 0; s < lo.batch; s++)
    for (uint64_t j = 0; j < lo.columns; j++)
      for (uint64_t i = 0; i < lo.rows; i++) {
        double sum = 0;
        for (uint64_t q = 0; q < k; q++) {
          i64 x = s * la.offset + (i64)(d.turn_a ? i : q) * la.leading + (i64)(d.turn_a ? q : i);
          i64 y = s * lb.offset + (i64)(d.turn_b ? q : j) * lb.leading + (i64)(d.turn_b ? j : q);
          sum += operand(a, la.type, x, tf32) * operand(b, lb.type, y, tf32);
        }
        if (d.epilogue == 4) sum += load(d.bias, lo.type, (i64)i);
        store(out, lo.type, s * lo.offset + (i64)j * lo.leading + (i64)i, sum);
      }
}

} // namespace

API size_t cublasLtGetVersion() { return 130000; }
API int cublasLtCreate(void **out) { return *out = new Handle{LT_HANDLE}, 0; }
API int cublasLtDestroy(void *h) { return delete lt<Handle>(h, LT_HANDLE), 0; }

API int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
  if (compute != 68 && compute != 70 && compute != 77) return INVALID_VALUE;
  return *out = new Desc{LT_DESC, compute, scale, 0, 0, 1, nullptr}, 0;
}
API int cublasLtMatmulDescDestroy(void *d) { return delete lt<Desc>(d, LT_DESC), 0; }
API int cublasLtMatmulDescSetAttribute(void *p, int name, const void *value, size_t bytes) {
  Desc *d = lt<Desc>(p, LT_DESC);
  bool ok = d && (name == 3   ? take(&d->turn_a, value, bytes)
                  : name == 4 ? take(&d->turn_b, value, bytes)
                  : name == 7 ? take(&d->epilogue, value, bytes)
                  : name == 8 ? take(&d->bias, value, bytes)
                              : complain("an attribute of a product"));
  return ok ? 0 : INVALID_VALUE;
}

API int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, i64 leading) {
  if (lt_type(type) == NONE || leading < (i64)rows) return INVALID_VALUE;
  return *out = new Layout{LT_LAYOUT, lt_type(type), rows, columns, leading, 0, 1}, 0;
}
API int cublasLtMatrixLayoutDestroy(void *l) { return delete lt<Layout>(l, LT_LAYOUT), 0; }
API int cublasLtMatrixLayoutSetAttribute(void *p, int name, const void *value, size_t bytes) {
  Layout *l = lt<Layout>(p, LT_LAYOUT);
  bool ok = l && (name == 5 ? take(&l->batch, value, bytes) : name == 6 ? take(&l->offset, value, bytes) : complain("an attribute of a layout"));
  return ok ? 0 : INVALID_VALUE;
}

API int cublasLtMatmulPreferenceCreate(void **out) { return *out = new Preference{LT_PREFERENCE, 0, 7, {256, 256, 256, 256}}, 0; }
API int cublasLtMatmulPreferenceDestroy(void *p) { return delete lt<Preference>(p, LT_PREFERENCE), 0; }
API int cublasLtMatmulPreferenceSetAttribute(void *p, int name, const void *value, size_t bytes) {
  Preference *f = lt<Preference>(p, LT_PREFERENCE);
  bool ok = f && (name == 1                ? take(&f->workspace, value, bytes)
                  : name == 3              ? take(&f->reductions, value, bytes)
                  : name >= 5 && name <= 8 ? take(&f->alignment[name - 5], value, bytes)
                                           : complain("an attribute of a preference"));
  return ok ? 0 : INVALID_VALUE;
}

API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted, Choice *out,
                                       int *found) {
  Desc *product = lt<Desc>(desc, LT_DESC);
  Preference *f = lt<Preference>(preference, LT_PREFERENCE);
  *found = 0;
  bool ok = lt<Handle>(handle, LT_HANDLE) && f && wanted > 0 &&
            agree(product, lt<Layout>(a, LT_LAYOUT), lt<Layout>(b, LT_LAYOUT), lt<Layout>(c, LT_LAYOUT), lt<Layout>(d, LT_LAYOUT));
  if (!ok) return INVALID_VALUE;
  const uint32_t rounding = lt<Layout>(d, LT_LAYOUT)->type > 1 ? 1u : 0u; /* a sum in place of 16-bit floats */
  if (f->reductions & (~3u | rounding)) return complain("a reduction in the type of the result"), INVALID_VALUE;
  uint64_t alignment = f->alignment[0];
  for (uint32_t k : f->alignment) alignment = k < alignment ? k : alignment;
  memset(out, 0xa5, sizeof *out);
  size_t workspace = alignment >= 16 && f->workspace >= 1000 ? 1000 : 0;
  out->algo = {LT_ALGO, workspace, alignment, product->epilogue == 4 ? alignment_of(product->bias) : 1, {}};
  out->workspace = workspace, out->state = 0, out->waves = 1;
  return *found = 1, 0;
}

API int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *al, const void *b, void *bl, const void *beta,
                       const void *c, void *cl, void *d, void *dl, const Algo *algo, void *workspace, size_t bytes, void *stream) {
  Desc *product = lt<Desc>(desc, LT_DESC);
  Layout *la = lt<Layout>(al, LT_LAYOUT), *lb = lt<Layout>(bl, LT_LAYOUT), *lo = lt<Layout>(dl, LT_LAYOUT);
  if (!lt<Handle>(handle, LT_HANDLE) || !agree(product, la, lb, lt<Layout>(cl, LT_LAYOUT), lo)) return INVALID_VALUE;
  bool plain = product->scale ? *(const double *)alpha == 1 && *(const double *)beta == 0 : *(const float *)alpha == 1 && *(const float *)beta == 0;
  if (!plain || c != d || !a || !b || !d) return complain("an argument"), INVALID_VALUE;
  if (!algo || algo->magic != LT_ALGO || bytes < algo->workspace) return complain("an algorithm, or too small a workspace"), INVALID_VALUE;
  if (algo->workspace && alignment_of(workspace) < 16) return complain("a workspace that is not aligned"), INVALID_VALUE;
  for (const void *p : {a, b, (const void *)d})
    if (alignment_of(p) < algo->alignment) return complain("an operand that is not aligned"), INVALID_VALUE;
  if (product->epilogue == 4 && alignment_of(product->bias) < algo->bias_alignment) return complain("a bias that is not aligned"), INVALID_VALUE;
  size_t spoiled = algo->workspace;
  return put(stream, [=, p = *product, x = *la, y = *lb, z = *lo] {
    if (spoiled) memset(workspace, 0x7f, spoiled);
    multiply(p, x, y, z, a, b, d);
    if (spoiled) memset(workspace, 0x7f, spoiled);
  });
}

// ---- cuDNN ----

namespace {

enum { BAD_PARAM = 2000, UNSUPPORTED = 3000, DN_HANDLE = 0xd22 };
struct DnnHandle {
  uint64_t magic;
  void *stream;
};

struct Attribute {
  int type;
  i64 n;
  std::vector<char> bytes;
};
struct Descriptor {
  uint64_t magic;
  int kind;
  bool done;
  std::map<int, Attribute> attributes;
  int engine; // of an engine, a configuration or a plan
};
enum : uint64_t { DN_DESCRIPTOR = 0xd25c };
enum { UNORDERED, TENSOR_CORES, NARROWING, ALIGNED, PLAIN, ENGINES };

int bytes_of(int type) {
  switch (type) {
    case 0: case 3: case 5: case 6: case 15: return 8;
    case 1: case 4: case 7: case 8: case 11: return 4;
    default: return 0;
  }
}

Descriptor *dn(const void *p) {
  Descriptor *d = (Descriptor *)p;
  return d && d->magic == DN_DESCRIPTOR ? d : (complain("not a descriptor"), nullptr);
}

const Attribute *get(const Descriptor *d, int name, int type, i64 n) {
  auto at = d ? d->attributes.find(name) : std::map<int, Attribute>::const_iterator();
  if (!d || at == d->attributes.end() || at->second.type != type || (n >= 0 && at->second.n != n))
    return fprintf(stderr, "fake cuDNN: attribute %d of descriptor %d\n", name, d ? d->kind : -1), nullptr;
  return &at->second;
}
template <class T> T value(const Descriptor *d, int name, int type) {
  const Attribute *a = get(d, name, type, 1);
  T v{};
  if (a) memcpy(&v, a->bytes.data(), sizeof v);
  return v;
}
std::vector<i64> values(const Descriptor *d, int name, i64 n) {
  const Attribute *a = get(d, name, 3, n);
  std::vector<i64> v(a ? (size_t)a->n : 0);
  if (a) memcpy(v.data(), a->bytes.data(), a->bytes.size());
  return v;
}
Descriptor *part(const Descriptor *d, int name, int kind) {
  Descriptor *p = (Descriptor *)value<void *>(d, name, 15);
  return p && dn(p) && p->kind == kind && p->done ? p : (complain("a part that is missing or not finalised"), nullptr);
}

struct Tensor {
  Type type;
  std::vector<i64> dims, strides;
  i64 id, alignment;
  i64 count() const {
    i64 n = 1;
    for (i64 d : dims) n *= d;
    return n;
  }
  bool lies(bool last) const {
    i64 stride = 1;
    std::vector<size_t> order;
    if (last) order.push_back(1);
    for (size_t d = dims.size(); d-- > (last ? 2u : 0u);) order.push_back(d);
    if (last) order.push_back(0);
    for (size_t d : order) {
      if (strides[d] != stride) return false;
      stride *= dims[d];
    }
    return true;
  }
};

Type dn_type(int t) { return t == 0 ? F32 : t == 1 ? F64 : t == 2 ? F16 : t == 9 ? BF16 : NONE; }
Tensor tensor(const Descriptor *d) {
  Tensor t{dn_type(value<int>(d, 901, 1)), values(d, 902, -1), values(d, 903, -1), value<i64>(d, 906, 3), value<i64>(d, 900, 3)};
  return t;
}

struct Conv {
  int kind; // 10: y, 11: w, 12: x
  Tensor x, w, y;
  std::vector<i64> pads, post, strides, dilations;
  bool ok;
};

Conv conv_of(const Descriptor *graph) {
  Conv c{};
  const Descriptor *op = (Descriptor *)value<void *>(graph, 801, 15);
  if (!op || !dn(op) || !op->done) return c;
  static const int names[3][6] = {{700, 701, 702, 704, 703, 705}, {712, 713, 714, 716, 715, 717}, {706, 707, 708, 710, 709, 711}};
  c.kind = op->kind;
  const int *n = names[op->kind - 10];
  const Descriptor *window = part(op, n[2], 1), *x = part(op, n[3], 17), *w = part(op, n[4], 17), *y = part(op, n[5], 17);
  if (!window || !x || !w || !y) return c;
  c.x = tensor(x), c.w = tensor(w), c.y = tensor(y);
  bool wide = c.x.type == F64;
  bool plain = wide ? value<double>(op, n[0], 5) == 1 && value<double>(op, n[1], 5) == 0 : value<float>(op, n[0], 4) == 1 && value<float>(op, n[1], 4) == 0;
  i64 dims = value<i64>(window, 106, 3);
  c.pads = values(window, 105, dims), c.post = values(window, 104, dims), c.strides = values(window, 103, dims), c.dilations = values(window, 102, dims);
  c.ok = plain && dims >= 2 && value<int>(window, 101, 7) == 1 && value<int>(window, 100, 1) == (wide ? 1 : 0);
  size_t rank = (size_t)dims + 2;
  c.ok = c.ok && c.x.dims.size() == rank && c.w.dims.size() == rank && c.y.dims.size() == rank && c.x.type == c.w.type && c.x.type == c.y.type;
  for (size_t d = 0; c.ok && d + 2 < rank; d++) {
    i64 room = c.x.dims[2 + d] + c.pads[d] + c.post[d] - (c.w.dims[2 + d] - 1) * c.dilations[d] - 1;
    c.ok = room >= 0 && room / c.strides[d] + 1 == c.y.dims[2 + d];
  }
  c.ok = c.ok && c.x.dims[0] == c.y.dims[0] && c.w.dims[0] == c.y.dims[1] && c.w.dims[1] && c.x.dims[1] % c.w.dims[1] == 0 &&
         c.w.dims[0] % (c.x.dims[1] / c.w.dims[1]) == 0;
  return c.ok ? c : (complain("a convolution"), c);
}

// Engines run tensors that all lie in one of the two orders, with the same padding on both sides.
bool runs(const Conv &c, int engine) {
  bool rows = c.x.lies(false) && c.w.lies(false) && c.y.lies(false), last = c.x.lies(true) && c.w.lies(true) && c.y.lies(true);
  bool aligned = c.x.alignment >= 16 && c.w.alignment >= 16 && c.y.alignment >= 16;
  if (getenv("FAKE_CUDNN_ONLY_ROWS")) last = false;
  return (rows || last) && c.pads == c.post && (engine != ALIGNED || aligned);
}

void convolve(const Conv &c, bool tf32, const void *x, const void *w, const void *y, void *out) {
  const Tensor &result = c.kind == 10 ? c.y : c.kind == 11 ? c.w : c.x;
  size_t n = c.pads.size(), rank = n + 2;
  std::vector<double> sums((size_t)result.count());
  i64 per = c.w.dims[1], groups = c.x.dims[1] / per, filters = c.w.dims[0] / groups;
  auto at = [&](const Tensor &t, const std::vector<i64> &index, bool dense) {
    i64 k = 0;
    for (size_t d = 0; d < rank; d++) k = dense ? k * t.dims[d] + index[d] : k + index[d] * t.strides[d];
    return k;
  };
  auto next = [&](std::vector<i64> &index, const std::vector<i64> &dims) {
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < dims[d]) return true;
      index[d] = 0;
    }
    return false;
  };
  std::vector<i64> o(rank, 0), window = c.w.dims;
  window[0] = 1;
  do {
    std::vector<i64> k(rank, 0), i(rank), f(rank);
    do {
      bool inside = true;
      f = k, f[0] = o[1], i[0] = o[0], i[1] = o[1] / filters * per + k[1];
      for (size_t d = 0; d < n; d++) {
        i[2 + d] = o[2 + d] * c.strides[d] + k[2 + d] * c.dilations[d] - c.pads[d];
        inside = inside && i[2 + d] >= 0 && i[2 + d] < c.x.dims[2 + d];
      }
      if (!inside) continue;
      Type t = c.x.type;
      double a = c.kind == 12 ? operand(y, t, at(c.y, o, false), tf32) : operand(x, t, at(c.x, i, false), tf32);
      double b = c.kind == 11 ? operand(y, t, at(c.y, o, false), tf32) : operand(w, t, at(c.w, f, false), tf32);
      sums[(size_t)(c.kind == 10 ? at(c.y, o, true) : c.kind == 11 ? at(c.w, f, true) : at(c.x, i, true))] += a * b;
    } while (next(k, window));
  } while (next(o, c.y.dims));
  std::vector<i64> r(rank, 0);
  do store(out, result.type, at(result, r, false), sums[(size_t)at(result, r, true)]);
  while (next(r, result.dims));
}

bool finalize(Descriptor *d) {
  switch (d->kind) {
    case 1: {
      i64 dims = value<i64>(d, 106, 3);
      return dims >= 2 && get(d, 100, 1, 1) && get(d, 101, 7, 1) && get(d, 102, 3, dims) && get(d, 103, 3, dims) && get(d, 104, 3, dims) &&
             get(d, 105, 3, dims);
    }
    case 4: return part(d, 201, 15) && get(d, 200, 8, 1);
    case 5: {
      const Descriptor *cfg = part(d, 401, 3);
      if (!cfg || !get(d, 400, 0, 1)) return false;
      d->engine = cfg->engine;
      return runs(conv_of((Descriptor *)value<void *>(cfg, -1, 15)), cfg->engine);
    }
    case 10: case 11: case 12: return d->attributes.size() == 6;
    case 15: return get(d, 800, 0, 1) && conv_of(d).ok;
    case 16: return get(d, 1000, 3, 3) && get(d, 1001, 6, 3) && get(d, 1003, 6, 1);
    case 17: {
      Tensor t = tensor(d);
      return t.type != NONE && t.dims.size() == t.strides.size() && t.dims.size() >= 4 && t.dims.size() <= 5 && t.alignment >= size_of(t.type);
    }
    default: return false;
  }
}

void put_attribute(Descriptor *d, int name, int type, const void *v) { d->attributes[name] = {type, 1, {(const char *)v, (const char *)v + 8}}; }

int give(Descriptor *d, i64 wanted, i64 *n, const void *from, i64 count, int bytes, void *to) {
  (void)d, *n = count;
  memcpy(to, from, (size_t)((count < wanted ? count : wanted) * bytes));
  return 0;
}

} // namespace

API size_t cudnnGetVersion() { return 91300; }
API int cudnnCreate(void **out) { return *out = new DnnHandle{DN_HANDLE, nullptr}, 0; }
API int cudnnDestroy(void *h) { return delete (DnnHandle *)h, 0; }
API int cudnnSetStream(void *h, void *stream) { return ((DnnHandle *)h)->stream = stream, 0; }

API int cudnnBackendCreateDescriptor(int kind, void **out) {
  if (kind < 1 || kind > 17) return BAD_PARAM;
  return *out = new Descriptor{DN_DESCRIPTOR, kind, false, {}, -1}, 0;
}
API int cudnnBackendDestroyDescriptor(void *p) { return delete dn(p), 0; }

API int cudnnBackendSetAttribute(void *p, int name, int type, i64 n, const void *from) {
  Descriptor *d = dn(p);
  if (!d || d->done || n < 1 || !bytes_of(type) || !from) return complain("an attribute"), BAD_PARAM;
  const char *bytes = (const char *)from;
  d->attributes[name] = {type, n, {bytes, bytes + n * bytes_of(type)}};
  return 0;
}

API int cudnnBackendFinalize(void *p) {
  Descriptor *d = dn(p);
  if (!d || d->done || !finalize(d)) return d && d->kind == 5 ? UNSUPPORTED : BAD_PARAM;
  return d->done = true, 0;
}

API int cudnnBackendGetAttribute(const void *p, int name, int type, i64 wanted, i64 *n, void *out) {
  Descriptor *d = dn(p);
  if (!d || !d->done) return BAD_PARAM;
  if (d->kind == 4 && name == 202 && type == 15) {
    bool fallback = value<int>(d, 200, 8) == 2;
    *n = fallback ? 1 : ENGINES - 1;
    void *graph = value<void *>(d, 201, 15);
    for (i64 k = 0; k < *n && k < wanted; k++) {
      Descriptor *cfg = dn(((void **)out)[k]);
      if (!cfg || cfg->kind != 3 || cfg->done) return complain("room for a configuration"), BAD_PARAM;
      cfg->engine = fallback ? PLAIN : (int)k, cfg->done = true;
      put_attribute(cfg, -1, 15, &graph);
    }
    return 0;
  }
  if (d->kind == 3 && name == 300 && type == 15 && wanted == 1) {
    Descriptor *engine = dn(*(void **)out);
    if (!engine || engine->kind != 2) return complain("room for an engine"), BAD_PARAM;
    engine->engine = d->engine, engine->done = true;
    return *n = 1, 0;
  }
  if (d->kind == 2 && name == 1303 && type == 11) {
    static const int notes[ENGINES][2] = {{5, 4}, {0, 9}, {1, 0}, {5, 9}, {9, 3}};
    return give(d, wanted, n, notes[d->engine], 2, 4, out);
  }
  if (d->kind == 5 && name == 402 && type == 3) {
    i64 bytes = d->engine == ALIGNED || d->engine == TENSOR_CORES ? 1000 : 0;
    return give(d, wanted, n, &bytes, 1, 8, out);
  }
  return complain("what is asked for"), BAD_PARAM;
}

API int cudnnBackendExecute(void *handle, void *plan_pointer, void *pack_pointer) {
  DnnHandle *h = (DnnHandle *)handle;
  Descriptor *plan = dn(plan_pointer), *pack = dn(pack_pointer);
  if (!h || h->magic != DN_HANDLE || !plan || !pack || !plan->done || !pack->done || plan->kind != 5 || pack->kind != 16) return BAD_PARAM;
  if (plan->engine == UNORDERED || plan->engine == NARROWING) return complain("an engine that is not to be used"), BAD_PARAM;
  Conv c = conv_of((Descriptor *)value<void *>(part(plan, 401, 3), -1, 15));
  std::vector<i64> ids = values(pack, 1000, 3);
  void *pointers[3], *by_role[3] = {};
  memcpy(pointers, get(pack, 1001, 6, 3)->bytes.data(), sizeof pointers);
  const Tensor *roles[] = {&c.x, &c.w, &c.y};
  for (int r = 0; r < 3; r++)
    for (int k = 0; k < 3; k++)
      if (ids[(size_t)k] == roles[r]->id) by_role[r] = pointers[k];
  for (int r = 0; r < 3; r++)
    if (!by_role[r] || alignment_of(by_role[r]) < (uint64_t)roles[r]->alignment) return complain("a tensor that is missing or not aligned"), BAD_PARAM;
  bool tf32 = plan->engine == TENSOR_CORES;
  void *workspace = value<void *>(pack, 1003, 6);
  bool spoils = plan->engine == ALIGNED || plan->engine == TENSOR_CORES;
  if (spoils && alignment_of(workspace) < 128) return complain("a workspace that is not aligned"), BAD_PARAM;
  return put(h->stream, [=] {
    if (spoils) memset(workspace, 0x7f, 1000);
    convolve(c, tf32, by_role[0], by_role[1], by_role[2], c.kind == 10 ? by_role[2] : c.kind == 11 ? by_role[1] : by_role[0]);
    if (spoils) memset(workspace, 0x7f, 1000);
  });
}

// Layouts of the older interface.
API int cudnnCreateTensorDescriptor(void **out) { return *out = new Tensor{NONE, {}, {}, 0, 0}, 0; }
API int cudnnDestroyTensorDescriptor(void *p) { return delete (Tensor *)p, 0; }
API int cudnnSetTensorNdDescriptor(void *p, int type, int rank, const int *dims, const int *strides) {
  if (dn_type(type) == NONE || rank < 4 || rank > 8) return BAD_PARAM;
  *(Tensor *)p = {dn_type(type), {dims, dims + rank}, {strides, strides + rank}, 0, 0};
  return 0;
}

API int cudnnTransformTensor(void *handle, const void *alpha, void *from_layout, const void *from, const void *beta, void *to_layout, void *to) {
  Tensor a = *(Tensor *)from_layout, b = *(Tensor *)to_layout;
  bool plain = a.type == F64 ? *(const double *)alpha == 1 && *(const double *)beta == 0 : *(const float *)alpha == 1 && *(const float *)beta == 0;
  if (!plain || a.type != b.type || a.dims != b.dims || !from || !to) return BAD_PARAM;
  return put(((DnnHandle *)handle)->stream, [=] {
    std::vector<i64> index(a.dims.size(), 0);
    for (i64 k = 0; k < a.count(); k++) {
      i64 rest = k, x = 0, y = 0;
      for (size_t d = a.dims.size(); d-- > 0; rest /= a.dims[d]) x += rest % a.dims[d] * a.strides[d], y += rest % a.dims[d] * b.strides[d];
      store(to, b.type, y, load(from, a.type, x));
    }
  });
}
