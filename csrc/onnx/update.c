/* The same file with other weights: everything that import does not keep (subgraphs' names, functions,
 * documentation) stays as it was. */
#include <stdlib.h>
#include <string.h>

#include "onnx/wire.h"

static bool is_external(const Onnx__TensorProto *t) {
  return t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* The container that holds a weight's new contents, 0 if the file's own stay. */
static dc_cid replacement(const dc_graph *graph, const char *name, bool external) {
  dc_cid c = name ? dc_container_find(graph, name) : 0;
  if (!c || !dc_cont(graph, c)->data || dc_cont(graph, c)->dtype == DC_STRING) return 0;
  return external || dc_cont(graph, c)->role == DC_ROLE_PARAM ? c : 0;
}

/* Trained sparse weights become dense; data in other files comes along. */
static void replace_weights(dc_arena *arena, const dc_graph *graph, Onnx__GraphProto *g) {
  Onnx__TensorProto **tensors = DC_NEW_ARRAY(arena, Onnx__TensorProto *, g->n_initializer + g->n_sparse_initializer);
  Onnx__SparseTensorProto **sparse = DC_NEW_ARRAY(arena, Onnx__SparseTensorProto *, g->n_sparse_initializer);
  size_t n_tensors = 0, n_sparse = 0;
  for (size_t k = 0; k < g->n_initializer; k++) {
    Onnx__TensorProto *t = g->initializer[k];
    dc_cid c = replacement(graph, t->name, is_external(t));
    tensors[n_tensors++] = c ? dc_onnx_tensor_message(arena, graph, c, t->name) : t;
  }
  for (size_t k = 0; k < g->n_sparse_initializer; k++) {
    Onnx__SparseTensorProto *t = g->sparse_initializer[k];
    dc_cid c = t->values ? replacement(graph, t->values->name, is_external(t->values)) : 0;
    if (c) tensors[n_tensors++] = dc_onnx_tensor_message(arena, graph, c, t->values->name);
    else sparse[n_sparse++] = t;
  }
  g->initializer = tensors, g->n_initializer = n_tensors;
  g->sparse_initializer = sparse, g->n_sparse_initializer = n_sparse;
}

/* A Constant with other contents; the node itself where they stay. */
static Onnx__NodeProto *with_contents(dc_arena *arena, const dc_graph *graph, Onnx__NodeProto *node) {
  if (!node->op_type || strcmp(node->op_type, "Constant") != 0 || node->n_attribute != 1 || node->n_output != 1) return node;
  const Onnx__TensorProto *t = node->attribute[0]->t;
  const dc_cid c = t ? replacement(graph, node->output[0], is_external(t)) : 0;
  if (!c) return node;
  Onnx__NodeProto *copy = dc_arena_copy(arena, node, sizeof *node);
  Onnx__AttributeProto *value = dc_arena_copy(arena, node->attribute[0], sizeof *value);
  value->t = dc_onnx_tensor_message(arena, graph, c, "");
  copy->attribute = dc_arena_copy(arena, &value, sizeof value);
  return copy;
}

static void replace_constants(dc_arena *arena, const dc_graph *graph, Onnx__GraphProto *g) {
  Onnx__NodeProto **nodes = DC_NEW_ARRAY(arena, Onnx__NodeProto *, g->n_node);
  for (size_t k = 0; k < g->n_node; k++) nodes[k] = with_contents(arena, graph, g->node[k]);
  g->node = nodes;
}

dc_status dc_onnx_update(const void *file, uint64_t n_file, const dc_graph *graph, uint8_t **bytes, uint64_t *n_bytes) {
  Onnx__ModelProto *model;
  DC_TRY(dc_onnx_read(file, n_file, false, &model));
  if (!model->graph) {
    onnx__model_proto__free_unpacked(model, NULL);
    return dc_error(DC_ERR_MODEL, "not a valid ONNX file");
  }
  dc_arena arena = {0};
  Onnx__GraphProto as_read = *model->graph;
  replace_weights(&arena, graph, model->graph);
  replace_constants(&arena, graph, model->graph);
  *n_bytes = onnx__model_proto__get_packed_size(model);
  dc_status status = *n_bytes > INT32_MAX ? dc_error(DC_ERR_UNSUPPORTED, "the model has %llu bytes, but a file holds at most 2 GiB",
                                                     (unsigned long long)*n_bytes)
                                          : DC_OK;
  *bytes = status ? NULL : malloc(*n_bytes + 1);
  if (*bytes) onnx__model_proto__pack(model, *bytes);
  else if (!status) status = dc_error(DC_ERR_MEMORY, "out of memory");
  *model->graph = as_read; /* what was unpacked is freed as it was allocated */
  onnx__model_proto__free_unpacked(model, NULL);
  dc_arena_free(&arena);
  return status;
}
