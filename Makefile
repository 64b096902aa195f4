# Every target sets up .venv by itself when it is missing or older than what it was made from.
#   make train ARGS="--total-steps 100000"    passes arguments on; so do test, test-fast and bench
#   make test PYTHON=python3.12               chooses the interpreter that .venv is made with

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test test-all test-fast mutants learning lint format bench clean
.PHONY: bench-startup bench-limits bench-overhead bench-growth bench-replay bench-regression

help:
	@echo "make train      PPO on gymnax/CartPole-v1, 4 seeds in one program, into a new directory under runs/"
	@echo "make test       the tests that every change must pass; a few minutes"
	@echo "make test-all   these and the full matrix of algorithms, compiled as in real runs; half an hour"
	@echo "make test-fast  only the tests that compile nothing"
	@echo "make mutants    breaks the code on purpose, and reports which breaks no test notices"
	@echo "make learning   the presets against published returns, several seeds each; how long depends on the machine"
	@echo "make lint       ruff and pyright"
	@echo "make format     ruff, rewriting"
	@echo "make bench      throughput of PPO, SAC and DQN against the peers named by RLKIT_PEERS (benchmarks/README.md)"
	@echo "make bench-X    startup, limits, overhead, growth, replay or regression: the other questions (benchmarks/README.md)"
	@echo "make clean      removes caches and build outputs; .venv and runs/ stay"

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
		{ echo "rlkit needs Python 3.11 or newer, '$(PYTHON)' is not on the PATH; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rlkit needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Installing rlkit and its tools into $(VENV); the first time this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

train: $(STAMP)
	@run=runs/first-flight; n=1; while [ -e "$$run" ]; do n=$$((n + 1)); run=runs/first-flight-$$n; done; set -x; \
	$(BIN)/rlkit train ppo gymnax/CartPole-v1 --num-seeds 4 --run-dir "$$run" $(ARGS)

# Two processes; tests/conftest.py sorts the files, the longest first.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

test: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(ARGS)

test-all: $(STAMP)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/pytest $(PARALLEL) -m "not slow" $(ARGS)

test-fast: $(STAMP)
	$(BIN)/pytest -m "fast and not full" $(ARGS)

mutants: $(STAMP)
	$(BIN)/python tests/support/try_mutants.py $(ARGS)

learning: $(STAMP)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/pytest -m slow tests/learning $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP)
	$(BIN)/python benchmarks/throughput.py $(ARGS)

bench-startup bench-limits bench-overhead bench-growth bench-replay bench-regression: $(STAMP)
	$(BIN)/python benchmarks/$(@:bench-%=%).py $(ARGS)

clean:
	rm -rf build dist .pytest_cache .ruff_cache *.egg-info
	find rlkit tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
