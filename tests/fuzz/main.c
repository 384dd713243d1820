/* Runs the fuzz target without libFuzzer: over the files given, then over mutants of them.
 *
 *   fuzz [-mutants N] [-seed S] FOLDER...
 *
 * Mutants are made on the wire format: a field is changed, dropped, repeated or replaced by a field
 * of the same type from another file, and the lengths around it stay right, so that most mutants
 * get past the scan.  A mutant that runs code which none ran before is mutated further.  Equal arguments give equal mutants.  Every input must end within 5 seconds
 * of processor time and the process within 1 GB; the input at fault is left in a file. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz/target.h"
#include "onnx.pb-c.h"

#ifdef __SANITIZE_ADDRESS__
enum { SECONDS = 20 }; /* the sanitizer takes several times as long */
static const int fatal[] = {SIGPROF, SIGABRT};
#else
enum { SECONDS = 5 };
static const int fatal[] = {SIGPROF, SIGABRT, SIGSEGV, SIGFPE, SIGBUS};
#endif
enum { MAX_MUTANT_BYTES = 1 << 20 };
static const long MAX_KILOBYTES = 1 << 20;

typedef struct {
  uint8_t *v;
  size_t n, cap;
} bytes;

typedef struct {
  uint64_t random;
  bytes *seeds;
  size_t n_seeds;
} fuzzer;

/* What a signal handler needs to see: the input that is being tried. */
static const bytes *volatile current;

static void save_input(const char *why) {
  static const char path[] = "fuzz-failure.onnx";
  int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  bool saved = out >= 0 && current && write(out, current->v, current->n) == (ssize_t)current->n;
  fprintf(stderr, "fuzz: %s%s%s\n", why, saved ? "; the input is in " : "", saved ? path : "");
}

static void blame(const char *why) {
  save_input(why);
  _exit(1);
}

static void on_signal(int signal) { blame(signal == SIGPROF ? "an input takes too long" : "an input crashes"); }

/* The sanitizers call this before they end the process. */
void __asan_on_error(void);
void __asan_on_error(void) { save_input("the sanitizer found an error"); }
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "quarantine_size_mb=16"; }

static void catch_signals(void) {
  static char stack[65536]; /* of its own: the input may have used up the other */
  sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  for (size_t k = 0; k < sizeof fatal / sizeof *fatal; k++) sigaction(fatal[k], &action, NULL);
}

/* Of the processor, so that a busy machine fails nothing. */
static void limit_time(int seconds) { setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = seconds}}, NULL); }

/* ---- coverage ---- */

enum { EDGES = 1 << 16 };
static uint8_t edges[EDGES], seen[EDGES];
static uintptr_t previous;

int main(int argc, char **argv);

/* Called at each block of code compiled with -fsanitize-coverage=trace-pc. */
void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize_coverage, no_sanitize("address,undefined"))) void __sanitizer_cov_trace_pc(void) {
  uintptr_t here = (uintptr_t)__builtin_return_address(0) - (uintptr_t)&main; /* the same wherever the program is loaded */
  edges[((here ^ previous) * 0x9e3779b97f4a7c15u) >> 48] = 1;
  previous = here >> 1;
}

/* Did the last input run a step from block to block that no input before it ran? */
static bool is_new(void) {
  bool fresh = false;
  for (size_t k = 0; k < EDGES; k++) {
    fresh |= edges[k] && !seen[k];
    seen[k] |= edges[k];
  }
  return fresh;
}

static void try_input(const bytes *input) {
  memset(edges, 0, sizeof edges);
  current = input;
  limit_time(SECONDS);
  uint8_t *exact = malloc(input->n ? input->n : 1); /* a block of its own: the sanitizer sees a read beyond it */
  if (input->n) memcpy(exact, input->v, input->n);
  LLVMFuzzerTestOneInput(exact, input->n);
  free(exact);
  limit_time(0);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss > MAX_KILOBYTES) blame("an input takes more than 1 GB");
}

/* ---- bytes ---- */

static uint64_t pick(fuzzer *f, uint64_t below) {
  f->random ^= f->random << 13, f->random ^= f->random >> 7, f->random ^= f->random << 17;
  return below ? f->random % below : 0;
}

static void put(bytes *b, const void *data, size_t n) {
  if (b->n + n > b->cap) {
    b->cap = (b->n + n) * 2 + 64;
    b->v = realloc(b->v, b->cap);
    if (!b->v) abort();
  }
  if (n) memcpy(b->v + b->n, data, n);
  b->n += n;
}

