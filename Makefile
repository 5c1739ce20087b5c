# Every target uses the environment in .venv, which `make setup` creates.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.complete
WORKERS ?= 2
FAST := tests/unit tests/property tests/scenarios tests/tidy
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fast lint format types contracts bench sim soak mutants metrics clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.12 setup")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a minute, the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

setup: $(STAMP) ## create .venv with everything in it

demo: $(STAMP) ## a fleet on this machine: update, kills, replay (ARGS="-o json")
	@$(BIN)/controlplane demo $(ARGS)

test: $(STAMP) ## every test, with a real nats-server, real processes and sockets
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS) tests

check: lint types contracts fast ## lint, format, types, import contracts and the fast rooms

fast: $(STAMP) ## tests without a server; all branches of events/, projections/
	@$(BIN)/pytest -n $(WORKERS) $(FAST) --cov --cov-branch --cov-fail-under=100 --cov-report=term-missing:skip-covered

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP) ## format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

types: $(STAMP)
	@$(BIN)/mypy
	@$(BIN)/mypy examples/*.py

contracts: $(STAMP)
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

bench: $(STAMP) ## measure, each figure beside its ceiling in the same run
	@$(BIN)/python -m tests.bench $(ARGS)

sim: $(STAMP) ## new simulated seeds for a minute (ARGS="--seconds 600 --from 7")
	@$(BIN)/python -m tests.simulation sim $(ARGS)

soak: $(STAMP) ## the same for hours, gathering failures (ARGS="--hours 2")
	@$(BIN)/python -m tests.simulation soak $(ARGS)

mutants: $(STAMP) ## deliberate faults, and what catches each (ARGS="--only NAME")
	@$(BIN)/python -m tests.simulation mutants $(ARGS)

metrics: $(STAMP) ## write the page that lists every metric
	@$(BIN)/python -m controlplane.telemetry > .github/METRICS.md

clean: ## remove .venv and what tools left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info .coverage*
