# Everything here sets itself up: Linux or macOS, Python 3.10+, Java 17+, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.installed
DIR ?= demo

.PHONY: demo test tiers setup lint types servers services services-stop soak capabilities bench docs lock clean

setup: $(DONE)

$(DONE): pyproject.toml constraints.txt
	@sh scripts/preflight.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m headrace.run.cds
	@touch $(DONE)

demo: setup
	@$(BIN)/headrace demo $(DIR)

# Two processes share the tests, file by file, the fast tiers first.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test: setup lint types servers tiers

tiers: setup
	$(PYTEST) -m "plain or spark"
	$(PYTEST) -m "services or crash or browser"

# PostgreSQL and MariaDB, by Debian's packages where that is possible; tests start servers of their own.
servers: setup
	@$(BIN)/python -m services install

services: servers
	@$(BIN)/python -m services start

services-stop: setup
	@$(BIN)/python -m services stop

soak: servers
	$(BIN)/python -m tests.crash.soak $(SOAK)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

capabilities: setup
	$(BIN)/python scripts/capabilities.py

docs: setup
	$(BIN)/python scripts/reference.py

bench: setup
	$(BIN)/python -m benchmarks $(NAME)

lock:
	uv pip compile --quiet --universal --python-version 3.10 --no-header --no-annotate --no-emit-index-url \
	  --constraint scripts/pins.txt --extra dev pyproject.toml --output-file constraints.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
