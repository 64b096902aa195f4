# Every target sets up .venv by itself when it is missing or older than what it was made from.
#   make train ARGS="--total-steps 100000"    passes arguments on; so do test, test-fast and bench
#   make test PYTHON=python3.12               chooses the interpreter that .venv is made with

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Python 3.12 and later get the newest versions: flax for JAX 0.11 needs them.
CONSTRAINTS := $(shell $(PYTHON) -c 'import sys; print("constraints-newest.txt" if sys.version_info >= (3, 12) else "constraints.txt")' 2>/dev/null)
# What test-versions makes its environments with.
LOWEST ?= python3.11
NEWEST ?= python3.13

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test test-all test-compiled test-matrix test-fast test-versions docs mutants learning lint format bench clean
.PHONY: faults faults-all soak curves suites test-suites test-ray
.PHONY: bench-startup bench-limits bench-overhead bench-growth bench-replay bench-regression bench-sweep

help:
	@echo "make train      PPO on gymnax/CartPole-v1, 4 seeds in one program, into a new directory under runs/"
	@echo "make test       the tests that every change must pass; under six minutes on two cores"
	@echo "make test-all   these and the full matrix of algorithms; forty minutes"
	@echo "make test-compiled  what algorithms, networks and compiled programs compute, compiled as in real runs; a quarter of an hour"
	@echo "make test-matrix  what make test leaves out, and the tricks for CPUs compiled as in real runs, as CI runs it; forty minutes"
	@echo "make test-fast  only the tests that compile nothing"
	@echo "make test-versions  a core of the tests on the lowest and the newest supported versions, in environments of their own"
	@echo "make test-suites  the tests of the suites of others (Brax, Craftax, ...), in an environment that has them"
	@echo "make test-ray   the tests of sweeps on a Ray cluster, in an environment that has Ray; a quarter of an hour"
	@echo "make mutants    breaks the code on purpose, and reports which breaks no test notices"
	@echo "make faults     kills, damages and disturbs runs, a sample of each kind, in less than ten minutes"
	@echo "make faults-all the same often enough for the figures of docs/reliability.md, in an hour or two"
	@echo "make learning   the presets against published returns, several seeds each; what is missing, about two days"
	@echo "make curves     learning curves beside the libraries named by RLKIT_PEERS (benchmarks/README.md); what is missing, about a day"
	@echo "make suites     makes, steps and checks every environment of those suites, for docs/suites.md; what is missing, an hour or two"
	@echo "make docs       the site of the documentation, in site/; its dead links are errors"
	@echo "make lint       ruff and pyright"
	@echo "make format     ruff, rewriting"
	@echo "make bench      throughput of PPO, SAC and DQN against the peers named by RLKIT_PEERS (benchmarks/README.md)"
	@echo "make bench-X    startup, limits, overhead, growth, replay, sweep or regression: the other questions (benchmarks/README.md)"
	@echo "make soak       what a long run leaves in memory, beside Orbax alone; ten minutes"
	@echo "make clean      removes caches and build outputs; .venv and runs/ stay"

