/* Convolutions whose filters read one channel each, one filter or several for a channel, and their gradients, as routines of our own
 * for the processor at hand: such a convolution is a few multiplications for each number that is read, so that what counts is how
 * often memory and caches are.
 *
 * Threads share planes.  The gradient of weights sums those of planes and bands in the order in which they lie, so that
 * nothing depends on how many threads there are. */
#include "backends/native/depthwise.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/allocator.h"
#include "backends/native/library.h"
#include "backends/native/problem.h"
#include "backends/threads.h"

enum { MAX_STRIDE = DEPTHWISE_PHASES, MAX_REACH = 1 << 12, LINE = DEPTHWISE_LINE, MANY = 4 };
enum { WIDE_FILTER = 25, WIDEST_OF_SEVERAL = 49, WIDEST_OF_A_ROW = 5 }; /* taps */
static const double WORK_FOR_THREADS = 200e3; /* multiplications */
static const double MAX_ROOM = 1 << 28;       /* bytes of a thread */

typedef struct {
  const depthwise_routines *routines;
  depthwise_planes planes;
  dc_problem_conv conv;
  dc_problem_shape made;
  int result, threads;
  bool by_channels;    /* threads share channels, as normalisations do in training; else planes */
  int64_t units, room; /* room: bytes of scratch of a thread */
  double work;
} depthwise_call;

/* ---- what it takes ---- */

static bool known(const dc_graph *graph, dc_cid c, uint32_t d, int64_t *out) {
  return dc_ex_is_int(&graph->pool, dc_cont(graph, c)->shape[d], out);
}

static int64_t int_at(const dc_graph *graph, dc_nid node, const char *name, int at, int64_t fallback) {
  const dc_attr *a = dc_node_attr(graph, node, name);
  return a && a->kind == DC_ATTR_INTS && (int)a->n > at ? a->ints[at] : fallback;
}

/* Images whose gradient sums over several filters are left to others. */
static bool is_depthwise(const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  int64_t filters, each, channels, groups = dc_node_attr_int(graph, node, "group", 1);
  if (!dc_problem_is_conv(graph, node) || dc_problem_type(graph, node) != DC_F32 || dc_problem_refuses(graph, node)) return false;
  if (dc_cont(graph, lib->in[0])->rank > 4) return false;
  if (!known(graph, lib->in[1], 0, &filters) || !known(graph, lib->in[1], 1, &each) || each != 1) return false;
  if (!known(graph, lib->in[0], 1, &channels) || channels != groups || groups < 1 || filters % groups) return false;
  return filters == groups || (lib->wrt != 1 && !dc_problem_op_is(graph, node, "ConvTranspose"));
}

static bool is_row_major(const dc_graph *graph, const dc_library *lib) {
  bool strided = false;
  for (uint32_t k = 0; k < lib->n_in + lib->n_out; k++) {
    dc_cid c = k < lib->n_in ? lib->in[k] : lib->out[k - lib->n_in];
    strided |= c && dc_cont(graph, c)->strides;
  }
  return !strided;
}

/* Several filters for a channel: oneDNN's vectors are of filters, and load a number that is read for each tap. */
static bool has_several(const dc_graph *graph, const dc_library *lib) {
  int64_t filters, channels;
  return known(graph, lib->in[1], 0, &filters) && known(graph, lib->in[0], 1, &channels) && filters > channels;
}

/* Is there another convolution of all channels?  It wants its images channels-last, and what lies before them too. */
static bool has_company(const dc_graph *graph, const dc_library *lib) {
  bool has = false;
  for (dc_nid n = 1; n < graph->nodes.n && !has; n++)
    has = dc_node_at(graph, n)->kind == DC_NODE_LIBRARY && dc_problem_is_conv(graph, n) && dc_node_at(graph, n)->lib.in[1] != lib->in[1] &&
          dc_node_attr_int(graph, n, "group", 1) == 1;
  return has;
}

