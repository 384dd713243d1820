/* Reads the text form of a graph that print.c writes. */
#include <stdlib.h>
#include <string.h>

#include "ir/lexer.h"

static dc_status parse_container(dc_parser *p, dc_cid *out) {
  char *name;
  DC_TRY(dc_parser_name(p, &name));
  *out = strcmp(name, "_") == 0 ? 0 : dc_container_find(p->graph, name);
  if (*out || strcmp(name, "_") == 0) return DC_OK;
  return dc_error_at(dc_parser_fail(p, "a declared container"), "'%s'", name);
}

/* ---- declarations ---- */

static dc_status parse_symbol(dc_parser *p) {
  char *name;
  int64_t min = 0;
  DC_TRY(dc_parser_name(p, &name));
  DC_TRY(dc_parser_expect(p, ">="));
  DC_TRY(dc_parser_int(p, &min));
  dc_symbol_get(&p->graph->pool, name, min);
  return DC_OK;
}

static void store_element(dc_dtype type, void *data, uint64_t k, double real, int64_t whole) {
  switch (type) {
    case DC_F32: ((float *)data)[k] = (float)real; return;
    case DC_F64: ((double *)data)[k] = real; return;
    case DC_I64: ((int64_t *)data)[k] = whole; return;
    case DC_I32: ((int32_t *)data)[k] = (int32_t)whole; return;
    default: ((uint8_t *)data)[k] = (uint8_t)whole;
  }
}

static dc_status parse_hex(dc_parser *p, dc_container *c) {
  if (p->token.kind != TOK_STRING || p->token.length % 2) return dc_parser_fail(p, "a string of hex digits");
  uint64_t n = p->token.length / 2;
  unsigned char *data = dc_arena_alloc(&p->graph->arena, n);
  for (uint64_t k = 0; k < n; k++) {
    char pair[3] = {p->token.text[2 * k], p->token.text[2 * k + 1], 0}, *end;
    data[k] = (unsigned char)strtol(pair, &end, 16);
    if (*end) return dc_parser_fail(p, "a string of hex digits");
  }
  c->data = data, c->data_bytes = n;
  return dc_parser_next(p);
}

static dc_status parse_strings(dc_parser *p, dc_container *c) {
  DC_VEC(dc_string) strings = {0};
  bool done;
  DC_TRY(dc_parser_expect(p, "{"));
  DC_TRY(dc_parser_accept(p, "}", &done));
  while (!done) {
    if (p->token.kind != TOK_STRING) return dc_parser_fail(p, "a string");
    DC_PUSH(&p->graph->arena, &strings, ((dc_string){dc_arena_copy(&p->graph->arena, p->token.text, p->token.length), p->token.length}));
    DC_TRY(dc_parser_next(p));
    DC_TRY(dc_parser_accept(p, "}", &done));
    if (!done) DC_TRY(dc_parser_expect(p, ","));
  }
  c->data = strings.n ? strings.v : dc_arena_alloc(&p->graph->arena, 0), c->data_bytes = strings.n * sizeof *strings.v;
  return DC_OK;
}

static dc_status parse_elements(dc_parser *p, dc_container *c) {
  dc_dtype type = (dc_dtype)c->dtype;
  bool real = type == DC_F32 || type == DC_F64, done;
  if (!real && type != DC_I64 && type != DC_I32 && type != DC_BOOL) return dc_parser_fail(p, "hex data for this type");
  DC_VEC(double) values = {0};
  DC_VEC(int64_t) wholes = {0};
  DC_TRY(dc_parser_expect(p, "{"));
  DC_TRY(dc_parser_accept(p, "}", &done));
  while (!done) {
    double value = 0;
    int64_t whole = 0;
    if (real) DC_TRY(dc_parser_number(p, &value));
    else DC_TRY(dc_parser_int(p, &whole));
    DC_PUSH(p->scratch, &values, value);
    DC_PUSH(p->scratch, &wholes, whole);
    DC_TRY(dc_parser_accept(p, "}", &done));
    if (!done) DC_TRY(dc_parser_expect(p, ","));
  }
  uint64_t bytes = (uint64_t)values.n * (uint64_t)dc_dtype_bytes(type);
  void *data = dc_arena_alloc(&p->graph->arena, bytes);
  for (uint32_t k = 0; k < values.n; k++) store_element(type, data, k, values.v[k], wholes.v[k]);
  c->data = data, c->data_bytes = bytes;
  return DC_OK;
}

