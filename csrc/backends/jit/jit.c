/* Kernels from text to function pointers.
 *
 * Each kernel's text names its function by the hash of the text, so that equal kernels compile
 * once per process.  The files that they are dealt to (files.h) are compiled side by side and kept in the cache by the hash
 * of file, compiler, flags and processor.  What is begun early is compiled while its caller goes on. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/jit/cache.h"
#include "backends/jit/files.h"
#include "backends/jit/toolchain.h"

static const uint64_t cache_limit_bytes = 512ull << 20;

typedef struct {
  dc_kernel_name name;
  void *function; /* the first, if it has launches */
  dc_launches *launches;
  bool divides;
} known_kernel;

/* A file of a batch on its way through the compiler. */
typedef struct {
  char name[40]; /* in the cache */
  const char *source_path, *object_path, *message_path;
  const char *path;  /* in the cache; NULL: it is not there yet */
  dc_job *job;       /* that compiles it; NULL: none does */
  dc_status status;  /* why it was not started */
  bool cached;       /* it was there before */
} module_file;

struct dc_batch {
  dc_jit *jit;
  dc_sources sources;
  module_file *files; /* of `sources` */
  dc_kernel_name *names; /* of the kernel of each node */
  uint32_t n_nodes, n_jobs, most_jobs;
  pid_t process; /* whose children the jobs are */
  double begin;
};

struct dc_jit {
  const dc_language *language;
  const dc_toolchain *tools;
  dc_arena arena;
  dc_cache cache;
  dc_compiler compiler;
  pthread_mutex_t lock; /* around what follows, and the arenas */
  DC_VEC(known_kernel) kernels;
  dc_name_table loaded; /* of kernels */
  DC_VEC(void *) modules;
  bool told; /* that there is no compiler */
};

static bool is_verbose(void) {
  const char *topics = getenv("DCML_VERBOSE");
  return topics && (strcmp(topics, "1") == 0 || strstr(topics, "compile"));
}

static double milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- creation ---- */

dc_status dc_jit_create(const dc_language *language, const dc_toolchain *tools, void *context, const char *cache_dir,
                        const char *spare_compiler, dc_jit **out) {
  dc_jit *jit = calloc(1, sizeof *jit);
  if (!jit) return dc_error(DC_ERR_MEMORY, "out of memory");
  jit->language = language, jit->tools = tools;
  dc_status status = dc_cache_open(cache_dir, &jit->cache);
  if (status) {
    free(jit);
    return status;
  }
  pthread_mutex_init(&jit->lock, NULL);
  jit->compiler.context = context;
  tools->open(spare_compiler, &jit->compiler);
  if (is_verbose())
    fprintf(stderr, "dcml: compile: %s, cache %s\n", jit->compiler.why ? jit->compiler.why : jit->compiler.command.v[0], jit->cache.folder);
  return *out = jit, DC_OK;
}

void dc_jit_destroy(dc_jit *jit) {
  if (!jit) return;
  for (uint32_t k = 0; k < jit->modules.n; k++) jit->tools->unload(&jit->compiler, jit->modules.v[k]);
  for (uint32_t k = 0; k < jit->kernels.n; k++) dc_launches_destroy(jit->kernels.v[k].launches);
  jit->tools->close(&jit->compiler);
  dc_cache_close(&jit->cache);
  pthread_mutex_destroy(&jit->lock);
  dc_arena_free(&jit->arena);
  free(jit);
}

const char *dc_jit_compiler(const dc_jit *jit) { return jit->compiler.why ? NULL : jit->compiler.command.v[0]; }

const char *dc_jit_folder(const dc_jit *jit, bool *lasts) {
  *lasts = !jit->cache.is_private;
  return jit->cache.folder;
}

bool dc_jit_available(const dc_jit *jit, const char **why) {
  if (why) *why = jit->compiler.why;
  return !jit->compiler.why;
}

bool dc_jit_ready(dc_jit *jit) {
  if (!jit->compiler.why) return true;
  if (!__atomic_exchange_n(&jit->told, true, __ATOMIC_RELAXED))
    fprintf(
        stderr,
        "dcml: %s: graphs are interpreted, which is slow; install gcc or clang, or `pip install 'dcml[compiler]'`, or name one in $CC\n",
        jit->compiler.why);
  return false;
}

/* ---- loading ---- */

