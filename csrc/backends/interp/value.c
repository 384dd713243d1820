/* Scalar semantics: what the comments of prims.def say, in plain C.  The oracle. */
#include "backends/interp/value.h"

#include <math.h>

#include "backends/philox.h"

dc_scalar dc_scalar_load(dc_dtype type, const void *data, int64_t at) {
  switch (type) {
    case DC_F32: return (dc_scalar){.f = ((const float *)data)[at]};
    case DC_F64: return (dc_scalar){.f = ((const double *)data)[at]};
    case DC_F16: return (dc_scalar){.f = dc_f16_to_f32(((const uint16_t *)data)[at])};
    case DC_BF16: return (dc_scalar){.f = dc_bf16_to_f32(((const uint16_t *)data)[at])};
    case DC_I64: case DC_U64: return (dc_scalar){.i = ((const int64_t *)data)[at]};
    case DC_I32: return (dc_scalar){.i = ((const int32_t *)data)[at]};
    case DC_U32: return (dc_scalar){.i = ((const uint32_t *)data)[at]};
    case DC_I16: return (dc_scalar){.i = ((const int16_t *)data)[at]};
    case DC_U16: return (dc_scalar){.i = ((const uint16_t *)data)[at]};
    case DC_I8: return (dc_scalar){.i = ((const int8_t *)data)[at]};
    default:
      if (dc_dtype_is_float(type)) return (dc_scalar){.f = dc_small_float_decode(type, ((const uint8_t *)data)[at])};
      return (dc_scalar){.i = dc_dtype_wrap(type, ((const uint8_t *)data)[at])};
  }
}

void dc_scalar_store(dc_dtype type, void *data, int64_t at, dc_scalar v) {
  switch (type) {
    case DC_F32: ((float *)data)[at] = (float)v.f; return;
    case DC_F64: ((double *)data)[at] = v.f; return;
    case DC_F16: ((uint16_t *)data)[at] = dc_f32_to_f16((float)v.f); return;
    case DC_BF16: ((uint16_t *)data)[at] = dc_f32_to_bf16((float)v.f); return;
    case DC_I64: case DC_U64: ((int64_t *)data)[at] = v.i; return;
    case DC_I32: case DC_U32: ((int32_t *)data)[at] = (int32_t)v.i; return;
    case DC_I16: case DC_U16: ((int16_t *)data)[at] = (int16_t)v.i; return;
    default:
      ((uint8_t *)data)[at] = dc_dtype_is_float(type) ? dc_small_float_encode(type, (float)v.f) : (uint8_t)dc_dtype_wrap(type, v.i);
  }
}

static int64_t to_integer(dc_dtype to, double f) {
  if (isnan(f)) return 0;
  if (to == DC_U64 && f >= 0x1p63) return f >= 0x1p64 ? -1 : (int64_t)(uint64_t)f;
  if (f >= 0x1p63) return dc_dtype_wrap(to, INT64_MAX);
  if (f < -0x1p63) return dc_dtype_wrap(to, INT64_MIN);
  return dc_dtype_wrap(to, (int64_t)f);
}

static double round_to(dc_dtype type, double f) {
  switch (type) {
    case DC_F64: return f;
    case DC_F32: return (float)f;
    case DC_F16: return dc_f16_to_f32(dc_f32_to_f16((float)f));
    case DC_BF16: return dc_bf16_to_f32(dc_f32_to_bf16((float)f));
    default: return dc_small_float_decode(type, dc_small_float_encode(type, (float)f));
  }
}

dc_scalar dc_scalar_convert(dc_dtype from, dc_dtype to, dc_scalar v) {
  bool real = dc_dtype_is_float(from);
  if (to == DC_BOOL) return (dc_scalar){.i = real ? v.f != 0 : v.i != 0};
  if (dc_dtype_is_float(to)) return (dc_scalar){.f = round_to(to, real ? v.f : from == DC_U64 ? (double)(uint64_t)v.i : (double)v.i)};
  return (dc_scalar){.i = real ? to_integer(to, v.f) : dc_dtype_wrap(to, v.i)};
}

dc_scalar dc_scalar_bits(dc_dtype from, dc_dtype to, dc_scalar v) {
  uint64_t element = 0;
  dc_scalar_store(from, &element, 0, v);
  return dc_scalar_load(to, &element, 0);
}

/* ---- primitives ---- */

static double floor_mod(double a, double b) {
  double m = fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + exp(-x));
  double e = exp(x);
  return e / (1 + e);
}

