# Thin targets over CMake, Ninja and the scripts; `make demo` and `make test` do everything on a fresh machine.
JOBS ?= $(shell nproc)
# Tests: some of them wait most of their time.
TEST_JOBS ?= $(shell echo $$(( $(JOBS) + 1 )))
# Threads that wait for each other beside other tests: a look of a microsecond, then sleep. Without the look tiny runs take half as long again.
SHARED_CORES := OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=100
# test: ctest's options besides, such as TEST_FLAGS="-R recipe". Of grids and long suites it runs the third that the landing of this number runs
# (scripts/ci.py): WHOLE=1 runs all of them.
TEST_FLAGS ?=
WHOLE ?=
PLIMSOLL := build/plimsoll
PREFIX ?= /usr/local
PARITY_PYTHON := .deps/parity/bin/python3
RECIPES_PYTHON ?= python3
# Two of the golden tokenizers; the script without arguments compares all of them (about five minutes).
PARITY_TOKENIZERS := tests/golden/tokenizers/qwen2.json tests/golden/tokenizers/llama3.json
ROUNDS ?= 5
CASES ?=
BENCH_OUT ?= bench/results
FAULTS ?= 2000
RANKS_FAULTS ?= 200
POWER_CUTS ?= 500
HOSTILE_ROWS ?= 500
empty :=
space := $(empty) $(empty)
# What the build is configured with besides: CMAKE_FLAGS="-DPLIMSOLL_CUDA=OFF".
CMAKE_FLAGS ?=
RUNS ?= 1000000
# fuzz: seconds of each target; none: its runs alone decide.
FUZZ_SECONDS ?=
SANITIZED ?= _test$$|^(bad_input|faults)$$
# sanitize: folders of src/ that have sanitizers in them and whose unit tests run, `fuzz` (the corpora) and `programs` (bad input, faults); none: sanitizers
# in all, and all that SANITIZED names.
SANITIZE_FOLDERS ?=
# kernels: compute capabilities that nvcc compiles for.
KERNELS_FOR ?= 75;120
# wheel: compute capabilities that its kernels are compiled for where nvcc is found, and the one that drivers compile for cards after those.
WHEEL_FOR ?= 75;80
WHEEL_PTX ?= 80
# parity: which comparisons run.
PARITY ?= run package scores adapters folders freeze fp16 dpo gla seq2seq events gguf ops optimizers templates tokenizers vocabularies bleu
# gpu-check, gpu-bench: the device that is asked, and where programs are that were built elsewhere (make gpu-carry).
GPU_DEVICE ?= cuda
GPU_TOOLS ?=
# gpu-first: seconds of a call, and the sections that it has (c,d); none: all.
GPU_SECONDS ?= 540
GPU_SECTIONS ?=
# gpu-carry: compute capabilities of the cards that it is carried to.
CARRY_FOR ?= 90
FUZZ_TARGETS ?= $(patsubst tests/fuzz/%_fuzz.cc,%,$(wildcard tests/fuzz/*_fuzz.cc))
CLANG_FORMAT ?= clang-format-14
SOURCES = $(shell git ls-files '*.cc' '*.h' '*.cu')

.PHONY: build install archive wheel test test-isas gpu-mutants planner-mutants gpu-orders gpu-check gpu-bench gpu-first gpu-carry demo recipes parity kernels everything loadline hostile-rows limits faults ranks-faults devices-cases ranks-mutants powercut bench oracle golden sanitize fuzz fmt check-format check docs pictures setup setup-dev setup-parity setup-fuzz setup-wheel setup-docs setup-types setup-notebooks notebooks types cases cpu-mutants model-mutants clean

# The program alone; tests and benches are built by those that run them.
build: setup
	cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=NOTICE -DPLIMSOLL_LEFT_OUT= $(CMAKE_FLAGS)
	cmake --build build --target plimsoll -j $(JOBS)

# PREFIX (/usr/local) is where it will be used, DESTDIR a folder to put in front of it for packages.
install: build
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

# A .tar.gz in build/ that runs where it is unpacked: Debian 12, Ubuntu 22.04 and later.
archive: build
	scripts/make_archive.py build build/archive

# A Python wheel in build/wheel, plimsoll-ml, with the platform tag that auditwheel proves, of a build of its own for more GPUs than build/ is for.
wheel: setup setup-wheel
	cmake -S . -B build-wheel -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=NOTICE "-DPLIMSOLL_NVCC_PTX=$(WHEEL_PTX)" "-DPLIMSOLL_NVCC_ARCHITECTURES=$(WHEEL_FOR)" $(CMAKE_FLAGS)
	cmake --build build-wheel --target plimsoll -j $(JOBS)
	python3 scripts/make_wheel.py build-wheel build/wheel --tools .deps/wheel

# The Python package, its test and the notebooks: types by two checkers, and the oldest Python that the package's sources are for.
types: setup-types
	python3 scripts/notebook_sources.py build/notebooks
	.deps/types/bin/python3 -m mypy --strict python/plimsoll_ml
	MYPYPATH=python:tests .deps/types/bin/python3 -m mypy --strict --follow-imports=silent tests/package_test.py
	for book in build/notebooks/*.py; do MYPYPATH=python .deps/types/bin/python3 -m mypy --strict $$book || exit 1; done
	.deps/types/bin/pyright -p tests/pyright.json
	.deps/types/bin/vermin --no-tips -t=3.9- python/plimsoll_ml

# The six notebooks by papermill, in a kernel, with a tiny model on the CPU (make test runs their cells without it).
notebooks: build setup-notebooks
	.deps/notebooks/bin/python3 tests/notebooks_test.py $(PLIMSOLL)

test: build
	cmake --build build -j $(JOBS)
	$(if $(WHOLE),,PLIMSOLL_SHARDS="$${PLIMSOLL_SHARDS-$$(python3 scripts/ci.py --slices)}") $(SHARED_CORES) \
	  ctest --test-dir build --output-on-failure -j $(TEST_JOBS) $(or $(TEST_FLAGS),$(if $(WHOLE),,-E '$(shell python3 scripts/ci.py --other-thirds)'))

# The tests that touch kernels again, as lesser machines than this one would run them.
test-isas: build
	cmake --build build -j $(JOBS)
	scripts/test_instruction_sets.py build

demo: build
	PLIMSOLL=$(PLIMSOLL) demo/run.sh

# Five situations, each from its first command to its last table (docs/cases).
cases: build
	python3 tests/docs_test.py $(PLIMSOLL) docs/cases/*.md

# The engine against PyTorch, transformers, PEFT and bitsandbytes; event files read by TensorBoard; GGUF files by llama.cpp.
# They run side by side as forks of one process that has imported PyTorch; each is a target too (parity-dpo).
parity: build setup-parity
	cmake --build build -j $(JOBS) --target plimsoll_op_tool plimsoll_optimizer_tool plimsoll_tokenize_tool plimsoll_template_tool plimsoll_bleu_tool
	$(SHARED_CORES) $(PARITY_PYTHON) -m tests.parity --jobs $(JOBS) $(PARITY)
parity-run:
	$(PARITY_PYTHON) -m unittest -q tests.parity.compare_test
	$(PARITY_PYTHON) -m tests.parity.run --plimsoll $(PLIMSOLL)
parity-package parity-scores parity-adapters parity-folders parity-freeze parity-fp16 parity-dpo parity-gla parity-seq2seq parity-events: parity-%:
	$(PARITY_PYTHON) -m tests.parity.$* --plimsoll $(PLIMSOLL)
parity-gguf:
	$(PARITY_PYTHON) -m tests.parity.gguf_files --plimsoll $(PLIMSOLL)
parity-ops:
	$(PARITY_PYTHON) -m tests.parity.ops --tool build/src/ops/plimsoll_op_tool
parity-optimizers:
	$(PARITY_PYTHON) -m tests.parity.optimizers --tool build/src/ops/plimsoll_optimizer_tool
parity-templates:
	$(PARITY_PYTHON) -m tests.parity.templates --tool build/tests/parity/plimsoll_template_tool
parity-tokenizers:
	$(PARITY_PYTHON) scripts/parity_tokenizer.py $(PARITY_TOKENIZERS)
parity-vocabularies:
	$(PARITY_PYTHON) -m tests.parity.vocabularies --tool build/tests/parity/plimsoll_tokenize_tool
parity-bleu:
	$(PARITY_PYTHON) scripts/parity_bleu.py build/tests/parity/plimsoll_bleu_tool

# CUDA's compiler over all kernels, and the program with the CUDA backend.
kernels: setup
	cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=NOTICE -DPLIMSOLL_CUDA=ON -DPLIMSOLL_NVCC_PTX= "-DPLIMSOLL_NVCC_ARCHITECTURES=$(KERNELS_FOR)"
	cmake --build build -j $(JOBS) --target plimsoll plimsoll_card_check
	ctest --test-dir build --output-on-failure -R '^(gpu_symbols|gpu_sass|gpu_carry|devices)$$'

# Everything that .ci/run cuts into shards, in one run, the lesser instruction sets with every suite, all hostile rows and limits,
# a minute of each fuzz target, and the site of docs/.
everything:
	CI_SHARD=all scripts/ci.py
	scripts/test_instruction_sets.py build --all
	$(MAKE) hostile-rows limits docs types wheel notebooks devices-cases ranks-mutants
	python3 tests/wheel_test.py build-wheel/plimsoll
	$(MAKE) fuzz RUNS=-1 FUZZ_SECONDS=60

# 300 random recipes, each run under a hard cap of its planned bytes; about five minutes.
loadline: build
	python3 tests/loadline/run.py --plimsoll $(PLIMSOLL)
	test ! -f build/libplimsoll_mpi.so || for ranks in 2 3; do python3 tests/loadline/run.py --plimsoll $(PLIMSOLL) --devices $$ranks --count 40 || exit 1; done

# 500 rows whose text takes far more memory than its bytes, each trained under a hard cap of its planned bytes.
hostile-rows: build
	python3 tests/loadline/hostile_rows.py --plimsoll $(PLIMSOLL) --count $(HOSTILE_ROWS)

# 200 commands of the queue that share memory within their reservation, and 100 that take more.
limits: build
	python3 tests/queue_limits_test.py $(PLIMSOLL) --within 200 --beyond 100

# 2,000 faults in train, resume, overwrite, merge and convert: FAULTS=200 is a quick look.
faults: build
	cmake --build build --target fault_shim -j $(JOBS)
	python3 tests/faults/faults_test.py $(PLIMSOLL) build/tests/libfault_shim.so --count $(FAULTS)

# 200 faults in runs of two and three processes: one is killed or stopped, a system call fails, the disk is full, a loss is lost.
ranks-faults: build
	cmake --build build --target fault_shim -j $(JOBS)
	python3 tests/faults/ranks_faults_test.py $(PLIMSOLL) build/tests/libfault_shim.so --count $(RANKS_FAULTS)

# Every family, task and method on two, three and four processes: 20 steps with the losses of one.
devices-cases: build
	python3 tests/devices_cases_test.py $(PLIMSOLL) --all

# Faults in what several devices share, each of which a test must notice, one at a time.
ranks-mutants: build
	cmake --build build --target ranks_test passes_test train_test data_test -j $(JOBS)
	python3 tests/ranks_mutants.py build

# 500 power cuts in train, resume, overwrite, dpo, merge, convert and the queue, and every flush that counts taken out.
powercut: build
	cmake --build build --target record_shim -j $(JOBS)
	python3 tests/powercut/powercut_test.py $(PLIMSOLL) build/tests/librecord_shim.so --count $(POWER_CUTS) --mutants 99

# Faults in kernels for GPUs, each of which the emulated card's tests must notice, one at a time.
gpu-mutants: build
	cmake --build build --target ops_gpu_emulated_test ops_gpu_checked_test -j $(JOBS)
	python3 tests/gpu_mutants.py build

# Faults in what keeps packed rows apart on CPUs, each of which its tests must notice, one at a time.
cpu-mutants: build
	cmake --build build --target ops_cpu_test delta_rule_kernels_test data_test -j $(JOBS)
	python3 tests/cpu_mutants.py build

# Faults in the planner's bounds and in the terms of its seconds, each of which its tests must notice, one at a time.
planner-mutants: build
	cmake --build build --target plan_test -j $(JOBS)
	python3 tests/planner_mutants.py build

# Rules of families taken out, each of which a unit test or the comparison with transformers must notice, one at a time.
model-mutants: build setup-parity
	cmake --build build --target models_test -j $(JOBS)
	$(PARITY_PYTHON) -m tests.model_mutants build

# Tiny runs of every family with everything moved to the host, in 20 orders of the emulated card's queues: the same bits.
gpu-orders: build
	PLIMSOLL_SEEDS=20 python3 tests/emulated_test.py $(PLIMSOLL) -k every_order

# Everything that a card has to do right, in less than nine minutes. GPU_DEVICE=emulated asks the emulated one.
gpu-check:
	$(if $(GPU_TOOLS),,cmake --build build --target plimsoll plimsoll_card_check -j $(JOBS))
	python3 tests/gpu/check.py --device $(GPU_DEVICE) --plimsoll $(if $(GPU_TOOLS),$(GPU_TOOLS),build)/plimsoll \
	  --tool $(if $(GPU_TOOLS),$(GPU_TOOLS),build/tests/gpu)/plimsoll_card_check

# The planner's search against every variant of its space: cases that tests leave out too, and ORACLE_TIMES times as many budgets.
# ORACLE_SEED=7 draws other budgets than tests have.
ORACLE_TIMES ?= 10
oracle: build
	cmake --build build --target plan_test -j $(JOBS)
	PLIMSOLL_ORACLE_TIMES=$(ORACLE_TIMES) $(if $(ORACLE_SEED),PLIMSOLL_ORACLE_SEED=$(ORACLE_SEED)) build/src/plan/plan_test --gtest_filter='*EveryBudget*'

# How fast a card is and models train on it, beside transformers + PEFT where this Python has them; less than nine minutes.
gpu-bench:
	$(if $(GPU_TOOLS),,cmake --build build --target plimsoll plimsoll_card_check -j $(JOBS))
	$(if $(wildcard $(PARITY_PYTHON)),$(PARITY_PYTHON),python3) bench/gpu.py --device $(GPU_DEVICE) \
	  --plimsoll $(if $(GPU_TOOLS),$(GPU_TOOLS),build)/plimsoll --tool $(if $(GPU_TOOLS),$(GPU_TOOLS),build/tests/gpu)/plimsoll_card_check

# The first minutes with a card: what no card has run comes first. Ends by itself after GPU_SECONDS, and goes on when it is called again.
gpu-first:
	$(if $(GPU_TOOLS),,cmake --build build --target plimsoll plimsoll_card_check -j $(JOBS))
	python3 tests/gpu/first.py --device $(GPU_DEVICE) --seconds $(GPU_SECONDS) $(if $(GPU_SECTIONS),--sections $(GPU_SECTIONS)) \
	  --plimsoll $(if $(GPU_TOOLS),$(GPU_TOOLS),build)/plimsoll --tool $(if $(GPU_TOOLS),$(GPU_TOOLS),build/tests/gpu)/plimsoll_card_check

# A folder in build/ for a machine that has a card and little else: there, make gpu-first GPU_TOOLS=bin. Built for CARRY_FOR alone, in a folder of its
# own, so that build/ keeps what it was configured for.
gpu-carry: setup
	cmake -S . -B build-carry -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=NOTICE -DPLIMSOLL_NVCC_PTX= "-DPLIMSOLL_NVCC_ARCHITECTURES=$(CARRY_FOR)" $(CMAKE_FLAGS)
	cmake --build build-carry --target plimsoll plimsoll_card_check -j $(JOBS)
	scripts/make_gpu_carry.py build-carry build/gpu-carry --rivals

# Real training files of other tools: CORPUS has a folder for each repository (scripts/recipes_corpus.py; needs PyYAML).
recipes: build
	$(RECIPES_PYTHON) scripts/recipes_corpus.py $(CORPUS) --plimsoll $(PLIMSOLL)

# Writes the committed expectations of tests/golden again; review the difference like code.
golden: setup-parity
	$(PARITY_PYTHON) -m tests.golden.make_golden

# Beside transformers + PEFT, in turn, and gated linear attention by length; hours on two quiet cores. ROUNDS=1 is a quick look,
# CASES=t5,bert are the comparisons whose names have one of these, BENCH_OUT is where the figures go.
bench: build setup-parity
	cmake --build build --target matmul_bench
	mkdir -p $(BENCH_OUT)
	$(PARITY_PYTHON) bench/compare_hf.py --plimsoll $(PLIMSOLL) --work .cache/bench --rounds $(ROUNDS) --cases "$(CASES)" --out $(BENCH_OUT)/compare-hf.json
	$(PARITY_PYTHON) bench/devices.py --plimsoll $(PLIMSOLL) --work .cache/bench --rounds $(ROUNDS) --cases "$(CASES)" --out $(BENCH_OUT)/devices.json
	$(PARITY_PYTHON) bench/devices.py --stages --ranks 2,4 --plimsoll $(PLIMSOLL) --work .cache/bench --rounds $(ROUNDS) --cases "$(CASES)" --out $(BENCH_OUT)/stages.json
	python3 bench/gla.py --plimsoll $(PLIMSOLL) --out $(BENCH_OUT)/gla.json

# The unit tests, and the program under bad input and faults, with the address and undefined-behaviour sanitizers.
# SANITIZED=. is every test; those that need exact memory leave themselves out.
sanitize: setup
	cmake -S . -B build-asan -G Ninja -DCMAKE_BUILD_TYPE=Release -DPLIMSOLL_SANITIZE=ON "-DPLIMSOLL_SANITIZE_FOLDERS=$(subst $(space),;,$(strip $(SANITIZE_FOLDERS)))" --log-level=NOTICE
	cmake --build build-asan -j $(JOBS) --target $(if $(SANITIZE_FOLDERS),$(SANITIZE_FOLDERS:%=tests_of_%),unit_tests plimsoll failing_files fault_shim falling_clock)
	$(SHARED_CORES) ctest --test-dir build-asan --output-on-failure -j $(JOBS) $(if $(SANITIZE_FOLDERS),-L '^($(subst $(space),|,$(strip $(SANITIZE_FOLDERS))))$$',-R '$(SANITIZED)')

# Every target RUNS times with libFuzzer; what it finds stays in build-fuzz/. `make fuzz FUZZ_TARGETS=recipe` is one of them.
fuzz: setup-fuzz
	cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=Release -DPLIMSOLL_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++-14 --log-level=NOTICE $(CMAKE_FLAGS)
	cmake --build build-fuzz -j $(JOBS) --target $(FUZZ_TARGETS:%=%_fuzz)
	@set -e; for target in $(FUZZ_TARGETS); do \
	  mkdir -p build-fuzz/corpus/$$target; echo "== $$target"; \
	  build-fuzz/tests/fuzz/$${target}_fuzz -runs=$(RUNS) $(FUZZ_SECONDS:%=-max_total_time=%) -seed=1 -max_len=1048576 -timeout=20 -rss_limit_mb=2048 \
	    -dict=tests/fuzz/dictionaries/$$target.dict -print_final_stats=1 -verbosity=0 -artifact_prefix=build-fuzz/ build-fuzz/corpus/$$target tests/fuzz/corpus/$$target; \
	done

check: check-format
	python3 scripts/check_layers.py
	python3 scripts/check_size.py
	python3 scripts/check_names.py
	python3 scripts/messages.py
	python3 scripts/check_words.py
	python3 scripts/check_chains.py
	python3 scripts/check_pages.py
	python3 scripts/check_operands.py
	python3 scripts/check_fields.py
	python3 tests/gpu_mutants.py --texts
	python3 tests/planner_mutants.py --texts
	python3 tests/ranks_mutants.py --texts
	python3 tests/cpu_mutants.py --texts
	python3 tests/model_mutants.py --texts

# The site of docs/ in build/site, to be opened as files or served; a link that leads nowhere is an error.
docs: setup-docs
	NO_MKDOCS_2_WARNING=1 .deps/docs/bin/python3 -m mkdocs build --strict
	python3 scripts/check_site.py build/site

# docs/pictures from real runs on this machine; needs Chromium.
pictures: build
	python3 scripts/make_pictures.py $(PLIMSOLL)

check-format: setup-dev
	@$(CLANG_FORMAT) --dry-run -Werror $(SOURCES)

fmt: setup-dev
	@$(CLANG_FORMAT) -i $(SOURCES)

setup:
	@scripts/setup.sh
setup-dev:
	@scripts/setup.sh --dev
setup-parity:
	@scripts/setup.sh --parity
setup-fuzz:
	@scripts/setup.sh --fuzz
setup-wheel:
	@scripts/setup.sh --wheel
setup-types:
	@scripts/setup.sh --types
setup-notebooks:
	@scripts/setup.sh --notebooks
setup-docs:
	@scripts/setup.sh --docs

clean:
	rm -rf build build-asan build-carry build-fuzz build-wheel demo/work
