PYTHON ?= python3
BIN := .venv/bin
PYTEST := pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-rest test-full test-oldest test-newest smoke peers lint format dist docs clean

demo: .venv/installed
	$(BIN)/scorefold demo --out demo

# Unit and contract tests, examples in docstrings, and the shorter of the others.
test: .venv/installed
	$(BIN)/$(PYTEST) -m "not full" --durations=8

# The longer checks that `make test` leaves out.
test-rest: .venv/installed
	$(BIN)/$(PYTEST) -m full --durations=15

# Everything, in two runs: compiled programs stay in memory until a run ends.
test-full: test test-rest

# The tests of `make test` with the oldest and with the newest versions of the dependencies.
test-oldest: .venv-oldest/installed
	.venv-oldest/bin/$(PYTEST) -m "not full"

test-newest: .venv-newest/installed
	.venv-newest/bin/$(PYTEST) -m "not full"

# Whether the benchmark runs from end to end, with networks too small for its numbers to mean anything.
smoke: .venv/installed
	rm -rf build/smoke
	$(BIN)/scorefold bench run --preset tiny --out build/smoke
	$(BIN)/scorefold bench figures build/smoke
	$(BIN)/scorefold report build/smoke

# Other packages on the board's simulations and observations, in an environment of their own (.peers). ONLY names a part of the
# cells, as in `scorefold bench run --only`. Goes on where it stopped.
BOARD ?= benchmarks/results/board
ONLY ?=
peers: .venv/installed
	$(BIN)/python benchmarks/board.py run --out $(BOARD) --only "$(ONLY)"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Wheel and sdist, and a smoke test of the wheel in an environment that has nothing else; DIST_PYTHON names another Python.
DIST_PYTHON ?= $(PYTHON)
dist: .venv/installed
	rm -rf dist build/dist-venv
	$(BIN)/python -m build --outdir dist .
	$(DIST_PYTHON) -m venv build/dist-venv
	build/dist-venv/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && env -u PYTHONPATH dist-venv/bin/python ../packaging/smoke.py

# The site, into build/site. Tutorials are executed the first time, and again when they or the package's version change.
docs: .venv-docs/installed
	.venv-docs/bin/sphinx-build -b html -W --keep-going -q docs build/site
	.venv-docs/bin/python docs/_ext/check_site.py build/site

.venv-docs/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

.venv-oldest/installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e ".[dev]"
	touch $@

.venv-newest/installed: pyproject.toml
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager -e ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-oldest .venv-newest .venv-docs demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
