/* See chains.h. */
#include "backends/chains.h"

#include "backends/native/problem.h"
#include "passes/access.h"

enum { MANY = 4 }; /* channels of a thread: where there are fewer, each step shares its work better by itself */

/* ---- what steps do ---- */

static void add_use(dc_chain_step *s, dc_chain_use use) {
  for (uint32_t k = 0; k < s->n; k++) {
    dc_chain_use *u = &s->uses[k];
    if (u->root != use.root) continue;
    u->is_written |= use.is_written;
    if (u->c != use.c || u->axis != use.axis) u->axis = DC_AXIS_WHOLE;
    return;
  }
  s->uses[s->n++] = use;
}

/* Elements that all channels share are for reading only. */
static bool are_apart(const dc_chain_step *s) {
  bool apart = true;
  for (uint32_t k = 0; k < s->n; k++) apart &= !s->uses[k].is_written || s->uses[k].axis >= 0;
  return apart;
}

/* The first dimension whose index is the parameter itself. */
static int8_t axis_of(const dc_pool *pool, dc_ex element, dc_param p) {
  const uint32_t rank = dc_ex_node(pool, element)->nargs;
  for (uint32_t d = 0; d < rank; d++) {
    const dc_exnode *index = dc_ex_node(pool, dc_ex_arg(pool, element, d));
    if (index->op == DC_EX_PARAM && index->ref == p) return (int8_t)d;
  }
  return DC_AXIS_WHOLE;
}

void dc_chain_read_node(dc_graph *graph, dc_nid node, dc_arena *arena, dc_chain_step *out) {
  const dc_node *n = dc_node_at(graph, node);
  dc_accesses all = {0};
  int64_t extent;
  *out = (dc_chain_step){0};
  if (n->kind != DC_NODE_MAP || n->map.n_params != 1 || n->map.schedule != DC_MAP_PARALLEL) return;
  const dc_param channel = n->map.params[0];
  if (!dc_param_counts_to(&graph->pool, channel, &extent)) return;
  dc_access_collect(graph, arena, node, false, &all);
  out->uses = DC_NEW_ARRAY(arena, dc_chain_use, all.n);
  for (uint32_t k = 0; k < all.n; k++) {
    const dc_access *a = &all.v[k];
    if (dc_cont(graph, a->container)->storage != DC_STORE_HEAP) continue;
    add_use(out, (dc_chain_use){a->container, a->root, axis_of(&graph->pool, a->element, channel), a->writes});
  }
  out->extent = are_apart(out) ? extent : 0;
}

void dc_chain_read_call(const dc_graph *graph, dc_nid node, const dc_native_call *call, dc_arena *arena, dc_chain_step *out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const uint32_t n = lib->n_in + lib->n_out;
  dc_division division = {.axes = DC_NEW_ARRAY(arena, int8_t, n)};
  *out = (dc_chain_step){.uses = DC_NEW_ARRAY(arena, dc_chain_use, n)};
  for (uint32_t k = 0; k < n; k++) division.axes[k] = DC_AXIS_UNUSED;
  if (!dc_native_divides(call, &division)) return;
  for (uint32_t k = 0; k < n; k++) {
    const dc_cid c = k < lib->n_in ? lib->in[k] : lib->out[k - lib->n_in];
    if (c && division.axes[k] != DC_AXIS_UNUSED)
      add_use(out, (dc_chain_use){c, dc_container_root(graph, c), division.axes[k], k >= lib->n_in});
  }
  out->extent = are_apart(out) ? division.extent : 0;
}

/* ---- which follow one another ---- */

typedef struct {
  const dc_graph *graph;
  const dc_chain_step *steps;
  uint32_t n_steps;
  const dc_plan *plan; /* of steps that run one by one */
  struct met {
    uint32_t chain, times; /* 1 + the first step of the chain that it was met in */
    dc_chain_use use;
  } *met; /* by root */
} search;

static bool are_one_by_one(const dc_chain_use *a, const dc_chain_use *b) {
  if (!a->is_written && !b->is_written) return true;
  return a->c == b->c && a->axis == b->axis && a->axis >= 0;
}

static bool may_join(const search *s, uint32_t first, const dc_chain_step *step) {
  bool may = step->extent && step->extent == s->steps[first].extent;
  for (uint32_t k = 0; k < step->n && may; k++) {
    const struct met *m = &s->met[step->uses[k].root];
    may = m->chain != first + 1 || are_one_by_one(&m->use, &step->uses[k]);
  }
  return may;
}

