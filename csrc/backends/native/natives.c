/* Native libraries: the ordered list, and the dispatch of a node to the first that accepts.
 *
 * A library is opened at run time; one that is missing is simply not in the list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/library.h"

enum { MAX_LIBRARIES = 4 };

struct dc_natives {
  const dc_native_library *list[MAX_LIBRARIES];
  void *handle[MAX_LIBRARIES];
  uint32_t n;
  bool verbose;
};

static const dc_native_library *const known[] = {&dc_native_onednn, &dc_native_openblas, NULL};

static bool in_mask(const char *mask, const char *name) {
  size_t n = strlen(name);
  for (const char *at = mask; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, name, n) == 0 && (at[n] == 0 || at[n] == ',')) return true;
  return false;
}

dc_status dc_natives_create(const char *mask, const char *folder, dc_natives **out) {
  dc_natives *natives = calloc(1, sizeof *natives);
  if (!natives) return dc_error(DC_ERR_MEMORY, "out of memory");
  const char *verbose = getenv("DCML_VERBOSE");
  natives->verbose = verbose && strstr(verbose, "dispatch");
  for (uint32_t k = 0; known[k] && natives->n < MAX_LIBRARIES; k++) {
    if (mask && *mask && !in_mask(mask, known[k]->name)) continue;
    void *handle;
    const char *why = known[k]->open(folder, &handle);
    if (why && natives->verbose) fprintf(stderr, "dcml: %s is not used: %s\n", known[k]->name, why);
    if (why) continue;
    natives->list[natives->n] = known[k];
    natives->handle[natives->n++] = handle;
  }
  *out = natives;
  return DC_OK;
}

void dc_natives_destroy(dc_natives *natives) {
  if (!natives) return;
  for (uint32_t k = 0; k < natives->n; k++) natives->list[k]->close(natives->handle[k]);
  free(natives);
}

/* The first library in the row's order that takes the node; -1 and a reason otherwise. */
static int choose(const dc_natives *natives, dc_ops *ops, const dc_graph *graph, dc_nid node, const char *only, const char **why) {
  const dc_node *n = dc_node_at(graph, node);
  if (n->kind != DC_NODE_LIBRARY) return -1;
  const char *op = dc_name_text(&graph->names, n->lib.op);
  const dc_row *row = dc_ops_find(ops, dc_name_text(&graph->names, n->lib.domain), op, n->lib.since);
  *why = "the operator names no library";
  for (uint32_t k = 0; row && dc_row_native(row, k); k++)
    for (uint32_t j = 0; j < natives->n; j++) {
      if (strcmp(natives->list[j]->name, dc_row_native(row, k)) || (only && !in_mask(only, natives->list[j]->name))) continue;
      *why = natives->list[j]->refuses(natives->handle[j], graph, node);
      if (natives->verbose) fprintf(stderr, "dcml: %s%s: %s %s\n", op, n->lib.wrt ? " gradient" : "", natives->list[j]->name, *why ? *why : "accepts");
      if (!*why) return (int)j;
    }
  return -1;
}

bool dc_natives_accepts(dc_natives *natives, dc_ops *ops, const dc_graph *graph, dc_nid node, const char *only, const char **why) {
  const char *reason = "no native library is loaded";
  bool accepted = natives && natives->n && choose(natives, ops, graph, node, only, &reason) >= 0;
  if (why) *why = accepted ? NULL : reason;
  return accepted;
}

struct dc_native_call {
  const dc_native_library *library;
  void *call;
};

dc_status dc_native_bind(dc_natives *natives, dc_ops *ops, const dc_graph *graph, dc_nid node, const char *only, const int64_t *symbols, dc_native_call **out) {
  const char *why = "no native library is loaded";
  int k = natives ? choose(natives, ops, graph, node, only, &why) : -1;
  if (k < 0) return dc_error(DC_ERR_UNSUPPORTED, "operator %s is left unexpanded, but no library takes it: %s",
                             dc_name_text(&graph->names, dc_node_at(graph, node)->lib.op), why);
  dc_native_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  call->library = natives->list[k];
  dc_status status = call->library->bind(natives->handle[k], graph, node, symbols, &call->call);
  if (status) free(call);
  else *out = call;
  return status;
}

const char *dc_native_call_library(const dc_native_call *call) { return call->library->name; }

dc_status dc_native_run(dc_native_call *call, void *const *buffers) { return call->library->run(call->call, buffers); }

void dc_native_call_destroy(dc_native_call *call) {
  if (!call) return;
  call->library->destroy(call->call);
  free(call);
}
