# Run `make help` for what there is. Nothing here needs an activated environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help

.PHONY: help
help:  ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "endive needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another with: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing endive and what it needs into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev-ready: requirements-dev.lock $(VENV)/.run-ready
	@echo "Installing the development tools into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

.PHONY: setup
setup: $(VENV)/.run-ready  ## Make an environment in .venv and install endive into it

.PHONY: demo
demo: $(VENV)/.run-ready  ## Sweep four stores over twelve loads, and make a report of what they carry
	@$(BIN)/endive sweep stores -o experiments/demo
	@$(BIN)/endive analyze experiments/demo -o experiments/demo-report

.PHONY: test
test: $(VENV)/.dev-ready  ## Run the tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.PHONY: test-bounds
test-bounds: $(VENV)/.dev-ready  ## Run the compiled engine's tests with every index checked
	@NUMBA_BOUNDSCHECK=1 ENDIVE_ENGINE_EXAMPLES=60 $(BIN)/python -m pytest tests/test_engines.py

.PHONY: soak
soak: $(VENV)/.dev-ready  ## Kill a sweep and a summary ten times each, at moments whose seed is printed
	@ENDIVE_KILLS=10 $(BIN)/python -m pytest -s tests/test_sweep.py tests/test_summarize.py -k killed

.PHONY: lint
lint: $(VENV)/.dev-ready  ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.PHONY: format
format: $(VENV)/.dev-ready  ## Rewrite the code in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: reference
reference: $(VENV)/.run-ready  ## Write the JSON Schema and the reference of the configuration anew
	@$(BIN)/python -m endive.config > endive/config.schema.json
	@$(BIN)/python docs/reference/generate.py

.PHONY: lock
lock:  ## Resolve the dependencies anew (needs uv)
	@uv pip compile pyproject.toml --group build --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --upgrade --quiet -o requirements.lock
	@uv pip compile pyproject.toml --group build --group dev -c requirements.lock --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade --quiet -o requirements-dev.lock

.PHONY: clean
clean:  ## Remove the environment, caches and builds
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