/* Do filters for one channel fill a vector, and will their images be wanted channels-last? */
static bool goes_channels_last(const dc_graph *graph, const dc_library *lib) {
  int64_t filters, channels, lanes = graph->machine.vector_bytes / (int64_t)sizeof(float);
  if (!known(graph, lib->in[1], 0, &filters) || !known(graph, lib->in[0], 1, &channels)) return false;
  return channels == 1 && filters >= lanes && has_company(graph, lib);
}

/* Where oneDNN, whose vectors are of channels, is as quick or quicker: it has no gradient of wide filters of its own, though. */
static const char *is_better_elsewhere(const dc_graph *graph, dc_nid node, int64_t taps) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const bool turned = dc_problem_op_is(graph, node, "ConvTranspose"), makes_y = lib->wrt == (turned ? 1 : 0);
  const dc_cid y = turned ? lib->in[0] : lib->wrt ? lib->in[lib->n_fwd_in + lib->n_fwd_out] : lib->out[0];
  const uint32_t rank = dc_cont(graph, y)->rank;
  int64_t width, stride = 1;
  if (has_several(graph, lib) && taps > (rank == 3 ? WIDEST_OF_A_ROW : WIDEST_OF_SEVERAL)) return "a wide filter of several for a channel";
  if (goes_channels_last(graph, lib)) return "images that lie channels-last from here on";
  if (lib->wrt == 2 && taps >= WIDE_FILTER) return NULL;
  for (uint32_t d = 0; d + 2 < rank; d++)
    if (int_at(graph, node, "strides", (int)d, 1) > stride) stride = int_at(graph, node, "strides", (int)d, 1);
  if (stride > 2 || (stride == 2 && lib->wrt == 2 && has_several(graph, lib))) return "a stride";
  if (makes_y && rank == 4 && int_at(graph, node, "dilations", 0, 1) > 1) return "rows that lie apart";
  bool narrow = known(graph, y, rank - 1, &width) && width < graph->machine.vector_bytes / (int64_t)sizeof(float);
  return narrow ? "rows of less than a vector" : NULL;
}

/* "": another kind of convolution. */
static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  int64_t taps, all = 1;
  (void)handle;
  if (!is_depthwise(graph, node)) return "";
  if (!is_row_major(graph, lib)) return "an operand that is not row-major";
  for (int d = 0; d + 2 < (int)dc_cont(graph, lib->in[0])->rank; d++) {
    int64_t dilation = int_at(graph, node, "dilations", d, 1), stride = int_at(graph, node, "strides", d, 1);
    if (stride < 1 || stride > MAX_STRIDE) return "a great stride";
    if (!known(graph, lib->in[1], 2 + (uint32_t)d, &taps) || taps > MAX_REACH) return "a wide filter";
    if (dilation < 1 || dilation > MAX_REACH || taps * dilation > MAX_REACH) return "a wide filter";
    all *= taps;
  }
  return is_better_elsewhere(graph, node, all);
}

/* ---- geometry ---- */

bool depthwise_offset(const depthwise_axis *a, int64_t phase, int64_t tap, int64_t *offset) {
  int64_t at = phase + a->left - tap * a->dilation;
  *offset = a->is_turned ? at / a->phases : tap * a->dilation - a->left;
  return !a->is_turned || at % a->phases == 0;
}

/* Where there is one place, steps do not matter. */
static depthwise_axis axis_of(const dc_problem_conv *c, int d) {
  depthwise_axis a = {.made = 1, .read = 1, .taps = 1, .phases = 1, .step = 1, .dilation = 1};
  bool turned = c->wanted == DC_CONV_X;
  if (d >= 0) {
    int64_t y = c->y.dims[2 + d], x = c->x.dims[2 + d], step = turned || y == 1 ? 1 : c->strides[d];
    a = (depthwise_axis){.made = turned ? x : y, .read = turned ? y : x, .taps = c->w.dims[2 + d], .phases = turned ? c->strides[d] : 1,
                         .step = step, .dilation = c->dilations[d], .left = c->left[d], .is_turned = turned};
  }
  int64_t high = INT64_MIN, offset;
  a.low = INT64_MAX;
  for (int64_t p = 0; p < a.phases; p++)
    for (int64_t k = 0; k < a.taps; k++) {
      if (!depthwise_offset(&a, p, k, &offset)) continue;
      if (offset < a.low) a.low = offset;
      if (offset > high) high = offset;
    }
  a.span = (high - a.low) / a.step;
  return a;
}

