# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
# Test processes; each has its own PostgreSQL and its own Spark session.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup lock demo check test test-all bench bench-all clean

help:      ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Bring uv, the locked packages and a Java runtime (done by every target that needs it)
	@echo "ready: $(BIN)/headwater"

$(STAMP): requirements.lock pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py $(VENV)
	@touch $@

lock:      ## Resolve pyproject.toml into requirements.lock again
	@$(BIN)/uv pip compile -q --no-emit-index-url --no-annotate --no-header --extra dev --python-version 3.11 pyproject.toml -o requirements.lock

demo: $(STAMP)   ## Orders arrive in PostgreSQL, revenue by region stays fresh in the lake, DuckDB reads it
	@$(BIN)/headwater demo

check: $(STAMP)  ## Lint, formatting, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: check      ## Everything a change must pass (within 25 minutes on two cores)
	@$(BIN)/pytest -m "not slow" -n $(WORKERS) --dist loadfile

test-all: check  ## The long property and load runs too
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile

bench: $(STAMP)  ## Ratios against DuckDB and pyarrow, measured side by side
	@$(BIN)/python -m benchmarks

bench-all: $(STAMP)  ## The same, with ten times the data where it matters (hours)
	@$(BIN)/python -m benchmarks --all

clean:     ## Remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
