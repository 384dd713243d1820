/* Status objects: a code, a message, and a path of where that grows at the front. */
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dc_error_s {
  dc_code code;
  size_t path_length; /* bytes of `text` that are path; the rest is the message */
  char *text;
  char *about; /* NULL if it is about no single value */
};

/* Reporting must not fail: without memory for a text every error becomes this one. */
static const dc_error_t out_of_memory = {DC_ERR_MEMORY, 0, (char *)"out of memory", NULL};
#define OUT_OF_MEMORY ((dc_status) & out_of_memory)

static char *format_text(const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  char *text = n < 0 ? NULL : malloc((size_t)n + 1);
  if (text) vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  return text;
}

dc_status dc_error(dc_code code, const char *format, ...) {
  dc_error_t *error = calloc(1, sizeof *error);
  if (!error) return OUT_OF_MEMORY;
  va_list args;
  va_start(args, format);
  error->text = format_text(format, args);
  va_end(args);
  error->code = code;
  if (error->text) return error;
  free(error);
  return OUT_OF_MEMORY;
}

dc_status dc_error_at(dc_status status, const char *format, ...) {
  if (!status || status == OUT_OF_MEMORY) return status;
  va_list args;
  va_start(args, format);
  char *where = format_text(format, args);
  va_end(args);
  size_t room = where ? strlen(where) + strlen(status->text) + 4 : 0;
  char *joined = room ? malloc(room) : NULL;
  if (joined) {
    const char *separator = status->path_length ? " > " : ": ";
    snprintf(joined, room, "%s%s%s", where, separator, status->text);
    status->path_length += strlen(where) + strlen(separator);
    free(status->text);
    status->text = joined;
  }
  free(where);
  return status;
}

dc_status dc_error_about(dc_status status, const char *value) {
  if (!status || status == OUT_OF_MEMORY) return status;
  free(status->about);
  status->about = strdup(value);
  return status;
}

const char *dc_status_about(dc_status status) { return status->about; }

dc_code dc_status_code(dc_status status) { return status->code; }

const char *dc_status_text(dc_status status) { return status->text; }

void dc_status_free(dc_status status) {
  if (!status || status == OUT_OF_MEMORY) return;
  free(status->about);
  free(status->text);
  free(status);
}
