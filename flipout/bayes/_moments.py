"""Sums over the samples of some inputs: what a prediction is computed from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import InvalidInput
from ._likelihood import wide
from .likelihoods import Categorical, Likelihood


class Moments:
    """Sums in float64 over samples that come in order.

    In the formulas, base b has n_b samples with the sum S_b and the mean m_b. All n samples have the mean m.
    """

    def __init__(self, likelihood: Likelihood | None, group: int, most: float, antithetic: bool = False) -> None:
        self.likelihood, self.group = likelihood, group
        self.antithetic = antithetic  # samples come in pairs of a draw and its mirror image
        self.most = most  # numbers of outputs to keep; if there are more, none are kept
        self.count = 0
        self.kept: list[Tensor] = []  # the outputs of each sample
        self.sums: dict[str, Tensor] = {}
        self.dtype = torch.float32

    @property
    def bases(self) -> int:
        return -(-self.count // self.group)

    def add(self, outputs: Tensor) -> None:
        """Add outputs (samples, inputs, …)."""
        if self.likelihood is None:
            mean = wide(outputs)
        else:
            rows, likelihood = outputs.flatten(0, 1), self.likelihood
            if isinstance(likelihood, Categorical) and likelihood.dim == -rows.dim():
                raise InvalidInput(
                    f"Categorical(dim={likelihood.dim}) of outputs {tuple(outputs.shape[1:])}: that is the dimension "
                    "of the examples, not of the classes, such as Categorical(dim=-1)."
                )
            mean = likelihood.mean(rows)
            of_output = likelihood.defines("output_noise")
            noise = likelihood.output_noise(rows) if of_output else likelihood.noise(mean.double())
            self._add("noise", noise.unflatten(0, outputs.shape[:2]).sum(0))
            mean = mean.unflatten(0, outputs.shape[:2])
        self.dtype = mean.dtype
        self._keep(outputs)
        exact = mean.double()
        # Deviations from the first sample avoid cancellation in the squares.
        deviations = exact - self.sums.setdefault("origin", exact[0])
        self._add_bases(deviations)
        self._add("squares", deviations.square().sum(0))
        if self.antithetic:
            self._add("pair squares", deviations.unflatten(0, (-1, 2)).sum(1).square().sum(0))
        self.count += len(deviations)

    def standard_error(self) -> Tensor:
        """Return the standard error of m by the jackknife over the B bases; the last one may have fewer samples.

        √((B−1)/B Σ_b ((S_b − n_b m) / (1 − n_b/n))²) / n
        """
        total = self.sums["sum"]
        if self.bases < 2:
            return torch.full_like(total, torch.nan)
        if self.count % self.group == 0:  # then the sum is that of _between(), but for a factor
            return (self._between() * (self.group * self.bases / (self.bases - 1) / self.count**2)).sqrt()
        mean, part, (full, rest) = total / self.count, self._open(), divmod(self.count, self.group)
        expected = self.group * mean
        of_full = self.sums["base squares"] - 2 * expected * (total - part) + full * expected.square()
        spread = of_full.clamp_min(0) / (1 - self.group / self.count) ** 2
        spread = spread + ((part - rest * mean) / (1 - rest / self.count)).square()
        return (spread * ((self.bases - 1) / self.bases)).sqrt() / self.count

    def variance(self) -> Tensor:
        """Return the variance of one sample: half the mean squared difference of samples of different bases.

        Samples of a base are correlated, and mirrored ones among them negatively, so they are not compared. With Q_b,
        the sum of the squares of a base, the differences give

        (Σ_b (n − n_b) Q_b − Σ_{b≠c} S_b S_c) / (n² − Σ_b n_b²)

        This is unbiased however the samples of a base depend on each other. If all samples share one base, its pairs,
        or its samples, take the place of the bases.
        """
        total, rest = self.sums["squares"], self.count % self.group
        if self.bases > 1:
            squares, sizes = self.sums["base squares"] + self._open().square(), self._sizes
            weighted = self.group * total  # Σ_b n_b Q_b
            if rest:
                weighted = weighted - (self.group - rest) * self.sums["open squares"]
        elif self.antithetic:
            squares, sizes, weighted = self.sums["pair squares"], 2 * self.count, 2 * total
        else:
            squares, sizes, weighted = total, self.count, total
        products = self.count**2 - sizes
        if not products:
            return torch.full_like(squares, torch.nan)
        return ((self.count * total - weighted - self.sums["sum"].square() + squares) / products).clamp_min(0)

    def results(self) -> dict[str, Tensor]:
        """Return the fields of a `Prediction`, inputs in dimension 0; NaN where there are too few samples."""
        mean = self.sums["origin"] + self.sums["sum"] / self.count
        if self.likelihood is not None and self.likelihood.entropic:
            noise, total = self.sums["noise"] / self.count, self.likelihood.noise(mean)
            epistemic = (total - noise).clamp_min(0) if self.count > 1 else torch.full_like(total, torch.nan)
        else:
            epistemic = self.variance()
            noise = torch.zeros_like(mean) if self.likelihood is None else self.sums["noise"] / self.count
            total = noise + epistemic
        fields = {
            "mean": mean,
            "standard_error": self.standard_error(),
            "total": total,
            "aleatoric": noise,
            "epistemic": epistemic,
        }
        return {name: value.to(self.dtype) for name, value in fields.items()}

    def outputs(self) -> Tensor | None:
        """Return the outputs of all samples (samples, inputs, …), None if there are too many."""
        return torch.cat(self.kept) if self.kept else None

    def quantiles(self, levels: Sequence[float]) -> Tensor:
        """Return quantiles of the expected target (levels, inputs, …), linear between the samples."""
        samples = torch.cat(self.kept)
        if self.likelihood is not None:
            samples = self.likelihood.mean(samples.flatten(0, 1)).unflatten(0, samples.shape[:2])
        return quantiles_of(samples, levels)

    def _keep(self, outputs: Tensor) -> None:
        self.kept.append(outputs)
        if (self.count + len(outputs)) * outputs[0].numel() > self.most:
            self.kept, self.most = [], 0

    @property
    def _sizes(self) -> int:
        """Σ_b n_b²"""
        full, rest = divmod(self.count, self.group)
        return full * self.group**2 + rest**2

    def _of_mean(self) -> Tensor:
        """n m²"""
        return self.sums["sum"].square() / self.count

    def _of_bases(self) -> Tensor:
        """Σ_b n_b m_b²"""
        full, rest = self.sums["base squares"] / self.group, self.count % self.group
        return full + self._open().square() / rest if rest else full

    def _between(self) -> Tensor:
        """Σ_b n_b (m_b − m)²"""
        return (self._of_bases() - self._of_mean()).clamp_min_(0)

    def _open(self) -> Tensor:
        """Return the sum over the last base if it is not full, else 0."""
        return self.sums.get("base", torch.zeros_like(self.sums["sum"]))

    def _add_bases(self, deviations: Tensor) -> None:
        """Add the rest of the open base, then full bases, then the first samples of the next one."""
        head = min(-self.count % self.group, len(deviations))
        full = (len(deviations) - head) // self.group * self.group
        if head:
            part = deviations[:head].sum(0)
            self._add("sum", part)
            self._add_open(part, deviations[:head])
            if (self.count + head) % self.group == 0:
                self._add("base squares", self.sums.pop("base").square())
                del self.sums["open squares"]
        if full:
            of_base = deviations[head : head + full].unflatten(0, (-1, self.group)).sum(1)
            self._add("sum", of_base.sum(0))
            self._add("base squares", of_base.square().sum(0))
        if len(deviations) > head + full:
            part = deviations[head + full :].sum(0)
            self._add("sum", part)
            self._add_open(part, deviations[head + full :])

    def _add_open(self, part: Tensor, deviations: Tensor) -> None:
        """Add samples, and their sum, to the base that is not full."""
        self._add("base", part)
        self._add("open squares", deviations.square().sum(0))

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value


def quantiles_of(samples: Tensor, levels: Sequence[float]) -> Tensor:
    """Return quantiles (levels, …) over dimension 0, linear between the samples."""
    # torch.quantile takes 2²⁴ numbers at most.
    ordered, last = wide(samples).sort(0).values, len(samples) - 1
    places = [level * last for level in levels]
    found = torch.stack([ordered[int(p)].lerp(ordered[min(int(p) + 1, last)], p - int(p)) for p in places])
    return torch.where(ordered[-1].isnan(), torch.nan, found)  # NaN is sorted to the end
