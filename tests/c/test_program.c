/* Programs: memory plans, bindings, and runs on the interpreter, on compiled kernels and in threads. */
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

#include "backends/cpu/c.h"
#include "backends/target.h"
#include "check.h"
#include "dcml.h"

enum { MAX_CONTAINERS = 16, THREADS = 4 };
static dc_jit *jit;

static dc_program *make(const char *text, dc_backend_kind backend) {
  dc_graph *g = NULL;
  dc_program *p = NULL;
  dc_target target = {.jit = jit, .backend = backend};
  CHECK_OK(dc_graph_parse(text, &g));
  if (!g) exit(check_report());
  CHECK_OK(dc_program_create(&target, g, &p));
  return p;
}

static dc_binding *bind(dc_program *p, int64_t n) {
  int64_t symbols[4] = {0, n, n, n};
  dc_binding *b = NULL;
  CHECK_OK(dc_program_bind(p, symbols, NULL, &b));
  return b;
}

static dc_cid find(const dc_program *p, const char *name) { return dc_container_find(dc_program_graph(p), name); }

/* ---- plans ---- */

static const char chain[] =
    "graph chain { symbol n >= 0 input X: f32[n] temp A: f32[n] temp B: f32[n] temp C: f32[n] temp Y: f32[n] outputs Y state s {"
    " map i in 0:n { A[i] = X[i] + 1.0f } map i in 0:n { B[i] = A[i] * 2.0f } map i in 0:n { C[i] = B[i] + 1.0f }"
    " map i in 0:n { Y[i] = C[i] * 2.0f } } }";

static void temporaries_share_memory_when_their_lives_do_not_meet(void) {
  dc_program *p = make(chain, DC_BACKEND_INTERP);
  dc_binding *b = bind(p, 1024);
  CHECK(dc_binding_bytes(b, find(p, "A")) == 4096);
  CHECK(dc_binding_arena_bytes(b) == 2 * 4096); /* of A, B and C two live at a time; X and Y are the caller's */
  CHECK(dc_binding_work(b) == 4 * 1024);
  dc_binding_release(b);
  dc_program_destroy(p);
}

/* A, B and C of four parts each and D of five, of which two neighbours live at a time.  By size D takes the bottom, then A does and B
 * lies on it, so that C would lie on top of all, at 8. */
static const char crowded[] =
    "graph crowded { symbol n >= 0 input X: f32[n] temp A: f32[n, 4] temp B: f32[n, 4] temp C: f32[n, 4] temp D: f32[n, 5] temp Y: f32[n]"
    " outputs Y state s { map i in 0:n, k in 0:4 { A[i, k] = X[i] } map i in 0:n, k in 0:4 { B[i, k] = A[i, 0] }"
    " map i in 0:n, k in 0:4 { C[i, k] = B[i, 0] } map i in 0:n, k in 0:5 { D[i, k] = C[i, 0] } map i in 0:n { Y[i] = D[i, 0] } } }";

static void what_lives_in_a_crowd_is_placed_first(void) {
  const uint64_t part = 32 << 20;
  dc_program *p = make(crowded, DC_BACKEND_INTERP);
  dc_binding *b = bind(p, (int64_t)part / 4);
  CHECK(dc_binding_arena_bytes(b) == 9 * part);
  dc_binding_release(b);
  dc_program_destroy(p);
}

/* A and B are the backward's, S and T values that a forward has saved in a block of 8192 bytes. */
static const char lent_text[] =
    "graph back { input X: f32[1024] saved S: f32[1024] saved T: f32[1024] temp A: f32[1024] temp B: f32[1024]"
    " temp Y: f32[1024] outputs Y state s { map i in 0:1024 { A[i] = X[i] * S[i] } map i in 0:1024 { B[i] = A[1023 - i] + T[i] }"
    " map i in 0:1024 { Y[i] = B[1023 - i] + 1.0f } } }";