static double real_prim(dc_op prim, double a, double b) {
  switch (prim) {
    case DC_ADD: return a + b;
    case DC_SUB: return a - b;
    case DC_MUL: return a * b;
    case DC_DIV: return a / b;
    case DC_NEG: return -a;
    case DC_FLOORDIV: return floor(a / b);
    case DC_MOD: return floor_mod(a, b);
    case DC_FMOD: return fmod(a, b);
    case DC_MIN: return a < b || isnan(a) ? a : b;
    case DC_MAX: return a > b || isnan(a) ? a : b;
    case DC_POW: return pow(a, b);
    case DC_ABS: return fabs(a);
    case DC_SIGN: return a > 0 ? 1 : a < 0 ? -1 : a;
    case DC_FLOOR: return floor(a);
    case DC_CEIL: return ceil(a);
    case DC_ROUND: return nearbyint(a);
    case DC_TRUNC: return trunc(a);
    case DC_EXP: return exp(a);
    case DC_EXP2: return exp2(a);
    case DC_EXPM1: return expm1(a);
    case DC_LOG: return log(a);
    case DC_LOG2: return log2(a);
    case DC_LOG10: return log10(a);
    case DC_LOG1P: return log1p(a);
    case DC_SQRT: return sqrt(a);
    case DC_RSQRT: return 1 / sqrt(a);
    case DC_SIN: return sin(a);
    case DC_COS: return cos(a);
    case DC_TAN: return tan(a);
    case DC_ASIN: return asin(a);
    case DC_ACOS: return acos(a);
    case DC_ATAN: return atan(a);
    case DC_SINH: return sinh(a);
    case DC_COSH: return cosh(a);
    case DC_TANH: return tanh(a);
    case DC_ASINH: return asinh(a);
    case DC_ACOSH: return acosh(a);
    case DC_ATANH: return atanh(a);
    case DC_ERF: return erf(a);
    case DC_SIGMOID: return sigmoid(a);
    case DC_SOFTPLUS: return a > 0 ? a + log1p(exp(-a)) : log1p(exp(a));
    default: return a; /* stop */
  }
}

static uint64_t shift(dc_op prim, dc_dtype type, uint64_t a, uint64_t count) {
  bool beyond = count >= (uint64_t)dc_dtype_bytes(type) * 8, fills = prim == DC_SHR && dc_dtype_is_signed(type) && (int64_t)a < 0;
  if (beyond) return fills ? UINT64_MAX : 0;
  return prim == DC_SHL ? a << count : fills ? ~(~a >> count) : a >> count;
}

static int64_t power(int64_t a, int64_t n) {
  if (n < 0) return a == 1 ? 1 : a == -1 ? (n & 1 ? -1 : 1) : 0;
  uint64_t result = 1, base = (uint64_t)a;
  for (; n; n >>= 1, base *= base)
    if (n & 1) result *= base;
  return (int64_t)result;
}

static int64_t divide(dc_op prim, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return prim == DC_MOD || prim == DC_FMOD ? 0 : (int64_t)(0 - (uint64_t)a);
  int64_t q = a / b, r = a % b;
  bool adjust = r != 0 && (r < 0) != (b < 0);
  switch (prim) {
    case DC_DIV: return q;
    case DC_FLOORDIV: return q - adjust;
    case DC_FMOD: return r;
    default: return adjust ? r + b : r;
  }
}

static int64_t divide_unsigned(dc_op prim, uint64_t a, uint64_t b) {
  if (b == 0) return 0;
  return (int64_t)(prim == DC_DIV || prim == DC_FLOORDIV ? a / b : a % b);
}

static int64_t whole_prim(dc_op prim, dc_dtype type, int64_t a, int64_t b) {
  uint64_t x = (uint64_t)a, y = (uint64_t)b;
  bool is_signed = dc_dtype_is_signed(type), less = is_signed ? a < b : x < y;
  switch (prim) {
    case DC_ADD: return (int64_t)(x + y);
    case DC_SUB: return (int64_t)(x - y);
    case DC_MUL: return (int64_t)(x * y);
    case DC_NEG: return (int64_t)(0 - x);
    case DC_DIV: case DC_FLOORDIV: case DC_MOD: case DC_FMOD: return is_signed ? divide(prim, a, b) : divide_unsigned(prim, x, y);
    case DC_MIN: return less ? a : b;
    case DC_MAX: return less ? b : a;
    case DC_POW: return power(a, b);
    case DC_ABS: return is_signed && a < 0 ? (int64_t)(0 - x) : a;
    case DC_SIGN: return is_signed ? (a > 0) - (a < 0) : a != 0;
    case DC_BAND: return a & b;
    case DC_BOR: return a | b;
    case DC_BXOR: return a ^ b;
    case DC_BNOT: return ~a;
    case DC_SHL: case DC_SHR: return (int64_t)shift(prim, type, x, y);
    default: return a;
  }
}