static int longest(int64_t n) { return n >= DEPTHWISE_RUN ? DEPTHWISE_RUN : n == 6 ? 5 : (int)n; }

/* Taps of one column and one residue of rows, by the row they read; -1: none. */
static int64_t add_runs(depthwise_planes *job, int64_t n, int64_t at, const int64_t *taps, int64_t column) {
  depthwise_group *groups = (depthwise_group *)job->groups;
  for (int64_t row = 0, end; row <= job->y.span; row = end) {
    for (end = row; end <= job->y.span && taps[end] >= 0; end++) continue;
    for (int64_t k = row; k < end; n++) {
      depthwise_group *g = &groups[n];
      *g = (depthwise_group){.at = at + k * job->pitch, .n = longest(end - k)};
      for (int r = 0; r < g->n; r++, k++) g->weight[r] = (int32_t)(taps[k] * job->x.taps + column);
    }
    if (end == row) end++;
  }
  return n;
}

/* Of one residue of rows. */
static int64_t add_column(depthwise_planes *job, int64_t n, int64_t phase, int64_t residue, int64_t offset, int64_t column, int64_t *taps) {
  const depthwise_axis *y = &job->y, *x = &job->x;
  int64_t from = offset - x->low, at, plane = residue * x->step + from % x->step;
  for (int64_t k = 0; k <= y->span; k++) taps[k] = -1;
  for (int64_t k = 0; k < y->taps; k++)
    if (depthwise_offset(y, phase, k, &at) && (at - y->low) % y->step == residue) taps[(at - y->low) / y->step] = k;
  return add_runs(job, n, plane * job->plane_length + from / x->step, taps, column);
}

/* Columns of one residue follow one another: their groups are alike. */
static dc_status make_groups(depthwise_planes *job) {
  const int64_t py = depthwise_phases(&job->y), px = depthwise_phases(&job->x);
  int64_t n = 0, offset, *first = calloc((size_t)(py * px) + 1, sizeof *first), *taps = calloc((size_t)job->y.span + 1, sizeof *taps);
  job->groups = calloc((size_t)(job->y.taps * job->x.taps), sizeof *job->groups), job->first = first;
  if (!job->groups || !first || !taps) {
    free(taps);
    return dc_error(DC_ERR_MEMORY, "out of memory");
  }
  for (int64_t p = 0; p < py * px; p++) {
    first[p] = n;
    for (int64_t residue = 0; residue < job->y.step; residue++)
      for (int64_t k = 0; k < job->x.taps; k++)
        if (depthwise_offset(&job->x, p % px, k, &offset)) n = add_column(job, n, p / px, residue, offset, k, taps);
  }
  first[py * px] = job->n_groups = n;
  free(taps);
  return DC_OK;
}

/* ---- binding ---- */

static void destroy(void *opaque) {
  depthwise_call *call = opaque;
  free((void *)call->planes.groups);
  free((void *)call->planes.first);
  free(call);
}

