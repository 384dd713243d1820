/* See cache.h. */
#define _GNU_SOURCE /* nftw */
#include "backends/jit/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

static const char version[] = "kernels-v1";
enum { TOUCH_SECONDS = 86400, STALE_SECONDS = 3600 };

/* ---- the folder ---- */

static void make_parents(const char *path) {
  char copy[4096];
  snprintf(copy, sizeof copy, "%s", path);
  for (char *c = copy + 1; *c; c++) {
    if (*c != '/') continue;
    *c = 0;
    (void)mkdir(copy, 0700);
    *c = '/';
  }
}

/* Ours, writable, and closed to other writers: code is loaded from here. */
static bool is_safe(const char *folder) {
  struct stat s;
  return lstat(folder, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & 022) &&
         access(folder, R_OK | W_OK | X_OK) == 0;
}

static const char *default_root(dc_arena *arena) {
  const char *own = getenv("DCML_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (own && *own) return own;
  if (cache && *cache == '/') return dc_arena_printf(arena, "%s/dcml", cache);
  return home && *home == '/' ? dc_arena_printf(arena, "%s/.cache/dcml", home) : NULL;
}

/* A folder that goes with the cache, which keeps the one it had where none can be made. */
static dc_status use_temporary(dc_cache *cache) {
  const char *temporary = getenv("TMPDIR");
  char *folder = dc_arena_printf(&cache->arena, "%s/dcml-XXXXXX", temporary && *temporary ? temporary : "/tmp");
  if (!mkdtemp(folder)) return dc_error(DC_ERR_DEVICE, "no folder for compiled kernels: %s cannot be made: %s", folder, strerror(errno));
  cache->folder = folder, cache->is_private = true, cache->owner = getpid();
  return DC_OK;
}

dc_status dc_cache_open(const char *root, dc_cache *out) {
  *out = (dc_cache){0};
  if (!root) root = default_root(&out->arena);
  if (root && strlen(root) < 3800) {
    char *folder = dc_arena_printf(&out->arena, "%s/%s", root, version);
    make_parents(folder);
    (void)mkdir(folder, 0700);
    out->folder = folder;
    if (is_safe(folder)) return DC_OK;
  }
  dc_status status = use_temporary(out);
  if (status) dc_arena_free(&out->arena);
  return status;
}

/* Does it take a file as large as a module may be?  Only writing one tells: a quota shows nowhere else. */
static bool has_room(dc_cache *cache) {
  static const char block[1 << 16];
  const char *probe = dc_cache_scratch(cache, ".room");
  int file = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool room = file >= 0;
  for (int k = 0; k < 16 && room; k++) room = write(file, block, sizeof block) == (ssize_t)sizeof block;
  if (file >= 0) room = close(file) == 0 && room;
  (void)unlink(probe);
  return room;
}

bool dc_cache_leave(dc_cache *cache) {
  if (cache->is_private || has_room(cache)) return false;
  const char *full = cache->folder;
  dc_status status = use_temporary(cache);
  if (status) return dc_status_free(status), false;
  fprintf(stderr, "dcml: %s takes no more files: what is compiled now lies in %s until this process ends\n", full, cache->folder);
  return true;
}

static int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *at) {
  (void)s, (void)kind, (void)at;
  (void)remove(path);
  return 0;
}

