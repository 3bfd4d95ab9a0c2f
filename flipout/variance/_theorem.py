"""The variance decomposition theorem: α, β and γ of each Parameter, and the variances that they predict."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .._student import interval
from ..errors import InvalidArgument
from ..nn.contexts import using
from ..schemes import Flipout
from ._gradients import Batches, Gradients, Loss, Point, Sampler, sampler
from ._measure import Moments


@dataclass(frozen=True)
class Term:
    """An estimate, its standard error, and the degrees of freedom of that."""

    value: float  # the estimate
    error: float  # its standard error
    freedom: float = math.inf  # degrees of freedom of that


@dataclass(frozen=True)
class Decomposition:
    """α is the variance of one example's gradient; β the covariance between examples that r and s make when shared;
    γ the covariance that ΔŴ makes, which flipout does not remove."""

    parameter: str  # its name
    alpha: Term  # α
    beta: Term  # β
    gamma: Term  # γ
    both: Term  # β + γ, whose errors are not independent

    def predict(self, scheme: str, batch_size: int, bases: int = 1) -> Term:
        """The variance of the mean gradient of a batch under 'independent', 'shared' or 'flipout'; with several
        `bases`, for equal shares of the batch each."""
        if batch_size < 1 or bases < 1:
            raise InvalidArgument(f"predict: batch_size={batch_size}, bases={bases}: expected at least 1 of each.")
        rest = {"independent": Term(0.0, 0.0), "shared": self.both, "flipout": self.gamma}
        if scheme not in rest:
            raise InvalidArgument(f"predict({scheme!r}): the theorem speaks of {', '.join(rest)}.")
        share = (batch_size / bases - 1) / batch_size
        value = self.alpha.value / batch_size + share * rest[scheme].value
        squares = [(self.alpha.error / batch_size) ** 2, (share * rest[scheme].error) ** 2]
        loss = squares[0] ** 2 / self.alpha.freedom + squares[1] ** 2 / rest[scheme].freedom
        return Term(value, sum(squares) ** 0.5, sum(squares) ** 2 / loss if loss else math.inf)

    @property
    def knee(self) -> float:
        """The batch size at which shared perturbations stop paying: α / (β + γ)."""
        return self.alpha.value / self.both.value


def decompose(
    model: nn.Module,
    loss: Loss,
    data: Batches,
    *,
    pairs: int = 200,
    batch_size: int = 256,
    examples: int = 20_000,
    generator: torch.Generator | None = None,
    sub_batch: int = 1024,
    at_once: int | None = None,
    progress: Callable[[Iterable], Iterable] = iter,
) -> list[Decomposition]:
    """Unbiased estimates of α, β, γ for each Parameter of a perturbed model, frozen as it is.

    `loss`, of shape (), and `data` are those of `measure`. α is the variance over `examples` single examples. β + γ and
    γ are covariances between two separate batches of `batch_size` examples: of their mean gradients under one weight
    for both, and under one ΔŴ with signs of its own for every example. Each is the mean over `pairs` of batches of a
    product, less the product with another ΔŴ.
    """
    if pairs < 2 or examples < 40:
        raise InvalidArgument(f"pairs={pairs}, examples={examples}: standard errors need at least 2 and 40.")
    source = sampler(model, loss, data, generator, sub_batch, at_once)
    scheme = Flipout()
    with using(model, scheme=scheme):
        single, batches = source.point(1, scheme), source.point(batch_size, scheme)
        estimates = [_alpha(single, examples // 20) for _ in progress(range(20))]
        single.gradients.close()
        found = [_covariances(source, some, batch_size) for some in progress(batches.chunks(pairs))]
    made = []
    for name in source.parts:
        both, gamma = (torch.cat([one[i][name] for one in found]).tolist() for i in range(2))
        terms = {
            "alpha": [one[name] for one in estimates],
            "beta": [b - g for b, g in zip(both, gamma, strict=True)],
            "gamma": gamma,
            "both": both,
        }
        estimated = {key: Term(*interval(values)[:2], len(values) - 1) for key, values in terms.items()}
        made.append(Decomposition(name, **estimated))
    return made


def _alpha(single: Point, examples: int) -> dict[str, float]:
    moments = Moments()
    for some in single.draws(examples):
        moments.add(some)
    return moments.variance()


def _covariances(source: Sampler, pairs: int, size: int) -> tuple[Gradients, Gradients]:
    """β + γ and γ from each pair of batches, averaged over the entries: (pairs,) for each Parameter."""
    here, there = source.batch(pairs, size), source.batch(pairs, size)
    base, other, signs, other_signs = (source.seeds(pairs) for _ in range(4))

    def covariance(first: Gradients, same: Gradients, apart: Gradients) -> Gradients:
        return {
            label: (first[name][:, rows].double() * (same[name][:, rows].double() - apart[name][:, rows]))
            .flatten(1)
            .mean(1)
            for label, (name, rows) in source.parts.items()
        }

    def one_weight(batch: tuple[Tensor, Tensor], base: Tensor, signs: Tensor) -> Gradients:
        return source.under(base, *batch, sign_seed=signs, rows=size)  # all rows are one example

    def one_base(batch: tuple[Tensor, Tensor], base: Tensor, signs: Tensor) -> Gradients:
        return source.under(base, *batch, sign_seed=signs)

    both = covariance(one_weight(here, base, signs), one_weight(there, base, signs), one_weight(there, other, signs))
    first, same, apart = (
        one_base(here, base, signs),
        one_base(there, base, other_signs),
        one_base(there, other, other_signs),
    )
    return both, covariance(first, same, apart)