static dc_status parse_traits(dc_parser *p, dc_cid id) {
  bool took;
  dc_ex_list list;
  DC_TRY(dc_parser_accept(p, "host", &took));
  dc_cont(p->graph, id)->is_host = took;
  DC_TRY(dc_parser_accept(p, "cuda", &took));
  if (took) dc_cont(p->graph, id)->device = DC_CUDA;
  DC_TRY(dc_parser_accept(p, "register", &took));
  if (took) dc_cont(p->graph, id)->storage = DC_STORE_REGISTER;
  DC_TRY(dc_parser_accept(p, "strides", &took));
  if (took) {
    DC_TRY(dc_parser_expect(p, "["));
    DC_TRY(dc_parser_list(p, "]", &list));
    if (list.n != dc_cont(p->graph, id)->rank) return dc_parser_fail(p, "a stride for each dimension");
    dc_cont(p->graph, id)->strides = dc_arena_copy(&p->graph->arena, list.v, list.n * sizeof(dc_ex));
  }
  DC_TRY(dc_parser_accept(p, "view", &took));
  if (took) {
    char *base;
    DC_TRY(dc_parser_name(p, &base));
    dc_cont(p->graph, id)->alias_of = dc_container_find(p->graph, base);
    if (!dc_cont(p->graph, id)->alias_of) DC_PUSH(p->scratch, &p->early, ((dc_parser_early_view){id, base}));
    DC_TRY(dc_parser_accept(p, "at", &took));
    dc_ex offset = 0;
    if (took) DC_TRY(dc_parser_expr(p, &offset));
    dc_cont(p->graph, id)->alias_offset = offset;
  }
  DC_TRY(dc_parser_accept(p, "known", &took));
  if (took) {
    DC_TRY(dc_parser_expect(p, "{"));
    DC_TRY(dc_parser_list(p, "}", &list));
    dc_cont(p->graph, id)->known = dc_arena_copy(&p->graph->arena, list.v, list.n * sizeof(dc_ex));
    dc_cont(p->graph, id)->known_count = list.n;
  }
  DC_TRY(dc_parser_accept(p, "=", &took));
  if (!took) return DC_OK;
  if (dc_cont(p->graph, id)->dtype == DC_STRING) return parse_strings(p, dc_cont(p->graph, id));
  DC_TRY(dc_parser_accept(p, "hex", &took));
  return took ? parse_hex(p, dc_cont(p->graph, id)) : parse_elements(p, dc_cont(p->graph, id));
}

static dc_status parse_declaration(dc_parser *p, dc_role role) {
  char *name, *type_name;
  bool shaped;
  dc_ex_list shape = {0};
  DC_TRY(dc_parser_name(p, &name));
  if (dc_container_find(p->graph, name)) return dc_error_at(dc_parser_fail(p, "a new name"), "'%s' is declared twice", name);
  DC_TRY(dc_parser_expect(p, ":"));
  DC_TRY(dc_parser_name(p, &type_name));
  dc_dtype type = dc_dtype_from_name(type_name);
  if (!type && strcmp(type_name, "none")) return dc_error_at(dc_parser_fail(p, "a type"), "'%s'", type_name);
  DC_TRY(dc_parser_accept(p, "[", &shaped));
  if (shaped) DC_TRY(dc_parser_list(p, "]", &shape));
  if (shape.n > DC_MAX_RANK)
    return dc_error_at(dc_parser_fail(p, "fewer dimensions"), "'%s' has %u, more than %d", name, shape.n, DC_MAX_RANK);
  dc_cid id = dc_container_add(p->graph, name, type, shape.n, shape.v, role);
  if (!shaped) dc_cont(p->graph, id)->shape = NULL;
  return parse_traits(p, id);
}

static dc_status resolve_early_views(dc_parser *p) {
  for (uint32_t k = 0; k < p->early.n; k++) {
    dc_cid base = dc_container_find(p->graph, p->early.v[k].base);
    if (!base) return dc_error_at(dc_parser_fail(p, "a declared container"), "'%s'", p->early.v[k].base);
    dc_cont(p->graph, p->early.v[k].view)->alias_of = base;
  }
  return p->early.n = 0, DC_OK;
}