static void put_varint(bytes *b, uint64_t value) {
  do {
    uint8_t byte = (uint8_t)(value & 127) | (uint8_t)(value > 127 ? 128 : 0);
    put(b, &byte, 1);
    value >>= 7;
  } while (value);
}

static uint64_t get_varint(const uint8_t **at, const uint8_t *end) {
  uint64_t value = 0;
  for (int shift = 0; *at < end && shift < 64; shift += 7) {
    uint8_t byte = *(*at)++;
    value |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128)) break;
  }
  return value;
}

/* ---- fields ---- */

typedef struct {
  const uint8_t *start, *payload, *end; /* of key and payload; of payload */
  uint64_t key, number;
} field;

static bool next_field(const uint8_t **at, const uint8_t *end, field *out) {
  if (*at >= end) return false;
  *out = (field){.start = *at};
  out->key = get_varint(at, end);
  out->payload = *at;
  uint64_t left = (uint64_t)(end - *at), n = (out->key & 7) == 1 ? 8 : (out->key & 7) == 5 ? 4 : 0;
  if ((out->key & 7) == 0) out->number = get_varint(at, end), n = 0;
  if ((out->key & 7) == 2) n = get_varint(at, end), out->payload = *at, left = (uint64_t)(end - *at);
  if (n > left) n = left;
  *at += n;
  return out->end = *at, true;
}

static size_t count_fields(const uint8_t *at, const uint8_t *end) {
  size_t n = 0;
  for (field x; next_field(&at, end, &x);) n++;
  return n;
}

static const ProtobufCMessageDescriptor *message_of(const ProtobufCMessageDescriptor *type, uint64_t key) {
  const ProtobufCFieldDescriptor *d = protobuf_c_message_descriptor_get_field(type, (unsigned)(key >> 3));
  return d && d->type == PROTOBUF_C_TYPE_MESSAGE && (key & 7) == 2 ? d->descriptor : NULL;
}

/* A random field with this key, in a message of this type, anywhere in a file; false if it has none. */
static bool find_like(fuzzer *f, const uint8_t *at, const uint8_t *end, const ProtobufCMessageDescriptor *type,
                      const ProtobufCMessageDescriptor *wanted, uint64_t key, size_t *seen, field *out) {
  for (field x; next_field(&at, end, &x);) {
    if (type == wanted && x.key == key && pick(f, ++*seen) == 0) *out = x;
    const ProtobufCMessageDescriptor *inner = message_of(type, x.key);
    if (inner) find_like(f, x.payload, x.end, inner, wanted, key, seen, out);
  }
  return *seen > 0;
}

/* ---- mutations ---- */

static void add_seed(fuzzer *f, bytes b) {
  f->seeds = realloc(f->seeds, (f->n_seeds + 1) * sizeof *f->seeds);
  if (!f->seeds) abort();
  f->seeds[f->n_seeds++] = b;
}

static const int64_t interesting[] = {0, 1, -1, 2, 3, 7, 8, 13, 16, 64, 127, 255, 256, 4096, 65535, 65536, 1 << 20, INT32_MAX, INT32_MIN,
                                      (int64_t)1 << 32, (int64_t)1 << 40, INT64_MAX, INT64_MIN, INT64_MAX - 1};

static void change_number(fuzzer *f, const field *x, bytes *out) {
  uint64_t value = x->number;
  switch (pick(f, 4)) {
    case 0: value = (uint64_t)interesting[pick(f, sizeof interesting / sizeof *interesting)]; break;
    case 1: value += pick(f, 17) - 8; break;
    case 2: value ^= (uint64_t)1 << pick(f, 64); break;
    default: value = pick(f, 32);
  }
  put_varint(out, x->key);
  put_varint(out, value);
}

static void change_payload(fuzzer *f, const field *x, bytes *out) {
  bytes p = {0};
  put(&p, (char[8]){0}, 8); /* a number of fixed size has that many bytes, whatever happens */
  p.n = 0;
  put(&p, x->payload, (size_t)(x->end - x->payload));
  switch (pick(f, 5)) {
    case 0: p.n = pick(f, p.n + 1); break;
    case 1: put(&p, x->payload, (size_t)(x->end - x->payload)); break;
    case 2: put_varint(&p, (uint64_t)interesting[pick(f, sizeof interesting / sizeof *interesting)]); break;
    default:
      for (uint64_t k = pick(f, 3) + 1; k-- && p.n;) p.v[pick(f, p.n)] = (uint8_t)pick(f, 256);
  }
  put_varint(out, x->key);
  if ((x->key & 7) == 2) put_varint(out, p.n);
  put(out, p.v, (x->key & 7) == 1 ? 8 : (x->key & 7) == 5 ? 4 : p.n);
  free(p.v);
}

