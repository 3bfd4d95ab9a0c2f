"""The procedure of the paper's appendix: variance per weight over fresh batches and draws, averaged per Parameter."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from ..errors import InvalidArgument
from ..nn.contexts import using
from ..schemes import Scheme, scheme_of
from .gradients import Batches, Gradients, Loss, Sampler, sampler
from .records import Measurements, Record, interval


class Moments:
    """Running mean and squared deviations of each entry, and the products of two draws on the same batches."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: list[Gradients] = []
        self.squares: list[Gradients] = []
        self.products: Gradients = {}

    def add(self, draws: tuple[Gradients, ...]) -> None:
        """Chan's update with a chunk of draws; a pair of draws has its co-moment kept too."""
        if not self.mean:
            zero = [{name: torch.zeros_like(g[0], dtype=torch.float64) for name, g in one.items()} for one in draws]
            self.mean, self.squares = zero, [{n: v.clone() for n, v in one.items()} for one in zero]
            self.products = {name: value.clone() for name, value in zero[0].items()} if len(draws) == 2 else {}
        added = len(next(iter(draws[0].values())))
        total = self.count + added
        for name in draws[0]:
            chunk = [one[name].double() for one in draws]
            means = [c.mean(0) for c in chunk]
            shift = [m - self.mean[i][name] for i, m in enumerate(means)]
            weight = self.count * added / total
            for i, values in enumerate(chunk):
                self.squares[i][name] += (values - means[i]).square().sum(0) + shift[i].square() * weight
            if self.products:
                inner = ((chunk[0] - means[0]) * (chunk[1] - means[1])).sum(0)
                self.products[name] += inner + shift[0] * shift[1] * weight
            for i in range(len(draws)):
                self.mean[i][name] += shift[i] * (added / total)
        self.count = total

    def variance(self) -> dict[str, float]:
        """Unbiased, averaged over entries (and over the two draws)."""
        return {
            name: sum(_average(squares[name]) for squares in self.squares) / len(self.squares) / (self.count - 1)
            for name in self.squares[0]
        }

    def covariance(self) -> dict[str, float]:
        return {name: _average(products) / (self.count - 1) for name, products in self.products.items()}


def _average(entries: Tensor) -> float:
    return float(entries.mean())


def measure(
    model: nn.Module,
    loss: Loss,
    data: Batches,
    *,
    batch_sizes: Sequence[int],
    schemes: Sequence[str | Scheme] = ("shared", "flipout"),
    draws: int = 200,
    repeats: int | Callable[[int], int] = 50,
    generator: torch.Generator | None = None,
    sub_batch: int = 1024,
    bases: int | Callable[[int], int] = 1,
    split: bool = False,
    progress: Callable[[Iterable], Iterable] = iter,
) -> Measurements:
    """The gradient variance of a perturbed model, frozen as it is, at each batch size under each scheme.

    `loss(output, target)` is the mean over its batch. `data` is (inputs, targets), drawn from with replacement, or a
    function (size, generator) → (inputs, targets). Each estimate takes `draws` fresh batches and draws; `repeats`
    estimates give the 90 % t interval. Batches above `sub_batch` are accumulated, so memory does not grow with them;
    their sub-batches share one base unless `bases` says otherwise. `repeats` and `bases` may depend on the batch size.
    `split` also measures the data and estimation terms of the paper's equation (6), by two draws on each batch.
    """
    if draws < 2:
        raise InvalidArgument(f"draws={draws}: a variance needs at least 2.")
    source = sampler(model, loss, data, generator, sub_batch)
    points = [(scheme_of(scheme), size) for scheme in schemes for size in batch_sizes]
    records = []
    for scheme, size in progress(points):
        count = repeats(size) if callable(repeats) else repeats
        shares = bases(size) if callable(bases) else bases
        if size < 1 or count < 1:
            raise InvalidArgument(f"batch size {size} with {count} repeats: expected at least 1 of each.")
        with using(model, scheme=scheme):
            estimates = [_estimate(source, draws, size, shares, split) for _ in range(count)]
        records += _records(scheme, size, draws, shares, estimates)
    return Measurements(records)


def _estimate(source: Sampler, draws: int, size: int, bases: int, split: bool) -> Moments:
    moments = Moments()
    for some in source.draws(draws, size, bases, twice=split):
        moments.add(some)
    return moments


def _records(scheme: Scheme, size: int, draws: int, bases: int, estimates: list[Moments]) -> list[Record]:
    total = [estimate.variance() for estimate in estimates]
    shared = [estimate.covariance() for estimate in estimates]
    made = []
    for name in total[0]:
        mean, error, low, high = interval(one[name] for one in total)
        data = interval(one[name] for one in shared)[0] if shared[0] else None
        made.append(
            Record(
                parameter=name,
                scheme=scheme.name,
                batch_size=size,
                variance=mean,
                error=error,
                low=low,
                high=high,
                draws=draws,
                repeats=len(estimates),
                bases=bases,
                data_term=data,
                estimation_term=None if data is None else mean - data,
            )
        )
    return made
