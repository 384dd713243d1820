/* Merging: nodes of a scope become one where they can share loops.
 *
 * The nodes of a scope form a DAG; two of them may merge unless a third lies on a path between.
 * A merged map runs over the shared parameters and holds both bodies, each under a map over its
 * remaining parameters; then its body is a scope to fuse in turn.  So softmax becomes a map over
 * rows that holds a reduction, a reduction that also writes, and a map. */
#include "passes/fuse.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SCOPE = 1024 };

/* An entry in a list of users of a buffer. */
typedef struct {
  uint32_t index, next; /* next: the entry before, 0 at the end */
} user;

typedef struct {
  dc_fuse_scope scope;
  dc_group *groups; /* by index; dead ones have node 0 */
  uint32_t n, words;
  uint32_t *order;  /* indices of the living, in program order */
  uint32_t n_order;
  uint64_t *depends; /* bit rows: what an index depends on directly ... */
  uint64_t *above;   /* ... and through others; */
  uint64_t *hopeless; /* what it cannot merge with as long as both stay as they are; */
  uint64_t *before;   /* one row: what stands before the node at hand */
  uint32_t *after;    /* scratch of reorder() */
  DC_VEC(user) entries; /* [0] unused */
  dc_use_count *users;   /* by root, NULL inside maps */
} fuser;

static uint64_t *row(uint64_t *rows, const fuser *f, uint32_t k) { return rows + (size_t)k * f->words; }
static bool has(const uint64_t *bits, uint32_t k) { return bits[k / 64] >> (k % 64) & 1; }
static void set(uint64_t *bits, uint32_t k) { bits[k / 64] |= (uint64_t)1 << (k % 64); }
static void clear(uint64_t *bits, uint32_t k) { bits[k / 64] &= ~((uint64_t)1 << (k % 64)); }

static dc_scope fuse_scope(const dc_fuse_scope *scope, dc_scope in, dc_use_count *users);

/* ---- the DAG ---- */

static void add_bits(const fuser *f, uint64_t *to, const uint64_t *from) {
  for (uint32_t w = 0; w < f->words; w++) to[w] |= from[w];
}

/* k depends on the earlier j: on what j depends on as well. */
static void add_dependence(fuser *f, uint32_t k, uint32_t j) {
  set(row(f->depends, f, k), j);
  if (has(row(f->above, f, k), j)) return;
  set(row(f->above, f, k), j);
  add_bits(f, row(f->above, f, k), row(f->above, f, j));
}

/* Node k depends on the earlier ones in a list of users of a buffer, which it joins. */
static void meet_users(fuser *f, uint32_t k, const uint32_t *head) {
  for (uint32_t e = *head; e; e = f->entries.v[e].next)
    if (f->entries.v[e].index != k) add_dependence(f, k, f->entries.v[e].index);
}

static void join_users(fuser *f, uint32_t k, uint32_t *head) {
  if (*head && f->entries.v[*head].index == k) return;
  DC_PUSH(f->scope.arena, &f->entries, ((user){k, *head}));
  *head = f->entries.n - 1;
}

/* Who reads and who writes one buffer is listed apart: readers of a value that many read never meet. */
static void find_dependences(fuser *f) {
  DC_PUSH(f->scope.arena, &f->entries, (user){0});
  for (uint32_t k = 0; k < f->n; k++) {
    const dc_accesses *accesses = &f->groups[k].accesses;
    for (uint32_t i = 0; i < accesses->n; i++) {
      dc_user_lists *lists = &f->scope.lists[accesses->v[i].root];
      meet_users(f, k, &lists->writers);
      if (accesses->v[i].writes) meet_users(f, k, &lists->readers);
    }
    for (uint32_t i = 0; i < accesses->n; i++) {
      dc_user_lists *lists = &f->scope.lists[accesses->v[i].root];
      if (accesses->v[i].writes) join_users(f, k, &lists->writers);
      if (accesses->v[i].reads) join_users(f, k, &lists->readers);
    }
  }
  for (uint32_t k = 0; k < f->n; k++)
    for (uint32_t i = 0; i < f->groups[k].accesses.n; i++)
      f->scope.lists[f->groups[k].accesses.v[i].root] = (dc_user_lists){0};
}

