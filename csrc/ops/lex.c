/* Tokens of the operator language. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ops/lang.h"

static void skip_space(dc_lang_parser *p) {
  for (;;) {
    while (isspace((unsigned char)*p->at)) p->at++;
    if (p->at[0] != '-' || p->at[1] != '-') return;
    while (*p->at && *p->at != '\n') p->at++;
  }
}

static const char *keep(dc_lang_parser *p, const char *from, size_t n) {
  char *text = dc_arena_alloc(p->arena, n + 1);
  memcpy(text, from, n);
  return text;
}

static void lex_number(dc_lang_parser *p) {
  const char *c = p->at;
  char *end;
  while (isdigit((unsigned char)*c)) c++;
  bool real = (*c == '.' && isdigit((unsigned char)c[1])) ||
              ((*c == 'e' || *c == 'E') && (isdigit((unsigned char)c[1]) || c[1] == '-' || c[1] == '+'));
  p->kind = real ? 'f' : 'i';
  p->f = strtod(p->at, &end);
  if (!real) p->i = strtoll(p->at, &end, 10);
  p->at = end;
}

dc_status dc_lang_next(dc_lang_parser *p) {
  static const char *const pairs[] = {"..", "->", "//", "==", "!=", "<=", ">=", "&&", "||", "+=", "*="};
  skip_space(p);
  p->token_at = p->at;
  p->text = "";
  unsigned char c = (unsigned char)*p->at;
  if (!c) return p->kind = 0, DC_OK;
  if (isdigit(c)) return lex_number(p), DC_OK;
  size_t n = 1;
  if (c == '"') {
    const char *end = strchr(p->at + 1, '"');
    if (!end) return dc_error(DC_ERR_VALUE, "a string has no closing quote");
    p->kind = 's';
    p->text = keep(p, p->at + 1, (size_t)(end - p->at - 1));
    p->at = end + 1;
    return DC_OK;
  }
  if (isalpha(c) || c == '_') {
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_') n++;
    while (p->at[n] == '\'') n++;
    p->kind = 'n';
  } else {
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
      if (strncmp(p->at, pairs[k], 2) == 0) n = 2;
    p->kind = 'p';
  }
  p->text = keep(p, p->at, n);
  p->at += n;
  return DC_OK;
}

void dc_lang_start(dc_lang_parser *p, dc_arena *arena, const char *text) {
  *p = (dc_lang_parser){.arena = arena, .start = text, .at = text};
}
