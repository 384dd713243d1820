/* Memory of the host for what programs compute on the way.  A run takes a block and gives it back, so that runs that follow each
 * other, a forward and its backward pass or those of different programs, work in the same memory. */
#ifndef DCML_BACKENDS_WORKSPACE_H
#define DCML_BACKENDS_WORKSPACE_H

#include "backends/allocator.h"

typedef struct {
  char *data;
  uint64_t bytes;
} dc_work_block;

typedef struct dc_workspace dc_workspace;
dc_workspace *dc_workspace_create(const dc_allocator *memory); /* NULL when memory cannot be had */
void dc_workspace_destroy(dc_workspace *workspace);            /* nothing is taken; NULL is allowed */
/* A block of at least so many bytes; data is NULL when memory cannot be had.  Thread-safe, as what follows. */
dc_work_block dc_workspace_take(dc_workspace *workspace, uint64_t bytes);
void dc_workspace_give(dc_workspace *workspace, dc_work_block block);
/* Gives back to the system what is idle and of so many bytes or more: whoever wanted that much is gone. */
void dc_workspace_trim(dc_workspace *workspace, uint64_t bytes);

#endif
