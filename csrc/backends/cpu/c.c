/* C, for the system's compiler. */
#include <math.h>

#include "backends/cpu/c.h"

static const dc_type_spelling types[DC_DTYPE_COUNT] = {
    [DC_F32] = {"float", "float", "$", "$", "f32"},
    [DC_F64] = {"double", "double", "$", "$", "f64"},
    [DC_F16] = {"u16", "float", "f16_to_f32($)", "f32_to_f16($)", "f32"},
    [DC_BF16] = {"u16", "float", "bf16_to_f32($)", "f32_to_bf16($)", "f32"},
    [DC_BOOL] = {"u8", "_Bool", "($ != 0)", "$", "i32"},
    [DC_I8] = {"i8", "i8", "$", "$", "i32"},
    [DC_U8] = {"u8", "u8", "$", "$", "i32"},
    [DC_I16] = {"i16", "i16", "$", "$", "i32"},
    [DC_U16] = {"u16", "u16", "$", "$", "i32"},
    [DC_I32] = {"i32", "i32", "$", "$", "i32"},
    [DC_U32] = {"u32", "u32", "$", "$", "i64"},
    [DC_I64] = {"i64", "i64", "$", "$", "i64"},
    [DC_U64] = {"u64", "u64", "$", "$", "u64"},
    [DC_I4] = {"i8", "i32", "cast_i4($)", "$", "i32"},
    [DC_U4] = {"u8", "i32", "($ & 15)", "$", "i32"},
    [DC_I2] = {"i8", "i32", "cast_i2($)", "$", "i32"},
    [DC_U2] = {"u8", "i32", "($ & 3)", "$", "i32"},
};

static const dc_prim_spelling prims[DC_PRIM_COUNT] = {
#include "backends/printer/prims_c.def"
    [DC_ISINF] = {"abs_$k($a) == __builtin_inf()", "0"},
};

static const dc_ranged_spelling ranged[] = {
    {DC_EXP, {-87, 88}, "exp_narrow($)"},
    {DC_EXP, {-INFINITY, 43}, "exp_low($)"},
    {.spelling = NULL},
};

const dc_dialect dc_c_dialect = {
    .name = "C",
    .suffix = "c",
    .types = types,
    .prims = prims,
    .ranged = ranged,
    .boolean_accumulator = "u8", /* OpenMP has no reductions of _Bool by | and & */
    .function = "static __attribute__((noinline))",
    .no_alias = "restrict",
    .vectors = "#pragma omp simd",
    .sums = "SUMS", .columns = "COLUMNS", /* see kernel_lib.c */
    .in_order = "IN_ORDER", /* see kernel_lib.c */
    .bits_f32 = "bits_f32($)",
    .bits_f64 = "bits_f64($)",
    .from_f32 = "from_f32((u32)$)",
    .inf_f32 = "__builtin_inff()", .inf_f64 = "__builtin_inf()", .nan_f32 = "__builtin_nanf(\"\")", .nan_f64 = "__builtin_nan(\"\")",
    .fused_f32 = "fma_f32(%s, %s, %s)", .fused_f64 = "fma_f64(%s, %s, %s)",
    .pick_f32 = "pick_f32(%s, %s, %s)",
    .from_f64 = "from_f64((u64)$)",
};

const dc_language dc_c_language = {.passes = dc_kernel_passes, .dialect = &dc_c_dialect, .library = dc_c_library};
