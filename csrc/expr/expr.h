/* Expressions: one hash-consed pool per graph, named by 32-bit ids.
 *
 * Equal expressions have equal ids, so comparison, common subexpressions and
 * "the same read" are integer equality.  Every expression has a type.
 * Two families share the pool:
 *   index expressions (i64): constants, symbols, parameters, and arithmetic kept in a
 *     polynomial normal form  c0 + sum ci * term_i  (LINEAR), where a term is an atom or
 *     a PRODUCT of atoms; floor division, modulo, min and max are atoms;
 *   scalar expressions: the primitives of prims.def, SELECT, CAST and READ.
 * A READ is the leaf through which data enters: container and one index expression per
 * dimension.  It is the input memlet of the tasklet that holds it.
 * The pool also owns symbols (sizes) and map parameters with their ranges, so that bounds
 * can be proven from an expression alone.  It must not know what a node or a graph is. */
#ifndef DCML_EXPR_EXPR_H
#define DCML_EXPR_EXPR_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/text.h"
#include "expr/dtype.h"

typedef uint32_t dc_ex;    /* an expression; 0 is none */
typedef uint32_t dc_sym;   /* a size symbol; 0 is none */
typedef uint32_t dc_param; /* a map parameter; 0 is none */

typedef enum {
#define PRIM(id, name, arity, kind, cost, da, db) DC_##id,
#include "expr/prims.def"
#undef PRIM
  DC_PRIM_COUNT,
  DC_EX_INT = DC_PRIM_COUNT, /* integer or bool constant: .i */
  DC_EX_FLOAT,               /* floating constant: .f */
  DC_EX_SYM,                 /* .ref is a dc_sym */
  DC_EX_PARAM,               /* .ref is a dc_param */
  DC_EX_READ,                /* .ref is a container id, args are indices */
  DC_EX_LINEAR,              /* .i + sum(args[2k+1] * args[2k]); coefficients are INT expressions */
  DC_EX_PRODUCT,             /* product of sorted atoms */
  DC_EX_IDIV,                /* i64 floor division */
  DC_EX_IMOD,                /* i64 modulo, sign of the divisor */
  DC_EX_IMIN,
  DC_EX_IMAX,
  DC_EX_SELECT, /* args: bool condition, value if true, value if false; the other side is not evaluated */
  DC_EX_CAST,   /* converts args[0] to .dtype as C does; to bool: != 0 */
  DC_EX_BITS,   /* the bit pattern of args[0] read as .dtype, which is as wide */
} dc_op;

typedef enum { DC_PRIM_SAME, DC_PRIM_FLOAT, DC_PRIM_TEST, DC_PRIM_LOGIC, DC_PRIM_BITS, DC_PRIM_PAIR, DC_PRIM_PART } dc_prim_kind;

typedef struct {
  const char *name;
  uint8_t arity;
  uint8_t kind; /* dc_prim_kind */
  float cost;   /* nanoseconds, roughly; see prims.def */
  const char *derivative[2];
} dc_prim_info;
extern const dc_prim_info dc_prims[DC_PRIM_COUNT];
/* Is it a function, which costs more than arithmetic?  These stand together in prims.def. */
static inline bool dc_prim_is_function(dc_op op) { return op >= DC_EXP && op <= DC_SOFTPLUS; }
/* The rows of complex.def; NULL: the primitive takes no complex numbers. */
extern const char *const dc_prim_parts[DC_PRIM_COUNT][2];

typedef struct {
  uint8_t op;    /* dc_op */
  uint8_t dtype; /* dc_dtype */
  uint16_t nargs;
  uint32_t args; /* offset into the pool's argument array: use dc_ex_arg() */
  uint32_t ref;
  uint32_t hash;
  union {
    int64_t i;
    double f;
  };
} dc_exnode;

typedef struct {
  dc_name name;
  int64_t min; /* a fact that holds for every value, usually 0 or 1 */
} dc_symbol;

typedef struct {
  dc_name name;
  dc_ex begin, end, step; /* begin <= p < end; step is a positive constant */
} dc_parameter;

typedef struct {
  dc_arena *arena;
  dc_names *names;
  DC_VEC(dc_exnode) nodes; /* [0] unused */
  DC_VEC(dc_ex) args;
  DC_VEC(dc_symbol) symbols;  /* [0] unused */
  DC_VEC(dc_sym) named;       /* by name: the symbol of that name, or 0 */
  DC_VEC(dc_parameter) params; /* [0] unused */
  uint32_t *slots;
  uint32_t slot_count;
} dc_pool;

