/* What makes callable functions of the text of kernels: a compiler, and a loader of what it made.  Naming, batching and
 * the cache on disk (jit.c) stand above it. */
#ifndef DCML_BACKENDS_JIT_TOOLCHAIN_H
#define DCML_BACKENDS_JIT_TOOLCHAIN_H

#include <sys/types.h>

#include "base/arena.h"
#include "base/status.h"

/* A compiler as a program that was looked for. */
typedef struct {
  dc_arena arena;
  DC_VEC(const char *) command; /* program and fixed arguments; empty: none was found */
  int kind;                     /* the toolchain's own: what flags it takes */
  const char *why;              /* the reason if none was found */
  uint64_t identity;            /* of compiler, flags and processor */
} dc_compiler;

typedef struct dc_toolchain {
  const char *source_suffix, *module_suffix;
  void (*open)(const char *spare, dc_compiler *out); /* spare: a program to take if the system has none; or NULL */
  void (*close)(dc_compiler *compiler);
  /* Starts to compile `source` to the module `object`; messages go to the file `messages`. */
  dc_status (*start)(const dc_compiler *compiler, const char *source, const char *object, const char *messages, pid_t *child);
  dc_status (*finish)(pid_t child, const char *object, const char *messages); /* waits; DC_ERR_COMPILE holds the first lines of the messages */
  dc_status (*load)(const char *path, void **module);
  void *(*find)(void *module, const char *function); /* NULL: it is not there */
  void (*unload)(void *module);
} dc_toolchain;

#endif