/* ---- nodes ---- */

static dc_status parse_list_attr(dc_parser *p, dc_attr *a) {
  bool done;
  DC_VEC(int64_t) ints = {0};
  DC_VEC(double) floats = {0};
  DC_VEC(const char *) strings = {0};
  DC_TRY(dc_parser_expect(p, "["));
  DC_TRY(dc_parser_accept(p, "]", &done));
  for (; !done; a->n++) {
    int64_t i = 0;
    double f = 0;
    char *s = NULL;
    if (a->kind == DC_ATTR_INTS) DC_TRY(dc_parser_int(p, &i));
    else if (a->kind == DC_ATTR_FLOATS) DC_TRY(dc_parser_number(p, &f));
    else DC_TRY(dc_parser_name(p, &s));
    DC_PUSH(&p->graph->arena, &ints, i);
    DC_PUSH(&p->graph->arena, &floats, f);
    DC_PUSH(&p->graph->arena, &strings, s ? dc_arena_strdup(&p->graph->arena, s) : NULL);
    DC_TRY(dc_parser_accept(p, "]", &done));
    if (!done) DC_TRY(dc_parser_expect(p, ","));
  }
  if (a->kind == DC_ATTR_INTS) a->ints = ints.v;
  else if (a->kind == DC_ATTR_FLOATS) a->floats = floats.v;
  else a->strings = strings.v;
  return DC_OK;
}

static dc_status parse_attr(dc_parser *p, dc_attr *a) {
  static const struct {
    const char *word;
    dc_attr_kind kind;
  } lists[] = {{"ints", DC_ATTR_INTS}, {"floats", DC_ATTR_FLOATS}, {"strings", DC_ATTR_STRINGS}};
  char *name;
  bool took;
  DC_TRY(dc_parser_name(p, &name));
  *a = (dc_attr){.name = dc_name_intern(&p->graph->names, name)};
  DC_TRY(dc_parser_expect(p, "="));
  for (int k = 0; k < 3; k++) {
    DC_TRY(dc_parser_accept(p, lists[k].word, &took));
    if (!took) continue;
    a->kind = (uint8_t)lists[k].kind;
    return parse_list_attr(p, a);
  }
  if (p->token.kind == TOK_STRING) {
    *a = dc_attr_string(p->graph, name, p->token.text, p->token.length);
    return dc_parser_next(p);
  }
  DC_TRY(dc_parser_accept(p, "tensor", &took));
  if (took) {
    dc_cid c;
    DC_TRY(parse_container(p, &c));
    a->kind = DC_ATTR_TENSOR, a->i = c;
    return DC_OK;
  }
  DC_TRY(dc_parser_accept(p, "graph", &took));
  const char *number = p->at;
  bool real = p->token.kind == TOK_FLOAT || (dc_parser_is(p, "-") && (strcspn(number, ".e,}") < strcspn(number, ",}"))) ||
              dc_parser_is(p, "inf") || dc_parser_is(p, "nan") || (dc_parser_is(p, "-") && strncmp(number, "inf", 3) == 0);
  a->kind = took ? DC_ATTR_GRAPH : real ? DC_ATTR_FLOAT : DC_ATTR_INT;
  return real && !took ? dc_parser_number(p, &a->f) : dc_parser_int(p, &a->i);
}

static dc_status parse_grad(dc_parser *p, dc_library *lib) {
  int64_t wrt, n_in, n_out;
  bool took;
  DC_TRY(dc_parser_accept(p, "grad", &took));
  if (!took) return DC_OK;
  DC_TRY(dc_parser_expect(p, "("));
  DC_TRY(dc_parser_int(p, &wrt));
  DC_TRY(dc_parser_expect(p, ","));
  DC_TRY(dc_parser_int(p, &n_in));
  DC_TRY(dc_parser_expect(p, ","));
  DC_TRY(dc_parser_int(p, &n_out));
  if (wrt < 0 || wrt >= n_in || n_in > 1000 || n_out < 0 || n_out > 1000) return dc_parser_fail(p, "an input's position");
  lib->wrt = (uint32_t)wrt + 1, lib->n_fwd_in = (uint32_t)n_in, lib->n_fwd_out = (uint32_t)n_out;
  return dc_parser_expect(p, ")");
}

