PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-full smoke lint format clean

demo: .venv/installed
	$(BIN)/scorefold demo --out demo

test: .venv/installed
	$(BIN)/pytest -n 2 --dist loadfile -m "not full" --durations=8

test-full: .venv/installed
	$(BIN)/pytest -n 2 --dist loadfile --durations=15

smoke: .venv/installed
	rm -rf build/smoke
	$(BIN)/scorefold bench run --preset smoke --out build/smoke
	$(BIN)/scorefold bench figures build/smoke
	$(BIN)/scorefold report build/smoke

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
