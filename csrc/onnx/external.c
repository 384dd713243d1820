/* External tensor data: only regular files inside the model's folder, without links out of it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/wire.h"

static dc_status refuse(const char *location, const char *why) {
  return dc_error(DC_ERR_MODEL, "external data '%.200s': %s", location, why);
}

/* Opens a path component by component; none may be "..", absolute or a symbolic link. */
static dc_status open_inside(const char *base_dir, const char *location, int *out) {
  char part[256];
  if (!base_dir) return refuse(location, "a model given as bytes has no folder; give a path");
  if (*location == '/' || !*location) return refuse(location, "expected a path relative to the model's folder");
  int folder = open(base_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return refuse(location, "the model's folder cannot be opened");
  for (const char *at = location; *at;) {
    size_t n = strcspn(at, "/");
    bool last = at[n] == 0;
    if (n >= sizeof part) break;
    memcpy(part, at, n);
    part[n] = 0;
    at += n + !last;
    if (n == 0 || strcmp(part, ".") == 0) continue;
    if (strcmp(part, "..") == 0) break;
    int next = openat(folder, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (last ? 0 : O_DIRECTORY));
    close(folder);
    if (next < 0) return refuse(location, errno == ELOOP ? "it is a symbolic link" : "it cannot be opened");
    folder = next;
    struct stat info;
    if (!last) continue;
    if (fstat(folder, &info) || !S_ISREG(info.st_mode)) {
      close(folder);
      return refuse(location, "it is not a regular file");
    }
    return *out = folder, DC_OK;
  }
  close(folder);
  return refuse(location, "expected a path inside the model's folder");
}

dc_status dc_onnx_external_size(const char *base_dir, const char *location, uint64_t *out) {
  int file;
  struct stat info;
  DC_TRY(open_inside(base_dir, location, &file));
  int failed = fstat(file, &info);
  close(file);
  *out = failed ? 0 : (uint64_t)info.st_size;
  return failed ? refuse(location, "it cannot be read") : DC_OK;
}

dc_status dc_onnx_external(const char *base_dir, const char *location, uint64_t offset, uint64_t n_bytes, void *to) {
  int file;
  DC_TRY(open_inside(base_dir, location, &file));
  uint64_t done = 0;
  while (done < n_bytes) {
    ssize_t n = pread(file, (char *)to + done, n_bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (uint64_t)n;
  }
  close(file);
  return done == n_bytes ? DC_OK : refuse(location, "it is shorter than the model says");
}
