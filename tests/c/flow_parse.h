/* Reads the text of a flat view, as csrc/ir/flow_text.c writes it, as edits of an empty one. */
#ifndef DCML_TESTS_FLOW_PARSE_H
#define DCML_TESTS_FLOW_PARSE_H

#include <string.h>

#include "ir/flow.h"
#include "ir/lexer.h"

typedef struct {
  dc_parser p;
  dc_flow *flow;
  dc_fid ids[4096]; /* by number in the text */
} flow_reader;

/* The text up to the closing mark; the opening one is the token at hand. */
static dc_status flow_raw(flow_reader *r, char open, char close, char **out) {
  int depth = 1;
  const char *from = r->p.at, *at = from;
  for (; *at; at++) {
    depth += *at == open ? 1 : *at == close ? -1 : 0;
    if (!depth) break;
  }
  if (!*at) return dc_parser_fail(&r->p, "a closing mark");
  *out = dc_arena_printf(r->p.scratch, "%.*s", (int)(at - from), from);
  r->p.at = at + 1;
  return dc_parser_next(&r->p);
}

/* The text up to one of the marks, outside brackets. */
static dc_status flow_upto(flow_reader *r, const char *marks, char **out) {
  const char *from = r->p.token.at, *at = from;
  for (int depth = 0; *at && (depth || !strchr(marks, *at)); at++) depth += strchr("[(", *at) ? 1 : strchr("])", *at) ? -1 : 0;
  const char *end = at;
  while (end > from && end[-1] == ' ') end--;
  *out = dc_arena_printf(r->p.scratch, "%.*s", (int)(end - from), from);
  r->p.at = at;
  return dc_parser_next(&r->p);
}

static dc_status flow_number(flow_reader *r, uint32_t *out) {
  int64_t n;
  DC_TRY(dc_parser_int(&r->p, &n));
  if (n < 1 || n >= 4096) return dc_parser_fail(&r->p, "a node's number");
  return *out = (uint32_t)n, DC_OK;
}

static dc_status flow_map(flow_reader *r, uint32_t number, uint32_t schedule) {
  dc_flow_range ranges[DC_MAX_LOOPS];
  uint32_t n = 0, exit;
  char *label;
  bool more;
  DC_TRY(dc_parser_name(&r->p, &label));
  for (more = !dc_parser_is(&r->p, "to"); more; n++) {
    char *text[4] = {0};
    DC_TRY(dc_parser_name(&r->p, &text[0]));
    if (!dc_parser_is(&r->p, "in")) return dc_parser_fail(&r->p, "in");
    DC_TRY(dc_parser_next(&r->p));
    DC_TRY(flow_upto(r, ":", &text[1]));
    DC_TRY(dc_parser_expect(&r->p, ":"));
    DC_TRY(flow_upto(r, ":,t\n", &text[2])); /* of `to`; ends of tests have no t */
    bool took;
    DC_TRY(dc_parser_accept(&r->p, ":", &took));
    if (took) DC_TRY(flow_upto(r, ",t\n", &text[3]));
    ranges[n] = (dc_flow_range){text[0], text[1], text[2], took ? text[3] : "1"};
    DC_TRY(dc_parser_accept(&r->p, ",", &more));
  }
  DC_TRY(dc_parser_expect(&r->p, "to"));
  DC_TRY(flow_number(r, &exit));
  r->ids[number] = dc_flow_add_map(r->flow, label, ranges, n, schedule);
  r->ids[exit] = dc_flow_at(r->flow, r->ids[number])->other;
  return DC_OK;
}

/* label = Op@since; attributes are left out. */
static dc_status flow_library(flow_reader *r, uint32_t number) {
  char *label, *op, *attributes;
  int64_t since;
  DC_TRY(dc_parser_name(&r->p, &label));
  DC_TRY(dc_parser_expect(&r->p, "="));
  DC_TRY(dc_parser_name(&r->p, &op));
  DC_TRY(dc_parser_expect(&r->p, "@"));
  DC_TRY(dc_parser_int(&r->p, &since));
  if (dc_parser_is(&r->p, "{")) DC_TRY(flow_raw(r, '{', '}', &attributes));
  dc_nid node = dc_node_library(r->p.graph, op, "", (int)since, NULL, 0, NULL, 0, NULL, 0);
  r->ids[number] = dc_flow_add_library(r->flow, label, node);
  return DC_OK;
}

