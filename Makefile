# `make demo` and `make test` create what they need in .venv; `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SOURCES := $(wildcard src tests benchmarks docs)
WORKERS ?= 2
SPLITS ?= 3
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable

.DEFAULT_GOAL := help
.PHONY: help demo browser test test-all smoke speed speed-gpu speed-attack docs perturbations strength memory probes search-strength evasion edge-scores settings variants leave-one-out again tables lint format clean
.DELETE_ON_ERROR:

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

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

test: browser lint ## lint, types and all tests but the marks slow and gpu
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q -m "not slow and not gpu"
	@$(MAKE) --no-print-directory smoke docs
	@echo "Checked style, types and tests (all but the marks slow and gpu: make test-all)."
	@echo "Next: make demo, or: $(BIN)/aspect train --help"
	@test -n "$$ASPECT_DATA" || echo "The tests on real graphs were skipped: set ASPECT_DATA to a folder with the data sets' files to run them."

test-all: browser lint ## the same with slow tests, and those that need a GPU where there is one
	@$(BIN)/python -m pytest -n $(WORKERS) -q
	@echo "Checked style, types and all tests."
	@echo "Next: make speed, or: $(BIN)/aspect train --help"
	@test -n "$$ASPECT_DATA" || echo "The tests on real graphs were skipped: set ASPECT_DATA to a folder with the data sets' files to run them."

# The report's page is tested in a real browser; without one the tests fail, they are not skipped.
browser: ## make sure that there is a browser for the tests
	@for name in $(BROWSERS); do ! command -v $$name >/dev/null || exit 0; done; \
	echo "Installing chromium for the tests of the report."; \
	apt() { $$(test "$$(id -u)" = 0 || echo sudo -n) apt-get "$$@" >/dev/null 2>&1 </dev/null; }; \
	apt install -y --no-install-recommends chromium || \
	{ apt update && apt install -y --no-install-recommends chromium; }; \
	command -v chromium >/dev/null || { echo "The tests of the report need a browser, and none could be installed here: put one of these on the PATH: $(BROWSERS) (on Debian: apt-get install chromium)."; exit 1; }

docs: $(INSTALLED) ## build the documentation: docs/_build/html/index.html
	@$(BIN)/python -m sphinx -b html -q -W --keep-going docs docs/_build/html
	@echo "Wrote docs/_build/html/index.html."

smoke: $(INSTALLED) ## a small benchmark from the plan to the page: runs/smoke/report.html
	@rm -rf runs/smoke
	@$(BIN)/aspect bench smoke --out runs/smoke
	@$(BIN)/aspect report runs/smoke --out runs/smoke/report.html

speed: $(INSTALLED) ## how much faster than the plain form, and what ASPECT-S costs: ratios
	@$(BIN)/python benchmarks/speed.py
	@$(BIN)/python benchmarks/speed_stable.py

speed-gpu: $(INSTALLED) ## milliseconds and memory of an epoch of every method on a GPU
	@$(BIN)/python benchmarks/speed_gpu.py

speed-attack: $(INSTALLED) ## the attack's time and memory, and how they grow with the graph
	@$(BIN)/python benchmarks/speed_attack.py

perturbations: $(INSTALLED) ## make the attacks of results/perturbations again; takes hours
	@$(BIN)/python benchmarks/perturbations.py --workers $(WORKERS)

strength: $(INSTALLED) ## accuracy of a GCN retrained under the attacks of record: results/strength.csv
	@$(BIN)/python benchmarks/attack_strength.py --splits $(SPLITS)

memory: $(INSTALLED) ## memory and time of an epoch of every method: results/memory.csv
	@$(BIN)/python benchmarks/memory_methods.py

probes: $(INSTALLED) ## embeddings by both probes, three kinds of splits and scikit-learn: results/probes.md; wants a GPU
	@$(BIN)/python benchmarks/probes.py --workers $(WORKERS)
	@$(MAKE) --no-print-directory tables

search-strength: $(INSTALLED) ## does ASPECT-S's search raise the loss of the model as trained?
	@$(BIN)/python benchmarks/search_strength.py

evasion: $(INSTALLED) ## ASPECT-S beside ASPECT where the graph changes after training: results/evasion.csv; wants a GPU
	@$(BIN)/python benchmarks/evasion.py --workers $(WORKERS)

edge-scores: $(INSTALLED) ## which edges of an attack each edge score finds, and what pruning removes
	@$(BIN)/python benchmarks/edge_scores.py

settings: $(INSTALLED) ## search settings of every method on every graph by one rule; hours of a GPU
	@$(BIN)/python benchmarks/settings.py --workers $(WORKERS)

variants: $(INSTALLED) ## defaults of ASPECT and variants of them on every graph: results/variants.csv; wants a GPU
	@$(BIN)/python benchmarks/variants.py --workers $(WORKERS)

leave-one-out: $(INSTALLED) ## what each graph scores by defaults that the other graphs choose
	@$(BIN)/python benchmarks/leave_one_out.py

again: $(INSTALLED) ## make ten records drawn at random again, and print the difference
	@$(BIN)/python benchmarks/again.py

tables: $(INSTALLED) ## make the tables of results/, of the README and of docs/
	@$(BIN)/python benchmarks/tables.py

lint: $(INSTALLED) ## style and types
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "Badly formatted. Run: make format"; exit 1; }
	@$(BIN)/mypy --strict

format: $(INSTALLED) ## fix the style where that can be done automatically
	@$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	@$(BIN)/ruff format $(SOURCES)

clean: ## remove caches and builds; runs and .venv stay
	@rm -rf dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
