"""The appendix's figure on several devices: each has a base perturbation of its own, for its share of the batch."""

from dataclasses import dataclass, field

from flipout.variance import Measurements

from ..evidence.statistics import term_interval, term_ratio
from ..running.experiment import Config, Outcome
from ..running.results import REPORTED, Check
from ..running.runs import Run
from . import claims
from .figures import devices_figure
from .study import SchemeName, Study, StudyConfig


@dataclass(frozen=True)
class MultiGPUConfig(StudyConfig, Config):
    schemes: tuple[SchemeName, ...] = ("shared", "flipout")
    devices: dict[int, int] = field(default_factory=lambda: {4096: 2, 8192: 4})  # batch size → devices


def work(config: MultiGPUConfig, run: Run) -> Outcome:
    study = Study(config, run)
    found = study.decomposed()
    points = [
        (scheme, size, bases)
        for scheme in config.schemes
        for size, devices in config.devices.items()
        for bases in (1, devices)
    ]
    measured = study.measured(points)
    measured.to_json(run.folder / "measurements.json")
    several = Measurements(r for r in measured if r.bases > 1)
    one = Measurements(r for r in measured if r.bases == 1)
    pairs = [
        (r, next(iter(one.select(parameter=r.parameter, scheme=r.scheme, batch_size=r.batch_size)))) for r in several
    ]
    checks = [
        claims.not_above("A base per device gives no more variance than one base for all", pairs),
        *claims.below(several, "flipout", ["shared"], REPORTED),
    ]
    numbers = {}
    for layer in study.layers:
        for size, devices in config.devices.items():
            shared, own = (
                next(iter(several.select(parameter=layer, scheme=scheme, batch_size=size)))
                for scheme in ("shared", "flipout")
            )
            gain = term_ratio(claims.term(shared), claims.term(own))
            name = f"{layer.removesuffix('.weight')}: shared / flipout at N = {size} on {devices} devices"
            numbers[name] = gain.value
            checks.append(Check(f"{name} is above 1", REPORTED, gain.value, term_interval(gain), gain.value > 1))
    return Outcome(
        study.frozen.setting,
        numbers,
        dict.fromkeys(numbers, "above 1"),
        (*checks, claims.predicted(measured, found)),
    )


def draw(config: MultiGPUConfig, run: Run) -> None:
    measured = Measurements.from_json(run.there(run.folder / "measurements.json"))
    run.draw(
        "variance",
        "Variance of the gradient with one base for the batch and with one per device.",
        devices_figure(measured),
    )
