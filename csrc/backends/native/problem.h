/* What a library node asks of a library, as plain numbers: one matrix product or one convolution, whether the
 * node is the operator itself or one of its gradients.  No library is known here. */
#ifndef DCML_BACKENDS_NATIVE_PROBLEM_H
#define DCML_BACKENDS_NATIVE_PROBLEM_H

#include "backends/backend.h"

enum { DC_PROBLEM_DIMS = 12 };
typedef int64_t dc_problem_dims[DC_PROBLEM_DIMS];

/* How many parts of b make a: the last one may be smaller. */
static inline int64_t dc_quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

typedef struct {
  int rank;
  dc_problem_dims dims;
  dc_problem_dims strides; /* in elements; of what stands in memory */
} dc_problem_shape;

/* A matrix, or a batch of them in the leading dimensions: which of the call's buffers, and is it read transposed? */
typedef struct {
  int buffer;
  dc_problem_shape stored;
  bool transposed;
} dc_problem_matrix;

/* result = a b (+ bias by column); bias -1: none. */
typedef struct {
  dc_problem_matrix a, b;
  int bias, result;
} dc_problem_product;

/* y = x convolved with w, solved for one of the three: a gradient of a convolution is that of another of them, and
 * a transposed convolution is the gradient of x. */
typedef enum { DC_CONV_Y, DC_CONV_X, DC_CONV_W } dc_problem_unknown;
typedef struct {
  int n; /* spatial dimensions */
  int64_t groups;
  dc_problem_dims strides, dilations, left, right;
  dc_problem_unknown wanted;
  dc_problem_shape x, w, y;
  int at_x, at_w, at_y, bias; /* buffers; bias -1: none, else one number for each channel of the result */
} dc_problem_conv;

bool dc_problem_op_is(const dc_graph *graph, dc_nid node, const char *op);
bool dc_problem_is_conv(const dc_graph *graph, dc_nid node);
bool dc_problem_is_attention(const dc_graph *graph, dc_nid node); /* of the domain dcml, or the gradient that stands for itself */
/* The element type that all operands share, 0 if they differ. */
dc_dtype dc_problem_type(const dc_graph *graph, dc_nid node);
/* NULL if the node is a Conv, ConvTranspose, MatMul or Gemm that the functions below describe, else the reason. */
const char *dc_problem_refuses(const dc_graph *graph, dc_nid node);
/* Of a MatMul or Gemm: Y = op(A) op(B), and each gradient is again a product of two of dY, A and B. */
dc_problem_product dc_problem_read_product(const dc_graph *graph, dc_nid node, const int64_t *symbols);
dc_problem_conv dc_problem_read_conv(const dc_graph *graph, dc_nid node, const int64_t *symbols);

/* An image, dense, whose channels lie next to one another: the strides of such, and is it one? */
void dc_problem_last(const dc_problem_shape *shape, int64_t *strides);
bool dc_problem_is_last(const dc_problem_shape *shape);
bool dc_problem_is_row_major(const dc_problem_shape *shape);
int64_t dc_problem_elements(const dc_problem_shape *shape);
/* Has one of the three no element? */
bool dc_problem_conv_is_empty(const dc_problem_conv *conv);
/* Has it one group, and as many images, channels and filters in each of the three?  Libraries say what is wrong if not. */
bool dc_problem_conv_agrees(const dc_problem_conv *conv);
/* Where a convolution's result goes, and its extents. */
int dc_problem_conv_result(const dc_problem_conv *conv, dc_problem_shape *shape);
/* result[outer, channels, inner] = bias[channels], or 0 without one: what a sum of nothing leaves.  bytes: of an element. */
void dc_problem_fill(void *result, const void *bias, size_t bytes, int64_t outer, int64_t channels, int64_t inner);
void dc_problem_add(float *result, const float *bias, int64_t outer, int64_t channels, int64_t inner);

/* The product of a container's first n extents; 0 where it has no element, since its other extents may then be beyond all bounds. */
int64_t dc_problem_lines(const dc_graph *graph, dc_cid c, uint32_t n, const int64_t *symbols);

#endif
