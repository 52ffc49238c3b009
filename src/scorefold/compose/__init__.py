"""Rules that make one score out of many sets' scores, by name."""

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
