/* What makes callable functions of the text of kernels: a compiler, and a loader of what it made.  Naming, batching and
 * the cache on disk (jit.c) stand above it. */
#ifndef DCML_BACKENDS_JIT_TOOLCHAIN_H
#define DCML_BACKENDS_JIT_TOOLCHAIN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"

/* A compiler as a program that was looked for. */
typedef struct {
  dc_arena arena;
  DC_VEC(const char *) command; /* program and fixed arguments; empty: none was found */
  int kind;                     /* the toolchain's own: what flags it takes */
  const char *why;              /* the reason if none was found */
  uint64_t identity;            /* of compiler, flags and processor */
  void *context;                /* as given to dc_jit_create */
} dc_compiler;

typedef struct dc_job dc_job; /* a compilation that was started */

typedef struct dc_toolchain {
  const char *source_suffix, *module_suffix;
  void (*open)(const char *spare, dc_compiler *out); /* its context is set.  spare: a program to take if the system has none; or NULL */
  void (*close)(dc_compiler *compiler);
  /* Starts to compile `source` to the module `object`; messages go to the file `messages`. */
  dc_status (*start)(const dc_compiler *compiler, const char *source, const char *object, const char *messages, dc_job **job);
  bool (*is_done)(dc_job *job); /* could `finish` take it without waiting? */
  /* Waits, and takes the job; DC_ERR_COMPILE holds the first lines of the messages. */
  dc_status (*finish)(dc_job *job, const char *object, const char *messages);
  dc_status (*load)(const dc_compiler *compiler, const char *path, void **module);
  void *(*find)(const dc_compiler *compiler, void *module, const char *function); /* NULL: it is not there */
  void (*unload)(const dc_compiler *compiler, void *module);
} dc_toolchain;

#endif
