/* Stages of compilation as text files, for people: DCML_DUMP names the folder.
 *
 * A file is MODEL.DIRECTION.NN-STAGE.SUFFIX, as in model.forward.03-expand.sdfg, so that a listing by name is in order.
 * A later compilation of a model of the same name replaces the files. */
#ifndef DCML_BASE_DUMP_H
#define DCML_BASE_DUMP_H

#include <stdbool.h>

#include "base/status.h"

bool dc_dump_wanted(void);
bool dc_verify_wanted(void); /* DCML_VERIFY: what each pass leaves is verified */
/* Writes one stage, if a dump is wanted; the folder is made.  The names need not be safe: what is neither a letter, a
 * digit nor '-' becomes '_'.  Safe to call from several threads for different stages. */
DC_MUST_USE dc_status dc_dump_text(const char *model, const char *direction, unsigned number, const char *stage, const char *suffix, const char *text);

#endif
