# dcml: see `make help`.
CC ?= cc
PYTHON ?= .venv/bin/python
CFLAGS ?= -O2 -g
WARN = -std=gnu11 -Wall -Wextra -Werror -Wno-maybe-uninitialized
OUT ?= build/c
CORE := $(filter-out csrc/python/%,$(wildcard csrc/*.c csrc/*/*.c csrc/*/*/*.c))
OBJ := $(CORE:%.c=$(OUT)/%.o) $(OUT)/onnx.pb-c.o
TESTS := $(patsubst tests/c/%.c,$(OUT)/%,$(wildcard tests/c/test_*.c))
LDLIBS += -lprotobuf-c -lm -ldl -lpthread -fopenmp
.SECONDARY:

lib: $(OUT)/libdcml.a       ## build the C core as a static library
ctest: $(TESTS)             ## build and run the C tests
	@for t in $(TESTS); do echo "== $$t"; $$t || exit 1; done

$(OUT)/libdcml.a: $(OBJ)
	@rm -f $@; ar rcs $@ $(OBJ)
$(OUT)/gen/ops_text.h: csrc/ops/ops.def tools/embed.py
	@mkdir -p $(dir $@)
	python3 tools/embed.py $< $@ ops_text
$(OUT)/gen/onnx.pb-c.c $(OUT)/gen/onnx.pb-c.h &:
	@mkdir -p $(OUT)/gen
	$(PYTHON) tools/proto.py "$$($(PYTHON) -c 'import onnx, os; print(os.path.join(os.path.dirname(onnx.__file__), "onnx-ml.proto"))')" $(OUT)/gen
$(OUT)/onnx.pb-c.o: $(OUT)/gen/onnx.pb-c.c
	$(CC) -std=gnu11 -w $(CFLAGS) -fPIC -I$(OUT)/gen -c $< -o $@
$(OUT)/%.o: %.c | $(OUT)/gen/ops_text.h $(OUT)/gen/onnx.pb-c.h
	@mkdir -p $(dir $@)
	$(CC) $(WARN) $(CFLAGS) -fPIC -fopenmp -Icsrc -I$(OUT)/gen -MMD -c $< -o $@
$(OUT)/test_%: tests/c/test_%.c $(OUT)/libdcml.a
	$(CC) $(WARN) $(CFLAGS) -Icsrc -I$(OUT)/gen $< $(OUT)/libdcml.a $(LDLIBS) -o $@
help:                       ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'
.PHONY: lib ctest help
-include $(OBJ:.o=.d)
