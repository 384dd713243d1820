/* The table of rows: built-in text plus what users add, parsed a row at a time on first use.
 *
 * Scanning finds logical rows only (a line that starts in column 0, with the indented lines
 * after it); a family's members are lines whose first mark is '|'. */
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ops/lang.h"
#include "ops_text.h" /* generated from ops.def */

typedef struct {
  const char *domain, *name, *header, *text;
  int since;
  dc_row *row;      /* parsed, or NULL */
  dc_status failed; /* a row that does not parse stays an error */
} entry;

struct dc_ops {
  dc_arena arena;
  pthread_mutex_t lock;
  DC_VEC(entry) entries;
  DC_VEC(dc_macro) macros;
};

/* ---- scanning ---- */

static const char *keep(dc_ops *ops, const char *from, const char *to) {
  char *text = dc_arena_alloc(&ops->arena, (size_t)(to - from) + 1);
  memcpy(text, from, (size_t)(to - from));
  return text;
}

/* "[domain.]Name.7,13": the domain is whatever stands before the last dotted name. */
static dc_status add_entries(dc_ops *ops, const char *header, const char *text) {
  const char *c = text;
  while (isspace((unsigned char)*c) || *c == '|') c++;
  const char *title = c, *name = c, *name_end = NULL;
  while (isalnum((unsigned char)*c) || *c == '_' || *c == '.') {
    if (*c == '.' && isdigit((unsigned char)c[1])) {
      name_end = c++;
      break;
    }
    if (*c == '.') name = c + 1;
    c++;
  }
  if (!name_end) return dc_error(DC_ERR_VALUE, "expected Name.version at the start of a row, found '%.30s'", title);
  entry e = {.header = header, .text = text, .name = keep(ops, name, name_end)};
  e.domain = name > title ? keep(ops, title, name - 1) : "";
  for (;; c++) {
    char *end;
    e.since = (int)strtol(c, &end, 10);
    if (end == c) return dc_error(DC_ERR_VALUE, "row '%s': expected a version", e.name);
    DC_PUSH(&ops->arena, &ops->entries, e);
    c = end;
    if (*c != ',') return DC_OK;
  }
}

static dc_status add_macro(dc_ops *ops, const char *text) {
  dc_lang_parser p;
  dc_macro macro;
  dc_lang_start(&p, &ops->arena, text);
  DC_TRY(dc_error_at(dc_lang_macro(&p, &macro), "definition '%.30s'", text));
  DC_PUSH(&ops->arena, &ops->macros, macro);
  return DC_OK;
}

static const char *line_end(const char *c) {
  while (*c && *c != '\n') c++;
  return c;
}

static bool continues(const char *line) { return *line == ' ' || *line == '\t' || *line == '\n' || (line[0] == '-' && line[1] == '-'); }

static bool is_member(const char *line) {
  while (*line == ' ' || *line == '\t') line++;
  return line[0] == '|' && line[1] == ' ';
}

/* One logical row: [from, to). */
static dc_status add_logical(dc_ops *ops, const char *from, const char *to) {
  const char *text = keep(ops, from, to);
  if (strncmp(text, "def ", 4) == 0) return add_macro(ops, text);
  if (strncmp(text, "family", 6) != 0) return add_entries(ops, NULL, text);
  const char *header = NULL, *start = text;
  for (const char *line = text; *line; line = *line_end(line) ? line_end(line) + 1 : line_end(line)) {
    if (!is_member(line)) continue;
    if (header) DC_TRY(add_entries(ops, header, keep(ops, start, line)));
    else header = keep(ops, start, line);
    start = line;
  }
  return header ? add_entries(ops, header, start) : dc_error(DC_ERR_VALUE, "a family without members: '%.30s'", text);
}

dc_status dc_ops_add(dc_ops *ops, const char *text) {
  pthread_mutex_lock(&ops->lock);
  dc_status status = DC_OK;
  const char *start = NULL;
  for (const char *line = text; !status; line = line_end(line) + 1) {
    bool fresh = !*line || !continues(line);
    if (fresh && start) status = add_logical(ops, start, line);
    if (fresh) start = line;
    if (!*line || !*line_end(line)) {
      if (*line && !status && start) status = add_logical(ops, start, line_end(line));
      break;
    }
  }
  pthread_mutex_unlock(&ops->lock);
  return status;
}

