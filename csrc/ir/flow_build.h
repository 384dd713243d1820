/* What the files that build a flow share. */
#ifndef DCML_IR_FLOW_BUILD_H
#define DCML_IR_FLOW_BUILD_H

#include "ir/flow.h"
#include "ir/flow_home.h"
#include "ir/lexer.h"

typedef struct {
  dc_nid map;
  uint32_t schedule; /* 0: any that is legal; 1: parallel, if nobody combines into one element */
} drafted_map;

typedef struct {
  dc_flow *flow;
  dc_graph *graph;
  dc_flow_params params;
  dc_arena *scratch;
  dc_parser parser; /* its parameters are those of the maps around */
  dc_scope *out;    /* what is being built: the state, or a map's body */
  dc_fid scope;     /* the entry whose body that is, 0: the state */
  dc_cid *container; /* by node: of an access node */
  dc_cid *carried;   /* by edge: what holds a value that goes from a tasklet without an access node; 0: none */
  dc_fid *first, *last, *next; /* children of an entry ([0]: of the state), in order */
  dc_eid *slots;     /* edges into entries and out of exits, by connector */
  uint32_t n_slots;
  dc_nid *made; /* by node: what was built for it last */
  uint32_t *unit; /* by node: of what is built; those of the flow change when all is well */
  DC_VEC(drafted_map) maps; /* whose schedule is to be found, inner ones first */
} building;

/* flow_build.c: where a value comes from or goes to, past entries and exits. */
typedef struct {
  dc_fid node;
  dc_eid edge;      /* at that node */
  const char *conn; /* at that node, or NULL */
} flow_end;
DC_MUST_USE dc_status flow_source(building *b, dc_eid e, flow_end *out);
DC_MUST_USE dc_status flow_target(building *b, dc_eid e, flow_end *out);
dc_eid flow_beyond(building *b, dc_eid e); /* where it goes on behind an exit; 0: it ends, or nowhere */
void flow_emit(building *b, dc_nid node);
/* A scalar, or an array of these extents, that lives as long as one pass through what is being built. */
dc_cid flow_local(building *b, const char *name, dc_dtype type, uint32_t rank, const dc_ex *shape);
DC_MUST_USE dc_status flow_fail(building *b, dc_fid n, const char *format, ...) DC_PRINTF(3, 4) __attribute__((returns_nonnull));
dc_status flow_fail_at_edge(building *b, dc_status status, dc_eid e); /* passes DC_OK through */

/* flow_copy.c */
/* Of an edge's memlet, as a part of c, which must be the container that it names. */
DC_MUST_USE dc_status flow_memlet(building *b, dc_eid e, dc_cid c, dc_box *out);
/* A part that a text says: "0:5, i". */
DC_MUST_USE dc_status flow_subset(building *b, const char *text, dc_cid c, dc_box *out);
bool flow_is_whole(building *b, const dc_box *box, dc_cid c);
/* Constants prove that it leaves the container; `at` takes the dimension. */
bool flow_is_outside(building *b, const dc_box *box, dc_cid c, bool always, uint32_t *at);
dc_ex flow_extent(building *b, const dc_box_range *r);
DC_MUST_USE dc_status flow_copy(building *b, dc_cid to, const dc_box *to_box, dc_cid from, const dc_box *from_box, dc_wcr wcr);
/* The edge between two access nodes. */
DC_MUST_USE dc_status flow_copy_edge(building *b, dc_eid e, dc_cid from, dc_cid to);

/* flow_inline.c */
DC_MUST_USE dc_status flow_nested(building *b, dc_fid n);

/* flow_code.c */
DC_MUST_USE dc_status flow_expression(building *b, const char *text, dc_ex *out); /* an integer over symbols and parameters */
DC_MUST_USE dc_status flow_tasklet(building *b, dc_fid n);
DC_MUST_USE dc_status flow_map_ranges(building *b, dc_fid entry, dc_param *params);

/* flow_schedule.c: schedules of the maps that were drafted. */
void flow_schedules(building *b, const dc_homes *homes);
/* flow_private.c: arrays that only a map's body uses; nodes and containers from these on are new. */
void flow_privatize(building *b, const dc_homes *homes, const dc_scope *scope, dc_nid first, dc_cid first_container);

#endif
