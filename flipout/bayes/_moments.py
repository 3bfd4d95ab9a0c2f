"""Sums over the samples of some inputs: what a prediction is computed from."""

import torch
from torch import Tensor

from .likelihoods import Likelihood


class Moments:
    """Sums in float64 over samples that come in order.

    In the formulas, base b has n_b samples with the sum S_b and the mean m_b. All n samples have the mean m.
    """

    def __init__(self, likelihood: Likelihood | None, group: int, keep: bool) -> None:
        self.likelihood, self.group, self.keep = likelihood, group, keep
        self.count = 0
        self.kept: list[Tensor] = []  # the expected target of each sample, with `keep`
        self.sums: dict[str, Tensor] = {}
        self.dtype = torch.float32

    @property
    def bases(self) -> int:
        return -(-self.count // self.group)

    def add(self, outputs: Tensor) -> None:
        """Add outputs (samples, inputs, …)."""
        if self.likelihood is None:
            mean = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        else:
            mean = self.likelihood.mean(outputs.flatten(0, 1))
            noise = self.likelihood.noise(mean.double())
            self._add("noise", noise.unflatten(0, outputs.shape[:2]).sum(0))
            mean = mean.unflatten(0, outputs.shape[:2])
        self.dtype = mean.dtype
        if self.keep:
            self.kept.append(mean)
        wide = mean.double()
        # Deviations from the first sample avoid cancellation in the squares.
        deviations = wide - self.sums.setdefault("origin", wide[0])
        self._add_bases(deviations)
        self._add("squares", deviations.square().sum(0))
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
        """Return the variance of one sample.

        Samples of a base are correlated, so it is put together from the variances within and between the bases.
        """
        if self.bases < 2:
            return (self.sums["squares"] - self._of_mean()).clamp_min(0) / (self.count - 1 or torch.nan)
        within = (self.sums["squares"] - self._of_bases()).clamp_min(0) / max(self.count - self.bases, 1)
        between = self._between() / (self.bases - 1)
        size = (self.count - self._sizes / self.count) / (self.bases - 1)
        return within + (between - within) / size

    def results(self) -> dict[str, Tensor]:
        """Return the fields of a `Prediction`, inputs in dimension 0; NaN where there are too few samples."""
        mean = self.sums["origin"] + self.sums["sum"] / self.count
        if self.likelihood is not None and self.likelihood.entropic:
            noise, total = self.sums["noise"] / self.count, self.likelihood.noise(mean)
            epistemic = (total - noise).clamp_min(0)
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

    def samples(self) -> Tensor:
        """Return all samples (samples, inputs, …)."""
        return torch.cat(self.kept)

    def quantiles(self, levels: list[float]) -> Tensor:
        """Return quantiles (levels, inputs, …), linear between the samples."""
        ordered = self.samples().sort(0).values
        places = [level * (self.count - 1) for level in levels]
        return torch.stack([ordered[int(p)].lerp(ordered[min(int(p) + 1, self.count - 1)], p - int(p)) for p in places])

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
            self._add("base", part)
            if (self.count + head) % self.group == 0:
                self._add("base squares", self.sums.pop("base").square())
        if full:
            of_base = deviations[head : head + full].unflatten(0, (-1, self.group)).sum(1)
            self._add("sum", of_base.sum(0))
            self._add("base squares", of_base.square().sum(0))
        if len(deviations) > head + full:
            part = deviations[head + full :].sum(0)
            self._add("sum", part)
            self._add("base", part)

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value
