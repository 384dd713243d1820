/* See shared.h. */
#include "backends/cuda/shared.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAGS = RTLD_NOW | RTLD_LOCAL, PATH_BYTES = 4096 };

/* The first file that fits the pattern and can be opened. */
static void *open_matching(const char *pattern) {
  glob_t found = {0};
  void *handle = NULL;
  if (glob(pattern, 0, NULL, &found) == 0)
    for (size_t k = 0; k < found.gl_pathc && !handle; k++) handle = dlopen(found.gl_pathv[k], FLAGS);
  globfree(&found);
  return handle;
}

static void *open_packaged(const char *folder, const char *package, const char *name) {
  static const char *const patterns[] = {"%s/%s/%s", "%s/python3*/site-packages/%s/%s"};
  char path[PATH_BYTES];
  void *handle = NULL;
  for (size_t k = 0; k < sizeof patterns / sizeof *patterns && !handle; k++)
    if (snprintf(path, sizeof path, patterns[k], folder, package, name) < (int)sizeof path) handle = open_matching(path);
  return handle;
}

void *dc_cuda_shared_open(const char *variable, const char *folder, const char *const *packages, const char *name) {
  const char *given = getenv(variable);
  char path[PATH_BYTES];
  if (given && *given) return dlopen(given, FLAGS);
  void *handle = dlopen(name, FLAGS | RTLD_NOLOAD);
  for (size_t k = 0; folder && packages[k] && !handle; k++) handle = open_packaged(folder, packages[k], name);
  if (!handle) handle = dlopen(name, FLAGS);
  if (!handle && snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name) < (int)sizeof path) handle = dlopen(path, FLAGS);
  return handle;
}

const char *dc_cuda_shared_symbols(void *handle, const dc_cuda_symbol *symbols, size_t n, void *table) {
  for (size_t k = 0; k < n; k++) {
    void *found = dlsym(handle, symbols[k].name);
    if (!found) return symbols[k].name;
    memcpy((char *)table + symbols[k].offset, &found, sizeof found);
  }
  return NULL;
}
