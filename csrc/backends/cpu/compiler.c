/* See compiler.h. */
#define _GNU_SOURCE /* pipe2 */
#include "backends/cpu/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "base/machine.h"
#include "base/text.h"

extern char **environ;

/* No -ffast-math, ever.  Contraction is off because a*b - c*d with a*b == c*d must be 0; the
 * library and sums of products ask for fused operations by name. */
static const char *const flags[] = {
#if defined(__x86_64__) || defined(__i386__)
    "-march=native",
#else
    "-mcpu=native",
#endif
    "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv", "-fopenmp-simd",
    "-fPIC", "-shared", "-w", "-x", "c", NULL,
};

/* Loops stay as they are printed: the printer has merged and split them where it pays.  Of what gcc adds to -O1 these gain
 * something: invariants leave loops, loops of few iterations and the functions of the library become lines, ranges make divisions
 * by constants cheap, types tell loads from stores, loops begin where the processor likes them to.  The rest of -O3 gains
 * nothing.  What a choice takes is computed where it is printed: sunk into a branch, a call keeps the loop from vectors.
 * Sums of products ask for -O2 (FUSING), where gcc (12 at least) would take stores of zeros out of a loop as a memset, and put
 * it before what the loop reads from there.  All are known to gcc 7. */
static const char *const gcc_flags[] = {
    "-O1", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fno-tree-slp-vectorize", "-fno-tree-sink",
    "-fno-tree-loop-distribute-patterns", "-ftree-pre", "-fno-tree-partial-pre", "-fpeel-loops",
    "--param=max-completely-peel-times=8", "--param=max-inline-insns-single=200", "-ftree-vrp", "-fthread-jumps",
    "-fexpensive-optimizations", "-fstrict-aliasing", "-fcode-hoisting", "-fschedule-insns2", "-fpeephole2",
    "-freorder-blocks-algorithm=stc", "-falign-functions", "-falign-loops", NULL,
};
static const char *const clang_flags[] = {"-O3", NULL};

/* AMD's Zen 3 takes twice as long for an instruction that gathers as for the loads that it stands for: gcc, which takes such
 * instructions for that processor, does not for the one before it, whose costs are else the same.  Intel's take half as long since
 * Sapphire Rapids, the first one with arithmetic in f16, but to a gcc that is older than the processor it is any processor, for
 * which it gathers nothing: GATHERS has the library (kernel_lib.c) name one that it knows.  NULL: as -march says. */
static const char *tuning(const dc_compiler *compiler) {
#ifdef __x86_64__
  unsigned a, b, c, d, family = 0, avx512 = 0, f16 = 0;
  if (compiler->kind != DC_COMPILER_GCC) return NULL;
  if (__get_cpuid(1, &a, &b, &c, &d)) family = (a >> 8 & 15) + (a >> 20 & 255);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) avx512 = b >> 16 & 1, f16 = d >> 23 & 1;
  if (dc_machine_is_intel()) return avx512 && f16 ? "-DGATHERS" : NULL;
  return __builtin_cpu_is("amd") && family == 25 && !avx512 ? "-mtune=znver2" : NULL;
#else
  (void)compiler;
  return NULL;
#endif
}

static void add(dc_compiler *c, const char *const *list) {
  for (; *list; list++) DC_PUSH(&c->arena, &c->command, *list);
}

static void add_flags(dc_compiler *c) {
  const char *const tuned[] = {tuning(c), NULL};
  add(c, flags);
  add(c, c->kind == DC_COMPILER_GCC ? gcc_flags : clang_flags);
  add(c, tuned);
}

/* ---- finding ---- */

static bool is_program(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

static const char *in_path(dc_arena *arena, const char *name) {
  if (strchr(name, '/')) return is_program(name) ? name : NULL;
  const char *path = getenv("PATH");
  for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
    size_t n = strcspn(at, ":");
    const char *candidate = dc_arena_printf(arena, "%.*s/%s", (int)n, at, name);
    if (n && is_program(candidate)) return candidate;
    at += n + (at[n] == ':');
  }
  return NULL;
}

