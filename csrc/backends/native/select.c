/* Selection: the greatest or least elements of each line in order (TopK, and sorting, where all of them are asked for), or where the
 * last of them is.
 *
 * Elements become whole numbers that compare as they do, so that one form serves all types: few of a line are kept in
 * a heap, many are found and sorted by their bytes.  Equal elements keep their order; NaN counts as greatest. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/library.h"

typedef struct {
  uint64_t key;
  int64_t at;
} entry;

typedef struct {
  dc_dtype type;
  bool largest;
  int values, indices; /* buffers; -1: not wanted */
  bool alone; /* only where the last one is */
  int64_t outer, n, inner, k;
  int64_t step; /* between the elements of a line, where it is read */
  int threads, parts; /* lines at once; pieces of one line at once */
} selection;

enum { BESIDE = 16 /* lines that a line of cache holds elements of, which are read together */ };
enum { FEW = 16 /* of a line that is longer by this factor, a heap */, SHORT = 32 /* lines that are ranked */, DIGITS = 256, PARTS = 32 };
static const double WORK_FOR_THREADS = 20e3; /* elements */

/* Runs the call for each piece [from, to) of n elements; of one piece without a region, which costs more than a short line. */
#define EACH_PART(call)                                                                                  \
  if (parts == 1) {                                                                                      \
    const int64_t part = 0, from = 0, to = n;                                                            \
    (void)part, call;                                                                                    \
  } else {                                                                                               \
    _Pragma("omp parallel for num_threads(parts)") for (int part = 0; part < parts; part++) {            \
      const int64_t from = n * part / parts, to = n * (part + 1) / parts;                                \
      call;                                                                                              \
    }                                                                                                    \
  }

/* ---- keys ---- */

/* What a line's elements became: keys less the least one, of so many bytes.  Those of up to 32 bits share a number with their places. */
typedef struct {
  bool wide;
  int bytes;
  uint64_t least;
} key_form;

/* Have keys of so many bytes no room for their places? */
static bool is_wide(int bytes, int64_t n) { return bytes > 4 || n > UINT32_MAX; }

/* Of whole numbers of 64 bits, which often differ in few of them. */
static key_form form_of_whole(const selection *s, const void *line) {
  const uint64_t turn = (s->type == DC_I64 ? 1ull << 63 : 0) ^ (s->largest ? UINT64_MAX : 0), *from = line;
  uint64_t least = UINT64_MAX, most = 0;
  for (int64_t k = 0; k < s->n; k++) {
    const uint64_t key = from[k * s->step] ^ turn;
    least = key < least ? key : least, most = key > most ? key : most;
  }
  int bytes = 1;
  while (bytes < 8 && (most - least) >> 8 * bytes) bytes++;
  return (key_form){is_wide(bytes, s->n), bytes, least};
}

static key_form form_of(const selection *s, const void *line) {
  const int size = dc_dtype_bytes(s->type);
  const bool whole = s->type == DC_I64 || s->type == DC_U64;
  return whole && s->n ? form_of_whole(s, line) : (key_form){is_wide(size, s->n), size, 0};
}

/* Elements through e, which makes a number x of this type another that compares as the element does. */
#define READ(type, e)                                                                    \
  {                                                                                      \
    const type all = (type)~(type)0, sign = (type)(all ^ all >> 1), turn = s->largest ? all : 0, least = (type)form.least; \
    const type *x_of = line;                                                             \
    (void)sign;                                                                          \
    _Pragma("omp simd") for (int64_t k = from; k < to; k++) {                            \
      const type x = x_of[k * s->step], key = (type)(((e) ^ turn) - least);              \
      if (form.wide) ((entry *)out)[k] = (entry){key, k};                                \
      else ((uint64_t *)out)[k] = (uint64_t)key << 32 | (uint64_t)k;                     \
    }                                                                                    \
    return;                                                                              \
  }
/* Zeros are one number, and so are the NaNs. */
#define FLOAT(infinity) ((x & ~sign) > (infinity) ? all : (x & ~sign) ^ ((x & sign) && x != sign ? all >> 1 : sign))