static void what_is_read_for_the_last_time_makes_room(void) {
  static float x[1024], block[2048], kept[2048], y[1024], again[1024];
  dc_program *p = make(lent_text, DC_BACKEND_INTERP);
  struct dc_lent_value at[] = {{find(p, "S"), 0}, {find(p, "T"), 4096}};
  dc_lent lent = {8192, 2, at}, other = {4096, 1, at};
  dc_binding *b = NULL, *c = NULL;
  int64_t symbols[] = {0};
  uint64_t offset;
  void *buffers[MAX_CONTAINERS] = {NULL};
  for (int i = 0; i < 2048; i++) x[i / 2] = (float)i, block[i] = kept[i] = (float)(3 * i);
  CHECK_OK(dc_program_bind(p, symbols, &lent, &b));
  CHECK_OK(dc_program_bind(p, symbols, &other, &c));
  CHECK(c != b && dc_binding_arena_bytes(b) == 4096); /* A: S is still read when it is written */
  CHECK(dc_binding_place(b, find(p, "A"), &offset) == DC_PLACE_ARENA);
  CHECK(dc_binding_place(b, find(p, "B"), &offset) == DC_PLACE_LENT && offset == 0);
  buffers[find(p, "X")] = x, buffers[find(p, "S")] = block, buffers[find(p, "T")] = block + 1024, buffers[find(p, "Y")] = y;
  CHECK_OK(dc_program_run(p, b, NULL, buffers, NULL));
  CHECK(!memcmp(block, kept, sizeof block) && y[0] == x[0] * kept[0] + kept[2047] + 1);
  buffers[find(p, "Y")] = again;
  CHECK_OK(dc_program_run(p, b, NULL, buffers, block));
  CHECK(memcmp(block, kept, sizeof block / 2) && !memcmp(y, again, sizeof y));
  dc_binding_release(b), dc_binding_release(c);
  dc_program_destroy(p);
}

/* Threads share an array's elements in order: B lies where A did, around its middle. */
static void halves_lie_in_halves(void) {
  dc_program *p = make("graph g { symbol n >= 0 input X: f32[n, 4, 4] temp A: f32[n, 4, 4] temp B: f32[n, 2, 4] temp C: f32[n, 4, 4] temp Y: f32[n]"
                       " outputs Y state s { map i in 0:n, j in 0:4, k in 0:4 { A[i, j, k] = X[i, j, k] + 1.0f }"
                       " map i in 0:n, j in 0:4, k in 0:4 { C[i, j, k] = A[i, k, j] }"
                       " map i in 0:n, j in 0:2, k in 0:4 { B[i, j, k] = C[i, 2 * j, k] }"
                       " map i in 0:n { Y[i] = B[i, 1, 3] + C[i, 0, 0] } } }", DC_BACKEND_INTERP);
  dc_binding *b = bind(p, 1 << 14), *small = bind(p, 16);
  uint64_t a, h, s;
  CHECK(dc_binding_place(b, find(p, "A"), &a) == DC_PLACE_ARENA && dc_binding_place(b, find(p, "B"), &h) == DC_PLACE_ARENA);
  CHECK(h == a + dc_binding_bytes(b, find(p, "A")) / 4); /* around its middle */
  CHECK(dc_binding_arena_bytes(b) == 2 * dc_binding_bytes(b, find(p, "A")));
  CHECK(dc_binding_place(small, find(p, "A"), &a) == DC_PLACE_ARENA && dc_binding_place(small, find(p, "B"), &s) == DC_PLACE_ARENA);
  CHECK(s == a); /* nobody shares so few */
  dc_binding_release(b), dc_binding_release(small);
  dc_program_destroy(p);
}

static void what_is_saved_later_leaves_room_until_then(void) {
  static float x[1024], y[1024], saved[1024];
  dc_program *p = make("graph g { input X: f32[1024] temp A: f32[1024] saved S: f32[1024] temp B: f32[1024] temp Y: f32[1024] outputs Y"
                       " state s { map i in 0:1024 { A[i] = X[i] + 1.0f } map i in 0:1024 { B[i] = A[1023 - i] }"
                       " map i in 0:1024 { S[i] = B[1023 - i] * 2.0f }"
                       " map i in 0:1024 { Y[i] = S[1023 - i] } } }", DC_BACKEND_INTERP);
  int64_t symbols[] = {0};
  uint64_t offset;
  dc_binding *b = NULL;
  void *buffers[MAX_CONTAINERS] = {NULL};
  for (int i = 0; i < 1024; i++) x[i] = (float)i;
  CHECK_OK(dc_program_bind(p, symbols, NULL, &b));
  CHECK(dc_binding_saved_bytes(b) == 4096 && dc_binding_arena_bytes(b) == 4096); /* of A and B one lies where S will */
  CHECK(dc_binding_place(b, find(p, "S"), &offset) == DC_PLACE_SAVED);
  buffers[find(p, "X")] = x, buffers[find(p, "Y")] = y;
  CHECK_OK(dc_program_run(p, b, NULL, buffers, saved));
  CHECK(saved[5] == 2 * (x[5] + 1) && y[0] == saved[1023]);
  dc_binding_release(b);
  dc_program_destroy(p);
}