static void describe(fuser *f, uint32_t k, dc_nid node) { dc_group_describe(&f->scope, node, &f->groups[k]); }

static bool is_fixed(const fuser *f, dc_nid node) {
  const dc_fuse_options *o = f->scope.options;
  return node < o->n_fixed && o->fixed[node];
}

static void build(fuser *f, const dc_scope *in) {
  dc_arena *arena = f->scope.arena;
  f->n = f->n_order = in->n;
  f->words = (in->n + 63) / 64;
  f->groups = DC_NEW_ARRAY(arena, dc_group, in->n);
  f->order = DC_NEW_ARRAY(arena, uint32_t, in->n);
  f->depends = DC_NEW_ARRAY(arena, uint64_t, (size_t)f->words * in->n);
  f->above = DC_NEW_ARRAY(arena, uint64_t, (size_t)f->words * in->n);
  f->hopeless = DC_NEW_ARRAY(arena, uint64_t, (size_t)f->words * in->n);
  f->before = DC_NEW_ARRAY(arena, uint64_t, f->words);
  f->after = DC_NEW_ARRAY(arena, uint32_t, in->n);
  for (uint32_t k = 0; k < in->n; k++) {
    f->order[k] = k;
    describe(f, k, in->v[k]);
    f->groups[k].fixed = is_fixed(f, in->v[k]);
  }
  find_dependences(f);
}

/* Is there a third node on a path from `early` to `late`? */
static bool is_blocked(fuser *f, uint32_t early, uint32_t late) {
  const uint64_t *direct = row(f->depends, f, late);
  for (uint32_t k = 0; k < f->n_order; k++) {
    uint32_t between = f->order[k];
    if (between != early && between != late && has(direct, between) && has(row(f->above, f, between), early)) return true;
  }
  return false;
}

/* ---- merging ---- */

/* Appends to `body` what the map does per shared iteration: its body, under its other parameters. */
static void append_rest(dc_graph *graph, dc_nid id, const dc_match *match, bool first, dc_scope *body) {
  dc_map map = dc_node_at(graph, id)->map;
  dc_param rest[DC_MAX_MAP_PARAMS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < map.n_params; i++) {
    bool shared = false;
    for (uint32_t k = 0; k < match->n; k++) shared |= map.params[i] == (first ? match->pairs[k].p : match->pairs[k].q);
    if (!shared) rest[n++] = map.params[i];
  }
  if (!n) {
    for (uint32_t k = 0; k < map.body.n; k++) dc_scope_push(graph, body, map.body.v[k]);
    return;
  }
  memcpy(map.params, rest, n * sizeof *rest);
  dc_node_at(graph, id)->map.n_params = n;
  dc_scope_push(graph, body, id);
}

static void copy_origin(dc_graph *graph, dc_nid merged, dc_nid a, dc_nid b) {
  dc_node x = *dc_node_at(graph, a), y = *dc_node_at(graph, b), *out = dc_node_at(graph, merged);
  out->name = x.name ? x.name : y.name;
  if (x.tag_op == y.tag_op && x.tag_wrt == y.tag_wrt) out->tag_op = x.tag_op, out->tag_wrt = x.tag_wrt;
}

static dc_nid merged_map(const dc_fuse_scope *scope, dc_nid a, dc_nid b, const dc_match *match) {
  dc_graph *graph = scope->graph;
  dc_param params[DC_MAX_MAP_PARAMS], others[DC_MAX_MAP_PARAMS];
  dc_ex to[DC_MAX_MAP_PARAMS];
  for (uint32_t k = 0; k < match->n; k++) {
    params[k] = match->pairs[k].p, others[k] = match->pairs[k].q;
    to[k] = dc_ex_par(&graph->pool, params[k]);
  }
  dc_node_rewrite(graph, b, dc_ex_substitute, &(dc_substitution){others, to, match->n});
  dc_nid merged = dc_node_map(graph, match->schedule, params, match->n);
  copy_origin(graph, merged, a, b);
  dc_scope body = {0};
  append_rest(graph, a, match, true, &body);
  append_rest(graph, b, match, false, &body);
  dc_node_at(graph, merged)->map.body = body;
  return merged;
}

