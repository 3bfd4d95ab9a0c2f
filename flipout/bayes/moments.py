"""What is kept of the samples of some inputs: sums over all of them, and over those of each base."""

import torch
from torch import Tensor

from .likelihoods import Likelihood


class Moments:
    """Sums in float64 over samples that come in order. `keep` also keeps each sample's expected target."""

    def __init__(self, likelihood: Likelihood | None, group: int, keep: bool) -> None:
        self.likelihood, self.group, self.keep = likelihood, group, keep
        self.count = 0
        self.kept: list[Tensor] = []
        self.sums: dict[str, Tensor] = {}
        self.dtype = torch.float32

    @property
    def bases(self) -> int:
        return -(-self.count // self.group)

    def add(self, outputs: Tensor) -> None:
        """(samples, inputs, …)"""
        rows = outputs.flatten(0, 1)
        if self.likelihood is None:
            mean = rows.to(torch.promote_types(rows.dtype, torch.float32))
        else:
            mean = self.likelihood.mean(rows)
            noise = self.likelihood.noise(mean.double())
            self._add("noise", noise.unflatten(0, outputs.shape[:2]).sum(0))
        mean = mean.unflatten(0, outputs.shape[:2])
        self.dtype = mean.dtype
        if self.keep:
            self.kept.append(mean)
        # Deviations from the first sample keep cancellation away.
        apart = mean.double() - self.sums.setdefault("origin", mean[0].double())
        self._add("sum", apart.sum(0))
        self._add("squares", apart.square().sum(0))
        self._add_bases(apart)
        self.count += len(apart)

    def standard_error(self) -> Tensor:
        """Of the mean m, by the jackknife over the B bases: √((B−1)/B Σ_b ((S_b − n_b m) / (1 − n_b/n))²) / n, with S_b
        the sum over the n_b samples of base b. The last base may have fewer than the others."""
        total = self.sums["sum"]
        if self.bases < 2:
            return torch.full_like(total, torch.nan)
        mean, part, (full, rest) = total / self.count, self._open(), divmod(self.count, self.group)
        expected = self.group * mean
        whole = self.sums["base squares"] - 2 * expected * (total - part) + full * expected.square()
        spread = whole.clamp_min(0) / (1 - self.group / self.count) ** 2
        spread = spread + ((part - rest * mean) / (1 - rest / self.count)).square()
        return (spread * ((self.bases - 1) / self.bases)).sqrt() / self.count

    def variance(self) -> Tensor:
        """Of one sample. Those of a base are correlated, so it is put together from within and between the bases."""
        squares, of_mean = self.sums["squares"], self.sums["sum"].square() / self.count
        if self.bases < 2:
            return (squares - of_mean).clamp_min(0) / (self.count - 1 or torch.nan)
        of_bases = self.sums["base squares"] / self.group
        if self.count % self.group:
            of_bases = of_bases + self._open().square() / (self.count % self.group)
        within = (squares - of_bases).clamp_min(0) / max(self.count - self.bases, 1)
        between = (of_bases - of_mean).clamp_min(0) / (self.bases - 1)
        size = (self.count - self._sizes / self.count) / (self.bases - 1)
        return within + (between - within) / size

    def results(self) -> dict[str, Tensor]:
        """The inputs in dimension 0; NaN where there are too few samples to say."""
        mean = self.sums["origin"] + self.sums["sum"] / self.count
        if self.likelihood is not None and self.likelihood.entropic:
            noise, total = self.sums["noise"] / self.count, self.likelihood.noise(mean)
            epistemic = (total - noise).clamp_min(0)
        else:
            epistemic = self.variance()
            noise = torch.zeros_like(mean) if self.likelihood is None else self.sums["noise"] / self.count
            total = noise + epistemic
        error = self.standard_error()
        made = {"mean": mean, "standard_error": error, "total": total, "aleatoric": noise, "epistemic": epistemic}
        return {name: value.to(self.dtype) for name, value in made.items()}

    def samples(self) -> Tensor:
        """(samples, inputs, …)"""
        return torch.cat(self.kept)

    def quantiles(self, levels: list[float]) -> Tensor:
        """(levels, inputs, …), linear between the samples."""
        ordered = self.samples().sort(0).values
        places = [level * (self.count - 1) for level in levels]
        made = [ordered[int(p)].lerp(ordered[min(int(p) + 1, self.count - 1)], p - int(p)) for p in places]
        return torch.stack(made)

    @property
    def _sizes(self) -> int:
        """Σ_b n_b²"""
        full, rest = divmod(self.count, self.group)
        return full * self.group**2 + rest**2

    def _open(self) -> Tensor:
        """The sum over the last base, where it is not full."""
        return self.sums.get("base", torch.zeros_like(self.sums["sum"]))

    def _add_bases(self, apart: Tensor) -> None:
        """The rest of the base that is open, then whole ones, then the first samples of the next."""
        head = min(-self.count % self.group, len(apart))
        whole = (len(apart) - head) // self.group * self.group
        if head:
            self._add("base", apart[:head].sum(0))
            if (self.count + head) % self.group == 0:
                self._add("base squares", self.sums.pop("base").square())
        if whole:
            each = apart[head : head + whole].unflatten(0, (-1, self.group)).sum(1)
            self._add("base squares", each.square().sum(0))
        if len(apart) > head + whole:
            self._add("base", apart[head + whole :].sum(0))

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value