/* $CC may hold arguments, separated by spaces. */
static bool use_command(dc_compiler *c, const char *text) {
  char *copy = dc_arena_strdup(&c->arena, text), *rest = NULL;
  for (char *word = strtok_r(copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
    const char *item = c->command.n == 0 ? in_path(&c->arena, word) : word;
    if (!item) return false;
    DC_PUSH(&c->arena, &c->command, item);
  }
  return c->command.n > 0;
}

static bool use_spare(dc_compiler *c, const char *zig) {
  if (!zig || !is_program(zig)) return false;
  DC_PUSH(&c->arena, &c->command, dc_arena_strdup(&c->arena, zig));
  DC_PUSH(&c->arena, &c->command, "cc");
  return true;
}

/* ---- kinds ---- */

/* What the program's name tells, of itself or of what it is a link to. */
static bool kind_by_name(const char *path, int *kind) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  bool is_zig = strcmp(name, "zig") == 0 || strcmp(name, "ziglang") == 0; /* the latter as in `python -m ziglang cc` */
  *kind = is_zig ? DC_COMPILER_ZIG : strstr(name, "clang") ? DC_COMPILER_CLANG : DC_COMPILER_GCC;
  return *kind != DC_COMPILER_GCC || strstr(name, "gcc");
}

/* What it says when asked for its version. */
static int kind_by_version(dc_compiler *c) {
  char text[200] = "";
  int ends[2];
  pid_t child;
  if (pipe2(ends, O_CLOEXEC)) return DC_COMPILER_GCC;
  const char **argv = DC_NEW_ARRAY(&c->arena, const char *, c->command.n + 2);
  memcpy(argv, c->command.v, c->command.n * sizeof *argv);
  argv[c->command.n] = "--version";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  bool started = posix_spawn(&child, argv[0], &actions, NULL, (char *const *)argv, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  FILE *said = fdopen(ends[0], "r"); /* which is at its end if nothing was started */
  if (said) {
    text[fread(text, 1, sizeof text - 1, said)] = 0;
    fclose(said);
  }
  while (started && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
  return strstr(text, "clang") ? DC_COMPILER_CLANG : DC_COMPILER_GCC;
}

static int kind_of(dc_compiler *c) {
  int kind;
  for (uint32_t k = c->command.n; k-- > 0;) {
    if (c->command.v[k][0] == '-') continue;
    char *real = k == 0 ? realpath(c->command.v[0], NULL) : NULL;
    bool told = kind_by_name(real ? real : c->command.v[k], &kind);
    free(real);
    if (told) return kind;
  }
  return kind_by_version(c);
}

/* ---- identity ---- */

/* The instruction sets of this processor, as the kernel lists them. */
static uint64_t processor(uint64_t hash) {
  struct utsname system;
  if (uname(&system) == 0) hash = dc_hash_bytes(hash, system.machine, strlen(system.machine));
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file) return hash;
  char *line = NULL;
  size_t cap = 0;
  while (getline(&line, &cap, file) > 0) {
    if (strncmp(line, "model name", 10) == 0 || strncmp(line, "CPU part", 8) == 0) hash = dc_hash_bytes(hash, line, strlen(line));
    if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0) continue;
    hash = dc_hash_bytes(hash, line, strlen(line));
    break; /* all cores are alike */
  }
  free(line);
  fclose(file);
  return hash;
}

