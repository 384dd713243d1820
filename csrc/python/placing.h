/* Where a call runs: on the host, or on the GPU that holds its arguments. */
#ifndef DCML_PYTHON_PLACING_H
#define DCML_PYTHON_PLACING_H

#include "python/function.h"

/* torch's caching allocator for the GPU whose own allocator is given; NULL without memory.  For use_torch. */
const dc_allocator *torch_memory_of(module_state *state, const dc_allocator *device);

/* NULL with an exception: there is none. */
dc_gpu *gpu_of(module_state *state, int32_t ordinal);
const dc_allocator *gpu_memory(dc_gpu *gpu);

/* Once views are there, for a function that may run on a GPU: finds the GPU and its stream, and copies there what the caller has on
 * the host; the views then show the copies.  Otherwise nothing.  0, or -1 with an exception. */
int place_call(FunctionObject *function, tensor_view *views, uint32_t n, call_place *out);
/* After the run: what the graph wrote in place goes back to arrays of the host. */
DC_MUST_USE dc_status return_written(const call_place *place, const FunctionObject *function, const tensor_view *views, uint32_t n);
void end_place(call_place *place); /* gives back the copies */
/* The stream on which this thread works now. */
int find_stream(module_state *state, call_place *place);

bool is_there(const call_place *place, const dc_array *array); /* where programs read it as it stands */
/* A new array for a result.  data: where a program writes it, host: where it goes from there, or NULL. */
PyObject *new_result(module_state *state, const call_place *place, dc_array *shape, bool torch, void **data, void **host);
/* Brings a result to the host, where that is its place, and gives back what it was computed in. */
DC_MUST_USE dc_status finish_result(const call_place *place, const dc_array *shape, void *data, void *host);
/* Of a result that is handed out: nothing but zeros. */
DC_MUST_USE dc_status clear(const call_place *place, void *data, uint64_t bytes);

/* From the host; its memory is free after it. */
DC_MUST_USE dc_status copy_to(const call_place *place, void *to, const void *from, uint64_t bytes);

/* Memory of the place, for what a call keeps besides results; what: it is, for the error. */
DC_MUST_USE dc_status take_block(module_state *state, const call_place *place, uint64_t bytes, const char *what, void **block);
void give_block(module_state *state, const call_place *place, void *block, uint64_t bytes);

#endif
