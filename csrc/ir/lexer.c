/* The lexer of the text form. */
#include "ir/lexer.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void position(const dc_parser *p, int *line, int *column) {
  *line = *column = 1;
  for (const char *c = p->start; c < p->token.at; c++) {
    *column = *c == '\n' ? 1 : *column + 1;
    *line += *c == '\n';
  }
}

dc_status dc_parser_fail(const dc_parser *p, const char *expected) {
  int line, column;
  position(p, &line, &column);
  const char *end = p->token.at;
  while (*end && *end != '\n' && end < p->token.at + 24) end++;
  return dc_error(DC_ERR_MODEL, "line %d, column %d: expected %s before '%.*s'", line, column, expected, (int)(end - p->token.at),
                  p->token.at);
}

static char *copy_text(dc_parser *p, const char *from, size_t n) {
  char *text = dc_arena_alloc(p->scratch, n + 1);
  memcpy(text, from, n);
  return text;
}

static dc_status lex_string(dc_parser *p) {
  const char *c = p->at + 1;
  char *text = copy_text(p, c, strcspn(c, "\"")), *to = text;
  for (; *c && *c != '"'; c++) {
    if (*c != '\\') {
      *to++ = *c;
      continue;
    }
    char hex[3] = {c[1] == 'x' ? c[2] : 0, c[1] == 'x' && c[2] ? c[3] : 0, 0};
    if (!isxdigit((unsigned char)hex[0]) || !isxdigit((unsigned char)hex[1])) return dc_parser_fail(p, "\\xHH in a string");
    *to++ = (char)strtol(hex, NULL, 16);
    c += 3;
  }
  if (*c != '"') return dc_parser_fail(p, "a closing quote");
  p->token.kind = TOK_STRING, p->token.text = text, p->token.length = (size_t)(to - text);
  *to = 0;
  p->at = c + 1;
  return DC_OK;
}

static dc_status lex_number(dc_parser *p) {
  const char *c = p->at;
  while (isdigit((unsigned char)*c)) c++;
  bool real = (*c == '.' && isdigit((unsigned char)c[1])) || *c == 'e' || *c == 'E';
  char *end;
  errno = 0;
  if (real) {
    p->token.f = strtod(p->at, &end);
    p->token.kind = *end == 'f' ? TOK_FLOAT32 : TOK_FLOAT;
    p->at = end + (*end == 'f');
    return DC_OK;
  }
  p->token.kind = TOK_INT;
  p->token.i = (int64_t)strtoull(p->at, &end, 10); /* 2^63 reads as INT64_MIN, which a sign makes right */
  p->at = end;
  return errno == ERANGE ? dc_parser_fail(p, "an integer of 64 bits") : DC_OK;
}

dc_status dc_parser_next(dc_parser *p) {
  static const char *const pairs[] = {"//", "==", "!=", "<=", ">=", "&&", "||", "::"};
  while (isspace((unsigned char)*p->at)) p->at++;
  p->token = (dc_token){.kind = TOK_END, .at = p->at};
  unsigned char c = (unsigned char)*p->at;
  if (!c) return DC_OK;
  if (c == '"') return lex_string(p);
  if (isdigit(c)) return lex_number(p);
  size_t n = 1;
  if (isalpha(c) || c == '_') {
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_') n++;
    p->token.kind = TOK_NAME;
  } else {
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
      if (strncmp(p->at, pairs[k], 2) == 0) n = 2;
    p->token.kind = TOK_PUNCT;
  }
  p->token.text = copy_text(p, p->at, n);
  p->token.length = n;
  p->at += n;
  return DC_OK;
}

bool dc_parser_is(const dc_parser *p, const char *text) {
  return (p->token.kind == TOK_PUNCT || p->token.kind == TOK_NAME) && strcmp(p->token.text, text) == 0;
}

dc_status dc_parser_accept(dc_parser *p, const char *text, bool *took) {
  *took = dc_parser_is(p, text);
  return *took ? dc_parser_next(p) : DC_OK;
}

dc_status dc_parser_expect(dc_parser *p, const char *text) {
  bool took;
  DC_TRY(dc_parser_accept(p, text, &took));
  return took ? DC_OK : dc_parser_fail(p, text);
}

dc_status dc_parser_name(dc_parser *p, char **out) {
  if (p->token.kind != TOK_NAME && p->token.kind != TOK_STRING) return dc_parser_fail(p, "a name");
  *out = p->token.text;
  return dc_parser_next(p);
}

dc_status dc_parser_int(dc_parser *p, int64_t *out) {
  bool minus;
  DC_TRY(dc_parser_accept(p, "-", &minus));
  if (p->token.kind != TOK_INT) return dc_parser_fail(p, "an integer");
  *out = minus ? (int64_t)(0 - (uint64_t)p->token.i) : p->token.i;
  return dc_parser_next(p);
}

dc_status dc_parser_number(dc_parser *p, double *out) {
  bool minus, special;
  DC_TRY(dc_parser_accept(p, "-", &minus));
  special = dc_parser_is(p, "inf") || dc_parser_is(p, "nan");
  if (special) *out = dc_parser_is(p, "inf") ? INFINITY : NAN;
  else if (p->token.kind == TOK_INT) *out = (double)p->token.i;
  else if (p->token.kind == TOK_FLOAT || p->token.kind == TOK_FLOAT32) *out = p->token.f;
  else return dc_parser_fail(p, "a number");
  if (minus) *out = -*out;
  return dc_parser_next(p);
}