static void fuse_body(const dc_fuse_scope *scope, dc_nid map);

typedef struct {
  bool uses, writes;
} usage;

static usage usage_of(const dc_group *g, dc_cid root) {
  usage u = {false, false};
  for (uint32_t k = 0; k < g->accesses.n; k++)
    if (g->accesses.v[k].root == root) u.uses = true, u.writes |= g->accesses.v[k].writes;
  return u;
}

/* Users of a buffer that both nodes used are one fewer now. */
static void count_down(fuser *f, const dc_group *a, const dc_group *b) {
  if (!f->users) return;
  dc_cid *seen = DC_NEW_ARRAY(f->scope.arena, dc_cid, a->accesses.n);
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->accesses.n; i++) {
    dc_cid root = a->accesses.v[i].root;
    if (dc_access_in_set(seen, n, root)) continue;
    seen[n++] = root;
    usage x = usage_of(a, root), y = usage_of(b, root);
    f->users[root].nodes -= y.uses;
    f->users[root].writers -= x.writes && y.writes;
  }
}

/* The merged node stands between what b needs and what needs a. */
static void reorder(fuser *f, uint32_t a, uint32_t b) {
  uint32_t n_after = 0, n = 0, at = 0;
  while (f->order[at] != a) at++;
  uint32_t from = at;
  for (n = from, at = from + 1; f->order[at] != b; at++) {
    uint32_t k = f->order[at];
    if (has(row(f->above, f, k), a)) f->after[n_after++] = k;
    else f->order[n++] = k;
  }
  f->order[n++] = a;
  for (uint32_t k = 0; k < n_after; k++) f->order[n++] = f->after[k];
  for (at++; at < f->n_order; at++) f->order[n++] = f->order[at];
  f->n_order = n;
}

/* In these rows the merged node a stands for b too. */
static void rename_bit(fuser *f, uint64_t *rows, uint32_t a, uint32_t b) {
  for (uint32_t k = 0; k < f->n; k++) {
    uint64_t *bits = row(rows, f, k);
    if (!has(bits, b)) continue;
    clear(bits, b);
    if (k != a) set(bits, a);
  }
}

/* What a and b depend on, the merged node a does; and so does whatever depends on it. */
static void join_dependences(fuser *f, uint32_t a, uint32_t b) {
  add_bits(f, row(f->depends, f, a), row(f->depends, f, b));
  add_bits(f, row(f->above, f, a), row(f->above, f, b));
  clear(row(f->depends, f, a), a), clear(row(f->above, f, a), a);
  rename_bit(f, f->depends, a, b);
  rename_bit(f, f->above, a, b);
  for (uint32_t k = 0; k < f->n; k++)
    if (has(row(f->above, f, k), a)) add_bits(f, row(f->above, f, k), row(f->above, f, a));
}

static void merge(fuser *f, uint32_t a, uint32_t b, const dc_match *match) {
  count_down(f, &f->groups[a], &f->groups[b]);
  dc_nid merged = merged_map(&f->scope, f->groups[a].node, f->groups[b].node, match);
  dc_fuse_scope growing = f->scope;
  growing.growing = true;
  fuse_body(&growing, merged);
  describe(f, a, merged);
  f->groups[a].merged = true;
  f->scope.counts->merged++;
  f->groups[b].node = 0;
  reorder(f, a, b);
  join_dependences(f, a, b);
  memset(row(f->hopeless, f, a), 0, f->words * sizeof *f->hopeless);
  for (uint32_t k = 0; k < f->n; k++) clear(row(f->hopeless, f, k), a);
}

/* ---- the search ---- */

typedef struct {
  uint32_t index, worth;
  dc_match match;
} choice;

static bool may_share(const dc_group *a, const dc_group *b) { return (a->reads | a->writes) & (b->reads | b->writes); }

/* Has the node partners before it that are not known to be hopeless? */
static bool has_candidates(const fuser *f, const uint64_t *direct, const uint64_t *hopeless) {
  for (uint32_t w = 0; w < f->words; w++)
    if (f->before[w] & ~hopeless[w] & (direct ? direct[w] : UINT64_MAX)) return true;
  return false;
}

