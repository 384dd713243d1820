/* Fusion: nodes of a scope merge into one where they can share loops.
 *
 * The nodes of a scope form a DAG; two of them may merge unless a third lies on a path between.
 * A merged map runs over the shared parameters and holds both bodies, each under a map over its
 * remaining parameters; then its body is a scope to fuse in turn.  So softmax becomes a map over
 * rows that holds a reduction, a reduction that also writes, and a map. */
#include "passes/fuse.h"
#include "passes/loops.h"

#include <stdlib.h>
#include <string.h>


enum { MAX_SCOPE = 1024 };

typedef struct {
  dc_fuse_scope scope;
  dc_group *groups; /* by index; dead ones have node 0 */
  uint32_t n, words;
  uint32_t *order;  /* indices of the living, in program order */
  uint32_t n_order;
  uint64_t *depends; /* bit rows: what an index depends on directly ... */
  uint64_t *above;   /* ... and through others */
  dc_use_count *users;   /* by root, NULL inside maps */
  bool changed;
} fuser;

static uint64_t *row(uint64_t *rows, const fuser *f, uint32_t k) { return rows + (size_t)k * f->words; }
static bool has(const uint64_t *bits, uint32_t k) { return bits[k / 64] >> (k % 64) & 1; }
static void set(uint64_t *bits, uint32_t k) { bits[k / 64] |= (uint64_t)1 << (k % 64); }
static void clear(uint64_t *bits, uint32_t k) { bits[k / 64] &= ~((uint64_t)1 << (k % 64)); }

static dc_scope fuse_scope(const dc_fuse_scope *scope, dc_scope in, dc_use_count *users);

/* ---- the DAG ---- */

static void close_above(fuser *f) {
  memset(f->above, 0, sizeof(uint64_t) * f->words * f->n);
  for (uint32_t k = 0; k < f->n_order; k++) {
    uint32_t at = f->order[k];
    uint64_t *above = row(f->above, f, at), *direct = row(f->depends, f, at);
    for (uint32_t j = 0; j < k; j++) {
      uint32_t other = f->order[j];
      if (!has(direct, other)) continue;
      set(above, other);
      for (uint32_t w = 0; w < f->words; w++) above[w] |= row(f->above, f, other)[w];
    }
  }
}

static void describe(fuser *f, uint32_t k, dc_nid node) { dc_group_describe(&f->scope, node, &f->groups[k]); }

/* At the top of a restricted run, the nodes that were not named stay. */
static bool is_fixed(const fuser *f, dc_nid node) {
  const dc_fuse_options *o = f->scope.options;
  return f->users && o->nodes && !dc_access_in_set(o->nodes, o->n_nodes, node);
}

static void build(fuser *f, const dc_scope *in) {
  dc_arena *arena = f->scope.arena;
  f->n = f->n_order = in->n;
  f->words = (in->n + 63) / 64;
  f->groups = DC_NEW_ARRAY(arena, dc_group, in->n);
  f->order = DC_NEW_ARRAY(arena, uint32_t, in->n);
  f->depends = DC_NEW_ARRAY(arena, uint64_t, (size_t)f->words * in->n);
  f->above = DC_NEW_ARRAY(arena, uint64_t, (size_t)f->words * in->n);
  for (uint32_t k = 0; k < in->n; k++) {
    f->order[k] = k;
    describe(f, k, in->v[k]);
    f->groups[k].fixed = is_fixed(f, in->v[k]);
    for (uint32_t j = 0; j < k; j++)
      if (dc_groups_depend(&f->groups[j], &f->groups[k])) set(row(f->depends, f, k), j);
  }
  close_above(f);
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
  uint32_t *after = DC_NEW_ARRAY(f->scope.arena, uint32_t, f->n), n_after = 0, n = 0, at = 0;
  while (f->order[at] != a) at++;
  uint32_t from = at;
  for (n = from, at = from + 1; f->order[at] != b; at++) {
    uint32_t k = f->order[at];
    if (has(row(f->above, f, k), a)) after[n_after++] = k;
    else f->order[n++] = k;
  }
  f->order[n++] = a;
  for (uint32_t k = 0; k < n_after; k++) f->order[n++] = after[k];
  for (at++; at < f->n_order; at++) f->order[n++] = f->order[at];
  f->n_order = n;
}

