"""The paper's table of times beside ours: cores that a device replaces, at what price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ...evidence.statistics import geometric
from ...running.results import MUST_HOLD, REPORTED, Check, Number

SAMPLES, CORES, FACTOR, PRICE = 5000, 40, 4.0, "about 60"
PAPER = {  # seconds for FlipES on its GPU, and for 40 cores
    "FC 32": (0.12, 0.51),
    "FC 128": (0.13, 1.22),
    "FC 512": (0.18, 5.10),
    "FC 2048": (1.86, 38.0),
    "ConvLe 0.25": (2.3, 16.0),
    "ConvLe 0.75": (5.48, 46.0),
    "ConvLe 1": (7.12, 67.0),
    "ConvLe 1.5": (11.77, 132.0),
}
TOLERANCE = 1e-2  # of the fitness of members, in their standard deviation: products are rounded elsewhere, too


@dataclass(frozen=True)
class Times:
    """Seconds for 5,000 samples, of each round: on the device, and of one core."""

    flip: list[float]
    ideal: list[float]
    backprop: list[float]  # for one update
    core: list[float]
    ray: list[float] | None = None  # of one core

    @property
    def replaced(self) -> tuple[float, float, float]:
        """Cores that the device replaces."""
        return _ratio(self.core, self.flip)


def same_fitness(apart: Mapping[str, float]) -> Check:
    claim = "One at a time on a CPU or all at once on the device, members have the same fitness (largest difference)"
    worst = max(apart.values())
    return Check(
        f"{claim}, in their standard deviation, at most {TOLERANCE:g}", MUST_HOLD, worst, None, worst <= TOLERANCE
    )


def reported(times: Mapping[str, Times], device_price: float, core_price: float) -> list[Check]:
    least = min((one.replaced for one in times.values()), key=lambda found: found[0])
    cheaper = tuple(bound * core_price / device_price for bound in least)
    slower = min((_ratio(one.ideal, one.flip) for one in times.values()), key=lambda found: found[0])
    priced = f"At the stated prices it is at least {FACTOR:g} times cheaper, at every size (the least)"
    checks = [
        _check(f"The device replaces at least {CORES} cores, at every size (the least)", least, CORES),
        _check(priced, cheaper, FACTOR),
        _check("On the device FlipES is faster than IdealES, at every size (ratio, the least)", slower, 1),
    ]
    for kind in ("FC", "ConvLe"):
        own = [one for name, one in times.items() if name.startswith(kind)]
        if len(own) > 1:
            growth = [_ratio(getattr(own[-1], form), getattr(own[0], form)) for form in ("core", "flip")]
            value = growth[0][0] / growth[1][0]
            bounds = growth[0][1] / growth[1][2], growth[0][2] / growth[1][1]
            claim = f"From the smallest to the largest {kind} the time of a core grows more than that of FlipES (ratio)"
            checks.append(_check(claim, (value, *bounds), 1))
    return checks


def numbers(times: Mapping[str, Times], prices: tuple[float, float]) -> tuple[dict[str, Number], dict[str, Number]]:
    made: dict[str, Number] = {}
    paper: dict[str, Number] = {}
    for name, one in times.items():
        flip = median(one.flip)
        own, many = f"{name}: FlipES, seconds", f"{name}: {CORES} cores, seconds"
        made[own], made[many] = flip, median(one.core) / CORES
        if name in PAPER:
            paper[own], paper[many] = PAPER[name]
        made[f"{name}: IdealES on the same device, seconds"] = median(one.ideal)
        if one.ray is not None:
            made[f"{name}: {CORES} cores as RayFleet's workers here, seconds"] = median(one.ray) / CORES
        replaced, dearer = f"{name}: cores that the device replaces", f"{name}: FlipES / backprop: time of an update"
        made[replaced] = one.replaced[0]
        if name in PAPER:
            gpu, cores = PAPER[name]
            paper[replaced] = round(CORES * cores / gpu)
        made[f"{name}: times cheaper than cores"] = one.replaced[0] * prices[1] / prices[0]
        made[dearer] = flip / median(one.backprop)
        paper[dearer] = PRICE
    return made, paper


def _ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    return geometric([one / other for one, other in zip(above, below, strict=True)])


def _check(claim: str, found: tuple[float, ...], bar: float) -> Check:
    value, low, high = found
    return Check(claim, REPORTED, value, (low, high), value >= bar)
