"""Does a Bayesian network know what it does not know? Entropy and mutual information, on pictures it should doubt."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flipout import bayes

from .. import data
from ..running.experiment import Config, Outcome, check_least
from ..running.runs import Run
from ..training.bayes import BayesTraining, Trainer
from ..training.supervised import Prepared, own_randomness, prepared
from . import claims
from .figures import pictures_figure, rotation_figure, separation_figure
from .shifts import SHIFTS, rotated


@dataclass(frozen=True)
class UncertaintyConfig(Config):
    training: BayesTraining = field(default_factory=lambda: BayesTraining(batch=1024, iterations=3000))
    samples: int = 64
    angles: tuple[float, ...] = tuple(range(0, 181, 15))
    turned: int = 1000  # pictures that are rotated by each angle

    def __post_init__(self) -> None:
        check_least(self, samples=16, turned=1)


def work(config: UncertaintyConfig, run: Run) -> Outcome:
    given = prepared(config.training, run)
    images, pictures, labels = _pictures(config, run)
    network = run.tensors("network", lambda: _train(config, given, run))

    def predicted(name: str, some: Tensor) -> dict[str, Tensor]:
        x = data.standardised(some, by=images.x_train).to(run.device)
        made = run.tensors(name, lambda: _predict(config, given, network, x, name, run))
        return {key: value.cpu() for key, value in made.items()}

    known, far = _halves(pictures)
    inside = predicted("known", known)
    outside = {name: predicted(f"unknown.{i}", some) for i, (name, some) in enumerate(far.items())}
    for angle in config.angles:
        predicted(f"rotated.{angle:g}", rotated(pictures[: config.turned], angle))
    whole = _whole(inside, outside)
    checks = [claims.control(inside, outside.pop("unchanged"))]
    checks += claims.separated(inside, outside)
    checks += [claims.errors_found(whole, labels), claims.better_than_the_mean(whole, labels)]
    return Outcome(_setting(config, given), claims.measured_numbers(inside, outside, whole, labels), {}, tuple(checks))


def draw(config: UncertaintyConfig, run: Run) -> None:
    def predicted(name: str) -> dict[str, Tensor]:
        return {key: value.cpu() for key, value in run.read_tensors(name).items()}

    inside = predicted("known")
    outside = {name: predicted(f"unknown.{i}") for i, name in enumerate(("unchanged", *SHIFTS))}
    turned = {angle: predicted(f"rotated.{angle:g}") for angle in config.angles}
    whole = _whole(inside, outside)
    _, pictures, labels = _pictures(config, run)
    shown = {name: (some[:8], outside[name]["total"][:8]) for name, some in _halves(pictures)[1].items()}
    run.draw("pictures", "Some pictures, and the predictive entropy of each, in nats.", pictures_figure(shown))
    run.draw(
        claims.FIGURE,
        "How often the uncertainty of an unknown picture is above that of a known one, with 90 % intervals.",
        separation_figure(inside, outside),
    )
    run.draw(
        "rotation",
        "Rotated test pictures: error, predictive entropy and mutual information.",
        rotation_figure(turned, labels[: config.turned]),
    )
    run.draw(
        "reliability",
        "Reliability of the predictive probabilities on the test set.",
        bayes.reliability(whole["mean"], labels, bins=10).plot(),
    )


def _pictures(config: UncertaintyConfig, run: Run) -> tuple[data.Images, Tensor, Tensor]:
    """The data, and the pictures and labels of its test set in an order of their own."""
    images = data.images(config.training.data, embedded=config.training.embedded)
    order = torch.randperm(len(images.x_test), generator=run.generator("halves"))
    return images, images.x_test[order].float(), images.y_test[order]


def _halves(pictures: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Half of the test set is known, the other half is made unknown: no picture is on both sides."""
    known, unknown = pictures.tensor_split(2)
    return known, {"unchanged": unknown, **{name: shift(unknown) for name, shift in SHIFTS.items()}}


def _whole(inside: claims.Predicted, outside: Mapping[str, claims.Predicted]) -> dict[str, Tensor]:
    """Predictions for the test set as it is."""
    return {key: torch.cat((inside[key], outside["unchanged"][key])) for key in inside}


def _train(config: UncertaintyConfig, given: Prepared, run: Run) -> dict[str, Tensor]:
    every = max(config.training.iterations // 20, 1)
    with own_randomness(run):
        trainer = Trainer(config.training, given, "flipout", 0, run)
        for start in run.progress.track(range(0, config.training.iterations, every), "train"):
            likelihood, divergence = trainer.train(min(every, config.training.iterations - start)).mean(0).tolist()
            error = trainer.error(given.x_test, given.y_test)
            run.log(start + every, likelihood=likelihood, divergence=divergence, test_error=error)
        trainer.close()
        return trainer.model.state_dict()


def _predict(
    config: UncertaintyConfig, given: Prepared, network: dict[str, Tensor], x: Tensor, name: str, run: Run
) -> dict[str, Tensor]:
    with own_randomness(run):
        model = Trainer(config.training, given, "flipout", 0, run).model
    model.load_state_dict(network)
    made = bayes.predict(model, x, config.samples, likelihood="categorical", chunk=8192, seed=run.seed_of(name))
    with torch.no_grad():
        plain = model.eval()(x).softmax(1)
    return {"mean": made.mean, "total": made.total, "epistemic": made.epistemic, "plain": plain}


def _setting(config: UncertaintyConfig, given: Prepared) -> str:
    training = config.training
    return (
        f"{given.source}; {training.network}, Bayes by Backprop under flipout, KL weighted by {training.kl_weight:g}, "
        f"Adam ({training.learning_rate:g}), {training.iterations} batches of {training.batch}; {config.samples} "
        "samples to predict. One half of the test set is known; the other half is changed."
    )
