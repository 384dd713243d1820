/* Streams, events and graphs: work that runs at once, or, with FAKE_CUDA_LAZY, not before somebody waits for it. */
#include "driver.h"

#include <cstring>
#include <ctime>
#include <pthread.h>
#include <set>

namespace {

std::set<Stream *> streams; /* with work, or alive */
std::vector<Stream *> defaults;

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

bool can_run(const Stream *s) {
  if (s->queue.empty()) return false;
  for (auto &dependency : s->queue.front().after)
    if (dependency.first->done < dependency.second) return false;
  return true;
}

void run_first(Stream *s) {
  Op op = std::move(s->queue.front());
  s->queue.pop_front();
  if (!s->context->error) {
    int error = op.run();
    if (error) s->context->error = error;
  }
  s->done++;
}

/* What must come first for this stream to go on. */
void run_needed(Stream *s) {
  for (auto &dependency : s->queue.front().after)
    if (dependency.first->done < dependency.second) return run_needed(dependency.first);
  run_first(s);
}

void run_any() {
  std::vector<Stream *> able;
  for (Stream *s : streams)
    if (can_run(s)) able.push_back(s);
  if (!able.empty()) run_first(able[draw() % able.size()]);
}

void run_until(Stream *s, uint64_t index) {
  bool only_needed = draw() & 1; /* others far behind, or anywhere */
  while (s->done < index) only_needed ? run_needed(s) : run_any();
}

Stream *new_stream(Context *context, bool blocking) {
  Stream *s = new Stream();
  s->context = context, s->blocking = blocking;
  streams.insert(s);
  return s;
}

Stream *default_stream(int device) {
  if ((int)defaults.size() <= device) defaults.resize((size_t)device + 1);
  if (!defaults[(size_t)device]) {
    defaults[(size_t)device] = new_stream(context_of(device), true);
    defaults[(size_t)device]->alive = true;
  }
  return defaults[(size_t)device];
}

bool is_default(const Stream *s) {
  for (Stream *d : defaults)
    if (d == s) return true;
  return false;
}

} // namespace

Stream *stream_of(void *handle) {
  if ((uintptr_t)handle <= 2) return default_stream(current()->device);
  if (!is_alive(handle, Handle::STREAM) || ((Stream *)handle)->context != current()) return nullptr;
  return (Stream *)handle;
}

bool any_capture() {
  for (Stream *s : streams)
    if (s->capture && (s->capture->mode == 0 || (s->capture->mode == 1 && s->capture->thread == (uint64_t)pthread_self()))) return true;
  return false;
}

void break_captures() {
  for (Stream *s : streams)
    if (s->capture) s->capture->broken = true;
}

int submit(Stream *s, Op op) {
  if (s->capture) return s->capture->ops.push_back(std::move(op)), s->capture->broken ? CAPTURE_INVALIDATED : SUCCESS;
  if (s->blocking) { /* the default stream waits for the others, and they for it */
    if (is_default(s)) {
      for (Stream *other : streams)
        if (other->blocking && other->context == s->context) {
          if (other->capture) return break_captures(), CAPTURE_IMPLICIT;
          if (other != s) op.after.emplace_back(other, other->issued);
        }
    } else {
      Stream *first = default_stream(s->context->device);
      op.after.emplace_back(first, first->issued);
    }
  }
  s->queue.push_back(std::move(op));
  s->issued++;
  if (!is_lazy()) finish_all(-1);
  return SUCCESS;
}

int finish(Stream *s) {
  run_until(s, s->issued);
  return s->context->error;
}

int finish_all(int device) {
  for (;;) {
    std::vector<Stream *> left;
    for (Stream *s : streams)
      if (!s->queue.empty() && (device < 0 || s->context->device == device)) left.push_back(s);
    if (left.empty()) break;
    finish(left[draw() % left.size()]);
  }
  return device < 0 ? 0 : context_of(device)->error;
}

bool advance() {
  for (Stream *s : streams)
    if (!s->queue.empty()) return run_any(), true;
  return false;
}

API int cuStreamCreate(void **out, unsigned flags) {
  CALL(CONTEXT);
  Stream *s = new_stream(current(), !(flags & 1));
  *out = enter_handle(s, Handle::STREAM);
  return call.note("flags=%u stream=%p", flags, *out).done(SUCCESS);
}
API int cuStreamCreateWithPriority(void **out, unsigned flags, int) { return cuStreamCreate(out, flags); }

API int cuStreamDestroy_v2(void *stream) {
  CALL(CONTEXT);
  call.note("stream=%p", stream);
  if (!is_alive(stream, Handle::STREAM)) return call.done(INVALID_HANDLE);
  ((Stream *)stream)->alive = false; /* its work ends all the same */
  return call.done(SUCCESS);
}

