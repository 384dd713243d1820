/* Kernels from text to function pointers.
 *
 * Each kernel's text names its function by the hash of the text, so that equal kernels compile
 * once per process; kernels of a batch that differ in larger numbers only share one function.  They are
 * dealt to a few files, compiled side by side and kept in the cache by the hash of file, compiler, flags
 * and processor. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/jit/cache.h"
#include "backends/jit/emit.h"
#include "backends/jit/toolchain.h"

enum { KERNELS_PER_FILE = 8, NAME_LENGTH = 17 };
static const uint64_t cache_limit_bytes = 512ull << 20;

typedef struct {
  char name[NAME_LENGTH + 1]; /* "k" and the hash of its text */
  void *function; /* the first, if it has launches */
  dc_launches *launches;
} known_kernel;

/* Positions in a list by name, and so by hash. */
typedef struct {
  uint32_t *slots; /* 1 + position, 0: empty */
  uint32_t n, size;
} name_table;

struct dc_jit {
  const dc_language *language;
  const dc_toolchain *tools;
  dc_arena arena;
  dc_cache cache;
  dc_compiler compiler;
  pthread_mutex_t lock; /* around what follows, and the arenas */
  DC_VEC(known_kernel) kernels;
  name_table loaded; /* of kernels */
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

/* Names stand at the start of the items of a list. */
static uint32_t *slot_of(const name_table *t, const void *list, size_t item_bytes, const char *name) {
  uint32_t at = (uint32_t)dc_hash_bytes(0, name, NAME_LENGTH) & (t->size - 1);
  while (t->slots[at] && strcmp((const char *)list + (t->slots[at] - 1) * item_bytes, name))
    at = (at + 1) & (t->size - 1);
  return &t->slots[at];
}

/* Enters the last item of the list, whose name is new. */
static void enter_name(dc_arena *arena, name_table *t, const void *list, size_t item_bytes) {
  if (2 * ++t->n > t->size) {
    t->size = t->size ? 2 * t->size : 64;
    t->slots = DC_NEW_ARRAY(arena, uint32_t, t->size);
    for (uint32_t k = 0; k + 1 < t->n; k++) *slot_of(t, list, item_bytes, (const char *)list + k * item_bytes) = k + 1;
  }
  *slot_of(t, list, item_bytes, (const char *)list + (t->n - 1) * item_bytes) = t->n;
}

static dc_compiled find_kernel(const dc_jit *jit, const char *name) {
  uint32_t k = jit->loaded.size ? *slot_of(&jit->loaded, jit->kernels.v, sizeof *jit->kernels.v, name) : 0;
  return k ? (dc_compiled){jit->kernels.v[k - 1].function, jit->kernels.v[k - 1].launches} : (dc_compiled){NULL, NULL};
}

typedef struct {
  char name[NAME_LENGTH + 1];
  dc_text text;
  dc_launches *launches; /* until it is loaded */
  dc_loose loose;
  uint32_t next, alike; /* 1 + the next kernel of its file, and of its family; 0 at the end */
} source;

/* Kernels with equal loose texts, or one kernel. */
typedef struct {
  char name[NAME_LENGTH + 1]; /* of the function that they share */
  uint32_t first, last, n; /* 1 + sources */
  dc_text text;
} family;

typedef struct {
  dc_text text;
  char name[40]; /* in the cache */
  const char *source_path, *object_path, *message_path, *path;
  dc_job *job;
  uint32_t first; /* 1 + its first kernel */
} source_file;

typedef struct {
  dc_jit *jit;
  source *sources; /* distinct kernels that are not loaded yet */
  uint32_t n_sources;
  source_file *files;
  uint32_t n_files;
  dc_arena arena;
  name_table known; /* of sources */
  family *families;
  uint32_t n_families;
} batch;

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
static dc_status load(batch *b, uint32_t f) {
  dc_jit *jit = b->jit;
  void *module;
  bool complete = true;
  DC_TRY(jit->tools->load(&jit->compiler, b->files[f].path, &module));
  pthread_mutex_lock(&jit->lock);
  DC_PUSH(&jit->arena, &jit->modules, module);
  for (uint32_t k = b->files[f].first; k && complete; k = b->sources[k - 1].next) {
    known_kernel kernel = {.launches = b->sources[k - 1].launches};
    memcpy(kernel.name, b->sources[k - 1].name, sizeof kernel.name);
    complete = find_functions(jit, module, &kernel);
    if (!complete || find_kernel(jit, kernel.name).function) continue;
    b->sources[k - 1].launches = NULL;
    DC_PUSH(&jit->arena, &jit->kernels, kernel);
    enter_name(&jit->arena, &jit->loaded, jit->kernels.v, sizeof kernel);
  }
  pthread_mutex_unlock(&jit->lock);
  return complete ? DC_OK : dc_error(DC_ERR_COMPILE, "a compiled module lacks its kernels");
}

/* ---- compiling ---- */

static dc_status start(dc_jit *jit, source_file *f) {
  pthread_mutex_lock(&jit->lock);
  f->source_path = dc_cache_scratch(&jit->cache, jit->tools->source_suffix);
  f->object_path = dc_cache_scratch(&jit->cache, jit->tools->module_suffix);
  f->message_path = dc_cache_scratch(&jit->cache, ".txt");
  pthread_mutex_unlock(&jit->lock);
  FILE *out = fopen(f->source_path, "wxe");
  bool written = out && fwrite(f->text.s, 1, f->text.n, out) == f->text.n;
  if (out) written = fclose(out) == 0 && written;
  if (!written) return dc_error(DC_ERR_COMPILE, "cannot write '%s': %s", f->source_path, strerror(errno));
  return jit->tools->start(&jit->compiler, f->source_path, f->object_path, f->message_path, &f->job);
}

static dc_status finish(dc_jit *jit, source_file *f) {
  dc_status status = jit->tools->finish(f->job, f->object_path, f->message_path);
  f->job = NULL;
  if (status) return status;
  pthread_mutex_lock(&jit->lock);
  status = dc_cache_publish(&jit->cache, f->object_path, f->name, &f->path);
  pthread_mutex_unlock(&jit->lock);
  return status;
}

static void clean(const dc_jit *jit, source_file *f) {
  char beside[4200]; /* where zig works */
  if (f->job) dc_status_free(jit->tools->finish(f->job, f->object_path, f->message_path));
  f->job = NULL;
  if (f->source_path) (void)unlink(f->source_path);
  if (f->object_path) (void)unlink(f->object_path); /* already renamed unless something failed */
  if (f->message_path) (void)unlink(f->message_path);
  if (f->object_path && snprintf(beside, sizeof beside, "%s.d", f->object_path) < (int)sizeof beside) dc_cache_remove_folder(beside);
}

/* On a terminal, a bar for compilations that a person would wait for. */
static void show_progress(uint32_t done, uint32_t n, double begin) {
  enum { WIDTH = 30, PATIENCE_MS = 1000 };
  static const char bar[] = "##############################";
  if (!isatty(STDERR_FILENO) || milliseconds() - begin < PATIENCE_MS) return;
  fprintf(stderr, "\rdcml: compiling [%-*.*s] %u of %u files", WIDTH, (int)(WIDTH * done / n), bar, done, n);
  if (done == n) fprintf(stderr, "\r\033[K");
}

/* Compiles the files that have no path yet, as many at a time as there are processors. */
static dc_status compile_files(batch *b) {
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  dc_status status = DC_OK;
  double begin = milliseconds();
  for (uint32_t next = 0, oldest = 0; oldest < b->n_files && !status;) {
    uint32_t running = 0;
    for (uint32_t k = oldest; k < next; k++) running += b->files[k].job != NULL;
    if (next < b->n_files && running < (processors > 1 ? (uint32_t)processors : 1)) {
      if (!b->files[next].path) status = start(b->jit, &b->files[next]);
      next++;
    } else {
      if (b->files[oldest].job) status = finish(b->jit, &b->files[oldest]);
      show_progress(++oldest, b->n_files, begin);
    }
  }
  return status;
}

/* The same, once more in another folder where the first has no room. */
static dc_status compile_files_somewhere(batch *b) {
  dc_status status = compile_files(b);
  if (!status) return DC_OK;
  for (uint32_t f = 0; f < b->n_files; f++) clean(b->jit, &b->files[f]);
  pthread_mutex_lock(&b->jit->lock);
  bool moved = dc_cache_leave(&b->jit->cache);
  pthread_mutex_unlock(&b->jit->lock);
  if (!moved) return status;
  dc_status_free(status);
  return compile_files(b);
}

/* ---- batches ---- */

/* Of what the text says, which stands in it wherever the function is named. */
static void name_function(dc_text *text, uint64_t seed, char *name) {
  static const char placeholder[] = "k________________";
  uint64_t hash = dc_hash_bytes(seed, text->s, text->n);
  snprintf(name, NAME_LENGTH + 1, "k%016llx", (unsigned long long)hash);
  for (char *at = strstr(text->s, placeholder); at; at = strstr(at, placeholder)) memcpy(at, name, NAME_LENGTH);
}

static void free_source(source *s) {
  dc_text_free(&s->text);
  dc_loose_free(&s->loose);
  dc_launches_destroy(s->launches);
}

static dc_status spell_all(batch *b, const dc_graph *graph, const dc_nid *nodes, uint32_t n, char (*names)[NAME_LENGTH + 1]) {
  for (uint32_t k = 0; k < n; k++) {
    source s = {.next = 0};
    dc_status status = dc_emit_node(b->jit->language, graph, nodes[k], "k________________", &s.text, &s.launches, &s.loose);
    if (status) {
      free_source(&s);
      bool unsupported = dc_status_code(status) == DC_ERR_UNSUPPORTED;
      if (!unsupported) return dc_error_at(status, "kernel %u", k);
      dc_status_free(status);
      names[k][0] = 0;
      continue;
    }
    name_function(&s.text, dc_launches_hash(s.launches), s.name);
    memcpy(names[k], s.name, sizeof s.name);
    pthread_mutex_lock(&b->jit->lock);
    bool known = find_kernel(b->jit, s.name).function != NULL;
    pthread_mutex_unlock(&b->jit->lock);
    known = known || (b->known.size && *slot_of(&b->known, b->sources, sizeof s, s.name));
    if (known) {
      free_source(&s);
      continue;
    }
    b->sources[b->n_sources++] = s;
    enter_name(&b->arena, &b->known, b->sources, sizeof s);
  }
  return DC_OK;
}

/* Puts kernels with equal loose texts together, in the order of their first ones, and makes the text of each family. */
static void find_families(batch *b) {
  enum { LOOSE = 0x100 }; /* the names of families are no kernels' */
  name_table known = {0};
  b->families = calloc(b->n_sources ? b->n_sources : 1, sizeof *b->families);
  if (!b->families) abort();
  for (uint32_t k = 0; k < b->n_sources; k++) {
    source *s = &b->sources[k];
    family one = {.first = k + 1, .last = k + 1, .n = 1};
    if (s->loose.text.n) name_function(&s->loose.text, LOOSE, one.name);
    else memcpy(one.name, s->name, sizeof one.name);
    uint32_t at = known.size ? *slot_of(&known, b->families, sizeof one, one.name) : 0;
    family *same = at ? &b->families[at - 1] : NULL;
    if (same && dc_loose_alike(&b->sources[same->first - 1].loose, &s->loose)) {
      b->sources[same->last - 1].alike = k + 1;
      same->last = k + 1, same->n++;
      continue;
    }
    if (same) memcpy(one.name, s->name, sizeof one.name);
    b->families[b->n_families++] = one;
    enter_name(&b->arena, &known, b->families, sizeof one);
  }
}

static void spell_family(batch *b, family *f) {
  if (f->n == 1) {
    dc_text_puts(&f->text, b->sources[f->first - 1].text.s);
    return;
  }
  const dc_loose **members = DC_NEW_ARRAY(&b->arena, const dc_loose *, f->n);
  const char **names = DC_NEW_ARRAY(&b->arena, const char *, f->n);
  for (uint32_t s = f->first, n = 0; s; s = b->sources[s - 1].alike, n++) {
    members[n] = &b->sources[s - 1].loose;
    names[n] = b->sources[s - 1].name;
  }
  dc_loose_spell(b->jit->language->dialect, members, names, f->n, f->name, &f->text);
}

/* The shorter of two files comes first, of equal ones that of the lower number. */
static bool is_before(const dc_text *parts, uint32_t a, uint32_t b) {
  return parts[a].n != parts[b].n ? parts[a].n < parts[b].n : a < b;
}

/* The file on top of the heap has grown: it sinks to its place. */
static void sink_top(uint32_t *heap, uint32_t n, const dc_text *parts) {
  for (uint32_t at = 0, below; (below = 2 * at + 1) < n; at = below) {
    if (below + 1 < n && is_before(parts, heap[below + 1], heap[below])) below++;
    if (!is_before(parts, heap[below], heap[at])) return;
    uint32_t swap = heap[at];
    heap[at] = heap[below], heap[below] = swap;
  }
}

/* As many as there are processors, or a multiple of that, so that they end together. */
static uint32_t count_files(uint32_t n_families) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t processors = online > 1 ? (uint32_t)online : 1, n = (n_families + KERNELS_PER_FILE - 1) / KERNELS_PER_FILE;
  if (n_families < 4) return n;
  if (n < processors) return processors < n_families / 2 ? processors : n_families / 2;
  uint32_t even = (n + processors - 1) / processors * processors;
  return even < n_families ? even : n;
}