static void sizes_that_cannot_be_are_errors(void) {
  dc_binding *b;
  int64_t symbols[] = {0, -3}, huge[] = {0, (int64_t)1 << 39};
  dc_program *p = make(chain, DC_BACKEND_INTERP);
  CHECK_ERROR(dc_program_bind(p, symbols, NULL, &b), DC_ERR_SHAPE, "'X': dimension 0 is -3");
  CHECK_ERROR(dc_program_bind(p, huge, NULL, &b), DC_ERR_MEMORY, "memory are available");
  huge[1] = INT64_MAX / 2;
  CHECK_ERROR(dc_program_bind(p, huge, NULL, &b), DC_ERR_MEMORY, "'X' is too large");
  b = bind(p, 5); /* and the program still works */
  dc_binding_release(b);
  dc_program_destroy(p);
}

static void a_binding_is_kept_for_its_sizes(void) {
  dc_program *p = make(chain, DC_BACKEND_INTERP);
  dc_binding *five = bind(p, 5), *six = bind(p, 6);
  CHECK(five != six && bind(p, 5) == five);
  dc_binding_release(five);
  for (int64_t n = 10; n < 300; n++) dc_binding_release(bind(p, n)); /* `five` and `six` are in use, so they stay */
  CHECK(bind(p, 5) == five && bind(p, 6) == six);
  for (int k = 0; k < 2; k++) dc_binding_release(five), dc_binding_release(six);
  dc_program_destroy(p);
}

/* ---- runs ---- */

static dc_status run(dc_program *p, int64_t n, const float *x, float *y, void *saved) {
  void *buffers[MAX_CONTAINERS] = {NULL};
  int64_t symbols[] = {0, n};
  dc_binding *b;
  DC_TRY(dc_program_bind(p, symbols, NULL, &b));
  if (find(p, "X")) buffers[find(p, "X")] = (void *)(uintptr_t)x;
  buffers[find(p, "Y")] = y;
  dc_status status = dc_program_run(p, b, NULL, buffers, saved);
  dc_binding_release(b);
  return status;
}

static bool runs_chain(dc_program *p, int64_t n) {
  float *x = malloc((size_t)(n + 1) * sizeof *x), *y = malloc((size_t)(n + 1) * sizeof *y);
  for (int64_t k = 0; k < n; k++) x[k] = (float)(k % 17), y[k] = -1;
  dc_status status = run(p, n, x, y, NULL);
  bool good = !status;
  for (int64_t k = 0; k < n; k++) good &= y[k] == ((x[k] + 1) * 2 + 1) * 2;
  dc_status_free(status);
  free(x), free(y);
  return good;
}

static void every_backend_computes_the_same(void) {
  for (dc_backend_kind backend = DC_BACKEND_AUTO; backend <= DC_BACKEND_CPU; backend++) {
    dc_program *p = make(chain, backend);
    for (int64_t n = 0; n < 40; n += 3) CHECK(runs_chain(p, n)); /* AUTO begins with the interpreter and then compiles */
    CHECK(runs_chain(p, 100000));
    dc_program_destroy(p);
  }
}

static void constants_are_the_programs_own(void) {
  float y[2] = {0};
  dc_program *p = make("graph g { const W: f32[2] = {3, 4} temp Y: f32[2] outputs Y state s { map i in 0:2 { Y[i] = W[i] } } }", DC_BACKEND_INTERP);
  CHECK_OK(run(p, 0, NULL, y, NULL));
  CHECK(y[0] == 3 && y[1] == 4);
  dc_program_destroy(p);
}

