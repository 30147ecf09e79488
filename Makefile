# Everything here sets itself up: Linux or macOS, Python 3.10+, Java 17+, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.installed
DIR ?= demo
# Otherwise each process of the tests compiles the package again, and each worker all the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-long durations test-spark tiers setup archive lint types servers services \
	services-stop soak capabilities bench docs docs-site dist lock clean

setup: archive

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Each file that is fetched has a hash in the lock, those too that build what comes as source.
$(DONE): pyproject.toml constraints.txt scripts/build.txt
	@sh scripts/preflight.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --requirement scripts/build.txt
	$(PIP) --require-hashes --no-build-isolation --requirement constraints.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $(DONE)

# Spark's classes as the JVM maps them: each start of a session is some seconds shorter.
archive: $(DONE)
	@$(BIN)/python -m headrace.spark.jvm.cds

demo: setup
	@$(BIN)/headrace demo $(DIR)

# Three processes share the tests, file by file, in the order of tests/conftest.py: tests that wait leave a core to
# others. One that hangs is replaced once, and its test tried again. The slowest are shown at the end.
PYTEST = $(BIN)/pytest -n $(or $(WORKERS),3) --dist loadfile --no-loadscope-reorder --max-worker-restart=1 \
	--durations=20

# One round at least of each proof, in some 35 minutes on two quiet cores.
test: $(DONE)
	@$(MAKE) --no-print-directory -j 4 archive lint types servers
	$(PYTEST) --junitxml build/test.xml || $(BIN)/python -m scripts.once_more
	@echo "Passed. More rounds of the same proofs: make test-long (75 minutes), make soak (hours)."

# The rounds of these proofs that `make test` leaves out.
test-long: setup servers
	$(PYTEST) --long -m long --junitxml build/test-long.xml
	@echo "Passed. One round of each proof: make test (35 minutes). Many more: make soak (hours)."

# The order of the files, from the last runs of both.
durations: $(DONE)
	$(BIN)/python -m scripts.durations

# For its few tests with Spark a third session costs more than it gains.
test-fast: WORKERS = 2
test-fast: setup
	$(PYTEST) --quick

tiers: setup
	$(PYTEST)

# Databases by Debian's packages where that is possible, Kafka and HDFS by Maven, S3 by Go; tests start their own.
servers: $(DONE)
	@$(BIN)/python -m services install

services: servers
	@$(BIN)/python -m services start

services-stop: setup
	@$(BIN)/python -m services stop

# The same tests over another Spark, in a virtual environment of its own: make test-spark VERSION=4.3.0
test-spark:
	@sh scripts/other_spark.sh $(PYTHON) "$(VERSION)"
	.venv-spark-$(VERSION)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "plain or spark"

# A test of these may take an hour, and one ten.
PATIENT = $(BIN)/pytest -q --long --timeout 3600 -o faulthandler_timeout=36000
soak: servers
	$(BIN)/python -m tests.crash.soak $(SOAK)
	$(BIN)/python -m tests.crash.soak --cluster
	HEADRACE_LOST_WORKERS="worker-1 worker-2" $(PATIENT) tests/crash/test_distribution.py
	HEADRACE_STATE_ROUNDS=500 $(PATIENT) -n 0 tests/crash/test_state_attempts.py
	HEADRACE_SETTINGS=60 $(PATIENT) -n 0 tests/connectors/sql/test_settings.py
	HEADRACE_FORGETS=yes $(PATIENT) tests/crash/test_network.py
	HEADRACE_CUTS=all $(PATIENT) tests/changes/test_rewind_in_a_store.py
	$(BIN)/python -m tests.crash.soak --minutes 30
	HEADRACE_TEXT_VALUES=5000 $(PATIENT) -n 0 tests/connectors/test_text_values.py
	HEADRACE_KILLS=40 $(PATIENT) tests/crash/test_kill.py
	HEADRACE_ORDERS=1000 $(PATIENT) -n 0 tests/connectors/sql/test_change_data.py
	HEADRACE_COPY_MINUTES=10 $(PATIENT) -n 0 tests/connectors/kafka/debezium/test_copies.py
	HEADRACE_PAIRS=40 $(PATIENT) tests/connectors/exactly_once
	HEADRACE_DAMAGES=all HEADRACE_TIMELINES=40 $(PATIENT) \
		tests/verifier/test_corruptions.py tests/verifier/test_random_timelines.py

lint: $(DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@$(BIN)/python -m scripts.bars
	@$(BIN)/python -m scripts.signatures --check

types: $(DONE)
	$(BIN)/mypy

capabilities: setup
	$(BIN)/python scripts/capabilities.py

docs: setup
	$(BIN)/python -m scripts.reference

# The site of the documentation, without the network: each wrong link and each page outside of the menu is an error.
docs-site: $(DONE)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html docs build/site
	@echo "Open build/site/index.html"

bench: setup
	$(BIN)/python -m benchmarks $(NAME)

# Of the build tools alone, without what a test needs.
build/tools/.installed: scripts/build.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

# Wheel and sdist; the time in them is that of the commit, so that each build of it is the same bytes.
dist: build/tools/.installed
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 1577836800) $(<D)/bin/python -m hatchling build -d dist
	@cd dist && sha256sum *

LOCK := uv pip compile --quiet --universal --python-version 3.10 --no-header --no-annotate --no-emit-index-url

# The last one names what a wheel needs of the second: its bill of materials lists these.
lock:
	$(LOCK) --generate-hashes scripts/build.in --output-file scripts/build.txt
	$(LOCK) --generate-hashes --constraint scripts/pins.txt --extra dev pyproject.toml --output-file constraints.txt
	$(LOCK) --constraint constraints.txt --extra all pyproject.toml --output-file scripts/released.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
