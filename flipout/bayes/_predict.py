"""The posterior predictive: averages over many draws of the weights, in bounded memory."""

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from ..errors import InvalidArgument
from ._expected import predictive_likelihood
from ._fold import Fold
from ._moments import Moments
from ._prediction import Prediction
from .likelihoods import Likelihood

_FIRST = 32  # samples before samples="auto" looks at the error for the first time


@torch.no_grad()
def predict(
    model: nn.Module,
    x: Tensor | tuple[Tensor, ...],
    samples: int | Literal["auto"] = 32,
    *,
    likelihood: Literal["categorical", "bernoulli", "poisson"] | Likelihood | None = None,
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
    """Predict by averaging over samples of the weights.

    The model runs in eval mode, with dropout and batch statistics off and weight noise on. Weights are drawn from the
    distributions of the model, whatever scheme it trains under: by flipout, or independently if the noise is not
    symmetric, as for `DropConnect(0.3)`. Then every sample is its own base.

    Args:
        model: A converted model.
        x: The inputs (N, …); a tuple holds several arguments of the model.
        samples: The number of weight samples per input, or "auto" to double it, from 32 on, until the largest standard
            error is at most `tolerance`.
        likelihood: Turns outputs into expected targets and says how uncertain they are: a name, or an object such as
            `elbo.likelihood`. Without it, the output itself is averaged, without observation noise.
        joint: Use the same weights for all inputs, so that each sample is one function. The samples are then kept.
            Otherwise every input has its own weights in each sample.
        quantiles: Probabilities of the quantiles to return.
        keep: Return the samples. By default they are returned if `joint`.
        chunk: The largest number of rows (inputs × samples) of one pass through the model. By default 1024, or more
            if the model is narrow. The answer does not depend on it, except for rounding.
        group: The number of samples that share a base ΔŴ. They are correlated, so the standard error is computed from
            the bases. With 1, all samples are independent.
        seed: The seed of the weights. By default one number is read from torch's generator.
        tolerance: The largest standard error that "auto" accepts.
        most: The largest number of samples that "auto" takes.
        batch_dim: The dimension of the inputs in `x` and in the output, or a pair if they differ. In the answer it is
            always dimension 0.

    Returns:
        Mean, standard error and uncertainties of each input.

    Raises:
        InvalidArgument: An argument is out of its range, or the likelihood does not say what to expect of a target.
        InvalidInput: The inputs or the model's output have the wrong shape.
        NotPerturbed: The model has no perturbed layers.

    Example:
        >>> prediction = bayes.predict(model, x, samples=64, likelihood="categorical")
        >>> prediction.mean, prediction.epistemic
    """
    fold = Fold(model, x, joint, chunk, group, batch_dim, seed)
    expected = predictive_likelihood(likelihood, fold.out_dim)
    is_automatic = samples == "auto"
    count = _FIRST if is_automatic else whole_number("samples", samples, 1, of="predict", more=", or 'auto'.")
    most = whole_number("most", most, 1, of="predict")
    if not (isinstance(tolerance, (int, float)) and 0 < tolerance < math.inf):
        raise InvalidArgument(f"predict(tolerance={tolerance!r}): expected the largest standard error, > 0.")
    if not all(isinstance(level, (int, float)) and 0 <= level <= 1 for level in quantiles):
        raise InvalidArgument(f"predict(quantiles={quantiles!r}): expected probabilities between 0 and 1.")
    keep = joint if keep is None else keep
    moments_of_blocks = [Moments(expected, fold.group, keep or bool(quantiles)) for _ in fold.blocks]
    done, wanted = 0, min(count, most) if is_automatic else count
    with fold.running():
        while True:
            for block, moments in zip(fold.blocks, moments_of_blocks, strict=True):
                for outputs in fold.outputs(block, done, wanted):
                    moments.add(outputs)
            done = wanted
            if not is_automatic:
                break
            worst = float(torch.stack([moments.standard_error().max() for moments in moments_of_blocks]).max())
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
    return _joined(moments_of_blocks, list(quantiles), keep)


def _joined(blocks: list[Moments], levels: list[float], keep: bool) -> Prediction:
    """Put the inputs of all blocks together."""
    results = [moments.results() for moments in blocks]
    fields = results[0]
    if len(results) > 1:
        fields = {name: torch.cat([result[name] for result in results]) for name in fields}
    return Prediction(
        **fields,
        quantiles=torch.cat([moments.quantiles(levels) for moments in blocks], 1) if levels else None,
        samples=torch.cat([moments.samples() for moments in blocks], 1) if keep else None,
        count=blocks[0].count,
        bases=blocks[0].bases,
    )
