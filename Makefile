# dcml: see `make help`.
CC ?= cc
PYTHON3 ?= python3
VENV_PATH ?= .venv# '': the Python that runs $(PYTHON3)
PYTHON ?= $(if $(VENV_PATH),$(VENV_PATH)/bin/python,$(PYTHON3))
CFLAGS ?= -O2 -g
WARN = -std=gnu11 -Wall -Wextra -Werror -Wno-maybe-uninitialized
OUT ?= build/c
CORE := $(filter-out csrc/python/%,$(wildcard csrc/*.c csrc/*/*.c csrc/*/*/*.c))
OBJ := $(CORE:%.c=$(OUT)/%.o) $(OUT)/onnx.pb-c.o
TESTS := $(patsubst tests/c/%.c,$(OUT)/%,$(wildcard tests/c/test_*.c))
LDLIBS += -lprotobuf-c -lm -ldl -lpthread -fopenmp
TORCH ?= torch==$(or $(TORCH_VERSION),2.13.0)
SANITIZERS = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-format-truncation
JOBS = -j$(shell nproc)# what compiles side by side; tests that run in C take turns
MUTANTS ?= 20000
GRAPHS ?= 10000
COMPILE ?= 500
SEED ?= 1
SOURCES = $(wildcard csrc/*.[ch] csrc/*/*.[ch] csrc/*/*.def csrc/*/*/*.[ch] csrc/*/*/*.def tools/*.py)
NEEDED = scripts/setup.sh pyproject.toml setup.py $(SOURCES)
INSTALL = PYTHON3="$(PYTHON3)" VENV_PATH="$(VENV_PATH)" TORCH="$(TORCH)" TORCH_VERSION="$(TORCH_VERSION)" sh scripts/setup.sh
LIBRARIES = $(shell $(PYTHON) -c 'import sys; print(sys.prefix + "/lib")')
FAKE_CUDA = $(shell $(PYTHON) $(wildcard tests/cuda/fake/build.py) </dev/null 2>/dev/null)
PIP = $(PYTHON) -m pip --disable-pip-version-check -q
.SECONDARY:
.DEFAULT_GOAL := help

help:    ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# ---- for users ----

setup: $(if $(VENV_PATH),$(VENV_PATH)/.ready,current)    ## install what is missing (apt and pip) and build the extension
install: setup         ## the same; VENV_PATH=folder, '' for the current Python; TORCH_VERSION=2.12.0
demo: setup            ## train the digits network beside PyTorch; writes digits-report.html
	$(PYTHON) examples/digits.py
test: setup            ## run every test, C and Python
	$(MAKE) $(JOBS) ctest
	$(MAKE) $(JOBS) fuzz MUTANTS=5000
	$(MAKE) $(JOBS) fuzz-passes GRAPHS=4000
	$(MAKE) $(JOBS) fuzz-passes SANITIZE=1 GRAPHS=200 COMPILE=0
	OMP_WAIT_POLICY=passive $(PYTHON) -m pytest -q -n 2 tests
test-parallel: setup   ## the Python tests, on every core, a file in one process
	OMP_WAIT_POLICY=passive $(PYTHON) -m pytest -q -n auto --dist loadfile tests
test-all: setup        ## what takes long: all families, every sample of torch's databases in four types; goes on where it ended
	OMP_WAIT_POLICY=passive $(PYTHON) -m pytest -q -n auto --all tests/pytorch/families
	DCML_MODULE_DB=0 OMP_WAIT_POLICY=passive $(PYTHON) -m pytest -q -n auto --all tests/pytorch/test_module_db.py
	$(PYTHON) tools/refused.py --jobs $(shell nproc)
test-gpu: setup        ## the Python tests that a GPU is for, and those of the CUDA target on it
	$(PYTHON) -m pytest -q --gpu -m gpu --ignore=tests/cuda tests
	$(PYTHON) -m pytest -q --gpu tests/cuda
doc: setup             ## the manual, in build/doc
	@$(PIP) install -r docs/requirements.txt
	$(PYTHON) -m sphinx -q -W -E --keep-going -b html docs build/doc
doctest: setup         ## run every code block of the manual and of docstrings
	@$(PIP) install -r docs/requirements.txt
	$(PYTHON) -m sphinx -q -W -E -b doctest docs build/doctest
	$(PYTHON) -m pytest -q --doctest-modules -p no:cacheprovider --ignore=python/dcml/op.py python/dcml
wheel: setup           ## a wheel that needs no compiler to install, and the source archive, in dist/
	PYTHON=$(PYTHON) sh scripts/wheel.sh
wheel-test: wheel      ## the Python tests with what is in dist/, in empty environments
	PYTHON3="$(PYTHON3)" TORCH="$(TORCH)" sh scripts/wheel-test.sh
bench: setup           ## measure against every opponent that is installed, in turns; bench/run.py --help: more
	$(PYTHON) bench/run.py
bench-ops: setup       ## measure operators alone against eager PyTorch; bench/ops.py --help: more
	$(PYTHON) bench/ops.py
bench-cuda: setup      ## measure on a GPU, in at most 10 minutes; bench/cuda.py --help: more
	$(PYTHON) bench/cuda.py

$(VENV_PATH)/.ready: $(NEEDED)
	$(INSTALL)
	@touch $@
current:
	$(INSTALL)

# ---- for developers ----

lib: $(OUT)/libdcml.a  ## build the C core as a static library, warnings as errors
ctest: $(TESTS)        ## build and run the C tests
	@for t in $(TESTS); do echo "== $$t"; DCML_VERIFY=1 DCML_LIBRARIES=$(LIBRARIES) DCML_TEST_CUDA=$(FAKE_CUDA) $$t || exit 1; done
asan:                  ## the C tests, and every ONNX backend case, under the address and undefined-behaviour sanitizers
	$(MAKE) ctest fuzzed MUTANTS=0 OUT=build/asan CFLAGS="$(SANITIZERS)"
fuzz:                  ## mutants of the ONNX backend cases, under the sanitizers; MUTANTS=n SEED=n choose them
	$(MAKE) fuzzed OUT=build/fuzz CFLAGS="$(SANITIZERS) -fsanitize-coverage=trace-pc"
fuzzed: $(OUT)/fuzz_onnx build/fuzz/seeds/.ready
	$(OUT)/fuzz_onnx -mutants $(MUTANTS) -seed $(SEED) build/fuzz/seeds
fuzz-passes:           ## random graphs after each pass against the interpreter; GRAPHS=n SEED=n COMPILE=k (every k-th), SANITIZE=1
	$(MAKE) passes-fuzzed $(if $(SANITIZE),OUT=build/asan CFLAGS="$(SANITIZERS)")
passes-fuzzed: $(OUT)/fuzz_passes
	DCML_LIBRARIES=$(LIBRARIES) $(OUT)/fuzz_passes -graphs $(GRAPHS) -seed $(SEED) -compile $(COMPILE) -folder build/fuzz-passes
check: lib ctest       ## what to run before a commit
	$(PYTHON) -m pytest -q tests/test_layers.py
check-formatting:      ## lint the Python code: pyproject.toml says by which rules
	@$(PIP) install "ruff>=0.12"
	$(PYTHON) -m ruff check
check-formatting-names: ## only the names of the files that fail
	@$(PIP) install "ruff>=0.12"
	@$(PYTHON) -m ruff check -q --output-format json | $(PYTHON) -c "import json, os, sys; \
	  names = {os.path.relpath(row['filename']) for row in json.load(sys.stdin)}; print(*sorted(names), sep='\n'); sys.exit(bool(names))"
clean:                 ## remove everything that was built
	rm -rf build dist .venv python/dcml/*.so

$(OUT)/libdcml.a: $(OBJ)
	@rm -f $@; ar rcs $@ $(OBJ)
$(OUT)/gen/ops_text.h: csrc/ops/ops.def tools/embed.py
	@mkdir -p $(dir $@)
	$(PYTHON) tools/embed.py $< $@ ops_text
$(OUT)/gen/onnx.pb-c.c $(OUT)/gen/onnx.pb-c.h &:
	@mkdir -p $(OUT)/gen
	$(PYTHON) tools/proto.py $(OUT)/gen
$(OUT)/onnx.pb-c.o: $(OUT)/gen/onnx.pb-c.c
	$(CC) -std=gnu11 -w $(CFLAGS) -fPIC -I$(OUT)/gen -c $< -o $@
$(OUT)/%.o: %.c | $(OUT)/gen/ops_text.h $(OUT)/gen/onnx.pb-c.h
	@mkdir -p $(dir $@)
	$(CC) $(WARN) $(CFLAGS) -fPIC -fopenmp -Icsrc -I$(OUT)/gen -MMD -c $< -o $@
$(OUT)/csrc/ops/table.o: $(OUT)/gen/ops_text.h
$(OUT)/test_%: tests/c/test_%.c $(OUT)/libdcml.a
	$(CC) $(WARN) $(CFLAGS) -Icsrc -Itests -Itests/c -I$(OUT)/gen $(filter %.c,$^) $(OUT)/libdcml.a $(LDLIBS) -o $@
$(OUT)/fuzz_onnx: tests/fuzz/main.c tests/fuzz/target.c tests/fuzz/target.h $(OUT)/libdcml.a
	$(CC) $(WARN) $(CFLAGS) -Icsrc -Itests -I$(OUT)/gen $(filter %.c %.a,$^) $(LDLIBS) -o $@
$(OUT)/fuzz_passes: $(addprefix tests/fuzz/,passes.c generate.c build.c) $(wildcard tests/fuzz/*.h) $(OUT)/libdcml.a
	$(CC) $(WARN) $(CFLAGS) -Icsrc -Itests -I$(OUT)/gen $(filter %.c %.a,$^) $(LDLIBS) -o $@
build/fuzz/seeds/.ready: tests/fuzz/seeds.py
	$(PYTHON) tests/fuzz/seeds.py $(dir $@)
	@touch $@

.PHONY: help setup install current demo test test-parallel test-all test-gpu doc doctest check-formatting check-formatting-names wheel wheel-test bench bench-ops bench-cuda lib ctest asan fuzz fuzzed fuzz-passes passes-fuzzed check clean
-include $(OBJ:.o=.d)