static void saved_values_lie_in_the_callers_block(void) {
  dc_program *p = make("graph g { input X: f32[3] saved S: f32[3] saved T: f32[3] temp Y: f32[3] outputs Y state s {"
                       " map i in 0:3 { S[i] = X[i] * X[i] T[i] = X[i] + 1.0f Y[i] = S[i] + T[i] } } }", DC_BACKEND_INTERP);
  dc_binding *b = bind(p, 0);
  uint64_t bytes = dc_binding_saved_bytes(b), s = dc_binding_saved_offset(b, find(p, "S")), t = dc_binding_saved_offset(b, find(p, "T"));
  CHECK(bytes >= 24 && s != t && s + 12 <= bytes && t + 12 <= bytes && (s + 12 <= t || t + 12 <= s));
  float x[] = {1, 2, 3}, y[3];
  char *saved = calloc(1, bytes);
  CHECK_OK(run(p, 0, x, y, saved));
  CHECK(((float *)(saved + s))[2] == 9 && ((float *)(saved + t))[2] == 4 && y[2] == 13);
  free(saved);
  dc_binding_release(b);
  dc_program_destroy(p);
}

static void an_index_out_of_range_ends_the_run_with_an_error(void) {
  for (dc_backend_kind backend = DC_BACKEND_INTERP; backend <= DC_BACKEND_CPU; backend++) {
    dc_program *p = make("graph g { input X: f32[4] const I: i64[2] = {1, 4} temp Y: f32[2] outputs Y state s { map i in 0:2 { Y[i] = X[I[i]] } } }", backend);
    float x[] = {1, 2, 3, 4}, y[2];
    CHECK_ERROR(run(p, 0, x, y, NULL), DC_ERR_VALUE, "out of range");
    dc_program_destroy(p);
  }
}

static void a_run_goes_on_where_it_stopped(void) {
  dc_program *p = make("graph g { input X: f32[2] temp Y: f32[2] temp Z: f32[2] outputs Y, Z state s { map i in 0:2 { Y[i] = X[i] + 1.0f } map i in 0:2 { Z[i] = X[i] * Y[i] } } }",
                       DC_BACKEND_INTERP);
  float x[] = {1, 2}, y[2] = {0}, z[2] = {0};
  void *buffers[MAX_CONTAINERS] = {NULL};
  buffers[find(p, "X")] = x, buffers[find(p, "Y")] = y;
  dc_binding *b = bind(p, 0);
  dc_run run;
  CHECK_OK(dc_run_begin(p, b, NULL, NULL, &run));
  dc_run_place(&run, buffers);
  CHECK_OK(dc_run_until(&run, 1));
  CHECK(y[0] == 2 && y[1] == 3 && z[0] == 0);
  buffers[find(p, "Z")] = z; /* needed from here on */
  dc_run_place(&run, buffers);
  CHECK_OK(dc_run_until(&run, 2));
  CHECK(z[0] == 2 && z[1] == 6);
  dc_run_end(&run);
  dc_binding_release(b);
  dc_program_destroy(p);
}

/* ---- targets ---- */

static void a_target_is_chosen_once(void) {
  dc_target with = {.jit = jit}, without = {.backend = DC_BACKEND_CPU}, asked = {.jit = jit, .backend = DC_BACKEND_INTERP};
  CHECK(dc_target_choose(&with, false) == &dc_target_interpreter);
  CHECK(dc_target_choose(&with, true) == (dc_jit_available(jit, NULL) ? &dc_target_cpu : &dc_target_interpreter));
  CHECK(dc_target_choose(&without, true) == &dc_target_interpreter);
  CHECK(dc_target_choose(&asked, true) == &dc_target_interpreter);
}

static void a_machine_is_described_within_reason(void) {
  dc_machine m;
  dc_target_cpu.machine(&m);
  CHECK(m.vector_bytes >= 16 && m.vector_bytes <= 64 && m.l1_bytes >= 16 << 10 && m.l2_bytes >= m.l1_bytes);
  CHECK(m.local_elements * sizeof(float) < m.l1_bytes / 4 && m.block_rows == dc_machine_typical.block_rows);
}

