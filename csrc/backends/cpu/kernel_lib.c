/* The library of kernels as text: a prelude, then the rows of kernel_lib.def that are used. */
#include <string.h>

#include "backends/cpu/c.h"

typedef struct {
  const char *name, *text;
} row;

static const row rows[] = {
#define FN(name, ...) {#name, #__VA_ARGS__},
#include "backends/cpu/kernel_lib.def"
#undef FN
};
enum { ROWS = sizeof rows / sizeof *rows };

/* IN_ORDER marks a loop that no vectors may run.  gcc 12 would make vectors of a sum in order, and gets it wrong where
 * its terms depend on conditions; it leaves loops with assembly alone. */
/* Vectors of sums: FUSING is a function, and FUSE begins its body, whose a * b + c are fused where the processor can.  HELD keeps a
 * vector in a register: tuned for Zen 3, gcc 12 reads it from memory again wherever it is used. */
/* SUMS stands before a loop over the lanes of a strip whose accumulators, a few vectors of them, stay in registers once gcc has
 * unrolled it; COLUMNS the same of more, which memory holds: unrolled by half as much, they run as fast and take gcc less time. */
/* USUALLY(name, rare, usual, always) is a function of a float x: `always`, and `usual` unless `rare`, which gives the same bits
 * then; USUALLY_OF_TWO one of x and y.  gcc lets loops in vectors call functions of vectors, under the names that x86's vector
 * ABI has for them: they look whether any lane is rare.  Elsewhere it is `always`. */
