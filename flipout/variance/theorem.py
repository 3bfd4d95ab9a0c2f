"""The variance decomposition theorem: α, β and γ of each Parameter, and the variances that they predict."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import InvalidArgument
from ..nn.contexts import using
from ..schemes import Flipout
from .gradients import Batches, Gradients, Loss, Sampler, sampler
from .measure import Moments
from .records import interval


@dataclass(frozen=True)
class Term:
    """An estimate and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Decomposition:
    """α is the variance of one example's gradient; β the covariance between examples that r and s make when shared;
    γ the covariance that ΔŴ makes, which flipout does not remove."""

    parameter: str
    alpha: Term
    beta: Term
    gamma: Term
    both: Term  # β + γ, whose errors are not independent

    def predict(self, scheme: str, batch_size: int) -> Term:
        """The variance of the mean gradient of a batch under 'independent', 'shared' or 'flipout'."""
        rest = {"independent": Term(0.0, 0.0), "shared": self.both, "flipout": self.gamma}
        if scheme not in rest:
            raise InvalidArgument(f"predict({scheme!r}): the theorem speaks of {', '.join(rest)}.")
        share = (batch_size - 1) / batch_size
        value = self.alpha.value / batch_size + share * rest[scheme].value
        return Term(value, ((self.alpha.error / batch_size) ** 2 + (share * rest[scheme].error) ** 2) ** 0.5)

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
    progress: Callable[[Iterable], Iterable] = iter,
) -> list[Decomposition]:
    """Unbiased estimates of α, β, γ for each Parameter of a perturbed model, frozen as it is.

    α is the variance over `examples` single examples. β and γ come from products of the mean gradients of two separate
    batches of `batch_size` examples, each batch under one weight: the same weight for both (E), the same ΔŴ under other
    signs (E′), another ΔŴ (E″). Then β = E − E′ and γ = E′ − E″, averaged over `pairs` of batches.
    """
    if pairs < 2 or examples < 40:
        raise InvalidArgument(f"pairs={pairs}, examples={examples}: standard errors need at least 2 and 40.")
    source = sampler(model, loss, data, generator, sub_batch)
    with using(model, scheme=Flipout()):
        estimates = [_alpha(source, examples // 20) for _ in progress(range(20))]
        products = [
            one for some in progress(source.chunks(pairs, batch_size)) for one in _products(source, some, batch_size)
        ]
    made = []
    for name in source.parts:
        terms = {
            "alpha": [one[name] for one in estimates],
            "beta": [same[name] - flipped[name] for same, flipped, _ in products],
            "gamma": [flipped[name] - apart[name] for _, flipped, apart in products],
            "both": [same[name] - apart[name] for same, _, apart in products],
        }
        made.append(Decomposition(name, **{key: Term(*interval(values)[:2]) for key, values in terms.items()}))
    return made


def _alpha(source: Sampler, examples: int) -> dict[str, float]:
    moments = Moments()
    for some in source.draws(examples, 1):
        moments.add(some)
    return moments.variance()


Products = tuple[dict[str, float], dict[str, float], dict[str, float]]


def _products(source: Sampler, pairs: int, size: int) -> list[Products]:
    """For each pair: averages over entries of G_x G_x′ under one weight, under other signs, and under another ΔŴ."""
    here_batch, there_batch = source.batch(pairs, size), source.batch(pairs, size)
    base, other_base, signs, other_signs, third_signs = (source.seeds(pairs) for _ in range(5))

    def mean_gradients(batch: tuple[Tensor, Tensor], base: Tensor, signs: Tensor) -> Gradients:
        made = source.under(base, *batch, sign_seed=signs, rows=size)  # all rows one example: one weight
        return {label: made[name][:, rows].double() for label, (name, rows) in source.parts.items()}

    here = mean_gradients(here_batch, base, signs)
    averages = []
    for seeds in ((base, signs), (base, other_signs), (other_base, third_signs)):
        there = mean_gradients(there_batch, *seeds)
        averages.append({name: (here[name] * there[name]).flatten(1).mean(1).tolist() for name in here})
    same, flipped, apart = averages
    return [
        ({n: same[n][i] for n in here}, {n: flipped[n][i] for n in here}, {n: apart[n][i] for n in here})
        for i in range(pairs)
    ]
