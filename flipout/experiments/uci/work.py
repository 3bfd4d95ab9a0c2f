"""Nine small regressions by seven methods: all splits of a set train side by side, as the lanes of one model."""

from typing import Any

from .. import data
from ..running.experiment import Outcome
from ..running.runs import Run
from . import claims
from .figures import bounds_figure, coverage_figure, scores_figure
from .networks import SCHEMES
from .trials import WIDE, Trials, UciConfig


def work(config: UciConfig, run: Run) -> Outcome:
    sources = []
    for name in run.progress.track(config.sets, "sets"):
        regression = data.regression(name, embedded=config.embedded)
        trials = Trials(name, regression, config, run)
        for method in config.methods:
            trials.test(method)
        sources.append(regression.source)
    found = _found(config, run)
    setting = _setting(config, "; ".join(dict.fromkeys(sources)))
    checks = tuple(claims.evaluate(found))
    return Outcome(setting, claims.measured_numbers(found), claims.paper_numbers(found), checks)


def draw(config: UciConfig, run: Run) -> None:
    found = _found(config, run)
    for score, title in (("log_likelihood", "log-likelihood"), ("rmse", "RMSE")):
        run.draw(
            claims.FIGURES[score],
            f"Test {title} of each set: mean and standard error over the splits. The dashed line is MC dropout as "
            "published, at 10 times the usual epochs.",
            scores_figure(found, score),
        )
    run.draw(
        claims.FIGURES["coverage"],
        "How often a test target is inside of its central 90 % interval: each set (grey) and their mean. The band is "
        "our bar, 85 to 95 %.",
        coverage_figure(found),
    )
    if not set(SCHEMES) & set(config.methods):
        return
    run.draw(
        claims.FIGURES["bound"],
        "The negative evidence lower bound per example on training rows, averaged over the splits. It is measured "
        "under flipout's noise whatever the network is trained under.",
        bounds_figure(found),
    )


def _found(config: UciConfig, run: Run) -> claims.Found:
    return {name: {method: _result(name, method, run) for method in config.methods} for name in config.sets}


def _result(name: str, method: str, run: Run) -> dict[str, Any]:
    """Return a finished piece with its curve."""
    piece = f"{name}.{method}"
    lines = run.metrics_of(piece)
    return run.read_piece(piece) | {
        "steps": [line["step"] for line in lines],
        "bound": [line["loss"] for line in lines],
    }


def _setting(config: UciConfig, sources: str) -> str:
    training = config.training
    return (
        f"{sources}; at most {config.splits} fixed splits, inputs and targets standardised by the training part; one "
        f"hidden layer of {config.hidden} units (twice as many for {WIDE}), Gaussian noise of learned size; Adam "
        f"({training.learning_rate:g}, falling to 0), {training.steps} steps of {training.batch} examples over all "
        f"splits, for every method; {config.samples} samples per prediction. Each split chooses among four candidates "
        "for each method by the log-likelihood of a fifth of its training part; the three schemes share the choice "
        "made under flipout, and the ensemble the one of the plain network."
    )
