"""Repeated estimates of the gradient of E[F(W̄ + ε)], at the initial weights of a network, on one batch.

By Stein's identity it is E[ε F(W̄ + ε)] / σ², which evolution strategies estimate. Where F has a gradient it is also
E[∇F(W̄ + ε)], which backpropagation under noise estimates. All estimates have the same expectation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout
from flipout.es import EvolutionStrategy

from ..running.runs import Run
from ..training.supervised import Prepared, isolated_randomness
from .training import EsTraining, Task

NOISY = "backprop under noise"
_REPEATS = 16  # copies of the batch in one estimate by backpropagation
Gradient = Mapping[str, Tensor]
Gathered = dict[str, dict[str, list[float]]]


def drawn(config: EsTraining, prepared: Prepared, method: str, samples: int, draws: int, run: Run) -> Gathered:
    with isolated_randomness(run):
        along = _direction(config, prepared, samples, draws, run)
        return gathered(_estimates(config, prepared, method, samples, draws, run), along)


def gathered(estimates: Iterable[Gradient], along: Gradient) -> Gathered:
    """Return two lists for each Parameter: the estimates projected onto the direction `along`, and their scatter.

    The scatter of an estimate is n / (n − 1) times its squared distance from the mean of the n estimates. The mean
    scatter is therefore the unbiased variance, summed over all entries.
    """
    by_name: dict[str, list[Tensor]] = {}
    for gradient in estimates:
        for name, estimate in gradient.items():
            by_name.setdefault(name, []).append(estimate.flatten())
    found: Gathered = {"along": {}, "scatter": {}}
    for name, rows in by_name.items():
        stacked, count = torch.stack(rows), len(rows)
        found["along"][name] = (stacked.double() @ along[name].double().flatten()).tolist()
        distances = (stacked - stacked.mean(0)).double().square().sum(1)
        found["scatter"][name] = (distances * count / (count - 1)).tolist()
    return found


def of_strategy(make: Callable[..., EvolutionStrategy], draws: int) -> Iterator[Gradient]:
    """Yield the estimates of successive generations, at weights that do not change."""
    strategy = make(optimizer=lambda parameters: torch.optim.SGD(parameters, 0.0), shaping="raw")
    gradient: dict[str, Tensor] = {}

    def read(*_) -> None:
        for name, parameter in strategy.model.named_parameters():
            assert parameter.grad is not None
            gradient[name] = -parameter.grad

    strategy.optimizer.register_step_pre_hook(read)
    for _ in range(draws):
        strategy.step()
        yield dict(gradient)


def mean_direction(estimates: Iterable[Gradient]) -> Gradient:
    """Return the direction of the mean estimate of each Parameter."""
    gradients = list(estimates)
    return _unit({name: torch.stack([gradient[name] for gradient in gradients]).mean(0) for name in gradients[0]})


def _unit(gradient: Gradient) -> Gradient:
    return {name: value / value.norm().clamp_min(1e-30) for name, value in gradient.items()}


def _direction(config: EsTraining, prepared: Prepared, samples: int, draws: int, run: Run) -> Gradient:
    """Return the direction of the gradient at W̄. Without a gradient, use the mean of separate pilot estimates."""
    if config.units == "relu" and config.fitness == "likelihood":
        task = Task(config, prepared, 0, run)
        return _unit(_gradient(task, task.batches[0], 1))
    return mean_direction(_estimates(config, prepared, "IdealES", samples, max(draws // 2, 1), run, "pilot"))


def _estimates(
    config: EsTraining, prepared: Prepared, method: str, samples: int, draws: int, run: Run, what: str = "estimates"
) -> Iterator[Gradient]:
    task = Task(config, prepared, 0, run)
    seed = run.seed_of(f"{what}.{method}")
    if method == NOISY:
        flipout.perturb(task.model, flipout.Gaussian(config.std), where="*")
        torch.manual_seed(seed)
        for _ in range(draws):
            yield _gradient(task, task.batches[0], _REPEATS)
        return
    task.batches = task.batches[:1]  # the same in every generation
    yield from of_strategy(lambda **how: task.strategy(method, samples, seed, **how), draws)


def _gradient(task: Task, chosen: Tensor, repeats: int) -> Gradient:
    """Return ∇F by backpropagation. If there is noise, each repeat of an image has its own."""
    x, y = task.x[chosen], task.y[chosen]
    task.model.train().zero_grad()
    loss = cross_entropy(task.model(x.repeat(repeats, *[1] * (x.dim() - 1))), y.repeat(repeats))
    loss.backward()
    return {name: -_grad(parameter) for name, parameter in task.model.named_parameters()}


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.clone()
