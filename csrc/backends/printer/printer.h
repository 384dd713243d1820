/* The printer: a kernel, after its passes, as the text of a C-like language.
 *
 * It decides nothing: which loops run in vectors, strips, tasks or blocks stands in the kernel, how things are spelled
 * in the dialect.  value.c prints expressions, each once, in the outermost loop that allows it; write.c what a body
 * does; sums.c, tasks.c and blocks.c what stands around the loops of sums, of threads and of products; print.c, which
 * calls them all and which none of them calls, the tree. */
#ifndef DCML_BACKENDS_PRINTER_PRINTER_H
#define DCML_BACKENDS_PRINTER_PRINTER_H

#include "backends/kernel/kernel.h"
#include "backends/kernel/launch.h"
#include "backends/printer/dialect.h"

/* The kernel as a function `name(buffers, symbols)`, or, if it runs on a grid, as functions with their launches; without
 * the library; grows the kernel's expressions.  launches may be NULL. */
void dc_kernel_spell(dc_kernel *kernel, const dc_dialect *dialect, const char *name, dc_launches *launches, dc_text *out);

/* loose.c: the text of a kernel with names for its larger numbers. */
typedef struct {
  dc_dtype type; /* DC_I64, DC_F32 or DC_F64 */
  int64_t bits;
  const char *literal;
} dc_loose_number;
typedef struct {
  dc_arena arena;
  dc_text text;
  DC_VEC(dc_loose_number) numbers;
  uint32_t n_symbols;
  const char *symbols; /* as a list of initialisers */
  bool divides; /* dc_kernel_divided */
} dc_loose;
/* loose: made empty by the caller.  The kernel runs on no grid. */
void dc_kernel_spell_loose(dc_kernel *kernel, const dc_dialect *dialect, const char *name, dc_loose *loose);
bool dc_loose_alike(const dc_loose *a, const dc_loose *b); /* do they differ in nothing but their numbers? */
/* One function `family`, the name that the loose texts have, which are alike, and for each of its members a function under its
 * own name. */
void dc_loose_spell(const dc_dialect *dialect, const dc_loose *const *members, const char *const *names, uint32_t n, const char *family,
                    dc_text *out);
void dc_loose_free(dc_loose *loose);

/* ---- inside the printer ---- */

typedef struct {
  dc_kernel *k;
  dc_pool *pool;
  dc_arena *arena;
  const dc_dialect *dialect;
  const char *name; /* of the kernel */
  dc_text *out;
  dc_text *functions;
  int indent;
  uint32_t next_local, next_function;
  DC_VEC(uint32_t) locals; /* by expression: 1 + number of the local that holds it, 0: none now */
  DC_VEC(dc_ex) live;      /* expressions with a local, innermost scope last */
  struct {
    const char *name;
    uint32_t width;        /* of the array of one for each lane, 0: a single one */
  } *sums;                 /* by accumulator: what terms go to now */
  uint32_t repeated;       /* lanes of a vector of terms, from the first on, that have been added already */
  const char *lane_index;  /* of the accumulator that a term goes to; NULL: the first one's */
  const dc_loop *slice;    /* a loop whose range is begin .. end here, as threads share it; or NULL */
  const dc_loop *lane;     /* the strip that encloses, or NULL */
  bool in_lane;            /* inside its lane loop */
  const dc_product *block; /* whose sums lie in a block, while what follows them is printed */
  bool in_task;            /* inside a function that threads run */
  bool flagged;            /* an index check was printed since the caller cleared this */
  DC_VEC(dc_ex) checked;   /* conditions of indices that hold here, since the loops around run only where they do */
  bool *used_symbols;      /* by dc_sym: it was printed; NULL: nobody asks */
  bool uniform;            /* all threads of a team run what is printed here */
  uint64_t dirty, touched; /* by container: what was written, or read, by threads of the team since they last waited for one another */
  struct dc_pack {
    dc_cid c;
    dc_ex address;
    bool loaded, stored;
    const char *place;     /* of its first element in memory */
  } *packs;                /* whose elements are in arrays of a thread, x0 and so on, while a pack is printed */
  uint32_t n_packs, next_pack;
  const dc_loop *packed;   /* the loop of the packs */
  uint64_t aligned;        /* by container: whether its address is aligned is asked */
  bool scratch;            /* memory that a team combines values in is needed */
  uint32_t ordinal;        /* of the tasklet that is printed */
  dc_loose *loose;         /* where numbers go that get names; NULL: all are literals */
} dc_printer;

