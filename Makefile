# Everything runs in .venv, which `make setup` builds from the lock files; run it again after any change, it is quick.
PYTHON_IN_VENV := .venv/bin/python
BIN := .venv/bin
WORKERS ?= 2
SOAK ?= 20
MINUTES ?= 10
FROM ?= 1
SEEDS ?= 10000
SECONDS ?= 10
CONSUMERS ?=

.PHONY: help setup test test-long test-upgrade test-pythons lint types clippy rust compiled python waiting docs test-under-load demo demo-dev demo-cluster demo-pipeline demo-layout demo-cohort bench soak chaos log-check sim sim-record lock wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup:  ## .venv with all packages and ringfence in it; says what is missing
	@tools/setup.sh

# Tests start some hundred Python processes. Where this is set, as images of containers do, each of them compiles all
# that it imports: more than half of a node's start.
unexport PYTHONDONTWRITEBYTECODE

# Two goals at a time, in this order: compilers run beside pip's downloads, what waits runs beside what computes. The
# output of each goal comes at its end, and the others go on after one has failed: one run tells all that is wrong.
# Of those without workers of their own none is last: a core would be idle.
test:  ## all tests and checks; CI runs `make chaos MINUTES=2` behind it
	@$(MAKE) --no-print-directory --keep-going -j2 --output-sync=target setup clippy compiled waiting types rust python

# What runs there must not take descriptors 3 and 4 for make's job server, as cargo would: they are not open.
ifneq ($(MAKELEVEL),0)
unexport MAKEFLAGS MFLAGS
endif

lint: types clippy  ## ruff (format, check), mypy --strict, stubtest, import contracts, generated files, rustfmt, clippy pedantic

types: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p ringfence
	$(BIN)/mypy tests benchmarks
	$(BIN)/stubtest ringfence.native._node ringfence.native.slots ringfence.native.group ringfence.native.frame --mypy-config-file pyproject.toml
	$(BIN)/lint-imports
	$(PYTHON_IN_VENV) native/gen_wire.py --check

# Compilers yield to tests that may run beside them.
clippy:
	cargo fmt --all --check
	nice cargo clippy --workspace --all-targets --locked -q -- -D warnings

compiled:
	nice cargo test --workspace --locked -q --no-run

rust: setup compiled  ## cargo's tests, and the faults that are planted into the engine
	cargo test --workspace --locked -q
	cargo test -p ringfence-node --locked -q --features planted --lib --test replication --test node planted

