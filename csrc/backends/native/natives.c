/* Native libraries: the ordered list, and the choice of the first that takes a node.
 *
 * A library is opened at run time, when a node first asks for it: OpenBLAS starts threads of its own as soon as it is loaded,
 * which turn idly for a while.  One that is missing does not take the node. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/native/library.h"

enum { MAX_LIBRARIES = 16 };

typedef enum { CLOSED, OPEN, MISSING } library_state; /* closed: nobody has asked for it */

typedef struct {
  const dc_native_library *library;
  void *handle;
  library_state state; /* changes once, behind the lock */
} entry;

struct dc_natives {
  entry *list;
  uint32_t n;
  const dc_native_library *const *known; /* of the target, in the mask or not */
  pthread_mutex_t *lock;
  char *folder;
  const void *place;
  bool verbose;
};

static bool in_mask(const char *mask, const char *name) {
  size_t n = strlen(name);
  for (const char *at = mask; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, name, n) == 0 && (at[n] == 0 || at[n] == ',')) return true;
  return false;
}

static void open_entry(const dc_natives *natives, entry *e) {
  const char *why = e->library->open(natives->folder, natives->place, &e->handle);
  if (why && natives->verbose) fprintf(stderr, "dcml: %s is not used: %s\n", e->library->name, why);
  e->state = why ? MISSING : OPEN;
}

static bool is_open(const dc_natives *natives, uint32_t k) {
  entry *e = &natives->list[k];
  pthread_mutex_lock(natives->lock);
  if (e->state == CLOSED) open_entry(natives, e);
  bool open = e->state == OPEN;
  pthread_mutex_unlock(natives->lock);
  return open;
}

dc_status dc_natives_create(const dc_native_library *const *list, const char *mask, const char *folder, const void *place,
                            dc_natives **out) {
  dc_natives *natives = calloc(1, sizeof *natives);
  if (natives)
    *natives = (dc_natives){.list = calloc(MAX_LIBRARIES, sizeof(entry)), .known = list, .place = place,
                            .lock = malloc(sizeof *natives->lock)};
  if (natives && folder) natives->folder = strdup(folder);
  if (!natives || !natives->list || !natives->lock || (folder && !natives->folder)) {
    if (natives) free(natives->list), free(natives->lock), free(natives->folder);
    free(natives);
    return dc_error(DC_ERR_MEMORY, "out of memory");
  }
  pthread_mutex_init(natives->lock, NULL);
  const char *verbose = getenv("DCML_VERBOSE");
  natives->verbose = verbose && strstr(verbose, "dispatch");
  for (uint32_t k = 0; list[k] && natives->n < MAX_LIBRARIES; k++) {
    if (mask && *mask && !in_mask(mask, list[k]->name)) continue;
    natives->list[natives->n].library = list[k];
    if (place) open_entry(natives, &natives->list[natives->n]); /* it is the caller's, now */
    natives->n++;
  }
  *out = natives;
  return DC_OK;
}

void dc_natives_add(dc_natives *natives, const dc_native_library *library, void *handle) {
  assert(natives->n < MAX_LIBRARIES);
  natives->list[natives->n++] = (entry){library, handle, OPEN};
}

void dc_natives_destroy(dc_natives *natives) {
  if (!natives) return;
  for (uint32_t k = 0; k < natives->n; k++)
    if (natives->list[k].state == OPEN) natives->list[k].library->close(natives->list[k].handle);
  pthread_mutex_destroy(natives->lock);
  free(natives->list), free(natives->lock), free(natives->folder);
  free(natives);
}

static int place_of(const dc_natives *natives, const char *name) {
  for (uint32_t k = 0; natives && k < natives->n; k++)
    if (strcmp(natives->list[k].library->name, name) == 0) return (int)k;
  return -1;
}

static int find(const dc_natives *natives, const char *name) {
  int k = place_of(natives, name);
  return k >= 0 && is_open(natives, (uint32_t)k) ? k : -1;
}

/* Rows name the libraries of all targets: is this one of another? */
static bool is_foreign(const dc_natives *natives, const char *name) {
  bool known = !natives;
  for (uint32_t k = 0; !known && natives->known[k]; k++) known = strcmp(natives->known[k]->name, name) == 0;
  return !known && place_of(natives, name) < 0;
}

/* Whether it takes a node it says before it is opened. */
static bool is_asked_first(const dc_native_library *library) { return library == &dc_native_openblas; }

/* NULL if this library takes the node, else why it does not; "": it is no business of the library. */
static const char *refusal(const dc_natives *natives, const dc_graph *graph, dc_nid node, const char *name, const char *only) {
  if (only && !in_mask(only, name)) return "not asked for";
  int k = place_of(natives, name);
  if (k < 0) return "not loaded";
  const dc_native_library *library = natives->list[k].library;
  if (library->stands_in) return "it only stands in for other libraries, where sizes are known";
  const char *why = is_asked_first(library) ? library->refuses(NULL, graph, node) : NULL;
  if (why) return why;
  return is_open(natives, (uint32_t)k) ? library->refuses(natives->list[k].handle, graph, node) : "not loaded";
}

static bool in_row(const dc_row *row, const char *name) {
  const char *own;
  for (uint32_t k = 0; row && (own = dc_row_native(row, k)); k++)
    if (strcmp(own, name) == 0) return true;
  return false;
}

