/* Convolutions whose filters read one channel each, as plain numbers: what depthwise.c binds and the routines run. */
#ifndef DCML_BACKENDS_NATIVE_DEPTHWISE_H
#define DCML_BACKENDS_NATIVE_DEPTHWISE_H

#include "backends/backend.h"

enum {
  DEPTHWISE_LINE = 16,  /* numbers of a line of cache */
  DEPTHWISE_PHASES = 8, /* strides at most */
  DEPTHWISE_RUN = 7,    /* taps of a group */
  DEPTHWISE_COLUMNS = 3, /* groups that are summed up at a time */
  DEPTHWISE_ROWS = 4,   /* that are made at a time */
};

/* Along one dimension: place `phase + phases * j` of what is made sums what is read at `j * step + offset` for some taps.
 * A convolution has one phase and steps of its stride; the gradient of its images has a phase for each residue, and steps of 1. */
typedef struct {
  int64_t made, read, taps;
  int64_t phases, step, dilation, left;
  bool is_turned; /* the gradient of images */
  int64_t low, span; /* the least offset; from it to the greatest, in steps */
} depthwise_axis;

bool depthwise_offset(const depthwise_axis *a, int64_t phase, int64_t tap, int64_t *offset);
/* Those with places, and the places of one. */
static inline int64_t depthwise_phases(const depthwise_axis *a) { return a->made < a->phases ? a->made : a->phases; }
static inline int64_t depthwise_places(const depthwise_axis *a, int64_t phase) { return (a->made - phase + a->phases - 1) / a->phases; }

/* Taps that read rows one behind another: the first one at `at` in a plane that is spread. */
typedef struct {
  int64_t at;
  int n;
  int32_t weight[DEPTHWISE_RUN];
} depthwise_group;

/* Images whose rows lie one behind another, plane by plane.  A plane is spread out with zeros around it, the places that are a
 * step apart side by side: element (row, column) lies at residues' plane, row / step, column / step. */
typedef struct {
  depthwise_axis y, x;
  int64_t planes, channels;    /* that have a filter each: of what is made, or of what is given */
  int64_t each;                /* of them that read one plane */
  int64_t band, bands;         /* rows of a phase that are made at a time, and how often */
  int64_t pitch, plane_length; /* of a residue */
  int64_t shift;               /* of the first plane, so that what is read begins a line */
  const depthwise_group *groups;
  int64_t n_groups;
  const int64_t *first; /* group of each pair of phases, and one behind */
  const float *read, *weights, *bias, *given; /* given: gradient of y, where that of weights is made */
  float *made, *parts; /* parts: of the gradient of weights, for each plane and band */
} depthwise_planes;

typedef struct {
  int lanes;
  int64_t (*room)(const depthwise_planes *job); /* bytes of scratch of a thread, to begin with all zero */
  /* ahead: the plane that comes after the unit's, or the same after the last */
  /* is_open: the thread's unit before reads the same, which is spread in the room still */
  void (*make)(const depthwise_planes *job, int64_t unit, int64_t ahead, bool is_open, void *room);
  void (*sum)(const depthwise_planes *job, int64_t unit, int64_t ahead, bool is_open, void *room);
} depthwise_routines;

const depthwise_routines *depthwise_choose(uint32_t vector_bytes);

#endif
