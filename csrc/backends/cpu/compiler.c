/* See compiler.h. */
#include "backends/cpu/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"

extern char **environ;

/* No -ffast-math, ever.  Contraction is off because a*b - c*d with a*b == c*d must be 0; the
 * library and sums of products ask for fused operations by name.  Loops stay as they are printed: gcc (12 at least)
 * takes stores of zeros out of a loop as a memset, and puts it before what the loop reads from there. */
static const char *const flags[] = {
    "-O3",
#if defined(__x86_64__) || defined(__i386__)
    "-march=native",
#else
    "-mcpu=native",
#endif
    "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv", "-fopenmp-simd",
    "-fno-tree-loop-distribution", "-fno-tree-loop-distribute-patterns", "-fPIC", "-shared", "-w", "-x", "c",
};

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
  for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) hash = dc_hash_bytes(hash, flags[k], strlen(flags[k]) + 1);
  return processor(hash);
}

void dc_compiler_find(dc_compiler *out) {
  static const char *const usual[] = {"cc", "gcc", "clang"};
  *out = (dc_compiler){0};
  const char *own = getenv("CC");
  bool found = own && *own && use_command(out, own);
  for (size_t k = 0; !found && !(own && *own) && k < sizeof usual / sizeof *usual; k++) found = use_command(out, usual[k]);
  if (found) {
    out->identity = identify(out);
    return;
  }
  out->command.n = 0;
  out->why = own && *own ? dc_arena_printf(&out->arena, "the compiler $CC = '%s' was not found", own) : "no C compiler (cc, gcc, clang) was found in $PATH";
}

void dc_compiler_free(dc_compiler *compiler) { dc_arena_free(&compiler->arena); }

/* ---- running ---- */

dc_status dc_compiler_start(const dc_compiler *compiler, const char *source, const char *object, const char *messages, pid_t *child) {
  enum { FLAGS = sizeof flags / sizeof *flags };
  const char **argv = calloc(compiler->command.n + FLAGS + 5, sizeof *argv);
  if (!argv) return dc_error(DC_ERR_MEMORY, "out of memory");
  size_t n = 0;
  for (uint32_t k = 0; k < compiler->command.n; k++) argv[n++] = compiler->command.v[k];
  for (size_t k = 0; k < FLAGS; k++) argv[n++] = flags[k];
  argv[n++] = source, argv[n++] = "-lm", argv[n++] = "-o", argv[n++] = object;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int failed = posix_spawn(child, compiler->command.v[0], &actions, NULL, (char *const *)argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  free(argv);
  return failed ? dc_error(DC_ERR_COMPILE, "cannot run the compiler '%s': %s", compiler->command.v[0], strerror(failed)) : DC_OK;
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

dc_status dc_compiler_finish(pid_t child, const char *object, const char *messages) {
  int result = 0;
  pid_t ended;
  do ended = waitpid(child, &result, 0);
  while (ended < 0 && errno == EINTR);
  /* A host that ignores SIGCHLD leaves no result behind; then the object itself must tell. */
  bool good = ended == child ? WIFEXITED(result) && WEXITSTATUS(result) == 0 : access(object, R_OK) == 0;
  return good ? DC_OK : report(messages);
}
