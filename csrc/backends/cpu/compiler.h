/* Inside the cpu backend: the system's C compiler as a child process, without a shell. */
#ifndef DCML_BACKENDS_CPU_COMPILER_H
#define DCML_BACKENDS_CPU_COMPILER_H

#include "backends/jit/toolchain.h"

/* They take different flags; zig also writes beside the object, into a folder <object>.d. */
enum dc_compiler_kind { DC_COMPILER_GCC, DC_COMPILER_CLANG, DC_COMPILER_ZIG };

/* $CC (if set, only that), else cc, gcc or clang in $PATH, else the program zig at `spare`, which may be NULL. */
void dc_compiler_find(const char *spare, dc_compiler *out);
void dc_compiler_free(dc_compiler *compiler);

/* Starts a compilation of `source` to the shared object `object`; messages go to the file `messages`. */
DC_MUST_USE dc_status dc_compiler_start(const dc_compiler *compiler, const char *source, const char *object, const char *messages,
                                        dc_job **job);
/* Waits, and takes the job; DC_ERR_COMPILE holds the first lines of the messages. */
DC_MUST_USE dc_status dc_compiler_finish(dc_job *job, const char *object, const char *messages);
bool dc_compiler_is_done(dc_job *job);

#endif
