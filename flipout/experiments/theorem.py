"""Theorem 2, the variance decomposition: α, β and γ of every layer, and what they predict."""

from dataclasses import dataclass, field, replace

from flipout.variance import Decomposition

from . import variance_claims as claims
from .experiment import Config, Experiment, Outcome
from .pretraining import Pretraining
from .results import seen_in
from .runs import Run
from .variance_convgg import SMOKE
from .variance_curves import terms
from .variance_study import Study, StudyConfig, decompositions


@dataclass(frozen=True)
class TheoremConfig(Config):
    """The networks it is tried on, each with batch sizes at which the prediction is compared with a measurement."""

    fc: StudyConfig = field(default_factory=StudyConfig)
    convgg: StudyConfig | None = None

    @property
    def studies(self) -> dict[str, StudyConfig]:
        return {name: study for name in ("fc", "convgg") if (study := getattr(self, name)) is not None}


def work(config: TheoremConfig, run: Run) -> Outcome:
    settings, checks, numbers = [], [], {}
    for name, own in config.studies.items():
        study = Study(own, run, f"{name}.")
        found = study.decomposed()
        measured = study.measured(study.points(), f"measure {name}")
        measured.to_json(run.folder / f"measurements-{name}.json")
        stated = [claims.predicted(measured, found), *claims.orders(found)]
        checks += [replace(check, claim=f"{name}: {check.claim}") for check in stated]
        for one in found:
            numbers |= {f"{name} {key}": value for key, value in terms(one).items()}
            layer = f"{name} {one.parameter.removesuffix('.weight')}"
            numbers[f"{layer}: α / β"] = claims.ratio(one.alpha, one.beta).value
            numbers[f"{layer}: β / γ"] = claims.ratio(one.beta, one.gamma).value
        settings.append(study.frozen.setting)
    paper = {name: "≫ 1" for name in numbers if "/" in name}
    return Outcome(" ".join(settings), numbers, paper, tuple(checks))


def draw(config: TheoremConfig, run: Run) -> None:
    for name in config.studies:
        found = decompositions(run.there(run.folder / f"{name}.decomposition.json"))
        run.draw(name, f"α, β and γ of every layer of {name}, with 90 % intervals.", _figure(found))


def _figure(found: list[Decomposition]):
    from matplotlib.figure import Figure

    made = Figure(figsize=(max(5.0, 0.6 * len(found) + 2), 3.8), layout="constrained")
    axes = made.subplots()
    for i, (name, colour) in enumerate((("alpha", "#444444"), ("beta", "#c1442e"), ("gamma", "#1f5fa8"))):
        named = [getattr(one, name) for one in found]
        at = [j + (i - 1) * 0.12 for j in range(len(found))]
        low = [min(claims.Z90 * term.error, 0.999 * abs(term.value)) for term in named]
        high = [claims.Z90 * term.error for term in named]
        axes.errorbar(
            at, [term.value for term in named], [low, high], fmt="o", color=colour, capsize=2, ms=4, label="αβγ"[i]
        )
    axes.set(yscale="log", ylabel="per entry of the gradient")
    axes.set_xticks(range(len(found)), [one.parameter.removesuffix(".weight") for one in found])
    axes.legend()
    return made


_SMALL = {"schemes": ("shared", "flipout", "independent"), "batch_sizes": (16, 256), "independent_most": 16}

THEOREM = Experiment(
    name="theorem",
    title="Theorem 2: α, β and γ of every layer",
    claim="The variance of a mini-batch's gradient is α/N with independent perturbations, α/N + (N − 1)/N · γ with "
    "flipout and α/N + (N − 1)/N · (β + γ) with a shared one; in the networks of the paper α ≫ β ≫ γ.",
    presets={
        "smoke": TheoremConfig(
            fc=StudyConfig(
                pretraining=Pretraining(data="digits", hidden=(16,), learning_rate=1e-2),
                draws=20,
                repeats=3,
                independent_examples=16,
                pairs=200,
                pair_batch=64,
                examples=400,
                **_SMALL,
            ),
            convgg=StudyConfig(
                pretraining=SMOKE,
                schemes=("flipout",),
                batch_sizes=(8,),
                draws=5,
                repeats=3,
                pairs=20,
                pair_batch=16,
                examples=40,
            ),
        ),
        "quick": TheoremConfig(
            fc=StudyConfig(
                pretraining=Pretraining(data="digits", hidden=(128, 128), learning_rate=1e-3),
                draws=50,
                repeats=10,
                pairs=1000,
                **_SMALL,
            )
        ),
        "paper": TheoremConfig(
            fc=StudyConfig(
                schemes=("shared", "flipout", "independent"),
                batch_sizes=(16, 256, 4096),
                independent_most=256,
                repeats=20,
                large_repeats=20,
                pairs=4000,
            ),
        ),
    },
    costs={"smoke": "seconds", "quick": "1 minute on two cores", "paper": "22 seconds on one H200"},
    work=work,
    draw=draw,
    seen=seen_in(fc="^fc: .*≫", convgg="^convgg: .*≫"),
)
