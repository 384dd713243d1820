/* Raw construction, shared by the files of this folder: no folding, only hash-consing. */
#ifndef DCML_EXPR_POOL_H
#define DCML_EXPR_POOL_H

#include "expr/expr.h"

/* node.op, .dtype, .nargs, .ref and the constant must be set; args may point into the pool. */
dc_ex dc_pool_cons(dc_pool *pool, dc_exnode node, const dc_ex *args);
dc_ex dc_pool_op(dc_pool *pool, dc_op op, dc_dtype type, uint32_t nargs, const dc_ex *args);

#endif
