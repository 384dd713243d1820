/* Recycled memory for results: what a caller drops is handed out again.
 *
 * The first touch of fresh memory costs a page fault for every 4 KiB; reuse costs nothing. */
#ifndef DCML_BACKENDS_BUFFER_POOL_H
#define DCML_BACKENDS_BUFFER_POOL_H

#include "backends/allocator.h"

typedef struct dc_buffer_pool dc_buffer_pool;
/* Of memory that the host can write: what a block is stands before it. */
dc_buffer_pool *dc_buffer_pool_create(const dc_allocator *memory, uint64_t idle_limit_bytes);
/* 64-byte aligned; NULL when memory cannot be had.  Size 0 gives a valid pointer.  Thread-safe. */
void *dc_buffer_take(dc_buffer_pool *pool, uint64_t bytes);
void dc_buffer_give(dc_buffer_pool *pool, void *buffer); /* NULL is allowed */

#endif
