"""Checks of variational Bayes against the exact posterior of a regression.

Tasks are independent, so errors are clustered by task. A claim that must hold is refused about once in 1/LEVEL runs in
which it is true (Bonferroni over the schemes), beyond a tolerance for the finite length of training.
"""

from collections.abc import Mapping

from torch import Tensor

from ..evidence.statistics import LEVEL, interval, t_quantile
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from .regressions import Regressions

TOLERANCE = 0.02  # of means and spreads, relative
POSTERIOR_FIGURE, CALIBRATION_FIGURE = "posterior", "calibration"
NOMINAL = (0.5, 0.9, 0.95)
ByScheme = Mapping[str, Mapping[str, Tensor]]  # what each scheme found, by name


def recovered(tasks: Regressions, found: ByScheme) -> list[Check]:
    """Every scheme finds the means of the posterior, and the spreads of the best factorised Gaussian."""
    means, spreads = [], []
    for scheme in found.values():
        # The slope of found on exact means, each counted in the posterior's spread.
        exact, seen = tasks.mean / tasks.best, scheme["mean"] / tasks.best
        over, under = (exact * seen).sum(1), exact.square().sum(1)
        slope = over.sum() / under.sum()
        means.append(((over - slope * under) / under.mean() + slope - 1).tolist())
        spreads.append((scheme["std"] / tasks.best).log().mean(1).tolist())
    *others, last = found
    schemes = f"{', '.join(others)} and {last}" if others else last
    end = f"(to {TOLERANCE:.0%}; largest relative error)"
    quantity = "largest relative error"
    return [
        _near("means", f"{schemes} find the means of the exact posterior {end}", quantity, means, POSTERIOR_FIGURE),
        _near(
            "spreads",
            f"{schemes} find the spreads of the best factorised Gaussian {end}",
            quantity,
            spreads,
            POSTERIOR_FIGURE,
        ),
    ]


def covered(tasks: Regressions, held_out: ByScheme) -> list[Check]:
    """Coverage is what theory says. 0.3 points are allowed for the samples of `predict`."""
    differences = [
        (tasks.inside(scheme["mean"], scheme["variance"], level) - tasks.expected(level)).tolist()
        for scheme in held_out.values()
        for level in NOMINAL
    ]
    shown = ", ".join(f"{level:.0%}" for level in NOMINAL)
    claim = (
        f"Held-out targets are in their {shown} intervals as often as theory says of the best factorised Gaussian "
        "(largest difference)"
    )
    return [_near("coverage", claim, "largest difference", differences, CALIBRATION_FIGURE, 0.003)]


def calibrated(tasks: Regressions, scheme: str, held_out: Mapping[str, Tensor]) -> list[Check]:
    """Each interval has about as many held-out targets as its level says."""
    checks = []
    for level in NOMINAL:
        value, _, low, high = interval(tasks.inside(held_out["mean"], held_out["variance"], level).tolist())
        claim = f"{scheme}: {level:.0%} of held-out targets are in their {level:.0%} interval (to 2 points)"
        name, holds = f"calibrated-{100 * level:.0f}", abs(value - level) <= 0.02
        checks.append(Check(name, claim, REPORTED, "coverage", value, (low, high), holds, CALIBRATION_FIGURE))
    return checks


def measured_numbers(tasks: Regressions, found: ByScheme, held_out: ByScheme) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    exact = tasks.covariance.diagonal().sqrt() / tasks.best[0]
    numbers["exact spread / best factorised spread"] = float(exact.mean())
    for scheme, predicted in found.items():
        error = (predicted["mean"] - tasks.mean) / tasks.best
        numbers[f"{scheme}: error of a mean, in spreads (root mean square)"] = float(error.square().mean().sqrt())
        numbers[f"{scheme}: error of a spread (root mean square)"] = float(
            (predicted["std"] / tasks.best - 1).square().mean().sqrt()
        )
    for level in NOMINAL:
        for scheme, predicted in held_out.items():
            numbers[f"{scheme}: in the {level:.0%} interval"] = float(
                tasks.inside(predicted["mean"], predicted["variance"], level).mean()
            )
        exact_inside = tasks.inside(*tasks.predictive(tasks.covariance), level)
        numbers[f"exact posterior: in the {level:.0%} interval"] = float(exact_inside.mean())
    return numbers


def _near(
    name: str, claim: str, quantity: str, groups: list[list[float]], figure: str, tolerance: float = TOLERANCE
) -> Check:
    """Check that the mean of each group is 0, up to a tolerance. The value is the mean of the worst group."""
    found = [interval(values) for values in groups]
    share = LEVEL / len(groups) / 2
    halves = [
        t_quantile(1 - share, len(values) - 1) * estimate[1] for values, estimate in zip(groups, found, strict=True)
    ]
    beyond = [abs(estimate[0]) - half for estimate, half in zip(found, halves, strict=True)]
    worst = max(range(len(groups)), key=beyond.__getitem__)
    value, half = found[worst][0], halves[worst]
    bounds, holds = (value - half, value + half), beyond[worst] <= tolerance
    return Check(name, claim, MUST_HOLD, quantity, value, bounds, holds, figure)