# Files in the order of tests/longest.py: the longest first, so that no worker is left with one at the end.
PYTEST := $(PYTHON_IN_VENV) -m pytest -q --dist loadfile --no-loadscope-reorder -p no:benchmark --durations 15
# Real processes and Spark: two at a time, for much of their time is waiting. One quick node computes more than it
# waits: the library and the command line against it run with the rest.
WAITING ?= 2
ONE_NODE := tests/system/cli tests/system/client
WAITS := tests/spark tests/system
REST := $(filter-out $(WAITS) tests/__pycache__, $(patsubst %/,%,$(wildcard tests/*/))) $(wildcard tests/test_*.py)

python: setup  ## pytest, without what `waiting` runs
	$(PYTEST) -n $(WORKERS) $(REST) $(ONE_NODE)

waiting: setup  ## pytest: Spark, real processes
	$(PYTEST) -n $(WAITING) $(WAITS) $(ONE_NODE:%=--ignore=%)

# A machine of users or of CI is rarely idle. What fails here waits for a time instead of a state, or is a defect.
test-under-load: setup  ## the tests with real processes beside four busy loops
	@for loop in 1 2 3 4; do sh -c 'while kill -0 $$PPID 2>/dev/null; do :; done' & done; \
	$(PYTEST) -n $(WAITING) tests/system

demo: setup  ## a node, TPC-H lineitem through Spark into it and back, a table of what happened
	$(BIN)/ringfence demo

demo-dev: setup  ## three nodes, lineitem through all of them, kill -9 of the leader on the way, a table of what happened
	$(BIN)/ringfence dev --nodes 3 --demo

demo-cluster: setup  ## rows flow while a node joins, an owner and the leader are killed, a node leaves; every row proven
	$(BIN)/ringfence dev --nodes 3 --demo-cluster --scale 0.05

demo-pipeline: setup  ## Spark streams orders and lineitem in, joins and compacts them; executor, driver, node are killed
	$(BIN)/ringfence dev --nodes 3 --demo-pipeline --scale 0.05

demo-layout: setup  ## rows flow while one partition becomes 2, 4, 16 and 3 and a node is killed; every row proven, gaps shown
	$(BIN)/ringfence dev --nodes 3 --demo-layout --scale 0.05

demo-cohort: setup  ## a STREAM cohort and a queue go on while nodes and members die, freeze, a partition splits; each row is judged
	$(PYTHON_IN_VENV) -m tests.chaos.cohort_demo

docs: setup requirements-docs.txt  ## the documentation site in build/docs/site, every link checked; CI runs it
	@tools/setup.sh docs
	$(PYTHON_IN_VENV) tools/docs_site.py

bench: setup  ## all engines interleaved, ratios to the limit of the same run
	$(PYTHON_IN_VENV) -m benchmarks

test-long: setup  ## the tests that every check leaves out, whose short forms it runs; half an hour
	$(PYTEST) -n $(WORKERS) --long -m long tests

test-upgrade: setup  ## e1e0e05 built out of the history, and this program: rolling, under load, back, finalized, refused
	$(PYTHON_IN_VENV) -m tests.upgrade.two_builds

test-pythons: setup  ## the recorded metadata log on every supported Python of this machine: one hash
	$(PYTHON_IN_VENV) -m tests.upgrade.pythons

soak: setup  ## the long form of crash, fault and load tests: SOAK times as long; half an hour of log-check (root)
	$(PYTHON_IN_VENV) -m pytest -q tests/system --long --soak $(SOAK) --timeout 0
	$(PYTHON_IN_VENV) -m tests.chaos.log_check --minutes 30 --seed $(FROM)

chaos: setup  ## four nodes in namespaces of their own are harmed for MINUTES while partitions move, then every row is proven (root)
	$(PYTHON_IN_VENV) -m tests.chaos --minutes $(MINUTES) --seed $(FROM)

log-check: setup  ## what clients of a harmed cluster saw for MINUTES is judged as a history (root)
	$(PYTHON_IN_VENV) -m tests.chaos.log_check --minutes $(MINUTES) --seed $(FROM) $(CONSUMERS)

sim: setup  ## simulated clusters for MINUTES minutes, seeds from FROM on
	$(PYTHON_IN_VENV) -m tests.sim --minutes $(MINUTES) --seeds $(FROM) --shrink

sim-record: setup  ## SEEDS seeds from FROM on of SECONDS virtual seconds at this commit, as lines in FILE; run again, it goes on
	$(PYTHON_IN_VENV) -m tests.sim.record --file $(FILE) --first $(FROM) --seeds $(SEEDS) --seconds $(SECONDS) --jobs $(WORKERS)

lock: setup  ## the lock files again (development, documentation site, benchmarks' peers), with hashes
	uv pip compile -q --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--python-version 3.11 --extra dev --extra spark -o requirements-dev.txt pyproject.toml
	uv pip compile -q --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--python-version 3.11 --extra docs -c requirements-dev.txt -o requirements-docs.txt pyproject.toml
	uv pip compile -q --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--python-version 3.11 -o benchmarks/peers/requirements.txt benchmarks/peers/requirements.in

wheel: setup  ## dist/: the sdist, and the wheel built from it
	$(PYTHON_IN_VENV) -c "import shutil; shutil.rmtree('dist', ignore_errors=True)"
	$(PYTHON_IN_VENV) -c "import setuptools.build_meta as build; build.build_sdist('dist')"
	$(PYTHON_IN_VENV) -m pip wheel -q --no-deps -w dist dist/ringfence-*.tar.gz

clean:  ## everything that is built; the next `make setup` begins anew
	rm -rf .venv build dist target client/*.egg-info *.egg-info native/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
