"""Figure 1 of the paper: gradient variance against batch size, per layer and scheme."""

from collections.abc import Sequence
from dataclasses import dataclass

from flipout.errors import InvalidArgument
from flipout.variance import Decomposition, Measurements

from ..evidence.statistics import term_ratio
from ..running.experiment import Config, Outcome
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from ..running.runs import Run
from . import claims
from .claims import layer_name
from .study import Study, StudyConfig, decompositions

CLAIM = (
    "With flipout the variance of a mini-batch's gradient keeps falling as 1/N, as with fully independent "
    "perturbations; with one shared perturbation it levels off between N = 100 and 1000."
)


@dataclass(frozen=True)
class CurvesConfig(StudyConfig, Config):
    shown: tuple[str, ...] = ()  # layers in the figure; all of them if empty

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            not {"shared", "flipout"} <= set(self.schemes)
            or 1 not in self.batch_sizes
            or len(set(self.batch_sizes)) < 2
        ):
            raise InvalidArgument(
                f"schemes={self.schemes}, batch_sizes={self.batch_sizes}: the claims compare shared and flipout, on "
                "curves that begin at a batch of 1."
            )


def work(config: CurvesConfig, run: Run) -> Outcome:
    study = Study(config, run)
    terms = study.decomposed()
    measured = study.measured(study.points())
    measured.to_json(run.folder / "measurements.json")
    run.note_file("measurements.json")
    layers = [layer_name(decomposition.parameter) for decomposition in terms]
    unknown = set(config.shown) - set(layers)
    if unknown:
        raise InvalidArgument(f"shown: {', '.join(unknown)} given; the layers are {', '.join(layers)}.")
    checks = [claims.start_together(measured)]
    if "local_reparam" in config.schemes:
        others = [scheme for scheme in config.schemes if scheme != "local_reparam"]
        checks += claims.below(measured, "local_reparam", others, MUST_HOLD)
    checks += [claims.form(measured), *claims.below(measured, "flipout", ["shared"], REPORTED)]
    checks.append(claims.predicted(measured, terms, figure=claims.FIGURE))
    slopes = claims.slopes(measured, config.shown)
    checks += [*slopes, *claims.levelling(terms, config.shown), *claims.orders(terms)]
    numbers = {**study.frozen.reached, **layer_numbers(slopes, terms)}
    paper = {**({"training accuracy": "about 0.85"} if "training accuracy" in numbers else {}), **paper_numbers(terms)}
    return Outcome(study.frozen.setting, numbers, paper, tuple(checks))


def draw(config: CurvesConfig, run: Run) -> None:
    terms = decompositions(run.existing(run.folder / "decomposition.json"))
    measured = Measurements.from_json(run.existing(run.folder / "measurements.json"))
    shown = [r for r in measured if not config.shown or layer_name(r.parameter) in config.shown]
    run.draw(
        claims.FIGURE,
        "Variance of the gradient against the batch size. Points: measured, with 90 % intervals. Lines: fits a + b/N. "
        "Crosses: predicted from α, β and γ.",
        Measurements(shown).plot(predictions=terms),
    )


def layer_numbers(slopes: Sequence[Check], terms: Sequence[Decomposition]) -> dict[str, Number]:
    """Return the slope, knee, floor, α, β and γ of each layer, by name."""
    numbers: dict[str, Number] = {}
    for decomposition, slope in zip(terms, slopes, strict=True):
        layer, knee = layer_name(decomposition.parameter), term_ratio(decomposition.alpha, decomposition.both)
        numbers[f"{layer}: {claims.SLOPE}"] = slope.value if slope.value is not None else "not finite"
        numbers[f"{layer}: {claims.KNEE}"] = knee.value
        numbers[f"{layer}: {claims.FLOOR}"] = 10 * (knee.value - 1)
        numbers |= term_numbers(decomposition)
    return numbers


def term_numbers(decomposition: Decomposition) -> dict[str, Number]:
    """Return α, β and γ of a layer by name, each as text with its standard error."""
    named = {"α": decomposition.alpha, "β": decomposition.beta, "γ": decomposition.gamma}
    layer = layer_name(decomposition.parameter)
    return {f"{layer}: {name}": f"{term.value:.3e} ± {term.error:.1e}" for name, term in named.items()}


def paper_numbers(terms: Sequence[Decomposition]) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for layer in (layer_name(decomposition.parameter) for decomposition in terms):
        numbers |= {f"{layer}: {claims.SLOPE}": -1, f"{layer}: {claims.KNEE}": "100 to 1000"}
    return numbers
