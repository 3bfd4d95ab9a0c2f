"""Linear regression, where the posterior is known: variational Bayes has to find the best factorised Gaussian."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

import flipout
from flipout import bayes
from flipout.errors import InvalidArgument

from ..evidence.statistics import interval
from ..running.experiment import Config, Outcome, check_least
from ..running.runs import Run
from ..variance.study import MeasuredScheme
from . import claims
from .figures import calibration_figure, posterior_figure
from .regressions import RegressionConfig, Regressions


@dataclass(frozen=True)
class PosteriorCheckConfig(Config):
    """All regressions are trained together, as one linear layer."""

    regressions: RegressionConfig = field(default_factory=RegressionConfig)
    schemes: tuple[MeasuredScheme, ...] = ("shared", "flipout", "local_reparam", "independent")
    batch: int = 10
    steps: int = 3000
    learning_rate: float = 0.05  # falls linearly to 0; the second half of the steps is averaged
    samples: int = 512  # weight samples per prediction

    def __post_init__(self) -> None:
        check_least(self, batch=1, steps=100, samples=16)
        if not self.schemes:
            raise InvalidArgument("schemes: expected at least one.")


def work(config: PosteriorCheckConfig, run: Run) -> Outcome:
    tasks = _tasks(config, run)
    found = {
        scheme: run.tensors(scheme, lambda s=scheme: _train(config, tasks, s, run))
        for scheme in run.progress.track(config.schemes, "train")
    }
    held_out = {
        scheme: run.tensors(f"{scheme}.held-out", lambda s=scheme: _predict(config, tasks, found[s], s, run))
        for scheme in config.schemes
    }
    run.piece("coverage", lambda: _coverage(tasks, held_out))
    # bayes.predict samples under flipout, so calibration is checked on the model that was trained under flipout too.
    scheme = "flipout" if "flipout" in found else config.schemes[0]
    checks = [*claims.recovered(tasks, found), *claims.covered(tasks, held_out)]
    checks += claims.calibrated(tasks, scheme, held_out[scheme])
    return Outcome(_setting(config), claims.measured_numbers(tasks, found, held_out), {}, tuple(checks))


def draw(config: PosteriorCheckConfig, run: Run) -> None:
    tasks = _tasks(config, run)
    found = {scheme: run.read_tensors(scheme) for scheme in config.schemes}
    run.draw(
        claims.POSTERIOR_FIGURE,
        "Errors of all means, and the spread of each weight (mean and deviation over tasks), beside the best "
        "factorised Gaussian and the exact posterior, which is wider because its weights are correlated.",
        posterior_figure(tasks, found),
    )
    run.draw(
        claims.CALIBRATION_FIGURE,
        "How often held-out targets are inside their central interval, minus how often theory says: of the best "
        "factorised Gaussian for what was found, with 90 % intervals over the tasks for flipout, and the level itself "
        "for the exact posterior.",
        calibration_figure(**run.read_piece("coverage")),
    )


def _tasks(config: PosteriorCheckConfig, run: Run) -> Regressions:
    return config.regressions.drawn(run.generator("data")).to(run.device)


def _coverage(tasks: Regressions, held_out: claims.ByScheme) -> dict[str, Any]:
    """Return the coverage at each level, minus theory's, with its 90 % interval over the tasks."""
    levels = [round(0.05 + 0.02 * i, 2) for i in range(48)]

    def beside_theory(mean: Tensor, variance: Tensor, theory: Callable[[float], Tensor | float]) -> dict[str, Any]:
        shares = (tasks.inside(mean, variance, level) - theory(level) for level in levels)
        value, _, low, high = zip(*(interval(share.tolist()) for share in shares), strict=True)
        return {"value": value, "low": low, "high": high}

    found = {name: beside_theory(p["mean"], p["variance"], tasks.expected) for name, p in held_out.items()}
    exact = beside_theory(*tasks.predictive(tasks.covariance), lambda level: level)
    return {"levels": levels, "found": found, "exact": exact}


def _train(config: PosteriorCheckConfig, tasks: Regressions, scheme: str, run: Run) -> dict[str, Tensor]:
    generator = run.generator(scheme)
    model = _model(config, tasks, scheme)
    with torch.no_grad():
        model.weight.zero_()
    likelihood = bayes.likelihoods.Gaussian(config.regressions.noise, learn=False)
    elbo = bayes.ELBO(model, likelihood, num_data=config.regressions.examples)
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, config.steps)
    sums = {"mean": torch.zeros_like(tasks.mean), "std": torch.zeros_like(tasks.mean)}
    averaged = config.steps - config.steps // 2
    for step in run.progress.track(range(config.steps), scheme):
        chosen = torch.randint(config.regressions.examples, (config.batch,), generator=generator).to(tasks.x.device)
        seed = int(torch.randint(2**62, (), generator=generator))
        with flipout.hold(model, seed=seed):
            terms = elbo(tasks.x[chosen], tasks.y[chosen])
        optimizer.zero_grad()
        terms.loss.backward()
        optimizer.step()
        schedule.step()
        if step >= config.steps // 2:
            sums["mean"] += model.weight.detach() / averaged
            sums["std"] += softplus(model.get_parameter("weight_rho").detach()) / averaged
        if step % 100 == 99:
            run.log(step + 1, loss=float(terms.loss.detach()), kl=float(terms.kl.detach()))
    return sums


def _predict(
    config: PosteriorCheckConfig, tasks: Regressions, found: dict[str, Tensor], scheme: str, run: Run
) -> dict[str, Tensor]:
    model = _model(config, tasks, scheme)
    with torch.no_grad():
        model.weight.copy_(found["mean"])
        model.get_parameter("weight_rho").copy_(found["std"].expm1().log())
    likelihood = bayes.likelihoods.Gaussian(config.regressions.noise, learn=False)
    seed = run.seed_of(f"{scheme}.held-out")
    predicted = bayes.predict(model, tasks.x_test, config.samples, likelihood=likelihood, seed=seed)
    return {"mean": predicted.mean, "variance": predicted.total}


def _model(config: PosteriorCheckConfig, tasks: Regressions, scheme: Any) -> flipout.nn.Linear:
    settings, distribution = config.regressions, flipout.MeanField(prior=bayes.Normal(0.0, config.regressions.prior))
    return flipout.nn.Linear(
        settings.inputs, settings.tasks, False, tasks.x.device, tasks.x.dtype, distribution=distribution, scheme=scheme
    )


def _setting(config: PosteriorCheckConfig) -> str:
    regressions = config.regressions
    return (
        f"{regressions.tasks} regressions with {regressions.inputs} inputs of correlation {regressions.correlation:g}, "
        f"weights drawn from the prior N(0, {regressions.prior:g}²), {regressions.examples} examples with noise of "
        f"{regressions.noise:g}, {regressions.held_out} held out; Adam ({config.learning_rate:g}, falling to 0) on "
        f"batches of {config.batch} drawn with replacement, {config.steps} steps, the second half averaged; "
        f"{config.samples} samples per prediction."
    )
