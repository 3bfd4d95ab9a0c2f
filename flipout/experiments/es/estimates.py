"""Repeated estimates of one gradient: of E[F(W̄ + ε)], at the weights that a network begins with, on one batch.

By Stein's identity it is E[ε F(W̄ + ε)] / σ², which evolution strategies estimate, and, where F has a gradient, also
E[∇F(W̄ + ε)], which backpropagation under noise estimates: three estimates with one expectation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout
from flipout.es import EvolutionStrategy

from ..running.runs import Run
from ..training.supervised import Prepared, own_randomness
from .training import EsTraining, Task

NOISY = "backprop under noise"
_REPEATS = 16  # of the batch, in one estimate of backpropagation
Gradient = Mapping[str, Tensor]
Gathered = dict[str, dict[str, list[float]]]


def drawn(config: EsTraining, given: Prepared, method: str, samples: int, draws: int, run: Run) -> Gathered:
    with own_randomness(run):
        along = _direction(config, given, samples, draws, run)
        return gathered(_estimates(config, given, method, samples, draws, run), along)


def gathered(estimates: Iterable[Gradient], along: Gradient) -> Gathered:
    """By Parameter: each estimate along one direction, and its squared distance from their mean, which is the variance
    summed over the entries."""
    made: dict[str, list[Tensor]] = {}
    for one in estimates:
        for name, estimate in one.items():
            made.setdefault(name, []).append(estimate.flatten())
    found: Gathered = {"along": {}, "scatter": {}}
    for name, several in made.items():
        whole, count = torch.stack(several), len(several)
        found["along"][name] = (whole.double() @ along[name].double().flatten()).tolist()
        away = (whole - whole.mean(0)).double().square().sum(1)
        found["scatter"][name] = (away * count / (count - 1)).tolist()
    return found


def of_strategy(make: Callable[..., EvolutionStrategy], draws: int) -> Iterator[Gradient]:
    """Of generations one after the other, at weights that stay."""
    strategy = make(optimizer=lambda parameters: torch.optim.SGD(parameters, 0.0), shaping="raw")
    found: dict[str, Tensor] = {}

    def read(*_) -> None:
        for name, parameter in strategy.model.named_parameters():
            assert parameter.grad is not None
            found[name] = -parameter.grad

    strategy.optimizer.register_step_pre_hook(read)
    for _ in range(draws):
        strategy.step()
        yield dict(found)


def mean_direction(estimates: Iterable[Gradient]) -> Gradient:
    several = list(estimates)
    return _unit({name: torch.stack([one[name] for one in several]).mean(0) for name in several[0]})


def _unit(gradient: Gradient) -> Gradient:
    return {name: value / value.norm().clamp_min(1e-30) for name, value in gradient.items()}


def _direction(config: EsTraining, given: Prepared, samples: int, draws: int, run: Run) -> Gradient:
    """That of the gradient at W̄; of the mean of other estimates where there is none."""
    if config.units == "relu" and config.fitness == "likelihood":
        task = Task(config, given, 0, run)
        return _unit(_gradient(task, task.batches[0], 1))
    return mean_direction(_estimates(config, given, "IdealES", samples, max(draws // 2, 1), run, "pilot"))


def _estimates(
    config: EsTraining, given: Prepared, method: str, samples: int, draws: int, run: Run, what: str = "estimates"
) -> Iterator[Gradient]:
    task = Task(config, given, 0, run)
    seed = run.seed_of(f"{what}.{method}")
    if method == NOISY:
        flipout.perturb(task.model, flipout.Gaussian(config.std), where="*")
        torch.manual_seed(seed)
        for _ in range(draws):
            yield _gradient(task, task.batches[0], _REPEATS)
        return
    task.batches = task.batches[:1]  # of every generation
    yield from of_strategy(lambda **how: task.strategy(method, samples, seed, **how), draws)


def _gradient(task: Task, chosen: Tensor, repeats: int) -> Gradient:
    """∇F by backpropagation, each repeat of a picture under noise of its own where there is any."""
    x, y = task.x[chosen], task.y[chosen]
    task.model.train().zero_grad()
    loss = cross_entropy(task.model(x.repeat(repeats, *[1] * (x.dim() - 1))), y.repeat(repeats))
    loss.backward()
    return {name: -_grad(parameter) for name, parameter in task.model.named_parameters()}


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.clone()
