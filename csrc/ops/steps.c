/* Statements that several rows have in common: `def turn(X,n) { ... }` and, in a row's body, `turn(Q,J)`.
 *
 * A row that is parsed gets a copy of the statements in place of the call, with what the call gives in place of the
 * parameters, as if they had been written there: nothing behind this file knows of calls. */
#include <string.h>

#include "ops/lang.h"

enum { MAX_NESTED = 8 };

typedef struct {
  dc_ops *ops;
  dc_arena *arena;
  const dc_macro *macro; /* NULL: in the row's own statements */
  const dc_ast *const *given;
} copier;

typedef DC_VEC(const dc_stmt *) stmt_list;

/* What stands for a parameter; NULL: the name is none. */
static const dc_ast *given_for(const copier *c, const char *name) {
  for (uint32_t k = 0; c->macro && name && k < c->macro->n_params; k++)
    if (strcmp(c->macro->params[k], name) == 0) return c->given[k];
  return NULL;
}

static const char *name_for(const copier *c, const char *name) {
  const dc_ast *given = given_for(c, name);
  return given && given->kind == AST_NAME ? given->name : name;
}

static const dc_ast *copy_ast(const copier *c, const dc_ast *ast);

static const dc_ast **copy_asts(const copier *c, const dc_ast *const *from, uint32_t n) {
  const dc_ast **to = DC_NEW_ARRAY(c->arena, const dc_ast *, n);
  for (uint32_t k = 0; k < n; k++) to[k] = copy_ast(c, from[k]);
  return to;
}

static const dc_binder *copy_binders(const copier *c, const dc_binder *from, uint32_t n) {
  dc_binder *to = dc_arena_copy(c->arena, from, n * sizeof *from);
  for (uint32_t k = 0; k < n; k++) to[k].extent = copy_ast(c, from[k].extent);
  return to;
}

static const dc_ast *copy_ast(const copier *c, const dc_ast *ast) {
  if (!ast || !c->macro) return ast;
  const dc_ast *given = ast->kind == AST_NAME ? given_for(c, ast->name) : NULL;
  if (given) return given;
  dc_ast *to = dc_arena_copy(c->arena, ast, sizeof *ast);
  if (ast->kind == AST_ITEM) to->name = name_for(c, ast->name);
  to->items = copy_asts(c, ast->items, ast->n);
  to->fallback = copy_ast(c, ast->fallback), to->guard = copy_ast(c, ast->guard);
  to->binders = copy_binders(c, ast->binders, ast->n_binders);
  return to;
}

static dc_status copy_block(const copier *c, const dc_block *from, int nested, dc_block *to);

static dc_status copy_call(const copier *c, const dc_stmt *s, int nested, stmt_list *out) {
  const dc_macro *macro = dc_ops_macro(c->ops, s->target);
  if (!macro || !macro->steps.n) return dc_error(DC_ERR_VALUE, "there are no statements '%s'", s->target);
  if (macro->n_params != s->n_index) return dc_error(DC_ERR_VALUE, "'%s' takes %u arguments", s->target, macro->n_params);
  if (nested == MAX_NESTED) return dc_error(DC_ERR_VALUE, "the statements '%s' are nested too deeply", s->target);
  const copier inner = {c->ops, c->arena, macro, copy_asts(c, s->index, s->n_index)};
  dc_block block;
  DC_TRY(copy_block(&inner, &macro->steps, nested + 1, &block));
  for (uint32_t k = 0; k < block.n; k++) DC_PUSH(c->arena, out, block.v[k]);
  return DC_OK;
}

static dc_status copy_block(const copier *c, const dc_block *from, int nested, dc_block *to) {
  stmt_list list = {0};
  for (uint32_t k = 0; k < from->n; k++) {
    const dc_stmt *s = from->v[k];
    if (s->kind == STMT_CALL) {
      DC_TRY(copy_call(c, s, nested, &list));
      continue;
    }
    dc_stmt *copy = dc_arena_copy(c->arena, s, sizeof *s);
    copy->target = name_for(c, s->target), copy->item = copy_ast(c, s->item), copy->expr = copy_ast(c, s->expr);
    copy->index = copy_asts(c, s->index, s->n_index);
    copy->binders = copy_binders(c, s->binders, s->n_binders);
    dc_define *attr = dc_arena_copy(c->arena, s->attr, s->n_attr * sizeof *attr);
    for (uint32_t j = 0; j < s->n_attr; j++) attr[j].value = copy_ast(c, attr[j].value);
    copy->attr = attr;
    DC_TRY(copy_block(c, &s->body, nested, &copy->body));
    DC_TRY(copy_block(c, &s->other, nested, &copy->other));
    DC_PUSH(c->arena, &list, copy);
  }
  return *to = (dc_block){list.v, list.n}, DC_OK;
}

static bool has_calls(const dc_block *block) {
  for (uint32_t k = 0; k < block->n; k++)
    if (block->v[k]->kind == STMT_CALL || has_calls(&block->v[k]->body) || has_calls(&block->v[k]->other)) return true;
  return false;
}

dc_status dc_lang_write_out(dc_ops *ops, dc_arena *arena, dc_block *block) {
  const copier c = {.ops = ops, .arena = arena};
  const dc_block own = *block;
  return has_calls(block) ? copy_block(&c, &own, 0, block) : DC_OK;
}
