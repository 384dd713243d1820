/* Runs as CUDA graphs, and times of steps by events. */
#ifndef DCML_BACKENDS_CUDA_RECORD_H
#define DCML_BACKENDS_CUDA_RECORD_H

#include "backends/target.h"

/* What is put on *stream from now on by this thread is recorded.  Nobody else records on the GPU meanwhile. */
DC_MUST_USE dc_status dc_record_begin(const dc_target *target, void **stream);
/* After each begin; failed: a step has, and what was recorded is dropped. */
DC_MUST_USE dc_status dc_record_end(const dc_target *target, void *stream, bool failed, void **recording);
DC_MUST_USE dc_status dc_record_start(const dc_target *target, void *recording, void *stream);
void dc_record_drop(const dc_target *target, void *recording);
/* Not where the caller records what is put on the stream, or DCML_CUDA_GRAPHS=0 forbids it. */
bool dc_record_allowed(const dc_target *target, void *stream);

/* A point of the stream; NULL where the driver has none. */
void *dc_record_mark(const dc_target *target, void *stream);
/* Nanoseconds between two, which are given up; waits until the later one is reached. */
double dc_record_between(const dc_target *target, void *from, void *to);

#endif
