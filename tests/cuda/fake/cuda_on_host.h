/* CUDA C++ as the host's C++ compiler can take it: the fake NVRTC puts this above the text of kernels.
 *
 * A thread is a fiber of machine.cpp, which sets threadIdx and blockIdx and is told of whatever waits for other threads.  No header
 * is included, so that what NVRTC would not know is not known here either. */
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"

typedef __SIZE_TYPE__ size_t;

/* ---- vectors ---- */

#define FAKE_VECTORS(T, name, align2, align4)                                                            \
  struct name##1 { T x; };                                                                               \
  struct __attribute__((aligned(align2))) name##2 { T x, y; };                                           \
  struct name##3 { T x, y, z; };                                                                         \
  struct __attribute__((aligned(align4))) name##4 { T x, y, z, w; };                                     \
  static inline name##1 make_##name##1(T x) { return name##1{x}; }                                       \
  static inline name##2 make_##name##2(T x, T y) { return name##2{x, y}; }                               \
  static inline name##3 make_##name##3(T x, T y, T z) { return name##3{x, y, z}; }                       \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4{x, y, z, w}; }
FAKE_VECTORS(signed char, char, 2, 4)
FAKE_VECTORS(unsigned char, uchar, 2, 4)
FAKE_VECTORS(short, short, 4, 8)
FAKE_VECTORS(unsigned short, ushort, 4, 8)
FAKE_VECTORS(int, int, 8, 16)
FAKE_VECTORS(unsigned, uint, 8, 16)
FAKE_VECTORS(long, long, 16, 16)
FAKE_VECTORS(unsigned long, ulong, 16, 16)
FAKE_VECTORS(long long, longlong, 16, 16)
FAKE_VECTORS(unsigned long long, ulonglong, 16, 16)
FAKE_VECTORS(float, float, 8, 16)
FAKE_VECTORS(double, double, 16, 16)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

/* ---- the machine: as in machine.h ---- */

struct fake_machine {
  unsigned thread[4], block[4], block_dim[4], grid_dim[4];
  void (*barrier)(int line);
  int (*count)(int line, int predicate);
  unsigned long long (*warp)(int kind, unsigned mask, unsigned long long value, int from);
  void (*fault)(const char *why);
};
extern "C" {
fake_machine *fake_here;
extern char __start_fake_shared[] __attribute__((visibility("hidden"), weak)), __stop_fake_shared[] __attribute__((visibility("hidden"), weak));
char *fake_shared_bounds[2] = {__start_fake_shared, __stop_fake_shared};
__attribute__((aligned(1024))) unsigned char fake_dynamic_shared[232448 + 4096];
}
#define threadIdx (*(const uint3 *)fake_here->thread)
#define blockIdx (*(const uint3 *)fake_here->block)
#define blockDim (*(const uint3 *)fake_here->block_dim)
#define gridDim (*(const uint3 *)fake_here->grid_dim)
static const int warpSize = 32;