void dc_pool_init(dc_pool *pool, dc_arena *arena, dc_names *names);

/* Symbols are found by name; a new one is made on first use.  Parameters are always new. */
dc_sym dc_symbol_get(dc_pool *pool, const char *name, int64_t min);
dc_sym dc_symbol_find(const dc_pool *pool, const char *name); /* 0 if absent */
void dc_symbol_rename(dc_pool *pool, dc_sym symbol, const char *name); /* the caller knows that the name is free */
dc_param dc_param_new(dc_pool *pool, const char *name, dc_ex begin, dc_ex end, dc_ex step);

/* Looking at an expression. */
static inline const dc_exnode *dc_ex_node(const dc_pool *pool, dc_ex e) { return &pool->nodes.v[e]; }
static inline dc_ex dc_ex_arg(const dc_pool *pool, dc_ex e, uint32_t k) {
  return pool->args.v[pool->nodes.v[e].args + k];
}
static inline dc_dtype dc_ex_dtype(const dc_pool *pool, dc_ex e) { return (dc_dtype)pool->nodes.v[e].dtype; }
bool dc_ex_is_int(const dc_pool *pool, dc_ex e, int64_t *value);   /* integer or bool constant */
bool dc_ex_is_const(const dc_pool *pool, dc_ex e, double *value);  /* any constant */
static inline bool dc_ex_is_one(const dc_pool *pool, dc_ex e) {
  int64_t value;
  return dc_ex_is_int(pool, e, &value) && value == 1;
}
bool dc_ex_uses_param(const dc_pool *pool, dc_ex e, dc_param p);
bool dc_ex_uses_op(const dc_pool *pool, dc_ex e, dc_op op); /* e.g. DC_EX_READ */

/* Leaves. */
dc_ex dc_ex_int(dc_pool *pool, int64_t value); /* i64 */
dc_ex dc_ex_bool(dc_pool *pool, bool value);
dc_ex dc_ex_const(dc_pool *pool, dc_dtype type, double value);
dc_ex dc_ex_sym(dc_pool *pool, dc_sym symbol);
dc_ex dc_ex_par(dc_pool *pool, dc_param param);
dc_ex dc_ex_read(dc_pool *pool, dc_dtype type, uint32_t container, const dc_ex *index, uint32_t rank);

/* Index arithmetic, on i64 expressions; results are normalised. */
dc_ex dc_ix_add(dc_pool *pool, dc_ex a, dc_ex b);
dc_ex dc_ix_sub(dc_pool *pool, dc_ex a, dc_ex b);
dc_ex dc_ix_mul(dc_pool *pool, dc_ex a, dc_ex b);
dc_ex dc_ix_div(dc_pool *pool, dc_ex a, dc_ex b); /* floor; x//0 is 0 */
dc_ex dc_ix_mod(dc_pool *pool, dc_ex a, dc_ex b);
dc_ex dc_ix_min(dc_pool *pool, dc_ex a, dc_ex b);
dc_ex dc_ix_max(dc_pool *pool, dc_ex a, dc_ex b);
/* Extent of begin:end:step, never negative. */
dc_ex dc_ix_extent(dc_pool *pool, dc_ex begin, dc_ex end, dc_ex step);

/* Scalar arithmetic.  Arguments of SAME, FLOAT and TEST prims have equal types (asserted):
 * cast first.  A complex constant is COMPLEX of real ones.  Constants fold; i64 arithmetic goes to dc_ix_*; x*1, x+0, x-0, x/1 give x,
 * and nothing that would change a NaN or an infinity is folded. */
dc_ex dc_ex_prim1(dc_pool *pool, dc_op prim, dc_ex a);
dc_ex dc_ex_prim2(dc_pool *pool, dc_op prim, dc_ex a, dc_ex b);
dc_ex dc_ex_select(dc_pool *pool, dc_ex condition, dc_ex yes, dc_ex no);
dc_ex dc_ex_cast(dc_pool *pool, dc_dtype type, dc_ex a);
dc_ex dc_ex_bits(dc_pool *pool, dc_dtype type, dc_ex a); /* both types are as wide */
/* 0 <= a < extent as a condition; constant when the ranges of parameters prove it. */
dc_ex dc_ex_in_range(dc_pool *pool, dc_ex a, dc_ex extent);
/* a && b, where 0 stands for "always". */
dc_ex dc_ex_and(dc_pool *pool, dc_ex a, dc_ex b);
/* Is x, one of several values, what their maximum or minimum is?  That is NaN if and only if one of them is. */
dc_ex dc_ex_is_extreme(dc_pool *pool, dc_ex x, dc_ex extreme);

