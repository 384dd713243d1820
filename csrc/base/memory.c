/* Linux commits more memory than there is and later kills whoever touches it, so an allocation
 * that succeeds proves nothing: what is available is asked for beforehand. */
#include "base/memory.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The number that the format finds on some line of a file; UINT64_MAX if there is none. */
static uint64_t number_in(const char *path, const char *format) {
  FILE *file = fopen(path, "re");
  char line[256];
  unsigned long long found = 0;
  int n = 0;
  while (file && n != 1 && fgets(line, sizeof line, file)) n = sscanf(line, format, &found);
  if (file) fclose(file);
  return n == 1 ? found : UINT64_MAX;
}

uint64_t dc_memory_available_bytes(void) {
  uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t kilobytes = number_in("/proc/meminfo", "MemAvailable: %llu");
  if (kilobytes < UINT64_MAX / 1024) most = smaller(most, kilobytes * 1024);
  most = smaller(most, number_in("/sys/fs/cgroup/memory.max", "%llu"));
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) most = smaller(most, limit.rlim_cur);
  return most;
}
