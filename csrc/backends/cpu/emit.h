/* Inside the cpu backend: a kernel's plan (a tree of loops whose accesses have flat addresses)
 * and the state of its emission to C.
 *
 * plan.c turns a node into loops and decides what is merged, what is vectorised and what is an
 * accumulator; value.c prints expressions, each once, in the outermost loop that allows it;
 * emit.c prints loops and writes, sums.c the order in which accumulators take their terms, product.c sums of
 * products, copy.c runs of memory; tasks.c (print.h) prints the functions that threads run. */
#ifndef DCML_BACKENDS_CPU_EMIT_H
#define DCML_BACKENDS_CPU_EMIT_H

#include "backends/backend.h"

enum {
  LANES = 64,        /* iterations of a strip in lane mode: four vectors of accumulators */
  LONG_LANES = 256,  /* the same where memory is read once: long runs matter more than registers */
  LANE_LEVEL = 1000, /* the level of the parameter that runs over lanes: deeper than any loop */
};

typedef struct loop loop;

/* A tasklet. */
typedef struct {
  dc_cid out;
  uint8_t wcr;
  uint32_t ordinal;      /* position among the kernel's tasklets */
  loop *parent;
  dc_ex element; /* READ of the written element, as other tasklets would spell it */
  dc_ex guard, value;
  uint32_t accumulator;  /* 1 + index into the plan's accumulators, 0: memory */
  bool in_product;       /* a product's sums */
} write_item;

/* An element that a REDUCE loop keeps in a register from its entry to its exit. */
typedef struct {
  write_item *first; /* a write to it */
  loop *home;
  dc_dtype type;     /* what it is computed in */
  const char *name;  /* the C lvalue that terms go to now */
} accumulator;

typedef struct {
  loop *loop;        /* one of the two */
  write_item *write;
} item;

/* c[m, n] = sum over k of a[m, k] * b[k, n]; each step is what the address grows by in the loop of its last letter. */
typedef struct {
  loop *k;
  write_item *sum;
  dc_ex a, b; /* READs */
  dc_ex a_m, a_k, b_k, c_m;
  bool buffered; /* the sums are a register, of which a block is kept */
} gemm_sum;

enum { DC_MAX_SUMS = 6 };
typedef struct {
  loop *m, *n;
  gemm_sum sums[DC_MAX_SUMS];
  uint32_t n_sums;
} gemm;

struct loop {
  loop *parent;
  dc_param param; /* in C its variable is j and the number: i8 and i64 are types */
  dc_ex begin, end;
  int64_t step;
  uint8_t schedule;
  bool is_entry;  /* the outermost loop of its map */
  int64_t usual;  /* iterations of a loop inside a tile, 0: see the range */
  const char *low, *high; /* C names that replace the range while threads share this loop */
  gemm *product; /* whose m this is, or NULL */
  uint32_t lanes; /* 0, or: run in strips of so many iterations, inside the loops of the body */
  bool conflicts; /* its iterations may write one element by WCR: neither threads nor vectors */
  uint32_t depth; /* nesting, from 1 */
  uint32_t level; /* of its parameter: depth, or LANE_LEVEL */
  uint64_t writes; /* containers that the body writes, as bits */
  DC_VEC(item) body;
};

typedef struct {
  bool known, safe; /* safe: may be evaluated where the program would not */
  uint32_t level;   /* deepest loop whose parameter it uses */
  uint64_t reads;   /* containers that it reads, as bits */
  dc_ex address, check; /* of a READ: flat address; are the indices that data give in range? (0: sure) */
  uint32_t local;   /* 1 + number of the C local that holds it; 0: none now */
  uint32_t mark;    /* equals the emitter's stamp once a traversal has been here */
} fact;

