"""The figure of the appendix on several devices: each has its own base perturbation for its share of the batch."""

from dataclasses import dataclass, field

from flipout.variance import Measurements, Record

from ..evidence.statistics import term_interval, term_ratio
from ..running.experiment import Config, Outcome
from ..running.results import REPORTED, Check
from ..running.runs import Run
from . import claims
from .claims import layer_name
from .figures import devices_figure
from .study import MeasuredScheme, Study, StudyConfig


@dataclass(frozen=True)
class MultiGPUConfig(StudyConfig, Config):
    schemes: tuple[MeasuredScheme, ...] = ("shared", "flipout")
    devices: dict[int, int] = field(default_factory=lambda: {4096: 2, 8192: 4})  # batch size → devices


def work(config: MultiGPUConfig, run: Run) -> Outcome:
    study = Study(config, run)
    terms = study.decomposed()
    points = [
        (scheme, size, bases)
        for scheme in config.schemes
        for size, devices in config.devices.items()
        for bases in (1, devices)
    ]
    measured = study.measured(points)
    measured.to_json(run.folder / "measurements.json")
    run.note_file("measurements.json")
    several = Measurements(r for r in measured if r.bases > 1)
    single = Measurements(r for r in measured if r.bases == 1)
    pairs = [(r, _record(single, r.parameter, r.scheme, r.batch_size)) for r in several]
    claim = "A base per device gives no more variance than one base for all"
    checks = [
        claims.not_above("base-per-device", claim, pairs, claims.FIGURE),
        *claims.below(several, "flipout", ["shared"], REPORTED),
    ]
    numbers = {}
    for parameter in study.layers:
        for size, devices in config.devices.items():
            shared, flipped = (_record(several, parameter, scheme, size) for scheme in ("shared", "flipout"))
            gain = term_ratio(claims.term(shared), claims.term(flipped))
            layer, quantity = layer_name(parameter), f"shared / flipout at N = {size} on {devices} devices"
            numbers[f"{layer}: {quantity}"] = gain.value
            checks.append(
                Check(
                    f"gain-{size}-on-{devices}/{layer}",
                    f"{layer}: {quantity} is above 1",
                    REPORTED,
                    quantity,
                    gain.value,
                    term_interval(gain),
                    gain.value > 1,
                    claims.FIGURE,
                )
            )
    checks.append(claims.predicted(measured, terms))
    return Outcome(study.frozen.setting, numbers, dict.fromkeys(numbers, "above 1"), tuple(checks))


def draw(config: MultiGPUConfig, run: Run) -> None:
    measured = Measurements.from_json(run.existing(run.folder / "measurements.json"))
    run.draw(
        claims.FIGURE,
        "Variance of the gradient with one base for the batch and with one per device.",
        devices_figure(measured),
    )


def _record(measured: Measurements, parameter: str, scheme: str, size: int) -> Record:
    return next(iter(measured.select(parameter=parameter, scheme=scheme, batch_size=size)))
