/* A minimal test harness: CHECK counts, CHECK_TEXT shows both texts and the first difference. */
#ifndef DCML_TESTS_CHECK_H
#define DCML_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

static int check_passed, check_failed;

static inline void check_result(bool good, const char *file, int line, const char *what, const char *detail) {
  check_passed += good;
  check_failed += !good;
  if (!good) printf("FAILED %s:%d: %s\n%s%s%s", file, line, what, detail ? "  got: " : "", detail ? detail : "", detail ? "\n" : "");
}
#define CHECK(condition) check_result((condition), __FILE__, __LINE__, #condition, NULL)

static inline void check_ok(dc_status status, const char *file, int line, const char *what) {
  check_result(!status, file, line, what, status ? dc_status_text(status) : NULL);
  dc_status_free(status);
}
#define CHECK_OK(call) check_ok((call), __FILE__, __LINE__, #call)

/* Expects an error of a code whose text contains `part`. */
static inline void check_error(dc_status status, dc_code code, const char *part, const char *file, int line, const char *what) {
  bool good = status && dc_status_code(status) == code && strstr(dc_status_text(status), part);
  check_result(good, file, line, what, status ? dc_status_text(status) : "success");
  dc_status_free(status);
}
#define CHECK_ERROR(call, code, part) check_error((call), (code), (part), __FILE__, __LINE__, #call)

static inline void check_text(const char *file, int line, const char *got, const char *wanted) {
  size_t k = 0;
  while (got[k] && got[k] == wanted[k]) k++;
  check_passed += got[k] == wanted[k];
  if (got[k] == wanted[k]) return;
  check_failed++;
  printf("FAILED %s:%d: texts differ at byte %zu, '%.30s' instead of '%.30s'\n--- got\n%s\n--- wanted\n%s\n", file, line, k, got + k,
         wanted + k, got, wanted);
}
#define CHECK_TEXT(got, wanted) check_text(__FILE__, __LINE__, (got), (wanted))

/* The text of a file, up to a megabyte, for the caller to free; NULL if there is none. */
static inline char *check_read(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  char *text = calloc(1, 1 << 20);
  size_t n = fread(text, 1, (1 << 20) - 1, file);
  text[n] = 0;
  fclose(file);
  return text;
}

static inline int check_report(void) {
  printf("%d passed, %d failed\n", check_passed, check_failed);
  return check_failed != 0;
}

#endif
