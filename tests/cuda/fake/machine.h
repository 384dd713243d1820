/* Runs a grid of threads on the host, as fibers in an order drawn from a seed. */
#ifndef FAKE_MACHINE_H
#define FAKE_MACHINE_H

#include <cstdint>
#include <string>

/* What kernels see of it: as in cuda_on_host.h. */
struct fake_machine {
  unsigned thread[4], block[4], block_dim[4], grid_dim[4];
  void (*barrier)(int line);
  int (*count)(int line, int predicate);
  unsigned long long (*warp)(int kind, unsigned mask, unsigned long long value, int from);
  void (*fault)(const char *why);
};

extern fake_machine machine; /* one grid runs at a time */

struct Grid {
  void (*run)(void **parameters); /* one thread */
  void **parameters;
  unsigned grid[3], block[3];
  char *shared_begin, *shared_end;     /* of `__shared__` variables */
  unsigned char *dynamic;              /* shared memory whose size the launch says */
  unsigned dynamic_bytes;
};

/* Empty, or why the grid has failed. */
std::string machine_run(const Grid &grid, uint64_t seed, std::string (*where)(const void *address));

#endif
