/* oneDNN: opening the library, and running a bound primitive with its reorders. */
#include "backends/native/onednn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_ALIGN = 64 };

dc_status dc_onednn_failed(int code, const char *what) { return dc_error(DC_ERR_DEVICE, "oneDNN: %s failed with code %d", what, code); }

/* ---- opening ---- */

static bool load_symbols(dnn_library *lib) {
  const struct {
    const char *name;
    void **to;
  } symbols[] = {
      {"dnnl_version", (void **)&lib->version},
      {"dnnl_engine_create", (void **)&lib->engine_create},
      {"dnnl_engine_destroy", (void **)&lib->engine_destroy},
      {"dnnl_stream_create", (void **)&lib->stream_create},
      {"dnnl_stream_destroy", (void **)&lib->stream_destroy},
      {"dnnl_memory_desc_create_with_strides", (void **)&lib->desc_strided},
      {"dnnl_memory_desc_create_with_tag", (void **)&lib->desc_tagged},
      {"dnnl_memory_desc_destroy", (void **)&lib->desc_destroy},
      {"dnnl_memory_desc_equal", (void **)&lib->desc_equal},
      {"dnnl_memory_desc_get_size", (void **)&lib->desc_size},
      {"dnnl_memory_create", (void **)&lib->memory_create},
      {"dnnl_memory_destroy", (void **)&lib->memory_destroy},
      {"dnnl_convolution_forward_primitive_desc_create", (void **)&lib->conv_forward},
      {"dnnl_convolution_backward_data_primitive_desc_create", (void **)&lib->conv_data},
      {"dnnl_convolution_backward_weights_primitive_desc_create", (void **)&lib->conv_weights},
      {"dnnl_matmul_primitive_desc_create", (void **)&lib->matmul},
      {"dnnl_reorder_primitive_desc_create", (void **)&lib->reorder},
      {"dnnl_primitive_create", (void **)&lib->primitive_create},
      {"dnnl_primitive_destroy", (void **)&lib->primitive_destroy},
      {"dnnl_primitive_desc_destroy", (void **)&lib->primitive_desc_destroy},
      {"dnnl_primitive_desc_query_md", (void **)&lib->query},
      {"dnnl_primitive_execute", (void **)&lib->execute},
  };
  for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++)
    if (!(*symbols[k].to = dlsym(lib->handle, symbols[k].name))) return false;
  return true;
}

