"""The result of `predict`: the distribution of the target for each input."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from .._arguments import whole_number
from .._student import t_quantile
from ..draws.bits import is_transformed
from ..errors import InvalidArgument, InvalidInput, Unsupported
from ._expected import frozen, predictive_likelihood
from ._figures import FilePath
from ._function_interval import function_levels
from ._likelihood import wide
from ._moments import Moments, quantiles_of
from ._named import LikelihoodName
from ._needs import check_level, check_several, checked_targets, needed_likelihood, needed_mixture, needed_samples
from ._plotted import plotted
from ._table import table, table_html
from ._target_interval import target_interval, warn_of_new_meaning
from .likelihoods import Likelihood


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The distribution of the target for each input, its mean and its uncertainty.

    Dimension 0 is the input. For categorical and Bernoulli likelihoods, uncertainties are entropies in nats, and the
    epistemic part is the mutual information of target and weights. For other likelihoods, and for none, they are
    variances. Three kinds of interval answer three questions: `interval` holds the target, `function_interval` holds
    the expected target, given the weights, and `mean_interval` is the Monte Carlo error of `mean`.
    """

    mean: Tensor  # (N, …): the expected target, such as the probability of each class
    standard_error: Tensor  # (N, …): Monte Carlo error of the mean, clustered by base; NaN if there is one base
    total: Tensor  # (N, …): the uncertainty of the target
    aleatoric: Tensor  # (N, …): the part that remains if the weights are known
    epistemic: Tensor  # (N, …): the part that comes from the weights, total − aleatoric
    quantiles: Tensor | None  # (quantiles, N, …): quantiles of the expected target over the weights, if requested
    outputs: Tensor | None  # (count, N, …): the model's output under each sample, if kept
    likelihood: Likelihood | None  # turns outputs into distributions of the target; None if there is no noise
    count: int  # the number of samples of each input
    group: int  # the number of samples that share a base
    antithetic: bool  # samples are pairs of a draw and its mirror image, one after the other
    is_whole: bool  # the samples are a whole ensemble, not draws from a distribution
    note: str  # what was done to the prediction, such as a recalibration; else empty

    _is_of_early_form: ClassVar[bool] = False  # called in a way that 0.3 allowed, where `interval` had another meaning

    @classmethod
    def from_outputs(cls, outputs: Tensor, likelihood: LikelihoodName | Likelihood | None = None) -> "Prediction":
        """Return the prediction of any networks: a plain one, an ensemble, MC dropout.

        Args:
            outputs: The outputs (networks, N, …).
            likelihood: Turns outputs into distributions of the target, as for `predict`.

        Returns:
            The prediction of the equal mixture of these networks. Variances are estimated as if the networks were
            samples of more, divided by networks − 1.

        Raises:
            InvalidArgument: The likelihood does not say what to expect of a target.
            InvalidInput: The outputs have fewer than two dimensions, or there are none.

        Example:
            >>> outputs = torch.stack([network(x) for network in ensemble])
            >>> prediction = bayes.Prediction.from_outputs(outputs, "categorical")
        """
        if not isinstance(outputs, Tensor) or outputs.dim() < 2 or not outputs.shape[0] or not outputs.shape[1]:
            shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs)
            raise InvalidInput(
                f"from_outputs: {shape} given; expected a tensor of outputs (networks, N, …). For one network: "
                "output.unsqueeze(0); for several: torch.stack([network(x) for network in networks])."
            )
        moments = Moments(predictive_likelihood(likelihood, 0), 1, math.inf)
        with torch.no_grad():
            moments.add(outputs.detach())
        return prediction_of([moments], is_whole=True)

    @property
    def bases(self) -> int:
        """The number of bases. Samples of different bases are independent."""
        return -(-self.count // self.group)

    @cached_property
    def samples(self) -> Tensor | None:
        """The expected target under each sample (count, N, …), if the samples were kept."""
        if self.outputs is None or self.likelihood is None:
            return self.outputs
        with torch.no_grad():
            return self.likelihood.mean(self.outputs.flatten(0, 1)).unflatten(0, self.outputs.shape[:2])

    @torch.no_grad()
    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor] | Tensor:
        """Return the interval that holds the target, noise included, with this probability.

        Args:
            level: The probability of the target inside.

        Returns:
            For numbers and counts, the lower and the upper end (N, …): quantiles of the mixture over the samples, with
            equal tails. Counts have at least this probability. For classes, the smallest set of at least this
            probability, as a mask (N, …, classes).

        Raises:
            InvalidArgument: `level` is not between 0 and 1.
            Unsupported: There is no likelihood, and therefore no noise; there is only one sample; or the samples were
                not kept.

        Example:
            >>> low, high = prediction.interval(0.9)
            >>> ((low <= y) & (y <= high)).float().mean()  # about 0.9
        """
        if self._is_of_early_form:
            warn_of_new_meaning()
        return target_interval(self, level)

    def function_interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return quantiles of the expected target over the weights: where the function is, without observation noise.

        Args:
            level: The share of the weights inside.

        Returns:
            The lower and the upper end, each of the shape (N, …) of the mean. The function of weights that were not
            drawn is inside with this probability. The outermost of n samples hold the share (n − 1) / (n + 1), and no
            interval is wider.

        Warns:
            RuntimeWarning: There are too few samples for this level.

        Raises:
            InvalidArgument: `level` is not between 0 and 1.
            Unsupported: There is only one sample, or the samples were not kept.

        Example:
            >>> low, high = prediction.function_interval(0.9)
        """
        check_level("function_interval", level)
        check_several("function_interval", self)
        samples = needed_samples("function_interval", self)
        low, high = quantiles_of(samples, function_levels(level, self.count, self.is_whole)).to(self.mean.dtype)
        return low, high

    def mean_interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return a confidence interval of `mean`: the Monte Carlo error from using finitely many samples.

        More samples shrink it to nothing. It says nothing about the target: `interval` does.

        Args:
            level: The probability that the interval contains the mean over infinitely many samples.

        Returns:
            The lower and the upper end, each of the shape (N, …) of the mean, by Student's t over the bases.

        Raises:
            InvalidArgument: `level` is not between 0 and 1.
            Unsupported: There is only one sample.

        Example:
            >>> low, high = prediction.mean_interval(0.9)
        """
        check_level("mean_interval", level)
        check_several("mean_interval", self)
        if self.bases == 1 and not is_transformed():
            warnings.warn(
                f"The {self.count} samples share one base, which says nothing about its own error: the interval is "
                "NaN. Ask for more samples, predict(…, samples=32), or for smaller groups, group=1.",
                RuntimeWarning,
                stacklevel=2,
            )
        half = self.standard_error * (t_quantile((1 + level) / 2, self.bases - 1) if self.bases > 1 else math.nan)
        return self.mean - half, self.mean + half

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw targets, noise included.

        Args:
            count: The number of targets for each input.
            generator: The source of randomness. By default torch's own.

        Returns:
            Targets (count, N, …). Each draw uses one sample of the weights for all inputs, so with
            `predict(…, joint=True)` it comes from one function.

        Raises:
            InvalidArgument: `count` is not ≥ 1.
            Unsupported: There is no likelihood, or it cannot be sampled from, or the samples were not kept.

        Example:
            >>> (prediction.sample(1000).sum(1) > 100).float().mean()  # the risk that the sum is too large
        """
        count = whole_number("count", count, 1, of="sample")
        needed_likelihood("sample", self)
        return needed_mixture("sample", self).sample(count, generator).to(self.mean.device)

    @torch.no_grad()
    def log_prob(self, target: Tensor) -> Tensor:
        """Return the log-probability, or log-density, of each observed target.

        Args:
            target: The targets, in the shape of `total`.

        Returns:
            Numbers (N, …), each of one target alone.

        Raises:
            InvalidInput: The targets have another shape than the prediction.
            Unsupported: There is no likelihood, or the samples were not kept.

        Example:
            >>> nll = -prediction.log_prob(y).mean()
        """
        needed_likelihood("log_prob", self)
        checked = checked_targets("log_prob", self, target)
        return needed_mixture("log_prob", self).log_prob(checked).to(self.mean.dtype)

    @torch.no_grad()
    def cdf(self, target: Tensor) -> Tensor:
        """Return the probability of a target that is at most this large.

        Args:
            target: The targets, in the shape of `total`.

        Returns:
            Probabilities (N, …). For calibrated predictions of numbers they are uniform.

        Raises:
            InvalidInput: The targets have another shape than the prediction.
            Unsupported: There is no likelihood, it has no cdf, or the samples were not kept.

        Example:
            >>> 1 - prediction.cdf(torch.full_like(prediction.mean, 200.0))  # the risk of more than 200
        """
        likelihood = needed_likelihood("cdf", self)
        if likelihood.entropic:
            raise Unsupported(
                f"cdf: {type(likelihood).__name__} targets are classes, which have no order. Use log_prob(target)."
            )
        checked = checked_targets("cdf", self, target)
        return needed_mixture("cdf", self).cdf(checked).to(self.mean.dtype)

    def rescale(self, scale: float | Tensor, shift: float | Tensor = 0.0) -> "Prediction":
        """Return the prediction of scale · target + shift, such as the target in its own unit.

        Args:
            scale: A number > 0, or one for each feature of the target.
            shift: A number, or a tensor that broadcasts to the mean.

        Returns:
            The prediction in the new unit.

        Raises:
            InvalidArgument: `scale` is not finite and > 0, or `shift` is not finite.
            InvalidInput: A tensor does not broadcast to the mean.
            Unsupported: The targets are classes or counts.

        Example:
            >>> standard = bayes.predict(elbo, x)  # trained on (y - y.mean()) / y.std()
            >>> prediction = standard.rescale(y.std(), y.mean())
        """
        to = {"dtype": self.mean.dtype, "device": self.mean.device}
        factor, offset = (torch.as_tensor(number, **to).detach() for number in (scale, shift))
        if not bool((factor.isfinite() & (factor > 0)).all() and offset.isfinite().all()):
            raise InvalidArgument(f"rescale({scale!r}, {shift!r}): expected a scale > 0 and a shift, both finite.")
        for name, number in (("scale", factor), ("shift", offset)):
            sizes = zip(number.shape[::-1], self.mean.shape[::-1], strict=False)
            if number.dim() > self.mean.dim() or any(size not in (1, full) for size, full in sizes):
                raise InvalidInput(
                    f"rescale: a {name} of shape {tuple(number.shape)} and a mean of shape {tuple(self.mean.shape)}; "
                    "expected a number, or a tensor that broadcasts to the mean, such as one number for each feature. "
                    f"One for each input is {name}.view(-1{', 1' * (self.mean.dim() - 1)})."
                )
        likelihood, outputs = self.likelihood, self.outputs
        if likelihood is not None:
            likelihood, outputs = likelihood.rescaled(outputs, factor, offset)
        elif outputs is not None:
            outputs = wide(outputs) * factor + offset
        squared = factor.square()
        return replace(
            self,
            mean=self.mean * factor + offset,
            standard_error=self.standard_error * factor,
            total=self.total * squared,
            aleatoric=self.aleatoric * squared,
            epistemic=self.epistemic * squared,
            quantiles=None if self.quantiles is None else self.quantiles * factor + offset,
            outputs=outputs,
            likelihood=likelihood,
        )

    def plot(
        self,
        x: Tensor | None = None,
        target: Tensor | None = None,
        *,
        level: float = 0.9,
        path: FilePath | None = None,
    ) -> Any:
        """Draw the prediction. Needs matplotlib.

        Numbers are drawn as bands: where the target is, and within it where the function is. Classes are drawn as a
        reliability diagram if there are targets, else as the probability of the likeliest class, in order.

        Args:
            x: The inputs, of shape (N,) or (N, 1). Without them, numbers are put in the order of their means.
            target: The targets, in the shape of `total`.
            level: The probability of the bands.
            path: The file to write, if any.

        Returns:
            A matplotlib figure.

        Raises:
            InvalidInput: The inputs or targets have the wrong shape, or an input has several numbers as its target.
            Unsupported: The prediction of numbers has no interval.

        Example:
            >>> prediction.plot(x, y, path="band.svg")
        """
        return plotted(self, x, target, level, path)

    def __repr__(self) -> str:
        return table(self)

    def _repr_html_(self) -> str:
        return table_html(self)


@torch.no_grad()
def prediction_of(
    blocks: list[Moments], levels: Sequence[float] = (), keep: bool = True, is_whole: bool = False
) -> Prediction:
    """Return the prediction of the inputs of all blocks."""
    results, first = [moments.results() for moments in blocks], blocks[0]
    fields = results[0]
    if len(results) > 1:
        fields = {name: torch.cat([result[name] for result in results]) for name in fields}
    if is_whole and first.count == 1:  # the weights of one network are known: all uncertainty is noise
        fields |= {"total": fields["aleatoric"], "epistemic": torch.zeros_like(fields["aleatoric"])}
    outputs = [moments.outputs() for moments in blocks] if keep else [None]
    kept = [part for part in outputs if part is not None]
    return Prediction(
        **fields,
        quantiles=torch.cat([moments.quantiles(levels) for moments in blocks], 1) if levels else None,
        outputs=torch.cat(kept, 1) if len(kept) == len(outputs) else None,
        likelihood=frozen(first.likelihood),
        count=first.count,
        group=first.group,
        antithetic=first.antithetic,
        is_whole=is_whole,
        note="",
    )
