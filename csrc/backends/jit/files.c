/* See files.h. */
#include "backends/jit/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { KERNELS_PER_FILE = 8 };

/* ---- kernels and families ---- */

/* Of what the text says, which stands in it wherever the function is named. */
static void name_function(dc_text *text, uint64_t seed, char *name) {
  static const char placeholder[] = "k________________";
  uint64_t hash = dc_hash_bytes(seed, text->s, text->n);
  snprintf(name, DC_KERNEL_NAME + 1, "k%016llx", (unsigned long long)hash);
  for (char *at = strstr(text->s, placeholder); at; at = strstr(at, placeholder)) memcpy(at, name, DC_KERNEL_NAME);
}

static void free_source(dc_source *s) {
  dc_text_free(&s->text);
  dc_loose_free(&s->loose);
  dc_launches_destroy(s->launches);
}

dc_status dc_sources_spell(dc_sources *b, const dc_language *language, const dc_graph *graph, const dc_nid *nodes, uint32_t n,
                           bool (*is_loaded)(void *context, const char *name), void *context, dc_kernel_name *names) {
  b->sources = calloc(n ? n : 1, sizeof *b->sources);
  if (!b->sources) return dc_error(DC_ERR_MEMORY, "out of memory");
  for (uint32_t k = 0; k < n; k++) {
    dc_source s = {.next = 0};
    dc_status status = dc_emit_node(language, graph, nodes[k], "k________________", &s.text, &s.launches, &s.loose);
    if (status) {
      free_source(&s);
      bool unsupported = dc_status_code(status) == DC_ERR_UNSUPPORTED;
      if (!unsupported) return dc_error_at(status, "kernel %u", k);
      dc_status_free(status);
      names[k][0] = 0;
      continue;
    }
    name_function(&s.text, dc_launches_hash(s.launches), s.name);
    memcpy(names[k], s.name, sizeof s.name);
    if (is_loaded(context, s.name) || dc_name_table_find(&b->known, b->sources, sizeof s, s.name)) {
      free_source(&s);
      continue;
    }
    b->sources[b->n_sources++] = s;
    dc_name_table_enter(&b->arena, &b->known, b->sources, sizeof s);
  }
  return DC_OK;
}

/* Puts kernels with equal loose texts together, in the order of their first ones, and makes the text of each family. */
static void find_families(dc_sources *b) {
  enum { LOOSE = 0x100 }; /* the names of families are no kernels' */
  dc_name_table known = {0};
  b->families = calloc(b->n_sources ? b->n_sources : 1, sizeof *b->families);
  if (!b->families) abort();
  for (uint32_t k = 0; k < b->n_sources; k++) {
    dc_source *s = &b->sources[k];
    dc_family one = {.first = k + 1, .last = k + 1, .n = 1};
    if (s->loose.text.n) name_function(&s->loose.text, LOOSE, one.name);
    else memcpy(one.name, s->name, sizeof one.name);
    uint32_t at = dc_name_table_find(&known, b->families, sizeof one, one.name);
    dc_family *same = at ? &b->families[at - 1] : NULL;
    if (same && dc_loose_alike(&b->sources[same->first - 1].loose, &s->loose)) {
      b->sources[same->last - 1].alike = k + 1;
      same->last = k + 1, same->n++;
      continue;
    }
    if (same) memcpy(one.name, s->name, sizeof one.name);
    b->families[b->n_families++] = one;
    dc_name_table_enter(&b->arena, &known, b->families, sizeof one);
  }
}

static void spell_family(dc_sources *b, const dc_dialect *dialect, dc_family *f) {
  if (f->n == 1) {
    dc_text_puts(&f->text, b->sources[f->first - 1].text.s);
    return;
  }
  const dc_loose **members = DC_NEW_ARRAY(&b->arena, const dc_loose *, f->n);
  const char **names = DC_NEW_ARRAY(&b->arena, const char *, f->n);
  for (uint32_t s = f->first, n = 0; s; s = b->sources[s - 1].alike, n++) {
    members[n] = &b->sources[s - 1].loose;
    names[n] = b->sources[s - 1].name;
  }
  dc_loose_spell(dialect, members, names, f->n, f->name, &f->text);
}

