"""The fake GPU itself: kernels written by hand compute what CUDA says, and what is wrong in them is found."""
import ctypes

import numpy as np
import pytest
from simulated import Failed, Gpu

ILLEGAL_ADDRESS, LAUNCH_FAILED = 700, 719

TEXT = r"""
typedef long long i64;
extern "C" __global__ void __launch_bounds__(256) add(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ out, i64 n) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) out[i] = a[i] + __ldg(b + i);
}
static __device__ __forceinline__ float sum_of_warp(float x) {
  for (int k = 16; k; k >>= 1) x += __shfl_xor_sync(0xffffffffu, x, k);
  return x;
}
extern "C" __global__ void row_sums(const float *a, float *out, i64 n) {
  __shared__ float parts[32];
  float x = 0.0f;
  for (i64 i = threadIdx.x; i < n; i += blockDim.x) x += a[blockIdx.x * n + i];
  x = sum_of_warp(x);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x < 32) {
    x = threadIdx.x < (blockDim.x + 31) / 32 ? parts[threadIdx.x] : 0.0f;
    x = sum_of_warp(x);
    if (threadIdx.x == 0) out[blockIdx.x] = x;
  }
}
extern "C" __global__ void reversed(float *a, i64 n) {
  extern __shared__ float row[];
  row[threadIdx.x] = a[blockIdx.x * n + threadIdx.x];
  __syncthreads();
  a[blockIdx.x * n + threadIdx.x] = row[n - 1 - threadIdx.x];
}
extern "C" __global__ void reversed_without_barrier(float *a, i64 n) {
  extern __shared__ float row[];
  row[threadIdx.x] = a[blockIdx.x * n + threadIdx.x];
  a[blockIdx.x * n + threadIdx.x] = row[n - 1 - threadIdx.x];
}
extern "C" __global__ void beyond_shared(float *a) {
  extern __shared__ float row[];
  row[threadIdx.x + 1] = 1.0f;
  a[threadIdx.x] = 1.0f;
}
extern "C" __global__ void lanes(unsigned *ballot, int *up, int *down, int *from, double *far) {
  int t = threadIdx.x;
  ballot[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
  up[t] = __shfl_up_sync(0xffffffffu, t, 2);
  down[t] = __shfl_down_sync(0xffffffffu, t, 3, 8);
  from[t] = __shfl_sync(0xffffffffu, t, 5);
  far[t] = __shfl_xor_sync(0xffffffffu, (double)t, 1);
}
extern "C" __global__ void histogram(const i64 *keys, int *counts, float *sums, unsigned long long *most, i64 n) {
  i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(counts + keys[i], 1);
  atomicAdd(sums + keys[i], 0.5f);
  atomicMax(most, (unsigned long long)keys[i]);
}
extern "C" __global__ void copy4(const float4 *a, float4 *out) { out[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void places(int *out) {
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = (int)(1000 * block + thread);
}
extern "C" __global__ void half_a_barrier(int *out) {
  if (threadIdx.x < 16) __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = 1;
}
extern "C" __global__ void half_a_warp(int *out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  else __syncthreads();
}
extern "C" __global__ void early(int *out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = __syncthreads_count(threadIdx.x % 2);
}
extern "C" __global__ void races(int *out) { *out = (int)threadIdx.x; }
"""


@pytest.fixture
def card(fake):
    with Gpu(fake) as device:
        device.kernel = device.module(TEXT)
        yield device


def _fails(card, code):
    """What is wrong with the kernels that were launched."""
    with pytest.raises(Failed) as error:
        card.call("cuCtxSynchronize")
    assert error.value.code == code
    return card.fake.fault()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_grid_covers_its_threads_once(card, seed):
    card.fake.set(SEED=seed)
    a, b = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    out = card.take(4000)
    card.launch(card.kernel("add"), 3, 128, card.put(a), card.put(b), out, 1000)
    np.testing.assert_array_equal(card.get(out, 1000, np.float32), a + b)
    places = card.take(4 * 24 * 24)
    card.launch(card.kernel("places"), (2, 3, 4), (4, 3, 2), places)
    np.testing.assert_array_equal(card.get(places, (24, 24), np.int32), 1000 * np.arange(24)[:, None] + np.arange(24))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("threads", [32, 96, 256])
def test_shuffles_and_barriers_make_sums_of_rows(card, seed, threads):
    card.fake.set(SEED=seed)
    a = np.random.default_rng(0).integers(0, 9, (5, 777)).astype(np.float32)
    out = card.take(20)
    card.launch(card.kernel("row_sums"), 5, threads, card.put(a), out, 777)
    np.testing.assert_array_equal(card.get(out, 5, np.float32), a.sum(1))


def test_shared_memory_of_a_size_that_the_launch_says(card):
    a = np.arange(300, dtype=np.float32).reshape(3, 100)
    memory = card.put(a)
    card.launch(card.kernel("reversed"), 3, 100, memory, 100, shared=400)
    np.testing.assert_array_equal(card.get(memory, (3, 100), np.float32), a[:, ::-1])


def test_a_missing_barrier_shows(card):
    a = np.arange(300, dtype=np.float32).reshape(3, 100)
    memory = card.put(a)
    card.launch(card.kernel("reversed_without_barrier"), 3, 100, memory, 100, shared=400)
    assert not np.array_equal(card.get(memory, (3, 100), np.float32), a[:, ::-1])


def test_a_race_shows_as_another_result_with_another_seed(card):
    found = set()
    for seed in range(4):
        card.fake.set(SEED=seed)
        out = card.take(4)
        card.launch(card.kernel("races"), 1, 64, out)
        found.add(int(card.get(out, (), np.int32)))
    assert len(found) > 1