/* Of what several read and none writes, a later use may be another than the first: it meets no writer, then. */
static void join(search *s, uint32_t first, const dc_chain_step *step) {
  for (uint32_t k = 0; k < step->n; k++) {
    struct met *m = &s->met[step->uses[k].root];
    if (m->chain != first + 1) *m = (struct met){first + 1, 0, step->uses[k]};
    m->times++;
    m->use.is_written |= step->uses[k].is_written;
    if (m->use.c != step->uses[k].c || m->use.axis != step->uses[k].axis) m->use.axis = DC_AXIS_WHOLE;
  }
}

/* Bytes that pass from one step of a chain to another. */
static uint64_t passed_on(const search *s, const dc_chain *chain) {
  uint64_t sum = 0;
  for (uint32_t k = chain->first; k < chain->end; k++)
    for (uint32_t u = 0; u < s->steps[k].n; u++) {
      struct met *m = &s->met[s->steps[k].uses[u].root];
      if (m->times > 1 && m->use.is_written) sum += s->plan->bytes[m->use.root];
      m->times = 0;
    }
  return sum;
}

/* As many channels as leave what passes between steps in the second cache, in rounds of about the same number. */
static int64_t at_once(const search *s, const dc_chain *chain, uint64_t bytes, uint32_t threads) {
  const int64_t share = dc_quotient_up(chain->extent, threads);
  const int64_t fitting = (int64_t)(s->graph->machine.l2_bytes * (double)chain->extent / (double)bytes);
  return dc_quotient_up(share, dc_quotient_up(share, fitting > 0 ? fitting : 1));
}

/* ---- what need not reach memory ---- */

/* It is written and read within the chain alone. */
static bool is_passing(const search *s, const dc_chain *chain, const dc_chain_use *use) {
  const bool within = s->plan->first[use->root] > chain->first && s->plan->last[use->root] <= chain->end;
  return within && s->plan->planned[use->root] && !dc_cont(s->graph, use->c)->strides && use->c == use->root && use->axis >= 0;
}

static void fold(const search *s, const dc_chain *chain, const int64_t *symbols, int64_t *folded) {
  for (uint32_t k = chain->first; k < chain->end; k++)
    for (uint32_t u = 0; u < s->steps[k].n; u++) {
      const dc_chain_use *use = &s->steps[k].uses[u];
      if (!is_passing(s, chain, use)) continue;
      const dc_container *made = dc_cont(s->graph, use->c);
      int64_t bytes = dc_dtype_bytes((dc_dtype)made->dtype);
      for (uint32_t d = (uint32_t)use->axis + 1; d < made->rank; d++) bytes *= dc_ix_eval(&s->graph->pool, made->shape[d], symbols, NULL);
      folded[use->c] = bytes;
    }
}

/* ---- from outside ---- */

static dc_chain chain_from(search *s, uint32_t first) {
  dc_chain chain = {first, first, s->steps[first].extent, 0};
  while (chain.end < s->n_steps && may_join(s, first, &s->steps[chain.end])) join(s, first, &s->steps[chain.end++]);
  return chain;
}

/* Chains are as long as they can be, and pass on more than a cache holds anyway. */
void dc_chains_find(const dc_graph *graph, const dc_chain_step *steps, uint32_t n_steps, const dc_plan *plan, const int64_t *symbols,
                    uint32_t threads, dc_arena *arena, dc_chains *out) {
  const uint32_t n = graph->containers.n;
  search s = {graph, steps, n_steps, plan, DC_NEW_ARRAY(arena, struct met, n)};
  *out = (dc_chains){.v = DC_NEW_ARRAY(arena, dc_chain, n_steps), .folded = DC_NEW_ARRAY(arena, int64_t, n)};
  for (uint32_t k = 0; k < n_steps;) {
    dc_chain chain = chain_from(&s, k);
    const uint64_t passed = passed_on(&s, &chain);
    k = chain.end > k ? chain.end : k + 1;
    if (chain.end - chain.first < 2 || passed < graph->machine.l2_bytes || chain.extent < MANY * (int64_t)threads) continue;
    chain.at_once = at_once(&s, &chain, passed, threads);
    fold(&s, &chain, symbols, out->folded);
    out->v[out->n++] = chain;
  }
}
