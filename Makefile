# Two commands do everything on a fresh machine with Python, pip and make:
#   make demo   installs into .venv and runs the main job on built-in data
#   make test   installs into .venv and runs every check
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# the tested versions; CONSTRAINTS= lets pip choose within the ranges of pyproject.toml
CONSTRAINTS ?= constraints.txt
# byte code is kept whatever the environment says: without it each process compiles torch and the rest again, 13 s
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all docs gallery lint types layers warmup pytest bench bench-check bench-adaptation bench-images bench-methods bench-predict bench-scaling bench-selection bench-suite clean

INSTALL = $(BIN)/python -m pip install --quiet --no-compile $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable

# what users install; modules are compiled when they are first imported: most never are
$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	# but POT here: its old escapes are warnings when it is compiled, and warnings are errors in the tests
	$(BIN)/python -W ignore -m compileall -q $(VENV)/lib/python3*/site-packages/ot
	touch $@

# all extras, and what the checks, the docs and the benchmarks need
$(VENV)/.installed: $(VENV)/.core
	$(INSTALL) '.[dev]'
	touch $@

demo: $(VENV)/.core
	$(BIN)/warmpot demo --out demo

# what uses one core goes two at a time; solvers are compiled here, or every worker of pytest would compile them
test: lint
	$(MAKE) -j2 types warmup layers
	$(MAKE) pytest

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(VENV)/.installed
	$(BIN)/mypy

layers: $(VENV)/.installed
	$(BIN)/lint-imports

warmup: $(VENV)/.installed
	$(BIN)/warmpot warmup

pytest: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --durations 30

# what takes long and is tested by something shorter as well
test-all: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# runs the examples, writes docs/gallery.md and its pictures
gallery: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python docs/gallery.py

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/transport.py
	$(BIN)/python benchmarks/commands.py

# fails when a ratio is below half of that in benchmarks/results
bench-check: $(VENV)/.installed
	$(BIN)/python benchmarks/transport.py --quick --check
	$(BIN)/python benchmarks/commands.py --quick --check

bench-adaptation: $(VENV)/.installed
	$(BIN)/python benchmarks/adaptation.py

bench-images: $(VENV)/.installed
	$(BIN)/python benchmarks/images.py

# 5 million rows; 5 GB of disk for a while
bench-predict: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/predict.py

bench-scaling: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/scaling.py

# the grids of docs/bench.md, into benchmarks/results; what is there is not trained again
DATA ?= ../shared/data
GRID = $(BIN)/warmpot bench $(1)-features --data $(DATA) --jobs 2 --out benchmarks/results/$(2)
bench-methods: $(VENV)/.installed
	$(call GRID,comparison,comparison)
	$(call GRID,ablation,ablation) --reuse benchmarks/results/comparison
	$(call GRID,weights-histogram,weights)
	$(call GRID,sensitivity,sensitivity)
	$(BIN)/python benchmarks/tables.py

bench-selection: $(VENV)/.installed
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/selection.py --overlap
	$(BIN)/python benchmarks/bounds.py

# the development suite: hours; what is in benchmarks/results/suite.jsonl is not trained again
SUITE = $(BIN)/python benchmarks/suite.py
bench-suite: $(VENV)/.installed
	$(SUITE)
	$(SUITE) --known-classes
	$(SUITE) --extractor lite0
	$(SUITE) --extractor lite0 --known-classes
	$(SUITE) --tables

clean:
	rm -rf $(VENV) demo site build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
