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
static const char prelude[] =
    "typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;\n"
    "typedef int i32; typedef unsigned u32; typedef long long i64; typedef unsigned long long u64;\n"
    "#ifdef __FP_FAST_FMAF\n#define FAST_FMAF 1\n#else\n#define FAST_FMAF 0\n#endif\n"
    "#ifdef __FP_FAST_FMA\n#define FAST_FMA 1\n#else\n#define FAST_FMA 0\n#endif\n"
    "#ifdef __AVX512F__\nenum { VECTOR = 64, TILE_ROWS = 8 };\n#elif defined(__AVX__)\nenum { VECTOR = 32, TILE_ROWS = 4 };\n"
    "#else\nenum { VECTOR = 16, TILE_ROWS = 4 };\n#endif\n" /* bytes; rows of sums that registers hold, three vectors each */
    "#define SIMD _Pragma(\"omp simd\")\n#define UNROLL _Pragma(\"GCC unroll 8\")\n"
    "#define IN_ORDER __asm__ volatile(\"\");\n"
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