/* Text that is printed before what must stand above it is known. */
typedef struct {
  dc_text *outer, inner;
  bool flagged;
} dc_deferred_text;
void dc_print_defer(dc_printer *p, dc_deferred_text *text);
void dc_print_undefer(dc_printer *p, dc_deferred_text *text); /* appends the inner text to the outer */
void dc_print_line(dc_printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dc_print_open(dc_printer *p, const char *head); /* head, a brace, deeper */
void dc_print_close(dc_printer *p);

/* value.c */
bool dc_print_is_checked(const dc_printer *p, dc_ex check);
const char *dc_print_value(dc_printer *p, dc_ex x); /* an atom: a local or a literal */
void dc_print_hoist(dc_printer *p, dc_ex x, uint32_t level, uint64_t writes); /* as far as x was not visited since dc_kernel_begin */
bool dc_print_is_narrow(dc_printer *p, dc_ex x); /* an index that 32 bits are sure to hold, and are all that computes it */
const char *dc_print_index_type(dc_printer *p, dc_ex x);
uint32_t dc_print_scope(dc_printer *p);
void dc_print_scope_end(dc_printer *p, uint32_t mark);
void dc_print_forget(dc_printer *p, uint64_t writes); /* drops locals that read what is written */
void dc_print_remember(dc_printer *p, dc_ex x, const char *atom); /* the atom must be a local tN */
const char *dc_print_local(dc_printer *p, dc_dtype type, const char *text); /* a new one */
uint32_t dc_print_bound(const dc_printer *p, dc_ex x); /* its local, as in `locals` */
void dc_print_bind(dc_printer *p, dc_ex x, uint32_t local);
/* Of the packs of l, which are numbered: the loop whose turns take them, l or one around it, NULL: none; does one hold other elements
 * in each turn; an element of its array. */
const dc_loop *dc_print_turning(const dc_loop *l);
bool dc_print_moves(const dc_printer *p, const dc_loop *l, uint32_t pack);
const char *dc_print_lane(dc_printer *p, const dc_loop *l, uint32_t pack, const char *lane);
const char *dc_print_element(dc_printer *p, dc_cid c, dc_ex address); /* the lvalue */
const char *dc_print_block_element(dc_printer *p, dc_cid c); /* of a register in a product's block; NULL: it is not there */
const char *dc_print_cast(dc_printer *p, dc_dtype to, dc_dtype from, const char *atom);
const char *dc_print_constant(dc_printer *p, dc_dtype type, double value);
const char *dc_print_combine(dc_printer *p, dc_wcr wcr, dc_dtype type, const char *a, const char *b);
const char *dc_print_around(dc_printer *p, const char *pattern, const char *atom); /* a pattern with one $ */

/* loose.c */
bool dc_print_is_loose(const dc_printer *p, dc_dtype type, int64_t bits); /* has the number a name? */
const char *dc_print_loose(dc_printer *p, dc_dtype type, int64_t bits, const char *literal); /* the name, or the literal again */
void dc_print_loose_names(dc_printer *p); /* at the head of a function */

/* write.c */
void dc_print_write(dc_printer *p, const dc_write *w);
void dc_print_store(dc_printer *p, dc_cid c, dc_ex address, const char *atom); /* of the container's type already */
void dc_print_identity(dc_printer *p, const dc_loop *home, const dc_write *w); /* into every element that w may write inside home */
void dc_print_result(dc_printer *p, uint32_t accumulator); /* of an accumulator, into memory */
void dc_print_run(dc_printer *p, const dc_loop *l, const char *begin, const char *end); /* of memory, cleared or copied */
void dc_print_registers(dc_printer *p, const dc_loop *l); /* locals for the registers that live in its body */

/* sums.c */
const char *dc_print_accumulator_type(const dc_printer *p, uint32_t accumulator);
const char *dc_print_term(dc_printer *p, uint32_t accumulator); /* the lvalue that a term goes to here */
/* Declares those of a loop; `whole`: as single values, which those of threads go to. */
void dc_print_accumulators(dc_printer *p, const dc_loop *home, bool whole);
void dc_print_fold(dc_printer *p, const dc_loop *home); /* makes single values of those with lanes */
/* Before a loop over what `body` does, vectors may run it; false, and no text, where the order of floats or the compiler forbids that. */
bool dc_print_vectors(dc_printer *p, const dc_loop *body, dc_text *out);
/* What some accumulators stand for while others take their terms. */
typedef struct {
  const char **names; /* by accumulator, NULL: unchanged */
  uint32_t *widths;
  const char *from, *to; /* of a block */
} dc_outer_sums;
dc_outer_sums dc_print_lanes_begin(dc_printer *p, const dc_loop *l, uint32_t lanes); /* gives each lane accumulators of its own */
void dc_print_lanes_end(dc_printer *p, const dc_outer_sums *outer);
/* A loop over blocks .from .. .to of begin .. end, each with sums of its own. */
dc_outer_sums dc_print_block_begin(dc_printer *p, const dc_loop *l, uint32_t lanes, uint32_t level, const char *begin, const char *end);
void dc_print_block_end(dc_printer *p, const dc_outer_sums *outer);

/* tasks.c */
bool dc_print_may_overlap(const dc_printer *p, dc_cid c); /* with another buffer */
typedef struct {
  const dc_loop *first, *last; /* of the loops that are shared; what a task runs of the last one is begin .. end */
  const char *suffix;
  dc_text text;
  dc_ex *live; /* of the function around */
  uint32_t *locals, n_live;
  dc_text *out;
  int indent;
  uint32_t mark;
} dc_task;
bool *dc_print_symbols(const dc_printer *p); /* by dc_sym: which the kernel uses */
void dc_print_function(dc_printer *p, const char *suffix, const char *params);
void dc_print_function_end(dc_printer *p);
void dc_print_call(dc_printer *p, const char *suffix, const char *args, dc_text *out);
void dc_print_task_begin(dc_printer *p, const dc_loop *l, dc_task *t);
void dc_print_task_end(dc_printer *p, dc_task *t); /* ends the function, and calls it where the loop stands */

/* launch.c */
const dc_loop *dc_print_grid_begin(dc_printer *p, const dc_loop *l, uint32_t *mark); /* returns the innermost loop of the grid */
void dc_print_rows_begin(dc_printer *p, const dc_loop *rows, const dc_loop *last, uint32_t *mark); /* around the turns of a thread */
void dc_print_grid_end(dc_printer *p, uint32_t mark); /* of either */
/* A loop whose iterations are dealt to the threads of a team; returns the innermost one of those. */
const dc_loop *dc_print_team_begin(dc_printer *p, const dc_loop *l, uint32_t *mark);
/* packs.c: a loop whose iterations a thread takes in packs: what is printed between the two is of one of them. */
void dc_print_pack_begin(dc_printer *p, const dc_loop *l, uint32_t *mark);
void dc_print_pack_end(dc_printer *p, const dc_loop *l, uint32_t mark);
/* Where packs are taken in turns, those that a turn moves are all loaded before the first is used, in a loop of its own: are there
 * any?  Those that all turns read alike are loaded here. */
bool dc_print_packs_ahead(dc_printer *p, const dc_loop *l);
void dc_print_pack_loads(dc_printer *p, const dc_loop *l);
/* crossings.c: what stands around the body of the innermost loop of a grid that runs in tiles. */
void dc_print_tile_begin(dc_printer *p, const dc_loop *tile, const dc_loop *last, uint32_t *mark);
void dc_print_tile_end(dc_printer *p, uint32_t mark);
const dc_loop *dc_print_tile_of(const dc_printer *p); /* launch.c: the loop with a tile, or NULL */
void dc_print_team_end(dc_printer *p, uint32_t mark);
void dc_print_team_combine(dc_printer *p, const dc_loop *home); /* what each thread has in accumulators of a loop */
void dc_print_team_wait(dc_printer *p); /* threads of a team wait for one another */
void dc_print_team_ready(dc_printer *p, uint64_t reads, uint64_t writes); /* the same, if what follows needs it */
void dc_print_launched(dc_printer *p, const char *body, dc_launches *launches, dc_text *out);

/* blocks.c: a product's rows begin .. end: what it does with the sums of a block goes between the two. */
uint32_t dc_print_blocks_begin(dc_printer *p, const dc_product *x, const char *begin, const char *end);
void dc_print_blocks_end(dc_printer *p, uint32_t mark);

#endif
