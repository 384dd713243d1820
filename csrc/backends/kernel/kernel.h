/* Kernels: what one node of a scheduled graph becomes for a target.
 *
 * A kernel is a tree of loops over writes.  Its buffers are flat: every access has one address, in which strides are
 * multiplied already.  Passes merge, tile and annotate the loops; the printer (print/) spells out what they decided
 * and decides nothing.  A kernel prints as text and parses back at every stage:
 *
 *   kernel {
 *     buffer A: f32[M, N]
 *     buffer s: f32[M]
 *     parallel i in 0:M threads(1, 1, 3.2) {
 *       reduce j in 0:N keeps(0) vector sums(64, 0) {
 *         s[i] sum= A[N*i + j] as 0
 *       }
 *     }
 *   }
 *
 * `also` begins a further loop of the map around it.  An access that may be evaluated only where the program would is
 * A[address, true]; one whose index depends on data, and which must be checked, A[address, condition].
 *
 * Annotations of loops, each made by the pass that is named in brackets:
 *   product(r, c)    with the loop inside: a matrix product, in blocks of r rows and c columns         [products]
 *   lanes(n)         iterations run in strips of n, inside the loops of the body                       [lanes]
 *   usual(n)         n iterations where the range is not cut short: a loop inside a tile               [tiles]
 *   keeps(k, ...)    accumulators that live from its entry to its exit                                 [accumulators]
 *   collides         iterations, with others of the loops around it, may write one element: not shared by threads, nor run by
 *                    vectors unless those of one entry write elements side by side                     [collisions]
 *   vector           vectors may run its iterations; `ordered`: its float terms add up in their order  [vectors]
 *   overlaps(n)      runs in vectors of n iterations, of which the last one begins before the end of the one before; of sums in
 *                    lanes, what the last lanes leave runs so, and adds only what has not been added                  [overlaps]
 *   sums(n, k)       accumulators of n lanes each, in k levels of blocks                               [sums]
 *   spread(n)        each of the n iterations of it and of short loops around it has an accumulator    [sums]
 *   terms(n)         each lane of the strip around takes n terms at once, between which its sums are not in memory [sums]
 *   clear, copy      one call that clears or copies memory                                             [copies]
 *   joined(end)      neighbouring blocks run as one, whose end stands for `end`                        [join]
 *   grid             its iterations are those of a grid of threads, with those of the loops of a grid around it [grid]
 *   team             its iterations are dealt to the threads that run one iteration of the grid together       [grid]
 *   pack(n)          a thread takes n iterations at once, whose elements lie side by side in memory            [packs]
 *   tile(n)          runs with the innermost loop of the grid in tiles of n by n: what lies side by side along this loop,
 *                    and apart along that one, goes through memory that a block shares                          [crossings]
 *   turns(n)         of a team's loop: a thread takes iterations, or packs, in n turns at most: registers of its own hold what is
 *                    theirs [parts, rows]; of the loop of a grid around one with packs: a thread takes n neighbours          [packs]
 *   threads(n, b, c) n loops shared by threads in blocks of b, c nanoseconds for each iteration; `sliced`: the first
 *                    loop inside that does not collide is shared                                       [threads]
 *
 * `kernel grid(b, t)` runs on a device: in blocks of b threads, of which t run one iteration of the grid together: neighbours,
 * or, `across`, each in another row of the block, so that neighbours run neighbouring iterations.  Of a register that is
 * `own` each thread of a team has the elements of the iterations that it takes.  `slices(n)`: each iteration of the grid is run
 * n times, each time for the elements of one slice of memory, which a thread adds to in the order of the iterations.
 * `at_once(n)`: a multiprocessor runs n blocks at once, for which its threads have few registers enough. */
#ifndef DCML_BACKENDS_KERNEL_KERNEL_H
#define DCML_BACKENDS_KERNEL_KERNEL_H

#include "ir/graph.h"

enum { DC_LANE_LEVEL = 1000 }; /* of the parameter that runs over lanes: deeper than any loop */

