/* Gradients of filters that read one channel each, where channels lie side by side, as plain numbers: what depthwise_last.c binds
 * and the routines run. */
#ifndef DCML_BACKENDS_NATIVE_DEPTHWISE_LAST_H
#define DCML_BACKENDS_NATIVE_DEPTHWISE_LAST_H

#include "backends/backend.h"

/* Along rows, or along columns. */
typedef struct {
  int64_t read, given, taps, step, dilation, before; /* before: places of padding */
} depthwise_last_axis;

/* sums[tap, channel] += given[.., channel] times what the tap reads of the channel, in bands of rows of each image. */
typedef struct {
  depthwise_last_axis y, x;
  int64_t images, channels;
  int64_t band, bands;  /* rows of what is given that are taken at a time, and how often in an image */
  int64_t rows, columns; /* of what a band reads, padding included */
  const float *read, *given;
} depthwise_last_job;

typedef struct {
  int lanes;
  int64_t (*room)(const depthwise_last_job *job); /* numbers of scratch of a thread */
  /* Of one vector of channels, for one band of all images' bands; sums: a vector for each tap. */
  void (*add)(const depthwise_last_job *job, int64_t band, int64_t vector, float *sums, float *room);
} depthwise_last_routines;

/* NULL: vectors are too short for it to pay. */
const depthwise_last_routines *depthwise_last_choose(uint32_t vector_bytes);

#endif