static const char prelude[] =
    "#if defined(GATHERS) && __GNUC__ >= 11\n" /* no flag: before version 11 the name is an error */
    "#pragma GCC target(\"tune=sapphirerapids,prefer-vector-width=512\")\n#endif\n"
    "typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;\n"
    "typedef int i32; typedef unsigned u32; typedef long long i64; typedef unsigned long long u64;\n"
    "#ifdef __FP_FAST_FMAF\n#define FAST_FMAF 1\n#else\n#define FAST_FMAF 0\n#endif\n"
    "#ifdef __FP_FAST_FMA\n#define FAST_FMA 1\n#else\n#define FAST_FMA 0\n#endif\n"
    /* bytes; sums of a product that registers hold: rows, and vectors of each */
    "#ifdef __AVX512F__\nenum { VECTOR = 64, TILE_ROWS = 8, TILE_VECTORS = 3 };\n#elif defined(__AVX__)\n"
    "enum { VECTOR = 32, TILE_ROWS = 6, TILE_VECTORS = 2 };\n#else\nenum { VECTOR = 16, TILE_ROWS = 4, TILE_VECTORS = 3 };\n#endif\n"
    "#define SIMD _Pragma(\"omp simd\")\n#define UNROLL _Pragma(\"GCC unroll 8\")\n"
    "#ifdef __clang__\n#define SUMS SIMD\n#else\n#define SUMS UNROLL _Pragma(\"GCC ivdep\")\n#endif\n"
    "#ifdef __clang__\n#define COLUMNS SIMD\n#else\n#define COLUMNS _Pragma(\"GCC unroll 4\") _Pragma(\"GCC ivdep\")\n#endif\n"
    "typedef float vector_f32 __attribute__((vector_size(VECTOR), aligned(4), may_alias));\n"
    "typedef double vector_f64 __attribute__((vector_size(VECTOR), aligned(8), may_alias));\n"
    "typedef u32 bits_of_f32 __attribute__((vector_size(VECTOR))); typedef u64 bits_of_f64 __attribute__((vector_size(VECTOR)));\n"
    "enum { PRODUCT, SQUARE, GAP }; /* terms of sums of two operands */\n"
    "#ifdef __clang__\n#define FUSING\n#define FUSE _Pragma(\"clang fp contract(fast)\")\n"
    "#else\n#define FUSING __attribute__((optimize(\"O2\", \"fp-contract=fast\")))\n#define FUSE\n#endif\n"
    "#ifdef __x86_64__\n#define HELD(x) __asm__(\"\" : \"+v\"(x))\n#else\n#define HELD(x)\n#endif\n"
    "#define IN_ORDER __asm__ volatile(\"\");\n"
    "#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)\n"
    "#define HIDDEN __attribute__((visibility(\"hidden\")))\n"
    "#define LANES(n) __attribute__((aligned(4 * n))) float\n" /* no copies by bytes: 32 of them are none that gcc 12 makes vectors around */
    "#define OF_VECTORS(abi, n, name, rare, usual) \\\n"
    "  typedef float name##_##abi __attribute__((vector_size(4 * n), may_alias)); \\\n"
    "  HIDDEN name##_##abi _ZGV##abi##N##n##v_dc_##name(name##_##abi v) { \\\n"
    "    LANES(n) in[n], out[n]; u32 found = 0; *(name##_##abi *)in = v; \\\n"
    "    _Pragma(\"omp simd reduction(|:found)\") for (int l = 0; l < n; l++) { float x = in[l]; out[l] = usual; found |= rare; } \\\n"
    "    if (__builtin_expect(found != 0, 0)) for (int l = 0; l < n; l++) out[l] = name##_one(in[l]); \\\n"
    "    return *(name##_##abi *)out; }\n"
    "#ifdef __AVX512F__\n#define OF_LONG(...) OF_VECTORS(e, 16, __VA_ARGS__)\n#else\n#define OF_LONG(...)\n#endif\n"
    "#ifdef __AVX2__\n#define OF_MIDDLE(...) OF_VECTORS(d, 8, __VA_ARGS__)\n#elif defined(__AVX__)\n"
    "#define OF_MIDDLE(...) OF_VECTORS(c, 8, __VA_ARGS__)\n#else\n#define OF_MIDDLE(...)\n#endif\n"
    "#define OF_TWO(abi, n, name, rare, usual) \\\n"
    "  typedef float name##_##abi __attribute__((vector_size(4 * n), may_alias)); \\\n"
    "  HIDDEN name##_##abi _ZGV##abi##N##n##vv_dc_##name(name##_##abi v, name##_##abi w) { \\\n"
    "    LANES(n) a[n], b[n], out[n]; u32 found = 0; *(name##_##abi *)a = v; *(name##_##abi *)b = w; \\\n"
    "    _Pragma(\"omp simd reduction(|:found)\") for (int l = 0; l < n; l++) { float x = a[l], y = b[l]; out[l] = usual; found |= rare; } \\\n"
    "    if (__builtin_expect(found != 0, 0)) for (int l = 0; l < n; l++) out[l] = name##_one(a[l], b[l]); \\\n"
    "    return *(name##_##abi *)out; }\n"
    "#ifdef __AVX512F__\n#define OF_LONG_TWO(...) OF_TWO(e, 16, __VA_ARGS__)\n#else\n#define OF_LONG_TWO(...)\n#endif\n"
    "#ifdef __AVX2__\n#define OF_MIDDLE_TWO(...) OF_TWO(d, 8, __VA_ARGS__)\n#elif defined(__AVX__)\n"
    "#define OF_MIDDLE_TWO(...) OF_TWO(c, 8, __VA_ARGS__)\n#else\n#define OF_MIDDLE_TWO(...)\n#endif\n"
    "#define USUALLY_OF_TWO(name, rare, usual, always) \\\n"
    "  float name(float, float) __asm__(\"dc_\" #name) __attribute__((simd(\"notinbranch\"), const, nothrow, visibility(\"hidden\"))); \\\n"
    "  HIDDEN float name##_one(float, float) __asm__(\"dc_\" #name); float name##_one(float x, float y) { return always; } \\\n"
    "  OF_LONG_TWO(name, rare, usual) OF_MIDDLE_TWO(name, rare, usual) OF_TWO(b, 4, name, rare, usual)\n"
    "#define USUALLY(name, rare, usual, always) \\\n"
    "  float name(float) __asm__(\"dc_\" #name) __attribute__((simd(\"notinbranch\"), const, nothrow, visibility(\"hidden\"))); \\\n"
    "  HIDDEN float name##_one(float) __asm__(\"dc_\" #name); float name##_one(float x) { return always; } \\\n"
    "  OF_LONG(name, rare, usual) OF_MIDDLE(name, rare, usual) OF_VECTORS(b, 4, name, rare, usual)\n"
    "#else\n#define USUALLY(name, rare, usual, always) static inline float name(float x) { return always; }\n"
    "#define USUALLY_OF_TWO(name, rare, usual, always) static inline float name(float x, float y) { return always; }\n#endif\n"
    "#if defined(HIDDEN) && defined(__F16C__) && defined(__AVX2__)\n#define WITH_F16C(...) __VA_ARGS__\n#define WITHOUT_F16C(...)\n"
    "#else\n#define WITH_F16C(...)\n#define WITHOUT_F16C(...) __VA_ARGS__\n#endif\n"
    "#ifdef __AVX512F__\n#define WITH_AVX512_F16C WITH_F16C\n#else\n#define WITH_AVX512_F16C(...)\n#endif\n"
    "/* Runs tasks 0..n on at most `parts` threads; returns how many took part.  Set by the loader. */\n"
    "i64 (*dc_kernel_run)(void (*task)(const i64 *v, i64 lo, i64 hi, i64 part), const i64 *v, i64 n, i64 parts);\n";

/* Does the text call `name`, or index it?  Another name that ends so counts too: then a function is printed unused. */
static bool mentions(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
    char after = at[n];
    if (after == '(' || after == '[') return true;
  }
  return false;
}

void dc_c_library(const char *kernels, dc_text *out) {
  bool used[ROWS] = {0};
  for (size_t k = ROWS; k-- > 0;) {
    used[k] = mentions(kernels, rows[k].name);
    for (size_t j = k + 1; j < ROWS && !used[k]; j++) used[k] = used[j] && mentions(rows[j].text, rows[k].name);
  }
  dc_text_puts(out, prelude);
  for (size_t k = 0; k < ROWS; k++) {
    if (!used[k]) continue;
    dc_text_puts(out, rows[k].text);
    dc_text_puts(out, "\n");
  }
}