/* The best of the nodes before it.  A pair that does not go together is not looked at again before one of the two
 * merges with a third: other merges change neither their loops, nor whether a buffer is theirs alone, nor a path
 * through a third node. */
static choice best_partner(fuser *f, uint32_t position, bool independent) {
  choice best = {0};
  uint32_t late = f->order[position];
  const uint64_t *direct = independent ? NULL : row(f->depends, f, late);
  uint64_t *hopeless = row(f->hopeless, f, late);
  if (!has_candidates(f, direct, hopeless)) return best;
  for (uint32_t k = position; k-- > 0;) {
    uint32_t early = f->order[k], worth = 0;
    dc_match match;
    if (has(hopeless, early) || (direct && !has(direct, early))) continue;
    if (f->scope.options->strangers || may_share(&f->groups[early], &f->groups[late]))
      worth = dc_fuse_match(&f->scope, &f->groups[early], &f->groups[late], &match);
    if (worth > best.worth && !is_blocked(f, early, late)) best = (choice){early, worth, match};
    if (!worth) set(hopeless, early);
  }
  return best;
}

/* Each node merges upwards while it finds a partner: producers first, then those that read the same. */
static void sweep(fuser *f, bool independent) {
  memset(f->before, 0, f->words * sizeof *f->before);
  for (uint32_t position = 0; position < f->n_order; position++) {
    uint32_t late = f->order[position];
    choice c = best_partner(f, position, independent);
    if (!c.worth) {
      set(f->before, late);
      continue;
    }
    merge(f, c.index, late, &c.match);
    memset(f->before, 0, f->words * sizeof *f->before);
    for (position = 0; f->order[position] != c.index; position++) set(f->before, f->order[position]);
    position--; /* look again at the merged node */
  }
}

/* ---- scopes ---- */

static void flatten(dc_graph *graph, dc_nid id) {
  for (;;) {
    dc_map outer = dc_node_at(graph, id)->map;
    if (outer.body.n != 1 || dc_node_at(graph, outer.body.v[0])->kind != DC_NODE_MAP) return;
    dc_map inner = dc_node_at(graph, outer.body.v[0])->map;
    if (inner.schedule != DC_MAP_PARALLEL || outer.schedule != DC_MAP_PARALLEL) return;
    if (outer.n_params + inner.n_params > DC_MAX_MAP_PARAMS) return;
    dc_param *params = DC_NEW_ARRAY(&graph->arena, dc_param, outer.n_params + inner.n_params);
    memcpy(params, outer.params, outer.n_params * sizeof *params);
    memcpy(params + outer.n_params, inner.params, inner.n_params * sizeof *params);
    dc_map *map = &dc_node_at(graph, id)->map;
    map->params = params, map->n_params = outer.n_params + inner.n_params, map->body = inner.body;
  }
}

static void fuse_body(const dc_fuse_scope *scope, dc_nid id) {
  dc_map map = dc_node_at(scope->graph, id)->map;
  dc_param *params = DC_NEW_ARRAY(scope->arena, dc_param, scope->n_outer + map.n_params);
  if (scope->n_outer) memcpy(params, scope->outer, scope->n_outer * sizeof *params);
  if (map.n_params) memcpy(params + scope->n_outer, map.params, map.n_params * sizeof *params);
  dc_fuse_scope inner = *scope;
  inner.outer = params, inner.n_outer += map.n_params;
  inner.parallel_outside |= map.schedule == DC_MAP_PARALLEL;
  inner.in_reduce |= map.schedule == DC_MAP_REDUCE;
  inner.users = NULL;
  dc_scope body = fuse_scope(&inner, map.body, NULL);
  dc_node_at(scope->graph, id)->map.body = body;
  if (!scope->options->as_written && !scope->growing) flatten(scope->graph, id); /* where two maps of the body became one */
}

