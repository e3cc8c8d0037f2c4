# Everything a developer types. An empty clone needs Python 3.11 or newer; tests beside brokers' own tools
# also need Java 17 and Maven.

PYTHON ?= $(firstword $(foreach v,python3 python3.14 python3.13 python3.12 python3.11,$(shell command -v $(v) >/dev/null 2>&1 && $(v) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(v))))
JOBS ?= 4
ROWS ?= not large
KAFKA_VERSIONS ?= 3.9.1 4.3.0 4.4.0
BIN := .venv/bin
READY := .venv/.installed
DEMO := .venv/.installed-demo

.DEFAULT_GOAL := help
.PHONY: help demo test matrix lint bench docs formatter wheel

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO) ## copy, segments, format, sweep, delete and fetch on a captured broker's data, in the folder demo
	@$(BIN)/python -m tests.demo demo

test: $(READY) ## Lint, then every test, on both cores
	@for module in kernels spark_classes; do $(BIN)/python -m tests.support.$$module & done; \
	$(MAKE) --no-print-directory lint; status=$$?; wait; exit $$status
	$(BIN)/pytest -q -n $(JOBS)

matrix: $(READY) ## Long tests, and those beside Kafka, with each version in KAFKA_VERSIONS
	@failed=; \
	TEST_EXAMPLES=all $(BIN)/pytest -q -n $(JOBS) -m "(matrix or hypothesis or thinned) and not kafka" \
	  || failed=" without brokers,"; \
	for version in $(KAFKA_VERSIONS); do \
	  echo "Kafka $$version"; \
	  TEST_KAFKA_VERSION=$$version $(BIN)/pytest -q -n $(JOBS) -m kafka || failed="$$failed with Kafka $$version,"; \
	done; \
	test -z "$$failed" || { echo "error: tests failed$${failed%,}" >&2; exit 1; }

lint: $(READY) ## ruff, mypy --strict, the one-way import rule, and no dead code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.lint.dead_code

bench: $(READY) ## Speed beside rivals: ROWS="segments or format" picks rows; writes README and man/tierctl-speed.7
	@mkdir -p .benchmarks
	$(BIN)/pytest tests/bench --benchmark-only --benchmark-json=.benchmarks/last.json -k "$(ROWS)"
	$(BIN)/python -m tests.bench.figures .benchmarks/last.json
	$(BIN)/python -m tierctl.cli.docs.write

formatter: $(READY) ## The jar for Kafka's console consumer, which a wheel then ships (JDK 11 or newer, Maven)
	$(BIN)/python -m tierctl.console_consumer.build

wheel: formatter ## dist/*.whl with the jar, man pages, completions and the files of share/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

docs: $(READY) ## Write completions/ and man/ from the commands
	$(BIN)/python -m tierctl.cli.docs.write

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	@echo "Making the virtual environment .venv"
	@$(PYTHON) -m venv .venv

# The packages that every command needs, without extras: about half a minute.
$(DEMO): pyproject.toml | $(BIN)/python
	@echo "Installing tierctl and the packages that it needs into .venv"
	@$(BIN)/python -m pip install --disable-pip-version-check -e .
	@touch $@

# All extras, PySpark among them, and the tools of tests: several minutes.
$(READY): pyproject.toml | $(BIN)/python
	@echo "Installing tierctl, all extras and the tools of development into .venv: several minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(DEMO) $@
