"""What backpropagation cannot train: accuracy itself, and units that are 0 or 1."""

from dataclasses import dataclass, field, replace

from torch.nn.functional import cross_entropy

from flipout._drawing import BLUE, GREEN, RED

from ..running.experiment import Config, Outcome, check_least
from ..running.results import MUST_HOLD, Check
from ..running.runs import Run
from ..training.supervised import Prepared, isolated_randomness, prepare
from . import claims
from .curves import EsCurve, EsCurves, logged, trained
from .estimates import drawn
from .figures import curves_figure
from .training import EsTraining, Task

LIKELIHOOD, ACCURACY = "FlipES, log-likelihood", "FlipES, accuracy"
BINARY, BINARY_ACCURACY = "FlipES, binary units", "FlipES, binary units, accuracy"
ONLY_LAST = "backprop, binary units"
LINES = {
    LIKELIHOOD: (BLUE, "-"),
    ACCURACY: (BLUE, "--"),
    BINARY: (GREEN, "-"),
    BINARY_ACCURACY: (GREEN, "--"),
    ONLY_LAST: (RED, "-"),
}
NEAR = 5.0  # points of test error


@dataclass(frozen=True)
class DiscreteConfig(Config):
    training: EsTraining = field(default_factory=EsTraining)
    samples: int = 1600
    seeds: int = 3
    probe: int = 10_000  # training examples on which loss and error are measured
    draws: int = 40  # estimates by each method at one network

    def __post_init__(self) -> None:
        check_least(self, seeds=2, probe=1, draws=10)

    @property
    def trainings(self) -> dict[str, EsTraining]:
        return {
            LIKELIHOOD: self.training,
            ACCURACY: replace(self.training, fitness="accuracy"),
            BINARY: replace(self.training, units="binary"),
            BINARY_ACCURACY: replace(self.training, units="binary", fitness="accuracy"),
            ONLY_LAST: replace(self.training, units="binary"),
        }

    @property
    def trained(self) -> list[tuple[str, int]]:
        return [(name, seed) for seed in range(self.seeds) for name in self.trainings]


def work(config: DiscreteConfig, run: Run) -> Outcome:
    prepared, trainings = prepare(config.training, run), config.trainings
    checks = [_no_gradient(run.piece("gradient", lambda: _gradient(trainings[BINARY], prepared, run)))]
    for name in (ACCURACY, BINARY):
        found = {
            method: run.piece(
                f"estimates.{method}.{_file(name.removeprefix('FlipES, '))}",
                lambda m=method, training=trainings[name]: drawn(
                    training, prepared, m, config.samples, config.draws, run
                ),
            )
            for method in run.progress.track(("FlipES", "IdealES"), f"estimates: {name}")
        }
        checks.append(claims.same_gradient(found, case=name.removeprefix("FlipES, ")))
    trained_curves = (
        run.piece(f"{_file(name)}.{seed}", lambda n=name, s=seed: _train(config, prepared, n, s, run))
        for name, seed in run.progress.track(
            config.trained, "train", lambda training: 1 + 99 * (training[0] != ONLY_LAST)
        )
    )
    curves = EsCurves(EsCurve(**fields) for fields in trained_curves)
    ends = [
        claims.near(curves, ACCURACY, LIKELIHOOD, NEAR),
        claims.near(curves, BINARY, LIKELIHOOD, NEAR),
        claims.lower(curves, BINARY, ONLY_LAST),
        claims.lower(curves, BINARY_ACCURACY, ONLY_LAST),
    ]
    return Outcome(_setting(config, prepared), claims.numbers(curves), {}, (*checks, *ends))


def draw(config: DiscreteConfig, run: Run) -> None:
    curves = EsCurves(logged(run, f"{_file(name)}.{seed}", name, seed) for name, seed in config.trained)
    run.draw(
        claims.FIGURE,
        "Training loss and error per update, at the mean weights; what is trained on accuracy need not have a low "
        "loss. Lines: the mean over the seeds; bands: from the lowest to the highest seed.",
        curves_figure(curves, LINES),
    )


def _train(config: DiscreteConfig, prepared: Prepared, name: str, seed: int, run: Run) -> dict:
    method = "backprop" if name == ONLY_LAST else "FlipES"
    return trained(config.trainings[name], prepared, method, config.samples, seed, config.probe, run, name)


def _gradient(config: EsTraining, prepared: Prepared, run: Run) -> dict[str, float]:
    """Return the largest entry of each Parameter's gradient by backpropagation."""
    with isolated_randomness(run):
        task = Task(config, prepared, 0, run)
    cross_entropy(task.model(task.x[:1000]), task.y[:1000]).backward()
    gradients = {name: parameter.grad for name, parameter in task.model.named_parameters()}
    return {name: 0.0 if grad is None else float(grad.abs().max()) for name, grad in gradients.items()}


def _no_gradient(largest: dict[str, float]) -> Check:
    *below, weight, bias = largest.values()
    claim = "Binary units let no gradient through to the layers below the last (largest entry by backpropagation)"
    holds = max(below) == 0 < min(weight, bias)
    return Check("no-gradient", claim, MUST_HOLD, "largest entry", max(below), None, holds)


def _file(name: str) -> str:
    return name.replace(", ", ".").replace(" ", "-")


def _setting(config: DiscreteConfig, prepared: Prepared) -> str:
    training = config.training
    return (
        f"{prepared.source}; fc {'-'.join(map(str, training.hidden))} with ReLU or binary units; FlipES with "
        f"{config.samples:,} samples in groups of {training.group}, pairs and their mirror images, noise of "
        f"{training.std:g}, on the mean log-likelihood or the accuracy of {training.batch} examples, drawn with "
        f"replacement, the same for all members; centred ranks, Adam from {training.learning_rate:g} "
        f"({training.backprop_rate:g} for backprop) to 0, {training.updates} updates, {config.seeds} seeds. Estimates: "
        "raw fitness, at the network of the first seed."
    )