typedef struct dc_loop dc_loop;

/* A tasklet. */
typedef struct {
  dc_cid out;
  uint8_t wcr;           /* dc_wcr */
  uint32_t ordinal;      /* position among the kernel's tasklets */
  dc_loop *parent;
  dc_ex element;         /* the READ of what is written */
  dc_ex inside;          /* is the element inside its container?  Of what a reduction sets to the identity; else 0 */
  dc_ex guard, value;
  uint32_t accumulator;  /* 1 + position among the kernel's accumulators, 0: memory */
  bool in_product;       /* a product's sums */
  DC_VEC(dc_param) meets; /* loops of which several iterations may write one element */
} dc_write;

/* An element that a REDUCE loop keeps in a register from its entry to its exit. */
typedef struct {
  dc_write *first; /* a write to it */
  dc_loop *home;
  dc_dtype type;   /* what it is computed in */
  uint32_t lanes;  /* that take terms from its home on, where one loop of so many feeds it; 0: it is alone there */
} dc_accumulator;

typedef struct {
  dc_loop *loop; /* one of the two */
  dc_write *write;
} dc_item;

/* c[m, n] = sum over k of a[m, k] * b[k, n], or of another term of the two; each step is what the address grows by in the loop of
 * its last letter. */
typedef struct {
  dc_loop *k;
  dc_write *sum;
  dc_term term;
  dc_ex a, b; /* READs */
  dc_ex a_m, a_k, b_k, c_m;
  bool buffered; /* the sums are a register, of which a block is kept */
} dc_product_sum;

enum { DC_MAX_SUMS = 6 };
typedef struct {
  dc_loop *m, *n;
  dc_product_sum sums[DC_MAX_SUMS];
  uint32_t n_sums;
  int64_t rows, columns; /* of a block */
} dc_product;

/* The loops of a map, from this one on, that threads share. */
typedef struct {
  uint32_t n;
  int64_t block; /* iterations of the last one, or a multiple, that a thread takes at a time */
  bool sliced;   /* each thread runs all loops, and of the one at `slice` only its part */
  dc_loop *slice;
  dc_ex cost;    /* nanoseconds of an iteration of the last one, f64 */
} dc_threads;

enum { DC_MAX_PARTS = 64 }; /* threads that share a loop at most */

typedef enum { DC_RUN_NONE, DC_RUN_CLEAR, DC_RUN_COPY } dc_memory_run;

struct dc_loop {
  dc_loop *parent;
  dc_param param;
  dc_ex begin, end;
  int64_t step;
  uint8_t schedule; /* dc_schedule */
  bool is_entry;    /* the outermost loop of its map */
  /* annotations */
  int64_t usual;
  uint32_t lanes;
  bool collides, is_vector, is_ordered;
  uint32_t overlaps; /* iterations that run at once, the last ones among them again where they are no multiple; 0: none run again */
  bool on_grid, on_team;
  uint32_t pack; /* 0: iterations are taken one by one */
  uint32_t turns; /* 0: as many as there are */
  uint32_t tile;  /* 0, or DC_TILE */
  uint8_t memory_run; /* dc_memory_run */
  uint32_t sum_lanes, sum_levels; /* lanes 0: one accumulator */
  uint32_t spread; /* accumulators that take its terms in turn, by the position of its iteration; 0: no such */
  uint32_t terms; /* that each lane of a strip takes at once; 0: one by one */
  dc_ex joined; /* 0: blocks stay apart */
  dc_product *product;
  dc_threads *threads;
  /* what dc_kernel_settle finds */
  uint32_t depth; /* nesting, from 1 */
  uint32_t level; /* of its parameter: depth, or DC_LANE_LEVEL */
  uint64_t writes; /* containers that the body writes, as bits */
  DC_VEC(dc_item) body;
};

enum { DC_WARP = 32 }; /* threads of a device that run side by side */
enum { DC_MOST_SLICES = 1 << 10 };
enum { DC_MOST_THREADS = 2 << 10 }; /* of a multiprocessor */
enum { DC_TILE = 32, DC_TILE_THREADS = 256 }; /* iterations of each loop in a tile; threads that share one */