dc_status dc_ops_create(dc_ops **out) {
  dc_ops *ops = calloc(1, sizeof *ops);
  if (!ops) return dc_error(DC_ERR_MEMORY, "out of memory");
  pthread_mutex_init(&ops->lock, NULL);
  *out = ops;
  dc_status status = dc_ops_add(ops, ops_text);
  if (status) dc_ops_destroy(ops);
  return status;
}

void dc_ops_destroy(dc_ops *ops) {
  if (!ops) return;
  for (uint32_t k = 0; k < ops->entries.n; k++) dc_status_free(ops->entries.v[k].failed);
  pthread_mutex_destroy(&ops->lock);
  dc_arena_free(&ops->arena);
  free(ops);
}

/* ---- looking up ---- */

static const dc_row *parsed(dc_ops *ops, entry *e) {
  if (!e->row && !e->failed) {
    dc_row *row = DC_NEW(&ops->arena, dc_row);
    row->name = e->name, row->domain = e->domain, row->since = e->since;
    e->failed = dc_lang_row(&ops->arena, e->header, e->text, row);
    if (!e->failed) e->failed = dc_lang_write_out(ops, &ops->arena, &row->body);
    if (!e->failed) e->failed = dc_lang_write_out(ops, &ops->arena, &row->grad);
    if (!e->failed) e->row = row;
  }
  return e->row;
}

dc_status dc_ops_lookup(dc_ops *ops, const char *domain, const char *op, int opset, const dc_row **out) {
  if (strcmp(domain, "ai.onnx") == 0) domain = "";
  pthread_mutex_lock(&ops->lock);
  entry *best = NULL;
  for (uint32_t k = 0; k < ops->entries.n; k++) { /* later rows win: users may replace a built-in one */
    entry *e = &ops->entries.v[k];
    if (e->since <= opset && (!best || e->since >= best->since) && strcmp(e->name, op) == 0 && strcmp(e->domain, domain) == 0) best = e;
  }
  *out = best ? parsed(ops, best) : NULL;
  dc_status status = DC_OK;
  if (best && best->failed) status = dc_error(DC_ERR_VALUE, "row %s.%d: %s", best->name, best->since, dc_status_text(best->failed));
  pthread_mutex_unlock(&ops->lock);
  return status;
}

const dc_row *dc_ops_find(dc_ops *ops, const char *domain, const char *op, int opset) {
  const dc_row *row;
  dc_status_free(dc_ops_lookup(ops, domain, op, opset, &row));
  return row;
}

const dc_row *dc_ops_row_of(dc_ops *ops, const dc_graph *graph, const dc_library *lib) {
  return dc_ops_find(ops, dc_name_text(&graph->names, lib->domain), dc_name_text(&graph->names, lib->op), lib->since);
}

dc_status dc_ops_row_at(dc_ops *ops, uint32_t index, const dc_row **out) {
  *out = NULL;
  pthread_mutex_lock(&ops->lock);
  dc_status status = DC_OK;
  if (index < ops->entries.n) {
    entry *e = &ops->entries.v[index];
    *out = parsed(ops, e);
    if (e->failed) status = dc_error(DC_ERR_VALUE, "row %s.%d: %s", e->name, e->since, dc_status_text(e->failed));
  }
  pthread_mutex_unlock(&ops->lock);
  return status;
}

bool dc_ops_key_at(dc_ops *ops, uint32_t k, dc_row_key *out) {
  pthread_mutex_lock(&ops->lock);
  bool found = k < ops->entries.n;
  if (found) *out = (dc_row_key){ops->entries.v[k].domain, ops->entries.v[k].name, ops->entries.v[k].since};
  pthread_mutex_unlock(&ops->lock);
  return found;
}

int dc_ops_newest(dc_ops *ops, const char *domain) {
  dc_row_key row;
  int newest = 0;
  for (uint32_t k = 0; dc_ops_key_at(ops, k, &row); k++)
    if (row.since > newest && strcmp(row.domain, domain) == 0) newest = row.since;
  return newest;
}

const dc_macro *dc_ops_macro(dc_ops *ops, const char *name) {
  for (uint32_t k = 0; k < ops->macros.n; k++)
    if (strcmp(ops->macros.v[k].name, name) == 0) return &ops->macros.v[k];
  return NULL;
}

/* ---- schema ---- */