static dc_compiled find_kernel(const dc_jit *jit, const char *name) {
  uint32_t k = dc_name_table_find(&jit->loaded, jit->kernels.v, sizeof *jit->kernels.v, name);
  if (!k) return (dc_compiled){NULL, NULL, false};
  const known_kernel *found = &jit->kernels.v[k - 1];
  return (dc_compiled){found->function, found->launches, found->divides};
}

static bool is_loaded(void *context, const char *name) {
  dc_jit *jit = context;
  pthread_mutex_lock(&jit->lock);
  bool found = find_kernel(jit, name).function != NULL;
  pthread_mutex_unlock(&jit->lock);
  return found;
}

/* Finds the functions of a kernel in its module; false: one is missing. */
static bool find_functions(const dc_jit *jit, void *module, known_kernel *kernel) {
  if (!kernel->launches) return (kernel->function = jit->tools->find(&jit->compiler, module, kernel->name)) != NULL;
  bool complete = kernel->launches->launches.n > 0;
  for (uint32_t k = kernel->launches->launches.n; k-- > 0;) {
    char name[80];
    dc_launch *launch = &kernel->launches->launches.v[k];
    snprintf(name, sizeof name, "%s%s", kernel->name, launch->suffix);
    kernel->function = launch->function = jit->tools->find(&jit->compiler, module, name);
    complete &= launch->function != NULL;
  }
  return complete;
}

/* Opens a module and enters the kernels of file f. */
static dc_status load(dc_batch *b, uint32_t f) {
  dc_jit *jit = b->jit;
  dc_source *sources = b->sources.sources;
  void *module;
  bool complete = true;
  DC_TRY(jit->tools->load(&jit->compiler, b->files[f].path, &module));
  pthread_mutex_lock(&jit->lock);
  DC_PUSH(&jit->arena, &jit->modules, module);
  for (uint32_t k = b->sources.files[f].first; k && complete; k = sources[k - 1].next) {
    known_kernel kernel = {.launches = sources[k - 1].launches, .divides = sources[k - 1].loose.divides};
    memcpy(kernel.name, sources[k - 1].name, sizeof kernel.name);
    complete = find_functions(jit, module, &kernel);
    if (!complete || find_kernel(jit, kernel.name).function) continue;
    sources[k - 1].launches = NULL;
    DC_PUSH(&jit->arena, &jit->kernels, kernel);
    dc_name_table_enter(&jit->arena, &jit->loaded, jit->kernels.v, sizeof kernel);
  }
  pthread_mutex_unlock(&jit->lock);
  return complete ? DC_OK : dc_error(DC_ERR_COMPILE, "a compiled module lacks its kernels");
}

/* ---- jobs ---- */

static uint32_t count_processors(void) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 1 ? (uint32_t)online : 1;
}

static dc_status start(dc_jit *jit, module_file *f, const dc_text *text) {
  pthread_mutex_lock(&jit->lock);
  f->source_path = dc_cache_scratch(&jit->cache, jit->tools->source_suffix);
  f->object_path = dc_cache_scratch(&jit->cache, jit->tools->module_suffix);
  f->message_path = dc_cache_scratch(&jit->cache, ".txt");
  pthread_mutex_unlock(&jit->lock);
  FILE *out = fopen(f->source_path, "wxe");
  bool written = out && fwrite(text->s, 1, text->n, out) == text->n;
  if (out) written = fclose(out) == 0 && written;
  if (!written) return dc_error(DC_ERR_COMPILE, "cannot write '%s': %s", f->source_path, strerror(errno));
  return jit->tools->start(&jit->compiler, f->source_path, f->object_path, f->message_path, &f->job);
}

/* Starts files that nothing compiles yet, while there are processors for them. */
static void start_files(dc_batch *b) {
  for (uint32_t k = 0; k < b->sources.n_files && b->n_jobs < b->most_jobs; k++) {
    module_file *f = &b->files[k];
    if (f->path || f->job || f->status) continue;
    f->status = start(b->jit, f, &b->sources.files[k].text);
    b->n_jobs += f->job != NULL;
  }
}

