/* See machine.h. */
#include "base/machine.h"

#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { LOCAL_PART = 64 }; /* an element for so many bytes of the L1 */

const dc_machine dc_machine_typical = {
    .vector_bytes = 32,
    .l1_bytes = 32 << 10,
    .l2_bytes = 1 << 20,
    .local_elements = (32 << 10) / LOCAL_PART,
    .few_tasks = 8,
    .serial_work = 1 << 15,
    .block_rows = 8,
    .few_rows = 8,
    .unrolled_trips = 16,
    .unrolled_residues = 4,
    .image_multiplications = 24, /* inverted bottlenecks, with 13 to 20, lose; filters of 7 x 7 for each channel, with 24, gain */
    .short_stride = 4,
    .store_ns = 0.4,
    .cached_ns = 0.2,
    .strip_lanes = 64,
    .long_strip_lanes = 256,
    .few_iterations = 16,
    .sum_lanes = 64,
    .accumulator_bytes = 1024,
    .tile_rows = 16,
    .tile_columns = 8,
    .product_rows = 128,
    .product_columns = 192,
    .tile_bytes = 64,
    .task_iterations = 256,
    .tiny_iterations = 2000,
    .serial_ns = 16000,
    .iteration_ns = 1,
    .store_add_ns = 0.2,
    .accumulate_ns = 0.05,
    .collision_ns = 1,
    .multiply_ns = 0.01,
};

const dc_machine dc_machine_cuda_typical = {
    .vector_bytes = 16, /* that a thread loads at once */
    .l1_bytes = 228 << 10,
    .l2_bytes = 50 << 20,
    .local_elements = 16, /* what registers hold beside the rest */
    .few_tasks = 132, /* teams of threads run rows */
    .serial_work = 1 << 10,
    .block_rows = 8,
    .few_rows = 8,
    .unrolled_trips = 16,
    .unrolled_residues = 4,
    .image_multiplications = 24, /* inverted bottlenecks, with 13 to 20, lose; filters of 7 x 7 for each channel, with 24, gain */
    .short_stride = 4,
    .store_ns = 1,    /* arithmetic is cheap beside memory: eight functions or so ... */
    .cached_ns = 0.8, /* ... and a function or two, where a cache holds it */
    .strip_lanes = 64,
    .long_strip_lanes = 256,
    .few_iterations = 16,
    .sum_lanes = 64,
    .accumulator_bytes = 1024,
    .tile_rows = 16,
    .tile_columns = 64,
    .product_rows = 128,
    .product_columns = 96,
    .task_iterations = 256,
    .tiny_iterations = 2000,
    .serial_ns = 60000,
    .iteration_ns = 1,
    .store_add_ns = 0.2,
    .accumulate_ns = 0.05,
    .collision_ns = 1,
    .multiply_ns = 0.01,
    .multiprocessors = 132,
    .teams = 528,
    .team_threads = 1024,
    .team_columns = 32,
    .wide_columns = 128,
    .row_elements = 1 << 12,
    .thread_terms = 32,
};

static uint32_t vector_bytes(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") ? 64 : __builtin_cpu_supports("avx") ? 32 : 16;
#else
  return 16;
#endif
}

uint32_t dc_machine_built_vectors(uint32_t most) {
#if defined(__x86_64__)
  if (most >= 64 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return 64;
  if (most >= 32 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 32;
#endif
  (void)most;
  return 0;
}

bool dc_machine_is_intel(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

/* Intel's processors take four times as long for a vector of pairs as for one of f32, which has half the terms. */
dc_bf16_way dc_machine_bf16_way(void) {
#if defined(__x86_64__)
  uint32_t a, b, c, d, tiles = 1u << 22, pairs = 1u << 5;
  if (dc_machine_built_vectors(64) < 64 || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
    return DC_BF16_AS_F32;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tiles)) return DC_BF16_IN_TILES;
  if (!dc_machine_is_intel() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & pairs)) return DC_BF16_IN_PAIRS;
#endif
  return DC_BF16_AS_F32;
}

/* What the system says, down to a power of two; `otherwise` where it says nothing or nothing sensible. */
static uint32_t cache_bytes(int which, uint32_t least, uint32_t most, uint32_t otherwise) {
  long found = sysconf(which);
  if (found < (long)least || found > (long)most) return otherwise;
  uint32_t bytes = least;
  while (2 * (long)bytes <= found) bytes *= 2;
  return bytes;
}

void dc_machine_read(dc_machine *out) {
  *out = dc_machine_typical;
  out->vector_bytes = vector_bytes();
  out->tile_bytes = (out->vector_bytes == 32 ? 2 : 3) * out->vector_bytes; /* as the library of kernels has them */
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  out->l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 16 << 10, 256 << 10, out->l1_bytes);
  out->l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 128 << 10, 16 << 20, out->l2_bytes);
#endif
  out->local_elements = out->l1_bytes / LOCAL_PART;
}