/* In the lowest bits of the type's size: the least key is the first element of the result. */
static void read_keys(const selection *s, key_form form, const void *line, int64_t from, int64_t to, void *out) {
  switch (s->type) {
    case DC_F16: READ(uint16_t, FLOAT(0x7c00))
    case DC_BF16: READ(uint16_t, FLOAT(0x7f80))
    case DC_F32: READ(uint32_t, FLOAT(0x7f800000))
    case DC_F64: READ(uint64_t, FLOAT(0x7ff0000000000000))
    case DC_U8: READ(uint8_t, x)
    case DC_U16: READ(uint16_t, x)
    case DC_U32: READ(uint32_t, x)
    case DC_U64: READ(uint64_t, x)
    case DC_I8: READ(uint8_t, x ^ sign)
    case DC_I16: READ(uint16_t, x ^ sign)
    case DC_I32: READ(uint32_t, x ^ sign)
    default: READ(uint64_t, x ^ sign)
  }
}

/* ---- lines ---- */

typedef int64_t counts[DIGITS];

/* Have all the digit? */
static bool are_same(const counts *count, int parts, uint64_t digit, int64_t n) {
  int64_t same = 0;
  for (int p = 0; p < parts; p++) same += count[p][digit];
  return same == n;
}

/* Where each piece's elements of a digit go. */
static void begin_each(counts *at, int parts) {
  int64_t sum = 0;
  for (int d = 0; d < DIGITS; d++)
    for (int p = 0; p < parts; p++) {
      const int64_t count = at[p][d];
      at[p][d] = sum, sum += count;
    }
}

#define COPY(type)                                                                                                                \
  {                                                                                                                               \
    for (int64_t k = from; k < to; k++) ((type *)y)[k * s->inner] = ((const type *)x)[PLACE(v[k]) * s->step];                     \
    return;                                                                                                                       \
  }

#define ENTRY uint64_t
#define NAME(x) narrow_##x
#define BEFORE(a, b) ((a) < (b))
#define DIGIT(v, b) ((v) >> (32 + 8 * (b)) & 255)
#define PLACE(v) ((int64_t)((v) & UINT32_MAX))
#include "backends/native/select_order.h"

#define ENTRY entry
#define NAME(x) wide_##x
#define BEFORE(a, b) ((a).key != (b).key ? (a).key < (b).key : (a).at < (b).at)
#define DIGIT(v, b) ((v).key >> 8 * (b) & 255)
#define PLACE(v) ((v).at)
#include "backends/native/select_order.h"

static uint64_t line_bytes(const selection *s) {
  return 2 * (uint64_t)s->n * (is_wide(dc_dtype_bytes(s->type), s->n) ? sizeof(entry) : sizeof(uint64_t));
}

/* Elements from one turned line to the next: not of a power of two, so that they do not push each other out of the first cache. */
static int64_t turned_step(const selection *s) { return s->n + BESIDE; }

static uint64_t own_bytes(const selection *s) {
  return line_bytes(s) + (s->step != s->inner ? BESIDE * (uint64_t)turned_step(s) * (uint64_t)dc_dtype_bytes(s->type) : 0);
}

#define TURN(type)                                                                           \
  {                                                                                          \
    for (int64_t k = 0; k < s->n; k++)                                                       \
      for (int64_t j = 0; j < lines; j++) ((type *)to)[j * step + k] = ((const type *)x)[k * s->inner + j]; \
    return;                                                                                  \
  }

/* Lines that lie side by side, one behind the other. */
static void turn(const selection *s, const void *x, int64_t lines, void *to) {
  const int64_t step = turned_step(s);
  switch (dc_dtype_bytes(s->type)) {
    case 1: TURN(uint8_t)
    case 2: TURN(uint16_t)
    case 4: TURN(uint32_t)
    default: TURN(uint64_t)
  }
}

static void select_line(const selection *s, void *const *buffers, const void *x, int64_t at, void *scratch) {
  const key_form form = form_of(s, x);
  const int parts = s->parts;
  const int64_t n = s->n;
  EACH_PART(read_keys(s, form, x, from, to, scratch))
  (form.wide ? wide_select_line : narrow_select_line)(s, buffers, x, at, form.bytes, scratch);
}

/* Of neighbouring lines. */
static void select_lines(const selection *s, void *const *buffers, int64_t line, int64_t lines, char *scratch) {
  const int64_t a = line / s->inner, b = line % s->inner, size = dc_dtype_bytes(s->type);
  const char *x = (const char *)buffers[0] + (a * s->n * s->inner + b) * size;
  char *turned = scratch + line_bytes(s);
  const bool turns = s->step != s->inner;
  if (turns) turn(s, x, lines, turned);
  for (int64_t j = 0; j < lines; j++) {
    const void *from = turns ? turned + j * turned_step(s) * size : x;
    select_line(s, buffers, from, a * (s->alone ? 1 : s->k) * s->inner + b + j, scratch);
  }
}

