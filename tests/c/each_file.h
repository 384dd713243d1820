/* The texts that a test is made of: every .txt below a folder. */
#ifndef DCML_TESTS_EACH_FILE_H
#define DCML_TESTS_EACH_FILE_H

#include <dirent.h>

#include "check.h"

static void each_file(const char *folder, void (*visit)(const char *path)) {
  DIR *dir = opendir(folder);
  CHECK(dir != NULL);
  for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
    char path[4096];
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (strstr(entry->d_name, ".txt")) visit(path);
    else each_file(path, visit);
  }
  if (dir) closedir(dir);
}

#endif
