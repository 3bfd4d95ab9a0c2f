"""Linear regression, where the posterior is known: variational Bayes has to find the best factorised Gaussian."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import softplus

import flipout
from flipout import bayes
from flipout.errors import InvalidArgument

from ..running.experiment import Config, Outcome, check_least
from ..running.runs import Run
from ..variance.study import SchemeName
from . import claims
from .figures import calibration_figure, posterior_figure
from .regressions import RegressionConfig, Regressions


@dataclass(frozen=True)
class PosteriorConfig(Config):
    """All regressions are trained at once, as one linear layer."""

    regressions: RegressionConfig = field(default_factory=RegressionConfig)
    schemes: tuple[SchemeName, ...] = ("shared", "flipout", "local_reparam", "independent")
    batch: int = 10
    steps: int = 3000
    learning_rate: float = 0.05  # falls to 0 in a line; the second half of the steps is averaged
    samples: int = 512  # to predict with

    def __post_init__(self) -> None:
        check_least(self, batch=1, steps=100, samples=16)
        if not self.schemes:
            raise InvalidArgument("schemes: expected at least one.")


def work(config: PosteriorConfig, run: Run) -> Outcome:
    made = _made(config, run)
    found = {
        scheme: run.tensors(scheme, lambda s=scheme: _train(config, made, s, run))
        for scheme in run.progress.track(config.schemes, "train")
    }
    held_out = {
        scheme: run.tensors(f"{scheme}.held-out", lambda s=scheme: _predict(config, made, found[s], s, run))
        for scheme in config.schemes
    }
    # Predictions are made under flipout whatever the model was trained under.
    own = "flipout" if "flipout" in found else config.schemes[0]
    checks = [*claims.recovered(made, found), *claims.covered(made, held_out)]
    checks += claims.calibrated(made, own, held_out[own])
    return Outcome(_setting(config), claims.measured_numbers(made, found, held_out), {}, tuple(checks))


def draw(config: PosteriorConfig, run: Run) -> None:
    made = _made(config, run)
    found = {scheme: run.read_tensors(scheme) for scheme in config.schemes}
    held_out = {scheme: run.read_tensors(f"{scheme}.held-out") for scheme in config.schemes}
    run.draw(
        claims.POSTERIOR_FIGURE,
        "Left: errors of all means. Right: the spread of each weight (mean and deviation over the tasks) beside "
        "the best factorised Gaussian's, and the exact posterior's own, which are wider: weights are correlated there.",
        posterior_figure(made, found),
    )
    run.draw(
        claims.CALIBRATION_FIGURE,
        "How often held-out targets are inside of their central interval, less its level: as found, as theory says of "
        "the best factorised Gaussian, and for the exact posterior.",
        calibration_figure(made, held_out),
    )


def _made(config: PosteriorConfig, run: Run) -> Regressions:
    return config.regressions.drawn(run.generator("data")).to(run.device)


def _train(config: PosteriorConfig, made: Regressions, scheme: str, run: Run) -> dict[str, Tensor]:
    generator = run.generator(scheme)
    model = _model(config, made, scheme)
    with torch.no_grad():
        model.weight.zero_()
    likelihood = bayes.likelihoods.Gaussian(config.regressions.noise, learn=False)
    elbo = bayes.ELBO(model, likelihood, num_data=config.regressions.examples)
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, config.steps)
    sums = {"mean": torch.zeros_like(made.mean), "std": torch.zeros_like(made.mean)}
    averaged = config.steps - config.steps // 2
    for step in run.progress.track(range(config.steps), scheme):
        chosen = torch.randint(config.regressions.examples, (config.batch,), generator=generator).to(made.x.device)
        seed = int(torch.randint(2**62, (), generator=generator))
        with flipout.hold(model, seed=seed):
            terms = elbo(made.x[chosen], made.y[chosen])
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
    config: PosteriorConfig, made: Regressions, found: dict[str, Tensor], scheme: str, run: Run
) -> dict[str, Tensor]:
    model = _model(config, made, scheme)
    with torch.no_grad():
        model.weight.copy_(found["mean"])
        model.get_parameter("weight_rho").copy_(found["std"].expm1().log())
    likelihood = bayes.likelihoods.Gaussian(config.regressions.noise, learn=False)
    seed = run.seed_of(f"{scheme}.held-out")
    predicted = bayes.predict(model, made.x_test, config.samples, likelihood=likelihood, seed=seed)
    return {"mean": predicted.mean, "variance": predicted.total}


def _model(config: PosteriorConfig, made: Regressions, scheme: str) -> flipout.nn.Linear:
    own, distribution = config.regressions, flipout.MeanField(prior=bayes.Normal(0.0, config.regressions.prior))
    return flipout.nn.Linear(
        own.inputs, own.tasks, False, made.x.device, made.x.dtype, distribution=distribution, scheme=scheme
    )


def _setting(config: PosteriorConfig) -> str:
    own = config.regressions
    return (
        f"{own.tasks} regressions with {own.inputs} inputs of correlation {own.correlation:g}, weights drawn from the "
        f"prior N(0, {own.prior:g}²), {own.examples} examples with noise of {own.noise:g} and {own.held_out} held out; "
        f"Adam ({config.learning_rate:g}, falling to 0) on batches of {config.batch} drawn with replacement, "
        f"{config.steps} steps, the second half averaged; {config.samples} samples to predict."
    )