API int cuStreamSynchronize(void *stream) {
  CALL(CONTEXT);
  call.note("stream=%p", stream);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  if (any_capture() || s->capture) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  return call.done(finish(s));
}

API int cuStreamQuery(void *stream) {
  CALL(CONTEXT);
  call.note("stream=%p", stream);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  if (any_capture()) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  advance();
  return call.done(s->context->error ? s->context->error : s->queue.empty() ? SUCCESS : NOT_READY);
}

API int cuStreamWaitEvent(void *stream, void *event, unsigned) {
  CALL(CONTEXT);
  call.note("stream=%p event=%p", stream, event);
  Stream *s = stream_of(stream);
  if (!s || !is_alive(event, Handle::EVENT)) return call.done(INVALID_HANDLE);
  Event *e = (Event *)event;
  if (e->capture) return s->capture = e->capture, call.done(SUCCESS);
  if (!e->recorded) return call.done(SUCCESS);
  Op op = {"wait", [] { return 0; }, {{e->stream, e->index}}};
  return call.done(submit(s, std::move(op)));
}

API int cuStreamGetPriority(void *, int *out) { return *out = 0, SUCCESS; }
API int cuStreamGetCtx(void *stream, void **out) {
  CALL(CONTEXT);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  return *out = s->context, call.done(SUCCESS);
}

API int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
  CALL(CONTEXT);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  return call.done(submit(s, {"host", [=] { return function(data), 0; }, {}}));
}

/* ---- events ---- */

API int cuEventCreate(void **out, unsigned flags) {
  CALL(CONTEXT);
  Event *e = new Event();
  e->context = current(), e->timed = !(flags & 2);
  *out = enter_handle(e, Handle::EVENT);
  return call.note("flags=%u event=%p", flags, *out).done(SUCCESS);
}

API int cuEventDestroy_v2(void *event) {
  CALL(CONTEXT);
  call.note("event=%p", event);
  if (!is_alive(event, Handle::EVENT)) return call.done(INVALID_HANDLE);
  ((Event *)event)->alive = false;
  return call.done(SUCCESS);
}

API int cuEventRecord(void *event, void *stream) {
  CALL(CONTEXT);
  call.note("event=%p stream=%p", event, stream);
  Stream *s = stream_of(stream);
  Event *e = (Event *)event;
  if (!s || !is_alive(event, Handle::EVENT) || e->context != s->context) return call.done(INVALID_HANDLE);
  if (s->capture) return e->capture = s->capture, call.done(SUCCESS);
  e->capture = nullptr, e->recorded = true, e->stream = s, e->index = s->issued + 1;
  return call.done(submit(s, {"record", [e] { return e->time = now(), 0; }, {}}));
}

API int cuEventQuery(void *event) {
  CALL(CONTEXT);
  Event *e = (Event *)event;
  if (!is_alive(event, Handle::EVENT)) return call.done(INVALID_HANDLE);
  if (e->capture) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  advance();
  return call.done(e->context->error ? e->context->error : !e->recorded || e->stream->done >= e->index ? SUCCESS : NOT_READY);
}

API int cuEventSynchronize(void *event) {
  CALL(CONTEXT);
  call.note("event=%p", event);
  Event *e = (Event *)event;
  if (!is_alive(event, Handle::EVENT)) return call.done(INVALID_HANDLE);
  if (e->capture) return break_captures(), call.done(CAPTURE_UNSUPPORTED);
  if (e->recorded) run_until(e->stream, e->index);
  return call.done(e->context->error);
}

API int cuEventElapsedTime_v2(float *out, void *from, void *to) {
  CALL(CONTEXT);
  if (!is_alive(from, Handle::EVENT) || !is_alive(to, Handle::EVENT)) return call.done(INVALID_HANDLE);
  Event *a = (Event *)from, *b = (Event *)to;
  if (!a->timed || !b->timed || !a->recorded || !b->recorded) return call.done(INVALID_HANDLE);
  if (a->stream->done < a->index || b->stream->done < b->index) return call.done(NOT_READY);
  *out = (float)(b->time - a->time);
  return call.done(SUCCESS);
}
API int cuEventElapsedTime(float *out, void *from, void *to) { return cuEventElapsedTime_v2(out, from, to); }

/* ---- capture and graphs ---- */

API int cuStreamBeginCapture_v2(void *stream, int mode) {
  CALL(CONTEXT);
  call.note("stream=%p mode=%d", stream, mode);
  Stream *s = stream_of(stream);
  if (!s || is_default(s)) return call.done(s ? CAPTURE_UNSUPPORTED : INVALID_HANDLE);
  if (s->capture) return call.done(INVALID_VALUE);
  s->capture = new Graph(), s->captures = true;
  s->capture->mode = mode, s->capture->thread = (uint64_t)pthread_self();
  return call.done(SUCCESS);
}

