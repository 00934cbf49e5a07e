# Every target sets up by itself: a fresh clone needs `make demo` or `make test` and nothing before it.
# Nothing here is ever run as a bare script from the working directory: `-P` keeps a stray file from shadowing a room.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-complete
# Two test processes: the suite is laid out for two cores, and a third would only make real children slower.
WORKERS ?= 2
PYTEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench ledger docs clean

help: ## Say what there is to type.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: $(STAMP) ## Make .venv with the tested versions; does nothing when it is up to date.

# The stamp lies inside the environment, so that a removed environment is made again. pip itself is pinned too:
# dependency groups need a recent one, and a new environment brings whatever Python bundled.
$(STAMP): pyproject.toml constraints.txt
	@echo "setup: making $(VENV) with $$($(PYTHON) --version), $$(grep -c == constraints.txt) pinned packages (torch alone is several hundred MB: minutes at first, seconds later)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "setup: ModelForge needs Python 3.11 or newer; name one with PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt --build-constraint constraints.txt --group dev --editable '.[demo]'
	@$(BIN)/python -m pip check --disable-pip-version-check
	@$(BIN)/python --version > $(STAMP)
	@echo "setup: done"

demo: $(STAMP) ## Take a real packaged embedding model through every gate to a lab-ready candidate.
	@$(BIN)/modelforge demo

# In the order of the folders: files with few long tests (faults, integration) first, so that no core ends alone.
test: $(STAMP) ## All tests: real nats-server, real SQLite, real children; parallel ones first, then the serial ones.
	@$(BIN)/python -P -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not serial and not gpu" $(PYTEST_ARGS)
	@$(BIN)/python -P -m pytest -q -m "serial and not gpu" $(PYTEST_ARGS) || { code=$$?; test $$code -eq 5 && echo "no serial test"; }

check: $(STAMP) ## Lint, format, types, import contracts, house rules, generated pages.
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python -P docs/generate.py --check
	@$(BIN)/python -P -m pytest -q -n $(WORKERS) --dist loadfile tests/house $(PYTEST_ARGS)

format: $(STAMP) ## Put the code into the one layout, and mend what the linter can mend by itself.
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(STAMP) ## Rows beside their baselines in the same run; BENCH_ARGS=--keep updates the tracked results.
	@$(BIN)/python -P -m benchmarks $(BENCH_ARGS)

ledger: $(STAMP) ## Which tests prove which requirement.
	@$(BIN)/python -P tests/house/ledger.py

docs: $(STAMP) ## Write docs/reference/ from the code.
	@$(BIN)/python -P docs/generate.py

clean: ## Remove the environment and every cache.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
