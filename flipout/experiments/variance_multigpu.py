"""The appendix's figure on several devices: each has a base perturbation of its own, for its share of the batch."""

from dataclasses import dataclass, field

from flipout.variance import Measurements
from flipout.variance._figures import COLOURS

from . import variance_claims as claims
from .experiment import Config, Experiment, Outcome
from .pretraining import Pretraining
from .results import REPORTED, Check, seen_in
from .runs import Run
from .variance_convgg import CONVGG
from .variance_study import MeasuredScheme, Study, StudyConfig


@dataclass(frozen=True)
class MultiGPUConfig(StudyConfig, Config):
    schemes: tuple[MeasuredScheme, ...] = ("shared", "flipout")
    devices: dict[int, int] = field(default_factory=lambda: {4096: 2, 8192: 4})  # batch size → devices


def work(config: MultiGPUConfig, run: Run) -> Outcome:
    study = Study(config, run)
    found = study.decomposed()
    points: list[tuple[MeasuredScheme, int, int]] = [
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
            gain = claims.ratio(claims.term(shared), claims.term(own))
            name = f"{layer.removesuffix('.weight')}: shared / flipout at N = {size} on {devices} devices"
            numbers[name] = gain.value
            checks.append(Check(f"{name} is above 1", REPORTED, gain.value, claims.within(gain), gain.value > 1))
    return Outcome(
        study.frozen.setting,
        numbers,
        dict.fromkeys(numbers, "above 1"),
        (*checks, claims.predicted(measured, found)),
    )


def draw(config: MultiGPUConfig, run: Run) -> None:
    measured = Measurements.from_json(run.there(run.folder / "measurements.json"))
    run.draw(
        "variance", "Variance of the gradient with one base for the batch and with one per device.", _figure(measured)
    )


def _figure(measured: Measurements):
    from matplotlib.figure import Figure

    layers = list(dict.fromkeys(r.parameter for r in measured))
    cases = list(dict.fromkeys((r.scheme, r.batch_size, r.bases) for r in measured))
    made = Figure(figsize=(max(6.0, 0.75 * len(layers) + 2), 4.2), layout="constrained")
    axes = made.subplots()
    for i, (scheme, size, bases) in enumerate(cases):
        records = [
            next(iter(measured.select(parameter=p, scheme=scheme, batch_size=size, bases=bases))) for p in layers
        ]
        at = [j + (i - (len(cases) - 1) / 2) * 0.09 for j in range(len(layers))]
        axes.errorbar(
            at,
            [r.variance for r in records],
            [[r.variance - max(r.low, 1e-3 * r.variance) for r in records], [r.high - r.variance for r in records]],
            fmt="o" if bases == 1 else "D",
            mfc="white" if bases > 1 else COLOURS[scheme],
            color=COLOURS[scheme],
            ms=4,
            capsize=2,
            alpha=1 if size == max(r.batch_size for r in measured) else 0.55,
            label=f"{scheme}, N = {size}, {bases} base{'s' if bases > 1 else ''}",
        )
    axes.set(yscale="log", ylabel="gradient variance")
    axes.set_xticks(range(len(layers)), [name.removesuffix(".weight") for name in layers])
    axes.legend(fontsize=7, ncols=2)
    return made


_DIGITS = Pretraining(data="digits", hidden=(128, 128), learning_rate=1e-3)

VARIANCE_MULTIGPU = Experiment(
    name="variance-multigpu",
    title="Appendix, figure on several GPUs: a base perturbation per device",
    claim="Independent base perturbations on 2 and on 4 devices give less variance than one base for the whole batch, "
    "and flipout still gives less than shared perturbations.",
    presets={
        "smoke": MultiGPUConfig(
            pretraining=Pretraining(data="digits", hidden=(16,), learning_rate=1e-2),
            devices={16: 2, 32: 4},
            draws=10,
            repeats=3,
            pairs=200,
            pair_batch=64,
            examples=400,
        ),
        "quick": MultiGPUConfig(
            pretraining=_DIGITS,
            devices={512: 2, 1024: 4},
            draws=50,
            repeats=5,
            large_repeats=5,
            pairs=400,
            examples=4000,
        ),
        "paper": MultiGPUConfig(
            pretraining=CONVGG, draws=40, large_repeats=4, pairs=200, examples=4000, at_once=16, precision="bf16"
        ),
    },
    costs={"smoke": "seconds", "quick": "1 minute on two cores", "paper": "3 minutes on one H200"},
    work=work,
    draw=draw,
    seen=seen_in(variance="^A base per device|^flipout (≤|is below) shared|: shared / flipout at"),
)
