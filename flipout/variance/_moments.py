"""Streaming variances and covariances of gradients."""

import torch
from torch import Tensor

from ._sampler import DrawnGradients


class GradientMoments:
    """Variances of gradients, averaged over the entries of each Parameter.

    Given two draws on each batch, it also estimates the covariance between them. Only the sum over the draws is kept
    for every entry. Gradients are taken relative to the first one, which avoids cancellation.
    """

    def __init__(self) -> None:
        self.count = 0
        self.origin: DrawnGradients = {}
        self.sums: list[DrawnGradients] = []
        self.squares: list[dict[str, Tensor]] = []
        self.products: dict[str, Tensor] = {}

    def add(self, draws: tuple[DrawnGradients, ...]) -> None:
        """Add the gradients of some batches: one draw on each, or two."""
        if not self.sums:
            self.origin = {name: gradient[0].clone() for name, gradient in draws[0].items()}
            self.sums = [{} for _ in draws]
            self.squares = [{} for _ in draws]
        for name, origin in self.origin.items():
            deviations = [gradients[name] - origin for gradients in draws]
            for deviation, sums, squares in zip(deviations, self.sums, self.squares, strict=True):
                _accumulate(sums, name, deviation.sum(0, dtype=torch.float64))
                _accumulate(squares, name, torch.linalg.vector_norm(deviation, dtype=torch.float64).square())
            if len(draws) == 2:
                _accumulate(self.products, name, (deviations[0].double() * deviations[1]).sum())
        self.count += len(next(iter(draws[0].values())))

    def variance(self) -> dict[str, float]:
        """Return the unbiased variance, averaged over the entries and, given two draws, over these."""
        by_draw = [self._average(squares, sums, sums) for squares, sums in zip(self.squares, self.sums, strict=True)]
        return {name: sum(variances[name] for variances in by_draw) / len(by_draw) for name in self.origin}

    def covariance(self) -> dict[str, float]:
        """Return the covariance between two draws on one batch, or nothing if each batch had one draw."""
        return self._average(self.products, *self.sums) if self.products else {}

    def _average(self, products: dict[str, Tensor], first: DrawnGradients, second: DrawnGradients) -> dict[str, float]:
        centred = {name: total - (first[name] * second[name]).sum() / self.count for name, total in products.items()}
        return {name: float(total) / (self.count - 1) / self.origin[name].numel() for name, total in centred.items()}


def _accumulate(totals: dict[str, Tensor], name: str, value: Tensor) -> None:
    totals[name] = value if name not in totals else totals[name].add_(value)