typedef struct {
  dc_graph *graph; /* private: grows expressions */
  dc_pool *pool;
  dc_arena *arena;
  /* plan */
  loop root;
  DC_VEC(write_item *) writes;
  DC_VEC(accumulator) accumulators;
  uint32_t n_buffers; /* containers 1 .. n_buffers are the kernel's arguments, the rest registers */
  DC_VEC(loop *) loop_of;    /* by parameter */
  DC_VEC(loop *) homes;      /* by container: the loop that holds all uses of a register */
  DC_VEC(bool) exposed;      /* by parameter: used other than in flat addresses */
  DC_VEC(dc_ex) reads;       /* READ expressions */
  DC_VEC(fact) facts;        /* by expression */
  /* emission */
  const char *name; /* of the kernel */
  dc_text *out;
  dc_text *functions;
  int indent;
  uint32_t next_local, next_function;
  uint32_t stamp;
  DC_VEC(dc_ex) live; /* expressions with a local, innermost scope last */
  loop *lane;      /* the strip that encloses, or NULL */
  bool in_lane;    /* inside its lane loop */
  const gemm *block; /* whose sums lie in a block, while what follows them is emitted */
  bool in_task;    /* inside a function that threads run */
  bool flagged;    /* an index check was printed since the caller cleared this */
  uint32_t ordinal; /* of the tasklet under emission */
} emitter;

/* How a type is kept in memory and computed with. */
typedef struct {
  const char *storage, *compute; /* C types; NULL: not supported */
  const char *load, *store;      /* C around $ between the two */
  const char *kind;              /* suffix of the library functions for it */
} type_row;
const type_row *dc_cpu_type(dc_dtype type);
const char *dc_cpu_accumulator_type(dc_dtype type); /* in C; OpenMP has no reductions of _Bool by | and & */

/* extract.c: a graph with a copy of the node; buffers become its containers 1 to n. */
DC_MUST_USE dc_status dc_cpu_extract(const dc_graph *graph, dc_nid node, const dc_cid *buffers, uint32_t n,
                                     dc_graph **out, dc_nid *copy);

/* plan.c */
DC_MUST_USE dc_status dc_cpu_plan(emitter *e, dc_nid node);
fact *dc_cpu_fact(emitter *e, dc_ex x);
uint64_t dc_cpu_container_bits(emitter *e, dc_cid c); /* with all its views */
dc_ex dc_cpu_in_bounds(emitter *e, const write_item *w); /* the element is inside its container; true where that is proven */
bool dc_cpu_has_loops(const loop *l);
int64_t dc_cpu_extent(emitter *e, const loop *l); /* iterations if that is a constant, else -1 */
bool dc_cpu_is_inside(const loop *inner, const loop *outer); /* or the same */

/* product.c */
void dc_cpu_find_products(emitter *e, loop *l);
bool dc_cpu_has_product(const loop *l); /* it or one inside */
void dc_cpu_emit_product(emitter *e, const gemm *x, const char *begin, const char *end); /* rows begin .. end */
const char *dc_cpu_block_element(emitter *e, dc_cid c); /* the C lvalue of a register in the block; NULL: it is not there */

/* value.c */
const char *dc_cpu_value(emitter *e, dc_ex x); /* a C atom: a local or a literal */
void dc_cpu_hoist(emitter *e, dc_ex x, uint32_t level, uint64_t writes);
uint32_t dc_cpu_scope_open(emitter *e);
void dc_cpu_scope_close(emitter *e, uint32_t mark);
void dc_cpu_forget(emitter *e, uint64_t writes); /* drops locals that read what is written */
void dc_cpu_remember(emitter *e, dc_ex x, const char *atom); /* the atom must be a local tN */
const char *dc_cpu_element(emitter *e, dc_cid c, dc_ex address); /* the C lvalue */
const char *dc_cpu_cast(emitter *e, dc_dtype to, dc_dtype from, const char *atom);
const char *dc_cpu_constant(emitter *e, dc_dtype type, double value);
const char *dc_cpu_combine(emitter *e, dc_wcr wcr, dc_dtype type, const char *a, const char *b);
void dc_cpu_line(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool dc_cpu_uses_symbol(emitter *e, dc_sym s);
double dc_cpu_cost(emitter *e, dc_ex x); /* nanoseconds, roughly, when vectorised */

/* copy.c: the loop as one call that clears or copies memory; false: it is another kind of loop, and nothing was printed. */
bool dc_cpu_emit_copy(emitter *e, const loop *l, const char *begin, const char *end);

/* emit.c: the text of one kernel, without the library. */
DC_MUST_USE dc_status dc_cpu_emit_kernel(const dc_graph *graph, dc_nid node, const char *name, dc_text *out);

/* kernel_lib.c: the types, macros and functions that the text of kernels uses. */
void dc_cpu_library(const char *kernels, dc_text *out);

#endif
