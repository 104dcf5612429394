# The whole developer's day. `make run` and `make test` set everything up by themselves on a machine
# that has Python 3.11 and make.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group dev --group bench
	@touch $@

.PHONY: setup
setup: $(READY) ## make .venv and install everything at the pinned versions

.PHONY: run
run: $(READY) ## set up, start, show: the main example
	@$(BIN)/python examples/tour.py

.PHONY: test
test: check suites ## everything CI runs: check, then all suites within their budgets

.PHONY: check
check: $(READY) ## lint, types, import directions, spelling
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell

.PHONY: suites
suites: $(READY) ## all tests; their budgets in minutes are in tests/budgets.toml
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup

.PHONY: unit
unit: $(READY) ## the fast suites only
	@$(BIN)/pytest -n $(JOBS) tests/unit tests/conformance

.PHONY: spark
spark: $(READY) ## the suites that start Spark
	@$(BIN)/pytest tests/spark

.PHONY: fuzz
fuzz: $(READY) ## the property suites at 20 times CI's number of examples
	@HELIO_EXAMPLES=20 $(BIN)/pytest -n $(JOBS) tests/property tests/faults --timeout 0

.PHONY: bench
bench: $(READY) ## measure against raw limits and rivals; writes bench/results
	@$(BIN)/python -m bench

.PHONY: format
format: $(READY) ## let ruff format and mend what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: clean
clean: ## remove what the targets above made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.PHONY: help
help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /\1\t/' | expand -t 12
