"""Theorem 2, the variance decomposition: α, β and γ of every layer, and what they predict."""

from dataclasses import dataclass, field, replace

from ..evidence.statistics import term_ratio
from ..running.experiment import Config, Outcome
from ..running.runs import Run
from . import claims
from .curves import terms
from .figures import terms_figure
from .study import Study, StudyConfig, decompositions


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
            numbers[f"{layer}: α / β"] = term_ratio(one.alpha, one.beta).value
            numbers[f"{layer}: β / γ"] = term_ratio(one.beta, one.gamma).value
        settings.append(study.frozen.setting)
    paper = {name: "≫ 1" for name in numbers if "/" in name}
    return Outcome(" ".join(settings), numbers, paper, tuple(checks))


def draw(config: TheoremConfig, run: Run) -> None:
    for name in config.studies:
        found = decompositions(run.there(run.folder / f"{name}.decomposition.json"))
        run.draw(name, f"α, β and γ of every layer of {name}, with 90 % intervals.", terms_figure(found))
