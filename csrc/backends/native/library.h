/* What a native library gives to the dispatcher. */
#ifndef DCML_BACKENDS_NATIVE_LIBRARY_H
#define DCML_BACKENDS_NATIVE_LIBRARY_H

#include "backends/backend.h"

struct dc_native_library {
  const char *name; /* as rows write it in `natives` */
  /* It is asked first, when sizes are known, for what others were chosen for: bind leaves the call NULL where it would be slower. */
  bool stands_in;
  /* Looks in folder too; place as in dc_natives_create.  NULL, or why it cannot be used. */
  const char *(*open)(const char *folder, const void *place, void **handle);
  void (*close)(void *handle);
  /* NULL if it takes the node, else the reason; "", which nobody is told: it is of another kind.  Shapes may be symbolic.  One that
   * stands in is not asked. */
  const char *(*refuses)(void *handle, const dc_graph *graph, dc_nid node);
  dc_status (*bind)(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **call);
  uint64_t (*scratch)(const void *call); /* bytes of memory of its own that a run wants */
  /* Thread-safe; scratch is aligned to DC_MEMORY_ALIGN.  stream: of the device, on which the work is put; NULL on the host. */
  dc_status (*run)(void *call, void *const *buffers, void *scratch, void *stream);
  void (*destroy)(void *call);
  /* All NULL where calls are not divided (dc_native_divides in backend.h). */
  bool (*divides)(const void *call, dc_division *out);
  uint64_t (*part_scratch)(const void *call);
  void (*run_part)(const void *call, void *const *buffers, void *scratch, const int64_t *part);
};

/* Of routines of our own: there is nothing to open. */
static inline const char *dc_native_open_own(const char *folder, const void *place, void **handle) {
  return (void)folder, (void)place, *handle = NULL, NULL;
}
static inline void dc_native_close_own(void *handle) { (void)handle; }

extern const dc_native_library dc_native_onednn, dc_native_openblas, dc_native_winograd, dc_native_pointwise, dc_native_depthwise,
                               dc_native_ours, dc_native_select, dc_native_fourier, dc_native_matrices, dc_native_search,
                               dc_native_products, dc_native_depthwise_last, dc_native_unfolded, dc_native_bytes;

#endif
