"""Corrupted pictures: a plain network, MC dropout, a posterior around trained weights, and an ensemble."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from flipout import bayes

from .. import data
from ..running.experiment import Config, Outcome, check_least
from ..running.runs import Run
from ..training.supervised import Prepared, isolated_randomness
from . import claims
from .corruptions import CORRUPTIONS, STRENGTHS
from .figures import pictures_figure, rejection_figure, strength_figure
from .methods import ShiftMethod, all_methods
from .training import ShiftTraining

_SHARES = np.linspace(0.05, 1.0, 20)  # of the pictures that are kept, in a rejection curve


@dataclass(frozen=True)
class ShiftConfig(Config):
    data: Literal["cifar10", "digits"] = "cifar10"
    training: ShiftTraining = field(default_factory=ShiftTraining)
    members: int = 4
    samples: int = 16
    tested: int = 5_000  # test pictures at most

    def __post_init__(self) -> None:
        check_least(self, members=2, samples=2, tested=2)


def work(config: ShiftConfig, run: Run) -> Outcome:
    images, prepared, standardise = _prepared(config, run)
    tried = all_methods(config.training, config.members, config.samples, prepared, run)
    for corruption, strength in run.progress.track(claims.CONDITIONS, "test"):
        pieces = {claims.piece(name, corruption, strength): method for name, method in tried.items()}
        tested = images.x_test[: config.tested]
        corrupted = cache(partial(_corrupted, tested, corruption, strength, run))  # once for all methods
        for piece, method in pieces.items():
            run.piece(
                piece,
                lambda p=piece, m=method, x=corrupted: _test(config, m, standardise(x()), prepared.y_test, p, run),
            )
    run.tensors("shown", lambda: {"picture": images.x_test[:1]})
    found = _found(run)
    return Outcome(_setting(config, images), claims.measured_numbers(found), {}, tuple(claims.evaluate(found)))


def draw(config: ShiftConfig, run: Run) -> None:
    found = _found(run)
    run.draw(
        claims.STRENGTH_FIGURE,
        "Accuracy, negative log-likelihood and expected calibration error, averaged over the five corruptions. "
        "Strength 0 is the test set itself.",
        strength_figure(found),
    )
    run.draw(
        claims.REJECTION_FIGURE,
        "The error rate among the pictures that are kept, if those with the highest entropy are rejected: for the test "
        "set, and averaged over the corruptions at strength 3.",
        rejection_figure(found),
    )
    picture = run.read_tensors("shown")["picture"]
    shown = {name: [_corrupted(picture, name, s, run)[0].cpu() for s in (0, *STRENGTHS)] for name in CORRUPTIONS}
    run.draw("pictures", "One test picture under each corruption, at strengths 0 to 5.", pictures_figure(shown))


def _prepared(config: ShiftConfig, run: Run) -> tuple[data.Images, Prepared, Callable[[Tensor], Tensor]]:
    """Return the images, what networks learn from, and a function that standardises pictures by the training data."""
    images = data.images(config.data)
    x, over = images.x_train.to(run.device).float(), (0, 2, 3)
    mean, std = x.mean(over, keepdim=True), x.std(over, keepdim=True)

    def standardise(pictures: Tensor) -> Tensor:
        return (pictures - mean) / std

    y, y_test = images.y_train.to(run.device), images.y_test[: config.tested].to(run.device)
    return images, Prepared(standardise(x), y, x[:0], y_test, len(images.classes), images.source), standardise


def _test(config: ShiftConfig, method: ShiftMethod, x: Tensor, y: Tensor, piece: str, run: Run) -> dict[str, Any]:
    """Score a method on standardised test pictures. The noise of predictions comes from the piece's name."""
    with isolated_randomness(run):
        torch.manual_seed(run.seed_of(piece))
        members, y = method.predict(config.training, x).cpu(), y.cpu()
    prediction, scores = _scored(members, y)
    kept = bayes.selective(prediction.total, prediction.mean.argmax(1) == y)
    return {
        "accuracy": scores.accuracy,
        "nll": scores.nll,
        "ece": scores.ece,
        "rejection": kept.area,
        "shares": _SHARES.tolist(),
        "risk": np.interp(_SHARES, kept.coverage, kept.risk).tolist(),
        "member_nll": [float(F.nll_loss(_logs(member).double(), y)) for member in members],
    }


def _scored(probabilities: Tensor, y: Tensor) -> tuple[bayes.Prediction, bayes.Scores]:
    """Return the prediction of networks with these probabilities (networks, N, classes), and its scores."""
    prediction = bayes.Prediction.from_outputs(_logs(probabilities), "categorical")
    scores = bayes.evaluate(prediction, y)
    assert isinstance(scores, bayes.Scores)
    return prediction, scores


def _logs(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def _corrupted(pictures: Tensor, corruption: str, strength: int, run: Run) -> Tensor:
    x = pictures.to(run.device).float()
    if strength == 0:
        return x
    return CORRUPTIONS[corruption](x, strength, run.generator(f"{corruption}.{strength}"))


def _found(run: Run) -> claims.Found:
    return {
        method: {condition: run.read_piece(claims.piece(method, *condition)) for condition in claims.CONDITIONS}
        for method in claims.METHODS
    }


def _setting(config: ShiftConfig, images: data.Images) -> str:
    training = config.training
    return (
        f"{images.source}; a ResNet of {6 * training.blocks + 2} layers, {training.width} wide at first; SGD "
        f"({training.learning_rate:g} for batches of 512), {training.epochs} epochs in batches of {training.batch}; MC "
        f"dropout of {training.rate:g}; the posterior starts from the plain network with spreads of "
        f"{training.relative:g} of each weight, prior N(0, {training.prior:g}²), KL weighted by "
        f"{training.kl_weight:g}, Adam ({training.bayes_rate:g}, for spreads {training.spread_rate:g}), "
        f"{training.bayes_epochs} epochs under flipout; {config.members} members; {config.samples} samples per "
        f"prediction; {min(config.tested, len(images.y_test))} test pictures."
    )
