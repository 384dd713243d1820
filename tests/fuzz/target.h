/* The name that libFuzzer looks for. */
#ifndef DCML_TESTS_FUZZ_TARGET_H
#define DCML_TESTS_FUZZ_TARGET_H

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