static uint64_t identify(const dc_compiler *c) {
  uint64_t hash = 1;
  struct stat s;
  char *real = realpath(c->command.v[0], NULL);
  if (real) hash = dc_hash_bytes(hash, real, strlen(real));
  if (real && stat(real, &s) == 0) {
    int64_t version[] = {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
    hash = dc_hash_bytes(hash, version, sizeof version);
  }
  free(real);
  for (uint32_t k = 1; k < c->command.n; k++) hash = dc_hash_bytes(hash, c->command.v[k], strlen(c->command.v[k]) + 1);
  return processor(hash);
}

void dc_compiler_find(const char *spare, dc_compiler *out) {
  static const char *const usual[] = {"cc", "gcc", "clang"};
  *out = (dc_compiler){0};
  const char *own = getenv("CC");
  bool given = own && *own, found = given && use_command(out, own);
  for (size_t k = 0; !found && !given && k < sizeof usual / sizeof *usual; k++) found = use_command(out, usual[k]);
  if (!found && !given) found = use_spare(out, spare);
  if (found) {
    out->kind = kind_of(out);
    add_flags(out);
    out->identity = identify(out);
    return;
  }
  out->command.n = 0;
  out->why = "no C compiler (cc, gcc, clang) was found in $PATH";
  if (given) out->why = dc_arena_printf(&out->arena, "the compiler $CC = '%s' was not found", own);
}

void dc_compiler_free(dc_compiler *compiler) { dc_arena_free(&compiler->arena); }

/* ---- running ---- */

/* zig keeps parts of its own library and what it compiled in two folders: the first is made once and stays in ours, the
 * second goes when the compilation has ended. */
static char **zig_environment(dc_arena *arena, const char *object) {
  size_t n = 0, kept = 0;
  while (environ[n]) n++;
  char **made = DC_NEW_ARRAY(arena, char *, n + 3);
  for (size_t k = 0; k < n; k++)
    if (strncmp(environ[k], "ZIG_GLOBAL_CACHE_DIR=", 21) && strncmp(environ[k], "ZIG_LOCAL_CACHE_DIR=", 20)) made[kept++] = environ[k];
  const char *slash = strrchr(object, '/');
  made[kept++] = dc_arena_printf(arena, "ZIG_GLOBAL_CACHE_DIR=%.*s/zig", slash ? (int)(slash - object) : 1, slash ? object : ".");
  made[kept] = dc_arena_printf(arena, "ZIG_LOCAL_CACHE_DIR=%s.d", object);
  return made;
}

struct dc_job {
  pid_t child;
  bool ended, told; /* told: with its result */
  int result;
};

dc_status dc_compiler_start(const dc_compiler *compiler, const char *source, const char *object, const char *messages, dc_job **job) {
  dc_job *made = calloc(1, sizeof *made);
  if (!made) return dc_error(DC_ERR_MEMORY, "out of memory");
  dc_arena arena = {0};
  const char **argv = DC_NEW_ARRAY(&arena, const char *, compiler->command.n + 5);
  size_t n = 0;
  for (uint32_t k = 0; k < compiler->command.n; k++) argv[n++] = compiler->command.v[k];
  argv[n++] = source, argv[n++] = "-lm", argv[n++] = "-o", argv[n++] = object;
  char **environment = compiler->kind == DC_COMPILER_ZIG ? zig_environment(&arena, object) : environ;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int failed = posix_spawn(&made->child, compiler->command.v[0], &actions, NULL, (char *const *)argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  dc_arena_free(&arena);
  if (!failed) return *job = made, DC_OK;
  free(made);
  return dc_error(DC_ERR_COMPILE, "cannot run the compiler '%s': %s", compiler->command.v[0], strerror(failed));
}

static dc_status report(const char *messages) {
  char text[2000] = "";
  FILE *file = fopen(messages, "re");
  if (file) {
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
  }
  return dc_error(DC_ERR_COMPILE, "the C compiler failed on a generated kernel:\n%s", *text ? text : "(it said nothing)");
}

/* Looks whether the child has ended, or waits until it has. */
static void look(dc_job *job, int options) {
  pid_t found = 0;
  if (job->ended) return;
  do found = waitpid(job->child, &job->result, options);
  while (found < 0 && errno == EINTR);
  job->told = found == job->child, job->ended = found != 0;
}

bool dc_compiler_is_done(dc_job *job) { return look(job, WNOHANG), job->ended; }

dc_status dc_compiler_finish(dc_job *job, const char *object, const char *messages) {
  look(job, 0);
  int result = job->result;
  bool told = job->told;
  free(job);
  /* A host that ignores SIGCHLD leaves no result behind; then the object itself must tell. */
  bool good = told ? WIFEXITED(result) && WEXITSTATUS(result) == 0 : access(object, R_OK) == 0;
  return good ? DC_OK : report(messages);
}