static dc_status finish(dc_batch *b, module_file *f) {
  dc_jit *jit = b->jit;
  dc_status status = jit->tools->finish(f->job, f->object_path, f->message_path);
  f->job = NULL, b->n_jobs--;
  if (status) return status;
  pthread_mutex_lock(&jit->lock);
  status = dc_cache_publish(&jit->cache, f->object_path, f->name, &f->path);
  pthread_mutex_unlock(&jit->lock);
  return status;
}

/* Removes what compiling leaves beside the module. */
static void clean(module_file *f) {
  char beside[4200]; /* where zig works */
  if (f->source_path) (void)unlink(f->source_path);
  if (f->object_path) (void)unlink(f->object_path); /* already renamed unless something failed */
  if (f->message_path) (void)unlink(f->message_path);
  if (f->object_path && snprintf(beside, sizeof beside, "%s.d", f->object_path) < (int)sizeof beside) dc_cache_remove_folder(beside);
}

/* Ends a batch before its time.  Compilers are waited for: their own children would outlive them, and write. */
static void stop(dc_batch *b) {
  for (uint32_t k = 0; k < b->sources.n_files; k++) {
    module_file *f = &b->files[k];
    if (f->job) dc_status_free(b->jit->tools->finish(f->job, f->object_path, f->message_path));
    dc_status_free(f->status);
    clean(f);
    f->job = NULL, f->status = DC_OK, f->source_path = f->object_path = f->message_path = NULL;
  }
  b->n_jobs = 0;
}

/* On a terminal, a bar for compilations that a person would wait for. */
static void show_progress(uint32_t done, uint32_t n, double begin) {
  enum { WIDTH = 30, PATIENCE_MS = 1000 };
  static const char bar[] = "##############################";
  if (!isatty(STDERR_FILENO) || milliseconds() - begin < PATIENCE_MS) return;
  fprintf(stderr, "\rdcml: compiling [%-*.*s] %u of %u files", WIDTH, (int)(WIDTH * done / n), bar, done, n);
  if (done == n) fprintf(stderr, "\r\033[K");
}

/* Takes what has been compiled so far, and counts the files that are not there yet. */
static dc_status collect(dc_batch *b, uint32_t *n_left) {
  *n_left = 0;
  for (uint32_t k = 0; k < b->sources.n_files; k++) {
    module_file *f = &b->files[k];
    dc_status status = f->status;
    f->status = DC_OK;
    if (!status && f->job && b->jit->tools->is_done(f->job)) status = finish(b, f);
    if (status) return status;
    *n_left += f->path == NULL;
  }
  return DC_OK;
}

/* Compiles the files that have no path yet, as many at a time as there are processors. */
static dc_status compile_files(dc_batch *b) {
  static const struct timespec breath = {.tv_nsec = 1000000};
  uint32_t n = b->sources.n_files;
  for (uint32_t left = n, before = n; left; before = left) {
    start_files(b);
    DC_TRY(collect(b, &left));
    if (left != before) show_progress(n - left, n, b->begin);
    if (left) (void)nanosleep(&breath, NULL);
  }
  return DC_OK;
}

/* The same, once more in another folder where the first has no room. */
static dc_status compile_files_somewhere(dc_batch *b) {
  dc_status status = compile_files(b);
  if (!status) return DC_OK;
  stop(b);
  pthread_mutex_lock(&b->jit->lock);
  bool moved = dc_cache_leave(&b->jit->cache);
  pthread_mutex_unlock(&b->jit->lock);
  if (!moved) return status;
  dc_status_free(status);
  status = compile_files(b);
  if (status) stop(b);
  return status;
}

/* ---- batches ---- */

/* Of file, compiler, flags and processor. */
static void name_files(dc_batch *b) {
  const dc_jit *jit = b->jit;
  for (uint32_t f = 0; f < b->sources.n_files; f++) {
    const dc_text *text = &b->sources.files[f].text;
    uint64_t low = dc_hash_bytes(jit->compiler.identity, text->s, text->n), high = dc_hash_bytes(~jit->compiler.identity, text->s, text->n);
    snprintf(b->files[f].name, sizeof b->files[f].name, "%016llx%016llx%s", (unsigned long long)high, (unsigned long long)low,
             jit->tools->module_suffix);
  }
}

static void find_cached(dc_batch *b) {
  pthread_mutex_lock(&b->jit->lock);
  for (uint32_t f = 0; f < b->sources.n_files; f++) b->files[f].path = dc_cache_find(&b->jit->cache, b->files[f].name);
  pthread_mutex_unlock(&b->jit->lock);
  for (uint32_t f = 0; f < b->sources.n_files; f++) b->files[f].cached = b->files[f].path != NULL;
}

