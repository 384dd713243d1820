/* Element types, numbered as ONNX's TensorProto.DataType so that no table translates them. */
#ifndef DCML_EXPR_DTYPE_H
#define DCML_EXPR_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
  DC_NOTYPE = 0,
  DC_F32 = 1,
  DC_U8 = 2,
  DC_I8 = 3,
  DC_U16 = 4,
  DC_I16 = 5,
  DC_I32 = 6,
  DC_I64 = 7,
  DC_STRING = 8,
  DC_BOOL = 9,
  DC_F16 = 10,
  DC_F64 = 11,
  DC_U32 = 12,
  DC_U64 = 13,
  DC_C64 = 14,
  DC_C128 = 15,
  DC_BF16 = 16,
  DC_F8E4M3FN = 17,
  DC_F8E4M3FNUZ = 18,
  DC_F8E5M2 = 19,
  DC_F8E5M2FNUZ = 20,
  DC_U4 = 21,
  DC_I4 = 22,
  DC_F4E2M1 = 23,
  DC_F8E8M0 = 24,
  DC_U2 = 25,
  DC_I2 = 26,
  DC_DTYPE_COUNT = 27,
} dc_dtype;

/* Bytes of one element in a buffer; the 4- and 2-bit kinds take one byte each; 0 for strings. */
int dc_dtype_bytes(dc_dtype type);
/* Short name in the text form: "f32", "i64", "bool", ... */
const char *dc_dtype_name(dc_dtype type);
/* The type with that name, DC_NOTYPE if there is none. */
dc_dtype dc_dtype_from_name(const char *name);
bool dc_dtype_is_float(dc_dtype type);   /* f16 bf16 f32 f64 and the float8/float4 kinds */
bool dc_dtype_is_integer(dc_dtype type); /* signed and unsigned, not bool */
bool dc_dtype_is_signed(dc_dtype type);
bool dc_dtype_is_complex(dc_dtype type);
dc_dtype dc_dtype_part(dc_dtype type);       /* of a complex type: the type of its parts; else itself */
dc_dtype dc_dtype_of_parts(dc_dtype type);   /* the complex type with parts of `type`, f32 or f64; DC_NOTYPE: none */
/* The type in which values of `type` are computed and accumulated: f32 for the
 * small floats, i32 for the sub-byte integers, else itself. */
dc_dtype dc_dtype_compute(dc_dtype type);
/* An integer or bool as it is stored: modulo 2^bits, the bit pattern of a u64 in an int64_t. */
int64_t dc_dtype_wrap(dc_dtype type, int64_t value);
double dc_dtype_min(dc_dtype type); /* lowest finite value */
double dc_dtype_max(dc_dtype type);

/* Conversions of one element, rounding to nearest even. */
float dc_f16_to_f32(uint16_t bits);
uint16_t dc_f32_to_f16(float value);
float dc_bf16_to_f32(uint16_t bits);
uint16_t dc_f32_to_bf16(float value);
/* The float8 and float4 kinds, one element a byte.  Overflow gives infinity, NaN where the kind has
 * none, and the largest value where it has neither: a row that wants saturation clips before. */
float dc_small_float_decode(dc_dtype type, uint8_t bits);
uint8_t dc_small_float_encode(dc_dtype type, float value);

#endif