static bool test(dc_op prim, dc_dtype type, dc_scalar a, dc_scalar b) {
  bool real = dc_dtype_is_float(type), whole = type == DC_U64;
  if (prim == DC_ISNAN) return real && isnan(a.f);
  if (prim == DC_ISINF) return real && isinf(a.f);
  if (prim == DC_SIGNBIT) return real ? signbit(a.f) : !whole && a.i < 0;
  int order = real    ? (a.f > b.f) - (a.f < b.f)
              : whole ? ((uint64_t)a.i > (uint64_t)b.i) - ((uint64_t)a.i < (uint64_t)b.i)
                      : (a.i > b.i) - (a.i < b.i);
  bool ordered = !real || (!isnan(a.f) && !isnan(b.f));
  switch (prim) {
    case DC_LT: return ordered && order < 0;
    case DC_LE: return ordered && order <= 0;
    case DC_GT: return ordered && order > 0;
    case DC_GE: return ordered && order >= 0;
    case DC_EQ: return ordered && order == 0;
    case DC_NE: return !ordered || order != 0;
    case DC_AND: return a.i && b.i;
    case DC_OR: return a.i || b.i;
    default: return !a.i; /* not */
  }
}

dc_scalar dc_scalar_prim(dc_op prim, dc_dtype type, dc_scalar a, dc_scalar b) {
  dc_prim_kind kind = (dc_prim_kind)dc_prims[prim].kind;
  if (prim == DC_RAND) return (dc_scalar){.f = dc_philox_uniform((uint64_t)a.i, (uint64_t)b.i)};
  if (kind == DC_PRIM_TEST || kind == DC_PRIM_LOGIC) return (dc_scalar){.i = test(prim, type, a, b)};
  if (type == DC_F64) return (dc_scalar){.f = real_prim(prim, a.f, b.f)};
  if (dc_dtype_is_float(type))
    return (dc_scalar){.f = (float)real_prim(prim, (float)a.f, (float)b.f)}; /* rounds as float arithmetic does */
  return (dc_scalar){.i = dc_dtype_wrap(type, whole_prim(prim, type, a.i, b.i))};
}

/* One loop for each of the primitives that networks are made of. */
static bool real_prims(dc_op prim, bool narrow, const dc_scalar *a, uint32_t a_step, const dc_scalar *b, uint32_t b_step, uint32_t n,
                       dc_scalar *out) {
#define EACH(name, value)                                             \
  case name:                                                          \
    for (uint32_t j = 0; j < n; j++) {                                \
      double x = a[j * a_step].f, y = b[j * b_step].f;                \
      if (narrow) x = (float)x, y = (float)y;                         \
      double z = (value);                                             \
      (void)y;                                                        \
      out[j].f = narrow ? (float)z : z;                               \
    }                                                                 \
    return true;
#define TEST(name, value)                                                                      \
  case name:                                                                                   \
    for (uint32_t j = 0; j < n; j++) out[j].i = a[j * a_step].f value b[j * b_step].f;         \
    return true;
  switch (prim) {
    TEST(DC_LT, <)
    TEST(DC_LE, <=)
    TEST(DC_GT, >)
    TEST(DC_GE, >=)
    TEST(DC_EQ, ==)
    EACH(DC_ADD, x + y)
    EACH(DC_SUB, x - y)
    EACH(DC_MUL, x * y)
    EACH(DC_DIV, x / y)
    EACH(DC_NEG, -x)
    EACH(DC_ABS, fabs(x))
    EACH(DC_MIN, x < y || isnan(x) ? x : y)
    EACH(DC_MAX, x > y || isnan(x) ? x : y)
    EACH(DC_EXP, exp(x))
    EACH(DC_LOG, log(x))
    EACH(DC_SQRT, sqrt(x))
    EACH(DC_TANH, tanh(x))
    EACH(DC_SIGMOID, sigmoid(x))
    default: return false;
  }
#undef TEST
#undef EACH
}

void dc_scalar_prims(dc_op prim, dc_dtype type, const dc_scalar *a, uint32_t a_step, const dc_scalar *b, uint32_t b_step, uint32_t n,
                     dc_scalar *out) {
  if (dc_dtype_is_float(type) && real_prims(prim, type != DC_F64, a, a_step, b, b_step, n, out)) return;
  for (uint32_t j = 0; j < n; j++) out[j] = dc_scalar_prim(prim, type, a[j * a_step], b[j * b_step]);
}