typedef struct {
  size_t length;
  uint32_t family;
} portion;

static int longer_first(const void *a, const void *b) {
  const portion *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? 1 : -1;
  return (x->family > y->family) - (x->family < y->family);
}

/* Deals the families to files, the longest first, each to the shortest file so far. */
static void deal_families(batch *b, dc_text *parts) {
  uint32_t *heap = DC_NEW_ARRAY(&b->arena, uint32_t, b->n_files);
  portion *order = DC_NEW_ARRAY(&b->arena, portion, b->n_families);
  for (uint32_t f = 0; f < b->n_files; f++) heap[f] = f;
  for (uint32_t k = 0; k < b->n_families; k++) {
    spell_family(b, &b->families[k]);
    order[k] = (portion){b->families[k].text.n, k};
  }
  if (b->n_families) qsort(order, b->n_families, sizeof *order, longer_first);
  for (uint32_t k = 0; k < b->n_families; k++) {
    family *one = &b->families[order[k].family];
    source_file *file = &b->files[heap[0]];
    b->sources[one->last - 1].alike = 0;
    for (uint32_t s = one->first, next; s; s = next) {
      next = b->sources[s - 1].alike;
      b->sources[s - 1].next = file->first, file->first = s;
    }
    dc_text_puts(&parts[heap[0]], one->text.s);
    sink_top(heap, b->n_files, parts);
    dc_text_free(&one->text);
  }
}

