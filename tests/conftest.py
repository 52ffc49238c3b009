"""Every test runs on the CPU, with the shapes in scorefold's annotations checked (jaxtyping, beartype)."""

import gc
import os

os.environ["JAX_PLATFORMS"] = "cpu"  # jax reads it when it is imported, below

import jax
import jaxtyping
import pytest

jaxtyping.install_import_hook("scorefold", "beartype.beartype")


def pytest_configure(config):
    # In pyproject.toml this line would import scorefold.errors before the hook is there.
    config.addinivalue_line("filterwarnings", "error::scorefold.errors.ScorefoldWarning")


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten():
    """Every compiled program holds maps of memory, of which a process may have 65,530: all tests' together are too many."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def unchecked(monkeypatch):
    """Annotations go unchecked, as users have it: for arguments that a public function must refuse itself."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def quick_to_compile():
    """For modules whose time goes into compiling tiny programs: XLA leaves out most of its optimisations (-40%)."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