/* a b, (a - b)^2 or |a - b|: terms of sums whose operands each stay the same for a whole row or column of them. */
typedef enum { DC_TERM_NONE, DC_TERM_PRODUCT, DC_TERM_SQUARE, DC_TERM_GAP } dc_term;
dc_term dc_ex_term(const dc_pool *pool, dc_ex e, dc_ex *a, dc_ex *b);
dc_ex dc_ex_of_term(dc_pool *pool, dc_term term, dc_ex a, dc_ex b);

/* Proofs by interval arithmetic over the ranges of parameters and minima of symbols.
 * false means "not proven". */
bool dc_ix_proves_ge(dc_pool *pool, dc_ex a, int64_t bound);
/* Constant bounds lo <= a <= hi; false when either is unknown. */
bool dc_ix_bounds(dc_pool *pool, dc_ex a, int64_t *lo, int64_t *hi);
/* Iterations of these loops never name the same element: each loop moves an index that no other loop moves. */
bool dc_ix_apart(dc_pool *pool, const dc_ex *index, uint32_t rank, const dc_param *loops, uint32_t n);

/* Every value of a real scalar expression that is not NaN: lo <= x <= hi, infinite where nothing is known. */
typedef struct {
  double lo, hi;
} dc_range;
dc_range dc_ex_range(const dc_pool *pool, dc_ex x);

/* Do different values of p name different elements, whatever the other parameters are?  One dimension that says so is enough,
 * though data that p chooses give the index in another. */
bool dc_ix_separates(dc_pool *pool, const dc_ex *index, uint32_t rank, dc_param p);

/* a = *coefficient * p + *rest with p absent from both; false if a is not linear in p. */
bool dc_ix_split(dc_pool *pool, dc_ex a, dc_param p, dc_ex *coefficient, dc_ex *rest);

/* Rewriting: calls `leaf` on each SYM, PARAM and READ (a READ's indices are rewritten
 * first) and rebuilds through the constructors; leaf returns its argument to keep it. */
typedef dc_ex (*dc_leaf_fn)(void *context, dc_pool *pool, dc_ex leaf);
dc_ex dc_ex_rewrite(dc_pool *pool, dc_ex e, dc_leaf_fn leaf, void *context);
/* The same with `each` called on every rebuilt subexpression, children first. */
dc_ex dc_ex_transform(dc_pool *pool, dc_ex e, dc_leaf_fn each, void *context);
/* Replaces parameter from[k] by to[k]; the leaf function does so for dc_node_rewrite. */
typedef struct {
  const dc_param *from;
  const dc_ex *to;
  uint32_t n;
} dc_substitution;
dc_ex dc_ex_substitute(void *substitution, dc_pool *pool, dc_ex leaf);
dc_ex dc_ex_subst(dc_pool *pool, dc_ex e, const dc_param *from, const dc_ex *to, uint32_t n);
/* Puts one expression in the place of another: for dc_ex_transform, and for dc_node_rewrite where it is a leaf. */
typedef struct {
  dc_ex from, to;
} dc_exchange;
dc_ex dc_ex_exchange(void *exchange, dc_pool *pool, dc_ex e);
/* Calls `visit` once on each distinct subexpression, children first. */
typedef void (*dc_visit_fn)(void *context, const dc_pool *pool, dc_ex e);
void dc_ex_walk(const dc_pool *pool, dc_ex e, dc_visit_fn visit, void *context);
/* Copies an expression into another pool.  `leaf` sees a SYM or PARAM of `from` and returns an
 * expression of `to`; `container` translates the container id of a READ. */
typedef struct {
  dc_ex (*leaf)(void *context, const dc_pool *from, dc_ex leaf);
  uint32_t (*container)(void *context, uint32_t container);
  void *context;
} dc_importer;
dc_ex dc_ex_import(dc_pool *to, const dc_pool *from, dc_ex e, const dc_importer *importer);

/* Value of an i64 expression without READs, with symbols and parameters given by id. */
int64_t dc_ix_eval(const dc_pool *pool, dc_ex e, const int64_t *symbol_values, const int64_t *param_values);

#endif
