# The whole of a developer's day; CONTRIBUTING.md walks through it. Every target sets up what it needs, on a
# machine that has Python 3.11 and make.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The budgets in tests/budgets.toml are for two workers on two cores; with more cores, `make test JOBS=8`.
JOBS ?= 2
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for p in python3.11 python3; do $$p $(IS_NEW_ENOUGH) && echo $$p && break; done)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Heliograph needs Python 3.11 or newer; name one: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) tools/environment.py $(VENV)
	@touch $@

.PHONY: setup
setup: $(READY) ## make .venv and install everything at the pinned versions

.PHONY: run
run: $(READY) ## set up, then show an airspace and its pipeline, all of it checked; KEEP=1: its keeper stays up afterwards
	@$(BIN)/python examples/airspace.py --out airspace $(if $(KEEP),--stay)

.PHONY: test
test: check suites ## what CI runs: check, then all suites within their budgets

.PHONY: check
check: $(READY) ## lint, format, types, import directions, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

.PHONY: suites
suites: $(READY) ## all tests; tests/budgets.toml says how many minutes each suite has
	$(BIN)/python -m tests.all_suites -n $(JOBS) --dist loadscope

.PHONY: unit
unit: $(READY) ## the fast tests only
	$(BIN)/pytest -n $(JOBS) tests/unit tests/conformance

.PHONY: spark
spark: $(READY) ## the tests that start Spark
	$(BIN)/pytest tests/spark

.PHONY: proof
proof: $(READY) ## a cluster; kills at every point of a batch; streams under kills, sealing and expiry; 20 minutes
	HELIO_EXAMPLES=$${HELIO_EXAMPLES:-10} $(BIN)/pytest -n $(JOBS) --timeout 0 tests/faults/test_sink_kill.py
	HELIO_EXAMPLES=$${HELIO_EXAMPLES:-10} $(BIN)/pytest --timeout 0 \
		tests/spark/test_elsewhere.py tests/spark/test_sink_kill.py tests/spark/test_expiry.py tests/spark/test_kills.py \
		tests/spark/test_archive.py
	$(BIN)/python -m bench --quick spark-read spark-stream spark-memory spark-executors pipeline-jobs pipeline-align

.PHONY: fuzz
fuzz: $(READY) ## the property and fault suites with new random examples, 20 times as many as CI
	HELIO_EXAMPLES=$${HELIO_EXAMPLES:-20} $(BIN)/pytest -n $(JOBS) --timeout 0 tests/property tests/faults

# Scenes that break it on purpose. All of tests/faults is: processes killed and stopped at any instant, damaged and
# restored files, full disks, hostile peers and floods. The others are beside what they are about.
BREAKS := tests/faults \
	tests/e2e/test_interrupts.py tests/e2e/test_link_interrupts.py tests/e2e/test_planted_modules.py tests/e2e/test_band_supervision.py \
	tests/unit/journal/format/test_identity.py tests/unit/journal/consumers/test_cursors.py tests/unit/journal/consumers/test_cursor_repair.py \
	tests/property/test_hostile.py tests/property/test_journal_hostile.py tests/unit/manager/test_damaged_log.py

.PHONY: break
break: $(READY) ## break it on purpose: kills, stops, damage, floods, interrupts; five times as many as CI; takes an hour
	HELIO_EXAMPLES=$${HELIO_EXAMPLES:-5} $(BIN)/pytest -n $(JOBS) --timeout 0 $(BREAKS)

.PHONY: swaps
swaps: $(READY) ## two thousand swaps of dispatch strategies while eight suppliers push; takes minutes
	HELIO_EXAMPLES=12 $(BIN)/pytest -q -s --timeout 0 tests/property/test_reconfiguration.py -k through_all_swaps

.PHONY: wakes
wakes: $(READY) ## ten million sleeps and wakes between two processes; takes minutes to an hour
	HELIO_EXAMPLES=1000 $(BIN)/pytest -q --timeout 0 tests/faults/test_ring_wakes.py

.PHONY: kills
kills: $(READY) ## the consumer of examples/effectively_once.py, killed 500 times; broadcasts, 200 times; each role of a service, 500
	$(BIN)/python examples/effectively_once.py --kills 500
	HELIO_EXAMPLES=40 $(BIN)/pytest -q -s --timeout 0 tests/faults/test_broadcast_kill.py
	$(BIN)/python -m bench.papers ramani-kills

.PHONY: soak
soak: $(READY) ## half an hour of mixed load with kills: counts agree, and no process grows
	HELIO_SOAK=$${HELIO_SOAK:-1800} $(BIN)/pytest -q --timeout 0 tests/faults/test_soak.py

.PHONY: locks
locks: $(READY) ## write docs/explanation/locks.md: the order of locks, which every test run checks
	rm -f .lock-order
	$(BIN)/pytest -q -n $(JOBS) --dist loadscope --lock-order .lock-order tests/unit tests/conformance tests/e2e tests/faults
	$(BIN)/python -m tests.docs.lock_page .lock-order
	rm -f .lock-order

.PHONY: bench
bench: $(READY) ## measure against raw limits and rivals; writes bench/results
	$(BIN)/python -m bench

.PHONY: docs
docs: $(READY) ## build the site of the documents into build/docs; a warning fails it
	$(BIN)/python -W error::SyntaxWarning site/build.py

.PHONY: format
format: $(READY) ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: clean
clean: ## remove what the targets above made
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.PHONY: help
help: ## this list
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12