def test_lanes_of_a_warp_see_each_other(card):
    ballot, up, down, source, far = (card.take(32 * 8) for _ in range(5))
    card.launch(card.kernel("lanes"), 1, 32, ballot, up, down, source, far)
    t = np.arange(32)
    assert (card.get(ballot, 32, np.uint32) == sum(1 << k for k in range(0, 32, 3))).all()
    np.testing.assert_array_equal(card.get(up, 32, np.int32), np.where(t < 2, t, t - 2))
    np.testing.assert_array_equal(card.get(down, 32, np.int32), np.where(t % 8 < 5, t + 3, t))
    np.testing.assert_array_equal(card.get(source, 32, np.int32), np.full(32, 5))
    np.testing.assert_array_equal(card.get(far, 32, np.float64), t ^ 1)


def test_atomics_count_all(card):
    keys = np.random.default_rng(1).integers(0, 7, 500)
    counts, sums, most = card.put(np.zeros(7, np.int32)), card.put(np.zeros(7, np.float32)), card.put(np.zeros(1, np.uint64))
    card.launch(card.kernel("histogram"), 4, 128, card.put(keys), counts, sums, most, 500)
    np.testing.assert_array_equal(card.get(counts, 7, np.int32), np.bincount(keys, minlength=7))
    np.testing.assert_array_equal(card.get(sums, 7, np.float32), np.bincount(keys, minlength=7) / 2)
    assert card.get(most, (), np.uint64) == keys.max()


def test_threads_that_have_ended_are_not_waited_for(card):
    out = card.put(np.zeros(64, np.int32))
    card.launch(card.kernel("early"), 1, 64, out)
    np.testing.assert_array_equal(card.get(out, 64, np.int32), np.where(np.arange(64) < 40, 20, 0))


@pytest.mark.parametrize("kernel, why", [("half_a_barrier", "different barriers"), ("half_a_warp", "waits for ever")])
def test_threads_that_never_meet_are_named(card, kernel, why):
    card.launch(card.kernel(kernel), 1, 32, card.take(128))
    assert why in _fails(card, LAUNCH_FAILED)


def test_a_write_beyond_an_allocation_is_found(card):
    card.launch(card.kernel("places"), 1, 101, card.put(np.zeros(100, np.float32)))
    assert "beyond the end of an allocation of 400 bytes" in _fails(card, ILLEGAL_ADDRESS)
    with pytest.raises(Failed):  # as on a GPU, the device is lost
        card.take(4)


def test_an_access_far_beyond_an_allocation_is_found(card):
    a = card.put(np.zeros(100, np.float32))
    card.launch(card.kernel("add"), 8, 256, a, a, a, 2000)
    assert "of an allocation of 400 bytes of device 0, that lives" in _fails(card, ILLEGAL_ADDRESS)


def test_a_write_beyond_shared_memory_is_found(card):
    card.launch(card.kernel("beyond_shared"), 1, 32, card.take(128), shared=128)
    assert "beyond the 128 bytes of shared memory" in _fails(card, LAUNCH_FAILED)


def test_memory_that_was_freed_is_not_there(card):
    memory = card.take(400, pooled=True)
    card.call("cuMemFreeAsync", memory, None)
    card.launch(card.kernel("add"), 1, 32, memory, memory, memory, 100)
    assert "that was freed" in _fails(card, ILLEGAL_ADDRESS)


def test_new_memory_and_shared_memory_hold_no_numbers(card):
    out = card.take(16)
    assert np.isnan(card.get(out, 4, np.float32)).all()


def test_misaligned_vectors_are_found(card):
    a, out = card.put(np.zeros(64, np.float32)), card.take(256)
    card.launch(card.kernel("copy4"), 1, 8, ctypes.c_uint64(a.value + 4), out)
    assert "touched" in _fails(card, ILLEGAL_ADDRESS)


def test_memory_of_another_device_is_out_of_reach(fake):
    fake.set(DEVICES=2)
    with Gpu(fake) as first, Gpu(fake, 1) as second:
        memory = second.put(np.ones(100, np.float32))
        first.call("cuCtxPushCurrent_v2", *[_context(first, 0)])
        kernel = first.module(TEXT)("add")
        first.launch(kernel, 1, 32, memory, memory, memory, 100)
        assert "of device 1" in _fails(first, ILLEGAL_ADDRESS)
        first.call("cuCtxPopCurrent_v2", None)


def _context(card, ordinal):
    context = ctypes.c_void_p()
    card.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
    card.call("cuDevicePrimaryCtxRelease_v2", ordinal)
    return context


@pytest.mark.parametrize("blocks, threads, shared", [(0, 32, 0), (1, 0, 0), (1, 1025, 0), ((1, 65536), 1, 0), (1, 257, 0), (1, 32, 50000)])
def test_launches_that_no_device_takes_are_refused(card, blocks, threads, shared):
    a = card.put(np.zeros(4, np.float32))
    with pytest.raises(Failed) as error:
        card.launch(card.kernel("add"), blocks, threads, a, a, a, 0, shared=shared)
    assert error.value.code == 1


def test_a_text_that_does_not_compile_has_a_log_with_its_lines(card):
    with pytest.raises(Failed, match=r"by_hand.cu:2") as error:
        card.compiled("\nextern \"C\" __global__ void wrong() { nothing(); }\n")
    assert error.value.code == 6


def test_an_unknown_option_and_another_architecture_are_refused(card):
    with pytest.raises(Failed) as error:
        card.compiled(TEXT, "--no-such-option")
    assert error.value.code == 5
    image = card.compiled("")
    card.fake.set(ARCH=80)
    with pytest.raises(Failed) as error:
        card.call("cuModuleLoadData", ctypes.byref(ctypes.c_void_p()), image)
    assert error.value.code == 209