typedef DC_VEC(dc_cid) cid_list;

static dc_status parse_containers(dc_parser *p, const char *close, cid_list *out) {
  bool done;
  DC_TRY(dc_parser_accept(p, close, &done));
  while (!done) {
    dc_cid c;
    DC_TRY(parse_container(p, &c));
    DC_PUSH(p->scratch, out, c);
    DC_TRY(dc_parser_accept(p, close, &done));
    if (!done) DC_TRY(dc_parser_expect(p, ","));
  }
  return DC_OK;
}

/* `: onednn`, or `: none ("a type other than f32")`. */
static dc_status parse_stamp(dc_parser *p, dc_library *lib) {
  char *name;
  bool took;
  DC_TRY(dc_parser_accept(p, ":", &took));
  if (!took) return DC_OK;
  DC_TRY(dc_parser_name(p, &name));
  lib->by = strcmp(name, "none") ? dc_name_intern(&p->graph->names, name) : 0;
  DC_TRY(dc_parser_accept(p, "(", &took));
  if (!took) return DC_OK;
  DC_TRY(dc_parser_name(p, &name));
  lib->why = dc_name_intern(&p->graph->names, name);
  return dc_parser_expect(p, ")");
}

/* After "outputs =". */
static dc_status parse_library(dc_parser *p, const cid_list *outputs, dc_nid *out) {
  dc_library lib = {0};
  char *op, *domain = "";
  bool took;
  cid_list inputs = {0};
  DC_VEC(dc_attr) attrs = {0};
  int64_t since;
  DC_TRY(parse_grad(p, &lib));
  DC_TRY(dc_parser_name(p, &op));
  DC_TRY(dc_parser_accept(p, "::", &took));
  if (took) {
    domain = op;
    DC_TRY(dc_parser_name(p, &op));
  }
  DC_TRY(dc_parser_expect(p, "@"));
  DC_TRY(dc_parser_int(p, &since));
  DC_TRY(dc_parser_expect(p, "("));
  DC_TRY(parse_containers(p, ")", &inputs));
  DC_TRY(dc_parser_accept(p, "{", &took));
  while (took) {
    dc_attr a;
    DC_TRY(parse_attr(p, &a));
    DC_PUSH(p->scratch, &attrs, a);
    if (!dc_parser_is(p, "}")) DC_TRY(dc_parser_expect(p, ","));
    else took = false;
  }
  if (attrs.n) DC_TRY(dc_parser_expect(p, "}"));
  DC_TRY(parse_stamp(p, &lib));
  *out = dc_node_library(p->graph, op, domain, (int)since, inputs.v, inputs.n, outputs->v, outputs->n, attrs.v, attrs.n);
  dc_library *made = &dc_node_at(p->graph, *out)->lib;
  made->wrt = lib.wrt, made->n_fwd_in = lib.n_fwd_in, made->n_fwd_out = lib.n_fwd_out, made->by = lib.by, made->why = lib.why;
  return DC_OK;
}

static dc_status parse_wcr(dc_parser *p, dc_wcr *out) {
  for (int k = DC_WCR_SUM; k <= DC_WCR_MAX; k++) {
    bool took;
    DC_TRY(dc_parser_accept(p, dc_wcr_name((dc_wcr)k), &took));
    if (took) return *out = (dc_wcr)k, DC_OK;
  }
  return *out = DC_WCR_NONE, DC_OK;
}

static dc_status parse_tasklet(dc_parser *p, dc_cid container, dc_nid *out) {
  dc_ex_list index;
  dc_wcr wcr;
  dc_ex value, guard = 0;
  bool took;
  DC_TRY(dc_parser_expect(p, "["));
  DC_TRY(dc_parser_list(p, "]", &index));
  if (!container || index.n != dc_cont(p->graph, container)->rank) return dc_parser_fail(p, "one index for each dimension");
  DC_TRY(parse_wcr(p, &wcr));
  DC_TRY(dc_parser_expect(p, "="));
  DC_TRY(dc_parser_expr(p, &value));
  DC_TRY(dc_parser_accept(p, "if", &took));
  if (took) DC_TRY(dc_parser_expr(p, &guard));
  *out = dc_node_tasklet(p->graph, container, wcr, index.v, index.n, guard, value);
  return DC_OK;
}