static void deal(batch *b) {
  find_families(b);
  uint32_t n = b->n_files = count_files(b->n_families);
  b->files = calloc(n ? n : 1, sizeof *b->files);
  dc_text *parts = calloc(n ? n : 1, sizeof *parts);
  if (!b->files || !parts) abort();
  deal_families(b, parts);
  for (uint32_t f = 0; f < n; f++) {
    b->jit->language->library(parts[f].s, &b->files[f].text);
    dc_text_puts(&b->files[f].text, parts[f].s);
    uint64_t low = dc_hash_bytes(b->jit->compiler.identity, b->files[f].text.s, b->files[f].text.n);
    uint64_t high = dc_hash_bytes(~b->jit->compiler.identity, b->files[f].text.s, b->files[f].text.n);
    snprintf(b->files[f].name, sizeof b->files[f].name, "%016llx%016llx%s", (unsigned long long)high, (unsigned long long)low,
             b->jit->tools->module_suffix);
    dc_text_free(&parts[f]);
  }
  free(parts);
}

/* Loads what the cache has; a file that does not load is made again. */
static uint32_t load_cached(batch *b) {
  uint32_t hits = 0;
  for (uint32_t f = 0; f < b->n_files; f++) {
    pthread_mutex_lock(&b->jit->lock);
    b->files[f].path = dc_cache_find(&b->jit->cache, b->files[f].name);
    pthread_mutex_unlock(&b->jit->lock);
    if (!b->files[f].path) continue;
    dc_status status = load(b, f);
    hits += status == DC_OK;
    if (status) {
      pthread_mutex_lock(&b->jit->lock);
      dc_cache_discard(&b->jit->cache, b->files[f].name);
      pthread_mutex_unlock(&b->jit->lock);
      b->files[f].path = NULL;
    }
    dc_status_free(status);
  }
  return hits;
}