/* How a kernel runs on a device. */
typedef struct {
  uint32_t block; /* threads of a block; 0: it runs on a processor */
  uint32_t team;  /* threads that run one iteration of the grid together: 1, those of a warp, or a block ... */
  bool across;    /* ... or those of one column of a block of block / team columns, whose iterations follow one another in memory */
  uint32_t slices; /* threads that run one iteration, each for what it owns of the elements that iterations meet in; 0: one */
  uint32_t at_once; /* blocks that a multiprocessor is to run at once: a thread has registers for that; 0: whatever comes of it */
} dc_grid;

/* Of an expression. */
typedef struct {
  bool known, safe; /* safe: may be evaluated where the program would not */
  uint32_t level;   /* deepest loop whose parameter it uses */
  uint64_t reads;   /* containers that it reads, as bits */
} dc_dependence;

typedef struct {
  dc_graph *graph; /* private: holds the containers, grows expressions */
  dc_pool *pool;
  dc_arena *arena;
  dc_loop *root; /* runs once: the kernel's body */
  dc_param outermost; /* of the loop that the node began with; 0: with none, or of a text */
  DC_VEC(dc_write *) writes;
  DC_VEC(dc_accumulator) accumulators;
  dc_grid grid;
  uint32_t n_buffers; /* containers 1 .. n_buffers are the kernel's arguments, the rest registers */
  DC_VEC(dc_loop *) loop_of; /* by parameter */
  DC_VEC(dc_loop *) homes;   /* by container: the loop that holds all uses of a register */
  DC_VEC(dc_dependence) dependences; /* by expression, filled on demand */
  uint64_t *bits; /* by container: itself and all its views */
  DC_VEC(bool) own; /* by container: a register whose elements are shared out with the iterations of loops that take turns */
  DC_VEC(uint32_t) marks; /* by expression: equals the stamp once a traversal has been there */
  uint32_t stamp;
} dc_kernel;

/* build.c: a kernel without annotations.  parse.c: one from its text; `graph` of either owns all its memory. */
DC_MUST_USE dc_status dc_kernel_build(const dc_graph *graph, dc_nid node, dc_kernel *out);
DC_MUST_USE dc_status dc_kernel_parse(const char *text, dc_kernel *out);
void dc_kernel_free(dc_kernel *kernel);
void dc_kernel_print(const dc_kernel *kernel, dc_text *out); /* text.c */
DC_MUST_USE dc_status dc_kernel_verify(dc_kernel *kernel);
/* Does a target with these types, as bits by dc_dtype, compute it?  DC_ERR_UNSUPPORTED names the type that it lacks. */
DC_MUST_USE dc_status dc_kernel_supported(const dc_kernel *kernel, uint64_t types);

/* passes.c: the passes by name, in the order in which they run; each verifies what it leaves. */
typedef struct {
  const char *name, *summary;
  void (*run)(dc_kernel *kernel);
} dc_kernel_pass;
extern const dc_kernel_pass dc_kernel_passes[]; /* for a processor; a row without a name at the end */
extern const dc_kernel_pass dc_kernel_passes_grid[]; /* for a device with a grid of threads */
DC_MUST_USE dc_status dc_kernel_pass_run(dc_kernel *kernel, const char *name); /* of either list */