template <class T> static inline unsigned long long fake_to_bits(T value) {
  static_assert(sizeof(T) <= 8, "shuffles take 4 or 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T> static inline T fake_of_bits(unsigned long long bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
static inline int fake_lane() {
  return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31);
}

/* A kernel's parameters, taken in their order from an array of addresses. */
struct fake_parameters {
  void **at;
  template <class T> T take() { return *(T *)*at++; }
};
template <class... A> struct fake_call {
  fake_call(void (*kernel)(A...), A... a) { kernel(a...); }
};
template <class... A> static inline void fake_run(void (*kernel)(A...), void **parameters) {
  fake_parameters p = {parameters};
  (void)p;
  fake_call<A...>{kernel, p.template take<A>()...};
}
template <class... A> constexpr unsigned fake_count(void (*)(A...)) { return sizeof...(A); }
template <class... A> static inline unsigned fake_size(void (*)(A...), unsigned k) {
  const unsigned sizes[] = {sizeof(A)..., 0};
  return sizes[k];
}
#define FAKE_KERNEL(name, bounds)                                                                              \
  extern "C" void fake_run_##name(void **p) { fake_run(name, p); }                                             \
  extern "C" unsigned fake_count_##name() { return fake_count(name); }                                         \
  extern "C" unsigned fake_size_##name(unsigned k) { return fake_size(name, k); }                              \
  extern "C" unsigned fake_bounds_##name() { return (bounds); }

/* ---- qualifiers ---- */

#define __global__
#define __device__
#define __host__
#define __shared__ static __attribute__((section("fake_shared")))
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

/* ---- threads that wait for threads ---- */

#define __syncthreads() fake_here->barrier(__LINE__)
#define __syncthreads_count(predicate) fake_here->count(__LINE__, (predicate) != 0)
#define __syncthreads_or(predicate) (fake_here->count(__LINE__, (predicate) != 0) != 0)
#define __syncthreads_and(predicate) (fake_here->count(__LINE__, (predicate) == 0) == 0)

enum { FAKE_SYNC, FAKE_BALLOT, FAKE_IDX, FAKE_UP, FAKE_DOWN, FAKE_XOR };

static inline void __syncwarp(unsigned mask = 0xffffffffu) { fake_here->warp(FAKE_SYNC, mask, 0, fake_lane()); }
static inline unsigned __ballot_sync(unsigned mask, int predicate) { return (unsigned)fake_here->warp(FAKE_BALLOT, mask, predicate != 0, fake_lane()); }
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  int lane = fake_lane();
  return fake_of_bits<T>(fake_here->warp(FAKE_IDX, mask, fake_to_bits(value), (lane & ~(width - 1)) | (from & (width - 1))));
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  int lane = fake_lane(), from = lane - (int)by;
  return fake_of_bits<T>(fake_here->warp(FAKE_UP, mask, fake_to_bits(value), from < (lane & ~(width - 1)) ? lane : from));
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  int lane = fake_lane(), from = lane + (int)by;
  return fake_of_bits<T>(fake_here->warp(FAKE_DOWN, mask, fake_to_bits(value), from > (lane | (width - 1)) ? lane : from));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  int lane = fake_lane(), from = lane ^ by;
  return fake_of_bits<T>(fake_here->warp(FAKE_XOR, mask, fake_to_bits(value), from > (lane | (width - 1)) ? lane : from));
}
#define FAKE_WARP_REDUCE(name, op)                                                       \
  template <class T> static inline T name(unsigned mask, T value) {                      \
    T all = value;                                                                       \
    int lane = fake_lane();                                                              \
    for (int k = 0; k < 32; k++) {                                                       \
      T other = __shfl_sync(mask, value, mask >> k & 1 ? k : lane);                      \
      if ((mask >> k & 1) && k != lane) all = op;                                        \
    }                                                                                    \
    return all;                                                                          \
  }
FAKE_WARP_REDUCE(__reduce_add_sync, all + other)
FAKE_WARP_REDUCE(__reduce_min_sync, (other < all ? other : all))
FAKE_WARP_REDUCE(__reduce_max_sync, (other > all ? other : all))
FAKE_WARP_REDUCE(__reduce_and_sync, all & other)
FAKE_WARP_REDUCE(__reduce_or_sync, all | other)
FAKE_WARP_REDUCE(__reduce_xor_sync, all ^ other)

static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __trap() { fake_here->fault("the kernel ran __trap()"); }

/* ---- atomics: fibers change only where they wait ---- */

#define FAKE_ATOMIC(name, T, result)               \
  static inline T name(T *at, T value) {           \
    T old = *at;                                   \
    *at = (result);                                \
    return old;                                    \
  }
#define FAKE_ATOMICS(T)                                          \
  FAKE_ATOMIC(atomicAdd, T, old + value)                         \
  FAKE_ATOMIC(atomicExch, T, value)
#define FAKE_ATOMICS_WHOLE(T)                                    \
  FAKE_ATOMICS(T)                                                \
  FAKE_ATOMIC(atomicMin, T, old < value ? old : value)           \
  FAKE_ATOMIC(atomicMax, T, old > value ? old : value)           \
  FAKE_ATOMIC(atomicAnd, T, old & value)                         \
  FAKE_ATOMIC(atomicOr, T, old | value)                          \
  FAKE_ATOMIC(atomicXor, T, old ^ value)                         \
  static inline T atomicCAS(T *at, T compare, T value) {         \
    T old = *at;                                                 \
    if (old == compare) *at = value;                             \
    return old;                                                  \
  }