static dc_status flow_node(flow_reader *r, uint32_t number) {
  char *word, *label, *code;
  DC_TRY(dc_parser_name(&r->p, &word));
  for (uint32_t k = 0; k < DC_FLOW_SCHEDULES; k++)
    if (strcmp(word, dc_flow_schedule_name(k)) == 0) return flow_map(r, number, k);
  if (strcmp(word, "library") == 0) return flow_library(r, number);
  DC_TRY(dc_parser_name(&r->p, &label));
  if (strcmp(word, "access") == 0) r->ids[number] = dc_flow_add(r->flow, DC_FLOW_ACCESS, label);
  else if (strcmp(word, "exit") == 0) r->ids[number] = dc_flow_add(r->flow, DC_FLOW_EXIT, label);
  else if (strcmp(word, "tasklet") == 0) {
    if (!dc_parser_is(&r->p, "{")) return dc_parser_fail(&r->p, "{");
    DC_TRY(flow_raw(r, '{', '}', &code));
    r->ids[number] = dc_flow_add_tasklet(r->flow, label, code);
  } else return dc_parser_fail(&r->p, "a kind of node");
  return DC_OK;
}

static dc_status flow_conn(flow_reader *r, char **out) {
  bool took;
  *out = NULL;
  DC_TRY(dc_parser_accept(&r->p, ".", &took));
  return took ? dc_parser_name(&r->p, out) : DC_OK;
}

static dc_status flow_memlet(flow_reader *r, dc_memlet *m) {
  char *data, *subset = NULL, *other = NULL;
  bool took;
  DC_TRY(dc_parser_name(&r->p, &data));
  if (dc_parser_is(&r->p, "[")) DC_TRY(flow_raw(r, '[', ']', &subset));
  DC_TRY(dc_parser_accept(&r->p, "to", &took));
  if (took) DC_TRY(flow_raw(r, '[', ']', &other));
  *m = (dc_memlet){.data = strcmp(data, "_") ? data : NULL, .subset = subset, .other = other};
  for (int k = DC_WCR_SUM; k <= DC_WCR_MAX; k++) {
    DC_TRY(dc_parser_accept(&r->p, dc_wcr_name((dc_wcr)k), &took));
    if (took) m->wcr = (uint8_t)k;
  }
  return DC_OK;
}

/* An edge, or a connector without one. */
static dc_status flow_edge(flow_reader *r, uint32_t src) {
  char *src_conn, *dst_conn;
  uint32_t dst;
  bool took, loose;
  dc_memlet memlet;
  DC_TRY(flow_conn(r, &src_conn));
  DC_TRY(dc_parser_accept(&r->p, "in", &loose));
  if (loose) return dc_flow_connect(r->flow, r->ids[src], src_conn, true), DC_OK;
  DC_TRY(dc_parser_accept(&r->p, "out", &loose));
  if (loose) return dc_flow_connect(r->flow, r->ids[src], src_conn, false), DC_OK;
  DC_TRY(dc_parser_expect(&r->p, "-"));
  DC_TRY(dc_parser_expect(&r->p, ">"));
  DC_TRY(flow_number(r, &dst));
  DC_TRY(flow_conn(r, &dst_conn));
  DC_TRY(dc_parser_accept(&r->p, ":", &took));
  if (took) DC_TRY(flow_memlet(r, &memlet));
  if (!r->ids[src] || !r->ids[dst]) return dc_parser_fail(&r->p, "an edge between nodes that there are");
  if (src_conn) dc_flow_connect(r->flow, r->ids[src], src_conn, false);
  if (dst_conn) dc_flow_connect(r->flow, r->ids[dst], dst_conn, true);
  dc_flow_join(r->flow, r->ids[src], src_conn, r->ids[dst], dst_conn, took ? &memlet : NULL);
  return DC_OK;
}

static dc_status flow_lines(flow_reader *r) {
  char *name;
  DC_TRY(dc_parser_next(&r->p));
  DC_TRY(dc_parser_expect(&r->p, "flow"));
  DC_TRY(dc_parser_name(&r->p, &name));
  DC_TRY(dc_parser_expect(&r->p, "{"));
  while (!dc_parser_is(&r->p, "}")) {
    uint32_t number;
    DC_TRY(flow_number(r, &number));
    if (r->p.token.kind == TOK_NAME && !dc_parser_is(&r->p, "in") && !dc_parser_is(&r->p, "out")) DC_TRY(flow_node(r, number));
    else DC_TRY(flow_edge(r, number));
  }
  return DC_OK;
}

static inline dc_status flow_parse(const char *text, dc_graph *graph, dc_flow *out) {
  dc_arena scratch = {0};
  flow_reader *r = DC_NEW(&scratch, flow_reader);
  *out = (dc_flow){0};
  r->p.start = r->p.at = text, r->p.scratch = &scratch, r->p.graph = graph, r->flow = out;
  dc_status status = dc_error_at(flow_lines(r), "flow text");
  dc_arena_free(&scratch);
  return status;
}

#endif
