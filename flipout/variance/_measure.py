"""The procedure of the paper's appendix: variance per weight over fresh batches and draws, averaged per Parameter."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._student import interval
from ..errors import InvalidArgument
from ..nn.contexts import using
from ..schemes import Scheme, scheme_of
from ._gradients import Batches, Gradients, Loss, Point, sampler
from ._records import Measurements, Record


class Moments:
    """Streaming variances, averaged over the entries of each Parameter, and covariances of two draws on one batch.

    Only the sum over the draws is kept for every entry; its deviations from a first draw keep cancellation away.
    """

    def __init__(self) -> None:
        self.count = 0
        self.origin: Gradients = {}
        self.sums: list[Gradients] = []
        self.squares: list[dict[str, Tensor]] = []
        self.products: dict[str, Tensor] = {}

    def add(self, draws: tuple[Gradients, ...]) -> None:
        if not self.sums:
            self.origin = {name: gradient[0].clone() for name, gradient in draws[0].items()}
            self.sums = [{} for _ in draws]
            self.squares = [{} for _ in draws]
        for name, origin in self.origin.items():
            apart = [one[name] - origin for one in draws]
            for deviation, sums, squares in zip(apart, self.sums, self.squares, strict=True):
                _add(sums, name, deviation.sum(0, dtype=torch.float64))
                _add(squares, name, torch.linalg.vector_norm(deviation, dtype=torch.float64).square())
            if len(draws) == 2:
                _add(self.products, name, (apart[0].double() * apart[1]).sum())
        self.count += len(next(iter(draws[0].values())))

    def variance(self) -> dict[str, float]:
        """Unbiased, averaged over entries (and over the two draws)."""
        each = [self._average(squares, sums, sums) for squares, sums in zip(self.squares, self.sums, strict=True)]
        return {name: sum(one[name] for one in each) / len(each) for name in self.origin}

    def covariance(self) -> dict[str, float]:
        return self._average(self.products, *self.sums) if self.products else {}

    def _average(self, products: dict[str, Tensor], one: Gradients, other: Gradients) -> dict[str, float]:
        made = {name: product - (one[name] * other[name]).sum() / self.count for name, product in products.items()}
        return {name: float(value) / (self.count - 1) / self.origin[name].numel() for name, value in made.items()}


def _add(totals: dict[str, Tensor], name: str, value: Tensor) -> None:
    totals[name] = value if name not in totals else totals[name].add_(value)


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
    at_once: int | None = None,
    bases: int | Callable[[int], int] = 1,
    split: bool = False,
    progress: Callable[[Iterable], Iterable] = iter,
) -> Measurements:
    """The gradient variance of a perturbed model, frozen as it is, at each batch size under each scheme.

    `loss(output, target)` is the mean over its batch, of shape (). `data` is (inputs, targets), drawn from with
    replacement, or a function (size, generator) → (inputs, targets). Each estimate takes `draws` fresh batches and
    draws; `repeats` estimates give the 90 % t interval. Batches above `sub_batch` are accumulated, so memory does not
    grow with them; their sub-batches share one base unless `bases` says otherwise. `repeats` and `bases` may depend on
    the batch size. Small batches are measured many draws at a time by `vmap`, `at_once` of them at most: 1 for a model
    that cannot. `progress` wraps the list of (scheme, batch size, repeat) that is gone through, as `tqdm` or `rich`'s
    `track` would. `split` also measures the data and estimation terms of the paper's equation (6), by two draws on each
    batch.
    """
    draws = whole_number("draws", draws, 2, more=": a variance needs them.")
    source = sampler(model, loss, data, generator, sub_batch, at_once)
    bases_at = bases if callable(bases) else lambda _: bases
    for name, listed in (("batch_sizes", batch_sizes), ("schemes", schemes)):
        if isinstance(listed, str) or not isinstance(listed, Sequence) or not listed or len(set(listed)) < len(listed):
            raise InvalidArgument(f"{name}={listed!r}: expected a list, not empty, and nothing in it twice.")
    sizes = [whole_number("batch_size", size, 1) for size in batch_sizes]
    times = {size: whole_number("repeats", repeats(size) if callable(repeats) else repeats, 1) for size in sizes}
    ways = [scheme_of(scheme) for scheme in schemes]
    steps = ((scheme, size, i) for scheme in ways for size in sizes for i in range(times[size]))
    records, estimates, point = [], [], None
    for scheme, size, i in progress(list(steps)):
        if i == 0:
            point, estimates = source.point(size, scheme, bases_at(size)), []
        assert point is not None
        with using(model, scheme=scheme):
            estimates.append(_estimate(point, draws, split))
        if i + 1 == times[size]:
            point.gradients.close()
            records += _records(scheme, size, draws, bases_at(size), estimates)
    return Measurements(records)


def _label(scheme: Scheme) -> str:
    """Its name, and the options that are not as usual: flipout(group=2)."""
    listed = fields(scheme) if is_dataclass(scheme) else ()
    own = [f for f in listed if getattr(scheme, f.name) != f.default]
    options = ", ".join(f"{f.name}={getattr(scheme, f.name)}" for f in own)
    return f"{scheme.name}({options})" if options else scheme.name


def _estimate(point: Point, draws: int, split: bool) -> Moments:
    moments = Moments()
    for some in point.draws(draws, twice=split):
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
                scheme=_label(scheme),
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
