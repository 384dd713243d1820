/* From a state's scope to its flat view.
 *
 * Access nodes are versions: what a node of a scope reads comes from what wrote the buffer last in that scope, else through
 * the entry of the map around.  A version that stays in a map's body is an access node there if something in the body reads
 * it; it leaves through the exit unless nothing outside uses the container.  Where order matters and no value flows (a
 * buffer is overwritten in parts, or after it was read) an edge without a memlet says so. */
#include <stdlib.h>
#include <string.h>

#include "ir/flow.h"
#include "ir/flow_home.h"
#include "ir/print.h"

/* A container that passes the border of a map. */
typedef struct passage {
  dc_cid c;
  dc_box box; /* what is used of it inside */
  uint8_t wcr;
  struct passage *before; /* in an outer map */
  uint32_t depth;
} passage;

/* An access node of a version; several if the buffer has views. */
typedef struct {
  dc_cid c;
  dc_fid access;
} appearance;

typedef struct version {
  struct version *before; /* what the outer scope, or this one before the write, sees */
  uint32_t depth;
  dc_cid c;        /* as it was written; 0: from outside */
  dc_fid in, out;  /* of the writer: the same, or entry and exit */
  const char *conn; /* of the writer */
  dc_box box;
  uint8_t wcr;
  DC_VEC(appearance) seen;
  DC_VEC(dc_fid) readers; /* where they leave */
} version;

/* A map whose body is walked; [0] is the state. */
typedef struct {
  dc_nid map;
  dc_fid entry;
  DC_VEC(version *) versions; /* written here, in order */
  DC_VEC(dc_cid) ins, outs;   /* containers that pass */
  DC_VEC(dc_cid) touched;     /* buffers with a version of this depth */
} frame;

typedef struct {
  dc_ex read;
  const char *name;
  bool *shown;
} stand_in;

typedef struct {
  dc_flow *flow;
  dc_graph *graph;
  dc_flow_params params;
  dc_arena scratch;
  dc_printer *printer;
  dc_homes homes;
  version **latest;       /* by buffer */
  passage **in, **out;    /* by container */
  DC_VEC(stand_in) names; /* of the node at hand */
  frame frames[DC_MAX_LOOPS + 1];
  uint32_t depth;
  DC_VEC(dc_fid) made;    /* so far */
  dc_fid *known; /* slots of the ids that nodes had */
  uint32_t n_known;
  const dc_flow *before;
  uint32_t position;
} deriving;

/* ---- nodes with the ids they had ---- */

static uint32_t slot_of(const dc_flow_key *key, uint32_t n) { return (uint32_t)dc_hash_bytes(7, key, sizeof *key) & (n - 1); }

static void remember(deriving *d) {
  d->n_known = 16;
  while (d->before && d->n_known < 2 * d->before->nodes.n) d->n_known *= 2;
  d->known = DC_NEW_ARRAY(&d->scratch, dc_fid, d->n_known);
  for (dc_fid n = 1; d->before && n < d->before->nodes.n; n++) {
    const dc_flow_node *node = dc_flow_at(d->before, n);
    if (!node->kind || !node->key.kind) continue;
    uint32_t slot = slot_of(&node->key, d->n_known);
    while (d->known[slot]) slot = (slot + 1) & (d->n_known - 1);
    d->known[slot] = n;
  }
}

static dc_fid add(deriving *d, dc_flow_kind kind, const char *label, dc_flow_key key) {
  dc_flow *f = d->flow;
  dc_fid id = 0;
  for (uint32_t slot = slot_of(&key, d->n_known); d->known[slot]; slot = (slot + 1) & (d->n_known - 1)) {
    dc_fid old = d->known[slot];
    bool same = memcmp(&dc_flow_at(d->before, old)->key, &key, sizeof key) == 0;
    if (same && !dc_flow_at(f, old)->kind) {
      id = old;
      break;
    }
  }
  if (!id) id = dc_flow_add(f, kind, "");
  dc_flow_node *node = dc_flow_at(f, id);
  *node = (dc_flow_node){.kind = (uint8_t)kind, .label = dc_arena_strdup(&f->arena, label), .position = ++d->position, .key = key};
  node->scope = d->frames[d->depth].entry;
  DC_PUSH(&d->scratch, &d->made, id);
  return id;
}

