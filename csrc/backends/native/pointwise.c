/* Convolutions by windows of one pixel, and their gradients, where the pixels of a channel lie side by side: each image is a
 * matrix of channels by pixels, and a filter a row of another.  Blocks of pixels that stay in the second cache are multiplied
 * by all filters, or by the gradient of the result, where that of filters is wanted.
 *
 * Sums of pixels are added in one order for any number of threads; gradients of filters depend on it in their last bits.
 * It stands in for the library that a convolution is stamped with, where sizes promise that it takes less time. */
#include "backends/native/pointwise.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

enum { MAX_WIDE = 512, MOST_TURNED = 1 << 20 /* numbers of scratch */ };
static const double WORK_FOR_THREADS = 200e3; /* multiplications */

typedef struct {
  const pointwise_routines *routines;
  pointwise_job job;
  dc_problem_conv conv;
  int threads;
  bool by_rows; /* threads share the rows of the sums, else the pixels */
  int64_t units, room, panels, sums; /* room, panels, sums: numbers of scratch, in whole lines */
  double work;
} pointwise_call;

static int64_t in_lines(int64_t n) { return dc_quotient_up(n, POINTWISE_LINE) * POINTWISE_LINE; }

/* ---- binding ---- */

static bool fits(const dc_problem_conv *c) {
  bool fit = dc_problem_conv_agrees(c);
  for (int d = 0; d < c->n; d++) {
    fit &= c->w.dims[2 + d] == 1 && c->strides[d] == 1 && c->left[d] == 0 && c->right[d] == 0;
    fit &= c->x.dims[2 + d] == c->y.dims[2 + d];
  }
  if (!fit || dc_problem_conv_is_empty(c)) return false;
  if (c->bias >= 0 && c->wanted == DC_CONV_W) return false;
  return dc_problem_is_row_major(&c->x) && dc_problem_is_row_major(&c->y) && dc_problem_is_row_major(&c->w);
}

/* Few pixels do not pay for packing filters; an image of less than a vector leaves lanes empty. */
static bool pays(const pointwise_job *job, int lanes) {
  return job->pixels >= 2 * lanes && job->images * job->pixels >= 256;
}

/* Pixels of a unit: a quarter of the second cache holds them where they are packed. */
static int64_t pixels_of_unit(const pointwise_job *job, const dc_machine *machine, int64_t strip) {
  const int64_t cached = machine->l2_bytes / 4 / (int64_t)sizeof(float) / job->depth;
  const int64_t fitting = cached < MAX_WIDE ? cached : MAX_WIDE;
  return fitting < 2 * strip ? 2 * strip : fitting;
}

static void choose_blocks(pointwise_call *call, const dc_machine *machine) {
  pointwise_job *job = &call->job;
  const int64_t strip = 2 * call->routines->lanes;
  int64_t fitting = pixels_of_unit(job, machine, strip);
  const int64_t share = dc_quotient_up(job->images * job->pixels, call->threads); /* so that all threads have some */
  if (fitting > share) fitting = share;
  job->blocks = dc_quotient_up(job->pixels, fitting);
  job->wide = dc_quotient_up(dc_quotient_up(job->pixels, job->blocks), strip) * strip;
  job->blocks = dc_quotient_up(job->pixels, job->wide);
  job->group = call->conv.wanted == DC_CONV_W && job->blocks == 1 && fitting > job->pixels ? fitting / job->pixels : 1;
  call->units = dc_quotient_up(job->images, job->group) * job->blocks;
}

/* Sums of many channels over few pixels would pass through the caches for each unit, and be added up for all threads. */
static void choose_shares(pointwise_call *call, const dc_machine *machine) {
  pointwise_job *job = &call->job;
  const int64_t pixels = job->images * job->pixels, cached = machine->l2_bytes / 4 / (int64_t)sizeof(float);
  const bool fits = pixels * POINTWISE_SUMMED <= cached && pixels * (job->depth + call->routines->lanes) <= MOST_TURNED;
  call->by_rows = call->conv.wanted == DC_CONV_W && fits && 2 * job->rows * job->depth > cached;
  if (!call->by_rows) return;
  const int64_t strip = 2 * call->routines->lanes;
  job->blocks = call->units = 1, job->group = job->images, job->wide = dc_quotient_up(job->pixels, strip) * strip;
}

static void lay_out(pointwise_call *call, const dc_machine *machine) {
  const dc_problem_conv *c = &call->conv;
  pointwise_job *job = &call->job;
  call->threads = (int)dc_thread_count();
  choose_blocks(call, machine);
  choose_shares(call, machine);
  const int64_t shared = call->by_rows ? call->routines->count(job) : call->units;
  if (shared < call->threads) call->threads = (int)shared;
  if (c->wanted == DC_CONV_W) call->sums = in_lines(call->routines->sums(job)), call->room = in_lines(call->routines->turned(job));
  else call->room = in_lines(call->routines->room(job)), call->panels = in_lines(call->routines->panels(job));
  call->work = (double)job->images * (double)job->pixels * (double)job->rows * (double)job->depth;
}