FAKE_ATOMICS_WHOLE(int)
FAKE_ATOMICS_WHOLE(unsigned)
FAKE_ATOMICS_WHOLE(unsigned long long)
FAKE_ATOMICS(float)
FAKE_ATOMICS(double)
FAKE_ATOMIC(atomicSub, int, old - value)
FAKE_ATOMIC(atomicSub, unsigned, old - value)
FAKE_ATOMIC(atomicMin, long long, old < value ? old : value)
FAKE_ATOMIC(atomicMax, long long, old > value ? old : value)
static inline unsigned short atomicCAS(unsigned short *at, unsigned short compare, unsigned short value) {
  unsigned short old = *at;
  if (old == compare) *at = value;
  return old;
}

/* ---- loads and stores with a hint ---- */

template <class T> static inline T __ldg(const T *at) { return *at; }
template <class T> static inline T __ldcs(const T *at) { return *at; }
template <class T> static inline T __ldcg(const T *at) { return *at; }
template <class T> static inline T __ldca(const T *at) { return *at; }
template <class T> static inline T __ldlu(const T *at) { return *at; }
template <class T> static inline T __ldcv(const T *at) { return *(const volatile T *)at; }
template <class T> static inline void __stcs(T *at, T value) { *at = value; }
template <class T> static inline void __stcg(T *at, T value) { *at = value; }
template <class T> static inline void __stwb(T *at, T value) { *at = value; }
template <class T> static inline void __stwt(T *at, T value) { *at = value; }

/* ---- numbers ---- */

extern "C" {
#define FAKE_REAL1(name) double name(double); float name##f(float);
#define FAKE_REAL2(name) double name(double, double); float name##f(float, float);
FAKE_REAL1(exp) FAKE_REAL1(exp2) FAKE_REAL1(expm1) FAKE_REAL1(log) FAKE_REAL1(log2) FAKE_REAL1(log10) FAKE_REAL1(log1p)
FAKE_REAL1(sqrt) FAKE_REAL1(cbrt) FAKE_REAL1(sin) FAKE_REAL1(cos) FAKE_REAL1(tan) FAKE_REAL1(asin) FAKE_REAL1(acos) FAKE_REAL1(atan)
FAKE_REAL1(sinh) FAKE_REAL1(cosh) FAKE_REAL1(tanh) FAKE_REAL1(asinh) FAKE_REAL1(acosh) FAKE_REAL1(atanh) FAKE_REAL1(erf) FAKE_REAL1(erfc)
FAKE_REAL1(lgamma) FAKE_REAL1(tgamma) FAKE_REAL1(floor) FAKE_REAL1(ceil) FAKE_REAL1(trunc) FAKE_REAL1(round) FAKE_REAL1(rint)
FAKE_REAL1(nearbyint) FAKE_REAL1(fabs) FAKE_REAL1(logb)
FAKE_REAL2(pow) FAKE_REAL2(fmod) FAKE_REAL2(remainder) FAKE_REAL2(atan2) FAKE_REAL2(fmin) FAKE_REAL2(fmax) FAKE_REAL2(hypot) FAKE_REAL2(copysign)
FAKE_REAL2(fdim) FAKE_REAL2(nextafter)
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);
double frexp(double, int *);
float frexpf(float, int *);
double modf(double, double *);
float modff(float, float *);
void sincos(double, double *, double *);
void sincosf(float, float *, float *);
long lrint(double);
long lrintf(float);
long long llrint(double);
long long llrintf(float);
double exp10(double);
float exp10f(float);
int abs(int);
long long llabs(long long);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
}
#define FAKE_OVERLOAD1(name) static inline float name(float a) { return name##f(a); }
#define FAKE_OVERLOAD2(name) static inline float name(float a, float b) { return name##f(a, b); }
FAKE_OVERLOAD1(exp) FAKE_OVERLOAD1(exp2) FAKE_OVERLOAD1(expm1) FAKE_OVERLOAD1(log) FAKE_OVERLOAD1(log2) FAKE_OVERLOAD1(log1p)
FAKE_OVERLOAD1(sqrt) FAKE_OVERLOAD1(sin) FAKE_OVERLOAD1(cos) FAKE_OVERLOAD1(tan) FAKE_OVERLOAD1(asin) FAKE_OVERLOAD1(acos)
FAKE_OVERLOAD1(atan) FAKE_OVERLOAD1(sinh) FAKE_OVERLOAD1(cosh) FAKE_OVERLOAD1(tanh) FAKE_OVERLOAD1(asinh) FAKE_OVERLOAD1(acosh)
FAKE_OVERLOAD1(atanh) FAKE_OVERLOAD1(erf) FAKE_OVERLOAD1(floor) FAKE_OVERLOAD1(ceil) FAKE_OVERLOAD1(trunc) FAKE_OVERLOAD1(rint) FAKE_OVERLOAD1(fabs)
FAKE_OVERLOAD2(pow) FAKE_OVERLOAD2(fmod) FAKE_OVERLOAD2(atan2) FAKE_OVERLOAD2(fmin) FAKE_OVERLOAD2(fmax) FAKE_OVERLOAD2(copysign)
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float abs(float a) { return fabsf(a); }
static inline double abs(double a) { return fabs(a); }
static inline long long abs(long long a) { return a < 0 ? -a : a; }
static inline bool isnan(float a) { return __builtin_isnan(a); }
static inline bool isnan(double a) { return __builtin_isnan(a); }
static inline bool isinf(float a) { return __builtin_isinf(a); }
static inline bool isinf(double a) { return __builtin_isinf(a); }
static inline bool isfinite(float a) { return __builtin_isfinite(a); }
static inline bool isfinite(double a) { return __builtin_isfinite(a); }
static inline bool signbit(float a) { return __builtin_signbit(a); }
static inline bool signbit(double a) { return __builtin_signbit(a); }
#define FAKE_MINMAX(T)                                             \
  static inline T min(T a, T b) { return a < b ? a : b; }          \
  static inline T max(T a, T b) { return a > b ? a : b; }
