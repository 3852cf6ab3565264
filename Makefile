# One command for each thing. Needs Python 3.11 or later with pip and venv, make and g++.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: all demo test test-slow check bench docs clean

all: $(READY)

# Done once, and again when what is asked for changes; the stamp is written only after success.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Grainshift needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	@touch $@

demo: $(READY)
	$(BIN)/grainshift demo

test: $(READY)
	$(BIN)/python -m pytest

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture

# The engines that Grainshift is measured beside are not needed for anything else.
$(VENV)/.peers: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	@touch $@

bench: $(VENV)/.peers
	$(BIN)/python -m grainshift.bench results

docs: $(READY)
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests docs examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