/* The mask that a node's wish comes to; the program's where there is none, or one that is no business of libraries. */
static const char *mask_of(const char *wish, const dc_row *row, const char *only) {
  if (!wish) return only;
  return strcmp(wish, "native") == 0 ? NULL : strcmp(wish, "pure") == 0 ? "none" : in_row(row, wish) ? wish : only;
}

static const char *try_library(const dc_natives *natives, const dc_graph *graph, dc_nid node, const char *name, const char *only,
                               dc_text *why) {
  if (is_foreign(natives, name)) return NULL;
  const char *reason = refusal(natives, graph, node, name, only);
  if (reason && *reason) dc_text_printf(why, "%s%s: %s", why->n ? "; " : "", name, reason);
  return reason ? NULL : name;
}

/* The library that the node wishes for, else the first in the row's order that takes it. */
void dc_natives_stamp(const dc_natives *natives, dc_ops *ops, dc_graph *graph, dc_nid node, const char *only) {
  const dc_row *row = dc_ops_row_of(ops, graph, &dc_node_at(graph, node)->lib);
  const char *by = NULL, *wish = dc_node_wish(graph, node);
  dc_text why = {0};
  bool outside = wish && !in_row(row, wish) && find(natives, wish) >= 0; /* the row does not name it */
  only = mask_of(wish, row, only);
  if (outside) by = try_library(natives, graph, node, wish, NULL, &why);
  for (uint32_t k = 0; row && !by && dc_row_native(row, k); k++) by = try_library(natives, graph, node, dc_row_native(row, k), only, &why);
  dc_library *lib = &dc_node_at(graph, node)->lib;
  if (by) lib->by = dc_name_intern(&graph->names, by);
  if (why.n) lib->why = dc_name_intern(&graph->names, why.s);
  if (natives && natives->verbose && (outside || (row && dc_row_native(row, 0))))
    fprintf(stderr, "dcml: %s%s: %s%s%s%s\n", dc_name_text(&graph->names, lib->op), lib->wrt ? " gradient" : "", by ? by : "no library",
            why.n ? " (" : "", why.n ? why.s : "", why.n ? ")" : "");
  dc_text_free(&why);
}

struct dc_native_call {
  const dc_native_library *library;
  void *call;
};

/* Unless the node or its program says who is to run it. */
static dc_status bind_faster(const dc_natives *natives, const char *only, const dc_graph *graph, dc_nid node, const int64_t *symbols,
                             dc_native_call *call) {
  const char *wish = dc_node_wish(graph, node);
  if (wish && find(natives, wish) >= 0) only = wish;
  for (uint32_t k = 0; k < natives->n && !call->call; k++) {
    const dc_native_library *library = natives->list[k].library;
    if (!library->stands_in || (only && !in_mask(only, library->name)) || !is_open(natives, k)) continue;
    call->library = library;
    DC_TRY(library->bind(natives->list[k].handle, graph, node, symbols, &call->call));
  }
  return DC_OK;
}

dc_status dc_native_bind(const dc_natives *natives, const char *only, dc_graph *graph, dc_nid node, const int64_t *symbols,
                         dc_native_call **out) {
  const dc_library *lib = &dc_node_at(graph, node)->lib;
  const char *by = dc_name_text(&graph->names, lib->by);
  if (!lib->by)
    return dc_error(DC_ERR_UNSUPPORTED, "%s is left unexpanded, but no library runs it: %s", dc_node_describe(graph, node),
                    lib->why ? dc_name_text(&graph->names, lib->why) : "none was chosen");
  int k = find(natives, by);
  if (k < 0) return dc_error(DC_ERR_UNSUPPORTED, "%s is to be run by %s, which is not loaded", dc_node_describe(graph, node), by);
  dc_native_call *call = calloc(1, sizeof *call);
  if (!call) return dc_error(DC_ERR_MEMORY, "out of memory");
  dc_status status = bind_faster(natives, only, graph, node, symbols, call);
  if (!status && !call->call) {
    call->library = natives->list[k].library;
    status = call->library->bind(natives->list[k].handle, graph, node, symbols, &call->call);
  }
  if (!status) return *out = call, DC_OK;
  free(call);
  status = dc_error_at(status, "%s accepted the operator, but not with these sizes", by);
  return dc_error_at(status, "%s", dc_node_describe(graph, node));
}

const char *dc_native_name(const dc_native_call *call) { return call->library->name; }

uint64_t dc_native_scratch(const dc_native_call *call) { return call->library->scratch(call->call); }

dc_status dc_native_run(dc_native_call *call, void *const *buffers, void *scratch, void *stream) {
  return call->library->run(call->call, buffers, scratch, stream);
}

bool dc_native_divides(const dc_native_call *call, dc_division *out) {
  return call->library->divides && call->library->divides(call->call, out);
}

uint64_t dc_native_part_scratch(const dc_native_call *call) { return call->library->part_scratch(call->call); }

void dc_native_run_part(const dc_native_call *call, void *const *buffers, void *scratch, const int64_t *part) {
  call->library->run_part(call->call, buffers, scratch, part);
}

void dc_native_call_destroy(dc_native_call *call) {
  if (!call) return;
  call->library->destroy(call->call);
  free(call);
}
