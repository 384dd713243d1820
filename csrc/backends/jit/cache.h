/* Compiled modules on disk, by content hash.
 *
 * A file is a shared object followed by a trailer with its length and hash, written under
 * another name and renamed, so that readers see all of it or nothing; what fails the check is
 * deleted and made again.  It must not know what a kernel is. */
#ifndef DCML_BACKENDS_JIT_CACHE_H
#define DCML_BACKENDS_JIT_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct {
  dc_arena arena;
  const char *folder;
  bool is_private; /* a temporary folder that goes with the cache ... */
  pid_t owner;     /* ... of this process, not of one that it forked */
  uint64_t scratch_count;
} dc_cache;

/* root NULL: $DCML_CACHE, $XDG_CACHE_HOME/dcml or ~/.cache/dcml; a private temporary folder where
 * that is not a writable folder of ours. */
DC_MUST_USE dc_status dc_cache_open(const char *root, dc_cache *out);
void dc_cache_close(dc_cache *cache);
void dc_cache_remove_folder(const char *path); /* with all that lies in it; or a file */
/* Path of a checked file with that name in the cache's arena, or NULL. */
const char *dc_cache_find(dc_cache *cache, const char *name);
void dc_cache_discard(dc_cache *cache, const char *name);
/* A fresh path for a file under construction. */
const char *dc_cache_scratch(dc_cache *cache, const char *suffix);
/* Seals the file at `scratch`, renames it to `name` and returns its path. */
DC_MUST_USE dc_status dc_cache_publish(dc_cache *cache, const char *scratch, const char *name, const char **path);
/* The two of which these are made, for files that others than dc_jit keep in the folder: a full path, and whether what
 * lies there is complete and unchanged. */
DC_MUST_USE dc_status dc_cache_seal(const char *scratch, const char *path);
bool dc_cache_is_sealed(const char *path);
/* Where the folder takes no more files, because of a full disk or a quota: a private temporary one from now on, which it says. */
bool dc_cache_leave(dc_cache *cache);
/* Deletes the files that were used longest ago until the rest fits. */
void dc_cache_prune(dc_cache *cache, uint64_t limit_bytes);

#endif
