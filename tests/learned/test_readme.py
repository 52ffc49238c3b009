"""The README's Python runs as it stands, on a smaller budget."""

import re
from pathlib import Path

import pytest

import scorefold as sf
from scorefold.posterior import rule_and_sampler as pairing

pytestmark = pytest.mark.usefixtures("quick_to_compile")

README = Path(__file__).parents[2] / "README.md"


def test_python_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    changes = {
        "budget=10_000": "budget=300",
        'method="pf-npse"': "method=sf.NPSE(width=8, depth=1, training=sf.Training(steps=60, members=2))",
        "progress=True": "progress=False",
    }
    for words, smaller in changes.items():
        assert words in code
        code = code.replace(words, smaller)
    names: dict = {}
    exec(code, names)
    draws = names["draws"]
    assert draws.theta.shape == (1_000, 2)
    assert draws.names == ("shape", "scale")
    assert (draws.theta[:, 1] > 0.2).all()
    assert (draws.theta[:, 1] < 2.2).all()


def test_the_papers_configuration_is_accepted() -> None:
    (code,) = re.findall(r"`(sf\.NPSE\(base=False.*?\))` is the paper's", README.read_text(), flags=re.DOTALL)
    method = eval(" ".join(code.split()))
    assert isinstance(method, sf.NPSE)
    assert pairing.get_sampler(method.sampler) == sf.samplers.Langevin()
    assert pairing.get_rule(method.rule) == sf.rules.Tempered()
