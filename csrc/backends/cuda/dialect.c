/* CUDA C++, without headers. */
#include "backends/cuda/dialect.h"

static const dc_type_spelling types[DC_DTYPE_COUNT] = {
    [DC_F32] = {"float", "float", "$", "$", "f32"},
    [DC_F64] = {"double", "double", "$", "$", "f64"},
    [DC_F16] = {"u16", "float", "f16_to_f32($)", "f32_to_f16($)", "f32"},
    [DC_BF16] = {"u16", "float", "bf16_to_f32($)", "f32_to_bf16($)", "f32"},
    [DC_F8E4M3FN] = {"u8", "float", "f8e4m3fn_to_f32($)", "f32_to_f8e4m3fn($)", "f32"},
    [DC_F8E4M3FNUZ] = {"u8", "float", "f8e4m3fnuz_to_f32($)", "f32_to_f8e4m3fnuz($)", "f32"},
    [DC_F8E5M2] = {"u8", "float", "f8e5m2_to_f32($)", "f32_to_f8e5m2($)", "f32"},
    [DC_F8E5M2FNUZ] = {"u8", "float", "f8e5m2fnuz_to_f32($)", "f32_to_f8e5m2fnuz($)", "f32"},
    [DC_F4E2M1] = {"u8", "float", "f4e2m1_to_f32($)", "f32_to_f4e2m1($)", "f32"},
    [DC_F8E8M0] = {"u8", "float", "f8e8m0_to_f32($)", "f32_to_f8e8m0($)", "f32"},
    [DC_BOOL] = {"u8", "bool", "($ != 0)", "$", "i32"},
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
    [DC_ISINF] = {"abs_$k($a) == inf_$k()", "0"},
};

/* Of whole numbers: the order of floats would show. */
#define WORDS(function) [DC_I32] = function, [DC_U32] = function, [DC_U64] = function
static const char *const atomics[][DC_DTYPE_COUNT] = {
    [DC_WCR_SUM] = {WORDS("atomicAdd(&%s, %s);"), [DC_I64] = "atomicAdd((u64 *)&%s, (u64)%s);"},
    [DC_WCR_PROD] = {NULL},
    [DC_WCR_MIN] = {WORDS("atomicMin(&%s, %s);"), [DC_I64] = "atomicMin(&%s, %s);"},
    [DC_WCR_MAX] = {WORDS("atomicMax(&%s, %s);"), [DC_I64] = "atomicMax(&%s, %s);"},
};

const dc_dialect dc_cuda_dialect = {
    .name = "CUDA C++",
    .suffix = "cu",
    .types = types,
    .prims = prims,
    .boolean_accumulator = "bool",
    .function = "extern \"C\" __global__ void",
    .no_alias = "__restrict__",
    .vectors = "",
    .sums = "",
    .columns = "",
    .in_order = "",
    .bits_f32 = "bits_f32($)",
    .bits_f64 = "bits_f64($)",
    .from_f32 = "from_f32((u32)$)",
    .from_f64 = "from_f64((u64)$)",
    .inf_f32 = "inf_f32()", .inf_f64 = "inf_f64()", .nan_f32 = "nan_f32()", .nan_f64 = "nan_f64()",
    .narrow_index = "i32",
    .atomic = "atomic_update(&%s, [=](%s was) { return %s; });",
    .atomics = atomics,
};

const dc_language dc_cuda_language = {
    .passes = dc_kernel_passes_grid, .dialect = &dc_cuda_dialect, .library = dc_cuda_library, .launches = true};