static pointwise_job job_of(const dc_problem_conv *c) {
  const int64_t from = c->x.dims[1], to = c->y.dims[1], images = c->x.dims[0], pixels = dc_problem_elements(&c->x) / images / from;
  const bool sums = c->wanted == DC_CONV_W, turned = sums && from > to, back = c->wanted == DC_CONV_X || turned;
  return (pointwise_job){
      .images = images, .pixels = pixels, .rows = back ? from : to, .depth = back ? to : from, .group = 1, .is_turned = turned};
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  (void)handle;
  *out = NULL;
  if (!dc_problem_is_conv(graph, node) || dc_problem_type(graph, node) != DC_F32 || dc_problem_refuses(graph, node)) return DC_OK;
  const dc_problem_conv c = dc_problem_read_conv(graph, node, symbols);
  const pointwise_routines *routines = pointwise_choose(graph->machine.vector_bytes);
  if (!routines || !fits(&c)) return DC_OK;
  const pointwise_job job = job_of(&c);
  if (!pays(&job, routines->lanes)) return DC_OK;
  pointwise_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  *call = (pointwise_call){.routines = routines, .job = job, .conv = c};
  lay_out(call, &graph->machine);
  *out = call;
  return DC_OK;
}

static uint64_t scratch_of(const void *opaque) {
  const pointwise_call *call = opaque;
  const int64_t parts = call->by_rows ? 1 : call->threads;
  return (uint64_t)(call->panels + call->threads * call->room + parts * call->sums) * sizeof(float);
}

/* ---- running ---- */

static void convolve(const pointwise_call *call, const pointwise_job *job, const float *filters, const float *bias, float *panels) {
  const bool back = call->conv.wanted == DC_CONV_X;
  const int64_t a = back ? 1 : job->depth, b = back ? job->rows : 1;
  float *own = panels + call->panels;
#pragma omp parallel num_threads(call->threads) if (call->work > WORK_FOR_THREADS)
  {
#pragma omp for schedule(static)
    for (int64_t p = 0; p < call->routines->count(job); p++) call->routines->pack(job, filters, a, b, bias, p, panels);
    const int64_t of = omp_get_num_threads(), thread = omp_get_thread_num(), end = call->units * (thread + 1) / of;
    for (int64_t unit = call->units * thread / of; unit < end; unit++)
      call->routines->make(job, unit, unit + 1 < end ? unit + 1 : unit, own + thread * call->room);
  }
}

static pointwise_panels panels_of(const pointwise_call *call, const pointwise_job *job, int64_t part) {
  const int64_t all = call->routines->count(job);
  return (pointwise_panels){all * part / call->threads, all * (part + 1) / call->threads};
}

/* All rows of a part's pixels, or a part's rows of all of them. */
static void add_part(const pointwise_call *call, const pointwise_job *job, int64_t part, float *sums, float *room) {
  const bool by_rows = call->by_rows;
  const pointwise_panels panels = by_rows ? panels_of(call, job, part) : (pointwise_panels){0, call->routines->count(job)};
  const int64_t begin = by_rows ? 0 : call->units * part / call->threads;
  const int64_t end = by_rows ? call->units : call->units * (part + 1) / call->threads;
  const int64_t panel = call->routines->sums(job) / call->routines->count(job);
  memset(sums + panels.first * panel, 0, (size_t)((panels.end - panels.first) * panel) * sizeof *sums);
  for (int64_t unit = begin; unit < end; unit++) call->routines->add(job, unit, unit + 1 < end ? unit + 1 : unit, panels, sums, room);
}

static void sum_up(const pointwise_call *call, const pointwise_job *job, float *filters, float *sums) {
  const int64_t threads = call->threads, parts = call->by_rows ? 1 : threads;
  float *rooms = sums + parts * call->sums;
#pragma omp parallel num_threads(call->threads) if (call->work > WORK_FOR_THREADS)
  {
#pragma omp for schedule(static, 1)
    for (int64_t p = 0; p < threads; p++) add_part(call, job, p, sums + p % parts * call->sums, rooms + p * call->room);
#pragma omp for schedule(static, 1)
    for (int64_t p = 0; p < threads; p++) call->routines->collect(job, sums, parts, call->sums, panels_of(call, job, p), filters);
  }
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const pointwise_call *call = opaque;
  const dc_problem_conv *c = &call->conv;
  pointwise_job job = call->job;
  (void)stream;
  const bool back = c->wanted == DC_CONV_X || job.is_turned;
  job.read = buffers[back ? c->at_y : c->at_x];
  job.given = c->wanted == DC_CONV_W ? buffers[back ? c->at_x : c->at_y] : NULL;
  if (job.given) return sum_up(call, &job, buffers[c->at_w], scratch), DC_OK;
  job.made = buffers[c->wanted == DC_CONV_X ? c->at_x : c->at_y], job.panels = scratch;
  convolve(call, &job, buffers[c->at_w], c->bias >= 0 ? buffers[c->bias] : NULL, scratch);
  return DC_OK;
}

const dc_native_library dc_native_pointwise = {
    .name = "pointwise",
    .stands_in = true,
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
