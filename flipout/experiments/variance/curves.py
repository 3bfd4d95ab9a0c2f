"""Figure 1 of the paper: gradient variance against batch size, per layer and scheme."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flipout.errors import InvalidArgument
from flipout.variance import Decomposition, Measurements

from ..evidence.statistics import term_ratio
from ..running.checked import checked
from ..running.experiment import Config, Outcome
from ..running.results import MUST_HOLD, REPORTED, Check, Number, seen_in
from ..running.runs import Run
from . import claims
from .study import Study, StudyConfig, decompositions

CLAIM = (
    "With flipout the variance of a mini-batch's gradient keeps falling as 1/N, as with fully independent "
    "perturbations; with one shared perturbation it levels off between N = 100 and 1000."
)


@dataclass(frozen=True)
class CurvesConfig(StudyConfig, Config):
    shown: tuple[str, ...] = ()  # layers in the figure; all of them where none is named

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            not {"shared", "flipout"} <= set(self.schemes)
            or 1 not in self.batch_sizes
            or len(set(self.batch_sizes)) < 2
        ):
            raise InvalidArgument(
                f"schemes={self.schemes}, batch_sizes={self.batch_sizes}: the claims compare shared and flipout, and "
                "follow curves that begin at a batch of 1."
            )


def work(config: CurvesConfig, run: Run) -> Outcome:
    study = Study(config, run)
    found = study.decomposed()
    measured = study.measured(study.points())
    measured.to_json(run.folder / "measurements.json")
    layers = [one.parameter for one in found]
    unknown = set(config.shown) - {layer.removesuffix(".weight") for layer in layers}
    if unknown:
        raise InvalidArgument(f"shown: {', '.join(unknown)} given; the layers are {', '.join(layers)}.")
    checks = [claims.start_together(measured)]
    if "local_reparam" in config.schemes:
        others = [scheme for scheme in config.schemes if scheme != "local_reparam"]
        checks += claims.below(measured, "local_reparam", others, MUST_HOLD)
    checks += [claims.form(measured), *claims.below(measured, "flipout", ["shared"], REPORTED)]
    checks.append(claims.predicted(measured, found))
    checks += [*claims.slopes(measured), *claims.levelling(found), *claims.orders(found)]
    numbers = {**study.frozen.reached, **figures(checks, found)}
    paper = {**({"training accuracy": "about 0.85"} if "training accuracy" in numbers else {}), **said(found)}
    return Outcome(study.frozen.setting, numbers, paper, tuple(checks))


_EVERY_LAYER = seen_in(
    variance="^At N = 1 the variances of|at every N, in every layer|is below .*geometric mean|^Every curve has the form"
)
_LAYER = seen_in(variance="the log-log slope of|is within 10 % of its floor")


def seen(claim: str, settings: Mapping[str, Any]) -> str | None:
    layer = claim.partition(": ")[0]
    shown = checked(settings.get("shown"), tuple[str, ...] | None, "shown")
    return _EVERY_LAYER(claim, settings) or (_LAYER(claim, settings) if not shown or layer in shown else None)


def draw(config: CurvesConfig, run: Run) -> None:
    found = decompositions(run.there(run.folder / "decomposition.json"))
    measured = Measurements.from_json(run.there(run.folder / "measurements.json"))
    shown = [r for r in measured if not config.shown or r.parameter.removesuffix(".weight") in config.shown]
    run.draw(
        "variance",
        "Variance of the gradient against the batch size. Points: measured, with 90 % intervals. Lines: fits a + b/N. "
        "Crosses: predicted from α, β and γ.",
        Measurements(shown).plot(predictions=found),
    )


def figures(checks: list[Check], found: list[Decomposition]) -> dict[str, Number]:
    made: dict[str, Number] = {}
    for one, slope in zip(found, (check for check in checks if "slope" in check.claim), strict=True):
        layer, knee = one.parameter.removesuffix(".weight"), term_ratio(one.alpha, one.both)
        made[f"{layer}: slope of flipout"] = slope.value if slope.value is not None else "not finite"
        made[f"{layer}: knee of shared, α/(β + γ)"] = knee.value
        made[f"{layer}: N at which shared is within 10 % of its floor"] = 10 * (knee.value - 1)
        made |= terms(one)
    return made


def terms(one: Decomposition) -> dict[str, Number]:
    layer = one.parameter.removesuffix(".weight")
    named = {"α": one.alpha, "β": one.beta, "γ": one.gamma}
    return {f"{layer}: {name}": f"{term.value:.3e} ± {term.error:.1e}" for name, term in named.items()}


def said(found: list[Decomposition]) -> dict[str, Number]:
    made: dict[str, Number] = {}
    for one in found:
        layer = one.parameter.removesuffix(".weight")
        made[f"{layer}: slope of flipout"] = -1
        made[f"{layer}: N at which shared is within 10 % of its floor"] = "100 to 1000"
    return made