static dc_status build(batch *b) {
  deal(b);
  double begin = milliseconds();
  bool *cached = calloc(b->n_files ? b->n_files : 1, sizeof *cached);
  if (!cached) abort();
  uint32_t hits = load_cached(b);
  for (uint32_t f = 0; f < b->n_files; f++) cached[f] = b->files[f].path != NULL;
  dc_status status = hits < b->n_files ? compile_files_somewhere(b) : DC_OK;
  for (uint32_t f = 0; f < b->n_files; f++) {
    clean(b->jit, &b->files[f]);
    if (!cached[f] && !status) status = load(b, f);
  }
  free(cached);
  if (hits < b->n_files && !b->jit->cache.is_private) {
    pthread_mutex_lock(&b->jit->lock);
    dc_cache_prune(&b->jit->cache, cache_limit_bytes);
    pthread_mutex_unlock(&b->jit->lock);
  }
  if (is_verbose() && b->n_sources)
    fprintf(stderr, "dcml: compile: %u kernels, %u functions, %u files, %u from the cache, %.1f ms\n", b->n_sources, b->n_families,
            b->n_files, hits, milliseconds() - begin);
  return status;
}

dc_status dc_jit_compile(dc_jit *jit, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_compiled *kernels) {
  if (jit->compiler.why) return dc_error(DC_ERR_COMPILE, "%s", jit->compiler.why);
  batch b = {.jit = jit, .sources = calloc(n ? n : 1, sizeof(source))};
  char(*names)[NAME_LENGTH + 1] = calloc(n ? n : 1, sizeof *names);
  if (!b.sources || !names) abort();
  dc_status status = spell_all(&b, graph, nodes, n, names);
  if (!status) status = build(&b);
  pthread_mutex_lock(&jit->lock);
  for (uint32_t k = 0; k < n && !status; k++) kernels[k] = names[k][0] ? find_kernel(jit, names[k]) : (dc_compiled){NULL, NULL};
  pthread_mutex_unlock(&jit->lock);
  for (uint32_t k = 0; k < b.n_sources; k++) free_source(&b.sources[k]);
  for (uint32_t f = 0; f < b.n_files; f++) dc_text_free(&b.files[f].text);
  free(b.sources);
  free(b.families);
  free(b.files);
  dc_arena_free(&b.arena);
  free(names);
  return status;
}