void dc_kernel_merge(dc_kernel *k);
void dc_kernel_pieces(dc_kernel *k);
void dc_kernel_narrow(dc_kernel *k);
void dc_kernel_products(dc_kernel *k);
void dc_kernel_lanes(dc_kernel *k);
void dc_kernel_tiles(dc_kernel *k);
void dc_kernel_carries(dc_kernel *k);
void dc_kernel_accumulators(dc_kernel *k);
void dc_kernel_collisions(dc_kernel *k);
void dc_kernel_vectors(dc_kernel *k);
void dc_kernel_sums(dc_kernel *k);
void dc_kernel_copies(dc_kernel *k);
void dc_kernel_join(dc_kernel *k);
void dc_kernel_threads(dc_kernel *k);
void dc_kernel_overlaps(dc_kernel *k);
void dc_kernel_outward(dc_kernel *k);
void dc_kernel_grid(dc_kernel *k);
void dc_kernel_crossings(dc_kernel *k);
void dc_kernel_packs(dc_kernel *k);
void dc_kernel_reciprocals(dc_kernel *k);
void dc_kernel_identities(dc_kernel *k);
void dc_kernel_parts(dc_kernel *k);
void dc_kernel_rows(dc_kernel *k);
/* rows.c: may a thread keep something of each iteration that it takes of a team's loop in registers?  In how many turns it takes them,
 * how many registers that needs for values of a type, and how many there are for all that threads keep. */
bool dc_loop_may_take_turns(dc_kernel *k, const dc_loop *l);
uint32_t dc_loop_row_turns(dc_kernel *k, const dc_loop *l);
uint32_t dc_loop_row_words(dc_kernel *k, const dc_loop *l, dc_dtype type);
uint32_t dc_kernel_row_words(const dc_kernel *k);
/* crossings.c: is it read freely, side by side along `tile` and apart along `last`?  May the two run in tiles? */
bool dc_read_is_crossing(const dc_kernel *k, const dc_loop *tile, const dc_loop *last, dc_ex read);
bool dc_kernel_may_tile(dc_kernel *k, const dc_loop *tile, const dc_loop *last);
/* packs.c: are the elements of an access, which is evaluated freely, side by side in the iterations of l, in places that are multiples of n? */
bool dc_read_is_packed(const dc_kernel *k, const dc_loop *l, dc_ex read, uint32_t n);

/* products.c: the product whose columns are loop n, NULL if it is none. */
dc_product *dc_kernel_product_at(dc_kernel *k, dc_loop *n);
/* sums.c: of the order of sums. */
enum {
  DC_SUM_BLOCK = 64, /* terms that follow one another in a sum */
  DC_FEW_LANES = 8,  /* one vector, for what is too short for more, or left over */
};
void dc_kernel_widen(dc_kernel *k); /* finds the lanes of accumulators from those of loops */
/* Nothing but terms, one for each of some accumulators of the lanes of the strip around? */
bool dc_loop_takes_terms(const dc_kernel *k, const dc_loop *l);
bool dc_kernel_is_sum_through(const dc_kernel *k, const dc_loop *l, uint32_t accumulator); /* its order shows, in iterations of l */
/* Does w add to accumulator a of the kernel? */
static inline bool dc_write_adds_to(const dc_write *w, uint32_t a) { return w->accumulator == a + 1; }