static void *open_library(const char *folder) {
  const char *given = getenv("DCML_ONEDNN");
  char path[4096];
  if (given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  void *handle = NULL;
  if (folder && snprintf(path, sizeof path, "%s/libdnnl.so.3", folder) < (int)sizeof path) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return handle ? handle : dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
}

static void close_onednn(void *opaque) {
  dnn_library *lib = opaque;
  if (lib->stream) lib->stream_destroy(lib->stream);
  if (lib->engine) lib->engine_destroy(lib->engine);
  if (lib->handle) dlclose(lib->handle);
  free(lib);
}

static const char *open_onednn(const char *folder, void **out) {
  dnn_library *lib = calloc(1, sizeof *lib);
  if (!lib) return "out of memory";
  lib->handle = open_library(folder);
  const char *why = !lib->handle ? "libdnnl.so.3 is not found" : !load_symbols(lib) ? "it lacks functions of version 3" : NULL;
  if (!why && lib->version()->major != 3) why = "expected version 3";
  if (!why && (lib->engine_create(&lib->engine, DNN_CPU, 0) || lib->stream_create(&lib->stream, lib->engine, DNN_STREAM_DEFAULT))) why = "it has no CPU engine";
  if (why) {
    if (lib->handle) dlclose(lib->handle);
    free(lib);
    return why;
  }
  *out = lib;
  return NULL;
}

/* ---- binding ---- */

void *dc_onednn_desc(dnn_call *call, int n, const int64_t *dims, const int64_t *strides) {
  void *desc = NULL;
  int code = strides ? call->lib->desc_strided(&desc, n, dims, DNN_F32, strides) : call->lib->desc_tagged(&desc, n, dims, DNN_F32, DNN_TAG_ANY);
  if (!code) call->temp_descs[call->n_temp_descs++] = desc;
  return code ? NULL : desc;
}

void dc_onednn_operand(dnn_call *call, int arg, int buffer, bool output, void *plain, int query) {
  const void *wanted = query ? call->lib->query(call->desc, query, 0) : plain;
  call->operands[call->n_operands++] = (dnn_operand){.arg = arg, .buffer = buffer, .output = output, .plain = plain, .wanted = wanted};
}

static dc_status make_reorder(dnn_call *call, dnn_operand *o) {
  const dnn_library *lib = call->lib;
  if (lib->desc_equal(o->plain, o->wanted)) return DC_OK;
  void *desc;
  const void *from = o->output ? o->wanted : o->plain, *to = o->output ? o->plain : o->wanted;
  DNN_TRY(lib->reorder(&desc, from, lib->engine, to, lib->engine, NULL), "a reorder");
  int code = lib->primitive_create(&o->reorder, desc);
  lib->primitive_desc_destroy(desc);
  DNN_TRY(code, "a reorder");
  o->offset = call->scratch_bytes;
  call->scratch_bytes += (lib->desc_size(o->wanted) + SCRATCH_ALIGN - 1) & ~(size_t)(SCRATCH_ALIGN - 1);
  return DC_OK;
}

static dc_status build(dnn_call *call, const dc_graph *graph, dc_nid node, const int64_t *symbols) {
  DC_TRY(dc_onednn_build(call, graph, node, symbols));
  if (call->empty) return DC_OK;
  DNN_TRY(call->lib->primitive_create(&call->primitive, call->desc), "creating a primitive");
  for (int k = 0; k < call->n_operands; k++) DC_TRY(make_reorder(call, &call->operands[k]));
  return DC_OK;
}

static void destroy_call(void *opaque) {
  dnn_call *call = opaque;
  const dnn_library *lib = call->lib;
  for (int k = 0; k < call->n_operands; k++)
    if (call->operands[k].reorder) lib->primitive_destroy(call->operands[k].reorder);
  if (call->primitive) lib->primitive_destroy(call->primitive);
  if (call->desc) lib->primitive_desc_destroy(call->desc);
  if (call->hint) lib->primitive_desc_destroy(call->hint);
  for (int k = 0; k < call->n_temp_descs; k++) lib->desc_destroy(call->temp_descs[k]);
  free(call->idle_scratch);
  free(call);
}

static dc_status bind_call(void *handle, const dc_graph *graph, dc_nid node, const int64_t *symbols, void **out) {
  dnn_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->lib = handle;
  dc_status status = build(call, graph, node, symbols);
  if (status) destroy_call(call);
  else *out = call;
  return status;
}

/* ---- running ---- */

typedef struct {
  void *user[DNN_MAX_OPERANDS], *copy[DNN_MAX_OPERANDS];
} memories;

static void drop(const dnn_call *call, memories *m) {
  for (int k = 0; k < call->n_operands; k++) {
    if (m->user[k]) call->lib->memory_destroy(m->user[k]);
    if (m->copy[k]) call->lib->memory_destroy(m->copy[k]);
  }
}

static int move(const dnn_call *call, const dnn_operand *o, void *from, void *to) {
  dnn_arg args[2] = {{DNN_SRC, from}, {DNN_DST, to}};
  return call->lib->execute(o->reorder, call->lib->stream, 2, args);
}

static dc_status execute(const dnn_call *call, void *const *buffers, char *scratch, memories *m) {
  const dnn_library *lib = call->lib;
  dnn_arg args[DNN_MAX_OPERANDS];
  for (int k = 0; k < call->n_operands; k++) {
    const dnn_operand *o = &call->operands[k];
    DNN_TRY(lib->memory_create(&m->user[k], o->plain, lib->engine, buffers[o->buffer]), "binding memory");
    if (o->reorder) DNN_TRY(lib->memory_create(&m->copy[k], o->wanted, lib->engine, scratch + o->offset), "binding memory");
    if (o->reorder && !o->output) DNN_TRY(move(call, o, m->user[k], m->copy[k]), "a reorder");
    args[k] = (dnn_arg){o->arg, o->reorder ? m->copy[k] : m->user[k]};
  }
  DNN_TRY(lib->execute(call->primitive, lib->stream, call->n_operands, args), "a primitive");
  for (int k = 0; k < call->n_operands; k++)
    if (call->operands[k].reorder && call->operands[k].output) DNN_TRY(move(call, &call->operands[k], m->copy[k], m->user[k]), "a reorder");
  return DC_OK;
}

static dc_status run_call(void *opaque, void *const *buffers) {
  dnn_call *call = opaque;
  if (call->empty) {
    if (call->zero_bytes) memset(buffers[call->zero_buffer], 0, call->zero_bytes);
    return DC_OK;
  }
  void *scratch = call->scratch_bytes ? __atomic_exchange_n(&call->idle_scratch, NULL, __ATOMIC_ACQ_REL) : NULL;
  if (call->scratch_bytes && !scratch && posix_memalign(&scratch, SCRATCH_ALIGN, call->scratch_bytes)) return dc_error(DC_ERR_MEMORY, "out of memory");
  memories m = {{0}, {0}};
  dc_status status = execute(call, buffers, scratch, &m);
  drop(call, &m);
  if (scratch) free(__atomic_exchange_n(&call->idle_scratch, scratch, __ATOMIC_ACQ_REL));
  return status;
}

const dc_native_library dc_native_onednn = {"onednn", open_onednn, close_onednn, dc_onednn_refuses, bind_call, run_call, destroy_call};
