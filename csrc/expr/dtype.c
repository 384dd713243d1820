/* Element types: one table, and the bit conversions of the small floats. */
#include "expr/dtype.h"

#include <math.h>
#include <string.h>

typedef enum { KIND_OTHER, KIND_FLOAT, KIND_SIGNED, KIND_UNSIGNED } kind;

static const struct {
  const char *name;
  uint8_t bytes, kind, compute;
  double min, max;
} types[DC_DTYPE_COUNT] = {
    [DC_NOTYPE] = {"none", 0, KIND_OTHER, DC_NOTYPE, 0, 0},
    [DC_F32] = {"f32", 4, KIND_FLOAT, DC_F32, -3.4028234663852886e38, 3.4028234663852886e38},
    [DC_U8] = {"u8", 1, KIND_UNSIGNED, DC_U8, 0, 255},
    [DC_I8] = {"i8", 1, KIND_SIGNED, DC_I8, -128, 127},
    [DC_U16] = {"u16", 2, KIND_UNSIGNED, DC_U16, 0, 65535},
    [DC_I16] = {"i16", 2, KIND_SIGNED, DC_I16, -32768, 32767},
    [DC_I32] = {"i32", 4, KIND_SIGNED, DC_I32, -2147483648.0, 2147483647.0},
    [DC_I64] = {"i64", 8, KIND_SIGNED, DC_I64, -9223372036854775808.0, 9223372036854775807.0},
    [DC_STRING] = {"string", 0, KIND_OTHER, DC_STRING, 0, 0},
    [DC_BOOL] = {"bool", 1, KIND_OTHER, DC_BOOL, 0, 1},
    [DC_F16] = {"f16", 2, KIND_FLOAT, DC_F32, -65504, 65504},
    [DC_F64] = {"f64", 8, KIND_FLOAT, DC_F64, -1.7976931348623157e308, 1.7976931348623157e308},
    [DC_U32] = {"u32", 4, KIND_UNSIGNED, DC_U32, 0, 4294967295.0},
    [DC_U64] = {"u64", 8, KIND_UNSIGNED, DC_U64, 0, 18446744073709551615.0},
    [DC_C64] = {"c64", 8, KIND_OTHER, DC_C64, 0, 0},
    [DC_C128] = {"c128", 16, KIND_OTHER, DC_C128, 0, 0},
    [DC_BF16] = {"bf16", 2, KIND_FLOAT, DC_F32, -3.3895313892515355e38, 3.3895313892515355e38},
    [DC_F8E4M3FN] = {"f8e4m3fn", 1, KIND_FLOAT, DC_F32, -448, 448},
    [DC_F8E4M3FNUZ] = {"f8e4m3fnuz", 1, KIND_FLOAT, DC_F32, -240, 240},
    [DC_F8E5M2] = {"f8e5m2", 1, KIND_FLOAT, DC_F32, -57344, 57344},
    [DC_F8E5M2FNUZ] = {"f8e5m2fnuz", 1, KIND_FLOAT, DC_F32, -57344, 57344},
    [DC_U4] = {"u4", 1, KIND_UNSIGNED, DC_I32, 0, 15},
    [DC_I4] = {"i4", 1, KIND_SIGNED, DC_I32, -8, 7},
    [DC_F4E2M1] = {"f4e2m1", 1, KIND_FLOAT, DC_F32, -6, 6},
    [DC_F8E8M0] = {"f8e8m0", 1, KIND_FLOAT, DC_F32, 5.877471754111438e-39, 1.7014118346046923e38},
    [DC_U2] = {"u2", 1, KIND_UNSIGNED, DC_I32, 0, 3},
    [DC_I2] = {"i2", 1, KIND_SIGNED, DC_I32, -2, 1},
};

int dc_dtype_bytes(dc_dtype type) { return types[type].bytes; }
const char *dc_dtype_name(dc_dtype type) { return types[type].name; }
bool dc_dtype_is_float(dc_dtype type) { return types[type].kind == KIND_FLOAT; }
bool dc_dtype_is_integer(dc_dtype type) { return types[type].kind == KIND_SIGNED || types[type].kind == KIND_UNSIGNED; }
bool dc_dtype_is_signed(dc_dtype type) { return types[type].kind == KIND_SIGNED; }
bool dc_dtype_is_complex(dc_dtype type) { return type == DC_C64 || type == DC_C128; }
dc_dtype dc_dtype_part(dc_dtype type) { return type == DC_C64 ? DC_F32 : type == DC_C128 ? DC_F64 : type; }
dc_dtype dc_dtype_of_parts(dc_dtype type) { return type == DC_F32 ? DC_C64 : type == DC_F64 ? DC_C128 : DC_NOTYPE; }
dc_dtype dc_dtype_compute(dc_dtype type) { return (dc_dtype)types[type].compute; }
int64_t dc_dtype_wrap(dc_dtype type, int64_t value) {
  switch (type) {
    case DC_BOOL: return value != 0;
    case DC_I8: return (int8_t)value;
    case DC_U8: return (uint8_t)value;
    case DC_I16: return (int16_t)value;
    case DC_U16: return (uint16_t)value;
    case DC_I32: return (int32_t)value;
    case DC_U32: return (uint32_t)value;
    case DC_I4: return (int8_t)((uint8_t)value << 4) >> 4;
    case DC_U4: return value & 15;
    case DC_I2: return (int8_t)((uint8_t)value << 6) >> 6;
    case DC_U2: return value & 3;
    default: return value;
  }
}

double dc_dtype_min(dc_dtype type) { return types[type].min; }
double dc_dtype_max(dc_dtype type) { return types[type].max; }

dc_dtype dc_dtype_from_name(const char *name) {
  for (int t = 1; t < DC_DTYPE_COUNT; t++)
    if (strcmp(types[t].name, name) == 0) return (dc_dtype)t;
  return DC_NOTYPE;
}

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float dc_f16_to_f32(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return bits_float(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) return bits_float(sign | float_bits((float)mantissa * 0x1p-24f));
  return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t dc_f32_to_f16(float value) {
  uint32_t bits = float_bits(value);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00 | (uint16_t)(magnitude >> 13 & 0x3FF); /* NaN: quiet, as instructions do it */
  if (magnitude >= 0x477FF000u) return sign | 0x7C00; /* rounds beyond 65504 */
  if (magnitude < 0x38800000u) /* below the smallest normal: the sum's rounding does the work */
    return sign | (uint16_t)(float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f));
  uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return sign | (uint16_t)((rounded - 0x38000000u) >> 13);
}

float dc_bf16_to_f32(uint16_t bits) { return bits_float((uint32_t)bits << 16); }

uint16_t dc_f32_to_bf16(float value) {
  uint32_t bits = float_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