static void merge(fuser *f, uint32_t a, uint32_t b, const dc_match *match) {
  count_down(f, &f->groups[a], &f->groups[b]);
  dc_nid merged = merged_map(&f->scope, f->groups[a].node, f->groups[b].node, match);
  fuse_body(&f->scope, merged);
  describe(f, a, merged);
  if (f->users) f->scope.counts->merged++;
  f->groups[b].node = 0;
  reorder(f, a, b);
  for (uint32_t w = 0; w < f->words; w++) row(f->depends, f, a)[w] |= row(f->depends, f, b)[w];
  clear(row(f->depends, f, a), a);
  clear(row(f->depends, f, a), b);
  for (uint32_t k = 0; k < f->n; k++) {
    uint64_t *direct = row(f->depends, f, k);
    if (!has(direct, b)) continue;
    clear(direct, b);
    if (k != a) set(direct, a);
  }
  close_above(f);
  f->changed = true;
}

/* ---- the search ---- */

typedef struct {
  uint32_t index, worth;
  dc_match match;
} choice;

static bool may_share(const dc_group *a, const dc_group *b) { return (a->reads | a->writes) & (b->reads | b->writes); }

static choice best_partner(fuser *f, uint32_t position, bool independent) {
  choice best = {0};
  uint32_t late = f->order[position];
  for (uint32_t k = position; k-- > 0;) {
    uint32_t early = f->order[k];
    bool direct = has(row(f->depends, f, late), early);
    if ((!direct && !independent) || !may_share(&f->groups[early], &f->groups[late])) continue;
    dc_match match;
    uint32_t worth = dc_fuse_match(&f->scope, &f->groups[early], &f->groups[late], &match);
    if (worth > best.worth && !is_blocked(f, early, late)) best = (choice){early, worth, match};
  }
  return best;
}

/* Each node merges upwards while it finds a partner: producers first, then those that read the same. */
static void sweep(fuser *f, bool independent) {
  for (uint32_t position = 1; position < f->n_order; position++) {
    uint32_t late = f->order[position];
    choice c = best_partner(f, position, independent);
    if (!c.worth) continue;
    merge(f, c.index, late, &c.match);
    position = 0;
    while (f->order[position] != c.index) position++;
    position -= position > 0; /* look again at the merged node */
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
}

static dc_scope fuse_part(const dc_fuse_scope *scope, const dc_scope *in, dc_use_count *users) {
  fuser f = {.scope = *scope, .users = users};
  for (uint32_t k = 0; k < in->n; k++) {
    if (dc_node_at(scope->graph, in->v[k])->kind != DC_NODE_MAP) continue;
    flatten(scope->graph, in->v[k]);
    fuse_body(scope, in->v[k]);
  }
  build(&f, in);
  sweep(&f, false);
  sweep(&f, true);
  dc_scope out = {0};
  for (uint32_t k = 0; k < f.n_order; k++) dc_scope_push(scope->graph, &out, f.groups[f.order[k]].node);
  return out;
}

/* Long scopes are fused in parts, to bound the time. */
static dc_scope fuse_scope(const dc_fuse_scope *scope, dc_scope in, dc_use_count *users) {
  dc_scope out = {0};
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

void dc_fuse_run(dc_graph *graph, const dc_fuse_options *options, dc_fuse_counts *counts) {
  dc_arena arena = {0};
  dc_use_count *users = dc_fuse_count_users(graph, &arena);
  dc_fuse_scope scope = {.graph = graph, .arena = &arena, .users = users, .options = options, .counts = counts};
  for (uint32_t s = 0; s < graph->states.n; s++) {
    dc_scope fused = fuse_scope(&scope, graph->states.v[s].scope, users), kept = {0};
    for (uint32_t k = 0; k < fused.n; k++) {
      counts->forwarded += dc_fuse_contract(graph, fused.v[k], users, options->forward_only);
      if (!dc_fuse_is_empty(graph, fused.v[k])) dc_scope_push(graph, &kept, fused.v[k]);
    }
    graph->states.v[s].scope = kept;
  }
  dc_arena_free(&arena);
}

dc_status dc_pass_fuse(dc_graph *graph) {
  dc_fuse_counts counts = {0};
  for (uint32_t s = 0; s < graph->states.n; s++) dc_fuse_inline(graph, &graph->states.v[s].scope);
  dc_fuse_run(graph, &(dc_fuse_options){0}, &counts);
  for (uint32_t s = 0; s < graph->states.n; s++)
    for (uint32_t k = 0; k < graph->states.v[s].scope.n; k++) {
      dc_rewrite_node(graph, graph->states.v[s].scope.v[k]);
      (void)dc_loops_order(graph, graph->states.v[s].scope.v[k]);
    }
  return DC_OK;
}
