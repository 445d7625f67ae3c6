# Two commands do everything on a fresh machine with Python, pip and make:
#   make demo   installs into .venv and runs the main job on built-in data
#   make test   installs into .venv and runs every check
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all lint types rooms pytest bench bench-adaptation bench-images bench-methods bench-scaling bench-selection clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	# modules are compiled when they are first imported: most never are
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	# but POT here: its old escapes are warnings when it is compiled, and warnings are errors in the tests
	$(BIN)/python -W ignore -m compileall -q $(VENV)/lib/python3*/site-packages/ot
	touch $@

demo: $(VENV)/.installed
	$(BIN)/warmpot demo --out demo

test: lint types rooms pytest

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

rooms: $(VENV)/.installed
	$(BIN)/lint-imports

pytest: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --durations 30

# what takes long and is tested by something shorter as well
test-all: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/transport.py

bench-adaptation: $(VENV)/.installed
	$(BIN)/python benchmarks/adaptation.py

bench-images: $(VENV)/.installed
	$(BIN)/python benchmarks/images.py

bench-scaling: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/scaling.py

bench-methods: $(VENV)/.installed
	$(BIN)/python benchmarks/methods.py

bench-selection: $(VENV)/.installed
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/selection.py --overlap
	$(BIN)/python benchmarks/bounds.py

clean:
	rm -rf $(VENV) demo build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
