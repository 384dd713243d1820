/* Makes a graph that fails as small as it gets. */
#ifndef DCML_CHECK_REDUCE_H
#define DCML_CHECK_REDUCE_H

#include "check/agree.h"

/* Does the graph still fail? */
typedef bool (*dc_fails_fn)(void *context, const dc_graph *graph);

/* The text of a smaller graph that fails; weights have become inputs in it.  False, with the text of the graph that was
 * tried, if not even that one fails. */
bool dc_reduce(dc_ops *ops, const dc_graph *graph, dc_fails_fn fails, void *context, dc_text *out);
/* The same for what dc_check_try says of it. */
bool dc_reduce_try(const dc_check *check, const dc_graph *graph, const char *what, dc_text *out);

#endif