static dc_fid add_access(deriving *d, dc_cid c, const version *v) {
  dc_nid writer = v->c ? dc_flow_at(d->flow, v->out)->node : 0;
  return add(d, DC_FLOW_ACCESS, dc_cont_name(d->graph, c), (dc_flow_key){DC_FLOW_ACCESS, c, writer, d->frames[d->depth].map});
}

/* ---- memlets ---- */

static char *subset_text(deriving *d, const dc_box *box) {
  if (box->is_all) return NULL;
  dc_text text = {0};
  for (uint32_t k = 0; k < box->rank; k++) {
    if (k) dc_text_puts(&text, ", ");
    dc_printer_expr(d->printer, box->range[k].begin, &text);
    if (box->range[k].is_point) continue;
    dc_text_puts(&text, ":");
    dc_printer_expr(d->printer, box->range[k].end, &text);
  }
  char *out = dc_arena_strdup(&d->scratch, text.s ? text.s : "");
  dc_text_free(&text);
  return out;
}

static void join(deriving *d, dc_fid src, const char *src_conn, dc_fid dst, const char *dst_conn, dc_cid c, const dc_box *box,
                 uint8_t wcr) {
  dc_memlet memlet = {.data = dc_cont_name(d->graph, c), .subset = subset_text(d, box), .wcr = wcr};
  dc_flow_join(d->flow, src, src_conn, dst, dst_conn, &memlet);
}

static void join_order(deriving *d, dc_fid src, dc_fid dst) {
  if (src != dst) dc_flow_join(d->flow, src, NULL, dst, NULL, NULL);
}

/* ---- versions ---- */

static version *push_version(deriving *d, dc_cid root, version v) {
  version *made = DC_NEW(&d->scratch, version);
  frame *f = &d->frames[d->depth];
  *made = v;
  made->before = d->latest[root], made->depth = d->depth;
  if (!made->before || made->before->depth < d->depth) DC_PUSH(&d->scratch, &f->touched, root);
  d->latest[root] = made;
  return made;
}

static version *current(deriving *d, dc_cid root) {
  version *v = d->latest[root];
  return v && v->depth == d->depth ? v : push_version(d, root, (version){0});
}

/* The access node that shows the version as container c. */
static dc_fid show(deriving *d, version *v, dc_cid c) {
  for (uint32_t k = 0; k < v->seen.n; k++)
    if (v->seen.v[k].c == c) return v->seen.v[k].access;
  dc_fid written = v->c && c != v->c ? show(d, v, v->c) : 0, access = add_access(d, c, v);
  if (written) join_order(d, written, access);
  else if (v->c) join(d, v->out, v->conn, access, NULL, c, &v->box, v->wcr);
  DC_PUSH(&d->scratch, &v->seen, ((appearance){c, access}));
  return access;
}

/* Notes that c passes the border of the map at hand, and what of it. */
static void pass(deriving *d, passage **table, dc_cid c, const dc_box *box, uint8_t wcr) {
  frame *f = &d->frames[d->depth];
  passage *p = table[c];
  if (p && p->depth == d->depth) {
    dc_box_join(d->graph, &p->box, box, c);
    if (wcr != p->wcr) p->wcr = 0; /* not all combine, or not alike */
    return;
  }
  p = DC_NEW(&d->scratch, passage);
  *p = (passage){.c = c, .box = *box, .wcr = wcr, .before = table[c], .depth = d->depth};
  p->box.range = dc_arena_copy(&d->scratch, box->range, box->rank * sizeof *box->range);
  table[c] = p;
  if (table == d->in) DC_PUSH(&d->scratch, &f->ins, c);
  else DC_PUSH(&d->scratch, &f->outs, c);
}

static const char *passing(deriving *d, const char *prefix, dc_cid c) {
  return dc_arena_printf(&d->scratch, "%s%s", prefix, dc_cont_name(d->graph, c));
}

