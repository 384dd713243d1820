/* The float8 and float4 kinds by one description each: widths, bias, and what is special.
 * Encoding rounds to nearest even by searching the ordered finite values. */
#include <math.h>
#include <string.h>

#include "expr/dtype.h"

typedef struct {
  uint8_t exponent_bits, mantissa_bits, sign;
  int bias;
  bool infinity;       /* e5m2: the top exponent holds infinity and NaN */
  bool negative_zero;  /* the fnuz kinds use its code for their one NaN */
  uint8_t nan, most;   /* codes; nan 0: the kind has none */
} format;

static const format formats[DC_DTYPE_COUNT] = {
    [DC_F8E4M3FN] = {4, 3, 1, 7, false, true, 0x7F, 0x7E},
    [DC_F8E4M3FNUZ] = {4, 3, 1, 8, false, false, 0x80, 0x7F},
    [DC_F8E5M2] = {5, 2, 1, 15, true, true, 0x7F, 0x7B},
    [DC_F8E5M2FNUZ] = {5, 2, 1, 16, false, false, 0x80, 0x7F},
    [DC_F4E2M1] = {2, 1, 1, 1, false, true, 0, 0x7},
    [DC_F8E8M0] = {8, 0, 0, 127, false, true, 0xFF, 0xFE},
};

float dc_small_float_decode(dc_dtype type, uint8_t bits) {
  const format *f = &formats[type];
  uint8_t sign_bit = f->sign ? (uint8_t)(1u << (f->exponent_bits + f->mantissa_bits)) : 0;
  uint8_t magnitude = (uint8_t)(sign_bit ? bits & (sign_bit - 1) : bits);
  bool negative = bits & sign_bit;
  if (f->nan && (f->negative_zero ? magnitude == f->nan : bits == f->nan)) return NAN;
  if (f->infinity && magnitude > f->most) return magnitude == f->most + 1 ? (negative ? -INFINITY : INFINITY) : NAN;
  int exponent = magnitude >> f->mantissa_bits, mantissa = magnitude & ((1 << f->mantissa_bits) - 1);
  double scale = 1 << f->mantissa_bits, value;
  if (type == DC_F8E8M0) value = ldexp(1, exponent - f->bias);
  else if (exponent == 0) value = ldexp(mantissa / scale, 1 - f->bias);
  else value = ldexp(1 + mantissa / scale, exponent - f->bias);
  return (float)(negative ? -value : value);
}

uint8_t dc_small_float_encode(dc_dtype type, float value) {
  const format *f = &formats[type];
  uint8_t sign_bit = f->sign ? (uint8_t)(1u << (f->exponent_bits + f->mantissa_bits)) : 0;
  bool negative = signbit(value) && sign_bit;
  uint8_t sign = negative ? sign_bit : 0;
  float magnitude = fabsf(value);
  if (isnan(value)) return f->negative_zero ? (f->nan | sign) : f->nan;
  int low = 0, high = f->most; /* the greatest code whose value is <= magnitude */
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (dc_small_float_decode(type, (uint8_t)middle) <= magnitude) low = middle;
    else high = middle - 1;
  }
  double below = dc_small_float_decode(type, (uint8_t)low), largest = dc_small_float_decode(type, f->most);
  if (low < f->most) {
    double above = dc_small_float_decode(type, (uint8_t)(low + 1)), middle = (below + above) / 2;
    low += magnitude > middle || (magnitude == middle && (low & 1));
  } else {
    double step = largest - dc_small_float_decode(type, (uint8_t)(f->most - 1));
    double limit = largest + step / 2; /* a tie goes to the even code */
    if (magnitude > limit || (magnitude == limit && (f->most & 1)))
      return f->infinity ? (uint8_t)((f->most + 1) | sign) : f->nan ? (f->negative_zero ? f->nan | sign : f->nan) : (uint8_t)(low | sign);
  }
  if (low == 0 && !f->negative_zero) return 0;
  return (uint8_t)(low | sign);
}
