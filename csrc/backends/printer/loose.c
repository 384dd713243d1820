/* Loose texts: a kernel whose larger numbers are names, and one function for all kernels that differ in nothing else.
 *
 * The stages of a network repeat a kernel with other extents.  Each member of a family was scheduled and printed by itself, so
 * where the loose texts are equal, each is right for every member under that member's numbers.  Numbers that all members
 * share are constants of the function; the others come behind the symbols. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backends/printer/printer.h"

enum { SMALL = 32, MOST = 64 }; /* what vectors and unrolled loops are made of stays a literal; a bound for what is searched */
static const char place[] = "@"; /* where a function names its numbers */

bool dc_print_is_loose(const dc_printer *p, dc_dtype type, int64_t bits) {
  if (!p->loose) return false;
  if (type == DC_I64) return bits >= SMALL || bits <= -SMALL;
  return type == DC_F32 || type == DC_F64;
}

const char *dc_print_loose(dc_printer *p, dc_dtype type, int64_t bits, const char *literal) {
  dc_loose *loose = p->loose;
  uint32_t k = 0;
  while (k < loose->numbers.n && (loose->numbers.v[k].type != type || loose->numbers.v[k].bits != bits)) k++;
  if (k == MOST) return literal;
  if (k == loose->numbers.n) {
    dc_loose_number made = {type, bits, dc_arena_strdup(&loose->arena, literal)};
    DC_PUSH(&loose->arena, &loose->numbers, made);
  }
  return dc_arena_printf(p->arena, "e%u", k);
}

void dc_print_loose_names(dc_printer *p) {
  if (p->loose) dc_print_line(p, "%s", place);
}

void dc_loose_free(dc_loose *loose) {
  dc_text_free(&loose->text);
  dc_arena_free(&loose->arena);
}

/* ---- families ---- */

bool dc_loose_alike(const dc_loose *a, const dc_loose *b) {
  if (!a->text.n || a->text.n != b->text.n || a->numbers.n != b->numbers.n || a->n_symbols != b->n_symbols) return false;
  for (uint32_t k = 0; k < a->numbers.n; k++)
    if (a->numbers.v[k].type != b->numbers.v[k].type) return false;
  return strcmp(a->text.s, b->text.s) == 0;
}

static bool is_shared(const dc_loose *const *members, uint32_t n, uint32_t k) {
  for (uint32_t m = 1; m < n; m++)
    if (members[m]->numbers.v[k].bits != members[0]->numbers.v[k].bits) return false;
  return true;
}

static void name_number(const dc_dialect *dialect, const dc_loose_number *number, uint32_t k, int64_t slot, dc_text *out) {
  const char *type = dialect->types[number->type].compute;
  if (slot < 0) {
    dc_text_printf(out, "  const %s e%u = %s;\n", type, k, number->literal);
    return;
  }
  const char *pattern = number->type == DC_F32 ? dialect->from_f32 : number->type == DC_F64 ? dialect->from_f64 : "$";
  const char *dollar = strchr(pattern, '$');
  dc_text_printf(out, "  const %s e%u = %.*ssymbols[%" PRId64 "]%s;\n", type, k, (int)(dollar - pattern), pattern, slot, dollar + 1);
}

/* A function under a member's name, which adds its numbers to the symbols. */
static void put_member(const dc_loose *one, const bool *shared, const char *family, const char *name, dc_text *out) {
  dc_text_printf(out, "void %s(void *const *buffers, const i64 *symbols, const i64 *part) { const i64 given[] = {%s", name, one->symbols);
  for (uint32_t k = 0; k < one->numbers.n; k++) {
    const dc_loose_number *number = &one->numbers.v[k];
    if (shared[k]) continue;
    if (number->type == DC_I64) dc_text_printf(out, ", %s", number->literal);
    else dc_text_printf(out, ", (i64)0x%" PRIx64 "ull", (uint64_t)number->bits);
  }
  dc_text_printf(out, "}; %s(buffers, given, part); }\n", family);
}

void dc_loose_spell(const dc_dialect *dialect, const dc_loose *const *members, const char *const *names, uint32_t n, const char *family,
                    dc_text *out) {
  dc_arena arena = {0};
  dc_text prologue = {0};
  bool *shared = DC_NEW_ARRAY(&arena, bool, members[0]->numbers.n + 1);
  int64_t slot = members[0]->n_symbols;
  dc_text_puts(&prologue, "");
  for (uint32_t k = 0; k < members[0]->numbers.n; k++) {
    shared[k] = is_shared(members, n, k);
    name_number(dialect, &members[0]->numbers.v[k], k, shared[k] ? -1 : slot, &prologue);
    slot += !shared[k];
  }
  const char *at = members[0]->text.s;
  for (const char *next; (next = strstr(at, place)); at = next + sizeof place) { /* and the end of the line */
    const char *line = next;
    while (line > at && line[-1] == ' ') line--;
    dc_text_printf(out, "%.*s%s", (int)(line - at), at, prologue.s);
  }
  dc_text_puts(out, at);
  for (uint32_t m = 0; m < n; m++) put_member(members[m], shared, family, names[m], out);
  dc_text_free(&prologue);
  dc_arena_free(&arena);
}