API int cuStreamEndCapture(void *stream, void **out) {
  CALL(CONTEXT);
  call.note("stream=%p", stream);
  Stream *s = stream_of(stream);
  *out = nullptr;
  if (!s) return call.done(INVALID_HANDLE);
  if (!s->capture || !s->captures) return call.done(s->capture ? CAPTURE_UNMATCHED : INVALID_VALUE);
  Graph *graph = s->capture;
  for (Stream *other : streams)
    if (other->capture == graph) other->capture = nullptr, other->captures = false;
  if (graph->broken) return call.done(CAPTURE_INVALIDATED);
  GraphHandle *h = new GraphHandle();
  h->graph = *graph;
  *out = enter_handle(h, Handle::GRAPH);
  return call.note("nodes=%zu", graph->ops.size()).done(SUCCESS);
}

API int cuStreamIsCapturing(void *stream, int *out) {
  CALL(CONTEXT);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  *out = !s->capture ? 0 : s->capture->broken ? 2 : 1;
  return call.done(SUCCESS);
}

API int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void **graph, const void ***dependencies, size_t *n) {
  CALL(CONTEXT);
  Stream *s = stream_of(stream);
  if (!s) return call.done(INVALID_HANDLE);
  *status = !s->capture ? 0 : s->capture->broken ? 2 : 1;
  if (id) *id = (uint64_t)(uintptr_t)s->capture;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (n) *n = 0;
  return call.done(SUCCESS);
}

static int instantiate(void **out, void *graph, Call &call) {
  if (!is_alive(graph, Handle::GRAPH)) return call.done(INVALID_HANDLE);
  GraphHandle *h = new GraphHandle();
  h->graph = ((GraphHandle *)graph)->graph;
  *out = enter_handle(h, Handle::EXEC);
  return call.note("exec=%p", *out).done(SUCCESS);
}
API int cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long) {
  CALL(CONTEXT);
  return instantiate(out, graph, call);
}
API int cuGraphInstantiate_v2(void **out, void *graph, void **, char *, size_t) {
  CALL(CONTEXT);
  return instantiate(out, graph, call);
}
API int cuGraphInstantiate(void **out, void *graph, unsigned long long) {
  CALL(CONTEXT);
  return instantiate(out, graph, call);
}

struct UpdateInfo {
  int result;
  void *node, *from;
};
API int cuGraphExecUpdate_v2(void *exec, void *graph, UpdateInfo *info) {
  CALL(CONTEXT);
  call.note("exec=%p", exec);
  if (!is_alive(exec, Handle::EXEC) || !is_alive(graph, Handle::GRAPH)) return call.done(INVALID_HANDLE);
  Graph *old = &((GraphHandle *)exec)->graph, *fresh = &((GraphHandle *)graph)->graph;
  memset(info, 0, sizeof *info);
  bool alike = old->ops.size() == fresh->ops.size();
  for (size_t k = 0; alike && k < old->ops.size(); k++)
    alike = old->ops[k].what.substr(0, old->ops[k].what.find(' ')) == fresh->ops[k].what.substr(0, fresh->ops[k].what.find(' '));
  if (!alike) return info->result = 2, call.done(UPDATE_FAILURE); /* its topology has changed */
  *old = *fresh;
  return call.done(SUCCESS);
}

API int cuGraphLaunch(void *exec, void *stream) {
  CALL(CONTEXT);
  call.note("exec=%p stream=%p", exec, stream);
  Stream *s = stream_of(stream);
  if (!s || !is_alive(exec, Handle::EXEC)) return call.done(INVALID_HANDLE);
  std::vector<Op> ops = ((GraphHandle *)exec)->graph.ops;
  return call.done(submit(s, {"graph", [ops] {
    for (const Op &op : ops)
      if (int error = op.run()) return error;
    return 0;
  }, {}}));
}

API int cuGraphDestroy(void *graph) {
  CALL(DRIVER);
  if (!is_alive(graph, Handle::GRAPH)) return call.done(INVALID_HANDLE);
  ((Handle *)graph)->alive = false;
  return call.note("graph=%p", graph).done(SUCCESS);
}
API int cuGraphExecDestroy(void *exec) {
  CALL(DRIVER);
  if (!is_alive(exec, Handle::EXEC)) return call.done(INVALID_HANDLE);
  ((Handle *)exec)->alive = false;
  return call.note("exec=%p", exec).done(SUCCESS);
}
API int cuGraphGetNodes(void *graph, void **, size_t *n) {
  CALL(DRIVER);
  if (!is_alive(graph, Handle::GRAPH)) return call.done(INVALID_HANDLE);
  return *n = ((GraphHandle *)graph)->graph.ops.size(), call.done(SUCCESS);
}
API int cuGraphUpload(void *, void *) { return SUCCESS; }
API int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, SUCCESS; }