static void select_share(const selection *s, void *const *buffers, int64_t line, int64_t end, char *scratch) {
  for (int64_t n; line < end; line += n) {
    n = s->step == s->inner ? 1 : s->inner - line % s->inner < BESIDE ? s->inner - line % s->inner : BESIDE;
    n = n < end - line ? n : end - line;
    select_lines(s, buffers, line, n, scratch);
  }
}

static dc_status run_call(void *opaque, void *const *buffers, void *scratch, void *stream) {
  (void)stream;
  selection this_one = *(const selection *)opaque, *s = &this_one;
  if (s->alone) s->k = *(const int64_t *)buffers[1];
  if (s->alone && (s->k < 1 || s->k > s->n))
    return dc_error(DC_ERR_VALUE, "element %lld of %lld in order", (long long)s->k, (long long)s->n);
  if (s->k == 0) return DC_OK;
  const int64_t n = s->outer * s->inner;
  const uint64_t own = own_bytes(s);
  const bool small = omp_in_parallel() || (double)n * (double)s->n < WORK_FOR_THREADS;
  if (small) s->parts = 1;
  const int parts = small ? 1 : s->threads;
  EACH_PART(select_share(s, buffers, from, to, (char *)scratch + (uint64_t)part * own))
  return DC_OK;
}

/* ---- binding ---- */

static const char *refuses(void *handle, const dc_graph *graph, dc_nid node) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_dtype type = (dc_dtype)dc_cont(graph, lib->in[0])->dtype;
  bool whole = type == DC_I8 || type == DC_I16 || type == DC_I32 || type == DC_I64 || type == DC_U8 || type == DC_U16 || type == DC_U32 ||
               type == DC_U64;
  (void)handle;
  const char *op = dc_name_text(&graph->names, lib->op);
  if (lib->wrt || (strcmp(op, "TopK") != 0 && strcmp(op, "PlaceOfKth") != 0)) return "not a selection";
  return whole || type == DC_F16 || type == DC_BF16 || type == DC_F32 || type == DC_F64 ? NULL : "a type of other than 8 to 64 bits";
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const dc_container *x = dc_cont(graph, lib->in[0]);
  const int64_t axis = dc_node_attr_int(graph, node, "axis", -1);
  const uint32_t at = (uint32_t)(axis < 0 ? axis + x->rank : axis);
  selection *s = calloc(1, sizeof *s);
  (void)handle;
  if (!s) return dc_error(DC_ERR_MEMORY, "out of memory");
  *s = (selection){.type = (dc_dtype)x->dtype, .largest = dc_node_attr_int(graph, node, "largest", 1) != 0, .values = -1, .indices = -1, .outer = 1, .inner = 1};
  for (uint32_t d = 0; d < x->rank; d++) {
    int64_t extent = dc_ix_eval(&graph->pool, x->shape[d], symbols, NULL);
    *(d < at ? &s->outer : d == at ? &s->n : &s->inner) *= d == at ? 1 : extent;
    if (d == at) s->n = extent;
  }
  s->alone = strcmp(dc_name_text(&graph->names, lib->op), "PlaceOfKth") == 0;
  s->step = s->alone ? 1 : s->inner; /* where lines are put in order, reading them is the least of it */
  if (s->alone) s->largest = false, s->indices = (int)lib->n_in;
  for (uint32_t k = 0; k < lib->n_out && !s->alone; k++) {
    if (!lib->out[k]) continue;
    *(k ? &s->indices : &s->values) = (int)(lib->n_in + k);
    s->k = dc_ix_eval(&graph->pool, dc_cont(graph, lib->out[k])->shape[at], symbols, NULL);
  }
  const int64_t lines = s->outer * s->inner, most = omp_get_max_threads();
  s->threads = (int)(lines < 1 ? 1 : lines < most ? lines : most);
  s->parts = (int)(lines > 1 ? 1 : most < PARTS ? most : PARTS);
  if (s->k > s->n) {
    dc_status status = dc_error(DC_ERR_SHAPE, "TopK of %lld of %lld elements", (long long)s->k, (long long)s->n);
    free(s);
    return status;
  }
  *out = s;
  return DC_OK;
}

static uint64_t scratch_of(const void *call) { return (uint64_t)((const selection *)call)->threads * own_bytes(call); }

const dc_native_library dc_native_select = {
    .name = "select",
    .open = dc_native_open_own,
    .close = dc_native_close_own,
    .refuses = refuses,
    .bind = bind_call,
    .scratch = scratch_of,
    .run = run_call,
    .destroy = free,
};