/* ---- files ---- */

/* The shorter of two files comes first, of equal ones that of the lower number. */
static bool is_before(const dc_text *parts, uint32_t a, uint32_t b) {
  return parts[a].n != parts[b].n ? parts[a].n < parts[b].n : a < b;
}

/* The file on top of the heap has grown: it sinks to its place. */
static void sink_top(uint32_t *heap, uint32_t n, const dc_text *parts) {
  for (uint32_t at = 0, below; (below = 2 * at + 1) < n; at = below) {
    if (below + 1 < n && is_before(parts, heap[below + 1], heap[below])) below++;
    if (!is_before(parts, heap[below], heap[at])) return;
    uint32_t swap = heap[at];
    heap[at] = heap[below], heap[below] = swap;
  }
}

/* As many as there are processors, or a multiple of that, so that they end together. */
static uint32_t count_files(uint32_t n_families, uint32_t processors) {
  uint32_t n = (n_families + KERNELS_PER_FILE - 1) / KERNELS_PER_FILE;
  if (n_families < 4) return n;
  if (n < processors) return processors < n_families / 2 ? processors : n_families / 2;
  uint32_t even = (n + processors - 1) / processors * processors;
  return even < n_families ? even : n;
}

typedef struct {
  size_t length;
  uint32_t family;
} portion;

static int longer_first(const void *a, const void *b) {
  const portion *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? 1 : -1;
  return (x->family > y->family) - (x->family < y->family);
}

/* Deals the families to files, the longest first, each to the shortest file so far. */
static void deal_families(dc_sources *b, const dc_dialect *dialect, dc_text *parts) {
  uint32_t *heap = DC_NEW_ARRAY(&b->arena, uint32_t, b->n_files);
  portion *order = DC_NEW_ARRAY(&b->arena, portion, b->n_families);
  for (uint32_t f = 0; f < b->n_files; f++) heap[f] = f;
  for (uint32_t k = 0; k < b->n_families; k++) {
    spell_family(b, dialect, &b->families[k]);
    order[k] = (portion){b->families[k].text.n, k};
  }
  if (b->n_families) qsort(order, b->n_families, sizeof *order, longer_first);
  for (uint32_t k = 0; k < b->n_families; k++) {
    dc_family *one = &b->families[order[k].family];
    dc_source_file *file = &b->files[heap[0]];
    b->sources[one->last - 1].alike = 0;
    for (uint32_t s = one->first, next; s; s = next) {
      next = b->sources[s - 1].alike;
      b->sources[s - 1].next = file->first, file->first = s;
    }
    dc_text_puts(&parts[heap[0]], one->text.s);
    sink_top(heap, b->n_files, parts);
    dc_text_free(&one->text);
  }
}

void dc_sources_deal(dc_sources *b, const dc_language *language, uint32_t n_processors) {
  find_families(b);
  uint32_t n = b->n_files = count_files(b->n_families, n_processors);
  b->files = calloc(n ? n : 1, sizeof *b->files);
  dc_text *parts = calloc(n ? n : 1, sizeof *parts);
  if (!b->files || !parts) abort();
  deal_families(b, language->dialect, parts);
  for (uint32_t f = 0; f < n; f++) {
    language->library(parts[f].s, &b->files[f].text);
    dc_text_puts(&b->files[f].text, parts[f].s);
    dc_text_free(&parts[f]);
  }
  free(parts);
}

void dc_sources_free(dc_sources *b) {
  for (uint32_t k = 0; k < b->n_sources; k++) free_source(&b->sources[k]);
  for (uint32_t f = 0; f < b->n_files; f++) dc_text_free(&b->files[f].text);
  free(b->sources);
  free(b->families);
  free(b->files);
  dc_arena_free(&b->arena);
}