/* Joins what container c holds here to a connector of a node; `leave` is where that node's results leave. */
static void read_into(deriving *d, dc_cid c, const dc_box *box, dc_fid n, const char *conn, dc_fid leave) {
  version *v = current(d, dc_container_root(d->graph, c));
  frame *f = &d->frames[d->depth];
  if (conn) dc_flow_connect(d->flow, n, conn, true);
  if (!v->readers.n || v->readers.v[v->readers.n - 1] != leave) DC_PUSH(&d->scratch, &v->readers, leave);
  if (v->c || !d->depth) {
    join(d, show(d, v, c), NULL, n, conn, c, box, 0);
    return;
  }
  pass(d, d->in, c, box, 0);
  const char *out = passing(d, "OUT_", c);
  dc_flow_connect(d->flow, f->entry, out, false);
  join(d, f->entry, out, n, conn, c, box, 0);
}

enum { SEEN_EDGES = 32 }; /* of a node, when an edge is sought that makes another needless */

static bool feeds(const deriving *d, dc_fid from, dc_fid to, bool by_access) {
  const dc_flow_node *node = dc_flow_at(d->flow, to);
  for (uint32_t k = 0; k < node->into.n && k < SEEN_EDGES; k++) {
    dc_fid src = dc_flow_edge_at(d->flow, node->into.v[k])->src;
    if (src == from || (by_access && dc_flow_at(d->flow, src)->kind == DC_FLOW_ACCESS && feeds(d, from, src, false))) return true;
  }
  return false;
}

/* The next writer waits for what was there, or for who reads it. */
static void wait_for(deriving *d, version *v, dc_fid in) {
  bool waits = false;
  if (v->c && !v->seen.n) show(d, v, v->c);
  for (uint32_t k = 0; k < v->seen.n; k++) waits |= feeds(d, v->seen.v[k].access, in, false);
  for (uint32_t k = 0; k < v->readers.n; k++) {
    dc_fid reader = v->readers.v[k];
    if (reader == in || dc_flow_at(d->flow, reader)->other == in) continue;
    if (!feeds(d, reader, in, true)) join_order(d, reader, in);
    waits = true;
  }
  if (v->c && !waits) join_order(d, v->seen.v[0].access, in);
}

static void written(deriving *d, dc_cid c, const dc_box *box, uint8_t wcr, dc_fid in, dc_fid out, const char *conn) {
  dc_cid root = dc_container_root(d->graph, c);
  version *before = d->latest[root];
  if (before && before->depth == d->depth && before->in != in) wait_for(d, before, in);
  version *v = push_version(d, root, (version){.c = c, .in = in, .out = out, .box = *box, .wcr = wcr});
  v->conn = dc_flow_connect(d->flow, out, conn, false);
  v->box.range = dc_arena_copy(&d->scratch, box->range, box->rank * sizeof *box->range);
  DC_PUSH(&d->scratch, &d->frames[d->depth].versions, v);
  if (!d->depth || dc_homes_is_local(&d->homes, c, d->frames[d->depth].map)) show(d, v, c);
}

/* What reads nothing in a body is known to lie there by an edge from the entry. */
static void hold(deriving *d, dc_fid n) {
  if (d->depth && !dc_flow_at(d->flow, n)->into.n) join_order(d, d->frames[d->depth].entry, n);
}

/* ---- tasklets ---- */

static const char *alias(void *context, dc_ex read, bool *shown) {
  deriving *d = context;
  for (uint32_t k = 0; k < d->names.n; k++) {
    if (d->names.v[k].read != read) continue;
    memcpy(shown, d->names.v[k].shown, dc_ex_node(&d->graph->pool, read)->nargs * sizeof *shown);
    return d->names.v[k].name;
  }
  return NULL;
}

static void name_read(void *context, const dc_pool *pool, dc_ex e) {
  deriving *d = context;
  bool shown[DC_MAX_RANK];
  dc_exnode node = *dc_ex_node(pool, e);
  if (node.op != DC_EX_READ || alias(d, e, shown)) return;
  for (uint32_t k = 0; k < node.nargs; k++) shown[k] = dc_box_needs_index(d->graph, node.ref, k, dc_ex_arg(pool, e, k));
  stand_in s = {e, dc_arena_printf(&d->scratch, "__in%u", d->names.n), dc_arena_copy(&d->scratch, shown, node.nargs * sizeof *shown)};
  DC_PUSH(&d->scratch, &d->names, s);
}