/* Bands of rows whose spread planes stay in the first cache. */
static dc_status lay_planes(depthwise_call *call, uint32_t l1_bytes) {
  depthwise_planes *job = &call->planes;
  const dc_problem_conv *c = &call->conv;
  const int lanes = call->routines->lanes;
  job->y = axis_of(c, c->n - 2), job->x = axis_of(c, c->n - 1);
  job->planes = c->y.dims[0] * c->y.dims[1], job->channels = c->y.dims[1], job->each = c->x.dims[1] ? c->y.dims[1] / c->x.dims[1] : 1;
  const int64_t columns = (depthwise_places(&job->x, 0) + lanes - 1) / lanes * lanes, rows = depthwise_places(&job->y, 0);
  job->shift = job->x.low < 0 ? (LINE - (job->x.step - 1 - job->x.low) / job->x.step % LINE) % LINE : 0;
  job->pitch = (columns + job->x.span + LINE - 1) / LINE * LINE;
  const int64_t given = c->wanted == DC_CONV_W ? columns : 0; /* lies beside it */
  const int64_t line = (job->y.step * job->x.step * job->pitch + given) * (int64_t)sizeof(float);
  const int64_t fitting = l1_bytes / (given ? 2 : 1) / line - job->y.span;
  job->band = fitting >= rows ? rows : fitting < 2 * DEPTHWISE_ROWS ? 2 * DEPTHWISE_ROWS : fitting / DEPTHWISE_ROWS * DEPTHWISE_ROWS;
  job->bands = (rows + job->band - 1) / job->band;
  job->plane_length = (job->band + job->y.span + DEPTHWISE_ROWS - 1) * job->pitch;
  if ((double)line * (double)(job->band + job->y.span) > MAX_ROOM)
    return dc_error(DC_ERR_UNSUPPORTED, "a row with its padding takes too much memory");
  return make_groups(job);
}

static dc_status prepare(depthwise_call *call, const dc_graph *graph) {
  const dc_problem_conv *c = &call->conv;
  const bool sums = c->wanted == DC_CONV_W;
  DC_TRY(lay_planes(call, graph->machine.l1_bytes));
  static const float some;
  if (sums) call->planes.given = &some;
  call->by_channels = graph->trained && call->planes.channels >= MANY * (int64_t)dc_thread_count();
  call->units = call->planes.planes * call->planes.bands;
  call->room = (int64_t)dc_memory_aligned((uint64_t)call->routines->room(&call->planes));
  call->threads = (int)dc_thread_count();
  if (call->units < call->threads) call->threads = (int)call->units;
  call->work = (double)dc_problem_elements(&c->y) * (double)(c->w.dims[2] * (c->n > 1 ? c->w.dims[3] : 1));
  return DC_OK;
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  depthwise_call *call = calloc(1, sizeof *call);
  (void)handle;
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->conv = dc_problem_read_conv(graph, node, symbols), call->routines = depthwise_choose(graph->machine.vector_bytes);
  call->result = dc_problem_conv_result(&call->conv, &call->made);
  dc_status status = dc_problem_conv_is_empty(&call->conv) ? DC_OK : prepare(call, graph);
  if (status) destroy(call);
  else *out = call;
  return status;
}

static uint64_t scratch_for(const depthwise_call *call, int threads) {
  int64_t parts = call->conv.wanted == DC_CONV_W ? call->units * call->planes.y.taps * call->planes.x.taps : 0;
  return (uint64_t)(call->room * threads + parts * (int64_t)sizeof(float));
}

static uint64_t scratch_of(const void *opaque) {
  const depthwise_call *call = opaque;
  return scratch_for(call, call->threads);
}

static uint64_t part_scratch(const void *opaque) { return scratch_for(opaque, 1); }

/* ---- running ---- */

/* What a thread takes, units [begin, end) of some that are numbered apart: all, or those of some channels of all images. */
typedef struct {
  int64_t begin, end, first, channels; /* first, channels: of an image */
} share;

static share share_of(const depthwise_call *call, int64_t thread, int64_t of) {
  const int64_t all = call->planes.channels, first = all * thread / of, channels = all * (thread + 1) / of - first;
  if (!call->by_channels) return (share){call->units * thread / of, call->units * (thread + 1) / of, 0, all};
  return (share){0, call->units / all * channels, first, channels};
}

static int64_t plane_of(const depthwise_planes *job, const share *s, int64_t unit) {
  const int64_t k = unit / job->bands;
  return k / s->channels * job->channels + s->first + k % s->channels;
}

