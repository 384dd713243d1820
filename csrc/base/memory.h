/* How much memory a graph may ask for: what the machine, the container and the process still allow. */
#ifndef DCML_BASE_MEMORY_H
#define DCML_BASE_MEMORY_H

#include <stdint.h>

/* Bytes that can be had now without swapping; reads a few files of the system, so not for hot paths. */
uint64_t dc_memory_available_bytes(void);

#endif