static dc_scope fuse_part(const dc_fuse_scope *scope, const dc_scope *in, dc_use_count *users) {
  dc_arena arena = {0};
  fuser f = {.scope = *scope, .users = users};
  f.scope.arena = &arena;
  build(&f, in);
  sweep(&f, false);
  if (!scope->growing) sweep(&f, true);
  for (uint32_t k = 0; k < f.n_order && !scope->growing; k++)
    if (f.groups[f.order[k]].merged) fuse_body(&f.scope, f.groups[f.order[k]].node);
  dc_scope out = {0};
  for (uint32_t k = 0; k < f.n_order; k++) dc_scope_push(scope->graph, &out, f.groups[f.order[k]].node);
  dc_arena_free(&arena);
  return out;
}

/* What only reads the same waits, in a map that may still take in others, for what depends on it: a value that is summed and
 * written is written once it is whole.  Long scopes are fused in parts, to bound the time. */
static dc_scope fuse_scope(const dc_fuse_scope *scope, dc_scope in, dc_use_count *users) {
  dc_scope out = {0};
  uint32_t n_maps = 0;
  for (uint32_t k = 0; k < in.n; k++) {
    if (dc_node_at(scope->graph, in.v[k])->kind != DC_NODE_MAP) continue;
    if (!scope->options->as_written) flatten(scope->graph, in.v[k]);
    fuse_body(scope, in.v[k]);
    n_maps++;
  }
  if (n_maps < 2) return in; /* only maps merge */
  for (uint32_t from = 0; from < in.n; from += MAX_SCOPE) {
    dc_scope part = {in.v + from, in.n - from < MAX_SCOPE ? in.n - from : MAX_SCOPE, 0};
    part = fuse_part(scope, &part, users);
    for (uint32_t k = 0; k < part.n; k++) dc_scope_push(scope->graph, &out, part.v[k]);
  }
  return out;
}

/* ---- the pass ---- */

typedef struct {
  const dc_graph *graph;
  dc_use_count *users;
  uint32_t *seen, *written; /* by root: the last top-level node counted */
  uint32_t stamp;
} user_count;

static void count_use(void *context, dc_cid c, dc_use use, dc_nid by) {
  user_count *u = context;
  dc_cid root = dc_container_root(u->graph, c);
  (void)by;
  if (c != root) u->users[root].nodes |= DC_SHARED_BUFFER;
  if (u->seen[root] != u->stamp) u->users[root].nodes++;
  if (use == DC_USE_WRITE && u->written[root] != u->stamp) u->users[root].writers++, u->written[root] = u->stamp;
  u->seen[root] = u->stamp;
}

static bool is_shared(const dc_container *k) { return k->role != DC_ROLE_TEMP || k->is_output || k->alias_of || k->is_host; }

dc_use_count *dc_fuse_count_users(const dc_graph *graph, dc_arena *arena) {
  uint32_t n = graph->containers.n;
  user_count u = {.graph = graph, .users = DC_NEW_ARRAY(arena, dc_use_count, n), .seen = DC_NEW_ARRAY(arena, uint32_t, n),
                  .written = DC_NEW_ARRAY(arena, uint32_t, n)};
  for (dc_cid c = 1; c < n; c++)
    if (is_shared(dc_cont(graph, c))) u.users[c].nodes = DC_SHARED_BUFFER;
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      u.stamp++;
      dc_node_uses(graph, graph->states.v[s].scope.v[k], count_use, &u);
    }
  return u.users;
}

void dc_fuse_merge(dc_graph *graph, const dc_fuse_options *options, dc_fuse_counts *counts) {
  dc_arena arena = {0};
  dc_use_count *users = dc_fuse_count_users(graph, &arena);
  dc_fuse_scope scope = {.graph = graph, .arena = &arena, .users = users, .options = options, .counts = counts};
  scope.lists = DC_NEW_ARRAY(&arena, dc_user_lists, graph->containers.n);
  for (uint32_t s = 0; s < graph->states.n; s++) graph->states.v[s].scope = fuse_scope(&scope, graph->states.v[s].scope, users);
  dc_arena_free(&arena);
}

dc_status dc_pass_merge(dc_graph *graph) {
  dc_fuse_merge(graph, &(dc_fuse_options){0}, &(dc_fuse_counts){0});
  return DC_OK;
}
