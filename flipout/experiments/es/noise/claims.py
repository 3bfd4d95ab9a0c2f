"""What theory says of the error of an update, and how the kinds of noise rank on networks."""

import math
from collections.abc import Mapping
from statistics import median

from ...evidence.statistics import LEVEL, geometric, interval, t_quantile
from ...running.results import MUST_HOLD, REPORTED, Check, Number
from .errors import NoiseMethod
from .tasks import LINEAR

FIGURE = "estimates"
Errors = Mapping[str, Mapping[str, Mapping[str, list[float]]]]  # task → method → lists over the estimates
_NEAR = 1.1  # times the error of independent noise that still counts as no loss


def theory(found: Mapping[str, Mapping[str, list[float]]], methods: Mapping[str, NoiseMethod], members: int) -> Check:
    """The mean squared error on a linear fitness is that of theory, under every kind of noise."""
    share, ratios = LEVEL / len(found) / 2, []
    for name, lists in found.items():
        value, error, *_ = interval([e / methods[name].theory(members) for e in lists["error"]])
        half = t_quantile(1 - share, len(lists["error"]) - 1) * error
        ratios.append((abs(value - 1) - half, value, half))
    beyond, value, half = max(ratios)
    claim = (
        "On a linear fitness the mean squared error of an update is that of theory, under every kind of noise: (d − 1) "
        "/ N of the squared gradient for rank-one flips of d weights (the ratio that is furthest off)"
    )
    bounds = value - half, value + half
    return Check("linear-theory", claim, MUST_HOLD, "measured / theory", value, bounds, beyond <= 0, FIGURE)


def reported(found: Errors) -> list[Check]:
    """How rank-one flips compare with other noise on each network."""
    checks = []
    for task, by_method in found.items():
        if task == LINEAR:
            continue
        for pairs in ("", ", pairs"):
            suffix = f"{task}-pairs" if pairs else task
            with_pairs = " with antithetic pairs" if pairs else ""
            flips, ideal = by_method[f"rank_one{pairs}"], by_method[f"independent{pairs}"]
            ratio = geometric([a / b for a, b in zip(flips["error"], ideal["error"], strict=True)])
            claim = (
                f"{task}: the error of rank-one flips{with_pairs} is at most {_NEAR:g} times that of independent "
                "noise, at equal members (ratio)"
            )
            holds = ratio[0] <= _NEAR
            checks.append(Check(f"members/{suffix}", claim, REPORTED, "ratio", ratio[0], ratio[1:], holds, FIGURE))
            others = {n: at_equal_time(v) for n, v in by_method.items() if n.endswith(", pairs") == bool(pairs)}
            rival = min((n for n in others if not n.startswith("rank_one")), key=lambda n: others[n])
            value = others[f"rank_one{pairs}"] / others[rival]
            claim = (
                f"{task}: at equal time the error of rank-one flips{with_pairs} is below that of every other noise "
                f"(ratio to the best of them)"
            )
            remark = f"the best of them is {rival.removesuffix(', pairs')}"
            checks.append(Check(f"time/{suffix}", claim, REPORTED, "ratio", value, None, value < 1, FIGURE, remark))
    return checks


def at_equal_time(lists: Mapping[str, list[float]]) -> float:
    """Return the error times the seconds of an estimate: errors fall as 1 / N, and seconds grow as N."""
    return math.fsum(lists["error"]) / len(lists["error"]) * median(lists["seconds"])


def numbers(found: Errors, methods: Mapping[str, NoiseMethod], members: int) -> dict[str, Number]:
    measured: dict[str, Number] = {}
    for task, by_method in found.items():
        fastest = min(map(at_equal_time, by_method.values()))
        for name, lists in by_method.items():
            count = len(lists["error"])
            measured[f"{task}, {name}: squared error / squared gradient"] = math.fsum(lists["error"]) / count
            if task == LINEAR:
                measured[f"{task}, {name}: theory"] = methods[name].theory(members)
                continue
            measured[f"{task}, {name}: cosine with the gradient"] = math.fsum(lists["cosine"]) / count
            measured[f"{task}, {name}: seconds of an update"] = median(lists["seconds"])
            measured[f"{task}, {name}: error at equal time / least"] = at_equal_time(lists) / fastest
    return measured
