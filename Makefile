# `make demo` and `make test` are all the set-up there is; they need Python 3.11 or newer with venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml setup.py $(wildcard kseg/*.py kseg/*/*.py kseg/*/*.pxd)

.PHONY: demo test check interop fixtures findings peers docs bench bench-spark dist clean

demo: $(VENV)/.installed
	@sh demo.sh $(BIN)/kseg

test: $(VENV)/.tested
	$(BIN)/python -m pytest -q

check: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.docs

# The parts of `make test` that need Java and Maven, alone; without these they skip.
interop: $(VENV)/.tested
	$(BIN)/python -m pytest -q -m interop

fixtures: $(VENV)/.tested
	$(BIN)/python -m tests.lab.make_fixtures
	$(BIN)/python -m tests.lab.streams

findings: $(VENV)/.tested
	$(BIN)/python -m tests.make_findings

# What kafka-dump-log says of the damaged fixtures, for the table in README.md; needs Java and Maven.
peers: $(VENV)/.tested
	$(BIN)/python -m tests.lab.dump_log_says
	$(BIN)/python -m tests.docs --write

docs: $(VENV)/.tested
	$(BIN)/python -m tests.docs --write

bench: $(VENV)/.tested
	$(BIN)/python -m bench

bench-spark: $(VENV)/.tested
	$(BIN)/python -m bench.spark --write

dist: $(VENV)/.tested
	$(BIN)/python -m pip install -q build
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) build dist *.egg-info kseg/*/*.so

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check 'pip>=25.1'  # knows --group

$(VENV)/.installed: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

# The group spark is half a gigabyte, and comes last: with SPARK= it is left out, and what needs it skips.
SPARK := --group spark
$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check --group test --group lab --group check --group s3 $(SPARK)
	@touch $@
