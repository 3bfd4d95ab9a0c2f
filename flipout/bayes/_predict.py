"""The posterior predictive: averages over many draws of the weights, in bounded memory."""

import math
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._model_calls import ModelInputs, OutputSelector
from .._progress import Shown
from ..draws.bits import is_transformed
from ..errors import InvalidArgument
from ._elbo import ELBO
from ._expected import predictive_likelihood
from ._fold import Fold
from ._moments import Moments
from ._named import LikelihoodName
from ._prediction import Prediction, prediction_of
from .likelihoods import HeteroscedasticGaussian, Likelihood

_KEPT = 2**24  # the most numbers of all samples that are kept by default: 64 MiB in single precision
_FIRST = 32  # samples before samples="auto" looks at the error for the first time


@torch.no_grad()
def predict(
    model: nn.Module,
    x: ModelInputs,
    samples: int | Literal["auto"] = 32,
    *,
    likelihood: LikelihoodName | Likelihood | None = None,
    joint: bool = False,
    quantiles: Sequence[float] = (),
    keep: bool | None = None,
    chunk: int | None = None,
    group: int = 8,
    antithetic: bool = False,
    seed: int | Tensor | None = None,
    tolerance: float = 0.01,
    most: int = 4096,
    batch_dim: int | tuple[int, int] = 0,
    output: OutputSelector | None = None,
    progress: bool = False,
) -> Prediction:
    """Predict by averaging over samples of the weights.

    The model runs in eval mode, with dropout and batch statistics off and weight noise on. Weights are drawn from the
    distributions of the model, whatever scheme it trains under: by flipout, or independently if the noise is not
    symmetric, as for `DropConnect(0.3)`. Then every sample is its own base.

    Args:
        model: A converted model, or the `ELBO` that it was trained with, whose likelihood is then used.
        x: The inputs (N, …). A tuple or list holds several arguments of the model, a dict holds keyword arguments. All
            their tensors have the N inputs; other values are passed on.
        samples: The number of weight samples per input, or "auto" to double it, from 32 on, until the largest standard
            error is at most `tolerance`.
        likelihood: Turns outputs into distributions of the target: a name, or an object such as `elbo.likelihood`.
            Without it, the output itself is averaged, without observation noise.
        joint: Use the same weights for all inputs, so that each sample is one function. Otherwise every input has its
            own weights in each sample. For many inputs, the weights of a sample of linear layers and convolutions are
            formed, and under autocast rounded like the weights of a plain network.
        quantiles: Probabilities of the quantiles of the expected target to return.
        keep: Keep the output of every sample, which intervals of numbers and `samples` need. By default outputs are
            kept if `joint`, or if there are at most 2²⁴ numbers in all.
        chunk: The largest number of rows (inputs × samples) of one pass through the model. By default 1024, or more
            if the model is narrow. The answer does not depend on it, except for rounding.
        group: The number of samples that share a base ΔŴ. They are correlated, so the standard error is computed from
            the bases. With 1, all samples are independent.
        antithetic: Draw the samples in pairs, each with its mirror image. The error of the mean is then smaller, most
            of all for small spreads, and the error of `epistemic` is larger.
        seed: The seed of the weights. By default one number is read from torch's generator.
        tolerance: The largest standard error that "auto" accepts.
        most: The largest number of samples that "auto" takes.
        batch_dim: The dimension of the inputs in `x` and in the output, or a pair if they differ. In the answer it is
            always dimension 0.
        output: Which part of what the model returns is its output: the name of a field such as "logits", a position, or
            a function. Without it, the only tensor.
        progress: Show how far it has come: a bar in a terminal or a notebook, if tqdm is installed, else lines.

    Returns:
        Mean, standard error and uncertainties of each input.

    Raises:
        InvalidArgument: An argument is out of its range, the likelihood does not say what to expect of a target, or
            several models were given.
        InvalidInput: The inputs or the model's output have the wrong shape.
        NotPerturbed: The model has no perturbed layers.

    Example:
        >>> prediction = bayes.predict(model, x, samples=64, likelihood="categorical")
        >>> prediction.mean, prediction.epistemic
    """
    if isinstance(model, (list, tuple)):
        raise InvalidArgument(
            f"predict: a {type(model).__name__} of {len(model)} models given; expected one model. The prediction of an "
            "ensemble, of models in eval mode, is Prediction.from_outputs(torch.stack([model(x) for model in models]), "
            "likelihood)."
        )
    is_early_form = not isinstance(model, ELBO) and likelihood is not None and not antithetic and output is None
    if isinstance(model, ELBO):
        likelihood = model.likelihood if likelihood is None else likelihood
        output = model.output if output is None else output
        # Compiled code would be compiled again for every chunk.
        model = getattr(model.model, "_orig_mod", model.model)
    fold = Fold(model, x, joint, chunk, group, batch_dim, seed, output, antithetic)
    expected = predictive_likelihood(likelihood, fold.out_dim)
    is_automatic = samples == "auto"
    count = _FIRST if is_automatic else whole_number("samples", samples, 1, of="predict", more=", or 'auto'.")
    if antithetic and count % 2:
        raise InvalidArgument(f"predict(samples={count}, antithetic=True): samples come in pairs. Use {count + 1}.")
    most = whole_number("most", most, 1 + antithetic, of="predict")
    most -= most % 2 if antithetic else 0
    if not (isinstance(tolerance, (int, float)) and 0 < tolerance < math.inf):
        raise InvalidArgument(f"predict(tolerance={tolerance!r}): expected the largest standard error, > 0.")
    if not all(isinstance(level, (int, float)) and 0 <= level <= 1 for level in quantiles):
        raise InvalidArgument(f"predict(quantiles={quantiles!r}): expected probabilities between 0 and 1.")
    most_kept = _KEPT / fold.inputs if keep is None and not joint else math.inf if keep is not False else 0
    most_kept = math.inf if quantiles else most_kept
    moments_of_blocks = [Moments(expected, fold.group, most_kept * block.length, antithetic) for block in fold.blocks]
    is_first, done, wanted = True, 0, min(count, most) if is_automatic else count
    shown = Shown(None if is_automatic else count * fold.inputs, "predict", "rows") if progress else None
    with fold.running(), shown or nullcontext():
        while True:
            for block, moments in zip(fold.blocks, moments_of_blocks, strict=True):
                for outputs in fold.outputs(block, done, wanted):
                    moments.add(outputs)
                    if is_first and expected is not None:
                        _warn_of_doubt(expected, outputs)
                    is_first = False
                    if shown is not None:
                        shown.advance(len(outputs) * block.length)
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
    prediction = prediction_of(moments_of_blocks, quantiles, keep is not False)
    # Version 0.3 had no `HeteroscedasticGaussian`, and nobody takes a set of classes for a pair of ends.
    if is_early_form and not (expected is None or expected.entropic or isinstance(expected, HeteroscedasticGaussian)):
        object.__setattr__(prediction, "_is_of_early_form", True)
    return prediction


def _warn_of_doubt(likelihood: Likelihood, outputs: Tensor) -> None:
    """Warn of outputs (samples, inputs, …) that look like a mistake."""
    # Under torch.func nothing can be read.
    doubt = None if is_transformed() else likelihood.doubt(outputs.flatten(0, 1), None)
    if doubt is not None:
        warnings.warn(f"predict: {doubt}", RuntimeWarning, stacklevel=4)
