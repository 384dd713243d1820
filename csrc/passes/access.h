/* Accesses: what a node reads and writes, element by element, and whether two accesses of
 * different nodes can meet.  Every pass that moves work asks here; nothing here moves any. */
#ifndef DCML_PASSES_ACCESS_H
#define DCML_PASSES_ACCESS_H

#include "ir/graph.h"

enum { DC_MAX_MAP_PARAMS = DC_MAX_RANK }; /* of a map that fusion matches with another: one with more stays by itself */

typedef struct {
  dc_cid container, root; /* root: the container whose buffer it is */
  dc_ex element;          /* the element as a READ expression; 0: all of the container (library nodes) */
  dc_nid node;            /* the tasklet, the map whose range reads, or the library node */
  bool reads, writes;     /* both: accumulates into what is there */
  bool initialised;       /* a WCR write that an enclosing REDUCE map starts from the identity */
} dc_access;
typedef DC_VEC(dc_access) dc_accesses;

/* Appends the accesses of a node and all under it, in program order. */
void dc_access_collect(dc_graph *graph, dc_arena *arena, dc_nid node, bool in_reduce, dc_accesses *out);

/* p of one node stands for q of the other. */
typedef struct {
  dc_param p, q;
} dc_param_pair;

/* Same buffer, and at least one writes. */
bool dc_access_conflicts(const dc_access *a, const dc_access *b);
/* Proves that the accesses never touch the same element. */
bool dc_access_disjoint(dc_graph *graph, const dc_access *a, const dc_access *b);
/* Proves that wherever both touch the same element, pair->p == pair->q; `known` pairs are equal already. */
bool dc_access_forces_equal(dc_graph *graph, const dc_access *a, const dc_access *b, const dc_param_pair *pair,
                            const dc_param_pair *known, uint32_t n_known);

/* Does e, if there is one, use a parameter of the map? */
bool dc_map_moves(const dc_pool *pool, dc_ex e, const dc_map *map);
/* Does p run over 0:extent, one by one, whatever the symbols are?  The second: over an extent that is known. */
bool dc_param_counts(const dc_pool *pool, dc_param p);
bool dc_param_counts_to(const dc_pool *pool, dc_param p, int64_t *extent);
/* Symbols: the same expression is the same range; ranges over two symbols differ, though the symbols may be equal at run time. */
bool dc_param_same_range(const dc_pool *pool, dc_param p, dc_param q);
/* Does e use a parameter that is not in the set? */
bool dc_access_uses_other_param(const dc_pool *pool, dc_ex e, const dc_param *set, uint32_t n);
/* Does p take each value from 0 to extent - 1?  Extents are equal if they are the same expression: symbols of two
 * names may have one value, but none may be counted on. */
bool dc_access_covers(const dc_pool *pool, dc_param p, dc_ex extent);
/* The dimension whose neighbours lie next to one another; the rank if none is known to. */
uint32_t dc_contiguous_dimension(const dc_graph *graph, dc_cid c);
bool dc_access_in_set(const dc_param *set, uint32_t n, dc_param p);
/* The position of an element in its buffer, in elements. */
dc_ex dc_access_address(dc_graph *graph, dc_cid c, const dc_ex *index);
/* Have they the same shape but for extents of one?  Symbols: extents are the same for all their values, and a symbol is never taken
 * for 1.  The second gives the index in the one for that in the other; `out` is not `index`. */
bool dc_access_same_but_ones(const dc_graph *graph, dc_cid a, dc_cid b);
void dc_access_index_but_ones(dc_graph *graph, dc_cid from, dc_cid to, const dc_ex *index, dc_ex *out);
/* Do the map's parameters, each in a dimension of its own, run over all elements, dimension `skip` apart?  out: by dimension; 0: an
 * extent of one. */
bool dc_access_runs_over(const dc_graph *graph, const dc_map *map, dc_cid c, const dc_ex *index, uint32_t skip, dc_param *out);
/* Is it one unguarded write of every element, dimension `skip` apart, in the order of the map's parameters?  Symbols: every element, because ranges and
 * extents are the same expressions; with an extent of 0 there is none. */
bool dc_access_is_whole(const dc_graph *graph, const dc_map *map, const dc_tasklet *t, uint32_t skip);
/* The tasklet of a parallel map that only copies elements, of whatever places; NULL: the node is no such map. */
const dc_tasklet *dc_access_only_copy(const dc_graph *graph, dc_nid id);
/* The tasklet of a parallel map that writes every element of an array as it reads one of an array of as many dimensions, and does
 * nothing else; NULL: the node is no such map. */
const dc_tasklet *dc_access_copy(const dc_graph *graph, dc_nid id);

#endif