FAKE_MINMAX(int) FAKE_MINMAX(unsigned) FAKE_MINMAX(long) FAKE_MINMAX(unsigned long) FAKE_MINMAX(long long) FAKE_MINMAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float rsqrtf(float a) { return (float)(1.0 / __builtin_sqrt((double)a)); }
static inline double rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }
static inline float rsqrt(float a) { return rsqrtf(a); }
static inline float __expf(float a) { return expf(a); }
static inline float __exp10f(float a) { return exp10f(a); }
static inline float __logf(float a) { return logf(a); }
static inline float __log2f(float a) { return log2f(a); }
static inline float __powf(float a, float b) { return powf(a, b); }
static inline float __sinf(float a) { return sinf(a); }
static inline float __cosf(float a) { return cosf(a); }
static inline float __tanhf(float a) { return tanhf(a); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __frsqrt_rn(float a) { return rsqrtf(a); }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
static inline int __float_as_int(float a) { return fake_of_bits<int>(fake_to_bits(a)); }
static inline unsigned __float_as_uint(float a) { return fake_of_bits<unsigned>(fake_to_bits(a)); }
static inline float __int_as_float(int a) { return fake_of_bits<float>(fake_to_bits(a)); }
static inline float __uint_as_float(unsigned a) { return fake_of_bits<float>(fake_to_bits(a)); }
static inline long long __double_as_longlong(double a) { return fake_of_bits<long long>(fake_to_bits(a)); }
static inline double __longlong_as_double(long long a) { return fake_of_bits<double>(fake_to_bits(a)); }
static inline int __float2int_rn(float a) { return (int)rintf(a); }
static inline int __float2int_rz(float a) { return (int)a; }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
static inline int __clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __ffsll(long long a) { return __builtin_ffsll(a); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __mul24(int a, int b) { return a * b; }
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  by &= 31;
  return by ? high << by | low >> (32 - by) : high;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  by &= 31;
  return by ? high << (32 - by) | low >> by : low;
}
static inline long long clock64() { return 0; }

/* ---- the text of kernels follows ---- */
