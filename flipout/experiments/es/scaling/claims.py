"""The paper's table of times beside ours: how many cores a device replaces, and at what price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ...evidence.statistics import geometric
from ...running.results import MUST_HOLD, REPORTED, Check, Number

FIGURE = "scaling"
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
TOLERANCE = 1e-2  # standard deviations of fitness: CPU and device round products differently


@dataclass(frozen=True)
class Times:
    """Seconds for 5,000 samples in each round, on the device and on one core."""

    flip: list[float]
    ideal: list[float]
    backprop: list[float]  # one update
    core: list[float]
    ray: list[float] | None = None  # on one core

    @property
    def replaced(self) -> tuple[float, float, float]:
        """The number of cores that the device replaces, with its interval."""
        return _ratio(self.core, self.flip)


def same_fitness(differences: Mapping[str, float]) -> Check:
    """Members evaluated one at a time on a CPU have the fitness that they have on the device."""
    worst = max(differences.values())
    claim = (
        "Members have the same fitness, whether evaluated one at a time on a CPU or all at once on the device (largest "
        f"difference in standard deviations, at most {TOLERANCE:g})"
    )
    quantity = "difference in standard deviations"
    return Check("same-fitness", claim, MUST_HOLD, quantity, worst, None, worst <= TOLERANCE)


def reported(times: Mapping[str, Times], device_price: float, core_price: float) -> list[Check]:
    """What the paper says of its times, at the size that speaks most against it."""
    replaced = min((network_times.replaced for network_times in times.values()), key=lambda ratio: ratio[0])
    value, low, high = (bound * core_price / device_price for bound in replaced)
    slower = min(
        (_ratio(network_times.ideal, network_times.flip) for network_times in times.values()),
        key=lambda ratio: ratio[0],
    )
    priced = f"At the stated prices the device is at least {FACTOR:g} times cheaper, at every size (the least)"
    checks = [
        _at_least(
            "cores-replaced",
            f"The device replaces at least {CORES} cores, at every size (the least)",
            "cores",
            replaced,
            CORES,
            FIGURE,
        ),
        _at_least("cheaper", priced, "times cheaper", (value, low, high), FACTOR),
        _at_least(
            "faster-than-ideal",
            "On the device FlipES is faster than IdealES, at every size (ratio, the least)",
            "times faster",
            slower,
            1,
            FIGURE,
        ),
    ]
    for network in ("FC", "ConvLe"):
        sizes = [network_times for name, network_times in times.items() if name.startswith(network)]
        if len(sizes) > 1:
            core, flip = (_ratio(getattr(sizes[-1], form), getattr(sizes[0], form)) for form in ("core", "flip"))
            ratio = core[0] / flip[0], core[1] / flip[2], core[2] / flip[1]
            claim = (
                f"From the smallest to the largest {network} the time of a core grows more than the time of FlipES "
                "(ratio)"
            )
            checks.append(_at_least(f"growth-{network.lower()}", claim, "ratio of growths", ratio, 1, FIGURE))
    return checks


def numbers(times: Mapping[str, Times], prices: tuple[float, float]) -> tuple[dict[str, Number], dict[str, Number]]:
    measured: dict[str, Number] = {}
    paper: dict[str, Number] = {}
    for name, seconds in times.items():
        flip = median(seconds.flip)
        device, cores = f"{name}: FlipES, seconds", f"{name}: {CORES} cores, seconds"
        measured[device], measured[cores] = flip, median(seconds.core) / CORES
        if name in PAPER:
            paper[device], paper[cores] = PAPER[name]
        measured[f"{name}: IdealES on the same device, seconds"] = median(seconds.ideal)
        if seconds.ray is not None:
            measured[f"{name}: {CORES} cores as RayFleet's workers here, seconds"] = median(seconds.ray) / CORES
        replaced, dearer = f"{name}: cores that the device replaces", f"{name}: FlipES / backprop: time of an update"
        measured[replaced] = seconds.replaced[0]
        if name in PAPER:
            gpu_seconds, core_seconds = PAPER[name]
            paper[replaced] = round(CORES * core_seconds / gpu_seconds)
        measured[f"{name}: times cheaper than cores"] = seconds.replaced[0] * prices[1] / prices[0]
        measured[dearer] = flip / median(seconds.backprop)
        paper[dearer] = PRICE
    return measured, paper


def times_of(measured: Mapping[str, Number | None], name: str) -> Times:
    """Return the median times of one size from the numbers of a finished run."""

    def number(quantity: str) -> float:
        value = measured[f"{name}: {quantity}"]
        assert isinstance(value, int | float), quantity
        return float(value)

    flip = number("FlipES, seconds")
    core = CORES * number(f"{CORES} cores, seconds")
    backprop = flip / number("FlipES / backprop: time of an update")
    return Times([flip], [number("IdealES on the same device, seconds")], [backprop], [core])


def _ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    return geometric([above_time / below_time for above_time, below_time in zip(above, below, strict=True)])


def _at_least(
    name: str, claim: str, quantity: str, ratio: tuple[float, float, float], bar: float, figure: str | None = None
) -> Check:
    value, low, high = ratio
    return Check(name, claim, REPORTED, quantity, value, (low, high), value >= bar, figure)
