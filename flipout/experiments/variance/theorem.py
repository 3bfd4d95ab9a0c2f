"""Theorem 2, the variance decomposition: α, β and γ of every layer, and what they predict."""

from dataclasses import dataclass, field

from ..evidence.statistics import term_ratio
from ..running.experiment import Config, Outcome
from ..running.runs import Run
from . import claims
from .curves import term_numbers
from .figures import terms_figure
from .study import Study, StudyConfig, decompositions


@dataclass(frozen=True)
class TheoremConfig(Config):
    """The networks to study, each with batch sizes at which predictions are compared with measurements."""

    fc: StudyConfig = field(default_factory=StudyConfig)
    convgg: StudyConfig | None = None

    @property
    def studies(self) -> dict[str, StudyConfig]:
        return {name: study for name in ("fc", "convgg") if (study := getattr(self, name)) is not None}


def work(config: TheoremConfig, run: Run) -> Outcome:
    settings, checks, numbers, paper = [], [], {}, {}
    for network, study_config in config.studies.items():
        study = Study(study_config, run, f"{network}.")
        terms = study.decomposed()
        measured = study.measured(study.points(), f"measure {network}")
        measured.to_json(run.folder / f"measurements-{network}.json")
        run.note_file(f"measurements-{network}.json")
        checks += [claims.predicted(measured, terms, network), *claims.orders(terms, network)]
        for decomposition in terms:
            numbers |= {f"{network} {key}": value for key, value in term_numbers(decomposition).items()}
            layer = f"{network} {claims.layer_name(decomposition.parameter)}"
            ratios = {
                f"{layer}: α / β": term_ratio(decomposition.alpha, decomposition.beta).value,
                f"{layer}: β / γ": term_ratio(decomposition.beta, decomposition.gamma).value,
            }
            numbers |= ratios
            paper |= dict.fromkeys(ratios, "≫ 1")
        settings.append(study.frozen.setting)
    return Outcome(" ".join(settings), numbers, paper, tuple(checks))


def draw(config: TheoremConfig, run: Run) -> None:
    for name in config.studies:
        terms = decompositions(run.existing(run.folder / f"{name}.decomposition.json"))
        run.draw(name, f"α, β and γ of every layer of {name}, with 90 % intervals.", terms_figure(terms))
