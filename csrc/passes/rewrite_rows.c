/* The table that rewrites.def is: conditions by name, and the macros that turn a pattern into bytes. */
#include <math.h>

#include "passes/rewrite.h"

/* ---- conditions ---- */

static bool is_power_of_two(double v) {
  int exponent;
  return isfinite(v) && fabs(frexp(v, &exponent)) == 0.5;
}

/* Both factors are normal numbers in every type. */
static bool POWER_OF_TWO(double j, double k) {
  (void)j;
  return is_power_of_two(k) && fabs(k) >= 0x1p-126 && fabs(k) <= 0x1p126;
}
/* From one on: nothing underflows before the end, and what overflows on the way does so in the end. */
static bool POWERS_FROM_ONE(double j, double k) {
  return is_power_of_two(j) && is_power_of_two(k) && fabs(j) >= 1 && fabs(k) >= 1 && fabs(j) <= 0x1p60 && fabs(k) <= 0x1p60;
}
static bool POSITIVE(double j, double k) { return (void)j, k > 0; }
static bool NEGATIVE(double j, double k) { return (void)j, k < 0; }
static bool FROM_ONE(double j, double k) { return (void)j, k >= 1; }
static bool NONZERO(double j, double k) { return j != 0 && k != 0 && !isnan(j) && !isnan(k); }
static bool RISING(double j, double k) { return j < k && j != 0 && k != 0; }
#define ANY NULL

#define EXACT DC_REWRITE_EXACT, 0
#define ULPS(n) DC_REWRITE_ULPS, n
#define TRUTH(n) DC_REWRITE_TRUTH, n

/* ---- patterns ---- */

#undef isnan
#undef isinf
#define neg(a) DC_NEG, a
#define abs(a) DC_ABS, a
#define stop(a) DC_STOP, a
#define sign(a) DC_SIGN, a
#define floor(a) DC_FLOOR, a
#define ceil(a) DC_CEIL, a
#define round(a) DC_ROUND, a
#define trunc(a) DC_TRUNC, a
#define exp(a) DC_EXP, a
#define log(a) DC_LOG, a
#define sqrt(a) DC_SQRT, a
#define rsqrt(a) DC_RSQRT, a
#define sin(a) DC_SIN, a
#define cos(a) DC_COS, a
#define tan(a) DC_TAN, a
#define asin(a) DC_ASIN, a
#define atan(a) DC_ATAN, a
#define sinh(a) DC_SINH, a
#define cosh(a) DC_COSH, a
#define tanh(a) DC_TANH, a
#define asinh(a) DC_ASINH, a
#define atanh(a) DC_ATANH, a
#define erf(a) DC_ERF, a
#define sigmoid(a) DC_SIGMOID, a
#define softplus(a) DC_SOFTPLUS, a
#define isnan(a) DC_ISNAN, a
#define isinf(a) DC_ISINF, a
#define not(a) DC_NOT, a
#define add(a, b) DC_ADD, a, b
#define sub(a, b) DC_SUB, a, b
#define mul(a, b) DC_MUL, a, b
#define div(a, b) DC_DIV, a, b
#define min(a, b) DC_MIN, a, b
#define max(a, b) DC_MAX, a, b
#define pow(a, b) DC_POW, a, b
#define lt(a, b) DC_LT, a, b
#define le(a, b) DC_LE, a, b
#define gt(a, b) DC_GT, a, b
#define ge(a, b) DC_GE, a, b
#define eq(a, b) DC_EQ, a, b
#define ne(a, b) DC_NE, a, b
#define and(a, b) DC_AND, a, b
#define or(a, b) DC_OR, a, b
#define select(c, a, b) DC_EX_SELECT, c, a, b
#define num(n) DC_REWRITE_NUM, n
#define x DC_REWRITE_X
#define y DC_REWRITE_Y
#define z DC_REWRITE_Z
#define c DC_REWRITE_C
#define d DC_REWRITE_D
#define j DC_REWRITE_J
#define k DC_REWRITE_K
#define REWRITE(from, to, condition, accuracy) {#from, #to, {from, 0}, {to, 0}, condition, accuracy},

static const dc_rewrite_row rows[] = {
#include "passes/rewrites.def"
};

const dc_rewrite_row *dc_rewrite_at(uint32_t n) { return n < sizeof rows / sizeof *rows ? &rows[n] : NULL; }
