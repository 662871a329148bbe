# Everything a user or a developer types. `make help` lists it.
#
# Each target sets up what it needs: a clone and `make test` are enough on a fresh machine.

.DEFAULT_GOAL := help
.PHONY: help setup demo test check coverage versions bench conformance sim mutants kills streams-kills fuzz dist docs lock fmt clean
.SHELLFLAGS := -eu -c

SEEDS ?= 100
JOBS ?= 2
KIND ?=
ONLY ?=
BENCH_ARGS ?=
FUZZ_SECONDS ?= 60
ROUNDS ?= 100
MINUTES ?= 10
COVERAGE ?= tests --ignore=tests/crash --ignore=tests/spark --ignore=tests/simulation
# What measuring itself breaks: modules that coverage imports, limits on the size of files.
UNMEASURED := tests/unit/test_cli_command.py::test_help_loads_no_part_of_a_node \
	tests/integration/test_record_commands.py::test_output_that_does_not_fit_is_an_error_and_is_not_committed \
	tests/integration/test_record_commands.py::test_no_command_loses_a_part_of_its_output
PYTHONS ?= python3.12 python3.13 python3.14
CONFORMANCE_ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed
CORE := $(shell find rust \( -path rust/target -o -path rust/fuzz \) -prune -o -type f \( -name '*.rs' -o -name 'Cargo.*' \) -print 2>/dev/null)
PYTHON_FOLDERS := src tests benchmarks conformance examples harness tools
QUICK := tests/unit tests/transcripts tests/properties

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-12s %s\n' "$$name" "$$what"; done

setup: $(STAMP) ## create .venv, build the core and install the packages

# Only what is compiled or declared is a prerequisite: the Python sources are installed as links.
$(STAMP): pyproject.toml requirements-dev.lock tools/setup tools/ensure tools/rust-env $(CORE)
	@tools/setup
	@touch $@

demo: setup ## a node, orders joined with payments on Spark, and their sums: as a live table and a picture
	@tools/ensure java
	@$(BIN)/headwater demo --picture build/demo.png

test: setup ## all tests: unit, properties, simulation, integration, compatibility, Spark, crash
	@tools/ensure java
	@tools/run-parts \
		main 'SEEDS=$(SEEDS) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests --ignore=tests/crash --ignore=tests/spark' \
		spark '$(BIN)/python -m pytest tests/spark' \
		crash '$(BIN)/python -m pytest tests/crash'

check: setup ## format, lint, types, import contracts, clippy, the quick tests
	$(BIN)/ruff format --check $(PYTHON_FOLDERS)
	$(BIN)/ruff check $(PYTHON_FOLDERS)
	$(BIN)/mypy
	$(BIN)/lint-imports
	@tools/ensure clippy
	. tools/rust-env && cargo fmt --manifest-path rust/Cargo.toml --all --check
	. tools/rust-env && cargo clippy --manifest-path rust/Cargo.toml --workspace --quiet --release --all-targets -- -D warnings
	. tools/rust-env && cargo test --manifest-path rust/Cargo.toml --quiet --package headwater-records
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(QUICK)

coverage: setup ## which lines the tests of a node and its clients reach; COVERAGE='tests/unit …' for a part
	$(BIN)/pip install -q --disable-pip-version-check -c requirements-dev.lock pytest-cov
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov --cov-report= $(COVERAGE) $(addprefix --deselect=,$(UNMEASURED)) || \
		echo 'coverage: tests failed; the figures are of those that ran'
	$(BIN)/python -m coverage combine --quiet || true
	$(BIN)/python -m coverage html --quiet -d build/coverage
	$(BIN)/python -m coverage report --show-missing | tail -n 80

versions: ## the quick tests on other versions of Python: PYTHONS='python3.12 python3.13'
	@tools/ensure compiler rust java
	@for python in $(PYTHONS); do tools/try-python $$python || exit 1; done

dist: setup ## wheel and sdist in dist/, each tried in a fresh environment
	@rm -rf dist
	@. tools/rust-env && $(BIN)/maturin build --release --strip --locked --out dist >/dev/null
	@. tools/rust-env && $(BIN)/maturin sdist --out dist >/dev/null 2>&1
	@tools/try-dist dist/*.whl
	@tools/try-dist dist/*.tar.gz
	@ls -l dist

lock: setup ## renew requirements-dev.lock
	@$(BIN)/pip install -q uv
	printf 'maturin>=1.9,<2\nsetuptools\nwheel\n' | $(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 \
		--no-header pyproject.toml - --extra test --extra check --extra spark --extra demo --extra coverage --extra docs \
		-o requirements-dev.lock

sim: setup ## SEEDS=N random histories each of a simulated node, log, cluster and its transactions; KIND=cluster for one
	$(BIN)/python -m headwater.testing.sim --seeds $(SEEDS) --jobs $(JOBS) $(if $(KIND),--kind $(KIND))

mutants: setup ## plants bugs in nodes and clusters; the simulator has to catch each one; ONLY=text
	$(BIN)/python -m tests.simulation.mutant_hunt --jobs $(JOBS) $(if $(ONLY),--only '$(ONLY)')

kills: setup ## ROUNDS=N rounds of Spark's exactly-once sink, in each of which something is killed
	@tools/ensure java
	$(BIN)/python -m harness.exactly_once --rounds $(ROUNDS)

streams-kills: setup ## MINUTES=N of kills beside a topology with a join, windows and a processor
	@tools/ensure java
	$(BIN)/python -m harness.streams_kills --minutes $(MINUTES)

fuzz: setup ## FUZZ_SECONDS=N for each fuzz target of the core, with cargo-fuzz
	@tools/ensure fuzz
	@. tools/rust-env && for target in validate decompress compact; do \
		(cd rust && RUSTC_BOOTSTRAP=1 cargo fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096) || exit 1; done

docs: setup ## the documentation site in build/site, its links checked
	@$(BIN)/python -c 'import mkdocs, mkdocstrings' 2>/dev/null || \
		$(BIN)/pip install -q --disable-pip-version-check -c requirements-dev.lock mkdocs-material 'mkdocstrings[python]'
	@$(BIN)/python tools/docs_hooks.py settings > docs/settings.md
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@$(BIN)/python tools/docs_hooks.py links build/site
	@echo "docs: build/site/index.html"

bench: setup ## speed compared with Apache Kafka, as ratios; BENCH_ARGS='--quick --only start --plot'
	@tools/ensure java
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

conformance: setup ## Kafka's own tools and other people's clients against a fresh node; ONLY=name
	@tools/ensure java node
	$(BIN)/python -m conformance $(if $(ONLY),--only '$(ONLY)') $(CONFORMANCE_ARGS)

fmt: setup ## format Python and Rust
	$(BIN)/ruff format $(PYTHON_FOLDERS)
	$(BIN)/ruff check --fix --quiet $(PYTHON_FOLDERS) || true
	@tools/ensure clippy
	. tools/rust-env && cargo fmt --manifest-path rust/Cargo.toml --all

clean: ## remove everything that was built
	rm -rf .venv rust/target rust/fuzz/target rust/fuzz/corpus rust/fuzz/artifacts build dist bench-results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache src/headwater/_core*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
