/* Convolutions by windows of one pixel as plain numbers: what pointwise.c binds and the routines run. */
#ifndef DCML_BACKENDS_NATIVE_POINTWISE_H
#define DCML_BACKENDS_NATIVE_POINTWISE_H

#include "backends/backend.h"

enum {
  POINTWISE_LINE = 16,   /* numbers of a line of cache */
  POINTWISE_SUMMED = 32, /* channels whose sums are taken together */
};

/* Images whose pixels lie one behind another, channel by channel, in blocks of pixels.
 *
 * made[image] (rows x pixels) = panels (rows x depth) read[image] (depth x pixels), or, of a gradient of filters,
 * sums (rows x depth) = all images' given (rows x pixels) times read, turned.  The longer side of a filter is that of rows. */
typedef struct {
  int64_t images, pixels, rows, depth;
  int64_t wide, blocks; /* pixels of a block; blocks of an image */
  int64_t group;        /* images of a unit of a gradient of filters, where a block is all of an image */
  bool is_turned;       /* the gradient of filters is that of the sums, turned */
  const float *read, *given;
  float *made;
  const float *panels; /* of filters */
} pointwise_job;

/* Some of the panels of the rows. */
typedef struct {
  int64_t first, end;
} pointwise_panels;

typedef struct {
  int lanes;
  int64_t (*panels)(const pointwise_job *job); /* numbers of packed filters, whose number of (row, k) lies at row * a + k * b */
  void (*pack)(const pointwise_job *job, const float *filters, int64_t a, int64_t b, const float *bias, int64_t panel, float *to);
  int64_t (*count)(const pointwise_job *job); /* panels */
  int64_t (*room)(const pointwise_job *job);  /* numbers of scratch of a thread */
  void (*make)(const pointwise_job *job, int64_t unit, int64_t following, float *room); /* following: the thread's next unit */
  int64_t (*sums)(const pointwise_job *job); /* numbers of the sums of a part, to begin with all zero */
  int64_t (*turned)(const pointwise_job *job); /* numbers of scratch beside the sums */
  void (*add)(const pointwise_job *job, int64_t unit, int64_t following, pointwise_panels panels, float *sums, float *turned);
  /* The sums of parts, added one after the other; each part's lie `step` numbers behind those of the part before. */
  void (*collect)(const pointwise_job *job, const float *sums, int64_t parts, int64_t step, pointwise_panels panels, float *to);
} pointwise_routines;

/* NULL: vectors are too short for it to pay. */
const pointwise_routines *pointwise_choose(uint32_t vector_bytes);

#endif