const char *dc_row_name(const dc_row *row) { return row->name; }
const char *dc_row_domain(const dc_row *row) { return row->domain; }
int dc_row_since(const dc_row *row) { return row->since; }
uint32_t dc_row_inputs(const dc_row *row, const dc_row_arg **args) { return *args = row->in, row->n_in; }
uint32_t dc_row_outputs(const dc_row *row, const dc_row_arg **args) { return *args = row->out, row->n_out; }
uint32_t dc_row_attrs(const dc_row *row, const dc_row_attr **attrs) { return *attrs = row->attr, row->n_attr; }
bool dc_row_has_grad(const dc_row *row) { return row->grad.n > 0; }
bool dc_row_grad_keeps(const dc_row *row) { return row->grad_keeps; }
bool dc_row_is_native(const dc_row *row) { return row->body.n == 1 && row->body.v[0]->kind == STMT_NATIVE; }
const char *dc_row_native(const dc_row *row, uint32_t k) { return k < row->n_native ? row->native[k] : NULL; }

static bool is_strided(const dc_row *row, const char *name) {
  for (uint32_t k = 0; k < row->n_strided; k++)
    if (strcmp(row->strided[k], name) == 0) return true;
  return false;
}

bool dc_ops_takes_strides(dc_ops *ops, const dc_graph *graph, const dc_library *lib, dc_cid c) {
  const dc_row *row = lib->by && !lib->wrt ? dc_ops_row_of(ops, graph, lib) : NULL;
  bool all = row != NULL;
  for (uint32_t k = 0; k < lib->n_in && all; k++) all = lib->in[k] != c || (k < row->n_in && is_strided(row, row->in_sig[k].name));
  for (uint32_t k = 0; k < lib->n_out && all; k++) all = lib->out[k] != c || (k < row->n_out && is_strided(row, row->out_sig[k].name));
  return all;
}

bool dc_row_is_linear(const dc_row *row, uint32_t input) {
  bool found = false;
  for (uint32_t k = 0; k < row->n_linear && input < row->n_in; k++) found |= strcmp(row->linear[k], row->in_sig[input].name) == 0;
  return found;
}
const char *dc_row_text(const dc_row *row) { return row->text; }

static bool is_name(const dc_ast *a, const char *name) { return a->kind == AST_NAME && strcmp(a->name, name) == 0; }

/* Y@[i] over i:n = X@[i]: the same elements under another shape. */
bool dc_row_is_alias(const dc_row *row) {
  const dc_stmt *s = row->body.n == 1 ? row->body.v[0] : NULL;
  if (!s || s->kind != STMT_ASSIGN || !s->flat || s->wcr || s->n_binders != 1 || s->expr->kind != AST_READ) return false;
  const char *i = s->binders[0].name;
  return s->expr->flat && s->expr->n == 2 && is_name(s->expr->items[0], row->in_sig[0].name) && is_name(s->expr->items[1], i) &&
         is_name(s->index[0], i);
}

static bool ast_reads(const dc_ast *a) {
  if (!a) return false;
  if (a->kind == AST_READ || (a->kind == AST_CALL && strcmp(a->name, "ndidx") == 0)) return true;
  for (uint32_t k = 0; k < a->n; k++)
    if (ast_reads(a->items[k])) return true;
  return ast_reads(a->fallback) || ast_reads(a->guard);
}

static bool block_reads(const dc_block *block) {
  for (uint32_t k = 0; k < block->n; k++) {
    const dc_stmt *s = block->v[k];
    const bool reads = s->kind == STMT_NATIVE || s->kind == STMT_OPERATOR || ast_reads(s->expr);
    if (reads || block_reads(&s->body) || block_reads(&s->other)) return true;
  }
  return false;
}

bool dc_row_reads_data(const dc_row *row) { return block_reads(&row->body); }

/* Is it a read at a place that no data decide? */
static bool is_plain_read(const dc_ast *a) {
  bool plain = a->kind == AST_READ && !a->fallback && !a->guard;
  for (uint32_t k = 1; k < a->n && plain; k++) plain = !ast_reads(a->items[k]);
  return plain;
}

static bool block_moves(const dc_block *block) {
  bool moves = block->n > 0;
  for (uint32_t k = 0; k < block->n && moves; k++) {
    const dc_stmt *s = block->v[k];
    moves = s->kind == STMT_FOR ? block_moves(&s->body) : s->kind == STMT_ASSIGN && !s->wcr && is_plain_read(s->expr);
  }
  return moves;
}

bool dc_row_moves(const dc_row *row) { return block_moves(&row->body); }
