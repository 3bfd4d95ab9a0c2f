"""The posterior predictive: many draws of the weights, folded into the batch, in bounded memory."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._student import t_quantile
from ..draws.bits import transformed
from ..draws.draw import fresh_seed, runs
from ..errors import InvalidArgument, InvalidInput
from ..nn.contexts import hold, using
from ..nn.eval_mode import in_eval
from ..nn.held_weights import held_pass
from ..nn.models import perturbed_layers
from .elbo import ELBO
from .likelihoods import Categorical, Gaussian, Likelihood, likelihood_of
from .moments import Moments
from .posterior import CONVERT

_FIRST = 32  # samples before samples="auto" looks for the first time
_BASES_AT_ONCE = 2**26  # numbers of one layer's ΔŴ, over all bases that one pass has
_ROWS, _NUMBERS = 1024, 2**19  # a pass has 1024 rows, or more if its widest layer has at most 2¹⁹ numbers then
_FILLED = 256  # rows


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What the samples say of each target; the inputs are dimension 0.

    Uncertainties are entropies (epistemic: the mutual information of target and weights) where the likelihood is
    categorical or Bernoulli, else variances. Quantiles are those of the expected target over the weights.
    """

    mean: Tensor  # (N, …): the expected target: probabilities, or means
    standard_error: Tensor  # of the mean, from the bases; NaN where there is only one
    total: Tensor  # (N, …): uncertainty of the target: entropy in nats of classes, variance of numbers
    aleatoric: Tensor  # what is left of it where the weights are known
    epistemic: Tensor  # what the weights add: total − aleatoric
    quantiles: Tensor | None  # (quantiles, N, …)
    samples: Tensor | None  # (count, N, …): the expected target under each draw
    count: int  # samples of each input
    bases: int  # ΔŴ that they have between them: samples of different bases are independent

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Where the mean of infinitely many samples lies, from and to, (N, …) each: Student's t over the bases."""
        if not 0 < level < 1:
            raise InvalidArgument(f"interval(level={level!r}): expected a probability between 0 and 1.")
        if self.bases == 1 and not transformed():
            warnings.warn(
                f"The {self.count} samples share one base, which says nothing of its own error: the interval is NaN. "
                "Ask for more of them, predict(…, samples=32), or for smaller groups, group=1.",
                RuntimeWarning,
                stacklevel=2,
            )
        half = self.standard_error * (t_quantile((1 + level) / 2, self.bases - 1) if self.bases > 1 else math.nan)
        return self.mean - half, self.mean + half

    def __repr__(self) -> str:
        return f"Prediction(mean of shape {tuple(self.mean.shape)}, count={self.count}, bases={self.bases})"


@torch.no_grad()
def predict(
    model: nn.Module,
    x: Tensor | tuple[Tensor, ...],
    samples: int | str = 32,
    *,
    likelihood: Any = None,
    joint: bool = False,
    quantiles: Sequence[float] = (),
    keep: bool | None = None,
    chunk: int | None = None,
    group: int = 8,
    seed: int | Tensor | None = None,
    tolerance: float = 0.01,
    most: int = 4096,
    batch_dim: int | tuple[int, int] = 0,
) -> Prediction:
    """Predict with `samples` draws of the weights, the model in eval mode.

    `likelihood` turns outputs into expected targets and says how uncertain these are; without one the output itself
    is taken, free of noise. Every input has weights of its own in each sample; `joint` shares them over the inputs,
    so that each sample is one function (they are kept, as with `keep`). At most `chunk` rows pass through the model
    at once; without it 1024, or as many more as stay small for a narrow model. Every `group` samples have a fresh
    base, and the standard error is clustered by base. Weights are drawn from the distributions of the model,
    whatever scheme it trains under: by flipout, or, where the noise is not symmetric (`DropConnect(0.3)`),
    independently. Then every sample is its own base, and without `joint` the weights are formed for each sample of
    each input, which takes time. 'auto' doubles the samples until the largest standard error is at most
    `tolerance`, or there are `most` of them. `batch_dim` is the example's dimension in inputs and output, or a pair
    for either; in the answer it is always the first. The answer depends on the seed (one number of torch's
    generator where none is given), not on the chunk.
    """
    fold = _Fold(model, x, likelihood, joint, chunk, group, batch_dim, seed)
    automatic = samples == "auto"
    count = _FIRST if automatic else whole_number("samples", samples, 1, of="predict", more=", or 'auto'.")
    most = whole_number("most", most, 1, of="predict")
    if not (isinstance(tolerance, (int, float)) and 0 < tolerance < math.inf):
        raise InvalidArgument(f"predict(tolerance={tolerance!r}): expected the largest standard error, > 0.")
    if not all(isinstance(level, (int, float)) and 0 <= level <= 1 for level in quantiles):
        raise InvalidArgument(f"predict(quantiles={quantiles!r}): expected probabilities between 0 and 1.")
    keep = joint if keep is None else keep
    found = [Moments(fold.likelihood, fold.group, keep or bool(quantiles)) for _ in fold.blocks]
    done, wanted = 0, min(count, most) if automatic else count
    with fold.running():
        while True:
            for block, moments in zip(fold.blocks, found, strict=True):
                for outputs in fold.outputs(block, done, wanted):
                    moments.add(outputs)
            done = wanted
            if not automatic:
                break
            worst = float(torch.stack([moments.standard_error().max() for moments in found]).max())
            if worst <= tolerance:
                break
            if done >= most:
                warnings.warn(
                    f"predict: after most={most} samples the largest standard error is {worst:.3g}, not below "
                    f"tolerance={tolerance}. Raise most, or tolerance.",
                    RuntimeWarning,
                    stacklevel=3,
                )
                break
            wanted = min(2 * done, most)
    return _gathered(found, list(quantiles), keep)