/* A program owns the copy: the source may move on. */
static void constants_that_kernels_cannot_read_in_place_are_copied(void) {
  _Alignas(16) char data[40] = {0};
  float value[] = {3, 4}, y[2] = {0};
  memcpy(data + 4, value, sizeof value);
  dc_graph *g = NULL;
  dc_program *p = NULL;
  dc_target target = {.jit = jit};
  CHECK_OK(dc_graph_parse("graph g { const W: f32[2] = {0, 0} temp Y: f32[2] outputs Y state s { map i in 0:2 { Y[i] = W[i] } } }", &g));
  dc_cont(g, dc_container_find(g, "W"))->data = data + 4;
  CHECK_OK(dc_program_create(&target, g, &p));
  memset(data, 0, sizeof data);
  dc_binding *b = bind(p, 0);
  void *buffers[MAX_CONTAINERS] = {0};
  buffers[find(p, "Y")] = y;
  CHECK_OK(dc_program_run(p, b, NULL, buffers, NULL));
  CHECK(y[0] == 3 && y[1] == 4);
  dc_binding_release(b);
  dc_program_destroy(p);
}

static void memory_of_another_device_is_refused(void) {
  static const char text[] = "graph g { input X: f32[2] temp Y: f32[2] outputs Y state s { map i in 0:2 { Y[i] = X[i] } } }";
  dc_graph *g = NULL;
  dc_program *p;
  dc_target target = {.jit = jit};
  CHECK_OK(dc_graph_parse(text, &g));
  dc_cont(g, dc_container_find(g, "X"))->device = DC_DEVICE_COUNT;
  CHECK_ERROR(dc_program_create(&target, g, &p), DC_ERR_DEVICE, "'X' is in the memory of an unknown device, but target");
  dc_cont(g, dc_container_find(g, "X"))->device = DC_HOST;
  dc_session session;
  dc_function *f;
  dc_call call;
  CHECK_OK(dc_session_create(NULL, NULL, &session));
  CHECK_OK(dc_function_create(&session, g, &(dc_function_options){0}, &f));
  dc_array x = {.data = &g, .dtype = DC_F32, .device = DC_DEVICE_COUNT, .rank = 1, .dims = {2}};
  CHECK_ERROR(dc_call_begin(f, &x, 1, NULL, NULL, &call), DC_ERR_DEVICE, "input 'X' is in the memory of an unknown device, expected the host");
  dc_function_destroy(f);
  dc_session_destroy(&session);
}

/* ---- chains ---- */

/* A normalisation, a depthwise convolution and another normalisation, of which A and B are nobody else's. */
#define BY_CHANNELS(READ)                                                                                                         \
    "graph chained { input X: f32[2, 67, 40, 24] param W: f32[67, 1, 3, 3] temp A: f32[2, 67, 40, 24] temp B: f32[2, 67, 40, 24]" \
    " temp S: f32[67] temp r: f32[] register temp q: f32[] register temp Y: f32[2, 67, 40, 24] outputs Y state s {"               \
    " map c in 0:67 { reduce n in 0:2, i in 0:40, j in 0:24 { r[] sum= X[n, c, i, j] }"                                           \
    "   map n in 0:2, i in 0:40, j in 0:24 { A[n, c, i, j] = X[n, c, i, j] - r[] / 1920.0f } }"                                   \
    " B = Conv@22(A, W) {kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], group = 67} : depthwise"                           \
    " map c in 0:67 { reduce n in 0:2, i in 0:40, j in 0:24 { q[] sum= B[n, c, i, j] * B[n, c, i, j] } S[c] = q[]"                \
    "   map n in 0:2, i in 0:40, j in 0:24 { Y[n, c, i, j] = " READ " * S[c] } } } }"

static const char by_channels[] = BY_CHANNELS("B[n, c, i, j]"), across_channels[] = BY_CHANNELS("B[n, 66 - c, i, j]");

enum { CHAINED = 2 * 67 * 40 * 24 };

static void look_away(void *context, const dc_graph *graph, dc_nid node, bool begins) {
  (void)context, (void)graph, (void)node, (void)begins;
}

static dc_program *make_chained(const char *text, dc_ops *ops, dc_natives *natives, uint32_t l2_bytes) {
  dc_graph *g = NULL;
  dc_program *p = NULL;
  dc_target target = {.jit = jit, .ops = ops, .natives = natives, .backend = DC_BACKEND_CPU};
  CHECK_OK(dc_graph_parse(text, &g));
  if (!g) exit(check_report());
  g->machine.l2_bytes = l2_bytes;
  CHECK_OK(dc_program_create(&target, g, &p));
  return p;
}

