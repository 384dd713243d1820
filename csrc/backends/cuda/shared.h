/* Shared libraries of NVIDIA's packages: where they lie, and their functions by name. */
#ifndef DCML_BACKENDS_CUDA_SHARED_H
#define DCML_BACKENDS_CUDA_SHARED_H

#include <stdbool.h>
#include <stddef.h>

/* NULL if none is found.  Looked for in this order: the full path in the environment variable, and then nothing else; what
 * the process has loaded; each of `packages` (paths below site-packages, NULL at the end) below folder and below the
 * Pythons in it; the system's places; the toolkit. */
void *dc_cuda_shared_open(const char *variable, const char *folder, const char *const *packages, const char *name);

typedef struct {
  const char *name;
  size_t offset; /* of the pointer in the table */
} dc_cuda_symbol;

/* Fills the pointers in the table; NULL, or the name that the library lacks. */
const char *dc_cuda_shared_symbols(void *handle, const dc_cuda_symbol *symbols, size_t n, void *table);

#endif
