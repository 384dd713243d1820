/* Steps that launch the functions of a kernel. */
#ifndef DCML_BACKENDS_CUDA_LAUNCH_H
#define DCML_BACKENDS_CUDA_LAUNCH_H

#include "backends/target.h"

/* Makes nodes callable: all of them, or DC_ERR_UNSUPPORTED names the first that the language lacks a type of.  *state: of
 * the program, given back by dc_launch_forget. */
DC_MUST_USE dc_status dc_launch_prepare(const dc_target *target, const dc_graph *graph, const dc_nid *nodes, uint32_t n, dc_arena *arena,
                                        dc_step_call *calls, void **state);
/* A prepared step under the values of symbols: the sizes of its grids are known. */
DC_MUST_USE dc_status dc_launch_bind(const dc_step_call *prepared, const int64_t *symbols, uint32_t n_buffers, dc_arena *arena,
                                     dc_step_call *out);
/* What kernels of earlier runs have complained of. */
DC_MUST_USE dc_status dc_launch_complaint(void *state);
void dc_launch_forget(const dc_target *target, void *state);

#endif
