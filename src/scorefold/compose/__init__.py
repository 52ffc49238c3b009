"""Rules that make one score out of many sets' scores, by name.

A rule is given to a method, `sf.NPSE(rule=...)`, or to `posterior.sample(x_obs, rule=...)`, as an object of these classes or by
its name in `RULES`. Left out, it is `Diffused`, from 1,000 sets on `Damped`. With a single set every rule is that set's score.
"""

from scorefold.compose.damped import Damped
from scorefold.compose.factorized import Diffused, Tempered
from scorefold.compose.gauss import Gauss
from scorefold.compose.jac import Jac

Rule = Diffused | Tempered | Gauss | Jac | Damped

RULES: dict[str, Rule] = {
    "diffused": Diffused(),
    "tempered": Tempered(),
    "gauss": Gauss(),
    "gauss-pilots": Gauss(pilots=200),
    "jac": Jac(),
    "damped": Damped(),
}

__all__ = ["RULES", "Damped", "Diffused", "Gauss", "Jac", "Rule", "Tempered"]


def __dir__() -> list[str]:
    return __all__
