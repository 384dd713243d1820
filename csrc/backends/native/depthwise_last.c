/* Gradients of filters that read one channel each, where channels lie side by side: as many of their sums as fill registers are
 * taken at once, for a vector of channels.
 *
 * Parts of all bands are summed up apart and then added in their order.  How many there are depends on the sizes alone, so that
 * threads do not change a bit of the result.  It stands in for the library that a convolution is stamped with. */
#include "backends/native/depthwise_last.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

enum { MOST_PARTS = 64, LINE = 16 /* numbers of a line of cache */, TASKS = 4 /* of a thread */ };
static const double WORK_FOR_THREADS = 200e3; /* multiplications */
static const int64_t MOST_TAPS = 1 << 12;

typedef struct {
  const depthwise_last_routines *routines;
  depthwise_last_job job;
  dc_problem_conv conv;
  int threads;
  int64_t vectors, groups; /* of channels; groups of them that are tasks of their own */
  int64_t parts, sums, room; /* sums, room: numbers of a part, and of a thread */
  double work;
} last_call;

/* ---- binding ---- */

static bool fits(const dc_problem_conv *c) {
  const bool sums = c->wanted == DC_CONV_W && c->n <= 2 && c->groups == c->x.dims[1] && c->y.dims[1] == c->groups && c->groups > 1;
  if (!sums || c->x.dims[0] != c->y.dims[0] || c->w.dims[0] != c->groups || c->w.dims[1] != 1) return false;
  if (dc_problem_conv_is_empty(c)) return false;
  bool fit = dc_problem_is_last(&c->x) && dc_problem_is_last(&c->y) && dc_problem_is_row_major(&c->w);
  for (int d = 0; d < c->n; d++) fit &= c->left[d] >= 0 && c->w.dims[2 + d] * c->dilations[d] <= MOST_TAPS;
  return fit && !dc_problem_is_row_major(&c->x);
}

static depthwise_last_axis axis_of(const dc_problem_conv *c, int d) {
  if (d < 0) return (depthwise_last_axis){1, 1, 1, 1, 1, 0};
  return (depthwise_last_axis){c->x.dims[2 + d], c->y.dims[2 + d], c->w.dims[2 + d], c->strides[d], c->dilations[d], c->left[d]};
}

static int64_t read_by(const depthwise_last_axis *a, int64_t given) { return (given - 1) * a->step + (a->taps - 1) * a->dilation + 1; }

/* A band, as a thread keeps it, is a quarter of the second cache. */
static void lay_out(last_call *call, const dc_machine *machine) {
  const dc_problem_conv *c = &call->conv;
  depthwise_last_job *job = &call->job;
  *job = (depthwise_last_job){.y = axis_of(c, c->n - 2), .x = axis_of(c, c->n - 1), .images = c->x.dims[0], .channels = c->groups};
  job->columns = read_by(&job->x, job->x.given);
  const int64_t lanes = call->routines->lanes, line = job->columns * lanes * (int64_t)sizeof(float);
  const int64_t lines = machine->l2_bytes / 4 / line - (job->y.taps - 1) * job->y.dilation, fitting = lines / job->y.step;
  job->band = fitting < 1 ? 1 : fitting < job->y.given ? fitting : job->y.given;
  job->bands = dc_quotient_up(job->y.given, job->band);
  job->rows = read_by(&job->y, job->band);
  const int64_t all = job->images * job->bands;
  call->vectors = dc_quotient_up(job->channels, lanes), call->parts = all < MOST_PARTS ? all : MOST_PARTS;
  call->sums = call->vectors * job->y.taps * job->x.taps * lanes;
  call->room = dc_quotient_up(call->routines->room(job), LINE) * LINE;
  call->threads = (int)dc_thread_count();
  call->groups = dc_quotient_up(TASKS * call->threads, call->parts);
  if (call->groups > call->vectors) call->groups = call->vectors;
  if (call->groups * call->parts < call->threads) call->threads = (int)(call->groups * call->parts);
  call->work = (double)dc_problem_elements(&c->y) * (double)(job->y.taps * job->x.taps);
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  (void)handle;
  *out = NULL;
  if (!dc_problem_is_conv(graph, node) || dc_problem_type(graph, node) != DC_F32 || dc_problem_refuses(graph, node)) return DC_OK;
  const dc_problem_conv c = dc_problem_read_conv(graph, node, symbols);
  const depthwise_last_routines *routines = depthwise_last_choose(graph->machine.vector_bytes);
  if (!routines || !fits(&c)) return DC_OK;
  last_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  *call = (last_call){.routines = routines, .conv = c};
  lay_out(call, &graph->machine);
  *out = call;
  return DC_OK;
}

static uint64_t scratch_of(const void *opaque) {
  const last_call *call = opaque;
  return (uint64_t)(call->threads * call->room + call->parts * call->sums) * sizeof(float);
}

/* ---- running ---- */

/* A group of vectors for the bands of one part, each of which stays in a cache meanwhile. */
static void add_task(const last_call *call, const depthwise_last_job *job, int64_t task, float *sums, float *room) {
  const int64_t part = task / call->groups, group = task % call->groups, bands = job->images * job->bands;
  const int64_t first = call->vectors * group / call->groups, end = call->vectors * (group + 1) / call->groups;
  const int64_t taps = job->y.taps * job->x.taps * call->routines->lanes;
  float *own = sums + part * call->sums;
  memset(own + first * taps, 0, (size_t)((end - first) * taps) * sizeof *own);
  for (int64_t b = bands * part / call->parts; b < bands * (part + 1) / call->parts; b++)
    for (int64_t v = first; v < end; v++) call->routines->add(job, b, v, own + v * taps, room);
}

static void collect(const last_call *call, int64_t channel, const float *sums, float *made) {
  const int64_t lanes = call->routines->lanes, taps = call->job.y.taps * call->job.x.taps;
  const float *from = sums + channel / lanes * taps * lanes + channel % lanes;
  for (int64_t t = 0; t < taps; t++) {
    float sum = 0;
    for (int64_t p = 0; p < call->parts; p++) sum += from[p * call->sums + t * lanes];
    made[channel * taps + t] = sum;
  }
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const last_call *call = opaque;
  const dc_problem_conv *c = &call->conv;
  depthwise_last_job job = call->job;
  float *sums = scratch, *rooms = sums + call->parts * call->sums, *made = buffers[c->at_w];
  (void)stream;
  job.read = buffers[c->at_x], job.given = buffers[c->at_y];
#pragma omp parallel num_threads(call->threads) if (call->work > WORK_FOR_THREADS)
  {
#pragma omp for schedule(static)
    for (int64_t task = 0; task < call->parts * call->groups; task++)
      add_task(call, &job, task, sums, rooms + omp_get_thread_num() * call->room);
#pragma omp for schedule(static)
    for (int64_t channel = 0; channel < job.channels; channel++) collect(call, channel, sums, made);
  }
  return DC_OK;
}

const dc_native_library dc_native_depthwise_last = {
    .name = "depthwise_last",
    .stands_in = true,
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