/* A run that is observed goes step by step. */
static void run_chained(dc_program *p, bool observed, float *x, float *w, float *y) {
  void *buffers[MAX_CONTAINERS] = {NULL};
  dc_binding *b = bind(p, 0);
  buffers[find(p, "X")] = x, buffers[find(p, "W")] = w, buffers[find(p, "Y")] = y;
  dc_program_observe(p, observed ? look_away : NULL, NULL);
  CHECK_OK(dc_program_run(p, b, NULL, buffers, NULL));
  dc_binding_release(b);
}

static void a_chain_computes_what_its_steps_do(void) {
  static float x[CHAINED], w[67 * 9], y[CHAINED], wanted[CHAINED];
  const dc_native_library *const list[] = {&dc_native_depthwise, NULL};
  const int before = omp_get_max_threads();
  dc_natives *natives;
  dc_ops *ops;
  CHECK_OK(dc_ops_create(&ops));
  CHECK_OK(dc_natives_create(list, NULL, NULL, NULL, &natives));
  for (int k = 0; k < CHAINED; k++) x[k] = (float)(k * 7919 % 1013) / 512 - 1;
  for (int k = 0; k < 67 * 9; k++) w[k] = (float)(k * 31 % 17) / 8 - 1;
  for (uint32_t l2 = 1 << 14; l2 <= 1 << 19; l2 <<= 1)
    for (int threads = 1; threads <= 5; threads++) {
      omp_set_num_threads(threads);
      dc_program *p = make_chained(by_channels, ops, natives, l2);
      dc_step_report steps[3];
      run_chained(p, true, x, w, wanted);
      for (int k = 0; k < 3; k++) { /* threads meet differently each time */
        memset(y, 0xff, sizeof y);
        run_chained(p, false, x, w, y);
        CHECK(!memcmp(y, wanted, sizeof y));
      }
      CHECK(dc_program_report(p, steps, 3) == 3 && steps[0].chained == 3 && steps[0].channels == 67 && !steps[1].chained);
      CHECK(steps[0].at_once >= 1 && steps[0].at_once <= (67 + threads - 1) / threads);
      dc_program_destroy(p);
    }
  omp_set_num_threads(before);
  dc_natives_destroy(natives);
  dc_ops_destroy(ops);
}

/* What a cache holds anyway is passed on as it is, and what reads other channels waits for all of them. */
static void what_is_small_or_read_across_is_not_chained(void) {
  const dc_native_library *const list[] = {&dc_native_depthwise, NULL};
  dc_natives *natives;
  dc_ops *ops;
  dc_step_report steps[3];
  CHECK_OK(dc_ops_create(&ops));
  CHECK_OK(dc_natives_create(list, NULL, NULL, NULL, &natives));
  dc_program *p = make_chained(by_channels, ops, natives, 1 << 24);
  dc_binding_release(bind(p, 0));
  CHECK(dc_program_report(p, steps, 3) == 3 && !steps[0].chained && !steps[1].chained);
  dc_program_destroy(p);
  static float x[CHAINED], w[67 * 9], y[CHAINED];
  p = make_chained(across_channels, ops, natives, 1 << 16);
  run_chained(p, false, x, w, y);
  CHECK(dc_program_report(p, steps, 3) == 3 && steps[0].chained == 2);
  dc_program_destroy(p);
  dc_natives_destroy(natives);
  dc_ops_destroy(ops);
}

/* ---- threads ---- */

typedef struct {
  dc_program *program;
  int64_t seed;
  bool good;
} worker;

static void *work(void *opaque) {
  worker *w = opaque;
  w->good = true;
  for (int64_t k = 0; k < 60; k++) w->good &= runs_chain(w->program, (k * 37 + w->seed * 5) % 300);
  return NULL;
}

/* ---- steps that run once ---- */

/* A and B come of constants; C has two writers, D is a matter of sizes, E is a result. */
static const char once_text[] =
    "graph once { symbol n >= 0 input X: f32[n] const K: f32[3] = {1, 2, 3} temp A: f32[3] temp B: f32[3] temp V: f32[1, 3] view B"
    " temp C: f32[3] temp D: f32[n] temp E: f32[3] temp Y: f32[n, 3] outputs Y, E state s {"
    " map i in 0:3 { A[i] = K[i] + 1.0f } map i in 0:3 { B[i] = A[2 - i] * 2.0f } map i in 0:3 { C[i] = 1.0f }"
    " map i in 0:2 { C[i] = 5.0f } map i in 0:n { D[i] = K[0] } map i in 0:3 { E[i] = A[i] }"
    " map i in 0:n, j in 0:3 { Y[i, j] = X[i] * V[0, j] + C[j] + D[i] } } }";

