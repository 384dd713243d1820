/* Parts of a graph's text, for who shows them apart: expressions in the scope of maps, in which names may stand for READs. */
#ifndef DCML_IR_PRINT_H
#define DCML_IR_PRINT_H

#include "ir/graph.h"

/* The name that stands for a READ, and of which dimensions the indices follow it; NULL: the container's, and all. */
typedef const char *(*dc_alias_fn)(void *context, dc_ex read, bool *shown);

typedef struct dc_printer dc_printer;
dc_printer *dc_printer_new(const dc_graph *graph, dc_arena *arena, dc_alias_fn alias, void *context);
/* Enters a parameter's scope: the name under which it prints, which no parameter around and no symbol has. */
const char *dc_printer_push(dc_printer *p, dc_param param);
void dc_printer_pop(dc_printer *p, uint32_t n);
void dc_printer_expr(dc_printer *p, dc_ex e, dc_text *out);
void dc_printer_list(dc_printer *p, const dc_ex *items, uint32_t n, dc_text *out); /* "[a, b]" */
/* `target = value if guard`, a line each for it and for what is named before it; in Python's spelling a guard is a block. */
void dc_printer_statement(dc_printer *p, const char *target, dc_ex value, dc_ex guard, bool is_python, dc_text *out);
void dc_attrs_print(const dc_graph *graph, dc_nid library, dc_text *out); /* " {a = 1}", nothing without any */

#endif