/* kernel.c: looking at kernels. */
void dc_kernel_open(dc_kernel *k); /* a kernel without loops, over the containers of its graph */
void dc_kernel_settle(dc_kernel *k); /* after a change of the tree: depths, levels, writes, homes */
dc_loop *dc_loop_new(dc_kernel *k, const char *name, dc_ex begin, dc_ex end, int64_t step);
/* One in steps of 1, of the name and the schedule of another. */
dc_loop *dc_loop_like(dc_kernel *k, const dc_loop *like, dc_ex begin, dc_ex end);
dc_dependence dc_kernel_dependence(dc_kernel *k, dc_ex x);
/* Both before dc_kernel_settle: a register; a write at that position of a body. */
dc_cid dc_kernel_add_register(dc_kernel *k, const char *name, dc_dtype type, uint32_t rank, const dc_ex *shape);
void dc_kernel_add_write(dc_kernel *k, dc_loop *body, uint32_t at, dc_ex element, dc_ex value);
/* Puts a loop before another one, or behind it. */
void dc_kernel_add_beside(dc_kernel *k, const dc_loop *l, bool behind, dc_loop *made);
static inline dc_ex dc_read_address(const dc_kernel *k, dc_ex read) { return dc_ex_arg(k->pool, read, 0); }
dc_ex dc_read_check(const dc_kernel *k, dc_ex read); /* 0: the indices do not depend on data */
/* A traversal of shared expressions: begin, then first(x) is true once for each x. */
static inline void dc_kernel_begin(dc_kernel *k) { k->stamp++; }
bool dc_kernel_first(dc_kernel *k, dc_ex x);
bool dc_kernel_is_register(const dc_kernel *k, dc_cid c);
/* A register that a loop of a team inside its home fills: its threads share it. */
bool dc_kernel_is_shared(const dc_kernel *k, dc_cid c);
static inline bool dc_kernel_is_own(const dc_kernel *k, dc_cid c) { return c < k->own.n && k->own.v[c]; }
bool dc_kernel_is_true(const dc_kernel *k, dc_ex x);
bool dc_kernel_is_number(const dc_kernel *k, dc_ex x, int64_t number);
bool dc_kernel_divides(const dc_pool *pool, dc_ex x, int64_t n); /* packs.c: is x a multiple of n, whatever the symbols are? */
/* The loop that a body consists of, or NULL. */
static inline dc_loop *dc_loop_only(const dc_loop *l) { return l->body.n == 1 ? l->body.v[0].loop : NULL; }
/* The innermost loop of a map, from its loop l on. */
static inline dc_loop *dc_loop_last_of_map(dc_loop *l) {
  while (dc_loop_only(l) && !dc_loop_only(l)->is_entry) l = dc_loop_only(l);
  return l;
}
/* The innermost loop of the grid, from its loop l on. */
static inline const dc_loop *dc_loop_last_on_grid(const dc_loop *l) {
  while (dc_loop_only(l) && dc_loop_only(l)->on_grid) l = dc_loop_only(l);
  return l;
}
dc_loop *dc_write_reduction(const dc_write *w); /* the innermost REDUCE map around it: its outermost loop, or NULL */
/* grid.c: may the threads of a team share the iterations of a map, whose outermost loop this is? */
bool dc_loop_is_dealt(const dc_kernel *k, const dc_loop *entry);
/* Does w add floats to an element that several iterations may meet in, so that their order shows? */
bool dc_write_is_ordered(const dc_kernel *k, const dc_write *w);
dc_ex dc_write_owned_by(const dc_kernel *k, const dc_write *w); /* what decides which slice of a grid's iteration its element is in */
bool dc_write_meets(const dc_write *w, const dc_loop *l);
bool dc_loop_has_loops(const dc_loop *l); /* apart from those of a product's sums */
bool dc_loop_is_sum(const dc_loop *l);    /* of a product */
dc_write *dc_loop_single_write(const dc_loop *l); /* that its body consists of, or NULL */
bool dc_loop_is_inside(const dc_loop *inner, const dc_loop *outer); /* or the same */
const dc_loop *dc_loop_strip(const dc_loop *l); /* the loop with lanes that encloses it, l included, or NULL */
int64_t dc_loop_extent(dc_kernel *k, const dc_loop *l); /* iterations if that is a constant, else -1 */
bool dc_loop_accumulates(const dc_loop *l, uint32_t accumulator, bool deep); /* in its body, or in loops inside too */
/* vectors.c: do the iterations of one entry write elements of their own, side by side, and nothing else? */
bool dc_loop_is_apart(dc_kernel *k, const dc_loop *l);
/* threads.c: the loop that the node began with, if it is all that is left, and some of its iterations can run by themselves; NULL. */
const dc_loop *dc_kernel_divided(const dc_kernel *k);
bool dc_kernel_is_laned(const dc_kernel *k, uint32_t accumulator); /* each lane of a strip has its own */
typedef void (*dc_loop_fn)(dc_kernel *k, dc_loop *l);
void dc_kernel_each_loop(dc_kernel *k, dc_loop *l, dc_loop_fn visit); /* all under l, innermost first */
/* Calls visit on each READ under x, also those in addresses and checks. */
void dc_kernel_each_read(const dc_kernel *k, dc_ex x, dc_visit_fn visit, void *context);

#endif