static void run_share(const depthwise_call *call, const depthwise_planes *job, share s, void *room) {
  const bool sums = job->given;
  const int64_t bands = job->bands;
  memset(room, 0, (size_t)call->room);
  int64_t before = -1; /* the plane that the last unit read */
  for (int64_t unit = s.begin; unit < s.end; unit++) {
    const int64_t plane = plane_of(job, &s, unit), ahead = plane_of(job, &s, unit + bands < s.end ? unit + bands : unit);
    const bool is_open = bands == 1 && plane / job->each == before;
    (sums ? call->routines->sum : call->routines->make)(job, plane * bands + unit % bands, ahead, is_open, room);
    before = plane / job->each;
  }
}

static void run_planes(const depthwise_call *call, const depthwise_planes *job, char *scratch) {
#pragma omp parallel num_threads(call->threads) if (call->work > WORK_FOR_THREADS)
  {
    const int64_t thread = omp_get_thread_num();
    run_share(call, job, share_of(call, thread, omp_get_num_threads()), scratch + thread * call->room);
  }
}

/* Of channels [begin, end), bands and images one after the other. */
static void add_parts(const depthwise_planes *job, int64_t images, int64_t begin, int64_t end) {
  const int64_t taps = job->y.taps * job->x.taps, of_channel = job->bands * taps, of_image = job->channels * of_channel;
  for (int64_t c = begin; c < end; c++)
    for (int64_t k = 0; k < taps; k++) {
      float s = 0;
      for (int64_t n = 0; n < images; n++)
        for (int64_t b = 0; b < job->bands; b++) s += job->parts[n * of_image + c * of_channel + b * taps + k];
      job->made[c * taps + k] = s;
    }
}

static depthwise_planes job_of(const depthwise_call *call, void *const *buffers, char *parts) {
  const dc_problem_conv *c = &call->conv;
  depthwise_planes job = call->planes;
  job.made = buffers[call->result], job.bias = c->bias >= 0 ? buffers[c->bias] : NULL;
  job.read = buffers[c->wanted == DC_CONV_X ? c->at_y : c->at_x];
  job.weights = c->wanted == DC_CONV_W ? NULL : buffers[c->at_w], job.given = c->wanted == DC_CONV_W ? buffers[c->at_y] : NULL;
  job.parts = (float *)parts;
  return job;
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  const depthwise_call *call = opaque;
  const depthwise_planes job = job_of(call, buffers, (char *)scratch + call->room * call->threads);
  (void)stream;
  if (!call->units) {
    const int64_t *dims = call->made.dims, lines = dims[0] * dims[1];
    dc_problem_fill(job.made, job.bias, sizeof(float), dims[0], dims[1], lines ? dc_problem_elements(&call->made) / lines : 0);
    return DC_OK;
  }
  run_planes(call, &job, scratch);
  if (job.given) add_parts(&job, call->conv.x.dims[0], 0, job.channels);
  return DC_OK;
}

static bool divides(const void *opaque, dc_division *out) {
  const depthwise_call *call = opaque;
  const dc_problem_conv *c = &call->conv;
  if (!call->units || call->planes.each != 1) return false;
  out->extent = call->planes.channels;
  out->axes[c->at_x] = out->axes[c->at_y] = 1, out->axes[c->at_w] = 0;
  if (c->bias >= 0) out->axes[c->bias] = 0;
  return true;
}

static void run_part(const void *opaque, void *const *buffers, void *scratch, const int64_t *part) {
  const depthwise_call *call = opaque;
  const depthwise_planes job = job_of(call, buffers, (char *)scratch + call->room);
  const int64_t channels = part[1] - part[0];
  run_share(call, &job, (share){0, call->units / job.channels * channels, part[0], channels}, scratch);
  if (job.given) add_parts(&job, call->conv.x.dims[0], part[0], part[1]);
}

const dc_native_library dc_native_depthwise = {
    .name = "depthwise",
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = destroy,
    .divides = divides,
    .part_scratch = part_scratch,
    .run_part = run_part,
};
