/* Inside fusion, a pass a file: fuse_inline.c computes producers where they are read, fuse_merge.c merges nodes of a
 * scope, fuse_contract.c makes what no longer leaves an iteration small, fuse_again.c computes in two nodes what one would store
 * for the other.  fuse_match.c says which loops of two nodes may
 * be shared and whether that pays, fuse_sites.c knows where accesses stand.  transforms/fusion.c runs the same code
 * with restrictions. */
#ifndef DCML_PASSES_FUSE_H
#define DCML_PASSES_FUSE_H

#include "passes/access.h"
#include "passes/passes.h"

/* A restricted run of the passes, and what it did. */
typedef struct {
  bool as_written;     /* nests stay nests before they are looked at */
  bool producers_only; /* merge only a map with one whose result it reads */
  bool whole_only;     /* merge only maps over the same domain */
  bool strangers;      /* merge maps over the same domain that share no data, too */
  bool registers_only; /* of contraction, only make registers */
  const bool *fixed;   /* by node, up to n_fixed: stays as it is */
  uint32_t n_fixed;
} dc_fuse_options;
typedef struct {
  uint32_t merged;
} dc_fuse_counts;
void dc_fuse_merge(dc_graph *graph, const dc_fuse_options *options, dc_fuse_counts *counts);
void dc_fuse_contract(dc_graph *graph, const dc_fuse_options *options);

/* By container: how many top-level nodes use its buffer and how many write it.  nodes is at least
 * DC_SHARED_BUFFER where the contents are seen otherwise: inputs, outputs, saved values, views. */
enum { DC_SHARED_BUFFER = 1 << 30 };
typedef struct {
  uint32_t nodes, writers;
} dc_use_count;
dc_use_count *dc_fuse_count_users(const dc_graph *graph, dc_arena *arena);

/* What fuse_match.c looks at; one entry per node of a scope under fusion. */
typedef struct {
  dc_nid node;
  dc_accesses accesses;   /* each kind once, whichever tasklet it stands in; ... */
  uint32_t *times;        /* ... by access: how often */
  uint64_t reads, writes; /* roots, hashed to bits: for quick answers */
  uint32_t n_tasklets;
  bool fixed;             /* stays as it is */
  bool merged;            /* of several */
  bool compute_bound;     /* a product of matrices and the like: more work than data, left to kernels of its own */
} dc_group;

/* By container: lists of nodes of the scope under fusion, empty between uses. */
typedef struct {
  uint32_t readers, writers;
} dc_user_lists;

typedef struct {
  dc_graph *graph;
  dc_arena *arena;        /* scratch */
  dc_user_lists *lists;
  const dc_param *outer;  /* parameters of the enclosing maps */
  uint32_t n_outer;
  bool parallel_outside;  /* an enclosing map already gives the threads their work */
  bool in_reduce;
  bool growing;           /* the map around may still merge with others */
  const dc_fuse_options *options;
  dc_fuse_counts *counts;
  const dc_use_count *users;  /* of dc_fuse_count_users, kept up to date; NULL inside maps */
} dc_fuse_scope;

typedef struct {
  dc_param_pair pairs[DC_MAX_MAP_PARAMS]; /* p: of the earlier node, q: of the later one */
  uint32_t n;
  dc_schedule schedule; /* of the merged map */
} dc_match;

void dc_group_describe(const dc_fuse_scope *scope, dc_nid node, dc_group *out);
/* The loops that a and the later b can share; the worth of sharing them, 0 if it is not legal or does not pay. */
uint32_t dc_fuse_match(const dc_fuse_scope *scope, const dc_group *a, const dc_group *b, dc_match *out);

/* All accesses under some nodes with their places: order[] counts nodes in program order, a node's
 * subtree is order[node] .. end[node], parent[] is the enclosing map (0: none). */
typedef struct {
  dc_graph *graph;
  dc_arena *arena;
  dc_accesses accesses;
  DC_VEC(uint32_t) next;     /* by access: 1 + the next one to the same buffer, 0 at the end */
  uint32_t *first;           /* by root: 1 + the first access, 0: none */
  uint32_t *order, *end;
  dc_nid *parent;
  uint32_t n_nodes, n_containers; /* of the graph when the arrays were made */
} dc_site_table;
/* The accesses to one buffer, in program order. */
#define DC_EACH_SITE(t, root, k) for (uint32_t k = (t)->first[root] - 1; k != UINT32_MAX; k = (t)->next.v[k] - 1)
/* A table that is built again, with the same arena, keeps its memory: what it costs is what is under the nodes. */
void dc_sites_build(dc_graph *graph, dc_arena *arena, const dc_nid *nodes, uint32_t n, dc_site_table *out);
static inline bool dc_site_is_under(const dc_site_table *t, dc_nid node, dc_nid map) {
  return !map || (t->order[node] >= t->order[map] && t->order[node] < t->end[map]);
}
/* Is any of the containers that e reads written by an access with from < order < to? */
bool dc_sites_overwrite(const dc_site_table *t, dc_ex e, uint32_t from, uint32_t to);
/* The innermost map around all accesses to a buffer; 0: none. */
dc_nid dc_sites_home(const dc_site_table *t, dc_cid root);
/* Does a tasklet store each element, once in an iteration of home?  A caller's array keeps what is not. */
bool dc_sites_store_all(const dc_site_table *t, const dc_access *store, dc_nid home);
/* Takes dimensions out of a buffer, and out of all accesses to it under `top`. */
void dc_sites_drop_dims(const dc_site_table *t, dc_nid top, dc_cid root, const bool *dropped);
void dc_scope_remove(dc_scope *scope, dc_nid node);

/* Computes a cheap value where it is read, inside one node that is fused already. */
bool dc_fuse_recompute(const dc_site_table *t, dc_cid c);
/* What the access `w`, a plain tasklet's, writes to the element that is read or written as `at`: false if that is not a function of the
 * indices of the element, or has changed before `until`. */
typedef struct {
  dc_ex value;
  double cost;    /* nanoseconds, without what is read */
  uint32_t reads; /* those that differ between elements; the others stay in registers */
} dc_fuse_value;
bool dc_fuse_value_at(const dc_site_table *t, const dc_access *w, dc_ex at, uint32_t until, dc_fuse_value *out);
/* One parameter a dimension, each enclosing loop inside `common` once: every element is read at most once. */
bool dc_fuse_reads_once(const dc_site_table *t, const dc_access *read, dc_nid common);
/* Size as a tree, as it prints; stops counting at the limit. */
uint32_t dc_fuse_tree_size(const dc_pool *pool, dc_ex e, uint32_t limit);
bool dc_fuse_is_empty(const dc_graph *graph, dc_nid node); /* computes nothing */

#endif
