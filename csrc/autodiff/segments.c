/* For each of a few bounds on what a segment holds, the nodes are walked once; a segment ends where least is handed on.  The
 * bound with the lowest peak counts: what is handed on, and the largest segment. */
#include "autodiff/segments.h"

enum { MOST_SEGMENTS = 32 };

/* Values by the node that writes them, and by the one that reads them last. */
typedef struct {
  uint32_t *first, *values; /* first: by node, where its values begin */
} by_node;

typedef struct {
  const dc_segments *p;
  dc_arena arena;
  by_node begin, end;
} walk;

typedef struct {
  uint32_t node;  /* the last of the segment */
  int64_t inside; /* what is kept of it */
  int64_t handed, handed_kept; /* what later segments read, and what of that is kept anyway */
} segment_end;

static by_node sorted(walk *w, const uint32_t *node_of) {
  const dc_segments *p = w->p;
  by_node s = {DC_NEW_ARRAY(&w->arena, uint32_t, p->n_nodes + 2), DC_NEW_ARRAY(&w->arena, uint32_t, p->n_values + 1)};
  for (uint32_t v = 0; v < p->n_values; v++) s.first[node_of[v] + 2] += p->bytes[v] > 0;
  for (uint32_t k = 1; k < p->n_nodes + 2; k++) s.first[k] += s.first[k - 1];
  for (uint32_t v = 0; v < p->n_values; v++)
    if (p->bytes[v] > 0) s.values[s.first[node_of[v] + 1]++] = v;
  return s;
}

static void step(const walk *w, uint32_t start, segment_end *at) {
  const dc_segments *p = w->p;
  for (uint32_t j = w->begin.first[at->node]; j < w->begin.first[at->node + 1]; j++) {
    uint32_t v = w->begin.values[j];
    if (p->kept[v]) at->inside += p->bytes[v];
    if (p->last[v] > p->born[v]) at->handed += p->bytes[v], at->handed_kept += p->kept[v] ? p->bytes[v] : 0;
  }
  for (uint32_t j = w->end.first[at->node]; j < w->end.first[at->node + 1]; j++) {
    uint32_t v = w->end.values[j];
    if (p->born[v] >= start && p->last[v] > p->born[v]) at->handed -= p->bytes[v], at->handed_kept -= p->kept[v] ? p->bytes[v] : 0;
  }
}

/* The segment that begins at `start`: it ends in the second half of what the bound allows. */
static segment_end end_of(const walk *w, uint32_t start, int64_t bound) {
  segment_end at = {start, 0, 0, 0}, best = {0};
  bool any = false;
  for (; at.node < w->p->n_nodes; at.node++) {
    step(w, start, &at);
    if (any && at.inside > bound) return best;
    if (2 * at.inside < bound || (any && at.handed > best.handed)) continue;
    best = at, any = true;
  }
  at.node = w->p->n_nodes - 1;
  return at;
}

static int64_t peak_within(const walk *w, int64_t bound, uint32_t *segment) {
  int64_t handed = 0, largest = 0;
  for (uint32_t start = 0, number = 0; start < w->p->n_nodes; number++) {
    segment_end end = end_of(w, start, bound);
    int64_t inside = end.inside - end.handed_kept;
    handed += end.handed;
    if (inside > largest) largest = inside;
    for (; start <= end.node; start++) segment[start] = number;
  }
  return handed + largest;
}

void dc_segments_choose(const dc_segments *p, uint32_t *segment) {
  walk w = {.p = p};
  w.begin = sorted(&w, p->born), w.end = sorted(&w, p->last);
  int64_t all = 0, best = 0, lowest = 0;
  for (uint32_t v = 0; v < p->n_values; v++) all += p->kept[v] ? p->bytes[v] : 0;
  for (int64_t parts = 1; parts <= MOST_SEGMENTS; parts++) {
    int64_t peak = peak_within(&w, all / parts + 1, segment);
    if (parts == 1 || peak < lowest) lowest = peak, best = parts;
  }
  peak_within(&w, all / best + 1, segment);
  dc_arena_free(&w.arena);
}