/* Loads what the cache had; a file that does not load is made again. */
static uint32_t load_cached(dc_batch *b) {
  uint32_t hits = 0;
  for (uint32_t f = 0; f < b->sources.n_files; f++) {
    if (!b->files[f].cached) continue;
    dc_status status = load(b, f);
    hits += status == DC_OK;
    if (status) {
      pthread_mutex_lock(&b->jit->lock);
      dc_cache_discard(&b->jit->cache, b->files[f].name);
      pthread_mutex_unlock(&b->jit->lock);
      b->files[f].path = NULL, b->files[f].cached = false;
    }
    dc_status_free(status);
  }
  return hits;
}

static dc_status build(dc_batch *b) {
  uint32_t hits = load_cached(b), n = b->sources.n_files;
  dc_status status = hits < n ? compile_files_somewhere(b) : DC_OK;
  for (uint32_t f = 0; f < n; f++) {
    clean(&b->files[f]);
    if (!b->files[f].cached && !status) status = load(b, f);
  }
  if (hits < n && !b->jit->cache.is_private) {
    pthread_mutex_lock(&b->jit->lock);
    dc_cache_prune(&b->jit->cache, cache_limit_bytes);
    pthread_mutex_unlock(&b->jit->lock);
  }
  if (is_verbose() && b->sources.n_sources)
    fprintf(stderr, "dcml: compile: %u kernels, %u functions, %u files, %u from the cache, %.1f ms\n", b->sources.n_sources,
            b->sources.n_families, n, hits, milliseconds() - b->begin);
  return status;
}

/* A process that was forked has none of the jobs of the one before: what that has begun, it compiles itself. */
static void leave_to_parent(dc_batch *b) {
  if (b->process == getpid()) return;
  for (uint32_t f = 0; f < b->sources.n_files; f++) {
    module_file *file = &b->files[f];
    file->job = NULL, file->source_path = file->object_path = file->message_path = NULL;
  }
  b->n_jobs = 0;
}

static void free_batch(dc_batch *b) {
  dc_sources_free(&b->sources);
  free(b->files);
  free(b->names);
  free(b);
}

dc_status dc_jit_begin(dc_jit *jit, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_batch **out) {
  if (jit->compiler.why) return dc_error(DC_ERR_COMPILE, "%s", jit->compiler.why);
  dc_batch *b = calloc(1, sizeof *b);
  if (!b || !(b->names = calloc(n ? n : 1, sizeof *b->names))) return free(b), dc_error(DC_ERR_MEMORY, "out of memory");
  b->jit = jit, b->n_nodes = n, b->most_jobs = count_processors(), b->process = getpid(), b->begin = milliseconds();
  dc_status status = dc_sources_spell(&b->sources, jit->language, graph, nodes, n, is_loaded, jit, b->names);
  if (!status) {
    dc_sources_deal(&b->sources, jit->language, b->most_jobs);
    b->files = calloc(b->sources.n_files ? b->sources.n_files : 1, sizeof *b->files);
    if (!b->files) status = dc_error(DC_ERR_MEMORY, "out of memory");
  }
  if (status) return free_batch(b), status;
  name_files(b);
  find_cached(b);
  start_files(b);
  return *out = b, DC_OK;
}

dc_status dc_jit_end(dc_batch *b, dc_compiled *kernels) {
  dc_jit *jit = b->jit;
  leave_to_parent(b);
  dc_status status = build(b);
  pthread_mutex_lock(&jit->lock);
  for (uint32_t k = 0; k < b->n_nodes && !status; k++)
    kernels[k] = b->names[k][0] ? find_kernel(jit, b->names[k]) : (dc_compiled){NULL, NULL, false};
  pthread_mutex_unlock(&jit->lock);
  free_batch(b);
  return status;
}

void dc_jit_drop(dc_batch *b) {
  if (!b) return;
  leave_to_parent(b);
  stop(b);
  free_batch(b);
}

dc_status dc_jit_compile(dc_jit *jit, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_compiled *kernels) {
  dc_batch *batch;
  DC_TRY(dc_jit_begin(jit, graph, nodes, n, &batch));
  return dc_jit_end(batch, kernels);
}
