"""Does a Bayesian network know what it does not know? Entropy and mutual information on unknown pictures."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flipout import bayes

from .. import data
from ..running.experiment import Config, Outcome, check_least
from ..running.runs import Run
from ..training.bayes import BayesTrainer, BayesTraining
from ..training.supervised import Prepared, isolated_randomness, prepare
from . import claims
from .figures import pictures_figure, rotation_figure, separation_figure
from .shifts import SHIFTS, rotated


@dataclass(frozen=True)
class UncertaintyConfig(Config):
    training: BayesTraining = field(default_factory=lambda: BayesTraining(batch=1024, iterations=3000))
    samples: int = 64
    angles: tuple[float, ...] = tuple(range(0, 181, 15))
    turned: int = 1000  # pictures rotated by each angle

    def __post_init__(self) -> None:
        check_least(self, samples=16, turned=1)


def work(config: UncertaintyConfig, run: Run) -> Outcome:
    prepared = prepare(config.training, run)
    images, pictures, labels = _pictures(config, run)
    network = run.tensors("network", lambda: _train(config, prepared, run))

    def predicted(name: str, batch: Tensor) -> dict[str, Tensor]:
        x = data.standardised(batch, by=images.x_train).to(run.device)
        found = run.tensors(name, lambda: _predict(config, prepared, network, x, name, run))
        return {key: value.cpu() for key, value in found.items()}

    known, unknown = _halves(pictures)
    inside = predicted("known", known)
    outside = {name: predicted(f"unknown.{i}", batch) for i, (name, batch) in enumerate(unknown.items())}
    turned = {
        angle: predicted(f"rotated.{angle:g}", rotated(pictures[: config.turned], angle)) for angle in config.angles
    }
    test_set = _test_set(inside, outside)
    run.piece("separation", lambda: claims.separation(inside, outside))
    run.piece("rotation", lambda: _rotation(turned, labels[: config.turned]))
    run.piece("reliability", lambda: _reliability(test_set["mean"], labels))
    run.tensors("shown", lambda: _shown(unknown, outside))
    checks = [claims.control(inside, outside.pop("unchanged"))]
    checks += claims.separated(inside, outside)
    checks += [claims.errors_found(test_set, labels), claims.better_than_the_mean(test_set, labels)]
    return Outcome(
        _setting(config, prepared), claims.measured_numbers(inside, outside, test_set, labels), {}, tuple(checks)
    )


def draw(config: UncertaintyConfig, run: Run) -> None:
    shown = run.read_tensors("shown")
    names = {str(i): name for i, name in enumerate(("unchanged", *SHIFTS))}
    run.draw(
        "pictures",
        "Some pictures, and the predictive entropy of each, in nats.",
        pictures_figure({n: (shown[f"pictures.{i}"], shown[f"entropies.{i}"]) for i, n in names.items()}),
    )
    run.draw(
        claims.FIGURE,
        "How often an unknown picture is more uncertain than a known one, with 90 % intervals.",
        separation_figure(run.read_piece("separation")),
    )
    run.draw(
        "rotation",
        "Rotated test pictures: predictive entropy and mutual information, and error, with 90 % intervals.",
        rotation_figure(run.read_piece("rotation")),
    )
    bins = {key: np.array(values, dtype=np.float64) for key, values in run.read_piece("reliability").items()}
    run.draw(
        "reliability",
        "Reliability of the predictive probabilities on the test set: accuracy with 90 % intervals, and the number of "
        "pictures in each bin.",
        bayes.Reliability(**bins).plot(),
    )


def _rotation(turned: Mapping[float, dict[str, Tensor]], labels: Tensor) -> dict[str, Any]:
    """Return the mean of each uncertainty with its standard error, and the errors, at each angle."""
    errors = {angle: predicted["mean"].argmax(1) != labels for angle, predicted in turned.items()}
    measured = {
        measure: [
            [float(predicted[measure].mean()), float(predicted[measure].std()) / len(labels) ** 0.5]
            for predicted in turned.values()
        ]
        for measure in claims.MEASURES
    }
    return {
        "angles": list(turned),
        "pictures": len(labels),
        "wrong": [int(e.sum()) for e in errors.values()],
    } | measured


def _reliability(probabilities: Tensor, labels: Tensor) -> dict[str, Any]:
    """Return the bins of a reliability diagram; None for the means of empty ones."""
    found = asdict(bayes.reliability(probabilities, labels, bins=10))
    return {key: [value if value == value else None for value in values.tolist()] for key, values in found.items()}


def _shown(unknown: Mapping[str, Tensor], outside: Mapping[str, claims.Predicted]) -> dict[str, Tensor]:
    """Return some pictures of each kind with their entropies; kinds by number, because names of tensors are plain."""
    pictures = {
        f"pictures.{i}": batch[:8].round().clamp(0, 255).to(torch.uint8) for i, batch in enumerate(unknown.values())
    }
    return pictures | {f"entropies.{i}": outside[name]["total"][:8] for i, name in enumerate(unknown)}


def _pictures(config: UncertaintyConfig, run: Run) -> tuple[data.Images, Tensor, Tensor]:
    """Return the data, and the pictures and labels of its test set in random order."""
    images = data.images(config.training.data, embedded=config.training.embedded)
    order = torch.randperm(len(images.x_test), generator=run.generator("halves"))
    return images, images.x_test[order].float(), images.y_test[order]


def _halves(pictures: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Split the test set: one half is known, the other is changed, so that no picture is on both sides."""
    known, unknown = pictures.tensor_split(2)
    return known, {"unchanged": unknown, **{name: shift(unknown) for name, shift in SHIFTS.items()}}


def _test_set(inside: claims.Predicted, outside: Mapping[str, claims.Predicted]) -> dict[str, Tensor]:
    """Return the predictions for the unchanged test set."""
    return {key: torch.cat((inside[key], outside["unchanged"][key])) for key in inside}


def _train(config: UncertaintyConfig, prepared: Prepared, run: Run) -> dict[str, Tensor]:
    every = max(config.training.iterations // 20, 1)
    with isolated_randomness(run):
        trainer = BayesTrainer(config.training, prepared, "flipout", 0, run)
        for start in run.progress.track(range(0, config.training.iterations, every), "train"):
            likelihood, divergence = trainer.train(min(every, config.training.iterations - start)).mean(0).tolist()
            error = trainer.error(prepared.x_test, prepared.y_test)
            run.log(start + every, likelihood=likelihood, divergence=divergence, test_error=error)
        trainer.close()
        return trainer.model.state_dict()


def _predict(
    config: UncertaintyConfig, prepared: Prepared, network: dict[str, Tensor], x: Tensor, name: str, run: Run
) -> dict[str, Tensor]:
    with isolated_randomness(run):
        model = BayesTrainer(config.training, prepared, "flipout", 0, run).model
    model.load_state_dict(network)
    prediction = bayes.predict(model, x, config.samples, likelihood="categorical", chunk=8192, seed=run.seed_of(name))
    with torch.no_grad():
        plain = model.eval()(x).softmax(1)
    return {"mean": prediction.mean, "total": prediction.total, "epistemic": prediction.epistemic, "plain": plain}


def _setting(config: UncertaintyConfig, prepared: Prepared) -> str:
    training = config.training
    return (
        f"{prepared.source}; {training.network}, Bayes by Backprop under flipout, KL weighted by "
        f"{training.kl_weight:g}, Adam ({training.learning_rate:g}), {training.iterations} batches of "
        f"{training.batch}; {config.samples} samples per prediction. One half of the test set is known; the other half "
        "is changed."
    )
