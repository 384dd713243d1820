/* Status: how every fallible function of the core reports.
 *
 * A dc_status is NULL on success and an owned error otherwise.  An error has a
 * code (it picks the Python exception class), a message, and a path of where it
 * happened, outermost first: "graph 'net' > node 'conv1' (Conv) > input 'W'".
 * This layer knows nothing about graphs; callers add path segments on the way up. */
#ifndef DCML_BASE_STATUS_H
#define DCML_BASE_STATUS_H

#include <stdarg.h>

typedef enum {
  DC_ERR_MODEL = 1,   /* malformed or contradictory model or graph */
  DC_ERR_UNSUPPORTED, /* an operator, type or feature that dcml lacks */
  DC_ERR_SHAPE,
  DC_ERR_DTYPE,
  DC_ERR_COMPILE, /* the system compiler or a generated kernel failed */
  DC_ERR_DEVICE,
  DC_ERR_VALUE,  /* a caller's argument is out of its domain */
  DC_ERR_MEMORY, /* a size overflows or memory cannot be had */
} dc_code;

typedef struct dc_error_s dc_error_t;
typedef dc_error_t *dc_status;

#define DC_OK ((dc_status)0)
#define DC_MUST_USE __attribute__((warn_unused_result))
#define DC_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* Returns a new error; never NULL, so `return dc_error(...)` always reports. */
DC_MUST_USE dc_status dc_error(dc_code code, const char *format, ...) DC_PRINTF(2, 3) __attribute__((returns_nonnull));

/* Prepends a path segment; passes NULL through, so it can wrap any call. */
DC_MUST_USE dc_status dc_error_at(dc_status status, const char *format, ...) DC_PRINTF(2, 3);

/* Names the value that the error is about, for callers that may supply it and try again. */
DC_MUST_USE dc_status dc_error_about(dc_status status, const char *value);
/* That name; NULL if there is none. */
const char *dc_status_about(dc_status status);

dc_code dc_status_code(dc_status status);
/* "path > path: message"; valid until the status is freed. */
const char *dc_status_text(dc_status status);
void dc_status_free(dc_status status);

#define DC_TRY(call)                         \
  do {                                       \
    dc_status dc_try_status = (call);        \
    if (dc_try_status) return dc_try_status; \
  } while (0)

#endif