static void runs_once_text(dc_program *p, int64_t n) {
  float x[8], y[24], e[3];
  void *buffers[MAX_CONTAINERS] = {NULL};
  dc_binding *b = bind(p, n);
  uint64_t offset;
  for (int k = 0; k < n; k++) x[k] = (float)k;
  buffers[find(p, "X")] = x, buffers[find(p, "Y")] = y, buffers[find(p, "E")] = e;
  CHECK_OK(dc_program_run(p, b, NULL, buffers, NULL));
  for (int k = 0; k < 3 * n; k++) CHECK(y[k] == x[k / 3] * (float)(8 - 2 * (k % 3)) + (k % 3 == 2 ? 1 : 5) + 1);
  for (int k = 0; k < 3; k++) CHECK(e[k] == (float)k + 2);
  CHECK(dc_binding_place(b, find(p, "A"), &offset) == DC_PLACE_KEPT && dc_binding_place(b, find(p, "B"), &offset) == DC_PLACE_KEPT);
  CHECK(dc_binding_place(b, find(p, "C"), &offset) == DC_PLACE_ARENA && dc_binding_place(b, find(p, "D"), &offset) == DC_PLACE_ARENA);
  dc_binding_release(b);
}

static void what_reads_constants_alone_runs_once(void) {
  for (dc_backend_kind backend = DC_BACKEND_AUTO; backend <= DC_BACKEND_CPU; backend++) {
    dc_program *p = make(once_text, backend);
    dc_step_report steps[8];
    runs_once_text(p, 4);
    dc_program_time(p, true);
    runs_once_text(p, 7), runs_once_text(p, 4);
    CHECK(dc_program_report(p, steps, 8) == 7 && steps[0].runs == 2);
    dc_program *copy = NULL;
    dc_target target = {.jit = jit, .backend = backend};
    CHECK_OK(dc_program_create(&target, dc_graph_clone(dc_program_graph(p)), &copy));
    dc_program_destroy(p);
    runs_once_text(copy, 5);
    dc_program_destroy(copy);
  }
}

static void one_program_runs_in_many_threads(void) {
  for (dc_backend_kind backend = DC_BACKEND_AUTO; backend <= DC_BACKEND_CPU; backend++) {
    dc_program *p = make(chain, backend);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int k = 0; k < THREADS; k++) workers[k] = (worker){p, k, false};
    for (int k = 0; k < THREADS; k++) pthread_create(&threads[k], NULL, work, &workers[k]);
    for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
    for (int k = 0; k < THREADS; k++) CHECK(workers[k].good);
    dc_program_destroy(p);
  }
}

int main(void) {
  char folder[] = "/tmp/dcml-test-XXXXXX", command[64];
  if (!mkdtemp(folder)) return 1;
  CHECK_OK(dc_jit_create(&dc_c_language, &dc_c_toolchain, NULL, folder, NULL, &jit));
  temporaries_share_memory_when_their_lives_do_not_meet();
  what_lives_in_a_crowd_is_placed_first();
  what_is_read_for_the_last_time_makes_room();
  halves_lie_in_halves();
  what_is_saved_later_leaves_room_until_then();
  sizes_that_cannot_be_are_errors();
  a_binding_is_kept_for_its_sizes();
  every_backend_computes_the_same();
  constants_are_the_programs_own();
  saved_values_lie_in_the_callers_block();
  an_index_out_of_range_ends_the_run_with_an_error();
  a_run_goes_on_where_it_stopped();
  a_target_is_chosen_once();
  a_machine_is_described_within_reason();
  constants_that_kernels_cannot_read_in_place_are_copied();
  memory_of_another_device_is_refused();
  a_chain_computes_what_its_steps_do();
  what_is_small_or_read_across_is_not_chained();
  what_reads_constants_alone_runs_once();
  one_program_runs_in_many_threads();
  dc_jit_destroy(jit);
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0);
  return check_report();
}
