/* Stages of compilation as text files, for people: DCML_DUMP names the folder.
 *
 * A file is MODEL.DIRECTION.NN-STAGE.SUFFIX, as in model.forward.03-expand.sdfg, so that a listing by name is in order.
 * A later compilation of a model of the same name replaces the files. */
#ifndef DCML_BASE_DUMP_H
#define DCML_BASE_DUMP_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"

typedef struct {
  const char *model, *direction; /* need not be safe: what is neither a letter, a digit nor '-' becomes '_' */
} dc_dump_name;

bool dc_dump_wanted(void);
bool dc_verify_wanted(void); /* DCML_VERIFY: what each pass leaves is verified */
/* Writes one stage, if a dump is wanted; the folder is made.  Safe to call from several threads for different stages. */
DC_MUST_USE dc_status dc_dump_text(dc_dump_name name, unsigned number, const char *stage, const char *suffix, const char *text);
/* The same of what a function prints, which is called only then. */
DC_MUST_USE dc_status dc_dump_printed(dc_dump_name name, unsigned number, const char *stage, const char *suffix,
                                      void (*print)(const void *what, dc_text *out), const void *what);

#endif
