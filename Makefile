# Every target makes its own .venv when it is missing or older than the project's requirements.
PYTHON ?= python3
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.dev-installed
BENCH := $(VENV)/.bench-installed
PIP := $(BIN)/python -m pip install -q -c constraints.txt

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test fast-tests lint bench test-slow clean distclean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEV)  ## train a sparse coder on embedded data; leaves a picture page in demo/
	$(BIN)/python -m sparsevae demo

test: $(DEV)  ## lint and the tests, side by side (PYTEST_ARGS="..." adds options to pytest's)
	$(MAKE) --jobs=2 lint fast-tests

fast-tests: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

lint: $(DEV)  ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(BENCH)  ## speed against peers, in one run
	$(BIN)/python -m benchmarks

test-slow: $(DEV)  ## the tests that kill processes, run pages and reproductions, or train for long
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow $(PYTEST_ARGS)

clean:  ## remove caches, build outputs and demo/ (.venv and runs/ stay)
	rm -rf build dist demo *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv too
	rm -rf $(VENV)

# The build tool is installed first, so that the editable install needs no isolated environment of its own.
$(DEV): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (the first time downloads PyTorch; this takes a while)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) setuptools
	$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

$(BENCH): $(DEV)
	$(PIP) --no-build-isolation -e '.[dev,bench]'
	@touch $@