void dc_cache_remove_folder(const char *path) { (void)nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

void dc_cache_close(dc_cache *cache) {
  if (cache->is_private && cache->owner == getpid()) dc_cache_remove_folder(cache->folder);
  dc_arena_free(&cache->arena);
}

/* ---- files ---- */

typedef struct {
  char magic[8];
  uint64_t length, hash;
} trailer;

static const char magic[8] = {'d', 'c', 'm', 'l', 's', 'e', 'a', 'l'};

static uint64_t hash_of(const void *data, size_t n) { return dc_hash_bytes(0x5ea1, data, n); }

bool dc_cache_is_sealed(const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  struct stat s;
  bool good = false;
  trailer t;
  if (fstat(file, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > (off_t)sizeof t) {
    size_t n = (size_t)s.st_size;
    const char *data = mmap(NULL, n, PROT_READ, MAP_PRIVATE, file, 0);
    if (data != MAP_FAILED) {
      memcpy(&t, data + n - sizeof t, sizeof t);
      good = memcmp(t.magic, magic, sizeof magic) == 0 && t.length == n - sizeof t && t.hash == hash_of(data, n - sizeof t);
      munmap((void *)data, n);
    }
  }
  if (good && time(NULL) - s.st_mtime > TOUCH_SECONDS) (void)futimens(file, NULL);
  close(file);
  return good;
}

static const char *path_of(dc_cache *cache, const char *name) { return dc_arena_printf(&cache->arena, "%s/%s", cache->folder, name); }

const char *dc_cache_find(dc_cache *cache, const char *name) {
  const char *path = path_of(cache, name);
  if (dc_cache_is_sealed(path)) return path;
  (void)unlink(path);
  return NULL;
}

void dc_cache_discard(dc_cache *cache, const char *name) { (void)unlink(path_of(cache, name)); }

const char *dc_cache_scratch(dc_cache *cache, const char *suffix) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now); /* process, cache, time and count make the name nobody else's */
  uint64_t who[] = {(uint64_t)getpid(), (uint64_t)(uintptr_t)cache, (uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, ++cache->scratch_count};
  return dc_arena_printf(&cache->arena, "%s/tmp-%016llx%s", cache->folder, (unsigned long long)dc_hash_bytes(0, who, sizeof who), suffix);
}

dc_status dc_cache_seal(const char *scratch, const char *path) {
  int file = open(scratch, O_RDWR | O_CLOEXEC);
  struct stat s;
  bool good = file >= 0 && fstat(file, &s) == 0 && s.st_size > 0;
  if (good) {
    size_t n = (size_t)s.st_size;
    const char *data = mmap(NULL, n, PROT_READ, MAP_PRIVATE, file, 0);
    good = data != MAP_FAILED;
    if (good) {
      trailer t = {.length = n, .hash = hash_of(data, n)};
      memcpy(t.magic, magic, sizeof magic);
      munmap((void *)data, n);
      good = pwrite(file, &t, sizeof t, (off_t)n) == (ssize_t)sizeof t;
    }
  }
  if (file >= 0) good = close(file) == 0 && good;
  if (good && rename(scratch, path) == 0) return DC_OK;
  dc_status status = dc_error(DC_ERR_COMPILE, "cannot write '%s': %s", path, strerror(errno));
  (void)unlink(scratch);
  return status;
}

dc_status dc_cache_publish(dc_cache *cache, const char *scratch, const char *name, const char **path) {
  *path = path_of(cache, name);
  return dc_cache_seal(scratch, *path);
}

/* ---- size ---- */

typedef struct {
  const char *path;
  uint64_t bytes;
  time_t used;
} cached_file;

static int older_first(const void *a, const void *b) {
  const cached_file *x = a, *y = b;
  return (x->used > y->used) - (x->used < y->used);
}

void dc_cache_prune(dc_cache *cache, uint64_t limit_bytes) {
  DIR *folder = opendir(cache->folder);
  if (!folder) return;
  dc_arena arena = {0};
  DC_VEC(cached_file) files = {0};
  uint64_t total = 0;
  time_t now = time(NULL);
  for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    char *path = dc_arena_printf(&arena, "%s/%s", cache->folder, entry->d_name);
    struct stat s;
    if (lstat(path, &s) != 0) continue;
    if (strncmp(entry->d_name, "tmp-", 4) == 0) { /* left behind by a process that died, or under construction */
      if (now - s.st_mtime > STALE_SECONDS) dc_cache_remove_folder(path);
      continue;
    }
    if (!S_ISREG(s.st_mode)) continue;
    DC_PUSH(&arena, &files, ((cached_file){path, (uint64_t)s.st_size, s.st_mtime}));
    total += (uint64_t)s.st_size;
  }
  closedir(folder);
  if (total > limit_bytes) qsort(files.v, files.n, sizeof *files.v, older_first);
  for (uint32_t k = 0; k < files.n && total > limit_bytes; k++) {
    (void)unlink(files.v[k].path);
    total -= files.v[k].bytes;
  }
  dc_arena_free(&arena);
}
