/* The library of kernels on a device, as text: a prelude, then the rows of library.def.
 *
 * Nothing is included: NVRTC has no folder of headers.  The same text compiles for a processor, where __CUDA_ARCH__ is not
 * defined, so that kernels can be tried without a device. */
#include "backends/cuda/dialect.h"

static const char prelude[] =
    "typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;\n"
    "typedef int i32; typedef unsigned u32; typedef long long i64; typedef unsigned long long u64;\n"
    "#define FN static __device__ __forceinline__\n"
    "#ifdef __CUDA_ARCH__\n"
    "#define MATH(name) name\n"
    "FN u32 bits_f32(float x) { return __float_as_uint(x); }\n"
    "FN float from_f32(u32 u) { return __uint_as_float(u); }\n"
    "FN u64 bits_f64(double x) { return (u64)__double_as_longlong(x); }\n"
    "FN double from_f64(u64 u) { return __longlong_as_double((i64)u); }\n"
    "FN float ratio(float a, float b) { return __fdividef(a, b); }\n" /* b is neither tiny nor huge */
    "FN float min_f32(float a, float b) { float x; asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b)); return x; }\n"
    "FN float max_f32(float a, float b) { float x; asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b)); return x; }\n"
    "FN float f16_to_f32(u16 h) { float x; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h)); return x; }\n"
    "FN u16 f32_to_f16(float x) { u16 h; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x)); return h; }\n"
    "FN float bf16_to_f32(u16 h) { return from_f32((u32)h << 16); }\n"
    "FN u16 f32_to_bf16(float x) { u16 h; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x)); return h; }\n"
    "#else\n"
    "#define MATH(name) __builtin_##name\n"
    "FN u32 bits_f32(float x) { u32 u; __builtin_memcpy(&u, &x, 4); return u; }\n"
    "FN float from_f32(u32 u) { float x; __builtin_memcpy(&x, &u, 4); return x; }\n"
    "FN u64 bits_f64(double x) { u64 u; __builtin_memcpy(&u, &x, 8); return u; }\n"
    "FN double from_f64(u64 u) { double x; __builtin_memcpy(&x, &u, 8); return x; }\n"
    "FN float ratio(float a, float b) { return a / b; }\n"
    "FN float min_f32(float a, float b) { return (a < b) | (a != a) ? a : b; }\n"
    "FN float max_f32(float a, float b) { return (a > b) | (a != a) ? a : b; }\n"
    "FN float f16_to_f32(u16 h) {\n"
    "  u32 magnitude = (u32)(h & 0x7fff) << 13, sign = (u32)(h & 0x8000) << 16;\n"
    "  return from_f32(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : bits_f32(from_f32(magnitude) * 0x1p112f)));\n"
    "}\n"
    "FN u16 f32_to_f16(float x) {\n"
    "  u32 u = bits_f32(x), magnitude = u & 0x7fffffffu;\n"
    "  u32 h = magnitude < 0x38800000u ? bits_f32(from_f32(magnitude) + 0.5f) - 0x3f000000u : (magnitude + 0xfffu + (magnitude >> 13 & 1u) "
    "- 0x38000000u) >> 13;\n"
    "  h = magnitude > 0x7f800000u ? 0x7e00u : magnitude >= 0x477ff000u ? 0x7c00u : h;\n"
    "  return (u16)((u >> 16 & 0x8000u) | h);\n"
    "}\n"
    "FN float bf16_to_f32(u16 h) { return from_f32((u32)h << 16); }\n"
    "FN u16 f32_to_bf16(float x) {\n"
    "  u32 u = bits_f32(x);\n"
    "  return (u16)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n"
    "}\n"
    "#endif\n";

static const char *const rows[] = {
#define ROW(...) #__VA_ARGS__,
#include "backends/cuda/library.def"
#undef ROW
};

void dc_cuda_library(const char *kernels, dc_text *out) {
  (void)kernels;
  dc_text_puts(out, prelude);
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    dc_text_puts(out, rows[k]);
    dc_text_puts(out, "\n");
  }
}