static dc_status parse_origin(dc_parser *p, dc_nid node) {
  bool took;
  char *name;
  DC_TRY(dc_parser_accept(p, "#", &took));
  if (took) {
    DC_TRY(dc_parser_name(p, &name));
    dc_node_at(p->graph, node)->tag_op = dc_name_intern(&p->graph->names, name);
    DC_TRY(dc_parser_accept(p, "'", &took));
    int64_t wrt = -1;
    if (took) DC_TRY(dc_parser_int(p, &wrt));
    if (wrt < -1 || wrt >= INT32_MAX) return dc_parser_fail(p, "an input's position");
    dc_node_at(p->graph, node)->tag_wrt = (uint32_t)(wrt + 1);
  }
  DC_TRY(dc_parser_accept(p, "@", &took));
  if (!took) return DC_OK;
  DC_TRY(dc_parser_name(p, &name));
  dc_node_at(p->graph, node)->name = dc_name_intern(&p->graph->names, name);
  return DC_OK;
}

static dc_status parse_scope(dc_parser *p, dc_scope *scope);

static dc_status parse_range(dc_parser *p, dc_param *out) {
  char *name;
  dc_ex begin, end, step = 0;
  int64_t value = 1;
  bool took;
  DC_TRY(dc_parser_name(p, &name));
  DC_TRY(dc_parser_expect(p, "in"));
  DC_TRY(dc_parser_or(p, &begin));
  DC_TRY(dc_parser_expect(p, ":"));
  DC_TRY(dc_parser_or(p, &end));
  DC_TRY(dc_parser_accept(p, ":", &took));
  if (took) DC_TRY(dc_parser_or(p, &step));
  if (step && (!dc_ex_is_int(&p->graph->pool, step, &value) || value < 1)) return dc_parser_fail(p, "a positive constant step");
  *out = dc_param_new(&p->graph->pool, name, begin, end, step);
  return DC_OK;
}

static dc_status push_param(dc_parser *p, dc_param param) {
  if (p->n_params == DC_MAX_LOOPS) return dc_error_at(dc_parser_fail(p, "a smaller nest of maps"), "more than %d loops", DC_MAX_LOOPS);
  p->params[p->n_params++] = param;
  return DC_OK;
}

static dc_status parse_map(dc_parser *p, dc_schedule schedule, dc_nid *out) {
  uint32_t outer = p->n_params;
  bool more = !dc_parser_is(p, "{") && !dc_parser_is(p, "#") && !dc_parser_is(p, "@");
  while (more) {
    dc_param param;
    DC_TRY(parse_range(p, &param));
    DC_TRY(push_param(p, param));
    DC_TRY(dc_parser_accept(p, ",", &more));
  }
  dc_nid map = dc_node_map(p->graph, schedule, p->params + outer, p->n_params - outer);
  if (p->n_params == outer) DC_TRY(push_param(p, 0)); /* a level without a name */
  DC_TRY(parse_origin(p, map));
  DC_TRY(dc_parser_expect(p, "{"));
  dc_scope body = {0};
  DC_TRY(parse_scope(p, &body));
  dc_node_at(p->graph, map)->map.body = body;
  p->n_params = outer;
  *out = map;
  return DC_OK;
}

static dc_status parse_node(dc_parser *p, dc_nid *out) {
  static const char *const schedules[] = {"map", "sequential", "reduce", "scatter"};
  bool took;
  for (int k = 0; k < 4; k++) { /* print.c quotes a container of such a name */
    DC_TRY(dc_parser_accept(p, schedules[k], &took));
    if (took) return parse_map(p, (dc_schedule)k, out);
  }
  cid_list outputs = {0};
  do {
    dc_cid c;
    DC_TRY(parse_container(p, &c));
    if (dc_parser_is(p, "[")) {
      DC_TRY(parse_tasklet(p, c, out));
      return parse_origin(p, *out);
    }
    DC_PUSH(p->scratch, &outputs, c);
    DC_TRY(dc_parser_accept(p, ",", &took));
  } while (took);
  DC_TRY(dc_parser_expect(p, "="));
  DC_TRY(parse_library(p, &outputs, out));
  return parse_origin(p, *out);
}