static void name_reads(deriving *d, dc_ex e) {
  if (e) dc_ex_walk(&d->graph->pool, e, name_read, d);
}

/* Connects what names stand for. */
static void read_names(deriving *d, dc_fid n, dc_fid leave) {
  for (uint32_t k = 0; k < d->names.n; k++) {
    stand_in s = d->names.v[k];
    dc_exnode node = *dc_ex_node(&d->graph->pool, s.read);
    dc_ex index[DC_MAX_RANK];
    for (uint32_t j = 0; j < node.nargs; j++) index[j] = dc_ex_arg(&d->graph->pool, s.read, j);
    dc_box box = dc_box_of_index(d->graph, &d->scratch, node.ref, index);
    read_into(d, node.ref, &box, n, s.name, leave);
  }
}

/* "__out", with the indices that are a matter of code. */
static char *target_text(deriving *d, const dc_tasklet *t) {
  dc_text text = {0};
  dc_ex shown[DC_MAX_RANK];
  uint32_t n = 0;
  for (uint32_t k = 0; k < t->rank; k++)
    if (dc_box_needs_index(d->graph, t->out, k, t->index[k])) shown[n++] = t->index[k];
  dc_text_puts(&text, "__out");
  if (n) dc_printer_list(d->printer, shown, n, &text);
  char *out = dc_arena_strdup(&d->scratch, text.s);
  dc_text_free(&text);
  return out;
}

static char *code_text(deriving *d, const dc_tasklet *t, const char *target, bool is_python) {
  dc_text text = {0};
  dc_printer_statement(d->printer, target, t->value, t->guard, is_python, &text);
  char *out = dc_arena_strdup(&d->flow->arena, text.s);
  dc_text_free(&text);
  return out;
}

static const char *label_of(const dc_graph *g, dc_nid id) {
  static const char *const kinds[] = {"", "library", "map", "tasklet"};
  const dc_node *node = dc_node_at(g, id);
  if (node->name) return dc_name_text(&g->names, node->name);
  if (node->kind == DC_NODE_LIBRARY) return dc_name_text(&g->names, node->lib.op);
  return node->tag_op ? dc_name_text(&g->names, node->tag_op) : kinds[node->kind];
}

static void derive_tasklet(deriving *d, dc_nid id) {
  dc_tasklet t = dc_node_at(d->graph, id)->tasklet;
  dc_fid n = add(d, DC_FLOW_TASKLET, label_of(d->graph, id), (dc_flow_key){DC_FLOW_TASKLET, id, 0, 0});
  dc_flow_at(d->flow, n)->node = id;
  d->names.n = 0;
  name_reads(d, t.value);
  name_reads(d, t.guard);
  for (uint32_t k = 0; k < t.rank; k++) name_reads(d, t.index[k]);
  read_names(d, n, n);
  const char *target = target_text(d, &t), *code = code_text(d, &t, target, false), *python = code_text(d, &t, target, true);
  dc_flow_at(d->flow, n)->code = code, dc_flow_at(d->flow, n)->python = python;
  d->names.n = 0;
  hold(d, n);
  dc_box box = dc_box_of_index(d->graph, &d->scratch, t.out, t.index);
  written(d, t.out, &box, t.wcr, n, n, "__out");
}

/* ---- library nodes ---- */

static const char *parameter(deriving *d, dc_nid id, bool is_input, uint32_t k) {
  char name[256];
  if (!d->params.name(d->params.context, d->graph, id, is_input, k, name, sizeof name))
    dc_flow_numbered.name(NULL, d->graph, id, is_input, k, name, sizeof name);
  return dc_arena_strdup(&d->scratch, name);
}

