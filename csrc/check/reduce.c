/* See reduce.h.  Edits are kept while the same thing still goes wrong. */
#include "check/reduce.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "check/edit.h"
#include "passes/passes.h"

enum { MAX_TRIES = 5000 };

typedef struct {
  dc_ops *ops;
  dc_fails_fn fails;
  void *context;
} reduction;

/* ---- text ---- */

static bool is_word(int c) { return isalnum(c) || c == '_'; }

static uint32_t count_word(const char *text, const char *word, size_t n) {
  uint32_t count = 0;
  for (const char *at = text; (at = strstr(at, word)); at += n)
    count += (at == text || !is_word(at[-1])) && !is_word(at[n]);
  return count;
}

/* The text without declarations of what is not used. */
static void prune(const char *text, dc_text *out) {
  for (const char *line = text, *end; *line; line = end) {
    end = strchr(line, '\n') ? strchr(line, '\n') + 1 : line + strlen(line);
    static const char *const kinds[] = {"  symbol ", "  input ", "  temp ", "  param ", "  const "};
    bool keep = true;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      size_t n = strlen(kinds[k]), m = 0;
      if (strncmp(line, kinds[k], n)) continue;
      while (is_word(line[n + m])) m++;
      char *name = strndup(line + n, m);
      keep = count_word(text, name, m) > 1;
      free(name);
    }
    if (keep) dc_text_printf(out, "%.*s", (int)(end - line), line);
  }
}

static void put_text(const reduction *r, const dc_graph *g, dc_text *out) {
  dc_text full = {0}, pruned = {0}, again = {0};
  dc_graph *parsed = NULL;
  dc_graph_print(g, &full);
  prune(full.s, &again);
  prune(again.s, &pruned);
  dc_status status = dc_graph_parse(pruned.s, &parsed);
  bool good = !status && r->fails(r->context, parsed);
  dc_text_puts(out, good ? pruned.s : full.s);
  dc_status_free(status);
  dc_graph_destroy(parsed);
  dc_text_free(&full), dc_text_free(&pruned), dc_text_free(&again);
}

/* ---- trying ---- */

/* An edit of what a graph no longer uses makes nothing smaller. */
static bool same_text(const dc_graph *a, const dc_graph *b) {
  dc_text x = {0}, y = {0};
  dc_graph_print(a, &x), dc_graph_print(b, &y);
  bool same = x.n == y.n && memcmp(x.s, y.s, x.n) == 0;
  dc_text_free(&x), dc_text_free(&y);
  return same;
}

/* Tries every edit once, from the k-th on; after a good one again from `back_to_first` or from the same place. */
static dc_graph *reduce_once(const reduction *r, dc_graph *best, bool back_to_first) {
  for (uint32_t k = 0, tries = 0; tries < MAX_TRIES; tries++) {
    dc_graph *next = dc_edit_make(r->ops, best, k);
    if (!next) break;
    bool better = (next->outputs.n || dc_graph_writes_inputs(next)) && !same_text(best, next) && r->fails(r->context, next);
    dc_graph_destroy(better ? best : next);
    if (better) best = next;
    if (!better) k++;
    else if (back_to_first) k = 0;
  }
  return best;
}

bool dc_reduce(dc_ops *ops, const dc_graph *graph, dc_fails_fn fails, void *context, dc_text *out) {
  reduction r = {ops, fails, context};
  dc_graph *best = dc_graph_clone(graph);
  dc_cid blocked;
  dc_status_free(dc_pass_infer(ops, best, &blocked)); /* what is cut off must have a type; other graphs may still fail */
  dc_edit_repair(best);
  bool failed = fails(context, best);
  if (failed) best = reduce_once(&r, best, false);
  if (failed) best = reduce_once(&r, best, true); /* what an edit made possible may lie before it */
  put_text(&r, best, out);
  dc_graph_destroy(best);
  return failed;
}

/* ---- one verdict ---- */

typedef struct {
  const dc_check *check;
  const char *what;
  dc_verdict wanted;
} verdict_kept;

/* Only what crashes needs a process for each try. */
static bool is_kept(void *context, const dc_graph *graph) {
  const verdict_kept *v = context;
  dc_text why = {0};
  bool apart = v->wanted == DC_CRASHES;
  dc_verdict verdict = apart ? dc_check_try_apart(v->check, graph, v->what) : dc_check_try(v->check, graph, v->what, &why);
  dc_text_free(&why);
  return verdict == v->wanted && verdict != DC_AGREES && verdict != DC_USELESS;
}

bool dc_reduce_try(const dc_check *check, const dc_graph *graph, const char *what, dc_text *out) {
  dc_graph *first = dc_graph_clone(graph);
  dc_edit_repair(first);
  verdict_kept kept = {check, what, dc_check_try_apart(check, first, what)};
  dc_graph_destroy(first);
  return dc_reduce(check->target->ops, graph, is_kept, &kept, out);
}
