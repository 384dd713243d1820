/* CUDA as a row of the targets. */
#include "backends/cuda/dialect.h"
#include "backends/cuda/device.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/natives.h"
#include "backends/cuda/record.h"
#include "backends/cuda/toolchain.h"

static dc_status enter(const dc_target *target, bool *entered) { return dc_gpu_enter(target->gpu, entered); }
static void leave(const dc_target *target, bool entered) { dc_gpu_leave(target->gpu, entered); }

/* What was put on any stream may still read what is about to go. */
static void wait_for_all(const dc_target *target) { (void)target->gpu->driver.cuCtxSynchronize(); }

static uint32_t modes(const dc_target *target) { return __atomic_load_n(target->gpu->modes, __ATOMIC_RELAXED); }

static const dc_device_row gpu = {
    .enter = enter,
    .leave = leave,
    .bind = dc_launch_bind,
    .complaint = dc_launch_complaint,
    .wait = wait_for_all,
    .forget = dc_launch_forget,
    .record = dc_record_begin,
    .recorded = dc_record_end,
    .start = dc_record_start,
    .drop = dc_record_drop,
    .may_record = dc_record_allowed,
    .mark = dc_record_mark,
    .between = dc_record_between,
};

static const dc_native_library *const gpu_libraries[] = {&dc_native_cudnn, &dc_native_cublas, NULL};

const dc_target_row dc_target_cuda = {
    .name = "cuda",
    .natives = gpu_libraries,
    .modes = modes,
    .language = &dc_cuda_language,
    .toolchain = &dc_nvrtc_toolchain,
    .device = &gpu,
    .prepare = dc_launch_prepare,
};