static void derive_library(deriving *d, dc_nid id) {
  dc_library lib = dc_node_at(d->graph, id)->lib;
  dc_fid n = add(d, DC_FLOW_LIBRARY, label_of(d->graph, id), (dc_flow_key){DC_FLOW_LIBRARY, id, 0, 0});
  dc_flow_at(d->flow, n)->node = id;
  for (uint32_t k = 0; k < lib.n_in; k++) {
    if (!lib.in[k]) continue;
    dc_box box = dc_box_whole(d->graph, &d->scratch, lib.in[k]);
    read_into(d, lib.in[k], &box, n, parameter(d, id, true, k), n);
  }
  hold(d, n);
  for (uint32_t k = 0; k < lib.n_out; k++) {
    if (!lib.out[k]) continue;
    dc_box box = dc_box_whole(d->graph, &d->scratch, lib.out[k]);
    written(d, lib.out[k], &box, 0, n, n, parameter(d, id, false, k));
  }
}

/* ---- maps ---- */

static void derive_scope(deriving *d, const dc_scope *scope);

static char *expr_text(deriving *d, dc_ex e) {
  dc_text text = {0};
  dc_printer_expr(d->printer, e, &text);
  char *out = dc_arena_strdup(&d->flow->arena, text.s);
  dc_text_free(&text);
  return out;
}

/* Enters the parameters' names. */
static void derive_ranges(deriving *d, dc_fid entry, const dc_map *map) {
  dc_flow_range *range = DC_NEW_ARRAY(&d->flow->arena, dc_flow_range, map->n_params);
  for (uint32_t k = 0; k < map->n_params; k++) {
    dc_parameter p = d->graph->pool.params.v[map->params[k]];
    range[k].begin = expr_text(d, p.begin), range[k].end = expr_text(d, p.end), range[k].step = expr_text(d, p.step);
    range[k].param = dc_arena_strdup(&d->flow->arena, dc_printer_push(d->printer, map->params[k]));
  }
  dc_flow_at(d->flow, entry)->range = range, dc_flow_at(d->flow, entry)->n_ranges = map->n_params;
}

/* What was written in the body goes on to the exit. */
static void leave_body(deriving *d, dc_fid exit) {
  frame *f = &d->frames[d->depth];
  for (uint32_t k = 0; k < f->versions.n; k++) {
    version *v = f->versions.v[k];
    if (dc_homes_is_local(&d->homes, v->c, f->map)) continue;
    pass(d, d->out, v->c, &v->box, v->wcr);
    const char *conn = dc_flow_connect(d->flow, exit, passing(d, "IN_", v->c), true);
    if (v->seen.n) join(d, show(d, v, v->c), NULL, exit, conn, v->c, &v->box, v->wcr);
    else join(d, v->out, v->conn, exit, conn, v->c, &v->box, v->wcr);
  }
  for (uint32_t k = 0; k < f->touched.n; k++) {
    version **at = &d->latest[f->touched.v[k]];
    while (*at && (*at)->depth == d->depth) *at = (*at)->before;
  }
}

static passage take(passage **table, dc_cid c) {
  passage p = *table[c];
  table[c] = p.before;
  return p;
}

/* Joins the map to the scope around it. */
static void join_map(deriving *d, dc_fid entry, dc_fid exit, frame *f, dc_map map) {
  bool reduces = map.schedule == DC_MAP_REDUCE;
  for (uint32_t k = 0; k < f->ins.n; k++) {
    passage p = take(d->in, f->ins.v[k]);
    dc_box_spread(d->graph, &p.box, p.c, map.params, map.n_params);
    dc_box_clip(d->graph, &p.box, p.c);
    read_into(d, p.c, &p.box, entry, passing(d, "IN_", p.c), exit);
  }
  hold(d, entry);
  for (uint32_t k = 0; k < f->outs.n; k++) {
    passage p = take(d->out, f->outs.v[k]);
    dc_box_spread(d->graph, &p.box, p.c, map.params, map.n_params);
    dc_box_clip(d->graph, &p.box, p.c);
    written(d, p.c, &p.box, reduces ? 0 : p.wcr, entry, exit, passing(d, "OUT_", p.c));
  }
}