$(STAMP): pyproject.toml constraints.txt constraints-newest.txt
	@command -v $(PYTHON) >/dev/null || \
		{ echo "rlkit needs Python 3.11 or newer, '$(PYTHON)' is not on the PATH; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rlkit needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Installing rlkit and its tools into $(VENV); the first time this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev,bench]'
	@touch $@

train: $(STAMP)
	@run=runs/first-flight; n=1; while [ -e "$$run" ]; do n=$$((n + 1)); run=runs/first-flight-$$n; done; set -x; \
	$(BIN)/rlkit train ppo gymnax/CartPole-v1 --num-seeds 4 --run-dir "$$run" $(ARGS)

# Two processes; tests/conftest.py sorts the files, the longest first.
# A crash ends the run: xdist would wait for the rest of the file that crashed.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(ARGS)

test-all: $(STAMP)
	$(BIN)/pytest $(PARALLEL) -m "full or not full" $(ARGS)

# What algorithms, networks and compiled programs compute, and whether resumed runs end with the same
# bits, as XLA compiles it in real runs.
COMPILED := tests/agents tests/algorithms tests/training/core tests/training/programs \
	tests/training/test_resume.py tests/xla_cpu

test-compiled: $(STAMP)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/pytest $(PARALLEL) -m "full or not full" $(ARGS) $(COMPILED)

# What make test leaves out, each test once. The tricks for CPUs are about what XLA makes of them.
test-matrix: $(STAMP)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/pytest $(PARALLEL) -m "not full" $(ARGS) tests/xla_cpu
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/pytest $(PARALLEL) -m full $(ARGS) $(COMPILED)
	$(BIN)/pytest $(PARALLEL) -m full $(ARGS) $(COMPILED:%=--ignore=%)

test-fast: $(STAMP)
	$(BIN)/pytest -m "fast and not full" $(ARGS)

test-versions: .venv-lowest/.installed .venv-newest/.installed
	.venv-lowest/bin/pytest $(PARALLEL) -m "(fast or gpu) and not full" $(ARGS)
	.venv-newest/bin/pytest $(PARALLEL) -m "(fast or gpu) and not full" $(ARGS)

.venv-lowest/.installed: INTERPRETER = $(LOWEST)
.venv-newest/.installed: INTERPRETER = $(NEWEST)
.venv-%/.installed: pyproject.toml constraints-%.txt
	@command -v $(INTERPRETER) >/dev/null || \
		{ echo "test-versions needs '$(INTERPRETER)', which is not on the PATH; name others: make test-versions LOWEST=python3.11 NEWEST=python3.13" >&2; exit 1; }
	@echo "Installing the $* supported versions into .venv-$*; the first time this takes a few minutes."
	$(INTERPRETER) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-$*.txt -e '.[dev,bench]'
	@touch $@

# The suites of others, in an environment of their own: rlkit does not need them.
.venv-suites/.installed: pyproject.toml $(CONSTRAINTS) constraints-suites.txt
	@echo "Installing rlkit and the suites into .venv-suites; the first time this takes a few minutes."
	$(PYTHON) -m venv .venv-suites
	.venv-suites/bin/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -c constraints-suites.txt -e '.[dev,bench,suites]'
	@touch $@

test-suites: .venv-suites/.installed
	.venv-suites/bin/pytest $(PARALLEL) -m "full or not full" tests/envs/suites tests/test_docs.py $(ARGS)

# So is Ray.
.venv-ray/.installed: pyproject.toml $(CONSTRAINTS)
	@echo "Installing rlkit and Ray into .venv-ray; the first time this takes a few minutes."
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev,bench,ray]'
	@touch $@

test-ray: .venv-ray/.installed
	.venv-ray/bin/pytest -m "full or not full" tests/training/sweeps/test_ray.py $(ARGS)

suites: .venv-suites/.installed
	.venv-suites/bin/python benchmarks/suites $(ARGS)

mutants: $(STAMP)
	$(BIN)/python tests/support/try_mutants.py $(ARGS)

faults: $(STAMP)
	$(BIN)/python tests/faults $(ARGS)

faults-all: $(STAMP)
	$(BIN)/python tests/faults --all $(ARGS)

learning: $(STAMP)
	$(BIN)/python benchmarks/learning $(ARGS)

curves: $(STAMP)
	$(BIN)/python benchmarks/curves $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check --no-cache
	$(BIN)/ruff format --check --no-cache
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP)
	$(BIN)/python benchmarks/throughput.py $(ARGS)

bench-startup bench-limits bench-overhead bench-growth bench-replay bench-regression bench-sweep: $(STAMP)
	$(BIN)/python benchmarks/$(@:bench-%=%).py $(ARGS)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo "Open site/index.html, or with search: $(BIN)/python -m http.server --directory site"

soak: $(STAMP)
	$(BIN)/python benchmarks/soak.py $(ARGS)

clean:
	rm -rf build dist site .pytest_cache .ruff_cache *.egg-info
	find rlkit tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
