/* Lines of text, and text that waits for what must stand above it. */
#include <stdarg.h>
#include <stdio.h>

#include "backends/printer/printer.h"

void dc_print_line(dc_printer *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char small[512], *line = small;
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, format, args);
  if (n >= (int)sizeof small) {
    line = dc_arena_alloc(p->arena, (size_t)n + 1);
    vsnprintf(line, (size_t)n + 1, format, again);
  }
  va_end(again);
  va_end(args);
  dc_text_indent(p->out, p->indent);
  dc_text_puts(p->out, line);
  dc_text_puts(p->out, "\n");
}

void dc_print_open(dc_printer *p, const char *head) {
  dc_print_line(p, "%s {", head);
  p->indent++;
}

void dc_print_close(dc_printer *p) {
  p->indent--;
  dc_print_line(p, "}");
}

void dc_print_defer(dc_printer *p, dc_deferred_text *text) {
  *text = (dc_deferred_text){.outer = p->out, .flagged = p->flagged};
  dc_text_puts(&text->inner, "");
  p->out = &text->inner;
  p->flagged = false;
}

void dc_print_undefer(dc_printer *p, dc_deferred_text *text) {
  p->out = text->outer;
  dc_text_puts(p->out, text->inner.s);
  dc_text_free(&text->inner);
  p->flagged = p->flagged || text->flagged;
}
