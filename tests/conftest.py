"""Every test runs on the CPU, with the shapes in scorefold's annotations checked (jaxtyping, beartype).

Two things are decided here for the whole suite: that a statistical test states how often it fails by chance, and whether a
skipped test is a failure. Under `pytest -n` the tests of one file share a process (`--dist loadfile`).
"""

import gc
import os
import signal
from importlib.metadata import version
from pathlib import Path

# Programs here are compiled far more often than run. Without optimisations, with XLA's older emitters and in one piece, as
# other tests keep the other processors busy, they are compiled in a third of the time. None is kept on the disk, where the
# command line would keep them in the user's folder: hardly one is compiled twice, and tests would depend on earlier runs.
# Child processes inherit it; jax reads it when it is imported, below.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
if version("jaxlib").startswith("0.10."):  # a later version that does not know the flag would abort
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

import false_failures
import jax
import jaxtyping
import no_skips
import pytest

jaxtyping.install_import_hook("scorefold", "beartype.beartype")

collect_ignore = ["support"]

MOST_MAPS = 30_000
"""Every compiled program holds maps of memory, of which a process may have 65,530."""


def pytest_configure(config):
    # In pyproject.toml this line would import scorefold.errors before the hook is there.
    config.addinivalue_line("filterwarnings", "error::scorefold.errors.ScorefoldWarning")
    # A shell that starts the tests in the background has them ignore Ctrl-C, and tests that interrupt would wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before tests are deselected
def pytest_collection_modifyitems(config, items):
    config.stash[false_failures.STATED] = false_failures.stated(items)


def pytest_collection_finish():
    """Tracing makes many objects that live on. Looking for garbage among them, and among all tests, would take a tenth of
    the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return no_skips.failed_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return no_skips.failed_if_skipped((yield))


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten():
    """Programs are shared by modules, until there are so many that maps of memory may run out."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def pytest_terminal_summary(terminalreporter):
    """What was seen where a test has a limit only, for docs/promises.md."""
    reports = [one for some in terminalreporter.stats.values() for one in some if getattr(one, "when", "") == "call"]
    lines = [f"{one.nodeid}: {words}" for one in reports for name, words in one.user_properties if name == "figure"]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(sorted(lines)))


@pytest.fixture
def figure(record_property):
    """`figure(words)` has a number that was seen listed at the end of the run."""
    return lambda words: record_property("figure", words)


@pytest.fixture
def unchecked(monkeypatch):
    """Annotations go unchecked, as users have it: for arguments that a public function must refuse itself."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def quick_to_run():
    """For tests whose time goes into running programs, not into compiling them."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="module")
def as_users_compile():
    """For modules that compare with numbers made before, which rounding would change."""
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()


@pytest.fixture
def little_memory(monkeypatch):
    """So little memory that simulations in a store stream by."""
    import streamed  # imports scorefold, which must come after the hook

    streamed.leave_little_memory(monkeypatch)


@pytest.fixture
def streamed_sims(little_memory, tmp_path):
    """Sets of up to two observations, more than memory holds."""
    import streamed

    return streamed.simulations(tmp_path / "sims")