/* Names for parts of the statement that follows. */
static dc_status parse_lets(dc_parser *p) {
  bool took;
  p->lets.n = 0;
  for (;;) {
    dc_parser_let let;
    char *name;
    DC_TRY(dc_parser_accept(p, "let", &took));
    if (!took) return DC_OK;
    if (p->token.kind != TOK_NAME) return dc_parser_fail(p, "a name for a part of the next statement");
    DC_TRY(dc_parser_name(p, &name));
    for (uint32_t k = 0; k < p->lets.n; k++)
      if (strcmp(p->lets.v[k].name, name) == 0) return dc_error_at(dc_parser_fail(p, "a new name"), "'%s' is named twice", name);
    DC_TRY(dc_parser_expect(p, "="));
    DC_TRY(dc_parser_expr(p, &let.value));
    let.name = name;
    DC_PUSH(p->scratch, &p->lets, let);
  }
}

static dc_status parse_statement(dc_parser *p, dc_scope *scope) {
  dc_nid node;
  DC_TRY(parse_lets(p));
  bool named = p->lets.n != 0;
  DC_TRY(parse_node(p, &node));
  if (named && dc_node_at(p->graph, node)->kind != DC_NODE_TASKLET) return dc_parser_fail(p, "a statement after `let`");
  dc_scope_push(p->graph, scope, node);
  return DC_OK;
}

/* After the opening brace, to the closing one. */
static dc_status parse_scope(dc_parser *p, dc_scope *scope) {
  bool done;
  DC_TRY(dc_parser_accept(p, "}", &done));
  while (!done) {
    DC_TRY(parse_statement(p, scope));
    DC_TRY(dc_parser_accept(p, "}", &done));
  }
  return DC_OK;
}

/* ---- graph ---- */

static dc_status parse_graph_body(dc_parser *p);

static dc_status parse_captures(dc_parser *p) {
  for (bool more = true; more;) {
    char *name;
    DC_TRY(dc_parser_name(p, &name));
    dc_cid c = p->outer ? dc_container_find(p->outer, name) : 0;
    if (!c) return dc_error_at(dc_parser_fail(p, "a container of the outer graph"), "'%s'", name);
    DC_PUSH(&p->graph->arena, &p->graph->captures, c);
    DC_TRY(dc_parser_accept(p, ",", &more));
  }
  return DC_OK;
}

static dc_status parse_equality(dc_parser *p) {
  dc_ex_list list;
  DC_TRY(dc_parser_expect(p, "["));
  DC_TRY(dc_parser_list(p, "]", &list));
  if (list.n != 2) return dc_parser_fail(p, "two extents");
  return dc_graph_take_equal(p->graph, list.v[0], list.v[1]), DC_OK;
}

static dc_status parse_item(dc_parser *p) {
  static const char *const roles[] = {"temp", "input", "param", "const", "saved"};
  bool took;
  char *name;
  DC_TRY(dc_parser_accept(p, "symbol", &took));
  if (took) return parse_symbol(p);
  for (int k = 0; k < 5; k++) {
    DC_TRY(dc_parser_accept(p, roles[k], &took));
    if (took) return parse_declaration(p, (dc_role)k);
  }
  DC_TRY(dc_parser_accept(p, "equal", &took));
  if (took) return parse_equality(p);
  DC_TRY(dc_parser_accept(p, "captures", &took));
  if (took) return parse_captures(p);
  DC_TRY(dc_parser_accept(p, "outputs", &took));
  while (took) {
    dc_cid c;
    DC_TRY(parse_container(p, &c));
    if (!c) return dc_parser_fail(p, "an output's name");
    dc_graph_mark_output(p->graph, c);
    DC_TRY(dc_parser_accept(p, ",", &took));
    if (!took) return DC_OK;
  }
  DC_TRY(dc_parser_accept(p, "state", &took));
  if (took) {
    DC_TRY(dc_parser_name(p, &name));
    DC_TRY(dc_parser_expect(p, "{"));
    dc_scope scope = {0};
    DC_TRY(resolve_early_views(p));
    dc_state_add(p->graph, name);
    DC_TRY(parse_scope(p, &scope));
    *dc_graph_scope(p->graph) = scope;
    return DC_OK;
  }
  DC_TRY(dc_parser_expect(p, "graph"));
  dc_parser inner = {.outer = p->graph, .start = p->start, .at = p->at, .token = p->token, .scratch = p->scratch, .depth = p->depth + 1};
  if (inner.depth > 20) return dc_parser_fail(p, "subgraphs nested less deeply");
  dc_status status = parse_graph_body(&inner);
  if (inner.graph) DC_PUSH(&p->graph->arena, &p->graph->subgraphs, inner.graph);
  p->at = inner.at, p->token = inner.token;
  return status;
}

