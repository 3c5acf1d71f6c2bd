# `make demo` and `make test` create what they need in .venv; `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SOURCES := $(wildcard src tests benchmarks)
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-all speed lint format clean
.DELETE_ON_ERROR:

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

# Installed anew only when the dependencies change. torch comes first, by itself: the exact version
# is then settled before anything else could ask for another build of it.
$(INSTALLED): pyproject.toml constraints.txt
	@echo "Installing into $(VENV); the first time takes some minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED) ## train on the embedded graph, print a table, write runs/demo/report.html
	@$(BIN)/aspect demo --out runs/demo --overwrite

# Several workers with one thread each are faster than one worker with several threads.
test test-all: export OMP_NUM_THREADS = 1

test: lint ## lint, types and all tests but the marks slow and gpu
	@$(BIN)/python -m pytest -n $(WORKERS) -q -m "not slow and not gpu"
	@echo "Checked style, types and tests (all but the marks slow and gpu: make test-all)."
	@echo "Next: make demo, or: $(BIN)/aspect train --help"
	@test -n "$$ASPECT_DATA" || echo "The tests on real graphs were skipped: set ASPECT_DATA to a folder with the data sets' files to run them."

test-all: lint ## the same with slow tests, and those that need a GPU where there is one
	@$(BIN)/python -m pytest -n $(WORKERS) -q
	@echo "Checked style, types and all tests."
	@echo "Next: make speed, or: $(BIN)/aspect train --help"
	@test -n "$$ASPECT_DATA" || echo "The tests on real graphs were skipped: set ASPECT_DATA to a folder with the data sets' files to run them."

speed: $(INSTALLED) ## how much faster than the plain form: ratios
	@$(BIN)/python benchmarks/speed.py

lint: $(INSTALLED) ## style and types
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "Badly formatted. Run: make format"; exit 1; }
	@$(BIN)/mypy --strict

format: $(INSTALLED) ## mend the style where that can be done automatically
	@$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	@$(BIN)/ruff format $(SOURCES)

clean: ## remove caches and builds; runs and .venv stay
	@rm -rf dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
