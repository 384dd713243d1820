/* Inside the cpu backend: what emit.c, sums.c and tasks.c call of each other. */
#ifndef DCML_BACKENDS_CPU_PRINT_H
#define DCML_BACKENDS_CPU_PRINT_H

#include "backends/cpu/emit.h"

/* Text that is printed before what must stand above it is known. */
typedef struct {
  dc_text *outer, inner;
  bool flagged;
} saved_text;
void dc_cpu_open_text(emitter *e, saved_text *s);
void dc_cpu_close_text(emitter *e, saved_text *s); /* appends the inner text to the outer */

/* emit.c */
void dc_cpu_emit_body(emitter *e, loop *l);
void dc_cpu_emit_loop(emitter *e, loop *l);
void dc_cpu_emit_range(emitter *e, loop *l, const char *begin, const char *end);
void dc_cpu_emit_plain(emitter *e, loop *l, const char *begin, const char *end); /* the loop itself, with accumulators as they are */

/* sums.c */
bool dc_cpu_is_laned(const emitter *e, const accumulator *a); /* of each lane of the strip that encloses */
bool dc_cpu_accumulates(const loop *l, uint32_t a, bool deep); /* writes to accumulator a in its body, or in loops inside too */
void dc_cpu_open_accumulators(emitter *e, const loop *home);
uint32_t dc_cpu_lanes(emitter *e, const loop *l); /* that a reduction runs in; 0: none, or any order does */
void dc_cpu_emit_sums(emitter *e, loop *l, uint32_t lanes, const char *begin, const char *end); /* the loop, its sums in blocks */

/* tasks.c */
bool dc_cpu_emit_tasks(emitter *e, loop *l); /* false: the loop is not worth or not able to be split */
void dc_cpu_open_function(emitter *e, const char *suffix, const char *params);
void dc_cpu_close_function(emitter *e);
void dc_cpu_call(emitter *e, const char *suffix, const char *args, dc_text *out);

#endif
