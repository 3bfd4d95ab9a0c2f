"""What variational Bayes has to find of a regression's posterior.

Tasks are independent, so errors are clustered by task. What must hold is refused about once in 1/LEVEL runs where it is
true (Bonferroni over the schemes), beyond the tolerance that a training of finite length is given.
"""

from collections.abc import Mapping

from torch import Tensor

from ..evidence.statistics import LEVEL, interval, t_quantile
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from .regressions import Regressions

TOLERANCE = 0.02  # of means and spreads, relative
NOMINAL = (0.5, 0.9, 0.95)
Found = Mapping[str, Mapping[str, Tensor]]


def recovered(made: Regressions, found: Found) -> list[Check]:
    means, spreads = [], []
    for own in found.values():
        # The slope of found on exact means, each counted in the posterior's spread.
        exact, seen = made.mean / made.best, own["mean"] / made.best
        over, under = (exact * seen).sum(1), exact.square().sum(1)
        slope = over.sum() / under.sum()
        means.append(((over - slope * under) / under.mean() + slope - 1).tolist())
        spreads.append((own["std"] / made.best).log().mean(1).tolist())
    to = f"to {TOLERANCE:.0%}; relative error that speaks most against it"
    return [
        _near(f"{', '.join(found)} find the exact posterior's means ({to})", means),
        _near(f"{', '.join(found)} find the spreads of the best factorised Gaussian ({to})", spreads),
    ]


def covered(made: Regressions, held_out: Found) -> list[Check]:
    """Between theory and a training of finite length there are also the samples of `predict`: 0.3 points are given."""
    apart = [
        (made.inside(own["mean"], own["variance"], level) - made.expected(level)).tolist()
        for own in held_out.values()
        for level in NOMINAL
    ]
    shown = ", ".join(f"{level:.0%}" for level in NOMINAL)
    claim = f"Held-out targets are in their {shown} intervals as often as theory says of the best factorised Gaussian"
    return [_near(f"{claim} (difference that speaks most against it)", apart, 0.003)]


def calibrated(made: Regressions, scheme: str, own: Mapping[str, Tensor]) -> list[Check]:
    checks = []
    for level in NOMINAL:
        value, _, low, high = interval(made.inside(own["mean"], own["variance"], level).tolist())
        claim = f"{scheme}: {level:.0%} of held-out targets are in their {level:.0%} interval (to 2 points)"
        checks.append(Check(claim, REPORTED, value, (low, high), abs(value - level) <= 0.02))
    return checks


def numbers(made: Regressions, found: Found, held_out: Found) -> dict[str, Number]:
    given: dict[str, Number] = {}
    exact = made.covariance.diagonal().sqrt() / made.best[0]
    given["exact spread / best factorised spread"] = float(exact.mean())
    for scheme, own in found.items():
        error = (own["mean"] - made.mean) / made.best
        given[f"{scheme}: error of a mean, in spreads (root mean square)"] = float(error.square().mean().sqrt())
        given[f"{scheme}: error of a spread (root mean square)"] = float(
            (own["std"] / made.best - 1).square().mean().sqrt()
        )
    for level in NOMINAL:
        for scheme, own in held_out.items():
            given[f"{scheme}: in the {level:.0%} interval"] = float(
                made.inside(own["mean"], own["variance"], level).mean()
            )
        whole = made.inside(*made.predictive(made.covariance), level)
        given[f"exact posterior: in the {level:.0%} interval"] = float(whole.mean())
    return given


def _near(claim: str, groups: list[list[float]], tolerance: float = TOLERANCE) -> Check:
    """The mean of each group is 0, to a tolerance."""
    found = [interval(values) for values in groups]
    share = LEVEL / len(groups) / 2
    halves = [t_quantile(1 - share, len(values) - 1) * one[1] for values, one in zip(groups, found, strict=True)]
    beyond = [abs(one[0]) - half for one, half in zip(found, halves, strict=True)]
    worst = max(range(len(groups)), key=beyond.__getitem__)
    value, half = found[worst][0], halves[worst]
    return Check(claim, MUST_HOLD, value, (value - half, value + half), beyond[worst] <= tolerance)
