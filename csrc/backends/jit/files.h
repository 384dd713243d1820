/* From nodes to the texts of a few files: each distinct kernel once, kernels that differ in larger numbers only as one
 * function, files of about one length. */
#ifndef DCML_BACKENDS_JIT_FILES_H
#define DCML_BACKENDS_JIT_FILES_H

#include "backends/jit/emit.h"
#include "backends/jit/names.h"

typedef struct {
  dc_kernel_name name; /* "k" and the hash of its text */
  dc_text text;
  dc_launches *launches; /* until it is loaded */
  dc_loose loose;
  uint32_t next, alike; /* 1 + the next kernel of its file, and of its family; 0 at the end */
} dc_source;

/* Kernels with equal loose texts, or one kernel. */
typedef struct {
  dc_kernel_name name;     /* of the function that they share */
  uint32_t first, last, n; /* 1 + sources */
  dc_text text;
} dc_family;

typedef struct {
  dc_text text;
  uint32_t first; /* 1 + its first kernel */
} dc_source_file;

typedef struct {
  dc_source *sources; /* distinct kernels that are not loaded yet */
  dc_family *families;
  dc_source_file *files;
  uint32_t n_sources, n_families, n_files;
  dc_name_table known; /* of sources */
  dc_arena arena;
} dc_sources;

/* Spells nodes in a language and puts their names into `names`: empty where the language lacks a type of the node's.
 * is_loaded: is there a kernel of that name?  It needs no source then. */
DC_MUST_USE dc_status dc_sources_spell(dc_sources *sources, const dc_language *language, const dc_graph *graph, const dc_nid *nodes,
                                       uint32_t n, bool (*is_loaded)(void *context, const char *name), void *context,
                                       dc_kernel_name *names);
/* Deals them to files, as many as that many processors compile at a time, or a multiple. */
void dc_sources_deal(dc_sources *sources, const dc_language *language, uint32_t n_processors);
void dc_sources_free(dc_sources *sources);

#endif
