/* One text file a stage. */
#include "base/dump.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_PART = 80 }; /* of a name in a file's name, whose length systems limit */

static const char *wanted_folder(void) {
  const char *folder = getenv("DCML_DUMP");
  return folder && *folder ? folder : NULL;
}

bool dc_dump_wanted(void) { return wanted_folder() != NULL; }

bool dc_verify_wanted(void) {
  const char *verify = getenv("DCML_VERIFY");
  return verify && *verify && strcmp(verify, "0") != 0;
}

/* Without slashes and dots no name leaves the folder. */
static void put_safe(dc_text *out, const char *name) {
  for (size_t k = 0; name[k] && k < MAX_PART; k++)
    dc_text_printf(out, "%c", isalnum((unsigned char)name[k]) || name[k] == '-' ? name[k] : '_');
  if (!*name) dc_text_puts(out, "_");
}

static dc_status write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  bool written = file && fputs(text, file) >= 0;
  if (file && fclose(file)) written = false;
  return written ? DC_OK : dc_error(DC_ERR_VALUE, "DCML_DUMP: cannot write '%s': %s", path, strerror(errno));
}

dc_status dc_dump_text(dc_dump_name name, unsigned number, const char *stage, const char *suffix, const char *text) {
  const char *folder = wanted_folder();
  if (!folder) return DC_OK;
  if (mkdir(folder, 0777) && errno != EEXIST)
    return dc_error(DC_ERR_VALUE, "DCML_DUMP: cannot make the folder '%s': %s", folder, strerror(errno));
  dc_text path = {0};
  dc_text_printf(&path, "%s/", folder);
  put_safe(&path, name.model);
  dc_text_puts(&path, ".");
  put_safe(&path, name.direction);
  dc_text_printf(&path, ".%02u-", number);
  put_safe(&path, stage);
  dc_text_puts(&path, ".");
  put_safe(&path, suffix);
  dc_status status = write_text(path.s, text);
  dc_text_free(&path);
  return status;
}

dc_status dc_dump_printed(dc_dump_name name, unsigned number, const char *stage, const char *suffix,
                          void (*print)(const void *what, dc_text *out), const void *what) {
  if (!dc_dump_wanted()) return DC_OK;
  dc_text text = {0};
  print(what, &text);
  dc_status status = dc_dump_text(name, number, stage, suffix, text.s);
  dc_text_free(&text);
  return status;
}