static void put_field(const field *x, bytes *out) { put(out, x->start, (size_t)(x->end - x->start)); }

static void replace(fuzzer *f, const field *x, const ProtobufCMessageDescriptor *type, bytes *out) {
  const bytes *other = &f->seeds[pick(f, f->n_seeds)];
  field found = *x;
  size_t seen = 0;
  find_like(f, other->v, other->v + other->n, &onnx__model_proto__descriptor, type, x->key, &seen, &found);
  if (pick(f, 2)) put_field(x, out); /* added rather than replaced */
  put_field(&found, out);
}

static void mutate(fuzzer *f, const uint8_t *at, const uint8_t *end, const ProtobufCMessageDescriptor *type, bytes *out);

static void mutate_field(fuzzer *f, const field *x, const ProtobufCMessageDescriptor *type, bytes *out) {
  const ProtobufCMessageDescriptor *inner = message_of(type, x->key);
  if (inner && pick(f, 8)) {
    bytes changed = {0};
    mutate(f, x->payload, x->end, inner, &changed);
    put_varint(out, x->key);
    put_varint(out, changed.n);
    put(out, changed.v, changed.n);
    free(changed.v);
    return;
  }
  switch (pick(f, 6)) {
    case 0: return; /* dropped */
    case 1: put_field(x, out), put_field(x, out); return;
    case 2: replace(f, x, type, out); return;
    default:
      if ((x->key & 7) == 0) change_number(f, x, out);
      else change_payload(f, x, out);
  }
}

/* One field of the message, chosen at random, is mutated; the rest is copied. */
static void mutate(fuzzer *f, const uint8_t *at, const uint8_t *end, const ProtobufCMessageDescriptor *type, bytes *out) {
  size_t chosen = pick(f, count_fields(at, end)), k = 0;
  for (field x; next_field(&at, end, &x); k++) {
    if (k == chosen) mutate_field(f, &x, type, out);
    else put_field(&x, out);
  }
}

static void try_mutant(fuzzer *f) {
  bytes a = {0}, b = {0};
  const bytes *seed = &f->seeds[pick(f, f->n_seeds)];
  put(&a, seed->v, seed->n);
  for (uint64_t rounds = 1 + pick(f, 4); rounds--;) {
    b.n = 0;
    mutate(f, a.v, a.v + a.n, &onnx__model_proto__descriptor, &b);
    bytes swap = a;
    a = b, b = swap;
  }
  free(b.v);
  if (a.n <= MAX_MUTANT_BYTES) try_input(&a);
  if (a.n <= MAX_MUTANT_BYTES && is_new()) add_seed(f, a);
  else free(a.v);
}

/* ---- files ---- */

static void read_file(fuzzer *f, const char *path) {
  bytes b = {0};
  char block[4096];
  FILE *in = fopen(path, "rb");
  for (size_t n; in && (n = fread(block, 1, sizeof block, in));) put(&b, block, n);
  if (!in) blame(path);
  fclose(in);
  add_seed(f, b);
}

static int not_hidden(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void read_folder(fuzzer *f, const char *folder) {
  struct dirent **list;
  int n = scandir(folder, &list, not_hidden, alphasort); /* sorted: runs repeat */
  for (int k = 0; k < n; k++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, list[k]->d_name);
    read_file(f, path);
    free(list[k]);
  }
  if (n < 0) blame(folder);
  free(list);
}

int main(int argc, char **argv) {
  setenv("DCML_VERIFY", "1", 0);
  fuzzer f = {.random = 0x9e3779b97f4a7c15u};
  uint64_t mutants = 0;
  for (int k = 1; k < argc; k++) {
    if (strcmp(argv[k], "-mutants") == 0 && k + 1 < argc) mutants = strtoull(argv[++k], NULL, 10);
    else if (strcmp(argv[k], "-seed") == 0 && k + 1 < argc) f.random += 2 * strtoull(argv[++k], NULL, 10);
    else read_folder(&f, argv[k]);
  }
  catch_signals();
  size_t n_files = f.n_seeds;
  for (size_t k = 0; k < n_files; k++) try_input(&f.seeds[k]), (void)is_new();
  for (uint64_t k = 0; k < mutants && n_files; k++) try_mutant(&f);
  printf("%zu files and %llu mutants, of which %zu ran new code: each gave a result or an error\n", n_files, (unsigned long long)mutants,
         f.n_seeds - n_files);
  current = NULL;
  for (size_t k = 0; k < f.n_seeds; k++) free(f.seeds[k].v);
  free(f.seeds);
  return f.n_seeds == 0;
}