static void derive_map(deriving *d, dc_nid id) {
  dc_map map = dc_node_at(d->graph, id)->map;
  const char *label = label_of(d->graph, id);
  dc_fid entry = add(d, DC_FLOW_ENTRY, label, (dc_flow_key){DC_FLOW_ENTRY, id, 0, 0});
  dc_fid exit = add(d, DC_FLOW_EXIT, label, (dc_flow_key){DC_FLOW_EXIT, id, 0, 0});
  dc_flow_node *in = dc_flow_at(d->flow, entry), *out = dc_flow_at(d->flow, exit);
  in->other = exit, out->other = entry, in->node = out->node = id, in->schedule = (uint8_t)(1 + map.schedule);
  d->names.n = 0;
  for (uint32_t k = 0; k < map.n_params; k++) {
    name_reads(d, d->graph->pool.params.v[map.params[k]].begin);
    name_reads(d, d->graph->pool.params.v[map.params[k]].end);
  }
  read_names(d, entry, exit);
  derive_ranges(d, entry, &map);
  d->names.n = 0;
  frame *f = &d->frames[++d->depth];
  *f = (frame){.map = id, .entry = entry};
  derive_scope(d, &map.body);
  leave_body(d, exit);
  d->depth--;
  dc_printer_pop(d->printer, map.n_params);
  dc_flow_at(d->flow, exit)->position = ++d->position;
  join_map(d, entry, exit, f, map);
}

static void derive_scope(deriving *d, const dc_scope *scope) {
  dc_scope nodes = *scope;
  for (uint32_t k = 0; k < nodes.n; k++) {
    uint32_t before = d->made.n;
    uint8_t kind = dc_node_at(d->graph, nodes.v[k])->kind;
    if (kind == DC_NODE_MAP) derive_map(d, nodes.v[k]);
    else if (kind == DC_NODE_LIBRARY) derive_library(d, nodes.v[k]);
    else derive_tasklet(d, nodes.v[k]);
    uint32_t unit = d->depth ? 0 : dc_flow_add_unit(d->flow, &nodes.v[k], 1);
    for (uint32_t j = before; unit && j < d->made.n; j++) {
      dc_flow_node *made = dc_flow_at(d->flow, d->made.v[j]);
      if (made->kind != DC_FLOW_ACCESS || made->scope) made->unit = unit;
    }
  }
}

static dc_status check_depth(const dc_graph *graph, const dc_scope *scope, uint32_t depth) {
  if (depth > DC_MAX_LOOPS) return dc_error(DC_ERR_MODEL, "maps are nested deeper than %d", DC_MAX_LOOPS);
  for (uint32_t k = 0; k < scope->n; k++)
    if (dc_node_at(graph, scope->v[k])->kind == DC_NODE_MAP)
      DC_TRY(check_depth(graph, &dc_node_at(graph, scope->v[k])->map.body, depth + 1));
  return DC_OK;
}

dc_status dc_flow_derive(dc_flow *flow, dc_graph *graph, uint32_t state, dc_flow_params params) {
  if (state >= graph->states.n)
    return dc_error(DC_ERR_VALUE, "graph '%s' has no state %u", dc_name_text(&graph->names, graph->name), state);
  DC_TRY(check_depth(graph, &graph->states.v[state].scope, 0));
  dc_flow before = *flow;
  *flow = (dc_flow){0};
  flow->name = dc_arena_strdup(&flow->arena, dc_name_text(&graph->names, graph->states.v[state].name));
  for (uint32_t n = 0; n < before.nodes.n; n++) DC_PUSH(&flow->arena, &flow->nodes, (dc_flow_node){0});
  deriving *d = calloc(1, sizeof *d);
  if (!d) abort();
  d->flow = flow, d->graph = graph, d->params = params, d->before = &before;
  remember(d);
  dc_homes_start(&d->homes, graph, &d->scratch);
  d->latest = DC_NEW_ARRAY(&d->scratch, version *, graph->containers.n);
  d->in = DC_NEW_ARRAY(&d->scratch, passage *, graph->containers.n), d->out = DC_NEW_ARRAY(&d->scratch, passage *, graph->containers.n);
  for (uint32_t s = 0; s < graph->states.n; s++) dc_homes_add(&d->homes, &graph->states.v[s].scope);
  d->printer = dc_printer_new(graph, &d->scratch, alias, d);
  derive_scope(d, &graph->states.v[state].scope);
  flow->is_draft = false;
  dc_arena_free(&d->scratch);
  free(d);
  dc_flow_free(&before);
  return DC_OK;
}
