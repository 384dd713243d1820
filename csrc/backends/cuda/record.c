/* See record.h. */
#include "backends/cuda/record.h"

#include "backends/cuda/device.h"

/* A stream of our own records: the caller's may be the default one, which cannot, and other threads use it. */
dc_status dc_record_begin(const dc_target *target, void **stream) {
  dc_gpu *gpu = target->gpu;
  const dc_driver *d = &gpu->driver;
  pthread_mutex_lock(&gpu->recording);
  CUresult failed = gpu->recorder ? 0 : d->cuStreamCreate(&gpu->recorder, CU_STREAM_NON_BLOCKING);
  if (!failed) failed = d->cuStreamBeginCapture_v2(gpu->recorder, CU_CAPTURE_RELAXED);
  if (failed) pthread_mutex_unlock(&gpu->recording);
  return *stream = gpu->recorder, dc_driver_status(d, failed, "a run cannot be recorded on cuda:%d", gpu->ordinal);
}

dc_status dc_record_end(const dc_target *target, void *stream, bool failed, void **recording) {
  dc_gpu *gpu = target->gpu;
  const dc_driver *d = &gpu->driver;
  CUgraph graph = NULL;
  CUgraphExec made = NULL;
  CUresult result = d->cuStreamEndCapture(stream, &graph);
  pthread_mutex_unlock(&gpu->recording);
  if (!result && !failed) result = d->cuGraphInstantiateWithFlags(&made, graph, 0);
  if (graph) (void)d->cuGraphDestroy(graph);
  *recording = result ? NULL : made;
  return dc_driver_status(d, result, "a run was not recorded on cuda:%d", gpu->ordinal);
}

dc_status dc_record_start(const dc_target *target, void *recording, void *stream) {
  const dc_gpu *gpu = target->gpu;
  CUresult failed = gpu->driver.cuGraphLaunch(recording, stream);
  return failed ? dc_driver_status(&gpu->driver, failed, "a recorded run cannot be started on cuda:%d", gpu->ordinal) : DC_OK;
}

void dc_record_drop(const dc_target *target, void *recording) { (void)target->gpu->driver.cuGraphExecDestroy(recording); }

bool dc_record_allowed(const dc_target *target, void *stream) {
  int recording = 0;
  return target->gpu->records && target->gpu->driver.cuStreamIsCapturing(stream, &recording) == 0 && !recording;
}

/* ---- times ---- */

void *dc_record_mark(const dc_target *target, void *stream) {
  const dc_driver *d = &target->gpu->driver;
  CUevent event = NULL;
  if (d->cuEventCreate(&event, CU_EVENT_DEFAULT)) return NULL;
  if (d->cuEventRecord(event, stream) == 0) return event;
  (void)d->cuEventDestroy_v2(event);
  return NULL;
}

double dc_record_between(const dc_target *target, void *from, void *to) {
  const dc_driver *d = &target->gpu->driver;
  float milliseconds = 0;
  bool known = from && to && d->cuEventSynchronize(to) == 0 && d->cuEventElapsedTime(&milliseconds, from, to) == 0;
  if (from) (void)d->cuEventDestroy_v2(from);
  if (to) (void)d->cuEventDestroy_v2(to);
  return known ? (double)milliseconds * 1e6 : 0;
}
