"""ArviZ before and since its version 1: the same groups, arrays and attributes, also in a file."""

import arviz
import numpy as np
import pytest

from scorefold.posterior.arviz_groups import inference_data
from scorefold.sample.variational import tail_shape

GROUPS = {
    "posterior": {"rate [1/s]": np.arange(6.0).reshape(1, 6), "b": np.ones((1, 6))},
    "observed_data": {"x": np.arange(4.0).reshape(2, 2)},
}

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_groups_arrays_and_attributes(tmp_path):
    inference = inference_data(GROUPS, {"trust": "good"})
    inference.to_netcdf(str(tmp_path / "draws.nc"))
    for one in (inference, arviz.from_netcdf(str(tmp_path / "draws.nc"))):
        assert np.array_equal(one["posterior"]["rate [1\N{DIVISION SLASH}s]"], GROUPS["posterior"]["rate [1/s]"])
        assert np.array_equal(one["observed_data"]["x"], GROUPS["observed_data"]["x"])
        assert dict(one["posterior"].sizes) == {"chain": 1, "draw": 6}
        assert one["posterior"].attrs["trust"] == "good"


@pytest.mark.parametrize("version", ["0.23.4", "1.3.0"])
def test_each_version_is_called_as_it_wants(version, monkeypatch):
    called = {}
    monkeypatch.setattr(arviz, "__version__", version)
    monkeypatch.setattr(arviz, "from_dict", lambda *groups, **named: called.update(groups=groups, named=named))
    inference_data(GROUPS, {"trust": "good"})
    if version.startswith("0"):
        assert set(called["named"]) == {"posterior", "observed_data", "posterior_attrs"}
    else:
        assert set(called["groups"][0]) == {"posterior", "observed_data"}
        assert called["named"] == {"attrs": {"posterior": {"trust": "good"}}}


@pytest.mark.false_failure(1e-6)
def test_the_tail_of_the_weights_is_the_upper_one():
    """Weights with a Pareto tail of shape 1 above, and bounded below: their negatives have no tail at all."""
    log_weights = np.random.default_rng(0).exponential(size=2_000)
    assert tail_shape(log_weights) > 0.7
    assert tail_shape(-log_weights) < 0.3