/* After the word "graph". */
static dc_status parse_graph_body(dc_parser *p) {
  char *name = "";
  int64_t opset = 0;
  bool done;
  p->graph = dc_graph_create("");
  if (!dc_parser_is(p, "opset")) DC_TRY(dc_parser_name(p, &name));
  p->graph->name = dc_name_intern(&p->graph->names, name);
  DC_TRY(dc_parser_accept(p, "opset", &done));
  if (done) DC_TRY(dc_parser_int(p, &opset));
  p->graph->opset = (int)opset;
  DC_TRY(dc_parser_expect(p, "{"));
  DC_TRY(dc_parser_accept(p, "}", &done));
  while (!done) {
    DC_TRY(parse_item(p));
    DC_TRY(dc_parser_accept(p, "}", &done));
  }
  return resolve_early_views(p);
}

/* Declarations, equal extents and statements, in any order, to the end of the text. */
static dc_status parse_addition(dc_parser *p, dc_scope *scope) {
  static const char *const roles[] = {"temp", "input"};
  DC_TRY(dc_parser_next(p));
  while (p->token.kind != TOK_END) {
    bool took;
    DC_TRY(dc_parser_accept(p, "symbol", &took));
    if (took) {
      DC_TRY(parse_symbol(p));
      continue;
    }
    DC_TRY(dc_parser_accept(p, "equal", &took));
    if (took) DC_TRY(parse_equality(p));
    for (int k = 0; k < 2 && !took; k++) {
      DC_TRY(dc_parser_accept(p, roles[k], &took));
      if (took) DC_TRY(parse_declaration(p, k ? DC_ROLE_INPUT : DC_ROLE_TEMP));
    }
    if (!took) DC_TRY(parse_statement(p, scope));
  }
  return resolve_early_views(p);
}

dc_status dc_graph_append(dc_graph *graph, uint32_t state, const char *text) {
  if (state >= graph->states.n && (state || graph->states.n))
    return dc_error(DC_ERR_VALUE, "graph '%s' has no state %u", dc_name_text(&graph->names, graph->name), state);
  if (!graph->states.n) (void)dc_graph_scope(graph);
  dc_arena scratch = {0};
  dc_parser *p = DC_NEW(&scratch, dc_parser);
  p->start = p->at = text, p->scratch = &scratch, p->graph = graph;
  dc_scope added = {0};
  uint32_t before = graph->states.v[state].scope.n;
  dc_status status = parse_addition(p, &added);
  for (uint32_t k = 0; !status && k < added.n; k++) {
    dc_node_bound(graph, added.v[k]);
    dc_scope_push(graph, &graph->states.v[state].scope, added.v[k]);
  }
  if (!status) status = dc_graph_verify(graph);
  if (status) graph->states.v[state].scope.n = before;
  dc_arena_free(&scratch);
  return dc_error_at(status, "text for graph '%s'", dc_name_text(&graph->names, graph->name));
}

static dc_status parse_text(dc_parser *p) {
  DC_TRY(dc_parser_next(p));
  DC_TRY(dc_parser_expect(p, "graph"));
  DC_TRY(parse_graph_body(p));
  return p->token.kind == TOK_END ? dc_graph_verify(p->graph) : dc_parser_fail(p, "the end");
}

dc_status dc_graph_parse(const char *text, dc_graph **out) {
  dc_arena scratch = {0};
  dc_parser *p = DC_NEW(&scratch, dc_parser);
  p->start = p->at = text, p->scratch = &scratch;
  dc_status status = parse_text(p);
  *out = status ? NULL : p->graph;
  if (status) dc_graph_destroy(p->graph);
  dc_arena_free(&scratch);
  return dc_error_at(status, "graph text");
}