@dataclass(frozen=True)
class _Block:
    """Inputs `start` onward."""

    start: int
    length: int


class _Fold:
    """Which rows of which samples pass through the model together, and under which part of the draw."""

    def __init__(
        self,
        model: nn.Module,
        x: Any,
        likelihood: Any,
        joint: bool,
        chunk: int | None,
        group: int,
        batch_dim: int | tuple[int, int],
        seed: int | Tensor | None,
    ) -> None:
        group = whole_number("group", group, 1, of="predict")
        chunk = None if chunk is None else whole_number("chunk", chunk, 1, of="predict")
        if isinstance(model, ELBO):
            raise InvalidArgument("predict(ELBO(…), x): expected the model, not its loss: predict(elbo.model, x).")
        layers = list(perturbed_layers(model, CONVERT).values())
        noise = [distribution for layer in layers for distribution in layer.flipout.distributions.values()]
        if likelihood == "gaussian":
            raise InvalidArgument(
                "predict(likelihood='gaussian'): how large is the noise? Give the likelihood that was trained, "
                "elbo.likelihood, or flipout.bayes.likelihoods.Gaussian(std)."
            )
        self.likelihood: Likelihood | None = None if likelihood is None else likelihood_of(likelihood)
        if isinstance(self.likelihood, nn.Module) and not isinstance(self.likelihood, Likelihood):
            raise InvalidArgument(
                f"predict(likelihood=…): a {type(self.likelihood).__name__} given; expected a likelihood, such as that "
                "of an ELBO, elbo.likelihood."
            )
        if self.likelihood is not None and not isinstance(self.likelihood, Likelihood):
            raise InvalidArgument(
                f"predict(likelihood={likelihood!r}): a function does not say what is expected of a target; use one of "
                "flipout.bayes.likelihoods, or None for the output itself."
            )
        self.model, self.x, self.layer = model, x if isinstance(x, tuple) else (x,), layers[0]
        pair = batch_dim if isinstance(batch_dim, tuple) and len(batch_dim) == 2 else (batch_dim, batch_dim)
        told = " of the examples, or a pair: that in the inputs and that in the output."
        self.batch_dim, self.out_dim = (whole_number("batch_dim", dim, 0, of="predict", more=told) for dim in pair)
        self.likelihood = _moved(self.likelihood, self.out_dim)
        self.inputs = self._count()
        self.joint, self.scheme, self.group = joint, "flipout", group
        bases = max(_BASES_AT_ONCE // max(p.numel() for p in model.parameters()), 1)
        if chunk is None:
            widest = max(self.x[0].numel() // self.inputs, *(max(p.shape, default=1) for p in model.parameters()), 1)
            chunk = max(_ROWS, _NUMBERS // widest)
        if not all(distribution.symmetric for distribution in noise):
            # Flipping needs symmetry. Without it there are no bases to share: every draw of the weights is its own.
            self.scheme, self.group = "independent", 1
            chunk = chunk if joint else min(chunk, bases)
        # What fills a pass with one base is faster than several bases, whose products are batched.
        filled = self.group * self.inputs >= _FILLED
        self.at_once = max(min(chunk // self.inputs, self.group if filled else self.group * bases), 1)
        length = min(chunk, self.inputs)
        self.blocks = [_Block(i, min(length, self.inputs - i)) for i in range(0, self.inputs, length)]
        self.seed = seed
        if seed is None:
            drawn = fresh_seed(next(model.parameters()).device)
            self.seed = int(drawn) if drawn.device.type == "cpu" else drawn  # a number need not be read again

    def _count(self) -> int:
        dim = self.batch_dim
        for part in self.x:
            if not isinstance(part, Tensor) or part.dim() <= dim or part.shape[dim] != self.x[0].shape[dim]:
                given = f"a tensor of shape {tuple(part.shape)}" if isinstance(part, Tensor) else repr(type(part))
                raise InvalidInput(
                    f"predict: {given} given; expected a tensor, or a tuple of tensors for the arguments of the model, "
                    f"with as many inputs in dimension {dim} (batch_dim)."
                )
        if not self.x or not self.x[0].shape[dim]:
            raise InvalidInput("predict: there are no inputs; expected at least one example. Leave an empty batch out.")
        return self.x[0].shape[dim]

    @contextmanager
    def running(self) -> Iterator[None]:
        with in_eval(self.model), using(self.model, scheme=self.scheme):
            yield

    def outputs(self, block: _Block, start: int, stop: int) -> Iterator[Tensor]:
        """(samples, inputs, …), for the samples `start` to `stop` after each other; none with parts of two bases."""
        for sample, count in runs(start, stop - start, self.at_once, self.group):
            yield self._output(block, sample, count)

    def _output(self, block: _Block, sample: int, count: int) -> Tensor:
        dim, rows = self.batch_dim, count * block.length
        parts = [torch.cat([p.narrow(dim, block.start, block.length)] * count, dim) for p in self.x]
        # Examples are numbered sample by sample; where a block is not all inputs, it has one sample at a time.
        first, each, group = (
            (sample, block.length, self.group)
            if self.joint
            else (sample * self.inputs + block.start, 1, self.group * self.inputs)
        )
        with hold(self.model, seed=self.seed, first=first, rows=each, group=group):
            held_pass(self.layer)[0].count(rows, f"predict(batch_dim={dim})")
            made = self._through(parts, count)
        dim = self.out_dim
        if not isinstance(made, Tensor) or made.dim() <= dim or made.shape[dim] != rows:
            given = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else repr(type(made))
            raise InvalidInput(
                f"predict: the model returned {given} for {rows} rows; expected a tensor with the rows in "
                f"dimension {dim} (batch_dim=(of the inputs, of the output) where they differ). A model that returns "
                "more than its output: wrap it in one that does not, and convert that."
            )
        return made.movedim(dim, 0).unflatten(0, (count, block.length))

    def _through(self, parts: list[Tensor], count: int) -> Any:
        try:
            return self.model(*parts)
        except InvalidInput as error:
            shapes = ", ".join(str(tuple(part.shape)) for part in self.x)
            alone = " For one example alone: predict(model, x.unsqueeze(0))." if self.x[0].dim() == 1 else ""
            raise InvalidInput(
                f"predict: inputs of shape {shapes} given, {self.inputs} examples in dimension {self.batch_dim}; "
                f"{count} samples of them were folded into it.{alone} The model said: {error}"
            ) from error


def _moved(likelihood: Likelihood | None, dim: int) -> Likelihood | None:
    """The likelihood of an output whose dimension `dim` was moved to the front."""
    if not dim:
        return likelihood
    if isinstance(likelihood, Categorical) and likelihood.dim != -1:
        if likelihood.dim < 0:
            raise InvalidArgument(
                f"predict(batch_dim={dim}) with Categorical(dim={likelihood.dim}): count the dimension of the classes "
                "from the front, or put them last."
            )
        return Categorical(likelihood.dim + (likelihood.dim < dim), likelihood.ignore)
    if isinstance(likelihood, Gaussian) and likelihood.log_std.dim() > 1:
        raise InvalidArgument(
            f"predict(batch_dim={dim}) with a Gaussian std of shape {tuple(likelihood.log_std.shape)}: expected a "
            "number, or one for each feature of the last dimension."
        )
    return likelihood


def _gathered(found: list[Moments], levels: list[float], keep: bool) -> Prediction:
    """The inputs of all blocks, one after the other."""
    parts = [moments.results() for moments in found]
    return Prediction(
        **{name: torch.cat([part[name] for part in parts]) for name in parts[0]},
        quantiles=torch.cat([moments.quantiles(levels) for moments in found], 1) if levels else None,
        samples=torch.cat([moments.samples() for moments in found], 1) if keep else None,
        count=found[0].count,
        bases=found[0].bases,
    )
