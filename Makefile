# Everything here makes its own virtual environment; needed beforehand: python >= 3.11 with venv,
# and make. The tests run against the built and installed wheel, never against the source folders.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The source folders must not be importable by accident.
unexport PYTHONPATH
unexport PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTHON ?= $(shell tools/find_python.sh)
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
PYTEST_ARGS ?=

WHEEL := dist/stepwarden.stamp
SOURCES := pyproject.toml README.md $(shell find supervisor agents proto systemd -type f \
	-not -path '*/__pycache__/*' -not -name '*.pyc')
# The only wheel in dist: the rule that builds it removes the former one.
WHEEL_FILE = $$(ls dist/stepwarden-*.whl)

FAST := not vllm and not soak and not matrix
FASTEST := $(FAST) and not systemd
# Most tests wait for processes; a file at a time in each of so many keeps two cores at work.
SIDE_BY_SIDE := -n 3 --dist loadfile

.PHONY: help demo test foreign-clients lint format bench bench-judge soak test-lowest test-matrix test-vllm wheel proto proto-check clean

help: ## say what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

demo: $(BIN)/.runtime ## a slow worker lives, a frozen one is replaced: in about a minute
	@$(BIN)/python -m stepwarden.demo

test: $(BIN)/.dev ## the tests, against the built wheel
	STEPWARDEN_TEST_BUILT=1 $(BIN)/pytest $(SIDE_BY_SIDE) -m '$(FAST)' $(PYTEST_ARGS)

foreign-clients: $(VENV)/npm/.ready ## clients of others that the tests ask our health with (needs npm)

lint: $(BIN)/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy supervisor agents tests

format: $(BIN)/.dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BIN)/.dev ## measure, and write docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

bench-judge: $(BIN)/.dev ## score the rules of judgement on step traces, and write docs/judgement.md
	$(BIN)/python benchmarks/run.py judge

soak: $(BIN)/.dev ## the long hunts: torn reads, many events, 200 kills of the daemon, 100000 spoilt files, pages, beats (STEPWARDEN_SEED repeats the new ones)
	STEPWARDEN_TEST_BUILT=1 $(BIN)/pytest -n 3 -m soak $(PYTEST_ARGS)

test-lowest: $(LOWEST)/.ready ## the fast tests with the lowest versions that we allow
	STEPWARDEN_TEST_BUILT=1 $(LOWEST)/bin/pytest $(SIDE_BY_SIDE) -p no:cacheprovider -m '$(FASTEST)' $(PYTEST_ARGS)

test-matrix: $(BIN)/.dev ## the agent beside other versions of protobuf, and of grpcio
	STEPWARDEN_TEST_BUILT=1 $(BIN)/pytest -m matrix $(PYTEST_ARGS)

test-vllm: $(BIN)/.dev ## the tests on a real vLLM (its environment is cached outside the tree)
	tools/vllm_env.sh
	STEPWARDEN_TEST_BUILT=1 $(BIN)/pytest -m vllm $(PYTEST_ARGS)

wheel: $(WHEEL) ## build the wheel into dist/
	@echo "$(WHEEL_FILE)"

proto: $(BIN)/python ## make the gRPC stubs anew, in an environment of their own
	$(BIN)/python proto/generate.py

proto-check: $(BIN)/python ## are the committed stubs what the .proto files give?
	$(BIN)/python proto/generate.py --check

clean: ## remove what was made here
	rm -rf $(VENV) $(LOWEST) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no usable Python, see above" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(WHEEL): $(SOURCES) | $(BIN)/python
	mkdir -p dist
	rm -f dist/stepwarden-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	touch $@

# What the demo needs; quick, so that the demo starts soon on a fresh machine. The version of a
# working tree does not change with each edit, so the former build has to go first.
$(BIN)/.runtime: $(WHEEL)
	$(BIN)/python -m pip uninstall --quiet --yes stepwarden 2>/dev/null
	$(BIN)/python -m pip install --quiet "$(WHEEL_FILE)[daemon,demo]"
	touch $@

$(BIN)/.dev: $(BIN)/.runtime
	$(BIN)/python -m pip install --quiet "$(WHEEL_FILE)[dev]"
	touch $@

# The versions that were tried; the tests say so where they are not there.
$(VENV)/npm/.ready: Makefile | $(BIN)/python
	npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/npm \
		@grpc/grpc-js@1.14.7 grpc-health-check@2.1.0
	touch $@

$(LOWEST)/.ready: $(WHEEL) tools/lowest.py
	rm -rf $(LOWEST)
	"$$(tools/find_python.sh 3.11)" -m venv $(LOWEST)
	$(LOWEST)/bin/python tools/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet -c $(LOWEST)/constraints.txt \
		"$(WHEEL_FILE)[daemon,demo]" pytest pytest-timeout pytest-xdist hypothesis jsonschema kubernetes-validate pyte trustme
	touch $@
