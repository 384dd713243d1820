/* oneDNN's C interface as far as we use it, opened at run time: no header of it is needed to
 * build.  The numbers are those of the 3.x binary interface. */
#ifndef DCML_BACKENDS_NATIVE_ONEDNN_H
#define DCML_BACKENDS_NATIVE_ONEDNN_H

#include <stdatomic.h>

#include "backends/native/held.h"
#include "backends/native/library.h"

enum {
  DNN_MAX_DIMS = 12,
  DNN_BF16 = 2,
  DNN_F32 = 3,
  DNN_TRAINING = 64,
  DNN_DIRECT = 1,
  DNN_TAG_ANY = 1,
  DNN_CPU = 1,
  DNN_STREAM_DEFAULT = 1,
  DNN_SCRATCHPAD_USER = 1
};
enum { DNN_ISA_BF16 = 0x80 }; /* the bit of instructions on bf16 in the sets of x86 */
enum {
  DNN_Q_IMPLEMENTATION = 8,
  DNN_Q_SRC = 129,
  DNN_Q_DIFF_SRC,
  DNN_Q_WEIGHTS,
  DNN_Q_DIFF_WEIGHTS,
  DNN_Q_DST,
  DNN_Q_DIFF_DST,
  DNN_Q_SCRATCHPAD = 136
};
enum {
  DNN_SRC = 1,
  DNN_DST = 17,
  DNN_WEIGHTS = 33,
  DNN_BIAS = 41,
  DNN_SCRATCHPAD = 80,
  DNN_DIFF_SRC = 129,
  DNN_DIFF_DST = 145,
  DNN_DIFF_WEIGHTS = 161
};

typedef int64_t dnn_dims[DNN_MAX_DIMS];
typedef struct {
  int arg;
  void *memory;
} dnn_arg;
typedef struct {
  int major, minor, patch;
} dnn_version;

typedef struct {
  void *handle, *engine, *stream;
  dc_holder holder;
  bool multiplies_bf16; /* by instructions of the processor that are quicker than those for f32 */
  void *attr; /* we bring the scratchpad: one of the library's own ties a primitive to the thread that made it */
  const dnn_version *(*version)(void);
  int (*isa)(void);
  int (*engine_create)(void **, int, size_t);
  int (*engine_destroy)(void *);
  int (*stream_create)(void **, void *, unsigned);
  int (*stream_destroy)(void *);
  int (*attr_create)(void **);
  int (*attr_destroy)(void *);
  int (*attr_scratchpad)(void *, int);
  int (*desc_strided)(void **, int, const int64_t *, int, const int64_t *);
  int (*desc_tagged)(void **, int, const int64_t *, int, int);
  int (*desc_destroy)(void *);
  int (*desc_equal)(const void *, const void *);
  int (*desc_clone)(void **, const void *);
  size_t (*desc_size)(const void *);
  int (*memory_create)(void **, const void *, void *, void *);
  int (*memory_destroy)(void *);
  int (*memory_move)(void *, void *); /* to other data */
  int (*conv_forward)(void **, void *, int, int, const void *, const void *, const void *, const void *, const int64_t *, const int64_t *,
                      const int64_t *, const int64_t *, const void *);
  int (*conv_data)(void **, void *, int, const void *, const void *, const void *, const int64_t *, const int64_t *, const int64_t *,
                   const int64_t *, const void *, const void *);
  int (*conv_weights)(void **, void *, int, const void *, const void *, const void *, const void *, const int64_t *, const int64_t *,
                      const int64_t *, const int64_t *, const void *, const void *);
  int (*matmul)(void **, void *, const void *, const void *, const void *, const void *, const void *);
  int (*reorder)(void **, const void *, void *, const void *, void *, const void *);
  int (*primitive_create)(void **, const void *);
  int (*primitive_destroy)(void *);
  int (*primitive_desc_destroy)(void *);
  int (*next_implementation)(void *);
  int (*query_any)(const void *, int, int, void *);
  const void *(*query)(const void *, int, int);
  int (*execute)(const void *, void *, int, const dnn_arg *);
} dnn_library;

/* A primitive with its descriptor and, where it needs one, the layout of its scratchpad. */
typedef struct {
  void *desc, *primitive;
  const void *pad;
} dnn_step;

/* One operand of the main primitive: a caller's buffer, reordered if the primitive wants another layout. */
typedef struct {
  int arg, buffer;   /* position among the call's buffers */
  bool output;
  void *plain;       /* memory descriptor of the caller's layout */
  const void *wanted; /* of the primitive, owned by its descriptor */
  dnn_step reorder;  /* no primitive: the layouts agree */
  bool held;         /* the reordered copy is, by `hold`, or lies in the scratch block: */
  dc_hold hold;
  size_t offset;
} dnn_operand;

enum { DNN_MAX_OPERANDS = 4 };
typedef struct dnn_memories dnn_memories; /* onednn.c */
typedef struct {
  dnn_library *lib;
  _Atomic(dnn_memories *) spare; /* memory objects that no run uses now, or NULL */
  int type; /* of elements */
  dnn_step main;
  void *hint;
  dnn_operand operands[DNN_MAX_OPERANDS];
  int n_operands;
  size_t scratch_bytes, pad_bytes; /* reordered copies, then one scratchpad for all steps: they run in turn */
  void *temp_descs[16];
  int n_temp_descs;
  /* Nothing to sum up: the result is the bias, or zero, at [outer, channels, inner]. */
  bool empty;
  bool adds_bias; /* the primitive takes none */
  int result, bias; /* buffers; bias < 0: none */
  int64_t outer, channels, inner;
  /* parts > 0: the primitive makes so many results, of `part` numbers each, in the scratch block; their sum is wanted. */
  int64_t parts, part;
  size_t parts_at;
} dnn_call;

/* onednn_ops.c */
const char *dc_onednn_refuses(void *handle, const dc_graph *graph, dc_nid node);
DC_MUST_USE dc_status dc_onednn_build(dnn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols);
DC_MUST_USE dc_status dc_onednn_failed(int code, const char *what);
#define DNN_TRY(call, what)                                        \
  do {                                                             \
    int dnn_code = (call);                                         \
    if (dnn_code) return dc_onednn_failed(dnn_code, (what));       \
  } while (0)

#endif
